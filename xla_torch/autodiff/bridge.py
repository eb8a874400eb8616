"""The bridge to torch: a whole program is one node, for torch.autograd, for forward mode and for torch.func.

Calling a program on tensors that require grad runs its forward part, which also returns the values that the way back
needs; `backward` runs the backward part. Both are programs cut out of one joint program and are derived once for each set
of inputs that require grad. Where the way back is itself to be differentiated (`create_graph`, and everything in
torch.func), the backward part is called through this same bridge. What the forward part returned besides its results then
gets cotangents too, so nothing is run twice.

Forward mode runs the program of values and tangents, torch.func.vmap the program for a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C import _functorch  # pyright: ignore[reportAttributeAccessIssue]
from torch._functorch.utils import unwrap_dead_wrappers
from torch.autograd import forward_ad

from grad_rules._table import revision

from ..builder import XlaBuilder, XlaOp
from ..computation import XlaComputation, is_differentiated
from ..errors import DifferentiationError, UnsupportedError
from ..hlo.ir import Instruction
from ..shape import Shape
from ..transform.inline import make_tuple
from .flat import FlatJoint, flat_jvp
from .program import finished, plain_entry
from .residuals import WHOLE_PROGRAM, effects, needs, rebuild, saved_values, unchanging

Mask = tuple[bool, ...]


def call_with_autograd(computation: XlaComputation, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The program's flat results for flat, checked arguments, recorded for torch.autograd, forward mode and torch.func.

    Results of integer and PRED type, and those that depend on no argument that requires grad, are marked as not
    differentiable. An op without gradient raises DifferentiationError when a backward pass comes to it, not before.
    """
    transformed = torch._C._are_functorch_transforms_active()
    needed = _needs_under_transforms(tensors) if transformed else tuple(t.requires_grad for t in tensors)
    plan = computation.derived(("autograd", needed, transformed, revision()), lambda: _plan(computation, needed, transformed))
    if transformed:
        return _Program.apply(plan, *tensors)[:plan.outputs]
    return _apply(plan, *unwrap_dead_wrappers(tuple(tensors)))[:plan.outputs]


def _needs_under_transforms(tensors: Sequence[torch.Tensor]) -> Mask:
    """Which tensors some transform differentiates, down to the next vmap: below it the batched program has a plan of its own."""
    stack = _functorch.get_interpreter_stack()
    if stack and stack[-1].key() == _functorch.TransformType.Vmap:
        return (False,) * len(tensors)
    return tuple(map(_is_tracked, tensors))


def _is_tracked(tensor: torch.Tensor) -> bool:
    while _functorch.is_functorch_wrapped_tensor(tensor):
        if tensor.requires_grad or _functorch.is_batchedtensor(tensor):
            return tensor.requires_grad
        tensor = _functorch.get_unwrapped(tensor)
    return tensor.requires_grad


def _plan(computation: XlaComputation, needed: Mask, sized: bool) -> Plan:
    """How to run and differentiate the program. Under transforms what is kept must be `sized`, so that it can be batched."""
    if not any(needed):
        return Plan(computation, needed)
    try:
        plan = SplitPlan(computation, needed)
    except DifferentiationError:
        return Plan(computation, needed)
    return plan if plan.is_sized or not sized else Plan(computation, needed)


class Plan:
    """How a program with one set of inputs that require grad is run and walked back. Here: run as it is, and computed
    once more on the way back, which is derived only then and only from the results that are used.

    `forward` is the program that runs; it returns `returned` arrays: the results and what else is kept. Autograd keeps the
    inputs number `read` and of those arrays the ones number `kept`. `constant` are the arrays without gradient (`integral`
    those without one by their type) and `wanted` the inputs with one.
    """

    def __init__(self, computation: XlaComputation, needed: Mask):
        self.name, self.entry, self.options = computation.name, plain_entry(computation), computation.gradient_options
        inputs, results = _array_leaves(p.shape for p in self.entry.parameters), _array_leaves([self.entry.root.shape])
        self.inputs, self.outputs = len(inputs), len(results)
        self.wanted = [k for k, leaf in enumerate(inputs) if needed[k] and leaf.element_type.is_differentiable]
        self.integral = [k for k, leaf in enumerate(results) if not leaf.element_type.is_differentiable]
        self.constant = self.integral
        self.read, self.kept = list(range(self.inputs)), []
        self.forward, self.returned = computation, self.outputs

    def backward(self, present: Mask, wanted: tuple[int, ...]) -> XlaComputation:
        """The program from what autograd keeps, and the present cotangents of the forward program's results, to the gradients
        of the inputs number `wanted`."""
        return self._derived("backward", lambda: self._backward(present, wanted), present, wanted)

    def _backward(self, present: Mask, wanted: tuple[int, ...]) -> XlaComputation:
        joint = FlatJoint(f"{self.name}_vjp", self.entry, self._flags(wanted), present, self.options)
        gradients = joint.gradients(joint.cotangents(present), wanted)
        return self._closed(joint.builder, gradients)

    def _flags(self, numbers: Sequence[int]) -> Mask:
        return tuple(k in numbers for k in range(self.inputs))

    def _closed(self, builder: XlaBuilder, results: Sequence[XlaOp]) -> XlaComputation:
        program = finished(builder, make_tuple(builder, results))
        program.gradient_options = self.options
        return program

    def tangents(self, present: Mask) -> XlaComputation:
        """The program from the inputs and the present tangents to those of the forward program's floating and complex
        results."""
        return self._derived("tangents", lambda: flat_jvp(self.forward, present), present)

    def batched(self, size: int, axes: tuple[int | None, ...]) -> tuple[XlaComputation, list[int | None]]:
        """The forward program for a batch, from inputs that have it at these axes, and its results' axes.
        Raises UnsupportedError."""
        from ..batching import flat_batch

        return self._derived("batched", lambda: flat_batch(self.forward, size, axes), size, axes)

    def _derived(self, kind: str, make: Callable[[], Any], *key: Any) -> Any:
        return self.forward.derived((kind, revision(), *key), make)


class SplitPlan(Plan):
    """A plan whose forward program also returns what the way back needs. Raises DifferentiationError."""

    def __init__(self, computation: XlaComputation, needed: Mask):
        super().__init__(computation, needed)
        self.joint = FlatJoint(self.name, self.entry, needed, None, self.options)
        self.cotangents = self.joint.cotangents(self.joint.varying)
        arguments = [a.instruction for a in self.joint.arguments]
        gradients = [g.instruction for g in self.joint.gradients(self.cotangents, self.wanted)]
        # What is made of constants alone is made again: the lowering folds it.
        free = [*arguments, *unchanging(self.joint.forward_part, [])]
        self.saved = saved_values(self.joint.forward_part, gradients, free, WHOLE_PROGRAM)
        results = [r.instruction for r in self.joint.results]
        returned = [*results, *(s for s in self.saved if s not in results)]
        self.kept = [returned.index(s) for s in self.saved]
        if not self.kept:  # all derivatives are functions of what the backward part reads
            used = needs(gradients, arguments)
            self.read = [k for k, a in enumerate(arguments) if a in used]
        self.integral = [k for k, r in enumerate(returned) if not r.shape.element_type.is_differentiable]
        varying = [ct is not None for ct in self.cotangents] + [True] * (len(returned) - len(results))
        self.constant = [k for k, flag in enumerate(varying) if not flag or k in self.integral]
        self.returned = len(returned)
        self.forward = self._cut(self.name, arguments, [*returned, *effects(self.joint.forward_part)], len(returned))

    @property
    def is_sized(self) -> bool:
        """Whether all that is kept has a size that is known beforehand."""
        return all(s.shape.is_static for s in self.saved)

    def _backward(self, present: Mask, wanted: tuple[int, ...]) -> XlaComputation:
        if any(present[self.outputs:]):
            return self._backward_of_all(present, wanted)
        seeds = [ct if there else None for ct, there in zip(self.cotangents, present, strict=False)]
        gradients = self.joint.gradients(seeds, wanted)
        return self._from_kept(self.joint, self.saved, seeds, gradients)

    def _backward_of_all(self, present: Mask, wanted: tuple[int, ...]) -> XlaComputation:
        """The way back where what was kept has cotangents too: where the way back is itself walked back."""
        joint = FlatJoint(f"{self.name}_again", plain_entry(self.forward), self._flags(wanted), present, self.options)
        seeds = joint.cotangents(present)
        gradients = joint.gradients(seeds, wanted)
        return self._from_kept(joint, [joint.results[k].instruction for k in self.kept], seeds, gradients)

    def _from_kept(self, joint: FlatJoint, kept: Sequence[Instruction], seeds: Sequence[XlaOp | None],
                   gradients: Sequence[XlaOp]) -> XlaComputation:
        pace = [s.instruction for s in seeds if s is not None]
        inputs = [*(joint.arguments[k].instruction for k in self.read), *kept, *pace]
        return self._cut(f"{self.name}_backward", inputs, [g.instruction for g in gradients], len(gradients), joint, pace)

    def _cut(self, name: str, inputs: Sequence[Instruction], targets: Sequence[Instruction], count: int,
             joint: FlatJoint | None = None, pace: Sequence[Instruction] = ()) -> XlaComputation:
        """A program of its own out of a joint one, returning the first `count` targets."""
        builder = XlaBuilder(name)
        given = {i: builder.parameter(k, i.shape.without_layout(), i.name) for k, i in enumerate(inputs)}
        built = rebuild(builder, (joint or self.joint).builder.instructions, given, targets, pace=pace)
        return self._closed(builder, built[:count])


def _array_leaves(shapes: Any) -> list[Shape]:
    return [leaf for shape in shapes for leaf in shape.leaves() if leaf.is_array]


class _Program(torch.autograd.Function):
    """One run of a program in the autograd graph."""

    @staticmethod
    def forward(plan: Plan, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return plan.forward.run_flat(tensors, tensors[0].device)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        plan, *tensors = inputs
        ctx.plan = plan
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*(tensors[k] for k in plan.read), *(output[k] for k in plan.kept))
        constant = plan.constant
        if forward_ad._current_level >= 0:
            ctx.save_for_forward(*tensors)
            constant = plan.integral  # the others may have a tangent
        ctx.mark_non_differentiable(*(output[k] for k in constant))

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        plan: Plan = ctx.plan
        present = tuple(ct is not None for ct in cotangents)
        if any(present[k] for k in plan.constant):
            present = tuple(there and k not in plan.constant for k, there in enumerate(present))
        given = [ct for ct, there in zip(cotangents, present, strict=True) if there and ct is not None]
        needed = ctx.needs_input_grad
        wanted = [k for k in plan.wanted if needed[1 + k]]
        gradients: list[torch.Tensor | None] = [None] * (1 + plan.inputs)
        if given and wanted:
            kept = [*ctx.saved_tensors, *given]
            del given
            ctx.maybe_clear_saved_tensors()  # unless the graph is retained
            found = _run(plan.backward(present, tuple(wanted)), kept)
            for k, gradient in zip(wanted, found, strict=True):
                gradients[1 + k] = gradient
        return tuple(gradients)

    @staticmethod
    def jvp(ctx: Any, *tangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        plan: Plan = ctx.plan
        given = tangents[1:]
        program = plan.tangents(tuple(t is not None for t in given))
        found = iter(_run(program, [*ctx.saved_tensors, *(t for t in given if t is not None)]))
        return tuple(None if k in plan.integral else next(found) for k in range(plan.returned))

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], plan: Plan, *tensors: torch.Tensor) -> tuple[Any, Any]:
        try:
            program, axes = plan.batched(info.batch_size, in_dims[1:])
        except UnsupportedError:  # arrays of dynamic size
            return _one_by_one(plan.forward, info.batch_size, in_dims[1:], tensors)
        return _run(program, list(tensors)), tuple(axes)


def _run(program: XlaComputation, tensors: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """A derived program on flat arguments that fit it, recorded where it is differentiated itself, and only there. Empties
    the list otherwise."""
    if is_differentiated(tensors):
        return call_with_autograd(program, tensors)
    return program.run_freeing(tensors, tensors[0].device)


_apply: Any = super(torch.autograd.Function, _Program).apply  # pyright: ignore[reportAttributeAccessIssue]
"""What `Function.apply` does where there is no transform, without looking at the signature of `forward` each time."""


def _one_by_one(program: XlaComputation, size: int, axes: Sequence[int | None],
                tensors: Sequence[torch.Tensor]) -> tuple[tuple[torch.Tensor, ...], tuple[int, ...]]:
    """A batch, one example after the other. Raises UnsupportedError where results differ in size."""
    rows = [call_with_autograd(program, [t if a is None else t.select(a, k) for t, a in zip(tensors, axes, strict=True)])
            for k in range(size)]
    columns = list(zip(*rows, strict=True))
    if not rows or any(t.shape != column[0].shape for column in columns for t in column):
        raise UnsupportedError("a program with arrays of dynamic size cannot run on this batch", subject=program.name,
                               expected="one example at least, and results of equal sizes",
                               hint="pad the results to their bounds")
    return tuple(map(torch.stack, columns)), (0,) * len(columns)
