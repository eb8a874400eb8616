"""Rows of `device_rows` for kernels that stand for many ops: convolutions, normalizations, attention, and oneDNN's."""

from __future__ import annotations

import json
from typing import Any

from support.device_rows import Row, config

# --------------------------------------------------------------------------------------------- convolutions

_WINDOW = "window={size=3x3 stride=2x1 pad=1_0x1_1}, dim_labels=b01f_01io->b01f"
_IMAGE, _KERNEL, _RESULT = "f32[2,8,7,3]", "f32[3,3,3,4]", "f32[2,4,7,4]"


def _conv(**changes: Any) -> str:
    return config(cudnn_conv_backend_config={
        "conv_result_scale": 1, "side_input_scale": 0, "activation_mode": "kNone", "leakyrelu_alpha": 0,
        "algorithm": {"algo_id": "1", "math_type": "TENSOR_OP_MATH"}, **changes})


def _called(target: str, operands: str, result: str, window: str = _WINDOW, **changes: Any) -> str:
    return (f"  c = ({result}, u8[0]{{0}}) custom-call({operands}), {window}, "
            f'custom_call_target="__cudnn$conv{target}", backend_config={_conv(**changes)}\n'
            f"  ROOT r = {result} get-tuple-element(c), index=0")


def _plain(last: str, dtype: str = "f32") -> str:
    return f"  c = {dtype}[2,4,7,4] convolution(p0, p1), {_WINDOW}\n{last}"


_BIAS = "  b = f32[2,4,7,4] broadcast(p2), dimensions={3}\n  x = f32[2,4,7,4] add(c, b)\n"
_ZEROS = "  zero = f32[] constant(0)\n  zeros = f32[2,4,7,4] broadcast(zero), dimensions={}\n"
_HALVES = "  h = f32[] constant(0.5)\n  hs = f32[2,4,7,4] broadcast(h), dimensions={}\n"
_GROUPED = "window={size=3x3}, dim_labels=b01f_01io->b01f, feature_group_count=2"
_BACK = "window={size=3x3 pad=2_2x2_2}, dim_labels=b01f_01oi->b01f"

CONVOLUTIONS = [
    Row("convolution", (_IMAGE, _KERNEL), _called("Forward", "p0, p1", _RESULT), _plain("  ROOT r = f32[2,4,7,4] copy(c)")),
    Row("scaled convolution", (_IMAGE, _KERNEL), _called("Forward", "p0, p1", _RESULT, conv_result_scale=0.5),
        _plain(f"{_HALVES}  ROOT r = f32[2,4,7,4] multiply(c, hs)")),
    Row("convolution with the batch inside", ("f32[3,8,7,2]", _KERNEL),
        _called("Forward", "p0, p1", "f32[4,4,7,2]",
                "window={size=3x3 stride=2x1 pad=1_0x1_1 rhs_reversal=1x1}, dim_labels=f01b_01io->f01b"),
        "  x = f32[2,8,7,3] transpose(p0), dimensions={3,1,2,0}\n  k = f32[3,3,3,4] reverse(p1), dimensions={0,1}\n"
        f"  c = f32[2,4,7,4] convolution(x, k), {_WINDOW}\n  ROOT r = f32[4,4,7,2] transpose(c), dimensions={{3,1,2,0}}"),
    Row("convolution back to the image", (_RESULT, _KERNEL), _called("BackwardInput", "p0, p1", _IMAGE),
        "  k = f32[3,3,3,4] reverse(p1), dimensions={0,1}\n  ROOT c = f32[2,8,7,3] convolution(p0, k), "
        "window={size=3x3 pad=1_2x1_1 lhs_dilate=2x1}, dim_labels=b01f_01oi->b01f"),
    Row("convolution back to the kernel", (_IMAGE, _RESULT), _called("BackwardFilter", "p0, p1", _KERNEL),
        "  ROOT c = f32[3,3,3,4] convolution(p0, p1), window={size=4x7 pad=1_0x1_1 rhs_dilate=2x1}, "
        "dim_labels=f01b_i01o->01bf"),
    Row("convolution of groups back to the image", ("f32[1,4,4,6]", "f32[3,3,2,6]"),
        _called("BackwardInput", "p0, p1", "f32[1,6,6,4]", _GROUPED),
        "  k = f32[3,3,2,6] reverse(p1), dimensions={0,1}\n  a = f32[1,4,4,3] slice(p0), slice={[0:1], [0:4], [0:4], [0:3]}\n"
        "  b = f32[1,4,4,3] slice(p0), slice={[0:1], [0:4], [0:4], [3:6]}\n"
        "  ka = f32[3,3,2,3] slice(k), slice={[0:3], [0:3], [0:2], [0:3]}\n"
        "  kb = f32[3,3,2,3] slice(k), slice={[0:3], [0:3], [0:2], [3:6]}\n"
        f"  ca = f32[1,6,6,2] convolution(a, ka), {_BACK}\n  cb = f32[1,6,6,2] convolution(b, kb), {_BACK}\n"
        "  ROOT r = f32[1,6,6,4] concatenate(ca, cb), dimensions={3}"),
    Row("convolution of narrow floats", ("bf16[2,8,7,3]", "bf16[3,3,3,4]"), _called("Forward", "p0, p1", "bf16[2,4,7,4]"),
        _plain("  ROOT r = bf16[2,4,7,4] copy(c)", "bf16"), 2e-2),
    Row("convolution and bias", (_IMAGE, _KERNEL, "f32[4]"), _called("BiasActivationForward", "p0, p1, p2", _RESULT),
        _plain(f"{_BIAS}  ROOT r = f32[2,4,7,4] copy(x)")),
    Row("convolution, bias, relu", (_IMAGE, _KERNEL, "f32[4]"),
        _called("BiasActivationForward", "p0, p1, p2", _RESULT, activation_mode="kRelu"),
        _plain(f"{_BIAS}{_ZEROS}  ROOT r = f32[2,4,7,4] maximum(x, zeros)")),
    Row("convolution, bias, elu", (_IMAGE, _KERNEL, "f32[4]"),
        _called("BiasActivationForward", "p0, p1, p2", _RESULT, activation_mode="kElu"),
        _plain(f"{_BIAS}{_ZEROS}  e = f32[2,4,7,4] exponential-minus-one(x)\n"
               "  g = pred[2,4,7,4] compare(x, zeros), direction=GT\n  ROOT r = f32[2,4,7,4] select(g, x, e)")),
    Row("convolution, side input, bias, leaky relu", (_IMAGE, _KERNEL, "f32[4]", _RESULT),
        _called("BiasActivationForward", "p0, p1, p2, p3", _RESULT, activation_mode="kLeakyRelu", leakyrelu_alpha=0.5,
                side_input_scale=0.5),
        _plain(f"{_BIAS}{_ZEROS}{_HALVES}  s = f32[2,4,7,4] multiply(p3, hs)\n  y = f32[2,4,7,4] add(x, s)\n"
               "  g = pred[2,4,7,4] compare(y, zeros), direction=GT\n  l = f32[2,4,7,4] multiply(y, hs)\n"
               "  ROOT r = f32[2,4,7,4] select(g, y, l)")),
    Row("convolution of bytes", ("s8[2,8,7,3]", "s8[3,3,3,4]", "f32[4]"),
        _called("BiasActivationForward", "p0, p1, p2", _RESULT),
        "  i = f32[2,8,7,3] convert(p0)\n  k = f32[3,3,3,4] convert(p1)\n"
        f"  c = f32[2,4,7,4] convolution(i, k), {_WINDOW}\n{_BIAS}  ROOT r = f32[2,4,7,4] copy(x)"),
    Row("convolution with a graph behind", (_IMAGE, _KERNEL, "f32[]", _RESULT),
        f"  c = ({_RESULT}, f32[], u8[0]{{0}}) custom-call(p0, p1, p2, p3), {_WINDOW}, "
        'custom_call_target="__cudnn$convForwardGraph", backend_config='
        + _conv(serialized_graph="5:[f32]conv();7:[f32]scale(5);9:[f32]add(7);11:[f32]relu(9);12:[f32]amax(11);")
        + f"\n  y = {_RESULT} get-tuple-element(c), index=0\n  m = f32[] get-tuple-element(c), index=1\n"
          f"  ROOT r = ({_RESULT}, f32[]) tuple(y, m)",
        _plain(f"  s = f32[2,4,7,4] broadcast(p2), dimensions={{}}\n  a = f32[2,4,7,4] multiply(c, s)\n"
               f"  x = f32[2,4,7,4] add(a, p3)\n{_ZEROS}  y = f32[2,4,7,4] maximum(x, zeros)\n"
               "  m = f32[] reduce(y, zero), dimensions={0,1,2,3}, to_apply=largest\n"
               f"  ROOT r = ({_RESULT}, f32[]) tuple(y, m)")),
]

# --------------------------------------------------------------------------------------------- normalizations


def _normalized(sizes: str, rows: str, scale_from: str = "p1", shift: str = "p2", epsilon: str = "0.001") -> str:
    """``mean``, ``factor`` and ``y`` of x = p0 over its last dimension, in which there are 8."""
    return f"""  zero = f32[] constant(0)
  eight = f32[] constant(8)
  eights = f32[{rows}] broadcast(eight), dimensions={{}}
  s = f32[{rows}] reduce(p0, zero), dimensions={{1}}, to_apply=sum
  mean = f32[{rows}] divide(s, eights)
  means = f32[{sizes}] broadcast(mean), dimensions={{0}}
  d = f32[{sizes}] subtract(p0, means)
  q = f32[{sizes}] multiply(d, d)
  v = f32[{rows}] reduce(q, zero), dimensions={{1}}, to_apply=sum
  variance = f32[{rows}] divide(v, eights)
  e = f32[] constant({epsilon})
  es = f32[{rows}] broadcast(e), dimensions={{}}
  w = f32[{rows}] add(variance, es)
  factor = f32[{rows}] rsqrt(w)
  factors = f32[{sizes}] broadcast(factor), dimensions={{0}}
  unit = f32[{sizes}] multiply(d, factors)
  scales = f32[{sizes}] broadcast({scale_from}), dimensions={{1}}
  scaled = f32[{sizes}] multiply(unit, scales)
  shifts = f32[{sizes}] broadcast({shift}), dimensions={{1}}
  y = f32[{sizes}] add(scaled, shifts)
"""


def _norm(kind: str, operands: str, result: str) -> str:
    settings = config(cudnn_norm_backend_config={"epsilon": 0.001, "kind": kind, "algorithm": {"algo_id": "0"}})
    return f'  c = {result} custom-call({operands}), custom_call_target="__cudnn$norm", backend_config={settings}\n'


_WIDE = ("  x4 = f32[6,8,1,1] bitcast(p0)\n  g4 = f32[1,8,1,1] bitcast(p1)\n  b4 = f32[1,8,1,1] bitcast(p2)\n")
_FLAT = "  y4 = f32[6,8,1,1] get-tuple-element(c), index=0\n  y = f32[6,8] bitcast(y4)\n"

NORMALIZATIONS = [
    Row("norm", ("f32[6,8]", "f32[8]", "f32[8]"),
        _WIDE + _norm("LAYER_FWD_INFER", "x4, g4, b4", "(f32[6,8,1,1], u8[0])") + _FLAT + "  ROOT r = f32[6,8] copy(y)",
        _normalized("6,8", "6") + "  ROOT r = f32[6,8] copy(y)", 1e-4),
    Row("norm in training", ("f32[6,8]", "f32[8]", "f32[8]"),
        _WIDE + _norm("LAYER_FWD_TRAIN", "x4, g4, b4", "(f32[6,8,1,1], f32[6,1,1,1], f32[6,1,1,1], u8[0])") + _FLAT
        + "  m4 = f32[6,1,1,1] get-tuple-element(c), index=1\n  m = f32[6] bitcast(m4)\n"
          "  f4 = f32[6,1,1,1] get-tuple-element(c), index=2\n  f = f32[6] bitcast(f4)\n"
          "  ROOT r = (f32[6,8], f32[6], f32[6]) tuple(y, m, f)",
        _normalized("6,8", "6") + "  ROOT r = (f32[6,8], f32[6], f32[6]) tuple(y, mean, factor)", 1e-4),
]

_GRADIENT = """  ct = f32[6,8] multiply(p3, scales)
  a = f32[6] reduce(ct, zero), dimensions={1}, to_apply=sum
  aa = f32[6] divide(a, eights)
  aas = f32[6,8] broadcast(aa), dimensions={0}
  cu = f32[6,8] multiply(ct, unit)
  b = f32[6] reduce(cu, zero), dimensions={1}, to_apply=sum
  bb = f32[6] divide(b, eights)
  bbs = f32[6,8] broadcast(bb), dimensions={0}
  ub = f32[6,8] multiply(unit, bbs)
  ca = f32[6,8] subtract(ct, aas)
  cb = f32[6,8] subtract(ca, ub)
  dx = f32[6,8] multiply(cb, factors)
  yu = f32[6,8] multiply(p3, unit)
  dscale = f32[8] reduce(yu, zero), dimensions={0}, to_apply=sum
  dbias = f32[8] reduce(p3, zero), dimensions={0}, to_apply=sum
  ROOT r = (f32[6,8], f32[8], f32[8]) tuple(dx, dscale, dbias)"""

NORMALIZATIONS.append(Row(
    "norm, the way back", ("f32[6,8]", "f32[8]", "f32[8]", "f32[6,8]"),
    _normalized("6,8", "6") + _WIDE + "  dy = f32[6,8,1,1] bitcast(p3)\n  m4 = f32[6,1,1,1] bitcast(mean)\n"
    "  f4 = f32[6,1,1,1] bitcast(factor)\n"
    + _norm("LAYER_BWD", "x4, g4, dy, m4, f4", "(f32[6,8,1,1], f32[1,8,1,1], f32[1,8,1,1], u8[0])")
    + "  dx4 = f32[6,8,1,1] get-tuple-element(c), index=0\n  dx = f32[6,8] bitcast(dx4)\n"
      "  ds4 = f32[1,8,1,1] get-tuple-element(c), index=1\n  ds = f32[8] bitcast(ds4)\n"
      "  db4 = f32[1,8,1,1] get-tuple-element(c), index=2\n  db = f32[8] bitcast(db4)\n"
      "  ROOT r = (f32[6,8], f32[8], f32[8]) tuple(dx, ds, db)",
    _normalized("6,8", "6") + _GRADIENT, 1e-4, gradient=False))

# --------------------------------------------------------------------------------------------- attention


def _numbers(lhs: str, rhs: str, contracted: tuple[int, int]) -> dict[str, list[str]]:
    return {"lhs_contracting_dimensions": [str(contracted[0])], "rhs_contracting_dimensions": [str(contracted[1])],
            "lhs_batch_dimensions": list(lhs), "rhs_batch_dimensions": list(rhs)}


def _attention(mask: str = "NO_MASK", **more: Any) -> str:
    return config(cudnn_fmha_backend_config={
        "fmha_scale": 0.5, "dropout_rate": 0, "seed": "42", "is_flash_attention": True, "mask_type": mask,
        "sliding_window_length": 0, "bmm1_dot_dimension_numbers": _numbers("02", "02", (3, 3)),
        "bmm2_dot_dimension_numbers": _numbers("01", "02", (3, 1)), **more})


def _scores(bias: str = "", mask: str = "") -> str:
    """Attention of [batch, time, head, size]: ``y`` is [batch, head, time, size], ``stat`` what it was divided by."""
    return f"""  d = f32[2,3,5,6] dot(p0, p1), lhs_batch_dims={{0,2}}, rhs_batch_dims={{0,2}},
    lhs_contracting_dims={{3}}, rhs_contracting_dims={{3}}
  h = f32[] constant(0.5)
  hs = f32[2,3,5,6] broadcast(h), dimensions={{}}
  sc0 = f32[2,3,5,6] multiply(d, hs)
{bias or "  sc1 = f32[2,3,5,6] copy(sc0)"}
{mask or "  sc2 = f32[2,3,5,6] copy(sc1)"}
  low = f32[] constant(-inf)
  m = f32[2,3,5] reduce(sc2, low), dimensions={{3}}, to_apply=largest
  ms = f32[2,3,5,6] broadcast(m), dimensions={{0,1,2}}
  t = f32[2,3,5,6] subtract(sc2, ms)
  e = f32[2,3,5,6] exponential(t)
  zero = f32[] constant(0)
  z = f32[2,3,5] reduce(e, zero), dimensions={{3}}, to_apply=sum
  zs = f32[2,3,5,6] broadcast(z), dimensions={{0,1,2}}
  p = f32[2,3,5,6] divide(e, zs)
  l = f32[2,3,5] log(z)
  stat = f32[2,3,5] add(m, l)
  y = f32[2,3,5,8] dot(p, p2), lhs_batch_dims={{0,1}}, rhs_batch_dims={{0,2}},
    lhs_contracting_dims={{3}}, rhs_contracting_dims={{1}}
"""


_LESS = """  rows = s32[2,3,5,6] iota(), iota_dimension=2
  columns = s32[2,3,5,6] iota(), iota_dimension=3
  low0 = f32[] constant(-inf)
  lows = f32[2,3,5,6] broadcast(low0), dimensions={}
"""
_CAUSAL = _LESS + "  ok = pred[2,3,5,6] compare(columns, rows), direction=LE\n  sc2 = f32[2,3,5,6] select(ok, sc1, lows)"
_SLIDING = _LESS + """  two = s32[] constant(2)
  twos = s32[2,3,5,6] broadcast(two), dimensions={}
  first = s32[2,3,5,6] subtract(rows, twos)
  ok1 = pred[2,3,5,6] compare(columns, rows), direction=LE
  ok2 = pred[2,3,5,6] compare(columns, first), direction=GT
  ok = pred[2,3,5,6] and(ok1, ok2)
  sc2 = f32[2,3,5,6] select(ok, sc1, lows)"""
_BIASED = "  bs = f32[2,3,5,6] broadcast(p3), dimensions={1,2,3}\n  sc1 = f32[2,3,5,6] add(sc0, bs)"
_QKV = ("f32[2,5,3,8]", "f32[2,6,3,8]", "f32[2,6,3,8]")


def _fmha(name: str, operands: str, settings: str, training: bool = False) -> str:
    result = "(f32[2,3,5,8]{3,1,2,0}, f32[2,3,5], u8[0])" if training else "(f32[2,3,5,8]{3,1,2,0}, u8[0])"
    call = f'  c = {result} custom-call({operands}), custom_call_target="__cudnn$fmha{name}", backend_config={settings}\n'
    if not training:
        return call + "  ROOT r = f32[2,3,5,8] get-tuple-element(c), index=0"
    return (call + "  y = f32[2,3,5,8] get-tuple-element(c), index=0\n  s = f32[2,3,5] get-tuple-element(c), index=1\n"
            "  ROOT r = (f32[2,3,5,8], f32[2,3,5]) tuple(y, s)")


_Y = "  ROOT r = f32[2,3,5,8] copy(y)"
ATTENTION = [
    Row("attention", _QKV, _fmha("Softmax", "p0, p1, p2", _attention()), _scores() + _Y),
    Row("attention in training", _QKV, _fmha("Softmax", "p0, p1, p2", _attention(), training=True),
        _scores() + "  ROOT r = (f32[2,3,5,8], f32[2,3,5]) tuple(y, stat)"),
    Row("causal attention", _QKV, _fmha("Softmax", "p0, p1, p2", _attention("CAUSAL")), _scores(mask=_CAUSAL) + _Y),
    Row("attention in a sliding window", _QKV, _fmha("Softmax", "p0, p1, p2", _attention("CAUSAL", sliding_window_length=2)),
        _scores(mask=_SLIDING) + _Y),
    Row("attention with a bias", (*_QKV, "f32[3,5,6]"),
        "  b = f32[1,3,5,6] bitcast(p3)\n" + _fmha("ScaleBiasSoftmax", "p0, p1, p2, b", _attention()), _scores(_BIASED) + _Y),
    Row("attention with a mask", (*_QKV, "pred[2,3,5,6]"),
        "  first = s32[2,3,5,6] iota(), iota_dimension=3\n  none = s32[] constant(0)\n"
        "  nones = s32[2,3,5,6] broadcast(none), dimensions={}\n  f = pred[2,3,5,6] compare(first, nones), direction=EQ\n"
        "  k = pred[2,3,5,6] or(f, p3)\n" + _fmha("ScaleMaskSoftmax", "p0, p1, p2, k", _attention()),
        _scores(mask=_LESS + "  none = s32[] constant(0)\n  nones = s32[2,3,5,6] broadcast(none), dimensions={}\n"
                "  f = pred[2,3,5,6] compare(columns, nones), direction=EQ\n  k = pred[2,3,5,6] or(f, p3)\n"
                "  sc2 = f32[2,3,5,6] select(k, sc1, lows)") + _Y),
    Row("attention in 8 bits", tuple(q.replace("f32", "f8e4m3fn") for q in _QKV),
        "  o = f32[] constant(1)\n  u = f32[1,1,1,1] broadcast(o), dimensions={}\n  k = f32[] constant(256)\n"
        "  f = f32[1,1,1,1] broadcast(k), dimensions={}\n  i = f32[] constant(0.00390625)\n"
        "  b = f32[1,1,1,1] broadcast(i), dimensions={}\n"
        "  c = (f8e4m3fn[2,3,5,8]{3,1,2,0}, f32[1,1,1,1], f32[1,1,1,1], u8[0]) custom-call(p0, p1, p2, u, u, u, b, f, u), "
        f'custom_call_target="__cudnn$fmhaSoftmaxF8", backend_config={_attention()}\n'
        "  y8 = f8e4m3fn[2,3,5,8] get-tuple-element(c), index=0\n  ROOT r = f32[2,3,5,8] convert(y8)",
        "  q = f32[2,5,3,8] convert(p0)\n  k = f32[2,6,3,8] convert(p1)\n  v = f32[2,6,3,8] convert(p2)\n"
        + _scores().replace("p0, p1", "q, k").replace("dot(p, p2)", "dot(p, v)") + _Y, 0.13, gradient=False),
]

# --------------------------------------------------------------------------------------------- oneDNN


def _onednn(target: str, operands: str, result: str, **parts: Any) -> str:
    settings = json.dumps({"outer_dimension_partitions": [], **parts})
    return f'  ROOT c = {result} custom-call({operands}), custom_call_target="__onednn${target}", backend_config={settings}'


def _matmul(operands: str, *fused: str, **more: Any) -> str:
    return _onednn("matmul", operands, "f32[3,5]{1,0}", onednn_matmul_config={
        "fusions": {"ops": list(fused)}, "weights_prepacked": False, "transpose_a": False, "transpose_b": False, **more})


_MATRICES = ("f32[3,4]", "f32[4,5]")
_PRODUCT = "  x = f32[3,5] dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
_ERF = """  half = f32[] constant(0.5)
  hs = f32[3,5] broadcast(half), dimensions={}
  a = f32[3,5] multiply(x, hs)
  root = f32[] constant(0.70710678)
  rs = f32[3,5] broadcast(root), dimensions={}
  b = f32[3,5] multiply(x, rs)
  e = f32[3,5] erf(b)
  one = f32[] constant(1)
  os = f32[3,5] broadcast(one), dimensions={}
  f = f32[3,5] add(e, os)
  ROOT g = f32[3,5] multiply(a, f)
"""
_PLACES = {"input": {"data": {"batch_dim": "0", "feature_dim": "3", "spatial_dims": ["2", "3"]}},
           "kernel": {"filter": {"input_feature_dim": "2", "output_feature_dim": "3", "spatial_dims": ["1", "2"]}},
           "output": {"data": {"batch_dim": "0", "feature_dim": "3", "spatial_dims": ["2", "3"]}},
           "window": {"strides": ["3", "2"], "pad_left": ["2", "2"], "pad_right": ["1", "2"], "window_dilations": ["2", "2"]},
           "feature_groups": "1"}

ONEDNN = [
    Row("oneDNN matmul", _MATRICES, _matmul("p0, p1"), f"{_PRODUCT}  ROOT r = f32[3,5] copy(x)"),
    Row("oneDNN matmul, turned", ("f32[4,3]", "f32[5,4]"), _matmul("p0, p1", transpose_a=True, transpose_b=True),
        "  ROOT x = f32[3,5] dot(p0, p1), lhs_contracting_dims={0}, rhs_contracting_dims={1}"),
    Row("oneDNN matmul, bias, gelu", (*_MATRICES, "f32[5]"), _matmul("p0, p1, p2", "BIAS", "GELU_ERF"),
        _PRODUCT.replace("  x ", "  d ") + "  bs = f32[3,5] broadcast(p2), dimensions={1}\n  x = f32[3,5] add(d, bs)\n" + _ERF),
    Row("oneDNN matmul, sum, factor", (*_MATRICES, "f32[3,5]"),
        _onednn("matmul", "p0, p1, p2", "f32[3,5]{1,0}", onednn_matmul_config={
            "fusions": {"ops": ["LINEAR", "BINARY_ADD"], "alpha_typecast": 1056964608}}),
        _PRODUCT + "  h = f32[] constant(0.5)\n  hs = f32[3,5] broadcast(h), dimensions={}\n  s = f32[3,5] multiply(x, hs)\n"
        "  ROOT r = f32[3,5] add(s, p2)"),
    Row("oneDNN convolution", (_IMAGE, _KERNEL, "f32[4]"),
        _onednn("convolution", "p0, p1, p2", _RESULT, onednn_conv_config={**_PLACES, "fusions": {"ops": ["BIAS", "RELU"]}}),
        _plain(f"{_BIAS}{_ZEROS}  ROOT r = f32[2,4,7,4] maximum(x, zeros)")),
    Row("oneDNN norm", ("f32[6,8]", "f32[8]", "f32[8]"),
        _onednn("layernorm", "p0, p1, p2", "f32[6,8]{1,0}", onednn_layer_norm_config={
            "rescale": "SCALE_AND_SHIFT", "epsilon_typecast": 981668463}),
        _normalized("6,8", "6") + "  ROOT r = f32[6,8] copy(y)", 1e-4),
    Row("oneDNN softmax", ("f32[6,8]",), _onednn("softmax", "p0", "f32[6,8]{1,0}", onednn_softmax_config={"softmax_axis": 1}),
        "  low = f32[] constant(-inf)\n  m = f32[6] reduce(p0, low), dimensions={1}, to_apply=largest\n"
        "  ms = f32[6,8] broadcast(m), dimensions={0}\n  d = f32[6,8] subtract(p0, ms)\n  e = f32[6,8] exponential(d)\n"
        "  zero = f32[] constant(0)\n  t = f32[6] reduce(e, zero), dimensions={1}, to_apply=sum\n"
        "  ts = f32[6,8] broadcast(t), dimensions={0}\n  ROOT q = f32[6,8] divide(e, ts)"),
]
