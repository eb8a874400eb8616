"""Whether results of a drawn program here and on real XLA agree, and where they do not, which side is wrong.

What is not rough must be the same, bit for bit. Rough results are first held against each other; where they are further apart
than a unit or two, the program is evaluated again with its rough values in float64 (complex128), several times with noise of the
types' own precision on each of them. How far those results part says what the program makes of rounding, and so how far a right
one may be from the evaluation without noise.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence

import ml_dtypes
import numpy as np

from fuzz.programs import Part, Program, widened
from fuzz.running import run_here
from support.agreement import distance, dtype_of

TRIES, FACTOR = 4, 64.0
"""Evaluations with noise; how many times their spread a result may be away."""
EITHER_ZERO = ("minimum", "maximum", "clamp")
"""What may give a zero of either sign where it compares two."""
Arrays = Sequence[np.ndarray]


@dataclasses.dataclass(frozen=True)
class Difference:
    """Result `name` differs; `wrong` is ``here``, ``xla``, ``both``, or ``?`` where the evaluation has no more digits itself."""

    name: str
    wrong: str
    messages: str

    def __str__(self) -> str:
        return f"{self.name}: wrong is {self.wrong}; {self.messages}"


def differences(program: Program, here: Arrays, there: Arrays) -> list[Difference]:
    """The results that differ by more than rounding explains, and who is wrong."""
    parts = program.result_parts()
    signs = not any(v.opcode in EITHER_ZERO for v in program.all_values())
    found = [_exact(program.results[k], here[k], there[k], signs) for k, part in enumerate(parts) if not part.rough]
    rough = [k for k, part in enumerate(parts) if part.rough and not _near(here[k], there[k])]
    if rough:
        found += _judged(program, rough, here, there)
    return [f for f in found if f is not None]


def _plain(array: np.ndarray) -> np.ndarray:
    return np.stack([np.real(array), np.imag(array)], -1) if np.iscomplexobj(array) else array


def _unequal(a: np.ndarray, b: np.ndarray, signs: bool) -> np.ndarray:
    """Where elements differ. Subnormal numbers are zeros to XLA's CPU code."""
    if a.dtype == bool:
        return a != b
    bad = distance(a, b) > 0
    if signs and a.dtype.kind not in "iu" and not a.dtype.name.startswith(("int", "uint")):
        wide = a.astype(np.float64), b.astype(np.float64)
        bad |= (wide[0] == 0) & (wide[1] == 0) & (np.signbit(wide[0]) != np.signbit(wide[1]))
    return bad


def _exact(name: str, here: np.ndarray, there: np.ndarray, signs: bool) -> Difference | None:
    if here.shape != there.shape or here.dtype != there.dtype:
        return Difference(name, "?", f"{here.dtype}{here.shape} here, {there.dtype}{there.shape} on XLA")
    a, b = _plain(here), _plain(there)
    bad = _unequal(a, b, signs)
    return Difference(name, "?",
                      f"here {a[bad][:4]!r}, XLA {b[bad][:4]!r}, at {np.argwhere(bad)[:2].tolist()}") if bad.any() else None


def _near(here: np.ndarray, there: np.ndarray) -> bool:
    if here.shape != there.shape or here.dtype != there.dtype:
        return False
    a, b = _plain(here), _plain(there)
    return bool((distance(a, b) <= (1 if a.dtype.itemsize == 1 else 3)).all())


def _judged(program: Program, rough: Sequence[int], here: Arrays, there: Arrays) -> list[Difference | None]:
    """The rough results of these numbers against an evaluation with more digits."""
    names = {v.name for v in program.values if not v.is_tuple and v.part.rough and not any(v.part.dynamic)}
    shown = dataclasses.replace(program, results=[*program.results, *sorted(names)])
    exact = [np.asarray(r) for r in run_here(widened(shown), program.given(), program)]
    named = program.named()
    for name, values in zip(sorted(names), exact[len(program.results):], strict=True):
        if not _fits(named[name].part, values):
            return []  # in its own types it overflows, and what then comes of it is no matter of rounding
    spread = [np.zeros(np.shape(_plain(e))) for e in exact]
    rng = np.random.default_rng(len(program.values))
    for _ in range(TRIES):
        noisy: list[Part] = []
        text = widened(program, lambda _, part, noisy=noisy: noisy.append(part))
        given = [[*arguments, *(noise_of(rng, part) for part in noisy)] for arguments in program.given()]
        for k, result in enumerate(run_here(text, given, program)):
            with np.errstate(all="ignore"):
                apart = np.abs(_wide(result) - _wide(exact[k]))
            spread[k] = np.maximum(spread[k], np.where(np.isnan(apart), np.inf, apart))
    return [_far(program.results[k], here[k], there[k], exact[k], spread[k], named[program.results[k]].part) for k in rough]


def noise_of(rng: np.random.Generator, part: Part) -> np.ndarray:
    """Factors of a type's precision around 1, in the type of the evaluation."""
    apart = rng.uniform(-1, 1, part.dims) + (1j * rng.uniform(-1, 1, part.dims) if part.is_complex else 0)
    found = 1 + apart * float(ml_dtypes.finfo(_real(part)).eps)
    return np.asarray(found, "complex128" if part.is_complex else "float64")


def _real(part: Part) -> np.dtype:
    return np.dtype({"c64": "float32", "c128": "float64"}[part.type]) if part.is_complex else dtype_of(part.type)


def _wide(array: np.ndarray) -> np.ndarray:
    return _plain(np.asarray(array)).astype(np.float64)


def _fits(part: Part, values: np.ndarray) -> bool:
    """Whether values neither overflow their type nor are lost in its small end."""
    limits, size = ml_dtypes.finfo(_real(part)), np.abs(_wide(values))
    with np.errstate(all="ignore"):
        within = (size < 0.9 * float(limits.max)) & ((size == 0) | (size > 4 * float(limits.tiny)))
    return bool((np.isfinite(size) & within).all())


def _far(name: str, here: np.ndarray, there: np.ndarray, exact: np.ndarray, spread: np.ndarray, part: Part) -> Difference | None:
    limits = ml_dtypes.finfo(_real(part))
    right = _wide(exact)
    allowed = FACTOR * spread + 4 * float(limits.eps) * np.abs(right)
    with np.errstate(all="ignore"):
        wide = np.abs(right) + allowed > float(limits.max)  # steps on the way may overflow
        wrong = [~((np.abs(_wide(a) - right) <= allowed) | wide) for a in (here, there)]
    far = wrong[0] | wrong[1]
    if not far.any():
        return None
    more = {"f64", "c128"} & {part.type}
    who = "?" if more else "both" if wrong[0].any() and wrong[1].any() else "here" if wrong[0].any() else "xla"
    return Difference(name, who, f"here {_wide(here)[far][:4]}, XLA {_wide(there)[far][:4]}, by float64 {right[far][:4]}, "
                                 f"allowed {allowed[far][:4]}, at {np.argwhere(far)[:2].tolist()}")


def quietly() -> None:
    """No word of what arithmetic warns of: drawn programs overflow and divide by zero."""
    warnings.simplefilter("ignore", RuntimeWarning)
    np.seterr(all="ignore")
