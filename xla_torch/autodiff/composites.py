"""The derivatives of composites that a kernel runs: composites, whose decompositions are derivatives of the decomposition."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.composites import VJP, Kernel, kept_results
from ..hlo.derivatives import Mask, Pullback, Stored, bringing
from ..hlo.ir import Computation
from ..transform.canonical import canonicalize
from ..transform.values import as_op, make_tuple
from .calls import emit_call, opened
from .cotangents import materialised
from .reverse import Recording
from .sharing import SharingBuilder


def known_as(decomposition: Computation, name: str, attributes: str) -> Computation:
    """A decomposition, which may have calls that stop gradients, in canonical form as one that is known to be what a kernel
    computes: it brings the kernel's derivatives."""
    canonical = bringing(canonicalize(decomposition), None)
    return bringing(canonical, CompositeDerivatives(name, attributes, canonical, decomposition))


class CompositeDerivatives(Kernel):
    """A kernel, and its derivatives: the kernel for the way back, of which the decomposition differentiates the kernel's. Second
    derivatives are those of the ops."""

    def __init__(self, name: str, attributes: str, canonical: Computation, decomposition: Computation):
        super().__init__(name, attributes)
        self.canonical, self.decomposition = canonical, decomposition

    def pullback(self, needed: Mask, demanded: Mask) -> Pullback:
        inputs = [p.shape.without_layout() for p in self.canonical.parameters]
        forward = Builder(self.canonical.name)
        arguments = [forward.parameter(k, shape) for k, shape in enumerate(inputs)]
        found, kept = emit_call(forward, bringing(self.canonical, self), arguments), kept_results(self.name)
        make_tuple(forward, [*found, *(found[k] for k in kept)])
        known = self.back(needed, demanded)
        backward = SharingBuilder(known.name)
        given = [backward.parameter(k, p.shape) for k, p in enumerate(known.parameters)]
        make_tuple(backward, emit_call(backward, known, given))
        return Pullback(needed, demanded, tuple(range(len(inputs))), forward.finish(), backward.finish())

    def back(self, needed: Mask, demanded: Mask) -> Computation:
        """The way back (see `pulled_back`) as a computation in canonical form that is known to be it."""
        found = canonicalize(opened(pulled_back(self.decomposition, needed, demanded, kept_results(self.name))))
        return bringing(found, Kernel(f"{self.name}{VJP}", way_back(self.name, self.attributes, needed, demanded)))

    def pushforward(self, present: Mask) -> None:
        """That of the ops."""

    def __getstate__(self) -> dict[str, Any]:
        return {"name": self.name, "attributes": self.attributes, "decomposition": Stored.of_computation(self.decomposition)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        decomposition = state["decomposition"].entry()
        self.__init__(state["name"], state["attributes"], bringing(canonicalize(decomposition), None), decomposition)


def way_back(name: str, attributes: str, needed: Sequence[bool], demanded: Sequence[bool]) -> str:
    """The attributes of the way back of a composite with these attributes."""
    return json.dumps(json.loads(attributes) | {"needed": list(needed), "demanded": list(demanded),
                                                "kept": list(kept_results(name))})


def pulled_back(decomposition: Computation, needed: Mask, demanded: Mask, kept: Sequence[int]) -> Computation:
    """The way back of a decomposition: from the arguments, the results number `kept` and the cotangents of the demanded results
    to a flat tuple of the needed arguments' gradients."""
    builder = SharingBuilder(f"{decomposition.name}_vjp")
    inputs = [p.shape.without_layout() for p in decomposition.parameters]
    outputs = [leaf.without_layout() for leaf in decomposition.root.shape.leaves()]
    asked = [shape for shape, flag in zip(outputs, demanded, strict=True) if flag]
    given = [builder.parameter(k, shape) for k, shape in enumerate([*inputs, *(outputs[k] for k in kept), *asked])]
    cotangents = iter(given[len(inputs) + len(kept):])
    recording = Recording(builder, decomposition, given[:len(inputs)], list(needed), tuple(demanded))
    parts = tuple(next(cotangents) if flag else None for flag in demanded)
    found = recording.backward(parts if decomposition.root.is_tuple else parts[0])
    gradients: list[XlaOp] = [as_op(builder, materialised(builder, g, shape)) for g, shape, flag in
                              zip(found, inputs, needed, strict=True) if flag]
    return builder.finish(make_tuple(builder, gradients))
