"""`grad`, `value_and_grad` and `vjp`: derivatives of whole programs, as programs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from .. import ops
from ..builder import XlaBuilder, XlaOp
from ..computation import XlaComputation
from ..errors import DifferentiationError, InvalidArgument
from ..hlo.ir import Computation
from ..transform.expand_custom_calls import expand
from ..transform.inline import Value, as_op, elements_of, leaves, regrouped
from .activity import Flags, spread
from .engine import Cotangent, Tape, materialised
from .sharing import SharingBuilder

Argnums = int | Sequence[int]


def grad(computation: XlaComputation, argnums: Argnums = 0) -> XlaComputation:
    """The gradient of the sum of the program's result (of its first, if it returns a tuple).

    Takes the same arguments. Returns the gradient with respect to parameter `argnums`, of that parameter's shape, or for a
    sequence of numbers a tuple of gradients. Raises DifferentiationError for an op without gradient on the way, for a
    result or parameter that is not of a real floating (a parameter may be complex) type; InvalidArgument for numbers out
    of range.
    """
    return _with_gradients(computation, argnums, with_value=False)


def value_and_grad(computation: XlaComputation, argnums: Argnums = 0) -> XlaComputation:
    """Like `grad`, and returns ``(result, gradient)`` with the program's (first) result."""
    return _with_gradients(computation, argnums, with_value=True)


def vjp(computation: XlaComputation, argnums: Argnums | None = None, with_outputs: bool = False) -> XlaComputation:
    """The vector-Jacobian product: takes the program's arguments and then one cotangent for each floating or complex
    leaf of its result, of that leaf's shape; returns the tuple of gradients for `argnums` (default: all floating and complex
    parameters), preceded by the result's leaves if `with_outputs`. Raises like `grad`."""
    if argnums is None:
        shapes = computation.program_shape.parameters
        argnums = [k for k, s in enumerate(shapes) if any(leaf.element_type.is_differentiable for leaf in s.leaves())]
    numbers = _checked_argnums(computation, [argnums] if isinstance(argnums, int) else argnums)
    joint = _joint(f"vjp_{computation.name}", computation, numbers)
    given = joint.cotangent_parameters([leaf.element_type.is_differentiable for leaf in joint.outputs])
    gradients = _gradients(joint, given, numbers)
    return _closed(joint, [*joint.outputs, *gradients] if with_outputs else gradients, computation)


def _with_gradients(computation: XlaComputation, argnums: Argnums, with_value: bool) -> XlaComputation:
    numbers = _checked_argnums(computation, [argnums] if isinstance(argnums, int) else argnums)
    result = computation.program_shape.result
    first = frozen(regrouped([k == 0 for k, _ in enumerate(result.leaves())], result))
    joint = _joint(f"{'value_and_grad' if with_value else 'grad'}_{computation.name}", computation, numbers, first)
    value = next(iter(joint.outputs), None)
    if value is None or not value.element_type.is_floating:
        raise DifferentiationError("the result has no gradient", subject=computation.name, got=result,
                                   expected="a real floating result (the first, of a tuple)",
                                   hint="vjp(computation) takes a cotangent for each result")
    one = ops.Broadcast(joint.builder.constant(1, value.element_type), value.shape.dimensions)
    found = _gradients(joint, [one, *[None] * (len(joint.outputs) - 1)], numbers)
    gradients: Value = found[0] if isinstance(argnums, int) else found
    return _closed(joint, [value, gradients] if with_value else gradients, computation)


def _joint(name: str, computation: XlaComputation, numbers: Sequence[int], demanded: Flags = True) -> Joint:
    """The program's forward part with its own parameters, those numbered being differentiated."""
    builder, entry = SharingBuilder(name), plain_entry(computation)
    parameters = [builder.parameter(k, p.shape, p.name) for k, p in enumerate(entry.parameters)]
    active = [k in numbers for k in range(len(parameters))]
    return Joint(builder, entry, [elements_of(p) for p in parameters], active, demanded)


def _closed(joint: Joint, result: Value, computation: XlaComputation) -> XlaComputation:
    """The derived program, for as many participants as the program it comes from."""
    derived = joint.builder.build(as_op(joint.builder, result))
    header = computation.module.header
    derived.module.header.update({k: header[k] for k in ("replica_count", "num_partitions") if k in header})
    return derived


def _gradients(joint: Joint, cotangents: Sequence[XlaOp | None], numbers: Sequence[int]) -> list[Value]:
    """The numbered parameters' gradients; zeros where the result does not depend on them."""
    found = joint.backward(cotangents)
    parameters = joint.entry.parameters
    return [materialised(joint.builder, found[k], parameters[k].shape.without_layout()) for k in numbers]


def plain_entry(computation: XlaComputation) -> Computation:
    """The program as the engine differentiates it: plain, and known custom calls written out as ops."""
    return computation.derived("differentiable", lambda: expand(computation.entry))


def _checked_argnums(computation: XlaComputation, argnums: Sequence[int]) -> list[int]:
    shapes = computation.program_shape.parameters
    for number in argnums:
        if not 0 <= number < len(shapes):
            raise InvalidArgument(f"argnums names parameter {number}", subject=computation.name, got=number,
                                  expected=f"0 to {len(shapes) - 1}")
        if not all(leaf.element_type.is_differentiable for leaf in shapes[number].leaves()):
            raise DifferentiationError(f"parameter {number} has no gradient", subject=computation.name, got=shapes[number],
                                       expected="a floating or complex parameter")
    return list(argnums)


# ------------------------------------------------------------------------------------------------ forward and backward


class Joint:
    """A plain program's forward part in a builder, to which `backward` adds the way back.

    `parameters` are the parameters' values in the builder and `active` says which of them are differentiated.
    """

    def __init__(self, builder: XlaBuilder, entry: Computation, parameters: Sequence[Value], active: Sequence[Flags],
                 demanded: Flags = True):
        self.builder, self.entry = builder, entry
        self.tape = Tape(builder, entry, parameters, active, demanded)
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


def frozen(value: Any) -> Any:
    """Nested lists as nested tuples."""
    return tuple(map(frozen, value)) if isinstance(value, list) else value


def _flag_leaves(flags: Flags) -> Iterator[bool]:
    if isinstance(flags, tuple):
        for part in flags:
            yield from _flag_leaves(part)
    else:
        yield flags
