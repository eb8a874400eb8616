"""Calls of computations that bring derivatives of their own (see `hlo.derivatives`): how they are emitted and opened.

A program to differentiate has such computations as calls. Before it runs or is printed, the calls are opened (`opened`).
`call_derivatives` differentiates them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.composites import kernel_of
from ..hlo.ir import Computation, Instruction, reachable
from ..hlo.regions import callee, is_call
from ..opcodes import control
from ..transform.composites import as_custom_call
from ..transform.dead_carries import without_dead_carries
from ..transform.rewriter import Rewriter, carried_metadata
from ..transform.values import as_op, elements_of, leaves, regrouped
from .sharing import SharingBuilder


def emit_call(builder: Builder, computation: Computation, arguments: Sequence[XlaOp]) -> list[XlaOp]:
    """A call of a computation; the leaves of its result."""
    shape = computation.root.shape.without_layout()
    made = builder.append(Instruction(control.call, shape, [a.instruction for a in arguments], {"to_apply": computation}))
    return list(leaves(elements_of(made)))


def calling(computation: Computation) -> Computation:
    """A computation of the same parameters and result, which only calls this one."""
    builder = Builder(computation.name)
    arguments = [builder.parameter(k, p.shape, p.name) for k, p in enumerate(computation.parameters)]
    for argument, original in zip(arguments, computation.parameters, strict=True):
        argument.instruction.common = carried_metadata(original)
    found = emit_call(builder, computation, arguments)
    return builder.finish(as_op(builder, regrouped(found, computation.root.shape)))


def has_calls(computation: Computation) -> bool:
    """Whether it calls computations, also in regions."""
    return any(is_call(i) for c in reachable([computation]) for i in c.instructions)


def opened(computation: Computation) -> Computation:
    """The computation with what is called in the place of the calls, what is equal being computed once."""
    builder = OpeningBuilder(computation.name)
    parameters = [builder.parameter(k, p.shape, p.name) for k, p in enumerate(computation.parameters)]
    result = Rewriter(builder).run(computation, [elements_of(p) for p in parameters])
    return without_dead_carries(builder.finish(as_op(builder, result)))


class OpeningBuilder(SharingBuilder):
    """A builder that puts what is called in the place of calls."""

    def append(self, instruction: Instruction) -> XlaOp:
        if is_call(instruction) and kernel_of(callee(instruction)) is not None:
            instruction = as_custom_call(callee(instruction), instruction.operands, instruction.common)
        elif is_call(instruction):
            arguments = [elements_of(XlaOp(self, o)) for o in instruction.operands]
            return as_op(self, Rewriter(self).run(callee(instruction), arguments))
        if instruction.is_element and instruction.operands[0].is_tuple:
            return XlaOp(self, instruction.operands[0].operands[instruction.attributes["index"]])
        return super().append(instruction)
