"""What the parameters of the documented functions take, from their annotations: each kind of value is checked, and put into
the form that the functions know, before a function sees it.

A function's annotations are its rules: ``operand: XlaOp`` takes ops, ``dimension: int`` whole numbers (of NumPy too) and no 2.5,
``Sequence[int]`` sequences of them, ``PrimitiveType`` element types in any spelling, ``Operand`` what may stand beside an op.
What is annotated as Any is the function's own affair.
"""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from ..core.errors import InvalidArgument
from ..core.shape import Shape
from ..core.sizes import Size, index_of
from ..core.types import PrimitiveType, element_type_of
from ..hlo.attributes import ConvolutionDimensionNumbers, ReplicaGroups, ResultAccuracy, ResultAccuracyCodec
from ..hlo.canonical_values import LISTS
from ..hlo.codecs import BOOLS
from ..opcodes.contraction import DotDimensionNumbers
from .dimension_numbers import (
    CONVOLUTION_WORDS,
    DOT_WORDS,
    ConvolutionNumbers,
    DotNumbers,
    make_convolution_dimension_numbers,
    make_dot_dimension_numbers,
)
from .hlo_builder import NUMBERS, Region, XlaOp, embedded_in, is_function

_WRITTEN: tuple[type[Any], ...] = (type(None), bool, int, float, complex, str, bytes, np.generic, enum.Enum)
"""What is written out where it is described."""

_ARRAY: type[Any] = np.ndarray
_REALS: tuple[type[Any], ...] = (int, float, np.floating, np.integer)


class Refused(Exception):
    """The value is not of the kind."""


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value: what it is called, and what gives a value its canonical form or raises Refused."""

    words: str
    take: Callable[[Any], Any]


def described(value: Any) -> str:
    """What a value is, for an error's "got"."""
    if isinstance(value, XlaOp):
        return f"an op of shape {value.shape}"
    if isinstance(value, _WRITTEN):
        text = repr(value)
        return text if len(text) <= 80 else f"{text[:77]}..."
    if isinstance(value, _ARRAY):
        return f"ndarray {value.dtype}{list(value.shape)}"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, LISTS) and len(value) <= 4:
        inside = ", ".join(described(v) for v in value)
        return f"{type(value).__name__} of {inside}" if value else f"an empty {type(value).__name__}"
    return type(value).__name__


def hint_for(value: Any) -> str:
    """What to do with a value that is no array of a program."""
    if isinstance(value, np.ndarray):
        return "torch.from_numpy(array) makes a tensor of it, ops.ConstantLiteral(builder, array) a constant"
    if isinstance(value, (bool, int, float, complex, list, tuple, np.generic)):
        return "torch.tensor(value) makes a tensor of it, ops.Constant(builder, value) a constant"
    if hasattr(value, "__array__") or hasattr(value, "__dlpack__"):
        return "torch.from_dlpack(array) makes a tensor of it"
    return ""


# ------------------------------------------------------------------------------------------- single kinds


def _op(value: Any) -> XlaOp:
    if isinstance(value, XlaOp):
        return value
    raise Refused


def _operand(value: Any) -> Any:
    return value if isinstance(value, XlaOp) else _number(value)


def _number(value: Any) -> Any:
    """As it is: numbers and arrays of NumPy have element types."""
    if isinstance(value, (NUMBERS, Size)):
        return value
    raise Refused


def _int(value: Any) -> int:
    if type(value) is int:
        return value
    if isinstance(value, (bool, np.bool_, XlaOp)):
        raise Refused
    try:
        return index_of(value)
    except TypeError:
        raise Refused from None


def _float(value: Any) -> float:
    if isinstance(value, _REALS) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise Refused from None
    raise Refused


def _bool(value: Any) -> bool:
    if isinstance(value, BOOLS) or (type(value) is int and value in (0, 1)):
        return bool(value)
    raise Refused


def _type(value: Any) -> PrimitiveType:
    found = element_type_of(value)
    if found is None:
        raise Refused
    return found


def _region(value: Any) -> Any:
    if embedded_in(value) is not None or is_function(value):
        return value
    raise Refused


def _accuracy(value: Any) -> ResultAccuracy:
    if isinstance(value, ResultAccuracy):
        return value
    if isinstance(value, str):
        try:
            return ResultAccuracy(ResultAccuracyCodec.modes.normalise(value))
        except InvalidArgument:
            raise Refused from None
    raise Refused


def _nothing(value: Any) -> None:
    if value is not None:
        raise Refused


def _anything(value: Any) -> Any:
    return value


def _instance_of(cls: type[Any]) -> Kind:
    def take(value: Any) -> Any:
        if isinstance(value, cls):
            return value
        if issubclass(cls, enum.Enum) and isinstance(value, str):
            return _member(cls, value)
        raise Refused

    if issubclass(cls, enum.Enum):
        return Kind(f"{_article(cls)}: " + ", ".join(member.name for member in cls), take)
    if dataclasses.is_dataclass(cls):
        return Kind(f"{_article(cls)}({', '.join(field.name for field in dataclasses.fields(cls))})", take)
    return Kind(_article(cls), take)


def _article(cls: type) -> str:
    return f"{'an' if cls.__name__.startswith(('A', 'E', 'I', 'O', 'Fft')) else 'a'} {cls.__name__}"


def _numbers_by(make: Callable[[Any], Any], words: str) -> Kind:
    def take(value: Any) -> Any:
        if not isinstance(value, (str, list, tuple, ConvolutionDimensionNumbers, DotDimensionNumbers)):
            raise Refused
        return make(value)

    return Kind(words, take)


def _member(cls: type[enum.Enum], word: str) -> enum.Enum:
    for name, member in cls.__members__.items():
        if word.lower() in (name.lower(), str(member.value).lower()):
            return member
    raise Refused


OPERAND = Kind("an XlaOp or a tensor, or beside one a number or NumPy array", _operand)
NUMBER = Kind("a number or a NumPy array", _number)
_SINGLE: dict[Any, Kind] = {
    XlaOp: Kind("an XlaOp or a tensor", _op),
    int: Kind("an integer", _int),
    float: Kind("a number", _float),
    bool: Kind("True or False", _bool),
    PrimitiveType: Kind("an element type, as F32, \"f32\", numpy.float32 or torch.float32", _type),
    Shape: Kind("a Shape, as Shape.array(F32, [2, 3]) or Shape.parse(\"f32[2,3]\")", _instance_of(Shape).take),
    ResultAccuracy: Kind("a ResultAccuracy, \"default\" or \"highest\"", _accuracy),
    ReplicaGroups: _instance_of(ReplicaGroups),
    Region: Kind("an XlaComputation (XlaBuilder.build()), or a function of XlaOps", _region),
    ConvolutionNumbers: _numbers_by(make_convolution_dimension_numbers, CONVOLUTION_WORDS),
    DotNumbers: _numbers_by(make_dot_dimension_numbers, DOT_WORDS),
    type(None): Kind("None", _nothing),
    Any: Kind("anything", _anything),
}


# ------------------------------------------------------------------------------------------- kinds of several values


def _sequence(of: Kind) -> Kind:
    def take(value: Any) -> tuple[Any, ...]:
        given: Iterable[Any] = value
        if not isinstance(value, LISTS):
            if isinstance(value, (str, bytes, type, XlaOp, Mapping, AbstractSet)) or not isinstance(value, Iterable):
                raise Refused
            try:
                given = list(given)
            except TypeError:  # an array of rank 0
                raise Refused from None
        return tuple([of.take(v) for v in given])

    return Kind(f"a sequence of {_plural(of.words)}", take)


_PLURALS = {"an integer": "integers", "True or False": "True and False", "a text": "texts", "anything": "values",
            "an XlaOp or a tensor": "XlaOps or tensors", "a sequence of integers": "sequences of integers", "a Shape": "Shapes"}


def _plural(words: str) -> str:
    return _PLURALS.get(words) or f"({words})"


def _fixed(parts: Sequence[Kind]) -> Kind:
    def take(value: Any) -> tuple[Any, ...]:
        given: Iterable[Any] = value
        if isinstance(value, (str, bytes, XlaOp, Mapping, AbstractSet)) or not isinstance(value, Iterable):
            raise Refused
        values = tuple(given)
        if len(values) != len(parts):
            raise Refused
        return tuple([part.take(v) for part, v in zip(parts, values, strict=True)])

    return Kind("(" + ", ".join(part.words for part in parts) + ")", take)


def _either(kinds: Sequence[Kind]) -> Kind:
    def take(value: Any) -> Any:
        for kind in kinds:
            try:
                return kind.take(value)
            except Refused:
                continue
        raise Refused

    return Kind(", or ".join(kind.words for kind in kinds), take)


def kind_of(annotation: Any) -> Kind:
    """The kind of value that an annotation names."""
    if annotation in _SINGLE:
        return _SINGLE[annotation]
    if annotation is str:
        return Kind("a text", _instance_of(str).take)
    if annotation is bytes:
        return Kind("bytes", _instance_of(bytes).take)
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        if np.ndarray in parts:  # an operand or a constant, and what else may stand there
            rest = [p for p in parts if p not in (XlaOp, bool, int, float, complex, np.ndarray, np.generic)]
            first = OPERAND if XlaOp in parts else NUMBER
            return _either([first, *map(kind_of, rest)]) if rest else first
        words = any(isinstance(part, type) and issubclass(part, enum.Enum) for part in parts)  # a text is one of them, too
        return _either([kind_of(part) for part in parts if not (words and part is str)])
    if origin in (Sequence, list):
        return _sequence(kind_of(parts[0]))
    if origin is tuple:
        return _sequence(kind_of(parts[0])) if parts[-1] is Ellipsis else _fixed(list(map(kind_of, parts)))
    if isinstance(annotation, type):
        return _instance_of(annotation)
    return _SINGLE[Any]
