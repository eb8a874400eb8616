"""Sources of gathers and scatters whose windows begin anywhere: one pass over points in their order, of any number of dimensions.

Specification: hlo/SPEC.md. A gather moves its windows to where they are inside, a scatter leaves those out that are not. Each is
the text of a function ``part(from, to, places, n, kept)`` for some of the points (`threads.py`); how points and windows lie in
memory is in a table of numbers (`kernels/points.py`):

- how many dimensions points have, how many of the array are indexed, how many offsets of windows there are
- elements of a row of a window, and how far apart they are in the array and beside it (a gather's result, a scatter's updates)
- how far apart an index's numbers are; how far apart points are beside
- for each dimension of points: its size, and how far apart neighbours are in the indices, in the array, and beside (a scatter)
- for each indexed dimension: the last place where a window is inside, and how far apart its places are
- for each row of a window: where it begins in the array, and beside
"""

from __future__ import annotations

from ..opcodes.reducer_kinds import ReducerKind
from .loops import TYPES
from .rows import combined
from .threads import shared

PLACES = 4
"""The function's own places: the array, the indices, what is beside, and the table."""


def gather_points(name: str, index: str) -> str:
    """Copies the window of each point to where the result has it."""
    return _text(name, index, _GATHER)


def scatter_points(name: str, index: str, combiner: ReducerKind) -> str:
    """Combines each element of the window of each point with its update, in their order."""
    return _text(name, index, _SCATTER.replace("COMBINED", combined(name, combiner)))


def _text(name: str, index: str, how: str) -> str:
    text = _POINTS.replace("HOW", how).replace("NAME", name).replace("INDEX", index)
    return "\n".join([TYPES, text, shared(PLACES, 0)])


_POINTS = """HOW
static void part(s64 from, s64 to, char **places, s64 each, char *kept) {
    const s64 *t = (const s64 *)places[3];
    const s64 rank = t[0], indexed = t[1], offsets = t[2], n = t[3], along = t[4], beside = t[5], apart = t[6];
    const s64 *axes = t + 7, *dims = axes + 4 * rank, *rows = dims + 2 * indexed;
    s64 at[rank + 1], place = 0, start = 0, other = 0, rest = from;
    for (s64 d = rank - 1; d >= 0; d--) {
        at[d] = rest % axes[4 * d];
        rest /= axes[4 * d];
        place += at[d] * axes[4 * d + 1];
        start += at[d] * axes[4 * d + 2];
        other += at[d] * axes[4 * d + 3];
    }
    for (s64 p = from; p < to; p++) {
        const INDEX *vector = (const INDEX *)places[1] + place;
        s64 first = start, inside = 1;
        for (s64 k = 0; k < indexed; k++) {
            const s64 limit = dims[2 * k], index = vector[k * apart];
            inside &= index >= 0 && index <= limit;
            first += (index < 0 ? 0 : index > limit ? limit : index) * dims[2 * k + 1];
        }
        window((NAME *)places[0] + first, (NAME *)places[2] + other, inside, offsets, rows, n, along, beside);
        for (s64 d = rank - 1; d >= 0; d--) {
            const s64 *axis = axes + 4 * d;
            place += axis[1];
            start += axis[2];
            other += axis[3];
            if (++at[d] < axis[0]) break;
            at[d] = 0;
            place -= axis[0] * axis[1];
            start -= axis[0] * axis[2];
            other -= axis[0] * axis[3];
        }
    }
}"""

_WINDOW = """static inline void window(NAME *restrict array, NAME *restrict other, s64 inside, s64 offsets,
                          const s64 *rows, s64 n, s64 along, s64 beside) {"""

_GATHER = _WINDOW + """
    if (offsets == 1 && n == 1) {
        *other = *array;
        return;
    }
    for (s64 w = 0; w < offsets; w++) {
        const NAME *from = array + rows[2 * w];
        NAME *to = other + rows[2 * w + 1];
        if (along == 1 && beside == 1) __builtin_memcpy(to, from, n * sizeof(NAME));
        else for (s64 i = 0; i < n; i++) to[i * beside] = from[i * along];
    }
}"""

_SCATTER = """COMBINED
""" + _WINDOW + """
    if (!inside) return;
    if (offsets == 1 && n == 1) {
        *array = combined(*array, *other);
        return;
    }
    for (s64 w = 0; w < offsets; w++) {
        NAME *restrict to = array + rows[2 * w];
        const NAME *restrict from = other + rows[2 * w + 1];
        if (along == 1 && beside == 1) for (s64 i = 0; i < n; i++) to[i] = combined(to[i], from[i]);
        else for (s64 i = 0; i < n; i++) to[i * along] = combined(to[i * along], from[i * beside]);
    }
}"""
