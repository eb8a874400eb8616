"""Gradients of products: dot, ragged-dot and scaled-dot. Convolution is in `convolution.py`.

A contraction is a sum of products over all indices, the same for its two operands and its result. So each dimension gets
a label, and a cotangent is the contraction of the other two arrays that leaves an operand's labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from grad_rules._calculus import conj, convert, reshape, transpose
from grad_rules._compositions import derived
from grad_rules._table import vjp
from xla_torch.core.types import F32
from xla_torch.functions import BroadcastInDim, DotDimensionNumbers, DotGeneral, RaggedDot, RaggedDotDimensionNumbers
from xla_torch.functions.hlo_builder import XlaOp
from xla_torch.hlo.ir import Instruction

Labels = tuple[str, ...]

# ------------------------------------------------------------------------------------------------------------ dot


class _Dot(NamedTuple):
    """The labels of a dot's dimensions, and how its operands are multiplied."""

    lhs: Labels
    rhs: Labels
    out: Labels
    precision: tuple[str, ...]


def _labelled(inst: Instruction) -> _Dot:
    a = inst.attributes
    contracting = a.get("lhs_contracting_dims", ()), a.get("rhs_contracting_dims", ())
    batch = a.get("lhs_batch_dims", ()), a.get("rhs_batch_dims", ())
    lhs = [f"l{d}" for d in range(inst.operands[0].shape.rank)]
    rhs = [f"r{d}" for d in range(inst.operands[1].shape.rank)]
    for shared, (left, right) in (("c", contracting), ("b", batch)):
        for number, (i, j) in enumerate(zip(left, right, strict=True)):
            lhs[i] = rhs[j] = f"{shared}{number}"
    free = [label for label in (*lhs, *rhs) if label[0] in "lr"]
    return _Dot(tuple(lhs), tuple(rhs), (*(f"b{n}" for n in range(len(batch[0]))), *free), a.get("operand_precision", ()))


def contract(x: XlaOp, x_labels: Labels, y: XlaOp, y_labels: Labels, result: Labels,
             precision: tuple[str, ...] = ()) -> XlaOp:
    """The sum of products over every label that is not in `result`; each label is in two of the three at least."""
    shared = [label for label in x_labels if label in y_labels]
    batch = [label for label in shared if label in result]
    summed = [label for label in shared if label not in result]
    numbers = DotDimensionNumbers(*_places(x_labels, y_labels, summed), *_places(x_labels, y_labels, batch))
    product = DotGeneral(x, y, numbers, precision or None)
    order = (*batch, *(label for label in (*x_labels, *y_labels) if label not in shared))
    return transpose(product, [order.index(label) for label in result])


def _places(x_labels: Labels, y_labels: Labels, labels: Sequence[str]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(map(x_labels.index, labels)), tuple(map(y_labels.index, labels))


def _dot_lhs(ct: XlaOp, inst: Instruction, rhs: XlaOp) -> XlaOp:
    d = _labelled(inst)
    return convert(contract(ct, d.out, conj(rhs), d.rhs, d.lhs, d.precision), inst.operands[0].shape.element_type)


def _dot_rhs(ct: XlaOp, inst: Instruction, lhs: XlaOp) -> XlaOp:
    d = _labelled(inst)
    return convert(contract(ct, d.out, conj(lhs), d.lhs, d.rhs, d.precision), inst.operands[1].shape.element_type)


vjp("dot", lhs=_dot_lhs, rhs=_dot_rhs)

# ----------------------------------------------------------------------------------------------------- ragged dot


class _Ragged(NamedTuple):
    """A ragged dot's labels. ``"g"`` is the group dimension, which one of the three arrays has, if any.

    Groups divide the `ragged` label; `prefix` are the labels in front of the groups in group_sizes.
    """

    lhs: Labels
    rhs: Labels
    out: Labels
    ragged: str
    prefix: Labels
    precision: tuple[str, ...]


def _ragged_labels(inst: Instruction) -> _Ragged:
    dot, a = _labelled(inst), inst.attributes
    dimension: int = a["lhs_ragged_dims"][0]
    ragged = dot.lhs[dimension]
    rhs = tuple("g" if d in a.get("rhs_group_dims", ()) else label for d, label in enumerate(dot.rhs))
    out = tuple(label for label in dot.out if label[0] != "r" or label in rhs)
    if ragged[0] == "c":
        out = ("g", *out)
    batch = tuple(label for label in dot.out if label[0] == "b")
    inside = {"b": (), "l": tuple(label for label in dot.lhs if label[0] == "l"),
              "c": tuple(sorted(label for label in dot.lhs if label[0] == "c"))}[ragged[0]]
    outer = (*batch, *inside)
    prefix = outer[:outer.index(ragged)] if inst.operands[2].shape.rank > 1 else ()
    return _Ragged(dot.lhs, rhs, out, ragged, prefix, dot.precision)


def _ragged_contract(r: _Ragged, x: XlaOp, x_labels: Labels, y: XlaOp, y_labels: Labels, result: Labels,
                     group_sizes: XlaOp) -> XlaOp:
    """The contraction of two of the three arrays, where the ragged label meets the group of its element only."""
    if "g" in x_labels:
        x, x_labels, y, y_labels = y, y_labels, x, x_labels
    first = (*r.prefix, *(label for label in x_labels if label not in r.prefix))
    x, x_labels = transpose(x, [x_labels.index(label) for label in first]), first
    shared = [label for label in x_labels if label in y_labels]
    batch = [label for label in shared if label in result]
    summed = [label for label in shared if label not in result]
    numbers = RaggedDotDimensionNumbers(
        DotDimensionNumbers(*_places(x_labels, y_labels, summed), *_places(x_labels, y_labels, batch)),
        (x_labels.index(r.ragged),), (y_labels.index("g"),) if "g" in y_labels else ())
    product = RaggedDot(x, y, group_sizes, numbers, r.precision or None)
    free = [label for label in (*x_labels, *y_labels) if label not in shared and label != "g"]
    order = [*(["g"] if r.ragged in summed else []), *batch, *free]
    return transpose(product, [order.index(label) for label in result])


def _ragged_lhs(ct: XlaOp, inst: Instruction, rhs: XlaOp, group_sizes: XlaOp) -> XlaOp:
    r = _ragged_labels(inst)
    product = _ragged_contract(r, ct, r.out, conj(rhs), r.rhs, r.lhs, group_sizes)
    return convert(product, inst.operands[0].shape.element_type)


def _ragged_rhs(ct: XlaOp, inst: Instruction, lhs: XlaOp, group_sizes: XlaOp) -> XlaOp:
    r = _ragged_labels(inst)
    product = _ragged_contract(r, conj(lhs), r.lhs, ct, r.out, r.rhs, group_sizes)
    return convert(product, inst.operands[1].shape.element_type)


vjp("ragged-dot", lhs=_ragged_lhs, rhs=_ragged_rhs)

# ----------------------------------------------------------------------------------------------------- scaled dot


def _scaled(x: XlaOp, scale: XlaOp, element_type: Any) -> XlaOp:
    """`x` times its scale, each entry of which stands for a block of elements."""
    x, scale = convert(x, element_type), convert(scale, element_type)
    if scale.shape.rank == 0:
        return x * scale
    blocks = [part for n, s in zip(x.shape.dimensions, scale.shape.dimensions, strict=True) for part in (s, n // max(s, 1))]
    repeated = BroadcastInDim(scale, blocks, list(range(0, len(blocks), 2)))
    return x * reshape(repeated, x.shape.dimensions)


def _scaled_dot(position: int) -> Any:
    """scaled-dot is the dot of the scaled operands. A scale in an 8-bit format has no gradient: its cotangent has no place
    in a format of powers of two."""

    def rule(ct: XlaOp, inst: Instruction, lhs: XlaOp, rhs: XlaOp, lhs_scale: XlaOp, rhs_scale: XlaOp) -> XlaOp | None:
        operands = (lhs, rhs, lhs_scale, rhs_scale)
        if position >= 2 and operands[position].element_type.bits <= 8:
            return None
        wide = inst.shape.element_type if inst.shape.element_type.bits >= 32 else F32
        labels = _labelled(inst)

        def composed(lhs: XlaOp, rhs: XlaOp, lhs_scale: XlaOp, rhs_scale: XlaOp) -> list[XlaOp]:
            product = contract(_scaled(lhs, lhs_scale, wide), labels.lhs, _scaled(rhs, rhs_scale, wide), labels.rhs, labels.out)
            return [convert(product, inst.shape.element_type)]

        return derived(composed, operands, [ct])[position]

    return rule


vjp("scaled-dot", lhs=_scaled_dot(0), rhs=_scaled_dot(1), lhs_scale=_scaled_dot(2), rhs_scale=_scaled_dot(3))
