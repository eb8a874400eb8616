"""Exchanges between processes: agreed on over the control plane, then carried out by a backend.

Small data travel in the message that announces the exchange; large ones follow by a process group once all have agreed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..core import tuning
from ..core.errors import ExecutionError
from .agreement import Agreement
from .backend import as_bytes, from_bytes
from .byte_encoding import encoded
from .exchange import Exchange, Future, Result
from .exchanges import General
from .executor import SerialExecutor
from .failures import Failures
from .process_groups import ProcessGroups
from .streams import ExchangeStreams


class ProcessExchanges:
    """The exchanges of this process's participants with those of others."""

    def __init__(self, agreement: Agreement, groups: ProcessGroups, failures: Failures):
        self._agreement, self._groups, self._failures = agreement, groups, failures
        self._streams = ExchangeStreams()

    def perform(self, number: int, exchange: Exchange) -> Result:
        """This participant's result of an exchange."""
        with self._failures.reported(number):
            try:
                with torch.no_grad():
                    return encoded(exchange, lambda e: self._perform(e, number))
            except ExecutionError as error:
                error.located(exchange.subject)
                raise

    def _perform(self, exchange: Exchange, number: int) -> Result:
        group, device = exchange.group, exchange.value[0].device
        if not self._groups.carries(device):
            return self._through_cpu(exchange, number)
        small = device.type == "cpu" and sum(v.nbytes for v in exchange.value) <= tuning.INLINE_BYTES
        payload = b"".join(as_bytes(v).numpy().tobytes() for v in exchange.value) if small else b""
        payloads = self._agreement.reach(exchange, number, group, payload)
        if small:
            return exchange.combine([from_bytes(p, exchange.value) for p in payloads], [group.index(number)])[0]
        return self._groups.of(group, number, device.type).perform(exchange)

    def _through_cpu(self, exchange: Exchange, number: int) -> Result:
        """What no backend carries from device to device."""
        group, device = exchange.group, exchange.value[0].device
        onto = General(exchange.site, group, tuple(v.cpu() for v in exchange.value), lambda values, place: values,
                       *exchange.detail)
        values = self._perform(onto, number)
        return exchange.combine([tuple(v.to(device) for v in value) for value in values], [group.index(number)])[0]

    def begin_on_device(self, executor: SerialExecutor, number: int, exchange: Exchange) -> Future:
        """Put an exchange of CUDA tensors into a stream of its own at once; whether all agree is known when it is awaited."""
        if not self._groups.carries(exchange.value[0].device):
            return executor.submit(lambda: self.perform(number, exchange))
        agreed = executor.submit(lambda: self._agreement.reach(exchange, number, exchange.group))
        backend = self._groups.of(exchange.group, number, "cuda")
        return self._streams.begin(agreed, exchange, lambda: encoded(exchange, backend.perform))

    def gather_bytes(self, exchange: Exchange, number: int, leaders: Sequence[int], counts: Sequence[int],
                     own: torch.Tensor) -> list[torch.Tensor]:
        """For participants that share processes: the bytes that each process's members give, through their leaders, of which
        `number` is one. `counts` says how many bytes each gives."""
        self._agreement.reach(exchange, number, leaders)
        return self._groups.of(tuple(leaders), number, "cpu").gather_uneven(own, counts)
