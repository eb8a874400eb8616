"""Things that are made once for each key and kept, in the same way wherever and from whichever thread they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from ..core.budget import counting
from ..core.collection import put_off
from ..core.forks import Lock
from ..hlo.gradient_changes import revision
from ..storage.torch_private import undisturbed

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Cache(Generic[K, V]):
    """What was made for each key. It is made once, under a lock, and undisturbed by the modes of torch and the transforms of
    torch.func that happen to be on when it is first asked for."""

    __slots__ = ("_lock", "found")

    def __init__(self, lock: Lock):
        self._lock = lock
        self.found: dict[K, V] = {}

    def get(self, key: K, make: Callable[[K], V]) -> V:
        """What was made for the key, or what `make` now makes for it."""
        try:
            return self.found[key]
        except KeyError:
            pass
        with self._lock:
            if key not in self.found:
                with undisturbed(), put_off(), counting("making the program ready"):
                    self.found[key] = make(key)
            return self.found[key]

    def put(self, key: K, value: V) -> None:
        """Keep this in the place of what was made for the key."""
        self.found[key] = value


class RuleCache(Cache[K, V]):
    """The same for what gradient rules take part in: it is made anew after a rule has been registered or taken back."""

    __slots__ = ("_revision",)

    def __init__(self, lock: Lock):
        super().__init__(lock)
        self._revision = revision()

    def get(self, key: K, make: Callable[[K], V]) -> V:
        if self._revision != revision():
            with self._lock:
                if self._revision != revision():
                    self.found, self._revision = {}, revision()
        return super().get(key, make)
