"""Programs in the words that XLA's CPU compiler takes where it has no code for others."""

from __future__ import annotations

import dataclasses
import re
import zlib
from collections.abc import Callable, Sequence

from fuzz.programs import Part, Program, Value


def for_xla(program: Program) -> Program:
    """The same program without what XLA's CPU compiler refuses."""
    values = [v for value in program.values for v in _WORDS.get(value.opcode, _itself)(value, program)]
    return dataclasses.replace(program, values=values)


def _itself(value: Value, _: Program) -> Sequence[Value]:
    return [value]


def _received(value: Value, program: Program) -> Sequence[Value]:
    """A partition's number as what all partitions of its replica send it. XLA refuses the op itself when it partitions."""
    count = program.partitions
    if count == 1:
        return [value]
    numbers, received, first = (f"{value.name}_{stem}" for stem in ("numbers", "received", "first"))
    all_, one = Part("u32", (count,)), Part("u32", (1,))
    return [Value(numbers, (all_,), "iota", attributes="iota_dimension=0"),
            Value(received, (all_,), "all-to-all", (numbers,),
                  f"replica_groups={{{{{','.join(map(str, range(count)))}}}}}, {_channel(value)}, dimensions={{0}}"),
            Value(first, (one,), "slice", (received,), "slice={[0:1]}"),
            Value(value.name, value.parts, "reshape", (first,))]


def _gathered(value: Value, program: Program) -> Sequence[Value]:
    """A broadcast as the first row of what a gathering gives."""
    part, (source,), ids = value.part, value.operands, _global_ids(value.attributes, program)
    groups = ",".join(f"{{{','.join(map(str, group))}}}" for group in ids)
    one, all_ = (Part(part.type, (n, *part.dims), part.rough) for n in (1, len(ids[0])))
    bounds = ", ".join(f"[0:{n}]" for n in one.dims)
    row, rows, first = (f"{value.name}_{stem}" for stem in ("row", "rows", "first"))
    return [Value(row, (one,), "reshape", (source,)),
            Value(rows, (all_,), "all-gather", (row,),
                  f"replica_groups={{{groups}}}, {_channel(value)}, use_global_device_ids=true, dimensions={{0}}"),
            Value(first, (one,), "slice", (rows,), f"slice={{{bounds}}}"),
            Value(value.name, (part,), "reshape", (first,))]


def _channel(value: Value) -> str:
    return f"channel_id={(1 << 32) + zlib.crc32(value.name.encode())}"


def _global_ids(attributes: str, program: Program) -> list[list[int]]:
    """Groups of replicas, or of partitions where there is a channel, as groups of participants."""
    text, = re.findall(r"replica_groups=\{(\{.*?\})\}", attributes)
    groups = [[int(i) for i in group.split(",")] for group in re.findall(r"\{([\d,]+)\}", text)]
    replicas, partitions = program.replicas, program.partitions
    if "channel_id" in attributes:
        return [[replica * partitions + i for i in group] for replica in range(replicas) for group in groups]
    return [[i * partitions + partition for i in group] for partition in range(partitions) for group in groups]


_WORDS: dict[str, Callable[[Value, Program], Sequence[Value]]] = {
    "collective-broadcast": _gathered, "partition-id": _received}
