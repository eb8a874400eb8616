"""Write a random module in each format and read it again: its results must have equal bits."""

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


def formats_of(number: int) -> list[str]:
    """Every module goes through StableHLO's text, and through one of the others by turns."""
    text, *others = WRITTEN
    return [text, others[number % len(others)]]


def differences(text: str, given: Given, of: Program, here: Sequence[np.ndarray], formats: Sequence[str]) -> list[str]:
    """Name the formats that change the bits of a module, each with the difference. Raises Unsaid."""
    computation, found = xla_torch.parse_hlo(text), []
    for name in formats:
        try:
            again = WRITTEN[name](computation)
        except UnsupportedError as error:
            if "StableHLO" in name and "StableHLO" in str(error):
                raise Unsaid(re.sub(r"%?\bp?\d*_?v\d+\b", "", str(error).split("\n")[0])) from None
            found.append(f"{name}: {error}")
            continue
        except XlaError as error:
            found.append(f"{name}: {error}")
            continue
        results = run_here(again, given, of)
        found += [f"{name}: result {k} is {_plain(a[bad])}, itself {_plain(b[bad])}"
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
