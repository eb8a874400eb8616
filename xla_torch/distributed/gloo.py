"""Exchanges of large arrays by gloo: data go from where they are to where they shall be, chunk by chunk.

Gloo's own collectives copy more than they must: gathering and reducing pass through memory of gloo's. Its all-to-all does not,
so everything here is made of that: in step r each member gives something to the one r places after it, and takes something
from the one r places before it. Reductions are ours, so every reducer and element type is reduced, in the group's order.

While one chunk travels others are packed, reduced and put where they belong. All members begin the same steps in the same
order.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from ..core import tuning
from .backend import Backend, as_bytes, plain
from .buffers import BUFFERS
from .exchanges import AllToAllV
from .reductions import Reducer, fold, fold_into

Ends = list[Callable[[], None]]
"""What waits for the steps that were begun."""

Chunk = Iterator[Ends]
"""What becomes of a chunk, from one wait to the next."""

Area = tuple[slice, slice]


class GlooBackend(Backend):
    """A process group of gloo. `finish` waits for an operation as long as all participants are there."""

    def __init__(self, group: Any, size: int, place: int, finish: Callable[[Any], None]):
        super().__init__(group, size, place)
        self._wait = finish

    def _finish(self, work: Any) -> None:
        self._wait(work)

    # ------------------------------------------------------------------------------------------- steps and chunks

    def _step(self, distance: int, given: torch.Tensor, taken: torch.Tensor) -> Callable[[], None]:
        """Give something to the member `distance` places after this one, and take from the one as far before; returns what
        waits until that is done. Strided memory is packed for the way."""
        packed = taken if taken.is_contiguous() else BUFFERS.like(taken)
        sent, received = as_bytes(given), as_bytes(packed)
        gives, takes = [0] * self.size, [0] * self.size
        gives[(self.place + distance) % self.size] = sent.numel()
        takes[(self.place - distance) % self.size] = received.numel()
        work = self._group.alltoall_base(received, sent, takes, gives)

        def end() -> None:
            self._finish(work)
            if packed is not taken:
                taken.copy_(packed)

        return end

    def _steps(self, given: Callable[[int], torch.Tensor], taken: Callable[[int], torch.Tensor]) -> Ends:
        """Give ``given(k)`` to each other member k, and take ``taken(k)`` from it."""
        return [self._step(r, given((self.place + r) % self.size), taken((self.place - r) % self.size))
                for r in range(1, self.size)]

    def _run(self, chunks: Iterable[Chunk]) -> None:
        """Carry chunks out, several at a time. Their number, and that of their steps, is the same at all members."""
        begun: deque[tuple[Chunk, Ends]] = deque()
        for chunk in chunks:
            begun.append((chunk, next(chunk)))
            while len(begun) >= tuning.CHUNKS_AHEAD:
                self._advance(begun)
        while begun:
            self._advance(begun)

    @staticmethod
    def _advance(begun: deque[tuple[Chunk, Ends]]) -> None:
        """Wait for the oldest steps, and let their chunk begin its next."""
        chunk, ends = begun.popleft()
        for end in ends:
            end()
        following = next(chunk, None)
        if following is not None:
            begun.append((chunk, following))

    # ------------------------------------------------------------------------------------------- movement

    def gather_bytes(self, own: torch.Tensor) -> torch.Tensor:
        if self.size * own.nbytes <= tuning.DIRECT_BYTES:
            return self._swap(own.expand(self.size, -1))
        return self.all_gather(own, 0).view(self.size, own.numel())

    def all_gather(self, tensor: torch.Tensor, dim: int) -> torch.Tensor:
        if self.size * tensor.nbytes <= tuning.DIRECT_BYTES:
            return super().all_gather(tensor, dim)
        own = _rows(tensor, dim)
        result = BUFFERS.empty(_resized(tensor, dim, self.size * tensor.shape[dim]), tensor.dtype, tensor.device)
        blocks = result.view(own.shape[0], self.size, own.shape[1])

        def gather(area: Area) -> Chunk:
            rows, columns = area
            ends = self._steps(lambda _: own[area], lambda k: blocks[rows, k, columns])
            blocks[rows, self.place, columns] = own[area]
            yield ends

        whole = [(slice(None), slice(None))]
        self._run(map(gather, whole if len(own) == 1 else _areas(own)))
        return result

    def all_to_all(self, tensor: torch.Tensor, dim: int) -> torch.Tensor:
        if tensor.nbytes <= tuning.DIRECT_BYTES:
            return super().all_to_all(tensor, dim)
        blocks = self._blocks(tensor, dim)
        result = BUFFERS.like(tensor)
        if len(blocks) == 1:
            self._finish(self._group.alltoall_base(as_bytes(result), as_bytes(blocks), [], []))
            return result
        placed = result.view(blocks.shape)

        def swap(area: Area) -> Chunk:
            rows, columns = area
            ends = self._steps(lambda k: blocks[rows, k, columns], lambda k: placed[rows, k, columns])
            placed[rows, self.place, columns] = blocks[rows, self.place, columns]
            yield ends

        self._run(map(swap, _areas(blocks[:, 0])))
        return result

    def all_to_all_tuple(self, tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        if self.size * tensors[0].nbytes <= tuning.DIRECT_BYTES:
            return super().all_to_all_tuple(tensors)
        results = tuple(map(BUFFERS.like, tensors))
        given, taken = [_rows(t, 0) for t in tensors], [_rows(t, 0) for t in results]

        def swap(area: Area) -> Chunk:
            ends = self._steps(lambda k: given[k][area], lambda k: taken[k][area])
            taken[self.place][area] = given[self.place][area]
            yield ends

        self._run(map(swap, _areas(given[0])))
        return results

    def permute(self, tensor: torch.Tensor, sources: tuple[int, ...]) -> torch.Tensor:
        source, result = sources[self.place], BUFFERS.like(tensor)
        own, taken = _rows(tensor, 0), _rows(result, 0)
        if source < 0:
            result.zero_()
        elif source == self.place:
            taken.copy_(own)
        if source >= 0 and len(set(sources)) == 1:
            self._broadcast(as_bytes(result), source)
            return result

        def move(area: Area) -> Chunk:
            yield self._steps(lambda k: own[area] if sources[k] == self.place else own[:0],
                              lambda k: taken[area] if k == source else taken[:0])

        self._run(map(move, _areas(own)))
        return result

    def all_to_all_v(self, exchange: AllToAllV) -> torch.Tensor:
        value, members = exchange.value, range(self.size)
        plans = self.gather_all(value[len(value) - exchange.planned:])
        given = [_packed(exchange.given(plans, k)) for k in members]
        dims = [exchange.dims(plans, k) for k in members]
        takes = [value[0].element_size() * sum(map(math.prod, each)) for each in dims]
        received = torch.empty(sum(takes), dtype=torch.uint8)
        self._finish(self._group.alltoall_base(received, torch.cat(given), takes, [g.numel() for g in given]))
        parts = zip(received.split(takes), dims, strict=True)
        return exchange.put(plans, [_unpacked(data, value[0].dtype, each) for data, each in parts])

    def _blocks(self, tensor: torch.Tensor, dim: int) -> torch.Tensor:
        """[rows, members, elements]: what of the tensor is each member's."""
        rows = _rows(tensor, dim)
        return rows.view(rows.shape[0], self.size, rows.shape[1] // self.size)

    # ------------------------------------------------------------------------------------------- reductions

    def reduce_scatter(self, tensor: torch.Tensor, reducer: Reducer, dim: int) -> torch.Tensor:
        if tensor.nbytes <= tuning.DIRECT_BYTES:
            return super().reduce_scatter(tensor, reducer, dim)
        blocks = self._blocks(tensor, dim)
        result = BUFFERS.empty(_resized(tensor, dim, tensor.shape[dim] // self.size), tensor.dtype, tensor.device)
        out = _rows(result, dim)

        def reduce(area: Area) -> Chunk:
            rows, columns = area
            parts = self._parts(blocks[rows, self.place, columns])
            yield self._steps(lambda k: blocks[rows, k, columns], parts.__getitem__)
            fold_into(out[area], parts, reducer, self.place)

        self._run(map(reduce, _areas(out)))
        return result

    def _parts(self, own: torch.Tensor) -> list[torch.Tensor]:
        """Where the parts of a reduction are: this member's, and memory for those of the others."""
        others = BUFFERS.empty((self.size - 1, *own.shape), own.dtype, own.device).unbind(0)
        return [*others[:self.place], own, *others[self.place:]]

    def all_reduce(self, tensor: torch.Tensor, reducer: Reducer, overwrite: bool = False) -> torch.Tensor:
        """Each member reduces one block, and gives what it has of it to all."""
        if self.size * tensor.nbytes <= tuning.DIRECT_BYTES:
            return fold(self._swap(tensor.expand(self.size, *tensor.shape)).unbind(0), reducer)
        own = plain(tensor)
        result = own if overwrite else BUFFERS.like(own)
        given, taken = own.view(-1), result.view(-1)
        count = given.numel()
        width, size = -(-count // self.size), tuning.CHUNK_BYTES // given.element_size()

        def reduce(start: int) -> Chunk:
            def of_block(flat: torch.Tensor, place: int) -> torch.Tensor:
                first = place * width
                return flat[min(first + start, count):min(first + start + size, first + width, count)]

            out = of_block(taken, self.place)
            parts = self._parts(of_block(given, self.place))
            yield self._steps(lambda k: of_block(given, k), parts.__getitem__)
            fold_into(out, parts, reducer, self.place)
            yield self._steps(lambda _: out, lambda k: of_block(taken, k))

        self._run(map(reduce, range(0, width, size)))
        return result

    # ------------------------------------------------------------------------------------------- between two members

    def send(self, data: torch.Tensor, place: int, tag: int) -> Any:
        """Send bytes to a member; returns the operation, which lasts until they are taken."""
        return self._group.send([data], place, tag)

    def receive(self, data: torch.Tensor, place: int, tag: int) -> Any:
        """Fill `data` with what a member sends, once the operation that is returned has ended."""
        return self._group.recv([data], place, tag)


def _packed(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The bytes of several tensors."""
    return torch.cat([as_bytes(t) for t in tensors]) if tensors else torch.empty(0, dtype=torch.uint8)


def _unpacked(data: torch.Tensor, dtype: torch.dtype, dims: Sequence[tuple[int, ...]]) -> list[torch.Tensor]:
    parts = data.view(dtype).split([math.prod(d) for d in dims]) if dims else ()
    return [part.view(d) for part, d in zip(parts, dims, strict=True)]


def _rows(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """[rows, elements]: a row is what one index of the dimensions before `dim` stands for."""
    own, count = plain(tensor), math.prod(tensor.shape[:dim])
    return own.view(count, math.prod(tensor.shape[dim:]))


def _resized(tensor: torch.Tensor, dim: int, size: int) -> tuple[int, ...]:
    return (*tensor.shape[:dim], size, *tensor.shape[dim + 1:])


def _areas(rows: torch.Tensor) -> Iterator[Area]:
    """Chunks of [rows, elements]: several whole rows, or a part of one."""
    count, width = rows.shape
    size = tuning.CHUNK_BYTES // rows.element_size()
    if not width:
        return
    if width <= size:
        together = size // width
        yield from ((slice(first, first + together), slice(None)) for first in range(0, count, together))
    else:
        yield from ((slice(row, row + 1), slice(first, first + size)) for row in range(count) for first in range(0, width, size))
