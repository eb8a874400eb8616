"""Custom calls run: the function of a target is found, gets tensors as users know them, and its gradient comes from torch.

Which targets have a function is known to `hlo/custom_calls.py`; LAPACK's routines are `kernels/lapack.py`.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from ..core.errors import ExecutionError, UnsupportedError, XlaError
from ..core.shape import Shape, parse_shape
from ..custom_calls.callbacks import CALLBACK
from ..hlo import checks, stacks
from ..hlo.composites import decomposition, is_composite, kernel_of
from ..hlo.custom_calls import CustomCall, Function, differentiated, registered, routine_name, target_of
from ..hlo.ir import Computation, Instruction, reachable
from ..hlo.tree import from_arrays, mapped
from ..kernels import checks as check_kernels
from ..kernels import composites, lapack, stack
from ..opcodes import internal
from ..storage.autograd_graph import autograd_nodes
from ..storage.dtypes import storage_dtype, torch_dtype
from ..storage.torch_private import is_graphed, needs_data
from ..transform.expand_custom_calls import expansion, why_unknown
from . import numerics
from .values import Value, device, emit, evaluator

# ------------------------------------------------------------------------------------------- finding


def find(target: str) -> Function | None:
    """What runs for a target: the user's function, the gradient of one, or a routine."""
    function = registered(target)
    if function is not None:
        return function
    gradient = differentiated(target)
    if gradient is not None:
        function = find(gradient[0])
        return function and Function(functools.partial(_gradients, function, gradient[1]), own=True)
    if target == checks.TARGET:
        return Function(check_kernels.require, own=True)
    routine = lapack.ROUTINES.get(routine_name(target))
    return routine and Function(routine, own=True)


def is_known(instruction: Instruction) -> bool:
    """Whether a custom-call instruction can run."""
    target = instruction.attributes["custom_call_target"]
    if target in stacks.TARGETS or is_composite(instruction) or find(target) is not None:
        return True
    return why_unknown(instruction) is None and expansion(instruction) is not None


def check_custom_calls(computation: Computation) -> None:
    """Raise UnsupportedError, naming all of them at once, if a program calls targets that nothing is known of."""
    calls = [i for c in reachable([computation]) for i in c.instructions
             if i.opcode == internal.custom_call and not is_known(i)]
    if calls:
        raise _unknown(calls).located(calls[0].subject, calls[0].where)


_KERNEL = re.compile(r"tpu_custom_call|mosaic_gpu(_v\d+)?|__gpu\$xla\.gpu\.triton|triton_kernel_call(_ffi)?")


def why_not(instruction: Instruction) -> str:
    """Why a custom call that is not known cannot run, in a few words."""
    error, target = why_unknown(instruction), target_of(instruction)
    if error is not None:
        got = f" (got {error.got})" if error.got != "" else ""
        return error.what.removeprefix(f"custom call {target!r}: ") + got
    if CALLBACK.fullmatch(target):
        return "a Python callback of the process that traced it"
    return "a kernel in a device's own language" if _KERNEL.fullmatch(target) else "no function is known for it"


def _unknown(calls: Sequence[Instruction]) -> UnsupportedError:
    """The error for calls that cannot run: their targets, how often each is called, and why where that is known."""
    counts = Counter(target_of(i) for i in calls)
    reasons = {target_of(i): why_not(i) for i in calls if why_unknown(i) is not None}
    targets = sorted(counts)
    listed = ", ".join(f"{target} ({counts[target]} call{'s' * (counts[target] > 1)}"
                       f"{': ' + reasons[target] if target in reasons else ''})" for target in targets)
    hint = f"register_custom_call({targets[0]!r}, function)"
    if all(map(CALLBACK.fullmatch, targets)):
        hint = ("a Python callback is a number in the process that traced it, not a part of the program: trace with from_jax, "
                f"or without callbacks, or {hint}, where call.config['index'] tells callbacks apart")
    elif all(map(_KERNEL.fullmatch, targets)):
        hint = f"a kernel in a device's own language is no HLO: {hint}, which computes the same"
    return UnsupportedError("no function is registered for these custom calls", got=listed, expected="registered targets",
                            hint=hint)


# ------------------------------------------------------------------------------------------- running


def call(inst: Instruction, operands: Sequence[Value]) -> Value:
    """The value of a custom-call instruction for operand values in storage dtypes."""
    target = inst.attributes["custom_call_target"]
    if target in stacks.TARGETS:
        return _stack_call(inst, operands)
    if is_composite(inst):
        return _composite(inst, operands)
    if registered(target) is None:
        computation = expansion(inst)
        if computation is not None:
            return evaluator().run(computation, operands)
    function = find(target)
    if function is None:
        raise _unknown([inst])
    if function.check is not None:
        function.check(inst)
    given = tuple(mapped(_boundary, o.shape, v) for v, o in zip(operands, inst.operands, strict=True))
    shapes = Shape.tuple([o.shape for o in inst.operands])
    results = emit(invoke, target, given, str(shapes), str(inst.shape), str(inst.common.get("backend_config", "")))
    arrays = [leaf for leaf in inst.shape.leaves() if leaf.is_array]
    return from_arrays((numerics.to_storage(results[k], leaf.element_type) for k, leaf in enumerate(arrays)), inst.shape)


def _composite(inst: Instruction, operands: Sequence[Value]) -> Value:
    """The value of a composite: by its kernel, or where no kernel is known to compute it by its decomposition."""
    computation = decomposition(inst)
    kernel, shapes = kernel_of(computation), [*(o.shape for o in inst.operands), *inst.shape.leaves()]
    if kernel is None or not composites.is_known(kernel.name) or not all(map(_is_for_kernels, shapes)):
        return evaluator().run(computation, operands)
    found = emit(composites.run, kernel.name, kernel.attributes, *operands)
    return tuple(found[k] for k in range(len(inst.shape.tuple_shapes))) if inst.shape.is_tuple else found[0]


def _is_for_kernels(shape: Shape) -> bool:
    """Whether an array is for torch what it is here."""
    return shape.is_static and storage_dtype(shape.element_type) is torch_dtype(shape.element_type)


def _boundary(shape: Shape, value: Value) -> Value:
    """A leaf of an operand in the dtype that users know; nothing for a token."""
    return numerics.from_storage(value, shape.element_type) if shape.is_array else None


def _stack_call(inst: Instruction, operands: Sequence[Value]) -> Value:
    """The value of one of our own calls for stacks (`hlo/stacks.py`)."""
    target = inst.attributes["custom_call_target"]
    if target == stacks.NEW:
        return emit(stack.new)
    if target == stacks.PUSH:
        return emit(stack.push, *operands)
    value: Shape = inst.shape.tuple_shapes[0]
    found = emit(stack.pop, *operands, value.dimensions, storage_dtype(value.element_type), device())
    return found[0], found[1]


def invoke(target: str, operands: Sequence[Any], operand_shapes: str, shape: str, opaque: str) -> tuple[torch.Tensor, ...]:
    """Run a target on tensors in boundary dtypes; the flat results. This is what stands in generated programs.

    Raises UnsupportedError for an unknown target and ExecutionError for a result of another shape or dtype.
    """
    function = find(target)
    if function is None:
        raise UnsupportedError("the function of this custom call is no longer registered", got=target,
                               hint=f"register_custom_call({target!r}, function)")
    this = _described(target, shape, opaque, operand_shapes)
    results = _flat(_run(function, this, operands))
    leaves = [leaf for leaf in this.shape.leaves() if leaf.is_array]
    fits = len(results) == len(leaves) and all(
        r.dtype == torch_dtype(leaf.element_type) and r.dim() == leaf.rank
        and (tuple(r.shape) == leaf.dimensions or not leaf.is_static)
        for r, leaf in zip(results, leaves, strict=True))
    if not fits:
        raise ExecutionError(f"the function of custom call {target!r} returned another result than the program declares",
                             got=", ".join(f"{r.dtype}{list(r.shape)}" for r in results), expected=shape)
    return tuple(results)


@functools.lru_cache(maxsize=1024)
def _described(target: str, shape: str, opaque: str, operand_shapes: str) -> CustomCall:
    while (gradient := differentiated(target)) is not None:  # a function sees its own target, also where its gradient is wanted
        target = gradient[0]
    return CustomCall(target, parse_shape(shape), opaque, parse_shape(operand_shapes).tuple_shapes)


def _run(function: Function, this: CustomCall, operands: Sequence[Any]) -> Any:
    with _seen_by_torch(this.target):
        return function.run(*operands, call=this) if function.takes_call else function.run(*operands)


@contextlib.contextmanager
def _seen_by_torch(target: str) -> Iterator[None]:
    """Raise UnsupportedError where torch makes a graph, and a user's function leaves torch: its tensors have no data then."""
    try:
        yield
    except XlaError:
        raise
    except Exception as error:
        if not is_graphed() or isinstance(error, needs_data()):
            raise
        raise UnsupportedError(f"the function of custom call {target!r} cannot be part of a graph",
                               got=f"{type(error).__name__}: {str(error).partition(chr(10))[0]}",
                               expected="a function of torch functions, and so its vjp",
                               hint="call the program outside of torch.compile's fullgraph and of torch.export") from error


def _flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [] if value is None else [leaf for part in value for leaf in _flat(part)]


def _gradients(function: Function, wanted: Sequence[int] | None, given: Any, cotangents: Sequence[Any], result: Any = None, *,
               call: CustomCall) -> list[torch.Tensor]:
    """Cotangents of the floating and complex operands number `wanted` (None: all), for the results' cotangents; an empty tuple
    is no cotangent. A registered vjp gets the `result`, where the program has kept it: the function runs once. Where torch
    records a graph, so that these gradients are differentiated again, they are part of it."""
    again = torch.is_grad_enabled()
    inputs = [t for t in _flat(given) if t.is_floating_point() or t.is_complex()]
    chosen = range(len(inputs)) if wanted is None else wanted
    if function.vjp is not None and result is not None:
        parts = _by_rule(function, call, given, cotangents, result)
        return [torch.zeros_like(inputs[k]) if parts[k] is None else parts[k] for k in chosen]  # pyright: ignore[reportReturnType]
    with torch.enable_grad():
        leaves = [t if again and t.requires_grad else t.detach().requires_grad_() for t in inputs]
        operands = _replaced(given, iter(leaves))
        result = _run(function, call, operands) if function.vjp is None else _Ruled.apply(function, call, operands, *leaves)
        results = _flat(result)
        pairs = [(r, ct) for r, ct in zip(results, cotangents, strict=True) if isinstance(ct, torch.Tensor)]
        sources = [leaves[k] for k in chosen]
        found = _pulled_back([p for p in pairs if p[0].requires_grad], sources, again)
    if function.vjp is None and not function.own:
        _require_followed(call, pairs, results, dict(zip(chosen, sources, strict=True)), found)
        if again:
            _require_followed_again(call, pairs, found)
    return [torch.zeros_like(t) if ct is None else ct for t, ct in zip(sources, found, strict=True)]


def _by_rule(function: Function, call: CustomCall, given: Any, cotangents: Sequence[Any],
             result: Any) -> list[torch.Tensor | None]:
    """What a registered vjp says of a result that was kept."""
    results = _flat(result)
    flat = [ct if isinstance(ct, torch.Tensor) else torch.zeros_like(r) for ct, r in zip(cotangents, results, strict=True)]
    return _ruled(function, call.target, flat, results, isinstance(result, torch.Tensor), given)


def _pulled_back(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], leaves: Sequence[torch.Tensor],
                 again: bool) -> Sequence[Any]:
    if not pairs:
        return [None] * len(leaves)
    return torch.autograd.grad([r for r, _ in pairs], leaves, [ct for _, ct in pairs], create_graph=again, allow_unused=True)


def _require_followed(call: CustomCall, pairs: Sequence[tuple[torch.Tensor, Any]], results: Sequence[torch.Tensor],
                      sources: Mapping[int, torch.Tensor], found: Sequence[Any]) -> None:
    """Raise ExecutionError where torch's autograd has lost the way from a result to an operand, and would say zero."""
    lost = any(not r.requires_grad for r, _ in pairs)
    missing = [k for (k, _), ct in zip(sources.items(), found, strict=True) if ct is None]
    if missing and not lost:
        behind = set(autograd_nodes(results))
        missing = [k for k in missing if torch.autograd.graph.get_gradient_edge(sources[k]).node not in behind]
    if lost or missing:
        raise ExecutionError(
            "autograd cannot trace the result back to the operands, so the gradient is unknown",
            subject=f"gradient of custom call {call.target!r}",
            got="a result without a graph" if lost else f"no way to floating operand {', '.join(map(str, missing))}",
            expected="a function of torch functions, without detach(), no_grad() or numpy()",
            hint=f"register_custom_call({call.target!r}, function, vjp=rule); the rule returns None where the gradient is zero")


def _require_followed_again(call: CustomCall, pairs: Sequence[tuple[torch.Tensor, Any]], found: Sequence[Any]) -> None:
    """Raise ExecutionError where the backward of somebody's own autograd.Function has left torch, and the second derivative
    would be zero. Gradients by torch's functions follow their cotangents, or are zero."""
    if any(ct.requires_grad for _, ct in pairs) and any(g is not None and not g.requires_grad for g in found) and any(
            isinstance(node, torch.autograd.function.BackwardCFunction) for node in autograd_nodes([r for r, _ in pairs])):
        raise ExecutionError("torch cannot differentiate the backward of an autograd.Function, of which the second derivative "
                             "is wanted", subject=f"gradient of custom call {call.target!r}",
                             expected="a backward of torch functions")


class _Ruled(torch.autograd.Function):
    """A registered function whose gradient is its registered `vjp`. Its floating operands stand there once more, as torch
    wants to see them."""

    @staticmethod
    def forward(ctx: Any, function: Function, call: CustomCall, operands: Any, *leaves: torch.Tensor) -> Any:
        with torch.no_grad():
            result = _run(function, call, operands)
        ctx.function, ctx.operands, ctx.single, ctx.target = function, operands, isinstance(result, torch.Tensor), call.target
        results = _flat(result)
        ctx.mark_non_differentiable(*(r for r in results if not (r.is_floating_point() or r.is_complex())))
        ctx.save_for_backward(*leaves, *results)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        count = len(ctx.needs_input_grad) - 3
        leaves, results = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
        given = _replaced(ctx.operands, iter(leaves))
        return None, None, None, *_ruled(ctx.function, ctx.target, cotangents, results, ctx.single, given)


def _ruled(function: Function, target: str, cotangents: Sequence[torch.Tensor], results: Sequence[torch.Tensor], single: bool,
           given: Sequence[Any]) -> list[torch.Tensor | None]:
    """The cotangents of the floating and complex operands by a registered vjp, which takes tuples unless the result is a `single`
    tensor."""
    assert function.vjp is not None
    ct, result = (cotangents[0], results[0]) if single else (tuple(cotangents), tuple(results))
    with _seen_by_torch(target):
        found = function.vjp(ct, result, *given)
    parts = _cotangents_of(given, found, f"register_custom_call({target!r})")
    if torch.is_grad_enabled() and any(c.requires_grad for c in cotangents) and not any(
            p is not None and p.requires_grad for p in parts):
        raise ExecutionError("torch cannot differentiate this vjp, of which the second derivative is wanted",
                             subject=f"register_custom_call({target!r})", expected="a vjp of torch functions")
    return parts


def _cotangents_of(given: Sequence[Any], found: Any, subject: str) -> list[torch.Tensor | None]:
    """What a vjp returned for the floating and complex tensors among the operands, or for those in one of their tuples."""
    if len(given) == 1 and not isinstance(found, (tuple, list)):
        found = (found,)
    if not isinstance(found, (tuple, list)) or len(found) != len(given):
        raise ExecutionError("vjp returned another number of cotangents than there are operands", subject=subject,
                             got=len(found) if isinstance(found, (tuple, list)) else type(found).__name__, expected=len(given))
    parts: list[torch.Tensor | None] = []
    for operand, part in zip(given, found, strict=True):
        if not isinstance(operand, torch.Tensor):
            parts += _cotangents_of(operand, (None,) * len(operand) if part is None else part, subject)
        elif operand.is_floating_point() or operand.is_complex():
            if part is not None and not isinstance(part, torch.Tensor):
                raise ExecutionError("vjp must return cotangents", subject=subject, got=type(part).__name__,
                                     expected="a tensor, or None, for each operand")
            if part is not None and (part.shape, part.dtype) != (operand.shape, operand.dtype):
                raise ExecutionError("vjp returned a cotangent of another shape or dtype than its operand", subject=subject,
                                     got=f"{part.dtype}{list(part.shape)}", expected=f"{operand.dtype}{list(operand.shape)}")
            parts.append(part)
    return parts


def _replaced(value: Any, leaves: Any) -> Any:
    """The operands with their floating and complex tensors replaced, in order."""
    if isinstance(value, torch.Tensor):
        return next(leaves) if value.is_floating_point() or value.is_complex() else value
    return tuple(_replaced(v, leaves) for v in value)
