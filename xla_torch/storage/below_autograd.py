"""Models that differentiate within: traced below autograd, where derivatives are operators like any other.

torch.export makes constants of what `torch.func.grad` and its kin differentiate, and of what autograd keeps for the way back:
their tensors are none that it follows. So the model is traced on its own first, and the export sees the operators of that.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.fx
import torch.fx.traceback
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..core.errors import UnsupportedError
from .applied_functions import hooking, hooks_of, is_applying
from .function_modes import DETACHES, FunctionMode, on_tensors
from .torch_private import READING, Operator, is_view, level_of_transforms, private, pytree

_proxies = private(torch, "fx.experimental.proxy_tensor")
_zero_tangents = private(torch, "ops.aten._efficientzerotensor.default")
_preprocess: Any = private(torch, "autograd.functional._grad_preprocess")
_modes, _pop, _push = (private(torch, f"overrides.{name}") for name in (
    "_get_current_function_mode_stack", "_pop_mode", "_push_mode"))


@contextlib.contextmanager
def tracing(module: torch.nn.Module) -> Iterator[dict[Any, Any]]:
    """While it is on, the module calls what its `forward` does in operators, derivatives within it among them. Gives what each
    symbol of the first trace, a number that is read from a tensor, is in the trace of the operators."""
    own, forward, renamed = dict(vars(module)), module.forward, {}
    hooks = hooks_of(module)

    @functools.wraps(forward)
    def traced(*args: Any, **kwargs: Any) -> Any:
        module.forward = forward
        try:
            with hooking(module, hooks):  # the export's tensors are in the places of its parameters
                return _traced(forward, args, kwargs, [*module.parameters(), *module.buffers()], renamed)
        finally:
            module.forward = traced

    module.forward = traced
    try:
        yield renamed
    finally:
        if "forward" in own:
            module.forward = own["forward"]
        else:
            del module.forward


class _Again(torch.fx.Interpreter):
    """A run of a traced graph in another trace, where the numbers that are read from tensors get symbols of their own."""

    def __init__(self, module: torch.fx.GraphModule, renamed: dict[Any, Any]):
        super().__init__(module)
        self._renamed = renamed

    def run_node(self, n: torch.fx.Node) -> Any:
        found = super().run_node(n)
        value: Any = n.meta.get("val")
        if n.target in READING and hasattr(value, "node"):
            symbols = value.node.expr.free_symbols
            after = found.node.expr.free_symbols if hasattr(found, "node") else [found]
            self._renamed.update(zip(symbols, after, strict=False))
        return found


def _traced(function: Callable[..., Any], args: Any, kwargs: Any, weights: Sequence[torch.Tensor],
            renamed: dict[Any, Any]) -> Any:
    """What the function gives, by operators that are traced apart and then run. `weights` are tensors that it knows: numbers that
    it reads from others are constants."""
    leaves, tree = pytree.tree_flatten((args, kwargs))
    at = [k for k, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    out_tree: list[Any] = []

    def flat(*tensors: torch.Tensor) -> list[Any]:
        whole = list(leaves)
        for k, tensor in zip(at, tensors, strict=False):
            whole[k] = tensor
        args, kwargs = pytree.tree_unflatten(whole, tree)
        with _Stops(), sdpa_kernel(SDPBackend.MATH):  # the others have no derivative of their derivative
            results, out = pytree.tree_flatten(function(*args, **kwargs))
        out_tree.append(out)
        return results

    with _alone(), torch.enable_grad(), torch.fx.traceback.preserve_node_meta():
        given = [leaves[k].detach().requires_grad_(leaves[k].requires_grad) for k in at]
        module = _proxies.make_fx(flat, {_zero_tangents: _zeros})(*given, *weights)
    for one in module.modules():
        if isinstance(one, torch.fx.GraphModule):
            _keep_zeros(one.graph)
            _undetach(one.graph)
            one.recompile()
    modes = [getattr(weight, "fake_mode", None) for weight in weights]
    for mode in {id(mode): mode for mode in modes if mode is not None}.values():
        mode.epoch += 1  # numbers that this trace read from weights are read again
    return pytree.tree_unflatten(_Again(module, renamed).run(*[leaves[k] for k in at], *weights), out_tree[-1])


class _Stops(FunctionMode):
    """What a function says of derivatives besides its values, and no operator would tell: where they stop is marked."""

    def __init__(self):
        super().__init__()
        self._has_graph: dict[int, bool] = {}
        """Whether there are derivatives at a level of torch.func, 0 outside of all."""
        self._apart: dict[int, Any] = {}
        """The storages, by `id`, that functions made since derivatives were turned off: no tensor with derivatives has them."""

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if torch.compiler.is_dynamo_compiling():
            return func(*args, **kwargs)
        has_graph = self._look()
        if func in _CHANGES:
            raise _refused(func.__name__)
        is_stop = func in DETACHES and not _is_by_functional(inspect.currentframe())
        with torch.fx.traceback.annotate({_ASKED: True}) if is_stop else contextlib.nullcontext():
            found = self.call(func, args, kwargs) if has_graph else self._without_graph(func, args, kwargs)
        if has_graph:  # what comes of them may have derivatives from here on, as all that is there when they are turned off
            self._apart.clear()
        if func is torch.autograd.grad and not (args[4] if len(args) > 4 else kwargs.get("create_graph")):
            has_graph = False
        self._look()
        return found if has_graph or func in DETACHES or _writes(func) else on_tensors(_detached, found)

    def _without_graph(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call a function within torch.no_grad. Autograd knows nothing of what it writes there, and the operators do: so it may
        write into memory that no tensor with derivatives has, and takes nothing there but values."""
        is_write = _writes(func)
        if is_write:
            args, kwargs = (*args[:1], *on_tensors(_detached, tuple(args[1:]))), on_tensors(_detached, dict(kwargs))
        tensors = _tensors((args, kwargs))
        versions = [_version(tensor) for tensor in tensors]
        found = self.call(func, args, kwargs)
        written = [tensor for tensor, version in zip(tensors, versions, strict=True) if _version(tensor) != version]
        written += _tensors(args[:1]) if is_write else []
        if written and not is_applying() and any(map(self._moves, written if is_write else tensors)):
            raise _refused(f"{getattr(func, '__name__', 'a write')} within torch.no_grad",
                           "write into a buffer itself, not into its `.data`")
        given, made = ([_memory(tensor) for tensor in some] for some in (tensors, _tensors(found)))
        self._apart.update((id(one), one) for one in made if one is not None and not any(one is other for other in given))
        return found

    def _moves(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor may have derivatives, or share its memory with one that may."""
        is_of_numbers = tensor.is_floating_point() or tensor.is_complex()
        return is_of_numbers and id(_memory(tensor)) not in self._apart

    def _look(self) -> bool:
        level = level_of_transforms()
        found = self._has_graph[level] = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        if not all(self._has_graph.get(k, True) for k in range(level)):
            raise _refused("torch.func within torch.no_grad")
        return found


def _is_by_functional(frame: types.FrameType | None) -> bool:
    """Whether `torch.autograd.functional` makes an input of its own with ``create_graph=True``. It detaches tensors that require
    no gradient, as those of an example do, and takes a view of those that require one, as those of calls may."""
    while frame is not None and frame.f_code.co_name == "__torch_function__":  # of other modes
        frame = frame.f_back
    return frame is not None and frame.f_code is _preprocess.__code__ and frame.f_locals["create_graph"]


def _writes(func: Any) -> bool:
    """Whether a function by its name writes into its first argument."""
    name = getattr(func, "__name__", "")
    return name in _WRITES or (name.endswith("_") and not name.endswith("__") and func is not torch.Tensor.requires_grad_)


_WRITES = {"__setitem__", *(f"__i{name}__" for name in ("and", "or", "xor", "lshift", "rshift"))}
"""The names of those whose names do not end like `add_`. Python's others are such functions: ``x += 1`` calls `add_`."""


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _memory(tensor: torch.Tensor) -> Any:
    """The storage of a tensor, the same object for all that share it, or None where torch gives none (in torch.func)."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None


def _version(tensor: torch.Tensor) -> int:
    """How often a tensor was written into, as far as torch counts."""
    return 0 if tensor.is_inference() else tensor._version


def _refused(what: str, hint: str = "") -> UnsupportedError:
    return UnsupportedError(f"{what} in a model that differentiates within", subject="from_torch",
                            expected="torch.autograd.grad or torch.func, and `detach` of what is constant", hint=hint)


def _detached(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor without derivatives, whose operator says in the graph that the function asked for it."""
    with torch.fx.traceback.annotate({_ASKED: True}):
        return tensor.detach()


_ASKED = "xla_torch.detach"
_CHANGES = (torch.Tensor.detach_, torch.detach_)
"""What changes tensors that are there."""


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Without what traces outside; modes of functions other than that stay."""
    with contextlib.ExitStack() as stack:
        for mode in reversed(_modes()):
            if isinstance(mode, _proxies.PreDispatchTorchFunctionMode):
                while (top := _pop()) is not mode:
                    stack.callback(_push, top)
                stack.callback(_push, mode)
        stack.enter_context(_proxies.disable_proxy_modes_tracing())
        yield


def _undetach(graph: torch.fx.Graph) -> None:
    """Take out what autograd detaches to keep it; what the function itself detaches is annotated. Below autograd torch 2.14 and
    newer write `alias` for either."""
    for node in list(graph.nodes):
        if node.target not in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            continue
        if _ASKED in node.meta.get("custom", {}):
            node.target = torch.ops.aten.detach.default
        else:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def _zeros(size: Sequence[Any], **options: Any) -> torch.Tensor:
    """The zeros of a tangent that is not there. torch's tensors without memory have the shapes of their products computed on
    another device, where a trace of nested transforms fails."""
    with torch.fx.traceback.annotate({_ABSENT: True}):
        return torch.zeros(size, **options)


_ABSENT = "xla_torch.absent"


def _keep_zeros(graph: torch.fx.Graph) -> None:
    """Let products with absent tangents be 0, as torch has them, also where the other factor is infinite or NaN."""
    absent: set[Any] = set()
    for node in list(graph.nodes):
        places = _FACTORS.get(node.target)
        if node.target is torch.ops.aten.zeros.default and _ABSENT in node.meta.get("custom", {}):
            absent.add(node)
        elif places and not absent.isdisjoint(node.args[:places]):
            with graph.inserting_after(node):
                zeros = graph.call_function(torch.ops.aten.zeros_like.default, (node,))
            zeros.meta = dict(node.meta)
            node.replace_all_uses_with(zeros, lambda user, made=zeros: user is not made)
            absent.add(zeros)
        elif isinstance(node.target, Operator) and is_view(node.target) and node.args[0] in absent:
            absent.add(node)


_FACTORS = {torch.ops.aten.mul.Tensor: 2, torch.ops.aten.div.Tensor: 1, torch.ops.aten.linalg_cross.default: 2}
"""How many of their first arguments make products of absent tangents 0."""


def has_lost(error: Exception) -> bool:
    """Whether torch.export says that it would have to make a constant of what it does not follow."""
    return "fake tensor in the exported program constant" in str(error)
