"""Native code of ops that compute where they read or write, or what for each element: gather, scatter, map, sort, topk,
reduce-window.

Specification: hlo/SPEC.md. A gather moves its windows to where they are inside, a scatter leaves those out that are not; both
take their points in the order of the indices. What is sorted is short, and each element goes to its place among those before it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

from ..core import tuning
from ..core.shape import Shape
from ..core.types import F32, F64
from ..hlo.attributes import WindowDimension
from ..hlo.ir import Computation, Instruction
from ..hlo.schema import Trait
from ..opcodes import indexing, reduction, sorting, window
from ..opcodes.reduction_order import running_dimension
from .arrays import ARRAYS, Value, Writer
from .code import Array, Code, Index, element_of, single
from .elements import VECTOR_WORK, Unfit, name_of
from .sums import OPERATORS, met_by


@ARRAYS.rule(reduction.map_)
def map_(writer: Writer, inst: Instruction, operands: list[Array]) -> Array:
    code, name = writer.code, writer.code.buffer(inst.shape)
    before = code.work
    with code.loops(inst.shape.dimensions) as at:
        (value,) = _region(writer, inst.attributes["to_apply"], [_element(code, o, at) for o in operands])
        code.put(inst.shape, name, at, value)
    code.work = before + 2 * inst.shape.element_count
    return code.filled(inst.shape, name)


@ARRAYS.rule(indexing.gather)
def gather(writer: Writer, inst: Instruction, operands: list[Array]) -> Array:
    code, given = writer.code, inst.attributes
    operand, indices = map(code.store, operands)
    points = _Points(given, indices, operand.shape, given["start_index_map"], given["slice_sizes"],
                     {*given["collapsed_slice_dims"], *given.get("operand_batching_dims", ())}, given["offset_dims"],
                     given.get("operand_batching_dims", ()), given.get("start_indices_batching_dims", ()))
    name = code.buffer(inst.shape)
    with code.loops(inst.shape.dimensions) as at:
        starts = points.starts(at)
        moved = {d: f"clamped_s64({s}, {points.limits[d]})" for d, s in starts.items()}
        code.put(inst.shape, name, at, operand.at(points.places(at, moved)))
    work = inst.shape.element_count * (1 + len(points.index_map))
    code.works(inst.shape, work, work)  # torch's takes as long
    return code.filled(inst.shape, name)


@ARRAYS.rule(indexing.scatter)
def scatter(writer: Writer, inst: Instruction, operands: list[Array]) -> Value:
    """A copy with the updates in it. A loop's carries are updated where they are (`loops.py`)."""
    inputs, indices, updates = indexing.split_scatter(operands)
    results = [writer.code.copy(i) for i in inputs]
    write_scatter(writer, inst, results, writer.code.store(indices), updates)
    return results if inst.shape.is_tuple else results[0]


def write_scatter(writer: Writer, inst: Instruction, results: Sequence[Array], indices: Array, updates: Sequence[Array]) -> None:
    """Put updates into arrays: point by point, and of each the window where all of it is inside."""
    code, given = writer.code, inst.attributes
    shape, windowed = updates[0].shape, set(given["update_window_dims"])
    dropped = {*given["inserted_window_dims"], *given.get("input_batching_dims", ())}
    sizes = iter(shape.dimensions[d] for d in given["update_window_dims"])
    window = [1 if d in dropped else next(sizes) for d in range(results[0].shape.rank)]
    points = _Points(given, indices, results[0].shape, given["scatter_dims_to_operand_dims"], window, dropped,
                     given["update_window_dims"], given.get("input_batching_dims", ()),
                     given.get("scatter_indices_batching_dims", ()))
    before = code.work
    with contextlib.ExitStack() as stack:
        outer = stack.enter_context(code.loops([1 if d in windowed else n for d, n in enumerate(shape.dimensions)]))
        starts = {d: code.name("s") for d in points.index_map}
        for d, start in points.starts(outer).items():
            code.line(f"s64 {starts[d]} = {start};")
        if starts:
            inside = " && ".join(f"0 <= {s} && {s} <= {points.limits[d]}" for d, s in starts.items())
            stack.enter_context(code.block(f"if ({inside})"))
        inner = stack.enter_context(code.loops([n if d in windowed else 1 for d, n in enumerate(shape.dimensions)], apart=True))
        at = [inner[d] if d in windowed else i for d, i in enumerate(outer)]
        places = points.places(at, starts)
        found = _region(writer, given["to_apply"], [*(_element(code, r, places) for r in results),
                                                    *(_element(code, u, at) for u in updates)])
        for result, value in zip(results, found, strict=True):
            code.assign(result, places, value)
    count = math.prod(window)
    work = shape.element_count // count * (4 + count * (VECTOR_WORK if count > 1 else 0))
    code.work = before + work
    code.spared += work if shape.element_count <= tuning.BLOCK else 0  # torch's takes as long


@ARRAYS.rule(sorting.sort)
def sort(writer: Writer, inst: Instruction, operands: list[Array]) -> Value:
    """Each row by insertion, a long one in parts that are merged then."""
    code, (along,), dims = writer.code, inst.attributes["dimensions"], operands[0].shape.dimensions
    n = dims[along]
    if n > tuning.NATIVE_MERGE:
        raise Unfit(f"{n} elements are torch's to sort")
    results, before, run = [code.copy(o) for o in operands], code.work, n if n <= tuning.NATIVE_SORT else _RUN
    if n > 1:
        with code.loops([1 if d == along else size for d, size in enumerate(dims)]) as row:
            _insert(writer, inst, results, row, run)
    merged, steps = run, 0
    others = [code.filled(o.shape, code.buffer(o.shape)) for o in operands] if merged < n else []
    while merged < n:
        with code.loops([1 if d == along else size for d, size in enumerate(dims)]) as row:
            _merge(writer, inst, results, others, row, merged)
        results, others, merged, steps = others, results, 2 * merged, steps + 1
    work = operands[0].shape.element_count * (run / 4 + 4 * steps)
    code.work = before + work
    code.spared += work  # torch's takes as long
    return results if inst.shape.is_tuple else results[0]


_RUN = 16
"""Elements of a part of a long row that are sorted by insertion."""


def _insert(writer: Writer, inst: Instruction, rows: Sequence[Array], row: Index, run: int) -> None:
    """Sort parts of `run` elements of a row in place: each element goes before those of its part that it belongs before."""
    code, (along,) = writer.code, inst.attributes["dimensions"]
    n, taken, place = rows[0].shape.dimensions[along], code.name("i"), code.name("i")
    first = "0" if run >= n else f"{taken} / {run} * {run}"

    def at(position: str) -> list[str]:
        return [position if d == along else i for d, i in enumerate(row)]

    with code.block(f"for (s64 {taken} = 1; {taken} < {n}; {taken}++)"):
        elements = [_element(code, r, at(taken)) for r in rows]
        code.line(f"s64 {place} = {taken};")
        with code.block(f"for (; {place} > {first}; {place}--)"):
            others = [_element(code, r, at(f"({place} - 1)")) for r in rows]
            code.line(f"if (!{_is_before(writer, inst, elements, others)}) break;")
            for result, other in zip(rows, others, strict=True):
                code.assign(result, at(place), other.at(()))
        for result, element in zip(rows, elements, strict=True):
            code.assign(result, at(place), element.at(()))


def _merge(writer: Writer, inst: Instruction, rows: Sequence[Array], into: Sequence[Array], row: Index, run: int) -> None:
    """Put parts of `run` elements together by twos, of equal elements those of the first part before."""
    code, (along,) = writer.code, inst.attributes["dimensions"]
    n = rows[0].shape.dimensions[along]
    low, middle, high, i, j, k, later = (code.name(stem) for stem in ("low", "mid", "high", "i", "i", "i", "later"))

    def at(position: str) -> list[str]:
        return [position if d == along else place for d, place in enumerate(row)]

    with code.block(f"for (s64 {low} = 0; {low} < {n}; {low} += {2 * run})"):
        code.line(f"s64 {middle} = {low} + {run} < {n} ? {low} + {run} : {n}, {i} = {low}, {j} = {middle};")
        code.line(f"s64 {high} = {middle} + {run} < {n} ? {middle} + {run} : {n};")
        with code.block(f"for (s64 {k} = {low}; {k} < {high}; {k}++)"):
            code.line(f"int {later} = {i} >= {middle};")
            with code.block(f"if (!{later} && {j} < {high})"):
                one, other = ([_element(code, r, at(place)) for r in rows] for place in (j, i))
                code.line(f"{later} = {_is_before(writer, inst, one, other)};")
            for source, target in zip(rows, into, strict=True):
                code.assign(target, at(k), f"({later} ? {source.at(at(j))} : {source.at(at(i))})")
            code.line(f"{j} += {later}; {i} += !{later};")


def _is_before(writer: Writer, inst: Instruction, one: Sequence[Array], other: Sequence[Array]) -> str:
    (found,) = _region(writer, inst.attributes["to_apply"], [e for pair in zip(one, other, strict=True) for e in pair])
    return found


@ARRAYS.rule(sorting.topk)
def topk(writer: Writer, inst: Instruction, operands: list[Array]) -> Value:
    """The best so far stand in order, and a better one goes to its place among them. Most are compared with the last of them
    alone, several at a time."""
    code, operand, k = writer.code, writer.code.store(operands[0]), inst.attributes["k"]
    if k > tuning.NATIVE_SORT:
        raise Unfit(f"{k} of the largest elements are torch's to find")
    shapes, n, of = inst.shape.tuple_shapes, operand.shape.dimensions[-1], operand.shape.element_type
    values, places = map(code.buffer, shapes)
    found, i, j, any_, at = (code.name(stem) for stem in ("c", "i", "i", "any", "i"))

    def key(element: str) -> str:
        return f"order_{name_of(of)}({element})" if of.is_floating else element

    def better(one: str, other: str) -> str:
        return f"{key(one)} {'>' if inst.attributes.get('largest', True) else '<'} {key(other)}"

    with code.loops(operand.shape.dimensions[:-1]) as row:
        def put(*elements: str) -> None:
            for shape, name, new in zip(shapes, (values, places), elements, strict=True):
                code.put(shape, name, [*row, at], new)

        worst = element_of(shapes[0], values, [*row, str(k - 1)])
        before = [element_of(s, name, [*row, f"({at} - 1)"]) for s, name in zip(shapes, (values, places), strict=True)]
        code.line(f"s64 {found} = 0;")
        with code.block(f"for (s64 {i} = 0; {i} < {n}; {i}++)"):
            with code.block(f"if ({found} == {k} && {i} + {_AT_ONCE} <= {n})"):
                code.line(f"int {any_} = 0;")
                with code.block(f"for (s64 {j} = 0; {j} < {_AT_ONCE}; {j}++)"):
                    code.line(f"{any_} |= {better(operand.at([*row, f'({i} + {j})']), worst)};")
                code.line(f"if (!{any_}) {{ {i} += {_AT_ONCE - 1}; continue; }}")
            element = _element(code, operand, [*row, i]).at(())
            code.line(f"if ({found} == {k} && !({better(element, worst)})) continue;")
            code.line(f"s64 {at} = {found} < {k} ? {found}++ : {k - 1};")
            with code.block(f"for (; {at} > 0 && {better(element, before[0])}; {at}--)"):
                put(*before)
            put(element, i)
    code.work += operand.shape.element_count + shapes[0].element_count * k
    return list(map(code.filled, shapes, (values, places)))


_AT_ONCE = 16
_ONE = WindowDimension(1)


@ARRAYS.rule(window.reduce_window)
def reduce_window(writer: Writer, inst: Instruction, operands: list[Array]) -> Value:
    """Place by place of the windows, for each the windows that lie side by side; of padding there are none."""
    code, half, windows = writer.code, len(operands) // 2, inst.attributes.get("window", ())
    if any(w.base_dilation != 1 or w.reversal for w in windows) or len(windows) != operands[0].shape.rank:
        raise Unfit("windows over elements that are apart, or backwards")
    if not windows:
        raise Unfit("a window over a number")
    arrays, inits = ([code.store(o) for o in part] for part in (operands[:half], operands[half:]))
    shapes = inst.shape.tuple_shapes if inst.shape.is_tuple else (inst.shape,)
    along = running_dimension(arrays[0].shape, windows)
    if along is not None and not along[2] and (not along[1] or _commutes(inst.attributes["to_apply"])):
        return _running(writer, inst, arrays, inits, *along[:2])
    names, before, dims = [code.buffer(s) for s in shapes], code.work, shapes[0].dimensions
    last = max((d for d, w in enumerate(windows) if w != _ONE), default=len(dims) - 1)
    run, terms = math.prod(dims[last:]), math.prod(w.size for w in windows)
    with code.loops(dims[:last]) as row, contextlib.ExitStack() as stack:
        with code.loops(dims[last:], apart=True) as at:
            for shape, name, init in zip(shapes, names, inits, strict=True):
                code.put(shape, name, [*row, *at], init.at(()))
        sizes = arrays[0].shape.dimensions
        places = [stack.enter_context(_along(code, i, n, w)) for i, n, w in zip(row, sizes, windows[:last], strict=False)]
        at, place = stack.enter_context(_beside(code, dims[last], sizes[last], windows[last]))
        behind = stack.enter_context(code.loops(dims[last + 1:], apart=True))
        to = [*row, at, *behind]
        totals = [single(i.shape, element_of(s, name, to)) for i, s, name in zip(inits, shapes, names, strict=True)]
        elements = [_element(code, a, [*places, place, *behind]) for a in arrays]
        found = _region(writer, inst.attributes["to_apply"], [*totals, *elements])
        for shape, name, value in zip(shapes, names, found, strict=True):
            code.put(shape, name, to, value)
    code.work = before + shapes[0].element_count * terms * (0.25 + 2 / run)
    results = list(map(code.filled, shapes, names))
    return results if inst.shape.is_tuple else results[0]


@contextlib.contextmanager
def _beside(code: Code, results: int, count: int, window: WindowDimension) -> Iterator[tuple[str, str]]:
    """A loop over the places of windows along one dimension, and in it one over the windows of which the place is not in the
    padding: a window, and the element there."""
    e, at, step, stride = code.name("e"), code.name("i"), window.window_dilation, window.stride
    with code.block(f"for (s64 {e} = 0; {e} < {window.size}; {e}++)"):
        shift, first, behind = code.name("shift"), "0", str(results)
        code.line(f"s64 {shift} = {e} * {step} - {window.padding_low};")
        if window.padding_low or window.padding_high:
            first, behind = code.name("first"), code.name("behind")
            code.line(f"s64 {first} = {shift} >= 0 ? 0 : ({stride - 1} - {shift}) / {stride};")
            code.line(f"s64 {behind} = {count} <= {shift} ? 0 : ({count} - {shift} + {stride - 1}) / {stride};")
            code.line(f"{behind} = {behind} < {results} ? {behind} : {results};")
        code.line("#pragma GCC ivdep")
        with code.block(f"for (s64 {at} = {first}; {at} < {behind}; {at}++)"):
            yield at, f"({at} * {stride} + {shift})"


@contextlib.contextmanager
def _along(code: Code, at: str, count: int, window: WindowDimension) -> Iterator[str]:
    """A loop over the places of a window along one dimension that are not in the padding: a range, and no condition in the loop
    (see `select_@` in functions.py)."""
    k, size, step, shift = code.name("e"), window.size, window.window_dilation, f"({window.padding_low} - {at} * {window.stride})"
    first, behind = "0", str(size)
    if window.padding_low or window.padding_high:
        first, behind = code.name("first"), code.name("behind")
        code.line(f"s64 {first} = {shift} <= 0 ? 0 : ({shift} + {step - 1}) / {step};")
        code.line(f"s64 {behind} = {shift} + {count} <= 0 ? 0 : ({shift} + {count} + {step - 1}) / {step};")
        code.line(f"{behind} = {behind} < {size} ? {behind} : {size};")
    with code.block(f"for (s64 {k} = {first}; {k} < {behind}; {k}++)"):
        yield f"({k} * {step} - {shift})"


def _running(writer: Writer, inst: Instruction, arrays: Sequence[Array], inits: Sequence[Array], along: int,
             reverse: bool) -> Value:
    """What windows as long as the array give, each of which holds one element more than the one before it: row by row, each
    total is reduced on. Sums and products of single precision are kept in double precision, as torch keeps them: what is searched
    in a running sum of weights depends on its last digits."""
    code, shapes = writer.code, inst.shape.tuple_shapes if inst.shape.is_tuple else (inst.shape,)
    dims = shapes[0].dimensions
    names, before = [code.buffer(s) for s in shapes], code.work
    opcode = met_by(inst)
    is_wide = shapes[0].element_type is F32 and opcode in OPERATORS
    with code.loops([1 if d == along else n for d, n in enumerate(dims)]) as row:
        totals = [code.local(i.shape.with_element_type(F64) if is_wide else i.shape, "t", i.at(())) for i in inits]
        with code.loops([dims[along]]) as (place,):
            at = [(f"({dims[along] - 1} - {place})" if reverse else place) if d == along else i for d, i in enumerate(row)]
            if is_wide:
                found = [f"{totals[0]} {OPERATORS[opcode]} (f64){arrays[0].at(at)}"]
            else:
                now = [single(i.shape, t) for i, t in zip(inits, totals, strict=True)]
                found = _region(writer, inst.attributes["to_apply"], [*now, *(_element(code, a, at) for a in arrays)])
            for shape, name, total, value in zip(shapes, names, totals, found, strict=True):
                code.line(f"{total} = {value};")
                code.put(shape, name, at, f"(f32){total}" if is_wide else total)
    code.work = before + 2 * shapes[0].element_count
    results = list(map(code.filled, shapes, names))
    return results if inst.shape.is_tuple else results[0]


def _commutes(region: Computation) -> bool:
    """Whether a region is one op of its two arguments that does not ask which is which."""
    given = region.parameters
    return len(given) == 2 and region.root.has(Trait.COMMUTATIVE) and set(region.root.operands) == set(given)


class _Points:
    """Where the windows of a gather or scatter begin, for the indices of a loop over all elements of all windows."""

    def __init__(self, given: dict[str, Any], indices: Array, whole: Shape, index_map: Sequence[int], window: Sequence[int],
                 dropped: set[int], window_dims: Sequence[int], batching: Sequence[int], index_batching: Sequence[int]):
        self.indices, self.index_map, self.window_dims = indices, tuple(index_map), tuple(window_dims)
        self.vector_dim: int = given["index_vector_dim"]
        self.rank, self.kept = whole.rank, [d for d in range(whole.rank) if d not in dropped]
        self.limits = [n - w for n, w in zip(whole.dimensions, window, strict=True)]
        self.batching = list(zip(batching, index_batching, strict=True))

    def starts(self, at: Index) -> dict[int, str]:
        """For each indexed dimension where the window begins, as the index says."""
        point = self._point(at)
        vectors = [[*point[:self.vector_dim], str(k), *point[self.vector_dim:]] if self.vector_dim < self.indices.shape.rank
                   else point for k in range(len(self.index_map))]
        return {d: f"(s64){self.indices.at(v)}" for d, v in zip(self.index_map, vectors, strict=True)}

    def places(self, at: Index, starts: dict[int, str]) -> list[str]:
        """The indices of the element of the whole array."""
        point, places = self._point(at), ["0"] * self.rank
        for d, own in zip(self.kept, self.window_dims, strict=True):
            places[d] = at[own]
        for d, own in self.batching:
            places[d] = point[own - (own > self.vector_dim)]
        for d, start in starts.items():
            places[d] = start if places[d] == "0" else f"({start} + {places[d]})"
        return places

    def _point(self, at: Index) -> list[str]:
        return [i for d, i in enumerate(at) if d not in self.window_dims]


def _element(code: Code, array: Array, at: Index) -> Array:
    """A local with an element of an array."""
    scalar = Shape.array(array.shape.element_type)
    return code.copy(Array(scalar, lambda _: array.at(at)))


def _region(writer: Writer, region: Computation, elements: Sequence[Array]) -> list[str]:
    """Locals with the results of a region of scalars."""
    made = writer.run(region, elements)
    return [writer.code.copy(m).at(()) for m in (made if isinstance(made, list) else [made])]
