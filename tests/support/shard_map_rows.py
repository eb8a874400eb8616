"""Functions that say themselves what each of several devices does (shard_map), beside what they are on whole arrays."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from support.oracle import HAS_XLA
from support.partition_rows import floats, ints

if HAS_XLA:
    import jax
    import jax.numpy as jnp
    from jax import lax


@dataclasses.dataclass(frozen=True)
class Row:
    """`local` is what each device does, and `whole` what all do together. `specs` say how arguments lie, and `out` how the
    results do, on a mesh of these axes."""

    name: str
    local: Callable[..., Any]
    whole: Callable[..., Any]
    arguments: tuple[np.ndarray, ...]
    specs: tuple[tuple[Any, ...], ...]
    out: tuple[Any, ...]
    axes: tuple[str, ...] = ("a",)
    checked: bool = True
    quick: bool = False

    def __str__(self) -> str:
        return self.name


def _turn(axis: str = "a") -> list[tuple[int, int]]:
    count = lax.axis_size(axis)
    return [(k, (k + 1) % count) for k in range(count)]


def _varying(value: Any, axis: str = "a") -> Any:
    return lax.pcast(value, axis, to="varying")


def _stage(h: Any, weights: Any) -> Any:
    return lax.scan(lambda c, w: (jnp.tanh(c @ w), None), h, weights)[0]


def _pipeline(weights: Any, batches: Any) -> Any:
    """GPipe: a stage on each device, and a batch in a stage a step later than in the one before."""
    stages, number, steps = lax.axis_size("a"), lax.axis_index("a"), batches.shape[0]
    results = _varying(jnp.zeros_like(batches))

    def step(carry: Any, k: Any) -> Any:
        came, results = carry
        given = jnp.where(number == 0, batches[jnp.minimum(k, steps - 1)], came)
        made = _stage(given, weights)
        place = k - (stages - 1)
        finished = jnp.where((number == stages - 1) & (place >= 0), made, results[jnp.maximum(place, 0)])
        return (lax.ppermute(made, "a", _turn()), results.at[jnp.maximum(place, 0)].set(finished)), None

    (_, results), _ = lax.scan(step, (results[0], results), jnp.arange(steps + stages - 1))
    return lax.psum(jnp.where(number == stages - 1, results, 0), "a")


def _attention(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("qhd,khd->hqk", q, k) / math.sqrt(q.shape[-1])
    scores = jnp.where(jnp.tril(jnp.ones((len(q), len(k)), bool)), scores, -1e9)
    return jnp.einsum("hqk,khd->qhd", jax.nn.softmax(scores, -1), v)


def _ring_attention(q: Any, k: Any, v: Any) -> Any:
    """Keys and values go round; maxima and sums are kept for what has come by."""
    count, number, size = lax.axis_size("a"), lax.axis_index("a"), len(q)
    rows = number * size + jnp.arange(size)

    def step(carry: Any, turn: Any) -> Any:
        k, v, most, total, made = carry
        columns = (number - turn) % count * size + jnp.arange(size)
        scores = jnp.where(rows[:, None] >= columns, jnp.einsum("qhd,khd->hqk", q, k) / math.sqrt(q.shape[-1]), -1e9)
        more = jnp.maximum(most, scores.max(-1))
        weights, shrunk = jnp.exp(scores - more[..., None]), jnp.exp(most - more)
        total = total * shrunk + weights.sum(-1)
        made = made * shrunk[..., None] + jnp.einsum("hqk,khd->hqd", weights, v)
        return (lax.ppermute(k, "a", _turn()), lax.ppermute(v, "a", _turn()), more, total, made), None

    start = _varying(jnp.full((q.shape[1], size), -1e9, q.dtype))
    first = (k, v, start, start * 0, jnp.moveaxis(q, 1, 0) * 0)
    (_, _, _, total, made), _ = lax.scan(step, first, jnp.arange(count))
    return jnp.moveaxis(made / total[..., None], 0, 1)


def _attention_by_exchange(q: Any, k: Any, v: Any) -> Any:
    """Cut by sequence, and by heads while it attends."""
    q, k, v = (lax.all_to_all(x, "a", 1, 0, tiled=True) for x in (q, k, v))
    return lax.all_to_all(_attention(q, k, v), "a", 0, 1, tiled=True)


def _expert(x: Any, up: Any, down: Any) -> Any:
    return jnp.einsum("ecf,efd->ecd", jax.nn.silu(jnp.einsum("ecd,edf->ecf", x, up)), down)


def _chosen(x: Any, gate: Any, experts: int) -> tuple[Any, Any]:
    """To which expert, and to which of its places, each token goes; and by how much it counts."""
    weights = jax.nn.softmax(x @ gate)
    to = jax.nn.one_hot(jnp.argmax(weights, -1), experts, dtype=jnp.int32)
    places = (jnp.cumsum(to, 0) - 1) * to
    return jnp.einsum("te,tec->tec", to, jax.nn.one_hot(places, len(x))).astype(x.dtype), weights.max(-1)


def _experts(x: Any, gate: Any, up: Any, down: Any) -> Any:
    """Some experts on each device; tokens go to theirs and come back."""
    to, weights = _chosen(x, gate, len(up) * lax.axis_size("a"))
    sent = lax.all_to_all(jnp.einsum("tec,td->ecd", to, x), "a", 0, 1, tiled=True)
    came = lax.all_to_all(_expert(sent, up, down), "a", 1, 0, tiled=True)
    return jnp.einsum("tec,ecd->td", to, came) * weights[:, None]


def _all_experts(x: Any, gate: Any, up: Any, down: Any) -> Any:
    to, weights = _chosen(x, gate, len(up))
    return jnp.einsum("tec,ecd->td", to, _expert(jnp.einsum("tec,td->ecd", to, x), up, down)) * weights[:, None]


def _rows_of_table(table: Any, tokens: Any) -> Any:
    """Rows that are elsewhere count nothing here."""
    place = tokens - lax.axis_index("a") * len(table)
    here = (place >= 0) & (place < len(table))
    return lax.psum(jnp.where(here[:, None], table[jnp.clip(place, 0, len(table) - 1)], 0), "a")


def _cross_entropy(x: Any, w: Any, labels: Any) -> Any:
    return (jax.nn.logsumexp(x @ w, -1) - jnp.take_along_axis(x @ w, labels[:, None], 1)[:, 0])[None]


def _cross_entropy_by_vocabulary(x: Any, w: Any, labels: Any) -> Any:
    logits, count = x @ w, w.shape[1]
    most = lax.pmax(lax.stop_gradient(logits.max(-1)), "a")
    total = lax.psum(jnp.exp(logits - most[:, None]).sum(-1), "a")
    place = labels - lax.axis_index("a") * count
    own = jnp.take_along_axis(logits, jnp.clip(place, 0, count - 1)[:, None], 1)[:, 0]
    own = lax.psum(jnp.where((place >= 0) & (place < count), own, 0), "a")
    return (jnp.log(total) + most - own)[None]


def _loss(w: Any, x: Any) -> Any:
    return (jnp.tanh(x @ w) ** 2).sum()


def _step(w: Any, m: Any, x: Any) -> Any:
    m = 0.9 * m + jax.grad(_loss)(w, x)
    return w - 0.1 * m


def _step_in_pieces(w: Any, m: Any, x: Any) -> Any:
    """ZeRO: each device has a piece of the weights and of the momentum, and a part of the batch."""
    whole = lax.all_gather(w, "a", tiled=True)
    m = 0.9 * m + lax.psum_scatter(jax.grad(_loss)(whole, x), "a", tiled=True)
    return w - 0.1 * m


def _batch_norm(x: Any, g: Any) -> Any:
    mean = lax.pmean(x.mean(0), "a")
    return (x - mean) * lax.rsqrt(lax.pmean(((x - mean) ** 2).mean(0), "a") + 1e-3) * g


def _whole_batch_norm(x: Any, g: Any) -> Any:
    return (x - x.mean(0)) * lax.rsqrt(x.var(0) + 1e-3) * g


def _smoothed(x: Any) -> Any:
    """With a row of each neighbour; at the ends there is none."""
    forth = _turn()[:-1]
    before = lax.ppermute(x[-1:], "a", forth)
    behind = lax.ppermute(x[:1], "a", [(b, a) for a, b in forth])
    long = jnp.concatenate([before, x, behind])
    return jnp.sin(long[:-2]) + x * long[2:]


def _whole_smoothed(x: Any) -> Any:
    long = jnp.pad(x, ((1, 1), (0, 0)))
    return jnp.sin(long[:-2]) + x * long[2:]


def _sums(x: Any) -> Any:
    own = jnp.cumsum(x, 0)
    others = lax.all_gather(own[-1], "a")
    return own + jnp.where((jnp.arange(len(others)) < lax.axis_index("a"))[:, None], others, 0).sum(0)


def _best(x: Any) -> Any:
    """The best of the best of each."""
    values, places = lax.top_k(x, 2)
    values = lax.all_gather(values, "a", axis=1, tiled=True)
    places = lax.all_gather(places + lax.axis_index("a") * x.shape[1], "a", axis=1, tiled=True)
    values, found = lax.top_k(values, 2)
    return values + 0.01 * jnp.take_along_axis(places, found, 1)


def _whole_best(x: Any) -> Any:
    values, places = lax.top_k(x, 2)
    return values + 0.01 * places


def _ring_product(x: Any, w: Any) -> Any:
    """Pieces of the weights go round while they are multiplied."""
    def step(carry: Any, turn: Any) -> Any:
        w, made = carry
        start = (lax.axis_index("a") - turn) % lax.axis_size("a") * len(w)
        made += lax.dynamic_slice_in_dim(x, start, len(w), 1) @ w
        return (lax.ppermute(w, "a", _turn()), made), None

    return lax.scan(step, (w, _varying(jnp.zeros((len(x), w.shape[1]), x.dtype))), jnp.arange(lax.axis_size("a")))[0][1]


def _layers(x: Any, up: Any, down: Any) -> Any:
    """Hidden columns over devices, a sum behind each layer, which is computed again on the way back."""
    @jax.checkpoint
    def layer(h: Any, w: Any) -> Any:
        return h + lax.psum(jnp.tanh(h @ w[0]) @ w[1], "b"), None

    return lax.scan(layer, x, (up, down))[0]


def _whole_layers(x: Any, up: Any, down: Any) -> Any:
    return lax.scan(lambda h, w: (h + jnp.tanh(h @ w[0]) @ w[1], None), x, (up, down))[0]


def _product_in_space(x: Any, w: Any) -> Any:
    """Rows along a, what is summed over along b, columns along c."""
    return jnp.sin(lax.psum(x @ w, "b")) + lax.psum(x.sum(), ("a", "b"))


LINE, HEADS = (("a",),), (floats(16, 8, 4),) * 3
ROWS = [
    Row("pipeline", _pipeline, lambda w, x: jax.vmap(lambda b: _stage(b, w))(x), (floats(8, 4, 4), floats(5, 3, 4)),
        (("a",), ()), ()),
    Row("ring attention", _ring_attention, _attention, HEADS, LINE * 3, ("a",)),
    Row("attention by exchange", _attention_by_exchange, _attention, HEADS, LINE * 3, ("a",)),
    Row("experts", _experts, _all_experts, (floats(16, 4), floats(4, 8), floats(8, 4, 6), floats(8, 6, 4)),
        (("a",), (), ("a",), ("a",)), ("a",), quick=True),
    Row("rows of a table", _rows_of_table, lambda t, i: t[i], (floats(16, 4), ints(16, 8)), (("a",), ()), ()),
    Row("cross entropy by vocabulary", _cross_entropy_by_vocabulary, _cross_entropy,
        (floats(8, 4), floats(4, 16), ints(16, 8)), ((), (None, "a"), ()), ()),
    Row("step in pieces", _step_in_pieces, _step, (floats(16, 4), floats(16, 4), floats(8, 16)), LINE * 3, ("a",)),
    Row("batch norm", _batch_norm, _whole_batch_norm, (floats(16, 4), floats(4)), (("a",), ()), ("a",)),
    Row("smoothing", _smoothed, _whole_smoothed, (floats(16, 4),), LINE, ("a",)),
    Row("sums over devices", _sums, lambda x: jnp.cumsum(x, 0), (floats(16, 4),), LINE, ("a",)),
    Row("best of the best", _best, _whole_best, (floats(4, 16),), ((None, "a"),), (), checked=False),
    Row("ring product", _ring_product, lambda x, w: x @ w, (floats(8, 16), floats(16, 4)), (("a",), ("a",)), ("a",)),
    Row("layers", _layers, _whole_layers, (floats(8, 4), floats(3, 4, 8), floats(3, 8, 4)),
        (("a",), (None, None, "b"), (None, "b")), ("a",), ("a", "b")),
    Row("product in space", _product_in_space, lambda x, w: jnp.sin(x @ w) + x.sum(), (floats(8, 8), floats(8, 8)),
        (("a", "b"), ("b", "c")), ("a", "c"), ("a", "b", "c")),
]
