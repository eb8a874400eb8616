"""Nothing that XLA refuses is silently accepted, and nothing that XLA accepts is refused.

Real XLA and xla_torch both judge the mutants of `mutations.py`; where they disagree, a row of `STRICTER` or `LOOSER` must say
why. Text with tokens lost, doubled or exchanged is only read here: whatever it is, the answer is an error of ours.
"""

from __future__ import annotations

import random
import re
import time
import tracemalloc
import zlib
from collections.abc import Iterator

import numpy as np
import pytest

import xla_torch
from agreement import dtype_of
from mutations import Case, all_mutants, cases
from oracle import needs_xla
from xla_judge import Judge
from xla_torch.errors import XlaError
from xla_torch.types import type_from_text

# --------------------------------------------------------------------------------------------- where they may disagree

_HALVES = r"async-\w+|(?:negate|add)-(?:start|done)"
_TOKENS = r"add-dependency|after-all|infeed|outfeed|recv|recv-done|send|send-done"

LOOSER = [  # opcode, XLA's message, the mutant's text, and why it is accepted all the same
    (r".*", r"expects opcode|end of tuple", r"\[\]\{\}", "a scalar's layout may be written {}, as the documents say"),
    (r".*", r"", r"<=\d", "of a size with a bound XLA's compiler takes less than its shape inference"),
    (r"atan|collective-reduce", r"Unknown opcode", r"", "opcodes of a newer XLA"),
    (r"a?cosh?|a?sinh?|atanh?", r"", r"c64", "of complex numbers, as XLA's builder and chlo have them"),
    (r"mulhi|scaled-dot", r"mhlo\.unknown", r"", "the import to StableHLO, before XLA verifies, does not know the opcode"),
    (_HALVES, r"async", r"", "the import of async operations does not keep their shapes"),
    (r"reduce-window", r"Reduction function must take", r"", "XLA's parser infers the shape of one array only"),
    (r".*", r"", r"\d{20}", "XLA's scanner reads no integer of more than 64 bits, in floats either"),
    (r"custom-call", r"", r'"Sharding"', "what the partitioner checks of its own custom calls"),
    (r"constant", r"Unsupported type: TUPLE", r"", "XLA's CPU compiler has no tuple constants"),
    (r"domain|add-dependency|copy", r"must be ranked tensor", r"", "the import knows these of arrays only"),
    (r"dynamic-(update-)?slice", r"", r"\[1\]", "start indices as one vector, which HLO has and StableHLO has not"),
    (r"dynamic-slice", r"expected 'sizes'", r"", "the import loses the empty list of sizes"),
    (r"convolution", r"Unsupported conversion", r"", "a pass of XLA's CPU compiler; its shape inference takes such operands"),
    (r"bitcast-convert", r"compatible bit widths", r"pred\[", "PRED has 8 bits in HLO and 1 in StableHLO"),
    (r"parameter", r"shouldn't have frontend attributes", r"", "the import flattens tuple parameters"),
    (r"all-to-all", r"non-empty replica groups|split_count", r"", "no groups are one of all, however many there are"),
    (r"all-gather|all-reduce|reduce-scatter|all-gather-done|all-gather-start", r"can't be translated|ranked tensor", r"",
     "of one operand's result as a tuple of one, which HLO has and StableHLO has not"),
    (r".*", r"", r"\]T\(0\)", "the transpose of one dimension, written out"),
    (r"ragged-all-to-all", r"result_layout", r"", "layouts do not matter here"),
    (r"collective-broadcast", r"was given -1", r"", "groups of different sizes, which StableHLO cannot write"),
    (r"fusion", r"must have users", r"", "XLA wants fused computations without dead instructions"),
    (r"tuple", r"Expected 1 results but got 0", r"", "the import of an empty tuple with a sharding"),
    (r"all-reduce", r"Failed to get shape", r"sharding=", "the import of a tuple with a sharding"),
    (r"copy|custom-call", r"compatible types|Expected instruction to have shape", r"", "the import of tuples, and of shardings"),
]

STRICTER = [  # opcode, our message, and why it is refused all the same
    (_TOKENS + "|bitcast|fusion|conditional|all-gather-done|all-reduce-done|copy-done|collective-permute-done", r"",
     "the import loses or repairs what the text says"),
    (r"reduce-window|select-and-scatter|convolution", r"rhs_reversal", "XLA overlooks reversals of a wrong number or sign"),
    (r"select-and-scatter", r"is dilated", "the import forgets dilation, and XLA's evaluator has none"),
    (r"select-and-scatter", r"of the select computation does not fit", "XLA overlooks the precision of what selects"),
    (r"map", r"all dimensions in order", "XLA's verifier overlooks the list that its shape inference refuses"),
    (r"ragged-dot", r"group sizes are not integers", "counts are whole numbers"),
    (r"ragged-all-to-all", r"do not fit|not an array", "XLA overlooks the element type and sizes"),
    (r"dot", r"expects 2 operands", "what is left of sparse dots in XLA"),
    (r"[gs]et-dimension-size|reduce-scatter|all-gather", r"dimension", "XLA reads the first of several dimensions"),
    (r"fft", r"does not fit the fft_length|negative", "XLA overlooks the lengths of complex transforms"),
    (r".*", r"incompatible shapes", "XLA's inference stretches 1 to a size with a bound, and then refuses the operation"),
    (r"reduce-precision", r"than an s32 counts", "XLA drops the upper bits"),
    (r"constant", r"", "XLA counts neither braces nor commas"),
    (r"gather", r"slice size other than 1", "an index of nothing"),
    (r"rng-bit-generator", r"expects 1 operands", "XLA overlooks further operands"),
    (r"all-gather|reduce-scatter", r"as many shards", "XLA overlooks the groups where ids are global"),
    (r"dynamic-reshape", r"not an s32 scalar", "XLA overlooks the sizes' shapes"),
    (r"\S*", r"expects an integer", "XLA drops the fraction of an integer"),
    (r"topk", r"complex", "complex numbers are in no order"),
]


def _reason(opcode: str, said: str, text: str, looser: bool) -> str:
    if looser:
        return next((why for op, xla, written, why in LOOSER
                     if re.fullmatch(op, opcode) and re.search(xla, said) and re.search(written, text)), "")
    return next((why for op, ours, why in STRICTER if re.fullmatch(op, opcode) and re.search(ours, said)), "")


# --------------------------------------------------------------------------------------------- the judgement


def refusal(text: str) -> XlaError | None:
    """Our error, of the house form; None where the text is accepted. Anything else is raised."""
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


def disagreement(judge: Judge, mutant: Case) -> str:
    """What the two say of a mutant, where they disagree for no reason we know; else ""."""
    verdict, ours = judge(mutant.text), refusal(mutant.text)
    if verdict.stage in ("crash", "altered") or verdict.accepted == (ours is None):
        return ""
    said = verdict.message if ours is None else ours.what
    if _reason(mutant.opcode, said, mutant.text, looser=ours is None):
        return ""
    return f"\n{'xla_torch accepts' if ours is None else 'XLA accepts'}: {said[:300]}\n{mutant.text}"


def _sample(one_of: int) -> list[Case]:
    """The same part of all mutants on every run."""
    return [m for m in all_mutants() if zlib.crc32(m.text.encode()) % one_of == 0]


def _assert_agreement(mutants: list[Case]) -> None:
    with Judge() as judge:
        found = [text for mutant in mutants if (text := disagreement(judge, mutant))]
    assert not found, f"{len(found)} of {len(mutants)}" + "".join(found[:20])


@needs_xla
def test_mutants_are_judged_as_by_xla() -> None:
    _assert_agreement(_sample(250))


@needs_xla
@pytest.mark.slow
def test_more_mutants_are_judged_as_by_xla() -> None:
    _assert_agreement(_sample(6))


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
        start = time.process_time()
        refusal(text)
        assert time.process_time() - start < 2, text


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
    tracemalloc.start()
    start = time.process_time()
    try:
        refusal(f"HloModule m\n\nENTRY e {{\n  p = f32[2] parameter(0)\n  ROOT r = {instruction}\n}}\n")
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert time.process_time() - start < 5


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
