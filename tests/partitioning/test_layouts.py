"""Layouts by name: where they put the arguments, that programs compute the same, and what `suggest_sharding` says of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import xla_torch
from support.distributed_workers import Workers
from support.meshes import batch, mesh_of, program_of, run_partitioned, trained, weights
from support.oracle import HAS_XLA, needs_xla
from xla_torch import partition, suggest_sharding
from xla_torch.api.suggestions import Machine
from xla_torch.demo import PROGRAM, stored
from xla_torch.errors import InvalidArgument
from xla_torch.nn import XlaModule

if HAS_XLA:
    import jax
    import jax.numpy as jnp
    from jax import lax

pytestmark = needs_xla


def cuts(part: Any) -> dict[str, tuple[int, ...]]:
    """How often each dimension of each parameter is cut."""
    count = part.partitioning.partitions
    return {p.name.rstrip(".1"): p.common["sharding"].grid(p.shape.rank, count).counts for p in part.entry.parameters}


# ------------------------------------------------------------------------------------------------ where arrays lie


@pytest.mark.parametrize(("words", "mesh", "want"), [
    ("data", {"d": 4}, {"characters": (4, 1), "p__layers___0___qkv__": (1, 1), "p__norm__": (1,)}),
    ("fully_sharded", {"d": 4}, {"characters": (4, 1), "p__layers___0___qkv__": (1, 4), "p__layers___0___down__": (4, 1),
                                 "p__norm__": (4,)}),
    ("tensor", {"m": 4}, {"characters": (1, 1), "p__characters__": (4, 1), "p__layers___0___qkv__": (1, 4),
                          "p__layers___0___out__": (4, 1), "p__layers___1___up__": (1, 4), "p__layers___1___down__": (4, 1),
                          "p__norm__": (1,)}),
    ({"d": "fully_sharded", "m": "tensor"}, {"d": 2, "m": 2}, {
        "characters": (2, 1), "p__layers___0___qkv__": (2, 2), "p__layers___0___down__": (2, 2), "p__norm__": (2,)}),
    ({"m": "tensor"}, {"d": 2, "m": 2}, {"characters": (1, 1), "p__layers___0___qkv__": (1, 2)}),
    ("fully_sharded", {"d": 128}, {"characters": (1, 1), "p__layers___0___down__": (128, 1), "p__norm__": (1,)}),
])
def test_a_transformer(words: Any, mesh: dict[str, int], want: dict[str, tuple[int, ...]]) -> None:
    found = cuts(partition(xla_torch.load(PROGRAM), mesh, words))
    assert {name: found[name] for name in want} == want


def convolutions(params: Any, x: Any) -> Any:
    for kernel in params:
        x = jnp.tanh(lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
    return (x ** 2).sum()


def tables(params: Any, ids: Any) -> Any:
    return (params["table"][ids] @ params["kernel"].T.astype(jnp.float32)).sum()


def floats(*sizes: int) -> np.ndarray:
    return np.random.default_rng(sum(sizes)).standard_normal(sizes).astype(np.float32)


@pytest.mark.parametrize(("function", "arguments", "want"), [
    (convolutions, ([floats(3, 3, 4, 8), floats(3, 3, 8, 4)], floats(4, 8, 8, 4)), [(1, 1, 1, 2), (1, 1, 2, 1), (1, 1, 1, 1)]),
    (tables, ({"table": floats(8, 4), "kernel": floats(6, 4)}, np.arange(4, dtype=np.int32)), [(2, 1), (2, 1), (1,)]),
    (tables, ({"table": floats(7, 4), "kernel": floats(3, 5)[:, :4]}, np.arange(4, dtype=np.int32)), [(1, 2), (1, 1), (1,)]),
], ids=["convolutions", "tables", "what does not divide"])
def test_products_by_turns(function: Any, arguments: Any, want: list[tuple[int, ...]]) -> None:
    part = partition(xla_torch.from_jax(function, *arguments), {"m": 2}, "tensor")
    assert [p.common["sharding"].grid(p.shape.rank, 2).counts for p in part.entry.parameters] == want
    expected = np.asarray(jax.jit(function)(*arguments))
    (got,) = run_partitioned(part.computation, jax.tree_util.tree_leaves(arguments), [()], 2)  # pyright: ignore[reportAttributeAccessIssue]
    np.testing.assert_allclose(got, expected, rtol=1e-4)


@pytest.mark.parametrize("words", ["data", "fully_sharded", "tensor", {"a": "fully_sharded", "b": "tensor"}], ids=str)
def test_they_compute_the_same(words: Any) -> None:
    given, loss = stored(), xla_torch.load(PROGRAM)
    arguments = [*(p.numpy() for p in given.parameters), given.characters.numpy()]
    (got,) = run_partitioned(partition(loss, {"a": 2, "b": 2}, words), arguments, [()], 4)
    np.testing.assert_allclose(got, given.loss, rtol=1e-5)


MIXED = {"a": "fully_sharded", "b": "tensor"}


def module_trains(words: Any, want: list[float]) -> None:
    import torch

    module = XlaModule(program_of(), weights(), mesh=mesh_of(2, 2), shardings=words)
    held: list[Any] = list(module.parameters())
    pieces = [tuple(p.to_local().shape) for p in held]
    assert len(pieces) == 3
    if words == "fully_sharded":  # a quarter of each array
        assert [int(np.prod(s)) for s in pieces] == [2, 12, 8]
    if words == MIXED:  # and of each array of a product
        assert [int(np.prod(s)) for s in pieces] == [4, 12, 8]
    alone = XlaModule(program_of(), weights())
    for one in (module, alone):
        one(*batch(9)).backward()
    for own, theirs in zip(held, alone.parameters(), strict=True):
        assert own.grad.placements == own.placements
        torch.testing.assert_close(own.grad.full_tensor(), theirs.grad, rtol=1e-4, atol=1e-5)
    module.zero_grad()
    np.testing.assert_allclose(trained(module, torch.optim.AdamW(module.parameters(), 0.05), range(4)), want, rtol=1e-4)


@pytest.mark.parametrize("words", [
    "fully_sharded", MIXED, pytest.param({"a": "data", "b": "tensor"}, marks=pytest.mark.slow)], ids=str)
def test_a_module_trains_as_in_one_process(four: Workers, words: Any) -> None:
    import torch

    alone = XlaModule(program_of(), weights())
    want = trained(alone, torch.optim.AdamW(alone.parameters(), 0.05), range(4))
    four.call(module_trains, [(words, want)] * 4)


@pytest.mark.parametrize(("words", "numbers", "message"), [
    ({"e": "data"}, None, "the mesh has no axis 'e'"),
    ("data", [99], "weights must be numbers of arguments"),
])
def test_what_does_not_fit_is_refused(words: Any, numbers: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        partition(xla_torch.load(PROGRAM), {"d": 4}, words, weights=numbers)


def test_weights_must_be_listed_if_names_do_not_show_them() -> None:
    text = "HloModule m\nENTRY e {\n  x = f32[8,4] parameter(0)\n  w = f32[4,8] parameter(1)\n"
    text += "  ROOT d = f32[8,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}"
    with pytest.raises(InvalidArgument, match="needs the numbers of the weight arguments"):
        partition(xla_torch.parse_hlo(text), {"d": 2}, "fully_sharded")
    part = partition(xla_torch.parse_hlo(text), {"d": 2}, "fully_sharded", weights=[1])
    assert [p.common["sharding"].grid(2, 2).counts for p in part.entry.parameters] == [(2, 1), (1, 2)]


# ------------------------------------------------------------------------------------------------ suggestions


def test_suggestions_are_counted_and_ranked() -> None:
    found = suggest_sharding(program_of(), {"a": 2, "b": 2})
    assert len(found) == 9
    assert [s.seconds for s in found] == sorted(s.seconds for s in found)
    lines = str(found).splitlines()
    assert lines[0].split() == ["layout", "MiB", "held", "MiB", "sent", "exchanges", "Gflop", "ms"]
    assert len(lines) == 10
    by = {tuple(s.shardings.values()): s for s in found}
    assert by["fully_sharded", "fully_sharded"].memory < by["data", "data"].memory
    assert by["fully_sharded", "tensor"].memory < by["data", "tensor"].memory
    assert partition(program_of(), {"a": 2, "b": 2}, found[0].shardings).module.num_partitions == 4


def test_what_is_sent_depends_on_the_machine() -> None:
    """Where links are slow, what sends least is first."""
    slow = suggest_sharding(program_of(), {"a": 4}, machine=Machine(link=1.0, latency=0.0))
    assert slow[0].cost.sent == min(s.cost.sent for s in slow)
    eager = suggest_sharding(program_of(), {"a": 4}, machine=Machine(link=1e30, latency=1.0))
    assert eager[0].cost.exchanges == min(s.cost.exchanges for s in eager)


def test_what_xla_refuses_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    from xla_torch.xla_backend import partitioner

    monkeypatch.setattr(partitioner, "_PASS", "no-such-pass")
    found = suggest_sharding(program_of(), {"a": 2})
    assert "XLA does not partition the program" in str(found)


@pytest.mark.parametrize(("instruction", "sent", "exchanges"), [
    ("f32[8] all-reduce(p), to_apply=add, replica_groups={{0,1,2,3}}", 2 * 32 * 3 // 4, 1),
    ("f32[8] all-reduce(p), to_apply=add, replica_groups={{0},{1}}", 0, 0),
    ("f32[16] all-gather(p), dimensions={0}, replica_groups={{0,1},{2,3}}", 32, 1),
    ("f32[2] reduce-scatter(p), dimensions={0}, to_apply=add, replica_groups={{0,1,2,3}}", 24, 1),
    ("f32[8] all-to-all(p), dimensions={0}, replica_groups={{0,1,2,3}}", 24, 1),
    ("f32[8] collective-permute(p), source_target_pairs={{0,1},{1,0}}", 32, 1),
    ("f32[8] negate(p)", 0, 0),
])
def test_bytes_sent(instruction: str, sent: int, exchanges: int) -> None:
    from xla_torch.analysis.cost import computation_cost

    text = "HloModule m\nadd {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"
    text += f"ENTRY e {{\n  p = f32[8] parameter(0)\n  ROOT r = {instruction}\n}}"
    cost = computation_cost(xla_torch.parse_hlo(text).entry)
    assert (cost.sent, cost.exchanges) == (sent, exchanges)


@pytest.mark.parametrize(("width", "again"), [(180, 0), (184, 1)])  # 180 x 180 is below tuning.LARGE, 184 x 184 above it
def test_what_is_fully_sharded_is_gathered_again_on_the_way_back(width: int, again: int) -> None:
    """And its gradients are scattered where they are summed, as ZeRO-3 has it."""
    def loss(params: Any, x: Any) -> Any:
        return jnp.tanh(jnp.tanh(x @ params[0]) @ params[1]).sum()

    part: Any = partition(xla_torch.from_jax(loss, [floats(width, width)] * 2, floats(8, width)), {"d": 4}, "fully_sharded")
    plan = part.program.plan((True, True, False), False)
    back = plan.backward((True,) + (False,) * (plan.returned - 1), (0, 1)).module.entry.instructions
    assert sum(i.opcode == "all-gather" for i in back) == again
    assert sum(i.opcode == "all-gather" for i in plan.saved) == 1 - again
    assert sum(i.opcode == "reduce-scatter" for i in back) == 2
