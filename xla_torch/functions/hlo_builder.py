"""Builder and XlaOp: computations of the IR, built op by op, with the implicit broadcast that the documents give operators.

Documents: the operation semantics pages (`XlaBuilder` reference), "Element-wise binary arithmetic operations" and broadcasting.
The documented functions are in `xla_torch.functions`. Transforms and gradients build with the same two classes as users do,
whose `XlaBuilder` (`builder.py`) also makes a program to call of what was built.
"""

# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..core.budget import charge
from ..core.errors import InvalidArgument, WrongKind, XlaError
from ..core.shape import UNBOUNDED, Shape
from ..core.sizes import Size
from ..core.types import (
    C64,
    F32,
    PRED,
    S32,
    S64,
    U64,
    PrimitiveType,
    require_element_type,
    same_type_ignoring_precision,
)
from ..hlo.canonical_values import LISTS, index_of
from ..hlo.inference import check_precision, has_effect, infer_shape
from ..hlo.ir import Computation, Instruction, live_instructions, unique_names
from ..hlo.literals.literal import Literal, SizeLiteral
from ..hlo.numbers import constant_of
from ..hlo.schema import schema_of
from ..opcodes import comparison, control, elementwise, movement
from ..opcodes.shapes import merge_size, require_arrays

NUMBERS: tuple[type[Any], ...] = (bool, int, float, complex, np.ndarray, np.generic)
_ARRAYS: tuple[type[Any], ...] = (np.ndarray, np.generic)

Liftable = bool | int | float | complex | np.ndarray | np.generic
"""What may stand beside an XlaOp as an operand: it becomes a constant of the op's element type."""

Region = Computation | Callable[..., Any]
"""What may stand for a computation of an op: an XlaComputation (which can be called), one of the IR, or a function of XlaOps."""


class XlaOp:
    """Represent a value in a computation under construction.

    Python operators build the corresponding XLA ops. A scalar broadcasts (hlo/SPEC.md, Implicit broadcast); other shapes must
    agree. Raises WrongKind if used as a concrete value, as in ``if``.

    >>> builder = XlaBuilder("halves")
    >>> x = builder.parameter(0, Shape.parse("f32[2]"))
    >>> str(x.shape), x.element_type
    ('f32[2]', F32)
    >>> builder.build(x / 2.0 - 1.0)(torch.tensor([1.0, 2.0]))
    tensor([-0.5000,  0.0000])
    """

    __slots__ = ("builder", "instruction")
    __array_priority__ = 1000

    def __init__(self, builder: Builder, instruction: Instruction):
        if not isinstance(instruction, Instruction):
            raise InvalidArgument("an op is made by a builder", subject="XlaOp", got=type(instruction).__name__,
                                  expected="an instruction of the builder",
                                  hint="make one with builder.parameter(0, shape) or ops.Constant(builder, value)")
        self.builder, self.instruction = builder, instruction

    @property
    def shape(self) -> Shape:
        """Return the shape of the value."""
        return self.instruction.shape

    @property
    def element_type(self) -> PrimitiveType:
        """Return the element type of the shape; TUPLE for a tuple."""
        return self.instruction.shape.element_type

    def __repr__(self) -> str:
        return f"XlaOp({self.instruction!r})"

    def __bool__(self) -> bool:
        raise WrongKind("an XlaOp has no truth value while a computation is built", subject="XlaOp", got=str(self.shape),
                        hint="use ops.Select or ops.Conditional in the place of if, ops.Max and ops.Min of max and min")

    def _no_value(self, *_: Any) -> Any:
        raise WrongKind("an XlaOp has no value while a computation is built", subject="XlaOp", got=str(self.shape),
                        hint="call builder.build() to get a computation that takes tensors")

    __float__ = __int__ = __index__ = __complex__ = _no_value

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self._no_value()

    def __getitem__(self, index: Any) -> Any:
        whole = "ops.GetTupleElement(op, index)" if self.shape.is_tuple else "ops.Slice, ops.SliceInDim or ops.DynamicSlice"
        raise WrongKind("an XlaOp takes no index", subject="XlaOp", got=f"{self.shape}, index {index!r}", hint=whole)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensor = next((a for a in args if not isinstance(a, XlaOp) and hasattr(a, "__dlpack__")), None)
        op = next((a for a in args if isinstance(a, XlaOp)), None)
        if tensor is not None and op is not None:
            raise tensor_beside(tensor, op.builder)
        raise WrongKind("torch functions cannot take XlaOps", got=getattr(function, "__name__", "a function of torch"),
                        subject="XlaOp", hint="use the functions of xla_torch.ops: ops.Exp, ops.Add, ...")

    def __add__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary(elementwise.add, self, other)

    def __radd__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary(elementwise.add, other, self)

    def __sub__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary(elementwise.subtract, self, other)

    def __rsub__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary(elementwise.subtract, other, self)

    def __mul__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary(elementwise.multiply, self, other)

    def __rmul__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary(elementwise.multiply, other, self)

    def __truediv__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary(elementwise.divide, self, other)

    def __rtruediv__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary(elementwise.divide, other, self)

    def __mod__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary(elementwise.remainder, self, other)

    def __pow__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary(elementwise.power, self, other)

    def __rmod__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary(elementwise.remainder, other, self)

    def __rpow__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary(elementwise.power, other, self)

    def __rand__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary(elementwise.and_, other, self)

    def __ror__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary(elementwise.or_, other, self)

    def __rxor__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary(elementwise.xor, other, self)

    def __and__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary(elementwise.and_, self, other)

    def __or__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary(elementwise.or_, self, other)

    def __xor__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary(elementwise.xor, self, other)

    def __lshift__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary(elementwise.shift_left, self, other)

    def __rshift__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary(elementwise.shift_right_arithmetic if self.element_type.is_signed else elementwise.shift_right_logical,
                       self, other)

    def __lt__(self, other: XlaOp | Liftable) -> XlaOp:
        return _compare("LT", self, other)

    def __le__(self, other: XlaOp | Liftable) -> XlaOp:
        return _compare("LE", self, other)

    def __gt__(self, other: XlaOp | Liftable) -> XlaOp:
        return _compare("GT", self, other)

    def __ge__(self, other: XlaOp | Liftable) -> XlaOp:
        return _compare("GE", self, other)

    def __eq__(self, other: XlaOp | Liftable) -> XlaOp:  # pyright: ignore[reportIncompatibleMethodOverride] (an op, no bool)
        return _compare("EQ", self, other)

    def __ne__(self, other: XlaOp | Liftable) -> XlaOp:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _compare("NE", self, other)

    __hash__ = object.__hash__
    """By identity: what is a key or is looked for is this very op, as `==` makes another one."""

    def __neg__(self) -> XlaOp:
        return self.builder.add(elementwise.negate, [self])

    def __invert__(self) -> XlaOp:
        return self.builder.add(elementwise.not_, [self])

    def __abs__(self) -> XlaOp:
        return self.builder.add(elementwise.abs_, [self])


class Builder:
    """Collects instructions of one computation; `finish` closes it.

    Errors are raised at once, by the call that makes the bad op.
    """

    runs_at_once = False
    """Whether it builds one operation that runs at once, on values that are there."""
    region = ""
    """What it builds of a Python function that stands for a computation: ``the reducer``."""

    def __init__(self, name: str = "computation"):
        self.name = name
        self.instructions: list[Instruction] = []
        self._parameters: dict[int, Instruction] = {}

    def add(self, opcode: str, operands: Iterable[XlaOp] = (), attributes: dict[str, Any] | None = None,
            shape: Shape | None = None, name: str = "", common: dict[str, Any] | None = None) -> XlaOp:
        """Append one HLO instruction. `shape` is the declared result, needed where it does not follow from the operands.

        Raises InvalidArgument for what XLA's shape inference refuses, and for operands of another builder.
        """
        operands = list(operands)
        for position, operand in enumerate(operands):
            if not isinstance(operand, XlaOp):
                raise InvalidArgument(f"operand {position} is not an XlaOp", subject=opcode, got=type(operand).__name__,
                                      expected="an XlaOp of this builder, or a number beside one")
            if operand.builder is not self:
                raise InvalidArgument(f"operand {position} belongs to another builder", subject=opcode,
                                      got=f"builder {operand.builder.name!r}", expected=f"builder {self.name!r}",
                                      hint=self.beyond(operand.builder))
        definition = schema_of(opcode)
        given = {n: definition.attributes[n].codec.normalise(v) if n in definition.attributes else v
                 for n, v in (attributes or {}).items()}
        try:
            shapes = [o.instruction.shape for o in operands]
            inferred = infer_shape(opcode, shape, shapes, given)
            check_precision(opcode, shapes, given)
            if shape is not None and not shape.compatible(inferred):
                raise InvalidArgument("the declared shape contradicts the inferred shape", got=f"declared {shape}",
                                      expected=inferred)
        except XlaError as error:
            raise error.located(subject=f"{opcode} (%{name})" if name else opcode) from None
        return self.append(Instruction(opcode, inferred if shape is None else shape, [o.instruction for o in operands],
                                       given, name or opcode, common))

    def beyond(self, other: Builder | None = None) -> str:
        """What to do where its ops meet those of another builder, or tensors."""
        role = self.region or (other.region if other else "")
        return role and (f"{role} is a computation of its own, and sees its arguments alone: pass the value on in an operand or "
                         "carry, or make it inside, of a number")

    def append(self, instruction: Instruction) -> XlaOp:
        """Append a finished instruction whose operands are already in this builder."""
        if instruction.is_parameter:
            number = instruction.attributes["parameter_number"]
            if number in self._parameters:
                raise InvalidArgument(f"parameter {number} already registered", subject=movement.parameter)
            self._parameters[number] = instruction
        charge()
        self.instructions.append(instruction)
        return XlaOp(self, instruction)

    def parameter(self, number: int, shape: Shape, name: str = "") -> XlaOp:
        """Parameter `number` (from 0) of the computation. Raises InvalidArgument for a number that is there already."""
        if not isinstance(shape, Shape):
            raise InvalidArgument("not a shape", subject=movement.parameter, got=type(shape).__name__,
                                  expected="a Shape, as Shape.array(F32, [2, 3])")
        number = index_of(number)
        return self.append(Instruction(movement.parameter, shape, (), {"parameter_number": number}, name or f"p{number}"))

    def constant(self, value: Liftable | Literal, element_type: PrimitiveType | None = None) -> XlaOp:
        """A constant. Python ints become S32 (S64 or U64 where they need that) and floats F32 unless `element_type` is given."""
        if isinstance(value, Size):
            value = _of_size(value, element_type)
        literal = value if isinstance(value, Literal) else Literal.of(_constant(value, element_type))
        return self.append(Instruction(movement.constant, literal.shape, (), {"literal": literal}, movement.constant))

    def finish(self, root: XlaOp | None = None) -> Computation:
        """The IR computation: live instructions and all parameters, with unique names."""
        if root is not None and (not isinstance(root, XlaOp) or root.builder is not self):
            raise InvalidArgument("the root is not an op of this builder", subject=f"builder {self.name!r}",
                                  got=f"an op of {root.builder.name!r}" if isinstance(root, XlaOp) else type(root).__name__)
        if not self.instructions:
            raise InvalidArgument("nothing was built", subject=f"builder {self.name!r}")
        if sorted(self._parameters) != list(range(len(self._parameters))):
            raise InvalidArgument("parameter numbers are not dense", subject=f"builder {self.name!r}",
                                  got=sorted(self._parameters), expected="0, 1, 2, ...")
        computation = Computation(self.name, self.instructions, root.instruction if root is not None else None)
        live = {id(i) for i in live_instructions(computation, [computation.root, *self._kept()])}
        computation.instructions = [i for i in self.instructions if id(i) in live]
        unique_names(computation.instructions)
        return computation

    def _kept(self) -> list[Instruction]:
        return [i for i in self.instructions if i.is_parameter or has_effect(i)]


def _of_size(value: Size, element_type: PrimitiveType | None) -> Literal | int:
    """A size that stands for many as a constant, where it fits into its type and that holds integers; otherwise its value."""
    wanted = element_type or S32
    fits = wanted.is_integral and wanted.bits >= 32 and 0 <= value < 2**31
    return SizeLiteral(Shape(wanted), value) if fits else int(value)


def _constant(value: Any, element_type: PrimitiveType | None) -> np.ndarray:
    """A constant's value, in NumPy's type for an array that is to be taken as it is."""
    if element_type is not None:
        return constant_of(value, require_element_type(element_type))
    if isinstance(value, _ARRAYS):
        return np.asarray(value)
    return constant_of(value, type_of_number(value))


def type_of_number(value: Any) -> PrimitiveType:
    """The type that a Python number has as a constant, unless another one is asked for: PRED, S32 (S64 or U64 where it needs
    that), F32 or C64."""
    if isinstance(value, bool):
        return PRED
    if isinstance(value, int):
        return S32 if -(2**31) <= value < 2**31 else S64 if value < 2**63 else U64
    return C64 if isinstance(value, complex) else F32


def lift(builder: Builder, value: XlaOp | Liftable, like: XlaOp | Shape | PrimitiveType) -> XlaOp:
    """`value` as an XlaOp: a number or array becomes a constant of the element type of `like`. Raises InvalidArgument for a
    number that this type does not hold (`hlo/numbers.py` has the rule)."""
    if isinstance(value, XlaOp):
        return value
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):
        raise tensor_beside(value, builder)
    return builder.constant(value, like if isinstance(like, PrimitiveType) else like.element_type)


def region_of(computation: Any) -> Computation:
    """The IR computation of a reducer, comparator or loop body given as an XlaComputation."""
    entry = embedded_in(computation)
    if entry is None:
        raise InvalidArgument("not a computation", got=type(computation).__name__,
                              expected="an XlaComputation (XlaBuilder.build())")
    return entry


def tensor_beside(value: Any, builder: Builder) -> InvalidArgument:
    """The error for a tensor where there are ops."""
    return InvalidArgument("tensors beside XlaOps", got=f"a {type(value).__name__} beside an op of {builder.name!r}",
                           expected="XlaOps of one builder, or tensors alone", hint=builder.beyond() or
                           "make the tensor a parameter, or ops.ConstantLiteral(builder, tensor.numpy())")


def embedded_in(computation: Any) -> Computation | None:
    """The IR computation that something has, or is; None where it is no computation."""
    if isinstance(computation, Computation):
        return computation
    return getattr(getattr(computation, "program", None), "embedded", None)


def is_function(value: Any) -> bool:
    """Whether this is a Python function, which may stand for a computation, and no computation itself."""
    return callable(value) and not isinstance(value, type) and not hasattr(value, "program")


def _binary(opcode: str, lhs: XlaOp | Liftable, rhs: XlaOp | Liftable) -> XlaOp:
    left, right = broadcast_operands(opcode, lhs, rhs, ())
    return left.builder.add(opcode, [left, right])


def _compare(direction: str, lhs: XlaOp | Liftable, rhs: XlaOp | Liftable) -> XlaOp:
    left, right = broadcast_operands(comparison.compare, lhs, rhs, ())
    return left.builder.add(comparison.compare, [left, right], {"direction": direction})


# ------------------------------------------------------------------------------------------- implicit broadcast


Operand = XlaOp | Liftable
"""What the documented functions take: an op, or beside one a number or array, which becomes a constant of its type."""

Value = XlaOp | Sequence[Any]
"""An operand of any shape: an op, or a Python tuple or list of such, which stands for a tuple."""


def packed(value: Any) -> XlaOp:
    """The operand as one op. Raises InvalidArgument for what is none, and for a Python tuple of other things or of nothing."""
    if isinstance(value, XlaOp):
        return value
    if not isinstance(value, LISTS):
        raise InvalidArgument("not an operand", got=type(value).__name__, expected="an XlaOp or a tensor, or a tuple of such")
    parts = [packed(v) for v in value]
    if not parts:
        raise InvalidArgument("not a tuple of operands", got="no elements", expected="XlaOps or tensors, at least one")
    return parts[0].builder.add(control.tuple_, parts)


def lift_operands(subject: str, *operands: Operand) -> tuple[XlaOp, ...]:
    """The operands as ops of one builder. Raises InvalidArgument where none is an op or an op is no array."""
    like = next((o for o in operands if isinstance(o, XlaOp)), None)
    if like is None:
        raise InvalidArgument("at least one operand must be an XlaOp or a tensor", subject=subject,
                              got=", ".join(type(o).__name__ for o in operands), expected="at least one")
    try:
        require_arrays(*(o.shape for o in operands if isinstance(o, XlaOp)))
        return tuple(lift(like.builder, o, like) for o in operands)
    except InvalidArgument as error:
        raise error.located(subject=subject) from None


def broadcast_operands(subject: str, lhs: Operand, rhs: Operand, broadcast_dimensions: Sequence[int]) -> tuple[XlaOp, XlaOp]:
    """Both operands with the dimensions that implicit broadcast (hlo/SPEC.md) gives the result.

    Of different ranks, the lower-ranked operand is a scalar, or `broadcast_dimensions` says for each of its dimensions which
    dimension of the other it matches. Then dimensions of size 1 stretch. Raises InvalidArgument for operands of different
    element types and for shapes that do not fit.
    """
    lhs, rhs = lift_operands(subject, lhs, rhs)
    got = f"lhs {lhs.shape}, rhs {rhs.shape}"
    if not same_type_ignoring_precision(lhs.element_type, rhs.element_type):
        raise InvalidArgument("operands with different element types", subject=subject, got=got,
                              expected="equal element types", hint="convert one of them with ConvertElementType")
    dims = tuple(int(d) for d in broadcast_dimensions)
    if lhs.shape.dimensions == rhs.shape.dimensions and not dims:
        return lhs, rhs
    left, right = _place(subject, lhs.shape, rhs.shape, dims, got)
    sizes = [_stretched(subject, lhs.shape, left.get(d), rhs.shape, right.get(d), got)
             for d in range(max(lhs.shape.rank, rhs.shape.rank))]
    return _fitted(lhs, left, sizes), _fitted(rhs, right, sizes)


def broadcast_scalars(*operands: XlaOp) -> tuple[XlaOp, ...]:
    """Scalars among the operands broadcast to the shape of the others (of the first that is no scalar)."""
    like = next((o for o in operands if not o.shape.is_scalar), None)
    if like is None:
        return operands
    sizes = list(zip(like.shape.dimensions, like.shape.dynamic_flags, strict=True))
    return tuple(_fitted(o, {}, sizes) if o.shape.is_scalar else o for o in operands)


Places = dict[int, int]
"""For dimensions of the result: which dimension of an operand stands there."""


def _place(subject: str, lhs: Shape, rhs: Shape, dims: tuple[int, ...], got: str) -> tuple[Places, Places]:
    low, high = (lhs, rhs) if lhs.rank <= rhs.rank else (rhs, lhs)
    identity = {d: d for d in range(high.rank)}
    if low.rank == high.rank:
        if dims and dims != tuple(range(high.rank)):
            raise InvalidArgument("broadcast_dimensions of operands of one rank", subject=subject, got=list(dims),
                                  expected=f"none, or {list(range(high.rank))}")
        return identity, identity
    if len(dims) != low.rank:
        raise InvalidArgument("operands of different rank need broadcast_dimensions", subject=subject,
                              got=f"{got}, broadcast_dimensions {list(dims)}",
                              expected=f"one dimension of the rank-{high.rank} operand for each of the other's {low.rank}")
    if any(not 0 <= d < high.rank for d in dims) or any(a >= b for a, b in itertools.pairwise(dims)):
        raise InvalidArgument("broadcast_dimensions are out of order or range", subject=subject, got=list(dims),
                              expected=f"strictly increasing dimensions from 0 to {high.rank - 1}")
    placed = {d: i for i, d in enumerate(dims)}
    return (placed, identity) if low is lhs else (identity, placed)


def _stretched(subject: str, lhs: Shape, left: int | None, rhs: Shape, right: int | None, got: str) -> tuple[int, bool]:
    """Size and dynamic flag of a result dimension in which these dimensions of the operands meet."""
    sides = [(s.dimensions[d], s.dynamic_flags[d]) for s, d in ((lhs, left), (rhs, right)) if d is not None]
    if len(sides) == 2 and sides[0][0] != sides[1][0]:
        if 1 in (sides[0][0], sides[1][0]):
            return sides[0] if sides[1][0] == 1 else sides[1]
        if UNBOUNDED not in (sides[0][0], sides[1][0]):
            raise InvalidArgument("operands with incompatible shapes", subject=subject, got=got,
                                  expected="dimensions of equal size, or of size 1")
    return merge_size(sides)


def _fitted(operand: XlaOp, places: Places, sizes: Sequence[tuple[int, bool]]) -> XlaOp:
    """The operand broadcast to `sizes`: of a bounded dimension to its bound, which beside a dynamic operand counts only as far
    as that goes; of an unbounded one to size 1, which stretches when the program runs."""
    shape = operand.shape
    wanted = [1 if size == UNBOUNDED and (d not in places or shape.dimensions[places[d]] == 1) else size
              for d, (size, _) in enumerate(sizes)]
    kept = {d: i for d, i in places.items() if shape.dimensions[i] != 1 or wanted[d] == 1}
    if len(kept) == len(sizes):
        return operand
    if len(kept) < shape.rank:  # what stretches is taken away first, and broadcast back
        operand = operand.builder.add(movement.reshape, [operand], shape=shape.with_dimensions(
            [shape.dimensions[i] for i in kept.values()], [shape.dynamic_flags[i] for i in kept.values()]))
    own = [d in kept and shape.dynamic_flags[kept[d]] for d in range(len(sizes))]
    result = shape.with_dimensions([shape.dimensions[kept[d]] if d in kept else n for d, n in enumerate(wanted)], own)
    return operand.builder.add(movement.broadcast, [operand], {"dimensions": tuple(kept)}, shape=result)
