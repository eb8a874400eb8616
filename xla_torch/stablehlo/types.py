"""Types of MLIR as shapes of HLO, and the other way round where refined shapes meet written types."""

from __future__ import annotations

import math

from ..core.errors import InvalidArgument, UnsupportedError
from ..core.shape import UNBOUNDED, Shape
from ..core.types import PRED, S32, PrimitiveType
from ..mlir.ir import INDEX, TOKEN, OtherType, Quantized, Struct, Tensor, TupleType, Type

_TOKENS = frozenset({TOKEN.text, "!mhlo.token", "!vhlo.token_v1"})
_OF_SIZES = {"!shape.shape": Shape.array(S32, [UNBOUNDED]), "!shape.size": Shape(S32), "!shape.witness": Shape(PRED),
             "!shape.value_shape": Shape.array(S32, [UNBOUNDED])}
"""The dialect of shapes: vectors of sizes, sizes, and whether something holds."""


def shape_of(given: Type) -> Shape:
    """The shape of a type. Quantized elements are stored integers, ``index`` is S32 as sizes are in HLO.

    Raises UnsupportedError for types without a shape in HLO (tensors without rank among them).
    """
    if isinstance(given, Tensor):
        return _array(given)
    if isinstance(given, TupleType):
        return Shape.tuple([shape_of(e) for e in given.elements])
    if isinstance(given, OtherType) and given.text in _TOKENS:
        return Shape.token()
    if isinstance(given, OtherType) and given.text in _OF_SIZES:
        return _OF_SIZES[given.text]
    if isinstance(given, (PrimitiveType, Quantized)) or given == INDEX:
        return Shape(element_type(given))
    raise UnsupportedError("HLO has no such type", subject="StableHLO", got=given)


def element_type(given: object) -> PrimitiveType:
    """The element type of arrays of a type. Raises UnsupportedError."""
    if isinstance(given, PrimitiveType):
        return given
    if isinstance(given, Quantized):
        if not all(0 < scale < math.inf for scale in given.scales):
            raise InvalidArgument("a scale is not a positive number", subject="StableHLO", got=given.scales[:8])
        return given.storage
    if given == INDEX:
        return S32
    raise UnsupportedError("HLO has no such element type", subject="StableHLO", got=getattr(given, "text", given))


def _array(given: Tensor) -> Shape:
    if given.dimensions is None:
        raise UnsupportedError("a tensor without a rank has no shape", subject="StableHLO", got="tensor<*x...>")
    element = element_type(given.element)
    if None not in given.dimensions:
        return Shape(element, given.dimensions)  # pyright: ignore[reportArgumentType]
    bounds = _bounds(given)
    sizes = [UNBOUNDED if bound is None else bound for bound in bounds]
    known = [size if size is not None else bound for size, bound in zip(given.dimensions, sizes, strict=True)]
    return Shape.array(element, known, [size is None for size in given.dimensions])


def _bounds(given: Tensor) -> tuple[int | None, ...]:
    """The bound of each dimension, None where there is none."""
    nothing = (None,) * len(given.dimensions or ())
    if not isinstance(given.encoding, Struct):
        return nothing
    bounds = given.encoding.fields.get("bounds")
    return tuple(bounds) if isinstance(bounds, tuple) and len(bounds) == len(nothing) else nothing


def is_unbounded(shape: Shape) -> bool:
    """Whether a size in it is unknown."""
    return any(UNBOUNDED in leaf.dimensions for leaf in shape.leaves())


def refined(inferred: Shape, written: Shape) -> Shape:
    """The inferred shape of an array with the written sizes where nothing else is known."""
    if not inferred.is_array or UNBOUNDED not in inferred.dimensions or inferred.rank != written.rank:
        return inferred
    unknown = [size == UNBOUNDED for size in inferred.dimensions]
    return inferred.with_dimensions(
        [w if u else i for i, w, u in zip(inferred.dimensions, written.dimensions, unknown, strict=True)],
        [w if u else i for i, w, u in zip(inferred.dynamic_flags, written.dynamic_flags, unknown, strict=True)])
