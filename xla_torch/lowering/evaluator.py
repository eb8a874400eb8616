"""Evaluating a computation: one walk over its instructions that serves eager calls, constant folding and lowering.

An `Evaluator` runs op bodies on whatever values it is given. On tensors that is execution. Its subclass `Tracer` gives
them torch.fx proxies, and what the bodies then do becomes a graph. Splats (arrays of equal elements) and host scalars are
handled here once, so op bodies need not know them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.fx

from ..core import progress
from ..core.budget import charge
from ..core.errors import ExecutionError, InternalError, XlaError
from ..core.shape import Shape
from ..core.types import PrimitiveType
from ..hlo.inference import has_effect
from ..hlo.ir import Computation, Instruction, Token, live_instructions
from ..hlo.literals.literal import Literal, SizeLiteral
from ..hlo.schema import OPS, OpSchema, Trait
from ..hlo.structure import CONSTANT
from ..hlo.tree import mapped
from ..opcodes.dynamic import INT32_MAX
from ..storage.dtypes import storage_dtype
from . import host, numerics, scalar_regions
from .body_table import BODIES, Body
from .torch_errors import is_of_torch
from .values import Host, Number, Runner, Splat, Value, set_evaluator


class Evaluator:
    """Evaluates computations on tensors of one device."""

    def __init__(self, device: torch.device | str = "cpu"):
        self.device = torch.device(device)
        self.shapes_hold = True
        self._numbers: dict[tuple[Any, ...], torch.Tensor] = {}

    # ---- computations and instructions

    def run(self, computation: Computation, arguments: Sequence[Value]) -> Value:
        """The value of the computation's root for argument values (one for each parameter)."""
        values: dict[int, Value] = {}
        with self.installed():
            for instruction in progress.steps(self._order(computation), "lowering"):
                if instruction.is_parameter:
                    value = arguments[instruction.attributes["parameter_number"]]
                else:
                    value = self.instruction(instruction, [values[id(o)] for o in instruction.operands])
                values[id(instruction)] = value
        return values[id(computation.root)]

    def instruction(self, instruction: Instruction, operands: Sequence[Value]) -> Value:
        """The value of one instruction of a program: the one way in for every instruction that is evaluated, also of regions,
        loop bodies and branches. Only parameters do not come here, whose values are given. Whoever counts what programs execute
        wraps this method; instructions of no program, which take the place of others, go to `computed`.

        Errors are raised with the instruction's name and place: torch's as ExecutionError, any other than XlaError as
        InternalError, both chained.
        """
        charge()
        try:
            return self.computed(instruction, operands)
        except (RecursionError, MemoryError):
            raise
        except XlaError as error:
            raise error.located(instruction.subject, instruction.where) from error.__cause__
        except Exception as error:
            refused = is_of_torch(error, lambda: self.computed(instruction, operands))
            kind, what = (ExecutionError, f"torch refused: {error}") if refused else (
                InternalError, f"{type(error).__name__}: {error}")
            raise kind(what, subject=instruction.subject, got=repr(instruction), where=instruction.where) from error

    def computed(self, instruction: Instruction, operands: Sequence[Value]) -> Value:
        """What an instruction's op makes of operand values."""
        if not self.shapes_hold:
            value = scalar_regions.on_arrays(self, instruction, operands)
            if value is not None:
                return value
        if instruction.opcode == CONSTANT:
            return self.literal(instruction.attributes["literal"], instruction)
        schema, body = instruction.schema, BODIES[instruction.opcode]
        attributes = schema.attribute_values(instruction.attributes)
        if body.structural:
            return body.function(instruction, *operands, **attributes)
        if schema.elementwise:
            return self._elementwise(schema, body, instruction, operands, attributes)
        if Trait.REARRANGES in schema.traits and instruction.shape.is_static and _keeps_type(instruction):
            scalar = _scalar_of(operands[0], instruction.operands[0].shape)
            if scalar is not None:
                return self._splat(scalar, instruction.shape)
        prepared = [self._operand(v, i.shape, name in body.numbers)
                    for v, i, name in zip(operands, instruction.operands, schema.operand_names(len(operands)), strict=True)]
        return self._body(body, instruction, prepared, attributes)

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

    def apply_region(self, computation: Computation, arguments: Sequence[Value], dims: tuple[int, ...]) -> list[Value]:
        """Evaluate a region of scalars on arrays (see `values.apply_region`)."""
        return scalar_regions.apply(self, computation, arguments, dims)

    def region_function(self, computation: Computation, elementwise: bool) -> Value:
        """A region as a function (see `values.region_function`)."""
        return scalar_regions.function(self, computation, elementwise)

    def inside(self) -> Evaluator:
        """An evaluator for a sub-program."""
        return Evaluator(self.device)

    def subprogram(self, computation: Computation, run: Callable[[Runner, Sequence[Value]], tuple[Value, ...]]) -> Value:
        """`run` as a function of the array leaves of a computation's parameters: on tensors, a function that evaluates it."""
        inner = self.inside()

        def call(*tensors: Value) -> tuple[Value, ...]:
            with inner.installed():
                return run(inner, tensors)

        return call

    # ---- one instruction

    def _order(self, computation: Computation) -> list[Instruction]:
        effects = [i for i in computation.instructions if i.opcode in OPS and has_effect(i)]
        return live_instructions(computation, [computation.root, *effects])

    def _body(self, body: Body, instruction: Instruction, operands: Sequence[Value], attributes: dict[str, Any]) -> Value:
        result = body.function(instruction, *operands, **attributes)
        return result if instruction.has(Trait.MOVES_DATA) else _normalise(result, instruction.shape)

    def _elementwise(self, schema: OpSchema, body: Body, instruction: Instruction, operands: Sequence[Value],
                     attributes: dict[str, Any]) -> Value:
        scalars = [_scalar_of(v, i.shape) for v, i in zip(operands, instruction.operands, strict=True)]
        if all(s is not None for s in scalars):
            return self._splat(self._scalar(schema, body, instruction, scalars, attributes), instruction.shape)
        names = schema.operand_names(len(operands))
        prepared = [v if s is None else self._scalar_operand(s, i.shape.element_type, name in body.numbers)
                    for v, s, i, name in zip(operands, scalars, instruction.operands, names, strict=True)]
        return self._body(body, instruction, prepared, attributes)

    def _scalar(self, schema: OpSchema, body: Body, instruction: Instruction, scalars: list[Value],
                attributes: dict[str, Any]) -> Value:
        """An elementwise op on scalars only: folded if all are numbers, on the host if that is exact, else on tensors."""
        if any(isinstance(s, Host) for s in scalars) and not any(_is_tensor(s) for s in scalars):
            result = host.evaluate(instruction, scalars)
            if result is not None:
                return result
        types = [i.shape.element_type for i in instruction.operands]
        if all(isinstance(s, Number) for s in scalars):
            return _folded(body, instruction, scalars, types, attributes)
        names = schema.operand_names(len(scalars))
        some = any(_is_tensor(s) for s in scalars)
        tensors = [self._scalar_operand(s, t, some and name in body.numbers)
                   for s, t, name in zip(scalars, types, names, strict=True)]
        return self._body(body, instruction, tensors, attributes)

    # ---- values

    def literal(self, literal: Literal, instruction: Instruction) -> Value:
        """The value of a constant: a splat where all elements are equal (always for scalars), else a tensor."""
        if isinstance(literal, SizeLiteral):
            return self._splat(Host(literal.size, 0, INT32_MAX), literal.shape)
        if isinstance(literal.value, tuple):
            return tuple(self.literal(part, instruction) for part in literal.value)
        if literal.elided:
            raise ExecutionError("the constant's values are not in the text: it was printed as constant({...})",
                                 subject=instruction.subject, where=instruction.where,
                                 hint="print the module with large constants (print_large_constants=True)")
        if literal.shape.is_token:
            return Token()
        array, element_type = literal.array, literal.shape.element_type
        if (known := self._shared(literal)) is not None:
            return known
        if array.size and _all_equal(array) and not _odd_nan(array.reshape(-1)[0]):
            number = numerics.number_from_numpy(array.reshape(-1)[0], element_type)
            return self._splat(number, literal.shape)
        tensor = numerics.storage_from_numpy(array, element_type).to(self.device)
        literal.on_devices[self.device] = weakref.ref(tensor)
        return tensor

    def _shared(self, literal: Literal) -> torch.Tensor | None:
        """The tensor that another program has of the same constant on this device."""
        kept = literal.on_devices.get(self.device)
        return kept() if kept is not None else None

    def number(self, number: Any, element_type: PrimitiveType) -> Value:
        """A Python number, as it is stored, as a 0-dimensional tensor of the type's storage dtype."""
        key = (type(number), repr(number), element_type)
        if key not in self._numbers:
            self._numbers[key] = torch.tensor(number, dtype=storage_dtype(element_type), device=self.device)
        return self._numbers[key]

    def materialise(self, value: Value, shape: Shape) -> Value:
        """A value as a full tensor (tuples element by element); splats are expanded, which copies nothing."""
        if shape.is_tuple:
            return mapped(lambda own, leaf: self.materialise(leaf, own), shape, value)
        if not isinstance(value, Splat):
            return value
        scalar = self._scalar_operand(value.scalar, shape.element_type, False)
        return scalar.expand(value.dims) if value.dims else scalar

    def _operand(self, value: Value, shape: Shape, numbers: bool) -> Value:
        if numbers and isinstance(value, Splat) and not value.dims and not (
                _is_tensor(value.scalar) or isinstance(value.scalar, complex)):
            return value.scalar
        return self.materialise(value, shape)

    def _scalar_operand(self, scalar: Value, element_type: PrimitiveType, numbers: bool) -> Value:
        if isinstance(scalar, Host):
            return scalar.value if numbers else self.emit(torch.full, (), scalar.value, dtype=storage_dtype(element_type),
                                                          device=self.device)
        # Complex numbers with an infinite, NaN or -0 part do not survive being printed in generated code.
        if isinstance(scalar, complex) or (isinstance(scalar, Number) and not numbers):
            return self.number(scalar, element_type)
        return scalar

    def _splat(self, scalar: Value, shape: Shape) -> Value:
        if not shape.dimensions and _is_tensor(scalar):
            return scalar
        if not shape.is_static:
            return self.materialise(Splat(scalar, shape.dimensions), shape)
        return Splat(scalar, shape.dimensions)


def _folded(body: Body, instruction: Instruction, numbers: Sequence[Any], types: Sequence[PrimitiveType],
            attributes: dict[str, Any]) -> Value:
    """An elementwise op on numbers, as a number: computed on the CPU, so that lowering waits for no other device."""
    on_cpu = Evaluator()
    with on_cpu.installed():
        tensors = [on_cpu.number(n, t) for n, t in zip(numbers, types, strict=True)]
        result = on_cpu._body(body, instruction, tensors, attributes)
    element_type = instruction.shape.element_type
    return numerics.number_from_numpy(numerics.numpy_from_storage(result, element_type)[()], element_type)


def _keeps_type(instruction: Instruction) -> bool:
    """False for a bitcast that reads the bits as another type."""
    return instruction.shape.element_type is instruction.operands[0].shape.element_type


def _is_tensor(value: Value) -> bool:
    return isinstance(value, (torch.Tensor, torch.fx.Proxy))


def _scalar_of(value: Value, shape: Shape) -> Value:
    """The scalar that a value stands for, or None where it is an array of possibly different elements."""
    if isinstance(value, Splat):
        return value.scalar
    return value if shape.is_scalar and not isinstance(value, tuple) else None


def _normalise(result: Value, shape: Shape) -> Value:
    """A body's result on the grid of its type."""
    if shape.is_tuple:
        return mapped(lambda own, leaf: _normalise(leaf, own), shape, result)
    if isinstance(result, Splat):  # a number out of a region, whose own instructions have put it there
        return result
    return numerics.normalise(result, shape.element_type) if shape.element_type.is_narrow else result


def _all_equal(array: np.ndarray) -> bool:
    if array.size == 1:
        return True
    if 0 in array.strides and not any(array.strides):
        return True  # as readers make arrays of one number
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(array.size, -1)
    step = 1 << 16  # nearly all others differ in the first of them
    return all((raw[start:start + step] == raw[0]).all() for start in range(0, array.size, step))


def _odd_nan(element: Any) -> bool:
    """A NaN whose payload or sign would be lost as a Python float."""
    kind = np.asarray(element)
    return bool(kind.dtype.kind in "fcV" and np.isnan(kind) and kind.tobytes() != np.asarray(np.nan).astype(kind.dtype).tobytes())
