"""Programs of unknown sizes that are made once: one program for many combinations of sizes.

A `General` was made with sizes that stand for many (`sizes.py`). For each combination of sizes that passes its guards
while it was made, its modules run as a `Member` with these sizes: the same code with other numbers. Anything that cannot be had
so is asked of the member's `own` program, which is made for these sizes alone, as if there were no other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

import torch
import torch.fx

from ..analysis.peak import peak_bytes
from ..core.budget import running
from ..core.forks import Lock, cached_property
from ..core.shape import ProgramShape, Shape
from ..core.sizes import Size, Unknowns
from ..hlo.gradient_changes import revision
from ..lowering.programs import freeing
from ..passes.sized import with_sizes
from ..storage.torch_private import direct, is_traced, profiler_is_on
from .backends import CALL_BY_CALL, EAGER, FreeingRun, Run
from .caches import Cache, RuleCache
from .plain_runs import run_without_autograd
from .program import Mask, Plan, Program
from .watching import watching

_T = TypeVar("_T")

MOST_GENERAL = 8
"""How many programs for many sizes each program has."""

MOST_REFUSED = 2
"""After so many combinations of sizes for which there was none, no more are made."""


class General:
    """A program for many sizes. `unknowns` holds the guards on them."""

    def __init__(self, program: Program, unknowns: Unknowns):
        self.program, self.unknowns = program, unknowns
        self._lock = Lock()
        self._refused: set[Hashable] = set()
        self._freeing: Cache[tuple[Program, torch.device], torch.fx.GraphModule] = Cache(self._lock)

    @property
    def runs(self) -> bool:
        """Whether modules of it can be shared: those that a compiler makes are its own affair."""
        return self.program.backend in (EAGER, CALL_BY_CALL)

    def made(self, what: Hashable, make: Callable[[], _T], values: Mapping[str, int]) -> _T | None:
        """What `make` makes of the program, where it is right for these sizes as well; otherwise None. `what` names it: what
        cannot be made for many sizes is not tried again."""
        with self._lock:
            if what in self._refused or not self.unknowns.holds(values):
                return None
            try:
                found = make()
            except Exception:  # whatever it is: the member's own program says it, if it is wrong with the program
                self._refused.add(what)
                return None
            return found if self.unknowns.holds(values) else None

    def freeing_module(self, program: Program, device: torch.device) -> torch.fx.GraphModule:
        """What runs on a list that it empties (see `Program.run_freeing`)."""
        return self._freeing.get((program, device), lambda _: freeing(program.lowered(device), program.cotangents))

    def shape(self, values: Mapping[str, int]) -> ProgramShape:
        """The program's shape for these sizes."""
        found = self.program.program_shape
        return ProgramShape(tuple(_sized(p, values) for p in found.parameters), _sized(found.result, values),
                            found.parameter_names)


class Generals:
    """The programs for many sizes that a program of unknown sizes has, each made for one combination of sizes."""

    def __init__(self):
        self._lock, self._refused = Lock(), 0
        self.found: list[General] = []

    def of(self, names: Mapping[str, int], make: Callable[[Unknowns], Program], shared: Callable[[General], _T],
           alone: Callable[[], _T]) -> _T:
        """What `shared` makes of the one for these sizes, by `make` where there is none yet; if it cannot be had, `alone`."""
        with self._lock:
            general = next((g for g in self.found if g.unknowns.holds(names)), None) or self._made(names, make)
            if general is not None:
                return shared(general)
            result = alone()
            self._refused += 1
            return result

    def _made(self, names: Mapping[str, int], make: Callable[[Unknowns], Program]) -> General | None:
        if len(self.found) >= MOST_GENERAL or self._refused >= MOST_REFUSED:
            return None
        unknowns = Unknowns(names)
        try:
            made = General(make(unknowns), unknowns)
        except Exception:  # whatever it is: the program for these sizes alone says it, if anything is wrong with that
            return None
        if not made.runs or not unknowns.holds(names):
            return None
        self.found.append(made)
        return made


def _sized(shape: Shape, values: Mapping[str, int]) -> Shape:
    return dataclasses.replace(shape, dimensions=tuple(n.at(values) if isinstance(n, Size) else n for n in shape.dimensions),
                               tuple_shapes=tuple(_sized(s, values) for s in shape.tuple_shapes))


class Member:
    """A general program with certain sizes: it runs, and is differentiated. `make` makes the program for these sizes alone."""

    def __init__(self, general: General, values: Mapping[str, int], make: Callable[[], Program]):
        self.general, self.values, self._make = general, values, make
        lock = Lock()
        self._runs: Cache[torch.device, Run] = Cache(lock)
        self._plans: RuleCache[Mask, MemberPlan | None] = RuleCache(lock)

    @property
    def program_shape(self) -> ProgramShape:
        return self.general.shape(self.values)

    @cached_property
    def own(self) -> Program:
        return self._make()

    def run(self, tensors: Sequence[torch.Tensor], device: torch.device) -> tuple[torch.Tensor, ...]:
        """See `Program.run`."""
        if watching() is not None or is_traced() or profiler_is_on():
            return self.own.run(tensors, device)
        if (block := running()) is not None:
            block.takes_bytes(self.own.name, lambda: peak_bytes(self.own.canonical))
        return run_without_autograd(self.general.program.name, self._runs, self._make_run, device, *tensors)

    run_plain = run

    def runner(self, device: torch.device) -> Run:
        """See `Program.runner`."""
        return self._runs.get(device, self._make_run)

    def _make_run(self, device: torch.device) -> Run:
        program = self.general.program
        module = self.general.made((program, device), lambda: program.lowered(device), self.values)
        if module is None:
            return lambda *tensors: self.own.run(tensors, device)
        return direct(with_sizes(module, self.values))

    def plan(self, needed: Mask, sized: bool) -> Plan | MemberPlan:
        """See `Program.plan`. Under transforms of torch.func, and where calls are written down, it is that of the own program."""
        alone = sized or watching() is not None or is_traced() or profiler_is_on()
        shared = self._plans.get(needed, self._make_plan) if any(needed) and not alone else None
        return shared or self.own.plan(needed, sized)

    def _make_plan(self, needed: Mask) -> MemberPlan | None:
        program = self.general.program
        plan = self.general.made((program, needed, revision()), lambda: program.plan(needed, False), self.values)
        return None if plan is None else MemberPlan(self, plan, needed)


class MemberPlan:
    """How a member is run and walked back (see `Plan`, whose names these are). All inputs are kept, so that a way back that
    cannot be shared goes through the member's own program; so does a way back that is differentiated itself."""

    def __init__(self, member: Member, plan: Plan, needed: Mask):
        self.member, self.plan, self._needed = member, plan, needed
        self.inputs, self.outputs, self.returned = plan.inputs, plan.outputs, plan.returned
        self.wanted, self.kept, self.read = plan.wanted, plan.kept, list(range(plan.inputs))
        beyond = range(plan.outputs, plan.returned)
        self.integral = [*(k for k in plan.integral if k < plan.outputs), *beyond]
        self.constant = [*(k for k in plan.constant if k < plan.outputs), *beyond]
        lock = Lock()
        self._runs: Cache[torch.device, Run] = Cache(lock)
        self._shared: set[torch.device] = set()
        self._backward: RuleCache[tuple[Mask, tuple[int, ...]], WayBack] = RuleCache(lock)

    @property
    def forward(self) -> MemberPlan:
        return self

    @cached_property
    def again(self) -> Plan:
        """The plan of the own program that keeps inputs only."""
        return Plan(self.member.own, self._needed)

    def run(self, tensors: Sequence[torch.Tensor], device: torch.device) -> tuple[torch.Tensor, ...]:
        """The results and what else is kept."""
        return run_without_autograd(self.member.general.program.name, self._runs, self._make_run, device, *tensors)

    def _make_run(self, device: torch.device) -> Run:
        member, program = self.member, self.plan.forward
        module = member.general.made((program, device), lambda: program.lowered(device), member.values)
        if module is not None:
            self._shared.add(device)
            return direct(with_sizes(module, member.values))
        nothing = (torch.empty(0, device=device),) * (self.returned - self.outputs)
        return lambda *tensors: (*member.own.run(tensors, device), *nothing)

    def is_shared(self, device: torch.device) -> bool:
        """Whether what the way back reads was kept on this device."""
        return device in self._shared

    def backward(self, present: Mask, wanted: tuple[int, ...]) -> WayBack:
        """See `Plan.backward`."""
        return self._backward.get((present, wanted), lambda key: WayBack(self, *key))


class WayBack:
    """The program from what a `MemberPlan` keeps, and the present cotangents, to the gradients of the inputs number `wanted`."""

    def __init__(self, plan: MemberPlan, present: Mask, wanted: tuple[int, ...]):
        self._plan, self._present, self._wanted = plan, present, wanted
        self._runs: Cache[torch.device, FreeingRun] = Cache(Lock())

    def run_freeing(self, tensors: list[torch.Tensor], device: torch.device) -> tuple[torch.Tensor, ...]:
        """See `Program.run_freeing`."""
        return run_without_autograd(self._plan.member.general.program.name, self._runs, self._make_run, device, tensors)

    def _make_run(self, device: torch.device) -> FreeingRun:
        whole, general, values = self._plan, self._plan.member.general, self._plan.member.values
        module = None
        if whole.is_shared(device):
            what = (whole.plan, self._present, self._wanted, device, revision())
            module = general.made(what, lambda: general.freeing_module(
                whole.plan.backward(self._present, self._wanted), device), values)
        if module is None:
            return lambda tensors: self._alone(tensors, device)
        run, read = direct(with_sizes(module, values)), whole.plan.read

        def call(tensors: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
            tensors[:whole.inputs] = [tensors[k] for k in read]
            return run(tensors)

        return call

    def _alone(self, tensors: list[torch.Tensor], device: torch.device) -> tuple[torch.Tensor, ...]:
        plan = self._plan
        del tensors[plan.inputs:plan.inputs + len(plan.kept)]
        return plan.again.backward(self._present[:plan.outputs], self._wanted).run_freeing(tensors, device)
