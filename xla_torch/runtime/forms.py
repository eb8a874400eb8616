"""A module in the forms that others read: for lowering, for derivatives, inside other programs and as text."""

from __future__ import annotations

from collections.abc import Sequence

from .. import autodiff, batching, partitioning
from ..analysis.author_rules import lost_rules, stated
from ..core.forks import Lock, cached_property
from ..core.shape import ProgramShape
from ..hlo.derivatives import Lost, bringing, brings, rules_of, warn_of
from ..hlo.gradient_changes import has_target_rule
from ..hlo.ir import Computation, Instruction, Module, reachable
from ..opcodes.random import rng, rng_get_and_update_state
from ..partitioning.state import Partitioning, partitioning_of
from ..transform.dynamic_sizes import resolve_sizes
from ..transform.expand_custom_calls import expand
from .caches import RuleCache


class Forms:
    """A module and its forms, each made once and kept.

    `by_calls` is the entry with calls of computations that bring derivatives, where it was made of such. `by_ops` says that its
    user knows that it is differentiated by its ops' rules. `dropped_before` lists custom derivatives that the source format could
    not carry; None finds them in the module.
    """

    def __init__(self, module: Module, by_calls: Computation | None = None, by_ops: bool = False,
                 dropped_before: Sequence[Lost] | None = None):
        self.module, self.by_calls, self.by_ops, self.dropped_before = module, by_calls, by_ops, dropped_before
        self._warned, lock = False, Lock()
        self._canonical: RuleCache[None, Computation] = RuleCache(lock)
        self._differentiable: RuleCache[None, Computation] = RuleCache(lock)

    @property
    def name(self) -> str:
        return self.module.name

    @property
    def program_shape(self) -> ProgramShape:
        return self.module.entry.program_shape

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

    @property
    def canonical(self) -> Computation:
        """The entry as lowering, gradients and batching take it: in canonical form (see `transform/canonical.py`), with ops in
        the place of custom calls that are such ops by another name, with dynamic sizes resolved, and with the meaning that it
        has for one participant. The entry itself where it is so already, as that of a derived program is."""
        return self._canonical.get(None, self._make_canonical)

    def _make_canonical(self, _: None) -> Computation:
        entry, state = self.module.entry, self.partitioning
        if state.manual_regions:  # about one partition's arrays, in a program about whole ones: those of all partitions
            entry = partitioning.manual_regions.without_manual_regions(self.module, state.partitions)
        return _canonical(entry)

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
            return autodiff.calls.calling(bringing(self._embedding[0] or self.canonical, self.module.entry.derivatives))
        return self._embedding[0] or self.canonical

    @property
    def brings_derivatives(self) -> bool:
        """Whether some of its derivatives are what an author wrote."""
        return self.authored is not self.canonical

    def _make_differentiable(self, _: None) -> Computation:
        return autodiff.functions.with_functions(self.authored)

    @cached_property
    def _embedding(self) -> tuple[Computation | None, list[Lost]]:
        """The entry with calls of the computations inside it that bring derivatives, and what is lost of them."""
        in_regions = bool(self.partitioning.manual_regions)
        return batching.embedded.with_calls(self.module.entry, has_target_rule, _canonical, in_regions)

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

    @cached_property
    def draws(self) -> list[tuple[Instruction, bool]]:
        """What draws random numbers that depend on nothing the program is given, and whether the entry does, once."""
        found = [(i, c is self.canonical) for c in reachable([self.canonical]) for i in c.instructions]
        return [(i, once) for i, once in found if i.opcode in (rng, rng_get_and_update_state)]


def _canonical(computation: Computation) -> Computation:
    return resolve_sizes(expand(computation, stays=has_target_rule))
