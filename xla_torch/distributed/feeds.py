"""Queues between a running program and its host: infeed, outfeed, and the channels of send and recv.

The host side is for users: `feed` gives a program what its infeeds read, `fetch` takes what it outfed, `send` and `receive`
are the host's ends of a channel. The other side is called by programs. All wait, at most `timeout` seconds.
"""

from __future__ import annotations

import queue
from collections.abc import Hashable, Sequence
from typing import Any

import torch

from ..core import tuning
from ..core.errors import ExecutionError
from ..core.forks import Lock, in_child
from .participant import Participant, current_participant

timeout: float = tuning.EXCHANGE_TIMEOUT
"""Seconds that either side waits for the other. Users may set it."""

_queues: dict[Hashable, queue.Queue[Any]] = {}
"""What was given and not taken, of all programs of this process. Global: neither side is handed anything of the other."""

_lock = Lock()


@in_child
def _with_new_queues() -> None:
    """What stood in the queues stands in those of a forked process too, where none of the parent's threads waits."""
    for key, old in list(_queues.items()):
        _queues[key] = queue.Queue()
        _queues[key].queue.extend(old.queue)


def _queue(key: Hashable) -> queue.Queue[Any]:
    with _lock:
        return _queues.setdefault(key, queue.Queue())


def _take(key: Hashable, what: str, hint: str) -> Any:
    try:
        return _queue(key).get(timeout=timeout)
    except queue.Empty:
        raise ExecutionError(f"{what} {timeout:g} seconds for nothing", hint=hint) from None


def clear() -> None:
    """Forget everything that was given and not taken."""
    with _lock:
        _queues.clear()


# ------------------------------------------------------------------------------------------- the host's side


def feed(*tensors: torch.Tensor, participant: int = 0) -> None:
    """What the next infeed of a participant reads: one tensor, or as many as its tuple has."""
    _queue(("to infeed", participant)).put(tensors)


def fetch(participant: int = 0) -> tuple[torch.Tensor, ...]:
    """What a participant outfed, oldest first. Raises ExecutionError where nothing comes in time."""
    return _take(("from outfeed", participant), "fetch waited", "the program has run no outfeed")


def send(channel: int, tensor: torch.Tensor, participant: int = 0) -> None:
    """Give a tensor to the program's recv of this channel from the host."""
    _queue(("to program", channel, participant)).put(tensor)


def receive(channel: int, participant: int = 0) -> torch.Tensor:
    """Take what the program's send of this channel gave to the host. Raises ExecutionError where nothing comes in time."""
    return _take(("to host", channel, participant), "receive waited", f"the program has sent nothing on channel {channel}")


# ------------------------------------------------------------------------------------------- the program's side


def take_infeed(shapes: Sequence[tuple[Sequence[int], torch.dtype]], device: torch.device) -> tuple[torch.Tensor, ...]:
    """The tensors of one infeed. Raises ExecutionError where they do not have these sizes and dtypes."""
    given = _take(("to infeed", current_participant().number), "infeed waited", "give it data with distributed.feeds.feed(...)")
    if len(given) != len(shapes):
        raise ExecutionError("the infeed has another number of arrays than was fed", got=len(given), expected=len(shapes))
    return tuple(_checked(t, dims, dtype).to(device) for t, (dims, dtype) in zip(given, shapes, strict=True))


def _checked(tensor: torch.Tensor, dims: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    if tuple(tensor.shape) != tuple(dims) or tensor.dtype != dtype:
        raise ExecutionError("the sent value has another shape or dtype than the received one",
                             got=f"{tensor.dtype}{list(tensor.shape)}", expected=f"{dtype}{list(dims)}")
    return tensor


def put_outfeed(tensors: Sequence[torch.Tensor]) -> tuple[()]:
    """Give the host copies of what a program outfeeds."""
    _queue(("from outfeed", current_participant().number)).put(tuple(t.detach().clone() for t in tensors))
    return ()


def put_channel(tensor: torch.Tensor, channel: int, to_host: bool, pairs: Sequence[tuple[int, int]] = ()) -> tuple[()]:
    """Send on a channel: to the host, to the targets paired with this participant, or to whoever receives."""
    me = current_participant()
    if to_host:
        _queue(("to host", channel, me.number)).put(tensor.detach().clone())
    elif not pairs:
        _require_shared(me, f"send, channel {channel}")
        _queue(("channel", channel)).put(tensor.detach().clone())
    for target in [] if to_host else [target for source, target in pairs if source == me.number]:
        if me.share_memory:
            _queue(("channel", channel, target)).put(tensor.detach().clone())
        else:
            me.send(channel, target, tensor)
    return ()


def take_channel(channel: int, from_host: bool, dims: Sequence[int], dtype: torch.dtype, device: torch.device,
                 pairs: Sequence[tuple[int, int]] = ()) -> torch.Tensor:
    """Receive from a channel; zeros where pairs are given and this participant is no target of one."""
    me = current_participant()
    key: Hashable = ("channel", channel)
    if from_host:
        key = ("to program", channel, me.number)
    elif pairs:
        source = next((source for source, target in pairs if target == me.number), None)
        if source is None:
            return torch.zeros(tuple(dims), dtype=dtype, device=device)
        if not me.share_memory:
            return me.receive(channel, source, dims, dtype).to(device)
        key = ("channel", channel, me.number)
    else:
        _require_shared(me, f"recv, channel {channel}")
    hint = f"send it with distributed.feeds.send({channel}, ...)" if from_host else f"no participant sent on channel {channel}"
    return _checked(_take(key, f"recv on channel {channel} waited", hint), dims, dtype).to(device)


def _require_shared(me: Participant, subject: str) -> None:
    if not me.share_memory:
        raise ExecutionError("the channel has no source-target pairs", subject=subject,
                             hint='write frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1}}"}')
