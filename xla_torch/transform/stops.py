"""Values whose derivative is zero: calls of an identity that brings `Stop`, which `detach` and its like come to."""

from __future__ import annotations

from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.derivatives import Stop
from ..hlo.ir import Instruction
from ..hlo.regions import callee, is_call
from ..opcodes import control


def is_stop(instruction: Instruction) -> bool:
    """Whether an instruction gives its operand with a derivative of zero."""
    return is_call(instruction) and isinstance(callee(instruction).derivatives, Stop)


def stopped(x: XlaOp, derivatives: Stop) -> XlaOp:
    """An array with the derivatives of a `Stop`."""
    shape = x.shape.without_layout()
    inside = Builder("stop_gradient")
    identity = inside.finish(inside.parameter(0, shape, "x"))
    identity.derivatives = derivatives
    return x.builder.append(Instruction(control.call, shape, [x.instruction], {"to_apply": identity}))
