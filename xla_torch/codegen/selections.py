"""Native code of reductions that select: of each row the largest or smallest element, with what stands beside it.

A chain of comparisons, each of which waits for the one before it, is two passes here that a compiler makes vector code of: the
extreme of a row, and the lowest place of an element that equals it. Both are least or largest integers, whose order of computing
does not count, so that nobody need allow it; floats are brought to integers of the same order for it. That NaN wins over all, and
what the initial values are, is seen to in the second pass and behind it.
"""

from __future__ import annotations

import numpy as np

from ..analysis.selections import Selection, Ties, keeps_zeros, selection
from ..core import tuning
from ..core.shape import Shape
from ..core.types import F32, F64, S32, S64
from ..hlo.ir import Instruction
from ..opcodes import movement
from .arrays import Writer
from .code import Array, Code, Index, element_of
from .elements import VECTOR_WORK, name_of


def row_selection(writer: Writer, inst: Instruction) -> Selection | None:
    """What a reduce selects, where `select_rows` gives what its region does, and sooner."""
    count, given = len(inst.operands) // 2, inst.operands[0].shape.dimensions
    if count == 1 or tuple(inst.attributes["dimensions"]) != (len(given) - 1,):
        return None
    found = selection(inst.attributes["to_apply"])
    if found is None or found.ties is Ties.LAST:
        return None
    of = inst.operands[found.key].shape.element_type
    if not (of in _ORDERED or of.is_integral):
        return None
    if given[-1] < (tuning.SELECTED_DOUBLES_FROM if of is F64 else tuning.SELECTED_FROM):
        return None
    if found.ties is Ties.LOWEST and not _are_places(inst.operands[1 - found.key]):
        return None
    readers = writer.readers[inst]
    is_read = not readers or any(not r.is_element or r.attributes["index"] == found.key for r in readers)
    return None if of.is_floating and is_read and not keeps_zeros(inst.attributes["to_apply"]) else found


_ORDERED = {F32: S32, F64: S64}
"""Integers that are ordered as floats are (``order_@``)."""


def _are_places(inst: Instruction) -> bool:
    """Whether the elements of an array are their places in its last dimension, as integers that there are."""
    along, size, of = inst.shape.rank - 1, inst.shape.dimensions[-1], inst.shape.element_type
    if inst.opcode == movement.broadcast:
        (inst,), dims = inst.operands, inst.attributes.get("dimensions", ())
        along = dims.index(along) if along in dims else -1
    if inst.opcode != movement.iota or inst.attributes["iota_dimension"] != along or inst.shape.dimensions[along] != size:
        return False
    return of.is_integral and size - 1 <= np.iinfo(of.numpy).max  # pyright: ignore[reportArgumentType, reportCallIssue]


def select_rows(writer: Writer, inst: Instruction, chosen: Selection, operands: list[Array]) -> list[Array]:
    """The selected elements of each row. Keys that do not lie in memory are written there, row by row."""
    code, half, before = writer.code, len(operands) // 2, writer.code.work
    arrays, inits = operands[:half], [code.store(o) for o in operands[half:]]
    shapes, key = list(inst.shape.leaves()), arrays[chosen.key]
    buffers = [code.buffer(s) for s in shapes]
    *rows, n = key.shape.dimensions
    with code.loops(rows) as at:
        arrays[chosen.key], best = _extreme(code, key, inits[chosen.key], at, chosen.largest)
        place, is_init = _place(code, chosen, arrays, inits, best, at)
        with code.block(f"if ({is_init})"):
            for shape, name, init in zip(shapes, buffers, inits, strict=True):
                code.put(shape, name, at, init.at(()))
        with code.block("else"):
            code.line(f"{place} += {place} < 0 ? {n} : 0;")
            for shape, name, array in zip(shapes, buffers, arrays, strict=True):
                code.put(shape, name, at, array.at([*at, place]))
    code.work = before + 2 * key.shape.element_count * VECTOR_WORK + shapes[0].element_count
    return list(map(code.filled, shapes, buffers))


def _extreme(code: Code, key: Array, init: Array, row: Index, is_largest: bool) -> tuple[Array, str]:
    """The keys where the row's are in memory, and a local with the extreme of a row and the initial key, whatever that is where
    one of them is NaN."""
    of, n = key.shape.element_type, key.shape.dimensions[-1]
    ordered, memory = _ORDERED.get(of, of), Shape.array(of, [n])
    order, back = (f"order_{name_of(of)}", f"of_order_{name_of(of)}") if of in _ORDERED else ("", "")
    name = "" if key.buffer else code.buffer(memory)
    total = code.local(Shape.array(ordered), "t", f"{order}({init.at(())})")
    with code.loops([n], apart=bool(name)) as (i,):
        value = code.local(Shape.array(of), "v", key.at([*row, i]))
        if name:
            code.put(memory, name, [i], value)
        now = code.local(Shape.array(ordered), "v", f"{order}({value})")
        code.line(f"{total} = {now} {'>' if is_largest else '<'} {total} ? {now} : {total};")
    best = code.local(Shape.array(of), "v", f"{back}({total})")
    return (Array(key.shape, lambda index: element_of(memory, name, index[-1:])) if name else key), best


def _place(code: Code, chosen: Selection, arrays: list[Array], inits: list[Array], best: str, row: Index) -> tuple[str, str]:
    """A local with the lowest place of a key that is the best, or, `n` below it, of one that is NaN; `n` where there is neither.
    And a test whether the initial values stay."""
    key, init = arrays[chosen.key], inits[chosen.key].at(())
    n, of = key.shape.dimensions[-1], key.shape.element_type
    counts = Shape.array(S64 if of.bits == 64 or n > _SHORT else S32)
    place, i, of_c = code.local(counts, "p", str(n)), code.name("i"), name_of(counts.element_type)
    with code.block(f"for ({of_c} {i} = 0; {i} < {n}; {i}++)"):
        value = code.local(Shape.array(of), "v", key.at([*row, i]))
        found = f"{value} == {best} ? {i} : {n}"
        now = code.local(counts, "p", f"{value} != {value} ? {i} - {n} : {found}" if of.is_floating else found)
        code.line(f"{place} = {now} < {place} ? {now} : {place};")
    stays = f"{init} == {best}"
    if chosen.ties is Ties.LOWEST:
        beside, own = (a[1 - chosen.key] for a in (arrays, inits))
        stays += f" && ({place} == {n} || {own.at(())} < {beside.at([*row, place])})"
    return place, f"{init} != {init} || ({place} >= 0 && {stays})"


_SHORT = 1 << 30
"""Elements of a row whose places are integers of 32 bits, of which a vector has more."""
