"""Exchanges of CUDA tensors, each put into a stream beside the one that computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .exchange import Exchange, Future, Result


class ExchangeStreams:
    """For each device the stream in which its exchanges run, one after another."""

    def __init__(self) -> None:
        self._streams: dict[torch.device, Any] = {}

    def begin(self, agreed: Future, exchange: Exchange, perform: Callable[[], Result]) -> StreamedExchange:
        """Put an exchange into its device's stream, after what the current stream has been given so far. `agreed` tells later
        whether all members are at this exchange."""
        device = exchange.value[0].device
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)
        return StreamedExchange(self._streams[device], agreed, exchange, perform)


class StreamedExchange:
    """An exchange in a stream. A `Future`: its result may be used by what the current stream is given afterwards."""

    def __init__(self, stream: Any, agreed: Future, exchange: Exchange, perform: Callable[[], Result]):
        self._agreed = agreed
        stream.wait_stream(torch.cuda.current_stream(exchange.value[0].device))
        with torch.cuda.stream(stream), torch.no_grad():
            self._result = perform()
            self._ended = stream.record_event()
        for tensor in exchange.value:
            tensor.record_stream(stream)

    def result(self) -> Result:
        self._agreed.result()
        for tensor in self._result if isinstance(self._result, tuple) else (self._result,):
            here = torch.cuda.current_stream(tensor.device)
            here.wait_event(self._ended)
            tensor.record_stream(here)
        return self._result
