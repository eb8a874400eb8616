"""Where derivatives of text from JAX, which has lost the rules of JAX's authors, are not JAX's: at points where a select hides
the function, or where the rule has no number. Each row is stated with what both give, and one that fails says that a side has
changed. `from_jax` and `jax.export` keep the rules, and give JAX's numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("jax")
import jax
import jax.numpy as jnp
from jax.scipy import special

import xla_torch
from support.jax_oracle import evaluated, program

NAN, INF = np.nan, np.inf


class Edge(NamedTuple):
    """A derivative with respect to one operand at one point."""

    function: Callable[..., Any]
    point: tuple[float, ...]
    operand: int
    ours: float
    theirs: float


@jax.custom_jvp
def weighted(logits: Any, weights: Any) -> Any:
    """As optax's `safe_softmax_cross_entropy` weighs: a rule says what the select hides."""
    return jnp.where(weights != 0.0, weights * jax.nn.log_sigmoid(logits), 0.0)


@weighted.defjvp
def _(primals: Any, tangents: Any) -> tuple[Any, Any]:
    (logits, weights), (logits_dot, weights_dot) = primals, tangents
    slope = weights * jax.nn.sigmoid(-logits)
    return weighted(logits, weights), slope * logits_dot + jax.nn.log_sigmoid(logits) * weights_dot


def incomplete(x: Any) -> Any:
    return special.gammainc(2.5, x)


STATED: dict[str, tuple[str, list[Edge]]] = {
    "hidden": ("a select hides the function at its point, and its ops are also those of one without a slope there", [
        Edge(weighted, (0.5, 0.0), 1, 0.0, -0.47407698418010663),
        Edge(special.owens_t, (0.0, 1.0), 1, 0.0, 0.07957747154594767),
        Edge(special.owens_t, (1.0, 1.0), 1, 0.0, 0.029274915762159577),
        Edge(special.owens_t, (1.0, INF), 0, NAN, -0.12098536225957168)]),
    "limits": ("the rule has no number where the function's slope has one", [
        Edge(special.digamma, (INF,), 0, 0.0, NAN), Edge(incomplete, (INF,), 0, 0.0, NAN),
        Edge(special.spence, (2.0,), 0, -0.6931471805599453, NAN)]),
    "constants": ("the ops are constant where the function is infinite or not defined, the rule has no number", [
        Edge(special.entr, (-1.0,), 0, 0.0, NAN)]),
    "zeros": ("0 log 0 is 0, whatever stands beside it; infinity times 1 / infinity is 1 by the ops", [
        Edge(special.xlogy, (0.0, 0.0), 1, 0.0, NAN), Edge(special.xlog1py, (0.0, -1.0), 1, 0.0, NAN),
        Edge(special.xlogy, (INF, INF), 1, 1.0, NAN), Edge(special.xlog1py, (INF, INF), 1, 1.0, NAN)]),
}


@pytest.mark.parametrize("edge", [e for _, edges in STATED.values() for e in edges],
                         ids=lambda e: f"{e.function.__name__}-{e.point}-{e.operand}")
def test_what_differs_is_as_stated(edge: Edge) -> None:
    arguments = [np.array([a]) for a in edge.point]
    ours = xla_torch.vjp(program(edge.function, *arguments), edge.operand).run_numpy(*arguments, np.ones(1))[0]
    np.testing.assert_allclose(ours, edge.ours, rtol=1e-9)
    theirs = evaluated(lambda *a: jax.vjp(edge.function, *a)[1](jnp.ones(1))[edge.operand], *arguments)
    np.testing.assert_allclose(theirs, edge.theirs, rtol=1e-9)
    assert not np.array_equal(ours, theirs, equal_nan=True)


@pytest.mark.parametrize("edge", STATED["hidden"][1], ids=lambda e: f"{e.function.__name__}-{e.point}-{e.operand}")
def test_rules_that_are_kept_give_those_of_jax(edge: Edge) -> None:
    arguments = [np.array([a]) for a in edge.point]
    kept = xla_torch.from_jax(edge.function, *arguments).computation
    got = xla_torch.vjp(kept, edge.operand).run_numpy(*arguments, np.ones(1))[0]
    np.testing.assert_allclose(got, edge.theirs, rtol=1e-9)
