"""Sources of functions of rows that torch has not, or has slower: the largest elements of each and where they stand, scatters of
whole rows, gathers that fill up, and what rows combine to so far.

Each is the text of a function ``part(from, to, places, n, kept)`` for some of the rows, of `n` elements each, which threads share
(`threads.py`).
"""

from __future__ import annotations

from typing import Literal

from ..opcodes.reducer_kinds import ReducerKind
from .loops import TYPES
from .reductions import COLUMNS
from .threads import shared

Order = Literal["float", "unsigned", "plain"]
"""How the stored integers of a type are ordered: as the bits of floats in their total order; as unsigned numbers though their C
type is signed; as their C type is."""


def top_k(name: str, bits: int, order: Order) -> str:
    """The largest `k` elements of each row and where they stand, of equal ones the first. The places are those of the operand and
    of the two results, then `k`, and a mask that turns the order round where it is -1.

    A heap has the best so far, with the worst of them on top; most elements are compared with that one alone, several at a time.
    Elements are numbers with their places behind, the first place the largest, so that no two are equal.
    """
    high = f"(({name})1 << {bits - 1})"
    key = {"float": f"(b ^ ((b >> {bits - 1}) & ({name})~{high}))", "unsigned": f"(({name})(b ^ {high}))", "plain": "b"}[order]
    text = _TOP_K.replace("NAME", name).replace("PAIR", "__int128" if bits > 32 else "s64").replace("KEY", key)
    return "\n".join([TYPES, text, shared(5, 0)])


_TOP_K = """typedef PAIR pair;
static inline NAME key_of(NAME b, NAME turn) { return (NAME)(KEY ^ turn); }
static inline pair made(NAME key, s64 i) { return (pair)key * 4294967296 + (u32)~(u32)i; }
static inline void sink(pair *heap, s64 size, s64 at, pair p) {
    for (;;) {
        s64 below = 2 * at + 1;
        if (below >= size) break;
        below += below + 1 < size && heap[below + 1] < heap[below];
        if (heap[below] >= p) break;
        heap[at] = heap[below];
        at = below;
    }
    heap[at] = p;
}
static void part(s64 from, s64 to, char **places, s64 n, char *kept) {
    const s64 k = (s64)places[3];
    const NAME turn = (NAME)(s64)places[4];
    pair best[k];
    for (s64 r = from; r < to; r++) {
        const NAME *row = (const NAME *)places[0] + r * n;
        for (s64 i = 0; i < k; i++) best[i] = made(key_of(row[i], turn), i);
        for (s64 at = k / 2 - 1; at >= 0; at--) sink(best, k, at, best[at]);
        NAME worst = (NAME)(best[0] >> 32);
        for (s64 i = k; i < n; ) {
            s64 end = i + 16;
            if (end <= n) {
                int any = 0;
                for (s64 j = 0; j < 16; j++) any |= key_of(row[i + j], turn) > worst;
                if (!any) { i = end; continue; }
            }
            else end = n;
            for (; i < end; i++) {
                const NAME key = key_of(row[i], turn);
                if (key > worst) {
                    sink(best, k, 0, made(key, i));
                    worst = (NAME)(best[0] >> 32);
                }
            }
        }
        for (s64 size = k - 1; size > 0; size--) {
            const pair last = best[size];
            best[size] = best[0];
            sink(best, size, 0, last);
        }
        for (s64 i = 0; i < k; i++) {
            const s32 place = (s32)~(u32)best[i];
            ((NAME *)places[1])[r * k + i] = row[place];
            ((s32 *)places[2])[r * k + i] = place;
        }
    }
}"""


_INFINITY = {"f16": 0x7c00, "bf16": 0x7f80}
"""The bits of infinity: what is above without its sign is NaN."""


def first_extreme(name: str, largest: bool) -> str:
    """The first place of the largest or smallest element of each row, as s64: of equal ones, as -0 and 0 are, the first, and of a
    NaN before all. The places are those of the operand and the result. Elements of 16 bits are compared as integers in the
    floats' order, NaN before all.

    An extreme needs no order of computing, so that it is vector code; then the row is gone through for its place.
    """
    return "\n".join([TYPES, _with_keys(_FIRST_EXTREME, name, largest), shared(2, 0)])


def first_extreme_along(name: str, largest: bool) -> str:
    """The same along a dimension that is not the last: ``result[o, i]`` is the first `k` of the extreme ``operand[o, k, i]``. The
    places are those of the operand and the result, then the sizes of `k` and `i`; rows are those of `running`."""
    text = _with_keys(_FIRST_EXTREME_ALONG, name, largest).replace("COLUMNS", str(COLUMNS))
    return "\n".join([TYPES, text, shared(4, 0)])


def _with_keys(text: str, name: str, largest: bool) -> str:
    held, key = name, "return b;"
    if name in _INFINITY:
        held, most = "s16", "(s16)0x7fff"
        key = (f"const s16 size = b & {most}, ordered = size ? b ^ ((b >> 15) & {most}) : 0;\n"
               f"    return size > {_INFINITY[name]} ? {most if largest else f'~{most}'} : ordered;")
    return (_KEY_OF + text).replace("NAME", held).replace("KEY", key).replace("BEFORE", ">" if largest else "<")


_KEY_OF = """static inline NAME key_of(NAME b) {
    KEY
}
"""

_FIRST_EXTREME_ALONG = """static void part(s64 from, s64 to, char **places, s64 n, char *kept) {
    const s64 size = (s64)places[2], inner = (s64)places[3], tiles = (inner + COLUMNS - 1) / COLUMNS;
    for (s64 r = from; r < to; r++) {
        const s64 left = inner - r % tiles * COLUMNS, wide = left < COLUMNS ? left : COLUMNS;
        const NAME *restrict x = (const NAME *)places[0] + r / tiles * size * inner + r % tiles * COLUMNS;
        s64 *restrict y = (s64 *)places[1] + r / tiles * inner + r % tiles * COLUMNS;
        NAME best[COLUMNS];
        s32 at[COLUMNS];
        for (s64 i = 0; i < wide; i++) { best[i] = key_of(x[i]); at[i] = 0; }
        for (s64 k = 1; k < size; k++)
            for (s64 i = 0; i < wide; i++) {
                const NAME key = key_of(x[k * inner + i]), old = best[i];
                const int is_first = (key BEFORE old) | ((key != key) & (old == old));
                best[i] = is_first ? key : old;
                at[i] = is_first ? (s32)k : at[i];
            }
        for (s64 i = 0; i < wide; i++) y[i] = at[i];
    }
}"""

_FIRST_EXTREME = """static s64 first_of(const NAME *row, s64 n) {
    NAME best[64];
    int nan[64] = { 0 };
    s64 i = 0, at = 0;
    for (s64 j = 0; j < 64; j++) best[j] = key_of(row[0]);
    for (; i + 64 <= n; i += 64)
        for (s64 j = 0; j < 64; j++) {
            const NAME key = key_of(row[i + j]);
            best[j] = key BEFORE best[j] ? key : best[j];
            nan[j] |= key != key;
        }
    for (; i < n; i++) {
        const NAME key = key_of(row[i]);
        best[0] = key BEFORE best[0] ? key : best[0];
        nan[0] |= key != key;
    }
    for (s64 wide = 32; wide; wide /= 2) {
        for (s64 j = 0; j < wide; j++) best[j] = best[j + wide] BEFORE best[j] ? best[j + wide] : best[j];
        for (s64 j = 0; j < wide; j++) nan[j] |= nan[j + wide];
    }
    if (nan[0]) {
        while (row[at] == row[at]) at++;
        return at;
    }
    for (; at + 16 <= n; at += 16) {
        int any = 0;
        for (s64 j = 0; j < 16; j++) any |= key_of(row[at + j]) == best[0];
        if (any) break;
    }
    while (key_of(row[at]) != best[0]) at++;
    return at;
}
static void part(s64 from, s64 to, char **places, s64 n, char *kept) {
    for (s64 r = from; r < to; r++) ((s64 *)places[1])[r] = first_of((const NAME *)places[0] + r * n, n);
}"""


_COMBINED = {
    ReducerKind.ADD: "a + b", ReducerKind.SUBTRACT: "a - b", ReducerKind.MULTIPLY: "a * b", ReducerKind.SECOND: "b",
    ReducerKind.MINIMUM: "a < b ? a : b", ReducerKind.MAXIMUM: "a > b ? a : b"}
_COMBINED_FLOATS = _COMBINED | {
    # Zeros are told apart by their signs, and a NaN is the result.
    ReducerKind.MINIMUM: 'a != a || b != b ? __builtin_nanf("") : a < b ? a : b < a ? b : __builtin_signbit(a) ? a : b',
    ReducerKind.MAXIMUM: 'a != a || b != b ? __builtin_nanf("") : a > b ? a : b > a ? b : __builtin_signbit(a) ? b : a'}
_FOUR = {ReducerKind.ADD: "+", ReducerKind.SUBTRACT: "-"}


def combine_rows(name: str, index: str, combiner: ReducerKind) -> str:
    """Combines each row of `updates` with the row of an array that its index says, in order; with an index out of bounds it does
    nothing. The places are those of the array, the indices and the updates, then how many updates there are, the elements of a
    row, the rows of the array, the number of parts that threads take, and 0 where all updates are the first row, else 1.

    A part has the array's rows from one to another, such that of a sample of updates each part has equally many.
    """
    four = _FOUR_ROWS.replace("OPERATOR", _FOUR[combiner]) if combiner in _FOUR else ""
    text = _COMBINE_ROWS.replace("FOUR", four).replace("NAME", name).replace("INDEX", index)
    return "\n".join([TYPES, combined(name, combiner), text, shared(8, 0)])


def combined(name: str, combiner: ReducerKind) -> str:
    """The function ``combined(a, b)`` of two elements of a type."""
    how = (_COMBINED_FLOATS if name.startswith("f") else _COMBINED)[combiner]
    return f"static inline {name} combined({name} a, {name} b) {{ return {how}; }}"


_FOUR_ROWS = """
            if (i + 3 < count && rows[i] == rows[i + 1] && rows[i] == rows[i + 2] && rows[i] == rows[i + 3]) { /* sorted ones */
                for (s64 c = 0; c < n; c++) sums[c] = sums[c] OPERATOR update[c] OPERATOR update[each + c]
                                                      OPERATOR update[2 * each + c] OPERATOR update[3 * each + c];
                i += 3;
                continue;
            }"""

_COMBINE_ROWS = """static s64 first_of(s64 k, s64 parts, const INDEX *rows, s64 count, s64 size) {
    s64 sample[64], m = count < 64 ? count : 64;
    if (k == 0) return 0;
    if (k == parts) return size;
    for (s64 i = 0; i < m; i++) {
        const s64 row = rows[i * (count / m)];
        s64 at = i;
        for (; at > 0 && sample[at - 1] > row; at--) sample[at] = sample[at - 1];
        sample[at] = row;
    }
    const s64 found = sample[k * m / parts];
    return found < 0 ? 0 : found > size ? size : found;
}
static void part(s64 from, s64 to, char **places, s64 work, char *kept) {
    const INDEX *rows = (const INDEX *)places[1];
    const s64 count = (s64)places[3], n = (s64)places[4], size = (s64)places[5], parts = (s64)places[6];
    const s64 each = n * (s64)places[7];
    for (s64 k = from; k < to; k++) {
        const s64 first = first_of(k, parts, rows, count, size);
        const u64 span = first_of(k + 1, parts, rows, count, size) - first;
        NAME *own = (NAME *)places[0] + first * n;
        if (n == 1) {
            const NAME *updates = (const NAME *)places[2];
            for (s64 i = 0; i < count; i++) {
                const u64 row = (u64)(rows[i] - first);
                if (row < span) own[row] = combined(own[row], updates[i * each]);
            }
            continue;
        }
        for (s64 i = 0; i < count; i++) {
            const u64 ahead = i + 8 < count ? (u64)(rows[i + 8] - first) : span;
            if (ahead < span) __builtin_prefetch(own + ahead * n, 1);
            const u64 row = (u64)(rows[i] - first);
            if (row >= span) continue;
            NAME *restrict sums = own + row * n;
            const NAME *restrict update = (const NAME *)places[2] + i * each;FOUR
            for (s64 c = 0; c < n; c++) sums[c] = combined(sums[c], update[c]);
        }
    }
}"""


def take_or_fill(name: str, index: str, wraps: bool) -> str:
    """``result[b, p, i] = operand[b, indices[b, p, i], i]``, or a number where the index is out of bounds. Negative indices count
    from the end if it `wraps`. The places are those of the operand, the indices, the result and the number, then the operand's
    size where it is indexed, the number of points p, and how far apart the indices of neighbours are along b, p and i."""
    place = "k < 0 ? k + size : k" if wraps else "k"
    text = _TAKE_OR_FILL.replace("NAME", name).replace("INDEX", index).replace("COUNTED", place)
    return "\n".join([TYPES, text, shared(9, 0)])


_TAKE_OR_FILL = """static inline u64 counted(s64 k, s64 size) { return (u64)(COUNTED); }
static void part(s64 from, s64 to, char **places, s64 n, char *kept) {
    const NAME fill = *(const NAME *)places[3];
    const u64 size = (u64)places[4];
    const s64 points = (s64)places[5], along_b = (s64)places[6], along_p = (s64)places[7], along_i = (s64)places[8];
    for (s64 r = from, b = from / points; r < to; b++) {
        const s64 first = b * points, end = first + points < to ? first + points : to;
        const NAME *own = (const NAME *)places[0] + b * (s64)size * n;
        const INDEX *at = (const INDEX *)places[1] + b * along_b;
        if (n == 1)
            for (; r < end; r++) {
                const u64 k = counted(at[(r - first) * along_p], size);
                ((NAME *)places[2])[r] = k < size ? own[k] : fill;
            }
        for (; r < end; r++) {
            NAME *restrict result = (NAME *)places[2] + r * n;
            const INDEX *place = at + (r - first) * along_p;
            const u64 k = counted(place[0], size);
            if (along_i)
                for (s64 i = 0; i < n; i++) {
                    const u64 each = counted(place[i], size);
                    result[i] = each < size ? own[each * n + i] : fill;
                }
            else if (k < size) __builtin_memcpy(result, own + k * n, n * sizeof(NAME));
            else for (s64 i = 0; i < n; i++) result[i] = fill;
        }
    }
}"""


_RUNNING = {ReducerKind.ADD: ("0 + b", "a + b"), ReducerKind.MULTIPLY: ("b", "a * b"),
            ReducerKind.MINIMUM: ("b", "a != a || a < b ? a : b"), ReducerKind.MAXIMUM: ("b", "a != a || a > b ? a : b")}
"""What there is after the first row, and after one more: NaN stays, and of equal ones the last does."""


def running(name: str, total: str, combiner: ReducerKind) -> str:
    """``result[o, k, i]`` combines ``operand[o, 0, i]`` to ``operand[o, k, i]``, held as the type `total`. The places are those
    of the operand and the result, then the sizes of `k` and `i`; the rows of the function are those of `o`, each for up to
    `COLUMNS` of `i`."""
    first, more = _RUNNING[combiner]
    text = _RUN_ALONG.replace("NAME", name).replace("TOTAL", total).replace("FIRST", first).replace("MORE", more)
    return "\n".join([TYPES, text.replace("COLUMNS", str(COLUMNS)), shared(4, 0)])


_RUN_ALONG = """static inline TOTAL begun(TOTAL b) { return FIRST; }
static inline TOTAL combined(TOTAL a, TOTAL b) { return MORE; }
static void part(s64 from, s64 to, char **places, s64 n, char *kept) {
    const s64 size = (s64)places[2], inner = (s64)places[3], tiles = (inner + COLUMNS - 1) / COLUMNS;
    for (s64 r = from; r < to; r++) {
        const s64 first = r / tiles * size * inner + r % tiles * COLUMNS, left = inner - r % tiles * COLUMNS;
        const s64 wide = left < COLUMNS ? left : COLUMNS;
        const NAME *restrict x = (const NAME *)places[0] + first;
        NAME *restrict y = (NAME *)places[1] + first;
        TOTAL totals[COLUMNS];
        for (s64 i = 0; i < wide; i++) { totals[i] = begun(x[i]); y[i] = (NAME)totals[i]; }
        for (s64 k = 1; k < size; k++)
            for (s64 i = 0; i < wide; i++) {
                totals[i] = combined(totals[i], x[k * inner + i]);
                y[k * inner + i] = (NAME)totals[i];
            }
    }
}"""
