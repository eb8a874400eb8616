"""The evaluator: whose error it is when a body fails, and the one way in for every instruction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import xla_torch
from support.reductions import entry, module
from xla_torch.errors import ExecutionError, InternalError, InvalidArgument
from xla_torch.hlo.ir import Instruction
from xla_torch.lowering import bodies  # noqa: F401  (fills the table)
from xla_torch.lowering.body_table import BODIES, Body
from xla_torch.lowering.evaluator import Evaluator


def fails_in(monkeypatch: pytest.MonkeyPatch, fails: Callable[..., Any]) -> xla_torch.XlaComputation:
    """A program whose only op has this body."""
    monkeypatch.setitem(BODIES._rules, "tan", Body(lambda inst, operand, **_: fails(operand)))
    return xla_torch.parse_hlo(module(entry(["f32[2,3]"], 'r = f32[2,3] tan(p0), metadata={op_name="model/tan"}')))


def _nothing_there(_: Any) -> Any:
    return {}["lost"]


def _no_such_attribute(_: Any) -> Any:
    return (3).missing  # pyright: ignore[reportAttributeAccessIssue]


def _beyond_a_list(_: Any) -> Any:
    return [1, 2][len("beyond")]


def _raised_by_us(_: Any) -> Any:
    raise RuntimeError("no such case")


def _asserted(_: Any) -> Any:
    raise AssertionError("cannot be")


def _wrong_unpacking(_: Any) -> Any:
    first, second = [1]
    return first + second


@pytest.mark.parametrize(("fails", "text"), [
    (_nothing_there, "KeyError: 'lost'"), (_no_such_attribute, "AttributeError: 'int' object has no attribute 'missing'"),
    (_beyond_a_list, "IndexError: list index out of range"), (_raised_by_us, "RuntimeError: no such case"),
    (_asserted, "AssertionError: cannot be"), (_wrong_unpacking, "ValueError: not enough values"),
    (lambda _: None + torch.zeros, "TypeError: unsupported operand"),  # pyright: ignore[reportOperatorIssue]
])
def test_our_own_errors_are_called_ours(monkeypatch: pytest.MonkeyPatch, fails: Callable[..., Any], text: str):
    with pytest.raises(InternalError) as raised:
        fails_in(monkeypatch, fails).lowered()
    message = str(raised.value)
    assert message.startswith(f"tan (%r): {text}")
    assert "from      model/tan" in message
    assert "defect of xla_torch" in message
    assert "report" in message
    assert type(raised.value.__cause__).__name__ == text.partition(":")[0]


TORCH_REFUSES: dict[str, Callable[..., Any]] = {
    "sizes": lambda _: torch.zeros(2) + torch.zeros(3),
    "an index": lambda _: torch.zeros(2)[5],
    "a dimension": lambda _: torch.zeros(2).sum(7),
    "a matrix": lambda _: torch.linalg.cholesky(torch.zeros(2, 2)),
    "ranks": lambda _: torch.cat([torch.zeros(2), torch.zeros(2, 2)]),
    "a proxy": bool,
    "an option": lambda _: torch.nn.functional.conv1d(torch.zeros(2), torch.zeros(2), padding="much"),
}


@pytest.mark.parametrize("fails", TORCH_REFUSES.values(), ids=TORCH_REFUSES.keys())
def test_errors_of_torch_are_called_torchs(monkeypatch: pytest.MonkeyPatch, fails: Callable[..., Any]):
    with pytest.raises(ExecutionError, match=r"tan \(%r\): torch refused: ") as raised:
        fails_in(monkeypatch, fails).lowered()
    assert raised.value.__cause__ is not None
    assert "defect" not in str(raised.value)


def test_errors_with_a_message_of_their_own_stay(monkeypatch: pytest.MonkeyPatch):
    def refuses(_: Any) -> Any:
        raise InvalidArgument("not like this", got=3)

    with pytest.raises(InvalidArgument, match=r"tan \(%r\): not like this"):
        fails_in(monkeypatch, refuses).lowered()
# ------------------------------------------------------------------------------------------------ one way in

INSIDE = """double {
  x = f32[] parameter(0)
  ROOT y = f32[] add(x, x)
}
negated {
  x = f32[] parameter(0)
  ROOT y = f32[] negate(x)
}
reducer {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  p = pred[] compare(a, b), direction=LT
  c = f32[] conditional(p, a, b), true_computation=double, false_computation=negated
  d = f32[] call(c), to_apply=double
  ROOT e = f32[] multiply(d, b)
}
goes_on {
  t = (s32[], f32[3]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(5)
  ROOT p = pred[] compare(i, n), direction=LT
}
step {
  t = (s32[], f32[3]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  x = f32[3] get-tuple-element(t), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[3] sine(x)
  ROOT u = (s32[], f32[3]) tuple(j, y)
}
"""


def test_every_instruction_comes_in_one_way(monkeypatch: pytest.MonkeyPatch):
    """Those of regions, branches and loops as well, each as often as it is evaluated; parameters do not come."""
    seen: Counter[str] = Counter()
    whole = Evaluator.instruction

    def counted(self: Evaluator, instruction: Instruction, operands: Sequence[Any]) -> Any:
        seen[instruction.opcode] += 1
        return whole(self, instruction, operands)

    monkeypatch.setattr(Evaluator, "instruction", counted)
    xla_torch.parse_hlo(module(INSIDE, entry(
        ["f32[3,4]"], "z = f32[] constant(2)", "r = f32[3] reduce(p0, z), dimensions={1}, to_apply=reducer",
        "k = s32[] constant(0)", "t = (s32[], f32[3]) tuple(k, r)",
        "w = (s32[], f32[3]) while(t), condition=goes_on, body=step"))).lowered()
    inside = ("compare", "conditional", "call", "negate", "multiply", "reduce", "while", "sine")
    assert {opcode: seen[opcode] for opcode in inside} == dict.fromkeys(inside, 1)
    assert seen["add"] == 3  # two in a call and a branch of the reducer, one in the loop's body
    assert "parameter" not in seen


AS_IT_STANDS = """HloModule m
inner { a = f32[3] parameter(0) ROOT n = f32[3] negate(a) }
ENTRY e {
  p = f32[3] parameter(0)
  f = f32[3] fusion(p), kind=kLoop, calls=inner
  s = ((f32[3]), f32[3], s32[]) async-start(f), calls=inner
  u = ((f32[3]), f32[3], s32[]) async-update(s)
  d = f32[3] async-done(u)
  ROOT c = f32[3] call(d), to_apply=inner
}"""


def test_calls_of_every_kind_are_evaluated_as_they_stand():
    """Programs are evaluated in canonical form, which has none of them; a computation that is not brought into it may have."""
    x = torch.tensor([1.0, -2.0, 0.5])
    assert torch.equal(Evaluator().run(xla_torch.parse_hlo(AS_IT_STANDS).entry, [x]), -x)
