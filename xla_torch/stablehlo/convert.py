"""MLIR operations to HLO modules: the one way in for StableHLO, whatever it was read from.

Conversion with argument shapes is shape refinement: unknown sizes follow from the arguments' by the shape functions of HLO's ops,
and small integer computations are folded on the way (`folding.py`).
"""

from __future__ import annotations

import dataclasses
import gc
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..core.errors import InvalidArgument, UnsupportedError
from ..core.shape import Shape
from ..functions.hlo_builder import XlaOp
from ..hlo.ir import Module
from ..mlir.ir import Block, FunctionType, Operation, Value, walk
from ..opcodes import control, movement
from ..opcodes.front import verify
from . import all_reading_rules  # noqa: F401  (fills the table)
from .annotations import SHARDING, frontend_of, sharding_of
from .calls import body_of, callees, computes_sizes, convert_written
from .headers import attributes_of_each, header_of, parameter_attributes
from .scope import Program, Scope, only_block
from .shardy import of_argument, results_of
from .tilings import meshes_of
from .types import is_unbounded, shape_of

ENTRY = "main"
"""What the function that is run is called, unless a name is given."""

Fact = tuple[tuple[int, ...], bytes | None]
"""What is known of an argument: its dimensions and, of integers that sizes may depend on, the bytes of its elements."""


@dataclasses.dataclass(frozen=True, slots=True)
class Functions:
    """The names of a module's functions of which none is the entry."""

    names: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class UnknownSizes:
    """A program with dimensions of unknown size. `entry` names the function that is run."""

    operation: Operation
    entry: str

    @property
    def parameters(self) -> tuple[Shape, ...]:
        """The shapes of the arguments, as far as they are known."""
        return tuple(shape_of(a.type) for a in _entry_block(functions_of(self.operation), self.entry).arguments)

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """What the arguments are called."""
        block = _entry_block(functions_of(self.operation), self.entry)
        return tuple(_parameter_name(a, number) for number, a in enumerate(block.arguments))

    @property
    def results(self) -> tuple[Shape, ...]:
        """The shapes of the results, as far as they are known."""
        of = functions_of(self.operation)[self.entry].attributes.get("function_type")
        return tuple(map(shape_of, of.results)) if isinstance(of, FunctionType) else ()

    def specialised(self, facts: Sequence[Fact]) -> Module:
        """The program for arguments of which this is known. Raises InvalidArgument where sizes do not follow from it."""
        found = to_module(self.operation, self.entry, [sizes for sizes, _ in facts], {
            k: np.frombuffer(v, shape.element_type.numpy).reshape(sizes)  # pyright: ignore
            for k, ((sizes, v), shape) in enumerate(zip(facts, self.parameters, strict=False)) if v is not None})
        assert isinstance(found, Module)
        return found


def functions_of(module: Operation) -> dict[str, Operation]:
    """The functions of a module by name, in their order. Raises InvalidArgument for what is no module."""
    if module.name == "func.func":
        return {module.symbol: module}
    found, inner = _contents(module)
    return found if found or len(inner) != 1 else functions_of(inner[0])  # JAX once wrote modules into modules


def _contents(module: Operation) -> tuple[dict[str, Operation], list[Operation]]:
    """The functions and the modules that stand in a module."""
    if module.name != "builtin.module":
        raise InvalidArgument("not an MLIR module", subject="StableHLO", got=module.name, expected="builtin.module")
    operations = [o for r in module.regions[:1] for b in r.blocks for o in b.operations]
    return {o.symbol: o for o in operations if o.name == "func.func"}, [o for o in operations if o.name == "builtin.module"]


def _entries_of_modules(module: Operation) -> dict[str, tuple[Operation, str]]:
    """The module and the function of each program, where a text is of several modules. One that has no name is a number."""
    functions, inner = _contents(module) if module.name != "func.func" else ({}, [])
    if functions or not inner:
        return {}
    if len(inner) == 1:
        return _entries_of_modules(inner[0])
    found: dict[str, tuple[Operation, str]] = {}
    for number, part in enumerate(inner):
        names = entry_names(functions_of(part))
        found |= {part.symbol or str(number): (part, names[0])} if len(names) == 1 else {
            f"{part.symbol or number}.{name}": (part, name) for name in names}
    return found


def entry_names(functions: Mapping[str, Operation]) -> list[str]:
    """The functions that may be run: ``main`` where there is one, otherwise all public ones (or all, if none is)."""
    if ENTRY in functions:
        return [ENTRY]
    public = [n for n, f in functions.items() if f.attributes.get("sym_visibility") != "private"]
    return public or list(functions)


def to_module(operation: Operation, entry: str | None = None, argument_shapes: Sequence[Sequence[int] | Shape] | None = None,
              argument_values: Mapping[int, np.ndarray] | None = None) -> Module | UnknownSizes | Functions:
    """The function `entry`, ``main``, or the only public function as a verified HLO module; of several, or of several modules,
    their names.

    A program with arguments of unknown sizes is one of UnknownSizes, unless `argument_shapes` says all of them;
    `argument_values` are those of integer arguments that sizes depend on, by number: they become constants. Raises
    InvalidArgument for an entry that does not exist, for types that do not fit and where sizes do not follow from what is
    known; UnsupportedError for what HLO has nothing for.
    """
    if programs := _entries_of_modules(operation):
        if entry is None:
            return Functions(tuple(programs))
        if entry not in programs:
            raise InvalidArgument("no such module in the text", subject="StableHLO", got=f"entry={entry!r}",
                                  expected=", ".join(programs))
        return to_module(*programs[entry], argument_shapes, argument_values)
    functions = functions_of(operation)
    names = entry_names(functions)
    if entry is None and len(names) > 1:
        return Functions(tuple(names))
    entry = entry or (names[0] if names else ENTRY)
    if entry not in functions:
        raise InvalidArgument("no such function in the module", subject="StableHLO", got=f"entry={entry!r}",
                              expected=", ".join(functions) or "a module with functions")
    program = Program(functions, meshes_of(operation))
    block = _entry_block(functions, entry)
    shapes = _argument_shapes(block, argument_shapes)
    if argument_shapes is None and any(map(is_unbounded, shapes)):
        return UnknownSizes(operation, entry)
    program.is_sized = argument_shapes is not None
    collecting = gc.isenabled()
    gc.disable()  # conversion makes many objects and no garbage, and the collector would walk all of them again and again
    try:
        module = _module(operation, program, entry, shapes, argument_values or {})
        verify(module)
        return module
    except InvalidArgument:
        if argument_shapes is None and computes_sizes(program, entry):
            return UnknownSizes(operation, entry)  # sizes depend on values of arguments
        raise
    except RecursionError:
        raise UnsupportedError("the program is nested too deeply", subject="StableHLO") from None
    finally:
        if collecting:
            gc.enable()


def _entry_block(functions: Mapping[str, Operation], entry: str) -> Block:
    return only_block(body_of(Program(dict(functions)), entry).regions[0])


def _argument_shapes(block: Block, given: Sequence[Sequence[int] | Shape] | None) -> list[Shape]:
    """The parameters' shapes: as written, with the given sizes."""
    written = [shape_of(a.type) for a in block.arguments]
    if given is None:
        return written
    if len(given) != len(written):
        raise InvalidArgument("wrong number of arguments", got=len(given), expected=f"{len(written)}: {written}")
    shapes = [g if isinstance(g, Shape) else w.with_dimensions(g) if w.is_array else w
              for w, g in zip(written, given, strict=True)]
    for number, (shape, declared) in enumerate(zip(shapes, written, strict=True)):
        if not shape.compatible(declared):
            raise InvalidArgument("the argument shapes do not fit the program", subject="StableHLO",
                                  got=f"argument {number}: {shape}", expected=declared)
    return shapes


def _parameter_name(argument: Value, number: int) -> str:
    """What an argument is called where it stands, in letters that HLO's names may have."""
    written = argument.location.name if argument.location is not None else ""
    return re.sub(r"[^\w.-]", "_", written, flags=re.ASCII) or f"Arg_{number}"


def _module(operation: Operation, program: Program, entry: str, shapes: Sequence[Shape],
            values: Mapping[int, np.ndarray]) -> Module:
    _convert_callees(program, entry)
    function = program.functions[entry]
    attributes = parameter_attributes(function, program.meshes)
    scope = Scope(program, program.name(entry))
    arguments: list[XlaOp] = []
    for number, (shape, argument) in enumerate(zip(shapes, only_block(function.regions[0]).arguments, strict=True)):
        parameter = scope.add(movement.parameter, (), {"parameter_number": number}, shape)
        written = argument.location.name if argument.location is not None else ""
        parameter.instruction.name = _parameter_name(argument, number)
        if written:
            parameter.instruction.common["metadata"] = {"op_name": written}
        parameter.instruction.common.update(attributes[number].common)
        arguments.append(parameter)
    for number, value in values.items():
        arguments[number] = scope.constant(value)
    block = only_block(function.regions[0])
    scope.bind(block, arguments)
    results = scope.block(block)
    root = _root(scope, function, results)
    header, tables = header_of(operation, function, attributes, [a.shape for a in arguments], root.shape)
    return Module(operation.symbol or entry, scope.builder.finish(root), header, tables)


def _root(scope: Scope, function: Operation, results: Sequence[XlaOp]) -> XlaOp:
    """The results, in a tuple where they are not one, with their shardings."""
    given = attributes_of_each(function, "res_attrs", len(results))
    results = results_of(scope, results, given)
    shardings = [sharding_of(a[SHARDING]) if SHARDING in a else of_argument(a, scope.program.meshes)[1] for a in given]
    frontend = [{k: v for k, v in frontend_of(a).items() if not k.startswith("xla.sdy.")} for a in given]
    if not any(shardings) and not any(frontend):
        return scope.one(results)
    return annotated_results(scope, results, shardings, frontend)


def annotated_results(scope: Scope, results: Sequence[XlaOp], shardings: Sequence[Any],
                      frontend: Sequence[dict[str, str]]) -> XlaOp:
    """Results as elements of a tuple, which carry their shardings, so that what computed them keeps its own."""
    whole = scope.add(control.tuple_, results)
    parts = scope.parts(whole, len(results))
    for part, sharding, found in zip(parts, shardings, frontend, strict=True):
        if sharding is not None:
            part.instruction.common["sharding"] = sharding
        if found:
            part.instruction.common["frontend_attributes"] = found
    return scope.one(parts)


def _convert_callees(program: Program, entry: str) -> None:
    """Convert functions whose sizes are static before those that call them: chains of calls may be deep."""
    from_entry: list[str] = []
    seen = {entry}
    stack = [(entry, iter(_called_by(program, entry)))]
    while stack:
        name, left = stack[-1]
        for callee in left:
            if callee not in seen:
                seen.add(callee)
                stack.append((callee, iter(_called_by(program, callee))))
                break
        else:
            stack.pop()
            from_entry.append(name)
    for name in from_entry[:-1]:
        if not computes_sizes(program, name):
            convert_written(program, name)


def _called_by(program: Program, name: str) -> list[str]:
    function = program.functions.get(name)
    return [c for o in walk(function) for c in callees(o)] if function is not None else []
