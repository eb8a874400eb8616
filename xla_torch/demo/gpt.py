"""The demo's model, in JAX: the loss of a small transformer that predicts the next character of a text.

    python -m xla_torch.demo.gpt

writes `gpt_loss.hlo` (this function, lowered) and `gpt_data.npz` (initial parameters, one batch of characters, and JAX's
own loss and gradients for them) beside this file. Only this script needs jax; the demo runs without it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .text import CONTEXT, VOCABULARY, batches

LAYERS, WIDTH, HEADS = 2, 64, 4
HERE = Path(__file__).parent


def initial_parameters(seed: int, width: int = WIDTH, context: int = CONTEXT) -> dict[str, Any]:
    """Embeddings, and for each layer attention and a two-layer perceptron, each behind a layer norm."""
    random = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> np.ndarray:
        return (random.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32)

    def layer() -> dict[str, Any]:
        return {"norm1": np.ones(width, np.float32), "qkv": matrix(width, 3 * width), "out": matrix(width, width) / 2,
                "norm2": np.ones(width, np.float32), "up": matrix(width, 4 * width),
                "down": matrix(4 * width, width) / 2}

    return {"characters": matrix(VOCABULARY, width), "positions": matrix(context, width),
            "layers": [layer() for _ in range(LAYERS)], "norm": np.ones(width, np.float32)}


def normalise(x: jax.Array, scale: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale


def attention(x: jax.Array, layer: dict[str, Any]) -> jax.Array:
    batch, length, width = x.shape
    q, k, v = (part.reshape(batch, length, HEADS, -1) for part in jnp.split(x @ layer["qkv"], 3, axis=-1))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(width / HEADS)
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
    return mixed.reshape(batch, length, width) @ layer["out"]


def gpt_loss(p: dict[str, Any], characters: jax.typing.ArrayLike) -> jax.Array:
    """Mean cross-entropy, in nats, of each character given those before it. `characters` is s32[batch, context + 1]."""
    characters = jnp.asarray(characters)
    given, wanted = characters[:, :-1], characters[:, 1:]
    x = p["characters"][given] + p["positions"]
    for layer in p["layers"]:
        x = x + attention(normalise(x, layer["norm1"]), layer)
        x = x + jax.nn.gelu(normalise(x, layer["norm2"]) @ layer["up"]) @ layer["down"]
    logits = normalise(x, p["norm"]) @ p["characters"].T
    log_probabilities = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(log_probabilities, wanted[..., None], axis=-1).mean()


def main() -> None:
    jax.config.update("jax_traceback_in_locations_limit", 0)  # op names, but no paths of this machine
    parameters, characters = initial_parameters(seed=0), next(batches(seed=0))
    lowered = jax.jit(gpt_loss).lower(parameters, characters)
    (HERE / "gpt_loss.hlo").write_text(vouched(hlo_text(lowered)))
    loss, gradients = jax.value_and_grad(gpt_loss)(parameters, characters)
    leaves = jax.tree_util.tree_leaves(parameters)
    arrays = {f"parameter{i}": leaf for i, leaf in enumerate(leaves)}
    arrays |= {f"gradient{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree_util.tree_leaves(gradients))}
    np.savez_compressed(HERE / "gpt_data.npz", characters=characters, loss=np.asarray(loss), **arrays)  # pyright: ignore


def vouched(text: str) -> str:
    """The text with a header that says that the derivatives of its ops are meant: `gpt_loss` has no rules of its own."""
    first, _, rest = text.partition("\n")
    return f'{first}, frontend_attributes={{xla_torch.derivatives="as written"}}\n{rest}'


def hlo_text(lowered: Any) -> str:
    """HLO in full, with JAX's op names in its metadata."""
    from jaxlib import _hlo  # pyright: ignore[reportAttributeAccessIssue]

    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    return lowered.compiler_ir("hlo").get_hlo_module().to_string(options)


if __name__ == "__main__":
    main()
