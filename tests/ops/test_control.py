"""Calls, loops, branches, tuples and async wrappers: differential tests against real XLA, and their errors."""

import numpy as np
import pytest

import xla_torch
from support.oracle import run_xla
from xla_torch.errors import InvalidArgument

FUNCTIONS = """
double {
  a = f32[4] parameter(0)
  ROOT d = f32[4] add(a, a)
}
square {
  b = f32[4] parameter(0)
  ROOT s = f32[4] multiply(b, b)
}
pair {
  c = f32[4] parameter(0)
  n = f32[4] negate(c)
  ROOT t = (f32[4], f32[4]) tuple(c, n)
}
down_body {
  t = (s32[], (f32[4], f32[4])) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  p = (f32[4], f32[4]) get-tuple-element(t), index=1
  x = f32[4] get-tuple-element(p), index=0
  y = f32[4] get-tuple-element(p), index=1
  two = s32[] constant(2)
  j = s32[] subtract(i, two)
  z = f32[4] add(x, y)
  q = (f32[4], f32[4]) tuple(y, z)
  ROOT r = (s32[], (f32[4], f32[4])) tuple(j, q)
}
down_condition {
  t = (s32[], (f32[4], f32[4])) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  zero = s32[] constant(0)
  ROOT c = pred[] compare(i, zero), direction=GE
}
until_body {
  x = f32[4] parameter(0)
  ROOT y = f32[4] multiply(x, x)
}
until_condition {
  x = f32[4] parameter(0)
  zero = f32[] constant(0)
  add = f32[] reduce(x, zero), dimensions={0}, to_apply=plus
  limit = f32[] constant(1000)
  ROOT c = pred[] compare(add, limit), direction=LT
}
"""
PLUS = """plus {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT r = f32[] add(p, q)
}
"""

PROGRAMS = {
    "call": "ROOT r = f32[4] call(x), to_apply=square",
    "call of a tuple": "t = (f32[4], f32[4]) call(x), to_apply=pair\n ROOT r = f32[4] get-tuple-element(t), index=1",
    "fusion": "ROOT r = f32[4] fusion(x), kind=kLoop, calls=square",
    "conditional on a predicate": "ROOT r = f32[4] conditional(p, x, x), true_computation=double, false_computation=square",
    "case": "ROOT r = f32[4] conditional(k, x, x), branch_computations={double, square}",
    "case with a known index": "seven = s32[] constant(7)\n"
                               " ROOT r = f32[4] conditional(seven, x, x), branch_computations={double, square}",
    "conditional with tuples": "t = (f32[4], f32[4]) conditional(p, x, x), true_computation=pair, false_computation=pair\n"
                               " ROOT r = f32[4] get-tuple-element(t), index=1",
    "loop that counts down by two": "five = s32[] constant(5)\n u = (f32[4], f32[4]) tuple(x, x)\n"
                                    " t = (s32[], (f32[4], f32[4])) tuple(five, u)\n"
                                    " ROOT r = (s32[], (f32[4], f32[4])) while(t), condition=down_condition, body=down_body",
    "loop that does not run": "minus = s32[] constant(-1)\n u = (f32[4], f32[4]) tuple(x, x)\n"
                              " t = (s32[], (f32[4], f32[4])) tuple(minus, u)\n"
                              " ROOT r = (s32[], (f32[4], f32[4])) while(t), condition=down_condition, body=down_body",
    "loop with a start that is data": "u = (f32[4], f32[4]) tuple(x, x)\n t = (s32[], (f32[4], f32[4])) tuple(k, u)\n"
                                      " ROOT r = (s32[], (f32[4], f32[4])) while(t), condition=down_condition, body=down_body",
    "loop until": "ROOT r = f32[4] while(x), condition=until_condition, body=until_body",
    "tuples in tuples": "t = (f32[4], (pred[], f32[4])) tuple(x, q)\n u = (pred[], f32[4]) get-tuple-element(t), index=1\n"
                        " ROOT r = f32[4] get-tuple-element(u), index=1",
}


def program(body: str) -> str:
    q = " q = (pred[], f32[4]) tuple(p, x)\n" if "(x, q)" in body else ""
    return (f"HloModule m\n\n{PLUS}{FUNCTIONS}\nENTRY main {{\n x = f32[4] parameter(0)\n p = pred[] parameter(1)\n"
            f" k = s32[] parameter(2)\n{q} {body}\n}}\n")


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(("p", "k"), [(True, 0), (False, 1), (True, 5), (False, -3)])
def test_agrees_with_xla(name, p, k):
    text = program(PROGRAMS[name])
    arguments = (np.array([1.5, -2, 0.25, 3], np.float32), np.array(p), np.array(k, np.int32))
    got = xla_torch.parse_hlo(text).run_numpy(*arguments)
    for g, w in zip(got, run_xla(text, *arguments), strict=True):
        np.testing.assert_array_equal(g, w)


def test_async_wrappers_are_evaluated():
    text = program("s = ((f32[4]), f32[4], s32[]) negate-start(x)\n u = ((f32[4]), f32[4], s32[]) negate-update(s)\n"
                   " ROOT r = f32[4] negate-done(u)")
    (got,) = xla_torch.parse_hlo(text).run_numpy(np.arange(4, dtype=np.float32), np.array(True), np.array(0, np.int32))
    np.testing.assert_array_equal(got, -np.arange(4, dtype=np.float32))


REFUSED = [
    ("element of no tuple", "ROOT r = f32[4] get-tuple-element(x), index=0", ["get-tuple-element", "not a tuple"]),
    ("index out of range", "t = (f32[4]) tuple(x)\n ROOT r = f32[4] get-tuple-element(t), index=1", ["out of range", "0 to 0"]),
    ("arity of a call", "ROOT r = f32[4] call(x, x), to_apply=square", ["another number of arguments"]),
    ("argument of a call", "ROOT r = f32[4] call(p), to_apply=square", ["operand 0", "pred[]", "f32[4]"]),
    ("predicate's type", "ROOT r = f32[4] conditional(k, x, x), true_computation=double, false_computation=square",
     ["not PRED", "s32[]"]),
    ("branches' operands", "ROOT r = f32[4] conditional(k, x), branch_computations={double, square}", ["one operand", "2"]),
    ("branches' results", "ROOT r = f32[4] conditional(k, x, x), branch_computations={double, pair}",
     ["different result shapes"]),
    ("body's result", "ROOT r = f32[4] while(x), condition=until_condition, body=pair", ["body's result", "init"]),
    ("condition's result", "ROOT r = f32[4] while(x), condition=double, body=double", ["not a PRED scalar"]),
]


@pytest.mark.parametrize(("body", "words"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refused_at_load(body, words):
    with pytest.raises(InvalidArgument) as caught:
        xla_torch.parse_hlo(program(body))
    for word in words:
        assert word in str(caught.value)
    assert "%r" in str(caught.value)
    assert "line" in str(caught.value)
