"""Reverse mode over whole programs: values against JAX, the programs it builds, and its errors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import xla_torch
from support.differentiable_functions import PROGRAMS, A, V, cross_entropy, reused, several_results
from support.jax_oracle import check_gradients, program, to_torch
from support.oracle import HAS_XLA, needs_xla, run_xla
from xla_torch.errors import DifferentiationError, InvalidArgument

if HAS_XLA:
    import jax
    import jax.numpy as jnp


@needs_xla
@pytest.mark.parametrize(("function", "arguments"), PROGRAMS, ids=[f"{f.__name__}-{k}" for k, (f, _) in enumerate(PROGRAMS)])
def test_gradient_is_jax_s(function, arguments):
    check_gradients(function, arguments)


def softmax_rows(a, v):
    return jax.nn.softmax(a, axis=-1) * v


def softmax_of_two_dimensions(a, v):
    return jax.nn.softmax((a * v)[None], axis=(1, 2)) * a


def log_softmax_columns(a, v):
    return jax.nn.log_softmax(a, axis=0) * v


def logsumexp_twice(a, v):
    return jax.nn.logsumexp(jax.nn.logsumexp(a * v, axis=1))


def shifted_by_anything(a, v):
    e = jnp.exp(a - jnp.sin(v))
    return e / e.sum(0) * v


CANCELLED = [softmax_rows, softmax_of_two_dimensions, log_softmax_columns, logsumexp_twice]


@needs_xla
@pytest.mark.parametrize("function", [*CANCELLED, shifted_by_anything], ids=lambda f: f.__name__)
def test_shifts_that_cancel(function):
    check_gradients(function, (A, V))
    text = xla_torch.vjp(program(function, A, V)).to_hlo_text()
    if function in CANCELLED:
        assert "direction=EQ" not in text  # no maximum is differentiated
    assert "cosine(" not in text


def unscaled(a, v):
    return jnp.exp(a - jnp.sin(v))


def scaled_apart(a, v):
    e = jnp.exp(a - jnp.sin(v))
    return e / (e * e).sum(0)


def shift_comes_back(a, v):
    shift = jnp.sin(v)
    return jnp.log(jnp.exp(a - shift).sum(0)) - shift


def shift_of_other_rows(a, v):
    square = a[:3]
    shift = jnp.sin(square.max(1))
    return jnp.exp(square - shift[:, None]) / jnp.exp(square - shift[None]).sum()


@needs_xla
@pytest.mark.parametrize("function", [unscaled, scaled_apart, shift_comes_back, shift_of_other_rows], ids=lambda f: f.__name__)
def test_shifts_that_do_not_cancel(function):
    check_gradients(function, (A, V))
    assert "cosine(" in xla_torch.vjp(program(function, A, V)).to_hlo_text()


@needs_xla
def test_a_maximum_that_does_not_cancel_is_differentiated():
    assert "compare(" in xla_torch.vjp(program(lambda a: a.max(1), A)).to_hlo_text()


@needs_xla
def test_softmax_needs_only_its_result():
    computation = program(lambda a: jax.nn.softmax(a, axis=-1), A)
    result = computation(to_torch(A).requires_grad_())
    kept = getattr(result.grad_fn, "saved_tensors", ())
    assert len(kept) == 2
    torch.testing.assert_close(kept[1], result)


@needs_xla
def test_nothing_is_computed_twice():
    entry = xla_torch.grad(program(lambda a: (jnp.sin(a) * jnp.sin(a) + jnp.cos(a)).sum(), A)).entry
    counts = {opcode: sum(i.opcode == opcode for i in entry.instructions) for opcode in ("sine", "cosine")}
    assert counts == {"sine": 1, "cosine": 1}


@needs_xla
def test_value_and_grad_is_an_ordinary_program():
    computation = program(cross_entropy, A, np.array([0, 2, 1, 1]))
    derived = xla_torch.value_and_grad(computation)
    arguments = (A, np.array([0, 2, 1, 1]))
    value, gradient = derived(*map(to_torch, arguments))
    want = jax.value_and_grad(cross_entropy)(*arguments)
    for found in ((value.numpy(), gradient.numpy()), run_xla(derived.to_hlo_text(), *arguments)):
        np.testing.assert_allclose(found[0], want[0], rtol=1e-12)
        np.testing.assert_allclose(found[1], want[1], rtol=1e-12)
    assert [str(p) for p in derived.program_shape.parameters] == ["f64[4,3]", "s64[4]"]


@needs_xla
def test_argnums_choose_the_form_of_the_result():
    computation = program(reused, A, V)
    tensors = to_torch(A), to_torch(V)
    assert isinstance(xla_torch.grad(computation)(*tensors), torch.Tensor)
    both = xla_torch.grad(computation, (1, 0))(*tensors)
    assert [tuple(g.shape) for g in both] == [(3,), (4, 3)]
    outputs = xla_torch.vjp(computation, 0, with_outputs=True)(*tensors, torch.ones((), dtype=torch.float64))
    assert len(outputs) == 2
    torch.testing.assert_close(outputs[1], both[1])


@needs_xla
def test_the_first_result_of_a_tuple_is_differentiated():
    value, gradient = xla_torch.value_and_grad(program(several_results, A, V), 0)(to_torch(A), to_torch(V))
    np.testing.assert_allclose(value.numpy(), np.sin(A))
    np.testing.assert_allclose(gradient.numpy(), np.cos(A))


TUPLES = """HloModule tuples
ENTRY main {
  p = (f32[3], (f32[], f32[3])) parameter(0)
  a = f32[3] get-tuple-element(p), index=0
  q = (f32[], f32[3]) get-tuple-element(p), index=1
  s = f32[] get-tuple-element(q), index=0
  b = f32[3] broadcast(s), dimensions={}
  m = f32[3] multiply(a, b)
  ROOT r = ((f32[3]), f32[3]) tuple(t, a)
}
"""


def test_tuple_parameters_and_nested_results():
    text = TUPLES.replace("  ROOT", "  t = (f32[3]) tuple(m)\n  ROOT")
    a, s = torch.tensor([1.0, 2.0, 3.0]), torch.tensor(2.0)
    gradient = xla_torch.grad(xla_torch.parse_hlo(text))((a, (s, a)))
    torch.testing.assert_close(gradient, (torch.full((3,), 2.0), (torch.tensor(6.0), torch.zeros(3))))
    leaf = a.clone().requires_grad_()
    (scaled,), _ = xla_torch.parse_hlo(text)((leaf, (s, a)))
    scaled.sum().backward()
    torch.testing.assert_close(leaf.grad, torch.full((3,), 2.0))


CALLS = """HloModule calls
inner { x = f32[3] parameter(0)  ROOT y = f32[3] sine(x) }
outer { x = f32[3] parameter(0)  c = f32[3] call(x), to_apply=inner  ROOT t = (f32[3], f32[3]) tuple(c, x) }
fused { x = f32[3] parameter(0)  ROOT y = f32[3] multiply(x, x) }
ENTRY main {
  x = f32[3] parameter(0), metadata={op_name="x"}
  c = (f32[3], f32[3]) call(x), to_apply=outer
  s = f32[3] get-tuple-element(c), index=0
  start = ((f32[3]), f32[3]) async-start(x), calls=inner
  done = f32[3] async-done(start)
  f = f32[3] fusion(s), kind=kLoop, calls=fused, metadata={op_name="jit(f)/square"}
  ROOT r = f32[3] add(f, done)
}
"""


def test_calls_fusions_and_async_wrappers_are_opened():
    from xla_torch.transform.canonical import canonicalize

    computation = xla_torch.parse_hlo(CALLS)
    plain = canonicalize(computation.entry)
    assert sorted(i.opcode for i in plain.instructions) == ["add", "multiply", "parameter", "sine", "sine"]
    x = torch.tensor([0.5, 1.0, -2.0])
    torch.testing.assert_close(xla_torch.grad(computation)(x), 2 * x.sin() * x.cos() + x.cos())


def test_gradients_keep_the_op_names_of_their_origin():
    text = CALLS.replace("multiply(x, x)", 'multiply(x, x), metadata={op_name="jit(f)/square"}')
    derived = xla_torch.grad(xla_torch.parse_hlo(text))
    names = {i.op_name for i in derived.entry.instructions}
    assert "vjp(jit(f)/square)" in names


REFUSED = """HloModule refused
ENTRY main {
  x = f32[3] parameter(0)
  n = s32[3] parameter(1)
  f = f32[3] convert(n)
  %s
}
"""


def test_no_gradient_off_the_active_path_is_no_error():
    text = REFUSED % "u = u64[2] rng-get-and-update-state(), delta=1\n ROOT r = f32[3] multiply(x, f)"
    x, n = torch.ones(3), torch.arange(3, dtype=torch.int32)
    torch.testing.assert_close(xla_torch.grad(xla_torch.parse_hlo(text))(x, n), n.float())


@pytest.mark.parametrize(("argnums", "error", "message"), [
    (1, DifferentiationError, "parameter 1 .*has no gradient"),
    (2, InvalidArgument, "argnums names parameter 2"),
    (-1, InvalidArgument, "argnums names parameter -1"),
])
def test_wrong_argnums(argnums, error, message):
    computation = xla_torch.parse_hlo(REFUSED % "ROOT r = f32[3] multiply(x, f)")
    with pytest.raises(error, match=message):
        xla_torch.grad(computation, argnums)


def test_a_result_without_gradient():
    computation = xla_torch.parse_hlo(REFUSED % "ROOT r = s32[3] convert(x)")
    with pytest.raises(DifferentiationError, match="the result has no gradient") as caught:
        xla_torch.grad(computation)
    assert "s32[3]" in str(caught.value)
    assert "vjp" in str(caught.value)


def test_the_number_of_participants_is_kept():
    text = REFUSED.replace("HloModule refused", "HloModule refused, replica_count=2") % "ROOT r = f32[3] multiply(x, f)"
    assert xla_torch.grad(xla_torch.parse_hlo(text)).module.replica_count == 2


def test_dead_code_is_gone():
    text = "d = f32[3] sine(x)\n  s = f32[3] multiply(x, f)\n  ROOT r = (f32[3], f32[3]) tuple(s, d)"
    computation = xla_torch.parse_hlo(REFUSED % text)
    assert sorted(i.opcode for i in xla_torch.grad(computation).entry.instructions if i.opcode not in (
        "parameter", "constant", "broadcast")) == ["convert", "multiply"]
