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

from ..builder import XlaBuilder
from ..computation import XlaComputation
from ..errors import DifferentiationError
from ..hlo.ir import Instruction
from ..transform.inline import make_tuple
from .flat import FlatJoint
from .program import plain_entry
from .residuals import WHOLE_PROGRAM, effects, rebuild, saved_values

Mask = tuple[bool, ...]


def call_with_autograd(computation: XlaComputation, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The program's flat results for flat, checked arguments, recorded for torch.autograd.

    Results of integer and PRED type, and those that depend on no argument that requires grad, are marked as not
    differentiable. An op without gradient raises DifferentiationError when a backward pass comes to it, not before.
    """
    needs = tuple(t.requires_grad for t in tensors)
    plan = computation.derived(("autograd", needs), lambda: _plan(computation, needs))
    return _Program.apply(plan, *tensors)[:plan.outputs]


def _plan(computation: XlaComputation, needs: Mask) -> Plan:
    try:
        return SplitPlan(computation, needs)
    except DifferentiationError:
        return Plan(computation, needs)


class Plan:
    """How a program with one set of inputs that require grad is run and walked back. Here: run as it is, and computed
    once more on the way back, which is derived only then and only from the results that are used.

    What autograd keeps is numbered through: the inputs, then the results number `kept` of the forward program.
    `constant` are the forward program's results without gradient, `wanted` the inputs with one.
    """

    def __init__(self, computation: XlaComputation, needs: Mask):
        self.name, self.entry = computation.name, plain_entry(computation)
        self._lock = threading.RLock()
        self._programs: dict[Any, XlaComputation] = {}
        inputs = [leaf for p in self.entry.parameters for leaf in p.shape.leaves() if leaf.is_array]
        results = [leaf for leaf in self.entry.root.shape.leaves() if leaf.is_array]
        self.inputs, self.outputs = len(inputs), len(results)
        self.wanted = [k for k, leaf in enumerate(inputs) if needs[k] and leaf.element_type.is_differentiable]
        self.constant = [k for k, leaf in enumerate(results) if not leaf.element_type.is_differentiable]
        self.kept: list[int] = []
        self.forward = computation

    def backward(self, present: Mask, wanted: Mask) -> XlaComputation:
        """The program from what autograd keeps and the present cotangents to the wanted gradients."""
        return self.again(present, wanted)

    def again(self, present: Mask, wanted: Mask) -> XlaComputation:
        """The same gradients as a program of the inputs and the present cotangents alone, to be differentiated."""
        return self._derived(("again", present, wanted), lambda: self._again(present, wanted))

    def _again(self, present: Mask, wanted: Mask) -> XlaComputation:
        joint = FlatJoint(f"{self.name}_vjp", self.entry, wanted, present)
        gradients = joint.gradients(joint.cotangents(present), [k for k in self.wanted if wanted[k]])
        return joint.builder.build(make_tuple(joint.builder, gradients))

    def _derived(self, key: Any, make: Callable[[], XlaComputation]) -> XlaComputation:
        found = self._programs.get(key)
        if found is None:
            with self._lock:
                found = self._programs.get(key) or self._programs.setdefault(key, make())
        return found


class SplitPlan(Plan):
    """A plan whose forward program also returns what the way back needs. Raises DifferentiationError."""

    def __init__(self, computation: XlaComputation, needs: Mask):
        super().__init__(computation, needs)
        self.joint = FlatJoint(self.name, self.entry, needs)
        self.cotangents = self.joint.cotangents(self.joint.varying)
        gradients = self.joint.gradients(self.cotangents, self.wanted)
        self.saved = saved_values(self.joint.forward_part, [g.instruction for g in gradients],
                                  [a.instruction for a in self.joint.arguments], WHOLE_PROGRAM)
        results = [r.instruction for r in self.joint.results]
        returned = [*results, *(s for s in self.saved if s not in results)]
        self.kept = [returned.index(s) for s in self.saved]
        self.constant = [k for k in range(len(returned)) if k >= self.outputs or self.cotangents[k] is None]
        self.forward = self._forward(returned)

    def _forward(self, returned: Sequence[Instruction]) -> XlaComputation:
        targets = [*returned, *effects(self.joint.forward_part)]
        return self._cut(self.name, [a.instruction for a in self.joint.arguments], targets, len(returned))

    def backward(self, present: Mask, wanted: Mask) -> XlaComputation:
        return self._derived(("backward", present, wanted), lambda: self._backward(present, wanted))

    def _backward(self, present: Mask, wanted: Mask) -> XlaComputation:
        seeds = [ct if there else None for ct, there in zip(self.cotangents, present, strict=True)]
        gradients = self.joint.gradients(seeds, [k for k in self.wanted if wanted[k]])
        inputs = [*(a.instruction for a in self.joint.arguments), *self.saved, *(s.instruction for s in seeds if s is not None)]
        return self._cut(f"{self.name}_backward", inputs, [g.instruction for g in gradients], len(gradients))

    def _cut(self, name: str, inputs: Sequence[Instruction], targets: Sequence[Instruction], count: int) -> XlaComputation:
        """A program of its own out of the joint one, returning the first `count` targets."""
        builder = XlaBuilder(name)
        given = {i: builder.parameter(k, i.shape.without_layout(), i.name) for k, i in enumerate(inputs)}
        built = rebuild(builder, self.joint.builder.instructions, given, targets)
        return builder.build(make_tuple(builder, built[:count]))


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
        given = [ct for ct in cotangents if ct is not None]
        present = tuple(ct is not None for ct in cotangents[:plan.outputs])
        needed = ctx.needs_input_grad[1:]
        wanted = tuple(k in plan.wanted and needed[k] for k in range(plan.inputs))
        gradients: list[torch.Tensor | None] = [None] * (1 + plan.inputs)
        if not given or not any(wanted):
            return tuple(gradients)
        saved = ctx.saved_tensors
        if torch.is_grad_enabled():
            found = plan.again(present, wanted)(*saved[:plan.inputs], *given)
        else:
            found = plan.backward(present, wanted).run_flat([*saved, *given], given[0].device)
        for k, gradient in zip((k for k, flag in enumerate(wanted) if flag), found, strict=True):
            gradients[1 + k] = gradient
        return tuple(gradients)
