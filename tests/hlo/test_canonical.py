"""The canonical form: what is in it, what is not, and that what is in it stays as it is."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch

import xla_torch
from xla_torch.hlo.ir import Computation, reachable
from xla_torch.hlo.printer import print_computation
from xla_torch.transform.canonical import Canonicalizer, canonicalize, is_canonical
from xla_torch.transform.rewriter import rebuilt

REGIONS = """HloModule m
double { a = f32[2] parameter(0) ROOT r = f32[2] add(a, a) }
condition { p = (s32[], f32[2]) parameter(0) i = s32[] get-tuple-element(p), index=0 n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT }
body { p = (s32[], f32[2]) parameter(0) i = s32[] get-tuple-element(p), index=0 x = f32[2] get-tuple-element(p), index=1
  one = s32[] constant(1) j = s32[] add(i, one) y = f32[2] add(x, x) ROOT r = (s32[], f32[2]) tuple(j, y) }
body_with_call { p = (s32[], f32[2]) parameter(0) i = s32[] get-tuple-element(p), index=0
  x = f32[2] get-tuple-element(p), index=1 one = s32[] constant(1) j = s32[] add(i, one) y = f32[2] call(x), to_apply=double
  ROOT r = (s32[], f32[2]) tuple(j, y) }
yes { a = (f32[2]) parameter(0) e = f32[2] get-tuple-element(a), index=0 ROOT r = (f32[2]) tuple(e) }
no { a = (f32[2]) parameter(0) e = f32[2] get-tuple-element(a), index=0 n = f32[2] negate(e) ROOT r = (f32[2]) tuple(n) }
plain { a = f32[2] parameter(0) ROOT r = f32[2] negate(a) }
ENTRY e {
  x = f32[2] parameter(0)
  zero = s32[] constant(0)
"""

CANONICAL = {
    "nothing at all": "n = f32[0] slice(x), slice={[2:2]} ROOT r = f32[0] concatenate(n, n), dimensions={0}",
    "array ops": "ROOT r = f32[2] add(x, x)",
    "a tuple result": "y = f32[2] negate(x) ROOT r = (f32[2], f32[2]) tuple(x, y)",
    "a loop": "t = (s32[], f32[2]) tuple(zero, x) w = (s32[], f32[2]) while(t), condition=condition, body=body "
              "ROOT r = f32[2] get-tuple-element(w), index=1",
    "a branch": "p = pred[] compare(zero, zero), direction=EQ t = (f32[2]) tuple(x) u = (f32[2]) tuple(x) "
                "c = (f32[2]) conditional(p, t, u), true_computation=yes, false_computation=no "
                "ROOT r = f32[2] get-tuple-element(c), index=0",
    "a bitcast in memory order": "ROOT r = f32[1,2] bitcast(x)",
    "a slice of two parts": "c = f32[4] concatenate(x, x), dimensions={0} ROOT r = f32[2] slice(c), slice={[1:3]}",
    "another quotient": "ROOT r = f32[2] divide(x, x)",
}
NOT_CANONICAL = {
    "a call": "ROOT r = f32[2] call(x), to_apply=double",
    "a fusion": "ROOT r = f32[2] fusion(x), kind=kLoop, calls=double",
    "an asynchronous wrapper": "s = ((f32[2]), f32[2], s32[]) async-start(x), calls=double ROOT r = f32[2] async-done(s)",
    "a call in a loop": "t = (s32[], f32[2]) tuple(zero, x) w = (s32[], f32[2]) while(t), condition=condition, "
                        "body=body_with_call ROOT r = f32[2] get-tuple-element(w), index=1",
    "a carry that is no tuple instruction": "t = (s32[], f32[2]) tuple(zero, x) b = (s32[], f32[2]) opt-barrier(t) w = (s32[], "
        "f32[2]) while(b), condition=condition, body=body ROOT r = f32[2] get-tuple-element(w), index=1",
    "a branch over arrays": "p = pred[] compare(zero, zero), direction=EQ ROOT c = f32[2] conditional(p, x, x), "
                            "true_computation=plain, false_computation=double",
    "an element of a tuple": "t = (f32[2]) tuple(x) ROOT r = f32[2] get-tuple-element(t), index=0",
    "a result that is a tuple otherwise": "t = (f32[2]) tuple(x) ROOT r = (f32[2]) opt-barrier(t)",
    "dead code": "dead = f32[2] negate(x) ROOT r = f32[2] add(x, x)",
    "a layout": "b = f32[2,2]{0,1} broadcast(x), dimensions={0} ROOT r = f32[2,2]{0,1} negate(b)",
    "a bitcast between layouts": "b = f32[2,2]{0,1} broadcast(x), dimensions={0} ROOT r = f32[2,2]{1,0} bitcast(b)",
    "a sharding": "ROOT r = f32[2] negate(x), sharding={replicated}",
    "an operand without elements": "n = f32[0] slice(x), slice={[2:2]} ROOT r = f32[4] concatenate(x, n, x), dimensions={0}",
    "nothing else": "n = f32[0] slice(x), slice={[2:2]} ROOT r = f32[2] concatenate(n, x), dimensions={0}",
    "one operand": "ROOT r = f32[2] concatenate(x), dimensions={0}",
    "a slice of one part": "c = f32[6] concatenate(x, x, x), dimensions={0} ROOT r = f32[1] slice(c), slice={[3:4]}",
    "a slice of a part of a part": "c = f32[4] concatenate(x, x), dimensions={0} d = f32[6] concatenate(x, c), dimensions={0} "
        "ROOT r = f32[2] slice(d), slice={[4:6:1]}",
    "a logistic function written out": "n = f32[2] negate(x) e = f32[2] exponential(n) one = f32[] constant(1) o = f32[2] "
        "broadcast(one), dimensions={} s = f32[2] add(o, e) ROOT r = f32[2] divide(o, s)",
}


def computation(text: str) -> Computation:
    prefix = REGIONS if "zero" in text else REGIONS.replace("  zero = s32[] constant(0)\n", "")
    return xla_torch.parse_hlo(f"{prefix}{text}\n}}").module.entry


@pytest.mark.parametrize("name", CANONICAL)
def test_what_is_canonical_stays_as_it_is(name: str) -> None:
    given = computation(CANONICAL[name])
    assert canonicalize(given) is given
    again = rebuilt(given, Canonicalizer)
    assert [i.opcode for i in again.instructions] == [i.opcode for i in given.instructions]


@pytest.mark.parametrize("name", NOT_CANONICAL)
def test_what_is_not_becomes_canonical(name: str) -> None:
    given = computation(NOT_CANONICAL[name])
    before = print_computation(given)
    assert not is_canonical(given)
    found = canonicalize(given)
    assert found is not given
    assert print_computation(given) == before
    for each in reachable([found]):
        each.is_canonical = False  # what the canonicalizer noted is looked for again
    assert is_canonical(found)
    assert canonicalize(found) is found


@pytest.mark.parametrize("name", [name for name in (*CANONICAL, *NOT_CANONICAL) if name.startswith("a slice")])
def test_slices_of_parts_have_their_elements(name: str) -> None:
    text = {**CANONICAL, **NOT_CANONICAL}[name]
    program = xla_torch.parse_hlo(REGIONS.replace("  zero = s32[] constant(0)\n", "") + text + "\n}")
    first, last = (int(n) for n in re.search(r"slice=\{\[(\d):(\d)", text).groups())  # pyright: ignore[reportOptionalMemberAccess]
    x = torch.tensor([3.0, 5.0])
    assert torch.equal(program(x), x.repeat(3)[first:last])


def test_it_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    given = computation(CANONICAL["a loop"])
    assert is_canonical(given)

    def fail(*_: object) -> None:
        raise AssertionError("looked again")

    monkeypatch.setattr("xla_torch.transform.canonical.needed_instructions", fail)
    assert canonicalize(given) is given


LOSS = """HloModule m
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
square { a = f32[2] parameter(0) ROOT r = f32[2] multiply(a, a) }
ENTRY e { x = f32[2] parameter(0) y = f32[2] call(x), to_apply=square z = f32[] constant(0)
  ROOT l = f32[] reduce(y, z), dimensions={0}, to_apply=sum }"""


@pytest.mark.parametrize("derive", [xla_torch.grad, lambda program: xla_torch.vmap(program, 3)], ids=["grad", "vmap"])
def test_a_derived_program_is_canonical_by_construction(derive: Callable[..., xla_torch.XlaComputation]) -> None:
    """It is made of canonical parts, so nothing is rebuilt when it runs."""
    derived = derive(xla_torch.parse_hlo(LOSS))
    assert canonicalize(derived.entry) is derived.entry
