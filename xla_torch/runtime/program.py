"""A program and the programs derived from it: of its gradients, tangents and batches, in other ways to run, and in plain HLO.

A derived program is a program again, which has derivatives of its own. A `Plan` says which program runs where some of the inputs
are differentiated, and what the way back reads.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx

from .. import autodiff, batching, stablehlo
from ..autodiff.options import DEFAULT, GradientOptions
from ..core.errors import DifferentiationError
from ..core.forks import Lock, cached_property
from ..core.shape import Shape
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.derivatives import AS_WRITTEN, AsWritten, Lost, bringing
from ..hlo.ir import Computation, Instruction, Module
from ..hlo.stacks import is_stack_call
from ..transform.other_readers import for_other_readers, without_checks
from .backends import EAGER, FASTEST, XLA, Backend, Choice, Run
from .caches import RuleCache
from .execution import Execution
from .for_xla import module_for_xla
from .forms import Forms

Mask = tuple[bool, ...]
Axes = tuple[int | None, ...]


class Program(Forms):
    """A module, how its gradients are found, and the backend that runs it (`execution.py`). It does not change.

    Arguments and results are flat here: the array leaves of parameters and root, depth first. Whoever calls has checked them.
    `portable` makes the same program in plain HLO, where this one is not. The rest is as in `Forms`.

    The last inputs of a way back are its `cotangents`. Autograd takes them as gradients, too: `run_freeing` does not copy them.
    """

    cotangents = 0

    def __init__(self, module: Module, options: GradientOptions | None = None, backend: Backend = EAGER,
                 by_calls: Computation | None = None, by_ops: bool = False, dropped: Sequence[Lost] | None = None,
                 portable: Callable[[], Program] | None = None):
        super().__init__(module, by_calls, by_ops, dropped)
        if backend in (XLA, FASTEST):  # what XLA runs, too, needs gradients in plain HLO
            options = dataclasses.replace(options or DEFAULT, portable=True)
        self.options, self.backend, self._made_portable = options, backend, portable
        # A weak reference: a strong one would keep the program, and its constants, until Python looks for cycles.
        self._execution, lock = Execution(weakref.proxy(self), backend), Lock()
        self._plans: RuleCache[tuple[Mask, bool], Plan] = RuleCache(lock)
        self._tangents: RuleCache[Mask, Program] = RuleCache(lock)
        self._batched: RuleCache[tuple[int, Axes], tuple[Program, list[int | None]]] = RuleCache(lock)

    @property
    def own(self) -> Program:
        """The program itself, as a `Member` has one."""
        return self

    def derived(self, entry: Computation, by_calls: Computation | None = None, loses: bool = False,
                portable: Callable[[], Program] | None = None) -> Program:
        """A program made of this one: for as many participants, with the same gradient options, run in the same way. Calls
        that the entry was made with are opened where it runs, and stay where it is differentiated: then `by_calls` takes its
        place, which is the entry itself unless given. `loses` says that what this program brings of derivatives is lost, and
        `portable` makes the same program in plain HLO, should it have what only this package runs."""
        if by_calls is None and autodiff.calls.has_calls(entry):
            by_calls, entry = entry, autodiff.calls.opened(entry)
        dropped = () if self._warned else self.dropped_derivatives
        if isinstance(self.module.entry.derivatives, AsWritten) and entry.derivatives is None:
            entry = bringing(entry, AS_WRITTEN)
        if loses and self._rules:
            dropped = (*dropped, Lost(self._rules, "examples meet in a program that was made for another batch",
                                "differentiate the program for the batch that it was traced for"))
        return Program(Module(entry.name, entry, self.participants), self.options, self.backend, by_calls, self.by_ops, dropped,
                       portable)

    def again(self, options: GradientOptions | None, backend: Backend) -> Program:
        """The same program with other gradient options, or run in another way."""
        dropped = () if self._warned else self.dropped_before
        return Program(self.module, options, backend, self.by_calls, self.by_ops, dropped, self._made_portable)

    @cached_property
    def portable(self) -> Program:
        """The program as others run it, who have no stacks that grow: itself where it needs none, or where there is no other way
        (random numbers in a loop of unknown length)."""
        if self._made_portable is None or not any(is_stack_call(i) for c in self.module.computations for i in c.instructions):
            return self
        try:
            return self._made_portable()
        except DifferentiationError:
            return self

    @cached_property
    def for_xla(self) -> Module:
        """The program as XLA can run it. Raises UnsupportedError where it cannot."""
        source = self.portable
        written = for_other_readers(source.stated)
        return module_for_xla(written, lambda: without_checks(Module(written.name, source.canonical)).entry, source.participants)

    def stablehlo(self) -> bytes:
        """What XLA can run, as StableHLO bytecode."""
        return stablehlo.writing.module.to_stablehlo_bytecode(self.for_xla)

    # ---- running (see `Execution`)

    def run(self, tensors: Sequence[torch.Tensor], device: torch.device) -> tuple[torch.Tensor, ...]:
        """The results, without autograd."""
        return self._execution.run(tensors, device)

    def run_plain(self, tensors: Sequence[torch.Tensor], device: torch.device) -> tuple[torch.Tensor, ...]:
        """Like `run`, where autocast is off and nothing is traced or transformed (`torch_private.does_more_than_compute`)."""
        return self._execution.run_plain(tensors, device)

    def run_freeing(self, tensors: list[torch.Tensor], device: torch.device) -> tuple[torch.Tensor, ...]:
        """Like `run`, on a list that is emptied: what nobody else holds is freed after its last use, during the run."""
        return self._execution.run_freeing(tensors, device)

    def runner(self, device: torch.device) -> Run:
        """What `run` calls, which must be called without autograd and autocast."""
        return self._execution.runner(device)

    def lowered(self, device: torch.device) -> torch.fx.GraphModule:
        """The program as a GraphModule for a device."""
        return self._execution.lowered(device)

    def reason_not_capturable(self, needed: Mask) -> str:
        """Why it, or the way back to the inputs that are `needed`, cannot be in a graph that torch makes; empty where it can."""
        return self._execution.reason_not_capturable(needed)

    @property
    def choices(self) -> Sequence[Choice]:
        """Return what the fastest backend has chosen so far."""
        return [*self._execution.choices.values()]

    # ---- derivatives

    def plan(self, needed: Mask, sized: bool) -> Plan:
        """How the program is run and walked back where these inputs are differentiated. Under transforms of torch.func what is
        kept must be `sized`, so that it can be batched."""
        return self._plans.get((needed, sized), self._make_plan)

    def tangents(self, present: Mask) -> Program:
        """The program from the inputs and their present tangents to the tangents of the floating and complex results."""
        return self._tangents.get(present, self._make_tangents)

    def batched(self, size: int, axes: Axes) -> tuple[Program, list[int | None]]:
        """The program for a batch, from inputs that have it at these axes, and the results' axes. Raises UnsupportedError."""
        return self._batched.get((size, axes), self._make_batched)

    def _make_plan(self, key: tuple[Mask, bool]) -> Plan:
        needed, sized = key
        if not any(needed):
            return Plan(self, needed)
        self.to_differentiate()
        try:
            plan = SplitPlan(self, needed, differentiated_again=sized)
        except DifferentiationError:
            return Plan(self, needed)
        return plan if plan.is_sized or not sized else Plan(self, needed)

    def _make_tangents(self, present: Mask) -> Program:
        return self.derived(autodiff.flat.flat_tangents(f"{self.name}_jvp", self.to_differentiate(), present))

    def _make_batched(self, key: tuple[int, Axes]) -> tuple[Program, list[int | None]]:
        entry, axes = batching.programs.flat_batched(f"vmap_{self.name}", self.differentiable, *key)
        return self.derived(entry), axes


class Plan:
    """How a program with one set of inputs that require grad is run and walked back. Here: run as it is, and computed
    once more on the way back, which is derived only then and only from the results that are used.

    `forward` is the program that runs; it returns `returned` arrays: the results and what else is kept. Autograd keeps the
    inputs number `read` and of those arrays the ones number `kept`. `constant` are the arrays without gradient (`integral`
    those without one by their type) and `wanted` the inputs with one. `again` is the plan by which a way back that is
    differentiated itself goes, and tangents.
    """

    def __init__(self, program: Program, needed: Mask):
        self.program, self.entry, self.options = program, program.differentiable, program.options or DEFAULT
        inputs, results = _array_leaves(p.shape for p in self.entry.parameters), _array_leaves([self.entry.root.shape])
        self.inputs, self.outputs = len(inputs), len(results)
        self.wanted = [k for k, leaf in enumerate(inputs) if needed[k] and leaf.element_type.is_differentiable]
        self.integral = [k for k, leaf in enumerate(results) if not leaf.element_type.is_differentiable]
        self.constant = self.integral
        self.read, self.kept = list(range(self.inputs)), []
        self.forward, self.returned = program, self.outputs
        self.again: Plan = self
        self._backward: RuleCache[tuple[Mask, tuple[int, ...]], Program] = RuleCache(Lock())

    def backward(self, present: Mask, wanted: tuple[int, ...]) -> Program:
        """The program from what autograd keeps, and the present cotangents of the forward program's results, to the gradients
        of the inputs number `wanted`."""
        return self._backward.get((present, wanted), self._make_backward)

    def _make_backward(self, key: tuple[Mask, tuple[int, ...]]) -> Program:
        present, wanted = key
        joint = autodiff.flat.FlatJoint(f"{self.program.name}_vjp", self.entry, self._flags(wanted), present, self.options)
        gradients = joint.gradients(joint.cotangents(present), wanted)
        return self._closed(joint.builder, gradients, sum(present))

    def _flags(self, numbers: Sequence[int]) -> Mask:
        return tuple(k in numbers for k in range(self.inputs))

    def _closed(self, builder: Builder, results: Sequence[XlaOp], cotangents: int = 0) -> Program:
        found = self.program.derived(autodiff.derivatives.finished(builder, list(results)))
        found.cotangents = cotangents
        return found


class SplitPlan(Plan):
    """A plan whose forward program also returns what the way back needs. Raises DifferentiationError.

    Where the program brings derivatives and the way back will be `differentiated_again`, both parts keep them, and residuals are
    what these derivatives say. Otherwise both are made of ops alone, of which what is kept is chosen: `again` is then the plan
    to walk back by where the way back is differentiated after all.
    """

    def __init__(self, program: Program, needed: Mask, differentiated_again: bool):
        super().__init__(program, needed)
        opens = program.differentiable is not program.canonical and not differentiated_again
        if opens:
            self.again = Plan(program, needed)
        self.joint = autodiff.flat.FlatJoint(program.name, self.entry, needed, None, self.options, opens)
        self.cotangents = self.joint.cotangents(self.joint.varying)
        arguments = [a.instruction for a in self.joint.arguments]
        gradients = [g.instruction for g in self.joint.gradients(self.cotangents, self.wanted)] + self.joint.effects
        # What is made of constants alone is made again: the lowering folds it.
        residuals = autodiff.residuals
        free = [*arguments, *residuals.unchanging(self.joint.forward_part, [])]
        self.saved = residuals.saved_values(self.joint.forward_part, gradients, free, residuals.WHOLE_PROGRAM)
        results = [r.instruction for r in self.joint.results]
        returned = [*results, *(s for s in self.saved if s not in results)]
        self.kept = [returned.index(s) for s in self.saved]
        if not self.kept and self.again is self:  # all derivatives are functions of what the backward part reads
            used = residuals.needs(gradients, arguments)
            self.read = [k for k, a in enumerate(arguments) if a in used]
        self.integral = [k for k, r in enumerate(returned) if not r.shape.element_type.is_differentiable]
        if opens:  # nor have residuals a gradient or tangent, since `again` does not keep them
            self.integral = [k for k in self.integral if k < len(results)] + list(range(len(results), len(returned)))
        varying = [ct is not None for ct in self.cotangents] + [True] * (len(returned) - len(results))
        self.constant = [k for k, flag in enumerate(varying) if not flag or k in self.integral]
        self.returned = len(returned)
        effects = residuals.effects(self.joint.forward_part)
        self.forward = self._cut(program.name, arguments, [*returned, *effects], len(returned))

    @property
    def is_sized(self) -> bool:
        """Whether all that is kept has a size that is known beforehand."""
        return all(s.shape.is_static for s in self.saved)

    def _make_backward(self, key: tuple[Mask, tuple[int, ...]]) -> Program:
        present, wanted = key
        if any(present[self.outputs:]):
            return self._backward_of_all(present, wanted)
        seeds = [ct if there else None for ct, there in zip(self.cotangents, present, strict=False)]
        gradients = self.joint.gradients(seeds, wanted)
        return self._from_saved(self.joint, self.saved, seeds, gradients)

    def _backward_of_all(self, present: Mask, wanted: tuple[int, ...]) -> Program:
        """The way back where what was kept has cotangents too: where the way back is itself walked back."""
        name = f"{self.program.name}_again"
        joint = autodiff.flat.FlatJoint(name, self.forward.differentiable, self._flags(wanted), present, self.options)
        seeds = joint.cotangents(present)
        gradients = joint.gradients(seeds, wanted)
        return self._from_saved(joint, [joint.results[k].instruction for k in self.kept], seeds, gradients)

    def _from_saved(self, joint: autodiff.flat.FlatJoint, kept: Sequence[Instruction], seeds: Sequence[XlaOp | None],
                   gradients: Sequence[XlaOp]) -> Program:
        pace = [s.instruction for s in seeds if s is not None]
        inputs = [*(joint.arguments[k].instruction for k in self.read), *kept, *pace]
        targets = [*(g.instruction for g in gradients), *joint.effects]
        return self._cut(f"{self.program.name}_backward", inputs, targets, len(gradients), joint, pace)

    def _cut(self, name: str, inputs: Sequence[Instruction], targets: Sequence[Instruction], count: int,
             joint: autodiff.flat.FlatJoint | None = None, pace: Sequence[Instruction] = ()) -> Program:
        """A program of its own out of a joint one, returning the first `count` targets."""
        builder = Builder(name)
        given = {i: builder.parameter(k, i.shape.without_layout(), i.name) for k, i in enumerate(inputs)}
        built = autodiff.residuals.rebuild(builder, (joint or self.joint).builder.instructions, given, targets, pace=pace)
        return self._closed(builder, built[:count], len(pace))


def _array_leaves(shapes: Any) -> list[Shape]:
    return [leaf for shape in shapes for leaf in shape.leaves() if leaf.is_array]
