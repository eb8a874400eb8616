"""Reading is linear: in unnamed operands, in groups of devices, in branches."""

from __future__ import annotations

from collections.abc import Container
from typing import cast

import pytest
import torch

import xla_torch
from support import shared_programs as programs
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
