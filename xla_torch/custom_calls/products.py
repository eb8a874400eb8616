"""Matrix products of cuBLAS and cuBLASLt (and rocBLAS and hipBLASLt, which XLA calls by the same targets), with what is fused
into them: factors, a matrix and a vector that are added, an activation and its argument, scales of narrow floats.

Sources: xla/service/gpu/transforms/gemm_rewriter.cc, backend_configs.proto (GemmBackendConfig).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import functions as ops
from ..core.shape import Shape
from ..functions.hlo_builder import XlaOp
from .arithmetic import dot_numbers, gelu_tanh, product, relu, same, saturated, scaled, silu, wide_type
from .calls import Call, Meaning, broadcast_like, converted, maximum

_PRECISIONS = ("DEFAULT", "HIGH", "HIGHEST")

_ACTIVATIONS: dict[str, Callable[[XlaOp], XlaOp]] = {
    "DEFAULT": same, "BIAS": same, "RELU": relu, "BIAS_RELU": relu, "SILU": silu, "BIAS_SILU": silu,
    "GELU": gelu_tanh, "BIAS_GELU": gelu_tanh, "GELU_AUX": gelu_tanh, "BIAS_GELU_AUX": gelu_tanh}
"""What an epilogue applies; BIAS in its name says that a vector is added before, AUX that the activation's argument is given."""


def gemm(call: Call) -> Sequence[XlaOp]:
    """(alpha a b + beta c): of cuBLAS, without an epilogue."""
    config = call.section("gemm_backend_config")
    addend = _factor(call, config, "beta", 0) != 0
    call.require_operands(3 if addend else 2)
    if config.get("epilogue", "DEFAULT") != "DEFAULT":
        raise call.refused("it has an epilogue", config["epilogue"], "DEFAULT")
    return [saturated(_combined(call, config, *call.operands), call.results[0].element_type)]


def matmul(call: Call) -> Sequence[XlaOp]:
    """(activation(alpha a b + beta c + bias), the activation's argument where it is asked for): of cuBLASLt."""
    config = call.section("gemm_backend_config")
    addend = _factor(call, config, "beta", 0) != 0
    epilogue, has_bias = _epilogue(call, config)
    call.require_operands(2 + addend + has_bias)
    whole = _combined(call, config, *call.operands[:2 + addend])
    if has_bias:
        whole = ops.Add(whole, _bias(call, call.operands[-1], whole))
    return _activated(call, whole, epilogue, same)


def matmul_f8(call: Call) -> Sequence[XlaOp]:
    """As `matmul`, of arrays that stand for themselves times their scales. The result is multiplied by its own scale, and its
    largest magnitude before that is given too where it is asked for."""
    config = call.section("gemm_backend_config")
    addend = _factor(call, config, "beta", 0) != 0
    epilogue, has_bias = _epilogue(call, config)
    first = 2 + addend
    rest = call.operands[first:]
    scales = [o for o in rest if o.shape.element_count == 1 and o.shape.rank == 0]
    vectors = [o for o in rest if o.shape.rank > 0]
    if len(vectors) != has_bias or not 2 <= len(scales) <= 4 or len(call.operands) < first:
        raise call.refused("it has not the operands that its configuration asks for",
                           ", ".join(str(o.shape) for o in call.operands))
    a, b = call.operands[:2]
    factor = ops.Mul(converted(scales[0], wide_type(a.element_type)), converted(scales[1], wide_type(a.element_type)))
    added = list(call.operands[2:first])
    if added and len(scales) == 4:  # the third is that of the matrix that is added
        added[0] = scaled(converted(added[0], factor.element_type), scales[2])
    whole = _combined(call, config, a, b, *added, factor=factor)
    if has_bias:
        whole = ops.Add(whole, _bias(call, vectors[0], whole))
    own_scale = scales[-1] if len(scales) > 2 else None
    return _activated(call, whole, epilogue, same if own_scale is None else lambda x: scaled(x, own_scale),
                      bool(config.get("damax_output", False)))


def _epilogue(call: Call, config: Mapping[str, Any]) -> tuple[str, bool]:
    """(the epilogue's name, whether it adds a vector)."""
    epilogue = str(config.get("epilogue", "DEFAULT"))
    if epilogue not in _ACTIVATIONS:
        raise call.refused("its epilogue is not known", epilogue, ", ".join(_ACTIVATIONS))
    return epilogue, epilogue.startswith("BIAS")


def _factor(call: Call, config: Mapping[str, Any], name: str, default: float) -> complex:
    value = config.get(name, default)
    if not isinstance(value, (int, float)):
        raise call.refused(f"{name} is no number", value)
    return complex(value)


def _combined(call: Call, config: Mapping[str, Any], a: XlaOp, b: XlaOp, c: XlaOp | None = None,
              factor: XlaOp | None = None) -> XlaOp:
    """``alpha factor a b + beta c`` in the wide type."""
    numbers = dot_numbers(call, config.get("dot_dimension_numbers", {}))
    precision = config.get("precision_config", {}).get("operand_precision", ())
    kept = [p for p in precision if p in _PRECISIONS]
    found = product(a, b, numbers, call.results[0].element_type, kept if len(kept) == 2 else None)
    alpha = _factor(call, config, "alpha_real", 1) + 1j * _factor(call, config, "alpha_imag", 0)
    if alpha.imag and not found.element_type.is_complex:
        raise call.refused("alpha is complex, and the product is not", alpha)
    found = scaled(found if factor is None else scaled(found, factor), alpha)
    if c is None:
        return found
    if c.shape.dimensions != found.shape.dimensions:
        raise call.refused("what is added has another shape than the product", f"{c.shape} to {found.shape}")
    return ops.Add(found, scaled(converted(c, found.element_type), _factor(call, config, "beta", 0)))


def _bias(call: Call, bias: XlaOp, whole: XlaOp) -> XlaOp:
    """A vector (or more) along the dimensions that lie innermost in the result's memory."""
    shape = call.instruction.shape
    result: Shape = shape.tuple_shapes[0] if shape.is_tuple else shape
    inner = sorted(result.minor_to_major[:bias.shape.rank])
    if bias.shape.rank > result.rank or [result.dimensions[d] for d in inner] != list(bias.shape.dimensions):
        raise call.refused("the bias does not lie along the result's innermost dimensions", f"{bias.shape} in {result}")
    return broadcast_like(converted(bias, whole.element_type), whole.shape, inner)


def _activated(call: Call, whole: XlaOp, epilogue: str, scale: Callable[[XlaOp], XlaOp],
               gives_largest: bool = False) -> list[XlaOp]:
    """The results of an epilogue: rounded, and with what else it gives."""
    kinds = [r.element_type for r in call.results]
    found = _ACTIVATIONS[epilogue](whole)
    results = [saturated(scale(found), kinds[0])]
    if epilogue.endswith("AUX"):
        results.append(converted(whole, kinds[len(results)] if len(kinds) > len(results) else whole.element_type))
    if gives_largest:
        largest = maximum(ops.Abs(found), range(found.shape.rank))
        results.append(converted(largest, kinds[len(results)] if len(kinds) > len(results) else found.element_type))
    return results


def scaled_dot(call: Call) -> XlaOp:
    """The product of matrices whose rows are scaled block by block: [b, m, k] and [b, n, k] give [b, m, n]. A fifth operand
    scales the whole."""
    call.require_operands(4, 5)
    rank = call.operands[0].shape.rank
    batch = tuple(range(rank - 2))
    numbers = dot_numbers(call, {"lhs_contracting_dimensions": [rank - 1], "rhs_contracting_dimensions": [rank - 1],
                                 "lhs_batch_dimensions": batch, "rhs_batch_dimensions": batch})
    kind = call.results[0].element_type
    lhs, rhs, lhs_scale, rhs_scale = call.operands[:4]
    found = ops.ScaledDot(lhs, lhs_scale, rhs, rhs_scale, numbers, preferred_element_type=wide_type(kind))
    return converted(scaled(found, call.operands[4]) if len(call.operands) == 5 else found, kind)


MEANINGS: dict[str, Meaning] = {
    "__cublas$gemm": gemm, "__cublas$lt$matmul": matmul, "__cublas$lt$matmul$f8": matmul_f8, "__op$block_scaled_dot": scaled_dot}
"""The products by target."""
