"""Models of flax.nnx, which are objects with state, as functions of that state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .bindings import OptionalModule, jax, require

nnx: Any = OptionalModule("flax.nnx")


def as_function(model: Any) -> tuple[Callable[..., Any], Any, list[int]]:
    """A model as a function of its state and of the model's own arguments, the state, and a list that tracing the function fills
    with the numbers of those leaves of the state that a call replaces. The function returns the result and what these are
    afterwards.

    Raises MissingDependency where flax is not installed.
    """
    require("flax", "from_nnx", extra="flax")
    graph, state = nnx.split(model)
    replaced: list[int] = []

    def function(state: Any, *args: Any, **kwargs: Any) -> Any:
        before = jax.tree_util.tree_leaves(state)
        merged = nnx.merge(graph, state)
        result = merged(*args, **kwargs)
        after = jax.tree_util.tree_leaves(nnx.state(merged))
        replaced[:] = [k for k, (old, new) in enumerate(zip(before, after, strict=True)) if old is not new]
        return result, [after[k] for k in replaced]

    return function, state, replaced
