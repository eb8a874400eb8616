"""The bridge to torch: a whole program is one node, for torch.autograd, for forward mode and for torch.func.

Calling a program on tensors that require grad runs its forward part, which also returns the values that the way back
needs; `backward` runs the backward part. Both are programs cut out of one joint program and are derived once for each set
of inputs that require grad. Where the way back is itself to be differentiated (`create_graph`, and everything in
torch.func), the backward part is called through this same bridge. What the forward part returned besides its results then
gets cotangents too, so nothing is run twice.

Forward mode runs the program of values and tangents, torch.func.vmap the program for a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..core.errors import UnsupportedError
from ..distributed.participant import again_as, current_participant
from ..storage import torch_private
from .graphs import without_gradient
from .members import Member, MemberPlan, WayBack
from .program import Mask, Plan, Program


def is_differentiated(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether a call is more than a run: autograd records it, or will record what torch.export writes down; tangents go through
    it, or a torch.func transform is on."""
    if torch.is_grad_enabled():  # asked of each by a loop: a generator takes as long as four tensors
        for tensor in tensors:
            if tensor.requires_grad:
                return True
        if tensors and torch.compiler.is_exporting():
            return True
    return bool(tensors) and (torch_private.forward_mode_is_on() or torch_private.transforms_are_active())


def call_with_autograd(program: Program | Member, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The program's flat results for flat, checked arguments, recorded for torch.autograd, forward mode and torch.func.

    Results of integer and PRED type, and those that depend on no argument that requires grad, are marked as not
    differentiable. An op without gradient raises DifferentiationError when a backward pass comes to it, not before.
    """
    transformed = torch_private.transforms_are_active()
    graphed = torch_private.is_graphed()
    if graphed and torch.compiler.is_exporting():
        return without_gradient(program.run(tensors, tensors[0].device))
    needed = _needs_under_transforms(tensors) if transformed else tuple(t.requires_grad for t in tensors)
    plan = program.plan(needed, transformed or graphed)
    if transformed:
        return _Program.apply(plan, *tensors)[:plan.outputs]
    return _apply(plan, *torch_private.without_dead_wrappers(tuple(tensors)))[:plan.outputs]


def _needs_under_transforms(tensors: Sequence[torch.Tensor]) -> Mask:
    """Which tensors some transform differentiates, down to the next vmap: below it the batched program has a plan of its own."""
    if torch_private.transforms_are_vmap()[-1:] == [True]:
        return (False,) * len(tensors)
    return tuple(map(_is_tracked, tensors))


def _is_tracked(tensor: torch.Tensor) -> bool:
    while torch_private.is_wrapped(tensor):
        if tensor.requires_grad or torch_private.is_batched(tensor):
            return tensor.requires_grad
        tensor = torch_private.unwrapped(tensor)
    return tensor.requires_grad


class _Program(torch.autograd.Function):
    """One run of a program in the autograd graph."""

    @staticmethod
    def forward(plan: Plan | MemberPlan, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return plan.forward.run(tensors, tensors[0].device)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        plan, *tensors = inputs
        ctx.plan, ctx.participant = plan, current_participant()
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*(tensors[k] for k in plan.read), *(output[k] for k in plan.kept))
        constant = plan.constant
        if torch_private.forward_mode_is_on():
            ctx.save_for_forward(*tensors)
            constant = plan.integral  # the others may have a tangent
        ctx.mark_non_differentiable(*(output[k] for k in constant))

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        plan: Plan | MemberPlan = ctx.plan
        present = tuple(ct is not None for ct in cotangents)
        if any(present[k] for k in plan.constant):
            present = tuple(there and k not in plan.constant for k, there in enumerate(present))
        given = [ct for ct, there in zip(cotangents, present, strict=True) if there and ct is not None]
        needed = ctx.needs_input_grad
        wanted = [k for k in plan.wanted if needed[1 + k]]
        gradients: list[torch.Tensor | None] = [None] * (1 + plan.inputs)
        if given and wanted:
            saved = ctx.saved_tensors
            if is_differentiated([*saved, *given]) and plan.again is not plan:
                plan, saved = plan.again, saved[:plan.inputs]
                given, present = given[:sum(present[:plan.outputs])], present[:plan.outputs]
            kept = [*saved, *given]
            del saved, given
            ctx.maybe_clear_saved_tensors()  # unless the graph is retained
            with again_as(ctx.participant):
                found = _run(plan.backward(present, tuple(wanted)), kept)
            for k, gradient in zip(wanted, found, strict=True):
                gradients[1 + k] = gradient
        return tuple(gradients)

    @staticmethod
    def jvp(ctx: Any, *tangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        plan: Plan | MemberPlan = ctx.plan
        given = tangents[1:]
        program = plan.again.forward.tangents(tuple(t is not None for t in given))
        with again_as(ctx.participant):
            found = iter(_run(program, [*ctx.saved_tensors, *(t for t in given if t is not None)]))
        return tuple(None if k in plan.integral else next(found) for k in range(plan.returned))

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], plan: Plan, *tensors: torch.Tensor) -> tuple[Any, Any]:
        draws = plan.forward.draws
        if draws and info.randomness == "error":
            raise _of_randomness(plan.forward, "torch.func.vmap was not told for whom")
        if draws and info.randomness == "different":
            return _one_by_one(plan.forward, info.batch_size, in_dims[1:], tensors)
        try:
            program, axes = plan.forward.batched(info.batch_size, in_dims[1:])
        except UnsupportedError:  # arrays of dynamic size
            if draws:
                raise
            return _one_by_one(plan.forward, info.batch_size, in_dims[1:], tensors)
        if [(i.shape, once) for i, once in draws] != [(i.shape, once) for i, once in program.draws]:
            raise _of_randomness(plan.forward, "each example has a distribution of its own")
        return _run(program, list(tensors)), tuple(axes)


def _of_randomness(program: Program, why: str) -> UnsupportedError:
    """What vmap says of a program whose draws cannot be what `randomness` wants."""
    draw, _ = program.draws[0]
    return UnsupportedError(f"the program draws random numbers, and {why}", subject=program.name, got=draw, where=draw.where,
                            hint='pass randomness="different" to draw for each example, or "same" to draw once for all')


def _run(program: Program | WayBack, tensors: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """A derived program on flat arguments that fit it, recorded where it is differentiated itself, and only there. Empties
    the list otherwise."""
    if is_differentiated(tensors):
        assert isinstance(program, Program)  # a way back that is shared is never differentiated itself
        return call_with_autograd(program, tensors)
    return program.run_freeing(tensors, tensors[0].device)


_apply = torch_private.plain_apply(_Program)


def _one_by_one(program: Program, size: int, axes: Sequence[int | None],
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
