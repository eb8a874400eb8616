"""Reductions by an associative region, of several arrays at once: the source of one pass over them. Elements meet in as many runs
at a time as a processor has use for, whose results meet at the end: in their order, or in any where the region commutes. Four
stretches go side by side, rows or parts of one, so that one's arithmetic fills the time in which another's waits."""

from __future__ import annotations

from ..hlo.ir import Computation
from .arrays import Value
from .code import Array, single
from .elements import HALVES, NAMES, Unfit, memory_of, name_of
from .functions import used_in
from .loops import TYPES, Machine, ProgramWriter
from .threads import shared

COLUMNS = 1 << 10
"""Places of a row that are reduced at a time, so that what there is so far stays in the cache."""

_RUNS, _STRETCHES = 16, 4


def reduce_blocks(reducer: Computation, machine: Machine, commutes: bool = False) -> str:
    """Reduces the middle dimension, of at least one element, of arrays [outer, size, inner] by a reducer in canonical form, which
    may take the elements in any order if it `commutes`. The rows of the function are those of `outer`, each for up to `COLUMNS`
    of `inner`; the places are those of the operands and of the results, then `size`, `inner`, and how far apart the operands'
    rows are. Raises Unfit."""
    count = len(reducer.parameters) // 2
    kinds = [p.shape.element_type for p in reducer.parameters[:count]]
    if not HALVES.keys().isdisjoint(kinds):
        raise Unfit("a reducer of floats of 16 bits")
    memory = list(map(memory_of, kinds))

    def lines(depth: int, text: str) -> str:
        return "\n".join("    " * depth + line for line in each(text))

    def each(text: str) -> list[str]:
        """A text for each of the arrays, of which K is the number and T the type."""
        return [text.replace("K", str(k)).replace("T", memory[k]) for k in range(count)]

    def meet(left: str, right: str) -> str:
        return f"meet({', '.join([*each(left), *each(right), *each(f'&{left}')])});"

    # One run of a stretch meets its elements in their order, or they all take turns, which lie side by side in memory.
    first, step = ("i", f"{_RUNS} * j") if commutes else ("i * length", "j")
    taken = ", ".join([*each("const T *xK, const s64 apartK"), "const s64 size", *each("T *tK")])
    body = f"""static inline void stretches({taken}) {{
    const s64 length = size / {_RUNS};
    s64 at = 1;
    if (length > 1) {{
{lines(2, f"T aK[{_STRETCHES * _RUNS}];")}
        for (s64 s = 0; s < {_STRETCHES}; s++) for (s64 i = 0; i < {_RUNS}; i++) {{
{lines(3, f"aK[s * {_RUNS} + i] = xK[s * apartK + {first}];")}
        }}
        for (s64 j = 1; j < length; j++) for (s64 s = 0; s < {_STRETCHES}; s++) {{
#pragma GCC ivdep
            for (s64 i = 0; i < {_RUNS}; i++) {meet(f"aK[s * {_RUNS} + i]", f"xK[s * apartK + {first} + {step}]")}
        }}
        for (s64 wide = {_STRETCHES * _RUNS // 2}; wide >= {_STRETCHES}; wide /= 2) {{
#pragma GCC ivdep
            for (s64 i = 0; i < wide; i++) {{
                const s64 l = 2 * i, r = 2 * i + 1;
                meet({', '.join([*each("aK[l]"), *each("aK[r]"), *each("&aK[i]")])});
            }}
        }}
{lines(2, f"__builtin_memcpy(tK, aK, {_STRETCHES} * sizeof(T));")}
        at = {_RUNS} * length;
    }} else for (s64 s = 0; s < {_STRETCHES}; s++) {{
{lines(2, "tK[s] = xK[s * apartK];")}
    }}
    for (; at < size; at++)
#pragma GCC ivdep
        for (s64 s = 0; s < {_STRETCHES}; s++) {meet("tK[s]", "xK[s * apartK + at]")}
}}
static void part(s64 from, s64 to, char **places, s64 n, char *kept) {{
    const s64 size = (s64)places[{2 * count}], inner = (s64)places[{2 * count + 1}];
    const s64 *apart = (const s64 *)places + {2 * count + 2};
    const s64 tiles = (inner + {COLUMNS - 1}) / {COLUMNS};
{lines(1, "const T *const xK = (const T *)places[K];")}
{lines(1, f"T *const yK = (T *)places[{count} + K];")}
    s64 row = from;
    if (inner == 1) {{
        const s64 each = size / {_STRETCHES};
        for (; row + {_STRETCHES} <= to; row += {_STRETCHES})
            stretches({', '.join(each("xK + row * apart[K], apart[K]"))}, size, {', '.join(each("yK + row"))});
        for (; row < to; row++) {{
            s64 at = 1;
{lines(3, f"T tK[{_STRETCHES}]; tK[0] = xK[row * apart[K]];")}
            if (each) {{
                stretches({', '.join(each("xK + row * apart[K], each"))}, each, {', '.join(each("tK"))});
                for (s64 s = 1; s < {_STRETCHES}; s++) {meet("tK[0]", "tK[s]")}
                at = {_STRETCHES} * each;
            }}
            for (; at < size; at++) {meet("tK[0]", "xK[row * apart[K] + at]")}
{lines(3, "yK[row] = tK[0];")}
        }}
    }}
    for (; row < to; row++) {{
        const s64 r = row / tiles, first = row % tiles * {COLUMNS};
        const s64 left = inner - first, wide = left < {COLUMNS} ? left : {COLUMNS};
{lines(2, "const T *zK = xK + r * apart[K] + first;")}
{lines(2, f"T aK[{COLUMNS}]; __builtin_memcpy(aK, zK, wide * sizeof(T));")}
        for (s64 j = 1; j < size; j++) {{
#pragma GCC ivdep
            for (s64 i = 0; i < wide; i++) {meet("aK[i]", "zK[j * inner + i]")}
        }}
{lines(2, "__builtin_memcpy(yK + r * inner + first, aK, wide * sizeof(T));")}
    }}
}}"""
    meeting = _meeting(reducer, machine)
    return "\n".join([TYPES, *used_in(meeting, NAMES), meeting, body, shared(3 * count + 2, 0)])


def _meeting(reducer: Computation, machine: Machine) -> str:
    """The reducer as a function of numbers, which puts its results where it is told."""
    count, writer = len(reducer.parameters) // 2, ProgramWriter(machine)
    names = [f"{side}{k}" for side in ("l", "r") for k in range(count)]
    given: list[Value] = [single(p.shape, name) for p, name in zip(reducer.parameters, names, strict=True)]
    value = writer.run(reducer, given)
    results = [writer.code.store(r) for r in (value if isinstance(value, list) else [value])]
    code = writer.code
    if code.constants or code.allocations or code.routines or code.has_loops or not all(map(_is_number, results)):
        raise Unfit("a reducer of more than numbers")
    taken = [f"{name_of(p.shape.element_type)} {name}" for p, name in zip(reducer.parameters, names, strict=True)]
    put = [f"{memory_of(r.shape.element_type)} *o{k}" for k, r in enumerate(results)]
    made = [f"    *o{k} = {r.at(())};" for k, r in enumerate(results)]
    head = f"static inline __attribute__((always_inline)) void meet({', '.join([*taken, *put])}) {{"
    return "\n".join([head, *code.lines, *made, "}"])


def _is_number(result: Array) -> bool:
    return not result.shape.rank
