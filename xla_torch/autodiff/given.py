"""Derivatives given as one program: from the arguments and a cotangent for each result to the arguments' cotangents.

`jax.export` writes such a program beside a function (`vjp_order`). What it says of the way back says the way forward, too: it is
linear in the cotangents, and its transpose takes tangents to tangents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from grad_rules._calculus import conj, full

from ..core.forks import cached_property
from ..core.shape import Shape
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.derivatives import Mask, Pullback, Pushforward, Stored, bringing, brings
from ..hlo.ir import Computation
from ..transform.values import Value, as_op, make_tuple
from .calls import emit_call
from .cotangents import materialised
from .reverse import Recording
from .sharing import SharingBuilder


class GivenPullback:
    """The derivatives of a computation of flat arrays whose way back is the computation that `back` gives, in canonical form like
    itself. It is asked for when a derivative is first asked for.

    It takes the arguments, then a cotangent for each result, and returns a cotangent for each argument, in JAX's convention
    for complex ones (the conjugate of torch's); for integers and predicates it has PRED in both places, which say nothing. It may
    bring derivatives itself.
    """

    def __init__(self, computation: Computation, back: Callable[[], Computation]):
        self._computation, self._given = bringing(computation, None), back

    rules = ("what jax.export wrote",)
    """The file does not name them."""

    @cached_property
    def _back(self) -> Computation:
        return self._given()

    @property
    def _arguments(self) -> list[Shape]:
        return [p.shape.without_layout() for p in self._computation.parameters]

    @property
    def _results(self) -> list[Shape]:
        return [leaf.without_layout() for leaf in self._computation.root.shape.leaves()]

    def pullback(self, needed: Mask, demanded: Mask) -> Pullback:
        backward = self._backward(self._back, needed, demanded)
        return Pullback(needed, demanded, tuple(range(len(self._arguments))), self._forward(), backward)

    def _backward(self, back: Computation, needed: Mask, demanded: Mask) -> Computation:
        builder = SharingBuilder(f"{self._computation.name}_vjp")
        arguments = _parameters(builder, self._arguments)
        asked = [s for s, flag in zip(self._results, demanded, strict=True) if flag]
        cotangents = iter(_parameters(builder, asked, len(arguments)))
        places = back.parameters[len(arguments):]
        given = [conj(next(cotangents)) if flag else full(builder, 0, place.shape.without_layout())
                 for flag, place in zip(demanded, places, strict=True)]
        found = emit_call(builder, back, [*arguments, *given])
        gradients = [conj(gradient) for gradient, flag in zip(found, needed, strict=True) if flag]
        return builder.finish(make_tuple(builder, gradients))

    def _forward(self) -> Computation:
        return bringing(self._computation, self)

    def pushforward(self, present: Mask) -> Pushforward:
        moving = tuple(s.element_type.is_differentiable for s in self._results)
        # Of a linear program the ops are as good as any rule.
        linear_back = self._back if brings(self._back) else bringing(self._back, None)
        back = self._backward(linear_back, present, moving)
        builder = SharingBuilder(f"{self._computation.name}_jvp")
        arguments = _parameters(builder, self._arguments)
        there = [s for s, flag in zip(self._arguments, present, strict=True) if flag]
        tangents = _parameters(builder, there, len(arguments))
        zeros: list[Value] = [full(builder, 0, s) for s, flag in zip(self._results, moving, strict=True) if flag]
        linear = Recording(builder, back, [*arguments, *zeros], [False] * len(arguments) + [True] * len(zeros))
        found = linear.backward(tuple(tangents))[len(arguments):]
        moved = [as_op(builder, materialised(builder, t, as_op(builder, z).shape)) for t, z in zip(found, zeros, strict=True)]
        results = emit_call(builder, self._forward(), arguments)
        return Pushforward(present, builder.finish(make_tuple(builder, [*results, *moved])))

    def __getstate__(self) -> dict[str, Any]:
        return {"computation": Stored.of_computation(self._computation), "back": Stored.of_computation(self._back)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._computation, self._given = state["computation"].entry(), state["back"].entry


def _parameters(builder: Builder, shapes: Sequence[Shape], first: int = 0) -> list[XlaOp]:
    return [builder.parameter(first + k, shape) for k, shape in enumerate(shapes)]
