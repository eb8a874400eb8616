"""Shardings, annotated programs, and programs that XLA has partitioned: against XLA's own printing, and against what JAX computes
on four devices."""

from __future__ import annotations

import contextlib
import math
import random
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from support.distributed_programs import on_processes
from support.distributed_workers import Workers
from support.jax_oracle import evaluated
from support.oracle import HAS_XLA, as_older, needs_xla, xla_accepts, xla_canonical
from support.sharding_rows import BY_NAME, ROWS, Row, floats, mesh, placed
from xla_torch import Sharding, run_replicas, shard, unshard
from xla_torch.errors import HloSyntaxError, InvalidArgument, UnsupportedError

if HAS_XLA:
    import jax
    import jax.numpy as jnp

# ------------------------------------------------------------------------------------------------ text

TEXTS = [
    "{replicated}", "{manual}", "{unknown}", "{unreduced}", "{maximal device=0}", "{maximal device=7}", "{ /*all*/ replicated }",
    "{devices=[2,1]0,1}", "{devices=[2,1]1,0}", "{devices=[2,2]3,1,2,0}", "{devices=[2, 2] <= [4]}", "{devices=[2,1]5,7}",
    "{devices=[2,2]<=[2,2]T(1,0)}", "{devices=[2,2]<=[2,2]T(0,1)}", "{devices=[2,2]<=[1,4]T(1,0)}", "{devices=[1,1]<=[1]}",
    "{devices=[4,2]<=[2,2,2]T(2,0,1)}", "{devices=[4,2]<=[2,2,2]T(0,2,1)}", "{devices=[8,1]<=[2,2,2]T(2,1,0)}",
    "{devices=[2,1,2]<=[4] last_tile_dim_replicate}", "{devices=[2,1,1]<=[2] last_tile_dim_replicate}",
    "{devices=[1,1,4]<=[4] last_tile_dim_replicate}", "{devices=[2,1,2]1,0,3,2 last_tile_dim_replicate}",
    "{devices=[1,1,2,2]<=[4] last_tile_dims={manual,replicated}}", "{devices=[1,1,2,2]<=[4] last_tile_dims={replicated, manual}}",
    "{devices=[1,1,2,2]<=[4] last_tile_dims={manual, manual}}", "{devices=[2,1,2,1]<=[4] last_tile_dims={manual, replicated}}",
    "{devices=[2,1,2]<=[4] last_tile_dims={unreduced}}", "{devices=[2,1,2]<=[4] last_tile_dims={}}",
    "{devices=[1,1,2,1,2]<=[4] last_tile_dims={replicated, manual, replicated}}",
    "{devices=[2,1,2,2]<=[8] last_tile_dims={manual, replicated} shard_as 4}", "{devices=[1024,4]<=[4096]}",
    "{devices=[2,1]<=[2] shard_as 1}", "{manual shard_like 2}", "{shard_as 2 replicated}",
    '{replicated metadata={op_name="x"}}', '{replicated metadata={{op_name="x"},{op_name="y"}}}', "{replicated metadata={}}",
    '{devices=[2,1]<=[2] last_tile_dim_replicate metadata={op_name="x"}}', '{replicated metadata={op_name="x"} shard_as 1}',
    "{}", "{{replicated}}", "{{replicated},{manual}}", "{{devices=[2,1]<=[2]}, {maximal device=1}}",
    "{mesh['a'=2], [{'a'}, {}]}", "{mesh['a'=2,'b'=2], [{'a', ?},{?}]}", "{mesh['a'=2,'b'=2], [{'a'},{}], replicated={'b'}}",
    "{mesh['a'=2,'b'=2], [{},{}], manual={'b'}}", "{mesh['a'=2,'b'=2], [{},{}], unreduced={'b'}}",
    "{mesh['a'=4,'b'=2], [{'a':(1)2},{}]}", "{mesh['a'=2,'b'=2], [{'a','b'},{}], metadata={op_name=\"x\"}}",
    "{mesh['a'=2], device_ids=(1,0), [{'a'},{}]}", "{mesh['a'=2], device_ids=([2]), [{'a'},{}]}", "{mesh[], [{},{}]}",
]


REDUCED = [f"{{mesh['a'=2,'b'=2], [{{}},{{}}], unreduced={word}{{'b'}}}}" for word in ("max", "min", "sum")]
"""Texts that XLA of jaxlib 0.10 does not read."""


def program_with(sharding: str, shape: str = "f32[8,4]", header: str = "") -> str:
    return f"HloModule m{header}\nENTRY e {{\n  p = {shape} parameter(0)\n  ROOT r = {shape} negate(p), sharding={sharding}\n}}"


def as_xla_prints(sharding: str) -> str:
    printed = re.search(r"ROOT.*?negate\(.*?\), sharding=(.*)", xla_canonical(program_with(sharding)))
    assert printed is not None
    return printed[1]


@needs_xla
@pytest.mark.parametrize("text", [
    pytest.param(t, marks=as_older) if t == "{unreduced}" or "last_tile_dims={unreduced" in t else t for t in TEXTS])
def test_text_is_printed_as_xla_prints_it(text: str) -> None:
    assert str(Sharding.parse(text)) == as_xla_prints(text)


@pytest.mark.parametrize("text", REDUCED)
def test_a_reduction_of_parts_is_printed_as_xla_prints_it(text: str) -> None:
    got = str(Sharding.parse(text))
    assert got == text.replace("sum", "").replace("{},{}", "{}, {}")
    with contextlib.suppress(Exception):  # of jaxlib, in several classes: it is older
        assert got == as_xla_prints(text)


@pytest.mark.parametrize("text", REDUCED[:2])
def test_parts_that_are_not_summed_are_refused(text: str) -> None:
    with pytest.raises(UnsupportedError, match=r"another operation than a sum(.|\n)*unreduced=m(.|\n)*hint +reduce"):
        shard(np.zeros((2, 2)), text)
    with pytest.raises(UnsupportedError, match="another operation than a sum"):
        unshard([np.zeros((2, 2))] * 4, text)


def drawn(rng: random.Random) -> str:
    """A tiling of two dimensions, with subgroups and devices in any order."""
    count = rng.choice([2, 4, 6, 8, 12, 16, 24])
    factors, grid = _factors(rng, count), _factors(rng, count)
    cut = rng.randint(0, len(factors))
    dims = [1, 1]
    for factor in factors[:cut]:
        dims[rng.randint(0, 1)] *= factor
    permutation = rng.sample(range(len(grid)), len(grid))
    devices = f"<=[{','.join(map(str, grid))}]" + (f"T({','.join(map(str, permutation))})" if len(grid) > 1 else "")
    if rng.random() < 0.3:
        devices = ",".join(map(str, rng.sample(range(count), count)))
    kinds = [rng.choice(["manual", "replicated", "unreduced"]) for _ in factors[cut:]]
    last = f" last_tile_dims={{{', '.join(kinds)}}}" if kinds else ""
    return f"{{devices=[{','.join(map(str, dims + factors[cut:]))}]{devices}{last}}}"


def _factors(rng: random.Random, count: int) -> list[int]:
    found = []
    while count > 1:
        found.append(rng.choice([d for d in range(2, count + 1) if count % d == 0]))
        count //= found[-1]
    return found


@needs_xla
@as_older
def test_drawn_tilings_are_printed_as_xla_prints_them() -> None:
    rng = random.Random(5)
    for text in {drawn(rng) for _ in range(300)}:
        assert str(Sharding.parse(text)) == as_xla_prints(text), text


@pytest.mark.parametrize(("text", "message"), [
    ("{maximal}", "a maximal sharding has one device"),
    ("{device=3}", "neither its kind nor its tiles"),
    ("{foo}", "a sharding has no 'foo'"),
    ("{replicate}", "did you mean 'replicated'"),
    ("{replicated,}", "expects a word of a sharding"),
    ("{replicated devices=[2,1]0,1}", "a replicated sharding has no devices"),
    ("{manual devices=[2,1]0,1}", "a manual sharding has no devices"),
    ("{maximal devices=[2,1]0,1}", "a maximal sharding has one device"),
    ("{devices=[2,1]}", "expects an integer"),
    ("{devices=[2,1]0}", "does not have a device for each tile"),
    ("{devices=[1,1]0}", "a tiling has more than one device"),
    ("{devices=[2,2]<=[1,4]}", "expects 'T'"),
    ("{devices=[2,1]<=[2]T(0)}", "expects a word|a sharding has no 'T'"),
    ("{last_tile_dim_replicate}", "neither its kind nor its tiles"),
    ("{devices=[2,1,2]<=[4] last_tile_dims={unknown}}", "no kind of subgroup is called 'unknown'"),
    ("{mesh['a'=2], [{'b'}, {}]}", "the mesh has no axis 'b'"),
    ("{mesh['a'=2], [{'a'}, {'a'}]}", "an axis is used twice"),
])
def test_what_xla_does_not_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(HloSyntaxError, match=message):
        Sharding.parse(text)
    if HAS_XLA and "mesh" not in text:
        assert xla_accepts(program_with(text)) is not None


@pytest.mark.parametrize(("text", "message"), [  # these XLA reads, and overlooks what does not fit
    ("{devices=[2,1]0,1,2}", "does not have a device for each tile"),
    ("{devices=[2,1]<=[3]}", "does not have a device for each tile"),
    ("{devices=[0,1]<=[0]}", "a wrong number of tiles"),
    ("{devices=[2,1]<=[2,1]T(1,1)}", "not a permutation"),
    ("{replicated manual}", "says this twice"),
    ("{maximal device=0 device=1}", "says this twice"),
    ("{devices=[2,1,2]<=[4] last_tile_dims={maximal}}", "no kind of subgroup"),
    ("{devices=[65536,65536]<=[4294967296]}", "a wrong number of tiles"),
])
def test_what_says_nothing_is_refused(text: str, message: str) -> None:
    with pytest.raises(HloSyntaxError, match=message):
        Sharding.parse(text)


@pytest.mark.parametrize(("shape", "text", "header", "message"), [
    ("f32[8,4]", "{devices=[2,2,1]<=[4]}", "", "for an array of another rank"),
    ("f32[8,4]", "{devices=[4]<=[4]}", "", "for an array of another rank"),
    ("f32[8,4]", "{devices=[3,1]0,1,2}", ", num_partitions=4", "for another number of partitions"),
    ("f32[8,4]", "{devices=[16,1]<=[16]}", ", num_partitions=4", "for another number of partitions"),
    ("f32[8,4]", "{devices=[4,1]0,0,1,2}", "", "negative or repeated"),
    ("f32[8,4]", "{devices=[4,1]5,7,1,2}", ", num_partitions=4", "a missing device"),
    ("f32[8,4]", "{maximal device=7}", ", num_partitions=4", "a missing device"),
    ("f32[8,4]", "{maximal device=-1}", "", "negative or repeated"),
    ("f32[8,4]", "{{replicated}}", "", "does not fit the shape"),
])
def test_shardings_that_do_not_fit_are_refused(shape: str, text: str, header: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as caught:
        xla_torch.parse_hlo(program_with(text, shape, header))
    assert caught.value.subject == "negate (%r)"
    assert "line 4" in caught.value.where


def test_the_sharding_of_a_tuple_is_one_for_each_array() -> None:
    text = "HloModule m\nENTRY e {\n  p = f32[8] parameter(0)\n  ROOT r = (f32[8], f32[8]) tuple(p, p), sharding={}\n}}"
    module = xla_torch.parse_hlo(text.replace("={}", "={devices=[2]<=[2]}")[:-1]).module
    assert str(module.entry.root.common["sharding"]) == "{{devices=[2]<=[2]}, {devices=[2]<=[2]}}"
    with pytest.raises(InvalidArgument, match="of a tuple does not fit"):
        xla_torch.parse_hlo(text.replace("={}", "={{replicated}}")[:-1])


# ------------------------------------------------------------------------------------------------ arrays

SPECS = [(None, None), ("x", None), (None, "y"), ("x", "y"), ("y", "x"), (("x", "y"), None), (("y", "x"), None)]


@needs_xla
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 0, 3, 1)])
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_tiles_are_where_jax_has_them(spec: tuple[Any, ...], order: tuple[int, ...]) -> None:
    theirs = placed(mesh("x", "y", order=order), *spec)
    sharding = Sharding.parse(str(theirs._to_xla_hlo_sharding(2)))
    places = sharding.slices((8, 4), 4)
    for device, index in theirs.devices_indices_map((8, 4)).items():
        place, _ = places[list(theirs.mesh.devices.flat).index(device)]
        assert place is not None
        assert [s.indices(n) for s, n in zip(place, (8, 4), strict=True)] == [
            s.indices(n) for s, n in zip(index, (8, 4), strict=True)]


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize(("text", "sizes"), [
    ("{replicated}", (3,)), ("{devices=[4,1]<=[4]}", (8, 3)), ("{devices=[2,2]<=[2,2]T(1,0)}", (4, 6)),
    ("{devices=[4]<=[4]}", (7,)), ("{devices=[4]<=[4]}", (2,)), ("{devices=[2,1,2]<=[4] last_tile_dim_replicate}", (6, 5)),
    ("{maximal device=2}", (3, 2)),
    ("{devices=[2,2]3,1,2,0}", (5, 3)), ("{mesh['x'=2,'y'=2], [{'y'}, {'x'}]}", (4, 6)), ("{replicated}", ()),
    ("{maximal device=1}", ()), ("{unreduced}", (3, 2)), ("{unreduced}", ()),
    ("{devices=[2,1,2]<=[4] last_tile_dims={unreduced}}", (5, 3)), ("{mesh['x'=2,'y'=2], [{'y'}, {}], unreduced={'x'}}", (4, 6)),
    ("{devices=[1,2,2]<=[4] last_tile_dims={unreduced, replicated}}", (4,)),
    ("{mesh['x'=4], [{'x':(2)2}, {'x':(1)2}]}", (4, 6)), ("{mesh['x'=2,'y'=2], device_ids=(3,1,2,0), [{'x','y'}]}", (8,)),
])
def test_unshard_undoes_shard(text: str, sizes: tuple[int, ...], kind: str) -> None:
    whole: Any = np.arange(math.prod(sizes), dtype=np.float32).reshape(sizes)
    whole = torch.from_numpy(whole) if kind == "torch" else whole
    parts = shard(whole, text, 4)
    assert len(parts) == 4
    np.testing.assert_array_equal(unshard(parts, text, sizes), whole)


@pytest.mark.parametrize(("text", "want"), [
    ("{unreduced}", [15, 15]), ("{devices=[2,2]<=[4] last_tile_dims={unreduced}}", [3, 3, 12, 12]),
    ("{mesh['x'=2,'y'=2], [{'y'}], unreduced={'x'}}", [5, 5, 10, 10]),
    ("{devices=[1,2,2]<=[4] last_tile_dims={unreduced, replicated}}", [5, 5]),
])
def test_summands_are_added_up(text: str, want: list[int]) -> None:
    assert unshard([np.full(2, value) for value in (1, 2, 4, 8)], text, [len(want)]).tolist() == want


def test_arrays_of_a_tuple_are_put_together() -> None:
    rows = list(zip(shard(np.arange(7), "{devices=[2]<=[2]}"), shard(np.arange(3), "{replicated}", 2), strict=True))
    first, second = unshard(rows, "{{devices=[2]<=[2]}, {replicated}}", [(7,), (3,)])
    assert (first.tolist(), second.tolist()) == ([*range(7)], [0, 1, 2])


def test_tiles_at_the_end_are_filled_with_zeros() -> None:
    parts = shard(np.arange(1, 8), "{devices=[4]<=[4]}")
    assert [p.tolist() for p in parts] == [[1, 2], [3, 4], [5, 6], [7, 0]]
    assert unshard(parts, "{devices=[4]<=[4]}", [7]).tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert unshard(parts, "{devices=[4]<=[4]}", [8]).tolist() == [1, 2, 3, 4, 5, 6, 7, 0]
    assert [p.tolist() for p in shard(np.arange(1, 3), "{maximal device=1}", 2)] == [[0, 0], [1, 2]]


@pytest.mark.parametrize(("call", "message"), [
    (lambda: shard(np.zeros(4), "{replicated}"), "does not say how many partitions"),
    (lambda: shard(np.zeros(4), "{manual}", 2), "does not say what each partition has"),
    (lambda: shard(np.zeros(4), "{unknown}", 2), "does not say what each partition has"),
    (lambda: shard(np.zeros(4), "{devices=[2,1]<=[2]}"), "for an array of another rank"),
    (lambda: shard(np.zeros(4), "{devices=[2]<=[2]}", 4), "for another number of partitions"),
    (lambda: unshard([], "{replicated}"), "there are no arrays"),
    (lambda: unshard([np.zeros(2), np.zeros(3)], "{devices=[2]<=[2]}", (4,)), "not the tiles"),
    (lambda: unshard([np.zeros(2), np.zeros(2)], "{devices=[2]<=[2]}"), "the last tiles may be padded(.|\n)*pass sizes="),
    (lambda: unshard([(np.zeros(2),)] * 2, "{{replicated}, {replicated}}"), "the numbers of arrays and shardings differ"),
    (lambda: unshard([np.zeros(2)] * 2, "{{replicated}}"), "the numbers of arrays and shardings differ"),
    (lambda: unshard([(np.zeros(2),)] * 2, "{{replicated}}", [(2,), (2,)]), "the numbers of arrays and shardings differ"),
    (lambda: unshard([np.zeros(4)] * 2, xla_torch.parse_hlo(program_with("{devices=[2]<=[2]}", "f32[4]", ", num_partitions=2"))),
     "has no shardings of its results"),
    (lambda: unshard([np.zeros(4)] * 2, xla_torch.parse_hlo("HloModule m\nENTRY e { ROOT x = f32[4] parameter(0) }")),
     "has no shardings of its results"),
    (lambda: unshard([np.zeros(2)] * 2, "{devices=[2]<=[2]}", (5,)), "not the tiles"),
])
def test_arrays_that_do_not_fit_are_refused(call: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        call()


# ------------------------------------------------------------------------------------------------ programs of JAX


@pytest.fixture(params=["shardy", "gspmd"])
def partitioner(request: pytest.FixtureRequest) -> Iterator[str]:
    before = jax.config.jax_use_shardy_partitioner  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_use_shardy_partitioner", request.param == "shardy")
    yield request.param
    jax.config.update("jax_use_shardy_partitioner", before)


def close(got: Any, want: Any, rtol: float) -> None:
    for own, theirs in zip(got, jax.tree_util.tree_leaves(want), strict=True):
        assert own.shape == theirs.shape
        np.testing.assert_allclose(np.asarray(own, np.float64), np.asarray(theirs, np.float64), rtol=rtol, atol=1e-5)


@needs_xla
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_programs_run_with_their_global_meaning(row: Row, partitioner: str) -> None:
    """On whole arrays, without other participants."""
    function = row.make()
    program = xla_torch.from_stablehlo(jax.jit(function).lower(*row.arguments).as_text())
    assert program.partitioning.is_whole
    assert "runs with its global meaning" in repr(program)
    assert xla_torch.parse_hlo(program.to_hlo_text()).partitioning == program.partitioning
    close(program.run_numpy(*row.arguments), evaluated(function, *row.arguments), row.rtol)


@needs_xla
@as_older  # JAX 0.12 wants the kind of a sum in out_specs
def test_summands_that_leave_a_region_are_added_up() -> None:
    square = jax.make_mesh((2, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    spec = jax.sharding.PartitionSpec

    def product(a: Any, b: Any) -> Any:
        a, b = (jax.sharding.reshard(v, placed(square, *axes)) for v, axes in ((a, ("x", "y")), (b, ("y", None))))
        parts = jax.shard_map(lambda c, d: jnp.sin(c) @ d, mesh=square, in_specs=(spec("x", "y"), spec("y", None)),
                              out_specs=spec("x", unreduced=frozenset({"y"})))(a, b)
        return jnp.tanh(jax.sharding.reshard(parts, placed(square)))

    given = floats(8, 4), floats(4, 6)
    program = xla_torch.from_stablehlo(jax.jit(product).lower(*given).as_text())
    close(program.run_numpy(*given), jax.jit(product)(*given), 1e-5)


def cut(compiled: Any, arguments: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Each participant's part of the arguments of a program that XLA has partitioned. Its text has no shardings of parameters
    from jaxlib 0.12 on."""
    leaves = jax.tree_util.tree_leaves(arguments), jax.tree_util.tree_leaves(compiled.input_shardings)
    found = [shard(a, str(s._to_xla_hlo_sharding(np.ndim(a))), 4) for a, s in zip(*leaves, strict=True)]
    return list(zip(*found, strict=True))


@needs_xla
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_partitioned_programs_run_as_they_are(row: Row) -> None:
    """What XLA made of a program for each partition, on four participants."""
    compiled = jax.jit(row.make(), keep_unused=True).lower(*row.arguments).compile()
    program = xla_torch.parse_hlo(compiled.as_text() or "")
    assert not program.partitioning.is_whole
    results = run_replicas(program, cut(compiled, row.arguments), num_partitions=4)
    for k, sharding in enumerate(jax.tree_util.tree_leaves(compiled.output_shardings)):
        want = jax.tree_util.tree_leaves(compiled(*row.arguments))[k]
        close([unshard([r[k] for r in results], str(sharding._to_xla_hlo_sharding(want.ndim)), want.shape)], want, row.rtol)


@needs_xla
def test_partitioned_programs_run_on_processes(four: Workers) -> None:
    row = BY_NAME["annotated"]
    compiled = jax.jit(row.make()).lower(*row.arguments).compile()
    text = compiled.as_text() or ""
    results = on_processes(four, text, cut(compiled, row.arguments), num_partitions=4)
    want = compiled(*row.arguments)
    close([results[3][0], unshard([r[1] for r in results], "{devices=[2,2]<=[4]}", want[1].shape)], want, row.rtol)


@needs_xla
def test_each_participant_of_a_program_about_whole_arrays_has_them(four: Workers) -> None:
    row = BY_NAME["some axes manual"]
    text: Any = jax.jit(row.make()).lower(*row.arguments).compiler_ir("hlo").as_hlo_text()  # pyright: ignore
    want = xla_torch.parse_hlo(text).run_numpy(*row.arguments)
    for results in (run_replicas(xla_torch.parse_hlo(text), [row.arguments] * 4, num_partitions=4),
                    on_processes(four, text, [row.arguments] * 4, num_partitions=4)):
        assert [r[0].tobytes() for r in results] == [want[0].tobytes()] * 4


@needs_xla
@pytest.mark.parametrize("name", [
    "network", "product", "annotated", "ring", "reduce-scatter along an axis", "all-to-all", "branch", "region within a region",
    "region within a loop", "all-gather", "permute", "convolution with a window", "convolution of each with its kernel",
    "convolution in groups", "convolution with halos"])
def test_gradients_are_those_of_the_whole_program(name: str, partitioner: str) -> None:
    row = BY_NAME[name]
    function = row.make()
    numbers = tuple(range(len(row.arguments)))

    def loss(*arguments: Any) -> Any:
        leaves = jax.tree_util.tree_leaves(function(*arguments))
        return sum((leaf * leaf).sum() for leaf in leaves)

    program = xla_torch.from_stablehlo(jax.jit(loss).lower(*row.arguments).as_text())
    want = evaluated(jax.value_and_grad(loss, numbers), *row.arguments)
    derived = xla_torch.value_and_grad(program, numbers)
    close(derived.run_numpy(*row.arguments), want, 1e-4)
    assert not derived.partitioning.about
    assert "num_partitions" not in derived.module.header
    tensors = [torch.tensor(a, requires_grad=True) for a in row.arguments]
    program(*tensors).backward()
    close([t.grad for t in tensors], want[1], 1e-4)


@needs_xla
def test_a_serialized_program_of_shardy_is_read() -> None:
    import jax.export

    row = BY_NAME["network"]
    data = jax.export.export(jax.jit(row.make()))(*row.arguments).mlir_module_serialized
    close(xla_torch.from_stablehlo(bytes(data)).run_numpy(*row.arguments), jax.jit(row.make())(*row.arguments), row.rtol)


@needs_xla
def test_a_mesh_of_one_device(partitioner: str) -> None:
    from jax.sharding import PartitionSpec

    alone = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("i",))
    function = jax.shard_map(lambda a, b: jax.lax.psum(a @ b + jax.lax.axis_index("i"), "i"), mesh=alone,
                             in_specs=(PartitionSpec(None, "i"), PartitionSpec("i")), out_specs=PartitionSpec())
    given = floats(2, 4), floats(4, 3)
    program = xla_torch.from_stablehlo(jax.jit(function).lower(*given).as_text())
    close(program.run_numpy(*given), jax.jit(function)(*given), 1e-5)
    assert not program.partitioning.about


@needs_xla
def test_vmap_of_a_region() -> None:
    row = BY_NAME["network"]
    program = xla_torch.from_stablehlo(jax.jit(row.make()).lower(*row.arguments).as_text())
    xs, ws = floats(3, 8, 4), floats(3, 4, 4)
    close(xla_torch.vmap(program, 3).run_numpy(xs, ws), [np.stack([row.make()(x, w) for x, w in zip(xs, ws, strict=True)])], 1e-5)
