"""The ops of drawn programs without regions: elementwise, movement, indexing, products, random bits, dynamic sizes."""

from __future__ import annotations

from collections.abc import Sequence

from fuzz.drawing import (
    FLOATS,
    INTS,
    NARROW_FLOATS,
    Declined,
    Drawer,
    Op,
    as_rough,
    combiner,
    converts,
    neutral,
    unrough,
)
from fuzz.programs import Part, Value

NIBBLES = ("s4", "u4")
"""XLA's CPU code does not wrap their sums around before it converts them."""
ANY_INT = INTS + NIBBLES
ANY_FLOAT = FLOATS + NARROW_FLOATS
DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")


def is_int(part: Part) -> bool:
    return part.type in ANY_INT


def is_float(part: Part) -> bool:
    return part.is_float


# ---- elementwise

EXACT_UNARY = {
    "int": ("abs", "negate", "sign", "not"), "float": ("abs", "negate", "copy"), "pred": ("not",),
    "complex": ("negate", "copy"),
}
ROUGH_UNARY = ("exponential", "exponential-minus-one", "log", "log-plus-one", "tanh", "logistic", "sqrt", "rsqrt", "cbrt", "sine",
               "cosine", "tan", "erf")
COUNTED = ("s32", "u32", "s64", "u64", "u8", "u16")
"""XLA counts bits of s4 and u4, and of constants that it folds, as if they were of wider types."""
STEPS = ("ceil", "floor", "round-nearest-afz", "round-nearest-even", "sign")
"""Floats for which a little more or less is a lot."""


def unary(d: Drawer) -> None:
    value = d.pick(lambda p: p.type not in NIBBLES)
    part = value.part
    kind = "pred" if part.type == "pred" else "int" if is_int(part) else "complex" if part.is_complex else "float"
    if kind == "complex" and d.chance.random() < 0.5:
        if d.chance.random() < 0.5:
            inner = "f32" if part.type == "c64" else "f64"
            d.add(d.chance.choice(("real", "imag")), [value], Part(inner, part.dims, part.rough))
        else:
            d.add(d.chance.choice(("exponential", "tanh", "sqrt", "sine")), [value], as_rough(part))
    elif kind == "float" and d.chance.random() < 0.5:
        d.add(d.chance.choice(ROUGH_UNARY), [value], as_rough(part))
    elif kind == "float" and not part.rough and d.chance.random() < 0.5:
        opcode = d.chance.choice((*STEPS, "is-finite"))
        d.add(opcode, [value], Part("pred", part.dims) if opcode == "is-finite" else part)
    else:
        opcodes = EXACT_UNARY[kind]
        if kind == "int" and value.opcode not in ("parameter", "add", "subtract", "xor", "not"):
            opcodes = ("not", "negate")  # XLA takes the sign of a square to be known, also where it has overflowed
        if part.type.startswith("u"):
            opcodes = ("not",)
        if part.type in COUNTED and not d.folds(value):
            opcodes = (*opcodes, "popcnt", "count-leading-zeros")
        d.add(d.chance.choice(opcodes), [value], part)


INT_BINARY = ("add", "subtract", "multiply", "divide", "remainder", "minimum", "maximum", "and", "or", "xor", "shift-left",
              "shift-right-logical", "shift-right-arithmetic", "add", "subtract", "multiply")


def binary(d: Drawer) -> None:
    first = d.pick()
    part = first.part
    second = d.like(part.type, part.dims)
    operands = [first, second] if d.chance.random() < 0.5 else [second, first]
    if part.type == "pred":
        d.add(d.chance.choice(("and", "or", "xor", "minimum", "maximum")), operands, part)
    elif part.type in NIBBLES:
        d.add(d.chance.choice(("minimum", "maximum", "and", "or", "xor")), operands, part)
    elif is_int(part):
        opcode = "add" if any(o.opcode == "clamp" for o in operands) else d.chance.choice(INT_BINARY)
        if opcode in ("divide", "remainder") and d.folds(operands[1]):
            operands[1] = d.add("or", [operands[1], d.like_constant(2, part)], part)  # XLA dies of folding a division by 0
        d.add(opcode, operands, part)
    elif part.is_complex:
        d.add(d.chance.choice(("add", "subtract", "multiply", "divide")), operands, as_rough(part))
    elif d.chance.random() < 0.3:
        rough = any(o.part.rough for o in operands)
        if any(o.opcode == "clamp" for o in operands):
            raise Declined  # XLA joins the two as if the clamp's low end were never above its high one
        d.add(d.chance.choice(("minimum", "maximum")), operands, Part(part.type, part.dims, rough))
    elif d.chance.random() < 0.1 and not any(o.part.rough for o in operands):
        opcode = d.chance.choice(("remainder", "atan2"))  # which zero it is decides what atan2 gives
        d.add(opcode, operands, part if opcode == "remainder" else as_rough(part))
    else:
        d.add(d.chance.choice(("add", "subtract", "multiply", "add", "subtract", "multiply", "divide")), operands,
              as_rough(part))


def power(d: Drawer) -> None:
    """Of integers any, of floats such as have a result."""
    base = d.pick(lambda p: p.type in INTS or p.is_float)
    part = base.part
    if is_int(part):
        few = d.add("and", [d.like(part.type, part.dims), d.like_constant(7, part)], part)  # XLA looks at few bits of exponents
        d.add("power", [base, few], part)
    else:
        d.add("power", [d.add("abs", [base], part), d.like(part.type, part.dims)], as_rough(part))


def complex_of(d: Drawer) -> None:
    real = d.pick(lambda p: p.type in ("f32", "f64"))
    imag = d.like(real.part.type, real.part.dims)
    d.add("complex", [real, imag], Part("c64" if real.part.type == "f32" else "c128", real.part.dims,
                                        real.part.rough or imag.part.rough))


def compare(d: Drawer) -> None:
    first = d.pick(unrough)
    part = first.part
    second = d.like(part.type, part.dims, rough=False)
    attributes = f"direction={d.chance.choice(DIRECTIONS[:2] if part.is_complex else DIRECTIONS)}"
    if part.is_float and part.type in FLOATS and d.chance.random() < 0.2:
        attributes += ", type=TOTALORDER"
    d.add("compare", [first, second], Part("pred", part.dims), attributes)


def select(d: Drawer) -> None:
    on_true = d.pick()
    part = on_true.part
    on_false = d.like(part.type, part.dims)
    chosen = d.like("pred", part.dims if d.chance.random() < 0.8 else ())
    d.add("select", [chosen, on_true, on_false], Part(part.type, part.dims, part.rough or on_false.part.rough))


def clamp(d: Drawer) -> None:
    value = d.pick(lambda p: is_int(p) or p.is_float)
    part = value.part
    low, high = (d.like(part.type, part.dims if d.chance.random() < 0.5 else ()) for _ in range(2))
    d.add("clamp", [low, value, high], Part(part.type, part.dims, any(v.part.rough for v in (low, value, high))))


def convert(d: Drawer) -> None:
    to = d.type()
    value = d.pick(lambda p: converts(p, to))
    d.converted(value, to)


WIDTHS = {"pred": 0, "s4": 4, "u4": 4, "f8e5m2": 8, "f8e4m3fn": 8, "s8": 8, "u8": 8, "s16": 16, "u16": 16, "bf16": 16,
          "f16": 16, "s32": 32,
          "u32": 32, "f32": 32, "s64": 64, "u64": 64, "f64": 64}


def bitcast_convert(d: Drawer) -> None:
    """Between integers, and from floats: what bits there are, floats would lose that are flushed to zero."""
    value = d.pick(lambda p: unrough(p) and WIDTHS.get(p.type, 0) >= 8)
    part, width = value.part, WIDTHS[value.part.type]
    if part.is_float and d.special:
        raise Declined
    to = d.chance.choice([t for t in INTS if t in d.types or WIDTHS[t] == width])
    ratio = WIDTHS[to] / width
    if ratio == 1:
        dims = part.dims
    elif ratio < 1:
        dims = (*part.dims, int(1 / ratio))
    elif part.dims and part.dims[-1] == ratio:
        dims = part.dims[:-1]
    else:
        raise Declined
    d.add("bitcast-convert", [value], Part(to, dims))


def reduce_precision(d: Drawer) -> None:
    value = d.pick(lambda p: p.type in FLOATS and unrough(p))
    d.add("reduce-precision", [value], value.part,
          f"exponent_bits={d.chance.randint(4, 8)}, mantissa_bits={d.chance.randint(1, 10)}")


# ---- movement

def braces(numbers: Sequence[int]) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"


def resized(part: Part, dims: Sequence[int], type: str = "") -> Part:
    return Part(type or part.type, tuple(dims), part.rough)


def broadcast(d: Drawer) -> None:
    value = d.pick(lambda p: len(p.dims) < 4)
    rank = d.chance.randint(len(value.part.dims), 4)
    kept = sorted(d.chance.sample(range(rank), len(value.part.dims)))
    dims = [d.chance.choice((1, 2, 3)) for _ in range(rank)]
    for at, size in zip(kept, value.part.dims, strict=True):
        dims[at] = size
    d.add("broadcast", [value], resized(value.part, dims), f"dimensions={braces(kept)}")


def reshape(d: Drawer) -> None:
    value = d.pick()
    left, dims = value.part.count, []
    if left == 0:
        raise Declined
    while left > 1 and len(dims) < 3:
        factor = d.chance.choice([f for f in range(1, left + 1) if left % f == 0])
        dims.append(factor)
        left //= factor
    d.add("reshape", [value], resized(value.part, [*dims, left] if left > 1 or (not dims and value.part.dims) else dims))


def transpose(d: Drawer) -> None:
    value = d.pick(lambda p: len(p.dims) > 1)
    order = d.chance.sample(range(len(value.part.dims)), len(value.part.dims))
    d.add("transpose", [value], resized(value.part, [value.part.dims[k] for k in order]), f"dimensions={braces(order)}")


def reverse(d: Drawer) -> None:
    value = d.pick(lambda p: len(p.dims) > 0)
    rank = len(value.part.dims)
    d.add("reverse", [value], value.part, f"dimensions={braces(sorted(d.chance.sample(range(rank), d.chance.randint(1, rank))))}")


def slice_of(d: Drawer) -> None:
    value = d.pick(lambda p: len(p.dims) > 0 and 0 not in p.dims)
    texts, dims = [], []
    for size in value.part.dims:
        start = d.chance.randrange(size)
        limit, stride = d.chance.randint(start + 1, size), d.chance.choice((1, 1, 1, 2, 3))
        texts.append(f"[{start}:{limit}:{stride}]" if stride > 1 else f"[{start}:{limit}]")
        dims.append(-(-(limit - start) // stride))
    d.add("slice", [value], resized(value.part, dims), f"slice={{{', '.join(texts)}}}")


def pad(d: Drawer) -> None:
    value = d.pick(lambda p: len(p.dims) > 0)
    filling = d.like(value.part.type, ())
    texts, dims = [], []
    for size in value.part.dims:
        low, high = d.chance.choice((0, 0, 1, 2, -1)), d.chance.choice((0, 0, 1, 3, -1))
        inner = d.chance.choice((0, 0, 0, 1, 2))
        texts.append(f"{low}_{high}_{inner}" if inner else f"{low}_{high}")
        dims.append(low + high + size + max(0, size - 1) * inner)
    if min(dims) < 1:
        raise Declined
    d.add("pad", [value, filling], Part(value.part.type, tuple(dims), value.part.rough or filling.part.rough),
          f"padding={'x'.join(texts)}")


def concatenate(d: Drawer) -> None:
    first = d.pick(lambda p: len(p.dims) > 0)
    part, along = first.part, d.chance.randrange(len(first.part.dims))
    values = [first]
    for _ in range(d.chance.randint(1, 3)):
        dims = tuple(n if k != along else d.chance.choice((n, 1, 2)) for k, n in enumerate(part.dims))
        values.append(d.like(part.type, dims))
    size = sum(v.part.dims[along] for v in values)
    dims = tuple(size if k == along else n for k, n in enumerate(part.dims))
    d.add("concatenate", values, Part(part.type, dims, any(v.part.rough for v in values)), f"dimensions={{{along}}}")


# ---- indexing

def index(d: Drawer, type: str, size: int) -> Value:
    """A start, mostly within. XLA takes those that it folds for signed numbers."""
    if d.chance.random() < 0.3:
        found = [v for v in d.known(lambda p: p.type == type and not p.dims) if type[0] == "s" or not d.folds(v)]
        if found:
            return d.chance.choice(found)
    return d.numbers_between(-1 if type[0] == "s" else 0, size + 1, (), type)


SLICED = ("gather", "dynamic-slice", "slice", "reshape", "transpose")
"""XLA adds the starts of a slice of such, which may be slices, and only then takes what is outside to the edge."""


def dynamic_slice(d: Drawer) -> None:
    value = d.pick(lambda p: len(p.dims) > 0 and 0 not in p.dims)
    if value.opcode in SLICED:
        raise Declined
    type = d.chance.choice(("s32", "s64", "u32", "s32", "u8", "s8"))
    sizes = [d.chance.randint(1, n) for n in value.part.dims]
    starts = [index(d, type, n) for n in value.part.dims]
    d.add("dynamic-slice", [value, *starts], resized(value.part, sizes), f"dynamic_slice_sizes={braces(sizes)}")


def dynamic_update_slice(d: Drawer) -> None:
    value = d.pick(lambda p: len(p.dims) > 0 and 0 not in p.dims)
    type = d.chance.choice(("s32", "s64", "u32", "s32", "u8", "s8"))
    update = d.like(value.part.type, tuple(d.chance.randint(1, n) for n in value.part.dims))
    starts = [index(d, type, n) for n in value.part.dims]
    d.add("dynamic-update-slice", [value, update, *starts],
          Part(value.part.type, value.part.dims, value.part.rough or update.part.rough))


def gather(d: Drawer) -> None:
    value = d.pick(lambda p: len(p.dims) > 0 and 0 not in p.dims)
    if value.opcode in SLICED:
        raise Declined
    dims, rank = value.part.dims, len(value.part.dims)
    indexed = d.chance.sample(range(rank), d.chance.randint(1, rank))
    sizes = [d.chance.randint(1, n) for n in dims]
    batch = [d.chance.choice((1, 2, 3)) for _ in range(d.chance.randint(0, 2))]
    batching, batching_in, places = [], [], len(batch)
    spare = [k for k in range(rank) if k not in indexed]
    if spare and d.chance.random() < 0.25:
        batching = [d.chance.choice(spare)]
        at = d.chance.randint(0, len(batch))
        batch.insert(at, dims[batching[0]])
        sizes[batching[0]] = 1
        places += 1
    collapsed = sorted(k for k in range(rank) if sizes[k] == 1 and k not in batching and d.chance.random() < 0.7)
    offsets = [sizes[k] for k in range(rank) if k not in collapsed and k not in batching]
    vector = d.chance.randint(0, places)
    indices_dims = [*batch[:vector], len(indexed), *batch[vector:]]
    if batching:
        batching_in = [at + (at >= vector)]
    type = d.chance.choice(("s32", "s64", "u32", "s32", "u8"))
    indices = d.numbers_between(-1 if type[0] == "s" else 0, max(dims), tuple(indices_dims), type)
    result_rank = places + len(offsets)
    offset_dims = sorted(d.chance.sample(range(result_rank), len(offsets)))
    left, right = iter(offsets), iter(batch)
    result = [next(left) if k in offset_dims else next(right) for k in range(result_rank)]
    extra = f", operand_batching_dims={braces(batching)}, start_indices_batching_dims={braces(batching_in)}" if batching else ""
    d.add("gather", [value, indices], resized(value.part, result),
          f"offset_dims={braces(offset_dims)}, collapsed_slice_dims={braces(collapsed)}, start_index_map={braces(indexed)}, "
          f"index_vector_dim={vector}, slice_sizes={braces(sizes)}{extra}")


# ---- products

DOT_TYPES = ("s32", "f32", "f64", "s8", "u8", "s64", "u32", "bf16", "f16", "c64", "c128", "s16", "u64", "u16")


def dot(d: Drawer) -> None:
    left = d.pick(lambda p: p.type in DOT_TYPES and 0 not in p.dims)
    part, rank = left.part, len(left.part.dims)
    order = d.chance.sample(range(rank), rank)
    contracted = order[:d.chance.randint(0, min(2, rank))]
    batch = order[len(contracted):][:d.chance.choice((0, 0, 1))]
    free = [k for k in range(rank) if k not in contracted and k not in batch]
    roles = [("b", k) for k in batch] + [("c", k) for k in contracted]
    roles += [("f", d.chance.choice((1, 2, 3))) for _ in range(d.chance.randint(0, 2))]
    d.chance.shuffle(roles)
    dims = tuple(part.dims[k] if role != "f" else k for role, k in roles)
    right = d.like(part.type, dims)
    places = {(role, k): at for at, (role, k) in enumerate(roles) if role != "f"}
    result = [part.dims[k] for k in batch] + [part.dims[k] for k in free] + [n for role, n in roles if role == "f"]
    attributes = [f"lhs_batch_dims={braces(batch)}, rhs_batch_dims={braces([places['b', k] for k in batch])}"] if batch else []
    theirs = [places["c", k] for k in contracted]
    attributes += [f"lhs_contracting_dims={braces(contracted)}, rhs_contracting_dims={braces(theirs)}"]
    rough = as_rough(part).rough
    d.add("dot", [left, right], Part(part.type, tuple(result), rough), ", ".join(attributes))


def convolution(d: Drawer) -> None:
    type = d.type(lambda t: t in ("f32", "f64", "s32", "bf16", "f16", "s8", "u8", "c64", "s64"))
    spatial = d.chance.choice((1, 1, 2))
    groups = d.chance.choice((1, 1, 2))
    in_batches = groups > 1 and d.chance.random() < 0.4
    batch, features, outputs = (d.chance.choice((1, 2)) for _ in range(3))
    if groups > 1:
        batch, features, outputs = (batch * 2, features, outputs * 2) if in_batches else (batch, features * 2, outputs * 2)
    kernel_features = features if in_batches else features // groups
    image, kernel, window, result = [], [], [[], [], [], [], [], []], []
    for _ in range(spatial):
        size, width = d.chance.randint(1, 5), d.chance.randint(1, 3)
        stride, low, high = d.chance.choice((1, 1, 2)), d.chance.choice((0, 1, 2, -1)), d.chance.choice((0, 1, 2))
        base, dilation = d.chance.choice((1, 1, 2)), d.chance.choice((1, 1, 2))
        padded, reach = (size - 1) * base + 1 + low + high, (width - 1) * dilation + 1
        if padded < reach:
            raise Declined
        image.append(size)
        kernel.append(width)
        result.append((padded - reach) // stride + 1)
        for row, text in zip(window, (width, stride, f"{low}_{high}", base, dilation, d.chance.choice((0, 0, 1))), strict=True):
            row.append(str(text))
    labels = [d.chance.sample(names, spatial + 2) for names in ([*"bf", *_D(spatial)], [*"io", *_D(spatial)],
                                                                [*"bf", *_D(spatial)])]
    sizes = [{"b": batch, "f": features}, {"i": kernel_features, "o": outputs},
             {"b": batch // (groups if in_batches else 1), "f": outputs}]
    for given, of in zip((image, kernel, result), sizes, strict=True):
        of.update({str(k): n for k, n in enumerate(given)})
    left, right, made = (tuple(of[c] for c in label) for of, label in zip(sizes, labels, strict=True))
    keys = ("size", "stride", "pad", "lhs_dilate", "rhs_dilate", "rhs_reversal")
    text = " ".join(f"{key}={'x'.join(row)}" for key, row in zip(keys, window, strict=True))
    names = ["".join(label) for label in labels]
    counts = f", {'batch' if in_batches else 'feature'}_group_count={groups}" if groups > 1 else ""
    part = Part(type, made)
    image_of, kernel_of = d.like(type, left), d.like(type, right)
    if type in INTS and d.folds(image_of):
        raise Declined  # XLA folds products of integers by way of floats
    d.add("convolution", [image_of, kernel_of], as_rough(part),
          f"window={{{text}}}, dim_labels={names[0]}_{names[1]}->{names[2]}{counts}")


def _D(spatial: int) -> list[str]:
    return [str(k) for k in range(spatial)]


def fft(d: Drawer) -> None:
    value = d.pick(lambda p: p.type in ("c64", "f32", "c128", "f64") and len(p.dims) > 0 and 0 not in p.dims)
    part, length = value.part, value.part.dims[-1]
    if part.is_complex:
        d.add("fft", [value], as_rough(part), f"fft_type={d.chance.choice(('FFT', 'IFFT'))}, fft_length={{{length}}}")
    else:
        dims = (*part.dims[:-1], length // 2 + 1)
        d.add("fft", [value], Part("c64" if part.type == "f32" else "c128", dims, True),
              f"fft_type=RFFT, fft_length={{{length}}}")


# ---- others

def rng_bit_generator(d: Drawer) -> None:
    algorithm = d.chance.choice(("rng_three_fry", "rng_philox"))
    state = Part("u64", (2,)) if algorithm == "rng_three_fry" else Part("u64", (d.chance.choice((2, 3)),))
    given = d.like("u64", state.dims)
    made = Part(d.chance.choice(("u32", "u64", "u8", "u16")), d.dims())
    whole = d.add("rng-bit-generator", [given], (state, made), f"algorithm={algorithm}")
    for k in range(2):
        d.element(whole, k)


def barrier(d: Drawer) -> None:
    values = [d.pick() for _ in range(2)]
    parts = tuple(v.part for v in values)
    whole = d.add("opt-barrier", [d.add("tuple", values, parts)], parts)
    for k in range(2):
        d.element(whole, k)


def dynamic_size(d: Drawer) -> None:
    """A dimension gets a size; some ops; and a reduction, or the size, of what is then there."""
    value = d.pick(lambda p: len(p.dims) > 0 and 0 not in p.dims and p.type in ("f32", "s32", "s64", "f64", "u8", "u32", "f16"))
    part = value.part
    along = d.chance.randrange(len(part.dims))
    size = d.numbers_between(0, part.dims[along], ())
    flags = tuple(k == along for k in range(len(part.dims)))
    now = d.add("set-dimension-size", [value, size], Part(part.type, part.dims, part.rough, flags), f"dimensions={{{along}}}")
    for _ in range(d.chance.randint(0, 3)):
        kind, p = d.chance.randrange(4), now.part
        if kind == 0:
            now = d.add("negate", [now], p)
        elif kind == 1:
            now = d.add("multiply", [now, now], Part(p.type, p.dims, as_rough(p).rough, p.dynamic))
        elif kind == 2 and len(p.dims) > 1:
            order = d.chance.sample(range(len(p.dims)), len(p.dims))
            now = d.add("transpose", [now],
                        Part(p.type, tuple(p.dims[k] for k in order), p.rough, tuple(p.dynamic[k] for k in order)),
                        f"dimensions={braces(order)}")
        else:
            scalar = d.like(p.type, ())
            spread = d.add("broadcast", [scalar], Part(p.type, p.dims, scalar.part.rough), "dimensions={}")
            at = p.dynamic.index(True)
            cut = d.add("set-dimension-size", [spread, size], Part(p.type, p.dims, scalar.part.rough, p.dynamic),
                        f"dimensions={{{at}}}")
            now = d.add(d.chance.choice(("maximum", "minimum")), [now, cut],
                        Part(p.type, p.dims, p.rough or scalar.part.rough, p.dynamic))
    at = now.part.dynamic.index(True)
    if d.chance.random() < 0.3:
        d.add("get-dimension-size", [now], Part("s32", ()), f"dimensions={{{at}}}")
    opcode = d.chance.choice(("add", "maximum", "minimum"))
    rough = as_rough(now.part).rough if opcode == "add" else now.part.rough
    start = neutral(d, opcode, part)  # XLA drops another one where the dimension has one element
    name = combiner(d, opcode, Part(part.type, (), rough))
    d.add("reduce", [now, start], Part(part.type, tuple(n for k, n in enumerate(now.part.dims) if k != at), rough),
          f"dimensions={{{at}}}, to_apply={name}", regions=[name])


def scan_constants(d: Drawer) -> None:
    """A value of a type that the program has none of yet."""
    d.fresh(d.type(), d.dims())


def plain_ops() -> list[tuple[Op, float]]:
    """What may stand in every computation that is not of scalars alone."""
    return [(unary, 5), (binary, 9), (power, 0.5), (complex_of, 0.4), (compare, 2), (select, 2), (clamp, 1), (convert, 2.5),
            (bitcast_convert, 0.6), (reduce_precision, 0.4), (broadcast, 2), (reshape, 1.5), (transpose, 1.5), (reverse, 1),
            (slice_of, 1.5), (pad, 1.3), (concatenate, 1.3), (dynamic_slice, 1), (dynamic_update_slice, 1), (gather, 1),
            (dot, 1.2), (scan_constants, 0.5)]


def scalar_ops() -> list[tuple[Op, float]]:
    return [(unary, 3), (binary, 9), (power, 0.2), (compare, 2), (select, 2), (clamp, 1), (convert, 2), (scan_constants, 0.5)]
