"""Reading is linear: in unnamed operands, in groups of devices, in branches."""

from __future__ import annotations

from collections.abc import Container
from typing import cast

import pytest
import torch

import xla_torch
from support import shared_programs as programs
from support.counting import python_calls
from xla_torch.errors import HloSyntaxError
from xla_torch.hlo.ir import free_name


class Counting(dict[str, int]):
    """Names that count how often one is looked for."""

    looked = 0

    def __contains__(self, name: object) -> bool:
        Counting.looked += 1
        return super().__contains__(name)


def test_unnamed_operands_are_named_in_linear_time() -> None:
    taken, counts = Counting(), {}
    Counting.looked = 0
    for _ in range(1000):
        taken[free_name("negate", cast("Container[str]", taken), counts)] = 1
    assert list(taken) == ["negate", *(f"negate.{k}" for k in range(1, 1000))]
    assert Counting.looked < 3000


def test_names_of_unnamed_operands() -> None:
    """The first that are free, in each computation anew."""
    text = """HloModule m
f { x = f32[] parameter(0)
  ROOT r = add(f32[] negate(x), f32[] negate(x)) }
ENTRY e { p = f32[] parameter(0)
  negate.anon.1 = f32[] negate(p)
  a = add(f32[] negate(p), f32[] negate(p))
  c = f32[] call(a), to_apply=f
  ROOT t = tuple(a, negate.anon.1, c) }"""
    entry = xla_torch.parse_hlo(text).module.entry
    assert [i.name for i in entry.instructions] == ["p", "negate.anon.1", "negate.anon", "negate.anon.2", "a", "c", "t"]
    inner = xla_torch.parse_hlo(text).module.computations[0]
    assert [i.name for i in inner.instructions] == ["x", "negate.anon", "negate.anon.1", "r"]


def test_groups_of_more_devices_than_there_are() -> None:
    text = ("HloModule m\nadd { x = f32[] parameter(0)\n y = f32[] parameter(1)\n ROOT r = f32[] add(x, y) }\n"
            "ENTRY e { p = f32[] parameter(0)\n ROOT r = f32[] all-reduce(p), to_apply=add, replica_groups={} }")
    assert xla_torch.parse_hlo(text.replace("{} }", "[4,2]<=[8] }"))
    with pytest.raises(HloSyntaxError, match="devices at most"):
        xla_torch.parse_hlo(text.replace("{} }", "[1,10000000]<=[10000000] }"))


def test_many_branches() -> None:
    count = 500
    branches = "\n".join(f"b{k} {{ x = f32[] parameter(0)\n k = f32[] constant({k})\n ROOT r = f32[] add(x, k) }}"
                         for k in range(count))
    text = (f"HloModule m\n{branches}\nENTRY e {{ i = s32[] parameter(0)\n p = f32[] parameter(1)\n ROOT r = f32[] "
            f"conditional(i, {', '.join(['p'] * count)}), branch_computations={{{', '.join(f'b{k}' for k in range(count))}}} }}")
    program = xla_torch.parse_hlo(text)
    for index, expected in ((0, 1.0), (123, 124.0), (499, 500.0), (-1, 500.0)):
        assert program(torch.tensor(index, dtype=torch.int32), torch.tensor(1.0)).item() == expected


def test_deep_branches() -> None:
    """Each conditional inside another one's branch, eighty deep."""
    found = xla_torch.parse_hlo(programs.conditionals(80))(torch.ones(4))
    torch.testing.assert_close(found, torch.sin(torch.ones(4)))


# ------------------------------------------------------------------------------------------------ elements of large tuples

ELEMENTS = " g{k} = f32[4] get-tuple-element(p), index={k}\n n{k} = f32[4] {op}(g{k})"


def taken_apart(name: str, op: str, count: int) -> str:
    """A computation of a tuple, which takes each element out of it."""
    shape = f"({', '.join(['f32[4]'] * count)})"
    lines = "\n".join(ELEMENTS.format(k=k, op=op) for k in range(count))
    results = ', '.join(f'n{k}' for k in range(count))
    return f"{name} {{\n p = {shape} parameter(0)\n{lines}\n ROOT t = {shape} tuple({results})\n}}\n"


def of_a_tuple(count: int, called: str) -> str:
    """A program that makes a tuple of its arguments for an instruction with computations."""
    shape = f"({', '.join(['f32[4]'] * count)})"
    parameters = "\n".join(f" p{k} = f32[4] parameter({k})" for k in range(count))
    return (f"HloModule m\n\n{taken_apart('a', 'sine', count)}\n{taken_apart('b', 'negate', count)}\n"
            f"c {{\n p = {shape} parameter(0)\n x = f32[4] get-tuple-element(p), index=0\n s = f32[1] slice(x), slice={{[0:1]}}\n"
            " v = f32[] reshape(s)\n h = f32[] constant(0.5)\n ROOT r = pred[] compare(v, h), direction=GT\n}\n\n"
            f"ENTRY e {{\n{parameters}\n i = s32[] constant(1)\n"
            f" t = {shape} tuple({', '.join(f'p{k}' for k in range(count))})\n ROOT w = {shape} {called}\n}}\n")


@pytest.mark.parametrize("called", ["call(t), to_apply=a", "conditional(i, t, t), branch_computations={a,b}",
                                    "while(t), condition=c, body=a", "tuple(ALL)"])
def test_elements_of_large_tuples(called: str) -> None:
    """Twice as many take twice as long to read, to lower, to differentiate and to write."""

    def work(count: int) -> int:
        text = of_a_tuple(count, called.replace("ALL", ", ".join(f"p{k}" for k in range(count))))
        arguments = [torch.full((4,), 0.7, requires_grad=True) for _ in range(count)]

        def run() -> None:
            program = xla_torch.parse_hlo(text)
            torch.stack(list(program(*arguments))).sum().backward()
            program.to_stablehlo()
            program.to_hlo_proto()

        return python_calls(run)

    work(3)
    assert work(160) < 2.3 * work(80)


def test_one_tuple_as_an_argument() -> None:
    def work(count: int) -> int:
        text = taken_apart("ENTRY e", "negate", count)
        argument = tuple(torch.ones(4) for _ in range(count))
        return python_calls(lambda: xla_torch.parse_hlo(f"HloModule m\n\n{text}")(argument))

    work(3)
    assert work(400) < 2.3 * work(200)
