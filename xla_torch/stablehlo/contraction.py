"""Rules: products of matrices and tensors, convolutions, linear algebra, Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.errors import InvalidArgument
from ..functions.hlo_builder import XlaOp
from ..hlo.attributes import ConvolutionDimensionNumbers
from ..mlir.ir import Operation
from ..opcodes import contraction, convolution, linalg
from .attributes import boolean, fields, integer, integers, word, words
from .reading_rules import Results, rule
from .reduction import window_of
from .scope import Scope

_DOT = {"lhs_contracting_dims": "lhs_contracting_dimensions", "rhs_contracting_dims": "rhs_contracting_dimensions",
        "lhs_batch_dims": "lhs_batching_dimensions", "rhs_batch_dims": "rhs_batching_dimensions"}
_ALGORITHM_TYPES = ("lhs_precision_type", "rhs_precision_type", "accumulation_type")
_ALGORITHM_COUNTS = ("lhs_component_count", "rhs_component_count", "num_primitive_operations")


def precision(operation: Operation) -> dict[str, Any]:
    """The precision of the operands, unless it is the default one for all."""
    found = tuple(w.lower() for w in words(operation, "precision_config"))
    return {"operand_precision": found} if set(found) - {"default"} else {}


def product(scope: Scope, operation: Operation, operands: Sequence[XlaOp], numbers: dict[str, Any],
            opcode: str = contraction.dot) -> XlaOp:
    """A product with these dimensions, in the elements that are written for the result."""
    attributes = {k: tuple(v) for k, v in numbers.items() if v or k == "lhs_ragged_dims"} | precision(operation)
    if operation.attributes.get("algorithm") is not None:
        attributes["algorithm"] = algorithm_of(operation)
    inferred = scope.builder.add(opcode, operands, attributes)
    declared = scope.declared(operation).element_type
    if inferred.element_type is not declared:
        inferred.instruction.shape = inferred.shape.with_element_type(declared)
    return inferred


@rule("stablehlo.dot_general")
def dot_general(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    given = fields(operation, "dot_dimension_numbers")
    return product(scope, operation, operands, {k: given.get(name, ()) for k, name in _DOT.items()})


@rule("stablehlo.dot")
def dot(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    lhs, rhs = operands
    if lhs.shape.rank not in (1, 2) or rhs.shape.rank not in (1, 2):
        raise InvalidArgument("dot takes vectors and matrices", got=f"{lhs.shape}, {rhs.shape}")
    return product(scope, operation, operands, {"lhs_contracting_dims": (lhs.shape.rank - 1,), "rhs_contracting_dims": (0,)})


@rule("mhlo.ragged_dot")
def ragged_dot(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return ragged_product(scope, operation, operands, fields(operation, "ragged_dot_dimension_numbers"))


def ragged_product(scope: Scope, operation: Operation, operands: Sequence[XlaOp], given: dict[str, Any]) -> XlaOp:
    """A product of ragged groups, from the fields of ``ragged_dot_dimension_numbers``."""
    inner = given.get("dot_dimension_numbers")
    dims = given if inner is None else inner.fields
    numbers = {k: dims.get(name, ()) for k, name in _DOT.items()}
    numbers |= {"lhs_ragged_dims": given.get("lhs_ragged_dimensions", ()),
                "rhs_group_dims": given.get("rhs_group_dimensions", ())}
    return product(scope, operation, operands, numbers, contraction.ragged_dot)


def algorithm_of(operation: Operation) -> str:
    """The name that HLO has for an algorithm. Raises InvalidArgument for one that it has no name for."""
    given = fields(operation, "algorithm")
    types = [_type_text(given.get(name)) for name in _ALGORITHM_TYPES]
    counts = tuple(int(given.get(name, 1)) for name in _ALGORITHM_COUNTS)
    lhs, rhs, accumulation = types
    if lhs.startswith("f8") and rhs.startswith("f8") and accumulation == "f32" and counts == (1, 1, 1):
        return "dot_any_f8_any_f8_f32" + ("_fast_accum" if given.get("allow_imprecise_accumulation") else "")
    name = f"dot_{lhs}_{rhs}_{accumulation}"
    if counts[2] != 1:
        name += f"_x{counts[2]}"
    if name not in _NAMES:
        raise InvalidArgument("no such algorithm", got=f"{given}", expected=", ".join(sorted(_NAMES)))
    return name


_NAMES = frozenset({"dot_f16_f16_f16", "dot_f16_f16_f32", "dot_bf16_bf16_bf16", "dot_bf16_bf16_f32", "dot_bf16_bf16_f32_x3",
                    "dot_bf16_bf16_f32_x6", "dot_bf16_bf16_f32_x9", "dot_tf32_tf32_f32", "dot_tf32_tf32_f32_x3",
                    "dot_f32_f32_f32", "dot_f64_f64_f64"})


def _type_text(given: Any) -> str:
    return str(getattr(given, "text", given)).lower()


# ------------------------------------------------------------------------------------------------------------ convolutions


@rule("stablehlo.convolution")
def convolution_(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return convolved(scope, operation, operands)


def convolved(scope: Scope, operation: Operation, operands: Sequence[XlaOp],
              padding: Sequence[tuple[int, int]] | None = None) -> XlaOp:
    """A convolution, with the padding of its attributes unless one is given."""
    numbers = ConvolutionDimensionNumbers(**_NO_SPACE | fields(operation, "dimension_numbers"))
    kernel = operands[1].shape.dimensions
    attributes: dict[str, Any] = {"dim_labels": numbers, **precision(operation)}
    window = window_of(operation, [kernel[d] for d in numbers.kernel_spatial_dimensions], "lhs_dilation", "rhs_dilation", padding)
    if window:
        attributes["window"] = window
    for name in ("feature_group_count", "batch_group_count"):
        if integer(operation, name, 1) != 1:
            attributes[name] = integer(operation, name)
    made = scope.add(convolution.convolution, operands, attributes)
    declared = scope.declared(operation).element_type
    if made.element_type is not declared:
        made.instruction.shape = made.shape.with_element_type(declared)
    return made


_NO_SPACE: dict[str, Any] = {f"{side}_spatial_dimensions": () for side in ("input", "kernel", "output")}


# ---------------------------------------------------------------------------------------------------------- linear algebra


@rule("stablehlo.cholesky")
def cholesky(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return scope.add(linalg.cholesky, operands, {"lower": True} if boolean(operation, "lower") else {})


@rule("stablehlo.triangular_solve")
def triangular_solve(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    attributes: dict[str, Any] = {n: True for n in ("left_side", "lower", "unit_diagonal") if boolean(operation, n)}
    kind = word(operation, "transpose_a", "NO_TRANSPOSE")
    return scope.add(linalg.triangular_solve, operands,
                     attributes | {"transpose_a": "NO_TRANSPOSE" if kind == "TRANSPOSE_INVALID" else kind})


@rule("stablehlo.fft")
def fft(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return scope.add(linalg.fft, operands, {
        "fft_type": word(operation, "fft_type"), "fft_length": integers(operation, "fft_length")})
