"""Replicas and partitions as processes joined by torch.distributed, one or several of them in each.

    torch.distributed.init_process_group()
    with of_process_group(num_partitions=2) as processes:
        result = program(x)                   # as this process's participant

Before any data moves, the members of an exchange tell each other what they are about to do. Small data travel in the same
message; large ones follow by a process group (`torch_groups.py`) once all have agreed. So a member that does something else,
or does not come, ends in an error that names it, and not in a hang.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from ..errors import ExecutionError, InvalidArgument
from .buffers import BUFFERS
from .courier import Courier, Ticket
from .exchanges import General
from .group import as_bytes
from .local import Meeting, ThreadParticipant, check_arguments, in_threads
from .narrow import in_bytes
from .participants import (
    TIMEOUT,
    Aborted,
    Done,
    Exchange,
    Participants,
    Pending,
    Site,
    check_counts,
    installed_for_process,
)
from .torch_groups import TorchGroups
from .wires import Wires

INLINE = 1 << 13
"""Bytes up to which data travel with the message that announces them."""

_EXCHANGE = -1
_sessions: dict[tuple[int, ...], int] = {}


class ProcessParticipant(Participants):
    """One participant, the only one that its process runs."""

    share_memory = False

    def __init__(self, session: Processes, number: int):
        self.session = session
        self.replica_id, self.partition_id = divmod(number, session.num_partitions)
        self.replica_count, self.partition_count = session.num_replicas, session.num_partitions
        self._courier = Courier(f"xla_torch courier {number}")

    def begin(self, exchange: Exchange) -> Pending:
        if len(exchange.group) == 1:
            return Done(exchange.for_all([exchange])[0])
        if exchange.value[0].is_cuda:
            return self.session.begin_on_device(self._courier, self.number, exchange)
        return self._courier.submit(lambda: self.session.perform(self.number, exchange))

    def meet(self, exchange: Exchange) -> Any:
        if len(exchange.group) > 1 and self._courier.idle and not exchange.value[0].is_cuda:
            return self.session.perform(self.number, exchange)
        return self.begin(exchange).wait()

    def post(self, site: Site, target: int, tensor: torch.Tensor) -> None:
        self.session.post(site, self.number, target, tensor)

    def take(self, site: Site, source: int, dims: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return self.session.take(site, source, self.number, dims, dtype)

    def close(self) -> None:
        self._courier.close()


class Processes:
    """This process's part in a program that several processes run together. See `of_process_group`."""

    def __init__(self, store: dist.Store, rank: int, size: int, ranks: Sequence[int], num_replicas: int, num_partitions: int,
                 timeout: float, nccl: bool):
        self.num_replicas, self.num_partitions, self.timeout = num_replicas, num_partitions, timeout
        self.rank, self._ranks = rank, tuple(ranks)
        self._wires = Wires(store, self.rank, size, timeout)
        self._groups = TorchGroups(self._wires, timeout, nccl, self._check, self._of_ranks)
        try:
            self._mail = self._groups.mail(self.rank, size) if size > 1 else None
        except BaseException:
            self._wires.close()
            raise
        self._sent: list[Ticket] = []
        self._postman = Courier("xla_torch postman")
        self.numbers = tuple(number for number, rank in enumerate(ranks) if rank == self.rank)
        # Longer than the exchanges between processes may take, whose errors end the waiting for them.
        self._meeting = Meeting(1.5 * timeout)
        self.participants: list[Participants] = (
            [ProcessParticipant(self, self.numbers[0])] if len(ranks) == size
            else [Hosted(self, self._meeting, number) for number in self.numbers])

    def run(self, computation: Any, arguments: Sequence[Sequence[Any]]) -> list[Any]:
        """Run a program as each participant of this process; `arguments` holds one tuple for each, and so do the results.

        They are tensors as calling `computation` gives them or, where the arguments are NumPy arrays, the tuples of arrays
        that `run_numpy` gives. With several participants in this process results carry no autograd history. Raises
        InvalidArgument where the program is made for other numbers of replicas and partitions.
        """
        self.check(computation)
        if len(arguments) != len(self.numbers):
            raise InvalidArgument("wrong number of participants", subject="run", got=f"{len(arguments)} tuples of arguments",
                                  expected=f"{len(self.numbers)}: this process runs participants {list(self.numbers)}")
        check_arguments(arguments, "run")
        in_numpy = any(isinstance(a, (np.ndarray, np.generic)) for given in arguments for a in given)
        call = computation.run_numpy if in_numpy else computation
        if len(self.numbers) > 1:
            return in_threads(call, arguments, self.participants, self._fail)
        with self._telling():
            return [call(*arguments[0])]

    def check(self, computation: Any) -> None:
        """Raise InvalidArgument where the program says that it is for other numbers of replicas and partitions."""
        check_counts(computation, self.num_replicas, self.num_partitions, f" on {self._wires.size} processes",
                     "start as many processes, or name the process of each participant with device_assignment=")

    # ------------------------------------------------------------------------------------------- failing and ending

    @contextlib.contextmanager
    def joined(self) -> Iterator[None]:
        """Within the block this process takes part; afterwards its connections and threads are gone."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._close)
            stack.enter_context(self._telling())
            if len(self.participants) == 1:
                stack.enter_context(installed_for_process(self.participants[0]))
            yield

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        """Within the block errors of this process end the others."""
        try:
            yield
        except BaseException as error:
            self._fail(self.numbers[0], error)
            raise

    def _fail(self, number: int, error: BaseException) -> None:
        self._meeting.fail(number, error)
        if isinstance(error, Aborted):
            return
        fields = ("what", "subject", "got", "expected", "hint")
        story = {f: str(getattr(error, f)) for f in fields} if isinstance(error, ExecutionError) else {}
        self._wires.fail({"participant": number, "error": f"{type(error).__name__}: {error}", "story": story})

    def _check(self, subject: str = "") -> None:
        """Raise where a participant has failed or a process has died, as far as it has been read."""
        failure = self._wires.failure
        if failure is not None:
            number, story = failure["participant"], failure["story"]
            if story.get("subject"):
                raise Aborted(**story | {"hint": f"participant {number} says so"})
            raise Aborted(f"participant {number} failed: {failure['error']}", subject=subject)
        dead = self._wires.gone - self._wires.left
        if dead:
            raise Aborted(f"participants {self._of_ranks(dead)} are gone: the connections to their processes broke",
                          subject=subject, got=f"processes {sorted(dead)}", expected="all processes until the program ends")

    def _of_ranks(self, ranks: set[int]) -> list[int]:
        return [number for number, rank in enumerate(self._ranks) if rank in ranks]

    def _close(self) -> None:
        for participant in self.participants:
            if isinstance(participant, ProcessParticipant):
                participant.close()
        try:
            if self._wires.failure is None:
                self._look_after_sent(wait=True)
        finally:
            self._wires.close()
            failed = self._wires.failure is not None
            self._postman.close(wait=not failed)
            self._mail = None
            self._groups.close(failed)
            BUFFERS.clear()

    # ------------------------------------------------------------------------------------------- exchanging

    def perform(self, number: int, exchange: Exchange) -> Any:
        """This participant's result of an exchange between processes."""
        try:
            with torch.no_grad():
                group = exchange.group
                ranks = [self._ranks[n] for n in group]
                return in_bytes(exchange, lambda e: self._perform(e, number, group, ranks))
        except BaseException as error:
            if isinstance(error, ExecutionError):
                error.located(exchange.subject)
            self._fail(number, error)
            raise

    def _perform(self, exchange: Exchange, number: int, group: tuple[int, ...], ranks: Sequence[int]) -> Any:
        place = group.index(number)
        kind = exchange.value[0].device
        if not self._groups.takes(kind):
            return self._through_cpu(exchange, number, group, ranks)
        small = kind.type == "cpu" and sum(v.nbytes for v in exchange.value) <= INLINE
        payload = b"".join(as_bytes(v).numpy().tobytes() for v in exchange.value) if small else b""
        payloads = self._agree(exchange, number, group, ranks, payload)
        if small:
            return exchange.combine([_unpacked(p, exchange.value) for p in payloads], [place])[0]
        return self._groups.of(group, place, kind.type).perform(exchange)

    def _through_cpu(self, exchange: Exchange, number: int, group: tuple[int, ...], ranks: Sequence[int]) -> Any:
        """What this backend does not carry from device to device."""
        device = exchange.value[0].device
        onto = General(exchange.site, group, tuple(v.cpu() for v in exchange.value), lambda values, place: values,
                       *exchange.detail)
        values = self._perform(onto, number, group, ranks)
        return exchange.combine([tuple(v.to(device) for v in value) for value in values], [group.index(number)])[0]

    def _agree(self, exchange: Exchange, number: int, group: tuple[int, ...], ranks: Sequence[int], payload: bytes,
               text: str = "") -> list[bytes]:
        """The members' payloads, in the group's order, after all have said that they are at this exchange."""
        own = (text or str(exchange)).encode()
        others = [(n, r) for n, r in zip(group, ranks, strict=True) if n != number]
        for other, rank in others:
            self._wires.send(rank, number, other, _EXCHANGE, own, payload)

        def ready() -> list[bytes] | None:
            told = {n: self._wires.first(n, number, _EXCHANGE) for n, _ in others}
            clashing = [(n, message[0].decode()) for n, message in told.items() if message and message[0] != own]
            if clashing:
                raise exchange.clash(clashing)
            if not all(told.values()):
                self._absent(exchange, [(n, r) for n, r in others if told[n] is None])
                return None
            for n in told:
                self._wires.drop(n, number, _EXCHANGE)
            return [payload if n == number else told[n][1] for n in group]  # pyright: ignore[reportOptionalSubscript]

        found = self._wires.wait(ready, self.timeout)
        if found is None:
            raise exchange.missing([n for n, _ in others if self._wires.first(n, number, _EXCHANGE) is None], self.timeout)
        return found

    def _absent(self, exchange: Exchange, absent: Sequence[tuple[int, int]]) -> None:
        """Raise where members that have not come will not come any more."""
        self._check(exchange.subject)
        left = [n for n, rank in absent if rank in self._wires.left]
        if left:
            raise ExecutionError(f"participants {left} have ended before this exchange", subject=exchange.subject,
                                 got=str(exchange), expected=f"every member of the group {list(exchange.group)}",
                                 hint="all members must run the same collectives in the same order")

    def begin_on_device(self, courier: Courier, number: int, exchange: Exchange) -> Pending:
        """Put an exchange of CUDA tensors into a stream of its own at once; whether all agree is known when it is awaited."""
        if not self._groups.takes(exchange.value[0].device):
            return courier.submit(lambda: self.perform(number, exchange))
        ranks = [self._ranks[n] for n in exchange.group]
        agreed = courier.submit(lambda: self._agree(exchange, number, exchange.group, ranks, b""))
        group = self._groups.of(exchange.group, exchange.group.index(number), "cuda")
        return _OnDevice(agreed, exchange, lambda: in_bytes(exchange, group.perform))

    def gather_hosted(self, exchange: Exchange, number: int, leaders: Sequence[int], counts: Sequence[int],
                      own: torch.Tensor) -> list[torch.Tensor]:
        """For participants that share processes: the bytes that each process's members give, through their leaders."""
        ranks = [self._ranks[n] for n in leaders]
        self._agree(exchange, number, tuple(leaders), ranks, b"", str(exchange))
        return self._groups.of(tuple(leaders), tuple(leaders).index(number), "cpu").gather_uneven(own, counts)

    def rank_of(self, number: int) -> int:
        """The process that runs a participant."""
        return self._ranks[number]

    # ------------------------------------------------------------------------------------------- sending

    def post(self, site: Site, source: int, target: int, tensor: torch.Tensor) -> None:
        """Send a tensor to a participant, here or elsewhere."""
        _, channel = site
        data = as_bytes(tensor.detach()).cpu().clone()
        text = f"{tensor.dtype}{list(tensor.shape)}".encode()
        rank = self._ranks[target]
        if rank == self.rank or data.numel() <= INLINE:
            self._wires.send(rank, source, target, channel, text, data.numpy().tobytes())
            return
        self._wires.send(rank, source, target, channel, text)
        assert self._mail is not None
        self._look_after_sent(wait=False)
        work = self._mail.send(data, rank, self._tag(channel, source, target))
        self._sent.append(self._postman.submit(lambda: self._groups.delivered(work)))

    def _look_after_sent(self, wait: bool) -> None:
        """Raise where something that was posted could not be delivered, as far as that is known or, with `wait`, at last."""
        for ticket in self._sent:
            if wait or ticket.done:
                ticket.wait()
        self._sent = [ticket for ticket in self._sent if not ticket.done]

    def take(self, site: Site, source: int, target: int, dims: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """What a participant has sent. Raises ExecutionError where nothing comes in time or it has another shape."""
        name, channel = site
        subject = f"{name}, channel {channel}"

        def ready() -> tuple[bytes, bytes] | None:
            message = self._wires.first(source, target, channel)
            if message is None:
                self._check(subject)
            else:
                self._wires.drop(source, target, channel)
            return message

        with self._telling():
            message = self._wires.wait(ready, self.timeout)
            if message is None:
                raise ExecutionError(f"participant {source} sent nothing within {self.timeout:g} seconds", subject=subject,
                                     expected=f"{dtype}{list(dims)}", hint="every recv needs a send of its channel")
            text, payload = message
            if text.decode() != f"{dtype}{list(dims)}":
                raise ExecutionError(f"participant {source} sent another shape or type than is received", subject=subject,
                                     got=text.decode(), expected=f"{dtype}{list(dims)}")
            result = torch.empty(tuple(dims), dtype=dtype)
            if payload or not result.numel():
                return _unpacked(payload, (result,))[0]
            assert self._mail is not None
            self._groups.delivered(self._mail.receive(as_bytes(result), self._ranks[source], self._tag(channel, source, target)))
            return result

    def _tag(self, channel: int, source: int, target: int) -> int:
        count = len(self._ranks)
        return (channel * count * count + source * count + target) % (1 << 31)


class _OnDevice:
    """An exchange in a CUDA stream beside the one that computes."""

    def __init__(self, agreed: Pending, exchange: Exchange, perform: Callable[[], Any]):
        self._agreed = agreed
        device = exchange.value[0].device
        self._stream = _stream_of(device)
        self._stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(self._stream), torch.no_grad():
            self._result = perform()
            self._ended = self._stream.record_event()
        for tensor in exchange.value:
            tensor.record_stream(self._stream)

    def wait(self) -> Any:
        self._agreed.wait()
        for tensor in self._result if isinstance(self._result, tuple) else (self._result,):
            here = torch.cuda.current_stream(tensor.device)
            here.wait_event(self._ended)
            tensor.record_stream(here)
        return self._result


_streams: dict[torch.device, Any] = {}


def _stream_of(device: torch.device) -> Any:
    """The stream in which a device's exchanges run, one after another."""
    if device not in _streams:
        _streams[device] = torch.cuda.Stream(device)
    return _streams[device]


def _unpacked(payload: bytes, like: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Tensors of these types and shapes out of their bytes."""
    data = torch.frombuffer(bytearray(payload), dtype=torch.uint8) if payload else torch.empty(0, dtype=torch.uint8)
    parts = data.split([t.nbytes for t in like])
    # A part that does not begin at a multiple of its element's size cannot be viewed as it lies.
    return tuple(part.clone().view(t.dtype).view(t.shape) for part, t in zip(parts, like, strict=True))


class Hosted(ThreadParticipant):
    """One of several participants that this process runs, each in a thread.

    Members of a group that share a process meet there. The first of them, their leader, then exchanges what all of them give
    with the leaders of the other processes, and hands out the results.
    """

    share_memory = False

    def __init__(self, session: Processes, meeting: Meeting, number: int):
        super().__init__(meeting, number, session.num_replicas, session.num_partitions)
        self._session = session

    def post(self, site: Site, target: int, tensor: torch.Tensor) -> None:
        self._session.post(site, self.number, target, tensor)

    def take(self, site: Site, source: int, dims: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return self._session.take(site, source, self.number, dims, dtype)

    def begin(self, exchange: Exchange) -> Pending:
        rank_of = self._session.rank_of
        local = tuple(n for n in exchange.group if rank_of(n) == rank_of(self.number))
        if len(local) == len(exchange.group):
            return super().begin(exchange)
        if len({rank_of(n) for n in exchange.group}) == len(exchange.group):
            return Done(self._session.perform(self.number, exchange))
        given = super().begin(General(exchange.site, local, exchange.value, lambda values, place: list(values),
                                      *exchange.signature[:4])).wait()
        results: tuple[Any, ...] = ()
        if local[0] == self.number:
            values = self._gather(exchange, local, given)
            results = tuple(exchange.combine(values, [exchange.group.index(n) for n in local]))
        handed = _Handout(exchange.site, local, results)
        return super().begin(handed)

    def _gather(self, exchange: Exchange, local: tuple[int, ...], given: Sequence[Any]) -> list[Any]:
        """What all members of the group give, in its order."""
        rank_of, device = self._session.rank_of, exchange.value[0].device
        hosts: dict[int, list[int]] = {}
        for number in exchange.group:
            hosts.setdefault(rank_of(number), []).append(number)
        own = torch.cat([as_bytes(v).cpu() for value in given for v in value])
        size = sum(v.nbytes for v in exchange.value)
        members = list(hosts.values())
        gathered = self._session.gather_hosted(exchange, self.number, [m[0] for m in members],
                                               [len(m) * size for m in members], own)
        values: dict[int, Any] = {}
        for numbers, data in zip(members, gathered, strict=True):
            for number, part in zip(numbers, data.split(size), strict=True):
                pieces = part.split([v.nbytes for v in exchange.value])
                values[number] = tuple(piece.clone().view(v.dtype).view(v.shape).to(device)
                                       for piece, v in zip(pieces, exchange.value, strict=True))
        return [values[number] for number in exchange.group]


class _Handout(Exchange):
    """The leader's results for the members at its process."""

    __slots__ = ()

    @property
    def signature(self) -> tuple[Any, ...]:
        return type(self), self.site[1], self.group

    def combine(self, values: Sequence[Any], places: Sequence[int]) -> list[Any]:
        return [values[0][place] for place in places]

    def __str__(self) -> str:
        return f"the end of {self.subject} in group {list(self.group)}"


# ------------------------------------------------------------------------------------------- for users


@contextlib.contextmanager
def of_process_group(group: Any = None, *, num_replicas: int | None = None, num_partitions: int = 1,
                     device_assignment: Sequence[Any] | None = None, timeout: float = TIMEOUT) -> Iterator[Processes]:
    """Let the processes of an initialised torch.distributed group be the participants of the programs called in the block.

    `group` is a process group (default: all processes) or a DeviceMesh, whose dimensions are replicas and, if there are
    two, partitions. All its processes enter and leave the block together. Participants are numbered replica-major, one for
    each rank; `device_assignment` names the rank of each instead, in this order or as rows of partitions, and may name a
    rank several times. Such a process runs several participants, as threads, and calls programs with `Processes.run`.

    A participant waits at most `timeout` seconds for the others. An error in one process ends the others' at their next
    exchange. Raises InvalidArgument where the numbers of processes and participants do not fit, and ExecutionError where a
    process does not come.
    """
    members, ranks, num_partitions = _members(group, num_partitions, device_assignment)
    if num_replicas is None:
        num_replicas = max(1, len(ranks) // num_partitions)
    if num_replicas * num_partitions != len(ranks) or set(ranks) != set(range(len(members))):
        raise InvalidArgument("processes and participants do not fit", subject="of_process_group",
                              got=f"{len(members)} processes, participants on ranks {list(ranks)}",
                              expected=f"{num_replicas} replicas x {num_partitions} partitions = "
                                       f"{num_replicas * num_partitions} participants, and one or more on each rank",
                              hint="name the rank of each participant with device_assignment=")
    session = _sessions[members] = _sessions.get(members, -1) + 1
    store = dist.PrefixStore(f"xla_torch {members} {session}", dist.distributed_c10d._get_default_store())
    nccl = torch.cuda.is_available() and "cuda:nccl" in str(dist.get_backend_config())
    processes = Processes(store, members.index(dist.get_rank()), len(members), ranks, num_replicas, num_partitions, timeout, nccl)
    with processes.joined():
        yield processes


def _members(group: Any, num_partitions: int, assignment: Sequence[Any] | None) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """The global ranks of the group's processes, the process of each participant as its place among them, and the number
    of partitions."""
    if not dist.is_available() or not dist.is_initialized():
        raise InvalidArgument("there is no process group", subject="of_process_group",
                              hint="call torch.distributed.init_process_group first")
    mesh = getattr(group, "mesh", None)
    if isinstance(mesh, torch.Tensor):
        if mesh.dim() > 2:
            raise InvalidArgument("a mesh of processes has too many dimensions", subject="of_process_group",
                                  got=list(mesh.shape), expected="[replicas] or [replicas, partitions]")
        numbers = mesh.reshape(-1).tolist()
        members = tuple(sorted(numbers))
        return members, tuple(members.index(n) for n in numbers), mesh.shape[1] if mesh.dim() == 2 else num_partitions
    members = tuple(dist.get_process_group_ranks(group or dist.group.WORLD))
    if assignment is None:
        return members, tuple(range(len(members))), num_partitions
    return members, tuple(int(rank) for rank in np.asarray(assignment).reshape(-1)), num_partitions


def run_on_processes(computation: Any, arguments: Sequence[Sequence[Any]], *, group: Any = None, timeout: float = TIMEOUT,
                     device_assignment: Sequence[Any] | None = None) -> list[Any]:
    """Run a program once on the processes of a group, as many replicas and partitions as it says: `of_process_group` and
    `Processes.run` in one. `arguments` holds one tuple of arguments for each participant of this process, and so do the
    results."""
    with of_process_group(group, num_partitions=computation.module.num_partitions, device_assignment=device_assignment,
                          timeout=timeout) as processes:
        return processes.run(computation, arguments)
