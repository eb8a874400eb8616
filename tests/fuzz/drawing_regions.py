"""The ops of drawn programs that run computations: reductions, windows, sorts, scatters, calls, branches, loops."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NoReturn

from fuzz.drawing import INTS, SUMS, Declined, Drawer, Op, as_rough, combiner, grow, neutral, unrough
from fuzz.drawing_ops import NIBBLES, SLICED, braces, is_int, plain_ops, resized, scalar_ops
from fuzz.programs import Part, Value

WHOLE = ("parameter", "add", "multiply", "subtract", "xor", "divide", "dot", "gather", "sort", "and")
"""Values that XLA does not take for a concatenation of others."""


def combining(d: Drawer, part: Part) -> str:
    """An op that combines elements of a type in any order."""
    if part.type == "pred":
        return d.chance.choice(("and", "or"))
    if part.is_complex:
        return "add"
    if part.type in NIBBLES:
        return d.chance.choice(("maximum", "minimum", "and", "or"))
    return d.chance.choice(("add", "maximum", "minimum", "multiply", *(("and", "or", "xor") if is_int(part) else ())))


def drawn_scalar(d: Drawer, parts: Sequence[Part], result: Part, wanted: int = 3) -> str:
    """A region of scalars with some ops."""
    def draw(inner: Drawer, given: list[Value]) -> Value:
        grow(inner, scalar_ops(), inner.chance.randint(1, wanted))
        return rooted(inner, [result])

    return d.region(parts, draw)


def rooted(inner: Drawer, parts: Sequence[Part], as_tuple: bool = False) -> Value:
    """The region's root: values of these parts, late ones before others."""
    found = []
    for part in parts:
        fitting = inner.known(lambda p, part=part: (p.type, p.dims) == (part.type, part.dims) and (part.rough or not p.rough))
        value = fitting[-1 - int(inner.chance.random() ** 2 * len(fitting))] if fitting else inner.fresh(part.type, part.dims)
        found.append(value)
    if as_tuple:
        return inner.add("tuple", found, tuple(parts))
    return inner.add("copy", found, parts[0])


# ---- reductions

def reduced_dims(d: Drawer, part: Part) -> tuple[list[int], tuple[int, ...]]:
    rank = len(part.dims)
    along = sorted(d.chance.sample(range(rank), d.chance.randint(1, rank)))
    return along, tuple(n for k, n in enumerate(part.dims) if k not in along)


def reduce(d: Drawer) -> None:
    value = d.pick(lambda p: len(p.dims) > 0)
    opcode = combining(d, value.part)
    along, dims = reduced_dims(d, value.part)
    sizes = [value.part.dims[k] for k in along]
    # XLA drops an init value where one element is reduced, and counts it several times where there are many, or pieces.
    whole = value.opcode in WHOLE and max(sizes) <= 32 and 1 not in sizes
    start = neutral(d, opcode, value.part) if not whole else d.like(value.part.type, ())
    rough = value.part.rough or start.part.rough or (opcode in SUMS and as_rough(value.part).rough)
    name = combiner(d, opcode, Part(value.part.type, (), rough))
    d.add("reduce", [value, start], Part(value.part.type, dims, rough), f"dimensions={braces(along)}, to_apply={name}",
          regions=[name])


def reduce_by_any(d: Drawer) -> None:
    """A reducer of integers that is drawn: the order shows."""
    value = d.pick(lambda p: p.type in INTS and len(p.dims) > 0 and max(p.dims) <= 32)
    if value.opcode not in WHOLE:
        raise Declined  # XLA reduces the pieces of a concatenation each by itself
    part = Part(value.part.type, ())
    along = [d.chance.choice([k for k, n in enumerate(value.part.dims) if n != 1] or _declined())]
    name = drawn_scalar(d, [part, part], part)
    dims = tuple(n for k, n in enumerate(value.part.dims) if k not in along)
    d.add("reduce", [value, d.like(part.type, ())], Part(part.type, dims), f"dimensions={braces(along)}, to_apply={name}",
          regions=[name])


def arg_reduce(d: Drawer) -> None:
    """Maximum or minimum with its place."""
    value = d.pick(lambda p: unrough(p) and len(p.dims) > 0 and (is_int(p) or p.is_float) and max(p.dims) <= 32)
    part, along = value.part, d.chance.randrange(len(value.part.dims))
    places = d.add("iota", [], Part("s32", part.dims), f"iota_dimension={along}")
    key, place = Part(part.type, ()), Part("s32", ())
    direction = d.chance.choice(("GT", "GE", "LT"))

    def draw(inner: Drawer, given: list[Value]) -> Value:
        better = inner.add("compare", [given[0], given[2]], Part("pred", ()), f"direction={direction}")
        chosen = [inner.add("select", [better, given[k], given[k + 2]], given[k].part) for k in range(2)]
        return inner.add("tuple", chosen, (key, place))

    name = d.region([key, place, key, place], draw)
    start = neutral(d, "minimum" if direction == "LT" else "maximum", part)
    dims = tuple(n for k, n in enumerate(part.dims) if k != along)
    whole = d.add("reduce", [value, places, start, d.numbers_between(0, 0, ())],
                  (Part(part.type, dims), Part("s32", dims)), f"dimensions={{{along}}}, to_apply={name}", regions=[name])
    for k in range(2):
        d.element(whole, k)


def window(d: Drawer, dims: Sequence[int], dilated: bool = True, padded: bool = True) -> tuple[str, tuple[int, ...]]:
    rows: list[list[str]] = [[], [], [], [], []]
    made = []
    for size in dims:
        width, stride = d.chance.choice((1, 1, 2, 3)), d.chance.choice((1, 1, 2))
        low, high = (d.chance.choice((0, 0, 1)), d.chance.choice((0, 0, 1, 2))) if padded else (0, 0)
        base, dilation = (d.chance.choice((1, 1, 1, 2)), d.chance.choice((1, 1, 1, 2))) if dilated else (1, 1)
        whole, reach = (size - 1) * base + 1 + low + high, (width - 1) * dilation + 1
        if whole < reach or size == 0:
            raise Declined
        made.append((whole - reach) // stride + 1)
        for row, text in zip(rows, (width, stride, f"{low}_{high}", base, dilation), strict=True):
            row.append(str(text))
    keys = ("size", "stride", "pad", "lhs_dilate", "rhs_dilate")
    return " ".join(f"{key}={'x'.join(row)}" for key, row in zip(keys, rows, strict=True)), tuple(made)


def reduce_window(d: Drawer) -> None:
    value = d.pick(lambda p: len(p.dims) > 0 and p.type != "pred")
    opcode = combining(d, value.part)
    plain = value.opcode == "parameter" and d.chance.random() < 0.5  # XLA takes a pad for the window's own, with its init value
    start = d.like(value.part.type, ()) if plain else neutral(d, opcode, value.part)
    rough = value.part.rough or start.part.rough or (opcode in SUMS and as_rough(value.part).rough)
    text, dims = window(d, value.part.dims)
    name = combiner(d, opcode, Part(value.part.type, (), rough))
    d.add("reduce-window", [value, start], Part(value.part.type, dims, rough), f"window={{{text}}}, to_apply={name}",
          regions=[name])


def select_and_scatter(d: Drawer) -> None:
    value = d.pick(lambda p: len(p.dims) > 0 and unrough(p) and (p.type in INTS or p.type in ("f32", "f64")))
    text, dims = window(d, value.part.dims, dilated=False, padded=False)
    text = " ".join(text.split(" ")[:2])
    source, start = d.like(value.part.type, dims), d.like(value.part.type, ())
    part = Part(value.part.type, ())
    chosen = d.region([part, part], lambda inner, given: inner.add("compare", given, Part("pred", ()), "direction=GE"))
    rough = as_rough(part).rough
    added = combiner(d, "add", dataclasses.replace(part, rough=rough))
    # The selected operand keeps its type where the sums are rough, so both are of one type here and there.
    if rough:
        raise Declined
    d.add("select-and-scatter", [value, source, start], Part(value.part.type, value.part.dims),
          f"window={{{text}}}, select={chosen}, scatter={added}", regions=[chosen, added])


def sort(d: Drawer) -> None:
    value = d.pick(lambda p: len(p.dims) > 0 and unrough(p) and (is_int(p) or p.is_float or p.type == "pred"))
    part, along = value.part, d.chance.randrange(len(value.part.dims))
    others = [d.like(d.type(), part.dims, rough=False) for _ in range(d.chance.choice((0, 0, 1, 1, 2)))]
    values = [value, *others]
    direction = d.chance.choice(("LT", "GT", "LT"))
    total = ", type=TOTALORDER" if part.is_float else ""
    scalars = [Part(v.part.type, ()) for v in values for _ in range(2)]
    name = d.region(scalars, lambda inner,
                    given: inner.add("compare", given[:2], Part("pred", ()), f"direction={direction}{total}"))
    parts = tuple(v.part for v in values)
    whole = d.add("sort", values, parts if others else parts[0], f"dimensions={{{along}}}, is_stable=true, to_apply={name}",
                  regions=[name])
    for k in range(len(values) if others else 0):
        d.element(whole, k)


def scatter(d: Drawer) -> None:
    value = d.pick(lambda p: len(p.dims) > 0 and 0 not in p.dims)
    if value.opcode in SLICED:
        raise Declined
    dims, rank = value.part.dims, len(value.part.dims)
    indexed = d.chance.sample(range(rank), d.chance.randint(1, rank))
    sizes = [d.chance.randint(1, n) for n in dims]
    inserted = sorted(k for k in range(rank) if d.chance.random() < 0.5)
    for k in inserted:
        sizes[k] = 1
    windows = [sizes[k] for k in range(rank) if k not in inserted]
    batch = [d.chance.choice((1, 2, 3)) for _ in range(d.chance.randint(0, 2))]
    vector = d.chance.randint(0, len(batch))
    type = d.chance.choice(("s32", "s64", "u32", "s32", "u8"))
    indices = d.numbers_between(-1 if type[0] == "s" else 0, max(dims), (*batch[:vector], len(indexed), *batch[vector:]), type)
    update_rank = len(batch) + len(windows)
    window_dims = sorted(d.chance.sample(range(update_rank), len(windows)))
    left, right = iter(windows), iter(batch)
    updates = d.like(value.part.type, tuple(next(left) if k in window_dims else next(right) for k in range(update_rank)))
    rough = value.part.rough or updates.part.rough
    if d.chance.random() < 0.3:
        part = Part(value.part.type, (), rough)
        name = d.region([part, part], lambda inner, given: inner.add("copy", [given[1]], part))
    elif value.part.type in INTS and d.chance.random() < 0.2:
        part = Part(value.part.type, ())
        name = drawn_scalar(d, [part, part], part)
    else:
        opcode = combining(d, value.part)
        rough = rough or (opcode in SUMS and as_rough(value.part).rough)
        name = combiner(d, opcode, Part(value.part.type, (), rough))
    d.add("scatter", [value, indices, updates], Part(value.part.type, dims, rough),
          f"update_window_dims={braces(window_dims)}, inserted_window_dims={braces(inserted)}, "
          f"scatter_dims_to_operand_dims={braces(indexed)}, index_vector_dim={vector}, to_apply={name}", regions=[name])


# ---- control

def some(d: Drawer, most: int = 3) -> list[Value]:
    found = list({v.name: v for v in (d.pick() for _ in range(d.chance.randint(1, most)))}.values())
    return [v for v in found if v.part.count <= 64] or _declined()


def _declined() -> NoReturn:
    raise Declined


def map_(d: Drawer) -> None:
    value = d.pick(lambda p: len(p.dims) > 0 and p.type in (*INTS, "f32", "f64", "pred"))
    values = [value, *(d.like(d.type(), value.part.dims) for _ in range(d.chance.randint(0, 1)))]
    if len({v.part.type for v in values if v.part.is_float}) > 1:
        raise Declined  # XLA's verifier refuses it, which only some ways into it ask
    part = Part(value.part.type, (), value.part.is_float)
    name = drawn_scalar(d, [Part(v.part.type, (), v.part.rough) for v in values], part)
    dims = braces(range(len(value.part.dims)))
    d.add("map", values, resized(part, value.part.dims), f"dimensions={dims}, to_apply={name}", regions=[name])


def inner_ops(d: Drawer) -> list[tuple[Op, float]]:
    """What stands in computations of a computation: control flow only one level deep in another."""
    return [*plain_ops(), (reduce, 1), *([(while_, 0.5), (conditional, 0.5)] if d.depth < 2 else [])]


def call(d: Drawer) -> None:
    values = some(d)
    wanted = d.type()
    part = Part(wanted, values[0].part.dims)
    part = as_rough(part)

    def draw(inner: Drawer, given: list[Value]) -> Value:
        grow(inner, inner_ops(inner), inner.chance.randint(1, 6))
        return rooted(inner, [part])

    name = d.region([v.part for v in values], draw)
    for _ in range(d.chance.choice((1, 1, 2))):
        d.add("call", values, part, f"to_apply={name}", regions=[name])


def conditional(d: Drawer) -> None:
    values = some(d, 2)
    results = tuple(as_rough(Part(d.type(), d.chance.choice((values[0].part.dims, ())))) for _ in range(d.chance.randint(1, 2)))
    parts = tuple(v.part for v in values)
    by_index = d.chance.random() < 0.4
    count = d.chance.randint(2, 4) if by_index else 2

    def draw(inner: Drawer, given: list[Value]) -> Value:
        grow(inner, inner_ops(inner), inner.chance.randint(0, 4))
        return rooted(inner, results, True)

    names = [d.packed_region(parts, draw) for _ in range(count)]
    packed = d.add("tuple", values, parts)
    if by_index:
        chosen, messages = d.numbers_between(-1, count, ()), f"branch_computations={{{', '.join(names)}}}"
    else:
        chosen, messages = d.like("pred", ()), f"true_computation={names[0]}, false_computation={names[1]}"
    whole = d.add("conditional", [chosen, *[packed] * count], results, messages, regions=names)
    for k in range(len(results)):
        d.element(whole, k)


def while_(d: Drawer) -> None:
    """A loop that counts, up or down, to a number that is known or not, and may end at once; some of it may stop earlier."""
    values = some(d)
    parts = (Part("s32", ()), *(as_rough(v.part) for v in values))
    start, step = d.chance.choice((0, 0, 0, 3, -2)), d.chance.choice((1, 1, 1, 2, -1))
    trips = d.chance.choice((0, 1, 2, 3, 4, 5, 6, 9))
    first = d.numbers_between(start, start, ())
    watched = next((k + 1 for k, v in enumerate(values) if v.part.type in INTS and not v.part.dims), None)
    watched = watched if d.chance.random() < 0.5 else None

    def condition(inner: Drawer, given: list[Value]) -> Value:
        bound = inner.numbers_between(start + trips * step, start + trips * step, ())
        more = inner.add("compare", [given[0], bound], Part("pred", ()), f"direction={'LT' if step > 0 else 'GT'}")
        if watched is None:
            return inner.add("copy", [more], Part("pred", ()))
        other = inner.add("compare", [given[watched], inner.fresh(given[watched].part.type, ())], Part("pred", ()),
                          f"direction={inner.chance.choice(('LT', 'GE', 'NE'))}")
        return inner.add("and", [more, other], Part("pred", ()))

    def body(inner: Drawer, given: list[Value]) -> Value:
        grow(inner, inner_ops(inner), inner.chance.randint(1, 6))
        after = inner.add("add", [given[0], inner.numbers_between(step, step, ())], Part("s32", ()))
        kept = []
        for k, part in enumerate(parts[1:]):
            fitting = inner.known(lambda p, part=part: (p.type, p.dims) == (part.type, part.dims) and (part.rough or not p.rough))
            kept.append(given[k + 1] if inner.chance.random() < 0.2 else fitting[-1])
        return inner.add("tuple", [after, *kept], parts)

    names = [d.packed_region(parts, condition, "condition"), d.packed_region(parts, body)]
    whole = d.add("while", [d.add("tuple", [first, *values], parts)], parts, f"condition={names[0]}, body={names[1]}",
                  regions=names)
    for k in range(len(parts)):
        d.element(whole, k)


def region_ops() -> list[tuple[Op, float]]:
    return [(reduce, 2), (reduce_by_any, 0.4), (arg_reduce, 0.5), (reduce_window, 0.8), (select_and_scatter, 0.4), (sort, 0.8),
            (scatter, 1), (map_, 0.5), (call, 0.6), (conditional, 0.8), (while_, 1)]

