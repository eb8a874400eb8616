"""Derivatives of computations, as computations: gradients, vector-Jacobian products and Jacobian-vector products.

What goes in is in canonical form and has resolved sizes, and so has what comes out. Parameters keep their numbers, names and
shapes; cotangents and tangents are parameters behind them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from grad_rules._calculus import full

from ..core.shape import Shape
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo import tree
from ..hlo.ir import Computation
from ..transform.dead_carries import without_dead_carries
from ..transform.values import Value, as_op, elements_of, leaves
from . import functions  # noqa: F401  (enters the reverse mode for what rules compose)
from .cotangents import Cotangent, frozen, materialised
from .flags import Flags, broadcast_flags
from .forward import Forward
from .options import GradientOptions
from .reverse import Recording
from .sharing import SharingBuilder


def gradient(name: str, entry: Computation, numbers: Sequence[int], options: GradientOptions, alone: bool = False,
             with_value: bool = False) -> Computation:
    """The gradients of the sum of the result's first leaf, which is real and floating, with respect to the numbered
    parameters: a tuple of them, or the one gradient `alone`; ``(leaf, gradients)`` if `with_value`. Raises
    DifferentiationError for an op without gradient on the way."""
    result = entry.root.shape
    first = tree.grouped((k == 0 for k, _ in enumerate(result.leaves())), result)
    joint = _joint(name, entry, numbers, options, first)
    value = joint.outputs[0]
    one = full(joint.builder, 1, value.shape)
    found = _gradients(joint, [one, *[None] * (len(joint.outputs) - 1)], numbers)
    gradients: Value = found[0] if alone else found
    return finished(joint.builder, [value, gradients] if with_value else gradients)


def vector_jacobian(name: str, entry: Computation, numbers: Sequence[int], options: GradientOptions,
                    with_outputs: bool = False) -> Computation:
    """From the parameters and a cotangent for each floating or complex leaf of the result to the tuple of the numbered
    parameters' gradients, preceded by the result's leaves if `with_outputs`."""
    joint = _joint(name, entry, numbers, options)
    given = joint.cotangent_parameters([leaf.element_type.is_differentiable for leaf in joint.outputs])
    gradients = _gradients(joint, given, numbers)
    return finished(joint.builder, [*joint.outputs, *gradients] if with_outputs else gradients)


def jacobian_vector(name: str, entry: Computation, numbers: Sequence[int]) -> Computation:
    """From the parameters and a tangent for each numbered one to ``(result, tangent)``. The tangent of a tuple is the flat
    tuple of the tangents of its floating and complex leaves."""
    builder = SharingBuilder(name)
    parameters = _parameters(builder, entry)
    tangents: list[Cotangent] = [None] * len(parameters)
    for count, k in enumerate(numbers, len(parameters)):
        given = builder.parameter(count, parameters[k].shape.without_layout(), f"t_{parameters[k].instruction.name}")
        tangents[k] = frozen(elements_of(given))
    run = Forward(builder, entry, [elements_of(p) for p in parameters], tangents)
    found = list(tangent_leaves(builder, run.tangent, entry.root.shape))
    return finished(builder, [run.result, found if entry.root.shape.is_tuple else found[0] if found else []])


def finished(builder: Builder, result: Value) -> Computation:
    """The computation that a builder holds, without what nothing reads."""
    return without_dead_carries(builder.finish(as_op(builder, result)))


def tangent_leaves(builder: Builder, tangent: Cotangent, shape: Shape) -> Iterator[XlaOp]:
    """The tangents of a value's floating and complex leaves, zeros where there is none."""
    parts = leaves(materialised(builder, tangent, shape.without_layout()))
    return (part for part, leaf in zip(parts, shape.leaves(), strict=True) if leaf.element_type.is_differentiable)


def _parameters(builder: Builder, entry: Computation) -> list[XlaOp]:
    return [builder.parameter(k, p.shape, p.name) for k, p in enumerate(entry.parameters)]


def _joint(name: str, entry: Computation, numbers: Sequence[int], options: GradientOptions, demanded: Flags = True) -> Joint:
    """The forward part with the computation's own parameters, those numbered being differentiated."""
    builder = SharingBuilder(name)
    parameters = _parameters(builder, entry)
    active = [k in numbers for k in range(len(parameters))]
    return Joint(builder, entry, [elements_of(p) for p in parameters], active, demanded, options)


def _gradients(joint: Joint, cotangents: Sequence[XlaOp | None], numbers: Sequence[int]) -> list[Value]:
    """The numbered parameters' gradients; zeros where the result does not depend on them."""
    found = joint.backward(cotangents)
    parameters = joint.entry.parameters
    return [materialised(joint.builder, found[k], parameters[k].shape.without_layout()) for k in numbers]


# ------------------------------------------------------------------------------------------------ forward and backward


class Joint:
    """A computation's forward part in a builder, to which `backward` adds the way back.

    `parameters` are the parameters' values in the builder and `active` says which of them are differentiated.
    """

    def __init__(self, builder: Builder, entry: Computation, parameters: Sequence[Value], active: Sequence[Flags],
                 demanded: Flags, options: GradientOptions):
        self.builder, self.entry = builder, entry
        self.recording = Recording(builder, entry, parameters, active, demanded, options)
        self.outputs = list(leaves(self.recording.result))

    @property
    def varying(self) -> list[bool]:
        """For each leaf of the result, whether it depends on what is differentiated."""
        shape = self.entry.root.shape
        return [flag for flag, _ in tree.leaves(broadcast_flags(shape, self.recording.facts.active[self.entry.root]), shape)]

    def cotangent_parameters(self, which: Sequence[bool]) -> list[XlaOp | None]:
        """New parameters: a cotangent for each chosen leaf of the result, None for the others."""
        numbers = itertools.count(sum(i.is_parameter for i in self.builder.instructions))
        return [self.builder.parameter(next(numbers), leaf.shape.without_layout(), f"ct_{k}") if chosen else None
                for k, (leaf, chosen) in enumerate(zip(self.outputs, which, strict=True))]

    def backward(self, cotangents: Sequence[XlaOp | None]) -> list[Cotangent]:
        """The parameters' cotangents for those of the result's leaves. May be called again with others."""
        return self.recording.backward(tree.grouped(cotangents, self.entry.root.shape))
