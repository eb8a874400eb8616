"""Runs an example of a row in every form and says how far it is from real XLA."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import xla_torch
from support.agreement import distance, element_type_of
from support.oracle import run_xla_replicas
from xla_torch.transform.other_readers import SPELLINGS

from .drawn import Drawn, Row, eager_result, has_torch_dtype


@dataclasses.dataclass
class Outcome:
    """What a number of examples of one row and element type gave."""

    examples: int = 0
    ulps: float = 0.0
    eager: int = 0
    """How many examples also ran at once on torch tensors."""


def check(row: Row, kind: str, examples: int) -> Outcome:
    """Draw examples of a row with an element type, run each in all forms and compare. Raises AssertionError with the program
    where one differs. Of a single one it is the second that hypothesis draws: the first is the simplest, mostly empty."""
    outcome, drawn = Outcome(), 0

    @settings(max_examples=max(examples, 2), deadline=None, derandomize=True, database=None,
              phases=(Phase.generate, Phase.shrink),
              suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large,
                                     HealthCheck.large_base_example])
    @given(st.data())
    def agrees(data: Any) -> None:
        nonlocal drawn
        drawn += 1
        if examples > 1 or drawn > 1:
            _check_one(row, Drawn(data.draw, kind), outcome)
        else:
            data.draw(st.integers(0, 1 << 16))

    agrees()
    return outcome


def _check_one(row: Row, drawn: Drawn, outcome: Outcome) -> None:
    root = row.build(drawn)
    assert drawn.builder is not None
    if isinstance(root, (list, tuple)):
        root = xla_torch.ops.Tuple(drawn.builder, list(root))
    computation = drawn.builder.build(root)
    text = computation.to_hlo_text()
    try:
        for built, wanted in (_alone if row.participants == (1, 1) else _together)(row, drawn, computation, text, outcome):
            for got, want in zip(built, wanted, strict=True):
                far = furthest(np.asarray(got), np.asarray(want), row)
                outcome.ulps = max(outcome.ulps, far)
                assert far <= row.ulps, f"{far} units in the last place: got {got!r}, XLA {want!r}"
    except AssertionError as error:
        raise AssertionError(f"{row.name}: {error}\n{text}\n" + "\n".join(map(repr, drawn.arrays))) from None
    outcome.examples += 1


Pairs = list[tuple[Sequence[np.ndarray], Sequence[np.ndarray]]]


def _alone(row: Row, drawn: Drawn, computation: xla_torch.XlaComputation, text: str, outcome: Outcome) -> Pairs:
    arrays = drawn.arrays
    built = computation.run_numpy(*arrays)
    _as_read(row, computation, xla_torch.parse_hlo(text).run_numpy(*arrays), built)
    if row.eager and all(has_torch_dtype(element_type_of(a).text) for a in (*arrays, *built)):
        _same_bits(eager_result(row, drawn), built)
        outcome.eager += 1
    return [(built, row.wanted(drawn, text))]


def _together(row: Row, drawn: Drawn, computation: xla_torch.XlaComputation, text: str, outcome: Outcome) -> Pairs:
    """Several participants, each with values of its own, in threads here and on as many devices of XLA."""
    replicas, partitions = row.participants
    arguments = [drawn.of_participant(k) for k in range(replicas * partitions)]
    text = text.replace("HloModule drawn", f"HloModule drawn, replica_count={replicas}, num_partitions={partitions}", 1)
    tuples = [tuple(a) for a in arguments]
    built, read = (xla_torch.run_replicas(program, tuples, num_replicas=replicas, num_partitions=partitions)
                   for program in (computation, xla_torch.parse_hlo(text)))
    for ours, again in zip(built, read, strict=True):
        _as_read(row, computation, again, ours)
    if row.reference is None and drawn.formula is None:
        return list(zip(built, run_xla_replicas(text, arguments, replicas, partitions), strict=True))
    formula = drawn.formula or row.reference
    assert formula is not None
    return list(zip(built, formula(*arguments), strict=True))


def _as_read(row: Row, computation: xla_torch.XlaComputation, read: Sequence[np.ndarray], built: Sequence[np.ndarray]) -> None:
    """The text gives the same bits; where it spells an op in others, which round more often, it is as near as XLA is."""
    if not any(i.opcode in SPELLINGS for i in computation.module.entry.instructions):
        _same_bits(read, built)
        return
    for got, want in zip(read, built, strict=True):
        far = furthest(np.asarray(got), np.asarray(want), row)
        assert far <= row.ulps, f"{far} units in the last place: the text gives {got!r}, the program {want!r}"


def furthest(got: np.ndarray, want: np.ndarray, row: Row) -> float:
    """The largest distance between elements in units in the last place, of a complex number in those of its larger part;
    infinite where types, sizes or exact values differ."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return float("inf")
    is_complex = np.iscomplexobj(want)
    if is_complex:
        got, want = (np.stack([np.real(a), np.imag(a)], -1) for a in (got, want))
    found = distance(got, want, of_largest=row.of_largest)
    if is_complex and not row.of_largest:
        with np.errstate(all="ignore"):
            share = np.spacing(np.abs(want)) / np.spacing(np.abs(want).max(-1, keepdims=True))
        found = np.where(np.isfinite(share), found * share, found)
    if not row.unsigned_zero and not row.of_largest and element_type_of(want).is_floating:
        found = np.where(_other_zero(got, want), np.inf, found)
    return float(found.max(initial=0.0))


def _other_zero(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # NumPy warns of NaN
        wide = [a.astype(np.float64) for a in (got, want)]
    return (wide[0] == 0) & (wide[1] == 0) & (np.signbit(wide[0]) != np.signbit(wide[1]))


def _same_bits(ours: Any, built: Any) -> None:
    """Another form of the same example gives the same bits; NaNs are equal."""
    assert len(ours) == len(built)
    for one, other in zip(ours, built, strict=True):
        a, b = np.asarray(one), np.asarray(other)
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        np.testing.assert_array_equal(a.astype(_plain(a)), b.astype(_plain(b)))


def _plain(array: np.ndarray) -> Any:
    return array.dtype if array.dtype.isbuiltin == 1 else np.float64
