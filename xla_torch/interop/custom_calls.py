"""Custom calls: the registry of what runs for a target, and how their configurations are read.

A target is found, in this order, among the user's own (`register_custom_call`), those that are plain XLA ops in other words
(`transform/expand_custom_calls.py`), and the routines of LAPACK and JAX that programs for the CPU call (`lapack.py`).
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import re
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..errors import ExecutionError, InvalidArgument, UnsupportedError
from ..hlo.ir import Computation, reachable
from ..shape import Shape, parse_shape
from . import c_calls, tapes

if TYPE_CHECKING:
    from ..hlo.ir import Instruction

_VJP = re.compile(r"xla_torch\.vjp(?:\[([\d,]+)\])?\.")


def vjp_target(target: str, wanted: Sequence[bool]) -> str:
    """The target of the custom call that computes a target's gradient, from the operands and the result's cotangents.
    `wanted` flags the floating and complex operands that get one: in brackets stand their numbers, if those are not all."""
    numbers = "" if all(wanted) else f"[{','.join(str(k) for k, flag in enumerate(wanted) if flag)}]"
    return f"xla_torch.vjp{numbers}.{target}"


def is_vjp_target(target: str) -> bool:
    """Whether a target is that of a gradient: of what `vjp_target` gives."""
    return _VJP.match(target) is not None


def _of_vjp(target: str) -> tuple[str, tuple[int, ...] | None] | None:
    """For the target of a gradient: the target that it is the gradient of, and the numbers of the wanted operands (None: all)."""
    match = _VJP.match(target)
    if match is None:
        return None
    return target[match.end():], tuple(map(int, match.group(1).split(","))) if match.group(1) else None


@dataclasses.dataclass(frozen=True)
class CustomCall:
    """What a custom call says of itself: its target, the result's shape, its configuration, and the operands' shapes."""

    target: str
    shape: Shape
    opaque: str = ""
    operands: tuple[Shape, ...] = ()

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        """The configuration as a dict: of JSON, or of MLIR attributes (``{uplo = 76 : ui8}``); empty for other text."""
        return parse_config(self.opaque)

    def letter(self, name: str, default: str) -> str:
        """A configuration entry that LAPACK calls by a letter, which is written as the letter's number."""
        value = self.config.get(name, default)
        return chr(value) if isinstance(value, int) else str(value)


@dataclasses.dataclass(frozen=True, slots=True)
class _Entry:
    function: Callable[..., Any]
    vjp: Callable[..., Any] | None
    takes_call: bool
    own: bool = True
    """Whether it is a user's, of which nothing is known."""


_registered: dict[str, _Entry] = {}


def register_custom_call(target: str, function: Callable[..., Any] | int, vjp: Callable[..., Any] | None = None) -> None:
    """Let `function` run for custom calls of `target`.

    It gets the operands as tensors (a tuple operand as a tuple) and returns a tensor, or a tuple for a tuple result. If it has
    a keyword-only parameter ``call``, it gets the `CustomCall` there. Gradients come from ``vjp(cotangent, result, *operands)``,
    which returns one cotangent (or None) for each operand; without `vjp` from torch's autograd through `function`. What that
    cannot follow, because `function` detaches an operand or leaves torch, is an ExecutionError where a gradient is wanted.

    A call that a program does not mark with custom_call_has_side_effect is left out where its result is not used, as in XLA.

    A function in C, ``void name(void* out, void** in)``, is given as a function pointer of ctypes (``library.name``) or as its
    address; it runs on the CPU and has no gradient (see `c_calls.py`).

    An earlier registration of the target is replaced. Raises InvalidArgument for what is no function, and for a `vjp` beside
    a function in C.
    """
    if c_calls.is_c_function(function):
        if vjp is not None:
            raise InvalidArgument("a C function takes no vjp", subject=f"register_custom_call({target!r})",
                                  hint="register a Python function that calls it, with its vjp")
        _registered[target] = _Entry(c_calls.CFunction(function), None, True)
        return
    if not callable(function):
        raise InvalidArgument("this is no function", subject=f"register_custom_call({target!r})", got=type(function).__name__,
                              expected="a Python function, or a function pointer of ctypes")
    try:
        parameter = inspect.signature(function).parameters.get("call")
    except ValueError:  # torch's own functions have no signature
        parameter = None
    takes_call = parameter is not None and parameter.kind is parameter.KEYWORD_ONLY
    _registered[target] = _Entry(function, vjp, takes_call)


def unregister_custom_call(target: str) -> None:
    """Forget a registration. Raises KeyError where there is none."""
    del _registered[target]


# ------------------------------------------------------------------------------------------- finding


def is_registered(target: str) -> bool:
    """Whether the user has registered a function for the target."""
    return target in _registered


def _find(target: str) -> _Entry | None:
    from . import lapack

    if target in _registered:
        return _registered[target]
    gradient = _of_vjp(target)
    if gradient is not None:
        entry = _find(gradient[0])
        return entry and _Entry(functools.partial(_gradients, entry, gradient[1]), None, True, own=False)
    routine = lapack.routine(target)
    return routine and _Entry(routine, None, True, own=False)


def why_no_gradient(target: str) -> tuple[str, str] | None:
    """Why custom calls of the target have no gradient and what to do instead, as far as is known without running one; None
    where they may have one."""
    from . import lapack

    own = f"register_gradient({target!r}, rule)"
    if target in _registered:
        is_c = isinstance(_registered[target].function, c_calls.CFunction)
        return ("it is a function in C, into which torch does not see", own) if is_c else None
    gradient = _of_vjp(target)
    if gradient is not None:
        return why_no_gradient(gradient[0])
    if lapack.routine(target) is None:
        return "no function is known for it", f"register_custom_call({target!r}, function), or {own}"
    known = lapack.why_no_gradient(target)
    return known and (known[0], f"{known[1]}, or {own}")


def is_known(instruction: Instruction) -> bool:
    """Whether a custom-call instruction can run."""
    from ..transform.expand_custom_calls import expansion

    target = instruction.attributes["custom_call_target"]
    return target in tapes.TARGETS or _find(target) is not None or expansion(instruction) is not None


def check_custom_calls(computation: Computation) -> None:
    """Raise UnsupportedError, naming all of them at once, if a program calls targets that nothing is known of."""
    calls = [i for c in reachable([computation]) for i in c.instructions if i.opcode == "custom-call" and not is_known(i)]
    if calls:
        counts = Counter(i.attributes["custom_call_target"] for i in calls)
        raise _unknown(counts).located(calls[0].subject, calls[0].where)


_CALLBACK = re.compile(r"xla_(ffi_|buffer_)?(partitioned_)?python_(cpu|gpu)_callback|CustomSPMDPartitioning")


def _unknown(counts: Mapping[str, int]) -> UnsupportedError:
    """The error for unknown targets and how often each is called."""
    targets = sorted(counts)
    listed = ", ".join(f"{target} ({counts[target]} {'call' if counts[target] == 1 else 'calls'})" for target in targets)
    hint = f"register_custom_call({targets[0]!r}, function)"
    if all(map(_CALLBACK.fullmatch, targets)):
        hint = ("a Python callback is a number in the process that traced it, not a part of the program: trace without "
                f"callbacks (or jax.debug.print), or {hint}, where call.config['index'] tells callbacks apart")
    return UnsupportedError("no function is known for these custom calls", got=listed, expected="registered targets", hint=hint)


# ------------------------------------------------------------------------------------------- running


def call(inst: Instruction, operands: Sequence[Any]) -> Any:
    """The value of a custom-call instruction for operand values in carrier dtypes."""
    from ..lowering import emit, numerics, values
    from ..transform.expand_custom_calls import expansion

    target = inst.attributes["custom_call_target"]
    if target in tapes.TARGETS:
        return tapes.call(inst, operands)
    if not is_registered(target):
        computation = expansion(inst)
        if computation is not None:
            return values.evaluator().run(computation, operands)
    entry = _find(target)
    if entry is None:
        raise _unknown({target: 1})
    if isinstance(entry.function, c_calls.CFunction):
        c_calls.check_c_call(inst)

    def boundary(value: Any, shape: Shape) -> Any:
        if shape.is_tuple:
            return tuple(boundary(v, s) for v, s in zip(value, shape.tuple_shapes, strict=True))
        return numerics.from_carrier(value, shape.element_type) if shape.is_array else None

    given = tuple(boundary(v, o.shape) for v, o in zip(operands, inst.operands, strict=True))
    shapes = Shape.tuple([o.shape for o in inst.operands])
    results = values.emit(invoke, target, given, str(shapes), str(inst.shape), str(inst.common.get("backend_config", "")))
    arrays = [leaf for leaf in inst.shape.leaves() if leaf.is_array]
    leaves = iter([numerics.to_carrier(results[k], leaf.element_type) for k, leaf in enumerate(arrays)])
    return emit.unflatten(leaves, inst.shape)


def invoke(target: str, operands: Sequence[Any], operand_shapes: str, shape: str, opaque: str) -> tuple[torch.Tensor, ...]:
    """Run a target on tensors in boundary dtypes; the flat results. This is what stands in generated programs.

    Raises UnsupportedError for an unknown target and ExecutionError for a result of another shape or dtype.
    """
    entry = _find(target)
    if entry is None:
        raise _unknown({target: 1})
    this = _described(target, shape, opaque, operand_shapes)
    results = _flat(_run(entry, this, operands))
    leaves = [leaf for leaf in this.shape.leaves() if leaf.is_array]
    fits = len(results) == len(leaves) and all(
        r.dtype == leaf.element_type.torch and r.dim() == leaf.rank and (tuple(r.shape) == leaf.dimensions or not leaf.is_static)
        for r, leaf in zip(results, leaves, strict=True))
    if not fits:
        raise ExecutionError(f"the function of custom call {target!r} returned another result than the program declares",
                             got=", ".join(f"{r.dtype}{list(r.shape)}" for r in results), expected=shape)
    return tuple(results)


@functools.lru_cache(maxsize=1024)
def _described(target: str, shape: str, opaque: str, operand_shapes: str) -> CustomCall:
    while (gradient := _of_vjp(target)) is not None:  # a function sees its own target, also where its gradient is wanted
        target = gradient[0]
    return CustomCall(target, parse_shape(shape), opaque, parse_shape(operand_shapes).tuple_shapes)


def _run(entry: _Entry, this: CustomCall, operands: Sequence[Any]) -> Any:
    return entry.function(*operands, call=this) if entry.takes_call else entry.function(*operands)


def _flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [] if value is None else [leaf for part in value for leaf in _flat(part)]


def _gradients(entry: _Entry, wanted: Sequence[int] | None, given: Any, cotangents: Sequence[Any], *,
               call: CustomCall) -> list[torch.Tensor]:
    """Cotangents of the floating and complex operands number `wanted` (None: all), for the results' cotangents; an empty tuple
    is no cotangent. Where torch records a graph, so that these gradients are differentiated again, they are part of it."""
    again = torch.is_grad_enabled()
    inputs = [t for t in _flat(given) if t.is_floating_point() or t.is_complex()]
    chosen = range(len(inputs)) if wanted is None else wanted
    with torch.enable_grad():
        leaves = [t if again and t.requires_grad else t.detach().requires_grad_() for t in inputs]
        operands = _replaced(given, iter(leaves))
        results = _flat(_run(entry, call, operands) if entry.vjp is None else _Ruled.apply(entry, call, operands, *leaves))
        pairs = [(r, ct) for r, ct in zip(results, cotangents, strict=True) if isinstance(ct, torch.Tensor)]
        sources = [leaves[k] for k in chosen]
        found = _pulled_back([p for p in pairs if p[0].requires_grad], sources, again)
    if entry.vjp is None and entry.own:
        _require_followed(call, pairs, results, dict(zip(chosen, sources, strict=True)), found)
        if again:
            _require_followed_again(call, pairs, found)
    return [torch.zeros_like(t) if ct is None else ct for t, ct in zip(sources, found, strict=True)]


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
        behind = set(_behind(results))
        missing = [k for k in missing if torch.autograd.graph.get_gradient_edge(sources[k]).node not in behind]
    if lost or missing:
        raise ExecutionError(
            "torch's autograd does not see how the result comes from the operands, so the gradient is not known",
            subject=f"gradient of custom call {call.target!r}",
            got="a result without a graph" if lost else f"no way to floating operand {', '.join(map(str, missing))}",
            expected="a function of torch functions, without detach(), no_grad() or numpy()",
            hint=f"register_custom_call({call.target!r}, function, vjp=rule); the rule returns None where the gradient is zero")


def _require_followed_again(call: CustomCall, pairs: Sequence[tuple[torch.Tensor, Any]], found: Sequence[Any]) -> None:
    """Raise ExecutionError where the backward of somebody's own autograd.Function has left torch, and the second derivative
    would be zero. Gradients by torch's functions follow their cotangents, or are zero."""
    if any(ct.requires_grad for _, ct in pairs) and any(g is not None and not g.requires_grad for g in found) and any(
            isinstance(node, torch.autograd.function.BackwardCFunction) for node in _behind([r for r, _ in pairs])):
        raise ExecutionError("torch cannot differentiate the backward of an autograd.Function, of which the second derivative "
                             "is wanted", subject=f"gradient of custom call {call.target!r}",
                             expected="a backward of torch functions")


def _behind(results: Sequence[torch.Tensor]) -> list[Any]:
    """The nodes of autograd's graph that results come from."""
    waiting: list[Any] = [r.grad_fn for r in results]
    found: dict[Any, None] = {}
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:
            found[node] = None
            waiting += [before for before, _ in node.next_functions]
    return list(found)


class _Ruled(torch.autograd.Function):
    """A registered function whose gradient is its registered `vjp`. Its floating operands stand there once more, as torch
    wants to see them."""

    @staticmethod
    def forward(ctx: Any, entry: _Entry, call: CustomCall, operands: Any, *leaves: torch.Tensor) -> Any:
        with torch.no_grad():
            result = _run(entry, call, operands)
        ctx.entry, ctx.operands, ctx.single, ctx.target = entry, operands, isinstance(result, torch.Tensor), call.target
        results = _flat(result)
        ctx.mark_non_differentiable(*(r for r in results if not (r.is_floating_point() or r.is_complex())))
        ctx.save_for_backward(*leaves, *results)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        count = len(ctx.needs_input_grad) - 3
        leaves, results = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
        given = _replaced(ctx.operands, iter(leaves))
        ct, result = (cotangents[0], results[0]) if ctx.single else (cotangents, tuple(results))
        found = ctx.entry.vjp(ct, result, *given)
        parts = _cotangents_of(given, found, f"register_custom_call({ctx.target!r})")
        if torch.is_grad_enabled() and any(c.requires_grad for c in cotangents) and not any(
                p is not None and p.requires_grad for p in parts):
            raise ExecutionError("torch cannot differentiate this vjp, of which the second derivative is wanted",
                                 subject=f"register_custom_call({ctx.target!r})", expected="a vjp of torch functions")
        return None, None, None, *parts


def _cotangents_of(given: Sequence[Any], found: Any, subject: str) -> list[torch.Tensor | None]:
    """What a vjp returned for the floating and complex tensors among the operands, or for those in one of their tuples."""
    if not isinstance(found, (tuple, list)) or len(found) != len(given):
        raise ExecutionError("vjp returned another number of cotangents than there are operands", subject=subject,
                             got=len(found) if isinstance(found, (tuple, list)) else type(found).__name__, expected=len(given))
    parts: list[torch.Tensor | None] = []
    for operand, part in zip(given, found, strict=True):
        if not isinstance(operand, torch.Tensor):
            parts += _cotangents_of(operand, (None,) * len(operand) if part is None else part, subject)
        elif operand.is_floating_point() or operand.is_complex():
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


# ------------------------------------------------------------------------------------------- configurations

_TYPED = re.compile(r"^(.*?)\s*:\s*((?:[su]?i|f|bf|tf)\d\w*|index|tensor<.*>|vector<.*>)$", re.S)
_FLOATS = {"f16": "<e", "f32": "<f", "f64": "<d"}
_COMPLEX = re.compile(r"#complex\.number<:f\d+ ([^,]+), ([^>]+)>(?: : complex<f\d+>)?")


def parse_config(text: str | Mapping[str, Any]) -> dict[str, Any]:
    """A backend configuration as a dict: JSON, or MLIR attributes ``{a = 1 : i64, b = "x", c = [1, 2]}``.

    Text of another form gives an empty dict; an attribute whose value is of another form stays text.
    """
    if isinstance(text, Mapping):
        return dict(text)
    text = text.strip()
    if not (text.startswith("{") and text.endswith("}")):
        return {}
    try:
        found = json.loads(text)
        return found if isinstance(found, dict) else {}
    except ValueError:
        return _mlir_dict(text)


def _mlir_dict(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for entry in _split(text[1:-1]):
        key, _, value = entry.partition("=")
        found[key.strip().strip('"')] = _mlir_value(value.strip()) if value else True
    return found


def _mlir_value(text: str) -> Any:
    if text.startswith('"') and text.endswith('"'):
        return _mlir_string(text[1:-1])
    if number := _COMPLEX.fullmatch(text):
        return complex(float(number.group(1)), float(number.group(2)))
    typed = _TYPED.match(text)
    text, kind = (typed.group(1), typed.group(2)) if typed else (text, "")
    if text.startswith("{"):
        return _mlir_dict(text)
    if text.startswith("["):
        return [_mlir_value(v) for v in _split(text[1:-1])]
    if text.startswith("array<"):
        kind, _, listed = text[6:-1].partition(":")
        return [_mlir_value(f"{v} : {kind}" if kind != "i1" else v) for v in _split(listed)]
    if text.startswith("dense<") and kind.startswith(("tensor<", "vector<")):
        return _mlir_value(text[6:-1])
    if text.startswith("0x") and kind in _FLOATS:  # how MLIR writes infinities and NaN
        return struct.unpack(_FLOATS[kind], int(text, 16).to_bytes(len(text) // 2 - 1, "little"))[0]
    try:
        return json.loads(text)
    except ValueError:
        return text


def _mlir_string(text: str) -> str:
    """A string without its escapes, which are two hexadecimal digits of a byte, or a character that stands for itself."""
    def byte(match: re.Match[bytes]) -> bytes:
        code = match.group(1)
        return code if len(code) == 1 else bytes([int(code, 16)])

    return re.sub(rb"\\([0-9a-fA-F]{2}|.)", byte, text.encode()).decode("utf-8", "replace")


def _split(text: str) -> list[str]:
    """The parts between commas that stand in no brackets and no string."""
    parts, depth, quoted, start = [], 0, False, 0
    for position, character in enumerate(text):
        if character == '"' and text[position - 1: position] != "\\":
            quoted = not quoted
        elif quoted:
            continue
        elif character in "{[(<":
            depth += 1
        elif character in "}])" or (character == ">" and text[position - 1: position] != "-"):
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]
