"""A while instruction as the source of one function that takes steps until the condition fails.

The function gets the addresses of the carry and changes it there; a carry of one element is a local while it runs. What an
elementwise op computes is written where it is read, once; what is read more often goes to a local or to a buffer. All results of
a body are there before a carry is written; large ones are then exchanged with it by their addresses. A carry that the body only
updates in part (the rows of a stack) is updated in place, and so is one whose elements follow place by place.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from ..core import tuning
from ..core.shape import Shape
from ..core.types import PRED
from ..hlo.ir import Computation, Instruction, reachable
from ..hlo.regions import Loop, loop_of
from ..hlo.structure import CONSTANT
from ..opcodes import contraction, elementwise, indexing, internal, movement
from . import fourier, linalg  # noqa: F401  (their rules belong to the table)
from .arrays import ARRAYS, Value, starts, write_update
from .code import ANYWHERE, ASKS_EVERY, Array, Code, Index, held, is_local, single, with_rest
from .elements import (
    ELEMENTS,
    HALVES,
    NAMES,
    VECTOR_WORK,
    Unfit,
    element,
    element_work,
    is_native,
    is_one_by_one,
    is_vector_function,
    memory_of,
    name_of,
    read,
    stored,
)
from .empty_arrays import without_elements
from .functions import used_in
from .indexed import write_scatter
from .pairs import differences_of_pair, exponential_of_pair
from .sums import blas_routine, calls_of, product, require_fit, turns

TYPES = """typedef _Bool pred; typedef signed char s8; typedef short s16; typedef int s32; typedef long long s64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned u32; typedef unsigned long long u64;
typedef float f32; typedef double f64; typedef float _Complex c64; typedef double _Complex c128;"""
"""What sources begin with."""

ASKED = ("PyGILState_Ensure", "PyErr_CheckSignals", "PyErr_Fetch", "PyGILState_Release")
"""Functions of Python's by which a loop in the loop has the handlers of signals run, and finds out whether one has raised."""

STOPPED = """static int stopped(void **python) {
    int state = ((int (*)(void))python[0])(), raised = ((int (*)(void))python[1])();
    if (raised) ((void (*)(void **, void **, void **))python[2])(python + 4, python + 5, python + 6);
    ((void (*)(int))python[3])(state);
    return raised;
}"""


@dataclasses.dataclass(frozen=True)
class Source:
    """`text` defines ``int run(s64 steps, char **places)``. The places are those of the carries, of the constants, of `scratch`
    bytes of memory (none where it has its own), and of `routines`; where it `asks` whether to stop, also those of `ASKED` and
    three more for an exception. It takes up to so many steps and returns whether the loop goes on, or -1 where there is an
    exception. `work` are the nanoseconds of a step, roughly, without those that torch would take as well."""

    text: str
    constants: tuple[np.ndarray, ...]
    scratch: int
    work: float
    calls: int
    routines: tuple[str, ...] = ()
    asks: bool = False


@dataclasses.dataclass(frozen=True)
class Machine:
    """What native code may use: a `fused` multiply-add, and routines of BLAS by name (``sgemm``, ``dgemm``). Up to so many
    `elements` of an array torch, with its threads, takes no less than it."""

    fused: bool = False
    routines: frozenset[str] = frozenset()
    elements: int = tuning.NATIVE_ELEMENTS


def loop_source(instruction: Instruction, fixed: frozenset[int], machine: Machine) -> Source:
    """The source for a loop in canonical form, of which the carries `fixed` do not change. Raises Unfit."""
    shapes, loop = instruction.shape.tuple_shapes, loop_of(instruction)
    if not all(s.is_array and s.is_static and is_native(s.element_type) for s in shapes):
        raise Unfit("a carry that is no array of a native type")
    writer = ProgramWriter(machine, loop.condition, loop.body)
    for k, shape in enumerate(shapes):
        writer.code.capacity(f"a{k}", shape)
    carries = [single(s, f"a{k}") if s.element_count == 1 else writer.code.held(s, f"a{k}") for k, s in enumerate(shapes)]
    writer.iterate(loop, carries, fixed, "going = 0;")
    first = [_first(writer.code, k, s, k in fixed) for k, s in enumerate(shapes)]
    last = [_last(k, s) for k, s in enumerate(shapes) if k not in fixed]
    turns = ["    int going = 1;", "    for (s64 step = 0; step < steps; step++) {", *writer.code.lines, "    }"]
    return _source(writer, len(shapes), first, [*turns, *last, "    return going;"])


def bundle_source(region: Computation, machine: Machine, in_place: Mapping[int, int] | None = None) -> Source:
    """The source for a computation of arrays whose root is a tuple: the carries are its parameters, and then its results, which
    are written once. Results `in_place` are updates of the parameter with this number, which nothing reads later. Raises
    Unfit."""
    given, made = [p.shape for p in region.parameters], region.root.shape.tuple_shapes
    if not all(s.is_array and s.is_static and is_native(s.element_type) for s in (*given, *made)):
        raise Unfit("no array of a native type")
    writer = ProgramWriter(machine, region)
    arguments = [held(s, f"a{k}") for k, s in enumerate(given)]
    updated = {region.root.operands[k]: arguments[number] for k, number in (in_place or {}).items()}
    updates = _Updates(writer, updated) if updated else None
    results = writer.run(region, arguments, updates)
    assert isinstance(results, list)
    for k, (shape, result) in enumerate(zip(made, results, strict=True), len(given)):
        if region.root.operands[k - len(given)] not in updated:
            writer.code.fill(f"a{k}", dataclasses.replace(result, shape=shape))
    for write in updates.pending if updates is not None else ():
        write()
    shapes = [*given, *made]
    first = [f"    {memory_of(s.element_type)} *a{k} = ({memory_of(s.element_type)} *)places[{k}];" for k, s in enumerate(shapes)]
    return _source(writer, len(shapes), first, ["    {", *writer.code.lines, "    }", "    return 0;"])


DEEPEST = 64
"""Operations in the expression of an element, written by as many calls one within another. Longer chains are stored in
between."""

_ON_STACK = 1 << 14
"""Bytes up to which a function has its memory on its stack: to be given some takes a twelfth of a small bundle's call."""


def _source(writer: ProgramWriter, count: int, first: Sequence[str], behind: Sequence[str]) -> Source:
    """The source of a function whose first `count` places are made known by the lines `first`."""
    code = writer.code
    constants = [f"    const {memory_of(t)} *k{k} = (const {memory_of(t)} *)places[{count + k}];"
                 for k, t in enumerate(code.constant_types)]
    scratch = count + len(constants)
    asks = [f"    void **python = (void **)places + {scratch + 1 + len(code.routines)};",
            f"    s64 left = {ASKS_EVERY};"] * code.has_loops
    given = code.scratch if code.scratch > _ON_STACK else 0
    own = f"char scratch[{code.scratch + 1}] __attribute__((aligned(64)));"
    lines = [*first, *constants, f"    {f'char *scratch = places[{scratch}];' if given else own}",
             *(f"    void *{name} = places[{k}];" for k, name in enumerate(code.routines, scratch + 1)), *asks,
             *code.allocations, *behind, "}", ""]
    body = "\n".join(lines)
    text = "\n".join([TYPES, *used_in(body, NAMES), *[STOPPED] * code.has_loops, "int run(s64 steps, char **places) {", body])
    return Source(text, tuple(code.constants), given, code.work - code.spared, writer.calls, tuple(code.routines), code.has_loops)


def _first(code: Code, k: int, shape: Shape, fixed: bool) -> str:
    """What makes a carry known in the function."""
    of = memory_of(shape.element_type)
    if shape.element_count == 1:
        own = of if shape.element_type is PRED else name_of(shape.element_type)
        return f"    {own} a{k} = {read(shape.element_type, f'*({of} *)places[{k}]')};"
    count, capacity = shape.element_count, code.capacity(f"a{k}", shape)
    if capacity > count or (is_local(shape) and not fixed):
        copied = f"__builtin_memcpy(a{k}, places[{k}], {count} * sizeof({of}));"
        return f"    {of} a{k}[{capacity}]{code.zeros(f'a{k}', shape)}; {copied}"
    return f"    {of} *a{k} = ({of} *)places[{k}];"


def _last(k: int, shape: Shape) -> str:
    """What brings a carry back to its place."""
    of = memory_of(shape.element_type)
    if shape.element_count == 1:
        return f"    *({of} *)places[{k}] = {stored(shape.element_type, f'a{k}')};"
    if is_local(shape):
        return f"    __builtin_memcpy(places[{k}], a{k}, {shape.element_count} * sizeof({of}));"
    return f"    if ((char *)a{k} != places[{k}]) __builtin_memcpy(places[{k}], a{k}, {shape.element_count} * sizeof({of}));"


def _in_whole_vectors(computations: Sequence[Computation], machine: Machine) -> bool:
    """Whether short arrays are computed with the rest of their last vector: where they go through functions that take longer than
    arithmetic, and all are made so. One of which the last elements are written alone is slow to read as vectors."""
    short = [i for c in reachable(computations) for i in c.instructions
             if i.shape.is_array and i.shape.is_static and with_rest(i.shape) > i.shape.element_count]
    return (any(is_vector_function(i, machine.fused) for i in short)
            and all(i.opcode in ELEMENTS or i.opcode in _IN_ORDER or i.is_parameter or i.is_element for i in short))


_IN_ORDER = frozenset({CONSTANT, movement.broadcast, movement.iota, movement.reshape, movement.copy, internal.bitcast,
                       internal.opt_barrier})
"""Ops beside the elementwise ones whose elements a loop gets in the order of memory."""


class ProgramWriter:
    """Writes computations one instruction after another."""

    def __init__(self, machine: Machine, *computations: Computation) -> None:
        self.machine, self.code, self.calls = machine, Code(machine.elements), 0
        self.code.whole_vectors = _in_whole_vectors(computations, machine)
        self.readers: dict[Instruction, list[Instruction]] = {}

    def iterate(self, loop: Loop, carries: list[Array], fixed: Collection[int], ended: str = "") -> None:
        """Write one step of a loop, or its end, where the line `ended` stands. Carries `fixed` are not written to: their memory
        may belong to the caller."""
        holds = self.run(loop.condition, [carries])
        assert isinstance(holds, Array)
        with self.code.block(f"if (!{holds.at(())})"):
            if ended:
                self.code.line(ended)
            self.code.line("break;")
        updates = _updates_of(self, loop.body, carries)
        results = self.run(loop.body, [carries], updates)
        assert isinstance(results, list)
        changed = [pair for k, pair in enumerate(zip(carries, results, strict=True)) if k not in fixed]
        self._advance(changed, updates)

    def _advance(self, changed: Sequence[tuple[Array, Array]], updates: _Updates) -> None:
        """Write each changed carry's result to the carry."""
        ready, in_place = list[tuple[Array, Array]](), list[tuple[Array, Array]]()
        for carry, result in changed:
            if carry is result:  # it is updated in place
                continue
            if carry.buffer in updates.overwritten:
                in_place.append((carry, result))
                continue
            taken = result.buffer in {r.buffer for _, r in ready}
            ready.append((carry, self.code.copy(result) if taken or result.is_single else self.code.owned(result)))
        for carry, result in in_place:  # which may read what is updated in part
            self.code.fill(carry.buffer, result)
        for write in updates.pending:
            write()
        for carry, result in ready:
            if carry.is_single:
                self.code.line(f"{carry.at(())} = {result.at(())};")
            elif is_local(carry.shape):
                self.code.line(f"__builtin_memcpy({carry.buffer}, {result.buffer}, sizeof {carry.buffer});")
            else:
                self.code.line(f"{{ void *other = {carry.buffer}; {carry.buffer} = {result.buffer}; {result.buffer} = other; }}")

    def run(self, computation: Computation, arguments: Sequence[Value], updates: _Updates | None = None) -> Value:
        """The value of a computation, whose code is written behind what there is."""
        values: dict[Instruction, Value] = dict(zip(computation.parameters, arguments, strict=True))
        self.readers.update({i: [] for i in computation.instructions})
        for instruction in computation.instructions:
            for operand in instruction.operands:
                self.readers[operand].append(instruction)
        for instruction in computation.instructions:
            if instruction not in values:
                values[instruction] = self._value(instruction, values, len(self.readers[instruction]), updates)
        return values[computation.root]

    def _value(self, instruction: Instruction, values: dict[Instruction, Value], uses: int, updates: _Updates | None) -> Value:
        operands = [values[o] for o in instruction.operands]
        if instruction.is_tuple:
            return operands  # pyright: ignore[reportReturnType]
        if instruction.is_element:
            whole = operands[0]
            assert isinstance(whole, list)
            return whole[instruction.attributes["index"]]
        if not all(s.is_array and s.is_static for s in instruction.shape.leaves()):
            raise Unfit("a token, or an array of dynamic size")
        if (found := without_elements(instruction, operands, self)) is not None:
            return found
        self.calls += calls_of(instruction)
        require_fit(instruction)
        if updates is not None and instruction in updates.carries:
            return updates.update(instruction, operands)
        if updates is not None and instruction in updates.products:
            return product(self, instruction, [o for o in operands if isinstance(o, Array)], updates.products[instruction].buffer)
        if updates is not None and instruction in updates.sums:
            return updates.sums[instruction]
        pair = differences_of_pair(instruction, self.readers)
        made = self._array(instruction, operands) if pair is None else self._exponential(instruction, pair, values)
        if not isinstance(made, Array) or made.stored:
            return made
        depth = 1 + max([o.depth for o in operands if isinstance(o, Array)], default=0)
        return self.code.copy(made) if made.is_single or uses > 1 or depth > DEEPEST else dataclasses.replace(made, depth=depth)

    def _array(self, instruction: Instruction, operands: list[Value]) -> Value:
        if instruction.opcode in ELEMENTS:
            arrays = [o for o in operands if isinstance(o, Array)]
            if any(a.shape.rank not in (0, instruction.shape.rank) for a in arrays):  # bits as others of another width
                raise Unfit(f"{instruction.opcode} of {arrays[0].shape} to {instruction.shape} is not in native code")
            self._count(instruction)
            return Array(instruction.shape, lambda index: self._element(instruction, arrays, index), stored=False,
                         reach=self._reach(instruction, arrays))
        rule = ARRAYS.get(instruction.opcode)
        if rule is None:
            raise Unfit(f"{instruction.opcode} is no op of native code")
        return rule(self, instruction, operands)

    def _reach(self, instruction: Instruction, operands: Sequence[Array]) -> int:
        """How far the elements of an elementwise op may be computed: none in vain that would take as long as another."""
        farthest = instruction.shape.element_count if is_one_by_one(instruction, self.machine.fused) else ANYWHERE
        return min([farthest, *(a.reach for a in operands if a.shape.rank)]) if instruction.shape.rank else ANYWHERE

    def _count(self, instruction: Instruction) -> None:
        """The work of an elementwise op, of which torch has some as well."""
        count = instruction.shape.element_count
        work = 0 if count == 1 else count * element_work(instruction, self.machine.fused)
        widest = next((o.shape for o in instruction.operands if o.shape.element_type.is_complex), instruction.shape)
        self.code.works(widest, work, count * VECTOR_WORK)

    def _element(self, instruction: Instruction, operands: Sequence[Value], index: Index) -> str:
        return element(instruction, [o.spread(index) for o in operands if isinstance(o, Array)], self.machine.fused)

    def _exponential(self, instruction: Instruction, pair: Sequence[Instruction], values: Mapping[Instruction, Value]) -> Array:
        """One of the exponentials of a pair of differences, which may be written by itself only later."""
        self._count(instruction)

        def at(index: Index) -> str:
            differences = [self._element(d, [values[o] for o in d.operands], index) for d in pair]
            return exponential_of_pair(instruction, differences, instruction.operands[0] is pair[0], self.machine.fused)

        return Array(instruction.shape, at, stored=False)


UPDATES = frozenset({indexing.dynamic_update_slice, indexing.scatter})


class _Updates:
    """Updates that are made where the arrays are that they change: `carries` by the update. They are written when all else has
    been computed, so that whatever reads the carry reads the old one.

    A product that is added to a carry, which nothing else reads, BLAS adds to it where it is. Where each element of a carry
    follows from the one in its place, and nothing else reads it, the new elements are written over the old ones (`overwritten`):
    two buffers that change places need twice the cache."""

    def __init__(self, writer: ProgramWriter, carries: Mapping[Instruction, Array]):
        self.writer, self.carries = writer, dict(carries)
        self.products: dict[Instruction, Array] = {}
        self.sums: dict[Instruction, Array] = {}
        self.overwritten: set[str] = set()
        self.pending: list[Callable[[], None]] = []

    def update(self, instruction: Instruction, operands: Sequence[Value]) -> Array:
        code, carry, arrays = self.writer.code, self.carries[instruction], [o for o in operands if isinstance(o, Array)]
        if instruction.opcode == indexing.scatter:
            indices, update = map(self._kept, arrays[1:])
            self.pending.append(lambda: write_scatter(self.writer, instruction, [carry], indices, [update]))
            return carry
        _, update, *indices = arrays
        begin, update = starts(code, indices, carry.shape, update.shape), self._kept(update)
        self.pending.append(lambda: write_update(code, carry, update, begin))
        return carry

    def _kept(self, array: Array) -> Array:
        """The array as it is now, whatever carries become."""
        return self.writer.code.copy(array) if array.is_single else self.writer.code.owned(array)


def _updates_of(writer: ProgramWriter, body: Computation, carries: Sequence[Array]) -> _Updates:
    """The updates of a body that can be made where its carries are: a chain of them from a carry to the same one, which nothing
    else follows on."""
    updates, uses = _Updates(writer, {}), Counter(o for i in body.instructions for o in i.operands)
    readers: dict[Instruction, list[Instruction]] = {i: [] for i in body.instructions}
    for instruction in body.instructions:
        for operand in instruction.operands:
            readers[operand].append(instruction)
    for k, (carry, result) in enumerate(zip(carries, body.root.operands, strict=True)):
        chain: list[Instruction] = []
        while result.opcode in UPDATES and uses[result] == 1 and result.shape.is_array:
            chain.append(result)
            result = result.operands[0]
        if carry.buffer and result.is_element and result.operands[0].is_parameter and result.attributes["index"] == k:
            updates.carries.update(dict.fromkeys(chain, carry))
        made = _added_product(body, result, k, uses)
        by_blas = made is not None and blas_routine(writer.machine, made)
        is_whole = carry.buffer and not is_local(carry.shape) and carry.shape.element_type not in HALVES
        if not chain and is_whole and made is not None and by_blas:
            updates.products[made], updates.sums[result] = carry, carry
        elif not chain and carry.buffer and not is_local(carry.shape) and _is_place_by_place(body, result, k, readers):
            updates.overwritten.add(carry.buffer)
    return updates


def _is_place_by_place(body: Computation, result: Instruction, k: int, readers: Mapping[Instruction, list[Instruction]]) -> bool:
    """Whether the elements of carry `k` are read for those of its next value in their places, and for nothing else."""
    if result.opcode not in ELEMENTS or readers[result] != [body.root]:
        return False
    ahead = [i for i in body.instructions if i.is_element and i.operands[0].is_parameter and i.attributes["index"] == k]
    seen = {result, *ahead}
    while ahead:
        for reader in readers[ahead.pop()]:
            if reader.opcode not in ELEMENTS or reader.shape.dimensions != result.shape.dimensions:
                return False
            if reader not in seen:
                seen.add(reader)
                ahead.append(reader)
    return True


def _added_product(body: Computation, result: Instruction, k: int, uses: Mapping[Instruction, int]) -> Instruction | None:
    """The dot that a carry's next value adds to the carry, also in the form of its transpose; None where there is no such, or
    somebody else reads one of the three."""
    if result.opcode != elementwise.add or uses[result] != 1:
        return None
    reads = [i for i in body.instructions if i.is_element and i.operands[0].is_parameter and i.attributes["index"] == k]
    if len(reads) != 1 or uses[reads[0]] != 1:
        return None
    others = [o for o in result.operands if o is not reads[0]]
    if len(others) != 1:
        return None
    (made,) = others
    batch = range(made.shape.rank - 2)
    is_turned = turns(made) and list(made.attributes["dimensions"][:-2]) == list(batch) and uses[made] == 1
    if is_turned:
        made = made.operands[0]
    if made.opcode != contraction.dot or uses[made] != 1:
        return None
    return None if is_turned and len(made.attributes.get("lhs_batch_dims", ())) != len(batch) else made
