"""The region interface: which computations an instruction runs, with what arguments, and where their results go.

It is what MLIR's RegionBranchOpInterface is to its ops. A schema says by `control` (and `element_region`) how values pass, and
everything that walks through calls, loops and branches asks here and not for opcodes, so an op with a region that is new is
understood by all of them.

==========  =========================  ====================================  ==========================================
role        computation of             its parameters are                    its result is
==========  =========================  ====================================  ==========================================
CALLEE      a call, a fusion           the operands                          the instruction's
STARTED     an async-start             the operands                          element 1 of the instruction's
BRANCH      a conditional              the operand of its own number         the instruction's, if it was chosen
CONDITION   a loop                     the carry                             whether the body runs (again)
BODY        a loop                     the carry                             the next carry; the last is the instruction's
ELEMENTS    a reduce, map, sort, ...   elements of the operands              up to the op
OPAQUE      a custom-call              up to the op                          up to the op
==========  =========================  ====================================  ==========================================
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import Any, NamedTuple

from .canonical_values import TUPLES
from .ir import Computation, Instruction
from .schema import Control


class Role(enum.Enum):
    """What an instruction does with one of its computations, see above."""

    CALLEE = "callee"
    STARTED = "started"
    BRANCH = "branch"
    CONDITION = "condition"
    BODY = "body"
    ELEMENTS = "elements"
    OPAQUE = "opaque"


@dataclasses.dataclass(frozen=True, slots=True)
class Region:
    """One computation of an instruction. `arguments` are the operands, by number, that its parameters have the values of when
    it is entered from outside; none where the op itself says what they are."""

    role: Role
    attribute: str
    computation: Computation
    arguments: tuple[int, ...] = ()

    @property
    def is_repeated(self) -> bool:
        """Whether its parameters may also be what a body returned before."""
        return self.role in (Role.CONDITION, Role.BODY)

    @property
    def gives_result(self) -> bool:
        """Whether its result is the instruction's result."""
        return self.role in (Role.CALLEE, Role.BRANCH, Role.BODY)


class Loop(NamedTuple):
    """A loop's two computations of its carry."""

    condition: Computation
    body: Computation


def is_call(instruction: Instruction) -> bool:
    """Whether the instruction runs one computation of its operands, once."""
    return instruction.schema.control is Control.CALL


def is_start(instruction: Instruction) -> bool:
    """Whether the instruction begins to run one computation of its operands."""
    return instruction.schema.control is Control.START


def is_loop(instruction: Instruction) -> bool:
    """Whether the instruction runs a body of its carry as long as a condition holds."""
    return instruction.schema.control is Control.LOOP


def is_branching(instruction: Instruction) -> bool:
    """Whether the instruction runs the one of several computations that its first operand selects."""
    return instruction.schema.control is Control.BRANCHES


def has_regions_of_values(instruction: Instruction) -> bool:
    """Whether values pass whole into computations and out of them: a call (begun or done), a loop or a branch."""
    return instruction.schema.control is not None


def callee(instruction: Instruction) -> Computation:
    """What a call or start runs."""
    return instruction.called_computations[0]


def loop_of(instruction: Instruction) -> Loop:
    """What a loop runs."""
    return Loop(instruction.attributes["condition"], instruction.attributes["body"])


def branches_of(instruction: Instruction) -> tuple[Computation, ...]:
    """What a branching instruction chooses from, in the order of its operands behind the selector."""
    return instruction.called_computations


def regions(instruction: Instruction) -> tuple[Region, ...]:
    """The computations of an instruction with their parts, in the order of its attributes."""
    attributes = [(name, c) for name, value in instruction.attributes.items()
                  for c in (value if isinstance(value, TUPLES) else (value,)) if isinstance(c, Computation)]
    schema, count = instruction.schema, len(instruction.operands)
    match schema.control:
        case Control.CALL | Control.START:
            role = Role.CALLEE if schema.control is Control.CALL else Role.STARTED
            return tuple(Region(role, name, c, tuple(range(count))) for name, c in attributes)
        case Control.BRANCHES:
            return tuple(Region(Role.BRANCH, name, c, (number,)) for number, (name, c) in enumerate(attributes, 1))
        case Control.LOOP:
            roles = {"condition": Role.CONDITION, "body": Role.BODY}
            return tuple(Region(roles[name], name, c, (0,)) for name, c in attributes)
        case None:
            pass
    role = Role.OPAQUE if schema.element_region is None else Role.ELEMENTS
    return tuple(Region(role, name, c) for name, c in attributes)


def with_regions(instruction: Instruction, rebuilt: Callable[[Region], Computation]) -> dict[str, Any]:
    """The instruction's attributes, each computation replaced by what `rebuilt` makes of it."""
    attributes = dict(instruction.attributes)
    several: dict[str, list[Computation]] = {}
    for region in regions(instruction):
        if isinstance(attributes[region.attribute], tuple):
            several.setdefault(region.attribute, []).append(rebuilt(region))
        else:
            attributes[region.attribute] = rebuilt(region)
    return attributes | {name: tuple(computations) for name, computations in several.items()}
