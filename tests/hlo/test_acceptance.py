"""Nothing that XLA refuses is silently accepted, and nothing that XLA accepts is refused.

Real XLA and xla_torch both judge the mutants of `support/mutations.py`; where they disagree, an excuse of
`support/acceptance_excuses.py` must say why, and the slow test fails for an excuse that excuses nothing. Text with tokens lost,
doubled or exchanged is only read here: whatever it is, the answer is an error of ours.
"""

from __future__ import annotations

import random
import re
import tracemalloc
import zlib
from collections.abc import Iterator

import numpy as np
import pytest

import xla_torch
from support.acceptance_excuses import LOOSER, STRICTER, Excuse, as_xla_reads, excuse
from support.agreement import dtype_of
from support.counting import python_calls
from support.mutations import Case, all_mutants, cases
from support.oracle import needs_xla
from support.xla_judge import Judge
from xla_torch.errors import XlaError
from xla_torch.types import type_from_text

# --------------------------------------------------------------------------------------------- the judgement


def refusal(text: str) -> XlaError | None:
    """Our error, of the standard error format; None where the text is accepted. Anything else is raised."""
    try:
        xla_torch.parse_hlo(text)
    except XlaError as caught:
        error = caught
    else:
        return None
    assert error.what
    assert error.got != "" or error.expected != "", error
    assert error.subject, error
    assert str(error)
    return error


def disagreement(judge: Judge, mutant: Case, used: set[Excuse]) -> str:
    """What the two say of a mutant, where they disagree without an excuse; else "", and the excuse is one of those used."""
    verdict, ours = judge(as_xla_reads(mutant.text)), refusal(mutant.text)
    if verdict.stage in ("crash", "altered") or verdict.accepted == (ours is None):
        return ""
    messages = verdict.message if ours is None else ours.what
    if (found := excuse(mutant.opcode, messages, mutant.text, looser=ours is None)) is not None:
        used.add(found)
        return ""
    return f"\n{'xla_torch accepts' if ours is None else 'XLA accepts'}: {messages[:300]}\n{mutant.text}"


def _sample(one_of: int) -> list[Case]:
    """The same part of all mutants on every run."""
    return [m for m in all_mutants() if zlib.crc32(m.text.encode()) % one_of == 0]


def _assert_agreement(mutants: list[Case]) -> set[Excuse]:
    """The excuses that were used."""
    used: set[Excuse] = set()
    with Judge() as judge:
        found = [text for mutant in mutants if (text := disagreement(judge, mutant, used))]
    assert not found, f"{len(found)} of {len(mutants)}" + "".join(found[:20])
    return used


@needs_xla
def test_mutants_are_judged_as_by_xla() -> None:
    _assert_agreement(_sample(252))


@needs_xla
@pytest.mark.slow
def test_more_mutants_are_judged_as_by_xla() -> None:
    """Those of the test above among them. An excuse that excuses none of them is stale."""
    used = _assert_agreement(_sample(6))
    assert [e for e in (*STRICTER, *LOOSER) if e not in used] == []


def test_all_programs_are_accepted() -> None:
    """And all mutants are accepted, or refused by an error of ours."""
    for case in cases():
        assert refusal(case.text) is None, case.text
    for mutant in all_mutants()[::6]:
        refusal(mutant.text)


# --------------------------------------------------------------------------------------------- values

_UNLIKE = re.compile(r"rng|custom-call|-done|-start|send|recv|feed|partition-id|replica-id|all-|collective|domain")
"""Opcodes whose results are not a function of the operands, or need several participants or the host."""


def _arguments(case: Case) -> list[np.ndarray] | None:
    """Small numbers for every parameter, or None where one is no array of static sizes."""
    arrays = []
    for number, definition in enumerate(case.definitions):
        match = re.fullmatch(r"([a-z]\w*)\[([\d,]*)\](?:\{[\d,]*\})?", definition)
        kind = type_from_text(match[1]) if match else None
        if match is None or kind is None or not kind.is_array or kind.is_narrow:
            return None
        dims = [int(d) for d in match[2].split(",") if d]
        values = np.random.default_rng(number).integers(0, 2 if kind.is_pred else 4, dims)
        arrays.append((values + np.array(0.25 if kind.is_floating or kind.is_complex else 0)).astype(dtype_of(match[1])))
    return arrays


def _different_values(judge: Judge, case: Case) -> str:
    arguments = None if _UNLIKE.search(case.opcode) else _arguments(case)
    if arguments is None or refusal(case.text) is not None or not judge(case.text).accepted:
        return ""
    want = judge(case.text, arguments)
    if want.results is None:
        return ""
    got = xla_torch.parse_hlo(case.text).run_numpy(*arguments)
    for mine, theirs in zip(got, want.results, strict=True):
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            return f"\n{mine.dtype}{mine.shape} for {theirs.dtype}{theirs.shape}\n{case.text}"
        wide = np.complex128 if mine.dtype.kind == "c" else np.float64
        coarse = 2e-2 if mine.dtype.itemsize <= 2 else 1e-4
        if not np.allclose(mine.astype(wide), theirs.astype(wide), rtol=coarse, atol=coarse, equal_nan=True):
            return f"\n{mine}\nfor\n{theirs}\n{case.text}"
    return ""


@needs_xla
@pytest.mark.slow
def test_accepted_mutants_give_the_same_values() -> None:
    with Judge() as judge:
        found = [text for case in _sample(60) if (text := _different_values(judge, case))]
    assert not found, f"{len(found)}" + "".join(found[:20])


# --------------------------------------------------------------------------------------------- broken text

_TOKEN = re.compile(r'\s+|"[^"]*"|%?[A-Za-z_][\w.\-]*|-?\d+(?:\.\d+)?|.', re.S)
_WORDS = [
    "99999999999999", "-1", "0", "1e999", "nan", "inf", *"{}()[]?=,%é\0", '"', "\\", "<=", "->", "ROOT", "ENTRY", "token[]",
    "(f32[])", "f32[9999999999]", "{...}", "0x", "/*", "//", "*/", "u4[99999]", "s32[1,2]{0,1}", ":T(8,128)", "{1,0:T(0)}", "1_1",
    "1x1", "2x", "b(", "opaque[]", "c128[2]", "f8e4m3fn[3]", "true", "mesh['a'=0]", "[]<=[]", "[0]<=[0]", "T(1,0)", "{{}}",
    "'a':(0)0"]


def broken(count: int, seed: int) -> Iterator[str]:
    """Programs with up to three tokens lost, doubled, exchanged or replaced."""
    choose, texts = random.Random(seed), [case.text for case in cases()]
    pool = [token for text in texts[::5] for token in _TOKEN.findall(text) if not token.isspace()] + _WORDS * 20
    for _ in range(count):
        tokens = _TOKEN.findall(choose.choice(texts))
        for _ in range(choose.choice((1, 1, 1, 2, 3))):
            place, other = choose.randrange(len(tokens)), choose.randrange(len(tokens))
            change = choose.choice(("lose", "double", "exchange", "replace", "replace"))
            if change == "exchange":
                tokens[place], tokens[other] = tokens[other], tokens[place]
            else:
                tokens[place] = {"lose": "", "double": tokens[place] * 2, "replace": choose.choice(pool)}[change]
        yield "".join(tokens)


@pytest.mark.parametrize("seed", range(4))
def test_broken_text_is_refused_by_errors_of_ours(seed: int) -> None:
    for text in broken(1500, seed):
        limit = 20_000 + 100 * len(text)  # the first time may load what is loaded once
        assert python_calls(refusal, text) < limit or python_calls(refusal, text) < limit, text


_NINES = "9" * 5000
BOMBS = [  # an instruction over p: f32[2] whose text asks for much more than it is long
    "f32[9999999999] constant({...})", "f32[9999999999] constant({1,2})", "f32[99999,99999] constant({{1},{2}})",
    "s8[4611686018427387904,4] constant({...})", "c128[9999999999] constant({(1,2)})", "pred[9999999999,0] constant({})",
    "pred[0,9999999999] constant({})", "pred[9999999999,0] constant({{},{}})", "f32[9999999999] iota(), iota_dimension=0",
    f"f32[{_NINES}] iota(), iota_dimension=0", "f32[9999999999,2] broadcast(p), dimensions={1}",
    "f32[2] collective-broadcast(p), replica_groups=[1,9999999999]<=[9999999999]",
    "f32[2] collective-broadcast(p), replica_groups=mesh['a'=99999,'b'=99999] {'a'}", f"f32[2] parameter({_NINES})",
    f"s32[] constant({_NINES})", f"s32[1] constant({{{_NINES}}})", f"f32[1] constant({{{_NINES}}})",
    f"f32[2] slice(p), slice={{[0:{_NINES}]}}", f"f32[2] pad(p, p), padding={_NINES}_0",
    f"reduce-window(p, p), window={{size={_NINES}}}",
    f"f32[2] negate(p), metadata={{source_line={_NINES}}}", f"f32[2]{{0:T({_NINES})}} negate(p)",
    f"f32[2] all-reduce(p), replica_groups=[{_NINES},1]<=[1]", "f32[" + "(" * 30_000, "/*" * 30_000,
    "f32[2] negate(p), metadata={op_name=\"" + "\\" * 30_001, "f32[1] constant(" + "{" * 30_000 + "}" * 30_000 + ")",
    "f32[2] negate(p), sharding=" + "{" * 30_000 + "}" * 30_000, "(" * 5000 + "f32[2]" + ")" * 5000 + " tuple(p)",
    "f32[2] reverse(p), dimensions={" + "0," * 30_000 + "0}", "f32[" + "1," * 30_000 + "1] reshape(p)",
    "negate(" * 5000 + "p" + ")" * 5000,
]


@pytest.mark.parametrize("instruction", BOMBS, ids=lambda text: text[:40])
def test_reading_takes_little_more_than_the_text(instruction: str) -> None:
    text = f"HloModule m\n\nENTRY e {{\n  p = f32[2] parameter(0)\n  ROOT r = {instruction}\n}}\n"
    tracemalloc.start()
    try:
        assert python_calls(refusal, text) < 5_000 + 20 * len(text)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


MODULES = [  # what is wrong in a module around its instructions
    ("ENTRY e {\n  p = f32[] parameter(0)\n}\n\nENTRY f {\n  p = f32[] parameter(0)\n}", "two ENTRY"),
    ("e {\n  p = f32[] parameter(0)\n}\n\ne {\n  p = f32[] parameter(0)\n}", "already exists"),
    ("ENTRY e {\n  p = f32[] parameter(0)\n  p = f32[] negate(p)\n}", "already exists"),
    ("ENTRY e {\n  n = f32[] negate(p)\n  p = f32[] parameter(0)\n}", "does not exist"),
    ("ENTRY e {\n  p = f32[] negate(p)\n}", "does not exist"),
    ("ENTRY e {\n  ROOT p = f32[] parameter(0)\n  ROOT n = f32[] negate(p)\n}", "two ROOT"),
    ("ENTRY e {\n  p = f32[] parameter(1)\n}", "not dense"),
    ("ENTRY e {\n  p = f32[] parameter(0)\n  q = f32[] parameter(0)\n}", "not dense"),
    ("ENTRY e {\n}", "empty"),
    ("ENTRY e {\n  p = f32[] parameter(0)\n  ROOT r = f32[] call(p), to_apply=e\n}", "does not exist"),
    ("ENTRY e {\n  p = f32[] parameter(0)\n  ROOT r = f32[] call(p), to_apply=f\n}\n\nf {\n p = f32[] parameter(0)\n}", "not"),
    ("ENTRY e (p: f32[]) -> f32[2] {\n  p = f32[] parameter(0)\n}", "is not the root's shape"),
    ("ENTRY e {\n  p = f32[] parameter(0)\n", "not closed"),
    ("", "no computation"),
]


@needs_xla
def test_modules_are_refused() -> None:
    with Judge() as judge:
        for body, what in MODULES:
            text = f"HloModule m\n\n{body}\n"
            assert not judge(text).accepted, text
            error = refusal(text)
            assert error is not None, text
            assert what in error.what


def test_without_root_the_last_instruction_is_it() -> None:
    text = "HloModule m\n\nENTRY e {\n  p = f32[] parameter(0)\n  n = s32[] constant(3)\n}\n"
    assert xla_torch.parse_hlo(text).run_numpy(np.float32(1))[0] == 3
