"""Process groups of torch.distributed, and large exchanges carried out by them.

A group of participants gets a process group of its own when it first exchanges something large, whatever other groups do at
the time: its members find each other by notes on the wires. Whatever only moves travels as bytes.
Reductions that a backend lacks travel in a form that it has, if there is one that gives the same result, or else are
scattered, folded in the group's order, and gathered.
"""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from ..errors import ExecutionError
from .exchanges import (
    AllGather,
    AllReduce,
    AllToAll,
    AllToAllTuple,
    Permute,
    Reducer,
    ReduceScatter,
    ReduceToFirst,
    fold,
    top_bit,
)
from .participants import Exchange
from .wires import SLICE, Wires

_OPERATIONS = {"add": dist.ReduceOp.SUM, "multiply": dist.ReduceOp.PRODUCT, "minimum": dist.ReduceOp.MIN,
               "maximum": dist.ReduceOp.MAX, "and": dist.ReduceOp.BAND, "or": dist.ReduceOp.BOR, "xor": dist.ReduceOp.BXOR}
_OF_BOOLS = {"add": dist.ReduceOp.MAX, "or": dist.ReduceOp.MAX, "maximum": dist.ReduceOp.MAX,
             "multiply": dist.ReduceOp.MIN, "and": dist.ReduceOp.MIN, "minimum": dist.ReduceOp.MIN}
_BITWISE = ("and", "or", "xor")
PIECE = 1 << 23
"""Bytes of the pieces in which gloo reduces a large array: it works on two at a time."""

_KEYS = {torch.float16: torch.int16, torch.bfloat16: torch.int16, torch.float32: torch.int32, torch.float64: torch.int64}


class _WireStore(dist.Store):
    """Where the members of a new process group tell each other their addresses: notes on the wires between processes.

    A store that is a connection with a server serves one thread at a time, and one that waits keeps the others waiting.
    """

    def __init__(self, wires: Wires, alive: Callable[[], None], timeout: float):
        super().__init__()
        self._wires, self._alive, self._seconds = wires, alive, timeout

    def set(self, key: str, value: bytes | str) -> None:
        self._wires.note(key, value.encode() if isinstance(value, str) else bytes(value))

    def get(self, key: str) -> bytes:
        def ready() -> bytes | None:
            found = self._wires.noted(key)
            if found is None:
                self._alive()
            return found

        value = self._wires.wait(ready, self._seconds)
        if value is None:
            raise ExecutionError(f"no process told its address within {self._seconds:g} seconds")
        return value

    def wait(self, keys: Sequence[str], timeout: datetime.timedelta | None = None) -> None:
        for key in keys:
            self.get(key)

    def check(self, keys: Sequence[str]) -> bool:
        self._wires.look()
        return all(self._wires.noted(key) is not None for key in keys)


class TorchGroups:
    """The process groups of one process, made when they are first needed.

    `alive` raises where a participant has failed or a process has died. CUDA tensors travel with NCCL if `nccl` is set, and
    through the CPU if not.
    """

    def __init__(self, wires: Wires, timeout: float, nccl: bool, alive: Callable[[], None]):
        self._wires, self._timeout, self._nccl, self._alive = wires, timeout, nccl, alive
        # Kept here: torch.distributed holds its own part of the object only.
        self._store = _WireStore(wires, alive, timeout)
        self._groups: dict[Any, TorchGroup] = {}
        self._lock = threading.Lock()

    def takes(self, device: torch.device) -> bool:
        """Whether tensors of this device travel as they are, not through the CPU."""
        return device.type == "cpu" or (device.type == "cuda" and self._nccl)

    def of(self, members: tuple[int, ...], place: int, kind: str) -> TorchGroup:
        """The group of these members, of which this process is the one at `place`, for tensors on a kind of device."""
        key = (members, kind)
        with self._lock:
            found = self._groups.get(key)
        if found is None:
            found = TorchGroup(self._make(members, place, kind), len(members), place, kind == "cuda", self.finish)
            with self._lock:
                self._groups[key] = found
        return found

    def _make(self, members: tuple[int, ...], place: int, kind: str) -> Any:
        try:
            return self._connected(members, place, kind)
        except RuntimeError as error:
            self._look()
            raise ExecutionError(f"torch.distributed made no process group of participants {list(members)}",
                                 got=str(error).partition("\n")[0]) from None

    def _connected(self, members: tuple[int, ...], place: int, kind: str) -> Any:
        store = dist.PrefixStore(f"{kind} {members}", self._store)
        limit = datetime.timedelta(seconds=self._timeout)
        if kind == "cuda":
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = limit
            return dist.ProcessGroupNCCL(store, place, len(members), options)
        return dist.ProcessGroupGloo(store, place, len(members), limit)

    def finish(self, work: Any) -> None:
        """Wait for an operation of gloo, as long as all participants are there."""
        end = time.monotonic() + self._timeout
        while True:
            try:
                work.wait(datetime.timedelta(seconds=SLICE))
                return
            except RuntimeError as error:
                if work.is_completed():
                    self._ended(work)
                    return
                self._look()
                if time.monotonic() > end:
                    raise ExecutionError(f"the data of all members did not come within {self._timeout:g} seconds",
                                         got=str(error).partition("\n")[0]) from None

    def _ended(self, work: Any) -> None:
        try:
            work.wait()
        except RuntimeError as error:
            # A connection broke: in a moment it is known whose.
            end = time.monotonic() + 1.0
            while time.monotonic() < end:
                self._look()
                time.sleep(0.02)
            raise ExecutionError("an operation of torch.distributed failed", got=str(error).partition("\n")[0]) from None

    def _look(self) -> None:
        """Raise where a participant has failed by now."""
        self._wires.look()
        self._alive()

    def close(self, failed: bool) -> None:
        """Give the connections back. After a failure, what still waits on a device is given up."""
        with self._lock:
            for (_, kind), group in self._groups.items():
                if failed and kind == "cuda":
                    group.abort()
            self._groups.clear()


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The elements' bytes, flat. Shares memory with a contiguous tensor."""
    return tensor.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)


class TorchGroup:
    """One process group. `finish` waits for an operation; operations of NCCL are only put into the current stream."""

    def __init__(self, group: Any, size: int, place: int, nccl: bool, finish: Callable[[Any], None]):
        self._group, self.size, self.place, self._nccl, self._gloo_finish = group, size, place, nccl, finish

    def _finish(self, work: Any) -> None:
        if self._nccl:
            work.wait()
        else:
            self._gloo_finish(work)

    def abort(self) -> None:
        """Give up the group's operations."""
        self._group.abort()

    def perform(self, exchange: Exchange) -> Any:
        """This member's result of an exchange; all members perform the same."""
        known = _PERFORMED.get(type(exchange))
        if known is not None:
            return known(self, exchange)
        return exchange.combine(self.gather_all(exchange.value), [self.place])[0]

    # ------------------------------------------------------------------------------------------- movement

    def gather_bytes(self, own: torch.Tensor) -> torch.Tensor:
        """Every member's bytes, of equal number, as [members, bytes]."""
        result = own.new_empty(self.size, own.numel())
        self._finish(self._group._allgather_base(result.reshape(-1), own))
        return result

    def gather_uneven(self, own: torch.Tensor, counts: Sequence[int]) -> list[torch.Tensor]:
        """Every member's bytes; `counts` says how many each has."""
        if len(set(counts)) == 1:
            return list(self.gather_bytes(own).unbind(0))
        results = [own if place == self.place else own.new_empty(count) for place, count in enumerate(counts)]
        for place, result in enumerate(results):
            self._broadcast(result, place)
        return results

    def _broadcast(self, tensor: torch.Tensor, root: int) -> None:
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = root, 0
        self._finish(self._group.broadcast([tensor], options))

    def gather_all(self, value: tuple[torch.Tensor, ...]) -> list[tuple[torch.Tensor, ...]]:
        """What every member gives, in the group's order."""
        gathered = [self.gather_bytes(as_bytes(v)) for v in value]
        return [tuple(g[place].view(v.dtype).view(v.shape) for g, v in zip(gathered, value, strict=True))
                for place in range(self.size)]

    def all_gather(self, tensor: torch.Tensor, dim: int) -> torch.Tensor:
        parts = self.gather_bytes(as_bytes(tensor)).view(tensor.dtype).view(self.size, *tensor.shape)
        return parts.flatten(0, 1) if dim == 0 else torch.cat(parts.unbind(0), dim)

    def _swap(self, blocks: torch.Tensor) -> torch.Tensor:
        """``blocks[i]``, dimension 0 being the members', goes to member i; what came, in the same form."""
        own = as_bytes(blocks)
        result = torch.empty_like(own)
        self._finish(self._group.alltoall_base(result, own, [], []))
        return result.view(blocks.dtype).view(blocks.shape)

    def _blocks(self, tensor: torch.Tensor, dim: int) -> torch.Tensor:
        return tensor.unflatten(dim, (self.size, -1)).movedim(dim, 0)

    def all_to_all(self, tensor: torch.Tensor, dim: int) -> torch.Tensor:
        blocks = self._swap(self._blocks(tensor, dim))
        return blocks.flatten(0, 1) if dim == 0 else torch.cat(blocks.unbind(0), dim)

    def all_to_all_tuple(self, tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return self._swap(torch.stack(tensors)).unbind(0)

    def permute(self, tensor: torch.Tensor, sources: tuple[int, ...]) -> torch.Tensor:
        """The tensor of the member at place ``sources[own place]``, zeros for -1."""
        own, source = as_bytes(tensor), sources[self.place]
        if len(set(sources)) == 1 and source >= 0:
            result = own.clone() if source == self.place else torch.empty_like(own)
            self._broadcast(result, source)
            return result.view(tensor.dtype).view(tensor.shape)
        size = own.numel()
        given = [size if s == self.place else 0 for s in sources]
        taken = [size if place == source else 0 for place in range(self.size)]
        result = torch.zeros_like(own) if source < 0 else torch.empty_like(own)
        self._finish(self._group.alltoall_base(result[:sum(taken)], own.repeat(sum(g > 0 for g in given)), taken, given))
        return result.view(tensor.dtype).view(tensor.shape)

    def send(self, data: torch.Tensor, place: int, tag: int) -> Any:
        """Send bytes to a member; returns the operation, which lasts until they are taken."""
        return self._group.send([data], place, tag)

    def receive(self, data: torch.Tensor, place: int, tag: int) -> None:
        """Fill `data` with what a member sends."""
        self._finish(self._group.recv([data], place, tag))

    # ------------------------------------------------------------------------------------------- reductions

    def all_reduce(self, tensor: torch.Tensor, reducer: Reducer) -> torch.Tensor:
        """Piece by piece, so that one piece is copied while others travel."""
        own = tensor.contiguous()
        if not isinstance(reducer, str) or not has_backend_form(own.dtype, reducer, not self._nccl):
            return self._fold_all(own, reducer)
        result, begun = torch.empty_like(own), []
        size = PIECE // own.element_size() if not self._nccl else own.numel()
        for piece, out in zip(own.reshape(-1).split(size), result.reshape(-1).split(size), strict=True):
            buffer, operation, back = backend_form(piece, reducer, out)
            options = dist.AllreduceOptions()
            options.reduceOp = operation
            begun.append((self._group.allreduce([buffer], options), buffer, back, out))
        for work, buffer, back, out in begun:
            self._finish(work)
            if back is not None:
                out.copy_(back(buffer))
        return result

    def _fold_all(self, tensor: torch.Tensor, reducer: Reducer) -> torch.Tensor:
        """Each member folds one block, in the group's order, and all gather the blocks."""
        flat = tensor.reshape(-1)
        width = -(-flat.numel() // self.size)
        # What fills up the last block is some element, not a zero that the reducer might divide by.
        filled = torch.cat([flat, flat[:1].expand(width * self.size - flat.numel())])
        block = fold(self._swap(filled.reshape(self.size, width)).unbind(0), reducer)
        return self.all_gather(block, 0)[:flat.numel()].reshape(tensor.shape)

    def reduce_scatter(self, tensor: torch.Tensor, reducer: Reducer, dim: int) -> torch.Tensor:
        return fold(self._swap(self._blocks(tensor, dim)).unbind(0), reducer)


def has_backend_form(dtype: torch.dtype, reducer: str, bitwise: bool) -> bool:
    """Whether a backend's reduction gives what the reducer gives, in some form. `bitwise`: it has and, or and xor."""
    name = reducer.rpartition(" ")[2]
    if dtype is torch.bool:
        return name in _OF_BOOLS
    return name == "add" if dtype.is_complex else bitwise or name not in _BITWISE


def backend_form(piece: torch.Tensor, reducer: str, out: torch.Tensor) -> tuple[torch.Tensor, Any, Callable[[Any], Any] | None]:
    """A flat piece as a tensor that a backend can reduce in place, the operation, and the way back to the piece's type; None
    where the result is in `out` already."""
    dtype = piece.dtype
    unsigned, _, name = reducer.rpartition(" ")
    if dtype is torch.bool:
        return piece.to(torch.uint8), _OF_BOOLS[name], lambda t: t.to(torch.bool)
    operation = _OPERATIONS[name]
    if dtype.is_complex:
        return torch.view_as_real(out.copy_(piece)), operation, None
    if dtype.is_floating_point and name in ("minimum", "maximum"):
        # Backends let a NaN lose. Integers in the numbers' order do not.
        keys = _ordered(piece, name == "maximum")
        return _wide(keys), operation, lambda t: _flipped(t.to(keys.dtype)).view(dtype)
    if unsigned:
        bit = top_bit(dtype)
        return _wide(piece ^ bit), operation, lambda t: t.to(dtype) ^ bit
    if dtype is torch.int16:
        return _wide(piece), operation, lambda t: t.to(dtype)
    return out.copy_(piece), operation, None


def _wide(own: torch.Tensor) -> torch.Tensor:
    """Backends have no 16-bit integers: the 32-bit result wraps to the same."""
    return own.to(torch.int32) if own.dtype is torch.int16 else own


def _flipped(bits: torch.Tensor) -> torch.Tensor:
    """A float's bits to an integer in the floats' order, and back."""
    width = bits.element_size() * 8
    return bits ^ ((bits >> (width - 1)) & torch.iinfo(bits.dtype).max)


def _ordered(tensor: torch.Tensor, largest: bool) -> torch.Tensor:
    """Integers in the floats' order, with NaN before all others: above them if the largest is looked for."""
    keys = _flipped(tensor.view(_KEYS[tensor.dtype]))
    limits = torch.iinfo(keys.dtype)
    return keys.masked_fill_(tensor.isnan(), limits.max if largest else limits.min)


def _reduce_to_first(group: TorchGroup, exchange: Any) -> torch.Tensor:
    total = group.all_reduce(exchange.value[0], exchange.reducer)
    return torch.zeros_like(total) if group.place else total


_PERFORMED: dict[type, Callable[[TorchGroup, Any], Any]] = {
    AllGather: lambda group, exchange: group.all_gather(exchange.value[0], *exchange.detail),
    AllReduce: lambda group, exchange: group.all_reduce(exchange.value[0], exchange.reducer),
    ReduceScatter: lambda group, exchange: group.reduce_scatter(exchange.value[0], exchange.reducer, exchange.detail[1]),
    AllToAll: lambda group, exchange: group.all_to_all(exchange.value[0], *exchange.detail),
    AllToAllTuple: lambda group, exchange: group.all_to_all_tuple(exchange.value),
    Permute: lambda group, exchange: group.permute(exchange.value[0], *exchange.detail),
    ReduceToFirst: _reduce_to_first,
}
