"""Programs of every opcode, for every element type that it takes: what is run on a device (`test_cuda.py`).

A row is written in HLO with what is the same everywhere left out: parameters are p0, p1, ..., the last line is the root, T stands
for the element type, R for its real part and C for its complex type, and regions are named as in `REGIONS`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

import xla_torch
from support.agreement import ALL, COMPLEX, NARROW_FLOATS, element_type
from xla_torch.errors import XlaError
from xla_torch.hlo.schema import OPS
from xla_torch.hlo.verifier import verify
from xla_torch.types import complex_part

KINDS = (*ALL, "f8e8m0fnu", "s1", "u1")


@dataclasses.dataclass(frozen=True)
class Row:
    """One program. `why` says what it waits for the device for, if it does; `random` that its results are drawn; `feeds` that
    it runs only beside something that feeds it; `kinds` are the element types it is tried with: those that the op takes count."""

    opcode: str
    parameters: str
    lines: str
    why: str = ""
    random: bool = False
    feeds: bool = False
    kinds: tuple[str, ...] = KINDS

    def __str__(self) -> str:
        return f"{self.opcode}: {' '.join(self.lines.split())[:70]}"

    def text(self, kind: str) -> str:
        """The program as HLO text for an element type."""
        names = [f"p{k} = {shape} parameter({k})" for k, shape in enumerate(self.parameters.split())]
        *lines, root = (line.strip() for line in self.lines.strip().split("\n"))
        regions = [REGIONS[name].strip() for name in _needed(self.lines)]
        text = "\n".join(["HloModule row", *regions, "ENTRY entry {", *names, *lines, f"ROOT root = {root}", "}"])
        return re.sub(r"\b[TRC]\b", lambda m: _types(kind)[m.group()], text)

    def program(self, kind: str) -> xla_torch.XlaComputation | None:
        """The program for an element type; None where its op does not take this type."""
        try:
            computation = xla_torch.parse_hlo(self.text(kind))
            verify(computation.module)
        except XlaError:
            return None
        return computation


def _types(kind: str) -> dict[str, str]:
    own = element_type(kind)
    made = {"f32": "c64", "f64": "c128"}.get(kind, kind)
    return {"T": kind, "R": complex_part(own).text, "C": made}


def _needed(lines: str) -> list[str]:
    """The regions that lines name, those that these name first."""
    found: list[str] = []
    for name in re.findall(r"\w+", lines):
        if name in REGIONS and name not in found and re.search(rf"[={{,] ?{name}\b", lines):
            found += [n for n in [*_needed(REGIONS[name]), name] if n not in found]
    return found


def _binary(name: str, operation: str) -> dict[str, str]:
    return {name: f"{name} {{\n a = T[] parameter(0)\n b = T[] parameter(1)\n ROOT r = {operation}\n}}"}


REGIONS: dict[str, str] = {
    **_binary("sum", "T[] add(a, b)"),
    **_binary("product", "T[] multiply(a, b)"),
    **_binary("largest", "T[] maximum(a, b)"),
    **_binary("smallest", "T[] minimum(a, b)"),
    **_binary("latest", "T[] copy(b)"),
    **_binary("difference", "T[] subtract(a, b)"),
    **_binary("less", "pred[] compare(a, b), direction=LT"),
    **_binary("at_least", "pred[] compare(a, b), direction=GE"),
    "total_order": """total_order {
  a = T[] parameter(0)
  b = T[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=GT, type=TOTALORDER
}""",
    "nameless": """nameless {
  a = T[] parameter(0)
  b = T[] parameter(1)
  ab = T[] multiply(a, b)
  ROOT r = T[] add(ab, b)
}""",
    "unknown_less": """unknown_less {
  a = T[] parameter(0)
  b = T[] parameter(1)
  ab = T[] multiply(a, b)
  x = pred[] compare(a, b), direction=LT
  y = pred[] compare(ab, b), direction=LT
  ROOT r = pred[] and(x, y)
}""",
    "argmax": """argmax {
  a = T[] parameter(0)
  i = s32[] parameter(1)
  b = T[] parameter(2)
  j = s32[] parameter(3)
  more = pred[] compare(a, b), direction=GT
  same = pred[] compare(a, b), direction=EQ
  first = pred[] compare(i, j), direction=LT
  tie = pred[] and(same, first)
  stays = pred[] or(more, tie)
  v = T[] select(stays, a, b)
  k = s32[] select(stays, i, j)
  ROOT r = (T[], s32[]) tuple(v, k)
}""",
    "by_first": """by_first {
  a = T[] parameter(0)
  b = T[] parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT
}""",
    "step": """step {
  x = T[2] parameter(0)
  c = T[2] parameter(1)
  y = T[2] add(x, c)
  ROOT r = (T[2], T[2]) tuple(x, y)
}""",
    "twice": "twice {\n x = T[] parameter(0)\n ROOT r = T[] add(x, x)\n}",
    "same": "same {\n x = T[] parameter(0)\n ROOT r = T[] copy(x)\n}",
    "twice_all": "twice_all {\n x = T[3] parameter(0)\n ROOT r = T[3] add(x, x)\n}",
    "same_all": "same_all {\n x = T[3] parameter(0)\n ROOT r = T[3] copy(x)\n}",
    "chosen": """chosen {
  a = T[] parameter(0)
  p = pred[] compare(a, a), direction=EQ
  ROOT r = T[] conditional(p, a, a), true_computation=twice, false_computation=same
}""",
    "not_yet": """not_yet {
  s = (T[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=1
  x = T[] get-tuple-element(s), index=0
  bound = s32[] constant(3)
  more = pred[] compare(i, bound), direction=LT
  ordered = pred[] compare(x, x), direction=EQ
  ROOT r = pred[] and(more, ordered)
}""",
    "next": """next {
  s = (T[], s32[]) parameter(0)
  x = T[] get-tuple-element(s), index=0
  i = s32[] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = T[] add(x, x)
  ROOT r = (T[], s32[]) tuple(y, j)
}""",
    "looped": """looped {
  a = T[] parameter(0)
  zero = s32[] constant(0)
  s = (T[], s32[]) tuple(a, zero)
  w = (T[], s32[]) while(s), condition=not_yet, body=next
  ROOT r = T[] get-tuple-element(w), index=0
}""",
    "spread": """spread {
  a = T[] parameter(0)
  two = T[2] broadcast(a), dimensions={}
  zero = T[] constant(0)
  ROOT r = T[] reduce(two, zero), dimensions={0}, to_apply=sum
}""",
    "counted": """counted {
  s = (s32[], T[3], T[4,3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  bound = s32[] constant(4)
  ROOT r = pred[] compare(i, bound), direction=LT
}""",
    "scan_step": """scan_step {
  s = (s32[], T[3], T[4,3]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = T[3] get-tuple-element(s), index=1
  out = T[4,3] get-tuple-element(s), index=2
  zero = s32[] constant(0)
  row = T[1,3] dynamic-slice(out, i, zero), dynamic_slice_sizes={1,3}
  flat = T[3] reshape(row)
  y = T[3] add(x, flat)
  y1 = T[1,3] reshape(y)
  o = T[4,3] dynamic-update-slice(out, y1, i, zero)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT r = (s32[], T[3], T[4,3]) tuple(j, y, o)
}""",
    "has_more": """has_more {
  s = (T[3], pred[]) parameter(0)
  ROOT r = pred[] get-tuple-element(s), index=1
}""",
    "ends": """ends {
  s = (T[3], pred[]) parameter(0)
  x = T[3] get-tuple-element(s), index=0
  p = pred[] get-tuple-element(s), index=1
  q = pred[] not(p)
  y = T[3] add(x, x)
  ROOT r = (T[3], pred[]) tuple(y, q)
}""",
    "wrapped": "wrapped {\n x = T[3] parameter(0)\n ROOT r = T[3] add(x, x)\n}",
}
"""Regions by name, over scalars of T."""

LOOP = "a while loop whose condition is data reads it each step"
BRANCH = "a conditional reads which branch to run"
SIZE = "an array's size is data"
ROUNDS = "a combiner that is not recognised is applied in as many rounds as an element has updates, which are counted"

_COLLECTIVE = "replica_groups={{0}}"
_BY_ROWS = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}"
_SCATTER = ("T[5,3] scatter(p0, p1, p2), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
            "index_vector_dim=1")
WIDE = tuple(k for k in KINDS if k not in NARROW_FLOATS and k != "f8e8m0fnu")
SOME = ("pred", "u4", "s8", "u16", "s64", "f8e4m3", "bf16", "f32", "f64", "c64")
"""A selection of element types for programs of many calls."""

NAMED: list[Row] = [
    # movement
    Row("broadcast", "T[3]", "T[2,3] broadcast(p0), dimensions={1}"),
    Row("reshape", "T[2,6]", "T[3,4] reshape(p0)"),
    Row("transpose", "T[2,3]", "T[3,2] transpose(p0), dimensions={1,0}"),
    Row("reverse", "T[2,3]", "T[2,3] reverse(p0), dimensions={1}"),
    Row("slice", "T[4,6]", "T[2,3] slice(p0), slice={[1:3], [0:6:2]}"),
    Row("concatenate", "T[2,3] T[1,3]", "T[3,3] concatenate(p0, p1), dimensions={0}"),
    Row("pad", "T[2,3] T[]", "T[5,4] pad(p0, p1), padding=1_1_1x-1_2"),
    Row("pad", "T[2,3]", "zero = T[] constant(0)\nT[4,3] pad(p0, zero), padding=1_1x0_0"),
    Row("iota", "", "T[3,2] iota(), iota_dimension=0"),
    Row("iota", "", "T[200000] iota(), iota_dimension=0"),
    Row("constant", "T[2]", "c = T[2] constant({0, 1})\nT[2] add(p0, c)"),
    Row("parameter", "T[2]", "T[2] copy(p0)"),
    Row("copy", "T[2,3]", "T[2,3] copy(p0)"),
    # dynamic
    Row("get-dimension-size", "T[<=4]", "s32[] get-dimension-size(p0), dimensions={0}"),
    Row("set-dimension-size", "T[4]", "n = s32[] constant(2)\nT[<=4] set-dimension-size(p0, n), dimensions={0}"),
    Row("set-dimension-size", "T[4] s32[]", "T[<=4] set-dimension-size(p0, p1), dimensions={0}", why=SIZE),
    Row("dynamic-reshape", "T[6] s32[]", "n = s32[] constant(2)\nT[2,<=3] dynamic-reshape(p0, p1, n)", why=SIZE),
    # indexing
    Row("dynamic-slice", "T[4,3] s32[] s32[]", "T[2,2] dynamic-slice(p0, p1, p2), dynamic_slice_sizes={2,2}"),
    Row("dynamic-slice", "T[4] u32[]", "T[2] dynamic-slice(p0, p1), dynamic_slice_sizes={2}"),
    Row("dynamic-update-slice", "T[4,3] T[2,3] s32[]", "z = s32[] constant(0)\nT[4,3] dynamic-update-slice(p0, p1, p2, z)"),
    Row("dynamic-update-slice", "T[4,3] T[2,2] s64[] s64[]", "T[4,3] dynamic-update-slice(p0, p1, p2, p3)"),
    Row("gather", "T[5,3] s32[4]", """T[4,3] gather(p0, p1), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
        index_vector_dim=1, slice_sizes={1,3}""".replace("\n", " ")),
    Row("gather", "T[5,4] u16[2,2]", """T[2,2,3] gather(p0, p1), offset_dims={1,2}, collapsed_slice_dims={},
        start_index_map={0,1}, index_vector_dim=1, slice_sizes={2,3}""".replace("\n", " ")),
    Row("scatter", "T[5,3] s32[4,1] T[4,3]", f"{_SCATTER}, to_apply=latest"),
    *(Row("scatter", "T[5,3] s32[4,1] T[4,3]", f"{_SCATTER}, to_apply={region}", kinds=WIDE) for region in ("sum", "difference")),
    *(Row("scatter", "T[5,3] s32[4,1] T[4,3]", f"{_SCATTER}, to_apply={region}", kinds=tuple(k for k in WIDE if k not in COMPLEX))
      for region in ("product", "largest", "smallest")),
    *(Row("scatter", "T[5,3] s32[4,1] T[4,3]", f"{_SCATTER}, to_apply={region}",
          why=ROUNDS, kinds=NARROW_FLOATS) for region in ("sum", "product", "difference")),
    Row("scatter", "T[5,3] s32[4,1] T[4,3]", f"{_SCATTER}, to_apply=latest, unique_indices=true"),
    Row("scatter", "T[5,3] s32[1,1] T[1,3]", f"{_SCATTER}, to_apply=nameless",
        why=ROUNDS),
    # reductions
    *(Row("reduce", "T[3,4] T[]", f"T[3] reduce(p0, p1), dimensions={{1}}, to_apply={region}")
      for region in ("sum", "product", "largest", "smallest", "nameless")),
    Row("reduce", "T[3,4,2]", "zero = T[] constant(0)\nT[4] reduce(p0, zero), dimensions={0,2}, to_apply=sum"),
    Row("reduce", "T[3,4,2]", "one = T[] constant(1)\nT[4] reduce(p0, one), dimensions={0,2}, to_apply=product"),
    Row("reduce", "T[3,4] T[]", """i = s32[3,4] iota(), iota_dimension=1
        z = s32[] constant(0)
        (T[3], s32[3]) reduce(p0, i, p1, z), dimensions={1}, to_apply=argmax"""),
    Row("map", "T[3,4]", "T[3,4] map(p0), dimensions={0,1}, to_apply=twice"),
    Row("map", "T[3,4]", "T[3,4] map(p0), dimensions={0,1}, to_apply=chosen"),
    Row("map", "T[3,4]", "T[3,4] map(p0), dimensions={0,1}, to_apply=spread"),
    Row("map", "T[3,4]", "T[3,4] map(p0), dimensions={0,1}, to_apply=looped", why=LOOP),
    Row("scan", "T[5,2] T[2]", "(T[5,2], T[2]) scan(p0, p1), dimensions={0}, num_carries=1, to_apply=step"),
    Row("batch-norm-training", "T[4,3] T[3] T[3]",
        "(T[4,3], T[3], T[3]) batch-norm-training(p0, p1, p2), epsilon=0.001, feature_index=1"),
    Row("batch-norm-inference", "T[4,3] T[3] T[3] T[3] T[3]",
        "T[4,3] batch-norm-inference(p0, p1, p2, p3, p4), epsilon=0.001, feature_index=1"),
    Row("batch-norm-grad", "T[4,3] T[3] T[3] T[3] T[4,3]",
        "(T[4,3], T[3], T[3]) batch-norm-grad(p0, p1, p2, p3, p4), epsilon=0.001, feature_index=1"),
    # windows
    *(Row("reduce-window", "T[4,6] T[]", f"T[2,5] reduce-window(p0, p1), window={{size=2x2 stride=2x1}}, to_apply={region}")
      for region in ("sum", "product", "largest", "smallest", "nameless")),
    Row("reduce-window", "T[6] T[]", "T[6] reduce-window(p0, p1), window={size=6 pad=5_0}, to_apply=sum"),
    Row("reduce-window", "T[6] T[]", "T[6] reduce-window(p0, p1), window={size=6 pad=0_5}, to_apply=largest"),
    Row("reduce-window", "T[6] T[]", "T[6] reduce-window(p0, p1), window={size=6 pad=5_0}, to_apply=product"),
    Row("reduce-window", "T[6] T[]", "T[6] reduce-window(p0, p1), window={size=6 pad=5_0}, to_apply=nameless", kinds=SOME),
    Row("reduce-window", "T[30] T[]", "T[11] reduce-window(p0, p1), window={size=9 stride=2}, to_apply=nameless", kinds=SOME),
    Row("select-and-scatter", "T[4,4] T[2,2] T[]",
        "T[4,4] select-and-scatter(p0, p1, p2), window={size=2x2 stride=2x2}, select=at_least, scatter=sum",
        kinds=SOME),
    # sorting
    Row("sort", "T[3,4]", "T[3,4] sort(p0), dimensions={1}, to_apply=less"),
    Row("sort", "T[40000]", "T[40000] sort(p0), dimensions={0}, to_apply=less, is_stable=true"),
    Row("sort", "T[3,4]", "T[3,4] sort(p0), dimensions={0}, to_apply=total_order"),
    Row("sort", "T[3,4]", "T[3,4] sort(p0), dimensions={1}, to_apply=unknown_less", kinds=SOME),
    Row("sort", "T[3,40]", "T[3,40] sort(p0), dimensions={1}, to_apply=unknown_less", kinds=("f32",)),
    Row("sort", "T[3,4]", """i = s32[3,4] iota(), iota_dimension=1
        (T[3,4], s32[3,4]) sort(p0, i), dimensions={1}, to_apply=by_first, is_stable=true"""),
    Row("topk", "T[3,5]", "(T[3,2], s32[3,2]) topk(p0), k=2"),
    # contraction and convolution
    Row("dot", "T[2,3] T[3,4]", "T[2,4] dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    Row("dot", "T[5,2,3] T[5,4,3]",
        f"T[5,2,4] dot(p0, p1), {_BY_ROWS}"),
    Row("dot", "T[3] T[3]", "T[] dot(p0, p1), lhs_contracting_dims={0}, rhs_contracting_dims={0}"),
    Row("dot", "T[2] T[3]", "T[2,3] dot(p0, p1)"),
    Row("dot", "T[2,3] T[3]", "s32[2] dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}", kinds=("s8", "u8", "s4")),
    Row("dot", "T[2,3] T[3]", "f32[2] dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}", kinds=("bf16", "f8e5m2")),
    Row("dot", "T[<=2,<=3,4] T[4,5]", "T[<=2,<=3,5] dot(p0, p1), lhs_contracting_dims={2}, rhs_contracting_dims={0}"),
    Row("dot", "T[<=2,4,<=3] T[4,5]", "T[<=2,<=3,5] dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    Row("ragged-dot", "T[4,6] T[2,6,3] s32[2]", """T[4,3] ragged-dot(p0, p1, p2), lhs_contracting_dims={1},
        rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}""".replace("\n", " ")),
    Row("scaled-dot", "T[3,8] T[8,5] T[3,2] T[4,5]",
        "f32[3,5] scaled-dot(p0, p1, p2, p3), lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    *(Row("convolution", parameters, f"T[{result}] convolution(p0, p1), {attributes}") for parameters, result, attributes in (
        ("T[2,3] T[3,4]", "2,4", "dim_labels=bf_io->bf"),
        ("T[1,2,6] T[3,2,3]", "1,3,4", "window={size=3}, dim_labels=bf0_oi0->bf0"),
        ("T[1,6,6,2] T[3,3,2,4]", "1,6,6,4", "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"),
        ("T[1,6,6,2] T[3,3,2,4]", "1,3,2,4", "window={size=3x3 stride=2x2 pad=1_1x0_0}, dim_labels=b01f_01io->b01f"),
        ("T[1,3,3,4] T[2,2,2,4]", "1,6,6,4",
         "window={size=2x2 pad=1_1x1_1 lhs_dilate=2x2}, dim_labels=b01f_01io->b01f, feature_group_count=2"),
        ("T[1,3,3,2] T[2,2,2,4]", "1,3,3,4",
         "window={size=2x2 stride=2x2 pad=1_1x1_1 lhs_dilate=2x2}, dim_labels=b01f_01io->b01f"),
        ("T[1,3,3,3,2] T[2,2,2,2,4]", "1,2,2,2,4", "window={size=2x2x2}, dim_labels=b012f_012io->b012f"),
        ("T[1,3,3,3,3,1] T[2,2,2,2,1,1]", "1,2,2,2,2,1", "window={size=2x2x2x2}, dim_labels=b0123f_0123io->b0123f"),
    )),
    Row("convolution", "T[2,3] T[3,4]", "s32[2,4] convolution(p0, p1), dim_labels=bf_io->bf", kinds=("s8", "u8", "s4")),
    # linalg
    Row("cholesky", "T[2,3,3]", f"a = T[2,3,3] dot(p0, p0), {_BY_ROWS}\nT[2,3,3] cholesky(a), lower=true",
        kinds=("f16", "bf16", "f32", "f64")),
    Row("cholesky", "T[2,3,3]", "T[2,3,3] cholesky(p0), lower=false"),
    Row("triangular-solve", "T[2,3,3] T[2,3,2]",
        "T[2,3,2] triangular-solve(p0, p1), left_side=true, lower=true, transpose_a=NO_TRANSPOSE"),
    Row("triangular-solve", "T[2,3,3] T[2,2,3]", "T[2,2,3] triangular-solve(p0, p1), transpose_a=ADJOINT"),
    Row("fft", "C[2,8]", "C[2,8] fft(p0), fft_type=FFT, fft_length={8}"),
    Row("fft", "C[2,4,8]", "C[2,4,8] fft(p0), fft_type=IFFT, fft_length={4,8}"),
    Row("fft", "T[2,8]", "C[2,5] fft(p0), fft_type=RFFT, fft_length={8}"),
    Row("fft", "C[2,4,5]", "R[2,4,8] fft(p0), fft_type=IRFFT, fft_length={4,8}", kinds=("c64", "c128")),
    Row("fft", "C[2,4]", "R[2,7] fft(p0), fft_type=IRFFT, fft_length={7}", kinds=("c64", "c128")),
    # conversions that are not elementwise
    *(Row("bitcast-convert", f"T[{given}]", f"{to} bitcast-convert(p0)") for given, to in (
        ("4", "u8[4]"), ("4", "u16[4]"), ("4", "f32[4]"), ("4", "u64[4]"), ("4", "u8[4,2]"), ("4", "u8[4,4]"), ("4", "s16[4,4]"),
        ("4,2", "f32[4]"), ("4,2", "u64[4]"), ("4,4", "s32[4]"), ("4,2", "u8[4]"), ("4", "u4[4,2]"), ("4", "pred[4]"),
        ("4", "f8e4m3[4]"), ("4", "f8e5m2[4]"))),
    Row("bitcast", "T[2,3]", "T[3,2] bitcast(p0)"),
    Row("bitcast", "T[2,4]", "u8[2,4] bitcast(p0)", kinds=("s8",)),
    Row("bitcast", "T[2,4]", "u8[2,16] bitcast(p0)", kinds=("f32", "s32", "u32")),
    # random
    Row("rng", "T[] T[]", "T[5] rng(p0, p1), distribution=rng_uniform", random=True),
    Row("rng", "T[] T[]", "T[5] rng(p0, p1), distribution=rng_normal", random=True),
    *(Row("rng-bit-generator", f"u64[{words}]", f"(u64[{words}], T[5]) rng-bit-generator(p0), algorithm={algorithm}")
      for words, algorithm in ((2, "rng_three_fry"), (2, "rng_philox"), (3, "rng_philox"), (2, "rng_default"))),
    Row("rng-get-and-update-state", "", "u64[2] rng-get-and-update-state(), delta=3", random=True, kinds=("u64",)),
    # control
    Row("tuple", "T[2] T[3]", "(T[2], T[3]) tuple(p0, p1)"),
    Row("get-tuple-element", "(T[2],T[3])", "T[3] get-tuple-element(p0), index=1"),
    Row("call", "T[3]", "T[3] call(p0), to_apply=wrapped"),
    Row("fusion", "T[3]", "T[3] fusion(p0), kind=kLoop, calls=wrapped"),
    Row("conditional", "pred[] T[3]", "T[3] conditional(p0, p1, p1), true_computation=twice_all, false_computation=same_all",
        why=BRANCH),
    Row("conditional", "s32[] T[3]", "T[3] conditional(p0, p1, p1), branch_computations={twice_all, same_all}", why=BRANCH),
    Row("while", "T[3] T[4,3]", """zero = s32[] constant(0)
        s = (s32[], T[3], T[4,3]) tuple(zero, p0, p1)
        (s32[], T[3], T[4,3]) while(s), condition=counted, body=scan_step"""),
    Row("while", "T[3] pred[]", """s = (T[3], pred[]) tuple(p0, p1)
        (T[3], pred[]) while(s), condition=has_more, body=ends""", why=LOOP),
    Row("async-start", "T[3]", """s = ((T[3]), T[3], s32[]) async-start(p0), calls=wrapped
        u = ((T[3]), T[3], s32[]) async-update(s)
        T[3] async-done(u)"""),
    # what compiled programs have
    Row("copy-start", "T[4]", "s = (T[4], T[4], u32[]) copy-start(p0)\nT[4] copy-done(s)"),
    Row("opt-barrier", "T[4]", "T[4] opt-barrier(p0)"),
    Row("domain", "T[4]", 'T[4] domain(p0), domain={kind="sharding", entry={maximal device=0}, exit={maximal device=1}}'),
    Row("add-dependency", "T[4]", "t = token[] after-all()\nT[4] add-dependency(p0, t)"),
    Row("custom-call", "T[2,3,3]", """(T[2,3,3], s32[2,3], s32[2]) custom-call(p0), custom_call_target="lapack_sgetrf_ffi",
        api_version=API_VERSION_TYPED_FFI""".replace("\n", " "), kinds=("f32",)),
    # collectives, alone
    Row("all-gather", "T[2]", f"T[2] all-gather(p0), dimensions={{0}}, {_COLLECTIVE}"),
    Row("all-gather-start", "T[2]", "s = (T[2], T[2]) all-gather-start(p0), dimensions={0}\nT[2] all-gather-done(s)"),
    *(Row("all-reduce", "T[2]", f"T[2] all-reduce(p0), {_COLLECTIVE}, to_apply={region}")
      for region in ("sum", "largest", "nameless")),
    Row("all-reduce-start", "T[2]", "s = T[2] all-reduce-start(p0), to_apply=sum\nT[2] all-reduce-done(s)"),
    Row("reduce-scatter", "T[2]", f"T[2] reduce-scatter(p0), {_COLLECTIVE}, dimensions={{0}}, to_apply=sum"),
    Row("collective-reduce", "T[2]", f"T[2] collective-reduce(p0), {_COLLECTIVE}, to_apply=sum"),
    Row("all-to-all", "T[2]", f"T[2] all-to-all(p0), {_COLLECTIVE}, dimensions={{0}}"),
    Row("all-to-all", "T[2]", f"(T[2]) all-to-all(p0), {_COLLECTIVE}"),
    Row("ragged-all-to-all", "T[3] T[4] s32[1] s32[1] s32[1] s32[1]",
        f"T[4] ragged-all-to-all(p0, p1, p2, p3, p4, p5), {_COLLECTIVE}"),
    Row("collective-broadcast", "T[2]", f"T[2] collective-broadcast(p0), {_COLLECTIVE}"),
    Row("collective-permute", "T[2]", "T[2] collective-permute(p0), source_target_pairs={{0,0}}"),
    Row("collective-permute-start", "T[2]", """s = (T[2], T[2]) collective-permute-start(p0), source_target_pairs={{0,0}}
        T[2] collective-permute-done(s)"""),
    Row("replica-id", "", "u32[] replica-id()", kinds=("u32",)),
    Row("partition-id", "", "u32[] partition-id()", kinds=("u32",)),
    # what comes from outside
    Row("infeed", "", """t = token[] after-all()
        f = (T[2], token[]) infeed(t)
        T[2] get-tuple-element(f), index=0""", feeds=True),
    Row("outfeed", "T[2]", "t = token[] after-all()\no = token[] outfeed(p0, t), outfeed_shape=T[2]\nT[2] copy(p0)", feeds=True),
    Row("send", "T[2]", """t = token[] after-all()
        s = (T[2], u32[], token[]) send(p0, t), channel_id=7
        d = token[] send-done(s), channel_id=7
        r = (T[2], u32[], token[]) recv(t), channel_id=7
        rd = (T[2], token[]) recv-done(r), channel_id=7
        T[2] get-tuple-element(rd), index=0""", feeds=True),
]
"""Ops with regions or attributes of their own."""


def _elementwise() -> Iterator[Row]:
    """Elementwise ops on two arrays, and with constants in the place of each operand."""
    attributed = {"compare": ", direction=LT", "reduce-precision": ", exponent_bits=4, mantissa_bits=3"}
    results = {"compare": "pred", "is-finite": "pred", "real": "R", "imag": "R", "abs": "R"}
    written = {"convert", "bitcast-convert", "stochastic-convert", "select", "clamp", "complex"}
    for opcode, definition in OPS.items():
        if not definition.elementwise or opcode in written:
            continue
        attributes, call = attributed.get(opcode, ""), f"{results.get(opcode, 'T')}[5] {opcode}"
        if len(definition.operands) == 1:
            yield Row(opcode, "T[5]", f"{call}(p0){attributes}")
            continue
        yield Row(opcode, "T[5] T[5]", f"{call}(p0, p1){attributes}")
        for operands in ("p0, c", "c, p0"):
            constant = "n = T[] constant(3)\nc = T[5] broadcast(n), dimensions={}"
            yield Row(opcode, "T[5]", f"{constant}\n{call}({operands}){attributes}")
    yield Row("compare", "T[5] T[5]", "pred[5] compare(p0, p1), direction=GE, type=TOTALORDER")
    yield Row("select", "pred[5] T[5] T[5]", "T[5] select(p0, p1, p2)")
    yield Row("select", "pred[5] T[5]", "n = T[] constant(1)\nc = T[5] broadcast(n), dimensions={}\nT[5] select(p0, p1, c)")
    yield Row("clamp", "T[] T[5] T[]", "T[5] clamp(p0, p1, p2)")
    yield Row("clamp", "T[5]", "a = T[] constant(0)\nb = T[] constant(1)\nT[5] clamp(a, p0, b)")
    yield Row("complex", "T[5] T[5]", "C[5] complex(p0, p1)")
    yield Row("stochastic-convert", "T[5] u32[5]", "s8[5] stochastic-convert(p0, p1)", kinds=("f32",))
    yield Row("stochastic-convert", "T[5] u16[5]", "s32[5] stochastic-convert(p0, p1)", kinds=("f16", "bf16"))
    for target in ("pred", "s4", "u4", "s8", "u8", "u16", "s32", "u32", "u64", "f16", "bf16",
                   "f32", "f64", "c64", "f8e5m2", "f8e4m3"):
        yield Row("convert", "T[5]", f"{target}[5] convert(p0)")


ROWS: list[Row] = [*_elementwise(), *NAMED]
