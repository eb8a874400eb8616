"""What torch is asked to do, counted exactly: calls, elements and bytes of storage. And what Python does: calls."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Counted(TorchDispatchMode):
    """Counts inside its `with`: `calls` of torch operations, `elements` of their results, the bytes `made` (storage that
    was not there before; a view makes none) in how many `allocations`, how many of them are `live` and the most that ever
    were, the `peak`."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = self.elements = self.allocations = self.made = self.live = self.peak = 0
        self._sizes: dict[int, int] = {}

    @classmethod
    def of(cls, function: Callable[..., Any], *arguments: Any) -> Counted:
        """A call counted, after one that makes what is made only once."""
        function(*arguments)
        counted = cls()
        with counted:
            function(*arguments)
        return counted

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {t.untyped_storage()._cdata for t in _tensors((args, kwargs))}
        self.calls += 1
        for tensor in _tensors(result):
            self.elements += tensor.numel()
            storage = tensor.untyped_storage()
            if storage._cdata not in given and storage._cdata not in self._sizes:
                self._note(storage)
        return result

    def _note(self, storage: torch.UntypedStorage) -> None:
        self._sizes[storage._cdata] = storage.nbytes()
        self.allocations += 1
        self.made += storage.nbytes()
        self.live += storage.nbytes()
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._gone, storage._cdata)

    def _gone(self, key: int) -> None:
        self.live -= self._sizes.pop(key)


def python_calls(function: Callable[..., Any], *arguments: Any) -> int:
    """How many functions, of Python and of C, a call calls. What it raises is raised."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function(*arguments)
    finally:
        sys.setprofile(before)
    return count


def python_lines(within: str, function: Callable[..., Any], *arguments: Any) -> int:
    """How many lines of files with `within` in their path a call goes through. What it raises is raised."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return note

    before = sys.gettrace()
    sys.settrace(lambda frame, event, argument: note if within in frame.f_code.co_filename else None)
    try:
        function(*arguments)
    finally:
        sys.settrace(before)
    return count


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
