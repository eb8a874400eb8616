"""A plan: native functions, calls back into Python, loops and branches, run one after another without Python in between.

A plan is a short program for the driver, a C function that is compiled once for all plans. Its values are arrays in one arena,
whose memory is used again once a value is dead, or arrays that the caller gives or receives. Small functions of bounded length
take the place of one large one: they compile side by side, and equal ones compile once.

A stack (`hlo/stacks.py`) is the address of its top cell, in memory that no other value has. A cell holds a value, the address of
the cell below it and how many read it; the last of these frees it.
"""

from __future__ import annotations

import bisect
import dataclasses
import enum
from collections.abc import Iterable, Sequence

from .loops import STOPPED, TYPES, Source


class Op(enum.IntEnum):
    """The driver's instructions. Their arguments are indices of the table of addresses, and places in the program."""

    END = 0
    CALL = 1
    """Run a native function, with its part of the table."""
    PYTHON = 2
    """Call back into Python, with the number of a step."""
    COPY = 3
    """Copy bytes from one address to another."""
    JUMP = 4
    UNLESS = 5
    """Jump where a truth value is false."""
    SWITCH = 6
    """Jump to one of several places by an s32; to the last one where it is out of range."""
    ASK = 7
    """Now and then, run the handlers of signals."""
    SHARE = 8
    """Make a stack what another one is."""
    PUSH = 9
    POP = 10


class Stacks(enum.IntEnum):
    """What else the driver does, in the place of a number of pairs: with a stack, the rows of an array, their number and size."""

    COUNT = -1
    """Write the number of values on a stack to the place of the number of rows."""
    TO_ROWS = -2
    FROM_ROWS = -3
    FREE = -4
    """Empty so many stacks, which lie side by side."""


DRIVER = f"""{TYPES}
{STOPPED}
void *malloc(unsigned long), free(void *);
typedef struct cell {{ struct cell *below; s64 readers; char value[]; }} cell;
static void share(cell **stack, cell *top) {{
    cell *old = *stack;
    if (top) top->readers++;
    *stack = top;
    while (old && !--old->readers) {{ cell *below = old->below; free(old); old = below; }}
}}
static int push(cell **stack, cell *below, char *value, s64 size) {{
    cell *top = malloc(sizeof(cell) + size);
    if (!top) return 1;
    __builtin_memcpy(top->value, value, size);
    top->below = below;
    top->readers = 0;
    if (below) below->readers++;
    share(stack, top);
    return 0;
}}
static void pop(char *value, cell **stack, cell *top, s64 size) {{
    if (top) __builtin_memcpy(value, top->value, size); else __builtin_memset(value, 0, size);
    share(stack, top ? top->below : 0);
}}
static int stacks(s64 task, s64 *given) {{
    cell **stack = (cell **)given[0];
    char *rows = (char *)given[1];
    s64 count = given[2], size = given[3];
    switch (task) {{
    case {Stacks.COUNT:d}: count = 0; for (cell *at = *stack; at; at = at->below) count++; given[2] = count; return 0;
    case {Stacks.TO_ROWS:d}:
        for (cell *at = *stack; at; at = at->below) __builtin_memcpy(rows + --count * size, at->value, size);
        return 0;
    case {Stacks.FROM_ROWS:d}:
        for (s64 k = 0; k < count; k++) if (push(stack, *stack, rows + k * size, size)) return -1;
        return 0;
    default: for (s64 k = 0; k < count; k++) share(stack + k, 0); return 0;
    }}
}}
int run(s64 moved, s64 *given) {{
    if (moved < 0) return stacks(moved, given);
    const s64 *code = (const s64 *)given[0], *moves = (const s64 *)given[2];
    char **table = (char **)given[1], **io = (char **)(given + 12);
    int (*python)(s64) = (int (*)(s64))given[3];
    for (s64 k = 0; k < moved; k++) table[moves[2 * k]] = io[moves[2 * k + 1]];
    s64 left = 1 << 14;
    for (s64 at = 0;;) {{
        const s64 *op = code + at;
        int failed = 0;
        switch (op[0]) {{
        case {Op.END:d}: return 0;
        case {Op.CALL:d}: failed = ((int (*)(s64, char **))op[1])(1, table + op[2]) < 0; at += 3; break;
        case {Op.PYTHON:d}: failed = python(op[1]); at += 2; break;
        case {Op.COPY:d}: __builtin_memcpy(table[op[1]], table[op[2]], op[3]); at += 4; break;
        case {Op.JUMP:d}: at = op[1]; break;
        case {Op.UNLESS:d}: at = *table[op[1]] ? at + 3 : op[2]; break;
        case {Op.SWITCH:d}: {{
            s32 chosen = *(s32 *)table[op[1]];
            at = op[3 + (chosen < 0 || chosen >= op[2] ? op[2] - 1 : chosen)];
            break;
        }}
        case {Op.SHARE:d}: share((cell **)table[op[1]], *(cell **)table[op[2]]); at += 3; break;
        case {Op.PUSH:d}: failed = push((cell **)table[op[1]], *(cell **)table[op[2]], table[op[3]], op[4]); at += 5; break;
        case {Op.POP:d}: pop(table[op[1]], (cell **)table[op[2]], *(cell **)table[op[3]], op[4]); at += 5; break;
        default:
            if (--left < 0) {{ left = 1 << 14; failed = stopped((void **)(given + 5)); }}
            at += 1;
        }}
        if (failed) {{ given[4] = op - code; return -1; }}
    }}
}}
"""
"""The driver. It gets the addresses of a plan's code, its table, the pairs of table index and number of what the caller gives,
and the callback; then a place for where it failed, what loops ask (`ASKED`) with three places for an exception, and the
addresses of what the caller gives and receives."""

GIVEN = 12
"""Where the caller's addresses begin among those that the driver gets."""

_ALIGNED = 64
_ADDRESS = 8


@dataclasses.dataclass(eq=False)
class Value:
    """An array of a plan, of so many bytes in the arena, or number `io` of those that the caller gives and receives; or a
    stack."""

    size: int
    io: int | None = None
    is_stack: bool = False
    begin: int = -1
    end: int = -1
    offset: int = 0


@dataclasses.dataclass(frozen=True)
class Step:
    """A call back into Python: the number of its function, and what it reads and writes."""

    function: int
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


@dataclasses.dataclass(frozen=True)
class Entry:
    """An address in the table: of a value, of a constant, routine or scratch memory of a native function, or of nothing yet."""

    value: Value | None = None
    kind: str = ""
    source: int = 0
    number: int = 0


class Plan:
    """A plan: its program, its native functions, and the layout of its arena and table."""

    def __init__(self, inputs: Sequence[int | None]):
        self.sources: list[Source] = []
        self.steps: list[Step] = []
        self.code: list[int] = []
        self.functions: dict[int, int] = {}
        """Where in the code the address of which source's function belongs."""
        self.exceptions: dict[int, int] = {}
        """Where in the table the exception of a function stands, by where in the code it is called."""
        self.table: list[Entry] = []
        self.stacks: list[Value] = []
        """Stacks, which lie at the arena's beginning."""
        self._empty: Value | None = None
        self.inputs = [self.stack() if size is None else Value(size, io) for io, size in enumerate(inputs)]
        self.results: list[Value] = []
        self._index: dict[Value, int] = {}
        self._values: list[Value] = []
        self._uses: list[tuple[Value, int]] = []
        self._loops: list[tuple[int, int]] = []
        self.size = 0
        """Bytes of the arena, at whose end all functions have their scratch memory."""

    def value(self, size: int, io: int | None = None) -> Value:
        value = Value(size, io)
        self._values.append(value)
        return value

    def stack(self) -> Value:
        """A stack with nothing on it at first."""
        self.stacks.append(Value(_ADDRESS, is_stack=True, offset=_ADDRESS * len(self.stacks)))
        return self.stacks[-1]

    def like(self, value: Value) -> Value:
        """Another value of this kind and size."""
        return self.stack() if value.is_stack else self.value(value.size)

    # ------------------------------------------------------------------------------------------- writing

    def call(self, source: Source, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """Run a native function."""
        number, first = len(self.sources), len(self.table)
        self.sources.append(source)
        self.table += [Entry(v) for v in (*inputs, *outputs)]
        self.table += [Entry(kind="data", source=number, number=k) for k in range(len(source.constants))]
        self.table.append(Entry(kind="scratch", source=number))
        self.table += [Entry(kind="routine", source=number, number=k) for k in range(len(source.routines))]
        self.table += [Entry(kind="asked", number=k) for k in range(7 * source.asks)]
        self.functions[len(self.code) + 1] = number
        if source.asks:
            self.exceptions[len(self.code)] = len(self.table) - 3
        self._emit(Op.CALL, 0, first, reads=inputs, writes=outputs)

    def python(self, function: int, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """Call back into Python."""
        self.steps.append(Step(function, tuple(inputs), tuple(outputs)))
        self._emit(Op.PYTHON, len(self.steps) - 1, reads=inputs, writes=outputs)

    def push(self, stack: Value, below: Value, value: Value) -> None:
        self._emit(Op.PUSH, *map(self.index, (stack, below, value)), value.size, reads=[value])

    def pop(self, value: Value, below: Value, stack: Value) -> None:
        self._emit(Op.POP, *map(self.index, (value, below, stack)), value.size, writes=[value])

    def clear(self, stack: Value) -> None:
        """Leave nothing on a stack."""
        if self._empty is None:
            self._empty = self.stack()
        self.copy(stack, self._empty)

    def copy(self, target: Value, source: Value) -> None:
        if target is source:
            return
        if target.is_stack:
            self._emit(Op.SHARE, self.index(target), self.index(source))
        elif target.size:
            self._emit(Op.COPY, self.index(target), self.index(source), target.size, reads=[source], writes=[target])

    def unless(self, test: Value) -> int:
        """Jump where a truth value is false; returns where the place to jump to belongs (`land`)."""
        self._emit(Op.UNLESS, self.index(test), 0, reads=[test])
        return len(self.code) - 1

    def switch(self, selector: Value, count: int) -> list[int]:
        """Jump by an s32; returns where the places to jump to belong."""
        self._emit(Op.SWITCH, self.index(selector), count, *[0] * count, reads=[selector])
        return list(range(len(self.code) - count, len(self.code)))

    def jump(self, target: int = 0) -> int:
        """Jump; returns where the place to jump to belongs."""
        self._emit(Op.JUMP, target)
        return len(self.code) - 1

    def land(self, *places: int) -> None:
        """Have jumps end here."""
        for place in places:
            self.code[place] = len(self.code)

    def repeat(self, begun: int) -> None:
        """Jump back to where a loop began."""
        self._emit(Op.ASK)
        self._emit(Op.JUMP, begun)
        self._loops.append((begun, len(self.code)))

    def here(self) -> int:
        return len(self.code)

    def index(self, value: Value) -> int:
        """Where in the table the address of a value is."""
        if value not in self._index:
            self._index[value] = len(self.table)
            self.table.append(Entry(value))
        return self._index[value]

    def _emit(self, op: Op, *arguments: int, reads: Iterable[Value] = (), writes: Iterable[Value] = ()) -> None:
        at = len(self.code)
        self.code += [op, *arguments]
        self._uses += [(v, at) for v in (*reads, *writes)]

    # ------------------------------------------------------------------------------------------- memory

    def finish(self) -> None:
        """End the program, and give each value its place in the arena."""
        self._emit(Op.END)
        loops = sorted(self._loops, key=lambda loop: loop[1])  # inner ones end first
        for value, at in self._uses:
            value.begin = at if value.begin < 0 else value.begin
            value.end = max(value.end, at)
        for value, at in self._uses:
            for begun, ended in loops:
                if value.begin < begun <= at < ended:
                    value.end = max(value.end, ended)
        memory = _Memory(_ADDRESS * len(self.stacks))
        for value in sorted((v for v in self._values if v.io is None and v.begin >= 0), key=lambda v: v.begin):
            value.offset = memory.take(value)
        scratch = max((source.scratch for source in self.sources), default=0)
        self.scratch, self.size = memory.size, memory.size + scratch + _ALIGNED


class _Memory:
    """The arena: holes of it are filled again, the smallest that is large enough first."""

    def __init__(self, begun: int) -> None:
        self.size = -(-begun // _ALIGNED) * _ALIGNED
        self._taken: list[tuple[int, int, int]] = []
        self._holes: list[tuple[int, int]] = []

    def take(self, value: Value) -> int:
        """The offset of memory for a value, free from where it begins."""
        while self._taken and self._taken[0][0] < value.begin:
            _, offset, size = self._taken.pop(0)
            self._free(offset, size)
        size = -(-value.size // _ALIGNED) * _ALIGNED
        fits = [(s, o) for o, s in self._holes if s >= size]
        if fits:
            found, offset = min(fits)
            self._holes.remove((offset, found))
            if found > size:
                bisect.insort(self._holes, (offset + size, found - size))
        else:
            offset, self.size = self.size, self.size + size
        bisect.insort(self._taken, (value.end, offset, size))
        return offset

    def _free(self, offset: int, size: int) -> None:
        k = bisect.bisect(self._holes, (offset, 0))
        if k < len(self._holes) and self._holes[k][0] == offset + size:
            size += self._holes.pop(k)[1]
        if k and sum(self._holes[k - 1]) == offset:
            before = self._holes.pop(k - 1)
            offset, size = before[0], before[1] + size
        bisect.insort(self._holes, (offset, size))
