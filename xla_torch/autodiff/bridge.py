"""The bridge to torch.autograd: a whole program is one node of the autograd graph.

Calling a program on tensors that require grad runs its forward part, which also returns the values that the way back
needs; `backward` runs the backward part. Both are programs cut out of one joint program and are derived once for each set
of inputs that require grad. Where the backward pass itself is to be differentiated (`create_graph`), the gradient is
computed by a program of the inputs and cotangents, through this same bridge.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..builder import XlaBuilder, XlaOp
from ..computation import XlaComputation
from ..hlo.ir import Instruction
from ..shape import Shape
from ..transform.inline import Value, as_op, make_tuple, regrouped
from .activity import Flags
from .engine import Cotangent, materialised
from .program import Joint, frozen, plain_entry
from .residuals import WHOLE_PROGRAM, effects, rebuild, saved_values
from .sharing import SharingBuilder


def call_with_autograd(computation: XlaComputation, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The program's flat results for flat, checked arguments, recorded for torch.autograd.

    Results of integer and PRED type, and those that depend on no argument that requires grad, are marked as not
    differentiable. Raises DifferentiationError if an op on the way has no gradient.
    """
    needs = tuple(t.requires_grad for t in tensors)
    plan = computation.derived(("autograd", needs), lambda: Plan(computation, needs))
    return _Program.apply(plan, *tensors)[:plan.outputs]


class Plan:
    """A program's forward with residuals and its backward programs, for one set of inputs that require grad.

    What autograd keeps is numbered through: the inputs, then what the forward program returns.
    """

    def __init__(self, computation: XlaComputation, needs: Sequence[bool]):
        entry = plain_entry(computation)
        self.name, self._lock = computation.name, threading.RLock()
        self._programs: dict[Any, XlaComputation] = {}
        self.builder = builder = SharingBuilder(computation.name)
        self.arguments, values, active = _flat_parameters(builder, [p.shape for p in entry.parameters], needs)
        self.joint = Joint(builder, entry, values, active)
        forward_part = list(builder.instructions)
        self.wanted = [k for k, a in enumerate(self.arguments) if needs[k] and a.element_type.is_differentiable]
        self.cotangents = self.joint.cotangent_parameters(self.joint.varying)
        self.seeds = [c for c, leaf in zip(self.cotangents, self.joint.outputs, strict=True) if leaf.shape.is_array]
        results = [leaf.instruction for leaf in self.joint.outputs if leaf.shape.is_array]
        gradients = self._gradients(self.cotangents, self.wanted)
        self.saved = saved_values(forward_part, [g.instruction for g in gradients], [a.instruction for a in self.arguments],
                                  WHOLE_PROGRAM)
        returned = [*results, *(s for s in self.saved if s not in results)]
        self.outputs = len(results)
        self.kept = [returned.index(s) for s in self.saved]
        self.constant = [k for k in range(len(returned)) if k >= self.outputs or self.seeds[k] is None]
        self.forward = self._forward(returned, effects(forward_part))

    def _forward(self, returned: Sequence[Instruction], more: Sequence[Instruction]) -> XlaComputation:
        builder = XlaBuilder(self.name)
        given = {a.instruction: builder.parameter(k, a.shape, a.instruction.name) for k, a in enumerate(self.arguments)}
        built = rebuild(builder, self.builder.instructions, given, [*returned, *more])
        return builder.build(make_tuple(builder, built[:len(returned)]))

    def backward(self, present: tuple[bool, ...], wanted: tuple[bool, ...]) -> XlaComputation:
        """The program from inputs, saved values and the present cotangents to the wanted gradients."""
        return self._derived(("backward", present, wanted), lambda: self._backward(present, wanted))

    def again(self, present: tuple[bool, ...], wanted: tuple[bool, ...]) -> XlaComputation:
        """The same gradients as a program of the inputs and the present cotangents alone, to be differentiated."""
        return self._derived(("again", present, wanted), lambda: self._again(present, wanted))

    def _derived(self, key: Any, make: Callable[[], XlaComputation]) -> XlaComputation:
        found = self._programs.get(key)
        if found is None:
            with self._lock:
                found = self._programs.get(key) or self._programs.setdefault(key, make())
        return found

    def _backward(self, present: Sequence[bool], wanted: Sequence[bool]) -> XlaComputation:
        seeds, targets = self._targets(present, wanted)
        builder = XlaBuilder(f"{self.name}_backward")
        inputs = [*(a.instruction for a in self.arguments), *self.saved, *(s.instruction for s in seeds)]
        given = {i: builder.parameter(k, i.shape.without_layout(), i.name) for k, i in enumerate(inputs)}
        return builder.build(make_tuple(builder, rebuild(builder, self.builder.instructions, given, targets)))

    def _again(self, present: Sequence[bool], wanted: Sequence[bool]) -> XlaComputation:
        seeds, targets = self._targets(present, wanted)
        builder = XlaBuilder(f"{self.name}_vjp")
        inputs = [*self.arguments, *seeds]
        given = {i.instruction: builder.parameter(k, i.shape.without_layout(), i.instruction.name) for k, i in enumerate(inputs)}
        return builder.build(make_tuple(builder, rebuild(builder, self.builder.instructions, given, targets)))

    def _targets(self, present: Sequence[bool], wanted: Sequence[bool]) -> tuple[list[XlaOp], list[Instruction]]:
        """The cotangents that are there, and the wanted gradients in the joint program."""
        chosen = [c is not None and flag for c, flag in zip(self.seeds, present, strict=True)]
        seeds = [c for c, flag in zip(self.seeds, chosen, strict=True) if c is not None and flag]
        gradients = self._gradients([c if c in seeds else None for c in self.cotangents], [k for k in self.wanted if wanted[k]])
        return seeds, [g.instruction for g in gradients]

    def _gradients(self, cotangents: Sequence[XlaOp | None], wanted: Sequence[int]) -> list[XlaOp]:
        """The wanted inputs' gradients, added to the joint program."""
        found: list[Cotangent] = []
        for ct, parameter in zip(self.joint.backward(cotangents), self.joint.entry.parameters, strict=True):
            found += _cotangent_leaves(ct, parameter.shape)
        return [as_op(self.builder, materialised(self.builder, found[k], self.arguments[k].shape.without_layout()))
                for k in wanted]


def _flat_parameters(builder: XlaBuilder, shapes: Sequence[Shape],
                     needs: Sequence[bool]) -> tuple[list[XlaOp], list[Value], list[Flags]]:
    """A parameter for each array leaf; and the values and flags of the program's own parameters, made of them."""
    arguments: list[XlaOp] = []
    values: list[Value] = []
    active: list[Flags] = []
    for shape in shapes:
        parts: list[XlaOp] = []
        flags: list[bool] = []
        for leaf in shape.leaves():
            if leaf.is_array:
                flags.append(needs[len(arguments)])
                arguments.append(builder.parameter(len(arguments), leaf))
            parts.append(arguments[-1] if leaf.is_array else builder.add("after-all"))
            flags += [] if leaf.is_array else [False]
        values.append(regrouped(parts, shape))
        active.append(frozen(regrouped(flags, shape)))
    return arguments, values, active


def _cotangent_leaves(ct: Cotangent, shape: Shape) -> list[Cotangent]:
    """The cotangents of a parameter's array leaves."""
    if shape.is_tuple:
        parts = ct if isinstance(ct, tuple) else (None,) * len(shape.tuple_shapes)
        return [leaf for c, s in zip(parts, shape.tuple_shapes, strict=True) for leaf in _cotangent_leaves(c, s)]
    return [ct] if shape.is_array else []


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
        ctx.mark_non_differentiable(*(output[k] for k in plan.constant))
        ctx.save_for_backward(*tensors, *(output[k] for k in plan.kept))

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        plan: Plan = ctx.plan
        present = tuple(ct is not None for ct in cotangents[:plan.outputs])
        wanted = tuple(ctx.needs_input_grad[1:])
        numbers = [k for k in plan.wanted if wanted[k]]
        if not any(present) or not numbers:
            return (None,) * len(ctx.needs_input_grad)
        given = [ct for ct in cotangents if ct is not None]
        saved = ctx.saved_tensors
        if torch.is_grad_enabled():
            inputs = saved[:len(plan.arguments)]
            found = plan.again(present, wanted)(*inputs, *given)
        else:
            found = plan.backward(present, wanted).run_flat([*saved, *given], given[0].device)
        gradients: list[torch.Tensor | None] = [None] * len(ctx.needs_input_grad)
        for k, gradient in zip(numbers, found, strict=True):
            gradients[k + 1] = gradient
        return tuple(gradients)
