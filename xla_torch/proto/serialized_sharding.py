"""Shardings that stand in other formats as the bytes of an OpSharding."""

from __future__ import annotations

import functools

from google.protobuf.message import DecodeError

from ..core.errors import InvalidArgument
from ..hlo.sharding import Sharding
from .context import Reading
from .devices import read_sharding
from .schema import message_class


@functools.lru_cache(maxsize=1024)
def sharding_of_bytes(data: bytes) -> Sharding:
    """The sharding of a serialised OpSharding. Raises InvalidArgument for other bytes."""
    proto = message_class("OpSharding")()
    try:
        proto.ParseFromString(data)
    except DecodeError:
        raise InvalidArgument("the sharding is neither text nor a proto", got=repr(data)[:80]) from None
    return read_sharding(proto, Reading((), ()))
