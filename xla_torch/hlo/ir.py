"""The one representation of programs: Module > Computation > Instruction. It is HLO, and there is no torch in it.

An instruction points at its operand instructions and, through its attributes, at the computations it calls. A module
points at its entry; computations are those reachable from it. Nothing here knows an opcode by name, except that
`parameter` instructions make up a computation's parameters.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from ..core.shape import ProgramShape, Shape
from ..core.sizes import unnamed
from .canonical_values import TUPLES
from .schema import WITHOUT_COMPUTATIONS, OpSchema, Trait, schema_of
from .structure import GET_TUPLE_ELEMENT, PARAMETER, TUPLE


class Instruction:
    """One HLO instruction.

    `attributes` holds the opcode's own attributes under their HLO names (``dimensions``, ``to_apply``, ...), typed as the
    op's definition says, and only those that were given. `common` holds what any instruction may carry: ``metadata``,
    ``sharding``, ``frontend_attributes``, ``backend_config``, ``control_predecessors``, ``statistics``,
    ``parameter_replication``, ``origin``; each as the value that the printer prints back. `line` and `column` say where
    it stood in a file (0 where it did not).
    """

    __slots__ = ("attributes", "column", "common", "line", "name", "opcode", "operands", "shape")

    def __init__(self, opcode: str, shape: Shape, operands: Sequence[Instruction] = (),
                 attributes: Mapping[str, Any] | None = None, name: str = "", common: dict[str, Any] | None = None,
                 line: int = 0, column: int = 0):
        self.opcode, self.shape, self.operands, self.name = opcode, shape, tuple(operands), name
        self.attributes: dict[str, Any] = dict(attributes or {})
        self.common: dict[str, Any] = common or {}
        self.line, self.column = line, column

    @property
    def schema(self) -> OpSchema:
        """What is known of the opcode. Raises UnsupportedError for an unknown one."""
        return schema_of(self.opcode)

    def has(self, trait: Trait) -> bool:
        """Whether the op has this trait."""
        return trait in schema_of(self.opcode).traits

    @property
    def is_parameter(self) -> bool:
        return self.opcode == PARAMETER

    @property
    def is_tuple(self) -> bool:
        """Whether it makes a tuple of its operands."""
        return self.opcode == TUPLE

    @property
    def is_element(self) -> bool:
        """Whether it takes one element out of a tuple."""
        return self.opcode == GET_TUPLE_ELEMENT

    @property
    def called_computations(self) -> tuple[Computation, ...]:
        """The computations that attributes refer to, in the order of the attributes."""
        if not self.attributes or self.opcode in WITHOUT_COMPUTATIONS:  # this is asked of each, again and again
            return ()
        found: list[Computation] = []
        for value in self.attributes.values():
            if isinstance(value, Computation):
                found.append(value)
            elif isinstance(value, TUPLES):
                found.extend(v for v in value if isinstance(v, Computation))
        return tuple(found)

    @property
    def op_name(self) -> str:
        """Where it came from in the user's program (metadata ``op_name``), or ""."""
        metadata: Mapping[str, str] | str | None = self.common.get("metadata")
        return metadata.get("op_name", "") if isinstance(metadata, Mapping) else ""

    @property
    def where(self) -> str:
        """For error messages: op_name and position, whatever is known."""
        position = f"line {self.line}, column {self.column}" if self.line else ""
        return ", ".join(filter(None, (self.op_name, position)))

    @property
    def subject(self) -> str:
        """For error messages: ``dot (%dot.7)``."""
        return f"{self.opcode} (%{self.name})" if self.name else self.opcode

    def __repr__(self) -> str:
        operands = ", ".join(f"%{o.name}" for o in self.operands)
        return f"%{self.name} = {self.shape} {self.opcode}({operands})"


class Computation:
    """A named list of instructions in an order where operands come first, with one root.

    `is_canonical` notes that it is known to be in canonical form (see `transform.canonical`, which sets it and asks it);
    `findings` what analyses found of it (see `cached_on_computation`). `derivatives` are those that it brings, where its ops
    alone do not say what its author wants (see `derivatives.py`).
    """

    __slots__ = ("derivatives", "execution_thread", "findings", "instructions", "is_canonical", "name", "root")

    def __init__(self, name: str, instructions: Iterable[Instruction], root: Instruction | None = None,
                 execution_thread: str = ""):
        self.name = name
        self.instructions = list(instructions)
        self.root = root if root is not None else self.instructions[-1]
        self.execution_thread = execution_thread
        self.is_canonical = False
        self.findings: dict[Callable[..., Any], Any] = {}
        self.derivatives: Any = None

    @property
    def parameters(self) -> tuple[Instruction, ...]:
        """Parameter instructions ordered by parameter number."""
        found = [i for i in self.instructions if i.opcode == PARAMETER]
        return tuple(sorted(found, key=lambda i: i.attributes["parameter_number"]))

    @property
    def program_shape(self) -> ProgramShape:
        parameters = self.parameters
        return ProgramShape(tuple(p.shape for p in parameters), self.root.shape, tuple(p.name for p in parameters))

    def __repr__(self) -> str:
        return f"%{self.name} {self.program_shape}"


_Found = TypeVar("_Found")


def cached_on_computation(analysis: Callable[[Computation], _Found]) -> Callable[[Computation], _Found]:
    """Ask an analysis once of each computation, and keep what it finds as long as the computation lives.

    Only for computations that are complete: nobody changes their instructions any more.
    """
    @functools.wraps(analysis)
    def asked(computation: Computation) -> _Found:
        findings = computation.findings
        if analysis not in findings:
            findings[analysis] = analysis(computation)
        return findings[analysis]
    return asked


def cached_with_arguments(analysis: Callable[..., _Found]) -> Callable[..., _Found]:
    """The same for an analysis of a computation and of other hashable arguments. Computations that many others use are walked
    once then, and not once for each way to them, of which there may be exponentially many."""
    @functools.wraps(analysis)
    def asked(computation: Computation, *arguments: Any) -> _Found:
        findings, key = computation.findings.setdefault(asked, {}), _key(arguments)
        if key not in findings:
            findings[key] = analysis(computation, *arguments)
        return findings[key]
    return asked


def _key(value: Any) -> Any:
    if isinstance(value, TUPLES):
        return tuple(map(_key, value))
    return value.key if isinstance(value, Shape) else unnamed(value)


class Module:
    """A program: the entry computation, everything it calls, and the header of the text.

    `header` holds header attributes other than the name (``is_scheduled``, ``input_output_alias``, ...) as the printer
    prints them; `tables` the FileNames, FunctionNames, FileLocations and StackFrames sections, each a dict from row number
    to the row's text. `unreachable` keeps computations of a parsed text that the entry does not call.
    """

    __slots__ = ("entry", "header", "name", "tables", "unreachable")

    def __init__(self, name: str, entry: Computation, header: dict[str, Any] | None = None,
                 tables: dict[str, dict[int, str]] | None = None, unreachable: Sequence[Computation] = ()):
        self.name, self.entry = name, entry
        self.header: dict[str, Any] = header or {}
        self.tables: dict[str, dict[int, str]] = tables or {}
        self.unreachable = tuple(unreachable)

    @property
    def computations(self) -> list[Computation]:
        """Every computation, callees before callers, the entry last."""
        return reachable([*self.unreachable, self.entry])

    @property
    def replica_count(self) -> int:
        return int(self.header.get("replica_count", 1))

    @property
    def num_partitions(self) -> int:
        return int(self.header.get("num_partitions", 1))


def reachable(roots: Sequence[Computation]) -> list[Computation]:
    """The roots and all computations they call, callees first, each once. Iterative: call chains may be deep."""
    order: list[Computation] = []
    seen: set[int] = set()
    for root in roots:
        stack: list[tuple[Computation, Iterator[Computation]]] = []
        if id(root) not in seen:
            seen.add(id(root))
            stack.append((root, _callees(root)))
        while stack:
            computation, callees = stack[-1]
            for callee in callees:
                if id(callee) not in seen:
                    seen.add(id(callee))
                    stack.append((callee, _callees(callee)))
                    break
            else:
                stack.pop()
                order.append(computation)
    return order


def _callees(computation: Computation) -> Iterator[Computation]:
    for instruction in computation.instructions:
        yield from instruction.called_computations


def live_instructions(computation: Computation, roots: Iterable[Instruction] | None = None) -> list[Instruction]:
    """The instructions that the root (or the given roots) depend on, in the computation's order."""
    needed: set[int] = set()
    stack = [computation.root] if roots is None else list(roots)
    while stack:
        instruction = stack.pop()
        if id(instruction) not in needed:
            needed.add(id(instruction))
            stack.extend(instruction.operands)
    return [i for i in computation.instructions if id(i) in needed]


def unique_names(instructions: Iterable[Instruction]) -> None:
    """Rename in place so that names are unique, with XLA's ``.N`` suffixes; unnamed ones take their opcode's name."""
    taken: set[str] = set()
    counters: dict[str, int] = {}
    for instruction in instructions:
        name = instruction.name or instruction.opcode
        if name in taken:
            stem, _, suffix = name.rpartition(".")
            stem = stem if stem and suffix.isdigit() else name
            count = counters.get(stem, 0)
            while name in taken:
                count += 1
                name = f"{stem}.{count}"
            counters[stem] = count
        taken.add(name)
        instruction.name = name


def free_name(name: str, taken: Container[str], counts: dict[str, int]) -> str:
    """The name, or the first of ``name.1``, ``name.2``, ... that is not taken. `counts` holds how far was looked before: names
    are never given back."""
    fresh, count = name, counts.get(name, 0)
    if count:
        fresh = f"{name}.{count}"
    while fresh in taken:
        count += 1
        fresh = f"{name}.{count}"
    counts[name] = count
    return fresh


@dataclasses.dataclass(frozen=True)
class Token:
    """The run-time value of a token: carries nothing, orders side effects."""
