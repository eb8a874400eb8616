"""A program, and what is derived from it and kept with it: its canonical form, the modules that run, and its derivatives.

A derivative is a program again, which has derivatives of its own. A `Plan` says how a program is run where some of its inputs
are differentiated, and what the way back reads.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
from torch.autograd.profiler import record_function

from grad_rules._user import has_target_rule

from ..analysis.author_rules import lost_rules, stated
from ..analysis.peak import peak_bytes
from ..autodiff.calls import calling, has_calls, opened
from ..autodiff.derivatives import finished
from ..autodiff.flat import FlatJoint, flat_tangents
from ..autodiff.functions import with_functions
from ..autodiff.options import DEFAULT, GradientOptions
from ..autodiff.residuals import WHOLE_PROGRAM, effects, needs, rebuild, saved_values, unchanging
from ..batching.embedded import with_calls
from ..batching.programs import flat_batched
from ..core.budget import running
from ..core.errors import DifferentiationError
from ..core.forks import Lock, cached_property
from ..core.shape import ProgramShape, Shape
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.derivatives import AS_WRITTEN, AsWritten, Lost, bringing, brings, rules_of, warn_of
from ..hlo.ir import Computation, Instruction, Module, reachable
from ..hlo.stacks import is_stack_call
from ..kernels.native import make_native, wait_for_compilation
from ..lowering.custom_calls import check_custom_calls
from ..lowering.programs import freeing, lower
from ..opcodes.random import rng, rng_get_and_update_state
from ..partitioning.manual_regions import without_manual_regions
from ..partitioning.state import Partitioning, partitioning_of
from ..stablehlo.writing.module import to_stablehlo_bytecode
from ..storage import torch_private
from ..storage.torch_private import direct, is_traced, transforms_are_active
from ..transform.dynamic_sizes import resolve_sizes
from ..transform.expand_custom_calls import expand
from ..transform.other_readers import for_other_readers, without_checks
from . import backends
from .backends import CUDAGRAPHS, EAGER, FASTEST, INDUCTOR, XLA, Backend, Choice, FreeingRun, Run
from .caches import Cache, RuleCache
from .cuda_graphs import recorded
from .for_xla import module_for_xla
from .graphs import into_graph, reason_not_capturable
from .plain_runs import run_without_autograd
from .watching import watching

_log = logging.getLogger(__name__)

Mask = tuple[bool, ...]
Axes = tuple[int | None, ...]


class Program:
    """A module, how its gradients are found, and how it runs; all else is made of these once and kept. It does not change.

    Arguments and results are flat here: the array leaves of parameters and root, depth first. Whoever calls has checked them.
    `by_calls` is the entry with calls of computations that bring derivatives, where it was made of such. `dropped` lists
    custom derivatives that the source format could not carry; None finds them in the module.
    """

    def __init__(self, module: Module, options: GradientOptions | None = None, backend: Backend = EAGER,
                 by_calls: Computation | None = None, by_ops: bool = False, dropped: Sequence[Lost] | None = None,
                 portable: Callable[[], Program] | None = None, ranges: bool = False):
        self.by_ops = by_ops
        """Whether its user knows that it is differentiated by its ops' rules."""
        self.module, self.options, self.backend, self.by_calls = module, options, backend, by_calls
        self.dropped_before, self._warned, self._made_portable, self._ranges = dropped, False, portable, ranges
        self.choices: dict[torch.device, Choice] = {}  # of the backend that is the fastest, which it is
        if backend in (XLA, FASTEST):  # what XLA runs, too, needs gradients in plain HLO
            self.options = dataclasses.replace(options or DEFAULT, portable=True)
        lock = Lock()
        self._canonical: RuleCache[None, Computation] = RuleCache(lock)
        self._differentiable: RuleCache[None, Computation] = RuleCache(lock)
        self._lowered: Cache[torch.device, torch.fx.GraphModule] = Cache(lock)
        self._runs: Cache[torch.device, Run] = Cache(lock)
        self._freeing_runs: Cache[torch.device, FreeingRun] = Cache(lock)
        self._traced_runs: Cache[torch.device, Run] = Cache(lock)
        self._graphed: Cache[torch.device, torch.fx.GraphModule] = Cache(lock)
        self._apart: RuleCache[Mask, str] = RuleCache(lock)
        self._plans: RuleCache[tuple[Mask, bool], Plan] = RuleCache(lock)
        self._tangents: RuleCache[Mask, Program] = RuleCache(lock)
        self._batched: RuleCache[tuple[int, Axes], tuple[Program, list[int | None]]] = RuleCache(lock)

    @property
    def name(self) -> str:
        return self.module.name

    @property
    def program_shape(self) -> ProgramShape:
        return self.module.entry.program_shape

    @property
    def own(self) -> Program:
        """The program itself, as a `Member` has one."""
        return self

    @cached_property
    def partitioning(self) -> Partitioning:
        """Whether an annotated program for several partitions is about whole arrays, or about one partition's."""
        return partitioning_of(self.module)

    @property
    def participants(self) -> dict[str, int]:
        """How many the program is for, where its header says so, and as a program derived from it should say. One about whole
        arrays needs no other partition."""
        names = ["replica_count"] if self.partitioning.is_whole else ["replica_count", "num_partitions"]
        return {name: self.module.header[name] for name in names if name in self.module.header}

    def derived(self, entry: Computation, by_calls: Computation | None = None, loses: bool = False,
                portable: Callable[[], Program] | None = None) -> Program:
        """A program made of this one: for as many participants, with the same gradient options, run in the same way. Calls
        that the entry was made with are opened where it runs, and stay where it is differentiated: then `by_calls` takes its
        place, which is the entry itself unless given. `loses` says that what this program brings of derivatives is lost, and
        `portable` makes the same program in plain HLO, should it have what only this package runs."""
        if by_calls is None and has_calls(entry):
            by_calls, entry = entry, opened(entry)
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

    # ---- the form that everything starts from

    @property
    def canonical(self) -> Computation:
        """The entry as lowering, gradients and batching take it: in canonical form (see `transform/canonical.py`), with ops in
        the place of custom calls that are such ops by another name, with dynamic sizes resolved, and with the meaning that it
        has for one participant. The entry itself where it is so already, as that of a derived program is."""
        return self._canonical.get(None, self._make_canonical)

    def _make_canonical(self, _: None) -> Computation:
        entry, partitioning = self.module.entry, self.partitioning
        if partitioning.manual_regions:  # about one partition's arrays, in a program about whole ones: those of all partitions
            entry = without_manual_regions(self.module, partitioning.partitions)
        return resolve_sizes(expand(entry, stays=has_target_rule))

    @property
    def differentiable(self) -> Computation:
        """The entry as gradients, tangents and batches are derived from it: the canonical form, but with a call of each
        computation that brings its derivatives, also where that is the entry as a whole, and of each function that is spelled
        out in ops."""
        return self._differentiable.get(None, self._make_differentiable)

    @property
    def authored(self) -> Computation:
        """The canonical form with calls of the computations that bring derivatives which an author wrote, itself where there
        are none."""
        if self.by_calls is not None or self.by_ops:
            return self.by_calls or self.canonical
        if brings(self.module.entry):
            return calling(bringing(self._embedding[0] or self.canonical, self.module.entry.derivatives))
        return self._embedding[0] or self.canonical

    @property
    def brings_derivatives(self) -> bool:
        """Whether some of its derivatives are what an author wrote."""
        return self.authored is not self.canonical

    def _make_differentiable(self, _: None) -> Computation:
        return with_functions(self.authored)

    @cached_property
    def _embedding(self) -> tuple[Computation | None, list[Lost]]:
        """The entry with calls of the computations inside it that bring derivatives, and what is lost of them."""
        def canonical(computation: Computation) -> Computation:
            return resolve_sizes(expand(computation, stays=has_target_rule))

        return with_calls(self.module.entry, has_target_rule, canonical, bool(self.partitioning.manual_regions))

    @property
    def embedded(self) -> Computation:
        """The entry as other programs have it inside: with the derivatives that it brings, or what is lost of them."""
        if self.by_calls is not None:
            return self.by_calls
        entry, dropped = self.module.entry, self.dropped_before
        return entry if not dropped or entry.derivatives is not None else bringing(entry, dropped[0])

    @property
    def _rules(self) -> tuple[str, ...]:
        """The names of the rules that computations bring which derivatives are found by."""
        found = (rule for c in reachable([self.differentiable]) for rule in rules_of(c.derivatives))
        return tuple(dict.fromkeys(found))

    @property
    def stated(self) -> Module:
        """The module for printing, whose header says which rules of its author the text does not have."""
        return stated(self.module, self.by_calls)

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
        return to_stablehlo_bytecode(self.for_xla)

    @cached_property
    def dropped_derivatives(self) -> Sequence[Lost]:
        """Custom derivatives that the source format could not carry; found in the module if None was given."""
        if self.dropped_before is not None:
            return self.dropped_before
        if brings(self.module.entry):
            return ()
        return (*lost_rules(self.module), *self._embedding[1])

    def to_differentiate(self) -> Computation:
        """`differentiable`, for gradients and tangents. Warns once of dropped derivatives (LostDerivatives)."""
        entry = self.differentiable
        if not (self.by_ops or self._warned):
            self._warned = True
            if self.dropped_derivatives:
                warn_of(self.dropped_derivatives, self.name)
        return entry

    # ---- running

    def lowered(self, device: torch.device) -> torch.fx.GraphModule:
        """The program as a GraphModule for a device."""
        return self._lowered.get(device, self._lower)

    def run(self, tensors: Sequence[torch.Tensor], device: torch.device) -> tuple[torch.Tensor, ...]:
        """The results, without autograd."""
        if torch_private.profiler_is_on() and self._with_profiler_ranges is not None:
            with record_function(self.name):
                return self._with_profiler_ranges.run(tensors, device)
        self._within_limits()
        if (watched := watching()) is not None:
            return watched(self.name, self.canonical, tensors, device)
        if is_traced() or any(map(torch_private.is_batched_by_autograd, tensors)):
            return self._run_traced(tensors, device)
        return run_without_autograd(self.module.name, self._runs, self._make_run, device, *tensors)

    def _run_traced(self, tensors: Sequence[torch.Tensor], device: torch.device) -> tuple[torch.Tensor, ...]:
        """The results, by calls that write over nothing; by such as torch has in graphs, where it makes one."""
        if torch_private.is_graphed() and not transforms_are_active():
            return into_graph(self, self._graphed, tensors, device)
        return run_without_autograd(self.name, self._traced_runs, self._make_traced_run, device, *tensors)

    def runner(self, device: torch.device) -> Run:
        """What `run` calls, which must be called without autograd and autocast."""
        return self._runs.get(device, self._make_run)

    def run_freeing(self, tensors: list[torch.Tensor], device: torch.device) -> tuple[torch.Tensor, ...]:
        """Like `run`, on a list that is emptied: what nobody else holds is freed after its last use, during the run."""
        if torch_private.profiler_is_on() and self._with_profiler_ranges is not None:
            with record_function(self.name):
                return self._with_profiler_ranges.run_freeing(tensors, device)
        self._within_limits()
        if (watched := watching()) is not None:
            given = tuple(tensors)
            tensors.clear()
            return watched(self.name, self.canonical, given, device)
        if is_traced() or any(map(torch_private.is_batched_by_autograd, tensors)):
            return self._run_traced(tensors, device)
        return run_without_autograd(self.name, self._freeing_runs, self._make_freeing_run, device, tensors)

    @cached_property
    def _with_profiler_ranges(self) -> Program | None:
        """The program with ranges for torch's profiler. None if it has them already, or if another compiler runs it."""
        module = Module(self.name, self.canonical, self.participants)
        return None if self._ranges or not self._is_lowered else Program(module, self.options, self.backend, ranges=True)

    @cached_property
    def draws(self) -> list[tuple[Instruction, bool]]:
        """What draws random numbers that depend on nothing the program is given, and whether the entry does, once."""
        found = [(i, c is self.canonical) for c in reachable([self.canonical]) for i in c.instructions]
        return [(i, once) for i, once in found if i.opcode in (rng, rng_get_and_update_state)]

    def reason_not_capturable(self, needed: Mask) -> str:
        """Why it, or the way back to the inputs that are `needed`, cannot be in a graph that torch makes; empty where it can."""
        return self._apart.get(needed, lambda needed: reason_not_capturable(self, needed))

    def _within_limits(self) -> None:
        if (block := running()) is not None:
            block.takes_bytes(self.name, lambda: peak_bytes(self.canonical))

    def _lower(self, device: torch.device) -> torch.fx.GraphModule:
        check_custom_calls(self.canonical)
        if self.partitioning.about:
            _log.info("%s: %s", self.name, self.partitioning)
        module = lower(self.canonical, device, fuses=self.backend == INDUCTOR, ranges=self._ranges)
        if self.backend == INDUCTOR:
            make_native(module)
        return module

    @property
    def _is_lowered(self) -> bool:
        return self.backend in (EAGER, INDUCTOR, CUDAGRAPHS)

    def _make_run(self, device: torch.device) -> Run:
        if device.type == "meta" and self.program_shape.result.is_static:
            return backends.run_without_data(self.program_shape.result)
        if self._is_lowered:
            run = wait_for_compilation(self.lowered(device), direct, lambda run: self._runs.put(device, run))
            return recorded(self.name, self.canonical, run, device) if self.backend == CUDAGRAPHS else run
        if self.backend == XLA:
            return backends.xla_run(self.name, self.program_shape, self.stablehlo, device)
        if self.backend == FASTEST:
            of = {name: lambda name=name: self.again(self.options, name).runner(device) for name in (EAGER, XLA)}
            return backends.fastest_run(of, lambda choice: self.choices.__setitem__(device, choice))
        check_custom_calls(self.canonical)
        return backends.compiled_run(lower(self.canonical, device, blocks=False), self.backend)

    def _make_traced_run(self, device: torch.device) -> Run:
        check_custom_calls(self.canonical)
        return direct(lower(self.canonical, device, overwrites=False))

    def _make_freeing_run(self, device: torch.device) -> FreeingRun:
        if self._is_lowered and device.type != "meta" and self.backend != CUDAGRAPHS:
            return wait_for_compilation(freeing(self.lowered(device)), direct, lambda run: self._freeing_runs.put(device, run))
        return backends.consuming(self._runs.get(device, self._make_run))

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
        return self.derived(flat_tangents(f"{self.name}_jvp", self.to_differentiate(), present))

    def _make_batched(self, key: tuple[int, Axes]) -> tuple[Program, list[int | None]]:
        entry, axes = flat_batched(f"vmap_{self.name}", self.differentiable, *key)
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
        joint = FlatJoint(f"{self.program.name}_vjp", self.entry, self._flags(wanted), present, self.options)
        gradients = joint.gradients(joint.cotangents(present), wanted)
        return self._closed(joint.builder, gradients)

    def _flags(self, numbers: Sequence[int]) -> Mask:
        return tuple(k in numbers for k in range(self.inputs))

    def _closed(self, builder: Builder, results: Sequence[XlaOp]) -> Program:
        return self.program.derived(finished(builder, list(results)))


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
        self.joint = FlatJoint(program.name, self.entry, needed, None, self.options, opens)
        self.cotangents = self.joint.cotangents(self.joint.varying)
        arguments = [a.instruction for a in self.joint.arguments]
        gradients = [g.instruction for g in self.joint.gradients(self.cotangents, self.wanted)]
        # What is made of constants alone is made again: the lowering folds it.
        free = [*arguments, *unchanging(self.joint.forward_part, [])]
        self.saved = saved_values(self.joint.forward_part, gradients, free, WHOLE_PROGRAM)
        results = [r.instruction for r in self.joint.results]
        returned = [*results, *(s for s in self.saved if s not in results)]
        self.kept = [returned.index(s) for s in self.saved]
        if not self.kept and self.again is self:  # all derivatives are functions of what the backward part reads
            used = needs(gradients, arguments)
            self.read = [k for k, a in enumerate(arguments) if a in used]
        self.integral = [k for k, r in enumerate(returned) if not r.shape.element_type.is_differentiable]
        if opens:  # nor have residuals a gradient or tangent, since `again` does not keep them
            self.integral = [k for k in self.integral if k < len(results)] + list(range(len(results), len(returned)))
        varying = [ct is not None for ct in self.cotangents] + [True] * (len(returned) - len(results))
        self.constant = [k for k, flag in enumerate(varying) if not flag or k in self.integral]
        self.returned = len(returned)
        self.forward = self._cut(program.name, arguments, [*returned, *effects(self.joint.forward_part)], len(returned))

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
        joint = FlatJoint(name, self.forward.differentiable, self._flags(wanted), present, self.options)
        seeds = joint.cotangents(present)
        gradients = joint.gradients(seeds, wanted)
        return self._from_saved(joint, [joint.results[k].instruction for k in self.kept], seeds, gradients)

    def _from_saved(self, joint: FlatJoint, kept: Sequence[Instruction], seeds: Sequence[XlaOp | None],
                   gradients: Sequence[XlaOp]) -> Program:
        pace = [s.instruction for s in seeds if s is not None]
        inputs = [*(joint.arguments[k].instruction for k in self.read), *kept, *pace]
        targets = [g.instruction for g in gradients]
        return self._cut(f"{self.program.name}_backward", inputs, targets, len(gradients), joint, pace)

    def _cut(self, name: str, inputs: Sequence[Instruction], targets: Sequence[Instruction], count: int,
             joint: FlatJoint | None = None, pace: Sequence[Instruction] = ()) -> Program:
        """A program of its own out of a joint one, returning the first `count` targets."""
        builder = Builder(name)
        given = {i: builder.parameter(k, i.shape.without_layout(), i.name) for k, i in enumerate(inputs)}
        built = rebuild(builder, (joint or self.joint).builder.instructions, given, targets, pace=pace)
        return self._closed(builder, built[:count])


def _array_leaves(shapes: Any) -> list[Shape]:
    return [leaf for shape in shapes for leaf in shape.leaves() if leaf.is_array]
