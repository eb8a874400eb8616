"""JAX as the oracle of gradients: functions become programs here, and `jax.vjp` says what their gradients are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

import xla_torch
from support import answers
from support.oracle import HAS_XLA, run_xla

if HAS_XLA:
    import jax

    jax.config.update("jax_enable_x64", True)


def program(function: Callable[..., Any], *arguments: Any) -> xla_torch.XlaComputation:
    """The function as XLA's HLO text for arguments like these, and that text as a program of ours."""
    lowered: Any = jax.jit(function, keep_unused=True).lower(*arguments).compiler_ir("hlo")
    return xla_torch.parse_hlo(lowered.as_hlo_text(print_large_constants=True))


def flat(value: Any) -> list[Any]:
    """The leaves of nested tuples and lists."""
    return [leaf for part in value for leaf in flat(part)] if isinstance(value, (tuple, list)) else [value]


def to_torch(array: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(array))


def is_differentiable(array: Any) -> bool:
    return bool(jax.numpy.issubdtype(getattr(array, "dtype", type(array)), np.inexact))


def evaluated(function: Callable[..., Any], *arguments: Any) -> Any:
    """What JAX computes, compiled; kept between runs (`answers.py`). The leaves are NumPy arrays."""
    lowered: Any = jax.jit(function).lower(*arguments)

    def ask() -> list[np.ndarray]:
        return [np.asarray(leaf) for leaf in jax.tree.leaves(lowered.compile()(*arguments))]

    leaves = answers.answer("jax", lowered.as_text(), jax.tree.leaves(arguments), ask)
    return jax.tree.unflatten(lowered.out_tree, leaves)


def evaluated_in_steps(function: Callable[..., Any], *arguments: Any, known_by: Any) -> list[np.ndarray]:
    """The leaves of what JAX computes where every loop is Python's, so that a while has a gradient. Such a function cannot be
    lowered: it is known by the text of the program that it differentiates, ``known_by`` (a function and its arguments)."""
    def computed() -> Any:
        with jax.disable_jit():
            return function(*arguments)

    base, given = known_by
    return answers.answer("jax in steps", jax.jit(base).lower(*given).as_text(), jax.tree.leaves((given, arguments)),
                          lambda: [np.asarray(leaf) for leaf in jax.tree.leaves(computed())])


class Vjp:
    """Random cotangents for a function's results, and JAX's gradients for them in torch's convention. `in_steps` is for loops of
    which JAX has no gradient: they are Python's."""

    def __init__(self, function: Callable[..., Any], arguments: Sequence[Any], in_steps: bool = False):
        random = np.random.RandomState(1)
        self.argnums = [k for k, a in enumerate(arguments) if is_differentiable(a)]

        def of_wanted(*wanted: Any) -> list[Any]:
            full = list(arguments)
            for k, value in zip(self.argnums, wanted, strict=True):
                full[k] = value
            return [o for o in flat(function(*full)) if is_differentiable(o)]

        wanted = [arguments[k] for k in self.argnums]
        self.cotangents = [_random_like(random, o) for o in jax.eval_shape(of_wanted, *wanted)]
        # JAX transposes without conjugating, torch conjugates: the two differ by a conjugation on either side.
        def pull(primals: list[Any], cotangents: list[Any]) -> Any:
            return jax.vjp(of_wanted, *primals)[1](cotangents)

        given = wanted, [np.conj(c) for c in self.cotangents]
        found = evaluated_in_steps(pull, *given, known_by=(function, arguments)) if in_steps else evaluated(pull, *given)
        self.gradients = [np.conj(g) for g in found]


def _random_like(random: np.random.RandomState, array: Any) -> np.ndarray:
    values = random.randn(*array.shape)
    if np.dtype(array.dtype).kind == "c":
        values = values + 1j * random.randn(*array.shape)
    return np.asarray(values).astype(array.dtype)


def check_gradients(function: Callable[..., Any], arguments: Sequence[Any], rtol: float = 1e-9, on_xla: bool = True) -> None:
    """Our gradients are JAX's through all entry points: `vjp`, the same printed and run by real XLA, and torch.autograd."""
    computation, want = program(function, *arguments), Vjp(function, arguments)
    derivative = xla_torch.vjp(computation, want.argnums)
    found = derivative(*map(to_torch, [*arguments, *want.cotangents]))
    compare(found, want.gradients, rtol)
    if on_xla:
        compare(run_xla(derivative.to_hlo_text(), *arguments, *want.cotangents), want.gradients, rtol)
    compare(through_autograd(computation, arguments, want), want.gradients, rtol)


def through_autograd(computation: Any, arguments: Sequence[Any], want: Vjp) -> list[torch.Tensor]:
    """The same gradients by torch.autograd.grad."""
    tensors = [to_torch(a) for a in arguments]
    leaves = [tensors[k].requires_grad_() for k in want.argnums]
    outputs = [o for o in flat(computation(*tensors)) if o.is_floating_point() or o.is_complex()]
    pairs = [(o, to_torch(c)) for o, c in zip(outputs, want.cotangents, strict=True) if o.requires_grad]
    if not pairs:
        return [torch.zeros_like(leaf) for leaf in leaves]
    found = torch.autograd.grad([o for o, _ in pairs], leaves, [c for _, c in pairs], allow_unused=True)
    return [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(found, leaves, strict=True)]


def compare(found: Sequence[Any], want: Sequence[np.ndarray], rtol: float) -> None:
    assert len(found) == len(want)
    for got, expected in zip(found, want, strict=True):
        array = got.detach().resolve_conj().numpy() if isinstance(got, torch.Tensor) else np.asarray(got)
        assert (array.shape, array.dtype) == (expected.shape, expected.dtype)
        if array.dtype.kind == "V":  # NumPy's comparison knows no bf16
            array, expected = array.astype(np.float32), expected.astype(np.float32)
        np.testing.assert_allclose(array, expected, rtol=rtol, atol=rtol * max(1.0, float(np.abs(expected).max(initial=0))))
