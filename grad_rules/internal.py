"""Gradients of ops that appear in compiled programs only: most are the identity. Custom calls bring their own rule."""

from __future__ import annotations

from xla_torch.builder import XlaOp
from xla_torch.hlo.ir import Instruction

from ._calculus import inverse, reshape, transpose
from ._table import linear


def _through_memory(ct: XlaOp, inst: Instruction) -> XlaOp | None:
    """bitcast reads the operand's memory by the result's layout, so the way back goes through both memory orders."""
    source, result = inst.operands[0].shape, inst.shape
    if source.element_type is not result.element_type:
        return None
    to_memory, from_memory = result.minor_to_major[::-1], source.minor_to_major[::-1]
    in_memory = reshape(transpose(ct, to_memory), [source.dimensions[d] for d in from_memory])
    return transpose(in_memory, inverse(from_memory))


linear("bitcast", operand=_through_memory)

linear("add-dependency", operand=lambda ct: ct)
linear("domain", operand=lambda ct: ct)
linear("opt-barrier", operand=lambda ct: ct)
linear("copy-start", operand=lambda ct: ct[0] if ct[1] is None else ct[1] if ct[0] is None else ct[0] + ct[1])
linear("copy-done", operand=lambda ct, inst: (ct, *(None,) * (len(inst.operands[0].shape.tuple_shapes) - 1)))
