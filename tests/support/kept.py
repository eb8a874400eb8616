"""What has been derived from a program so far."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xla_torch.runtime.caches import Cache
from xla_torch.runtime.execution import Execution
from xla_torch.runtime.program import Plan, Program

Way = tuple[Any, ...]


def everything_kept(program: Program | Plan) -> dict[Way, Any]:
    """All that is kept with a program and with what was derived from it, by the names and keys on the way to it."""
    return dict(_kept(program, ()))


def backward_programs(program: Program) -> list[Program]:
    """The programs of the way back that calls have derived, by whichever plan. (Those of such programs are not among them.)"""
    return [p for way, p in everything_kept(program).items() if way[:-3] == ("_plans",) and "backward" in way[-2]]


def _kept(owner: Any, way: Way) -> Iterator[tuple[Way, Any]]:
    for name, value in vars(owner).items():
        if isinstance(value, Cache):
            for key, made in value.found.items():
                yield (*way, name, key), made
                if isinstance(made, (Program, Plan)):
                    yield from _kept(made, (*way, name, key))
        elif isinstance(value, Execution) or (name == "forward" and value is not owner.program):
            yield from _kept(value, (*way, name))
