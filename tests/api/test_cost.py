"""Cost estimates against XLA's own analysis, and what is counted otherwise on purpose."""

from __future__ import annotations

import pytest

from support import oracle
from xla_torch import parse_hlo
from xla_torch.analysis.cost import Cost, computation_cost
from xla_torch.demo import PROGRAM


def cost(text: str) -> Cost:
    return computation_cost(parse_hlo(text).entry)


def entry(*lines: str) -> str:
    """An entry computation; the region `sum` is there to be called."""
    region = "sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }\n"
    return region + "ENTRY main {\n" + "\n".join(lines) + "\n}"


CASES = {
    "elementwise": entry("p = f32[6,7] parameter(0)", "q = f32[6,7] tanh(p)", "ROOT r = f32[6,7] multiply(p, q)"),
    "integers": entry("p = s8[100] parameter(0)", "ROOT r = s8[100] maximum(p, p)"),
    "dot": entry("a = f32[2,8,5] parameter(0)", "b = f32[2,5,3] parameter(1)",
                 "ROOT d = f32[2,8,3] dot(a, b), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, "
                 "rhs_contracting_dims={1}"),
    "convolution": entry("x = f32[4,3,10,11] parameter(0)", "k = f32[8,3,3,3] parameter(1)",
                         "ROOT y = f32[4,8,5,11] convolution(x, k), window={size=3x3 stride=2x1 pad=1_1x1_1}, "
                         "dim_labels=bf01_oi01->bf01"),
    "dilated convolution": entry("x = f32[1,10,2] parameter(0)", "k = f32[3,2,4] parameter(1)",
                                 "ROOT y = f32[1,19,4] convolution(x, k), window={size=3 pad=2_2 lhs_dilate=2 "
                                 "rhs_dilate=2}, dim_labels=b0f_0io->b0f"),
    "grouped convolution": entry("x = f32[2,10,8] parameter(0)", "k = f32[3,2,12] parameter(1)",
                                 "ROOT y = f32[2,8,12] convolution(x, k), window={size=3}, dim_labels=b0f_0io->b0f, "
                                 "feature_group_count=4"),
    "reduce": entry("p = f32[6,7] parameter(0)", "z = f32[] constant(0)",
                    "ROOT r = f32[6] reduce(p, z), dimensions={1}, to_apply=sum"),
    "reduce-window": entry("p = f32[9] parameter(0)", "z = f32[] constant(0)",
                           "ROOT r = f32[7] reduce-window(p, z), window={size=3}, to_apply=sum"),
    "movement": entry("p = f32[4,5] parameter(0)", "t = f32[5,4] transpose(p), dimensions={1,0}",
                      "ROOT s = f32[2,4] slice(t), slice={[0:2], [0:4]}"),
    "dynamic slices": entry("p = f32[100] parameter(0)", "i = s32[] parameter(1)",
                            "d = f32[3] dynamic-slice(p, i), dynamic_slice_sizes={3}",
                            "ROOT u = f32[100] dynamic-update-slice(p, d, i)"),
}


@oracle.needs_xla
@pytest.mark.parametrize("name", [*CASES, "demo"])
def test_counts_are_those_of_xla(name: str):
    from jaxlib import _hlo, _jax  # pyright: ignore[reportAttributeAccessIssue]

    text = CASES[name] if name in CASES else PROGRAM.read_text()
    theirs = _jax.hlo_module_cost_analysis(oracle._backend(), _hlo.hlo_module_from_text(text))
    ours = cost(text)
    assert ours.flops == pytest.approx(theirs.get("flops", 0), rel=1e-7)  # XLA counts in float32
    assert ours.transcendentals == theirs.get("transcendentals", 0)
    if name != "demo":  # XLA counts the pointers of tuples and nothing for some views
        assert ours.bytes == theirs["bytes accessed"]


LOOP = """
body {{ c = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  x = f32[8] get-tuple-element(c), index=1
  one = s32[] constant({step})
  j = s32[] add(i, one)
  y = f32[8] multiply(x, x)
  ROOT r = (s32[], f32[8]) tuple(j, y) }}
condition {{ c = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  n = s32[] constant(10)
  ROOT r = pred[] compare(i, n), direction=LT }}
ENTRY main {{ x = f32[8] parameter(0)
  start = s32[] {start}
  init = (s32[], f32[8]) tuple(start, x)
  ROOT w = (s32[], f32[8]) while(init), condition=condition, body=body }}
"""


@pytest.mark.parametrize(("step", "trips"), [(1, 10), (3, 4)])
def test_a_counted_loop_counts_as_often_as_it_runs(step: int, trips: int):
    found = cost(LOOP.format(step=step, start="constant(0)"))
    assert (found.flops, found.unknown_loops) == (trips * 10, 0)


def test_a_loop_of_unknown_length_counts_once():
    found = cost(LOOP.format(step=1, start="parameter(1)"))
    assert (found.flops, found.unknown_loops) == (10, 1)


def test_the_dearest_branch_counts():
    text = """
    cheap { p = f32[4] parameter(0) ROOT r = f32[4] negate(p) }
    dear { p = f32[4] parameter(0) q = f32[4] tanh(p) ROOT r = f32[4] multiply(q, q) }
    ENTRY main { i = s32[] parameter(0) x = f32[4] parameter(1)
      ROOT r = f32[4] conditional(i, x, x), branch_computations={cheap, dear} }"""
    assert (cost(text).flops, cost(text).transcendentals) == (4, 4)


def test_inside_a_fusion_no_bytes_move():
    text = """
    fused { p = f32[4] parameter(0) q = f32[4] negate(p) ROOT r = f32[4] multiply(q, q) }
    ENTRY main { x = f32[4] parameter(0) ROOT r = f32[4] fusion(x), kind=kLoop, calls=fused }"""
    assert (cost(text).flops, cost(text).bytes) == (8, 32)


def test_a_barrier_moves_nothing():
    text = """
    ENTRY main { x = f32[4] parameter(0) t = (f32[4], f32[4]) tuple(x, x)
      b = (f32[4], f32[4]) opt-barrier(t) ROOT r = f32[4] get-tuple-element(b), index=0 }"""
    assert cost(text) == Cost()
