"""Values of small integer arrays that are known while a program is converted: sizes, and what is computed from them.

Dynamic operations take sizes as operands. Where these are constants, or follow from constants, the operations are static ones.
Values are looked for backwards, when an operation asks; what cannot be known is None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..core.sizes import Size
from ..hlo.ir import Computation, Instruction
from ..hlo.literals.literal import SizeLiteral
from ..hlo.rule_tables import RuleTable
from ..opcodes import comparison, control, convert, elementwise, indexing, internal, movement, reduction

Fold: TypeAlias = Callable[[Instruction, Sequence[np.ndarray]], Any]

FOLDS: RuleTable[Fold] = RuleTable("folding")
"""The value of an instruction whose operands are known. The dtype is set afterwards."""

MOST_ELEMENTS = 4096
_UNSEEN: Any = object()


class Folder:
    """What is known of the instructions of one program. `give` says what is known of parameters."""

    def __init__(self, given: dict[int, np.ndarray | None] | None = None):
        self._values: dict[int, np.ndarray | None] = given or {}
        self._kept: list[Instruction] = []  # ids stand for instructions, which therefore must live

    def give(self, parameter: Instruction, value: np.ndarray) -> None:
        """A parameter's value."""
        self._values[id(parameter)] = value
        self._kept.append(parameter)

    def value(self, instruction: Instruction) -> np.ndarray | None:
        """The value of an integer or PRED array, or None. Iterative: computations of sizes may be long."""
        stack = [instruction]
        while stack:
            current = stack[-1]
            if id(current) in self._values:
                stack.pop()
                continue
            if not _may_be_known(current):
                self._note(current, None)
                continue
            missing = [o for o in current.operands if id(o) not in self._values]
            if missing:
                stack.extend(missing)
            else:
                self._note(current, self._folded(current))
        return self._values[id(instruction)]

    def _note(self, instruction: Instruction, value: np.ndarray | None) -> None:
        self._values[id(instruction)] = value
        self._kept.append(instruction)

    def _folded(self, instruction: Instruction) -> np.ndarray | None:
        operands = [self._values[id(o)] for o in instruction.operands]
        if instruction.opcode == control.call:
            return self._called(instruction.attributes["to_apply"], operands)
        if instruction.opcode == control.get_tuple_element:
            return self._element(instruction)
        values = [o for o in operands if o is not None]
        if len(values) != len(operands):
            return None
        with np.errstate(all="ignore"):
            found = FOLDS[instruction.opcode](instruction, values)
        if found is None:
            return None
        return _typed(np.asarray(found), instruction).reshape(instruction.shape.dimensions)

    def _called(self, computation: Computation, operands: Sequence[np.ndarray | None]) -> np.ndarray | None:
        return _within(computation, operands).value(computation.root)

    def _element(self, instruction: Instruction) -> np.ndarray | None:
        source, index = instruction.operands[0], instruction.attributes["index"]
        if source.is_tuple:
            return self.value(source.operands[index])
        if source.opcode == control.call and source.attributes["to_apply"].root.is_tuple:
            computation = source.attributes["to_apply"]
            return _within(computation, [self.value(o) for o in source.operands]).value(computation.root.operands[index])
        return None


def _within(computation: Computation, operands: Sequence[np.ndarray | None]) -> Folder:
    """What is known inside of a computation that is called with these operands."""
    return Folder({id(p): v for p, v in zip(computation.parameters, operands, strict=True)})


def _may_be_known(instruction: Instruction) -> bool:
    shape = instruction.shape
    if instruction.opcode == control.get_tuple_element:
        return True
    if shape.is_tuple:
        return False
    if not (shape.element_type.is_integral or shape.element_type.is_pred) or not shape.is_static:
        return False
    numpy = shape.element_type.numpy
    if numpy is None or numpy.kind not in "iub" or isinstance(shape.element_count, Size) or shape.element_count > MOST_ELEMENTS:
        return False
    return instruction.opcode in FOLDS or instruction.opcode == control.call


def _typed(value: np.ndarray, instruction: Instruction) -> np.ndarray:
    """A value in the instruction's element type; an array of objects where sizes that stand for many are among them."""
    element = instruction.shape.element_type
    if value.dtype != object:
        return value.astype(element.numpy, copy=False)
    low, high = (-(1 << element.bits - 1), (1 << element.bits - 1) - 1) if element.is_signed else (0, (1 << element.bits) - 1)
    flat = [n if isinstance(n, Size) and not element.is_pred and low <= n <= high else int(n) for n in value.reshape(-1)]
    if not any(isinstance(n, Size) for n in flat):
        return _wrapped(np.array(flat, object).reshape(value.shape), instruction)
    found = np.empty(len(flat), object)
    found[:] = flat
    return found.reshape(value.shape)


def _constant(i: Instruction, v: Sequence[np.ndarray]) -> np.ndarray | None:
    literal = i.attributes["literal"]
    if isinstance(literal, SizeLiteral):
        value = np.empty((), object)
        value[()] = literal.size
        return value
    return None if literal.elided else literal.array


# -------------------------------------------------------------------------------------------------------------- elementwise


def _divide(i: Instruction, v: Sequence[np.ndarray]) -> Any:
    a, b = v
    quotient = np.abs(a.astype(object)) // np.where(b == 0, 1, np.abs(b.astype(object)))
    signed = np.where((a < 0) != (b < 0), -quotient, quotient)
    return _wrapped(np.where(b == 0, -1, signed), i)


def _remainder(i: Instruction, v: Sequence[np.ndarray]) -> Any:
    a, b = v
    rest = np.abs(a.astype(object)) % np.where(b == 0, 1, np.abs(b.astype(object)))
    return _wrapped(np.where(b == 0, a, np.where(a < 0, -rest, rest)), i)


def _power(i: Instruction, v: Sequence[np.ndarray]) -> Any:
    base, exponent = v
    return None if (exponent < 0).any() or (exponent > 64).any() else _wrapped(base.astype(object) ** exponent.astype(object), i)


def _wrapped(values: Any, instruction: Instruction) -> np.ndarray:
    """Python integers in the instruction's element type, modulo its range."""
    element = instruction.shape.element_type
    if any(isinstance(n, Size) for n in np.asarray(values, object).reshape(-1)):
        return _typed(np.asarray(values, object), instruction)
    modulus = 1 << element.bits
    unsigned = np.asarray(np.asarray(values, object) % modulus, object)
    if element.is_signed:
        unsigned = np.where(unsigned >= modulus // 2, unsigned - modulus, unsigned)
    return unsigned.astype(element.numpy)


_COMPARED = {"EQ": np.equal, "NE": np.not_equal, "GE": np.greater_equal, "GT": np.greater, "LE": np.less_equal, "LT": np.less}

FOLDS.add_all({
    movement.constant: _constant,
    elementwise.add: lambda i, v: v[0] + v[1],
    elementwise.subtract: lambda i, v: v[0] - v[1],
    elementwise.multiply: lambda i, v: v[0] * v[1],
    elementwise.maximum: lambda i, v: np.maximum(v[0], v[1]),
    elementwise.minimum: lambda i, v: np.minimum(v[0], v[1]),
    elementwise.and_: lambda i, v: v[0] & v[1],
    elementwise.or_: lambda i, v: v[0] | v[1],
    elementwise.xor: lambda i, v: v[0] ^ v[1],
    elementwise.not_: lambda i, v: ~v[0],
    elementwise.negate: lambda i, v: -v[0],
    elementwise.abs_: lambda i, v: np.abs(v[0]),
    elementwise.sign: lambda i, v: np.sign(v[0]),
    elementwise.divide: _divide,
    elementwise.remainder: _remainder,
    elementwise.power: _power,
    convert.convert: lambda i, v: v[0] != 0 if i.shape.element_type.is_pred else v[0],
    comparison.compare: lambda i, v: _COMPARED[i.attributes["direction"]](v[0], v[1]),
    comparison.select: lambda i, v: np.where(v[0], v[1], v[2]),
    comparison.clamp: lambda i, v: np.minimum(np.maximum(v[1], v[0]), v[2]),
})


# ----------------------------------------------------------------------------------------------------------------- movement


def _broadcast(i: Instruction, v: Sequence[np.ndarray]) -> Any:
    placed = i.attributes.get("dimensions", ())
    order = np.argsort(np.asarray(placed, np.int64), kind="stable")
    sizes = [1] * i.shape.rank
    for size, d in zip(v[0].shape, placed, strict=True):
        sizes[d] = size
    return np.broadcast_to(v[0].transpose(order).reshape(sizes), i.shape.dimensions)


def _slice(i: Instruction, v: Sequence[np.ndarray]) -> Any:
    return v[0][tuple(slice(*bounds) for bounds in i.attributes["slice"])]


def _dynamic_slice(i: Instruction, v: Sequence[np.ndarray]) -> Any:
    operand, *starts = v
    sizes = i.attributes["dynamic_slice_sizes"]
    begins = [min(max(int(s), 0), n - size) for s, n, size in zip(starts, operand.shape, sizes, strict=True)]
    return operand[tuple(slice(b, b + size) for b, size in zip(begins, sizes, strict=True))]


def _iota(i: Instruction, v: Sequence[np.ndarray]) -> Any:
    d = i.attributes["iota_dimension"]
    sizes = [n if k == d else 1 for k, n in enumerate(i.shape.dimensions)]
    return np.broadcast_to(np.arange(i.shape.dimensions[d]).reshape(sizes), i.shape.dimensions)


_REDUCED = {elementwise.add: np.add, elementwise.multiply: np.multiply, elementwise.maximum: np.maximum,
            elementwise.minimum: np.minimum, elementwise.and_: np.bitwise_and, elementwise.or_: np.bitwise_or}


def _reduce(i: Instruction, v: Sequence[np.ndarray]) -> Any:
    function = _REDUCED.get(i.attributes["to_apply"].root.opcode)
    if function is None or len(v) != 2 or not all(o.is_parameter for o in i.attributes["to_apply"].root.operands):
        return None
    if len({id(o) for o in i.attributes["to_apply"].root.operands}) != 2:
        return None
    return function(function.reduce(v[0], axis=tuple(i.attributes["dimensions"]), dtype=v[0].dtype), v[1], dtype=v[0].dtype)


FOLDS.add_all({
    movement.broadcast: _broadcast,
    movement.reshape: lambda i, v: v[0],
    movement.transpose: lambda i, v: v[0].transpose(i.attributes["dimensions"]),
    movement.reverse: lambda i, v: np.flip(v[0], i.attributes["dimensions"]),
    movement.concatenate: lambda i, v: np.concatenate(v, i.attributes["dimensions"][0]),
    movement.copy: lambda i, v: v[0],
    movement.slice_: _slice,
    movement.iota: _iota,
    indexing.dynamic_slice: _dynamic_slice,
    internal.opt_barrier: lambda i, v: v[0],
    reduction.reduce: _reduce,
})
