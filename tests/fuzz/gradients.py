"""`make gradients PROGRAMS=1000`: gradients of drawn programs against difference quotients, in float64.

All floats of a drawn program become float64. Its arguments move along a drawn direction, and each element of its results has a
difference quotient. Where the quotients of two steps converge, from both sides, forward mode must give that slope. Reverse mode
must give the sum of these slopes, with drawn weights. Elements at ties, kinks and poles are left out and counted.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import random
import sys
import time
import traceback

import numpy as np

import xla_torch
from fuzz import judging
from fuzz.drawn import drawn
from fuzz.in_float64 import in_float64
from fuzz.programs import Part, Program, needed
from xla_torch.errors import XlaError

STEP, CLOSE, LARGE = 2e-5, 1e-6, 1e7
MORE = ("f32", "bf16", "f16", "s32", "pred", "s64", "u32", "c64", "u8")


def smooth_program(number: int) -> Program | None:
    """The program of a number in float64, with results that depend on arguments of floats; drawn again where there are none."""
    for again in range(8):
        chance = random.Random(f"types {number} {again}")
        types = ["f64", "f64", *chance.sample(MORE, 2)]
        program = in_float64(drawn(number + again * 10**7, least=8, most=30, types=types))
        program = needed(dataclasses.replace(program, results=_moving_results(program)))
        if program.results:
            return program
    return None


def _moving_results(program: Program) -> list[str]:
    """The last floats that depend on arguments of floats."""
    moving = {v.name for v in program.values if v.opcode == "parameter" and _differs(v.part)}
    used: set[str] = set()
    for value in program.values:
        if moving.intersection(value.operands) and any(map(_differs, value.parts)):
            moving.add(value.name)
            used.update(value.operands)
    found = [v for v in program.values if v.name in moving and not v.is_tuple and v.opcode != "parameter"]
    return [v.name for v in found if v.name not in used and not any(v.part.dynamic) and v.part.count]


def _differs(part: Part) -> bool:
    return part.type in ("f64", "c128")


@dataclasses.dataclass
class Checked:
    """How many elements were compared, and how many have no slope, and what is wrong with gradients."""

    compared: int = 0
    skipped: int = 0
    wrong: str | None = None


class Slopes:
    """Difference quotients of a program along a direction: of its results' elements, the real and the imaginary part each."""

    def __init__(self, program: Program, rng: np.random.Generator):
        self.computation = xla_torch.parse_hlo(program.text())
        self.given = list(program.arguments.values())
        self.moving = [k for k, a in enumerate(self.given) if a.dtype.kind in "fc"]
        self.along = [_drawn_like(self.given[k], rng) for k in self.moving]
        at, near, far = self.at(0.0), [self.at(s * STEP / 2) for s in (1, -1)], [self.at(s * STEP) for s in (1, -1)]
        with np.errstate(all="ignore"):
            wide, narrow = (far[0] - far[1]) / (2 * STEP), (near[0] - near[1]) / STEP
            gaps = [abs(right + left - 2 * at) / step for (right, left), step in ((far, STEP), (near, STEP / 2))]
            self.slopes = (4 * narrow - wide) / 3
            size = np.maximum(1, np.maximum(abs(self.slopes), abs(at) * 1e-3))
            self.error = abs(wide - narrow) + CLOSE * size
            finite = np.isfinite(np.stack([at, *near, *far, self.slopes])).all(0) & (size < LARGE) & (abs(at) < LARGE)
            # one-sided quotients at a kink differ by as much for each step
            self.smooth = finite & (self.error < 100 * CLOSE * size) & (gaps[1] <= 0.8 * gaps[0] + CLOSE * size)

    def at(self, step: float) -> np.ndarray:
        moved = list(self.given)
        for k, direction in zip(self.moving, self.along, strict=True):
            moved[k] = moved[k] + step * direction
        return _flat(self.computation.run_numpy(*moved))

    def forward(self) -> np.ndarray:
        results = xla_torch.jvp(self.computation, self.moving).run_numpy(*self.given, *self.along)
        return _flat(results[len(results) // 2:])

    def backward(self, weights: np.ndarray) -> float:
        """The slope of the results' sum with these weights."""
        shapes = self.computation.program_shape.result.tuple_shapes
        cotangents, rest = [], weights
        for shape in shapes:
            count = int(np.prod(shape.dimensions)) * (2 if shape.element_type.is_complex else 1)
            own, rest = rest[:count], rest[count:]
            own = own[::2] + 1j * own[1::2] if shape.element_type.is_complex else own
            cotangents.append(own.reshape(shape.dimensions))
        found = xla_torch.vjp(self.computation, self.moving).run_numpy(*self.given, *cotangents)
        return float(sum(np.real(np.conj(g) * d).sum() for g, d in zip(found, self.along, strict=True)))


def _drawn_like(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    found = np.asarray(rng.normal(size=array.shape))
    return found + 1j * rng.normal(size=array.shape) if array.dtype.kind == "c" else found


def _flat(results: object) -> np.ndarray:
    """The real numbers of all results, those of a complex one by twos."""
    parts = [np.ravel(np.asarray(r)) for r in results]  # type: ignore[attr-defined]
    return np.concatenate([p.view(np.float64) if p.dtype == np.complex128 else p for p in parts])


def checked(program: Program, seed: int = 0) -> Checked:
    """Both modes against the slopes of a program."""
    rng = np.random.default_rng(seed)
    slopes = Slopes(program, rng)
    smooth, weights = slopes.smooth, rng.normal(size=slopes.slopes.shape)
    found = Checked(int(smooth.sum()), int((~smooth).sum()))
    if not found.compared:
        return found
    forward = slopes.forward()
    off = smooth & ~(abs(forward - slopes.slopes) <= 10 * slopes.error)
    want = float((weights * slopes.slopes)[smooth].sum())
    backward = slopes.backward(np.where(smooth, weights, 0.0))
    bound = 10 * float((abs(weights) * slopes.error)[smooth].sum())
    wrong = [f"forward gives {forward[k]!r}, quotients {slopes.slopes[k]!r}" for k in np.flatnonzero(off)[:3]]
    if not abs(backward - want) <= bound and not (np.isnan(backward) and not smooth.all()):
        wrong.append(f"reverse gives {backward!r}, quotients {want!r}")
    if wrong and not _too_large(program):
        found.wrong = "; ".join(wrong)
    elif wrong:
        return Checked(0, found.compared + found.skipped)
    return found


def _too_large(program: Program) -> bool:
    """Whether numbers on the way swallow the step, or are infinite or NaN."""
    names = [v.name for v in program.values if not v.is_tuple and _differs(v.part) and not any(v.part.dynamic)]
    values = _flat(xla_torch.parse_hlo(dataclasses.replace(program, results=names).text()).run_numpy(*program.arguments.values()))
    return bool(values.size) and not bool((abs(values) < LARGE).all())


def tried(program: Program, seed: int) -> Checked:
    try:
        return checked(program, seed)
    except XlaError as error:
        return Checked(wrong=f"refused: {error}")
    except Exception:
        return Checked(wrong=traceback.format_exc(limit=-4))


def slope_of(number: int) -> Checked:
    """What came out for the program of a number."""
    program = smooth_program(number)
    return Checked() if program is None else tried(program, number)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="shrink the program of this number, and print what is left")
    options = parser.parse_args()
    judging.quietly()
    np.seterr(all="ignore")
    if options.only is not None:
        return _only(options.only)
    counts: collections.Counter[str] = collections.Counter()
    start = time.monotonic()
    for number in range(options.seed, options.seed + options.programs):
        found = slope_of(number)
        counts["differ" if found.wrong else "agree" if found.compared else "nothing to compare"] += 1
        counts.update({"elements compared": found.compared, "elements without a slope": found.skipped})
        if found.wrong:
            print(f"--- {number}\n{found.wrong}", flush=True)
    print(f"{options.programs} numbers in {time.monotonic() - start:.0f} s: {json.dumps(counts)}")
    return bool(counts["differ"])


def _only(number: int) -> int:
    from fuzz import reducing

    program = smooth_program(number)
    assert program is not None

    def fails(smaller: Program) -> str | None:
        return tried(smaller, number).wrong if smaller.results and all(map(_differs, smaller.result_parts())) else None

    found = fails(program)
    if found is not None:
        program = reducing.shrunk(program, fails)
        print(program.text(), *(f"{n} = {a!r}" for n, a in program.arguments.items()), fails(program), sep="\n")
    return found is not None


if __name__ == "__main__":
    sys.exit(main())
