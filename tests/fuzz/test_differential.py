"""A sample of `make differential`, and that it sees, judges and shrinks what it is for."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

import xla_torch
from fuzz import gradients, judging, reducing
from fuzz.drawn import drawn
from fuzz.programs import Part, Program, Value, text_of, widened
from support.low_thresholds import lower_thresholds
from support.oracle import run_xla

ROUGH = Part("f32", (3,), True)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("low", [False, True], ids=["small", "as large ones"])
@pytest.mark.parametrize("numbers", [range(12), range(12, 24), range(24, 36)], ids=str)
def test_drawn_programs_agree_with_xla(numbers: range, low: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if low:
        lower_thresholds(monkeypatch.setattr)
    programs = [p for n in numbers if (p := drawn(n, most=25, prefix=f"p{n}_")).results]
    text, arrays = text_of(programs), [a for p in programs for a in p.arguments.values()]
    here, there = iter(judging.run_here(text, arrays)), iter(run_xla(text, *arrays))
    for program in programs:
        count = len(program.results)
        found = judging.differences(program, list(itertools.islice(here, count)), list(itertools.islice(there, count)))
        assert not found, program.text()


def test_programs_are_always_the_same_and_use_all_kinds_of_ops() -> None:
    programs = [drawn(n) for n in range(150)]
    assert programs[7].text() == drawn(7).text() != drawn(8).text()
    opcodes = {v.opcode for p in programs for v in [*p.values, *(v for r in p.regions for v in r.values)]}
    assert opcodes >= {
        "add", "select", "while", "conditional", "call", "reduce", "reduce-window", "sort", "scatter", "gather", "dot", "map",
        "pad", "convolution", "dynamic-slice", "dynamic-update-slice", "set-dimension-size", "convert", "fft", "bitcast-convert"}


def difference() -> Program:
    """(x + y) - y, of which rounding leaves little."""
    x, y = (Value(name, (Part("f32", (3,)),), "parameter") for name in "xy")
    total = Value("t", (ROUGH,), "add", ("x", "y"))
    apart = Value("d", (ROUGH,), "subtract", ("t", "y"))
    given = {"x": np.array([1, 2, 3], "f4"), "y": np.array([7e4, 1e5, 1e-2], "f4")}
    return Program([], [x, y, total, apart], given, ["d"])


def test_what_rounding_explains_is_no_difference_and_who_is_wrong_is_known() -> None:
    program = difference()
    near = [np.array([1 + 1 / 128, 2 - 1 / 128, 3], "f4")]  # two units of what was rounded
    right = [np.array([1, 2, 3], "f4")]
    wrong = [np.array([1, 2, 3.1], "f4")]
    assert not judging.differences(program, near, right)
    assert [d.wrong for d in judging.differences(program, wrong, near)] == ["here"]
    assert [d.wrong for d in judging.differences(program, near, wrong)] == ["xla"]


def test_what_is_exact_must_be_the_same() -> None:
    program = dataclasses.replace(difference(), results=["x"])
    ours = [np.array([1, 2, 3], "f4")]
    assert not judging.differences(program, ours, ours)
    assert judging.differences(program, ours, [np.nextafter(ours[0], np.float32(9))])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_gradients_of_drawn_programs_are_their_slopes() -> None:
    found = [gradients.slope_of(number) for number in range(60)]
    assert found.count("agree") > 8
    assert set(found) <= {"agree", "not smooth", "no float64"}


def test_a_wrong_gradient_is_found() -> None:
    """What reduce-precision rounds goes through its gradient as it is, and its slope is none."""
    x, y = Value("x", (Part("f64", (3,)),), "parameter"), Value("y", (Part("f64", (3,)),), "reduce-precision", ("x",),
                                                                   "exponent_bits=8, mantissa_bits=3")
    assert gradients.wrong(Program([], [x, y], {"x": np.array([1.1, 2.3, 3.3])}, ["y"])) is not None


def test_a_failing_program_shrinks_to_what_fails() -> None:
    number = next(n for n in itertools.count() if "dot" in {v.opcode for v in drawn(n).values} and drawn(n).size() > 20)

    def fails(program: Program) -> bool:
        xla_torch.parse_hlo(program.text())  # each trial is a program
        return any(v.opcode == "dot" for v in program.values)

    left = reducing.shrunk(drawn(number), fails)
    assert [v.opcode for v in left.values if v.opcode != "parameter"] in (["dot"], ["constant", "dot"], ["dot", "dot"])


def test_a_widened_program_has_its_rough_values_in_float64() -> None:
    noise: list[Part] = []
    text = widened(difference(), lambda _, part: noise.append(part))
    assert "d = f64[3] subtract(" in text
    assert len(noise) == 5
    result, = xla_torch.parse_hlo(text).run_numpy(*difference().arguments.values(), *(np.ones(3) for _ in noise))
    np.testing.assert_allclose(result, [1, 2, 3], rtol=1e-9)
