"""The ops of drawn programs in which participants meet, and what tells them who they are.

Which of them a group names depends on the op's channel and on `use_global_device_ids`: replicas, partitions, or all of them by
one number. All ops stand in the entry, where every participant comes by.
"""

from __future__ import annotations

from fuzz.drawing import SUMS, Drawer, Op, as_rough, combiner
from fuzz.drawing_ops import braces, resized
from fuzz.programs import Part

EXCHANGED = ("s32", "f32", "u32", "s64", "f64", "u8", "s8", "u64")
MOVED = (*EXCHANGED, "bf16", "f16", "pred")


def listed(d: Drawer, ids: int) -> tuple[str, int]:
    """Groups of these ids, all of one size, and the size."""
    size = d.chance.choice([k for k in range(1, ids + 1) if ids % k == 0 and (k > 1 or ids == 1)])
    order = d.chance.sample(range(ids), ids)
    return ",".join(braces(order[k:k + size]) for k in range(0, ids, size)), size


def channel(d: Drawer) -> str:
    """No two ops of a module may have the same."""
    return f", channel_id={1 + d.chance.getrandbits(30)}"


def groups(d: Drawer) -> tuple[str, int]:
    """Groups of a reduction or a gathering, and how many members one has: of replicas, of these with all their partitions, or
    of any participants."""
    kind = d.chance.choice(("replicas", "both", "all"))
    if kind == "replicas":
        text, size = listed(d, d.replicas)
        return f"replica_groups={{{text}}}", size
    if kind == "both":
        text, size = listed(d, d.replicas)
        return f"replica_groups={{{text}}}{channel(d)}", size * d.partitions
    text, size = listed(d, d.participants)
    return f"replica_groups={{{text}}}{channel(d)}, use_global_device_ids=true", size


def lanes(d: Drawer) -> tuple[int, str]:
    """How many ids an op has that is across replicas or, with a channel, across partitions; and the channel."""
    return d.chance.choice(((d.replicas, ""), (d.partitions, channel(d))))


def all_reduce(d: Drawer) -> None:
    value = d.pick(lambda p: p.type in EXCHANGED)
    opcode = d.chance.choice(("add", "maximum", "minimum", "multiply"))
    rough = value.part.rough or (opcode in SUMS and as_rough(value.part).rough)
    name = combiner(d, opcode, Part(value.part.type, (), rough))
    d.add("all-reduce", [value], Part(value.part.type, value.part.dims, rough), f"{groups(d)[0]}, to_apply={name}",
          regions=[name])


def reduce_scatter(d: Drawer) -> None:
    text, size = groups(d)
    value = d.pick(lambda p: p.type in EXCHANGED and any(n and n % size == 0 for n in p.dims))
    along = d.chance.choice([k for k, n in enumerate(value.part.dims) if n and n % size == 0])
    rough = as_rough(value.part).rough
    name = combiner(d, "add", Part(value.part.type, (), rough))
    dims = tuple(n // size if k == along else n for k, n in enumerate(value.part.dims))
    d.add("reduce-scatter", [value], Part(value.part.type, dims, rough), f"{text}, dimensions={{{along}}}, to_apply={name}",
          regions=[name])


def all_gather(d: Drawer) -> None:
    text, size = groups(d)
    value = d.pick(lambda p: p.type in MOVED and len(p.dims) > 0)
    along = d.chance.randrange(len(value.part.dims))
    dims = tuple(n * size if k == along else n for k, n in enumerate(value.part.dims))
    d.add("all-gather", [value], resized(value.part, dims), f"{text}, dimensions={{{along}}}")


def all_to_all(d: Drawer) -> None:
    ids, by = lanes(d)
    text, size = listed(d, ids)
    value = d.pick(lambda p: p.type in MOVED and any(n and n % size == 0 for n in p.dims))
    along = d.chance.choice([k for k, n in enumerate(value.part.dims) if n and n % size == 0])
    d.add("all-to-all", [value], value.part, f"replica_groups={{{text}}}{by}, dimensions={{{along}}}")


def collective_permute(d: Drawer) -> None:
    value = d.pick(lambda p: p.type in MOVED)
    ids, by = lanes(d)
    sources, targets = d.chance.sample(range(ids), ids), d.chance.sample(range(ids), ids)
    pairs = list(zip(sources, targets, strict=True))[:d.chance.randint(1, ids)]
    d.add("collective-permute", [value], value.part, f"source_target_pairs={{{','.join(map(braces, pairs))}}}{by}")


def collective_broadcast(d: Drawer) -> None:
    value = d.pick(lambda p: p.type in MOVED)
    ids, by = lanes(d)
    d.add("collective-broadcast", [value], value.part, f"replica_groups={{{listed(d, ids)[0]}}}{by}")


def own_id(d: Drawer) -> None:
    d.add(d.chance.choice(("replica-id", "partition-id")), [], Part("u32", ()))


def collective_ops() -> list[tuple[Op, float]]:
    return [(all_reduce, 3), (reduce_scatter, 3), (all_gather, 3), (all_to_all, 3), (collective_permute, 3),
            (collective_broadcast, 1.5), (own_id, 1.5)]
