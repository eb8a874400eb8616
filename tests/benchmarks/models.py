"""Losses as XLA programs beside the same written by hand in torch, to compare what they cost. Needs jax."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.nn.functional import conv2d, conv_transpose2d, cross_entropy, gelu, mse_loss

from xla_torch import from_jax
from xla_torch.api.tree_function import TreeFunction
from xla_torch.demo import gpt

Tree = Any


@dataclasses.dataclass(frozen=True)
class Model:
    """`program`, `by_hand` and the JAX function `source` take a tree of parameters and then the batch, and return the same
    loss."""

    parameters: Tree
    batch: Sequence[torch.Tensor]
    by_hand: Callable[..., torch.Tensor]
    source: Callable[..., Any]

    @functools.cached_property
    def program(self) -> TreeFunction:
        """Its gradients are ours: of a scan JAX's own keep rows of their choice."""
        arrays = jax.tree_util.tree_map(lambda tensor: tensor.detach().numpy(), (self.parameters, *self.batch))
        with jax.enable_x64(False):
            return from_jax(self.source, *arrays, derivatives="xla")

    def on(self, device: str) -> Model:
        """The same with parameters and batch on a device."""
        found = jax.tree_util.tree_map(lambda tensor: tensor.to(device), (self.parameters, *self.batch))
        return dataclasses.replace(self, parameters=found[0], batch=found[1:])

    def leaves(self) -> list[torch.Tensor]:
        """The parameters in the order in which the program takes them."""
        return jax.tree_util.tree_leaves(self.parameters)

    def check(self) -> None:
        """Raise AssertionError unless both compute the same loss."""
        theirs = self.by_hand(self.parameters, *self.batch)
        torch.testing.assert_close(self.program(self.parameters, *self.batch), theirs, rtol=1e-4, atol=1e-5)


def model(function: Callable[..., Any], by_hand: Callable[..., torch.Tensor], parameters: Tree, *batch: np.ndarray) -> Model:
    """A JAX function of NumPy parameters and a NumPy batch, with what computes the same in torch."""
    tensors = jax.tree_util.tree_map(lambda array: torch.from_numpy(np.asarray(array)), (parameters, *batch))
    return Model(tensors[0], tensors[1:], by_hand, function)


def normal(*dims: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed + sum(dims)).standard_normal(dims) / np.sqrt(np.prod(dims[:-1]))).astype(np.float32)


# ------------------------------------------------------------------------------------------------ perceptron


def perceptron(width: int = 512, batch: int = 2048) -> Model:
    def loss(p: Tree, x: Any, labels: Any) -> Any:
        for weight, bias in p[:-1]:
            x = jax.nn.relu(x @ weight + bias)
        logits = x @ p[-1][0] + p[-1][1]
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1).mean()

    def by_hand(p: Tree, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        for weight, bias in p[:-1]:
            x = torch.relu(x @ weight + bias)
        return cross_entropy(x @ p[-1][0] + p[-1][1], labels.long())

    widths = [width, width, width, width, 10]
    parameters = [(normal(n, m), np.zeros(m, np.float32)) for n, m in itertools.pairwise(widths)]
    labels = np.random.default_rng(1).integers(0, 10, batch).astype(np.int32)
    return model(loss, by_hand, parameters, normal(batch, width) * np.float32(batch**0.5), labels)


# ------------------------------------------------------------------------------------------------ transformer


def transformer(width: int = 256, context: int = 256, batch: int = 4) -> Model:
    characters = np.random.default_rng(0).integers(0, gpt.VOCABULARY, (batch, context + 1)).astype(np.int32)
    return model(gpt.gpt_loss, transformer_by_hand, gpt.initial_parameters(seed=0, width=width, context=context), characters)


def transformer_by_hand(parameters: Tree, characters: torch.Tensor) -> torch.Tensor:
    """`gpt.gpt_loss` as a torch user writes it."""
    given, wanted = characters[:, :-1], characters[:, 1:]
    x = parameters["characters"][given] + parameters["positions"]
    hidden = torch.ones(given.shape[1], given.shape[1], dtype=torch.bool, device=x.device).tril().logical_not()
    for layer in parameters["layers"]:
        q, k, v = (part.unflatten(-1, (gpt.HEADS, -1)).transpose(1, 2)
                   for part in (_normalised(x, layer["norm1"]) @ layer["qkv"]).chunk(3, dim=-1))
        scores = (q @ k.transpose(-1, -2) / np.sqrt(q.shape[-1])).masked_fill(hidden, -1e9)
        x = x + (scores.softmax(-1) @ v).transpose(1, 2).flatten(2) @ layer["out"]
        up = _normalised(x, layer["norm2"]) @ layer["up"]
        x = x + gelu(up, approximate="tanh") @ layer["down"]
    logits = _normalised(x, parameters["norm"]) @ parameters["characters"].T
    return cross_entropy(logits.flatten(0, 1), wanted.flatten().long())


def _normalised(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred * ((centred**2).mean(-1, keepdim=True) + 1e-5).rsqrt() * scale


# ------------------------------------------------------------------------------------------------ convolutions


def convolutions(channels: int = 16, side: int = 64, batch: int = 8) -> Model:
    """Down, up again beside what went down, and out: a small U-net."""
    layout = ("NCHW", "OIHW", "NCHW")

    def loss(p: Tree, x: Any, wanted: Any) -> Any:
        first = jax.nn.relu(jax.lax.conv_general_dilated(x, p["in"], (1, 1), "SAME", dimension_numbers=layout))
        below = jax.nn.relu(jax.lax.conv_general_dilated(first, p["down"], (2, 2), "VALID", dimension_numbers=layout))
        above = jax.lax.conv_transpose(below, p["up"], (2, 2), "VALID", dimension_numbers=layout, transpose_kernel=True)
        both = jnp.concatenate([first, above], axis=1)
        out = jax.lax.conv_general_dilated(both, p["out"], (1, 1), "SAME", dimension_numbers=layout)
        return ((out - wanted) ** 2).mean()

    def by_hand(p: Tree, x: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        first = torch.relu(conv2d(x, p["in"], padding="same"))
        below = torch.relu(conv2d(first, p["down"], stride=2))
        above = conv_transpose2d(below, p["up"], stride=2)
        return mse_loss(conv2d(torch.cat([first, above], 1), p["out"], padding="same"), wanted)

    def kernel(out: int, given: int, side: int) -> np.ndarray:
        return (normal(given, side, side, out) * 2).transpose(3, 0, 1, 2).copy()

    parameters = {"in": kernel(channels, 3, 3), "down": kernel(2 * channels, channels, 2),
                  "up": kernel(2 * channels, channels, 2), "out": kernel(3, 2 * channels, 3)}
    images = np.random.default_rng(2).standard_normal((2, batch, 3, side, side)).astype(np.float32)
    return model(loss, by_hand, parameters, images[0], images[1])


# ------------------------------------------------------------------------------------------------ recurrent


def recurrent(width: int = 128, steps: int = 64, batch: int = 32) -> Model:
    """An LSTM, scanned."""
    def loss(p: Tree, xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            h, c = carry
            i, f, g, o = jnp.split(x @ p["x"] + h @ p["h"] + p["b"], 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zeros = jnp.zeros((xs.shape[1], p["h"].shape[0]), jnp.float32)
        return (jax.lax.scan(step, (zeros, zeros), xs)[1] ** 2).mean()

    def by_hand(p: Tree, xs: torch.Tensor) -> torch.Tensor:
        h = c = torch.zeros(xs.shape[1], p["h"].shape[0], device=xs.device)
        found = []
        for x in xs:
            i, f, g, o = (x @ p["x"] + h @ p["h"] + p["b"]).chunk(4, dim=-1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            found.append(h)
        return (torch.stack(found) ** 2).mean()

    parameters = {"x": normal(width, 4 * width), "h": normal(width, 4 * width), "b": np.zeros(4 * width, np.float32)}
    return model(loss, by_hand, parameters, normal(steps, batch, width) * np.float32(40))


MODELS = {"perceptron": perceptron, "transformer": transformer, "convolutions": convolutions, "recurrent": recurrent}
