"""Gradients of sort and topk: every cotangent goes back to where its element came from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grad_rules._calculus import iota, put_along
from grad_rules._compositions import Cotangents
from grad_rules._table import vjp
from xla_torch.analysis.patterns import counts_along
from xla_torch.core.shape import Shape
from xla_torch.core.types import S32, PrimitiveType
from xla_torch.functions import Call, GetTupleElement, Sort
from xla_torch.functions.hlo_builder import Builder, XlaOp
from xla_torch.hlo.ir import Computation, Instruction


def _sort(ct: Any, out: Any, operands: tuple[XlaOp, ...], inst: Instruction, dimensions: Sequence[int],
          to_apply: Computation) -> Cotangents:
    """An operand of integers that counts positions tells where each element came from; else the sort is done again with one."""
    (dimension,) = dimensions
    cts = ct if inst.shape.is_tuple else (ct,)
    size = operands[0].shape.dimensions[dimension]
    counting = next((k for k, o in enumerate(inst.operands)
                     if counts_along(o, dimension) and o.shape.element_type.is_integral), None)
    if counting is not None:
        origin = out[counting] if inst.shape.is_tuple else out
    else:
        positions = iota(operands[0], operands[0].shape.dimensions, dimension)
        again = Sort([*operands, positions], _with_passenger(to_apply, S32), dimension, True)
        origin = GetTupleElement(again, len(operands))
    return [None if c is None else put_along(c, origin, dimension, size) for c in cts]


def _with_passenger(comparator: Computation, element_type: PrimitiveType) -> Computation:
    """The comparator for one more operand, which it does not look at."""
    builder = Builder(f"{comparator.name}_with_positions")
    shapes = comparator.program_shape.parameters
    scalars = [*shapes, Shape.array(element_type), Shape.array(element_type)]
    values = [builder.parameter(i, s) for i, s in enumerate(scalars)]
    return builder.finish(Call(builder, comparator, values[:len(shapes)]))


def _topk(ct: tuple[XlaOp | None, XlaOp | None], out: tuple[XlaOp, XlaOp], inst: Instruction) -> XlaOp | None:
    values, last = ct[0], inst.operands[0].shape.rank - 1
    return None if values is None else put_along(values, out[1], last, inst.operands[0].shape.dimensions[last])


vjp("sort", operands=_sort)
vjp("topk", operand=_topk)
