"""Reductions by an associative region, of several arrays at once: the source of one pass over them. Elements meet in their order,
in as many runs at a time as a processor has use for, whose results meet at the end."""

from __future__ import annotations

from ..hlo.ir import Computation
from .arrays import Value
from .code import Array, single
from .elements import NAMES, Unfit, memory_of, name_of
from .functions import used_in
from .loops import TYPES, Machine, ProgramWriter
from .threads import shared

COLUMNS = 1 << 10
"""Places of a row that are reduced at a time, so that what there is so far stays in the cache."""

_RUNS = 16


def reduce_blocks(reducer: Computation, machine: Machine) -> str:
    """Reduces the middle dimension, of at least one element, of arrays [outer, size, inner] by a reducer in canonical form. The
    rows of the function are those of `outer`, each for up to `COLUMNS` of `inner`; the places are those of the operands and of
    the results, then `size` and `inner`. Raises Unfit."""
    count = len(reducer.parameters) // 2
    kinds = [p.shape.element_type for p in reducer.parameters[:count]]
    memory = list(map(memory_of, kinds))
    each = range(count)

    def lines(depth: int, text: str) -> str:
        """A line for each of the arrays, of which K is the number and T the type."""
        return "\n".join("    " * depth + text.replace("K", str(k)).replace("T", memory[k]) for k in each)

    def meet(left: str, right: str) -> str:
        given = [side.replace("K", str(k)) for side in (left, right) for k in each]
        return f"meet({', '.join([*given, *(f'&{left}'.replace('K', str(k)) for k in each)])});"

    body = f"""static void part(s64 from, s64 to, char **places, s64 n, char *kept) {{
    const s64 size = (s64)places[{2 * count}], inner = (s64)places[{2 * count + 1}];
    const s64 tiles = (inner + {COLUMNS - 1}) / {COLUMNS};
    for (s64 row = from; row < to; row++) {{
        const s64 r = row / tiles, first = row % tiles * {COLUMNS};
        const s64 left = inner - first, wide = left < {COLUMNS} ? left : {COLUMNS};
{lines(2, "const T *xK = (const T *)places[K] + r * size * inner + first;")}
{lines(2, f"T *yK = (T *)places[{count} + K] + r * inner + first;")}
        if (inner > 1) {{
{lines(3, f"T aK[{COLUMNS}]; __builtin_memcpy(aK, xK, wide * sizeof(T));")}
            for (s64 j = 1; j < size; j++) {{
#pragma GCC ivdep
                for (s64 i = 0; i < wide; i++) {meet("aK[i]", "xK[j * inner + i]")}
            }}
{lines(3, "__builtin_memcpy(yK, aK, wide * sizeof(T));")}
            continue;
        }}
        const s64 length = size / {_RUNS};
        s64 at = 1;
{lines(2, "T tK = xK[0];")}
        if (length > 1) {{
{lines(3, f"T aK[{_RUNS}]; for (s64 i = 0; i < {_RUNS}; i++) aK[i] = xK[i * length];")}
            for (s64 j = 1; j < length; j++) {{
#pragma GCC ivdep
                for (s64 i = 0; i < {_RUNS}; i++) {meet("aK[i]", "xK[i * length + j]")}
            }}
{lines(3, "tK = aK[0];")}
            for (s64 i = 1; i < {_RUNS}; i++) {meet("tK", "aK[i]")}
            at = {_RUNS} * length;
        }}
        for (; at < size; at++) {meet("tK", "xK[at]")}
{lines(2, "*yK = tK;")}
    }}
}}"""
    meeting = _meeting(reducer, machine)
    return "\n".join([TYPES, *used_in(meeting, NAMES), meeting, body, shared(2 * count + 2, 0)])


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
