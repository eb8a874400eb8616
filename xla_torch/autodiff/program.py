"""`grad`, `value_and_grad`, `vjp` and `jvp`: derivatives of whole programs, as programs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from grad_rules._calculus import full
from grad_rules._table import revision

from ..builder import XlaBuilder, XlaOp
from ..computation import XlaComputation
from ..errors import DifferentiationError, InvalidArgument
from ..hlo.ir import Computation, Module
from ..shape import Shape
from ..transform.dead_carries import without_dead_carries
from ..transform.dynamic_sizes import settle
from ..transform.expand_custom_calls import expand
from ..transform.inline import Value, as_op, elements_of, leaves, regrouped
from .activity import Flags, spread
from .engine import Cotangent, Tape, materialised
from .forward import Forward, frozen
from .options import DEFAULT, GradientOptions
from .sharing import SharingBuilder

Argnums = int | Sequence[int]


def grad(computation: XlaComputation, argnums: Argnums = 0, options: GradientOptions | None = None) -> XlaComputation:
    """The gradient of the sum of the program's result (of its first, if it returns a tuple).

    Takes the same arguments. Returns the gradient with respect to parameter `argnums`, of that parameter's shape, or for a
    sequence of numbers a tuple of gradients. Raises DifferentiationError for an op without gradient on the way, for a
    result or parameter that is not of a real floating (a parameter may be complex) type; InvalidArgument for numbers out
    of range. `options` say how loops are walked back (default: the program's own).
    """
    return _with_gradients(computation, argnums, False, options)


def value_and_grad(computation: XlaComputation, argnums: Argnums = 0, options: GradientOptions | None = None) -> XlaComputation:
    """Like `grad`, and returns ``(result, gradient)`` with the program's (first) result."""
    return _with_gradients(computation, argnums, True, options)


def vjp(computation: XlaComputation, argnums: Argnums | None = None, with_outputs: bool = False,
        options: GradientOptions | None = None) -> XlaComputation:
    """The vector-Jacobian product: takes the program's arguments and then one cotangent for each floating or complex
    leaf of its result, of that leaf's shape; returns the tuple of gradients for `argnums` (default: all floating and complex
    parameters), preceded by the result's leaves if `with_outputs`. Raises like `grad`."""
    numbers = _checked_argnums(computation, argnums)
    joint = _joint(f"vjp_{computation.name}", computation, numbers, options=options)
    given = joint.cotangent_parameters([leaf.element_type.is_differentiable for leaf in joint.outputs])
    gradients = _gradients(joint, given, numbers)
    return closed(joint.builder, [*joint.outputs, *gradients] if with_outputs else gradients, computation)


def jvp(computation: XlaComputation, argnums: Argnums | None = None) -> XlaComputation:
    """The Jacobian-vector product: takes the program's arguments and then one tangent for each parameter in `argnums`
    (default: all floating and complex parameters), of that parameter's shape; returns ``(result, tangent)``.

    `result` is the program's; `tangent` is that of the result, of its shape, and for a tuple the flat tuple of the tangents
    of its floating and complex leaves. Values and tangents go through the program together: nothing is kept, and a loop may
    run as long as data says. ``jvp(grad(f))`` multiplies with the Hessian. Raises DifferentiationError for an op without
    gradient on the way and for parameters that are not floating or complex; InvalidArgument for numbers out of range.
    """
    numbers = _checked_argnums(computation, argnums)
    entry, builder = plain_entry(computation), SharingBuilder(f"jvp_{computation.name}")
    parameters = [builder.parameter(k, p.shape, p.name) for k, p in enumerate(entry.parameters)]
    tangents: list[Cotangent] = [None] * len(parameters)
    for count, k in enumerate(numbers, len(parameters)):
        given = builder.parameter(count, parameters[k].shape.without_layout(), f"t_{parameters[k].instruction.name}")
        tangents[k] = frozen(elements_of(given))
    run = Forward(builder, entry, [elements_of(p) for p in parameters], tangents)
    found = list(tangent_leaves(builder, run.tangent, entry.root.shape))
    return closed(builder, [run.result, found if entry.root.shape.is_tuple else found[0] if found else []], computation)


def tangent_leaves(builder: XlaBuilder, tangent: Cotangent, shape: Shape) -> Iterator[XlaOp]:
    """The tangents of a value's floating and complex leaves, zeros where there is none."""
    parts = leaves(materialised(builder, tangent, shape.without_layout()))
    return (part for part, leaf in zip(parts, shape.leaves(), strict=True) if leaf.element_type.is_differentiable)


def _with_gradients(computation: XlaComputation, argnums: Argnums, with_value: bool,
                    options: GradientOptions | None) -> XlaComputation:
    numbers = _checked_argnums(computation, argnums)
    result = computation.program_shape.result
    first = frozen(regrouped([k == 0 for k, _ in enumerate(result.leaves())], result))
    joint = _joint(f"{'value_and_grad' if with_value else 'grad'}_{computation.name}", computation, numbers, first, options)
    value = next(iter(joint.outputs), None)
    if value is None or not value.element_type.is_floating:
        raise DifferentiationError("the result has no gradient", subject=computation.name, got=result,
                                   expected="a real floating result (the first, of a tuple)",
                                   hint="vjp(computation) takes a cotangent for each result")
    one = full(joint.builder, 1, value.shape)
    found = _gradients(joint, [one, *[None] * (len(joint.outputs) - 1)], numbers)
    gradients: Value = found[0] if isinstance(argnums, int) else found
    return closed(joint.builder, [value, gradients] if with_value else gradients, computation)


def _joint(name: str, computation: XlaComputation, numbers: Sequence[int], demanded: Flags = True,
           options: GradientOptions | None = None) -> Joint:
    """The program's forward part with its own parameters, those numbered being differentiated."""
    builder, entry = SharingBuilder(name), plain_entry(computation)
    parameters = [builder.parameter(k, p.shape, p.name) for k, p in enumerate(entry.parameters)]
    active = [k in numbers for k in range(len(parameters))]
    return Joint(builder, entry, [elements_of(p) for p in parameters], active, demanded,
                 options or computation.gradient_options or DEFAULT)


def closed(builder: XlaBuilder, result: Value, computation: XlaComputation) -> XlaComputation:
    """The derived program, for as many participants as the program it comes from."""
    derived = finished(builder, as_op(builder, result))
    derived.gradient_options = computation.gradient_options
    derived.module.header.update(computation.participants)
    return derived


def finished(builder: XlaBuilder, root: XlaOp) -> XlaComputation:
    """The program that a builder holds, without what nothing reads."""
    return XlaComputation(Module(builder.name, without_dead_carries(builder.finish(root))))


def _gradients(joint: Joint, cotangents: Sequence[XlaOp | None], numbers: Sequence[int]) -> list[Value]:
    """The numbered parameters' gradients; zeros where the result does not depend on them."""
    found = joint.backward(cotangents)
    parameters = joint.entry.parameters
    return [materialised(joint.builder, found[k], parameters[k].shape.without_layout()) for k in numbers]


def plain_entry(computation: XlaComputation) -> Computation:
    """The program as the engine differentiates it: plain, known custom calls written out as ops, dynamic sizes settled."""
    return computation.derived(("differentiable", revision()), lambda: settle(expand(computation.meant_entry())))


def _checked_argnums(computation: XlaComputation, argnums: Argnums | None) -> list[int]:
    """The numbers as a list; None stands for all parameters with a floating or complex leaf."""
    shapes = computation.program_shape.parameters
    if argnums is None:
        argnums = [k for k, s in enumerate(shapes) if any(leaf.element_type.is_differentiable for leaf in s.leaves())]
    numbers = [argnums] if isinstance(argnums, int) else list(argnums)
    for number in numbers:
        if not 0 <= number < len(shapes):
            raise InvalidArgument(f"argnums names parameter {number}", subject=computation.name, got=number,
                                  expected=f"0 to {len(shapes) - 1}")
        if not all(leaf.element_type.is_differentiable for leaf in shapes[number].leaves()):
            raise DifferentiationError(f"parameter {number} has no gradient", subject=computation.name, got=shapes[number],
                                       expected="a floating or complex parameter")
    return numbers


# ------------------------------------------------------------------------------------------------ forward and backward


class Joint:
    """A plain program's forward part in a builder, to which `backward` adds the way back.

    `parameters` are the parameters' values in the builder and `active` says which of them are differentiated.
    """

    def __init__(self, builder: XlaBuilder, entry: Computation, parameters: Sequence[Value], active: Sequence[Flags],
                 demanded: Flags = True, options: GradientOptions = DEFAULT):
        self.builder, self.entry = builder, entry
        self.tape = Tape(builder, entry, parameters, active, demanded, options)
        self.outputs = list(leaves(self.tape.result))

    @property
    def varying(self) -> list[bool]:
        """For each leaf of the result, whether it depends on what is differentiated."""
        flags = self.tape.facts.active[self.entry.root]
        return list(_flag_leaves(spread(self.entry.root.shape, flags)))

    def cotangent_parameters(self, which: Sequence[bool]) -> list[XlaOp | None]:
        """New parameters: a cotangent for each chosen leaf of the result, None for the others."""
        numbers = itertools.count(sum(i.opcode == "parameter" for i in self.builder.instructions))
        return [self.builder.parameter(next(numbers), leaf.shape.without_layout(), f"ct_{k}") if chosen else None
                for k, (leaf, chosen) in enumerate(zip(self.outputs, which, strict=True))]

    def backward(self, cotangents: Sequence[XlaOp | None]) -> list[Cotangent]:
        """The parameters' cotangents for those of the result's leaves. May be called again with others."""
        return self.tape.backward(frozen(regrouped(cotangents, self.entry.root.shape)))


def _flag_leaves(flags: Flags) -> Iterator[bool]:
    if isinstance(flags, tuple):
        for part in flags:
            yield from _flag_leaves(part)
    else:
        yield flags
