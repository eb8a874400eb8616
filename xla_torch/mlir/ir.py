"""Operations, values and attributes of MLIR, whatever they were read from.

Text (`text.py`) and bytecode (`bytecode.py`) give the same objects, so that what works on a program never knows where it came
from. Attributes are Python values wherever Python has them:

=============================  =======================================================================================
MLIR                           here
=============================  =======================================================================================
``5 : i64``, ``0.5 : f32``     int, float (the type is known from the op; an Integer or a Float keeps one of its own)
``true``, ``unit``             True
``"text"``                     str (bytes where it is no UTF-8)
``[a, b]``, ``array<i64: 1>``  tuple (an Array keeps another type than i64)
``{a = 1}``                    dict
``@f``, ``@f::@g``             Symbol
a type                         the type
``dense<...>``                 Elements (also of a resource)
``#stablehlo.dot<...>``        Struct, by the dialect's field names (fields that the text leaves out are left out)
``#stablehlo<fft_type FFT>``   Enum
any other dialect's            Opaque, with its text
=============================  =======================================================================================

Types whose elements XLA has are `PrimitiveType` (``i1`` is PRED, ``i32`` S32, ``ui8`` U8, ``complex<f32>`` C64).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from ..core.errors import UnsupportedError
from ..core.types import PrimitiveType

NO_BRANCHES = ("HLO has no jumps between blocks: write stablehlo.if, stablehlo.case or stablehlo.while, or take the program "
               "before its control flow was lowered")
"""The hint for what only other compilers read."""

# ------------------------------------------------------------------------------------------------------------------- types


@dataclasses.dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor type. A size is None where it is unknown (``?``); without rank (``tensor<*xf32>``) `dimensions` is None."""

    dimensions: tuple[int | None, ...] | None
    element: ElementType
    encoding: Attribute = None

    @property
    def is_static(self) -> bool:
        return self.dimensions is not None and None not in self.dimensions


@dataclasses.dataclass(frozen=True, slots=True)
class Quantized:
    """``!quant.uniform<i8:f32, 0.5:3>``. `axes` and `block` are empty where one scale and zero point stand for the whole tensor;
    one axis of block size 1 where they stand for each slice; scales and zero points lie in row-major order of the blocks."""

    storage: PrimitiveType
    low: int
    high: int
    expressed: PrimitiveType
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axes: tuple[int, ...] = ()
    block: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class TupleType:
    elements: tuple[Type, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class FunctionType:
    inputs: tuple[Type, ...]
    results: tuple[Type, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class OtherType:
    """A type by its text: ``index``, ``none``, ``!stablehlo.token`` (always in this spelling), ``!shape.shape``, ``i3``, ..."""

    text: str


INDEX = OtherType("index")
TOKEN = OtherType("!stablehlo.token")

ElementType: TypeAlias = PrimitiveType | Quantized | OtherType
Type: TypeAlias = PrimitiveType | Tensor | Quantized | TupleType | FunctionType | OtherType

# -------------------------------------------------------------------------------------------------------------- attributes


class Integer(int):
    """An integer that is no i64. Whoever computes with it does as with any; where an attribute is only handed on, as a custom
    call's configuration is, its reader looks at the type."""

    type: Type


class Float(float):
    """A float that is no f64."""

    type: Type


class Array(tuple[Any, ...]):
    """``array<...>`` of another type than i64."""

    type: Type


def typed(value: Any, of: Type | None) -> Any:
    """A number or a tuple of numbers with its type, where that is not the one it has without saying so."""
    default = PrimitiveType.F64 if isinstance(value, float) else PrimitiveType.S64
    if of is None or of is default or of is PrimitiveType.PRED:
        return value
    if isinstance(value, tuple):
        made = Array(value)
    else:
        made = Float(value) if isinstance(value, float) else Integer(value)
    made.type = of
    return made


@dataclasses.dataclass(frozen=True, slots=True)
class Symbol:
    """``@name``, or with `nested` ``@name::@nested``."""

    name: str
    nested: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Elements:
    """``dense<...>``. `value` has the type's dimensions, as a view without a copy where it is a splat or lies in a file."""

    type: Tensor
    value: np.ndarray


@dataclasses.dataclass(frozen=True, slots=True)
class Enum:
    """``#stablehlo<comparison_direction EQ>``: kind ``stablehlo.comparison_direction``, value ``EQ``."""

    kind: str
    value: str


@dataclasses.dataclass(frozen=True, slots=True)
class Struct:
    """``#stablehlo.dot<lhs_contracting_dimensions = [1], ...>``: kind ``stablehlo.dot``, and its fields.

    Bounds of a tensor's sizes, ``#stablehlo.bounds<3, ?>``, are ``stablehlo.bounds`` with the field ``bounds``, None where there
    is no bound; types that only an algorithm has (``tf32``) are OtherType; of a convolution the fields are named as in the
    specification (``input_batch_dimension``, ``kernel_spatial_dimensions``, ...).
    """

    kind: str
    fields: dict[str, Attribute]

    def __hash__(self) -> int:
        return hash(self.kind)


@dataclasses.dataclass(frozen=True, slots=True)
class Opaque:
    """An attribute of a dialect that is only handed on, as its text (``#sdy.sharding<@mesh, [{"x"}]>``)."""

    text: str


Attribute: TypeAlias = Any
"""One of the values of the table above."""

# --------------------------------------------------------------------------------------------------------------- locations


@dataclasses.dataclass(frozen=True, slots=True)
class Location:
    """Where an operation came from. `name` is the innermost named scope's whole name (JAX's ``jit(f)/add``), `frames` the places
    in files as (file, line, column), the innermost call first."""

    name: str = ""
    frames: tuple[tuple[str, int, int], ...] = ()


# --------------------------------------------------------------------------------------------------------------- operations


class Value:
    """A result of an operation (`owner` is the Operation) or an argument of a block (`owner` is the Block), which may have a
    location of its own: JAX names a function's arguments there, ``p['params']['bias']``."""

    __slots__ = ("location", "number", "owner", "type")

    def __init__(self, type: Type, owner: Operation | Block, number: int):
        self.type, self.owner, self.number = type, owner, number
        self.location: Location | None = None

    def __repr__(self) -> str:
        return f"Value({self.type}, {self.number} of {type(self.owner).__name__})"


class Operation:
    """An operation. `name` has its dialect (``stablehlo.add``, ``func.func``, ``builtin.module``); `attributes` holds properties
    and discardable attributes alike. `line` and `column` say where it stands in a text (0 where it was no text). `refused` is
    raised by whoever wants to know what it means: an operation that a newer version has does not close the file it stands in."""

    __slots__ = ("attributes", "column", "line", "location", "name", "operands", "refused", "regions", "results")

    def __init__(self, name: str, operands: list[Value], result_types: list[Type] | tuple[Type, ...] = (),
                 attributes: dict[str, Attribute] | None = None, regions: list[Region] | None = None,
                 location: Location | None = None, line: int = 0, column: int = 0):
        self.name, self.operands = name, operands
        self.results = [Value(t, self, k) for k, t in enumerate(result_types)]
        self.attributes: dict[str, Attribute] = attributes if attributes is not None else {}
        self.regions = regions if regions is not None else []
        self.location, self.line, self.column = location, line, column
        self.refused: UnsupportedError | None = None

    @property
    def symbol(self) -> str:
        """Its ``sym_name``, or ""."""
        name = self.attributes.get("sym_name")
        return name if isinstance(name, str) else ""

    @property
    def where(self) -> str:
        """For error messages: the named scope and the position, whatever is known."""
        position = f"line {self.line}, column {self.column}" if self.line else ""
        return ", ".join(filter(None, (self.location.name if self.location else "", position)))

    def __repr__(self) -> str:
        return f"Operation({self.name})"


class Block:
    """Operations in their order, the last of which is the terminator, and the arguments that they may use."""

    __slots__ = ("arguments", "operations")

    def __init__(self, argument_types: list[Type] | tuple[Type, ...] = (), operations: list[Operation] | None = None):
        self.arguments = [Value(t, self, k) for k, t in enumerate(argument_types)]
        self.operations: list[Operation] = operations if operations is not None else []


class Region:
    __slots__ = ("blocks",)

    def __init__(self, blocks: list[Block] | None = None):
        self.blocks: list[Block] = blocks if blocks is not None else []


def walk(operation: Operation) -> Iterator[Operation]:
    """The operation and all within its regions, each before what it holds. Iterative: regions may be deep."""
    stack = [operation]
    while stack:
        found = stack.pop()
        yield found
        stack.extend(o for r in reversed(found.regions) for b in reversed(r.blocks) for o in reversed(b.operations))
