"""Replicas and partitions as processes joined by torch.distributed, one or several of them in each.

    torch.distributed.init_process_group()
    with of_process_group(num_partitions=2) as processes:
        result = program(x)                   # as this process's participant

Before any data move, the members of an exchange agree on what they are about to do (`agreement.py`, over the
`control_plane.py`); then a process group carries it out (`process_exchanges.py`).
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

from ..core import tuning
from ..core.errors import InvalidArgument
from ..storage import torch_private
from .agreement import Agreement
from .buffers import BUFFERS
from .checks import check_arguments, check_counts, entry_point
from .control_plane import ControlPlane
from .failures import Failures
from .participant import Participant, installed, installed_for_process
from .placement import Placement, placement_of
from .process_exchanges import ProcessExchanges
from .process_groups import ProcessGroups
from .process_participants import ColocatedParticipant, ProcessParticipant
from .rendezvous import Rendezvous
from .threads import in_threads
from .transfers import Transfers

_sessions: dict[tuple[int, ...], int] = {}
"""How many sessions these processes have had. Global: each session needs a part of the process group's store for itself, and
all processes count alike."""


class Processes:
    """Represent this process's part in a program that several processes run together.

    `of_process_group` makes it. `rank` is this process's rank in the group and `numbers` the participants that it runs, out of
    `num_replicas` times `num_partitions`. `participants` answers the programs' queries, and `timeout` is the seconds that one
    waits for another.

    >>> dist = torch.distributed
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)     # torchrun does so for many
    >>> builder = XlaBuilder("total")
    >>> total = builder.build(ops.CrossReplicaSum(builder.parameter(0, Shape.parse("f32[2]"))))
    >>> with xla_torch.distributed.of_process_group() as processes:
    ...     processes.check(total)                    # an error, were it for other numbers
    ...     processes.run(total, [(torch.ones(2),)])
    [tensor([1., 1.])]
    >>> processes.numbers, processes.num_replicas
    ((0,), 1)
    >>> processes = xla_torch.distributed.standing()
    >>> with processes.as_participant():               # this thread alone
    ...     total(torch.ones(2))
    tensor([1., 1.])
    >>> with processes.joined():                       # all threads of the process; afterwards it is closed
    ...     total(torch.ones(2))
    tensor([1., 1.])
    >>> processes.close()                              # which is so already
    >>> dist.destroy_process_group()
    """

    def __init__(self, store: dist.Store, rank: int, placement: Placement, timeout: float, nccl: bool):
        self.rank, self.timeout = rank, timeout
        self.num_replicas, self.num_partitions = placement.num_replicas, placement.num_partitions
        self.numbers: tuple[int, ...] = tuple(placement.numbers_on({rank}))
        # Longer than the exchanges between processes may take, whose errors end the waiting for them.
        rendezvous = self._rendezvous = Rendezvous(1.5 * timeout)
        self._size = placement.processes
        self._control_plane = ControlPlane(store, rank, self._size, timeout)
        self._failures = Failures(self._control_plane, placement, rendezvous)
        self._groups = ProcessGroups(self._control_plane, self._failures, timeout, nccl)
        try:
            self._transfers = Transfers(self._control_plane, self._groups, self._failures, placement, timeout)
        except BaseException:
            self._control_plane.close()
            raise
        exchanges = ProcessExchanges(Agreement(self._control_plane, self._failures, placement, timeout), self._groups,
                                     self._failures)
        self.participants: list[Participant] = (
            [ProcessParticipant(exchanges, self._transfers, placement, self.numbers[0])] if len(placement.ranks) == self._size
            else [ColocatedParticipant(exchanges, self._transfers, placement, rendezvous, n) for n in self.numbers])

    def run(self, computation: Any, arguments: Sequence[Sequence[Any]]) -> list[Any]:
        """Run a program as each participant of this process.

        `arguments` holds one tuple for each participant, and so do the results: tensors, or tuples of arrays like those of
        `run_numpy` if the arguments are NumPy arrays. With several participants in this process, results carry no autograd
        history. Raises InvalidArgument if the program is for other numbers of replicas and partitions.
        """
        self.check(computation)
        if len(arguments) != len(self.numbers):
            raise InvalidArgument("wrong number of participants", subject="run", got=f"{len(arguments)} tuples of arguments",
                                  expected=f"{len(self.numbers)}: this process runs participants {list(self.numbers)}")
        check_arguments(arguments, "run")
        call = entry_point(computation, arguments)
        if len(self.numbers) == 1:
            with self._failures.reported(self.numbers[0]):
                return [call(*arguments[0])]
        return in_threads(call, arguments, self.participants, self._rendezvous, self._failures.report)

    def check(self, computation: Any) -> None:
        """Raise InvalidArgument if the program states other numbers of participants."""
        check_counts(computation, self.num_replicas, self.num_partitions, f" on {self._size} processes",
                     "start as many processes, or name the process of each participant with device_assignment=")

    @contextlib.contextmanager
    def joined(self) -> Iterator[None]:
        """Take part within the block; an error here stops the others.

        Connections and threads are closed at the end of the block.
        """
        with contextlib.ExitStack() as stack:
            stack.callback(self.close)
            stack.enter_context(self._failures.reported(self.numbers[0]))
            if len(self.participants) == 1:
                stack.enter_context(installed_for_process(self.participants[0]))
            yield

    @contextlib.contextmanager
    def as_participant(self) -> Iterator[None]:
        """Run this thread as the process's one participant in the block; an error stops the others."""
        (participant,) = self.participants
        with self._failures.reported(participant.number), installed(participant):
            yield

    def close(self) -> None:
        """Leave the group: close connections and threads."""
        for participant in self.participants:
            if isinstance(participant, ProcessParticipant):
                participant.close()
        try:
            if not self._failures.known:
                self._transfers.flush()
        finally:
            self._control_plane.close()
            failed = self._failures.known
            self._transfers.close(wait=not failed)
            self._groups.close(failed)
            BUFFERS.clear()


# ------------------------------------------------------------------------------------------- for users


@contextlib.contextmanager
def of_process_group(group: Any = None, *, num_replicas: int | None = None, num_partitions: int = 1,
                     device_assignment: Sequence[Any] | None = None,
                     timeout: float = tuning.EXCHANGE_TIMEOUT) -> Iterator[Processes]:
    """Make the processes of a torch.distributed group the participants in this block.

    `group` is a process group (default: all processes) or a DeviceMesh, whose dimensions are replicas and, if there are two,
    partitions. All its processes enter and leave the block together. Participants are numbered replica-major, one for each
    rank. `device_assignment` gives the rank of each participant instead, flat or as rows of partitions. It may repeat a rank:
    that process runs several participants as threads, and calls programs with `Processes.run`.

    A participant waits at most `timeout` seconds for the others. An error in one process stops the others at their next
    collective. Raises InvalidArgument if the numbers of processes and participants don't match, and ExecutionError if a process
    doesn't join.

    >>> dist = torch.distributed
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)     # torchrun does so for many
    >>> builder = XlaBuilder("total")
    >>> total = builder.build(ops.CrossReplicaSum(builder.parameter(0, Shape.parse("f32[2]"))))
    >>> with xla_torch.distributed.of_process_group() as processes:
    ...     total(torch.ones(2))
    tensor([1., 1.])
    >>> dist.destroy_process_group()
    """
    processes = _begun(*placement_of(group, num_replicas, num_partitions, device_assignment), timeout)
    with processes.joined():
        yield processes


def _begun(members: tuple[int, ...], placement: Placement, timeout: float) -> Processes:
    session = _sessions[members] = _sessions.get(members, -1) + 1
    store = dist.PrefixStore(f"xla_torch {members} {session}", torch_private.default_store())
    nccl = torch.cuda.is_available() and "cuda:nccl" in str(dist.get_backend_config())
    return Processes(store, members.index(dist.get_rank()), placement, timeout, nccl)


_standing: weakref.WeakKeyDictionary[Any, Processes] = weakref.WeakKeyDictionary()
"""The session that stays, of each process group that was all processes. Global: all programs on meshes share it."""


def standing(timeout: float = tuning.EXCHANGE_TIMEOUT) -> Processes:
    """Return the process's persistent session, in which each process is one participant.

    All processes start it together at the first call, and it ends with Python. Raises InvalidArgument if torch.distributed is
    not initialised.

    >>> dist = torch.distributed
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)     # torchrun does so for many
    >>> processes = xla_torch.distributed.standing()
    >>> processes is xla_torch.distributed.standing(), processes.num_partitions
    (True, 1)
    >>> processes.close()
    >>> dist.destroy_process_group()
    """
    members, placement = placement_of(None, None, 1, None)
    placement = dataclasses.replace(placement, num_replicas=1, num_partitions=len(members))
    world = dist.group.WORLD
    if world not in _standing:
        _standing[world] = processes = _begun(members, placement, timeout)
        atexit.register(processes.close)
    return _standing[world]


def run_on_processes(computation: Any, arguments: Sequence[Sequence[Any]], *, group: Any = None,
                     timeout: float = tuning.EXCHANGE_TIMEOUT, device_assignment: Sequence[Any] | None = None) -> list[Any]:
    """Run a program once on the processes of a group.

    Combines `of_process_group` and `Processes.run`, with as many replicas and partitions as the program states. `arguments`
    holds one tuple for each participant of this process, and so do the results. Raises the errors of both.

    >>> dist = torch.distributed
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)     # torchrun does so for many
    >>> builder = XlaBuilder("total")
    >>> total = builder.build(ops.CrossReplicaSum(builder.parameter(0, Shape.parse("f32[2]"))))
    >>> xla_torch.distributed.run_on_processes(total, [(torch.ones(2),)])
    [tensor([1., 1.])]
    >>> dist.destroy_process_group()
    """
    with of_process_group(group, num_partitions=computation.module.num_partitions, device_assignment=device_assignment,
                          timeout=timeout) as processes:
        return processes.run(computation, arguments)
