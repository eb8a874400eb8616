"""Random numbers: generators bit for bit (known answers and real XLA), distributions by range and rough statistics."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

import xla_torch
from support.oracle import needs_xla
from support.scaled_agreement import assert_agrees, run_one
from xla_torch import F32, S32, U32, Shape, ops, random
from xla_torch.core import tuning
from xla_torch.errors import InvalidArgument
from xla_torch.kernels import random as kernels

LAST = 2**64 - 1


@pytest.fixture(autouse=True)
def _unseeded() -> Iterator[None]:
    """Other tests on this thread draw from torch's own generators again."""
    yield
    kernels._source.generators = None


KNOWN = [
    ("rng_philox", [42, 7, 9], "u32[6]", [42, 9, 9], [4151367164, 999626888, 3987458082, 3312483252, 2698840385, 900517438]),
    ("rng_philox", [42, 7], "u32[6]", [42, 9], [1436477672, 1015822685, 1056814300, 3113490754, 1193696974, 489625878]),
    ("rng_three_fry", [42, 7], "u32[6]", [42, 10], [2642642533, 3437982737, 356970675, 1736384518, 4222757798, 1010817143]),
    ("rng_three_fry", [42, 7], "u64[3]", [42, 10], [14766023422270211685, 7457714718447694003, 4341426575643913126]),
    ("rng_three_fry", [42, 7], "u32[5,3]", [42, 16], [
        [2642642533, 356970675, 4222757798], [3437982737, 1736384518, 1010817143], [563344011, 653491321, 2676170827],
        [4074627445, 3185375099, 896844053], [1532797651, 1855476965, 1747370287]]),
    ("rng_three_fry", [42, 7], "u8[3,4]", [42, 13], [[101, 17, 179, 6], [166, 119, 139, 117], [121, 123, 75, 21]]),
    ("rng_philox", [42, 7], "u64[3]", [42, 9], [4362925212046387432, 13372340965885195484, 2102927134478982862]),
    ("rng_philox", [42, LAST, 9], "u16[6]", [42, 1, 10], [36814, 36210, 65187, 63583, 14105, 52408]),
]


def generate(algorithm: str, state: list[int], data: str) -> tuple[np.ndarray, ...]:
    shape = f"u64[{len(state)}]"
    return run_one(f"({shape}, {data}) rng-bit-generator(p0), algorithm={algorithm}", [shape], np.array(state, np.uint64))


@pytest.mark.parametrize(("algorithm", "state", "data", "after", "bits"), KNOWN)
def test_known_answers(algorithm: str, state: list[int], data: str, after: list[int], bits: list) -> None:
    got_state, got_bits = generate(algorithm, state, data)
    assert got_state.tolist() == after
    assert got_bits.tolist() == bits


def test_known_blocks() -> None:
    zero = torch.zeros(1, dtype=torch.int32)
    words = kernels.threefry2x32(zero, zero, zero, zero)
    assert [int(w) & 0xFFFFFFFF for w in words] == [0x6B200159, 0x99BA4EFE]
    zero = torch.zeros(1, dtype=torch.int64)
    words = kernels.philox4x32((zero, zero, zero, zero), zero, zero)
    assert [w.item() for w in words] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


DIMS = ["", "1", "2", "5", "8", "2,3", "3,5", "5,3", "3,4", "1,1", "3,3,3", "2,2,2", "3,1,5", "0", "3,0"]
STATES = [[42, 7], [LAST, 2**32 - 2], [2**63 + 5, LAST - 1]]


@needs_xla
@pytest.mark.parametrize("algorithm", ["rng_three_fry", "rng_philox", "rng_default"])
@pytest.mark.parametrize("dims", DIMS)
def test_bits_of_every_shape(dims: str, algorithm: str) -> None:
    """For every width, and for counters that go round at 2^32 and 2^64."""
    for number, element_type in enumerate(("u8", "u16", "u32", "u64")):
        state = STATES[(number + len(dims)) % len(STATES)]
        assert_agrees(f"(u64[2], {element_type}[{dims}]) rng-bit-generator(p0), algorithm={algorithm}", "u64[2]",
                      arrays=[np.array(state, np.uint64)])


@needs_xla
@pytest.mark.parametrize("algorithm", ["rng_philox", "rng_default"])
@pytest.mark.parametrize("state", [[42, 7, 9], [42, LAST, 9], [LAST, LAST - 1, LAST]])
def test_philox_of_three_words(state: list[int], algorithm: str) -> None:
    for data in ("u16[6]", "u64[3,3]"):
        assert_agrees(f"(u64[3], {data}) rng-bit-generator(p0), algorithm={algorithm}", "u64[3]",
                      arrays=[np.array(state, np.uint64)])


def test_blocks_of_counters_are_seamless(monkeypatch: pytest.MonkeyPatch) -> None:
    state = torch.tensor([42, -3])
    whole = [kernel(state, (3, 50), bits)[1] for kernel in (kernels.threefry_bits, kernels.philox_bits) for bits in (16, 64)]
    monkeypatch.setattr(tuning, "COUNTERS_AT_ONCE", 7)
    parts = [kernel(state, (3, 50), bits)[1] for kernel in (kernels.threefry_bits, kernels.philox_bits) for bits in (16, 64)]
    assert all(map(torch.equal, whole, parts))


def test_documented_function_takes_the_unsigned_type() -> None:
    builder = xla_torch.XlaBuilder("bits")
    state = builder.parameter(0, Shape.parse("u64[2]"))
    assert str(ops.RngBitGenerator("rng_philox", state, Shape.parse("bf16[2,3]")).shape) == "(u64[2], u16[2,3])"
    with pytest.raises(InvalidArgument, match="unsupported shape"):
        ops.RngBitGenerator("rng_philox", state, Shape.parse("c64[2]"))
    with pytest.raises(InvalidArgument, match="wrong initial state for rng_three_fry"):
        ops.RngBitGenerator("rng_three_fry", builder.parameter(1, Shape.parse("u64[3]")), Shape.parse("f32[2]"))


# --------------------------------------------------------------------------------------------- distributions

INTERVALS = [("s8", -100, 100), ("u8", 3, 250), ("s32", -(2**31), 2**31 - 1), ("u16", 1000, 60000), ("u32", 5, 2**32 - 1),
             ("s64", -(2**63), 2**63 - 1), ("u64", 1, LAST), ("s4", -8, 7), ("s32", 7, 8)]


@pytest.mark.parametrize(("element_type", "low", "high"), INTERVALS)
def test_uniform_integers(element_type: str, low: int, high: int) -> None:
    shape = Shape.parse(f"{element_type}[4000]")
    dtype = shape.element_type.numpy
    random.seed(0)
    got, = run_one(f"{shape} rng(p0, p1), distribution=rng_uniform", [f"{element_type}[]"] * 2, np.array(low).astype(dtype),
                   np.array(high, np.uint64 if high > 2**63 else None).astype(dtype))
    values = [int(v) for v in got]
    assert min(values) >= low
    assert max(values) < high
    assert abs(sum(values) / len(values) - (low + high - 1) / 2) <= (high - low) / 20


FLOATS = [("f32", -2.0, 3.0), ("f64", 0.0, 1e-3), ("bf16", 1.0, 1.5), ("f16", 0.0, 1.0)]


@pytest.mark.parametrize(("element_type", "low", "high"), FLOATS)
def test_uniform_floats(element_type: str, low: float, high: float) -> None:
    dtype = Shape.parse(f"{element_type}[]").element_type.numpy
    random.seed(0)
    got, = run_one(f"{element_type}[100,40] rng(p0, p1), distribution=rng_uniform", [f"{element_type}[]"] * 2,
                   np.array(low, dtype), np.array(high, dtype))
    values = got.astype(np.float64)
    assert got.shape == (100, 40)
    assert values.min() >= low
    assert values.max() < high
    assert abs(values.mean() - (low + high) / 2) < (high - low) / 20


@pytest.mark.parametrize("element_type", ["f8e5m2", "f8e4m3fn", "f8e3m4", "f4e2m1fn"])
def test_narrow_floats_stay_below_the_upper_bound(element_type: str) -> None:
    dtype = Shape.parse(f"{element_type}[]").element_type.numpy
    got, = run_one(f"{element_type}[500] rng(p0, p1), distribution=rng_uniform", [f"{element_type}[]"] * 2,
                   np.array(0, dtype), np.array(1, dtype))
    values = got.astype(np.float64)
    assert 0 <= values.min() < values.max() < 1


def test_random_booleans() -> None:
    got, = run_one("pred[1000] rng(p0, p1), distribution=rng_uniform", ["pred[]"] * 2, np.array(False), np.array(True))
    assert 300 < got.sum() < 700


@pytest.mark.parametrize("element_type", ["f32", "f64", "bf16"])
def test_normal(element_type: str) -> None:
    dtype = Shape.parse(f"{element_type}[]").element_type.numpy
    random.seed(0)
    got, = run_one(f"{element_type}[5000] rng(p0, p1), distribution=rng_normal", [f"{element_type}[]"] * 2, np.array(3, dtype),
                   np.array(2, dtype))
    values = got.astype(np.float64)
    assert abs(values.mean() - 3) < 0.2
    assert abs(values.std() - 2) < 0.2


def drawn() -> torch.Tensor:
    return ops.RngNormal(torch.tensor(0.0), torch.tensor(1.0), Shape.parse("f32[4]"))


def test_every_call_draws_anew_and_seeds_repeat() -> None:
    random.seed(3)
    first, second = drawn(), drawn()
    assert not torch.equal(first, second)
    random.seed(3)
    assert torch.equal(drawn(), first)
    with random.use_generator(torch.Generator().manual_seed(5)):
        inside = drawn()
    with random.use_generator(torch.Generator().manual_seed(5)):
        assert torch.equal(drawn(), inside)


def test_program_draws_at_run_time() -> None:
    """Two draws of equal operands are two draws, and a dead one does not disturb."""
    text = """HloModule m
ENTRY e {
  a = f32[] constant(0)
  b = f32[] constant(1)
  x = f32[3] rng(a, b), distribution=rng_uniform
  y = f32[3] rng(a, b), distribution=rng_uniform
  ROOT r = (f32[3], f32[3]) tuple(x, y)
}"""
    program = xla_torch.parse_hlo(text)
    x, y = program()
    assert not torch.equal(x, y)
    assert not torch.equal(x, program()[0])


def test_state_counts_on() -> None:
    program = xla_torch.parse_hlo("HloModule m\nENTRY e {\n  ROOT r = u64[2] rng-get-and-update-state(), delta=3\n}")
    random.seed(0)
    first, second = program.run_numpy()[0], program.run_numpy()[0]
    assert (second[0] - first[0], second[1] - first[1]) == (3, 0)


REFUSED = [
    (["f32[]"], "f32[2]", "rng_uniform", "operands"),
    (["f32[1]", "f32[]"], "f32[2]", "rng_uniform", "parameter 0 is not a scalar"),
    (["f32[]", "f64[]"], "f32[2]", "rng_uniform", "parameter 1 has another element type"),
    (["s32[]", "s32[]"], "s32[2]", "rng_normal", "normal numbers are floating"),
    (["c64[]", "c64[]"], "c64[2]", "rng_uniform", "no uniform distribution for complex types"),
]


@pytest.mark.parametrize(("parameters", "result", "distribution", "what"), REFUSED)
def test_refusals(parameters: list[str], result: str, distribution: str, what: str) -> None:
    builder = xla_torch.XlaBuilder("refused")
    operands = [builder.parameter(k, Shape.parse(s)) for k, s in enumerate(parameters)]
    with pytest.raises(InvalidArgument, match=what):
        builder.add("rng", operands, {"distribution": distribution}, Shape.parse(result))


def test_documented_names() -> None:
    integers = ops.RngUniform(torch.tensor(0, dtype=torch.int32), torch.tensor(9, dtype=torch.int32), Shape.array(S32, (3,)))
    assert integers.dtype is torch.int32
    floats = ops.RngUniform(torch.tensor(0.0), torch.tensor(9.0), Shape.array(F32, (3,)))
    assert floats.dtype is torch.float32
    state = torch.tensor([1, 2]).view(torch.uint64)
    _, bits = ops.RngBitGenerator("rng_default", state, Shape.array(U32, (3,)))
    assert bits.dtype is torch.uint32
