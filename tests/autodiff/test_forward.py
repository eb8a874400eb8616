"""Forward mode over whole programs: values against JAX, on our side and on real XLA; second derivatives; its errors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import xla_torch
from grad_rules._table import TABLE, replace
from support.differentiable_functions import PROGRAMS, complex_argument
from support.jax_functions import MATRIX, NAMES, ROW, ROWS, SQUARE, mlp_loss, newton, scanned, updated
from support.jax_oracle import compare, evaluated, flat, is_differentiable, program, to_torch
from support.oracle import HAS_XLA, needs_xla, run_xla
from xla_torch.api import custom_calls
from xla_torch.errors import DifferentiationError, InvalidArgument

if HAS_XLA:
    import jax
    import jax.numpy as jnp
    from jax import lax


def leaves(value):
    return [leaf for part in value for leaf in leaves(part)] if isinstance(value, tuple) else [value]


def like(arrays, seed=3):
    """A random array of the type and shape of each."""
    random = np.random.RandomState(seed)
    parts = [random.randn(*np.shape(a)) + (1j * random.randn(*np.shape(a)) if np.iscomplexobj(a) else 0) for a in arrays]
    return [np.asarray(p, np.asarray(a).dtype) for p, a in zip(parts, arrays, strict=True)]


def jax_jvp(function, arguments, numbers, tangents):
    def of_some(*some):
        every = list(arguments)
        for k, value in zip(numbers, some, strict=True):
            every[k] = value
        return [o for o in flat(function(*every)) if is_differentiable(o)]

    return evaluated(lambda primals, tangents: jax.jvp(of_some, primals, tangents)[1], [arguments[k] for k in numbers], tangents)


ALL = [*ROWS, *PROGRAMS]
IDS = [*NAMES, *(f"{function.__name__}-p{k}" for k, (function, _) in enumerate(PROGRAMS))]


@needs_xla
@pytest.mark.parametrize(("function", "arguments"), ALL, ids=IDS)
def test_tangents_are_jax_s(function, arguments):
    computation = program(function, *arguments)
    numbers = [k for k, a in enumerate(arguments) if is_differentiable(a)]
    tangents = like([arguments[k] for k in numbers])
    derivative, want = xla_torch.jvp(computation), jax_jvp(function, arguments, numbers, tangents)
    result, tangent = derivative(*map(to_torch, [*arguments, *tangents]))
    compare(leaves(tangent), want, 1e-8)
    torch.testing.assert_close(result, computation(*map(to_torch, arguments)))
    on_xla = run_xla(derivative.to_hlo_text(), *arguments, *tangents)
    compare(on_xla[len(on_xla) - len(want):], want, 1e-8)


@needs_xla
@pytest.mark.parametrize("number", [0, 1])
def test_tangents_of_some_arguments(number):
    derivative = xla_torch.jvp(program(scanned, SQUARE, MATRIX), number)
    arguments = (SQUARE, MATRIX)
    tangents = like([arguments[number]])
    _, found = derivative(*map(to_torch, [*arguments, *tangents]))
    compare(found, jax_jvp(scanned, arguments, [number], tangents), 1e-10)


@needs_xla
@pytest.mark.parametrize("function", [mlp_loss, scanned], ids=["mlp", "scan"])
def test_second_derivatives(function):
    """Forward over reverse, reverse over forward, and reverse over reverse, times a vector."""
    def loss(w, x):
        return sum(jnp.sum(jnp.square(o)) for o in flat(function(w, x)))

    computation, (vector,) = program(loss, SQUARE, MATRIX), like([SQUARE])
    want = (evaluated(jax.hessian(loss), SQUARE, MATRIX).reshape(9, 9) @ vector.reshape(-1)).reshape(3, 3)
    given = list(map(to_torch, [SQUARE, MATRIX, vector]))
    over_reverse, over_forward = xla_torch.jvp(xla_torch.grad(computation), 0), xla_torch.jvp(computation, 0)
    compare([over_reverse(*given)[1]], [want], 1e-9)
    compare([run_xla(over_reverse.to_hlo_text(), SQUARE, MATRIX, vector)[1]], [want], 1e-9)
    pulled = xla_torch.vjp(over_forward, 0)
    compare(pulled(*given, torch.tensor(0.0, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64)), [want], 1e-9)
    x, w, v = to_torch(MATRIX), to_torch(SQUARE), to_torch(vector)
    compare(xla_torch.vjp(xla_torch.grad(computation), 0)(w, x, v), [want], 1e-9)


@needs_xla
def test_a_loop_of_any_length_keeps_nothing():
    a = np.abs(ROW) + 0.5
    derivative = xla_torch.jvp(program(newton, a))
    _, found = derivative(to_torch(a), torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(found, 0.5 / to_torch(a).sqrt())
    assert "f64[?" not in derivative.to_hlo_text()


@needs_xla
def test_moving_elements_moves_tangents():
    """One op for the tangent, not the transpose of a transpose."""
    text = xla_torch.jvp(program(updated, MATRIX, np.array([0, 2, 3]))).to_hlo_text()
    assert text.count(" dynamic-update-slice(") == 2


@needs_xla
def test_integers_have_no_tangent():
    result, tangent = xla_torch.jvp(program(updated, MATRIX, np.array([0, 2, 3])))(
        to_torch(MATRIX), torch.tensor([0, 2, 3]), torch.ones(4, 3, dtype=torch.float64))
    assert (len(result), len(tangent)) == (2, 1)


@needs_xla
def test_complex_tangents():
    z = MATRIX + 1j * MATRIX[::-1]
    (t,) = like([z])
    _, tangent = xla_torch.jvp(program(complex_argument, z))(to_torch(z), to_torch(t))
    compare(tangent, jax_jvp(complex_argument, (z,), [0], [t]), 1e-10)


UNIFORM = """
ENTRY main {
  x = f32[3] parameter(0)
  n = s32[3] parameter(1)
  %s
}
"""


@pytest.mark.parametrize(("argnums", "error", "message"), [
    (1, DifferentiationError, "parameter 1 .*has no gradient"), (2, InvalidArgument, "argnums names parameter 2")])
def test_wrong_argnums(argnums, error, message):
    with pytest.raises(error, match=message):
        xla_torch.jvp(xla_torch.parse_hlo(UNIFORM % "ROOT r = f32[3] sine(x)"), argnums)


def test_an_op_without_gradient_is_named():
    text = 'ROOT r = f32[3] custom-call(x), custom_call_target="unheard_of"'
    with pytest.raises(DifferentiationError, match=r"custom-call \(%r\)"):
        xla_torch.jvp(xla_torch.parse_hlo(UNIFORM % text))


def test_a_rule_that_is_not_linear():
    before = TABLE["sine"]
    try:
        replace("sine", operand=lambda ct: ct * ct)
        with pytest.raises(DifferentiationError, match="not linear"):
            xla_torch.jvp(xla_torch.parse_hlo(UNIFORM % "ROOT r = f32[3] sine(x)"))
    finally:
        TABLE["sine"] = before


def test_a_result_that_does_not_depend():
    result, tangent = xla_torch.jvp(xla_torch.parse_hlo(UNIFORM % "ROOT r = s32[3] add(n, n)"))(
        torch.ones(3), torch.ones(3, dtype=torch.int32), torch.ones(3))
    assert result.tolist() == [2, 2, 2]
    assert tangent == ()


# ------------------------------------------------------------------------------------------------ linear algebra


def _positive(a):
    return a @ a.conj().T + jnp.eye(3)


def _restored(left, values, right):
    return (left * jnp.exp(values / 10)) @ right, values


def _exponential(values, vectors):
    return (vectors * jnp.exp(values / 10)) @ vectors.conj().T, values


FACTORISATIONS = {
    "lu": lambda a: jax.scipy.linalg.lu(a)[1:],
    "solve": lambda a: jnp.linalg.solve(a, jnp.flip(a, 0)[:, :2]),
    "qr": jnp.linalg.qr,
    "svd": lambda a: _restored(*jnp.linalg.svd(a)),
    "singular values": lambda a: jnp.linalg.svd(a, compute_uv=False),
    "eigh": lambda a: _exponential(*jnp.linalg.eigh(_positive(a))),
    "cholesky": lambda a: jnp.linalg.cholesky(_positive(a)),
    "triangular solve": lambda a: lax.linalg.triangular_solve(a, jnp.flip(a, 0)[:, :2], left_side=True, lower=True),
    "fft": lambda a: jnp.fft.fft(a) * a,
    "rfft": lambda a: jnp.fft.irfft(jnp.fft.rfft(a.real) ** 2, n=3),
}


@pytest.mark.slow
@needs_xla
@pytest.mark.parametrize("name", FACTORISATIONS)
@pytest.mark.parametrize("kind", ["f64", "c128"])
def test_factorisations_forward_and_twice(name, kind):
    """Tangents are JAX's. Second derivatives are equal forward over reverse, reverse over forward and reverse over reverse."""
    a = SQUARE + 3 * np.eye(3) + (1j * SQUARE[::-1] if kind == "c128" else 0)
    function = FACTORISATIONS[name]
    computation, given = program(function, a), to_torch(a)
    (direction,) = like([a])
    _, tangent = xla_torch.jvp(computation)(given, to_torch(direction))
    compare(leaves((tangent,)), jax_jvp(function, (a,), [0], [direction]), 1e-8)

    cts = list(map(to_torch, like(jax_jvp(function, (a,), [0], [direction]), seed=5)))
    reverse, forward = xla_torch.vjp(computation), xla_torch.jvp(computation)
    (want,) = xla_torch.vjp(reverse, [0])(given, *cts, to_torch(direction))
    over_reverse = xla_torch.jvp(reverse, [0])(given, *cts, to_torch(direction))[1]
    over_forward = xla_torch.vjp(forward, [0])(given, to_torch(direction), *map(torch.zeros_like, cts), *cts)
    torch.testing.assert_close([leaves((over_reverse,))[0], over_forward[0]], [want, want])


def test_tangents_of_custom_calls():
    """By the gradient of the gradient, which is linear in its cotangent: by torch's autograd or by the registered rule."""
    x, t = torch.tensor([1.0, 2.0, -3.0], dtype=torch.float64), torch.tensor([1.0, 10.0, 100.0], dtype=torch.float64)
    for vjp in (None, lambda ct, out, x, y: (3 * ct * x * x * y, ct * x ** 3)):
        xla_torch.register_custom_call("my.cube", lambda x, y: x ** 3 * y, vjp)
        text = 'ENTRY m { x = f64[3] parameter(0)\n y = f64[3] parameter(1)\n ' \
               'ROOT r = f64[3] custom-call(x, y), custom_call_target="my.cube" }'
        derivative = xla_torch.jvp(xla_torch.parse_hlo(text), 0)
        _, tangent = derivative(x, 2 * x, t)
        torch.testing.assert_close(tangent, 6 * x ** 3 * t)
        assert derivative.to_hlo_text().count("xla_torch.vjp[2].xla_torch.vjp[0].my.cube") == 1
        custom_calls.unregister_custom_call("my.cube")


# ------------------------------------------------------------------------------------------------ reductions and scans

REGIONS = """tilted {
  a = f64[] parameter(0)
  b = f64[] parameter(1)
  h = f64[] constant(0.5)
  m = f64[] multiply(a, h)
  s = f64[] sine(b)
  ROOT r = f64[] add(m, s)
}
mul {
  a = f64[] parameter(0)
  b = f64[] parameter(1)
  ROOT r = f64[] multiply(a, b)
}
pair {
  a = f64[] parameter(0)
  b = f64[] parameter(1)
  c = f64[] parameter(2)
  d = f64[] parameter(3)
  e = f64[] multiply(a, d)
  f = f64[] add(e, b)
  g = f64[] multiply(a, c)
  ROOT r = (f64[], f64[]) tuple(g, f)
}
step {
  x = f64[] parameter(0)
  k = s32[] parameter(1)
  c = f64[] parameter(2)
  n = s32[] parameter(3)
  m = f64[] multiply(x, c)
  y = f64[] sine(m)
  one = s32[] add(n, k)
  z = f64[] convert(one)
  w = f64[] multiply(y, z)
  ROOT r = (f64[], f64[], s32[]) tuple(w, y, one)
}
sum {
  x = f64[] parameter(0)
  c = f64[] parameter(1)
  y = f64[] add(x, c)
  ROOT r = (f64[], f64[]) tuple(y, y)
}
ge {
  a = f64[] parameter(0)
  b = f64[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=GE
}
ENTRY main {
  x = f64[2,5] parameter(0)
  i = f64[] parameter(1)
  line = f64[1,5] slice(x), slice={[1:2], [0:5]}
  v = f64[5] reshape(line)
  k = s32[5] iota(), iota_dimension=0
  n = s32[] constant(1)
  p = s32[5,1] constant({{3},{0},{3},{4},{1}})
  ROOT r = %s
}
"""
GENERAL = {
    "reduce in order": "f64[2] reduce(x, i), dimensions={1}, to_apply=tilted",
    "reduce all in order": "f64[] reduce(x, i), dimensions={0,1}, to_apply=tilted",
    "reduce by products": "f64[5] reduce(x, i), dimensions={0}, to_apply=mul",
    "reduce pairs": "(f64[2], f64[2]) reduce(x, x, i, i), dimensions={1}, to_apply=pair",
    "windows in order": "f64[2,3] reduce-window(x, i), window={size=1x3 stride=1x2 pad=0_0x1_1}, to_apply=tilted",
    "windows of products": "f64[2,5] reduce-window(x, i), window={size=2x2 pad=1_0x0_1}, to_apply=mul",
    "scan": "(f64[5], f64[], s32[]) scan(v, k, i, n), dimensions={0}, num_carries=2, to_apply=step",
    "scan from the end": "(f64[5], f64[], s32[]) scan(v, k, i, n), dimensions={0}, num_carries=2, is_reverse=true, to_apply=step",
    "running sum": "(f64[5], f64[]) scan(v, i), dimensions={0}, num_carries=1, to_apply=sum",
    "map": "f64[5] map(v, v), dimensions={0}, to_apply=tilted",
    "scatter in order": "f64[5] scatter(v, p, v), update_window_dims={}, inserted_window_dims={0}, "
                        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=tilted",
    "select and scatter": "f64[5] select-and-scatter(v, v, i), window={size=1}, select=ge, scatter=tilted",
}


@pytest.mark.parametrize("name", GENERAL)
def test_reductions_of_any_kind(name):
    """Tangents and both second derivatives are those of differences."""
    computation = xla_torch.parse_hlo(REGIONS % GENERAL[name])
    x, i = torch.linspace(-0.9, 1.3, 10, dtype=torch.float64).reshape(2, 5).flip(1), torch.tensor(0.7, dtype=torch.float64)
    directions = list(map(to_torch, like([x.numpy(), i.numpy()])))

    def moved(function, scale):
        return [r for r in leaves((function(x + scale * directions[0], i + scale * directions[1]),)) if r.is_floating_point()]

    def differences(function):
        near, far = ([(a - b) / (2 * h) for a, b in zip(moved(function, h), moved(function, -h), strict=True)]
                     for h in (1e-3, 2e-3))
        return [(4 * a - b) / 3 for a, b in zip(near, far, strict=True)]

    forward, reverse = xla_torch.jvp(computation), xla_torch.vjp(computation)
    tangents = leaves((forward(x, i, *directions)[1],))
    torch.testing.assert_close(tangents, differences(computation), rtol=1e-7, atol=1e-7)
    cts = [torch.full_like(t, 0.5 + k) for k, t in enumerate(tangents)]
    want = differences(lambda *at: tuple(reverse(*at, *cts)))
    over_reverse = xla_torch.jvp(reverse, [0, 1])(x, i, *cts, *directions)[1]
    over_forward = xla_torch.vjp(forward, [0, 1])(x, i, *directions, *map(torch.zeros_like, cts), *cts)
    for found in (over_reverse, over_forward):
        torch.testing.assert_close(list(found), want, rtol=1e-6, atol=1e-6)
