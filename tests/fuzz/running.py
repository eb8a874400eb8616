"""Drawn modules here and on real XLA. Each participant has a list of arguments; what several give is stacked, one array for each
result, so that results are compared alike whoever gave them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import xla_torch
from fuzz.programs import Program

Given = Sequence[Sequence[np.ndarray]]


class Refused(Exception):
    """XLA does not compile a program."""


def run_here(computation: str | xla_torch.XlaComputation, given: Given, of: Program) -> list[np.ndarray]:
    """The results here, for as many replicas and partitions as a program is `of`."""
    called = xla_torch.parse_hlo(computation) if isinstance(computation, str) else computation
    if len(given) == 1:
        return list(called.run_numpy(*given[0]))
    each = xla_torch.run_replicas(called, given, num_replicas=of.replicas, num_partitions=of.partitions)
    return stacked([shards if isinstance(shards, tuple) else [shards] for shards in each])  # StableHLO has no tuples of one


def run_xla(text: str, given: Given, of: Program, level: int | None = None) -> list[np.ndarray]:
    """What real XLA gives, at a level of LLVM's optimisation. Raises Refused."""
    from support import oracle

    try:
        executable = oracle.compiled(text, of.replicas, of.partitions, level)
    except Exception as error:  # the bindings raise several kinds
        raise Refused(str(error)) from None
    each = oracle.run_compiled(executable, given)
    return each[0] if len(each) == 1 else stacked(each)


def stacked(each: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    """Several participants' results, as one array for each."""
    return [np.stack(shards) for shards in zip(*each, strict=True)]
