"""Functions of a few arrays that put several ops together as programs of JAX users do: quantised products, pooling, clustering,
decoding, filters. In JAX and, where it has them, in torch. Needs jax."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

from benchmarks.kinds import Kind, drawn, numbers, placed

# ------------------------------------------------------------------------------------------- integers, pooling, places


def int8_products(size: int = 1024) -> Kind:
    """Sums in s32, as quantised layers have them."""
    a, b = (numbers(256, size, size, seed=seed).astype(np.uint8).view(np.int8) for seed in (1, 2))
    return Kind(lambda a, b: lax.dot(a, b, preferred_element_type=jnp.int32), torch._int_mm, [a, b])


def int8_layer(rows: int = 1024, width: int = 1024) -> Kind:
    """A layer whose activations are quantised on their way in, row by row."""
    weight = numbers(255, width, width).astype(np.int64) - 127

    def function(x: Any, weight: Any, scale: Any) -> Any:
        step = jnp.max(jnp.abs(x), 1, keepdims=True) / 127
        q = jnp.round(x / step).astype(jnp.int8)
        sums = lax.dot_general(q, weight, (((1,), (1,)), ((), ())), preferred_element_type=jnp.int32)
        return sums.astype(jnp.float32) * step * scale

    def by_hand(x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        step = x.abs().amax(1, keepdim=True) / 127
        q = torch.round(x / step).to(torch.int8)
        return torch._int_mm(q, weight.T).float() * step * scale

    return Kind(function, by_hand, [drawn(rows, width), weight.astype(np.int8), np.abs(drawn(width, seed=3))])


def pooling_gradient(images: int = 8, channels: int = 32, size: int = 32) -> Kind:
    """Select-and-scatter: a cotangent back to the largest of each window."""
    def pooled(x: Any) -> Any:
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), "SAME")

    def by_hand(x: torch.Tensor, ct: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        padded = torch.nn.functional.pad(x, (0, 1, 0, 1), value=-math.inf)
        return torch.autograd.grad(torch.nn.functional.max_pool2d(padded, 3, 2), x, ct)[0]

    return Kind(lambda x, ct: jax.vjp(pooled, x)[1](ct)[0], by_hand,
                [drawn(images, channels, size, size), drawn(images, channels, size // 2, size // 2, seed=1)])


def even_pooling_gradient(images: int = 8, size: int = 64, channels: int = 32) -> Kind:
    """The same with windows that do not overlap, channels last."""
    def pooled(x: Any) -> Any:
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    def by_hand(x: torch.Tensor, ct: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        found = torch.nn.functional.max_pool2d(x.permute(0, 3, 1, 2), 2).permute(0, 2, 3, 1)
        return torch.autograd.grad(found, x, ct)[0]

    return Kind(lambda x, ct: jax.vjp(pooled, x)[1](ct)[0], by_hand,
                [drawn(images, size, size, channels), drawn(images, size // 2, size // 2, channels, seed=1)])


def take_fill(rows: int = 10_000, width: int = 64, count: int = 16_384) -> Kind:
    """Rows, NaN where there is none."""
    def by_hand(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        i = torch.where(i < 0, i + rows, i)
        inside = (i >= 0) & (i < rows)
        found = x.index_select(0, i.clamp(0, rows - 1))
        return found if bool(inside.all()) else found.masked_fill_(~inside[:, None], math.nan)

    return Kind(lambda x, i: jnp.take(x, i, axis=0, mode="fill"), by_hand, [drawn(rows, width), numbers(rows, count)])


def take_fill_along(rows: int = 1024, width: int = 512) -> Kind:
    """An element of each row for each column, as losses and sorts take them."""
    return Kind(lambda x, i: jnp.take_along_axis(x, i, axis=1, mode="fill"), lambda x, i: x.gather(1, i.long()),
                [drawn(rows, width), numbers(width, rows, width)])


def one_element_of_rows(rows: int = 8192, classes: int = 256) -> Kind:
    """Cross entropy and its gradient, the label's logit taken by place."""
    def loss(x: Any, labels: Any) -> Any:
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(x), labels[:, None], axis=1))

    def by_hand(x: torch.Tensor, labels: torch.Tensor) -> Any:
        x = x.detach().requires_grad_()
        value = torch.nn.functional.cross_entropy(x, labels.long())
        return value.detach(), torch.autograd.grad(value, x)[0]

    return Kind(jax.value_and_grad(loss), by_hand, [drawn(rows, classes), numbers(classes, rows)])


# ------------------------------------------------------------------------------------------- sums of exponentials


def sinkhorn(size: int = 200, steps: int = 40) -> Kind:
    """Transport between two clouds: the logarithms of scales, by rows and by columns in turn."""
    def function(cost: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            f, g = carry
            f = -jax.nn.logsumexp(g[None, :] - cost, axis=1)
            return (f, -jax.nn.logsumexp(f[:, None] - cost, axis=0)), None

        return lax.scan(step, (jnp.zeros(size), jnp.zeros(size)), None, length=steps)[0]

    def by_hand(cost: torch.Tensor) -> Any:
        f = g = torch.zeros(size, device=cost.device)
        for _ in range(steps):
            f = -torch.logsumexp(g[None, :] - cost, 1)
            g = -torch.logsumexp(f[:, None] - cost, 0)
        return f, g

    return Kind(function, by_hand, [np.abs(drawn(size, size))])


def alignment(times: int = 100, batch: int = 16, labels: int = 41) -> Kind:
    """What connectionist temporal classification sums: all ways through labels and blanks."""
    low = np.float32(-1e30)

    def function(scores: Any) -> Any:
        def step(alpha: Any, now: Any) -> Any:
            one = jnp.concatenate([jnp.full((batch, 1), low), alpha[:, :-1]], 1)
            two = jnp.concatenate([jnp.full((batch, 2), low), alpha[:, :-2]], 1)
            return jax.nn.logsumexp(jnp.stack([alpha, one, two]), axis=0) + now, None

        return lax.scan(step, jnp.full((batch, labels), low).at[:, :2].set(0.0), scores)[0]

    def by_hand(scores: torch.Tensor) -> torch.Tensor:
        alpha = torch.full((batch, labels), float(low), device=scores.device)
        alpha[:, :2] = 0
        for now in scores:
            one = torch.nn.functional.pad(alpha[:, :-1], (1, 0), value=float(low))
            two = torch.nn.functional.pad(alpha[:, :-2], (2, 0), value=float(low))
            alpha = torch.logsumexp(torch.stack([alpha, one, two]), 0) + now
        return alpha

    return Kind(function, by_hand, [drawn(times, batch, labels)])


def monoid_logsumexp(rows: int = 1024, width: int = 512) -> Kind:
    """Maxima and scaled sums in one reduction of pairs."""
    def join(one: Any, other: Any) -> Any:
        (m, s), (n, t) = one, other
        top = jnp.maximum(m, n)
        return top, s * jnp.exp(m - top) + t * jnp.exp(n - top)

    def function(x: Any) -> Any:
        top, total = lax.reduce((x, jnp.ones_like(x)), (np.float32(-3e38), np.float32(0)), join, (1,))
        return top + jnp.log(total)

    return Kind(function, lambda x: torch.logsumexp(x, 1), [drawn(rows, width)])


def column_softmax(rows: int = 1024, width: int = 1024) -> Kind:
    return Kind(lambda x: jax.nn.softmax(x, axis=0), lambda x: torch.softmax(x, 0), [drawn(rows, width)])


# ------------------------------------------------------------------------------------------- models


def k_means(points: int = 2000, width: int = 16, clusters: int = 16, steps: int = 10) -> Kind:
    def function(x: Any) -> Any:
        def step(state: Any) -> Any:
            count, centres, _ = state
            near = jnp.argmin(((centres ** 2).sum(1) - 2 * x @ centres.T), axis=1)
            which = jax.nn.one_hot(near, clusters, dtype=x.dtype)
            found = which.T @ x / jnp.maximum(which.sum(0)[:, None], 1)
            return count + 1, found, jnp.abs(found - centres).max()

        return lax.while_loop(lambda s: (s[0] < steps) & (s[2] > 1e-6), step, (0, x[:clusters], jnp.float32(1)))[1]

    def by_hand(x: torch.Tensor) -> torch.Tensor:
        centres = x[:clusters]
        for _ in range(steps):
            near = torch.argmin((centres ** 2).sum(1) - 2 * x @ centres.T, 1)
            which = torch.nn.functional.one_hot(near, clusters).to(x.dtype)
            before, centres = centres, which.T @ x / which.sum(0)[:, None].clamp(min=1)
            if not float((centres - before).abs().max()) > 1e-6:
                break
        return centres

    return Kind(function, by_hand, [drawn(points, width)])


def experts(tokens: int = 512, width: int = 64, hidden: int = 128, count: int = 8) -> Kind:
    """The two best experts of each token, all computed and then mixed."""
    def function(x: Any, gate: Any, up: Any, down: Any) -> Any:
        best, which = lax.top_k(x @ gate, 2)
        weight = (jax.nn.one_hot(which, count) * jax.nn.softmax(best)[..., None]).sum(1)
        inner = jax.nn.relu(jnp.einsum("td,edh->teh", x, up))
        return jnp.einsum("teh,ehd,te->td", inner, down, weight)

    def by_hand(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
        best, which = torch.topk(x @ gate, 2)
        weight = torch.zeros(tokens, count, device=x.device).scatter_(1, which, torch.softmax(best, -1))
        inner = torch.relu(torch.matmul(x, up)) * weight.T[..., None]
        return torch.bmm(inner, down).sum(0)

    return Kind(function, by_hand, [drawn(tokens, width), drawn(width, count, seed=1), drawn(count, width, hidden, seed=2),
                                    drawn(count, hidden, width, seed=3)])


def cache_in_a_scan(steps: int = 64, heads: int = 4, width: int = 32) -> Kind:
    """Decoding: at each step a key and a value are written, and all so far attended to."""
    def function(q: Any, k: Any, v: Any) -> Any:
        def step(carry: Any, now: Any) -> Any:
            keys, values, t = carry
            q, k, v = now
            keys = lax.dynamic_update_slice(keys, k[:, None], (0, t, 0))
            values = lax.dynamic_update_slice(values, v[:, None], (0, t, 0))
            scores = jnp.einsum("hd,htd->ht", q, keys) / math.sqrt(width)
            scores = jnp.where(jnp.arange(steps) <= t, scores, -1e30)
            return (keys, values, t + 1), jnp.einsum("ht,htd->hd", jax.nn.softmax(scores), values)

        empty = jnp.zeros((heads, steps, width))
        return lax.scan(step, (empty, empty, 0), (q, k, v))[1]

    def by_hand(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        keys, values = torch.zeros(2, heads, steps, width, device=q.device)
        found = []
        for t in range(steps):
            keys[:, t], values[:, t] = k[t], v[t]
            seen = keys[:, :t + 1], values[:, :t + 1]
            found.append(torch.nn.functional.scaled_dot_product_attention(q[t][:, None], *seen)[:, 0])
        return torch.stack(found)

    return Kind(function, by_hand, [drawn(steps, heads, width, seed=seed) for seed in range(3)])


def gaussian_process(points: int = 256, width: int = 4) -> Kind:
    """The likelihood of values at points, and its gradient by the lengths."""
    def likelihood(length: Any, x: Any, y: Any) -> Any:
        z = x / length
        square = (z ** 2).sum(1)
        kernel = jnp.exp(-0.5 * (square[:, None] + square[None, :] - 2 * z @ z.T)) + 0.1 * jnp.eye(points)
        low = jnp.linalg.cholesky(kernel)
        solved = jax.scipy.linalg.solve_triangular(low, y, lower=True)
        return 0.5 * (solved ** 2).sum() + jnp.log(jnp.diag(low)).sum()

    def by_hand(length: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> Any:
        length = length.detach().requires_grad_()
        z = x / length
        square = (z ** 2).sum(1)
        kernel = torch.exp(-0.5 * (square[:, None] + square[None, :] - 2 * z @ z.T)) + 0.1 * torch.eye(points, device=x.device)
        low = torch.linalg.cholesky(kernel)
        solved = torch.linalg.solve_triangular(low, y[:, None], upper=False)
        value = 0.5 * (solved ** 2).sum() + torch.log(torch.diagonal(low)).sum()
        return value.detach(), torch.autograd.grad(value, length)[0]

    arguments = [np.ones(width, np.float32), drawn(points, width), drawn(points, seed=1)]
    return Kind(jax.value_and_grad(likelihood), by_hand, arguments)


# ------------------------------------------------------------------------------------------- order, search, waves


def order(rows: int = 256, width: int = 512) -> Kind:
    """Places by size, and the best of them."""
    def by_hand(x: torch.Tensor) -> Any:
        return torch.argsort(x, dim=1, stable=True).int(), torch.topk(x, 8, 1).values

    return Kind(lambda x: (jnp.argsort(x, 1), lax.top_k(x, 8)[0]), by_hand, [drawn(rows, width)])


def beam_search(steps: int = 32, beams: int = 8, words: int = 500) -> Kind:
    """The best ways through scores that depend on the last word."""
    def function(scores: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            best, last = carry
            total = (best[:, None] + jax.nn.log_softmax(scores[last])).reshape(-1)
            best, place = lax.top_k(total, beams)
            return (best, place % words), (place // words, place % words)

        return lax.scan(step, (jnp.zeros(beams), jnp.arange(beams)), None, length=steps)

    def by_hand(scores: torch.Tensor) -> Any:
        best, last, found = *(make(beams, device=scores.device) for make in (torch.zeros, torch.arange)), []
        for _ in range(steps):
            best, place = torch.topk((best[:, None] + torch.log_softmax(scores[last], -1)).reshape(-1), beams)
            last = place % words
            found.append((place // words, last))
        return (best, last), tuple(torch.stack(part) for part in zip(*found, strict=True))

    return Kind(function, by_hand, [drawn(words, words)])


def particles(steps: int = 50, count: int = 500) -> Kind:
    """Systematic resampling of particles at each step. Weights are rounded, so that their sums are exact: one particle that the
    last digit of a sum chooses is another future of all."""
    def function(seen: Any, noise: Any) -> Any:
        def step(x: Any, now: Any) -> Any:
            y, e = now
            x = 0.9 * x + e
            weight = jnp.round(jax.nn.softmax(-0.5 * (x - y) ** 2) * 65536) / 65536
            chosen = jnp.searchsorted(jnp.cumsum(weight), (jnp.arange(count) + 0.5) / count)
            return x[jnp.minimum(chosen, count - 1)], (weight * x).sum()

        return lax.scan(step, jnp.zeros(count), (seen, noise))[1]

    def by_hand(seen: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        x, places, found = torch.zeros_like(noise[0]), (torch.arange(count, device=noise.device) + 0.5) / count, []
        for y, e in zip(seen, noise, strict=True):
            x = 0.9 * x + e
            weight = torch.round(torch.softmax(-0.5 * (x - y) ** 2, 0) * 65536) / 65536
            found.append((weight * x).sum())
            x = x[torch.searchsorted(torch.cumsum(weight, 0), places).clamp(max=count - 1)]
        return torch.stack(found)

    return Kind(function, by_hand, [drawn(steps), drawn(steps, count, seed=1)])


def waves(size: int = 64, steps: int = 40) -> Kind:
    """A wave equation's steps, each there and back by Fourier transforms."""
    place = np.fft.fftfreq(size).astype(np.float32) * size
    turn = np.exp(-0.01j * (place[:, None] ** 2 + place[None, :] ** 2)).astype(np.complex64)

    def step(x: Any, turn: Any, fft: Any) -> Any:
        return fft.ifft2(fft.fft2(x) * turn) * 0.99

    def function(re: Any, im: Any) -> Any:
        found = lax.scan(lambda x, _: (step(x, turn, jnp.fft), None), lax.complex(re, im), None, length=steps)[0]
        return found.real, found.imag

    def by_hand(re: torch.Tensor, im: torch.Tensor) -> Any:
        x, by = torch.complex(re, im), placed(re, turn)
        for _ in range(steps):
            x = step(x, by, torch.fft)
        return x.real, x.imag

    return Kind(function, by_hand, [drawn(size, size), drawn(size, size, seed=1)])


MORE_KINDS: dict[str, Callable[[], Kind]] = {
    "int8 products": int8_products, "int8 layer": int8_layer, "max pooling's gradient": pooling_gradient,
    "max pooling's gradient, windows apart": even_pooling_gradient, "rows or NaN": take_fill,
    "an element for each or NaN": take_fill_along, "cross entropy by place": one_element_of_rows, "Sinkhorn": sinkhorn,
    "alignments summed": alignment, "log-sum-exp of pairs": monoid_logsumexp, "softmax of columns": column_softmax,
    "k-means": k_means, "mixture of experts": experts, "key and value cache, 64 steps": cache_in_a_scan,
    "Gaussian process": gaussian_process, "argsort and top 8": order, "beam search": beam_search, "particle filter": particles,
    "waves by Fourier transforms": waves,
}
