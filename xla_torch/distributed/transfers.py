"""Transfers: tensors from one participant to another, along the channels of send and recv."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

import torch

from ..core import tuning
from ..core.errors import ExecutionError
from .backend import as_bytes, from_bytes
from .control_plane import ControlPlane
from .executor import SerialExecutor
from .failures import Failures
from .placement import Placement
from .process_groups import ProcessGroups


class Transfers:
    """This process's end of all channels. Small tensors travel on the control plane, large ones by gloo."""

    def __init__(self, control_plane: ControlPlane, groups: ProcessGroups, failures: Failures, placement: Placement,
                 timeout: float):
        self._control_plane, self._groups, self._failures, self._placement = control_plane, groups, failures, placement
        self._timeout = timeout
        self._backend = groups.of_all(control_plane.rank, control_plane.size) if control_plane.size > 1 else None
        self._deliveries: list[Future[None]] = []
        self._executor = SerialExecutor("xla_torch transfers")

    def send(self, channel: int, source: int, target: int, tensor: torch.Tensor) -> None:
        """Send a tensor to a participant, here or elsewhere, without waiting for it to be received."""
        data = as_bytes(tensor.detach()).cpu().clone()
        text = f"{tensor.dtype}{list(tensor.shape)}".encode()
        rank = self._placement.rank_of(target)
        if rank == self._control_plane.rank or data.numel() <= tuning.INLINE_BYTES:
            self._control_plane.send(rank, source, target, channel, text, data.numpy().tobytes())
            return
        self._control_plane.send(rank, source, target, channel, text)
        assert self._backend is not None
        self._raise_undelivered(wait=False)
        work = self._backend.send(data, rank, self._tag(channel, source, target))
        self._deliveries.append(self._executor.submit(lambda: self._groups.await_transfer(work)))

    def receive(self, channel: int, source: int, target: int, dims: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """What a participant has sent. Raises ExecutionError where nothing comes in time or it has another shape."""
        subject = f"recv, channel {channel}"
        with self._failures.reported(target):
            text, payload = self._announced(channel, source, target, subject, f"{dtype}{list(dims)}")
            if text.decode() != f"{dtype}{list(dims)}":
                raise ExecutionError(f"participant {source} sent another shape or type than is received", subject=subject,
                                     got=text.decode(), expected=f"{dtype}{list(dims)}")
            result = torch.empty(tuple(dims), dtype=dtype)
            if payload or not result.numel():
                return from_bytes(payload, (result,))[0]
            assert self._backend is not None
            rank = self._placement.rank_of(source)
            self._groups.await_transfer(self._backend.receive(as_bytes(result), rank, self._tag(channel, source, target)))
            return result

    def _announced(self, channel: int, source: int, target: int, subject: str, wanted: str) -> tuple[bytes, bytes]:
        """The message on a channel that has been waiting longest: what is sent and, if it is small, its bytes."""
        plane = self._control_plane

        def ready() -> tuple[bytes, bytes] | None:
            message = plane.peek(source, target, channel)
            if message is None:
                self._failures.check(subject)
            else:
                plane.pop(source, target, channel)
            return message

        message = plane.wait_for(ready, self._timeout)
        if message is None:
            raise ExecutionError(f"participant {source} sent nothing within {self._timeout:g} seconds", subject=subject,
                                 expected=wanted, hint="add a send on the same channel for every recv")
        return message

    def _raise_undelivered(self, wait: bool) -> None:
        """Raise where something that was sent could not be delivered, as far as that is known or, with `wait`, at last."""
        for delivery in self._deliveries:
            if wait or delivery.done():
                delivery.result()
        self._deliveries = [delivery for delivery in self._deliveries if not delivery.done()]

    def _tag(self, channel: int, source: int, target: int) -> int:
        count = len(self._placement.ranks)
        return (channel * count * count + source * count + target) % (1 << 31)

    def flush(self) -> None:
        """Wait until all that was sent has been received. Raises what went wrong with it."""
        self._raise_undelivered(wait=True)

    def close(self, wait: bool) -> None:
        """End. Without `wait` what was sent is given up."""
        self._executor.shutdown(wait)
        self._backend = None
