"""The derivatives that `jax.export` writes beside a function are those of the program that is read."""

import pickle

import numpy as np
import pytest
import torch

import xla_torch
from xla_torch.api.exported_function import from_exported
from xla_torch.api.tree_function import TreeFunction

jax = pytest.importorskip("jax")
jnp, lax, export = jax.numpy, jax.lax, pytest.importorskip("jax.export")

X = np.linspace(-1, 2, 6, dtype=np.float32).reshape(2, 3)
N = np.int32(3)
Z = (X + 1j * X[::-1]).astype(np.complex64)


def function(x, n, z):
    rounded = x + lax.stop_gradient(jnp.round(x) - x)
    return jnp.sin(rounded) * n + x * lax.stop_gradient(x), n + 1, jnp.abs(z * lax.stop_gradient(z)), z * lax.stop_gradient(z)


def exported(order):
    found = from_exported(export.export(jax.jit(function))(X, N, Z).serialize(vjp_order=order))
    assert isinstance(found, TreeFunction)
    return found.computation


@pytest.fixture(scope="module", params=["read", "pickled"])
def twice(request):
    found = exported(2)
    return pickle.loads(pickle.dumps(found)) if request.param == "pickled" else found


def tensors():
    return torch.tensor(X, requires_grad=True), torch.tensor(N), torch.tensor(Z, requires_grad=True)


def close(ours, theirs):
    np.testing.assert_allclose(ours.detach().numpy(), np.asarray(theirs), rtol=1e-5, atol=1e-5)


def test_gradients_are_jaxs(twice):
    results, back = jax.vjp(function, X, N, Z)
    x, n, z = tensors()
    ours = twice(x, n, z)
    ct = [np.cos(X), np.zeros((), jax.dtypes.float0), np.exp(X), (X - 2j).astype(np.complex64)]
    found = torch.autograd.grad([ours[0], ours[2], ours[3]], [x, z], [torch.tensor(np.conj(ct[k])) for k in (0, 2, 3)])
    theirs = back(tuple(ct))
    close(found[0], theirs[0])
    close(found[1], np.conj(theirs[2]))
    assert len(results) == len(ours)


def test_second_derivatives_are_jaxs(twice):
    x, n, z = tensors()
    (first,) = torch.autograd.grad(twice(x, n, z)[0], x, torch.tensor(np.cos(X)), create_graph=True)
    (second,) = torch.autograd.grad(first, x, torch.tensor(X))

    def gradient(x):
        return jax.vjp(lambda x: function(x, N, Z)[0], x)[1](np.cos(X))[0]

    close(second, jax.vjp(gradient, X)[1](X)[0])


def test_tangents_are_jaxs(twice):
    tangent = np.exp(X)
    theirs = jax.jvp(lambda x, z: function(x, N, z), (X, Z), (tangent, Z))[1]
    ours = xla_torch.jvp(twice)(*(t.detach() for t in tensors()), torch.tensor(tangent), torch.tensor(Z))[1]
    for a, k in zip(ours, (0, 2, 3), strict=True):
        close(a, theirs[k])


def test_without_a_derivative_ops_are_differentiated():
    x, n, z = tensors()
    exported(0)(x, n, z)[0].sum().backward()
    assert x.grad is not None
