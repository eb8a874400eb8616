"""Register functions for custom calls of a target."""

from __future__ import annotations

import inspect
import secrets
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ..core.errors import InvalidArgument
from ..hlo.custom_calls import CustomCall, Function, register, unregister
from ..lowering import numerics
from ..lowering.c_functions import CFunction, check_c_call, is_c_function
from ..runtime.static import tensor_from_numpy


def register_custom_call(target: str, function: Callable[..., Any] | int, vjp: Callable[..., Any] | None = None) -> None:
    """Register a Python or C function for custom calls of `target`.

    A Python function gets the operands as tensors (a tuple operand as a tuple) and returns a tensor, or a tuple for a tuple
    result. A keyword-only parameter ``call`` receives the `CustomCall`. Gradients come from ``vjp(cotangent, result,
    *operands)``, which returns a cotangent or None for each operand (for one operand, just that), without running `function`
    again. Without `vjp` they come from autograd through `function`; if autograd can't follow it, as after `detach`,
    differentiation raises ExecutionError. As in XLA, unused calls are removed unless marked custom_call_has_side_effect.

    A C function ``void name(void* out, void** in)`` is given as a ctypes function pointer (``library.name``) or an address. It
    runs on the CPU and has no gradient (see `lowering/c_functions.py`).

    A new registration replaces an earlier one. Raises InvalidArgument if `function` is not a function, and for a `vjp` of a C
    function.

    >>> xla_torch.register_custom_call("cube", lambda x: x**3, vjp=lambda ct, result, x: ct * 3 * x**2)
    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> ops.CustomCall("cube", [x], Shape.parse("f32[2]")).sum().backward()
    >>> x.grad
    tensor([ 3., 12.])
    """
    if not isinstance(target, str):
        raise InvalidArgument("the target of a custom call must be a string", subject="register_custom_call",
                              got=repr(target)[:80],
                              expected="a text")
    if is_c_function(function):
        if vjp is not None:
            raise InvalidArgument("a C function cannot have a vjp", subject=f"register_custom_call({target!r})",
                                  hint="register a Python function that calls it, with its vjp")
        register(target, Function(CFunction(function), check=check_c_call,
                                  no_gradient="it is a function in C, into which torch does not see"))
        return
    if not callable(function):
        raise InvalidArgument("this is no function", subject=f"register_custom_call({target!r})", got=type(function).__name__,
                              expected="a Python function, or a function pointer of ctypes")
    try:
        parameter = inspect.signature(function).parameters.get("call")
    except ValueError:  # torch's own functions have no signature
        parameter = None
    takes_call = parameter is not None and parameter.kind is parameter.KEYWORD_ONLY
    register(target, Function(function, vjp, takes_call))


def unregister_custom_call(target: str) -> None:
    """Forget a registration. Raises KeyError where there is none."""
    unregister(target)


def register_callback(function: Callable[..., Any]) -> str:
    """Let a Python function that JAX calls from a program, with and for NumPy arrays, run for a target of its own. The target,
    which no other process has."""
    target = f"xla_torch.callback.{secrets.token_hex(8)}"

    def run(*operands: torch.Tensor | None, call: CustomCall) -> list[torch.Tensor]:
        given = [None if o is None else
                 numerics.numpy_from_storage(numerics.to_storage(o, shape.element_type), shape.element_type)
                 for o, shape in zip(operands, call.operands, strict=True)]
        device = next((o.device for o in operands if o is not None), None)
        shapes = call.shape.leaves()
        return [tensor_from_numpy(np.asarray(result), shape, k).to(device)
                for k, (result, shape) in enumerate(zip(function(*given), shapes, strict=True)) if shape.is_array]

    register(target, Function(run, no_gradient="it is a Python function, which JAX does not differentiate either"))
    return target
