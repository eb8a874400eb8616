"""What a row of the table of public reports is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

NAN, INF = float("nan"), float("inf")


@dataclasses.dataclass(frozen=True)
class Row:
    """One report (``tracker#number``): a function of arrays, arguments, and why the expected values are right.

    The truth is `right` where it is given, else what JAX compiles for the CPU or eager torch computes. `gradient` asks for the
    derivative by the first argument of the sum of the results; `by_table` is what the gradient table gives where a format has not
    the derivatives of JAX or torch. `exact` compares bits and signs of zeros.
    """

    report: str
    why: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    gradient: bool = False
    right: Any = None
    exact: bool = False
    by_table: Any = None

    def __str__(self) -> str:
        return f"{self.report}: {self.why}"


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def f64(*values: Any) -> np.ndarray:
    return np.array(values, np.float64)


def i32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)
