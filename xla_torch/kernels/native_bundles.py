"""Bundles of small ops at run time: one native call once its code is there, the same calls of torch until then and wherever it
cannot be."""

from __future__ import annotations

import array
import functools
import math
from collections.abc import Sequence
from typing import Any

import torch

from ..codegen.loops import Source
from ..core.budget import running
from ..storage import torch_private
from ..storage.tensor_guards import KnownTensors
from .calls import fresh_tuple
from .native import Awaited, asked, is_readable, raise_from
from .native_plans import NativePlan

Tensors = tuple[torch.Tensor, ...]


class NativeBundle(torch.nn.Module, Awaited):
    """A bundle's source, and the same as calls of torch. `given` are the bytes of each input, `made` dims and dtype of each
    result. Inputs of up to so many bytes are `copied` where their elements lie in another order."""

    def __init__(self, source: Source, module: torch.nn.Module, given: Sequence[int],
                 made: Sequence[tuple[tuple[int, ...], torch.dtype]], copied: int):
        torch.nn.Module.__init__(self)
        Awaited.__init__(self, source.text, "a group of small ops")
        self.source, self.module, self.given, self.copied = source, module, tuple(given), copied
        self.known = KnownTensors(within=True)
        self.made = [(dims, tuple(math.prod(dims[k + 1:]) for k in range(len(dims))), dtype) for dims, dtype in made]

    def __getstate__(self) -> dict[str, Any]:
        addresses = ("constants", "behind")
        return {**{k: v for k, v in super().__getstate__().items() if k not in addresses}, "code": None}

    @functools.cached_property
    def constants(self) -> tuple[int, ...]:
        """Where the source's constants are."""
        return tuple([constant.ctypes.data for constant in self.source.constants])

    @functools.cached_property
    def behind(self) -> tuple[int, ...]:
        """Where the routines are that it calls, and what it asks whether to stop, with places for an exception."""
        asks = (*asked(), 0, 0, 0) if self.source.asks else ()
        return (*[torch_private.blas()[name] for name in self.source.routines], *asks)

    @property
    def asks(self) -> bool:
        return self.source.asks

    def run(self, inputs: Tensors, results: Tensors, addresses: Sequence[int]) -> Tensors:
        """Run the function on contiguous tensors, the inputs' and the results', at these addresses; the results."""
        scratch = torch.empty(self.source.scratch, dtype=torch.uint8) if self.source.scratch else None
        places = array.array("q", (*addresses, *self.constants, 0 if scratch is None else scratch.data_ptr(), *self.behind))
        if self.function(1, places.buffer_info()[0]) < 0:
            raise_from(places[-3:])
        return results


@fresh_tuple
def bundle(module: NativeBundle | NativePlan, inputs: Tensors) -> Tensors:
    """The results of a bundle or plan."""
    if not module.is_ready() or (module.asks and running() is not None):
        return module.timed(module.module, *inputs)
    if isinstance(module, NativePlan) and module.stacks:
        inputs = module.with_rows(inputs)
    needs_grad = module.known.needs_grad(inputs)
    if needs_grad is None or (needs_grad and torch.is_grad_enabled()):
        if not fits(module, inputs):
            return module.timed(module.module, *inputs)
        if all(t.is_contiguous() for t in inputs):
            module.known.remember(inputs)
        else:
            inputs = tuple([t.contiguous() for t in inputs])
    empty = torch.empty_strided  # takes half as long as torch.empty
    results = tuple([empty(dims, strides, dtype=dtype) for dims, strides, dtype in module.made])
    return module.run(inputs, results, list(map(torch.Tensor.data_ptr, (*inputs, *results))))


def fits(module: NativeBundle | NativePlan, inputs: Tensors) -> bool:
    """Whether native code may go by the inputs' memory, once they are contiguous. Large ones, of which it reads a part, are not
    copied for it."""
    for tensor, size in zip(inputs, module.given, strict=True):
        if size is None:
            size = tensor.nbytes
        if tensor.nbytes != size or not is_readable(tensor) or (size > module.copied and not tensor.is_contiguous()):
            return False
    return True
