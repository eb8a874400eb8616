"""A sample of `make differential`, and that it sees, judges and shrinks what it is for."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest

import xla_torch
from fuzz import deviations, gradients, judging, reducing, reread, round_trips, trying
from fuzz.drawn import drawn
from fuzz.for_xla import for_xla
from fuzz.programs import Part, Program, Value, text_of, widened
from fuzz.resuming import Batches
from fuzz.running import run_here, stacked
from support.low_thresholds import lower_thresholds
from support.oracle import needs_xla, run_xla, run_xla_replicas
from support.value_differences import evaluated, value_differences
from support.written import WRITTEN

ROUGH = Part("f32", (3,), True)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("low", [False, True], ids=["small", "as large ones"])
@pytest.mark.parametrize("numbers", [range(12), range(12, 24), range(24, 36)], ids=str)
def test_drawn_programs_agree_with_xla(numbers: range, low: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if low:
        lower_thresholds(monkeypatch.setattr)
    programs = [p for n in numbers if (p := drawn(n, most=25, prefix=f"p{n}_")).results]
    text, arrays = text_of(programs), [a for p in programs for a in p.arguments.values()]
    here, there = iter(run_here(text, [arrays], programs[0])), iter(run_xla(text, *arrays))
    for program in programs:
        count = len(program.results)
        found = judging.differences(program, list(itertools.islice(here, count)), list(itertools.islice(there, count)))
        assert not found, program.text()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("replicas", "partitions"), trying.PARTICIPANTS)
def test_drawn_programs_of_several_participants_agree_with_xla(replicas: int, partitions: int) -> None:
    """Where XLA's CPU compiler has no code for a collective, it is asked in other words."""
    programs = [p for n in range(8) if (p := drawn(n, 5, 25, f"p{n}_", replicas, partitions)).results]
    given = [[a for arrays in each for a in arrays] for each in zip(*(p.given() for p in programs), strict=True)]
    here = iter(run_here(text_of(programs), given, programs[0]))
    asked = text_of([for_xla(p) for p in programs])
    there = iter(stacked(run_xla_replicas(asked, given, replicas, partitions)))
    for program in programs:
        count = len(program.results)
        found = judging.differences(program, list(itertools.islice(here, count)), list(itertools.islice(there, count)))
        assert not found, program.text()


def test_several_participants_meet_in_all_collectives_and_modes() -> None:
    programs = [drawn(n, replicas=2, partitions=2) for n in range(60)]
    lines = [v for p in programs for v in p.values]
    assert {v.opcode for v in lines} >= {
        "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "collective-broadcast", "replica-id",
        "partition-id"}
    reductions = [v.attributes for v in lines if v.opcode == "all-reduce"]
    modes = {("channel_id" in text, "use_global_device_ids" in text) for text in reductions}
    assert modes == {(False, False), (True, False), (True, True)}
    assert {trying.counts_of(n) for n in range(1000)} == {(1, 1), *trying.PARTICIPANTS}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("replicas", "partitions"), [(1, 1), (2, 1), (2, 2)])
def test_drawn_programs_are_the_same_in_every_format(replicas: int, partitions: int) -> None:
    programs = [p for n in range(40, 45) if (p := drawn(n, 5, 20, f"p{n}_", replicas, partitions)).results]
    text = text_of(programs)
    given = [[a for arrays in each for a in arrays] for each in zip(*(p.given() for p in programs), strict=True)]
    here = run_here(text, given, programs[0])
    assert round_trips.differences(text, given, programs[0], here, list(WRITTEN)) == []


def test_a_format_that_changes_a_program_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    program = difference()
    changed = dataclasses.replace(program, results=["t"])
    monkeypatch.setitem(WRITTEN, "proto", lambda _: xla_torch.parse_hlo(changed.text()))
    here = run_here(program.text(), program.given(), program)
    found = round_trips.differences(program.text(), program.given(), program, here, ["proto", "text of HLO"])
    assert [message.split(":")[0] for message in found] == ["proto"]
    assert {name for n in range(6) for name in round_trips.formats_of(n)} == set(WRITTEN)


def test_what_stablehlo_has_no_words_for_is_no_difference() -> None:
    state = Value("s", (Part("u64", (2,)),), "rng-get-and-update-state", attributes="delta=1")
    program = Program([], [state], {}, ["s"])
    with pytest.raises(round_trips.Unsaid, match="StableHLO"):
        round_trips.differences(program.text(), [[]], program, [], ["text of StableHLO"])


@needs_xla
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", reread.ENTRY_POINTS)
def test_drawn_programs_are_the_same_at_entry_points(name: str) -> None:
    programs = [p for n in range(40, 46) if (p := drawn(n, 5, 20)).results]
    found = [reread.of(name, program) for program in programs]
    assert {kind for kind, _ in found} <= {reread.AGAIN, reread.INEXPRESSIBLE}, found
    assert (reread.AGAIN, name) in found


def test_an_entry_point_that_changes_a_program_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    program = difference()
    changed = dataclasses.replace(program, results=["t"])
    monkeypatch.setitem(reread.ENTRY_POINTS, "from_jax", lambda _: xla_torch.parse_hlo(changed.text()))
    assert [message.split(",")[0] for message in reread.differences(program, ["from_jax"])] == ["from_jax"]


@pytest.mark.parametrize(("program", "message"), [
    (Program([], [Value("x", (Part("s4", (2,)),), "parameter")], {"x": np.ones(2, "int8").astype("int4")}, ["x"]),
     "torch has no dtype for S4"),
    (Program([], [Value("p", (Part("u32", ()),), "partition-id")], {}, ["p"], partitions=2), "of several participants")],
    ids=["int4", "participants"])
def test_what_an_entry_point_cannot_say_is_counted_with_the_reason(program: Program, message: str) -> None:
    heard: list[tuple[str, int, str]] = []
    reread.tried(program, 7, lambda *one: heard.append(one))
    assert {(kind, number) for kind, number, words in heard if message in words} == {(reread.INEXPRESSIBLE, 7)}


@pytest.mark.parametrize("row", deviations.rows(), ids=lambda row: row.pattern.pattern)
def test_deviations_of_xla_have_a_program_that_shows_them(row: deviations.Row) -> None:
    """It is held against real XLA with the others of its title (`tests/hlo/test_values_as_xla.py`)."""
    examples = [e for d in value_differences() if d.title == row.title for e in d.examples]
    assert any(row.shows_in(evaluated(example.call)[0]) for example in examples)


def test_a_known_deviation_is_none_of_ours() -> None:
    x, y = (Value(name, (Part("f32", (3,)),), "parameter") for name in "xy")
    values = [x, y, Value("p", (ROUGH,), "power", ("x", "y")), Value("l", (ROUGH,), "log", ("p",)),
              Value("s", (ROUGH,), "add", ("x", "y"))]
    program = Program([], values, difference().arguments, ["l", "s"])
    found = {(name, wrong): deviations.row_of(program, judging.Difference(name, wrong, ""))
             for name in "ls" for wrong in ("xla", "here")}
    assert {key for key, title in found.items() if title} == {("l", "xla")}


def test_a_long_run_goes_on_where_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "found.jsonl"
    run = Batches(500, [], path)
    run.add(1000, 2.5, [("agree", 498, ""), ("refused", 501, "no code"), ("differ", 502, "both")])
    with path.open("a") as file:
        file.write('{"from": 1000, "to"')  # the run was ended here
    again = Batches(500, [], path)
    assert (again.next, again.counts, again.reasons, again.found) == (
        1000, {"agree": 498, "refused": 1, "differ": 1}, {"refused: no code": 1}, True)
    again.add(1500, 2.5, [("agree", 500, "")])
    assert Batches(500, [], path).counts["agree"] == 998
    for other in ((0, []), (500, ["low"])):
        with pytest.raises(ValueError, match="goes on with 500"):
            Batches(*other, path)


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
    assert [f.wrong for f in found if f.wrong] == []
    assert sum(f.compared > 0 for f in found) >= 48
    assert sum(f.compared for f in found) > 5 * sum(f.skipped for f in found)


def test_a_wrong_gradient_is_found() -> None:
    """What reduce-precision rounds goes through its gradient as it is, and its slope is none."""
    x, y = Value("x", (Part("f64", (3,)),), "parameter"), Value("y", (Part("f64", (3,)),), "reduce-precision", ("x",),
                                                                   "exponent_bits=8, mantissa_bits=3")
    assert gradients.checked(Program([], [x, y], {"x": np.array([1.1, 2.3, 3.3])}, ["y"])).wrong


def test_kinks_are_left_out_element_by_element() -> None:
    x, y = Value("x", (Part("f64", (3,)),), "parameter"), Value("y", (Part("f64", (3,)),), "abs", ("x",))
    found = gradients.checked(Program([], [x, y], {"x": np.array([0.0, 2.3, -3.3])}, ["y"]))
    assert found == gradients.Checked(compared=2, skipped=1)


def test_a_failing_program_shrinks_to_what_fails() -> None:
    number = next(n for n in itertools.count() if "dot" in {v.opcode for v in drawn(n).values} and drawn(n).size() > 20)

    def fails(program: Program) -> bool:
        xla_torch.parse_hlo(program.text())  # each trial is a program
        return any(v.opcode == "dot" for v in program.values)

    left = reducing.shrunk(drawn(number), fails)
    assert [v.opcode for v in left.values if v.opcode != "parameter"] in (["dot"], ["constant", "dot"], ["dot", "dot"])


def test_smaller_programs_of_several_participants_have_arguments_for_each() -> None:
    for number in range(20):
        program = drawn(number, replicas=2, partitions=2)
        for smaller in itertools.islice(reducing.neighbours(program), 30):
            assert [len(given) for given in smaller.given()] == [len(smaller.arguments)] * 4


def test_a_widened_program_has_its_rough_values_in_float64() -> None:
    noise: list[Part] = []
    text = widened(difference(), lambda _, part: noise.append(part))
    assert "d = f64[3] subtract(" in text
    assert len(noise) == 5
    result, = xla_torch.parse_hlo(text).run_numpy(*difference().arguments.values(), *(np.ones(3) for _ in noise))
    np.testing.assert_allclose(result, [1, 2, 3], rtol=1e-9)
