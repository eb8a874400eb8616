"""Evaluating a computation: one walk over its instructions that serves eager calls, constant folding and lowering.

An `Evaluator` runs op bodies on whatever values it is given. On tensors that is execution. Its subclass `Tracer` gives
them torch.fx proxies, and what the bodies then do becomes a graph. Splats (arrays of equal elements) and host scalars are
handled here once, so op bodies need not know them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.fx

from .. import progress
from ..errors import ExecutionError, XlaError
from ..hlo.ir import Computation, Instruction, Token, live_instructions
from ..hlo.literal import Literal
from ..opcodes.definition import OPS, OpDefinition
from ..opcodes.inference import definition_of, has_effect
from ..shape import Shape
from ..types import PrimitiveType
from . import host, numerics, regions
from .values import Host, Number, Splat, set_evaluator

# Ops that only rearrange the elements of operand 0, so that an array of equal elements stays one.
_REARRANGE = frozenset({"broadcast", "reshape", "transpose", "slice", "reverse", "copy", "bitcast", "dynamic-slice"})


class Evaluator:
    """Evaluates computations on tensors of one device."""

    def __init__(self, device: torch.device | str = "cpu"):
        self.device = torch.device(device)
        self.shapes_hold = True
        self._numbers: dict[tuple[Any, ...], torch.Tensor] = {}

    # ---- computations and instructions

    def run(self, computation: Computation, arguments: Sequence[Any]) -> Any:
        """The value of the computation's root for argument values (one for each parameter)."""
        values: dict[int, Any] = {}
        with self.installed():
            for instruction in progress.steps(self._order(computation), "lowering"):
                if instruction.opcode == "parameter":
                    value = arguments[instruction.attributes["parameter_number"]]
                else:
                    value = self.instruction(instruction, [values[id(o)] for o in instruction.operands])
                values[id(instruction)] = value
        return values[id(computation.root)]

    def instruction(self, instruction: Instruction, operands: Sequence[Any]) -> Any:
        """The value of one instruction. Errors of the op's body are raised with the instruction's name and place."""
        try:
            return self._instruction(instruction, list(operands))
        except XlaError as error:
            raise error.located(instruction.subject, instruction.where) from error.__cause__
        except (RuntimeError, TypeError, ValueError, IndexError, KeyError, AttributeError, NotImplementedError) as error:
            raise ExecutionError(f"torch refused: {error}", subject=instruction.subject, got=repr(instruction),
                                 where=instruction.where) from error

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Make this the evaluator that op bodies find on this thread."""
        before = set_evaluator(self)
        try:
            yield
        finally:
            set_evaluator(before)

    @contextmanager
    def on_arrays(self) -> Iterator[None]:
        """While this lasts, values of scalar instructions may be arrays (a region is evaluated on whole tensors)."""
        before, self.shapes_hold = self.shapes_hold, False
        try:
            yield
        finally:
            self.shapes_hold = before

    def emit(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function that has no proxy operand (see `values.emit`)."""
        return function(*args, **kwargs)

    def apply_region(self, computation: Computation, arguments: Sequence[Any], dims: tuple[int, ...]) -> list[Any]:
        return regions.apply(self, computation, arguments, dims)

    # ---- one instruction

    def _order(self, computation: Computation) -> list[Instruction]:
        effects = [i for i in computation.instructions if i.opcode in OPS and has_effect(i)]
        return live_instructions(computation, [computation.root, *effects])

    def _instruction(self, instruction: Instruction, operands: list[Any]) -> Any:
        if instruction.opcode == "constant":
            return self.literal(instruction.attributes["literal"], instruction)
        definition = definition_of(instruction.opcode)
        attributes = definition.attribute_values(instruction.attributes)
        if definition.control:
            return definition.body(instruction, *operands, **attributes)
        if definition.elementwise:
            return self._elementwise(definition, instruction, operands, attributes)
        if instruction.opcode in _REARRANGE and instruction.shape.is_static and _keeps_type(instruction):
            scalar = _scalar_of(operands[0], instruction.operands[0].shape)
            if scalar is not None:
                return self._splat(scalar, instruction.shape)
        prepared = [self._operand(v, i.shape, name in definition.numbers)
                    for v, i, name in zip(operands, instruction.operands, _operand_names(definition, len(operands)), strict=True)]
        return self._body(definition, instruction, prepared, attributes)

    def _body(self, definition: OpDefinition, instruction: Instruction, operands: list[Any], attributes: dict[str, Any]) -> Any:
        result = definition.body(instruction, *operands, **attributes)
        if not definition.movement:
            result = _normalise(result, instruction.shape)
        return result

    def _elementwise(self, definition: OpDefinition, instruction: Instruction, operands: list[Any],
                     attributes: dict[str, Any]) -> Any:
        scalars = [_scalar_of(v, i.shape) for v, i in zip(operands, instruction.operands, strict=True)]
        if all(s is not None for s in scalars):
            return self._splat(self._scalar(definition, instruction, scalars, attributes), instruction.shape)
        names = _operand_names(definition, len(operands))
        prepared = [v if s is None else self._scalar_operand(s, i.shape.element_type, name in definition.numbers)
                    for v, s, i, name in zip(operands, scalars, instruction.operands, names, strict=True)]
        return self._body(definition, instruction, prepared, attributes)

    def _scalar(self, definition: OpDefinition, instruction: Instruction, scalars: list[Any], attributes: dict[str, Any]) -> Any:
        """An elementwise op on scalars only: folded if all are numbers, on the host if that is exact, else on tensors."""
        if any(isinstance(s, Host) for s in scalars) and not any(_is_tensor(s) for s in scalars):
            result = host.evaluate(instruction, scalars)
            if result is not None:
                return result
        types = [i.shape.element_type for i in instruction.operands]
        if all(isinstance(s, Number) for s in scalars):
            return _folded(definition, instruction, scalars, types, attributes)
        names = _operand_names(definition, len(scalars))
        some = any(_is_tensor(s) for s in scalars)
        tensors = [self._scalar_operand(s, t, some and name in definition.numbers)
                   for s, t, name in zip(scalars, types, names, strict=True)]
        return self._body(definition, instruction, tensors, attributes)

    # ---- values

    def literal(self, literal: Literal, instruction: Instruction) -> Any:
        """The value of a constant: a splat where all elements are equal (always for scalars), else a tensor."""
        if isinstance(literal.value, tuple):
            return tuple(self.literal(part, instruction) for part in literal.value)
        if literal.elided:
            raise ExecutionError("the constant's values are not in the text: it was printed as constant({...})",
                                 subject=instruction.subject, where=instruction.where,
                                 hint="print the module with large constants (print_large_constants=True)")
        if literal.shape.is_token:
            return Token()
        array, element_type = literal.array, literal.shape.element_type
        if array.size and _all_equal(array) and not _odd_nan(array.reshape(-1)[0]):
            number = numerics.number_from_numpy(array.reshape(-1)[0], element_type)
            return self._splat(number, literal.shape)
        return numerics.carrier_from_numpy(array, element_type).to(self.device)

    def number(self, number: Any, element_type: PrimitiveType) -> Any:
        """A Python number (in carrier terms) as a 0-dimensional tensor of the type's carrier."""
        key = (type(number), repr(number), element_type)
        if key not in self._numbers:
            self._numbers[key] = torch.tensor(number, dtype=element_type.carrier, device=self.device)
        return self._numbers[key]

    def materialise(self, value: Any, shape: Shape) -> Any:
        """A value as a full tensor (tuples element by element); splats are expanded, which copies nothing."""
        if isinstance(value, tuple):
            return tuple(self.materialise(v, s) for v, s in zip(value, shape.tuple_shapes, strict=True))
        if not isinstance(value, Splat):
            return value
        scalar = self._scalar_operand(value.scalar, shape.element_type, False)
        return scalar.expand(value.dims) if value.dims else scalar

    def _operand(self, value: Any, shape: Shape, numbers: bool) -> Any:
        if numbers and isinstance(value, Splat) and not value.dims and not _is_tensor(value.scalar):
            return value.scalar
        return self.materialise(value, shape)

    def _scalar_operand(self, scalar: Any, element_type: PrimitiveType, numbers: bool) -> Any:
        if isinstance(scalar, Host):
            return scalar.value if numbers else self.emit(torch.full, (), scalar.value, dtype=element_type.carrier,
                                                          device=self.device)
        # Complex numbers with an infinite, NaN or -0 part do not survive being printed in generated code.
        if isinstance(scalar, complex) or (isinstance(scalar, Number) and not numbers):
            return self.number(scalar, element_type)
        return scalar

    def _splat(self, scalar: Any, shape: Shape) -> Any:
        if not shape.dimensions and _is_tensor(scalar):
            return scalar
        if not shape.is_static:
            return self.materialise(Splat(scalar, shape.dimensions), shape)
        return Splat(scalar, shape.dimensions)


def _folded(definition: OpDefinition, instruction: Instruction, numbers: Sequence[Any], types: Sequence[PrimitiveType],
            attributes: dict[str, Any]) -> Any:
    """An elementwise op on numbers, as a number: computed on the CPU, so that lowering waits for no other device."""
    on_cpu = Evaluator()
    with on_cpu.installed():
        tensors = [on_cpu.number(n, t) for n, t in zip(numbers, types, strict=True)]
        result = on_cpu._body(definition, instruction, tensors, attributes)
    element_type = instruction.shape.element_type
    return numerics.number_from_numpy(numerics.numpy_from_carrier(result, element_type)[()], element_type)


def _keeps_type(instruction: Instruction) -> bool:
    """False for a bitcast that reads the bits as another type."""
    return instruction.shape.element_type is instruction.operands[0].shape.element_type


def _operand_names(definition: OpDefinition, count: int) -> tuple[str, ...]:
    names = definition.operands[:count]
    return names + (definition.variadic or "",) * (count - len(names))


def _is_tensor(value: Any) -> bool:
    return isinstance(value, (torch.Tensor, torch.fx.Proxy))


def _scalar_of(value: Any, shape: Shape) -> Any:
    """The scalar that a value stands for, or None where it is an array of possibly different elements."""
    if isinstance(value, Splat):
        return value.scalar
    return value if shape.is_scalar and not isinstance(value, tuple) else None


def _normalise(result: Any, shape: Shape) -> Any:
    if shape.is_tuple:
        return tuple(_normalise(r, s) for r, s in zip(result, shape.tuple_shapes, strict=True))
    return numerics.normalise(result, shape.element_type) if shape.element_type.is_narrow else result


def _all_equal(array: np.ndarray) -> bool:
    if array.size == 1:
        return True
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(array.size, -1)
    return bool((raw == raw[0]).all())


def _odd_nan(element: Any) -> bool:
    """A NaN whose payload or sign would be lost as a Python float."""
    kind = np.asarray(element)
    return bool(kind.dtype.kind in "fcV" and np.isnan(kind) and kind.tobytes() != np.asarray(np.nan).astype(kind.dtype).tobytes())
