"""Reports about JAX and XLA as functions of JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from reports.rows import INF, NAN, Row, f32, f64, i32, i64


@jax.custom_vjp
def _tripled(x: Any, n: Any) -> Any:
    return x * n


_tripled.defvjp(lambda x, n: (x * n, n), lambda n, ct: (3 * ct, np.zeros(np.shape(n), jax.dtypes.float0)))


@jax.custom_jvp
def _shifted(x: Any, n: Any) -> Any:
    return x + n


_shifted.defjvp(lambda primals, tangents: (_shifted(*primals), 5 * tangents[0]))


@jax.custom_vjp
def _clipped(x: Any) -> Any:
    return x * x


_clipped.defvjp(lambda x: (x * x, x), lambda x, ct: (jnp.clip(ct * 2 * x, -1, 1),))


def _scan_of_custom(x: Any) -> Any:
    return lax.scan(lambda c, _: (_clipped(c), None), x, None, length=2)[0]


def _promised(x: Any, i: Any, m: Any) -> Any:
    return jnp.where(jnp.all(m & (i[:, None] >= 0), axis=1), x.at[i].get(mode="promise_in_bounds"), 0.0)


def _until_large(x: Any) -> Any:
    return lax.while_loop(lambda c: jnp.sum(c) < 10, lambda c: c * 2 + 1, x)


def _loop_in_loop(x: Any) -> Any:
    inner = jax.vmap(lambda v: lax.while_loop(lambda c: c < 3 * v, lambda c: c + 1, v))
    return lax.while_loop(lambda c: jnp.any(c < 20), lambda c: inner(c) + 1, x)


def _branch(x: Any) -> Any:
    step = jax.vmap(lambda v: lax.cond(v > 0, lambda u: u - 1, lambda u: u * 0.5, v))
    return lax.fori_loop(0, 3, lambda _, c: step(c), x)


def _xor_angle(a: Any) -> Any:
    zero = jnp.zeros_like(a)
    e = lax.convert_element_type(lax.bitwise_xor(lax.ne(a, zero), lax.ne(a, zero)), "float32")
    return lax.atan2(e, e)


def _xlogx(x: Any) -> Any:
    return jnp.where(x > 0, x * jnp.log(jnp.where(x > 0, x, 1.0)), 0.0)


MATRIX = np.array([[4.0, 1, 0], [1, 3, 1], [0, 1, 2]])
ODD = np.linspace(-1, 2, 7)
C64, C128 = np.complex64, np.complex128

VALUES = [
    Row("jax#4640", "argmax of a NaN is its place, as in NumPy", jnp.argmax, (f32(0, 1, NAN),), right=np.int64(2)),
    Row(
        "jax#3193",
        "argmin and argmax of NaNs alone are the first place",
        lambda x: (jnp.argmin(x), jnp.argmax(x)),
        (f32(NAN, NAN, NAN),),
    ),
    Row(
        "jax#3193", "a NaN among zeros wins argmin and argmax", lambda x: (jnp.argmin(x), jnp.argmax(x)), (f32(0, NAN, 0, NAN),)
    ),
    Row(
        "mlx#4274",
        "argmax and max agree where there is a NaN",
        lambda x: (jnp.argmax(x), jnp.max(x), jnp.argmin(x)),
        (f32(INF, NAN, -INF),),
    ),
    Row(
        "jax#6762",
        "the index of a draw with NaN in its logits is that of the NaN",
        lambda x, g: jnp.argmax(x + g),
        (f32(0, NAN), f32(3, 1)),
    ),
    Row(
        "jax#37819",
        "floor division of integers by zero is what XLA's division gives",
        lambda a, b: a // b,
        (i32(0, 1, -1, 100, -(2**31)), i32(0, 0, 0, 0, 0)),
    ),
    Row("jax#11990", "floor division of 64 bits by zero", jnp.floor_divide, (i64(2, -7, 0), i64(0, 0, 0))),
    Row("jax#31698", "floor division of floats by zero", jnp.floor_divide, (f32(5, 0, -5), f32(0, 0, 0))),
    Row(
        "jax#4963",
        "division by zero has all bits set",
        lax.div,
        (np.array([5, 0, -5], np.int8), np.array([0, 0, 0], np.int8)),
        right=np.array([-1, -1, -1], np.int8),
    ),
    Row(
        "jax#11965",
        "remainder of an integer by zero is zero in jnp, the dividend in lax",
        lambda a, b: (jnp.remainder(a, b), lax.rem(a, b)),
        (i32(5, -5, 0), i32(0, 0, 0)),
    ),
    Row(
        "pytorch#153919",
        "the least integer divided by -1 wraps around",
        lambda a, b: (lax.div(a, b), lax.rem(a, b)),
        (i64(-(2**63), 7), i64(-1, -1)),
        right=(i64(-(2**63), -7), i64(0, 0)),
    ),
    Row(
        "jax#33157",
        "shifts by the width or more give zeros, arithmetic ones the sign",
        lambda a, b: (lax.shift_left(a, b), lax.shift_right_logical(a, b), lax.shift_right_arithmetic(a, b)),
        (i32(1, -1, 5, -9), i32(32, 33, -1, 31)),
    ),
    Row(
        "jax#6443",
        "NaNs of either sign sort last",
        jnp.sort,
        (f32(-NAN, NAN, -INF, INF, -1, 1),),
        right=f32(-INF, -1, 1, INF, NAN, NAN),
    ),
    Row("jax#9178", "zeros of either sign keep their order", jnp.argsort, (f32(0.0, -0.0, 0.0),), right=i64(0, 1, 2)),
    Row(
        "jax#21397",
        "top_k has NaN first",
        lambda x: lax.top_k(x, 3),
        (f32(NAN, -INF, INF, 0),),
        right=(f32(NAN, INF, 0), i32(0, 2, 3)),
    ),
    Row(
        "jax#40028",
        "a remainder of zero has the sign that XLA gives it",
        jnp.remainder,
        (f64(-1, -4, 0, 4), f64(1, 2, -3, -2)),
        exact=True,
    ),
    Row(
        "jax#21708",
        "updates behind the end are dropped and the last element stays",
        lambda x, i, v: x.at[i].set(v, mode="drop"),
        (i32(-1, -1, -1, -1), i32(4, 5, 0, 9), i32(7, 8, 9, 10)),
        right=i32(9, -1, -1, -1),
    ),
    Row(
        "jax#5342",
        "segment_sum drops indices out of range",
        lambda x, i: jax.ops.segment_sum(x, i, 3),
        (f32(1, 2, 4, 8), i32(0, 3, -1, 2)),
        right=f32(1, 0, 8),
    ),
    Row(
        "jax#3621",
        "dynamic_slice clamps its start",
        lambda x, i: lax.dynamic_slice(x, (i,), (2,)),
        (i32(1, 2, 3), np.int32(5)),
        right=i32(2, 3),
    ),
    Row(
        "jax#21393",
        "dynamic_slice clamps a start that leaves part of the window",
        lambda x, i: lax.dynamic_slice(x, (i,), (2,)),
        (i32(1, 2, 3), np.int32(2)),
        right=i32(2, 3),
    ),
    Row(
        "jax#40849",
        "each of two slices clamps its own start",
        lambda x, i, j: lax.dynamic_slice(lax.dynamic_slice(x, (i,), (4,)), (j,), (1,)),
        (np.arange(10, dtype="f4"), np.int32(9), np.int32(0)),
        right=f32(6),
    ),
    Row(
        "jax#40849",
        "the inner slice's size bounds the outer start",
        lambda x, i, j: lax.dynamic_slice(lax.dynamic_slice(x, (i,), (4,)), (j,), (1,)),
        (np.arange(10, dtype="f4"), np.int32(3), np.int32(5)),
        right=f32(6),
    ),
    Row(
        "jax#13101",
        "negative floats become zero in unsigned integers",
        lambda x: x.astype(jnp.uint32),
        (f32(-20, -0.5, 10, 5e9, NAN),),
        right=np.array([0, 0, 10, 2**32 - 1, 0], np.uint32),
    ),
    Row(
        "jax#10005",
        "floats saturate in uint8",
        lambda x: x.astype(jnp.uint8),
        (f32(-255, -1, 256, 255, 257),),
        right=np.array([0, 0, 255, 255, 255], np.uint8),
    ),
    Row(
        "jax#8258",
        "integers wrap where floats saturate",
        lambda x, y: (x.astype(jnp.uint16), y.astype(jnp.uint16)),
        (f32(-1, 7e4), i32(-1, 70000)),
        right=(np.array([0, 65535], np.uint16), np.array([65535, 4464], np.uint16)),
    ),
    Row(
        "numpy#13171",
        "the largest float below a power of two stays positive",
        lambda x: x.astype(jnp.int32),
        (f32(2.0**31 - 64, 2.0**31, -INF, NAN),),
        right=i32(2**31 - 1, 2**31 - 1, -(2**31), 0),
    ),
    Row(
        "jax#441",
        "a loop under vmap ends where each element's condition ends",
        jax.vmap(lambda x: lax.while_loop(lambda c: c <= 0, lambda c: c + 1, x)),
        (f32(0, 1, -4),),
        right=f32(1, 1, 1),
    ),
    Row("jax#3164", "a loop whose condition sums what is carried", _until_large, (f32(1, 2),)),
    Row("jax#2960", "a batched loop within a loop", _loop_in_loop, (f32(1, 2, 0.5),)),
    Row("jax#1263", "branches by element within a loop", _branch, (f32(-1, 0.5, 2, 0),)),
    Row("jax#994", "a scan of length zero gives its carry", lambda x: lax.scan(lambda a, v: (a + v, a * v), 2.0, x), (f32(),)),
    Row("jax#2412", "map over nothing is empty", lambda x: lax.map(lambda v: v * v, x), (f32(),), right=f32()),
    Row("jax#5719", "counts of nothing are zeros", lambda x: jnp.bincount(x, length=3), (i32(),)),
    Row(
        "jax#29248",
        "reductions of nothing are their identities",
        lambda x: (jnp.sum(x), jnp.prod(x), jnp.max(x, initial=-INF)),
        (f32(),),
        right=(np.float32(0), np.float32(1), np.float32(-INF)),
    ),
    Row(
        "jax#5002",
        "a reversed scan gives results in the order of its inputs",
        lambda x: lax.scan(lambda n, v: (n + 1, (n, v)), jnp.int32(0), x, reverse=True)[1],
        (i32(0, 1, 2, 3, 4),),
    ),
    Row(
        "jax#4182",
        "a reversed associative scan of an odd length",
        lambda x: lax.associative_scan(jnp.add, x, reverse=True),
        (ODD,),
        right=np.cumsum(ODD[::-1])[::-1],
    ),
    Row(
        "jax#29313",
        "a reversed scan of matrices keeps the order of factors",
        lambda x: lax.associative_scan(jnp.matmul, x, reverse=True),
        (np.arange(12.0).reshape(3, 2, 2),),
    ),
    Row("jax#6850", "an inverse real transform of odd length", lambda x: jnp.fft.irfft(x, n=9), (ODD[:5] + 0j,)),
    Row(
        "pytorch#63943",
        "real transforms of odd lengths go back to where they came from",
        lambda x: jnp.fft.irfft(jnp.fft.rfft(x), n=7),
        (ODD,),
        right=ODD,
    ),
    Row("xla#44705", "the angle of zero and zero is zero", _xor_angle, (i32(0, 1, 2),), right=f32(0, 0, 0)),
    Row("xla#5544", "the greatest of negative zeros is a zero", jnp.max, (np.zeros(8193, "f4") * -1,), right=np.float32(0)),
    Row(
        "jax#38995",
        "a subnormal of bfloat16 by way of float64 is what XLA makes of it",
        lambda x: x.astype(jnp.bfloat16).astype(jnp.float64),
        (f64(1.5, 1.00390625, 1.01171875, 3.4e38, NAN),),
    ),
    Row(
        "xla#41605",
        "a narrowing conversion in between rounds",
        lambda x: x.astype(jnp.bfloat16).astype(jnp.float32),
        (f32(1.001, 3.14159, -2.7),),
    ),
    Row(
        "jax#1624",
        "logaddexp of two infinities is an infinity",
        jnp.logaddexp,
        (f64(-INF, INF, -INF, 1), f64(-INF, INF, INF, 2)),
    ),
    Row(
        "jax#1624",
        "logsumexp of negative infinities is one",
        jax.scipy.special.logsumexp,
        (f64(-INF, -INF),),
        right=np.float64(-INF),
    ),
    Row("xla#5369", "a power of one by infinity", lax.pow, (np.array([1 + 0j], C64), np.array([complex(INF, 0)], C64))),
    Row("xla#6156", "infinity to the first power", lax.pow, (np.array([complex(INF, 0)], C64), np.array([1 + 0j], C64))),
    Row("jax#25679", "the sign of a complex infinity", jnp.sign, (np.array([complex(INF, 0), 3 + 4j, 0j], C128),)),
    Row(
        "jax#37817",
        "the magnitude of infinity and NaN",
        jnp.abs,
        (np.array([complex(INF, NAN), complex(NAN, -INF), 3 + 4j], C64),),
    ),
    Row(
        "numpy#5687",
        "tanh of large complex numbers is finite",
        jnp.tanh,
        (np.array([616.4 + 53.8j, 1000 + 0j, -700 + 1j], C128),),
        right=np.array([1, 1, -1], C128),
    ),
    Row("jax#17738", "trigamma of two", lambda x: jax.scipy.special.polygamma(1, x), (f64(2),), right=f64(np.pi**2 / 6 - 1)),
    Row(
        "jax#25646",
        "bits of bytes as pairs of four-bit integers and back",
        lambda x: lax.bitcast_convert_type(lax.bitcast_convert_type(x, jnp.uint4), jnp.uint8),
        (np.array([0x12, 0xF0], np.uint8),),
        right=np.array([0x12, 0xF0], np.uint8),
    ),
    Row(
        "jax#6328",
        "reduce_precision rounds ties to even and overflows to infinity",
        lambda x: lax.reduce_precision(x, 5, 0),
        (f32(1.5, 3, 2.9, 6e4, 1e-8, -INF, NAN, -0.0),),
        exact=True,
    ),
    Row(
        "tensorflow#118727",
        "the bits of a saturated unsigned integer",
        lambda x: lax.bitcast_convert_type(x.astype(jnp.uint64), jnp.uint8),
        (f32(-2, 0, 2),),
    ),
    Row(
        "pytorch#76795",
        "a clamp has NaN where a bound is NaN",
        jnp.clip,
        (f32(0, NAN, 2), f32(NAN, 0, 1), f32(1, 1, NAN)),
        right=f32(NAN, NAN, NAN),
    ),
    Row(
        "jax#25878",
        "a gather with promised indices and a mask",
        _promised,
        (f64(1, 2, 3), i64(0, 2, 1), np.array([[True, True], [True, False], [True, True]])),
        right=f64(1, 0, 2),
    ),
]

GRADIENTS = [
    Row("jax#3058", "the norm has no slope at zero, and JAX says NaN", jnp.linalg.norm, (f64(0, 0, 0),), True),
    Row("jax#4177", "the squared norm by way of the norm", lambda x: jnp.linalg.norm(x) ** 2, (f64(0, 0),), True),
    Row("jax#26248", "a norm behind a factor", lambda a, x: jnp.linalg.norm(a * x), (np.float64(1.3), f64(3, 4)), True),
    Row("jax#13600", "ties share the slope of max", jnp.max, (f64(1, 3, 3, 2),), True, f64(0, 0.5, 0.5, 0)),
    Row("tensorflow#118673", "max with a NaN", jnp.max, (f64(1, 2, NAN),), True),
    Row("jax#37821", "maximum at a tie", lambda x: jnp.maximum(x, 0.0), (f64(0, 1, -1),), True, f64(0.5, 1, 0)),
    Row(
        "jax#14179",
        "a NaN in a segment that is dropped",
        lambda x, a, i: jax.ops.segment_sum(a * x, i, 2)[0],
        (f64(1, 2, 3), f64(1, 1, NAN), i32(0, 1, -1)),
        True,
        by_table=f64(1, 0, 0),
    ),
    Row(
        "jax#347",
        "where lets a NaN through from the branch not taken",
        lambda x: jnp.where(x > 0.5, jnp.sqrt(x), 1.0),
        (f64(0, 4, 9),),
        True,
        by_table=f64(0, 0.25, 1 / 6),
    ),
    Row(
        "jax#1052",
        "an angle at the origin in the branch not taken",
        lambda x: jnp.where(x == 0, 0.0, jnp.arctan2(x, x)),
        (f64(3, 0, -5),),
        True,
        by_table=f64(0, 0, 0),
    ),
    Row("jax#5798", "two wheres keep a slope finite", _xlogx, (f64(0, 1, 2),), True, f64(0, 1, 1 + np.log(2))),
    Row(
        "jax#37635",
        "trigamma at negative arguments",
        lax.digamma,
        (f64(-16.5, -10.5, -9.7),),
        True,
        f64(9.8108, 9.7788, 14.9815),
    ),
    Row(
        "jax#12409",
        "zero to the power of zero",
        lambda x: jnp.power(x - jnp.floor(x), jnp.zeros(1)),
        (f64(1),),
        True,
        by_table=f64(0),
    ),
    Row("jax#7440", "a power of zero", lambda x: x**2.0 + x**3, (f64(0, 2),), True, f64(0, 16)),
    Row("jax#9040", "nanmean of squares", lambda x: jnp.nanmean(x**2), (f64(NAN, 1, 2),), True, by_table=f64(0, 1, 2)),
    Row("jax#6811", "logsumexp of negative infinities", jax.scipy.special.logsumexp, (f64(-INF, -INF),), True),
    Row(
        "jax#23842",
        "logsumexp with a mask",
        lambda x: jax.scipy.special.logsumexp(x, where=jnp.array([True, False])),
        (f64(0, 100),),
        True,
    ),
    Row("jax#8126", "nanvar leaves NaN out", jnp.nanvar, (f64(1, 4, NAN, 2),), True),
    Row("jax#6936", "sinc at zero", jnp.sinc, (f64(0, 0.5),), True, f64(0, -8 / (2 * np.pi))),
    Row("jax#1538", "elu of large arguments", jax.nn.elu, (f64(1000, -1, 0.5),), True, f64(1, np.exp(-1), 1)),
    Row("jax#764", "tanh of large arguments", jnp.tanh, (f32(190, 200, 0),), True, f32(0, 0, 1)),
    Row("pytorch#773", "a product with one zero", jnp.prod, (f64(2, 0, 3, 4),), True, f64(0, 24, 0, 0)),
    Row("burn#3864", "a running product with a zero", jnp.cumprod, (f64(2, 0, 3, 4),), True, f64(1, 32, 0, 0)),
    Row("jax#7652", "a rule of its own with an integer argument", _tripled, (f64(1, 2), i32(4, 5)), True, f64(3, 3)),
    Row("jax#16000", "a tangent rule beside an integer argument", _shifted, (f64(1, 2), i32(4, 5)), True, f64(5, 5)),
    Row("jax#4173", "a rule of its own under vmap in a scan", jax.vmap(_scan_of_custom), (f64(0.1, 2, -3),), True),
    Row("jax#1249", "vmap keeps a rule", jax.vmap(_clipped), (f64(0.1, 2, -3),), True, f64(0.2, 1, -1)),
    Row(
        "jax#25878", "a gather that clips", lambda x, i: x.at[i].get(mode="clip"), (f64(1, 2, 3), i32(0, 7)), True, f64(1, 0, 1)
    ),
    Row(
        "jax#2311",
        "singular values that are equal have finite slopes",
        lambda x: jnp.sum(jnp.linalg.svd(x, compute_uv=False)),
        (np.diag(f64(1, 1, 2)),),
        True,
        np.eye(3),
    ),
    Row(
        "jax#10527",
        "eigenvalues of a matrix whose own are distinct",
        lambda x: jnp.sum(jnp.linalg.eigvalsh(x) ** 2),
        (MATRIX,),
        True,
        2 * MATRIX,
    ),
]

ROWS = VALUES + GRADIENTS
