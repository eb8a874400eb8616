"""What torch.export gets wrong in programs that eager torch runs, mended for as long as one is exported."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.fx

from . import (
    inline_regions,
    kernel_repairs,
    own_generators,
    padded_encoders,
    python_extremes,
    read_numbers,
    torch_graphs,
)
from .kept_state import changes, keeping_nothing
from .torch_private import private

_Fake: Any = private(importlib.import_module("torch._subclasses.fake_tensor"), "FakeTensor")
_lifting: Any = importlib.import_module("torch._export.passes.lift_constants_pass")
_unused: Callable[[torch.fx.Node], Any] = private(_lifting, "_unused_constant")
_Module: Any = torch.nn.Module
_apply: Callable[..., Any] = _Module._apply


_trace: Any = importlib.import_module("torch.export._trace")
_detect: Callable[..., Any] = private(_trace, "_detect_attribute_assignment")
_watch: Callable[..., Any] = private(_trace, "register_buffer_assignment_hook")
_hooks: dict[int, Callable[..., Any]] = private(torch.nn.modules.module, "_global_buffer_registration_hooks")


@contextlib.contextmanager
def repaired(model: torch.nn.Module) -> Iterator[list[str]]:
    """A block in which torch.export takes constants without users, converts modules that the model makes, lets the model fill
    buffers that are None, knows generators that it makes, and calls mended kernels. One at a time.
    The list has, behind the block, the names of the attributes that the model has changed (`kept_state.py`)."""
    _lifting._unused_constant, _Module._apply = _without_user, _converted
    _trace.register_buffer_assignment_hook = _watched
    changed = list[str]()
    _trace._detect_attribute_assignment = _noting(model, changed)
    try:
        with (keeping_nothing(model), own_generators.noted(), read_numbers.as_python(), python_extremes.as_python(),
              kernel_repairs.mended(), padded_encoders.as_eager()):
            yield changed
    finally:
        _lifting._unused_constant, _Module._apply = _unused, _apply
        _trace.register_buffer_assignment_hook, _trace._detect_attribute_assignment = _watch, _detect


def _noting(model: torch.nn.Module, changed: list[str]) -> Callable[[torch.nn.Module], contextlib.AbstractContextManager[Any]]:
    """As torch's, which puts attributes back as they were: before it does, those that have changed are noted."""
    @contextlib.contextmanager
    def detect(module: torch.nn.Module) -> Iterator[Any]:
        with _detect(module) as found:
            now = changes(model)
            try:
                yield found
            finally:
                changed[:] = now()

    return detect


def _watched(model: torch.nn.Module, assigned: dict[str, str]) -> Any:
    """As torch's, which would write what the model puts in the place of None into a buffer, of which there is none."""
    empty = {name for name, one in model._buffers.items() if one is None}
    handle = _watch(model, assigned)
    note = _hooks[handle.id]

    def noted(module: torch.nn.Module, name: str, buffer: Any) -> Any:
        return buffer if module._buffers is model._buffers and name in empty else note(module, name, buffer)

    _hooks[handle.id] = noted
    return handle


def _without_user(node: torch.fx.Node) -> Any:
    """As torch's, which asks for the first user also where there is none."""
    return _unused(node) if node.users else [node]


def _converted(module: torch.nn.Module, fn: Callable[[torch.Tensor], torch.Tensor], *options: Any, **named: Any) -> Any:
    """As torch's, which would swap traced parameters with others in place, and cannot: the trace refers to them."""
    held: dict[str, Any] = {name: given for name, given in module._parameters.items() if isinstance(given, _Fake)}
    if not held:
        return _apply(module, fn, *options, **named)
    for name in held:
        module._parameters[name] = None
    try:
        _apply(module, fn, *options, **named)
    finally:
        module._parameters.update(held)
    for name, given in held.items():
        with torch.no_grad():
            found = fn(given)
        if found is not given:
            module._parameters[name] = torch.nn.Parameter(found, given.requires_grad)
    return module


def with_conversions(exported: Any) -> Any:
    """A program whose copies into tensors of another type convert first: torch's decompositions let a buffer that is written so
    become what is copied, unconverted."""
    if not any(map(_converting, inline_regions.with_regions(exported.graph_module))):
        return exported
    module = torch_graphs.deep_copied(exported)
    for one in inline_regions.with_regions(module):
        for node in _converting(one):
            (to, source), value = node.args[:2], node.args[0].meta["val"]
            with one.graph.inserting_before(node):
                made = one.graph.call_function(torch.ops.aten.to.dtype, (source, value.dtype))
            made.meta = {**node.meta, "val": source.meta["val"].to(value.dtype)}
            node.args = (to, made, *node.args[2:])
        one.recompile()
    return torch_graphs.with_graph(exported, module, exported.graph_signature, {})


def _converting(module: torch.fx.GraphModule) -> list[Any]:
    """The copies of tensors into tensors of another type."""
    found: list[Any] = [node for node in module.graph.nodes if node.target is torch.ops.aten.copy_.default]
    return [node for node in found if node.args[0].meta["val"].dtype is not node.args[1].meta["val"].dtype]
