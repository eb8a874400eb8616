"""Looking inside programs: what is seen is what runs, NaNs are found where they are made, programs are compared."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import xla_torch
from xla_torch import debug
from xla_torch.errors import InvalidArgument, NothingObserved

PROGRAMS = sorted(p for p in (Path(__file__).parents[1] / "data/programs").iterdir() if p.is_dir())


@pytest.mark.parametrize("folder", PROGRAMS, ids=lambda p: p.name)
@pytest.mark.parametrize("file", ["module.hlo", "optimized_cpu.hlo"])
def test_what_is_seen_is_what_runs(folder: Path, file: str):
    """Results have the same bits while programs are watched, and the last thing seen is the result."""
    computation = xla_torch.load(folder / file)
    with np.load(folder / "data.npz") as data:
        names = sorted(n for n in data.files if n.startswith("arg"))
        arguments = [data[n] for n in names]
    assert len(arguments) == len(computation.program_shape.parameters)
    plain = computation.run_numpy(*arguments)
    steps: list[debug.Step] = []
    with debug.observed(steps.append):
        watched = computation.run_numpy(*arguments)
    for a, b in zip(plain, watched, strict=True):
        np.testing.assert_array_equal(a, b)
    assert len(steps) > 20
    root = next(s for s in steps if s.instruction is computation.program.canonical.root)
    flat = root.value if isinstance(root.value, tuple) else (root.value,)
    for tensor, array in zip(flat, watched, strict=True):
        np.testing.assert_array_equal(tensor.numpy(), array)


LOOP = """HloModule loop
body {
  t = (s32[], f32[3]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  x = f32[3] get-tuple-element(t), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  half = f32[] constant(0.5)
  halves = f32[3] broadcast(half), dimensions={}
  shrunk = f32[3] multiply(x, halves), metadata={op_name="model/shrink" source_file="model.py" source_line=7}
  ROOT r = (s32[], f32[3]) tuple(next, shrunk)
}
goes_on {
  t = (s32[], f32[3]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(4)
  ROOT p = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[3] parameter(0)
  zero = s32[] constant(0)
  init = (s32[], f32[3]) tuple(zero, x)
  loop = (s32[], f32[3]) while(init), condition=goes_on, body=body
  ROOT r = f32[3] get-tuple-element(loop), index=1
}"""


@pytest.mark.parametrize("names", ["shrunk", "model/*", "model.py:7", re.compile("shr.nk"), "*shr?nk"])
def test_a_trace_shows_a_loop_by_iteration(names: str | re.Pattern[str]):
    x = torch.tensor([8.0, 0.0, -16.0])
    found = debug.trace(xla_torch.parse_hlo(LOOP), x, names=names)
    assert [row.place for row in found.rows] == [(("loop", n),) for n in range(4)]
    for n, row in enumerate(found["shrunk"]):
        torch.testing.assert_close(row.value, x / 2 ** (n + 1), rtol=0, atol=0)
    assert found.rows[0].statistics == [debug.Statistics(3, -8.0, 4.0, -4 / 3, 0, 0, 1)]
    assert (found.rows[0].op_name, found.rows[0].source) == ("model/shrink", "model.py:7")
    torch.testing.assert_close(found.result, x / 16, rtol=0, atol=0)
    assert "loop[3]/shrunk = f32[3]" in str(found).replace("%", "")


def test_a_trace_keeps_no_more_than_it_may():
    found = debug.trace(xla_torch.parse_hlo(LOOP), torch.ones(3), names="shrunk", keep=30)
    assert [row.kept is not None for row in found.rows] == [True, True, False, False]
    assert found.rows[3].statistics[0].greatest == 1 / 16
    with pytest.raises(InvalidArgument, match="did not keep"):
        _ = found.rows[3].value
    seen: list[str] = []
    assert debug.trace(xla_torch.parse_hlo(LOOP), torch.ones(3), names="shrunk", on=lambda s: seen.append(s.name)).rows == []
    assert seen == ["shrunk"] * 4


@pytest.mark.parametrize(("names", "messages"), [
    ("shrank", "did you mean 'shrunk'?"), ("model/shrunk", "did you mean 'model/shrink'?"), (re.compile("nowhere"), "nowhere")])
def test_unknown_names_warn(names: str | re.Pattern[str], messages: str):
    with pytest.warns(NothingObserved, match=re.escape(messages)) as warned:
        found = debug.trace(xla_torch.parse_hlo(LOOP), torch.ones(3), names=names)
    assert found.rows == []
    assert "no instruction that ran has this name" in str(warned[0].message)


def test_watching_nothing_warns():
    with pytest.warns(NothingObserved, match="no program ran in this block"), debug.find_nan() as found:
        pass
    assert str(found) == "nothing was watched: no program ran meanwhile"
    with debug.find_nan() as found:
        xla_torch.parse_hlo(LOOP)(torch.ones(3))
    assert str(found) == "no NaN or Inf was made"
    with pytest.warns(NothingObserved, match="of participant 7"), debug.observed(print, participant=7):
        xla_torch.parse_hlo(LOOP)(torch.ones(3))
    with pytest.raises(ValueError, match="mine"), debug.find_nan():  # an error says enough
        raise ValueError("mine")


STATISTICS = [
    (torch.tensor([1.0, math.nan, math.inf, 0.0, -3.0]), debug.Statistics(5, -3.0, 1.0, -2 / 3, 1, 1, 1)),
    (torch.tensor([math.nan]), debug.Statistics(1, None, None, None, 1, 0, 0)),
    (torch.tensor([2**63 - 1, 0]), debug.Statistics(2, 0, 2**63 - 1, float(2**62), 0, 0, 1)),
    (torch.tensor([2**63, 2**63], dtype=torch.uint64), debug.Statistics(2, 2**63, 2**63, float(2**63), 0, 0, 0)),
    (torch.tensor([3 + 4j, 0]), debug.Statistics(2, 0.0, 5.0, 2.5, 0, 0, 1)),
    (torch.tensor([0.5, -0.0]).to(torch.float8_e4m3fn), debug.Statistics(2, 0.0, 0.5, 0.25, 0, 0, 1)),
    (torch.tensor([True, False]), debug.Statistics(2, 0, 1, 0.5, 0, 0, 1)),
    (torch.zeros(0), debug.Statistics(0, None, None, None, 0, 0, 0)),
    (torch.zeros(0, dtype=torch.int32), debug.Statistics(0, None, None, None, 0, 0, 0)),
]


@pytest.mark.parametrize(("tensor", "expected"), STATISTICS)
def test_statistics(tensor: torch.Tensor, expected: debug.Statistics):
    assert debug.Statistics.of(tensor) == expected


def _program(lines: str) -> xla_torch.XlaComputation:
    return xla_torch.parse_hlo(f"HloModule m\nENTRY e {{\n  x = f32[2] parameter(0)\n{lines}\n}}")


MAKES = {
    "NaN of a root": ("  a = f32[2] negate(x)\n  b = f32[2] sqrt(a)\n  ROOT c = f32[2] add(b, b)", [1.0, 2.0], "b"),
    "Inf of a logarithm": ("  b = f32[2] log(x)\n  ROOT c = f32[2] subtract(b, b)", [0.0, 2.0], "b"),
    "NaN of Infs that are written": (
        "  i = f32[] constant(-inf)\n  b = f32[2] broadcast(i), dimensions={}\n  d = f32[2] subtract(b, b)\n"
        "  ROOT c = f32[2] add(d, x)", [1.0, 1.0], "d"),
    "an argument": ("  b = f32[2] sqrt(x)\n  ROOT c = f32[2] add(b, b)", [math.nan, 1.0], "x"),
    "nothing": ("  b = f32[2] sqrt(x)\n  ROOT c = f32[2] add(b, b)", [4.0, 1.0], None),
    "an Inf that came in": ("  ROOT c = f32[2] add(x, x)", [math.inf, 1.0], None),
}


@pytest.mark.parametrize(("lines", "values", "name"), MAKES.values(), ids=MAKES.keys())
def test_the_first_nan_is_found(lines: str, values: list[float], name: str | None):
    found = debug.find_nan(_program(lines), torch.tensor(values))
    assert (found.step.name if found else None) == name
    assert ("no NaN" if name is None else f"%{name} = ") in str(found)


def test_a_nan_in_a_loop_is_found_with_its_iteration():
    text = LOOP.replace("multiply(x, halves), ", "subtract(x, halves), ").replace(
        "tuple(next, shrunk)", "tuple(next, root)").replace("  ROOT r = (s32[], f32[3]) tuple(next",
                                                            "  root = f32[3] sqrt(shrunk)\n  ROOT r = (s32[], f32[3]) tuple(next")
    found = debug.find_nan(xla_torch.parse_hlo(text), torch.tensor([100.0, 1.0, 100.0]))
    x, n = np.float32(1.0), 0
    while not np.isnan(x):
        with np.errstate(invalid="ignore"):
            x = np.sqrt(x - np.float32(0.5))
        n += 1
    assert found.step.name == "root"
    assert found.step.place == (("loop", n - 1),)
    assert found.step.operands[0][1] < 0


def test_a_nan_of_the_backward_pass_is_found():
    """The square root of 0 is 0, its derivative infinite, and 0 times that NaN."""
    computation = _program("  b = f32[2] sqrt(x)\n  ROOT c = f32[2] multiply(b, b)")
    x = torch.tensor([0.0, 4.0], requires_grad=True)
    with debug.find_nan() as forwards:
        result = computation(x)
    assert not forwards
    with debug.find_nan() as backwards:
        result.sum().backward()
    assert x.grad is not None
    assert not x.grad.isfinite().all()
    assert backwards
    assert backwards.step.operands
    assert all(torch.isfinite(o).all() for o in backwards.step.operands)
    assert not torch.isfinite(backwards.step.value).all()


@pytest.mark.parametrize("backwards", [False, True])
def test_gradients_are_the_same_while_they_are_watched(backwards: bool):
    computation = xla_torch.parse_hlo(LOOP)
    plain, watched = (torch.tensor([1.0, 2.0, 3.0], requires_grad=True) for _ in range(2))
    computation(plain).pow(2).sum().backward()
    seen: list[str] = []
    with debug.observed(lambda s: seen.append(s.program)):
        result = computation(watched).pow(2).sum()
        if backwards:
            result.backward()
    if not backwards:
        result.backward()
    assert seen
    assert plain.grad is not None
    torch.testing.assert_close(plain.grad, watched.grad, rtol=0, atol=0)


def test_breakpoints_and_checks():
    computation = xla_torch.parse_hlo(LOOP)
    hit: list[int] = []
    with debug.break_at("shrunk", lambda step: hit.append(step.place[0][1])), debug.check("shrunk", lambda t: (t > 0.1).all()):
        with pytest.raises(debug.CheckFailed, match=r"loop\[3\]/%shrunk.*not as demanded") as raised:
            computation(torch.ones(3))
        assert "model/shrink" in str(raised.value)
    assert hit == [0, 1, 2, 3]
    computation(torch.ones(3))  # nobody looks any more
    assert hit == [0, 1, 2, 3]


def test_errors_of_observers_are_theirs():
    def fails(step: debug.Step) -> None:
        raise KeyError(step.name)

    with debug.break_at("shrunk", fails), pytest.raises(KeyError, match="shrunk"):
        xla_torch.parse_hlo(LOOP)(torch.ones(3))


def test_one_participant_of_many():
    computation = xla_torch.parse_hlo(
        "HloModule m, replica_count=2\nadd { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }\n"
        "ENTRY e { x = f32[2] parameter(0) ROOT r = f32[2] all-reduce(x), replica_groups={}, to_apply=add }")
    rows: list[debug.Step] = []
    with debug.observed(rows.append, names="r", participant=1):
        results = xla_torch.run_replicas(computation, [[torch.ones(2)], [torch.full((2,), 3.0)]], num_replicas=2)
    assert [step.participant for step in rows] == [1]
    torch.testing.assert_close(rows[0].value, torch.full((2,), 4.0))
    torch.testing.assert_close(results[0], torch.full((2,), 4.0))


BEFORE = "  a = f32[2] exponential(x)\n  b = f32[2] multiply(a, x)\n  c = f32[2] tanh(b)\n  ROOT d = f32[2] add(c, a)"
DIFFERS = {
    "another op of the same name": (BEFORE.replace("tanh(b)", "logistic(b)"), "d"),
    "another operand": (BEFORE.replace("multiply(a, x)", "multiply(a, a)"), "c"),
    "a root of another op and type": (
        BEFORE.replace("f32[2] add(c, a)", "f64[2] convert(e)").replace("  ROOT", "  e = f32[2] add(b, a)\n  ROOT"), "d"),
    "equal, in another order": ("  a = f32[2] exponential(x)\n  q = f32[2] multiply(a, x)\n  c = f32[2] tanh(q)\n"
                                "  ROOT d = f32[2] add(c, a)", None),
    "equal, by other ops": (BEFORE.replace("exponential(x)", "exponential(y)").replace(
        "  a =", "  m = f32[2] negate(x)\n  y = f32[2] negate(m)\n  a ="), None),
}


@pytest.mark.parametrize(("after", "name"), DIFFERS.values(), ids=DIFFERS.keys())
def test_programs_part_where_they_first_differ(after: str, name: str | None):
    found = debug.first_divergence(_program(BEFORE), _program(after), torch.tensor([0.5, 1.5]))
    assert (found.b.name if found.b else None) == name


def test_two_dtypes_part_only_beyond_the_tolerance():
    halves = "  h = bf16[2] convert(x)\n" + BEFORE.replace("f32", "bf16").replace("(x)", "(h)").replace("x)", "h)").replace(
        "ROOT d", "e") + "\n  ROOT d = f32[2] convert(e)"
    x = torch.tensor([0.51, 1.53])
    assert debug.first_divergence(_program(BEFORE), _program(halves), x, tolerance=0.05).results == ()
    found = debug.first_divergence(_program(BEFORE), _program(halves), x, tolerance=1e-4)
    assert found.a is not None
    assert found.b is not None
    assert (found.a.name, found.b.name) == ("a", "a")
    for side, text in zip((found.a, found.b), found.reduce(), strict=True):
        again = xla_torch.parse_hlo(text)(*side.operands)
        torch.testing.assert_close(again, side.value, rtol=0, atol=0)


def test_iterations_are_compared_with_their_own():
    other = LOOP.replace("constant(0.5)", "constant(0.25)")
    found = debug.first_divergence(xla_torch.parse_hlo(LOOP), xla_torch.parse_hlo(other), torch.ones(3))
    assert found.b is not None
    assert (found.b.name, found.b.place) == ("half", (("loop", 0),))
    assert debug.first_divergence(xla_torch.parse_hlo(LOOP), xla_torch.parse_hlo(LOOP), torch.ones(3)).results == ()
    with pytest.raises(InvalidArgument, match="take more than is kept"):
        debug.first_divergence(xla_torch.parse_hlo(LOOP), xla_torch.parse_hlo(other), torch.ones(3), keep=16)

