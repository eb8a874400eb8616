"""Where two programs part: results come first, what is blamed made differing values of agreeing ones, and what an optimiser made
of other instructions has no counterpart."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import xla_torch
from xla_torch import debug
from xla_torch.errors import InvalidArgument

PROGRAMS = sorted(p for p in (Path(__file__).parents[1] / "data/programs").iterdir() if p.is_dir())


def _program(lines: str) -> xla_torch.XlaComputation:
    head = "HloModule m\nENTRY e {\n  x = f32[2] parameter(0)\n  y = f32[2] parameter(1)\n  z = f32[2] parameter(2)\n"
    return xla_torch.parse_hlo(f"{head}{lines}\n}}")


def _op(line: str, op_name: str) -> str:
    return f'  {line}, metadata={{op_name="{op_name}"}}\n'


def _sum(order: str, after: str) -> str:
    """x + y + z with XLA's freedom: (x + y) + z or x + (y + z), of the same op_names, and what follows."""
    p, q, r = ("x, y", "add1", "z") if order == "left" else ("y, z", "x", "add1")
    return _op(f"add1 = f32[2] add({p})", "f/first") + _op(f"add2 = f32[2] add({q}, {r})", "f/second") + after


NEGATED = "  ROOT r = f32[2] negate(add2)"
CHAINS = "".join(_op(f"t{n} = f32[2] tanh({n})", "f/tanh") for n in "xyz") + "".join(
    _op(f"m{n} = f32[2] cosine(t{n})", "f/cosine") for n in "xyz") + "  ROOT r = (f32[2], f32[2], f32[2]) tuple(mx, my, mz)"
SHUFFLED = "".join(_op(f"q{n} = f32[2] tanh({n})", "f/tanh") for n in "zxy") + "".join(
    _op(f"u{n} = f32[2] cosine(q{n})", "f/cosine") for n in "yzx") + "  ROOT r = (f32[2], f32[2], f32[2]) tuple(ux, uy, uz)"
SCALED = """  c = f32[] constant(2)
  k = f32[2] broadcast(c), dimensions={}
  d = f32[] constant(3)
  l = f32[2] broadcast(d), dimensions={}
  p = f32[2] multiply(x, k)
  q = f32[2] add(y, l)
  s = f32[2] tanh(p)
  ROOT r = f32[2] add(s, q)"""

PARTS = {  # a, b, blamed, without counterpart in a and in b
    "regrouped, equal": (_sum("left", NEGATED), _sum("right", NEGATED), None, [], []),
    "regrouped, and another op behind": (_sum("left", NEGATED), _sum("right", NEGATED.replace("negate", "abs")), "r", [], []),
    "regrouped, and another op before": (
        _sum("left", NEGATED).replace("(x, y)", "(w, y)").replace("  add1", "  w = f32[2] tanh(x)\n  add1", 1),
        _sum("right", NEGATED).replace("(x, add1)", "(w, add1)").replace("  add1", "  w = f32[2] sine(x)\n  add1", 1),
        "r", ["w", "add1", "add2"], ["w", "add1", "add2"]),
    "shuffled, equal": (CHAINS, SHUFFLED, None, [], []),
    "shuffled, and another op in one": (CHAINS, SHUFFLED.replace("tanh(y)", "sine(y)"), "uy", ["ty"], ["qy"]),
    "another constant": (SCALED, SCALED.replace("constant(2)", "constant(5)"), "c", [], []),
    "another constant, which is elsewhere": (SCALED, SCALED.replace("constant(2)", "constant(3)"), "c", [], []),
    "constants in another order": (SCALED, SCALED.replace("multiply(x, k)", "multiply(k, x)"), None, [], []),
    "an op without counterpart in the middle": (SCALED, SCALED.replace("tanh(p)", "sine(p)"), "r", ["s"], ["s"]),
    "results in another order": (CHAINS, CHAINS.replace("(mx, my", "(my, mx"), "r", [], []),
}


@pytest.mark.parametrize(("a", "b", "name", "in_a", "in_b"), PARTS.values(), ids=PARTS.keys())
def test_programs_part(a: str, b: str, name: str | None, in_a: list[str], in_b: list[str]):
    arguments = torch.tensor([0.5, 1.5]), torch.tensor([0.25, -2.0]), torch.tensor([-0.75, 3.0])
    found = debug.first_divergence(_program(a), _program(b), *arguments)
    assert (found.b.name if found.b else None) == name
    assert [[i.name for i in side] for side in found.without_counterpart] == [in_a, in_b]
    assert bool(found) is (name is not None)
    assert ("the results agree" in str(found)) is (name is None)
    assert ("no counterpart" in str(found)) is bool(in_a or in_b)


@pytest.mark.parametrize(("values", "differs"), [([math.nan, 1.0], False), ([-1.0, 4.0], True), ([math.inf, 0.0], False)])
def test_nan_equals_nan_alone(values: list[float], differs: bool):
    a, b = (xla_torch.parse_hlo(f"HloModule m\nENTRY e {{\n  x = f32[2] parameter(0)\n  {lines}\n}}") for lines in (
        "s = f32[2] sqrt(x)\n  ROOT r = f32[2] negate(s)",
        "a = f32[2] abs(x)\n  s = f32[2] sqrt(a)\n  ROOT r = f32[2] negate(s)"))
    found = debug.first_divergence(a, b, torch.tensor(values))
    assert bool(found) is differs
    assert found.results == (((0, math.inf),) if differs else ())


DEEP = """HloModule deep
body {
  t = (s32[], f32[3], f32[3]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  x = f32[3] get-tuple-element(t), index=1
  y = f32[3] get-tuple-element(t), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  two = s32[] constant(2)
  odd = pred[] compare(i, two), direction=EQ
  all = pred[3] broadcast(odd), dimensions={}
  up = f32[3] sine(x)
  down = f32[3] cosine(x)
  new = f32[3] select(all, up, down)
  sum = f32[3] add(y, new)
  ROOT r = (s32[], f32[3], f32[3]) tuple(next, new, sum)
}
goes_on {
  t = (s32[], f32[3], f32[3]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(4)
  ROOT p = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[3] parameter(0)
  zero = s32[] constant(0)
  init = (s32[], f32[3], f32[3]) tuple(zero, x, x)
  loop = (s32[], f32[3], f32[3]) while(init), condition=goes_on, body=body
  y = f32[3] get-tuple-element(loop), index=2
  ROOT r = f32[3] exponential(y)
}"""
TURNED = DEEP.replace("(s32[], f32[3], f32[3])", "(f32[3], s32[], f32[3])").replace("(t), index=0", "(t), index=A").replace(
    "(t), index=1", "(t), index=0").replace("index=A", "index=1").replace("tuple(next, new", "tuple(new, next").replace(
    "tuple(zero, x", "tuple(x, zero")
LOOPS = {
    "carried in another order": (TURNED, None, 0),
    "another op in one iteration": (DEEP.replace("sine(x)", "tanh(x)").replace("cotanh", "cosine"), "new", 2),
    "another constant": (DEEP.replace("s32[] constant(2)", "s32[] constant(3)"), "two", 2),
    "carried in another order, another op": (TURNED.replace("f32[3] cosine(x)", "f32[3] tan(x)"), "new", 0),
    "more iterations": (DEEP.replace("constant(4)", "constant(5)"), "n", 4),
}


@pytest.mark.parametrize(("text", "name", "iteration"), LOOPS.values(), ids=LOOPS.keys())
def test_loops_part_in_an_iteration(text: str, name: str | None, iteration: int):
    found = debug.first_divergence(xla_torch.parse_hlo(DEEP), xla_torch.parse_hlo(text), torch.tensor([0.5, 1.0, -2.0]))
    assert (found.b.name if found.b else None) == name
    assert (found.b.place if found.b else None) == (None if name is None else (("loop", iteration),))


@pytest.mark.parametrize("folder", PROGRAMS, ids=lambda p: p.name)
def test_what_xla_made_of_a_program_agrees_with_it(folder: Path):
    computations = [xla_torch.load(folder / file) for file in ("module.hlo", "optimized_cpu.hlo")]
    with np.load(folder / "data.npz") as data:
        arguments = [torch.from_numpy(data[f"arg{n}"]) for n in range(sum(n.startswith("arg") for n in data.files))]
    assert str(debug.first_divergence(computations[0], computations[1], *arguments)) == "the results agree"


def test_a_constant_changed_in_what_xla_made_of_a_program():
    """XLA wrote a division as a product: behind it the result differs, and what it regrouped in between has no counterpart."""
    folder = Path(__file__).parents[1] / "data/programs/mlp_loss"
    text = (folder / "optimized_cpu.hlo").read_text()
    assert text.count("constant(0.142857149)") == 1
    with np.load(folder / "data.npz") as data:
        arguments = [torch.from_numpy(data[f"arg{n}"]) for n in range(sum(n.startswith("arg") for n in data.files))]
    found = debug.first_divergence(xla_torch.load(folder / "module.hlo"),
                                   xla_torch.parse_hlo(text.replace("constant(0.142857149)", "constant(7.25)")), *arguments)
    assert found.a is not None
    assert found.b is not None
    assert (found.a.instruction.opcode, found.b.instruction.opcode) == ("negate", "negate")
    assert [i.opcode for i in found.agreeing] == ["reduce"]
    assert [[i.opcode for i in side] for side in found.without_counterpart] == [["constant", "divide"], ["constant", "multiply"]]
    assert "no counterpart" in str(found)


def test_what_xla_wrote_otherwise_is_not_blamed_for_what_differs_before_it():
    """A mean is a sum by its reciprocal there: 12 and 1/12 are no counterparts, though both stand at the result."""
    a, b = (f"  c = f32[] constant({number})\n  k = f32[2] broadcast(c), dimensions={{}}\n  s = f32[2] {op}(x)\n"
            f"  ROOT r = f32[2] {last}(s, k)" for op, number, last in (("sine", 4, "divide"), ("tanh", 0.25, "multiply")))
    found = debug.first_divergence(_program(a), _program(b), *[torch.tensor([0.5, 1.5])] * 3)
    assert found.b is not None
    assert found.b.name == "r"
    assert [[i.name for i in side] for side in found.without_counterpart] == [["c", "k", "s"]] * 2


def test_other_numbers_of_results_are_refused():
    a, b = (_program(f"  ROOT r = {lines}") for lines in ("f32[2] add(x, y)", "(f32[2], f32[2]) tuple(x, z)"))
    with pytest.raises(InvalidArgument, match="different numbers of results"):
        debug.first_divergence(a, b, *[torch.ones(2)] * 3)
