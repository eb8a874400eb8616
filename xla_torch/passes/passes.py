"""What becomes of a lowered graph: the passes over it, in their order, each with the condition under which it runs.

A program gives the same results without any of them that is not `needed`: `tuning.WITHOUT_PASSES` (the environment's
``XLA_TORCH_WITHOUT_PASSES=blocks,memory``) leaves passes out, and `recorded` notes what each one changed, which
``python -m xla_torch show FILE --passes`` prints.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import difflib
import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch.fx import Graph, Node

from ..core import tuning
from ..hlo.inference import has_effect
from ..hlo.schema import OPS
from .blocking import block_elementwise
from .buckets import join_exchanges
from .filled_gathers import fill_gathers
from .foreach import foreach_results
from .fused_calls import fuse_calls
from .memory import overwrite_carries, plan_memory
from .one_of_rows import use_one_of_rows
from .optional import attempt, runs
from .overlap import overlap_exchanges
from .product_blocks import block_products
from .products import measure_products, turn_products, use_float32
from .profiler_ranges import enter_ranges
from .row_functions import use_row_functions
from .simplify import drop_needless_views, join_concatenations
from .sized import hold_sizes
from .transforms import scale_transforms


@dataclasses.dataclass
class Lowering:
    """A graph on its way to a module, and what its passes ask about it."""

    root: torch.nn.Module
    """Where constants and sub-programs are registered."""
    graph: Graph
    name: str
    on_cpu: bool
    overwrites: bool = True
    """Whether results may be written over values that are read no more. No block or group runs where they may not."""
    fuses: bool = False
    """Whether groups of calls go to torch's compiler."""
    blocks: bool = True
    """Whether chains of elementwise calls on large arrays may run block by block."""
    ranges: bool = False
    """Whether torch's profiler is to see whose work it is."""
    fresh_outputs: bool = False
    """Whether results may share no memory with inputs, constants or each other."""
    first_carry: int | None = None
    """The number of the first input that is a carry, in the body of a loop."""
    overwritten: set[int] = dataclasses.field(default_factory=set)
    """Which carries the body of a loop writes over."""

    @property
    def is_body(self) -> bool:
        return self.first_carry is not None

    @property
    def in_blocks(self) -> bool:
        return self.blocks and self.on_cpu and self.overwrites


class Pass(NamedTuple):
    """One pass: it rewrites the graph in place, `when` it applies."""

    name: str
    run: Callable[[Lowering], object]
    when: Callable[[Lowering], bool] = lambda lowering: True
    needed: bool = False
    """Whether programs would be wrong without it."""
    has_less: bool = False
    """Whether it does only what is needed where it is left out."""


def _drop_dead_code(lowering: Lowering) -> None:
    lowering.graph.eliminate_dead_code(is_impure_node=_is_impure)


def _overwrite_carries(lowering: Lowering) -> None:
    results = next(iter(reversed(lowering.graph.nodes))).args[0]
    assert lowering.first_carry is not None
    assert isinstance(results, (list, tuple))
    lowering.overwritten = overwrite_carries(lowering.graph, lowering.first_carry, len(results))


def _plan_memory(lowering: Lowering) -> None:
    overwrites = lowering.overwrites and runs("overwriting")
    plan_memory(lowering.graph, lowering.fresh_outputs, overwrites=overwrites)


PASSES = (
    Pass("row functions", lambda low: use_row_functions(low.root, low.graph), when=lambda low: low.blocks),
    Pass("filled gathers", lambda low: fill_gathers(low.graph), when=lambda low: low.on_cpu),
    Pass("one of rows", lambda low: use_one_of_rows(low.root, low.graph), when=lambda low: low.in_blocks),
    Pass("scaled transforms", lambda low: scale_transforms(low.root, low.graph)),
    Pass("dead code", _drop_dead_code, needed=True),
    Pass("views", lambda low: drop_needless_views(low.graph)),
    Pass("concatenations", lambda low: join_concatenations(low.graph)),
    Pass("turned products", lambda low: turn_products(low.graph)),
    Pass("buckets", lambda low: join_exchanges(low.graph)),
    Pass("overlap", lambda low: overlap_exchanges(low.graph)),
    Pass("carries", _overwrite_carries, when=lambda low: low.is_body and low.overwrites),
    Pass("foreach", lambda low: foreach_results(low.root, low.graph), when=lambda low: not low.is_body and low.in_blocks),
    Pass("product blocks", lambda low: block_products(low.root, low.graph), when=lambda low: low.in_blocks),
    Pass("blocks", lambda low: block_elementwise(low.root, low.graph), when=lambda low: low.in_blocks),
    Pass("groups", lambda low: fuse_calls(low.root, low.graph), when=lambda low: low.fuses),
    Pass("overwriting", _plan_memory, needed=True, has_less=True),  # left out, it still gives results memory of their own
    Pass("float32 products", lambda low: use_float32(low.graph), when=lambda low: low.on_cpu),
    Pass("measured products", lambda low: measure_products(low.graph),
         when=lambda low: low.on_cpu and low.overwrites and not low.fuses),
    Pass("sizes", lambda low: hold_sizes(low.root, low.graph), needed=True),
    Pass("ranges", lambda low: enter_ranges(low.graph), when=lambda low: low.ranges, needed=True),
)


class Change(NamedTuple):
    """What a pass did to the graph of a program, or of a sub-program in it."""

    graph: str
    """The class name of the module that the graph becomes."""
    name: str
    calls: tuple[int, int]
    """Nodes before and after."""
    lines: list[str]
    """The nodes that went, ``- ...``, and came, ``+ ...``."""


_log: contextvars.ContextVar[list[Change] | None] = contextvars.ContextVar("passes", default=None)


@contextlib.contextmanager
def recorded() -> Iterator[list[Change]]:
    """The changes that passes make to graphs that are lowered within, one for each pass that made any."""
    log: list[Change] = []
    before = _log.set(log)
    try:
        yield log
    finally:
        _log.reset(before)


def run_passes(lowering: Lowering) -> None:
    """Run all passes that apply, in their order."""
    log = _log.get()
    for one in PASSES:
        if one.when(lowering) and (one.needed or runs(one.name)):
            before = None if log is None else _listed(lowering.graph)
            if one.needed and not (one.has_less and runs(one.name)):
                one.run(lowering)
            else:
                attempt(one.name, one.run, lowering)
            if log is not None and before is not None and before != (after := _listed(lowering.graph)):
                log.append(Change(lowering.name, one.name, (len(before), len(after)), _changed(before, after)))


def _listed(graph: Graph) -> list[str]:
    return [node.format_node() or f"{node.op} {node.args}" for node in graph.nodes]


def _changed(before: list[str], after: list[str]) -> list[str]:
    lines = difflib.unified_diff(before, after, n=0, lineterm="")
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def _is_impure(node: Node) -> bool:
    if node.op in ("placeholder", "output"):
        return True
    instruction = node.meta.get("hlo")
    return instruction is not None and instruction.opcode in OPS and has_effect(instruction)


_NAMES = ["bundles", "constants", "invariants", "padded sums", *[one.name for one in PASSES]]
"""What `tuning.WITHOUT_PASSES` may name: also what is done to programs before there is a graph (`lowering/bundles.py`,
`transform/invariant_code.py`, `transform/padded_sums.py`)."""

if _unknown := tuning.WITHOUT_PASSES.difference(_NAMES):
    warnings.warn(f"XLA_TORCH_WITHOUT_PASSES names no pass by {', '.join(sorted(_unknown))}: there are {', '.join(_NAMES)}",
                  RuntimeWarning, stacklevel=2)
