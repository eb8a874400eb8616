"""Drawn modules out through an entry point and in again: they must give the bits that they give themselves."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

import xla_torch
from fuzz.programs import Program
from fuzz.running import Given, run_here
from support.written import WRITTEN
from xla_torch.errors import UnsupportedError, XlaError


class Unsaid(Exception):
    """StableHLO has no words for a program."""


def entry_points_of(number: int) -> list[str]:
    """Every module goes through StableHLO's text, and through one of the others by turns."""
    text, *others = WRITTEN
    return [text, others[number % len(others)]]


def differences(text: str, given: Given, of: Program, here: Sequence[np.ndarray], entry_points: Sequence[str]) -> list[str]:
    """The entry points behind which a module does not give the same bits, each with what is wrong. Raises Unsaid."""
    computation, found = xla_torch.parse_hlo(text), []
    for entry_point in entry_points:
        try:
            again = WRITTEN[entry_point](computation)
        except UnsupportedError as error:
            if "StableHLO" in entry_point and "StableHLO" in str(error):
                raise Unsaid(re.sub(r"%?\bp?\d*_?v\d+\b", "", str(error).split("\n")[0])) from None
            found.append(f"{entry_point}: {error}")
            continue
        except XlaError as error:
            found.append(f"{entry_point}: {error}")
            continue
        results = run_here(again, given, of)
        found += [f"{entry_point}: result {k} is {_plain(a[bad])}, itself {_plain(b[bad])}"
                  for k, (a, b) in enumerate(zip(results, here, strict=True)) if (bad := _unequal(a, b)).any()]
    return found


def _unequal(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Elements of other bits; all of them where it is another type or shape."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return np.ones(a.shape, bool)
    return (_bytes(a) != _bytes(b)).any(-1).reshape(a.shape)


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1, 1).view(np.uint8)


def _plain(values: np.ndarray) -> list[object]:
    return np.ravel(values)[:4].tolist()
