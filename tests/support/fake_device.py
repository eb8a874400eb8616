"""A CUDA device that is not there: programs run on fake tensors, which have shapes, dtypes and a device, but no values.

`fake_cuda` makes torch believe that there is a device ``cuda:0``, also where torch was built without CUDA. Every call that
reaches a kernel there is looked at (`Watch`): what mixes devices, brings data from the host, waits for the device, or asks for
a kernel that CUDA does not have, or has with less precision, is an error. Tensors on the CPU stay real, so that programs are
lowered as they always are.

Autograd needs a real device; gradients are run here as the programs that they are.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

import xla_torch
from xla_torch.lowering.programs import lower
from xla_torch.storage.dtypes import torch_dtype

CUDA = torch.device("cuda", 0)
UNKNOWN = 4
"""The size at run time of dimensions without a bound."""


class DeviceFault(AssertionError):
    """A call that does not work on CUDA, or not as it should."""


# ------------------------------------------------------------------------------- what CUDA lacks

_INTEGERS = frozenset({torch.bool, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64})
_COMPLEX = frozenset({torch.complex64, torch.complex128})
_HALF = frozenset({torch.float16, torch.bfloat16})
_LACKS: dict[str, frozenset[torch.dtype]] = {
    **dict.fromkeys(("mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "dot", "vdot"), _INTEGERS),
    **dict.fromkeys(("convolution", "_convolution"), _INTEGERS),
    **dict.fromkeys(("max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool2d", "avg_pool3d"), _INTEGERS | _COMPLEX),
    **dict.fromkeys(("scatter_reduce", "scatter_reduce_"), _COMPLEX | {torch.bool}),
    **dict.fromkeys(("igamma", "igammac", "histc", "angle"), _HALF),
    **dict.fromkeys(("sort", "topk", "cummax", "cummin", "kthvalue"), _COMPLEX),
    **dict.fromkeys(("linalg_cholesky_ex", "linalg_solve_triangular", "linalg_lu_factor_ex", "_linalg_eigh", "_linalg_svd",
                     "linalg_eig", "linalg_inv_ex", "_linalg_solve_ex", "linalg_householder_product", "geqrf", "_fft_c2c",
                     "_fft_r2c", "_fft_c2r"), _HALF | _INTEGERS),
}
"""For each torch kernel the dtypes that it has on the CPU, perhaps, but not on CUDA, as torch's own operator tests list them."""

_STORED_ONLY = frozenset({torch.uint16, torch.uint32, torch.uint64, torch.float8_e5m2, torch.float8_e4m3fn,
                          torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu})
"""Dtypes of the boundary: torch converts, copies and looks at them, and hardly does anything else with them."""

_STORING = frozenset({"view", "_to_copy", "clone", "copy_", "empty", "empty_like", "detach", "alias", "slice", "select",
                      "as_strided", "expand", "permute", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "device"})

_READS_VALUES = frozenset({"_local_scalar_dense", "nonzero", "bincount", "_unique2", "unique_dim", "masked_select"})
"""Calls whose Python result, or whose shape, depends on values: the host waits for the device."""


class Watch(TorchDispatchMode):
    """Runs calls on the CPU as they are, all others on fake tensors; while `running`, checks the latter.

    `waits` counts how often the host waited for the device. A program that does so is given answers: a condition holds
    once and then fails, an integer is 1, everything is nonzero, and all that is counted is the same.
    """

    def __init__(self) -> None:
        super().__init__()
        self.running, self.waits, self._answers, self._integer = False, 0, 0, 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        name = func.overloadpacket.__name__
        asked = kwargs.get("device")
        if not any(isinstance(t, FakeTensor) for t in given) and (asked is None or torch.device(asked).type == "cpu"):
            if self.running and name != "device":
                raise DeviceFault(f"{func} computes on the host")
            with _disable_current_modes():
                return func(*args, **kwargs)
        if name in _READS_VALUES and given[0].device.type == "cuda":
            return self._answer(name, given[0])
        if self.running:
            _check(func, name, args, kwargs, given)
        if "convolution" in name:  # for which torch's fake implementation calls a method that asks for a real device
            args = [_contiguous(a) if isinstance(a, torch.Tensor) else a for a in args]
        if name == "_convolution":  # of which torch before 2.13 has no fake implementation; its four flags change no shape
            func, args = torch.ops.aten.convolution.default, args[:-4]
        return func(*args, **kwargs)

    def _answer(self, name: str, tensor: torch.Tensor) -> Any:
        if not self.running:
            raise DeviceFault(f"{name} while a program is lowered")
        self.waits += 1
        if name == "nonzero":
            return torch.empty(tensor.numel(), tensor.dim(), dtype=torch.int64, device=tensor.device)
        if name == "bincount":
            self._integer = tensor.numel()
            return torch.empty(1, dtype=torch.int64, device=tensor.device)
        if name != "_local_scalar_dense":
            raise DeviceFault(f"{name} waits for the device")
        if tensor.dtype is not torch.bool:
            integer, self._integer = self._integer, 1
            return integer
        self._answers += 1
        return self._answers % 2 == 1


def _check(func: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any], given: Sequence[torch.Tensor]) -> None:
    """Raise DeviceFault for a call that does not do on CUDA what it does on the CPU."""
    if any(t.device.type == "cpu" for t in given):
        raise DeviceFault(f"{func} takes data from the host")
    target = kwargs.get("device")
    if target is not None and torch.device(target).type == "cpu":
        raise DeviceFault(f"{func} brings data to the host")
    dtypes = {t.dtype for t in given} | {d for d in (kwargs.get("dtype"),) if d is not None}
    if lacking := dtypes & _LACKS.get(name, frozenset()):
        raise DeviceFault(f"CUDA has no {func} for {sorted(map(str, lacking))}")
    if name not in _STORING and (lacking := {t.dtype for t in given} & _STORED_ONLY):
        raise DeviceFault(f"CUDA has no {func} for {sorted(map(str, lacking))}")
    if name == "convolution" and torch.float32 in dtypes:
        raise DeviceFault("torch may compute this float32 convolution in TF32")
    if name in ("div", "div_") and given[0].dtype.is_floating_point and isinstance(args[1], (int, float)) and abs(
            math.frexp(args[1])[0]) != 0.5:
        raise DeviceFault(f"CUDA multiplies by the inverse of {args[1]}, which rounds twice")


# ------------------------------------------------------------------------------- subscripts


class _Methods(TorchFunctionMode):
    """Methods whose own code in torch asks for a real device, by plain calls."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _BY_PLAIN_CALLS and isinstance(args[0], FakeTensor):
            func = _BY_PLAIN_CALLS[func]
        return func(*args, **(kwargs or {}))


def _taken(x: torch.Tensor, index: Any) -> torch.Tensor:
    index = index if isinstance(index, tuple) else (index,)
    if Ellipsis in [i for i in index if not isinstance(i, torch.Tensor)]:
        at = next(k for k, i in enumerate(index) if i is Ellipsis)
        full = x.dim() - sum(i is not None for i in index) + 1
        index = index[:at] + (slice(None),) * full + index[at + 1:]
    tensors: list[torch.Tensor | None] = []
    dim = 0
    for i in index:
        if isinstance(i, int):
            x = x.select(dim, i)
        elif i is None:
            x, dim = x.unsqueeze(dim), dim + 1
        elif isinstance(i, slice):
            x, dim = torch.ops.aten.slice(x, dim, i.start, i.stop, i.step or 1), dim + 1
        else:
            tensors += [None] * (dim - len(tensors)) + [i]
            dim += 1
    return torch.ops.aten.index(x, tensors) if tensors else x


def _put(x: torch.Tensor, index: Any, value: Any) -> torch.Tensor:
    part = _taken(x, index)
    return _copy(part, value) if isinstance(value, torch.Tensor) else part.fill_(value)


def _copy(x: torch.Tensor, value: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    with torch._C._AutoDispatchBelowAutograd():
        return torch.ops.aten.copy_(x, value, non_blocking)


def _contiguous(x: torch.Tensor) -> torch.Tensor:
    return x if x.is_contiguous() else x.clone(memory_format=torch.contiguous_format)


def _refuse_autograd(x: torch.Tensor, requires_grad: bool = True) -> torch.Tensor:
    raise DeviceFault("autograd needs a real device")


_BY_PLAIN_CALLS: dict[Any, Callable[..., torch.Tensor]] = {
    torch.Tensor.__getitem__: _taken, torch.Tensor.__setitem__: _put, torch.Tensor.contiguous: _contiguous,
    torch.Tensor.copy_: _copy, torch.Tensor.__invert__: torch.bitwise_not, torch.Tensor.nonzero: torch.ops.aten.nonzero,
    torch.Tensor.__int__: torch.ops.aten.item, torch.Tensor.requires_grad_: _refuse_autograd}


# ------------------------------------------------------------------------------- running programs


@contextlib.contextmanager
def fake_cuda() -> Iterator[Watch]:
    """Within the block there is a fake device `CUDA`."""
    watch = Watch()
    with FakeTensorMode(allow_non_fake_inputs=True), watch, _Methods():
        yield watch


def run_on_fake_cuda(computation: xla_torch.XlaComputation) -> int:
    """Lower a program for CUDA and run it on fake arguments; how often it waited for the device.

    Raises DeviceFault (or what torch raises) for what would not work; checks the results' devices, dtypes and sizes.
    """
    with fake_cuda() as watch:
        module = lower(computation.program.canonical, torch.device(CUDA))  # `computation.lowered` leaves all modes
        shape = computation.program_shape
        inputs = [leaf for p in shape.parameters for leaf in p.leaves() if leaf.is_array]
        arguments = [torch.empty([UNKNOWN if n < 0 else n for n in s.dimensions], dtype=torch_dtype(s.element_type), device=CUDA)
                     for s in inputs]
        watch.running = True
        with torch.no_grad():
            results = module.forward(*arguments)
        watch.running = False
        leaves = [leaf for leaf in shape.result.leaves() if leaf.is_array]
        assert len(results) == len(leaves)
        for result, leaf in zip(results, leaves, strict=True):
            assert result.device == CUDA
            assert result.dtype is torch_dtype(leaf.element_type)
            assert not leaf.is_static or tuple(result.shape) == leaf.dimensions
    return watch.waits
