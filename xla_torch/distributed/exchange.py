"""An exchange: what the members of a group do together once, and the errors where they do not."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import torch

from ..core.errors import ExecutionError
from ..core.types import PrimitiveType

Site = tuple[str, int]
"""Where in a program an exchange stands: the instruction as errors name it, and its channel or 0."""

NOWHERE: Site = ("collective", 0)

Given = tuple[torch.Tensor, ...]
"""What one member gives."""

Result: TypeAlias = Any
"""What one member gets: a tensor or, from exchanges of several at once, a tuple or list of them."""


class Aborted(ExecutionError):
    """Raised in the participants that waited for one that failed, is gone, or did not come or answer in time.

    `is_notified` says that it came from another participant, who found that out; who finds it out tells the others.
    """

    is_notified = True

    @classmethod
    def found_here(cls, what: str, **labelled: object) -> Aborted:
        """What no other participant has told."""
        error = cls(what, **labelled)  # pyright: ignore[reportArgumentType]
        error.is_notified = False
        return error


class Exchange(abc.ABC):
    """What the members of a group do together once, as one of them sees it.

    `group` lists participants by number, this one among them; `value` are the tensors that this one gives. `detail` is what
    else all members must agree on. Where the exchange only moves elements of a narrow float (8 bits or fewer), whose storage
    dtype is wider, `narrow_type` is that type. Until the exchange has ended nobody writes to `value`.
    """

    __slots__ = ("detail", "group", "narrow_type", "site", "value")

    def __init__(self, site: Site, group: tuple[int, ...], value: Given, *detail: Any):
        self.site, self.group, self.value, self.detail = site, group, value, detail
        self.narrow_type: PrimitiveType | None = None

    @abc.abstractmethod
    def combine(self, values: Sequence[Given], places: Sequence[int]) -> list[Result]:
        """The results of the members at these places of the group, from what all of them gave, in the group's order.

        Results are tensors or tuples of tensors that share memory with nothing.
        """

    def for_all(self, given: Sequence[Exchange]) -> list[Result]:
        """The results of all members, from the exchange as each of them sees it."""
        return self.combine([exchange.value for exchange in given], range(len(given)))

    @property
    def signature(self) -> tuple[Any, ...]:
        """What all members must agree on, cheap to make and to compare."""
        return (type(self), self.site[1], self.group, self.detail, *((v.dtype, v.shape) for v in self.value))

    @property
    def subject(self) -> str:
        """For error messages: ``all-reduce (%r), channel 3``."""
        name, channel = self.site
        return f"{name}, channel {channel}" if channel else name

    def __str__(self) -> str:
        detail = "".join(f" {d}" for d in self.detail if d != "")
        arrays = ", ".join(f"{str(v.dtype).removeprefix('torch.')}{list(v.shape)}" for v in self.value)
        return f"{type(self).__name__}{detail} of {arrays} in group {list(self.group)}, channel {self.site[1]}"

    def clash(self, others: Sequence[tuple[int, str]]) -> ExecutionError:
        """The error where these members, here with what they do, do something else."""
        theirs = "; ".join(f"participant {number}: {text}" for number, text in others)
        return ExecutionError(f"participants {[number for number, _ in others]} run a different collective", subject=self.subject,
                              got=theirs, expected=str(self),
                              hint="run the same collectives, with the same shapes and in the same order, in all members")

    def ended(self, numbers: Sequence[int], others: Sequence[tuple[int, str]] = ()) -> Aborted:
        """The error where these members have ended. `others` wait in vain, too, for what is said of them."""
        theirs = "".join(f"; participant {number} waits for {text}" for number, text in others)
        return Aborted.found_here(
            f"participants {list(numbers)} have ended before this exchange", subject=self.subject, got=f"{self}{theirs}",
            expected=f"every member of the group {list(self.group)}",
            hint="run the same collectives in the same order in all members")

    def missing(self, absent: Sequence[int], seconds: float, where: str = "") -> Aborted:
        """The error where members have not come in time. `where` says what they do instead, if that is known."""
        return Aborted.found_here(
            f"participants {list(absent)} did not come within {seconds:g} seconds", subject=self.subject,
            got=where or str(self), expected=f"every member of the group {list(self.group)}",
            hint="run the same collectives in the same order in all members")


class Future(Protocol):
    """An exchange that was begun. `concurrent.futures.Future` is one."""

    def result(self) -> Result:
        """This participant's result, as soon as it is there. Raises ExecutionError where a member fails, does not come or
        does something else."""


class Completed:
    """The future of an exchange that has ended already."""

    __slots__ = ("_result",)

    def __init__(self, result: Result):
        self._result = result

    def result(self) -> Result:
        return self._result
