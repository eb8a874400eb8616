"""What the codecs of attributes read from: a scanner that knows the names of the program it reads. The parser is one."""

from __future__ import annotations

import re

from ..core.shape import Shape
from .ir import Computation, Instruction
from .literals.literal import Literal
from .literals.text import parse_literal
from .scanner import Scanner, nearest

DEFINITION = r"(?m)^[ \t]*+(?:ROOT[ \t]++)?%?{}[ \t]++="
"""With a name in it, the pattern of the line that defines an instruction."""

COMPUTATION_NAMED = r"(?m)^[ \t]*+(?:ENTRY[ \t]++)?%?{}[ \t]*+[({{]"
"""With a name in it, the pattern of the line that begins a computation."""


class Reader(Scanner):
    """A position in the text of a program. `computations` are those that stand before it, by name, and `names` the
    instructions that stand before it in the same computation."""

    def __init__(self, text: str, filename: str = ""):
        super().__init__(text, filename)
        self.computations: dict[str, Computation] = {}
        self.names: dict[str, Instruction] = {}

    def computation_reference(self) -> Computation:
        """The computation whose name comes next; it must stand earlier in the text. Or it stands here, in braces."""
        if self.looking_at("{"):
            return self.nested_computation()
        start = self.skip()
        name = self.name("the name of a computation")
        found = self.computations.get(name)
        if found is None:
            later = re.compile(COMPUTATION_NAMED.format(re.escape(name))).search(self.text, self.pos)
            below = "it is defined below; a computation must stand before its callers"
            hint = below if later else nearest(name, self.computations)
            raise self.error(f"computation does not exist: {name}", start, "the name of an earlier computation", hint)
        return found

    def nested_computation(self) -> Computation:
        """A computation in braces, in place of a name. Only a parser reads that."""
        raise self.error("expects the name of a computation", expected="the name of an earlier computation")

    def instruction_reference(self) -> Instruction:
        """The instruction whose name comes next; it must stand earlier in the same computation."""
        start = self.skip()
        name = self.name("the name of an instruction")
        found = self.names.get(name)
        if found is None:
            later = re.compile(DEFINITION.format(re.escape(name))).search(self.text, self.pos)
            hint = "it is defined below; an instruction must stand before its users" if later else nearest(name, self.names)
            raise self.error(f"instruction does not exist: {name}", start, "the name of an earlier instruction", hint)
        return found

    def literal(self, shape: Shape) -> Literal:
        """The body of a literal of this shape."""
        return parse_literal(self, shape)
