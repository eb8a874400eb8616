"""Are two modules the same computation, however their instructions are ordered and called?

Each value is told apart by what computes it, not by where it stands: opcode, shape, attributes, and the values of its operands.
Elements of a tuple that is made beside them are the values themselves. What nothing reads counts only where it has an effect.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from xla_torch.hlo.attributes import ReplicaGroups
from xla_torch.hlo.inference import has_effect
from xla_torch.hlo.ir import Computation, Instruction, Module
from xla_torch.hlo.literals.literal import Literal
from xla_torch.hlo.schema import OPS, Trait
from xla_torch.opcodes import comparison, convert, elementwise, movement
from xla_torch.shape import Shape
from xla_torch.stablehlo.folding import FOLDS

IGNORED = frozenset({"metadata", "origin"})
_NOTHING: tuple[Any, ...] = (None, "", {}, [], ())


def difference(a: Module, b: Module) -> str:
    """"" where the modules compute the same, otherwise the first difference in words."""
    numbers = Numbers()
    ours, theirs = numbers.computation(a.entry), numbers.computation(b.entry)
    if _header(a) != _header(b):
        return f"headers {_header(a)} and {_header(b)}"
    return "" if ours == theirs else numbers.reported(ours, theirs)


def _header(module: Module) -> dict[str, Any]:
    """The header but for the layout; XLA's converter forgets how many replicas and partitions there are."""
    return {k: v for k, v in module.header.items() if k not in ("entry_computation_layout", "replica_count", "num_partitions")}


_FLOATS: dict[str, Any] = {elementwise.add: np.add, elementwise.subtract: np.subtract, elementwise.multiply: np.multiply,
                           elementwise.divide: np.divide, elementwise.sqrt: np.sqrt}
_FOLDED = frozenset({movement.constant, movement.broadcast, movement.reshape, movement.transpose, movement.slice_,
                     movement.concatenate, convert.convert})


def _same_as(instruction: Instruction) -> Instruction | None:
    """The operand that an instruction does not change."""
    if instruction.opcode == movement.pad and not any(any(p) for p in instruction.attributes["padding"]):
        return instruction.operands[0]
    if instruction.opcode == movement.slice_ and instruction.operands[0].opcode == movement.concatenate:
        return _piece(instruction)
    if instruction.opcode == elementwise.add and any(map(_is_zero, instruction.operands)):
        return instruction.operands[_is_zero(instruction.operands[0])]
    if instruction.opcode == elementwise.subtract and _is_zero(instruction.operands[1]):
        return instruction.operands[0]
    if instruction.opcode not in (movement.broadcast, movement.reshape, movement.transpose, convert.convert, movement.slice_,
                                  movement.concatenate):
        return None
    if len(instruction.operands) != 1 or instruction.operands[0].shape.without_layout() != instruction.shape.without_layout():
        return None
    moved = instruction.attributes.get("dimensions", range(instruction.shape.rank))
    still = instruction.opcode in (movement.reshape, convert.convert, movement.slice_, movement.concatenate)
    return instruction.operands[0] if still or list(moved) == list(range(instruction.shape.rank)) else None


def _piece(instruction: Instruction) -> Instruction | None:
    """The operand of a concatenation that a slice takes out again."""
    (dimension,), at = instruction.operands[0].attributes["dimensions"], 0
    for piece in instruction.operands[0].operands:
        bounds = [(0, n, 1) for n in piece.shape.dimensions]
        bounds[dimension] = (at, at + piece.shape.dimensions[dimension], 1)
        if tuple(bounds) == instruction.attributes["slice"]:
            return piece
        at += piece.shape.dimensions[dimension]
    return None


def _is_zero(instruction: Instruction) -> bool:
    while instruction.opcode == movement.broadcast:
        instruction = instruction.operands[0]
    return instruction.opcode == movement.constant and not instruction.attributes["literal"].array.any()


def _reshapes(instruction: Instruction) -> bool:
    """Whether it is a broadcast that only adds dimensions of size 1, or a transposition that only moves such."""
    if instruction.opcode == movement.transpose:
        moved = [d for d in instruction.attributes["dimensions"] if instruction.operands[0].shape.dimensions[d] != 1]
        return moved == sorted(moved)
    if instruction.opcode != movement.broadcast:
        return False
    operand, dims = instruction.operands[0].shape, list(instruction.attributes.get("dimensions", ()))
    return operand.element_count == instruction.shape.element_count and dims == sorted(dims) and operand.is_static


class Numbers:
    """A number for each different value, shared by all programs that are compared."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._keys: list[Any] = []
        self._constants: dict[int, np.ndarray] = {}

    def _number(self, key: Any) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self._keys)
            self._keys.append(key)
        return self._numbers[key]

    def computation(self, computation: Computation) -> int:
        found: dict[int, int] = {}
        effects, parameters = [], []
        for instruction in computation.instructions:
            found[id(instruction)] = self._instruction(instruction, found)
            if has_effect(instruction):
                effects.append(found[id(instruction)])
            if instruction.is_parameter:
                parameters.append(found[id(instruction)])
        return self._number(("computation", found[id(computation.root)], tuple(sorted(effects)), tuple(sorted(parameters))))

    def _instruction(self, instruction: Instruction, found: dict[int, int]) -> int:
        if instruction.is_element and instruction.operands[0].is_tuple and not self._common(instruction):
            return found[id(instruction.operands[0].operands[instruction.attributes["index"]])]
        if not self._common(instruction):
            same = _same_as(instruction)
            if same is not None:
                return found[id(same)]
            value = self._folded(instruction, found)
            if value is not None:
                return value
        schema = OPS[instruction.opcode]
        attributes = {k: self._value(v) for k, v in schema.attribute_values(instruction.attributes).items() if v not in _NOTHING}
        shape = "" if instruction.opcode == movement.constant else str(instruction.shape)
        return self._number((instruction.opcode, shape, tuple(sorted(attributes.items())),
                             tuple(self._operands(instruction, found)), self._common(instruction)))

    def _operands(self, instruction: Instruction, found: dict[int, int]) -> list[int]:
        """A bound of clamp that is broadcast is the scalar; operands that may change places are sorted."""
        clamps = instruction.opcode == comparison.clamp
        if instruction.has(Trait.COMMUTATIVE):
            return sorted(found[id(o)] for o in instruction.operands)
        return [found[id(o.operands[0] if clamps and o.opcode == movement.broadcast and o.operands[0].shape.is_scalar else o)]
                for o in instruction.operands]

    def _folded(self, instruction: Instruction, found: dict[int, int]) -> int | None:
        """XLA's converter folds what only moves the elements of a constant about, and iotas likewise."""
        if instruction.opcode == movement.iota and instruction.shape.rank > 1 and instruction.shape.element_count > 4096:
            d = instruction.attributes["iota_dimension"]
            line = Shape(instruction.shape.element_type, (instruction.shape.dimensions[d],))
            inner = self._number((movement.iota, str(line), (("iota_dimension", 0),), (), ()))
            return self._number((movement.broadcast, str(instruction.shape), (("dimensions", (d,)),), (inner,), ()))
        integers = instruction.shape.is_array and instruction.shape.element_type.kind.name in ("SIGNED", "UNSIGNED", "PRED")
        if not instruction.shape.is_array or instruction.opcode not in (FOLDS if integers else _FOLDED | _FLOATS.keys()):
            return None
        known = [self._constants.get(found[id(o)]) for o in instruction.operands]
        given = [k for k in known if k is not None]
        if len(given) != len(known) or instruction.shape.element_count > 4096:
            if instruction.opcode != movement.reshape and not _reshapes(instruction):
                return None
            inner = self._before_reshape(found[id(instruction.operands[0])])
            if self._keys[inner][1] == str(instruction.shape):
                return inner
            return self._number((movement.reshape, str(instruction.shape), (("inferred_dimension", -1),), (inner,), ()))
        value = FOLDS[instruction.opcode](instruction, given) if integers or instruction.opcode in _FOLDED else \
            _FLOATS[instruction.opcode](*given)
        if value is None:
            return None
        value = np.ascontiguousarray(value).reshape(instruction.shape.dimensions)
        value = value.astype(instruction.shape.element_type.numpy, copy=False)
        number = self._number((movement.constant, "", (("literal", self._value(Literal(instruction.shape, value))),), (), ()))
        self._constants[number] = value
        return number

    def _before_reshape(self, number: int) -> int:
        key = self._keys[number]
        return key[3][0] if key[0] == movement.reshape and not key[4] else number

    def _common(self, instruction: Instruction) -> tuple[Any, ...]:
        """What it carries; but XLA's converter gives the tuple of the results the sharding of what stands before it."""
        return tuple(sorted((k, str(sorted(v.items())) if isinstance(v, dict) else str(v))
                            for k, v in instruction.common.items()
                            if k not in IGNORED and v not in _NOTHING and not (k == "sharding" and instruction.is_tuple)))

    def _value(self, value: Any) -> Any:
        if isinstance(value, Computation):
            return self.computation(value)
        if isinstance(value, Literal):
            return ("literal", str(value.shape), value.bits)
        if isinstance(value, tuple | list):
            return tuple(map(self._value, value))
        if isinstance(value, ReplicaGroups):
            return value.groups
        return value if isinstance(value, str | int | float | bool) else repr(value)

    def reported(self, a: int, b: int) -> str:
        """Where two values differ."""
        left, right = self._keys[a], self._keys[b]
        if left[0] == right[0] == "computation":
            if left[1] != right[1]:
                return self.reported(left[1], right[1])
            return f"effects or parameters {[self._keys[k][:2] for k in left[2]]} and {[self._keys[k][:2] for k in right[2]]}"
        if left[0] != right[0] or left[1] != right[1] or left[4] != right[4] or len(left[3]) != len(right[3]):
            return f"{self.text(a)} and {self.text(b)}"
        for name, other in zip(left[2], right[2], strict=False):
            if name != other:
                if name[0] == other[0] and isinstance(name[1], int) and isinstance(self._keys[name[1]], tuple) and \
                        isinstance(other[1], int) and name[1] < len(self._keys) and self._keys[name[1]][0] == "computation":
                    return f"in {name[0]} of {left[0]}: {self.reported(name[1], other[1])}"
                return f"{left[0]}: {name} and {other}"[:400]
        if len(left[2]) != len(right[2]):
            return f"{left[0]}: {left[2]} and {right[2]}"
        ours, theirs = [k for k in left[3] if k not in right[3]], [k for k in right[3] if k not in left[3]]
        return next((self.reported(x, y) for x, y in zip(ours, theirs, strict=False)), f"{self.text(a)} and {self.text(b)}")

    def text(self, number: int) -> str:
        """A value in words, three levels deep."""
        return self._text(number, 3)

    def _text(self, number: int, depth: int) -> str:
        key = self._keys[number]
        if key[0] == "computation" or depth == 0:
            return "..."
        attributes = ", ".join(f"{k}={str(v)[:60]}" for k, v in key[2])
        inner = ", ".join(self._text(k, depth - 1) for k in key[3])
        return f"{key[0]}:{key[1]}({inner})" + (f"{{{attributes}}}" if attributes else "") + (f"{key[4]}" if key[4] else "")
