"""Plans at run time (`codegen/plans.py`): one call of the driver once all native code is there, torch's calls until then."""

from __future__ import annotations

import array
import ctypes
import dataclasses
import math
import time
import weakref
from collections.abc import Sequence
from typing import Any

import torch

from ..codegen.loops import Source
from ..codegen.plans import DRIVER, GIVEN, Entry, Op, Plan, Stacks, Value
from ..core import tuning
from ..storage import torch_private
from ..storage.tensor_guards import KnownTensors
from . import stack
from .native import Awaited, asked, raise_from

Tensors = tuple[torch.Tensor, ...]
Array = tuple[tuple[int, ...], torch.dtype]
"""Dims and dtype."""

_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64)


@dataclasses.dataclass
class Function:
    """Torch's calls for a step, with dims and dtype of each array that they get and give."""

    module: torch.nn.Module
    given: Sequence[Array]
    made: Sequence[Array]
    may_keep: bool = False
    """Whether functions of users are called, which may keep what they get: they get copies."""


class _Chunk(torch.nn.Module, Awaited):
    """A native function of a plan."""

    def __init__(self, text: str, *own: str) -> None:
        torch.nn.Module.__init__(self)
        Awaited.__init__(self, text, "a group of small ops", own=own)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "code": None}


class NativePlan(torch.nn.Module):
    """A plan, and the same as calls of torch. `given` and `made` are dims and dtype of each input and result, or of the values on
    a stack. Inputs of up to so many bytes are `copied` where their elements lie in another order."""

    def __init__(self, plan: Plan, functions: Sequence[Function], module: torch.nn.Module, given: Sequence[Array],
                 made: Sequence[Array], copied: int):
        super().__init__()
        self.plan, self.functions, self.module, self.copied = plan, list(functions), module, copied
        self.known = KnownTensors(within=True)
        self.given = tuple([None if value.is_stack else value.size for value in plan.inputs])
        """The bytes of each input; of a stack, None."""
        self.stacks = {k: given[k] for k, value in enumerate(plan.inputs) if value.is_stack}
        whole = [((0, *dims) if value.is_stack else dims, dtype) for value, (dims, dtype) in zip(plan.results, made, strict=True)]
        self.made = [(dims, tuple(math.prod(dims[k + 1:]) for k in range(len(dims))), dtype) for dims, dtype in whole]
        texts = dict.fromkeys([DRIVER, *(source.text for source in plan.sources)])
        self.chunks = [_Chunk(text) for text in texts]
        self.within = torch.nn.ModuleList([*self.chunks, *(f.module for f in functions)])
        self.length = sum(map(len, texts))
        self.drafts = [_Chunk(text, "-O0") for text in texts] if self.length >= tuning.DRAFTED_PLAN else []
        """What runs until the chunks are there: the same functions, for which the compiler takes a sixth of the time."""
        self.asks = any(op == Op.ASK for op in plan.code) or any(s.asks for s in plan.sources)
        self.seconds = 0.0
        self._idle: list[_Instance] = []
        self.running: list[_Chunk] = []
        """The chunks or their drafts, once there is code of all of them."""

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_idle": [], "running": []}

    def is_ready(self) -> bool:
        """Whether all native code is there; it is made when torch's calls have taken some time."""
        if self.running is not self.chunks:
            if self._all_are_ready(self.chunks):
                self.running = self.chunks
            elif not self.running and self.drafts and self._all_are_ready(self.drafts):  # what is asked for last comes first
                self.running = self.drafts
        may_run = not (torch.compiler.is_compiling() or torch_private.is_watched() or math.isinf(tuning.NATIVE_AFTER))
        return bool(self.running) and may_run

    def _all_are_ready(self, chunks: Sequence[_Chunk]) -> bool:
        share = self.seconds / max(1.0, self.length / tuning.NATIVE_TEXT)
        for chunk in chunks:
            chunk.seconds = share * max(1.0, len(chunk.text) / tuning.NATIVE_TEXT)  # due when the plan is
        states = [chunk.is_ready() for chunk in chunks]  # each is asked, and so begun
        return all(states)

    def timed(self, call: torch.nn.Module, *inputs: torch.Tensor) -> Tensors:
        """What torch's calls give, whose time counts for when native code is made."""
        begun = time.perf_counter()
        results = call(*inputs)
        self.seconds += time.perf_counter() - begun
        return results

    def with_rows(self, inputs: Sequence[Any]) -> Tensors:
        """The inputs, with the rows of each stack."""
        found = list(inputs)
        for k, (dims, dtype) in self.stacks.items():
            found[k] = stack.packed(inputs[k], dims, dtype, torch.device("cpu"))
        return tuple(found)

    def run(self, inputs: Tensors, results: Tensors, addresses: Sequence[int]) -> Tensors:
        """Run the plan on contiguous tensors, the inputs' and the results', at these addresses; the results, with the rows of
        each stack."""
        running = self.running
        try:
            instance = self._idle.pop()
        except IndexError:
            instance = _Instance(self, running)
        if instance.chunks is not running:
            instance = _Instance(self, running)
        if self.plan.stacks:
            results = instance.run_with_stacks(self, inputs, results, addresses)
        else:
            instance.run((*inputs, *results), addresses)
        self._idle.append(instance)
        return results


def _no_memory() -> MemoryError:
    return MemoryError("a loop of unknown length keeps values of each step for its gradient, and there is no memory for more")


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


class _Instance:
    """Memory of one run of a plan, used again by the next one."""

    def __init__(self, module: NativePlan, chunks: Sequence[_Chunk]):
        plan, self.chunks = module.plan, chunks
        functions = {chunk.text: chunk.function for chunk in chunks}
        self.driver = functions[DRIVER]
        code = list(plan.code)
        for place, number in plan.functions.items():
            code[place] = _address(functions[plan.sources[number].text])
        self.arena = torch.empty(plan.size, dtype=torch.uint8)
        self.first = -(-self.arena.data_ptr() // 64) * 64
        self.code = array.array("q", code)
        self.arena[:self.first - self.arena.data_ptr() + 8 * len(plan.stacks)].zero_()
        self.moved = array.array("q", [n for k, e in enumerate(plan.table) if e.value is not None and e.value.io is not None
                                       for n in (k, e.value.io)])
        self.table = array.array("q", [self._address(plan, e) for e in plan.table])
        self.functions = [self._bound(module.functions[s.function], s.inputs, s.outputs) for s in plan.steps]
        self.exceptions = plan.exceptions
        self.io: Tensors = ()
        self.raised: BaseException | None = None
        me = weakref.ref(self)  # a cycle would keep the arena until garbage is collected
        self.callback = _CALLBACK(lambda number: me()._called(number))  # pyright: ignore[reportOptionalMemberAccess]
        self.head = (self.code.buffer_info()[0], self.table.buffer_info()[0], self.moved.buffer_info()[0],
                     _address(self.callback), 0, *asked(), 0, 0, 0)
        assert len(self.head) == GIVEN

    def _address(self, plan: Plan, entry: Entry) -> int:
        if entry.value is not None:
            return self.first + entry.value.offset if entry.value.io is None else 0
        source: Source = plan.sources[entry.source]
        if entry.kind == "data":
            return source.constants[entry.number].ctypes.data
        if entry.kind == "scratch":
            return self.first + plan.scratch if source.scratch else 0
        if entry.kind == "routine":
            return torch_private.blas()[source.routines[entry.number]]
        return (*asked(), 0, 0, 0)[entry.number]

    def _bound(self, function: Function, inputs: Sequence[Value], outputs: Sequence[Value]) -> Any:
        """A step with its tensors; numbers stand for those that the caller gives."""
        def tensor(value: Value, what: Array) -> torch.Tensor | int:
            if value.io is not None:
                return value.io
            start = self.first - self.arena.data_ptr() + value.offset
            return self.arena[start:start + value.size].view(what[1]).view(what[0])

        forward = function.module.forward
        if function.may_keep:
            def call(*given: torch.Tensor) -> Tensors:
                return forward(*[t.clone() for t in given])
        else:
            call = forward
        return (call, [tensor(*each) for each in zip(inputs, function.given, strict=True)],
                [tensor(*each) for each in zip(outputs, function.made, strict=True)])

    def _called(self, number: int) -> int:
        try:
            function, inputs, outputs = self.functions[number]
            io = self.io
            made = function(*[io[t] if type(t) is int else t for t in inputs])
            for target, result in zip(outputs, made, strict=True):
                (io[target] if type(target) is int else target).copy_(result)
        except BaseException as error:
            self.raised = error
            return 1
        return 0

    def run_with_stacks(self, module: NativePlan, inputs: Tensors, results: Tensors, addresses: Sequence[int]) -> Tensors:
        plan = module.plan
        try:
            for k in module.stacks:
                if self._on_stack(Stacks.FROM_ROWS, plan.inputs[k], inputs[k])[0] < 0:
                    raise _no_memory()
            self.run((*inputs, *results), addresses)
            return tuple([self._rows(value, like) if value.is_stack else like
                          for value, like in zip(plan.results, results, strict=True)])
        finally:
            all_stacks = array.array("q", (self.first, 0, len(plan.stacks), 0))
            self.driver(Stacks.FREE, all_stacks.buffer_info()[0])

    def _rows(self, value: Value, like: torch.Tensor) -> torch.Tensor:
        count = self._on_stack(Stacks.COUNT, value, like)[1]
        rows = like.new_empty((count, *like.shape[1:]))
        self._on_stack(Stacks.TO_ROWS, value, rows)
        return rows

    def _on_stack(self, task: Stacks, value: Value, rows: torch.Tensor) -> tuple[int, int]:
        """What the driver does with a stack and rows: whether that failed, and their number."""
        size = math.prod(rows.shape[1:]) * rows.itemsize
        given = array.array("q", (self.first + value.offset, rows.data_ptr(), len(rows), size))
        return self.driver(task, given.buffer_info()[0]), given[2]

    def run(self, io: Tensors, addresses: Sequence[int]) -> None:
        given = array.array("q", (*self.head, *addresses))
        self.io = io
        failed = self.driver(len(self.moved) // 2, given.buffer_info()[0]) < 0
        self.io = ()
        if not failed:
            return
        if self.raised is not None:
            raised, self.raised = self.raised, None
            raise raised
        at = given[4]
        if self.code[at] == Op.PUSH:
            raise _no_memory()
        first = self.exceptions.get(at)
        raise_from(given[9:12] if first is None else self.table[first:first + 3])
