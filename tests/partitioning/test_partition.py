"""`xla_torch.partition`: XLA's partitioner makes one participant's program, and it computes what the whole program does."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves

import xla_torch
from support.meshes import run_partitioned
from support.oracle import HAS_XLA, needs_xla
from support.partition_rows import ROWS, Row
from support.sharding_rows import ROWS as ANNOTATED_ROWS
from support.sharding_rows import Row as AnnotatedRow
from support.sharding_rows import line as region
from support.sharding_rows import square
from xla_torch import partition, run_replicas, shard_arguments
from xla_torch.cli import main
from xla_torch.errors import DifferentiationError, InvalidArgument, LostDerivatives, MissingDependency, UnsupportedError

if HAS_XLA:
    import jax
    import jax.numpy as jnp

MESHES = [{"a": 2, "b": 1}, {"a": 4, "b": 1}, {"a": 2, "b": 2}, {"b": 2, "a": 4}]
QUICK = MESHES[2]
QUICK_ANNOTATED = ("ring", "some axes manual", "convolution with a window")


def count_of(mesh: dict[str, int]) -> int:
    return int(np.prod(list(mesh.values())))


def leaves_of(result: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(result)]


def loss_of(row: Row) -> Any:
    def loss(*arguments: Any) -> Any:
        return sum((leaf * jnp.cos(leaf)).sum() for leaf in jax.tree_util.tree_leaves(row.function(*arguments))
                   if jnp.issubdtype(leaf.dtype, jnp.floating))
    return loss


def floating(row: Row) -> tuple[int, ...]:
    return tuple(k for k, a in enumerate(row.arguments) if a.dtype == np.float32)


def cases() -> list[Any]:
    """Quick rows on one mesh in the fast tests, all others among the slow ones."""
    return [pytest.param(row, mesh, id=f"{row}-{'x'.join(map(str, mesh.values()))}",
                         marks=() if row.quick and mesh is QUICK else pytest.mark.slow)
            for row in ROWS for mesh in MESHES]


@needs_xla
@pytest.mark.parametrize(("row", "mesh"), cases())
def test_values_are_those_of_the_whole_program(row: Row, mesh: dict[str, int]) -> None:
    want = leaves_of(jax.jit(row.function)(*row.arguments))
    part = partition(xla_torch.from_jax(row.function, *row.arguments), mesh, row.specs, row.out)
    assert part.module.num_partitions == count_of(mesh)
    got = run_partitioned(part, row.arguments, [w.shape for w in want], count_of(mesh))
    for own, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(own, theirs, row.rtol, 1e-5)


@needs_xla
@pytest.mark.parametrize(("row", "mesh"), [
    c for c in cases() if floating(c.values[0]) and c.values[0].name not in ("while", "mlp step", "argmax across")])
def test_gradients_are_those_of_the_whole_program(row: Row, mesh: dict[str, int]) -> None:
    """The gradient's program, partitioned; and the gradient of the partitioned program, which is of all participants' sum."""
    loss, numbers, count = loss_of(row), floating(row), count_of(mesh)
    value, grads = jax.jit(jax.value_and_grad(loss, numbers))(*row.arguments)
    want = [np.asarray(value), *map(np.asarray, grads)]
    whole = xla_torch.from_jax(loss, *row.arguments, derivatives="xla")
    first = partition(xla_torch.value_and_grad(whole, numbers), mesh, row.specs)
    for own, theirs in zip(run_partitioned(first, row.arguments, [w.shape for w in want], count), want, strict=True):
        np.testing.assert_allclose(own, theirs, 1e-3, 1e-4)
    part: Any = partition(whole, mesh, row.specs, ())
    if row.name == "conditional":  # whose branches exchange
        with pytest.raises(DifferentiationError, match="a branch with random numbers or side effects"):
            xla_torch.value_and_grad(part.computation, numbers)
        return
    derived = xla_torch.value_and_grad(part.computation, numbers)
    given = shard_arguments(part, [torch.tensor(a) for a in row.arguments])
    results = run_replicas(derived, given, num_partitions=count)
    np.testing.assert_allclose(results[0][0], want[0], 1e-3, 1e-4)
    for number, theirs in zip(numbers, want[1:], strict=True):
        sharding, total = part.entry.parameters[number].common["sharding"], np.zeros(theirs.shape)
        for (place, _), result in zip(sharding.slices(theirs.shape, count), results, strict=True):
            own = dict(zip(numbers, result[1] if isinstance(result[1], tuple) else result[1:], strict=True))[number].numpy()
            total[place] += own[tuple(slice(0, s.stop - s.start) for s in place)]
        np.testing.assert_allclose(total / count, theirs, 1e-3, 1e-4)


# ------------------------------------------------------------------------------------------------ words

HLO = """HloModule m
ENTRY e {
  x = f32[8,4] parameter(0), metadata={op_name="batch"}
  w = f32[4,8] parameter(1), metadata={op_name="params['Dense_0']['kernel']"}
  b = f32[8] parameter(2), metadata={op_name="params['Dense_0']['bias']"}
  d = f32[8,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  c = f32[8,8] broadcast(b), dimensions={1}
  ROOT r = f32[8,8] add(d, c)
}"""
ANNOTATED = HLO.replace("HloModule m", "HloModule m, num_partitions=4").replace(
    "parameter(1),", "parameter(1), sharding={devices=[1,2,2]<=[4] last_tile_dim_replicate},")
SQUARE = {"data": 2, "model": 2}
ROWS_CUT, COLUMNS_CUT = "{devices=[2,1,2]<=[4] last_tile_dim_replicate}", "{devices=[1,2,2]0,2,1,3 last_tile_dim_replicate}"
WHOLE = "{replicated}"


def shardings(program: Any) -> list[str]:
    return [str(p.common["sharding"]) for p in program.entry.parameters]


def placements(*dims: int | None) -> list[Any]:
    from torch.distributed.tensor import Replicate, Shard

    return [Replicate() if d is None else Shard(d) for d in dims]


@needs_xla
@pytest.mark.parametrize(("given", "want"), [
    (None, [WHOLE, WHOLE, WHOLE]),
    ([("data",), (None, "model"), None], [ROWS_CUT, COLUMNS_CUT, WHOLE]),
    ([("data", None), [None, "model"], ()], None),
    (lambda: [placements(0, None), placements(None, 1), placements(None, -1)],
     [ROWS_CUT, COLUMNS_CUT, "{devices=[2,2]0,2,1,3 last_tile_dim_replicate}"]),
    (lambda: [placements(0, 0), None, None], ["{devices=[4,1]<=[4]}", WHOLE, WHOLE]),
    ([(("model", "data"),), None, None], ["{devices=[4,1]0,2,1,3}", WHOLE, WHOLE]),
    ([xla_torch.Sharding.parse(ROWS_CUT), COLUMNS_CUT, None], [ROWS_CUT, COLUMNS_CUT, WHOLE]),
    ({"*.kernel": (None, "model"), "batch": ("data",)}, [ROWS_CUT, COLUMNS_CUT, WHOLE]),
    ({"x": ("data",), "params.*": (), "*.bias": ("model",)}, [ROWS_CUT, WHOLE, WHOLE]),
])
def test_words_for_shardings(given: Any, want: list[str] | None) -> None:
    given = given() if callable(given) else given
    if want is None:
        with pytest.raises(InvalidArgument, match="not a sharding"):
            partition(xla_torch.parse_hlo(HLO), SQUARE, given)
        return
    program = xla_torch.parse_hlo(partition(xla_torch.parse_hlo(HLO), SQUARE, given).to_hlo_text())
    assert shardings(program) == want
    assert program.program_shape.parameter_names == ("x", "w", "b")
    assert [p.op_name for p in program.entry.parameters] == ["batch", "params['Dense_0']['kernel']", "params['Dense_0']['bias']"]


@needs_xla
def test_an_annotated_program_is_partitioned_as_it_says(tmp_path: Path) -> None:
    (tmp_path / "p.hlo").write_text(ANNOTATED)
    program = partition(tmp_path / "p.hlo")
    assert shardings(program) == [WHOLE, "{devices=[1,2,2]<=[4] last_tile_dim_replicate}", WHOLE]
    assert str(program.entry.root.common["sharding"]) == "{devices=[1,2,2]<=[4] last_tile_dim_replicate}"


@needs_xla
@pytest.mark.parametrize(("ranks", "want"), [
    ([[0, 1], [2, 3]], ROWS_CUT), ([[0, 2], [1, 3]], "{devices=[2,1,2]0,2,1,3 last_tile_dim_replicate}")])
def test_a_mesh_of_torch(ranks: list[list[int]], want: str) -> None:
    """As DeviceMesh has it, which needs processes to be made."""
    mesh = SimpleNamespace(mesh=torch.tensor(ranks), mesh_dim_names=("data", "model"))
    assert shardings(partition(xla_torch.parse_hlo(HLO), mesh, [jax.sharding.PartitionSpec("data"), None, None]))[0] == want
    part = SimpleNamespace(mesh=torch.tensor([4, 5]), mesh_dim_names=("data",))
    with pytest.raises(InvalidArgument, match="a submesh of another"):
        partition(xla_torch.parse_hlo(HLO), part)


@needs_xla
def test_trees_of_a_function() -> None:
    def loss(params: Any, batch: Any) -> Any:
        return {"loss": (batch @ params["w"] + params["b"]).sum(), "out": batch * 2}

    params, batch = {"w": np.ones((4, 8), np.float32), "b": np.ones(8, np.float32)}, np.ones((8, 4), np.float32)
    whole = xla_torch.from_jax(loss, params, batch)
    part = partition(whole, SQUARE, ({"w": (None, "model")}, ("data",)), {"loss": (), "out": ("model",)})
    assert isinstance(part, type(whole))
    assert part.in_tree == whole.in_tree
    assert shardings(part) == [WHOLE, COLUMNS_CUT, ROWS_CUT]
    assert [str(s) for s in part.entry.root.common["sharding"].elements] == [WHOLE, COLUMNS_CUT.replace("1,2,2", "2,1,2")]
    assert shardings(partition(whole, SQUARE, ({"b": ("model",)}, None)))[0] == "{devices=[2,2]0,2,1,3 last_tile_dim_replicate}"
    assert shardings(partition(whole, SQUARE, {"params.w": ("data",), "*": ()}))[1] == ROWS_CUT


PAIRS = """HloModule m
ENTRY e {
  x = f32[8] parameter(0)
  y = f32[8,4] parameter(1)
  n = f32[8] negate(x)
  c = f32[8] cosine(x)
  m = f32[8,4] negate(y)
  ROOT r = (RESULT) tuple(OF)
}"""
VECTORS, MATRICES = ("f32[8], f32[8]", "n, c"), ("f32[8,4], f32[8,4]", "m, m")
CUT = "{devices=[4]<=[4]}"


@needs_xla
@pytest.mark.parametrize("of_jax", [False, True])
@pytest.mark.parametrize(("mesh", "results", "out", "want"), [
    ({"d": 4}, VECTORS, (("d",), ("d",)), [CUT, CUT]),
    ({"d": 4}, VECTORS, [("d",), ("d",)], [CUT, CUT]),
    ({"d": 4}, VECTORS, (("d",), ()), [CUT, WHOLE]),
    ({"d": 4}, VECTORS, ("{replicated}", ("d",)), [WHOLE, CUT]),
    ({"d": 4}, VECTORS, (CUT, "{replicated}"), [CUT, WHOLE]),
    ({"d": 4}, VECTORS, ("d",), [CUT, CUT]),
    ({"a": 2, "b": 2}, MATRICES, ("a", "b"), ["{devices=[2,2]<=[4]}"] * 2),
    ({"a": 2, "b": 2}, MATRICES, (("a", "b"), ("a", "b")), ["{devices=[2,2]<=[4]}"] * 2),
    ({"a": 2, "b": 2}, MATRICES, (("a",), ("b",)), None),
    ({"a": 2, "b": 2}, MATRICES, (("a",), ()), None),
])
def test_a_tuple_may_say_how_each_result_lies(mesh: Any, results: tuple[str, str], out: Any, want: Any, of_jax: bool) -> None:
    """Or how one array does; where it can be both, the error says how to write each."""
    x, y = np.zeros(8, np.float32), np.zeros((8, 4), np.float32)
    program = xla_torch.parse_hlo(PAIRS.replace("RESULT", results[0]).replace("OF", results[1]))
    if of_jax:
        program = xla_torch.from_jax(lambda x, y: (-x, jnp.cos(x)) if results is VECTORS else (-y, jnp.cos(y)), x, y)
    if want is None:
        with pytest.raises(InvalidArgument, match=r"one array or each of several(.|\n)*hint +write a list"):
            partition(program, mesh, None, out)
        return
    assert [str(s) for s in partition(program, mesh, None, out).entry.root.common["sharding"].elements] == want


@needs_xla
def test_constants_and_names_survive() -> None:
    table = ", ".join(f"{k}.5" for k in range(64))
    text = "HloModule m\nENTRY e {\n  p = f32[64] parameter(0)\n"
    text += f"  c = f32[64] constant({{{table}}})\n  ROOT r = f32[64] add(p, c)\n}}"
    program = partition(xla_torch.parse_hlo(text), {"i": 4}, [("i",)])
    [got] = run_partitioned(program, [np.zeros(64, np.float32)], [(64,)], 4)
    np.testing.assert_array_equal(got, np.arange(64) + 0.5)
    assert "Qr" not in program.to_hlo_text()
    assert "f32[1]" not in program.to_hlo_text()


@needs_xla
def test_what_a_participant_holds_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.hlo").write_text(HLO)
    assert main(["partition", str(tmp_path / "p.hlo"), "--mesh", "data=2,model=2", "--shard", "*.kernel=(None,model)",
                 "--shard", "batch=(data)", "--result", "(data+model,None)", "-o", str(tmp_path / "q.hlo")]) == 0
    assert main(["show", str(tmp_path / "q.hlo")]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["0", "f32[4,4]", "%x", "batch", *ROWS_CUT.split()] in lines
    assert ["1", "f32[4,4]", "%w", "params['Dense_0']['kernel']", *COLUMNS_CUT.split()] in lines
    assert any(line[:1] == ["0"] and line[-1] == "{devices=[4,1]<=[4]}" for line in lines)


@needs_xla
@pytest.mark.parametrize(("text", "mesh", "ins", "outs", "message"), [
    (HLO, SQUARE, [("data", "model", None), None, None], None, "argument batch: the sharding is for an array of another rank"),
    (HLO, SQUARE, [None, None, "{devices=[2,2]<=[4]}"], None, "argument params.Dense_0.bias: the sharding is for"),
    (HLO, SQUARE, [("datum",), None, None], None, "the mesh has no axis 'datum'"),
    (HLO, SQUARE, "fully-sharded", None, "no layout has this name(.|\n)*did you mean 'fully_sharded'"),
    (HLO, SQUARE, {"data": "data", "model": "tensors"}, None, "no layout has this name(.|\n)*did you mean 'tensor'"),
    (HLO, SQUARE, {"dat": "data"}, None, "the mesh has no axis 'dat'(.|\n)*did you mean 'data'"),
    (HLO, SQUARE, {"*.kernel": "tensor"}, None, r"the mesh has no axis(.|\n)*a tuple for an argument, as \('data', None\)"),
    (HLO, SQUARE, [("data", "data"), None, None], None, "an axis is used twice"),
    (HLO, SQUARE, [placements(0), None, None], None, "not one placement for each axis"),
    (HLO, SQUARE, [placements(2, None), None, None], None, "a dimension that the array does not have"),
    (HLO, SQUARE, ["{devices=[8,1]<=[8]}", None, None], None, "another number of partitions"),
    (HLO, SQUARE, [None, None], None, "must have one entry for each argument"),
    (HLO, SQUARE, {"*.kernle": ("data",)}, None, "no argument has such a name"),
    (HLO, SQUARE, [3, None, None], None, "not a sharding"),
    (HLO, SQUARE, ("data", None, None), None, r"not a sharding(.|\n)*write \[\('data',\)\]"),
    (HLO, SQUARE, ("datum", None, None), None, "not a sharding"),
    (HLO, SQUARE, None, ("data", "model", "data"), "results: the sharding is for an array of another rank"),
    (HLO, {"data": 1}, None, None, "for two participants or more"),
    (HLO, {"data": 2**21}, None, None, "for two participants or more"),
    (HLO, {"data": -2}, None, None, "not a mesh"),
    (HLO, 4, None, None, "not a mesh"),
    (HLO, None, None, None, "has no mesh"),
    (ANNOTATED, {"data": 8}, None, None, "a mesh of another size"),
])
def test_what_does_not_fit_is_refused(text: str, mesh: Any, ins: Any, outs: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        partition(xla_torch.parse_hlo(text), mesh, ins, outs)


@needs_xla
@pytest.mark.parametrize("kind", ["torch", "numpy"])
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("root", ["r = f32[7] negate(x)", "t = (f32[7], (f32[7], s32[])) tuple(n, u)"])
def test_results_are_put_together_as_large_as_they_are(root: str, stored: bool, kind: str) -> None:
    """Seven elements over four participants, whose tiles are two and one of padding; also of a program that was a text."""
    text = "HloModule m\nENTRY e {\n x = f32[7] parameter(0)\n n = f32[7] negate(x)\n s = s32[] constant(3)\n"
    whole = xla_torch.parse_hlo(f"{text} u = (f32[7], s32[]) tuple(x, s)\n ROOT {root}\n}}")
    part = partition(whole, {"d": 4}, [("d",)], ("d",) if root.startswith("r") else [("d",), ("d",), ()])
    part = xla_torch.parse_hlo(part.to_hlo_text()) if stored else part
    x: Any = np.arange(7, dtype=np.float32)
    x = torch.from_numpy(x) if kind == "torch" else x
    results = run_replicas(part, shard_arguments(part, [x]), num_partitions=4)
    got, want = xla_torch.unshard(results, part), whole(x) if kind == "torch" else whole.run_numpy(x)
    for own, theirs in zip(*map(tree_leaves, (got, want)), strict=True):
        np.testing.assert_array_equal(own, theirs)


@needs_xla
def test_so_are_trees_of_them() -> None:
    whole = xla_torch.from_jax(lambda x: {"a": x * 2, "b": [x.sum()]}, np.ones(7, np.float32))
    part = partition(whole, {"d": 4}, [("d",)], {"a": ("d",), "b": ()})
    x = torch.arange(7.0)
    results = run_replicas(part, shard_arguments(part, [x]), num_partitions=4)
    torch.testing.assert_close(xla_torch.unshard(results, part), whole(x))


@needs_xla
def test_what_has_been_partitioned_is_refused() -> None:
    part = partition(xla_torch.parse_hlo(HLO), SQUARE, [("data",), None, None])
    with pytest.raises(InvalidArgument, match="has been partitioned"):
        partition(part, SQUARE)


@needs_xla
def test_an_error_of_the_partitioner_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    from xla_torch.xla_backend import partitioner

    monkeypatch.setattr(partitioner, "_PASS", "no-such-pass")
    with pytest.raises(UnsupportedError, match="XLA does not partition the program"):
        partition(xla_torch.parse_hlo(HLO), SQUARE)


@needs_xla
def test_where_xla_ends_its_process_this_one_goes_on() -> None:
    from xla_torch.xla_backend.child import compile_in_child

    text = "HloModule m, num_partitions=2\nENTRY e {\n  x = f32[8,4] parameter(0), sharding={manual}\n"
    text += "  ROOT r = f32[8,4] negate(x), sharding={devices=[2,1]<=[2]}\n}"
    given = xla_torch.parse_hlo(text).to_hlo_proto()
    for _ in range(2):
        with pytest.raises(UnsupportedError, match=r"XLA ended its process over this program(.|\n)*Check failed: !IsManualLeaf"):
            compile_in_child(given, 2, [False], {}, False)
    assert partition(xla_torch.parse_hlo(HLO), SQUARE, [("data",), None, None]).module.num_partitions == 4


def test_without_jaxlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jaxlib", None)
    with pytest.raises(MissingDependency, match="pip install"):
        partition(xla_torch.parse_hlo(HLO), SQUARE)


@needs_xla
def test_a_jaxlib_without_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    from jaxlib import xla_client

    monkeypatch.delattr(xla_client, "make_cpu_client")
    with pytest.raises(MissingDependency, match="needs another jaxlib"):
        partition(xla_torch.parse_hlo(HLO), SQUARE)


# ------------------------------------------------------------------------------------------------ results that are summands

PRODUCT = """HloModule m
ENTRY e {
  x = f32[8,4] parameter(0)
  w = f32[4,6] parameter(1)
  d = f32[8,6] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = RESULT
}"""
CONTRACTED, SQUARED = [(None, ("a", "b")), (("a", "b"),)], [("a", "b"), ("b",)]
SUMS = [
    ("f32[8,6] copy(d)", CONTRACTED, "{unreduced}", 0),
    ("f32[6,8] transpose(d), dimensions={1,0}", CONTRACTED, "{mesh['a'=2,'b'=2], [{},{}], unreduced={'a'}}", 1),
    ("f32[6,8] transpose(d), dimensions={1,0}", CONTRACTED, "{mesh['a'=2,'b'=2], [{},{}], unreduced={'b'}}", 1),
    ("f32[8,6] copy(d)", SQUARED, "{devices=[2,1,2]<=[4] last_tile_dims={unreduced}}", 0),
    ("f32[8,6] copy(d)", CONTRACTED, "{devices=[2,1,2]<=[4] last_tile_dims={unreduced}}", 1),
    ("f32[8,6] copy(d)", SQUARED, "{unreduced}", 1),
    ("f32[8,6] copy(d)", CONTRACTED, "{devices=[1,1,2,2]<=[4] last_tile_dims={unreduced, replicated}}", 1),
    ("f32[8,6] tanh(d)", CONTRACTED, "{unreduced}", 1),
    ("f32[8,4] copy(x)", SQUARED, "{mesh['a'=2,'b'=2], [{'b'},{}], unreduced={'a'}}", 0),
    ("(f32[8,6], f32[8,6]) tuple(d, d)", CONTRACTED, "{{unreduced}, {replicated}}", 1),
]


@needs_xla
@pytest.mark.parametrize(("result", "specs", "out", "sums"), SUMS)
def test_results_may_be_summands(result: str, specs: Any, out: str, sums: int) -> None:
    """And so many sums are taken."""
    whole = xla_torch.parse_hlo(PRODUCT.replace("RESULT", result))
    arguments = [np.random.default_rng(k).standard_normal(sizes).astype(np.float32) for k, sizes in enumerate([(8, 4), (4, 6)])]
    want = whole.run_numpy(*arguments)
    part = partition(whole, {"a": 2, "b": 2}, specs, out)
    assert part.to_hlo_text().count(" all-reduce(") == sums
    for own, theirs in zip(run_partitioned(part, arguments, [w.shape for w in want], 4), want, strict=True):
        np.testing.assert_allclose(own, theirs, 1e-4, 1e-5)


@needs_xla
def test_a_partition_spec_says_that_results_are_summands() -> None:
    program = xla_torch.parse_hlo(PRODUCT.replace("RESULT", "f32[8,6] copy(d)"))
    spec = jax.sharding.PartitionSpec("b", unreduced=frozenset({"a"}))
    part = partition(program, {"a": 2, "b": 2}, None, spec)
    assert "sharding={mesh['a'=2,'b'=2], [{'b'}, {}], unreduced={'a'}}" in part.to_hlo_text()


@needs_xla
@pytest.mark.parametrize("kind", ["max", "min"])
def test_parts_of_results_that_are_not_summed_are_refused(kind: str) -> None:
    program = xla_torch.parse_hlo(PRODUCT.replace("RESULT", "f32[8,6] copy(d)"))
    given: list[Any] = [f"{{mesh['a'=2,'b'=2], [{{}}, {{}}], unreduced={kind}{{'a'}}}}"]
    if kinds := getattr(jax.sharding, "UnreducedKind", None):  # from JAX 0.12 on
        words: dict[str, Any] = {"unreduced": frozenset({"a"}), "unreduced_kind": getattr(kinds, kind)}
        given.append(jax.sharding.PartitionSpec(**words))
    for out in given:
        with pytest.raises(UnsupportedError, match="another operation than a sum"):
            partition(program, {"a": 2, "b": 2}, None, out)


@needs_xla
@pytest.mark.parametrize(("result", "ins", "out", "message"), [
    ("pred[8,6] compare(d, d), direction=EQ", None, "{unreduced}", "bool arrays cannot be partial sums"),
    ("f32[8,6] copy(d)", ["{unreduced}", None], None, "argument x: a program cannot take partial sums"),
    ("f32[8,6] copy(d)", None, "{devices=[2,1,4]<=[8] last_tile_dims={unreduced}}", "for another number of partitions"),
])
def test_summands_that_are_none_are_refused(result: str, ins: Any, out: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        partition(xla_torch.parse_hlo(PRODUCT.replace("RESULT", result)), {"a": 2, "b": 2}, ins, out)


# ------------------------------------------------------------------------------------------------ programs that are annotated


@needs_xla
@pytest.mark.parametrize("shardy", [True, False])
@pytest.mark.parametrize("row", [
    pytest.param(r, id=str(r), marks=() if r.name in QUICK_ANNOTATED else pytest.mark.slow) for r in ANNOTATED_ROWS])
def test_annotated_functions_and_manual_regions(row: AnnotatedRow, shardy: bool) -> None:
    before = jax.config.jax_use_shardy_partitioner  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_use_shardy_partitioner", shardy)
    try:
        text = jax.jit(row.make(), keep_unused=True).lower(*row.arguments).as_text()
        want = leaves_of(jax.jit(row.make())(*row.arguments))
    finally:
        jax.config.update("jax_use_shardy_partitioner", before)
    whole = xla_torch.from_stablehlo(text)
    got = run_partitioned(partition(whole), row.arguments, [w.shape for w in want], 4)
    for own, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(own.astype(np.float64), theirs.astype(np.float64), max(row.rtol, 1e-4), 1e-5)


@needs_xla
@pytest.mark.parametrize("where", ["some axes manual", "outside"])
def test_a_convolution_that_xla_may_cut_beside_a_region_is_refused(where: str) -> None:
    def convolution(a: Any, k: Any) -> Any:
        return jax.lax.conv(a, k, (2, 1), "SAME")

    def outside(a: Any, k: Any) -> Any:
        return convolution(region(lambda b: b * 2)()(a), k)

    manual = square(convolution, ["x", ()], "x", axis_names={"x"}, check_vma=False)
    function = outside if where == "outside" else manual()
    arguments = [np.zeros(sizes, np.float32) for sizes in ((8, 2, 5, 5), (3, 2, 3, 3))]
    with pytest.raises(UnsupportedError, match="XLA's partitioner may get this wrong"):
        partition(xla_torch.from_stablehlo(jax.jit(function).lower(*arguments).as_text()))


@needs_xla
def test_partitioning_warns_about_lost_custom_derivatives() -> None:
    @jax.custom_vjp
    def twice(x: Any) -> Any:
        return x * 2

    twice.defvjp(lambda x: (twice(x), None), lambda _, ct: (ct * 7,))
    part: Any = partition(xla_torch.from_jax(lambda x: twice(x).sum(), np.ones(8, np.float32)), {"i": 2}, [("i",)])
    with pytest.warns(LostDerivatives):
        xla_torch.grad(part.computation, 0)
