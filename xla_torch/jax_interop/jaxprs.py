"""The equations of a jaxpr and of the jaxprs inside it, and Pallas kernels among them."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from ..core.errors import XlaWarning


def equations(jaxpr: Any) -> Iterator[Any]:
    """All equations of a jaxpr, each before those of the jaxprs among its parameters."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in _inner_jaxprs(equation.params):
            yield from equations(inner)


def _inner_jaxprs(parameters: dict[str, Any]) -> Iterator[Any]:
    """The jaxprs among an equation's parameters."""
    for value in parameters.values():
        for part in value if isinstance(value, (tuple, list)) else (value,):
            inner = getattr(part, "jaxpr", part)
            if hasattr(inner, "eqns"):
                yield inner


def function_name(jaxpr: Any) -> str:
    """The name of the function that a jaxpr was traced from, or an empty string where JAX does not know it."""
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    source = getattr(getattr(inner, "debug_info", None), "func_src_info", None)
    return str(source or "").partition(" ")[0]


def interpreting_kernels(trace: Callable[[], Any], warns: bool = True) -> Any:
    """Trace (to a `jax.stages.Traced`), and trace again in Pallas's interpret mode if there is a kernel for another device.

    A kernel that the user interprets already, in whichever mode, stays as it is if all others do, too.
    """
    traced = trace()
    kernels = dict.fromkeys(_kernels(traced.jaxpr.jaxpr))
    if not kernels:
        return traced
    if warns:
        warning = XlaWarning(
            f"Pallas kernels run as loops over their grids, in JAX's interpret mode: {', '.join(kernels)}", subject="from_jax",
            hint="convert a function of jax.numpy where speed matters; interpret=True in pallas_call silences this")
        warnings.warn(warning, stacklevel=4)
    # JAX's one public switch; `interpret=True` is the mode that computes a kernel by XLA's ops, for TPUs and GPUs alike.
    with importlib.import_module("jax.experimental.pallas.tpu").force_tpu_interpret_mode(True):
        return trace()


def _kernels(jaxpr: Any) -> Iterator[str]:
    """The names of kernels that are not interpreted."""
    for equation in equations(jaxpr):
        if not equation.params.get("interpret", True):
            yield equation.params.get("name") or function_name(equation.params.get("jaxpr")) or equation.primitive.name
