"""Where operations are written to: a block, the values of the instructions in it, and the functions of the module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core.errors import HloSyntaxError, UnsupportedError
from ...core.shape import UNBOUNDED, Shape
from ...core.types import S64
from ...functions.hlo_builder import Builder, XlaOp
from ...hlo.ir import Computation, Instruction
from ...mlir.bytecode.text import attribute_of_text
from ...mlir.ir import (
    TOKEN,
    Block,
    Elements,
    FunctionType,
    Location,
    Opaque,
    Operation,
    Region,
    Struct,
    Tensor,
    Type,
    Value,
)
from ...opcodes import token
from .refused import ATTRIBUTES, OPCODES
from .writing_rules import RULES, WritingRule

FUNCTION_RETURN, REGION_RETURN = "func.return", "stablehlo.return"


def type_of(shape: Shape) -> Type:
    """The type of an array or a token; sizes with a bound are unknown ones that say it."""
    if shape.is_token:
        return TOKEN
    if not shape.is_array:
        raise UnsupportedError("StableHLO has no such type", got=shape)
    if not any(shape.dynamic_flags):
        return Tensor(tuple(shape.dimensions), shape.element_type)
    pairs = list(zip(shape.dimensions, shape.dynamic_flags, strict=True))
    bounds = tuple(n if is_dynamic and n != UNBOUNDED else None for n, is_dynamic in pairs)
    encoding = Struct("stablehlo.bounds", {"bounds": bounds}) if any(b is not None for b in bounds) else None
    return Tensor(tuple(None if is_dynamic else n for n, is_dynamic in pairs), shape.element_type, encoding)


def types_of(shape: Shape) -> list[Type]:
    """The types of a shape's leaves."""
    return [type_of(leaf) for leaf in shape.leaves()]


class Functions:
    """The functions of the module that is written: one for each computation that is called."""

    def __init__(self) -> None:
        self.written: list[Operation] = []
        self._names: dict[Computation, str] = {}

    def name_of(self, computation: Computation) -> str:
        """The name of the computation's function, which is written at the first time."""
        if computation not in self._names:
            stem = computation.name if computation.name != "main" else "main.1"
            name, taken = stem, {"main", *self._names.values()}
            while name in taken:
                name += "_"
            self._names[computation] = name
            self.written.append(function_of(self, computation, name, {"sym_visibility": "private"}))
        return self._names[computation]


def function_of(functions: Functions, computation: Computation, name: str, attributes: dict[str, Any]) -> Operation:
    """The function of a computation, tuples in parameters and result taken apart."""
    region = region_of(functions, computation, FUNCTION_RETURN)
    block = region.blocks[0]
    of = FunctionType(tuple(a.type for a in block.arguments), tuple(v.type for v in block.operations[-1].operands))
    return Operation("func.func", [], (), {"sym_name": name, "function_type": of, **attributes}, [region])


def region_of(functions: Functions, computation: Computation, end: str = REGION_RETURN) -> Region:
    """The region of a computation, whose parameters are the block's arguments."""
    types = [t for p in computation.parameters for t in types_of(p.shape)]
    block = Block(types)
    Scope(functions, block).finish(computation, block.arguments, end)
    return Region([block])


class Scope:
    """A block that is written."""

    def __init__(self, functions: Functions, block: Block):
        self.functions, self.block = functions, block
        self._location: Location | None = None

    def finish(self, computation: Computation, arguments: Sequence[Value], end: str) -> None:
        """Write the computation of these arguments, and what ends the block."""
        self.block.operations.append(Operation(end, list(self.opened(computation, arguments))))

    def branch(self, computation: Computation, arguments: Sequence[Value]) -> Region:
        """A region that uses values from outside."""
        inner = Scope(self.functions, Block())
        inner.finish(computation, arguments, REGION_RETURN)
        return Region([inner.block])

    def region(self, computation: Computation) -> Region:
        """A region with the computation's parameters."""
        return region_of(self.functions, computation)

    def opened(self, computation: Computation, arguments: Sequence[Value]) -> list[Value]:
        """The computation's results of these arguments, written in its place."""
        left, values = list(arguments), {}
        for parameter in computation.parameters:
            count = len(list(parameter.shape.leaves()))
            values[parameter], left = left[:count], left[count:]
        for instruction in computation.instructions:
            if instruction not in values:
                values[instruction] = self._written(instruction, [v for o in instruction.operands for v in values[o]])
        return values[computation.root]

    def _written(self, instruction: Instruction, operands: list[Value]) -> list[Value]:
        rule = _rule_of(instruction)
        outer, self._location = self._location, _location(instruction)
        before = len(self.block.operations)
        found = list(rule.function(self, instruction, operands))
        made = [o for o in self.block.operations[before:] if o.name != "stablehlo.constant" or not instruction.operands]
        if made:  # constants beside an operation are contexts of what is begun
            made[-1].attributes.update(noted(instruction))
        self._location = outer
        return found

    def spelled(self, instruction: Instruction, operands: Sequence[Value], function: Callable[..., XlaOp]) -> list[Value]:
        """What a function of ops makes of the operands, which are arrays, written in the instruction's place."""
        builder = Builder(instruction.opcode)
        parameters = [builder.parameter(k, o.shape.without_layout()) for k, o in enumerate(instruction.operands)]
        return self.opened(builder.finish(function(*parameters)), operands)

    def add(self, name: str, operands: Sequence[Value], shape: Shape, attributes: dict[str, Any] | None = None,
            regions: Sequence[Region] = ()) -> list[Value]:
        """An operation whose results are the leaves of the shape."""
        return self.made(name, operands, types_of(shape), attributes or {}, regions)

    def made(self, name: str, operands: Sequence[Value], types: Sequence[Type], attributes: dict[str, Any],
             regions: Sequence[Region] = ()) -> list[Value]:
        """An operation with results of these types."""
        made = Operation(name, list(operands), list(types), attributes, list(regions), self._location)
        self.block.operations.append(made)
        return made.results

    def constant(self, value: np.ndarray, shape: Shape) -> list[Value]:
        of = type_of(shape)
        assert isinstance(of, Tensor)
        return self.add("stablehlo.constant", [], shape, {"value": Elements(of, value)})


def _rule_of(instruction: Instruction) -> WritingRule:
    """The rule of the instruction. Raises UnsupportedError, with the reason, where it has none or would lose an attribute."""
    rule = RULES.find(instruction.opcode)
    if rule is None:
        raise _refused(instruction, OPCODES.get(instruction.opcode, "no rule says what it is in StableHLO"))
    lost = sorted(instruction.attributes.keys() - rule.says)
    if lost:
        reason = ATTRIBUTES.get((instruction.opcode, lost[0]), "no rule says what this attribute is in StableHLO")
        raise _refused(instruction, reason, ", ".join(lost))
    begun = next((o for o in instruction.operands if o.opcode == token.recv), None)
    if begun is not None and instruction.opcode != token.recv_done:
        raise UnsupportedError("StableHLO begins to receive where it waits: what is begun cannot go elsewhere",
                               subject=begun.subject, where=instruction.where, got=instruction.subject, expected=token.recv_done)
    return rule


def _refused(instruction: Instruction, reason: str, got: str = "") -> UnsupportedError:
    return UnsupportedError(reason, subject=instruction.subject, where=instruction.where, got=got,
                            hint="use to_hlo_text or to_hlo_proto, which write every program")


def _location(instruction: Instruction) -> Location | None:
    return Location(instruction.op_name) if instruction.op_name else None


def noted(instruction: Instruction) -> dict[str, Any]:
    """What is noted with an instruction and goes with its operation or argument. Of an argument that is a tuple each array has
    its own sharding."""
    found: dict[str, Any] = {}
    common = instruction.common
    if common.get("sharding") is not None and not (instruction.is_parameter and instruction.shape.is_tuple):
        found["mhlo.sharding"] = str(common["sharding"])
    noted = {key: value for key, value in (common.get("frontend_attributes") or {}).items() if not key.startswith("composite.")}
    if noted:
        found["mhlo.frontend_attributes"] = noted
    return found


def require_static(instruction: Instruction) -> None:
    """Raises UnsupportedError for an op that makes an array of a size of its own that is only known by its bound."""
    inherited = instruction.operands[0].shape.dynamic_flags if instruction.operands else ()
    if sum(instruction.shape.dynamic_flags) > sum(inherited):
        raise UnsupportedError("an array whose size only its bound says is not written", subject=instruction.subject,
                               where=instruction.where, got=instruction.shape)


def dictionary_of(text: str, instruction: Instruction) -> Opaque:
    """A dictionary of MLIR's attributes by its text. Raises UnsupportedError for another text."""
    try:
        found = attribute_of_text(text, 0)
    except HloSyntaxError:
        found = None
    if not isinstance(found, dict):
        raise UnsupportedError("what StableHLO has as a dictionary of attributes is none", subject=instruction.subject,
                               where=instruction.where, got=text[:80], expected="{name = value, ...}")
    return Opaque(text)


def matrix(rows: Any, width: int = 2) -> Elements:
    """``dense<[[1, 2]]> : tensor<1x2xi64>``."""
    value = np.asarray(rows, np.int64).reshape(-1, width)
    return Elements(Tensor(value.shape, S64), value)
