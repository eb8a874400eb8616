"""Fusions of blocks, and foreach of small ones, at run time: native code once it is there, the same calls of torch until then and
wherever it cannot be."""

from __future__ import annotations

import array
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

from .calls import fresh
from .native import Awaited, is_readable, run_on_threads

Tensors = tuple[torch.Tensor, ...]

Role = Literal["whole", "apart", "tail", "row", "column", "scalar"]
"""What an input has a value for: each place of a grid, also where its rows lie apart, or of its last dimensions, each row, each
place of a row, or all of it."""


class NativeFusion(torch.nn.Module, Awaited):
    """A fusion's source, and the same as calls of torch. `roles` are those of its inputs; each of `made` is the dtype of a result
    with how many dimensions less than the grid it has, if it has one value for each row, and else None. `kept` are the bytes that
    the code needs for each element of a row, and `lead` is how many dimensions are before those of a row, which is one element
    where that is all of them. It `waits` for its code where torch's calls have other bits."""

    def __init__(self, text: str, module: torch.nn.Module, roles: Sequence[Role], made: Sequence[tuple[torch.dtype, int | None]],
                 kept: int, lead: int, waits: bool):
        torch.nn.Module.__init__(self)
        Awaited.__init__(self, text, "a chain of elementwise calls", waits)
        self.module, self.roles, self.made, self.kept, self.lead = module, tuple(roles), tuple(made), kept, lead

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "code": None}

    def fitting(self, inputs: Tensors) -> Tensors | None:
        """The inputs as they lie in memory by their roles; None where they do not. Whole arrays that lie otherwise, as
        a transpose does, are copied: that is one pass, and torch's calls are one for each call of the chain."""
        dims, found = self.grid(inputs), list[torch.Tensor]()
        for tensor, role in zip(inputs, self.roles, strict=True):
            if not is_readable(tensor) or not _LIES[role](tensor, dims, self.lead):
                return None
            is_apart = role == "apart" and tensor[(0,) * self.lead].is_contiguous()
            found.append(tensor.contiguous() if role in _GRIDS and not is_apart else tensor)
        return tuple(found)

    def grid(self, inputs: Tensors) -> torch.Size:
        """The grid's dimensions: those of an input that has a value for each place, or of a row and a column together."""
        whole = next((t.shape for t, role in zip(inputs, self.roles, strict=True) if role in _GRIDS), None)
        return torch.broadcast_shapes(*(t.shape for t in inputs)) if whole is None else whole

    def new_results(self, dims: torch.Size, into: tuple[torch.Tensor | None, ...]) -> Tensors | None:
        """The results for a grid, of which some stand in given arrays where these are contiguous; None where they do not fit."""
        results: list[torch.Tensor] = []
        for target, (dtype, less) in zip(into, self.made, strict=True):
            sizes = dims if less is None else dims[:self.lead] if less else (*dims[:self.lead], *[1] * len(dims[self.lead:]))
            if target is not None and target.shape != sizes:
                return None
            stands = target if target is not None and target.is_contiguous() else None
            results.append(torch.empty(sizes, dtype=dtype) if stands is None else stands)
        return tuple(results)


_GRIDS: frozenset[Role] = frozenset({"whole", "apart"})


def _apart(tensor: torch.Tensor, lead: int) -> array.array[int]:
    """How the rows of an array lie, for native code: how many dimensions they have, and each one's size and step, neighbours of
    one step as one dimension."""
    steps: list[tuple[int, int]] = []
    for size, step in zip(tensor.shape[:lead][::-1], tensor.stride()[:lead][::-1], strict=True):
        if steps and steps[-1][0] * steps[-1][1] == step:
            steps[-1] = (steps[-1][0] * size, steps[-1][1])
        else:
            steps.append((size, step))
    return array.array("q", [len(steps), *(n for one in steps for n in one)])


def _is_row(tensor: torch.Tensor, dims: torch.Size, lead: int) -> bool:
    """One value for each row, also where it is spread over the row."""
    spread = tensor.shape == dims
    return tensor.select(-1, 0).is_contiguous() and tensor.stride(-1) == 0 if spread else tensor.is_contiguous()


def _is_column(tensor: torch.Tensor, dims: torch.Size, lead: int) -> bool:
    """One value for each place of a row, also where it is spread over the rows."""
    over = tensor.dim() - len(dims) + lead
    return tensor[(0,) * over].is_contiguous() and not any(
        s for s, n in zip(tensor.stride()[:over], tensor.shape[:over], strict=True) if n != 1)


def _rows_of_tail(tensor: torch.Tensor) -> int | None:
    """The rows after which an array shows the same again, if these lie in memory one after the other; None otherwise."""
    first = next((d for d, (n, step) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)) if step and n != 1), -1)
    if not 0 <= first < tensor.dim() - 1:
        return 1 if tensor.stride(-1) == 1 else None
    tail = tensor[(0,) * first]
    return math.prod(tail.shape[:-1]) if tail.is_contiguous() else None


def _is_tail(tensor: torch.Tensor, dims: torch.Size, lead: int) -> bool:
    return tensor.shape == dims and _rows_of_tail(tensor) is not None


_LIES: dict[Role, Callable[[torch.Tensor, torch.Size, int], bool]] = {
    **dict.fromkeys(_GRIDS, lambda tensor, dims, lead: tensor.shape == dims),
    "tail": _is_tail, "row": _is_row, "column": _is_column, "scalar": lambda tensor, dims, lead: True}


def fusion(module: NativeFusion, inputs: Tensors, into: tuple[torch.Tensor | None, ...]) -> Tensors:
    """The results of a fusion, in the arrays `into` where there are such."""
    given = module.fitting(inputs) if module.is_ready() else None
    dims = module.grid(inputs)
    results = None if given is None else module.new_results(dims, into)
    if given is None or results is None:
        return _in_torch(module, inputs, into)
    n = math.prod(dims[module.lead:])
    tails = [_rows_of_tail(t) or 1 for t, role in zip(given, module.roles, strict=True) if role == "tail"]
    apart = [_apart(t, module.lead) for t, role in zip(given, module.roles, strict=True) if role == "apart"]
    places = [*[t.data_ptr() for t in (*given, *results)], *tails, *[table.buffer_info()[0] for table in apart]]
    run_on_threads(module.function, math.prod(dims) // max(n, 1), n, places, module.kept)
    return tuple([r if t is None or t is r else t.copy_(r) for r, t in zip(results, into, strict=True)])


def _in_torch(module: NativeFusion, inputs: Tensors, into: tuple[torch.Tensor | None, ...]) -> Tensors:
    begun = time.perf_counter()
    made = module.module(*inputs)
    for result, target in zip(made, into, strict=True):
        if target is not None:
            target.copy_(result)
    module.seconds += time.perf_counter() - begun
    return tuple([m if t is None else t for m, t in zip(made, into, strict=True)])


# ------------------------------------------------------------------------------------------------ foreach


class NativeForeach(torch.nn.Module, Awaited):
    """The source for many fusions, and the same as calls of torch. `made` are dims and dtype of each result. For each fusion
    `about` says which of the source's functions it is, where its addresses begin, and which elements of all are its own; these
    addresses are in `order`, as numbers of inputs and behind them of results. It `waits` for its code where torch's calls have
    other bits."""

    def __init__(self, text: str, module: torch.nn.Module, made: Sequence[tuple[tuple[int, ...], torch.dtype]],
                 about: Sequence[tuple[int, int, int, int]], order: Sequence[int], waits: bool):
        torch.nn.Module.__init__(self)
        Awaited.__init__(self, text, "arithmetic on many arrays", waits)
        self.module, self.order = module, tuple(order)
        self.made = [(dims, tuple(math.prod(dims[k + 1:]) for k in range(len(dims))), dtype) for dims, dtype in made]
        self.about = array.array("q", [n for one in about for n in one])
        self.fusions, self.elements = len(about), about[-1][-1]

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "code": None}


@fresh
def foreach(module: NativeForeach, inputs: Tensors, into: Sequence[int | None] = ()) -> Tensors:
    """The results of all fusions of a foreach; `into` are the numbers of the inputs that each may be written over."""
    if not (module.is_ready() and _are_plain(inputs)):
        return module.timed(module.module, *inputs)
    if not all(map(torch.Tensor.is_contiguous, inputs)):
        inputs = tuple([t.contiguous() for t in inputs])
    empty = torch.empty_strided  # takes half as long as torch.empty
    results = [empty(dims, strides, dtype=dtype) if over is None else inputs[over]
               for (dims, strides, dtype), over in zip(module.made, into or (None,) * len(module.made), strict=True)]
    addresses = [*map(torch.Tensor.data_ptr, inputs), *map(torch.Tensor.data_ptr, results)]
    table = array.array("q", [addresses[k] for k in module.order])
    run_on_threads(module.function, module.elements, 1,
                   [module.about.buffer_info()[0], table.buffer_info()[0], module.fusions])
    return tuple(results)


def _are_plain(tensors: Tensors) -> bool:
    """Whether all are plain tensors in the CPU's memory."""
    return (set(map(type, tensors)) == {torch.Tensor} and not any(map(torch.Tensor.is_neg, tensors))
            and tensors[0].device.type == "cpu")
