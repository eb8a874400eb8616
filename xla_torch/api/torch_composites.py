"""Operators of torch that stay whole in programs: composites, of a name and a decomposition (`hlo/composites.py`).

While torch traces and decomposes a program, such an operator is ``xla_torch::composite``, which has the kernel's name, attributes
and operands. Its derivative is the composite that the kernel's way back is. In a program it is a call of the decomposition,
which is what torch decomposes the operator to.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ..aten.operator_rules import RULES, applied, rule
from ..autodiff.composites import known_as, way_back
from ..core.shape import Shape
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.composites import VJP, described, kept_results
from ..hlo.ir import Computation
from ..kernels import composites
from ..opcodes import control
from ..storage import torch_graphs, torch_private
from ..storage.dtypes import torch_dtype
from ..storage.torch_private import arguments_of
from ..transform.composites import call_attributes
from ..transform.values import elements_of, leaves
from . import decomposition_tables, torch_functions, torch_graph, torch_packed, torch_stops
from .builder import XlaBuilder

_OPS = torch.library.Library("xla_torch", "FRAGMENT")
_OPS.define("composite(str name, str attributes, Tensor[] operands) -> Tensor[]")
_OPS.impl("composite", lambda name, attributes, operands: list(composites.run(name, attributes, *operands)),
          "CompositeExplicitAutograd")
_COMPOSITE: Any = torch.ops.xla_torch.composite.default


@torch.library.register_fake("xla_torch::composite")
def _stand_ins(name: str, attributes: str, operands: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    with _apart():
        return composites.of_results(name, attributes, operands)


class _State(threading.local):
    is_apart = False


_state = _State()


@contextlib.contextmanager
def _apart() -> Iterator[None]:
    """A block in which operators do not become composites: torch's tables of decompositions hold for what a kernel calls, too."""
    before, _state.is_apart = _state.is_apart, True
    try:
        yield
    finally:
        _state.is_apart = before


class _Differentiated(torch.autograd.Function):
    """A composite while torch traces a way back: that of the kernel, which is a composite, too."""

    @staticmethod
    def forward(name: str, attributes: str, *operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(_COMPOSITE(name, attributes, operands))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        ctx.name, ctx.attributes, *operands = inputs
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(r for r in output if not r.is_floating_point()))
        ctx.save_for_backward(*operands, *(output[k] for k in kept_results(ctx.name)))

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> Any:
        needed, demanded = list(ctx.needs_input_grad[2:]), [ct is not None for ct in cotangents]
        attributes = way_back(ctx.name, ctx.attributes, needed, demanded)
        given = [ct for ct in cotangents if ct is not None]
        found = iter(_COMPOSITE(f"{ctx.name}{VJP}", attributes, [*ctx.saved_tensors, *given]))
        return None, None, *(next(found) if flag else None for flag in needed)


# ------------------------------------------------------------------------------------------- in place of operators


_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def _is_whole(operands: Sequence[torch.Tensor]) -> bool:
    """Whether a kernel takes these: numbers of known sizes that torch and XLA both have."""
    return all(all(type(n) is int for n in o.shape) and o.layout is torch.strided and not o.is_complex() for o in operands)


def _plain(name: str, attributes: str, *operands: torch.Tensor) -> list[torch.Tensor]:
    return _COMPOSITE(name, attributes, operands)


def _differentiated(name: str, attributes: str, *operands: torch.Tensor) -> Any:
    return _Differentiated.apply(name, attributes, *operands)


def _whole(operator: Any, call: Callable[..., Any], otherwise: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if _state.is_apart or any(isinstance(leaf, _SYMBOLIC) for leaf in torch_private.pytree.tree_leaves((args, kwargs))):
        return otherwise(*args, **kwargs)
    options, operands = composites.taken_apart(operator, args, kwargs)
    if not _is_whole(operands) or not composites.takes(options):
        return otherwise(*args, **kwargs)
    found: Any = call(composites.name_of(operator), json.dumps(options), *operands)
    return found[0] if len(operator._schema.returns) == 1 else tuple(found)


def becomes_composite(operator: Any) -> bool:
    """Whether an operator is a composite where torch differentiates it."""
    return operator is _COMPOSITE or operator in _outer() or operator in composites.operators(differentiated=True)


@functools.cache
def _outer() -> dict[Any, tuple[Any, Callable[..., Any]]]:
    """Operators that torch opens within C++ where it differentiates them, each with the operator of a kernel that it calls, and
    the function that calls this."""
    aten = torch.ops.aten
    return {aten.group_norm.default: (aten.native_group_norm.default, _group_norm),
            aten.linalg_solve.default: (torch_private.private(torch, "ops.aten._linalg_solve_ex.default"),
                                        lambda solve, *args, **kwargs: solve(*args, **kwargs)[0])}


def _group_norm(native: Callable[..., Any], input: torch.Tensor, num_groups: int, weight: torch.Tensor | None = None,
                bias: torch.Tensor | None = None, eps: float = 1e-05, cudnn_enabled: bool = True) -> torch.Tensor:
    """By the operator that has the statistics, too: torch differentiates it in many operators."""
    batch, channels, *sizes = input.shape
    return native(input.contiguous(), weight, bias, batch, channels, math.prod(sizes), num_groups, eps)[0]


def _as_strided(windows: Callable[..., Any], self: torch.Tensor, size: Sequence[int], stride: Sequence[int],
                storage_offset: int | None = None) -> Any:
    """Of memory as it stands, in its order or in windows of rows: torch takes a short-time Fourier transform of such windows."""
    numbers = (*size, *stride, storage_offset or 0, *self.shape)
    if any(type(n) is not int for n in numbers) or storage_offset or self.storage_offset() or not self.is_contiguous():
        return NotImplemented
    if list(stride) == _row_strides(size) and math.prod(size) == self.numel():
        return self.view(size)
    if len(size) < 2 or stride[-1] != 1 or not math.prod(size):
        return NotImplemented
    *outer, count, last = size
    row, step = self.numel() // math.prod(outer), stride[-2]
    if list(stride[:-2]) != _row_strides([*outer, row])[:-1] or math.prod(outer) * row != self.numel() or step < 1:
        return NotImplemented
    if row < last or (row - last) // step + 1 != count:
        return NotImplemented
    return windows(self.view([*outer, row]), -1, last, step)


def _row_strides(size: Sequence[int]) -> list[int]:
    return [math.prod(size[d + 1:]) for d in range(len(size))]


@functools.cache
def operator_decompositions() -> tuple[dict[Any, Any], dict[Any, Any]]:
    """The decompositions of all operators that have no rule: to core operators, and of core operators into others. The latter
    come before autograd, whose operators for the way back have none. What stays whole is a composite in both."""
    core, first = decomposition_tables.without_composites()
    moving, others = composites.operators(differentiated=True), composites.operators(differentiated=False)
    there = {op: functools.partial(_whole, op, _plain, core.get(op, lambda *_, **__: NotImplemented)) for op in moving | others}
    there[torch.ops.aten.as_strided.default] = functools.partial(_as_strided, there[torch.ops.aten.unfold.default])
    before = {op: functools.partial(_whole, op, _differentiated, first.get(op, op)) for op in moving}
    before |= {op: functools.partial(call, before[inner]) for op, (inner, call) in _outer().items()}
    return {**core, **there}, {**first, **before, _COMPOSITE: lambda name, attributes, given: [
        *_differentiated(name, attributes, *given)]}


def _of_layers(kind: str, whole: Callable[..., Any] = _whole) -> Callable[..., Any]:
    """Recurrent layers of torch, one operator while torch exports them: it would walk through all steps. The second argument has
    one dimension if sequences are packed: it is the batch sizes."""
    padded, packed = (getattr(getattr(torch.ops.aten, kind), name) for name in ("input", "data"))

    def layers(*args: Any) -> Any:
        if not isinstance(args[1], torch.Tensor) or args[1].ndim > 1:
            return whole(padded, _plain, getattr(torch, kind), *args)
        data, batch_sizes, hx, *others = args
        sizes = torch_packed.sizes_of(batch_sizes)
        steps = functools.partial(torch_packed.layers, layers)
        return whole(packed, _plain, steps, data, sizes, torch_packed.states_of(hx, sizes[0]), *others)

    return layers


def _steps(operator: Any, call: Callable[..., Any], otherwise: Callable[..., Any], *args: Any) -> Any:
    """An operator in others, which autograd and torch.func differentiate."""
    return torch_private.decompositions(operator).get(operator, otherwise)(*args)


def _ctc_loss(log_probs: torch.Tensor, targets: torch.Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0,
              reduction: int | str = 1, zero_infinity: bool = False) -> torch.Tensor:
    lengths = [torch_functions.lengths(given, log_probs) for given in (input_lengths, target_lengths)]
    number = {"none": 0, "mean": 1, "sum": 2}.get(reduction, reduction) if isinstance(reduction, str) else reduction
    return _whole(torch.ops.aten.ctc_loss.Tensor, _plain, torch_functions.ctc_loss, log_probs, targets, *lengths, blank, number,
                  zero_infinity)


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    **torch_functions.FUNCTIONS, **torch_packed.FUNCTIONS, torch.ctc_loss: _ctc_loss, torch.nn.functional.ctc_loss: _ctc_loss,
    torch.lstm: _of_layers("lstm"), torch.gru: _of_layers("gru"), torch.rnn_tanh: _of_layers("rnn_tanh"),
    torch.rnn_relu: _of_layers("rnn_relu")}
"""Functions of torch in others, or as composites, while torch exports them."""

WITHIN: dict[Any, Callable[..., Any]] = {
    **torch_functions.FUNCTIONS,
    **{getattr(torch, kind): _of_layers(kind, _steps) for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu")}}
"""The composites in others, where a model differentiates within: autograd and torch.func see through these alone."""


# ------------------------------------------------------------------------------------------- decompositions


@rule("xla_torch.composite.default")
def _composite(builder: Builder, name: str, attributes: str, operands: list[XlaOp]) -> list[XlaOp]:
    computation = decomposition(name, attributes, tuple(o.shape.without_layout() for o in operands))
    kernel = computation.derivatives
    made = builder.add(control.call, operands, call_attributes(computation), name=computation.name,
                       common={"frontend_attributes": described(kernel)})
    return list(leaves(elements_of(made)))


@functools.lru_cache(maxsize=256)
def decomposition(name: str, attributes: str, shapes: tuple[Shape, ...]) -> Computation:
    """What a composite of operands of these shapes is, in canonical form, known to be it. Raises UnsupportedError for
    a name that there is no kernel for, and what torch raises for arguments that its operator does not take."""
    if not name.endswith(VJP):
        return known_as(_traced(name, attributes, shapes), name, attributes)
    options = json.loads(attributes)
    needed, demanded, _ = (options.pop(word) for word in ("needed", "demanded", "kept"))
    forward = decomposition(name.removesuffix(VJP), json.dumps(options), shapes[:len(options["operands"])])
    return forward.derivatives.back(tuple(needed), tuple(demanded))


def _traced(name: str, attributes: str, shapes: Sequence[Shape]) -> Computation:
    call, title = composites.Call(name, json.loads(attributes)), name.replace(".", "_")
    if torch_graph.name_of(call.operator) in RULES:
        return _by_rule(call, _results(name, attributes, shapes), shapes, title)
    core, first = decomposition_tables.without_composites()
    way = _LOOPS.get(call.operator) or first.get(call.operator, call.operator)

    def function(*operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return call.results(operands, way)

    with _apart(), torch_stops.InPlaceOfDetach():
        graph = torch_graphs.traced(function, _stand_ins_of(shapes), core, in_two_steps=True)
    builder = XlaBuilder(title)
    nodes = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
    inputs = {node: builder.parameter(k, shape) for k, (node, shape) in enumerate(zip(nodes, shapes, strict=True))}
    torch_graph.check(graph.graph)
    return _finished(builder, torch_graph.build(builder, graph.graph, inputs, lambda one: getattr(graph, one)))


def _as_padded(kind: str) -> Callable[..., Any]:
    """Recurrent layers over packed sequences by those over padded batches, which are composites, too."""
    padded = getattr(torch.ops.aten, kind).input

    def whole(*args: Any) -> Any:
        options, operands = composites.taken_apart(padded, args, {})
        return _plain(composites.name_of(padded), json.dumps(options), *operands)

    return functools.partial(torch_packed.layers, whole)


_LOOPS: dict[Any, Callable[..., Any]] = {
    **{getattr(torch.ops.aten, kind).data: _as_padded(kind) for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
    torch.ops.aten.ctc_loss.Tensor: functools.partial(torch_functions.ctc_loss, scan=torch_graphs.scan)}
"""What operators are that torch walks through step by step."""


def _by_rule(call: composites.Call, results: Sequence[torch.Tensor], shapes: Sequence[Shape], title: str) -> Computation:
    """What the operator's rule makes of operands of these shapes, where torch gives such results."""
    expected = [torch_graph.shape_of(r, f"a result of {call.operator}") for r in results]
    builder = XlaBuilder(title)
    operands = [builder.parameter(k, shape) for k, shape in enumerate(shapes)]
    defaults = {a.name: a.default_value for a in arguments_of(call.operator) if a.has_default_value()}
    return _finished(builder, applied(torch_graph.name_of(call.operator), builder, call.arguments(operands), defaults,
                                      expected if len(expected) > 1 else expected[0], True, True))


def _finished(builder: XlaBuilder, found: Sequence[Any]) -> Computation:
    whole = found[0] if len(found) == 1 else builder.add(control.tuple_, found)
    return builder.build(whole).program.authored


def _results(name: str, attributes: str, shapes: Sequence[Shape]) -> list[torch.Tensor]:
    """Stand-ins for the results of a composite of operands of these shapes."""
    operands = _stand_ins_of(shapes)
    with operands[0].fake_mode:  # pyright: ignore[reportAttributeAccessIssue]
        return _stand_ins(name, attributes, operands)


def _stand_ins_of(shapes: Sequence[Shape]) -> list[torch.Tensor]:
    return torch_graphs.stand_ins((s.dimensions, torch_dtype(s.element_type)) for s in shapes)
