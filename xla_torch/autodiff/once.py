"""What is found of a computation, or made of it, once for all who use it.

Computations may share others: f_k runs f_(k-1) twice, down to f_0. Walked anew on each way to it, f_0 would be walked 2^k times.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Concatenate, ParamSpec, TypeVar

from ..hlo.gradient_changes import revision
from ..hlo.ir import Computation, cached_with_arguments

_Arguments = ParamSpec("_Arguments")
_Found = TypeVar("_Found")


def cached_by_rules(analysis: Callable[Concatenate[Computation, _Arguments], _Found]) -> Callable[
        Concatenate[Computation, _Arguments], _Found]:
    """Keep what is found by gradient rules with the computation, for equal hashable arguments and until a rule changes."""
    def anew(computation: Computation, _: int, *arguments: Hashable) -> _Found:
        return analysis(computation, *arguments)  # pyright: ignore[reportCallIssue]

    kept = cached_with_arguments(anew)

    @functools.wraps(analysis)
    def asked(computation: Computation, *arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Found:
        assert not named
        return kept(computation, revision(), *arguments)

    return asked
