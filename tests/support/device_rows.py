"""What compilers for GPUs and CPUs write for parts of programs, beside the program they were written for.

Texts follow what XLA's passes print: a target, its configuration, and operands and results in its order.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any


@dataclasses.dataclass(frozen=True)
class Row:
    """`written` is what a compiler wrote and `meant` the program, both the lines of an ENTRY over parameters ``p0, p1, ...``."""

    name: str
    parameters: tuple[str, ...]
    written: str
    meant: str
    tolerance: float = 1e-5
    regions: str = ""
    scale: float = 1.0
    gradient: bool = True

    def text(self, body: str) -> str:
        lines = [f"  p{k} = {shape} parameter({k})" for k, shape in enumerate(self.parameters)]
        return f"HloModule m\n{_REGIONS}{self.regions}\nENTRY e {{\n" + "\n".join([*lines, body.strip("\n")]) + "\n}\n"


_REGIONS = """
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
largest { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b) }
sum64 { a = f64[] parameter(0)
  b = f64[] parameter(1)
  ROOT c = f64[] add(a, b) }
largest64 { a = f64[] parameter(0)
  b = f64[] parameter(1)
  ROOT c = f64[] maximum(a, b) }
"""


def config(**parts: Any) -> str:
    return json.dumps({"operation_queue_id": "0", "wait_on_operation_queues": [], **parts, "force_earliest_schedule": False})


# --------------------------------------------------------------------------------------------- products

_GEMM = {"alpha_real": 1, "alpha_imag": 0, "beta": 0,
         "dot_dimension_numbers": {"lhs_contracting_dimensions": ["1"], "rhs_contracting_dimensions": ["0"],
                                   "lhs_batch_dimensions": [], "rhs_batch_dimensions": []},
         "precision_config": {"operand_precision": ["DEFAULT", "DEFAULT"], "algorithm": "ALG_UNSET"}, "epilogue": "DEFAULT",
         "selected_algorithm": "0", "damax_output": False, "lhs_stride": "6", "rhs_stride": "12", "grad_x": False,
         "grad_y": False}


def gemm(**changes: Any) -> str:
    return config(gemm_backend_config={**_GEMM, **changes})


_BATCHED = {"lhs_contracting_dimensions": ["1"], "rhs_contracting_dimensions": ["2"], "lhs_batch_dimensions": ["0"],
            "rhs_batch_dimensions": ["0"]}
_DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"


def _lt(operands: str, result: str = "(f32[3,5]{1,0}, s8[4194304]{0})", **changes: Any) -> str:
    return (f'  c = {result} custom-call({operands}), custom_call_target="__cublas$lt$matmul", '
            f"backend_config={gemm(**changes)}\n  ROOT r = f32[3,5] get-tuple-element(c), index=0")


_GELU = """  cube = f32[3,5] multiply(x, x)
  cubed = f32[3,5] multiply(cube, x)
  small = f32[] constant(0.044715)
  smalls = f32[3,5] broadcast(small), dimensions={}
  part = f32[3,5] multiply(cubed, smalls)
  inner = f32[3,5] add(x, part)
  root = f32[] constant(0.7978845608)
  roots = f32[3,5] broadcast(root), dimensions={}
  argument = f32[3,5] multiply(inner, roots)
  tanh = f32[3,5] tanh(argument)
  one = f32[] constant(1)
  ones = f32[3,5] broadcast(one), dimensions={}
  half = f32[] constant(0.5)
  halves = f32[3,5] broadcast(half), dimensions={}
  shifted = f32[3,5] add(tanh, ones)
  scaled = f32[3,5] multiply(shifted, halves)
  gelu = f32[3,5] multiply(scaled, x)
"""
_DOTS = f"  d = f32[3,5] dot(p0, p1), {_DOT}\n"
_WITH_BIAS = _DOTS + "  bs = f32[3,5] broadcast(p2), dimensions={1}\n"
_RELU = "  zero = f32[] constant(0)\n  zeros = f32[3,5] broadcast(zero), dimensions={}\n"
_MATRICES = ("f32[3,4]", "f32[4,5]")

PRODUCTS = [
    Row("gemm", _MATRICES, f'  c = (f32[3,5]{{1,0}}, s8[256]{{0}}) custom-call(p0, p1), custom_call_target="__cublas$gemm", '
        f"backend_config={gemm()}\n  ROOT r = f32[3,5] get-tuple-element(c), index=0",
        f"  ROOT d = f32[3,5] dot(p0, p1), {_DOT}"),
    Row("gemm in older form", _MATRICES, f'  ROOT c = f32[3,5]{{1,0}} custom-call(p0, p1), custom_call_target="__cublas$gemm", '
        f"backend_config={json.dumps(_GEMM)}", f"  ROOT d = f32[3,5] dot(p0, p1), {_DOT}"),
    Row("gemm with factors", (*_MATRICES, "f32[3,5]"),
        f'  c = (f32[3,5]{{1,0}}, s8[256]{{0}}) custom-call(p0, p1, p2), custom_call_target="__cublas$gemm", '
        f"backend_config={gemm(alpha_real=2.5, beta=0.5)}, output_to_operand_aliasing={{{{0}}: (2, {{}})}}\n"
        "  ROOT r = f32[3,5] get-tuple-element(c), index=0",
        f"{_DOTS}  t = f32[] constant(2.5)\n  ts = f32[3,5] broadcast(t), dimensions={{}}\n  x = f32[3,5] multiply(d, ts)\n"
        "  h = f32[] constant(0.5)\n  hs = f32[3,5] broadcast(h), dimensions={}\n  y = f32[3,5] multiply(p2, hs)\n"
        "  ROOT r = f32[3,5] add(x, y)"),
    Row("gemm of complex matrices", ("c64[3,4]", "c64[4,5]"),
        '  c = (c64[3,5]{1,0}, s8[256]{0}) custom-call(p0, p1), custom_call_target="__cublas$gemm", '
        f"backend_config={gemm(alpha_real=2, alpha_imag=-3)}\n  ROOT r = c64[3,5] get-tuple-element(c), index=0",
        f"  d = c64[3,5] dot(p0, p1), {_DOT}\n  a = c64[] constant((2, -3))\n  as = c64[3,5] broadcast(a), dimensions={{}}\n"
        "  ROOT r = c64[3,5] multiply(d, as)"),
    Row("gemm of batches", ("f32[2,4,3]", "f32[2,5,4]"),
        '  c = (f32[2,3,5]{2,1,0}, s8[256]{0}) custom-call(p0, p1), custom_call_target="__cublas$gemm", '
        f"backend_config={gemm(dot_dimension_numbers=_BATCHED)}\n  ROOT r = f32[2,3,5] get-tuple-element(c), index=0",
        "  ROOT d = f32[2,3,5] dot(p0, p1), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, "
        "rhs_contracting_dims={2}"),
    Row("gemm of narrow floats", ("bf16[3,4]", "bf16[4,5]"),
        '  c = (bf16[3,5]{1,0}, s8[256]{0}) custom-call(p0, p1), custom_call_target="__cublas$gemm", '
        f"backend_config={gemm()}\n  ROOT r = bf16[3,5] get-tuple-element(c), index=0",
        f"  ROOT d = bf16[3,5] dot(p0, p1), {_DOT}", 2e-2),
    Row("gemm of bytes", ("s8[3,4]", "s8[4,5]"),
        '  c = (s32[3,5]{1,0}, s8[256]{0}) custom-call(p0, p1), custom_call_target="__cublas$gemm", '
        f"backend_config={gemm()}\n  ROOT r = s32[3,5] get-tuple-element(c), index=0",
        "  a = s32[3,4] convert(p0)\n  b = s32[4,5] convert(p1)\n"
        f"  ROOT d = s32[3,5] dot(a, b), {_DOT}"),
    Row("matmul", _MATRICES, _lt("p0, p1"), f"  ROOT d = f32[3,5] dot(p0, p1), {_DOT}"),
    Row("matmul with a matrix", (*_MATRICES, "f32[3,5]"), _lt("p0, p1, p2", beta=1), f"{_DOTS}  ROOT r = f32[3,5] add(d, p2)"),
    Row("matmul with a vector", (*_MATRICES, "f32[5]"), _lt("p0, p1, p2", epilogue="BIAS"),
        f"{_WITH_BIAS}  ROOT r = f32[3,5] add(d, bs)"),
    Row("matmul with a vector in columns", (*_MATRICES, "f32[3]"),
        _lt("p0, p1, p2", "(f32[3,5]{0,1}, s8[4194304]{0})", epilogue="BIAS"),
        f"{_DOTS}  bs = f32[3,5] broadcast(p2), dimensions={{0}}\n  ROOT r = f32[3,5] add(d, bs)"),
    Row("matmul with both", (*_MATRICES, "f32[3,5]", "f32[5]"), _lt("p0, p1, p2, p3", beta=1, epilogue="BIAS"),
        f"{_DOTS}  x = f32[3,5] add(d, p2)\n  bs = f32[3,5] broadcast(p3), dimensions={{1}}\n  ROOT r = f32[3,5] add(x, bs)"),
    Row("matmul and relu", _MATRICES, _lt("p0, p1", epilogue="RELU"), f"{_DOTS}{_RELU}  ROOT r = f32[3,5] maximum(d, zeros)"),
    Row("matmul, vector, relu", (*_MATRICES, "f32[5]"), _lt("p0, p1, p2", epilogue="BIAS_RELU"),
        f"{_WITH_BIAS}{_RELU}  x = f32[3,5] add(d, bs)\n  ROOT r = f32[3,5] maximum(x, zeros)"),
    Row("matmul and gelu", _MATRICES, _lt("p0, p1", epilogue="GELU"),
        f"  x = f32[3,5] dot(p0, p1), {_DOT}\n{_GELU}  ROOT r = f32[3,5] copy(gelu)"),
    Row("matmul, vector, gelu and its argument", (*_MATRICES, "f32[5]"),
        '  c = (f32[3,5]{1,0}, f32[3,5]{1,0}, s8[4194304]{0}) custom-call(p0, p1, p2), '
        f'custom_call_target="__cublas$lt$matmul", backend_config={gemm(epilogue="BIAS_GELU_AUX")}\n'
        "  y = f32[3,5] get-tuple-element(c), index=0\n  z = f32[3,5] get-tuple-element(c), index=1\n"
        "  ROOT r = (f32[3,5], f32[3,5]) tuple(y, z)",
        f"{_WITH_BIAS}  x = f32[3,5] add(d, bs)\n{_GELU}  ROOT r = (f32[3,5], f32[3,5]) tuple(gelu, x)"),
    Row("matmul and silu", _MATRICES, _lt("p0, p1", epilogue="SILU"),
        f"{_DOTS}  l = f32[3,5] logistic(d)\n  ROOT r = f32[3,5] multiply(d, l)"),
    Row("matmul of 8 bits", ("f8e4m3fn[3,4]", "f8e4m3fn[4,5]", "f32[]", "f32[]"),
        '  c = (f32[3,5]{1,0}, s8[33554432]{0}) custom-call(p0, p1, p2, p3), custom_call_target="__cublas$lt$matmul$f8", '
        f"backend_config={gemm()}\n  ROOT r = f32[3,5] get-tuple-element(c), index=0",
        "  a = f32[3,4] convert(p0)\n  as = f32[3,4] broadcast(p2), dimensions={}\n  aa = f32[3,4] multiply(a, as)\n"
        "  b = f32[4,5] convert(p1)\n  bs = f32[4,5] broadcast(p3), dimensions={}\n  bb = f32[4,5] multiply(b, bs)\n"
        f"  ROOT r = f32[3,5] dot(aa, bb), {_DOT}"),
    Row("matmul of 8 bits into 8 bits", ("f8e4m3fn[3,4]", "f8e4m3fn[4,5]", "f32[]", "f32[]", "f32[]", "bf16[5]"),
        '  c = (f8e4m3fn[3,5]{1,0}, f32[], s8[33554432]{0}) custom-call(p0, p1, p2, p3, p4, p5), '
        f'custom_call_target="__cublas$lt$matmul$f8", backend_config={gemm(epilogue="BIAS_RELU", damax_output=True)}\n'
        "  y = f8e4m3fn[3,5] get-tuple-element(c), index=0\n  y32 = f32[3,5] convert(y)\n"
        "  m = f32[] get-tuple-element(c), index=1\n  ROOT r = (f32[3,5], f32[]) tuple(y32, m)",
        "  a = f32[3,4] convert(p0)\n  b = f32[4,5] convert(p1)\n"
        f"  d = f32[3,5] dot(a, b), {_DOT}\n"
        "  ab = f32[] multiply(p2, p3)\n  abs = f32[3,5] broadcast(ab), dimensions={}\n  x = f32[3,5] multiply(d, abs)\n"
        "  v = f32[5] convert(p5)\n  vs = f32[3,5] broadcast(v), dimensions={1}\n  xv = f32[3,5] add(x, vs)\n"
        f"{_RELU}  rl = f32[3,5] maximum(xv, zeros)\n  ss = f32[3,5] broadcast(p4), dimensions={{}}\n"
        "  sc = f32[3,5] multiply(rl, ss)\n  top = f32[] constant(448)\n  low = f32[] constant(-448)\n"
        "  cl = f32[3,5] clamp(low, sc, top)\n  n = f8e4m3fn[3,5] convert(cl)\n  y32 = f32[3,5] convert(n)\n"
        "  m = f32[] reduce(rl, zero), dimensions={0,1}, to_apply=largest\n  ROOT r = (f32[3,5], f32[]) tuple(y32, m)", 0.13,
        gradient=False),
    Row("block scaled dot", ("f8e4m3fn[2,3,64]", "f8e4m3fn[2,5,64]", "f32[2,3,2]", "f32[2,5,2]"),
        '  ROOT c = f32[2,3,5]{2,1,0} custom-call(p0, p1, p2, p3), custom_call_target="__op$block_scaled_dot", backend_config='
        '{"scaled_dot_backend_config": {"lhs_batch_dimensions": [0], "rhs_batch_dimensions": [0], "dequantize_type": "F32"}}',
        "  a = f32[2,3,64] convert(p0)\n  as = f32[2,3,2,32] broadcast(p2), dimensions={0,1,2}\n"
        "  asf = f32[2,3,64] reshape(as)\n  aa = f32[2,3,64] multiply(a, asf)\n  b = f32[2,5,64] convert(p1)\n"
        "  bs = f32[2,5,2,32] broadcast(p3), dimensions={0,1,2}\n  bsf = f32[2,5,64] reshape(bs)\n"
        "  bb = f32[2,5,64] multiply(b, bsf)\n  ROOT r = f32[2,3,5] dot(aa, bb), lhs_batch_dims={0}, rhs_batch_dims={0}, "
        "lhs_contracting_dims={2}, rhs_contracting_dims={2}", 1e-4),
]

_TALL = """  at = f32[3,3] transpose(p0), dimensions={1,0}
  aa = f32[3,3] dot(p0, at), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  i = s32[3,3] iota(), iota_dimension=0
  j = s32[3,3] iota(), iota_dimension=1
  e = pred[3,3] compare(i, j), direction=EQ
  two = f32[] constant(2)
  none = f32[] constant(0)
  twos = f32[3,3] broadcast(two), dimensions={}
  nones = f32[3,3] broadcast(none), dimensions={}
  d = f32[3,3] select(e, twos, nones)
  a = f32[3,3] add(aa, d)
"""
_LOWER = "  below = pred[3,3] compare(i, j), direction=GE\n  ROOT r = f32[3,3] select(below, l, nones)"

FACTORS = [
    Row("cholesky", ("f32[3,3]",),
        _TALL + '  c = (f32[3,3]{0,1}, f32[16]{0}, s32[]) custom-call(a), custom_call_target="__cusolver$cholesky", '
        'backend_config={"lower":true}\n  l = f32[3,3] get-tuple-element(c), index=0\n' + _LOWER,
        _TALL + "  l = f32[3,3] cholesky(a), lower=true\n" + _LOWER, 1e-4),
    Row("triangular solve", ("f32[3,3]", "f32[3,2]"),
        _TALL + '  c = (f32[3,2]{0,1}, s8[16]{0}) custom-call(a, p1), custom_call_target="__cublas$triangularSolve", '
        'backend_config={"left_side":true,"lower":true,"unit_diagonal":false,"transpose_a":"TRANSPOSE"}\n'
        "  ROOT r = f32[3,2] get-tuple-element(c), index=0",
        _TALL + "  ROOT r = f32[3,2] triangular-solve(a, p1), left_side=true, lower=true, transpose_a=TRANSPOSE", 1e-4),
    Row("halves of integers", ("s64[5]", "u64[5]"),
        '  a = u32[5] custom-call(p0), custom_call_target="X64SplitLow"\n'
        '  b = u32[5] custom-call(p0), custom_call_target="X64SplitHigh"\n'
        '  x = s64[5] custom-call(a, b), custom_call_target="X64Combine"\n'
        '  h = u32[5] custom-call(p1), custom_call_target="X64SplitHigh"\n  ROOT r = (s64[5], u32[5]) tuple(x, h)',
        "  n = u64[] constant(32)\n  ns = u64[5] broadcast(n), dimensions={}\n  s = u64[5] shift-right-logical(p1, ns)\n"
        "  h = u32[5] convert(s)\n  x = s64[5] copy(p0)\n  ROOT r = (s64[5], u32[5]) tuple(x, h)", 0),
]

# --------------------------------------------------------------------------------------------- fusions, copies, wrappers

_ADD_ONE = """
one_more { x = f32[3,4] parameter(0)
  one = f32[] constant(1)
  ones = f32[3,4] broadcast(one), dimensions={}
  ROOT y = f32[3,4] add(x, ones) }
small_product { x = f32[3,4] parameter(0)
  y = f32[4,5] parameter(1)
  ROOT z = f32[3,5] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0} }
commands { x = f32[3,4] parameter(0)
  y = f32[4,5] parameter(1)
  f = f32[3,4] fusion(x), kind=kLoop, calls=one_more
  ROOT g = f32[3,5] fusion(f, y), kind=kCustom, calls=small_product,
    backend_config={"fusion_backend_config":{"kind":"__triton_gemm"}} }
row { x = f32[3,4] parameter(0)
  i = s32[] parameter(1)
  z = s32[] constant(0)
  ROOT s = f32[1,4] dynamic-slice(x, i, z), dynamic_slice_sizes={1,4} }
exponents { x = f32[3,4] parameter(0)
  low = f32[] constant(-inf)
  m = f32[3] reduce(x, low), dimensions={1}, to_apply=largest
  ms = f32[3,4] broadcast(m), dimensions={0}
  d = f32[3,4] subtract(x, ms)
  e = f32[3,4] exponential(d)
  zero = f32[] constant(0)
  t = f32[3] reduce(e, zero), dimensions={1}, to_apply=sum
  ts = f32[3,4] broadcast(t), dimensions={0}
  ROOT q = f32[3,4] divide(e, ts) }
"""
_ONE_MORE = "  o = f32[] constant(1)\n  os = f32[3,4] broadcast(o), dimensions={}\n  a = f32[3,4] add(p0, os)\n"

_CALLED = f"""
slice_and_product {{ x = f32[2,3,4] parameter(0)
  i = s32[] parameter(1)
  y = f32[4,5] parameter(2)
  z = s32[] constant(0)
  s = f32[1,3,4] dynamic-slice(x, i, z, z), dynamic_slice_sizes={{1,3,4}}
  b = f32[3,4] bitcast(s)
  c = (f32[3,5], s8[64]) custom-call(b, y), custom_call_target="__cublas$gemm", backend_config={gemm()}
  p = f32[3,5] get-tuple-element(c), index=0
  w = s8[64] get-tuple-element(c), index=1
  ROOT t = (f32[3,5], s8[64]) tuple(p, w) }}
wrapped {{ x = f32[3,4] parameter(0)
  y = f32[4,5] parameter(1)
  ROOT c = (f32[3,5], s8[64]) custom-call(x, y), custom_call_target="__cublas$gemm", backend_config={gemm()} }}
step {{ carry = (s32[], f32[4,4], f32[4,4]) parameter(0)
  i = s32[] get-tuple-element(carry), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[4,4] get-tuple-element(carry), index=1
  y = f32[4,4] get-tuple-element(carry), index=2
  c = (f32[4,4], s8[64]) custom-call(x, y), custom_call_target="__cublas$lt$matmul", backend_config={gemm(epilogue="RELU")}
  p = f32[4,4] get-tuple-element(c), index=0
  ROOT t = (s32[], f32[4,4], f32[4,4]) tuple(next, p, y) }}
unfinished {{ carry = (s32[], f32[4,4], f32[4,4]) parameter(0)
  i = s32[] get-tuple-element(carry), index=0
  three = s32[] constant(3)
  ROOT p = pred[] compare(i, three), direction=LT }}
"""
_STEPS = "".join(
    f"  d{k} = f32[4,4] dot({before}, p1), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n"
    f"  r{k} = f32[4,4] maximum(d{k}, zeros)\n" for k, before in enumerate(("p0", "r0", "r1")))

WRAPPERS = [
    Row("product of a slice in one fusion", ("f32[2,3,4]", "f32[4,5]"),
        "  i = s32[] constant(1)\n  f = (f32[3,5], s8[64]) fusion(p0, i, p1), kind=kCustom, calls=slice_and_product, "
        'backend_config={"fusion_backend_config":{"kind":"__custom_fusion","custom_fusion_config":'
        '{"name":"dynamic_address_computation"}}}\n  ROOT r = f32[3,5] get-tuple-element(f), index=0',
        "  s = f32[1,3,4] slice(p0), slice={[1:2], [0:3], [0:4]}\n  b = f32[3,4] reshape(s)\n"
        f"  ROOT d = f32[3,5] dot(b, p1), {_DOT}", regions=_CALLED),
    Row("product beside others", _MATRICES,
        "  s = ((f32[3,4], f32[4,5]), (f32[3,5], s8[64]), u32[]) async-start(p0, p1), calls=wrapped\n"
        "  c = (f32[3,5], s8[64]) async-done(s)\n  ROOT r = f32[3,5] get-tuple-element(c), index=0",
        f"  ROOT d = f32[3,5] dot(p0, p1), {_DOT}", regions=_CALLED),
    Row("product beside others, in short", _MATRICES,
        "  s = ((f32[3,4], f32[4,5]), (f32[3,5], s8[64]), u32[]) custom-call-start(p0, p1), "
        f'custom_call_target="__cublas$gemm", backend_config={gemm()}\n  c = (f32[3,5], s8[64]) custom-call-done(s)\n'
        "  ROOT r = f32[3,5] get-tuple-element(c), index=0", f"  ROOT d = f32[3,5] dot(p0, p1), {_DOT}"),
    Row("products in a loop", ("f32[4,4]", "f32[4,4]"),
        "  z = s32[] constant(0)\n  t = (s32[], f32[4,4], f32[4,4]) tuple(z, p0, p1)\n"
        "  w = (s32[], f32[4,4], f32[4,4]) while(t), condition=unfinished, body=step\n"
        "  ROOT r = f32[4,4] get-tuple-element(w), index=1",
        "  zero = f32[] constant(0)\n  zeros = f32[4,4] broadcast(zero), dimensions={}\n" + _STEPS
        + "  ROOT r = f32[4,4] copy(r2)", regions=_CALLED),
    Row("triton gemm", _MATRICES, "  ROOT r = f32[3,5] fusion(p0, p1), kind=kCustom, calls=small_product, backend_config="
        + config(fusion_backend_config={"kind": "__triton_gemm", "triton_gemm_config": {"block_m": "16"}}),
        f"  ROOT d = f32[3,5] dot(p0, p1), {_DOT}", regions=_ADD_ONE),
    Row("triton softmax", ("f32[3,4]",), "  ROOT r = f32[3,4] fusion(p0), kind=kCustom, calls=exponents, backend_config="
        + config(fusion_backend_config={"kind": "__triton", "block_level_fusion_config": {"num_warps": "1"}}),
        "  low = f32[] constant(-inf)\n  m = f32[3] reduce(p0, low), dimensions={1}, to_apply=largest\n"
        "  ms = f32[3,4] broadcast(m), dimensions={0}\n  d = f32[3,4] subtract(p0, ms)\n  e = f32[3,4] exponential(d)\n"
        "  zero = f32[] constant(0)\n  t = f32[3] reduce(e, zero), dimensions={1}, to_apply=sum\n"
        "  ts = f32[3,4] broadcast(t), dimensions={0}\n  ROOT q = f32[3,4] divide(e, ts)", regions=_ADD_ONE),
    Row("dynamic address computation", ("f32[3,4]",), "  i = s32[] constant(1)\n"
        "  ROOT r = f32[1,4] fusion(p0, i), kind=kCustom, calls=row, backend_config="
        + config(fusion_backend_config={"kind": "__custom_fusion",
                                        "custom_fusion_config": {"name": "dynamic_address_computation"}}),
        "  ROOT r = f32[1,4] slice(p0), slice={[1:2], [0:4]}", regions=_ADD_ONE),
    Row("command buffer", _MATRICES, "  ROOT r = f32[3,5] call(p0, p1), to_apply=commands",
        f"{_ONE_MORE}  ROOT r = f32[3,5] dot(a, p1), {_DOT}", regions=_ADD_ONE),
    Row("asynchronous wrapper", ("f32[3,4]",),
        '  s = ((f32[3,4]), f32[3,4], u32[]) async-start(p0), calls=one_more, async_execution_thread="parallel"\n'
        "  u = ((f32[3,4]), f32[3,4], u32[]) async-update(s)\n  ROOT r = f32[3,4] async-done(u)",
        f"{_ONE_MORE}  ROOT r = f32[3,4] copy(a)", regions=_ADD_ONE),
    Row("copies between memory spaces", ("f32[3,4]",),
        "  s = (f32[3,4]{1,0:S(5)}, f32[3,4]{1,0}, u32[]) copy-start(p0)\n  d = f32[3,4]{1,0:S(5)} copy-done(s)\n"
        "  ROOT b = f32[3,4]{1,0} copy(d)", "  ROOT r = f32[3,4] copy(p0)"),
    Row("offloading", ("f32[3,4]",), '  h = f32[3,4]{1,0:S(5)} custom-call(p0), custom_call_target="MoveToHost"\n'
        '  d = f32[3,4]{1,0} custom-call(h), custom_call_target="MoveToDevice"\n'
        '  i = f32[3,4]{1,0} custom-call(d), custom_call_target="AssumeGatherIndicesInBound"\n'
        '  ROOT r = f32[3,4]{1,0} custom-call(i), custom_call_target="LayoutConstraint"', "  ROOT r = f32[3,4] copy(p0)"),
    Row("searches", ("f32[3,7]",),
        '  k = (f32[3,2]{1,0}, s32[3,2]{1,0}) custom-call(p0), custom_call_target="__gpu$TopK"\n'
        "  v = f32[3,2] get-tuple-element(k), index=0\n"
        '  s = (f32[3,7]{1,0}, u8[1024]{0}) custom-call(p0), custom_call_target="__cub$DeviceRadixSort", '
        'backend_config={"descending":true}\n  o = f32[3,7] get-tuple-element(s), index=0\n'
        "  ROOT r = (f32[3,2], f32[3,7]) tuple(v, o)",
        "  o = f32[3,7] sort(p0), dimensions={1}, to_apply=after\n  v = f32[3,2] slice(o), slice={[0:3], [0:2]}\n"
        "  ROOT r = (f32[3,2], f32[3,7]) tuple(v, o)",
        regions="after { a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = pred[] compare(a, b), direction=GT }\n"),
]
