"""Rules: products, convolutions, linear algebra, Fourier transforms."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ...core.errors import UnsupportedError
from ...core.types import F32, type_from_text
from ...hlo.ir import Instruction
from ...mlir.ir import Enum, OtherType, Struct, Value
from ...opcodes import contraction, convolution, linalg
from .reduction import window_attributes
from .scope import Scope
from .writing_rules import rule

_DOT = {"lhs_batch_dims": "lhs_batching_dimensions", "rhs_batch_dims": "rhs_batching_dimensions",
        "lhs_contracting_dims": "lhs_contracting_dimensions", "rhs_contracting_dims": "rhs_contracting_dimensions"}
_PRECISIONS = ("default", "high", "highest")


def precision(instruction: Instruction, dialect: str = "stablehlo") -> dict[str, Any]:
    """How exact the operands are taken, where that is said."""
    words = instruction.attributes.get("operand_precision") or ()
    if set(words) - set(_PRECISIONS):
        raise UnsupportedError("StableHLO has no such precision", subject=instruction.subject, got=words)
    return {"precision_config": tuple(Enum(f"{dialect}.precision", w.upper()) for w in words)} if words else {}


def _numbers(instruction: Instruction) -> dict[str, tuple[int, ...]]:
    given = instruction.attributes
    return {name: tuple(given[key]) for key, name in _DOT.items() if given.get(key)}


@rule(contraction.dot, says=(*_DOT, "operand_precision", "algorithm"))
def dot(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return scope.add("stablehlo.dot_general", operands, instruction.shape, {
        "dot_dimension_numbers": Struct("stablehlo.dot", _numbers(instruction)), **precision(instruction),
        **_algorithm(instruction)})


_ANY_F8 = "dot_any_f8_any_f8_f32"


def _algorithm(instruction: Instruction) -> dict[str, Any]:
    """How the product is to be computed, where that is said: types and number of its terms, which the name says."""
    name = instruction.attributes.get("algorithm") or ""
    if name in ("", "unset", "dot_unset"):
        return {}
    if name.startswith(_ANY_F8):
        lhs, rhs, total, count = *(o.shape.element_type for o in instruction.operands), F32, 1
    else:
        _, *types, last = f"{name}_x1".split("_")[:5]
        lhs, rhs, total = (OtherType(t) if t == "tf32" else type_from_text(t) for t in types)
        count = int(last[1:])
    return {"algorithm": Struct("stablehlo.dot_algorithm", {
        "lhs_precision_type": lhs, "rhs_precision_type": rhs, "accumulation_type": total, "lhs_component_count": 1,
        "rhs_component_count": 1, "num_primitive_operations": count,
        "allow_imprecise_accumulation": name.endswith("fast_accum")})}


@rule(contraction.ragged_dot, says=(*_DOT, "lhs_ragged_dims", "rhs_group_dims", "operand_precision"))
def ragged_dot(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    given = instruction.attributes
    numbers = {**_numbers(instruction), "lhs_ragged_dimensions": tuple(given["lhs_ragged_dims"]),
               "rhs_group_dimensions": tuple(given.get("rhs_group_dims", ()))}
    return scope.add("chlo.ragged_dot", operands, instruction.shape, {
        "ragged_dot_dimension_numbers": Struct("chlo.ragged_dot", numbers), **precision(instruction, "chlo")})


@rule(convolution.convolution, says=("window", "dim_labels", "feature_group_count", "batch_group_count", "operand_precision"))
def convolve(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    given, numbers = instruction.attributes, instruction.attributes["dim_labels"]
    window = window_attributes(given.get("window", ()), "lhs_dilation", "rhs_dilation", with_reversal=True)
    del window["window_dimensions"]
    return scope.add("stablehlo.convolution", operands, instruction.shape, {
        **window, "dimension_numbers": Struct("stablehlo.conv", dataclasses.asdict(numbers)),
        "feature_group_count": given.get("feature_group_count", 1), "batch_group_count": given.get("batch_group_count", 1),
        **precision(instruction)})


@rule(linalg.cholesky, says=("lower",))
def cholesky(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    return scope.add("stablehlo.cholesky", operands, instruction.shape, {"lower": bool(instruction.attributes.get("lower"))})


@rule(linalg.triangular_solve, says=("left_side", "lower", "unit_diagonal", "transpose_a"))
def triangular_solve(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    given = instruction.attributes
    return scope.add("stablehlo.triangular_solve", operands, instruction.shape, {
        **{n: bool(given.get(n)) for n in ("left_side", "lower", "unit_diagonal")},
        "transpose_a": Enum("stablehlo.transpose", given.get("transpose_a") or "NO_TRANSPOSE")})


@rule(linalg.fft, says=("fft_type", "fft_length"))
def fft(scope: Scope, instruction: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
    given = instruction.attributes
    return scope.add("stablehlo.fft", operands, instruction.shape, {
        "fft_type": Enum("stablehlo.fft_type", given["fft_type"]), "fft_length": tuple(given["fft_length"])})
