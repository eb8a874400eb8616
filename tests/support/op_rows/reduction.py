# pyright: reportCallIssue=false, reportArgumentType=false
"""Rows of reductions, map, scan and batch normalisation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from support.agreement import dtype_of, element_type
from xla_torch import Shape, XlaBuilder, ops

from .drawn import Drawn, Row
from .kinds import COMPLEX, FLOATS, INTEGERS, INTS, NARROW_FLOATS, NUMBERS, REALS


def limit(kind: str, highest: bool) -> Any:
    """The largest or the smallest value of a type: infinite where the type has infinities."""
    found = element_type(kind)
    if found.is_integral:
        high = (1 << (found.bits - found.is_signed)) - 1
        return high if highest else -high - 1 if found.is_signed else 0
    value = np.asarray(np.inf if highest else -np.inf).astype(dtype_of(kind))
    finite = ml_dtypes.finfo(dtype_of(kind))
    return value if np.isinf(value.astype(np.float64)) else finite.max if highest else finite.min


def _reduce(combine: Callable[..., Any], init: Callable[[str], Any], domain: str = "any") -> Callable[[Drawn], Any]:
    def build(d: Drawn) -> Any:
        dims = d.dims(0, 3)
        # Another init than the reducer's identity takes part as often as XLA likes.
        return ops.Reduce(d.array(dims, domain=domain), d.constant(init(d.kind)), d.region(combine), d.some(len(dims)))
    return build


def _reduce_all(d: Drawn) -> Any:
    return ops.ReduceAll(d.array(d.dims(0, 3), domain="few"), d.constant(0), d.region(ops.Add))


def arg_largest(value: Any, index: Any, new_value: Any, new_index: Any) -> list[Any]:
    """The larger value and its index, the smaller index among equals: any order gives the same."""
    wins = ops.Or(ops.Gt(new_value, value), ops.And(ops.Eq(new_value, value), ops.Lt(new_index, index)))
    return [ops.Select(wins, new_value, value), ops.Select(wins, new_index, index)]


def _reduce_pairs(d: Drawn) -> Any:
    dims = d.dims(1, 3)
    # Below all that is drawn, and finite in every type: of an init that is NaN, XLA's CPU keeps nothing.
    lowest = limit(d.kind, highest=False) if element_type(d.kind).is_integral else ml_dtypes.finfo(dtype_of(d.kind)).min
    return ops.Reduce([d.array(dims, domain="small"), d.array(dims, "s32")],
                      [d.constant(lowest), d.constant(2**31 - 1, "s32")],
                      d.region(arg_largest, d.kind, "s32", d.kind, "s32"), d.some(len(dims)) or [0])


def _map(d: Drawn) -> Any:
    dims = d.dims(0, 3)
    region = d.region(lambda a, b: ops.Max(ops.Neg(a), b))
    return ops.Map(d.builder, [d.array(dims), d.array(dims)], region, list(range(len(dims))))


def _scan(combine: Callable[..., Any], domain: str, associative: bool) -> Callable[[Drawn], Any]:
    def build(d: Drawn) -> Any:
        rest = d.dims(0, 2)
        at, steps = d.integer(0, len(rest)), d.integer(1, 5)
        dims = [*rest[:at], steps, *rest[at:]]
        return ops.Scan([d.array(dims, domain=domain)], [d.array(rest, domain=domain)], _step(d, combine, rest), at,
                        is_reverse=d.flag(), is_associative=True if associative and d.flag() else None)
    return build


def _scan_nothing(d: Drawn) -> Any:
    """No steps, which XLA's CPU compiler cannot compile."""
    rest = d.dims(0, 2)
    at = d.integer(0, len(rest))
    return ops.Scan([d.array([*rest[:at], 0, *rest[at:]])], [d.array(rest)], _step(d, ops.Add, rest), at)


def _step(d: Drawn, combine: Callable[..., Any], dims: list[int]) -> Any:
    builder = XlaBuilder("step")
    shape = Shape.array(element_type(d.kind), dims)
    x, carry = (ops.Parameter(builder, k, shape, name) for k, name in enumerate(("x", "carry")))
    total = combine(carry, x)
    return builder.build(ops.Tuple(builder, [total, total]))


def _features(d: Drawn) -> tuple[list[int], int]:
    dims = d.dims(2, 4, smallest=1)
    return dims, d.integer(0, len(dims) - 1)


def _batch_norm_training(d: Drawn) -> Any:
    dims, at = _features(d)
    each = [dims[at]]
    return ops.BatchNormTraining(d.array(dims, domain="finite"), d.array(each, domain="finite"), d.array(each, domain="finite"),
                                 0.125, at)


def _batch_norm_inference(d: Drawn) -> Any:
    dims, at = _features(d)
    each = [dims[at]]
    return ops.BatchNormInference(d.array(dims, domain="finite"), *(d.array(each, domain="finite") for _ in range(3)),
                                  d.array(each, domain="positive"), 0.125, at)


def _batch_norm_grad(d: Drawn) -> Any:
    dims, at = _features(d)
    each = [dims[at]]
    return ops.BatchNormGrad(d.array(dims, domain="finite"), d.array(each, domain="finite"), d.array(each, domain="finite"),
                             d.array(each, domain="positive"), d.array(dims, domain="finite"), 0.125, at)


def _zero(kind: str) -> int:
    return 0


def _one(kind: str) -> int:
    return 1


def _lowest(kind: str) -> Any:
    return limit(kind, highest=False)


def _highest(kind: str) -> Any:
    return limit(kind, highest=True)


ROWS: list[Row] = [
    Row("Reduce", _reduce(ops.Add, _zero, "small"), ("pred", *INTEGERS, *FLOATS, *COMPLEX), variant="by addition"),
    Row("Reduce", _reduce(ops.Add, _zero, "few"), NARROW_FLOATS, variant="by addition, narrow"),
    Row("Reduce", _reduce(ops.Mul, _one, "small"), ("pred", *INTEGERS, "f32", "f64", *COMPLEX), variant="by multiplication"),
    Row("Reduce", _reduce(ops.Max, _lowest), NUMBERS, variant="to the largest", unsigned_zero=True),
    Row("Reduce", _reduce(ops.Min, _highest), NUMBERS, variant="to the smallest", unsigned_zero=True),
    Row("Reduce", _reduce(ops.And, lambda kind: 1 if kind == "pred" else -1 if kind[0] == "s" else limit(kind, highest=True)),
        ("pred", *INTEGERS), variant="by and"),
    Row("Reduce", _reduce(ops.Or, _zero), ("pred", *INTEGERS), variant="by or"),
    Row("Reduce", _reduce(ops.Xor, _zero), ("pred", *INTEGERS), variant="by exclusive or"),
    # XLA's CPU compiler fails on pairs of which one is packed by two bits.
    Row("Reduce", _reduce_pairs, ("s4", "u4", *INTS, *REALS), variant="of pairs"),
    Row("ReduceAll", _reduce_all, NUMBERS),
    Row("Map", _map, (*INTS, *FLOATS), unsigned_zero=True),
    Row("Scan", _scan(ops.Add, "small", associative=True), (*INTS, "f32", "f64"), variant="of sums"),
    Row("Scan", _scan(ops.Sub, "small", associative=False), (*INTS, "f32", "f64"), variant="in order"),
    Row("Scan", _scan_nothing, (*INTS, *FLOATS), variant="of no steps", reference=lambda inputs, init: [inputs, init]),
    Row("BatchNormTraining", _batch_norm_training, FLOATS, ulps=64, of_largest=True),
    Row("BatchNormInference", _batch_norm_inference, FLOATS, ulps=16, of_largest=True),
    Row("BatchNormGrad", _batch_norm_grad, FLOATS, ulps=64, of_largest=True),
]
