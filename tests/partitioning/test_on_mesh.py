"""`xla_torch.on_mesh` and modules on a mesh: in four processes, with DTensors, beside the whole program in each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import xla_torch
from support.distributed_workers import Workers
from support.meshes import SHARDINGS, batch, mesh_of, program_of, trained, weights
from support.oracle import needs_xla
from support.partition_rows import ROWS
from xla_torch import on_mesh
from xla_torch.errors import InvalidArgument, UnsupportedError, XlaError
from xla_torch.nn import XlaModule

pytestmark = needs_xla

BY_NAME = {row.name: row for row in ROWS}
MESHED = ("dense", "contraction cut", "results as said", "mlp", "adam", "convolution with halos on one axis",
          "attention by heads", "embedding by rows", "cross entropy", "scan", "uneven rows", "uneven contraction",
          "reductions", "softmax across", "sort across", "mixture of experts")
QUICK = ("mlp", "uneven rows", "reductions")


def flat(results: Any) -> list[torch.Tensor]:
    return [r for part in results for r in flat(part)] if isinstance(results, (tuple, list)) else [results]


def loss_of(results: Any) -> torch.Tensor:
    """A sum whose gradient differs from place to place."""
    floating = [r for r in flat(results) if r.is_floating_point()]
    return sum(((r * r.cos()).sum() for r in floating), torch.zeros(()))


def both(run: Callable[..., Any], arguments: list[torch.Tensor]) -> tuple[list[Any], list[Any]]:
    leaves = [a.detach().clone().requires_grad_(a.is_floating_point()) for a in arguments]
    results = run(*leaves)
    total = loss_of(results)
    if total.requires_grad:
        total.backward()
    return flat(results), [leaf.grad for leaf in leaves]


# ------------------------------------------------------------------------------------------------ values and gradients


def compared(text: str, given: list[np.ndarray], specs: Any, out: Any, sizes: tuple[int, ...]) -> None:
    """In a process: a program on the mesh, with whole arguments and with DTensors, and whole in this process."""
    whole = xla_torch.parse_hlo(text)
    arguments = [torch.from_numpy(np.asarray(a)) for a in given]
    want, slopes = both(whole, arguments)
    program: Any = on_mesh(whole, mesh_of(*sizes), list(specs), out)
    assert program.program_shape == whole.program_shape
    laid = [program.placed(k, a) for k, a in enumerate(arguments)]
    for placed in (arguments, laid):
        results, found = both(program, placed)
        for own, theirs in zip(results, want, strict=True):
            torch.testing.assert_close(own.full_tensor(), theirs, rtol=1e-3, atol=1e-4)
        for own, theirs, argument in zip(found, slopes, placed, strict=True):
            assert (own is None) == (theirs is None)
            if own is not None:
                assert getattr(own, "placements", None) == getattr(argument, "placements", None)
                torch.testing.assert_close(getattr(own, "full_tensor", lambda own=own: own)(), theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("name", "sizes"), [
    pytest.param(name, sizes, id=f"{name}-{sizes}", marks=() if name in QUICK and sizes == (2, 2) else pytest.mark.slow)
    for name in MESHED for sizes in ((2, 2), (4, 1))])
def test_values_and_gradients_are_those_of_the_whole_program(four: Workers, name: str, sizes: tuple[int, ...]) -> None:
    row = BY_NAME[name]
    text = xla_torch.from_jax(row.function, *row.arguments, derivatives="xla").to_hlo_text()
    four.call(compared, [(text, list(row.arguments), row.specs, row.out, sizes)] * 4)


# ------------------------------------------------------------------------------------------------ summands

PRODUCT = """HloModule m
ENTRY e {
  x = f32[8,4] parameter(0)
  w = f32[4,6] parameter(1)
  d = f32[8,6] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[6,8] transpose(d), dimensions={1,0}
  ROOT r = (f32[6,8], f32[8,6], s32[]) tuple(t, TAIL, s32[] constant(3))
}"""
TAIL = "f32[8,6] tanh(d)"
LATER = "d"


def summed(tail: str, specs: Any, out: Any, sizes: tuple[int, ...], given: list[np.ndarray]) -> None:
    """In a process: with results that are summands, of arguments that are whole, laid out and summands themselves."""
    from torch.distributed.tensor import DTensor, Partial, Replicate

    text, mesh = PRODUCT.replace("TAIL", tail), mesh_of(*sizes)
    compared(text, given, specs, out, sizes)
    program: Any = on_mesh(xla_torch.parse_hlo(text), mesh, list(specs), out)
    assert [r.placements for r in program(*map(torch.from_numpy, given))] == [tuple(o) for o in out]
    draw = torch.Generator().manual_seed(dist.get_rank())
    for placements in ([Partial(), Replicate()], [Partial(), Partial()], [Replicate(), Partial("avg")],
                       [Partial("max"), Partial("max")]):
        own: Any = [torch.from_numpy(a) * torch.rand(a.shape, generator=draw) for a in given]
        for axis, placement in enumerate(placements):  # the same on those who hold the same
            if placement.is_replicate():
                own = [DTensor.from_local(o, mesh, [Replicate()] * 2).to_local() for o in own]
                for o in own:
                    dist.broadcast(o, group=mesh.get_group(axis), group_src=0)
        laid = [DTensor.from_local(o, mesh, placements, run_check=False) for o in own]
        want, slopes = both(xla_torch.parse_hlo(text), [one.full_tensor() for one in laid])
        if placements[1].is_partial("avg") or placements[1].is_partial("max"):
            whole: list[Any] = flat(program(*laid))
            for found, theirs in zip(whole, want, strict=True):
                torch.testing.assert_close(found.full_tensor(), theirs, rtol=1e-4, atol=1e-4)
            continue
        leaves = [one.detach().requires_grad_() for one in laid]
        results: Any = program(*leaves)
        loss_of(results).backward()
        all_of: list[Any] = [*flat(results), *(leaf.grad for leaf in leaves)]
        for found, theirs in zip(all_of, [*want, *slopes], strict=True):
            torch.testing.assert_close(found.full_tensor(), theirs, rtol=1e-4, atol=1e-4)


def placed(words: str) -> list[Any]:
    from torch.distributed.tensor import Partial, Replicate, Shard

    return [{"P": Partial(), "R": Replicate(), "S": Shard(0)}[word] for word in words]


@pytest.mark.parametrize(("tail", "specs", "out", "sizes"), [
    (LATER, [(None, ("a", "b")), (("a", "b"),)], ("PP", "PR", "PP"), (2, 2)),
    pytest.param(TAIL, [("a", "b"), ("b",)], ("RP", "SP", "RR"), (2, 2), marks=pytest.mark.slow),
    pytest.param(LATER, [("b", "a"), ("a",)], ("PR", "PS", "PR"), (2, 2), marks=pytest.mark.slow),
    pytest.param(LATER, [(None, "a"), ("a",)], ("PR", "PR", "RR"), (4, 1), marks=pytest.mark.slow),
], ids=str)
def test_results_and_arguments_may_be_summands(four: Workers, tail: str, specs: Any, out: tuple[str, ...],
                                               sizes: tuple[int, ...]) -> None:
    given = [np.random.default_rng(k).standard_normal(s).astype(np.float32) for k, s in enumerate([(8, 4), (4, 6)])]
    four.call(summed, [(tail, specs, [placed(words) for words in out], sizes, given)] * 4)


# ------------------------------------------------------------------------------------------------ modules


def trained_on_a_mesh(folder: str, sizes: tuple[int, ...], shardings: Any, lies: str) -> None:
    """In a process: the same training as in one, stopped in the middle and gone on with from a checkpoint of pieces."""
    import torch.distributed.checkpoint as checkpoint

    alone = XlaModule(program_of(), weights())
    want = trained(alone, torch.optim.AdamW(alone.parameters(), 0.05), range(6))
    module = XlaModule(program_of(), weights(), mesh=mesh_of(*sizes), shardings=shardings)
    kernel: Any = dict(module.named_parameters())["in.kernel"]
    assert str(kernel.placements) == lies
    optimizer = torch.optim.AdamW(module.parameters(), 0.05)
    first = trained(module, optimizer, range(3))
    state = {"model": module.state_dict(), "optimizer": optimizer.state_dict()}
    checkpoint.save(state, checkpoint_id=folder)
    again = XlaModule(program_of(), [{k: {n: w * 0 for n, w in g.items()} for k, g in weights().items()}],
                      mesh=mesh_of(*reversed(sizes)), shardings=shardings)
    restarted = torch.optim.AdamW(again.parameters(), 0.05)
    trained(again, restarted, range(1))  # so that there is a state to be read over
    state = {"model": again.state_dict(), "optimizer": restarted.state_dict()}
    checkpoint.load(state, checkpoint_id=folder)
    again.load_state_dict(state["model"])
    restarted.load_state_dict(state["optimizer"])
    np.testing.assert_allclose([*first, *trained(again, restarted, range(3, 6))], want, rtol=1e-4)


MIXED = {"a": "fully_sharded", "b": "tensor"}


@pytest.mark.parametrize(("sizes", "shardings", "lies"), [
    ((2, 2), SHARDINGS, "(Replicate(), Shard(dim=1))"),
    pytest.param((1, 4), SHARDINGS, "(Replicate(), Shard(dim=1))", marks=pytest.mark.slow),
    ((2, 2), MIXED, "(Shard(dim=0), Shard(dim=1))"),
    pytest.param((4, 1), MIXED, "(Shard(dim=1), Replicate())", marks=pytest.mark.slow),
], ids=["square", "row", "fully sharded x tensor", "fully sharded x tensor, in a row"])
def test_a_module_trains_as_in_one_process(four: Workers, tmp_path: Path, sizes: tuple[int, ...], shardings: Any,
                                           lies: str) -> None:
    four.call(trained_on_a_mesh, [(str(tmp_path), sizes, shardings, lies)] * 4)


def in_other_precision() -> None:
    module = XlaModule(program_of(), weights(), mesh=mesh_of(2, 2), shardings=SHARDINGS)
    alone = XlaModule(program_of(), weights()).double()
    loss = module.double()(*(b.double() for b in batch(0)))
    assert loss.dtype is torch.float64
    torch.testing.assert_close(loss.full_tensor(), alone(*(b.double() for b in batch(0))))
    with torch.autocast("cpu", torch.bfloat16):
        products = XlaModule(program_of(), weights(), mesh=mesh_of(2, 2), shardings=SHARDINGS)(*batch(0))
        want = XlaModule(program_of(), weights())(*batch(0))
    torch.testing.assert_close(products.full_tensor(), want, rtol=2e-2, atol=0)


def test_another_precision(four: Workers) -> None:
    four.call(in_other_precision, [()] * 4)


# ------------------------------------------------------------------------------------------------ what was partitioned before

HLO = """HloModule m
ENTRY e {
  x = f32[7,4] parameter(0), metadata={op_name="batch"}
  w = f32[4,6] parameter(1)
  d = f32[7,6] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = f32[7,6] tanh(d)
}"""


def from_file(path: str, want: np.ndarray, given: list[np.ndarray]) -> None:
    import sys

    sys.modules["jaxlib"] = None  # pyright: ignore[reportArgumentType]
    try:
        program = on_mesh(path, mesh_of(2, 2))
    finally:
        del sys.modules["jaxlib"]
    result = program(*map(torch.from_numpy, given))
    assert result.shape == want.shape
    np.testing.assert_allclose(result.full_tensor().numpy(), want, rtol=1e-5)
    np.testing.assert_allclose(program.run_numpy(*given)[0], want, rtol=1e-5)
    np.testing.assert_allclose(program(x=torch.from_numpy(given[0]), w=given[1]).full_tensor().numpy(), want, rtol=1e-5)


def test_a_file_runs_where_there_is_no_jaxlib(four: Workers, tmp_path: Path) -> None:
    part = xla_torch.partition(xla_torch.parse_hlo(HLO), {"a": 2, "b": 2}, [("a",), (None, "b")], ("a", "b"))
    (tmp_path / "part.hlo").write_text(part.to_hlo_text())
    given = [np.random.default_rng(k).standard_normal(s).astype(np.float32) for k, s in enumerate([(7, 4), (4, 6)])]
    four.call(from_file, [(str(tmp_path / "part.hlo"), np.tanh(given[0] @ given[1]), given)] * 4)


# ------------------------------------------------------------------------------------------------ refusals


def refused(case: str) -> str:
    """In a process: what is said."""
    whole, mesh, rank = xla_torch.parse_hlo(HLO), mesh_of(2, 2), dist.get_rank()
    ones = torch.ones(7, 4), torch.ones(4, 6)
    ran = on_mesh(whole, mesh, [("a",), None]) if case in ("derived", "shape", "mesh of argument", "count") else None
    other = mesh_of(4)
    try:
        match case:
            case "other programs":
                on_mesh(xla_torch.parse_hlo(HLO.replace("tanh", "sine") if rank == 2 else HLO), mesh)
            case "other shardings":
                on_mesh(whole, mesh, [("a",) if rank else ("b",), None])
            case "does not fit":
                on_mesh(whole, mesh, [("a", "b", None), None])
            case "no mesh":
                on_mesh(whole, {"a": 4})
            case "part of a mesh":
                on_mesh(whole, mesh["a"])
            case "order":
                on_mesh(whole, mesh, [(("b", "a"),), None])
            case "uneven over two":
                on_mesh(whole, mesh, [(("a", "b"),), None])
            case "derived":
                assert ran is not None
                xla_torch.grad(ran, 0)
            case "shape":
                assert ran is not None
                ran(torch.ones(4, 4), ones[1])
            case "count":
                assert ran is not None
                ran(*ones, ones[0])
            case "mesh of argument":
                from torch.distributed.tensor import Replicate, distribute_tensor

                assert ran is not None
                ran(distribute_tensor(ones[0], other, [Replicate()]), ones[1])
            case "largest":
                from torch.distributed.tensor import DTensor, Partial

                parts: Any = DTensor.from_local(ones[0], mesh, [Partial("max"), Partial("max")])
                on_mesh(whole, mesh, [("a",), None])(parts.requires_grad_(), ones[1])
            case "given as summands":
                on_mesh(whole, mesh, [placed("PR"), None])
            case "given the largest":
                from torch.distributed.tensor import Partial, Replicate

                on_mesh(whole, mesh, None, [Partial("max"), Replicate()])
            case "partitioned":
                part = xla_torch.partition(whole, {"a": 2, "b": 2}, [("a",), None]) if rank == 0 else None
                texts = [part.to_hlo_text() if part is not None else ""]
                dist.broadcast_object_list(texts)
                on_mesh(xla_torch.parse_hlo(texts[0]), mesh, [("a",), None])
            case "shardings alone":
                XlaModule(whole, shardings={"*": ("a",)})
    except XlaError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


@pytest.mark.parametrize(("case", "error", "words"), [
    ("other programs", InvalidArgument, "ranks [2] differ from rank 0"),
    ("other shardings", InvalidArgument, "different programs or shardings"),
    ("does not fit", InvalidArgument, "argument batch: the sharding is for an array of another rank"),
    ("no mesh", InvalidArgument, "not a mesh of processes"),
    ("part of a mesh", InvalidArgument, "the mesh is not all processes"),
    ("order", InvalidArgument, "are ordered differently"),
    ("uneven over two", InvalidArgument, "no multiple of its tiles"),
    ("derived", UnsupportedError, "derive from the program of whole arrays"),
    ("shape", InvalidArgument, "argument 0 (x) of m has another shape"),
    ("count", InvalidArgument, "wrong number of arguments"),
    ("mesh of argument", InvalidArgument, "is on another mesh"),
    ("largest", UnsupportedError, "that holds partial sums"),
    ("given as summands", InvalidArgument, "argument x: a program cannot take partial sums"),
    ("given the largest", InvalidArgument, "a program cannot take or return such partial arrays"),
    ("partitioned", InvalidArgument, "its shardings are fixed"),
    ("shardings alone", InvalidArgument, "shardings without a mesh"),
])
def test_refused_by_all(four: Workers, case: str, error: type, words: str) -> None:
    messages = four.call(refused, [(case,)] * 4)
    assert all(text.startswith(error.__name__) and words in text for text in messages), messages


def test_without_processes() -> None:
    with pytest.raises(InvalidArgument, match="there is no process group"):
        on_mesh(xla_torch.parse_hlo(HLO), None)
