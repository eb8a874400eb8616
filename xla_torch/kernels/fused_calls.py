"""Groups of calls as functions that torch's compiler makes (`lowering/fused_calls.py`), at run time.

A function is compiled when its group first runs, for the strides and the number of threads that it meets; groups that are equal
share it, in all programs of the process, and torch keeps what it compiled on disk. Where the compiler cannot be used (there is no
C++ compiler, or it refuses the group) the calls stay calls, with a warning.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch

from ..core.forks import Lock
from ..storage import torch_private

Tensors = tuple[torch.Tensor, ...]
_Function = Callable[..., Tensors]

_VARIANTS = 8
"""Functions that one group has at most, for different strides of its inputs."""

_one_at_a_time = Lock()


class FusedCalls(torch.nn.Module):
    """A group of calls: as a `module` of calls, and as `text` that groups with the same function have in common."""

    def __init__(self, module: torch.fx.GraphModule, text: str):
        super().__init__()
        self.module, self.text = module, text
        self.made: dict[Any, _Function] = {}
        """The function for each form of the inputs."""

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "made": {}}

    def forward(self, *inputs: torch.Tensor) -> Tensors:
        return fused_calls(self, inputs)


def fused_calls(group: FusedCalls, inputs: Tensors) -> Tensors:
    """The results of a group, each in memory of its own."""
    if torch.compiler.is_compiling() or torch_private.is_watched() or any(map(_is_lazy, inputs)):
        return group.module.forward(*inputs)
    form = (torch.get_num_threads(), *[(t.shape, t.stride()) for t in inputs])
    run = group.made.get(form)
    if run is None:
        if len(group.made) >= _VARIANTS:
            return group.module.forward(*inputs)
        run = group.made[form] = _function(group, inputs)
    return run(*inputs)


def _is_lazy(tensor: torch.Tensor) -> bool:
    """Whether a tensor stands for the negative, or the conjugate, of what is in its memory."""
    return tensor.is_neg() or tensor.is_conj()


def _function(group: FusedCalls, inputs: Tensors) -> _Function:
    about = tuple((tuple(t.shape), t.stride(), t.dtype, str(t.device)) for t in inputs)
    with _one_at_a_time:
        return _compiled(_Group(group), about, torch.get_num_threads())


class _Group:
    """A group as a key: groups with one text are one."""

    def __init__(self, group: FusedCalls):
        self.module, self.text = group.module, group.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Group) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


@functools.lru_cache(maxsize=4096)
def _compiled(group: _Group, about: tuple[Any, ...], threads: int) -> _Function:
    """The function for inputs of these sizes, strides, element types and devices."""
    examples = [torch.empty_strided(dims, strides, dtype=dtype, device=device) for dims, strides, dtype, device in about]
    try:
        run = torch_private.compile_graph(group.module, examples)
        results = run(*examples)
    except Exception as error:  # whatever it is, the calls stay calls
        warnings.warn(f"{len(group.text.splitlines())} calls stay in torch, because its compiler does not compile them: "
                      f"{type(error).__name__}: {str(error)[:500]}", RuntimeWarning, stacklevel=6)
        return group.module.forward
    return _separate(run, [*examples, *results], len(examples))


def _separate(run: Callable[..., Any], tensors: list[torch.Tensor], inputs: int) -> _Function:
    """`run` whose results share memory neither with inputs nor with each other: the compiler makes equal results once."""
    places = [t.untyped_storage().data_ptr() for t in tensors]
    shared = frozenset(k - inputs for k in range(inputs, len(tensors)) if places[k] in places[:k] and tensors[k].numel())
    if not shared:
        return run
    return lambda *given: tuple([t.clone() if k in shared else t for k, t in enumerate(run(*given))])
