"""Every private interface of torch that the library uses: with `torch_graphs`, the one place to look at for a new torch.

Each name is looked up here when the library is imported, so that a torch without it is an error that says so, and not an
AttributeError in the middle of a program. `tests/project/test_torch_private.py` sees to it that no other module names a private
part of torch, and that the versions here are those of pyproject.toml.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import linecache
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed
import torch.fx.graph_module
from torch.autograd import forward_ad

from ..core.errors import MissingDependency
from ..core.versions import Window

TORCH = Window("torch", oldest=(2, 11), newest=(2, 15))


def private(root: Any, path: str) -> Any:
    """What stands at a path of attributes below a module of torch. Raises MissingDependency where this torch lacks it."""
    try:
        return functools.reduce(getattr, path.split("."), root)
    except AttributeError:
        name = f"{root.__name__}.{path}"
        raise MissingDependency(f"this torch has no {name}, which xla_torch needs", got=f"torch {torch.__version__}",
                                expected=str(TORCH),
                                hint="install one of these, or fix xla_torch/storage/torch_private.py") from None


TORCH.check(torch.__version__)

# ------------------------------------------------------------------------------------------------ transforms of torch.func

transforms_are_active: Callable[[], bool] = private(torch, "_C._are_functorch_transforms_active")
"""Whether a call happens inside torch.func.grad, vmap, jvp or the like."""

is_wrapped: Callable[[torch.Tensor], bool] = private(torch, "_C._functorch.is_functorch_wrapped_tensor")
"""Whether a tensor stands for another one inside a transform of torch.func."""

is_batched: Callable[[torch.Tensor], bool] = private(torch, "_C._functorch.is_batchedtensor")
"""Whether a wrapped tensor is one example's part of a batch."""

unwrapped: Callable[[torch.Tensor], torch.Tensor] = private(torch, "_C._functorch.get_unwrapped")
"""The tensor that a wrapped one stands for."""

without_dead_wrappers: Callable[[tuple[Any, ...]], tuple[Any, ...]] = private(torch, "_functorch.utils.unwrap_dead_wrappers")
"""Tensors without the wrappers of transforms that have ended."""

_interpreters: Callable[[], Any] = private(torch, "_C._functorch.get_interpreter_stack")
_VMAP: Any = private(torch, "_C._functorch.TransformType.Vmap")
_no_transforms: Callable[[], Any] = private(torch, "_functorch.pyfunctorch.temporarily_clear_interpreter_stack")


def level_of_transforms() -> int:
    """How many transforms are on, one within another."""
    return len(_interpreters() or ())


def transforms_are_vmap() -> list[bool]:
    """Of each transform that is on, the outermost first, whether it is torch.func.vmap. The others differentiate."""
    return [one.key() == _VMAP for one in _interpreters() or ()]


# ------------------------------------------------------------------------------------------------ modes

_no_modes: Callable[[], Any] = private(torch, "utils._python_dispatch._disable_current_modes")
private(forward_ad, "_current_level")
autocast_is_anywhere: Callable[[], bool] = private(torch, "_C._is_any_autocast_enabled")
"""Whether torch's autocast is on for devices of some type."""

_modes_on: Callable[[], int] = private(torch, "_C._len_torch_dispatch_stack")


def forward_mode_is_on() -> bool:
    """Whether a level of forward-mode differentiation is open, so that tensors may have tangents."""
    return forward_ad._current_level >= 0


def does_more_than_compute() -> bool:
    """Whether a call on tensors that do not require grad is more than that: tangents go through it, a transform of torch.func is
    on, its calls are written down, or autocast."""
    return forward_ad._current_level >= 0 or autocast_is_anywhere() or is_traced()


def is_watched() -> bool:
    """Whether a transform of torch.func or a dispatch mode sees what torch computes."""
    return transforms_are_active() or _modes_on() > 0


is_batched_by_autograd: Callable[[torch.Tensor], bool] = private(torch, "_C._functorch.is_legacy_batchedtensor")
"""Whether a tensor is one example's part of a batch that torch.autograd itself made (``vectorize=True``, gradcheck)."""

_mode_of_kind: Callable[[Any], Any] = private(torch, "_C._get_dispatch_mode")
_PROXIES: Any = private(torch, "_C._TorchDispatchModeKey.PROXY")
_STAND_INS: Any = private(torch, "_C._TorchDispatchModeKey.FAKE")


def is_traced() -> bool:
    """Whether what torch computes is written down to be done again (make_fx, torch.func.linearize, torch.export), or done for
    what a transform of torch.func makes of tensors: then nothing may be written over what was read."""
    return transforms_are_active() or is_graphed()


def is_graphed() -> bool:
    """Whether torch makes a graph of what it is told to compute (make_fx, torch.compile, torch.export), or goes through it with
    tensors without data."""
    return _modes_on() > 0 and (_mode_of_kind(_PROXIES) is not None or _mode_of_kind(_STAND_INS) is not None)


assert_in_graph: Callable[[torch.Tensor, str], None] = private(torch, "_assert_async")
"""An assertion that a graph of torch's keeps, by a message."""

is_traced_symbolically: Callable[[], bool] = private(torch.fx, "_symbolic_trace.is_fx_symbolic_tracing")
"""Whether torch.fx, and not torch's compiler, goes through code with proxies in the place of some arguments."""

tensor_guards: Any = private(torch, "_C._dynamo.guards.TensorGuards")
"""What torch.compile compares tensors with: classes, dispatch keys, dtypes, devices, sizes, strides."""

profiler_is_on: Callable[[], bool] = private(torch, "autograd._profiler_enabled")
"""Whether torch's profiler sees what this thread computes."""


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Within the block no transform of torch.func is on, no mode that makes other tensors, no autocast and no inference mode:
    what is made there once and kept is made in the same way wherever it is first asked for."""
    with _no_transforms(), _no_modes(), without_autocast("cpu"), without_autocast("cuda"), torch.inference_mode(False):
        yield


copy_each: Callable[[list[torch.Tensor], list[torch.Tensor]], None] = private(torch, "_foreach_copy_")
"""Write the second tensors into the first, as few calls of the device."""

_DispatchMode: Any = private(torch, "utils._python_dispatch.TorchDispatchMode")


def looked_at(run: Callable[[], Any]) -> tuple[str, int, Any]:
    """The first operator of a run for which the host waits for a device (its result or the size of that depends on numbers, or
    goes to the host), empty if there is none; how many operators compute something; and what `run` gives."""
    waits: list[str] = []
    count = 0

    class Look(_DispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal count
            result = func(*args, **(kwargs or {}))
            count += not func.is_view
            if _reads_values(func, args) or _comes_home(args, result):
                waits.append(str(func))
            return result

    with Look():
        result = run()
    return (waits or [""])[0], count, result


def _reads_values(operator: Any, given: Any) -> bool:
    if operator is torch.ops.aten.index.Tensor:  # by numbers it does not
        return any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in given[1])
    return bool({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & {*operator.tags})


def _comes_home(given: Any, result: Any) -> bool:
    def is_there(value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.device.type not in ("cpu", "meta")

    return isinstance(result, torch.Tensor) and not is_there(result) and any(map(is_there, given))


# ------------------------------------------------------------------------------------------------ calls


set_grad_enabled: Callable[[bool], None] = private(torch, "_C._set_grad_enabled")
"""Whether autograd records what this thread computes from here on. `torch.no_grad` is a class of Python around it, which takes as
long as a small op."""


def plain_apply(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """What `function.apply` does where no transform is on, without looking at the signature of its `forward` each time."""
    return super(torch.autograd.Function, function).apply  # pyright: ignore[reportAttributeAccessIssue]


convolution: Callable[..., torch.Tensor] = private(torch, "_convolution")
"""torch's convolutions with every choice as an argument, among them TF32, for which there is a global switch only."""

onednn_linear: Callable[..., torch.Tensor] | None = (
    private(torch, "ops.mkldnn._linear_pointwise") if torch.backends.mkldnn.is_available() else None)
"""``input @ weight.T`` by oneDNN: ``(input, weight, bias, activation, its scalars, its algorithm)``; None in a torch without."""

int8_products: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = (
    private(torch, "_int_mm") if torch.backends.mkldnn.is_available() and private(torch, "cpu._is_vnni_supported")() else None)
"""``lhs @ rhs`` of int8 matrices in int32, which wraps. None where the processor has no instruction that adds products of bytes
up in 32 bits: oneDNN then adds pairs of them up in 16, where they may stay at the largest number."""

_UNITS: dict[torch.dtype, str] = {
    torch.bfloat16: "ops.mkldnn._is_mkldnn_bf16_supported", torch.float16: "ops.mkldnn._is_mkldnn_fp16_supported"}


@functools.cache
def has_units(dtype: torch.dtype) -> bool:
    """Whether torch multiplies matrices of bfloat16 or float16 by units of the processor, and not element by element."""
    return torch.backends.mkldnn.is_available() and bool(private(torch, _UNITS[dtype])())


# ------------------------------------------------------------------------------------------------ torch.distributed


default_store: Any = (
    private(torch.distributed, "distributed_c10d._get_default_store") if torch.distributed.is_available() else None)
"""The key-value store of the processes that `torch.distributed.init_process_group` has joined. None where torch was built
without torch.distributed, and so no process can have joined."""


def set_timeout(options: Any, limit: Any) -> None:
    """Let a process group that is made with these options wait so long, a `datetime.timedelta`."""
    options._timeout = limit


_ROUTINES = ("gemm", "gesdd", "syevd", "heevd", "getrf", "geqrf", "orgqr", "ungqr", "ormqr", "unmqr")


@functools.cache
def blas() -> dict[str, int]:
    """Addresses of the routines of BLAS and LAPACK that torch itself calls, by name, as far as its library shows them, and of
    the function of MKL's that says on how many threads."""
    found: dict[str, int] = {}
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).with_name("lib") / "libtorch_cpu.so"))
    except OSError:
        return found
    names = [t + name for t in "sdcz" for name in _ROUTINES]
    for name, symbol in (*((name, f"{name}_") for name in names), ("MKL_Set_Num_Threads_Local",) * 2):
        with contextlib.suppress(AttributeError):
            found[name] = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value or 0
    return found


def all_gather_into(group: Any, output: torch.Tensor, given: torch.Tensor) -> Any:
    """Begin to gather every process's array, one after another, in one output; returns the work to wait for."""
    return group._allgather_base(output, given)


@functools.cache
def _higher_order(name: str) -> Any:
    # Importing them takes long, and only graphs have them.
    return private(importlib.import_module(f"torch._higher_order_ops.{name}"), f"{name}_op")


def while_operator(*arguments: Any) -> Any:
    """torch's operator for loops in graphs: ``(condition, body, carried, what else both are given)``."""
    _regions_keep_what_they_are_given()
    return _higher_order("while_loop")(*arguments)


def cond_operator(*arguments: Any) -> Any:
    """torch's operator for branches in graphs: ``(test, branch where it holds, other branch, what both are given)``."""
    _regions_keep_what_they_are_given()
    return _higher_order("cond")(*arguments)


@functools.cache
def _regions_keep_what_they_are_given() -> None:
    """Have inductor write over no argument of a loop's or branch's body. Which arguments of a whole backward graph it may write
    over, it takes by their numbers for those of each body too, so that gradients are wrong where an array is read again
    (pytorch/pytorch#192840). A torch that has this mended asks for nothing here, and nothing changes."""
    regions = private(importlib.import_module("torch._inductor.graph"), "SubgraphLowering")
    regions.bw_donated_idxs = property(lambda self: None, lambda self, numbers: None)


@functools.cache
def needs_data() -> tuple[type[Exception], ...]:
    """What torch raises where a graph would depend on numbers that are not there when it is made."""
    fake, symbols = (importlib.import_module(name) for name in (
        "torch._subclasses.fake_tensor", "torch.fx.experimental.symbolic_shapes"))
    return private(fake, "UnsupportedFakeTensorException"), private(fake, "DataDependentOutputException"), private(
        fake, "DynamicOutputShapeException"), private(symbols, "GuardOnDataDependentSymNode")


def of_same_code(module: torch.nn.Module, changed: Callable[[Any], Any]) -> torch.nn.Module:
    """A module with the same code and the same parameters and buffers, whose other attributes are what `changed` makes of them,
    and so in all modules within it."""
    made = object.__new__(module.__class__)  # a GraphModule would make a class of its own for each
    made.__dict__.update({name: changed(given) for name, given in module.__dict__.items()})
    inner = module._modules.items()
    made.__dict__["_modules"] = {name: None if own is None else of_same_code(own, changed) for name, own in inner}
    return made


def contents(module: torch.nn.Module) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The parameters, the buffers and the modules in a module by name, in their order."""
    return module._parameters, module._buffers, module._modules


def direct(module: torch.nn.Module) -> Callable[..., Any]:
    """A module's `forward`, with what the module holds now as plain attributes: `nn.Module` looks for each in four tables, which
    takes as long as a small op."""
    held = types.SimpleNamespace(**module.__dict__)
    for found in contents(module):
        held.__dict__.update(found)
    return types.MethodType(type(module).forward, held)


# ------------------------------------------------------------------------------------------------ torch's compiler


def compiler() -> Any:
    """What torch.compile is told of functions with, which takes long to import."""
    return importlib.import_module("torch._dynamo")


def stand_ins() -> contextlib.AbstractContextManager[Any]:
    """Within the block new tensors have no data, and no sizes that depend on data, as in torch.compile."""
    mode, sizes = (private(importlib.import_module(f"torch.{module}"), name) for module, name in (
        ("_subclasses.fake_tensor", "FakeTensorMode"), ("fx.experimental.symbolic_shapes", "ShapeEnv")))
    return mode(shape_env=sizes(allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False))


def compile_graph(module: torch.fx.GraphModule, examples: list[torch.Tensor]) -> Callable[..., Any]:
    """A function of torch's compiler that does what the module does, for tensors like these examples alone. It checks nothing
    when it is called, and has no gradients. Raises whatever the compiler raises."""
    # Importing it takes seconds, and most programs need no compiler.
    make = private(importlib.import_module("torch._inductor"), "standalone_compile")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's own, about its dependencies
        return make(module, examples, dynamic_shapes="from_example_inputs")


# ------------------------------------------------------------------------------------------------ modules of torch.fx

_loader: Any = private(torch.fx.graph_module, "_loader")


class LoweredModule(torch.fx.GraphModule):
    """A GraphModule whose modules inside are complete, and which leaves nothing behind.

    torch compiles all modules inside once more with each that is made around them: in time quadratic in how deep they stand, and
    exponential where they are shared. And it keeps the source of every module for as long as the process lives.
    """

    def _recompile_submodules(self) -> list[Any]:
        return []

    def recompile(self) -> Any:
        code = super().recompile()
        forward = type(self).forward
        weakref.finalize(forward, _forget, forward.__code__.co_filename).atexit = False
        return code


def _forget(filename: str) -> None:
    _loader.eval_cache.pop(filename, None)
    linecache.cache.pop(filename, None)


# ------------------------------------------------------------------------------------------------ operators

_decompositions: Callable[[Any], dict[Any, Callable[..., Any]]] = private(torch, "_decomp.get_decompositions")


def decompositions(*operators: Any) -> dict[Any, Callable[..., Any]]:
    """What these operators are in others, as far as torch says."""
    return _decompositions(operators)


Operator: Any = private(torch, "_ops.OpOverload")
"""The class of the operators in graphs, one for each signature."""


HigherOrderOperator: Any = private(torch, "_ops.HigherOrderOperator")
"""The class of what takes graphs among its arguments: loops and branches."""

with_effects: Any = private(torch, "_higher_order_ops.effects.with_effects")
"""What graphs call operators with that stay in order: (a token, the operator, its arguments), for a token and results."""


def is_view(operator: Any) -> bool:
    """Whether what an operator gives shares memory with what it takes, be it written into or not."""
    return any(one.alias_info for one in operator._schema.returns)


READING = (torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default)
"""The operators that read a number from a tensor."""


def is_composite(operator: Any) -> bool:
    """Whether an operator stands for others: its result may then be what it takes, which its schema does not say."""
    return operator.has_kernel_for_dispatch_key(_COMPOSITE)


_COMPOSITE: Any = private(torch, "_C.DispatchKey.CompositeImplicitAutograd")


def arguments_of(operator: Any) -> list[Any]:
    """What an operator takes, each with `name`, `has_default_value()` and `default_value`."""
    return list(operator._schema.arguments)


# ------------------------------------------------------------------------------------------------ torch.export

pytree: Any = private(torch, "utils._pytree")
"""The trees of arguments and results that torch.export writes down."""


def autocast_is_on(device_type: str) -> bool:
    """Whether torch's autocast is on for devices of a type; there is none for meta, and torch does not answer."""
    return device_type != "meta" and torch.is_autocast_enabled(device_type)


def without_autocast(device_type: str) -> contextlib.AbstractContextManager[object]:
    """A block in which autocast is off."""
    return torch.autocast(device_type, enabled=False) if autocast_is_on(device_type) else contextlib.nullcontext()


def quietly(export: Callable[[], Any]) -> Any:
    """What `export` gives, without torch's warnings of its own use of a class that it has deprecated, and of what `torch.nn.RNN`
    does with its weights."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"The tensor attributes? self\.(\w+\.)*_flat_weights", UserWarning)
        warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning)
        return export()


_side_effectful: set[Any] = private(torch, "fx.node._side_effectful_functions")


def with_unread_regions(decompose: Callable[[], Any]) -> Any:
    """What `decompose` gives, with the loops and branches whose results nobody reads: there may be checks in them."""
    added = {getattr(torch.ops.higher_order, name) for name in ("cond", "while_loop", "scan", "map_impl")} - _side_effectful
    _side_effectful.update(added)
    try:
        return decompose()
    finally:
        _side_effectful.difference_update(added)


class _Signed:
    """The bits of a tensor of unsigned integers, which torch pickles but does not read back."""

    def __init__(self, tensor: torch.Tensor):
        self.dtype, self.bits = tensor.dtype, tensor.view(torch.int64)


def picklable(tree: Any) -> Any:
    """A tree of tensors with what stands for those of uint64, so that it can be pickled."""
    return pytree.tree_map_only(torch.Tensor, lambda t: _Signed(t) if t.dtype is torch.uint64 else t, tree)


def unpickled(tree: Any) -> Any:
    """The tree of tensors that `picklable` was given."""
    return pytree.tree_map_only(_Signed, lambda held: held.bits.view(held.dtype), tree)


def unknown_to_onnx(exported: Any) -> list[str]:
    """The operators of an exported program, once torch.onnx has taken it apart, that torch.onnx has no translation of."""
    registration, core, dispatching = (importlib.import_module(f"torch.onnx._internal.exporter._{name}") for name in (
        "registration", "core", "dispatching"))
    known = private(registration, "ONNXRegistry").from_torchlib()
    prepared = private(core, "_prepare_exported_program_for_export")(exported, registry=known)
    nodes = [node for module in prepared.graph_module.modules() if isinstance(module, torch.fx.GraphModule)
             for node in module.graph.nodes if node.op == "call_function" and hasattr(node.target, "namespace")]
    return sorted({str(node.target) for node in nodes if private(dispatching, "dispatch")(node, known)[0] is None})
