"""Whole programs: `drawn(number)` is the program of a number, and always the same."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence

from fuzz import drawing_collectives as collectives
from fuzz import drawing_ops as plain
from fuzz import drawing_regions as regions
from fuzz.drawing import NARROW_FLOATS, Declined, Drawer, Op, grow, text_of_dtype
from fuzz.programs import Program


def drawn(number: int, least: int = 5, most: int = 60, prefix: str = "", replicas: int = 1, partitions: int = 1,
          types: Sequence[str] = ()) -> Program:
    """The program of a number for so many participants, whose names begin with `prefix`; of these element types where they are
    given. Scalar arguments are the same for all, so that they come by the same exchanges."""
    participants = replicas * partitions
    chance = random.Random(f"program {number} of {participants}{' '.join(types)}")
    drawer = Drawer(chance, prefix, types or _types(chance))
    drawer.special, drawer.replicas, drawer.partitions = chance.random() < 0.15, replicas, partitions
    for _ in range(chance.randint(1, 3)):
        with contextlib.suppress(Declined):
            drawer.parameter(drawer.array(drawer.type(), drawer.dims()))
    wanted = min(most, least + int(chance.random() ** 4 * (most - least)))
    grow(drawer, entry_ops(drawer), wanted)
    used = {o for v in drawer.values for o in v.operands}
    arrays = [v for v in drawer.values if not v.is_tuple and not v.part.dynamic and v.opcode not in ("parameter", "constant")]
    some = {v.name for v in arrays if v.name not in used} | {v.name for v in chance.sample(arrays, min(2, len(arrays)))}
    results = [v.name for v in arrays if v.name in some]
    others = []
    for _ in range(participants - 1):
        others.append({n: a if a.ndim == 0 else drawer.array(text_of_dtype(a.dtype), a.shape) for n,
                       a in drawer.arguments.items()})
    return Program(drawer.regions, drawer.values, drawer.arguments, results, others, replicas, partitions)


def _types(chance: random.Random) -> list[str]:
    """The types that a program is about."""
    weights = {"pred": 3, "s32": 5, "f32": 6, "f64": 3, "s64": 3, "bf16": 2, "f16": 2, "u32": 3, "u8": 2, "s8": 2, "s16": 1,
               "u16": 1,
               "u64": 2, "c64": 1, "c128": 1, "s4": 1, "u4": 1, **dict.fromkeys(NARROW_FLOATS, 0.25)}
    return sorted(set(chance.choices(list(weights), list(weights.values()), k=chance.randint(2, 6))))


def entry_ops(drawer: Drawer) -> list[tuple[Op, float]]:
    """What stands in the entry of a program, with how often."""
    ops = [*plain.plain_ops(), (plain.convolution, 0.5), (plain.fft, 0.3), (plain.rng_bit_generator, 0.3), (plain.barrier, 0.2),
           (plain.dynamic_size, 0.6), *regions.region_ops()]
    return [*ops, *collectives.collective_ops()] if drawer.participants > 1 else ops
