"""JAX models that come in: flax (linen and nnx), haiku, equinox and keras, small and with random weights."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import keras
import optax
from flax import linen, nnx

from zoo.judging import Build

ROWS: dict[str, Build] = {}
Made = tuple[Any, Sequence[Any]]


def _key(number: int = 0) -> Any:
    return jax.random.key(number)


def _normal(*shape: int) -> Any:
    return jax.random.normal(_key(9), shape)


def _ids(length: int = 7) -> Any:
    return jax.random.randint(_key(8), (2, length), 0, 50)


# ---- flax.linen

class MLP(linen.Module):
    activation: Callable[[Any], Any] = linen.gelu

    @linen.compact
    def __call__(self, x: Any) -> Any:
        for size in (32, 16):
            x = self.activation(linen.LayerNorm()(linen.Dense(size)(x)))
        return linen.Dense(4)(x)


class CNN(linen.Module):
    @linen.compact
    def __call__(self, x: Any) -> Any:
        for features in (8, 16):
            x = linen.relu(linen.GroupNorm(num_groups=4)(linen.Conv(features, (3, 3))(x)))
            x = linen.avg_pool(x, (2, 2), (2, 2))
        return linen.Dense(5)(x.reshape(x.shape[0], -1))


class ResBlock(linen.Module):
    features: int
    strides: int = 1

    @linen.compact
    def __call__(self, x: Any) -> Any:
        y = linen.relu(linen.BatchNorm(use_running_average=True)(linen.Conv(
            self.features, (3, 3), strides=(self.strides,) * 2, use_bias=False)(x)))
        y = linen.BatchNorm(use_running_average=True)(linen.Conv(self.features, (3, 3), use_bias=False)(y))
        skip = x if x.shape == y.shape else linen.Conv(self.features, (1, 1), strides=(self.strides,) * 2)(x)
        return linen.relu(y + skip)


class ResNet(linen.Module):
    @linen.compact
    def __call__(self, x: Any) -> Any:
        x = linen.max_pool(linen.Conv(8, (7, 7), strides=(2, 2))(x), (3, 3), (2, 2), "SAME")
        for features, strides in ((8, 1), (16, 2)):
            x = ResBlock(features, strides)(x)
        return linen.Dense(5)(x.mean((1, 2)))


class DepthwiseNet(linen.Module):
    @linen.compact
    def __call__(self, x: Any) -> Any:
        x = linen.hard_swish(linen.Conv(8, (3, 3), strides=(2, 2))(x))
        y = linen.Conv(8, (5, 5), feature_group_count=8, kernel_dilation=(2, 2))(x)
        gate = linen.hard_sigmoid(linen.Conv(8, (1, 1))(y.mean((1, 2), keepdims=True)))
        return linen.Conv(4, (1, 1))(linen.relu6(y * gate) + x)


class Encoder(linen.Module):
    @linen.compact
    def __call__(self, ids: Any) -> Any:
        x = linen.Embed(50, 16)(ids) + self.param("positions", linen.initializers.normal(), (ids.shape[1], 16))
        for _ in range(2):
            x = linen.LayerNorm()(x + linen.MultiHeadDotProductAttention(num_heads=4)(x, x))
            x = linen.LayerNorm()(x + linen.Dense(16)(linen.gelu(linen.Dense(32)(x))))
        return linen.Dense(50)(x)


class Decoder(linen.Module):
    @linen.compact
    def __call__(self, ids: Any) -> Any:
        embed = linen.Embed(50, 16)
        x, mask = embed(ids), linen.make_causal_mask(ids)
        for _ in range(2):
            x = x + linen.SelfAttention(num_heads=2)(linen.RMSNorm()(x), mask=mask)
            gate, up = jnp.split(linen.Dense(64)(linen.RMSNorm()(x)), 2, -1)
            x = x + linen.Dense(16)(linen.silu(gate) * up)
        return embed.attend(x)


class UNet(linen.Module):
    @linen.compact
    def __call__(self, x: Any) -> Any:
        a = linen.swish(linen.Conv(8, (3, 3))(x))
        b = linen.swish(linen.Conv(16, (3, 3), strides=(2, 2))(a))
        up = linen.ConvTranspose(8, (2, 2), strides=(2, 2))(b)
        return linen.Conv(3, (3, 3))(jnp.concatenate([a, up], -1))


class ViT(linen.Module):
    @linen.compact
    def __call__(self, x: Any) -> Any:
        x = linen.Conv(16, (4, 4), strides=(4, 4))(x)
        x = x.reshape(x.shape[0], -1, 16)
        first = self.param("cls", linen.initializers.normal(), (1, 1, 16))
        x = jnp.concatenate([jnp.broadcast_to(first, (x.shape[0], 1, 16)), x], 1)
        for _ in range(2):
            x = x + linen.SelfAttention(num_heads=4)(linen.LayerNorm()(x))
            x = x + linen.Dense(16)(linen.gelu(linen.Dense(32)(linen.LayerNorm()(x)), approximate=False))
        return linen.Dense(5)(x[:, 0])


class Mixer(linen.Module):
    @linen.compact
    def __call__(self, x: Any) -> Any:
        x = linen.Conv(16, (4, 4), strides=(4, 4))(x).reshape(x.shape[0], -1, 16)
        y = jnp.swapaxes(linen.LayerNorm()(x), 1, 2)
        x = x + jnp.swapaxes(linen.Dense(x.shape[1])(linen.gelu(linen.Dense(8)(y))), 1, 2)
        return linen.Dense(5)(linen.LayerNorm()(x).mean(1))


class Recurrent(linen.Module):
    cell: Callable[..., Any]

    @linen.compact
    def __call__(self, x: Any) -> Any:
        return linen.Dense(3)(linen.RNN(self.cell(8, param_dtype=x.dtype))(x))


class Scanned(linen.Module):
    """Layers as one, by a scan over their weights, each recomputed on the way back."""

    @linen.compact
    def __call__(self, x: Any) -> Any:
        class Layer(linen.Module):
            @linen.compact
            def __call__(self, x: Any, _: Any) -> tuple[Any, None]:
                return x + linen.tanh(linen.Dense(8)(x)), None

        layers = linen.scan(linen.remat(Layer), variable_axes={"params": 0}, split_rngs={"params": True}, length=4)
        return layers()(x, None)[0]


class WithDropout(linen.Module):
    @linen.compact
    def __call__(self, x: Any) -> Any:
        x = linen.Dropout(0.3, deterministic=False)(linen.elu(linen.Dense(16)(x)))
        return linen.log_softmax(linen.Dense(4)(x))


class Normalised(linen.Module):
    """Weights of norm one, as in GANs."""

    @linen.compact
    def __call__(self, x: Any) -> Any:
        return linen.WeightNorm(linen.Dense(4))(linen.softplus(linen.DenseGeneral((4, 4))(x)).reshape(x.shape[0], -1))


class MoE(linen.Module):
    @linen.compact
    def __call__(self, x: Any) -> Any:
        chosen, which = jax.lax.top_k(linen.softmax(linen.Dense(4)(x)), 2)
        experts = self.param("experts", linen.initializers.lecun_normal(), (4, 8, 8))
        return jnp.einsum("bk,bkd->bd", chosen, jnp.einsum("bd,bkde->bke", x, experts[which]))


class VAE(linen.Module):
    @linen.compact
    def __call__(self, x: Any) -> Any:
        mean, log_variance = linen.Dense(4)(x), linen.Dense(4)(x)
        z = mean + jnp.exp(log_variance / 2) * jax.random.normal(_key(3), mean.shape, x.dtype)
        logits = linen.Dense(8)(linen.leaky_relu(linen.Dense(16)(z)))
        kl = -0.5 * (1 + log_variance - mean ** 2 - jnp.exp(log_variance)).sum()
        return optax.sigmoid_binary_cross_entropy(logits, jax.nn.sigmoid(x)).sum() + kl


def _linen(module: Any, x: Callable[[], Any]) -> Made:
    given = x()
    variables = module.init({"params": _key(), "dropout": _key(1)}, given)
    return lambda v, x: module.apply(v, x, rngs={"dropout": _key(2)}), (variables, given)


_IMAGE = functools.partial(_normal, 2, 16, 16, 3)
LINEN: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "MLP": (MLP, lambda: _normal(3, 8)), "MLP of selu": (lambda: MLP(linen.selu), lambda: _normal(3, 8)), "CNN": (CNN, _IMAGE),
    "ResNet": (ResNet, _IMAGE), "DepthwiseNet": (DepthwiseNet, _IMAGE), "Encoder": (Encoder, _ids), "Decoder": (Decoder, _ids),
    "UNet": (UNet, _IMAGE), "ViT": (ViT, _IMAGE), "Mixer": (Mixer, _IMAGE),
    "LSTM": (lambda: Recurrent(linen.LSTMCell), lambda: _normal(2, 6, 4)),
    "optimised LSTM": (lambda: Recurrent(linen.OptimizedLSTMCell), lambda: _normal(2, 6, 4)),
    "GRU": (lambda: Recurrent(linen.GRUCell), lambda: _normal(2, 6, 4)), "scanned layers": (Scanned, lambda: _normal(3, 8)),
    "dropout": (WithDropout, lambda: _normal(3, 8)), "weight norm": (Normalised, lambda: _normal(3, 8)),
    "mixture of experts": (MoE, lambda: _normal(3, 8)), "VAE": (VAE, lambda: _normal(3, 8)),
}
ROWS |= {f"flax.linen {n}": functools.partial(lambda make, x: _linen(make(), x), *row) for n, row in LINEN.items()}


# ---- flax.nnx

def _nnx(make: Callable[[Any], Any], x: Callable[[], Any]) -> Made:
    module = make(nnx.Rngs(0))
    module.eval()
    definition, state = nnx.split(module)
    return lambda state, x: nnx.merge(definition, state)(x), (state, x())


NNX: dict[str, tuple[Callable[[Any], Any], Callable[[], Any]]] = {
    "MLP": (lambda r: nnx.Sequential(nnx.Linear(8, 16, rngs=r), nnx.relu, nnx.Linear(16, 4, rngs=r)), lambda: _normal(3, 8)),
    "CNN": (lambda r: nnx.Sequential(nnx.Conv(3, 8, (3, 3), rngs=r), nnx.BatchNorm(8, rngs=r), nnx.silu,
                                     nnx.Conv(8, 4, (3, 3), strides=2, rngs=r)), _IMAGE),
    "attention": (lambda r: nnx.MultiHeadAttention(num_heads=4, in_features=16, decode=False, rngs=r), lambda: _normal(2, 5, 16)),
    "LoRA": (lambda r: nnx.Sequential(nnx.LoRALinear(8, 16, lora_rank=2, rngs=r), nnx.tanh), lambda: _normal(3, 8)),
    "GRU": (lambda r: nnx.RNN(nnx.GRUCell(4, 8, param_dtype=jnp.float64, rngs=r)), lambda: _normal(2, 6, 4)),
    "LSTM": (lambda r: nnx.RNN(nnx.LSTMCell(4, 8, param_dtype=jnp.float64, rngs=r)), lambda: _normal(2, 6, 4)),
    "transposed": (lambda r: nnx.ConvTranspose(3, 4, (3, 3), strides=2, rngs=r), _IMAGE),
}
ROWS |= {f"flax.nnx {n}": functools.partial(_nnx, *row) for n, row in NNX.items()}


# ---- haiku

def _haiku(function: Callable[[Any], Any], x: Callable[[], Any]) -> Made:
    transformed = hk.without_apply_rng(hk.transform_with_state(function))
    given = x()
    parameters, state = transformed.init(_key(), given)
    return lambda p, s, x: transformed.apply(p, s, x)[0], (parameters, state, given)


def _unrolled(core: Callable[[], Any]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        made = core()
        return hk.dynamic_unroll(made, x, made.initial_state(x.shape[1]))[0]

    return run


_DRAWN = {"w_init": hk.initializers.RandomNormal()}  # in place of zeros, with which all gradients but one are zero
HAIKU: dict[str, tuple[Callable[[Any], Any], Callable[[], Any]]] = {
    "MLP": (lambda x: hk.nets.MLP([16, 8, 4])(x).sum(-1), lambda: _normal(3, 8)),
    "ResNet18": (lambda x: hk.nets.ResNet18(5, resnet_v2=True, logits_config=_DRAWN)(x, hk.running_init()),
                 lambda: _normal(2, 32, 32, 3)),
    "MobileNetV1": (lambda x: hk.nets.MobileNetV1(strides=(1,), channels=(8,), num_classes=5)(x, hk.running_init()), _IMAGE),
    "batch norm in training": (lambda x: hk.BatchNorm(True, True, 0.9)(hk.Conv2D(4, 3)(x), is_training=True), _IMAGE),
    "attention": (lambda x: hk.MultiHeadAttention(2, 8, w_init_scale=1.0)(x, x, x), lambda: _normal(2, 5, 16)),
    "LSTM": (_unrolled(lambda: hk.LSTM(8)), lambda: _normal(6, 2, 4)),
    "GRU": (_unrolled(lambda: hk.GRU(8)), lambda: _normal(6, 2, 4)),
    "Conv2DLSTM": (_unrolled(lambda: hk.Conv2DLSTM((8, 8), 4, 3)), lambda: _normal(3, 2, 8, 8, 2)),
    "VectorQuantizer": (lambda x: hk.nets.VectorQuantizer(4, 8, 0.25)(x, is_training=False)["quantize"], lambda: _normal(5, 4)),
    "embedding": (lambda x: hk.LayerNorm(-1, True, True)(hk.Embed(50, 8)(x)), _ids),
    "group norm": (lambda x: hk.GroupNorm(2)(hk.Conv2DTranspose(4, 3, 2)(x)), _IMAGE),
    "spectral norm": (lambda x: hk.SpectralNorm()(hk.Linear(6)(x), update_stats=False), lambda: _normal(5, 4)),
}
ROWS |= {f"haiku {n}": functools.partial(_haiku, *row) for n, row in HAIKU.items()}


# ---- equinox

def _equinox(make: Callable[[Any], Any], x: Callable[[], Any], batched: bool = True) -> Made:
    arrays, rest = eqx.partition(eqx.nn.inference_mode(make(_key())), eqx.is_inexact_array)

    def run(arrays: Any, x: Any) -> Any:
        module = eqx.combine(arrays, rest)
        return (jax.vmap(module) if batched else module)(x)

    return run, (arrays, x())


class Attending(eqx.Module):
    attention: Any
    rope: Any

    def __init__(self, key: Any):
        self.attention, self.rope = eqx.nn.MultiheadAttention(2, 16, key=key), eqx.nn.RotaryPositionalEmbedding(8)

    def __call__(self, x: Any) -> Any:
        heads = lambda q, k, v: (jax.vmap(self.rope, 1, 1)(q), jax.vmap(self.rope, 1, 1)(k), v)  # noqa: E731
        return self.attention(x, x, x, process_heads=heads)


class Running(eqx.Module):
    cell: Any

    def __call__(self, xs: Any) -> Any:
        size = self.cell.hidden_size
        start = (jnp.zeros(size), jnp.zeros(size)) if isinstance(self.cell, eqx.nn.LSTMCell) else jnp.zeros(size)
        return jax.lax.scan(lambda h, x: ((h := self.cell(x, h)), h), jax.tree.map(lambda s: s.astype(xs.dtype), start), xs)[1]


class Checked(eqx.Module):
    """A model that raises where its input is negative."""

    linear: Any

    def __call__(self, x: Any) -> Any:
        return self.linear(jnp.sqrt(eqx.error_if(x, jnp.any(x < 0), "negative")))


class Iterating(eqx.Module):
    """A loop of unknown length that equinox differentiates by checkpoints."""

    linear: Any

    def __call__(self, x: Any) -> Any:
        step = lambda s: (s[0] + 1, jnp.tanh(self.linear(s[1])) / 2)  # noqa: E731
        return eqx.internal.while_loop(lambda s: jnp.max(jnp.abs(s[1])) > 0.1, step, (0, x), max_steps=16, kind="checkpointed")[1]


EQUINOX: dict[str, tuple[Callable[[Any], Any], Callable[[], Any]]] = {
    "MLP": (lambda k: eqx.nn.MLP(8, 4, 16, 2, key=k), lambda: _normal(3, 8)),
    "MLP of PReLU": (lambda k: eqx.nn.Sequential([eqx.nn.Linear(8, 4, key=k), eqx.nn.Lambda(eqx.nn.PReLU())]),
                     lambda: _normal(3, 8)),
    "CNN": (lambda k: eqx.nn.Sequential([eqx.nn.Conv2d(3, 8, 3, key=k), eqx.nn.MaxPool2d(2, 2), eqx.nn.Lambda(jax.nn.mish),
                                         eqx.nn.AdaptiveAvgPool2d(3)]), lambda: _normal(2, 3, 16, 16)),
    "attention with RoPE": (Attending, lambda: _normal(2, 5, 16)),
    "LSTM": (lambda k: Running(eqx.nn.LSTMCell(4, 8, key=k)), lambda: _normal(2, 6, 4)),
    "GRU": (lambda k: Running(eqx.nn.GRUCell(4, 8, key=k)), lambda: _normal(2, 6, 4)),
    "norms": (lambda k: eqx.nn.Sequential([eqx.nn.LayerNorm(8), eqx.nn.RMSNorm(8), eqx.nn.GroupNorm(2, 8)]),
              lambda: _normal(3, 8)),
    "ConvTranspose": (lambda k: eqx.nn.ConvTranspose1d(4, 6, 3, stride=2, key=k), lambda: _normal(2, 4, 7)),
    "error_if": (lambda k: Checked(eqx.nn.Linear(8, 4, key=k)), lambda: jnp.abs(_normal(3, 8))),
    "checkpointed loop": (lambda k: Iterating(eqx.nn.Linear(8, 8, key=k)), lambda: _normal(3, 8)),
}
ROWS |= {f"equinox {n}": functools.partial(_equinox, *row) for n, row in EQUINOX.items()}


# ---- keras, on JAX

def _keras(make: Callable[[], Any], x: Callable[[], Any]) -> Made:
    model, given = make(), x()
    model.build(given.shape) if not model.built else None
    trained, others = ([v.value for v in vs] for vs in (model.trainable_variables, model.non_trainable_variables))
    return lambda t, o, x: model.stateless_call(t, o, x, training=False)[0], (trained, others, given)


def _application(name: str, size: int) -> Made:
    return _keras(lambda: getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3), classes=5),
                  lambda: _normal(1, size, size, 3))


def _layers(*layers: Any) -> Any:
    return keras.Sequential(list(layers))


KERAS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "MLP": (lambda: _layers(keras.layers.Dense(16, "gelu"), keras.layers.Dense(4, "softmax")), lambda: _normal(3, 8)),
    "CNN": (lambda: _layers(keras.layers.Conv2D(8, 3, activation="relu"), keras.layers.MaxPool2D(),
                            keras.layers.BatchNormalization(),
                            keras.layers.SeparableConv2D(8, 3), keras.layers.GlobalAveragePooling2D()), _IMAGE),
    "LSTM": (lambda: _layers(keras.layers.Bidirectional(keras.layers.LSTM(8))), lambda: _normal(2, 6, 4)),
    "GRU": (lambda: _layers(keras.layers.GRU(8, return_sequences=True)), lambda: _normal(2, 6, 4)),
}
ROWS |= {f"keras {n}": functools.partial(_keras, *row) for n, row in KERAS.items()}
ROWS |= {f"keras {n}": functools.partial(_application, n, 32) for n in ("MobileNet", "EfficientNetB0")}
