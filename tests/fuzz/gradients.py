"""`make gradients PROGRAMS=1000`: gradients of drawn programs against difference quotients, in float64.

A program's results are added up with drawn weights, and its arguments moved along a drawn direction. Where two quotients of
different steps agree, the program is smooth there, and the gradient by torch.autograd must give the same slope.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
import time
import traceback

import numpy as np
import torch

import xla_torch
from fuzz import judging
from fuzz.drawn import drawn
from fuzz.programs import Program, Value, needed
from xla_torch.errors import XlaError

STEP, CLOSE = 1e-5, 1e-5
TYPES = ("f64", "s32", "pred")


def smooth_program(number: int) -> Program | None:
    """The program of a number, of float64 above all, with its float64 results; None where it lacks them or such arguments."""
    program = drawn(number, most=30, types=TYPES)
    parts = zip(program.results, program.result_parts(), strict=True)
    program = needed(Program(program.regions, program.values, program.arguments, [n for n, p in parts if p.type == "f64"]))
    moved = any(a.dtype == np.float64 for a in program.arguments.values())
    return program if program.results and moved and not any(map(_conventional, program.all_values())) else None


def _conventional(value: Value) -> bool:
    """Whether the gradient is one by convention, and not the slope: what reduce-precision rounds goes through as it is, and of a
    clamp nothing where two operands are equal. At 0 a number becomes another truth value."""
    return value.opcode in ("reduce-precision", "clamp") or (value.opcode == "convert" and value.part.type == "pred")


def wrong(program: Program, seed: int = 0) -> str | None:
    """What is wrong with the gradient; None where nothing is. Raises Rough where the program is not smooth at its arguments."""
    rng = np.random.default_rng(seed)
    computation = xla_torch.parse_hlo(program.text())
    given = [torch.from_numpy(np.array(a)) for a in program.arguments.values()]
    along = [torch.from_numpy(np.asarray(rng.normal(size=a.shape))) if a.dtype == torch.float64 else None for a in given]
    weights = [torch.from_numpy(np.asarray(rng.normal(size=p.dims))) for p in program.result_parts()]

    def total(step: float, differentiable: bool = False) -> tuple[torch.Tensor, list[torch.Tensor]]:
        moved = [a if d is None else (a + step * d).requires_grad_(differentiable) for a, d in zip(given, along, strict=True)]
        results = computation(*moved)
        results = results if isinstance(results, tuple) else (results,)
        value = sum(((w * r).sum() for w, r in zip(weights, results, strict=True)), torch.zeros((), dtype=torch.float64))
        return value, [m for m, d in zip(moved, along, strict=True) if d is not None]

    slopes = [float((total(h)[0] - total(-h)[0]) / (2 * h)) for h in (STEP, STEP / 2, STEP * 4)]
    value, leaves = total(0.0, True)
    size = max(1.0, abs(slopes[0]), abs(float(value.detach())))
    if not np.isfinite([*slopes, size]).all() or size > 1e8 or max(slopes) - min(slopes) > CLOSE * size:
        raise Rough
    found = torch.autograd.grad(value, leaves, allow_unused=True) if value.requires_grad else [None] * len(leaves)
    terms = [float((g * d).sum()) for g, d in zip(found, (d for d in along if d is not None), strict=True) if g is not None]
    if abs(sum(terms) - slopes[0]) > 10 * CLOSE * size:
        return f"the gradient gives {sum(terms)!r}, quotients {slopes!r}"
    return None


class Rough(Exception):
    """The program is not smooth at its arguments, or too steep."""


def tried(program: Program, seed: int) -> str | None:
    try:
        return wrong(program, seed)
    except XlaError as error:
        return f"refused: {error}"
    except Rough:
        raise
    except Exception:
        return traceback.format_exc(limit=-4)


def slope_of(number: int) -> str:
    """What came out for the program of a number: ``agree``, ``not smooth``, ``no float64``, or what is wrong."""
    program = smooth_program(number)
    if program is None:
        return "no float64"
    try:
        return tried(program, number) or "agree"
    except Rough:
        return "not smooth"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="shrink the program of this number, and print what is left")
    options = parser.parse_args()
    judging.quietly()
    if options.only is not None:
        return _only(options.only)
    counts: collections.Counter[str] = collections.Counter()
    start = time.monotonic()
    for number in range(options.seed, options.seed + options.programs):
        found = slope_of(number)
        counts[found if found in ("agree", "not smooth", "no float64") else "differ"] += 1
        if found not in counts:
            print(f"--- {number}\n{found}", flush=True)
    print(f"{options.programs} numbers in {time.monotonic() - start:.0f} s: {json.dumps(counts)}")
    return bool(counts["differ"])


def _only(number: int) -> int:
    from fuzz import reducing

    program = smooth_program(number)
    assert program is not None

    def fails(smaller: Program) -> str | None:
        try:
            return tried(smaller, number) if all(p.type == "f64" for p in smaller.result_parts()) else None
        except Rough:
            return None

    found = fails(program)
    if found is not None:
        program = reducing.shrunk(program, fails)
        print(program.text(), *(f"{n} = {a!r}" for n, a in program.arguments.items()), fails(program), sep="\n")
    return found is not None


if __name__ == "__main__":
    sys.exit(main())
