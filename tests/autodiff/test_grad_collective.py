"""Gradients of collectives with threads as participants: those of one program of all arguments, and differences of values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from support.collective_rows import COUNT, MAX, MIXED, MUL, ROWS, UNEVEN, Arrays
from support.collective_rows import Row as WholeRow
from support.gradient_checks import Smooth, built, drawn_examples, smooth_values, values
from support.many_devices import output_of
from support.op_rows import FAMILIES, Row
from support.oracle import HAS_XLA, needs_xla, xla_accepts
from xla_torch import ops, run_replicas
from xla_torch.errors import DifferentiationError


def run(row: WholeRow, program: xla_torch.XlaComputation, given: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
    """The flat floating results of each participant."""
    found = run_replicas(program, [tuple(g) for g in given], num_replicas=row.replicas, num_partitions=row.partitions)
    return [[a for a in results if a.dtype.kind == "f"] for results in found]


def agree(got: Sequence[Sequence[np.ndarray]], want: Sequence[Sequence[np.ndarray]]) -> None:
    for own, expected in zip(got, want, strict=True):
        for a, b in zip(own, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ROWS)
def test_gradients_are_those_of_one_program(name: str) -> None:
    row, program = ROWS[name], ROWS[name].program()
    wholes = row.results(*row.stacked())
    agree(run(row, program, row.given()), [[w[p].detach().numpy() for w in wholes] for p in range(COUNT)])
    given = [(*a, *c) for a, c in zip(row.given(), row.cotangents(), strict=True)]
    agree(run(row, xla_torch.vjp(program), given), row.gradients())


def test_a_maximum_of_nan_over_participants_has_nan() -> None:
    """For all of them, as a reduction's; where the others have a number, only who has the largest gets the cotangent."""
    row = ROWS["all-reduce max"]
    program = built(lambda x: ops.AllReduce(x, MAX), np.zeros(2))
    given = [(np.array([np.nan if k == 1 else float(k), float(k)]), np.ones(2)) for k in range(COUNT)]
    found = run(row, xla_torch.vjp(program), given)
    np.testing.assert_array_equal([g for g, in found], [[np.nan, COUNT if k == COUNT - 1 else 0] for k in range(COUNT)])


def directions(row: WholeRow) -> list[Arrays]:
    """For each participant's floating arguments where they move to."""
    return [tuple(smooth_values(a.shape, False, 70 + 10 * p + k) for k, a in enumerate(given) if a.dtype.kind == "f")
            for p, given in enumerate(row.given())]


def stacked(columns: Sequence[Arrays]) -> list[torch.Tensor]:
    return [torch.from_numpy(np.stack(column)) for column in zip(*columns, strict=True)]


@pytest.mark.parametrize("name", ROWS)
def test_tangents_are_those_of_one_program(name: str) -> None:
    """Every participant's arguments move; its results move as those of the one program."""
    row = ROWS[name]
    given = row.stacked()
    floats = [s for s in given if s.requires_grad]
    rest = [s for s in given if not s.requires_grad]
    _, tangents = torch.autograd.functional.jvp(lambda *moved: tuple(row.results(*moved, *rest)), tuple(floats),
                                                tuple(stacked(directions(row))))
    derivative = xla_torch.jvp(row.program())
    found = run(row, derivative, [(*a, *d) for a, d in zip(row.given(), directions(row), strict=True)])
    agree([own[len(own) // 2:] for own in found], [[t[p].numpy() for t in tangents] for p in range(COUNT)])


@pytest.mark.parametrize("name", ROWS)
def test_second_derivatives_are_those_of_one_program(name: str) -> None:
    row = ROWS[name]
    given = row.stacked()
    floats = [s for s in given if s.requires_grad]
    wholes, cts, along = row.results(*given), stacked(row.cotangents()), stacked(directions(row))
    slopes = torch.autograd.grad(wholes, floats, cts, create_graph=True, materialize_grads=True)
    want = torch.autograd.grad(slopes, floats, along, materialize_grads=True) if any(s.requires_grad for s in slopes) else [
        torch.zeros_like(f) for f in floats]
    second = xla_torch.vjp(xla_torch.vjp(row.program()), list(range(len(floats))))
    found = run(row, second, [(*a, *c, *d) for a, c, d in zip(row.given(), row.cotangents(), directions(row), strict=True)])
    agree(found, [[w[p].numpy() for w in want] for p in range(COUNT)])


@pytest.mark.parametrize("name", ROWS)
def test_derivatives_are_programs(name: str) -> None:
    """They are read again as they were printed, and XLA's parser reads them. It knows no collective-reduce."""
    text = xla_torch.vjp(ROWS[name].program()).to_hlo_text()
    assert xla_torch.parse_hlo(text).to_hlo_text() == text
    if HAS_XLA and " collective-reduce(" not in text:
        assert xla_accepts(text) is None


ON_XLA = """
import sys
import numpy as np
import xla_torch
from support.collective_rows import ROWS
from support.many_devices import run_on_devices

for name in sys.argv[1:]:
    row = ROWS[name]
    derivative = xla_torch.vjp(row.program())
    derivative.module.header.update(replica_count=row.replicas, num_partitions=row.partitions)
    given = [(*a, *c) for a, c in zip(row.given(), row.cotangents(), strict=True)]
    found = run_on_devices(derivative.to_hlo_text(), given, row.replicas, row.partitions)
    for own, want in zip(found, row.gradients(), strict=True):
        for a, b in zip(own, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12, err_msg=name)
print("agreed", len(sys.argv) - 1)
"""

NOT_THERE = ("ragged", "broadcast", "collective-reduce", "send", "in place", "collective-permute of two", "reduce-scatter of two")
"""What XLA's CPU runtime, or its way through StableHLO, does not take."""


@pytest.mark.slow
@needs_xla
def test_derivatives_on_real_xla() -> None:
    names = [name for name in ROWS if not any(word in name for word in NOT_THERE)]
    found = output_of(ON_XLA, *names)
    assert f"agreed {len(names)}" in found, found


ON_JAX = """
import jax, numpy as np
from jax.sharding import AxisType, PartitionSpec as P

mesh = jax.make_mesh((2,), ("i",), axis_types=(AxisType.Auto,))
w, x = np.array([3.0, 3.0]), np.array([1.0, 2.0])
for loss in (lambda w, x: (w * x).sum(), lambda w, x: jax.lax.psum((w * x).sum(), "i")):
    print(jax.pmap(jax.grad(loss), axis_name="i")(w, x).tolist(), *(
        jax.shard_map(jax.grad(loss), mesh=mesh, in_specs=P("i"), out_specs=P("i"), check_vma=check)(w, x).tolist()
        for check in (False, True)), jax.shard_map(jax.grad(loss), mesh=mesh, in_specs=(P(), P("i")), out_specs=P())(w[:1], x))
"""


@pytest.mark.slow
@needs_xla
def test_jax_has_the_gradients_that_the_docs_state() -> None:
    """By pmap, and by shard_map without and with what JAX knows to be the same everywhere; of a common argument."""
    found = output_of(ON_JAX)
    assert "[1.0, 2.0] [1.0, 2.0] [1.0, 2.0] [3.]\n[2.0, 4.0] [2.0, 4.0] [1.0, 2.0] [3.]\n" in found, found


def check(program: xla_torch.XlaComputation, arguments: list, directions: list, replicas: int = 4, partitions: int = 1,
          step: float = 1e-5) -> None:
    """`directions` says for each participant where its arguments move to; None for integers, which do not."""
    derivative = xla_torch.vjp(program)
    leaves = [leaf for leaf in program.program_shape.result.leaves() if leaf.element_type.is_differentiable]
    cts = [[smooth_values(s.dimensions, s.element_type.is_complex, r + 40 + k) for k, s in enumerate(leaves)]
           for r in range(len(arguments))]

    def run(program: xla_torch.XlaComputation, given: list) -> list:
        results = run_replicas(program, [tuple(g) for g in given], num_replicas=replicas, num_partitions=partitions)
        return [[a for a in map(np.asarray, of) if a.dtype.kind in "fc"] for of in results]

    def total(sign: int) -> float:
        moved = [[a if d is None else a + sign * step * d for a, d in zip(given, along, strict=True)]
                 for given, along in zip(arguments, directions, strict=True)]
        return sum(product(c, r) for of, ct in zip(run(program, moved), cts, strict=True) for r, c in zip(of, ct, strict=True))

    gradients = run(derivative, [[*a, *c] for a, c in zip(arguments, cts, strict=True)])
    slope = sum(product(g, d) for of, along in zip(gradients, directions, strict=True)
                for g, d in zip(of, (d for d in along if d is not None), strict=True))
    assert slope == pytest.approx((total(1) - total(-1)) / (2 * step), rel=1e-6, abs=1e-6)


def product(ct: np.ndarray, value: np.ndarray) -> float:
    """The real product of a cotangent with a value."""
    return float(np.real(np.conj(ct) * value).sum())


DRAWN = [pytest.param(row, kind, id=f"{row.name} {kind}") for row in FAMILIES["collective"] for kind in ("f64", "c128")
         if kind in row.types]


@pytest.mark.parametrize(("row", "kind"), DRAWN)
def test_drawn_collectives(row: Row, kind: str) -> None:
    """Drawn shapes, groups and dimensions: see `support/op_rows`."""
    def example(draw: Any) -> None:
        drawn = Smooth(draw, kind)
        root = row.build(drawn)
        assert drawn.builder is not None
        program = drawn.builder.build(ops.Tuple(drawn.builder, list(root)) if isinstance(root, (list, tuple)) else root)
        replicas, partitions = row.participants
        arguments = [drawn.of_participant(k) for k in range(replicas * partitions)]
        directions = [[smooth_values(a.shape, kind == "c128", 100 + 10 * r + k) if a.dtype.kind in "fc" else None
                       for k, a in enumerate(given)] for r, given in enumerate(arguments)]
        if any(d is not None for d in directions[0]):
            check(program, arguments, directions, replicas, partitions)

    drawn_examples(example, 2)


@pytest.mark.parametrize("linear", [
    "all-gather(x), dimensions={0}, replica_groups={{0,1}}",
    "all-reduce(y), to_apply=add, replica_groups={{0,1}}",
    "collective-permute(y), source_target_pairs={{0,1},{1,0}}",
    "all-to-all(y), dimensions={0}, replica_groups={{0,1}}",
])
def test_what_nobody_reads_is_not_exchanged(linear: str) -> None:
    """The way back of a linear exchange is one exchange, without the one on the way there, and a dead one is left out."""
    program = xla_torch.parse_hlo(f"""HloModule m, replica_count=2
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}
ENTRY e {{
  x = f32[2] parameter(0)
  y = f32[4] concatenate(x, x), dimensions={{0}}
  dead = f32[4] {linear}
  g = f32[4] {linear}
  ROOT r = f32[4] add(g, y)
}}""")
    opcode = linear.partition("(")[0]
    back = xla_torch.vjp(program).to_hlo_text()
    assert sum(f" {name}(" in line for line in back.splitlines() for name in (opcode, "reduce-scatter")) == 1
    assert program.python_code().replace("collective.wait", "").count("collective.") == 1


def test_product_of_zeros() -> None:
    """Where one factor is zero it alone has a gradient, where two are nobody has."""
    factors = [np.array([2.0, 0.0, 0.0]), np.array([3.0, 5.0, 0.0]), np.array([0.5, 7.0, 1.0])]
    derivative = xla_torch.vjp(built(lambda x: ops.AllReduce(x, MUL), factors[0]))
    found = run_replicas(derivative, [(f, np.ones(3)) for f in factors], num_replicas=3)
    assert [f[0].tolist() for f in found] == [[4.5, 105.0, 0.0], [3.0, 0.0, 0.0], [18.0, 0.0, 0.0]]


REFUSED = {
    "everybody, without a list": lambda x: ops.AllReduce(x, MIXED),
    "groups of several sizes": lambda x: ops.AllReduce(x, MIXED, UNEVEN),
    "all partitions of some replicas": lambda x: ops.AllReduce(x, MIXED, [[0, 1]], 1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_reducers_of_any_kind_need_groups_of_known_size(name: str) -> None:
    with pytest.raises(DifferentiationError, match="for listed groups of one size only") as raised:
        xla_torch.vjp(built(REFUSED[name], values(4)))
    assert "list all participants in replica_groups" in str(raised.value)
