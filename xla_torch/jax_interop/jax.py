"""JAX functions traced to StableHLO. jax is needed to trace; what runs is the traced program."""

from __future__ import annotations

import importlib
import inspect
import io
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..core.errors import InvalidArgument
from ..pytree.nodes import Static
from ..pytree.signatures import Signature
from .bindings import jax, require
from .jaxprs import interpreting_kernels


class Lowered(NamedTuple):
    """StableHLO bytecode over flat leaves, and the Python functions that it calls, by number."""

    bytecode: bytes
    callbacks: Sequence[Callable[..., Any]] = ()


class Traced(NamedTuple):
    """A traced function: its program, its name, the jaxpr it was lowered from, the function over flat leaves, JAX's trees of its
    arguments and of its result, and how it is called."""

    program: Lowered
    name: str
    jaxpr: Any
    function: Callable[..., list[Any]]
    in_tree: Any
    out_tree: Any
    signature: Signature


def trace(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], abstract: Callable[[Any], Any],
          static_argnums: int | Sequence[int] = (), static_argnames: str | Sequence[str] = ()) -> Traced:
    """Trace a function, which may be jitted, once. `abstract` says of every leaf of the arguments what JAX may see; those that
    are static, by place or name, stay as they are.

    Raises MissingDependency where jax is not installed; whatever JAX raises while it traces passes through.
    """
    require("jax", "from_jax")
    names = _argument_names(function)
    static = _static_values(args, kwargs, names, static_argnums, static_argnames)

    def each(leaf_of: Callable[[Any], Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Arguments with other leaves, in JAX's order."""
        return ([a if k in static else jax.tree_util.tree_map(leaf_of, a) for k, a in enumerate(args)],
                {n: kwargs[n] if n in static else jax.tree_util.tree_map(leaf_of, kwargs[n]) for n in sorted(kwargs)})

    args, kwargs = each(abstract, args, kwargs)
    # Unused arguments are kept, so that the program takes all that the function takes.
    jitted = jax.jit(function, keep_unused=True, static_argnums=tuple(k for k in static if isinstance(k, int)),
                     static_argnames=tuple(k for k in static if isinstance(k, str)))
    traced = interpreting_kernels(lambda: jitted.trace(*args, **kwargs))
    placed = _placed(traced.jaxpr)
    if placed:
        leaves = iter(placed)
        args, kwargs = each(lambda leaf: leaf if (one := next(leaves)) is None else one, args, kwargs)
        traced = interpreting_kernels(lambda: jitted.trace(*args, **kwargs), warns=False)
    lowered = traced.lower()
    signature = Signature(names, tuple((k, Static(v)) for k, v in static.items()),
                          _keys(lowered.in_avals), _keys(lowered.out_info))
    forms = each(lambda leaf: 0, args, kwargs)  # which keep no array

    def flat(*leaves: Any) -> list[Any]:
        rest = iter(leaves)
        args, kwargs = each(lambda _: next(rest), *forms)
        return jax.tree_util.tree_leaves(function(*args, **kwargs))

    return Traced(lowered_program(lowered), traced.fun_name, traced.jaxpr, flat, lowered.in_tree, lowered.out_tree, signature)


def _placed(closed: Any) -> list[Any]:
    """Arguments of a function that was jitted with `in_shardings`: those of which these say something as JAX may see them, None
    for all others, and nothing where they say nothing. Jitted once more it would have them as constraints on its values, and
    arguments that lie whole on each device."""
    equations, arguments = closed.jaxpr.eqns, closed.jaxpr.invars
    if len(equations) != 1 or "in_shardings" not in equations[0].params:
        return []
    pairs = zip(equations[0].invars, equations[0].params["in_shardings"], strict=True)
    stated = [(variable, sharding) for variable, sharding in pairs if isinstance(sharding, jax.sharding.Sharding)]
    found = [next((sharding for variable, sharding in stated if variable is argument), None) for argument in arguments]
    return [None if sharding is None else jax.ShapeDtypeStruct(a.aval.shape, a.aval.dtype, sharding=sharding,
                                                               weak_type=getattr(a.aval, "weak_type", False))
            for a, sharding in zip(arguments, found, strict=True)] if stated else []


def _argument_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of the arguments that may be given by place, as far as Python knows."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    return tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))


def _static_values(args: Sequence[Any], kwargs: Mapping[str, Any], names: Sequence[str], static_argnums: int | Sequence[int],
                   static_argnames: str | Sequence[str]) -> dict[int | str, Any]:
    """The static arguments of a call, by place where they are given so, and otherwise by name. As for jax.jit, a place also
    names an argument, and the other way round."""
    numbers = [static_argnums] if isinstance(static_argnums, int) else list(static_argnums)
    by_name = [static_argnames] if isinstance(static_argnames, str) else list(static_argnames)
    places = [n + len(names or args) if n < 0 else n for n in numbers]
    places += [names.index(n) for n in by_name if n in names]
    found: dict[int | str, Any] = {k: args[k] for k in sorted({*places}) if k < len(args)}
    called = {*by_name, *(names[k] for k in places if k < len(names))}
    return found | {n: a for n, a in kwargs.items() if n in called}


def _keys(described: Any) -> tuple[tuple[int, str], ...]:
    """Which leaves are typed PRNG keys, by number, and of which kind."""
    leaves = jax.tree_util.tree_leaves(described)
    return tuple((k, leaf.dtype._impl.name) for k, leaf in enumerate(leaves)
                 if jax.dtypes.issubdtype(getattr(leaf, "dtype", None), jax.dtypes.prng_key))


def key_data(key: Any, kind: str, dimensions: tuple[int, ...]) -> Any:
    """The data of a PRNG key of this kind, which has these dimensions: of a typed key of JAX's, or of the key that an integer
    seeds. Everything else is data already. Raises InvalidArgument for a key of another kind."""
    if isinstance(key, int) and not isinstance(key, bool) and len(dimensions) == 1:
        # As `jax.random.key` without 64-bit mode, for threefry2x32 and for rbg, whose key is two of the former.
        return np.array([0, key & 0xFFFFFFFF] * (dimensions[-1] // 2), np.uint32).reshape(dimensions)
    implementation = getattr(getattr(key, "dtype", None), "_impl", None)
    if implementation is None:
        return key
    if kind not in (implementation.name, implementation.tag):  # files of jax.export have the tag
        raise InvalidArgument("a PRNG key of another kind", got=implementation.name, expected=kind)
    return np.asarray(sys.modules["jax"].random.key_data(key))


def as_jax_array(array: np.ndarray, kind: str | None) -> Any:
    """An array of JAX's, or a typed PRNG key of a kind from its data; the array itself where jax is not installed."""
    try:
        arrays = importlib.import_module("jax.numpy")
    except ImportError:
        return array
    made = arrays.asarray(array)
    return made if kind is None else jax.random.wrap_key_data(made, impl=kind)


def abstract_array(dimensions: tuple[int, ...], dtype: Any) -> Any:
    """What stands for an array of which only dimensions and NumPy dtype are known. As everywhere in JAX, 64-bit types are
    narrowed unless its 64-bit mode is on."""
    return jax.ShapeDtypeStruct(dimensions, jax.dtypes.canonicalize_dtype(dtype))


def lowered_program(lowered: Any) -> Lowered:
    """The traced module with its locations, from which the HLO gets its op_name metadata."""
    buffer = io.BytesIO()
    lowered.compiler_ir("stablehlo").operation.write_bytecode(buffer)
    return Lowered(buffer.getvalue(), tuple(lowered._lowering.compile_args["host_callbacks"]))
