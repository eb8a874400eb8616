"""The source of a fusion (`native_fusions.py`): its calls as expressions of C, and the passes over each row in which they stand.

A grid is the dimensions of its arrays, of which the last one is a row, or the last ones where they are reduced together. What has
a value for each place is *whole*; a reduction of rows, and what follows from reductions, has one for each *row*. What is computed
of a row's reductions stands in a later pass over that row, while it is in the cache. So a softmax is three passes over a row, and
one over its memory.

GCC 12 makes no vectors of rotations of signed integers, which it makes of shifts itself: signed integers are held as unsigned
ones, signed again where that matters.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
import torch.fx
from torch.fx import Node

from ..codegen.elements import (
    HALVES,
    NAMES,
    VECTOR_COMPLEX,
    VECTOR_ELEMENTS,
    exact_pattern,
    memory_of,
    name_of,
    needs_no_rounding,
    number,
    read,
    same,
    stored,
    typed,
)
from ..codegen.functions import used_in
from ..codegen.loops import TYPES
from ..codegen.threads import shared
from ..core import tuning
from ..core.types import (
    BF16,
    C64,
    C128,
    F16,
    F32,
    F64,
    PRED,
    S8,
    S16,
    S32,
    S64,
    U8,
    U16,
    U32,
    U64,
    PrimitiveType,
    complex_part,
)
from ..kernels.calls import COMPARISONS, EXPAND, ROW_VIEWS, known
from ..kernels.convert import float_to_integer
from ..kernels.native_fusions import Role
from ..opcodes import elementwise

Dims = tuple[int, ...]

_ELEMENT_TYPES = {torch.bool: PRED, torch.int8: S8, torch.int16: S16, torch.int32: S32, torch.int64: S64, torch.uint8: U8,
                  torch.bfloat16: BF16, torch.float16: F16, torch.float32: F32, torch.float64: F64, torch.complex64: C64,
                  torch.complex128: C128}

LEAST_ROW = 8
"""Elements from which torch sums up a row in vectors."""

_UNSIGNED = {S8: U8, S16: U16, S32: U32, S64: U64}
_WIDE = frozenset({F32, F64})
_ROUNDED_ONCE = frozenset({PRED, S8, U8, S16, U16, F32, BF16, F16})
"""Types of which float32 has all numbers."""

_ROUNDED = frozenset({elementwise.exponential, elementwise.log, elementwise.logistic, elementwise.tanh, elementwise.log_plus_one,
                      elementwise.exponential_minus_one, elementwise.erf, elementwise.sinh, elementwise.cosh, elementwise.asinh,
                      elementwise.acosh, elementwise.atanh})
"""Functions whose vector code torch's does not outrun beside other calls on large arrays; it does with sines and their like."""
SLOW_IN_TORCH = frozenset({elementwise.exponential_minus_one, elementwise.sinh, elementwise.cosh, elementwise.asinh,
                           elementwise.acosh})
"""Those of float32 that native code computes sooner also alone: in half of torch's time and less (AVX-512, 2026-11-29)."""
_SHIFTS = (torch.bitwise_left_shift, torch.bitwise_right_shift)


class Calls:
    """Which of the given calls can stand in a fusion over a grid, and how. `rounded` lets functions in that torch may round
    otherwise."""

    def __init__(self, nodes: Iterable[Node], grid: Dims, rounded: bool):
        self.grid, self.rounded = grid, rounded
        nodes = list(nodes)
        self.lead = _lead(nodes, grid)
        """How many dimensions of the grid are before those of a row."""
        self.is_row: dict[Node, bool] = {}
        """For each call that can, whether it has one value for each row."""
        self.roles: dict[Node, Role] = {}
        """What each input is to all of them."""
        for node in nodes:
            is_row = self._row_or_whole(node)
            if is_row is not None:
                self.is_row[node] = is_row

    def role(self, user: Node, operand: Node) -> Role | None:
        """What an input is to a call of the fusion; None where it cannot be one."""
        dims, of_row = _dims(operand), self.is_row.get(user, False)
        spread: Role | None = operand.meta.get("spread")
        if spread is not None:
            if dims != self.grid or of_row:
                return None
            is_column = operand.meta.get("shown") == (*[1] * self.lead, *dims[self.lead:])
            return "column" if is_column else spread if self.lead == len(dims) - 1 else None
        if not dims:
            return "scalar"
        if dims == self.grid:
            if of_row and not self._is_reduction(user):
                return None
            is_apart = operand.meta.get("apart", False) and math.prod(dims[self.lead:]) >= tuning.APART_ROW
            return "apart" if is_apart else "whole"
        if len(self.grid) < 2:
            return None
        if dims == self._kept_rows() or (of_row and dims == self.grid[:self.lead]):
            return "row"
        within = (*[1] * (len(dims) - len(self.grid) + self.lead), *self.grid[self.lead:])
        return "column" if not of_row and dims == within else None

    def _row_or_whole(self, node: Node) -> bool | None:
        if node.op not in ("call_function", "call_method") or "array" not in node.meta or not _is_typed(node):
            return None
        if self._is_reduction(node):
            return True if self._fits(node, node.args[0], False) else None
        if node.op == "call_method" and node.target in ROW_VIEWS:
            source = node.args[0]
            shown = self._has_rows(node) or (node.target == EXPAND and _dims(node) == self.grid)
            return True if self.is_row.get(source, False) and shown and self._views_rows(source) else None  # pyright: ignore
        if expression(node, None, self.rounded) is None:
            return None
        is_row = self._has_rows(node)
        if not is_row and _dims(node) != self.grid:
            return None
        return is_row if all(self._fits(node, o, is_row) for o in node.all_input_nodes) else None

    def _has_rows(self, node: Node) -> bool:
        return len(self.grid) > 1 and _dims(node) in (self.grid[:self.lead], self._kept_rows()) and _dims(node) != self.grid

    def _kept_rows(self) -> Dims:
        """The grid with one place in each row."""
        return (*self.grid[:self.lead], *[1] * (len(self.grid) - self.lead))

    def _views_rows(self, source: Any) -> bool:
        """Whether a value is not spread yet."""
        return _dims(source) != self.grid

    def _fits(self, node: Node, operand: Any, of_row: bool) -> bool:
        if not isinstance(operand, Node) or "array" not in operand.meta or operand.meta["array"][1] not in _ELEMENT_TYPES:
            return False
        if operand not in self.is_row:
            self.is_row[node] = of_row or self._is_reduction(node)
            found = self.role(node, operand)
            del self.is_row[node]
            is_shown = operand.op == "call_method" and operand.target == EXPAND
            return found is not None and not is_shown and self.roles.setdefault(operand, found) == found
        if not self.is_row[operand]:
            return not of_row
        if of_row:  # a vector and a column side by side would spread
            return _dims(operand) == _dims(node) and not self._is_reduction(node)
        return _dims(operand) in (self.grid, self._kept_rows()) and not self._is_reduction(node)

    def _is_reduction(self, node: Node) -> bool:
        if not _is_of_rows(node, self.grid):
            return False
        source, dims = node.args
        last = (-1,) if self.lead == len(self.grid) - 1 else ()
        return (isinstance(source, Node) and math.prod(self.grid[self.lead:]) >= LEAST_ROW
                and source.meta["array"][1] in (torch.float32, torch.float64)
                and "array" in node.meta and node.meta["array"][1] is source.meta["array"][1]
                and dims in (last, tuple(range(self.lead, len(self.grid)))) and _dims(node) == self.grid[:self.lead])


def _is_of_rows(node: Node, grid: Dims) -> bool:
    """Whether a call has code that reduces rows, and reduces an array of the grid's dimensions."""
    if node.op != "call_function" or not known(node.target).row or len(node.args) != 2 or node.kwargs or len(grid) < 2:
        return False
    source = node.args[0]
    return isinstance(source, Node) and "array" in source.meta and _dims(source) == grid


def _lead(nodes: Iterable[Node], grid: Dims) -> int:
    """How many dimensions are before those of a row: where nothing reduces the last one alone, those before what is reduced."""
    last = len(grid) - 1
    found: list[Any] = [node.args[1] for node in nodes if _is_of_rows(node, grid)]
    if found and (-1,) not in found and (last,) not in found:
        return max((k for k in range(1, last) if tuple(range(k, last + 1)) in found), default=last)
    return last


def _dims(node: Node) -> Dims:
    return node.meta["array"][0]


def _is_typed(node: Node) -> bool:
    return all("array" in n.meta and n.meta["array"][1] in _ELEMENT_TYPES for n in (node, *node.all_input_nodes))


# ------------------------------------------------------------------------------------------- the source


class Source:
    """The source of a fusion: ``run(rows, places)`` with the addresses of inputs and results, the rows of each tail, the address
    of memory for each thread, the elements of a row, the number of threads, and OpenMP's functions of torch's own threads
    (`kernels/native_fusions.py`)."""

    def __init__(self, calls: Calls, nodes: Sequence[Node], inputs: dict[Node, Role], results: Sequence[Node],
                 by_rows: bool = False):
        """`by_rows` whoever calls it gives rows, also where none is needed."""
        self.calls, self.nodes, self.inputs, self.results = calls, nodes, inputs, results
        self.names = {node: f"v{k}" for k, node in enumerate([*inputs, *nodes])}
        self.passes: dict[Node, int] = {}
        for node in nodes:
            behind = [self.passes[o] + (calls.is_row[o] and not calls.is_row[node]) for o in node.all_input_nodes
                      if o in self.passes]
            self.passes[node] = max(behind, default=0)
        self.last = max(self.passes.values())
        self.kept: dict[Node, str] = {}
        """Values of a row that a later pass reads again."""
        for node in nodes:
            if not calls.is_row[node] and self._is_read_later(node):
                self.kept[node] = f"t{len(self.kept)}"
        self.is_flat = (not by_rows and set(inputs.values()) <= {"whole", "scalar"}
                        and not any(calls.is_row[n] for n in nodes))
        """Whether the grid may as well be one long row, of which each thread takes a part."""
        self.place = "i" if self.is_flat else "r * n + i"
        self.tails = [node for node, role in inputs.items() if role == "tail"]
        self.apart = [node for node, role in inputs.items() if role == "apart"]
        self.width = max([_type(n).bits // 8 for n in self.kept], default=0)

    @property
    def kept_bytes(self) -> int:
        """Bytes of memory for each element of a row and each thread."""
        return self.width * len(self.kept)

    def _is_read_later(self, node: Node) -> bool:
        later = any(u in self.passes and (self.calls.is_row[u] or self.passes[u] > self.passes[node]) for u in node.users)
        return later or (node in self.results and self.passes[node] < self.last)

    def body(self, name: str = "part") -> str:
        """A function for some of the rows."""
        return "\n".join([f"static void {name}(s64 from, s64 to, char **places, s64 n, char *kept) {{", *self._pointers(),
                          f"    for (s64 r = {'0; r < 1' if self.is_flat else 'from; r < to'}; r++) {{",
                          *self._rows(), *self._steps(), "    }", "}"])

    def text(self) -> str:
        first = len(self.inputs) + len(self.results) + len(self.tails) + len(self.apart)
        return "\n".join([self.functions("part"), shared(first, self.kept_bytes)])

    def functions(self, name: str) -> str:
        """A function for some of the rows, and those that it calls."""
        body = self.body(name)
        return "\n".join([TYPES, *used_in(body, NAMES), *([_ROW_APART] if self.apart else ()), body])

    def _pointers(self) -> list[str]:
        lines = []
        for k, (node, role) in enumerate(self.inputs.items()):
            of = _in_memory(node)
            lines.append(f"    const {_held(node)} {self.names[node]} = {_read(node, f'*(const {of} *)places[{k}]')};"
                         if role == "scalar" else f"    const {of} *a{k} = (const {of} *)places[{k}];")
        lines += [f"    {_in_memory(n)} *r{k} = ({_in_memory(n)} *)places[{len(self.inputs) + k}];"
                  for k, n in enumerate(self.results)]
        return lines + [f"    {_in_memory(n)} *{t} = ({_in_memory(n)} *)(kept + {k * self.width} * n);"
                        for k, (n, t) in enumerate(self.kept.items())]

    def _rows(self) -> list[str]:
        first = len(self.inputs) + len(self.results)
        tails = [f"        const {_in_memory(n)} *b{k} = a{k} + r % (s64)places[{first + self.tails.index(n)}] * n;"
                 for k, n in enumerate(self.inputs) if n in self.tails]
        first += len(self.tails)
        apart = [f"        const {_in_memory(n)} *b{k} = a{k} + row_apart(r, (const s64 *)places[{first + self.apart.index(n)}]);"
                 for k, n in enumerate(self.inputs) if n in self.apart]
        return tails + apart + [f"        const {_held(n)} {self.names[n]} = {_read(n, f'a{k}[r]')};"
                for k, (n, role) in enumerate(self.inputs.items()) if role == "row"]

    def _steps(self) -> list[str]:
        """What is done with one row. Results that are whole are written in the last pass: they may stand in an input's place."""
        lines = []
        for number_of in range(self.last + 1):
            now = [n for n in self.nodes if self.passes[n] == number_of and not self.calls.is_row[n]]
            needed = [*now, *(self.results if number_of == self.last else ())]
            if needed:
                lines += ["        #pragma GCC ivdep",
                          f"        for (s64 i = {'from; i < to' if self.is_flat else '0; i < n'}; i++) {{",
                          *[f"            {line}" for line in self._elements(now, number_of)], "        }"]
            for node in self.nodes:
                if self.calls.is_row[node] and self.passes[node] == number_of:
                    lines.append(f"        const {_held(node)} {self.names[node]} = {self._of_row(node)};")
        return lines + [f"        r{k}[r] = {self._stored(n)};" for k, n in enumerate(self.results) if self.calls.is_row[n]]

    def _elements(self, now: list[Node], number_of: int) -> list[str]:
        written = [n for n in self.results if not self.calls.is_row[n]] if number_of == self.last else []
        read = dict.fromkeys([o for n in now for o in n.all_input_nodes] + written)
        lines = []
        for k, (node, role) in enumerate(self.inputs.items()):
            if node in read and role in ("whole", "apart", "tail", "column"):
                of = f"b{k}[i]" if role in ("tail", "apart") else f"a{k}[{self.place if role == 'whole' else 'i'}]"
                lines.append(f"const {_held(node)} {self.names[node]} = {_read(node, of)};")
        for node, memory in self.kept.items():
            if node in read and self.passes[node] < number_of:
                lines.append(f"const {_held(node)} {self.names[node]} = {_read(node, f'{memory}[i]')};")
        for node in now:
            lines.append(f"const {_held(node)} {self.names[node]} = {expression(node, self.names, self.calls.rounded)};")
            if node in self.kept:
                lines.append(f"{self.kept[node]}[i] = {self._stored(node)};")
        return lines + [f"r{self.results.index(n)}[{self.place}] = {self._stored(n)};" for n in written]

    def _stored(self, node: Node) -> str:
        """What stands in memory for a value."""
        return stored(_type(node), self.names[node])

    def _of_row(self, node: Node) -> str:
        source = node.args[0]
        if isinstance(source, Node) and node.op == "call_method" and node.target in ROW_VIEWS:
            return self.names[source]
        if isinstance(source, Node) and known(node.target).row:
            memory = self.kept.get(source) or self._row(source)
            return f"{known(node.target).row}_{_name(node)}({memory}, n)"
        return expression(node, self.names, self.calls.rounded) or ""


    def _row(self, node: Node) -> str:
        """Where a row of an input begins."""
        k = list(self.inputs).index(node)
        return f"b{k}" if node in self.apart else f"a{k} + r * n"


_ROW_APART = """static inline s64 row_apart(s64 r, const s64 *steps) {
    s64 at = 0;
    for (s64 d = 0; d < steps[0]; d++) {
        at += r % steps[2 * d + 1] * steps[2 * d + 2];
        r /= steps[2 * d + 1];
    }
    return at;
}"""
"""Where row r begins in an array whose rows lie apart: sizes and steps of the dimensions before, the last one first."""


def _type(node: Node) -> PrimitiveType:
    return _ELEMENT_TYPES[node.meta["array"][1]]


def _name(node: Node) -> str:
    return NAMES[_type(node)]


def _in_memory(node: Node) -> str:
    return memory_of(_type(node))


def _read(node: Node, place: str) -> str:
    return f"{place} != 0" if _type(node) is PRED else read(_type(node), place)


def _held(node: Node) -> str:
    return name_of(_UNSIGNED.get(_type(node), _type(node)))


def is_rounded(node: Node) -> bool:
    """Whether torch may round this call otherwise in the last place (`codegen/functions.py`)."""
    return known(node.target).opcode in _ROUNDED or is_complex_function(node)


def is_complex_function(node: Node) -> bool:
    """Whether this is a function of complex numbers that torch computes one by one, and native code in vectors."""
    return known(node.target).opcode in VECTOR_COMPLEX and any(
        "array" in o.meta and o.meta["array"][1] is torch.complex64 for o in node.all_input_nodes)


def expression(node: Node, names: dict[Node, str] | None, rounded: bool) -> str | None:
    """A call as an expression of its operands' names; None where it is none of a fusion. `rounded` lets functions in that torch
    may round otherwise."""
    if node.kwargs or not _is_typed(node):
        return None
    if node.op == "call_method":
        return _converted(node, names) if node.target == "to" else None
    element_type, row = _type(node), known(node.target)
    if element_type in HALVES and any(_type(o) in _WIDE for o in node.all_input_nodes):
        return None  # torch's sum of one and a wider number rounds once
    if is_complex_function(node):
        places = ", ".join(f"{{{k}}}" for k in range(len(node.args)))
        return _formatted(f"{VECTOR_COMPLEX[row.opcode]}({places})", node.args, C64, names) if rounded else None
    if rounded and is_rounded(node) and (element_type is F32 or element_type in HALVES):
        return _formatted(f"{VECTOR_ELEMENTS[row.opcode]}({{0}})", node.args, element_type, names)
    if row.out in COMPARISONS:
        common = _ELEMENT_TYPES.get(torch.result_type(*map(_stand_in, node.args)))  # pyright: ignore[reportArgumentType]
        code = None if common is None else f"{{0}} {COMPARISONS[row.out]} {{1}}"
        return code and _formatted(code, node.args, common, names, True)
    if node.target is torch.isfinite:
        operand, = node.args
        of = isinstance(operand, Node) and operand.meta["array"][1].is_floating_point and _type(operand)
        return _formatted("{0} - {0} == 0", [operand], of, names, True) if of else None
    if node.target is float_to_integer:
        return _truncated(node, element_type, names)
    if row.out is torch.where:
        condition, *others = node.args
        if not isinstance(condition, Node) or condition.meta["array"][1] is not torch.bool:
            return None
        chosen = _formatted(", {0}, {1}" if element_type.is_complex else " ? {0} : {1}", others,
                            _UNSIGNED.get(element_type, element_type), names, True)
        of = names[condition] if names else ""
        return chosen and (f"select_{NAMES[element_type]}({of}{chosen})" if element_type.is_complex else f"{of}{chosen}")
    if node.target is torch.complex:
        return _formatted("__builtin_complex({0}, {1})", node.args, complex_part(element_type), names)
    element_type = next((_type(o) for o in node.all_input_nodes if _type(o).is_complex), element_type)
    kind = element_type.kind.value
    code = row.code.get(kind) or exact_pattern(row.opcode, kind)
    if not code or (row.out in _SHIFTS and node.args[1] not in range(element_type.bits)):
        return None
    of = _UNSIGNED.get(element_type, element_type) if row.wraps else element_type
    return _formatted(code, node.args, of, names, needs_no_rounding(row.opcode))


def _converted(node: Node, names: dict[Node, str] | None) -> str | None:
    """A change of type; from a float to an integer each processor does what it likes where the number does not fit."""
    (operand, _), target = node.args, _ELEMENT_TYPES[node.meta["array"][1]]
    if not isinstance(operand, Node) or (operand.meta["array"][1].is_floating_point and target.is_integral):
        return None
    if target in HALVES and _type(operand) not in _ROUNDED_ONCE:
        return None
    return f"{names[operand] if names else ''} != 0" if target is PRED else _formatted("{0}", [operand], target, names)


def _truncated(node: Node, element_type: PrimitiveType, names: dict[Node, str] | None) -> str | None:
    """C code that truncates a float to an integer. None unless the bounds are those of the integer type."""
    operand, *bounds, dtype = node.args
    limits = torch.iinfo(dtype)  # pyright: ignore[reportArgumentType]
    is_whole = bounds == [limits.min, limits.max] and isinstance(operand, Node)
    return _formatted(f"truncated_{NAMES[element_type]}({{0}})", [operand], F64, names) if is_whole else None


def _formatted(code: str, operands: Sequence[Any], element_type: PrimitiveType | None, names: dict[Node, str] | None,
               is_exact: bool = False) -> str | None:
    """The pattern with its operands in one type; None where one of them is nothing that can be here. A float of 16 bits is
    rounded to its type, where it `is_exact` it need not be."""
    assert element_type is not None
    if not all(isinstance(o, Node) or (isinstance(o, (bool, int, float)) and _has(element_type, o))
               or (isinstance(o, complex) and element_type.is_complex) for o in operands):
        return None
    made = [_operand(o, element_type, names or {}) for o in operands]
    name = name_of(element_type)
    found = code.format(*made, t=name, f="f" * (name == "f32"))
    return typed(element_type, found) if element_type in HALVES and not is_exact else found


def _has(element_type: PrimitiveType, value: float) -> bool:
    """Whether a type of 16 bits has a number, which some calls of torch would round to it and others not."""
    return element_type not in HALVES or value != value or float(np.asarray(value).astype(element_type.numpy)) == value


def _operand(operand: Any, element_type: PrimitiveType, names: dict[Node, str]) -> str:
    if not isinstance(operand, Node):
        wide = np.complex128 if element_type.is_complex else np.float64 if element_type.is_floating else np.int64
        return number(wide(operand), element_type)
    own = _type(operand)
    name, held = names.get(operand, ""), _UNSIGNED.get(own, own)
    if held is element_type:
        return name
    signed = name if held is own else same(own, name)
    return signed if own is element_type else same(element_type, signed)


def _stand_in(operand: Any) -> Any:
    if not isinstance(operand, Node):
        return operand
    dims, dtype = operand.meta["array"]
    return torch.empty(dims, dtype=dtype, device="meta")


# ------------------------------------------------------------------------------------------- several sources in one


def text_of_foreach(bodies: Sequence[str]) -> str:
    """The source of ``run(elements, places)`` for flat fusions with functions ``part_0``, ``part_1``, ...: the first place has
    four numbers for each fusion (its function, where its addresses begin, its first element of all and that after its last), the
    second one the addresses, the third one the number of fusions."""
    text = "\n".join(bodies)
    names = ", ".join(f"part_{k}" for k in range(len(bodies)))
    return "\n".join([TYPES, *used_in(text, NAMES), text, _FOREACH.replace("NAMES", names), shared(3, 0)])


_FOREACH = """static void (*const kinds[])(s64, s64, char **, s64, char *) = { NAMES };
static void part(s64 from, s64 to, char **places, s64 n, char *kept) {
    const s64 *of = (const s64 *)places[0], *end = of + 4 * (s64)places[2];
    for (; of < end; of += 4) {
        const s64 low = from > of[2] ? from : of[2], high = to < of[3] ? to : of[3];
        if (low < high) kinds[of[0]](low - of[2], high - of[2], (char **)places[1] + of[1], 1, kept);
    }
}"""
