"""Pallas kernels through from_jax: values and gradients against plain jax.numpy."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import triton as plgpu

import xla_torch
from xla_torch.errors import XlaWarning

F32 = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.float32)


def _add_kernel(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] + y_ref[...]


def add(x: Any, y: Any) -> Any:
    block = pl.BlockSpec((2, 4), lambda i, j: (i, j))
    return pl.pallas_call(_add_kernel, grid=(3, 2), in_specs=[block, block], out_specs=block, out_shape=F32(x.shape))(x, y)


def add_on_gpu(x: Any, y: Any) -> Any:
    return pl.pallas_call(_add_kernel, out_shape=F32(x.shape), compiler_params=plgpu.CompilerParams(num_warps=4))(x, y)


def _product_kernel(x_ref: Any, y_ref: Any, o_ref: Any, sum_ref: Any) -> None:
    @pl.when(pl.program_id(2) == 0)
    def _() -> None:
        sum_ref[...] = jnp.zeros_like(sum_ref)

    sum_ref[...] += jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)

    @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
    def _() -> None:
        o_ref[...] = sum_ref[...]


def product(x: Any, y: Any) -> Any:
    """A matrix product that adds up over the last dimension of its grid, in scratch memory of a TPU."""
    return pl.pallas_call(
        _product_kernel, grid=(2, 2, 3), out_shape=F32((x.shape[0], y.shape[1])),
        scratch_shapes=[pltpu.VMEM((4, 4), jnp.float32)],
        in_specs=[pl.BlockSpec((4, 4), lambda i, j, k: (i, k)), pl.BlockSpec((4, 4), lambda i, j, k: (k, j))],
        out_specs=pl.BlockSpec((4, 4), lambda i, j, k: (i, j)),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")))(x, y)


def _softmax_kernel(x_ref: Any, o_ref: Any) -> None:
    shares = jnp.exp(x_ref[...] - jnp.max(x_ref[...], -1, keepdims=True))
    o_ref[...] = shares / jnp.sum(shares, -1, keepdims=True)


def softmax(x: Any) -> Any:
    row = pl.BlockSpec((1, x.shape[1]), lambda i: (i, 0))
    return pl.pallas_call(_softmax_kernel, grid=(x.shape[0],), in_specs=[row], out_specs=row, out_shape=F32(x.shape))(x)


def _norm_kernel(x_ref: Any, scale_ref: Any, shift_ref: Any, o_ref: Any) -> None:
    x = x_ref[...]
    mean = jnp.mean(x, -1, keepdims=True)
    apart = x - mean
    o_ref[...] = apart * jax.lax.rsqrt(jnp.mean(apart * apart, -1, keepdims=True) + 1e-5) * scale_ref[...] + shift_ref[...]


def layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    rows, whole = pl.BlockSpec((3, x.shape[1]), lambda i: (i, 0)), pl.BlockSpec(scale.shape, lambda i: (0,))
    return pl.pallas_call(_norm_kernel, grid=(2,), in_specs=[rows, whole, whole], out_specs=rows, out_shape=F32(x.shape))(
        x, scale, shift)


def plain_layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    mean, variance = jnp.mean(x, -1, keepdims=True), jnp.var(x, -1, keepdims=True)
    return (x - mean) / jnp.sqrt(variance + 1e-5) * scale + shift


def _attention_kernel(q_ref: Any, k_ref: Any, v_ref: Any, o_ref: Any, *, block: int) -> None:
    """Attention that never holds all scores: each step rescales the sums of those before it."""
    q = q_ref[...] / q_ref.shape[1] ** 0.5

    def step(i: Any, carry: Any) -> Any:
        sums, most, total = carry
        k, v = k_ref[pl.ds(i * block, block), :], v_ref[pl.ds(i * block, block), :]
        scores = q @ k.T
        new = jnp.maximum(most, scores.max(-1))
        shares, scale = jnp.exp(scores - new[:, None]), jnp.exp(most - new)
        return sums * scale[:, None] + shares @ v, new, total * scale + shares.sum(-1)

    rows = q.shape[0]
    first = jnp.zeros((rows, v_ref.shape[1]), q.dtype), jnp.full(rows, -jnp.inf, q.dtype), jnp.zeros(rows, q.dtype)
    sums, _, total = jax.lax.fori_loop(0, k_ref.shape[0] // block, step, first)
    o_ref[...] = sums / total[:, None]


def attention(q: Any, k: Any, v: Any) -> Any:
    rows, whole = pl.BlockSpec((4, q.shape[1]), lambda i: (i, 0)), pl.BlockSpec(k.shape, lambda i: (0, 0))
    return pl.pallas_call(functools.partial(_attention_kernel, block=4), grid=(q.shape[0] // 4,), in_specs=[rows, whole, whole],
                          out_specs=rows, out_shape=F32(q.shape))(q, k, v)


def plain_attention(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(q @ k.T / q.shape[1] ** 0.5, -1) @ v


def _scaled_kernel(places_ref: Any, x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = 2 * x_ref[...]


def gathered(x: Any) -> Any:
    """Blocks that are chosen by an array in scalar memory."""
    spec = pltpu.PrefetchScalarGridSpec(num_scalar_prefetch=1, grid=(2,), out_specs=pl.BlockSpec((2, 4), lambda i, p: (i, 0)),
                                        in_specs=[pl.BlockSpec((2, 4), lambda i, p: (p[i], 0))])
    return pl.pallas_call(_scaled_kernel, grid_spec=spec, out_shape=F32((4, 4)))(jnp.array([2, 0]), x)


def _copied_kernel(x_ref: Any, o_ref: Any, semaphore: Any) -> None:
    copy = pltpu.make_async_copy(x_ref.at[pl.ds(2, 4)], o_ref, semaphore)
    copy.start()
    copy.wait()


def copied(x: Any) -> Any:
    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    return pl.pallas_call(_copied_kernel, in_specs=[anywhere], out_specs=anywhere, out_shape=F32((4, x.shape[1])),
                          scratch_shapes=[pltpu.SemaphoreType.DMA])(x)


def under_loop(x: Any) -> Any:
    return jax.lax.fori_loop(0, 3, lambda _, y: softmax(y) + x, x)


@jax.custom_vjp
def soft(x: Any) -> Any:
    return softmax(x)


def _soft_gradient_kernel(y_ref: Any, ct_ref: Any, o_ref: Any) -> None:
    y, ct = y_ref[...], ct_ref[...]
    o_ref[...] = y * (ct - jnp.sum(y * ct, -1, keepdims=True))


def _forward(x: Any) -> Any:
    return (y := softmax(x)), y


def _backward(y: Any, ct: Any) -> Any:
    return pl.pallas_call(_soft_gradient_kernel, out_shape=F32(y.shape))(y, ct),


soft.defvjp(_forward, _backward)


@jax.custom_vjp
def soft_in_rule(x: Any) -> Any:
    return jax.nn.softmax(x)


soft_in_rule.defvjp(_forward, _backward)


def _normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


X, Y = _normal(6, 8), _normal(6, 8, seed=1)
Row = tuple[Callable[..., Any], Callable[..., Any], Sequence[np.ndarray]]
ROWS: dict[str, Row] = {
    "add in blocks": (add, jnp.add, (X, Y)), "add for a GPU": (add_on_gpu, jnp.add, (X, Y)),
    "product": (product, jnp.matmul, (_normal(8, 12), _normal(12, 8))), "softmax": (softmax, jax.nn.softmax, (X,)),
    "layer norm": (layer_norm, plain_layer_norm, (X, _normal(8), _normal(8, seed=1))),
    "attention": (attention, plain_attention, (_normal(8, 4), _normal(12, 4, seed=1), _normal(12, 4, seed=2))),
    "scalar prefetch": (gathered, lambda x: 2 * jnp.concatenate([x[4:], x[:2]]), (_normal(6, 4),)),
    "asynchronous copy": (copied, lambda x: x[2:6], (_normal(8, 4),)),
    "in a loop": (under_loop, lambda x: jax.lax.fori_loop(0, 3, lambda _, y: jax.nn.softmax(y) + x, x), (X,)),
    "rule of kernels": (soft, jax.nn.softmax, (X,)), "kernels in the rule only": (soft_in_rule, jax.nn.softmax, (X,)),
}


def _converted(function: Callable[..., Any], arrays: Sequence[np.ndarray]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XlaWarning)
        return xla_torch.from_jax(function, *arrays)


def _near(ours: torch.Tensor, theirs: Any) -> None:
    torch.testing.assert_close(ours.detach(), torch.from_numpy(np.array(theirs)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ROWS)
def test_a_pallas_kernel_computes_what_jax_numpy_does(name: str):
    function, plain, arrays = ROWS[name]
    ours = _converted(function, arrays)
    _near(ours(*map(torch.from_numpy, arrays)), plain(*arrays))
    _near(ours(*(torch.from_numpy(a[::-1].copy()) for a in arrays)), plain(*(a[::-1] for a in arrays)))


@pytest.mark.parametrize("name", ROWS)
def test_a_pallas_kernel_has_the_gradient_of_jax_numpy(name: str):
    function, plain, arrays = ROWS[name]
    given = [torch.from_numpy(a).requires_grad_() for a in arrays]
    result = _converted(function, arrays)(*given)
    cotangent = _normal(*result.shape, seed=5)
    gradients = torch.autograd.grad(result, given, torch.from_numpy(cotangent))
    for ours, theirs in zip(gradients, jax.vjp(plain, *arrays)[1](jnp.asarray(cotangent)), strict=True):
        _near(ours, theirs)


def test_a_pallas_kernel_for_a_device_warns_once_with_its_name():
    with pytest.warns(XlaWarning, match=r"from_jax: Pallas kernels .* interpret mode: _softmax_kernel") as found:
        xla_torch.from_jax(jax.jit(lambda x: softmax(softmax(x))), X)
    assert len(found) == 1
    assert found[0].filename == __file__


def test_a_pallas_kernel_that_is_interpreted_already_warns_of_nothing():
    xla_torch.from_jax(pl.pallas_call(_add_kernel, out_shape=F32(X.shape), interpret=True), X, Y)


def test_a_pallas_kernel_leaves_jax_as_it_was():
    _converted(softmax, (X,))
    with pytest.raises(ValueError, match="Only interpret mode is supported"):
        jax.jit(softmax).lower(X)
