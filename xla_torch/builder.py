"""XlaBuilder and XlaOp: programs built op by op. What they build and what a file holds are the same thing afterwards.

Documents: the operation semantics pages (`XlaBuilder` reference). The documented functions are in `xla_torch.ops`.
"""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .errors import InvalidArgument, XlaError
from .hlo.ir import Computation, Instruction, Module, Token, live_instructions, unique_names
from .hlo.literal import Literal
from .opcodes.inference import definition_of, has_effect, infer_shape
from .shape import Shape
from .types import S32, S64, PrimitiveType, type_from_torch

if TYPE_CHECKING:
    from .computation import XlaComputation

Liftable = bool | int | float | complex | np.ndarray | np.generic
"""What may stand beside an XlaOp as an operand: it becomes a constant of the op's element type."""


class XlaOp:
    """A value in a computation under construction. Python operators build the corresponding XLA ops (rule B1 of the
    operation semantics: a scalar broadcasts, other shapes must agree)."""

    __slots__ = ("builder", "instruction")
    __array_priority__ = 1000

    def __init__(self, builder: XlaBuilder, instruction: Instruction):
        self.builder, self.instruction = builder, instruction

    @property
    def shape(self) -> Shape:
        return self.instruction.shape

    @property
    def element_type(self) -> PrimitiveType:
        return self.instruction.shape.element_type

    def __repr__(self) -> str:
        return f"XlaOp({self.instruction!r})"

    def __bool__(self) -> bool:
        raise TypeError("an XlaOp has no truth value while a computation is built; use ops.Select or ops.Conditional")

    def __add__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary("Add", self, other)

    def __radd__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary("Add", other, self)

    def __sub__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary("Sub", self, other)

    def __rsub__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary("Sub", other, self)

    def __mul__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary("Mul", self, other)

    def __rmul__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary("Mul", other, self)

    def __truediv__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary("Div", self, other)

    def __rtruediv__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary("Div", other, self)

    def __mod__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary("Rem", self, other)

    def __pow__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary("Pow", self, other)

    def __and__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary("And", self, other)

    def __or__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary("Or", self, other)

    def __xor__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary("Xor", self, other)

    def __lshift__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary("ShiftLeft", self, other)

    def __rshift__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary("ShiftRightArithmetic" if self.element_type.is_signed else "ShiftRightLogical", self, other)

    def __lt__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary("Lt", self, other)

    def __le__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary("Le", self, other)

    def __gt__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary("Gt", self, other)

    def __ge__(self, other: XlaOp | Liftable) -> XlaOp:
        return _binary("Ge", self, other)

    def __neg__(self) -> XlaOp:
        return _unary("Neg", self)

    def __invert__(self) -> XlaOp:
        return _unary("Not", self)

    def __abs__(self) -> XlaOp:
        return _unary("Abs", self)


def _binary(name: str, lhs: XlaOp | Liftable, rhs: XlaOp | Liftable) -> XlaOp:
    from . import ops

    return getattr(ops, name)(lhs, rhs)


def _unary(name: str, operand: XlaOp) -> XlaOp:
    from . import ops

    return getattr(ops, name)(operand)


class XlaBuilder:
    """Collects instructions of one computation. `build` closes it into an XlaComputation.

    Errors are raised at once, by the call that makes the bad op.
    """

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
                                      got=f"builder {operand.builder.name!r}", expected=f"builder {self.name!r}")
        definition = definition_of(opcode)
        given = {n: definition.attributes[n].codec.normalise(v) if n in definition.attributes else v
                 for n, v in (attributes or {}).items()}
        try:
            inferred = infer_shape(opcode, shape, [o.shape for o in operands], given)
            if shape is not None and not shape.compatible(inferred):
                raise InvalidArgument("the declared shape is not what the operands give", got=f"declared {shape}",
                                      expected=inferred)
        except XlaError as error:
            raise error.located(subject=f"{opcode} (%{name})" if name else opcode) from None
        return self.append(Instruction(opcode, inferred if shape is None else shape, [o.instruction for o in operands],
                                       given, name or opcode, common))

    def append(self, instruction: Instruction) -> XlaOp:
        """Append a finished instruction whose operands are already in this builder."""
        if instruction.opcode == "parameter":
            number = instruction.attributes["parameter_number"]
            if number in self._parameters:
                raise InvalidArgument(f"parameter {number} already registered", subject="parameter")
            self._parameters[number] = instruction
        self.instructions.append(instruction)
        return XlaOp(self, instruction)

    def parameter(self, number: int, shape: Shape, name: str = "") -> XlaOp:
        """Parameter `number` of the computation."""
        return self.append(Instruction("parameter", shape, (), {"parameter_number": int(number)}, name or f"p{number}"))

    def constant(self, value: Liftable | Literal, element_type: PrimitiveType | None = None) -> XlaOp:
        """A constant. Python ints become S32 (S64 where they need it) and floats F32 unless `element_type` is given."""
        literal = value if isinstance(value, Literal) else Literal.of(np.asarray(value, _dtype_of(value, element_type)))
        return self.append(Instruction("constant", literal.shape, (), {"literal": literal}, "constant"))

    def build(self, root: XlaOp | None = None) -> XlaComputation:
        """Close the computation; the root is the last op unless given. Raises InvalidArgument where parameter numbers
        are not 0, 1, 2, ... ."""
        from .computation import XlaComputation

        return XlaComputation(Module(self.name, self.finish(root)))

    def finish(self, root: XlaOp | None = None) -> Computation:
        """The IR computation: live instructions and all parameters, with unique names."""
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
        return [i for i in self.instructions if i.opcode == "parameter" or has_effect(i)]


def _dtype_of(value: Liftable, element_type: PrimitiveType | None) -> np.dtype | None:
    if element_type is not None:
        return element_type.numpy
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype
    if isinstance(value, bool):
        return np.dtype(np.bool_)
    if isinstance(value, int):
        return (S32 if -(2**31) <= value < 2**31 else S64).numpy
    return np.dtype(np.complex64 if isinstance(value, complex) else np.float32)


def lift(builder: XlaBuilder, value: XlaOp | Liftable, like: XlaOp | Shape | PrimitiveType) -> XlaOp:
    """`value` as an XlaOp: a number or array becomes a constant of the element type of `like`."""
    if isinstance(value, XlaOp):
        return value
    element_type = like if isinstance(like, PrimitiveType) else like.element_type
    return builder.constant(np.asarray(value).astype(element_type.numpy) if not isinstance(value, np.ndarray) else value,
                            element_type)


def region_of(computation: XlaComputation | Computation) -> Computation:
    """The IR computation of a reducer, comparator or loop body given as an XlaComputation."""
    if isinstance(computation, Computation):
        return computation
    entry = getattr(getattr(computation, "module", None), "entry", None)
    if entry is None:
        raise InvalidArgument("not a computation", got=type(computation).__name__,
                              expected="an XlaComputation (XlaBuilder.build())")
    return entry


# ------------------------------------------------------------------------------ documented functions on tensors

def documented(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a documented function work on torch tensors too. (Its type says so: one of XlaOps alone would refuse tensors.)

    Given XlaOps it runs as it is. Given torch tensors (anywhere, also in lists), they become the parameters of a
    computation of this one op, which is run at once; gradients flow through it. A `builder` parameter need not be given, as
    in the documents: it is that of the XlaOps among the arguments. Where there are none, and no tensors (``Iota(shape, 0)``),
    the op runs at once as well, on torch's default device.
    """
    parameters = inspect.signature(function).parameters
    takes_builder, leads = "builder" in parameters, next(iter(parameters), "") == "builder"

    def build(builder: XlaBuilder | None, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if leads:
            return function(builder, *args, **kwargs)
        return function(*args, **kwargs, builder=builder) if takes_builder else function(*args, **kwargs)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        builder = None
        if leads and args and (args[0] is None or isinstance(args[0], XlaBuilder)):
            builder, args = args[0], args[1:]
        if takes_builder:
            builder = kwargs.pop("builder", builder)
        values: list[torch.Tensor | Token] = []
        ops: list[XlaOp] = []
        _collect((*args, *kwargs.values()), values, ops)
        if builder is None and ops:
            builder = ops[0].builder
        try:
            if values or (takes_builder and builder is None):
                return _run_at_once(build, function.__name__, args, kwargs, values)
            return build(builder, args, kwargs)
        except XlaError as error:
            error.located(subject=function.__name__)
            raise

    return call


def renamed(**older: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a documented function take parameters by the names that older documents give them: ``older_name="name"``."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            for old in older.keys() & kwargs.keys():
                if older[old] in kwargs:
                    raise TypeError(f"{function.__name__}() got {older[old]!r} twice: {old!r} is its older name")
                kwargs[older[old]] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call

    return decorate


def _collect(given: Iterable[Any], values: list[torch.Tensor | Token], ops: list[XlaOp]) -> None:
    """The tensors and tokens, and the XlaOps, among arguments, also in lists."""
    for value in given:
        if isinstance(value, (torch.Tensor, Token)):
            values.append(value)
        elif isinstance(value, XlaOp):
            ops.append(value)
        elif isinstance(value, (list, tuple)):
            _collect(value, values, ops)


def _run_at_once(build: Callable[..., Any], name: str, args: Sequence[Any], kwargs: dict[str, Any],
                 values: Sequence[torch.Tensor | Token]) -> Any:
    specs = tuple(None if isinstance(v, Token) else (tuple(v.shape), v.dtype) for v in values)
    marks = iter(range(len(values)))
    frozen = (_freeze(tuple(args), marks), _freeze(tuple(kwargs.items()), marks))
    try:
        computation, several = _one_op_cached(build, name, frozen[0], frozen[1], specs)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        computation, several = _one_op(build, name, frozen[0], frozen[1], specs)
    anywhere = not any(isinstance(v, torch.Tensor) for v in values)
    result = computation(*values, device=torch.get_default_device() if anywhere else None)
    return list(result) if several else result


class _Mark(int):
    """The place of tensor number N in frozen arguments."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Mark) and int(self) == int(other)

    def __hash__(self) -> int:
        return hash(("mark", int(self)))


class _Exact:
    """A Python number as a cache key: 0.0 is not -0.0, and 1 is not True."""

    __slots__ = ("key", "value")

    def __init__(self, value: Any):
        self.value, self.key = value, (type(value), repr(value))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Exact) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def _freeze(value: Any, marks: Any) -> Any:
    if isinstance(value, (torch.Tensor, Token)):
        return _Mark(next(marks))
    if isinstance(value, (bool, int, float, complex)) and not isinstance(value, enum.Enum):
        return _Exact(value)
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return tuple(_freeze(v, marks) for v in value)
    return value


def _thaw(value: Any, parameters: Sequence[XlaOp]) -> Any:
    if isinstance(value, _Mark):
        return parameters[int(value)]
    if isinstance(value, _Exact):
        return value.value
    if type(value) is tuple:
        return tuple(_thaw(v, parameters) for v in value)
    return value


def _one_op(build: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: tuple[Any, ...],
            specs: tuple[Any, ...]) -> tuple[XlaComputation, bool]:
    builder = XlaBuilder(name)
    parameters = [builder.parameter(number, _parameter_shape(name, spec)) for number, spec in enumerate(specs)]
    result = build(builder, _thaw(args, parameters), {k: _thaw(v, parameters) for k, v in kwargs})
    if isinstance(result, XlaOp):
        return builder.build(result), False
    return builder.build(builder.add("tuple", list(result))), True


def _parameter_shape(name: str, spec: tuple[tuple[int, ...], torch.dtype] | None) -> Shape:
    if spec is None:
        return Shape.token()
    element_type = type_from_torch(spec[1])
    if element_type is None:
        raise InvalidArgument("a tensor of this dtype has no XLA element type", subject=name, got=spec[1])
    return Shape.array(element_type, spec[0])


_one_op_cached = functools.lru_cache(maxsize=4096)(_one_op)
