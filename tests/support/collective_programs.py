"""Every collective between four participants, with a formula in NumPy; and along inner dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from support.distributed_programs import ADD, HALF_SUM, reducer

ROWS: dict[str, tuple[str, str, Callable[[list[np.ndarray]], list[Any]]]] = {
    # instruction for an operand of {n} elements, region, formula
    "all-gather": ("f32[{n4}] all-gather(p), dimensions={{0}}, replica_groups={{}}", ADD, lambda v: [np.concatenate(v)] * 4),
    "all-gather of groups out of order": (
        "f32[{n2}] all-gather(p), dimensions={{0}}, replica_groups={{{{3,0}},{{1,2}}}}", ADD,
        lambda v: [np.concatenate(pair) for pair in ((v[3], v[0]), (v[1], v[2]), (v[1], v[2]), (v[3], v[0]))]),
    "all-gather of iota groups": (
        "f32[{n2}] all-gather(p), dimensions={{0}}, replica_groups=[2,2]<=[4]", ADD,
        lambda v: [np.concatenate(v[:2])] * 2 + [np.concatenate(v[2:])] * 2),
    "all-reduce": ("f32[{n}] all-reduce(p), to_apply=f, replica_groups={{}}", ADD, lambda v: [sum(v)] * 4),
    "all-reduce of uneven groups": (
        "f32[{n}] all-reduce(p), to_apply=f, replica_groups={{{{0,3,2}},{{1}}}}", ADD,
        lambda v: [v[0] + v[2] + v[3], v[1], v[0] + v[2] + v[3], v[0] + v[2] + v[3]]),
    "all-reduce in group order": (
        "f32[{n}] all-reduce(p), to_apply=f, replica_groups={{{{2,0,3,1}}}}", HALF_SUM,
        lambda v: [((v[2] / 2 + v[0]) / 2 + v[3]) / 2 + v[1]] * 4),
    "all-reduce subtract": (
        "f32[{n}] all-reduce(p), to_apply=f, replica_groups={{}}", reducer("subtract", "f32"),
        lambda v: [v[0] - v[1] - v[2] - v[3]] * 4),
    "reduce-scatter": (
        "f32[{q}] reduce-scatter(p), to_apply=f, dimensions={{0}}, replica_groups={{}}", ADD,
        lambda v: list(np.split(sum(v), 4))),
    "reduce-scatter of maxima": (
        "f32[{h}] reduce-scatter(p), to_apply=f, dimensions={{0}}, replica_groups={{{{1,0}},{{2,3}}}}", reducer("maximum", "f32"),
        lambda v: [*np.split(np.maximum(v[0], v[1]), 2)[::-1], *np.split(np.maximum(v[2], v[3]), 2)]),
    "all-to-all": (
        "f32[{n}] all-to-all(p), dimensions={{0}}, replica_groups={{}}", ADD,
        lambda v: [np.concatenate([np.split(x, 4)[k] for x in v]) for k in range(4)]),
    "collective-broadcast": (
        "f32[{n}] collective-broadcast(p), replica_groups={{{{2,0,1}}}}", ADD, lambda v: [v[2], v[2], v[2], v[3] * 0]),
    "collective-permute": (
        "f32[{n}] collective-permute(p), source_target_pairs={{{{0,1}},{{1,2}},{{3,3}}}}", ADD,
        lambda v: [v[0] * 0, v[0], v[1], v[3]]),
    "collective-reduce": (
        "f32[{n}] collective-reduce(p), to_apply=f, replica_groups={{{{1,0,2}}}}", ADD,
        lambda v: [v[0] * 0, v[0] + v[1] + v[2], v[2] * 0, v[3] * 0]),
}

INNER = [
    "f32[2,{m},12] all-gather(p), dimensions={{2}}, replica_groups={{}}",
    "f32[2,{q},3] reduce-scatter(p), to_apply=f, dimensions={{1}}, replica_groups={{}}",
    "f32[2,{m},3] all-to-all(p), dimensions={{1}}, replica_groups={{}}",
    "(f32[2,{m},3], f32[2,{m},3]) all-reduce(p, p), to_apply=f, replica_groups={{}}",
    "(f32[2,{m},3], f32[2,{m},3], f32[2,{m},3], f32[2,{m},3]) all-to-all(p, p, p, p), replica_groups={{}}",
    "(f32[8,{m},3], f32[8,{m},3]) all-gather(p, p), dimensions={{0}}, replica_groups={{}}",
]
