"""What the checks of claims are written with: arguments, wanted values, shapes, and the computations that functions apply."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

import xla_torch
from support.oracle import xla_accepts, xla_canonical
from xla_torch import Layout, Literal, Shape, Tile, XlaBuilder, XlaOp, ops, types
from xla_torch.hlo.attributes import ResultAccuracy
from xla_torch.lowering.numerics import numpy_dtype
from xla_torch.types import PrimitiveType

Give = Callable[[np.ndarray], Any]
"""What an array becomes where it stands in a check: a tensor, a parameter, or itself."""


class Maker:
    """``f32``: makes arrays of an element type, and gives them to where they belong."""

    def __init__(self, element_type: PrimitiveType, give: Give):
        self._type, self._give = element_type, give

    def __getitem__(self, items: Any) -> Any:
        """``f32[1, 2]``: an array of these elements along dimension 0, which may be nested lists."""
        return self._give(self._array(list(items) if isinstance(items, tuple) else [items]))

    def __call__(self, value: Any) -> Any:
        """``f32(1)``: a scalar, or an array of these values."""
        return self._give(self._array(value))

    def _array(self, values: Any) -> np.ndarray:
        with np.errstate(all="ignore"):
            if self._type.is_integral and isinstance(values, (int, list)):
                values = np.asarray(values, object if self._type.bits > 32 else np.int64)
            return np.asarray(values).astype(numpy_dtype(self._type))

    def bits(self, *words: int) -> Any:
        """A vector of elements of these bits."""
        return self._give(np.array(words, f"u{self._type.bits // 8}").view(numpy_dtype(self._type)))

    def of(self, *sizes: int) -> Any:
        """Some array of these sizes: 1, 2, 3, ... up to 5 and again; of booleans true and false in turn."""
        counted = np.arange(math.prod(sizes)).reshape(sizes)
        return self._give(((counted + 1) % 2 if self._type.is_pred else counted % 5 + 1).astype(numpy_dtype(self._type)))


def computation(shapes: str, build: Callable[..., Any]) -> xla_torch.XlaComputation:
    """A computation of parameters of the shapes, which spaces separate."""
    builder = XlaBuilder("region")
    result = build(*(builder.parameter(k, Shape.parse(s)) for k, s in enumerate(shapes.split(" ") if shapes else [])))
    return builder.build(ops.Tuple(builder, list(result)) if isinstance(result, (tuple, list)) else result)


@functools.cache
def binary(name: str, kind: str = "f32") -> xla_torch.XlaComputation:
    """A documented function of two scalars as a computation."""
    return computation(f"{kind}[] {kind}[]", getattr(ops, name))


def _argmax(best: XlaOp, place: XlaOp, value: XlaOp, index: XlaOp) -> list[XlaOp]:
    return [ops.Select(ops.Ge(value, best), value, best), ops.Select(ops.Ge(value, best), index, place)]


def _three() -> xla_torch.XlaComputation:
    builder = XlaBuilder("three")
    return builder.build(ops.Constant(builder, 3.0))


COMPUTATIONS: dict[str, Callable[[], Any]] = {
    "ADD": lambda: binary("Add"), "MUL": lambda: binary("Mul"), "MAX": lambda: binary("Max"), "MIN": lambda: binary("Min"),
    "SUB": lambda: binary("Sub"), "LESS": lambda: binary("Lt"), "MORE": lambda: binary("Gt"), "AT_LEAST": lambda: binary("Ge"),
    "ARGMAX": lambda: computation("f32[] s32[] f32[] s32[]", _argmax),
    "NEG2": lambda: computation("f32[2]", ops.Neg), "EXP2": lambda: computation("f32[2]", ops.Exp),
    "NEG": lambda: computation("f32[]", ops.Neg), "ABS": lambda: computation("f32[]", ops.Abs),
    "TENFOLD": lambda: computation("f32[]", lambda x: x * 10.0),
    "THREE": _three,
    "RUNNING": lambda: computation("f32[] f32[]", lambda x, c: (c * 2.0 + x, c + x)),
    "BY_FIRST": lambda: computation("s32[] s32[] s32[] s32[] f32[] f32[]", lambda a, b, *rest: ops.Lt(a, b)),
    "UNDER_1000": lambda: computation("(s32[],f32[10])", lambda t: ops.Lt(ops.GetTupleElement(t, 0), 1000)),
    "ACCUMULATE": lambda: computation("(s32[],f32[10])", lambda t: (
        ops.GetTupleElement(t, 0) + 1, ops.GetTupleElement(t, 1) + ops.Constant(t.builder, [0.5] * 10))),
    "UNDER_9": lambda: computation("s32[]", lambda n: ops.Lt(n, 9)), "TWICE": lambda: computation("s32[]", lambda n: n * 2),
}

ARRAYS = {
    "V": np.array([[[10, 11, 12], [15, 16, 17]], [[20, 21, 22], [25, 26, 27]], [[30, 31, 32], [35, 36, 37]],
                   [[40, 41, 42], [45, 46, 47]]], np.float32),
    "CUBE": np.array([[[1, 2, 3], [4, 5, 6]]] * 4, np.float32),
    "FIVE": np.arange(5, dtype=np.float32),
    "TABLE": np.arange(12, dtype=np.float32).reshape(4, 3),
    "POOLED": np.array([[7, 2, 5, 3, 10, 2], [3, 8, 9, 3, 4, 2], [1, 5, 7, 5, 6, 1], [0, 6, 2, 7, 2, 8]], np.float32),
    "DECADES": np.array([10000, 1000, 100, 10, 1], np.float32),
    "IMAGE": (np.arange(60).reshape(1, 3, 4, 5) % 7).astype(np.float32),
    "KERNEL": (np.arange(36).reshape(2, 3, 2, 3) % 5).astype(np.float32),
    "INPUT16": np.arange(176, dtype=np.float32).reshape(16, 11),
    "STARTS": np.array([[0, 0], [3, 2], [8, 5], [1, 4], [7, 1]], np.int32),
    "ORDER": np.array([0xFFC00000, 0xFF800000, 0xBF800000, 0x80000000, 0, 0x3F800000, 0x7F800000, 0x7FC00000],
                      np.uint32).view(np.float32),
}
"""Arrays of the documents' examples. `ORDER` is -NaN, -Inf, -1, -0, 0, 1, Inf, NaN."""

def conv_by_pseudo_code(x: np.ndarray, kernel: np.ndarray, stride: Sequence[int], low: Sequence[int],
                        high: Sequence[int]) -> np.ndarray:
    """The documents' pseudo-code of a 2-D convolution with padding and strides."""
    sizes = [(n + a + b - k) // s + 1 for n, k, s, a, b in zip(x.shape[2:], kernel.shape[2:], stride, low, high, strict=True)]
    out = np.zeros((x.shape[0], kernel.shape[0], *sizes), np.float32)
    for b, oz, oy, ox in np.ndindex(out.shape):
        for iz, ky, kx in np.ndindex(*kernel.shape[1:]):
            iy, ix = oy * stride[0] + ky - low[0], ox * stride[1] + kx - low[1]
            if 0 <= iy < x.shape[2] and 0 <= ix < x.shape[3]:
                out[b, oz, oy, ox] += x[b, iz, iy, ix] * kernel[oz, iz, ky, kx]
    return out


SPECIAL = {
    "s": Shape.parse, "Shape": Shape, "Layout": Layout, "Tile": Tile, "Literal": Literal, "ResultAccuracy": ResultAccuracy,
    "types": types, "pack": xla_torch.pack, "canonical": xla_canonical, "accepts": lambda text: xla_accepts(text) is None,
    "comp": computation, "binary": binary, "pseudo_code": conv_by_pseudo_code,
    "np": np, "torch": torch, "inf": math.inf, "nan": math.nan,
}
"""What else stands in checks."""


def namespace(names: Iterable[str], give: Give, builder: XlaBuilder | None) -> dict[str, Any]:
    """What the names of a check stand for where arguments are given so, and functions without operands build there."""
    found: dict[str, Any] = {}
    for name in names:
        if name in ARRAYS:
            found[name] = give(ARRAYS[name])
        elif name in COMPUTATIONS:
            found[name] = COMPUTATIONS[name]()
        elif name in SPECIAL:
            found[name] = SPECIAL[name]
        elif hasattr(ops, name):
            found[name] = _in(builder, getattr(ops, name)) if builder is not None else getattr(ops, name)
        elif (element_type := types.type_from_text(name)) is not None:
            found[name] = Maker(element_type, give)
        elif isinstance(getattr(types, name, None), PrimitiveType):
            found[name] = getattr(types, name)
    return found


def _in(builder: XlaBuilder, function: Any) -> Any:
    """A documented function that builds in `builder` where no operand says another."""
    if not inspect.isfunction(function) or "builder" not in inspect.signature(function).parameters:
        return function

    first = next(iter(inspect.signature(function).parameters)) == "builder"

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if _has_op((*args, *kwargs.values())):
            return function(*args, **kwargs)
        return function(builder, *args, **kwargs) if first else function(*args, builder=builder, **kwargs)

    return call


def _has_op(values: Iterable[Any]) -> bool:
    return any(isinstance(v, XlaOp | XlaBuilder) or (isinstance(v, list | tuple) and _has_op(v)) for v in values)
