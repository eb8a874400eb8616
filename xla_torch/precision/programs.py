"""Whole programs in another precision, with the derivatives that computations inside them bring: an author's ways forward and
back are programs as well, and are put in that precision by the same policy."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..autodiff.calls import calling, emit_call
from ..autodiff.sharing import SharingBuilder
from ..core.shape import Shape
from ..core.types import PrimitiveType
from ..functions.hlo_builder import XlaOp
from ..hlo.derivatives import Derivatives, Mask, Pullback, Pushforward, Stop, bringing, brings
from ..hlo.ir import Computation, Instruction
from ..hlo.regions import callee
from ..transform.rewriter import carried_metadata
from ..transform.values import Value, as_op, elements_of, leaves, regrouped
from .policy import INEXACT, PRECISIONS, Precision, precision_of
from .rewriting import Rewriting, retyped


def in_precision(computation: Computation, element_type: PrimitiveType) -> Computation:
    """A canonical computation whose floating parameters and results are of this type, and which computes as `policy` says.
    Raises InvalidArgument for what is no precision of programs, UnsupportedError for ops that cannot be put in it."""
    precision = precision_of(element_type)
    wanted = {t: element_type if t in PRECISIONS else precision.of(t) for t in INEXACT}
    run, result = _run(computation, precision, [retyped(p.shape, wanted) for p in computation.parameters])
    return run.builder.finish(as_op(run.builder, run.cast(result, computation.root.shape, wanted)))


def under_autocast(computation: Computation, element_type: PrimitiveType) -> Computation:
    """The computation with products in a lower precision: parameters are what they were, and results what they come in."""
    run, result = _run(computation, Precision(element_type), [p.shape for p in computation.parameters])
    return run.builder.finish(as_op(run.builder, result))


def _run(computation: Computation, precision: Precision, given: Sequence[Shape]) -> tuple[_Run, Value]:
    """A run on new parameters of these shapes, and its value."""
    run = _Run(SharingBuilder(computation.name), precision)
    arguments: list[Value] = []
    for number, (parameter, shape) in enumerate(zip(computation.parameters, given, strict=True)):
        made = run.builder.parameter(number, shape, parameter.name)
        made.instruction.common = carried_metadata(parameter)
        arguments.append(elements_of(made))
    return run, run.run(computation, arguments)


class _Run(Rewriting):
    """A rewriting that knows calls: of computations of flat arrays."""

    def called(self, inst: Instruction, operands: list[XlaOp]) -> Value:
        own, shapes = callee(inst), [o.shape for o in operands]
        run, result = _run(own, self.precision, shapes)
        made = run.builder.finish(as_op(run.builder, result))
        if brings(own):
            is_stop = isinstance(own.derivatives, Stop)
            made = bringing(made, own.derivatives if is_stop else _Derivatives(
                own.derivatives, self.precision, shapes, list(made.root.shape.leaves())))
        return regrouped(emit_call(self.builder, made, operands), inst.shape)


@dataclasses.dataclass(frozen=True, eq=False)
class _Derivatives:
    """The derivatives of a computation in another precision, whose arguments and results have these shapes."""

    own: Derivatives
    precision: Precision
    given: Sequence[Shape]
    made: Sequence[Shape]

    @property
    def rules(self) -> Sequence[str]:
        return self.own.rules

    def pullback(self, needed: Mask, demanded: Mask) -> Pullback | None:
        way = self.own.pullback(needed, demanded)
        if way is None:
            return None
        run, result = _run(calling(way.forward), self.precision, self.given)
        found = list(leaves(result))
        residuals = found[len(self.made):]
        forward = run.finished(found, [*(s.element_type for s in self.made), *(r.element_type for r in residuals)])
        cotangents = [s for s, flag in zip(self.made, way.demanded, strict=True) if flag]
        run, result = _run(calling(way.backward), self.precision,
                           [*(self.given[k] for k in way.read), *(r.shape for r in residuals), *cotangents])
        wanted = [s.element_type for s, flag in zip(self.given, way.needed, strict=True) if flag]
        return dataclasses.replace(way, forward=forward, backward=run.finished(list(leaves(result)), wanted))

    def pushforward(self, present: Mask) -> Pushforward | None:
        way = self.own.pushforward(present)
        if way is None:
            return None
        tangents = [s for s, flag in zip(self.given, way.present, strict=True) if flag]
        run, result = _run(calling(way.program), self.precision, [*self.given, *tangents])
        wanted = [*self.made, *(s for s in self.made if s.element_type.is_differentiable)]
        return Pushforward(way.present, run.finished(list(leaves(result)), [s.element_type for s in wanted]))
