"""JAX functions as torch functions: trees of arrays become trees of tensors, and what runs is the traced program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

from ..core.errors import InvalidArgument
from ..hlo.derivatives import AS_WRITTEN, check_choice
from ..hlo.ir import Computation
from ..jax_interop.jax import Lowered, abstract_array, trace
from ..jax_interop.jax_derivatives import JaxDerivatives
from ..pytree.structure import Structure
from ..storage.dtypes import type_from_torch
from .loading import from_lowered
from .tree_function import TreeFunction


def from_jax(function: Callable[..., Any], *example_args: Any, static_argnums: int | Sequence[int] = (),
             static_argnames: str | Sequence[str] = (), derivatives: Literal["jax", "xla", "as written"] = "jax",
             **example_kwargs: Any) -> TreeFunction:
    """Trace a JAX function once and return it as a function of torch tensors.

    Arguments may be pytrees (tuples, lists, dicts, registered classes, Flax modules and their states). Leaves are torch
    tensors, NumPy or JAX arrays, typed PRNG keys, `jax.ShapeDtypeStruct`s or Python numbers. Only shapes and dtypes of the
    examples matter. `static_argnums` and `static_argnames` are as in `jax.jit`: these arguments become part of the program.
    `function` may be jitted; donated arguments have no effect. Python callbacks (`jax.pure_callback`, `io_callback`,
    `debug.callback`) run in this process, which keeps them alive.

    Derivatives are JAX's, including `stop_gradient`, `custom_jvp` and `custom_vjp`, and are traced when first used. With
    `derivatives="xla"` they are derived from the ops. `"as written"` does the same, and marks the written program so (see
    `load`).

    Raises MissingDependency without jax; errors of the JAX trace are passed on.

    >>> import jax.numpy as jnp
    >>> weights, x = {"w": np.eye(2, dtype=np.float32)}, np.ones(2, np.float32)
    >>> program = xla_torch.from_jax(lambda weights, x: jnp.tanh(x @ weights["w"]), weights, x)
    >>> program({"w": torch.eye(2)}, torch.tensor([0.0, 1.0]))
    tensor([0.0000, 0.7616])
    """
    check_choice(derivatives, ("jax", "xla", "as written"), "from_jax")
    if not callable(function):
        raise InvalidArgument("not a function", subject="from_jax", got=type(function).__name__, expected="a JAX function")
    traced = trace(function, example_args, example_kwargs, _abstract, static_argnums, static_argnames)
    computation = from_lowered(traced.program)
    if derivatives == "as written":
        computation.entry.derivatives = AS_WRITTEN
    elif derivatives == "xla":
        computation.program.by_ops = True
    else:
        computation.entry.derivatives = JaxDerivatives(traced.name, traced.jaxpr, _canonical, function=traced.function)
    return TreeFunction(computation, Structure.from_jax(traced.in_tree), Structure.from_jax(traced.out_tree), traced.signature)


def _canonical(program: Lowered) -> Computation:
    return from_lowered(program).program.canonical


def _abstract(leaf: Any) -> Any:
    """An example as JAX may see it: a tensor by its shape and dtype, all else as it is."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    element_type = type_from_torch(leaf.dtype)
    if element_type is None or element_type.numpy is None:
        raise InvalidArgument("JAX has no dtype for this tensor", subject="from_jax", got=leaf.dtype)
    return abstract_array(tuple(leaf.shape), element_type.numpy)
