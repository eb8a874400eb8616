"""Bundles: small ops that run as one native call (`kernels/native_bundles.py`), where torch needs some microseconds for each.

A program is lowered with its small ops in fusions (`transform/small_fusions.py`), and each of these becomes the source of a
function and, for as long as that is not there, a program of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..analysis.loops import counted_loop
from ..analysis.opened import size_with_regions
from ..codegen.arrays import ARRAYS
from ..codegen.compiled import is_available, machine_code
from ..codegen.elements import ELEMENTS, VECTOR_WORK, Unfit, element, element_work, is_native
from ..codegen.linalg import routine_needed
from ..codegen.loops import Source, bundle_source
from ..codegen.sums import calls_of, require_fit, terms_of
from ..core import tuning
from ..core.shape import Shape
from ..hlo.inference import has_effect
from ..hlo.ir import Computation, Instruction
from ..hlo.stacks import is_stack, value_shape
from ..hlo.structure import CONSTANT, GET_TUPLE_ELEMENT
from ..kernels.native import can_fuse, machine, made_after, options
from ..kernels.native_bundles import NativeBundle, bundle
from ..opcodes import contraction, control, indexing, movement, reduction
from ..passes.optional import attempt, runs
from ..storage.dtypes import storage_dtype
from ..transform.small_fusions import VIEWS, fuse_small, region_of
from .constants import fold_constants
from .emit import Tracer, describe, is_of_sizes
from .plans import PlanWriter, array_of, bytes_of
from .values import Value, evaluator


def with_bundles(tracer: Tracer, computation: Computation) -> Computation:
    """The computation with its small ops in fusions, where native code may run them."""
    if tracer.device.type != "cpu" or not tracer.bundles or tracer.portable or tracer.fuses or not tracer.overwrites:
        return computation
    if math.isinf(tuning.NATIVE_AFTER) or not is_available():
        return computation
    if runs("constants"):
        computation = attempt("constants", fold_constants, computation)
    return attempt("bundles", _in_fusions, computation)


def _in_fusions(computation: Computation) -> Computation:
    ends = _ends(computation)
    results = len(ends.intersection(computation.root.operands)) if computation.root.is_tuple else 1
    many = tuning.BUNDLE_MOST < len(ends) <= tuning.ENDS_OF_A_RESULT * results
    apart = _of_blocks(computation) | (ends if many else set())
    weights = _Weights()
    return fuse_small(computation, lambda i: None if i in apart else weights.of_step(i), tuning.BUNDLE_LEAST)


class _Weights:
    """What the ops of a computation weigh, each asked once: natively, or as a step of a plan."""

    def __init__(self) -> None:
        self._native: dict[Instruction, int | None] = {}
        self._small: dict[Computation, bool] = {}

    def native(self, i: Instruction) -> int | None:
        """What an op counts for in native code; None where it has none."""
        if i not in self._native:
            self._native[i] = _weight(i)
        return self._native[i]

    def of_step(self, i: Instruction) -> int | None:
        """What an op counts for among those that run together; None where it is none of them."""
        weight = self.native(i)
        if weight is not None or not self._is_step(i):
            return weight
        return tuning.BUNDLE_LEAST if i.opcode in (control.while_, control.conditional) else 0

    def _is_step(self, i: Instruction) -> bool:
        """Whether an op without native code may run within a plan: on small arrays, by itself."""
        if is_of_sizes(i) or i.schema.exchange or not all(s.is_array for s in i.shape.leaves()):
            return False
        shapes = [*i.shape.leaves(), *(s for o in i.operands for s in o.shape.leaves())]
        arrays = [value_shape(s) if is_stack(s) else s for s in shapes]
        if not all(s.is_array and s.is_static and s.element_count <= tuning.BUNDLED_UP_TO for s in arrays):
            return False
        if i.opcode in (control.while_, control.conditional):
            return all(map(self._is_plan, i.called_computations)) and not _is_long(i)
        return not i.called_computations or not has_effect(i)

    def _is_plan(self, computation: Computation) -> bool:
        """Whether all of a loop's or branch's computation may run within a plan."""
        if computation not in self._small:
            self._small[computation] = all(
                i.is_parameter or i.is_tuple or i.is_element or i.opcode == CONSTANT or self.of_step(i) is not None
                for i in computation.instructions)
        return self._small[computation]


def _ends(computation: Computation) -> set[Instruction]:
    """Elementwise ops that are used by each other and as results alone: many of them, as in an optimizer, are one native call at
    the program's end, and small code (`passes/foreach.py`)."""
    within: dict[Instruction, bool] = {}
    ends: set[Instruction] = set()
    for i in reversed(computation.instructions):
        is_end = within.get(i, True) and i.schema.elementwise
        if is_end:
            ends.add(i)
        for operand in i.operands:
            joins = i is computation.root or (is_end and operand.shape.dimensions == i.shape.dimensions)
            within[operand] = within.get(operand, True) and joins
    return ends


def _of_blocks(computation: Computation) -> set[Instruction]:
    """Small ops that cost nothing where blocks work on large arrays (`passes/blocking.py`): elementwise ones on what these were
    reduced to, and that is spread over them again, and gathers that go before arithmetic (`passes/one_of_rows.py`)."""
    behind, between = set[Instruction](), set[Instruction]()
    for i in computation.instructions:
        is_reduced = i.opcode == reduction.reduce and _is_large(i.operands[0])
        if is_reduced or ((i.schema.elementwise or i.opcode in VIEWS) and not behind.isdisjoint(i.operands)):
            behind.add(i)
    for i in reversed(computation.instructions):
        if i.opcode == indexing.gather and i.operands[0].schema.elementwise and _is_large(i.operands[0]):
            between.add(i)
        elif _is_large(i) or i in between:
            between.update(o for o in i.operands if o in behind and not _is_large(o))
    return between


def _is_large(instruction: Instruction) -> bool:
    return any(s.is_array and s.is_static and s.element_count > _most_in_passes() for s in instruction.shape.leaves())


def _weight(instruction: Instruction) -> int | None:
    """What an op counts for in a bundle; None where native code does not know it, or torch takes longer to compute than to call
    it. A loop is always worth it: torch, or native code of its own, has some calls around it."""
    opcode = instruction.opcode
    if is_of_sizes(instruction):  # its source would be about one size
        return None
    if opcode in (control.while_, control.conditional):
        return tuning.BUNDLE_LEAST if _has_small_control(instruction) else None
    shapes = [*instruction.shape.leaves(), *(o.shape for o in instruction.operands)]
    if (opcode not in ELEMENTS and opcode not in ARRAYS) or not all(map(_is_native, shapes)):
        return None
    read = instruction.operands[1:] if opcode in _READ_IN_PART else instruction.operands
    most = _most_in_passes() if opcode in ELEMENTS or opcode in _IN_PASSES else tuning.BUNDLED_UP_TO
    if any(s.element_count > most for s in (*instruction.shape.leaves(), *(o.shape for o in read))):
        return None
    try:
        _require_code(instruction)
    except Unfit:
        return None
    if opcode in ELEMENTS:
        work = max(0.0, element_work(instruction, can_fuse()) - VECTOR_WORK)  # beyond torch's own
        return 1 if instruction.shape.element_count * work <= tuning.NATIVE_UNDER else None
    if opcode == contraction.dot and terms_of(instruction) > tuning.BUNDLED_PRODUCTS:
        return None
    return 0 if opcode in VIEWS else calls_of(instruction)


def _most_in_passes() -> int:
    """Elements of an array up to which one pass over it is bundled."""
    return tuning.BUNDLED_UP_TO * max(1, tuning.BUNDLED_BY_ONE // torch.get_num_threads())


def _require_code(instruction: Instruction) -> None:
    """Raise Unfit where elements of these types have no code of the op, or of one in its regions."""
    require_fit(instruction)
    if (routine := routine_needed(instruction)) and routine not in machine().routines:
        raise Unfit(f"torch's library does not show {routine}")
    for i in (instruction, *(i for region in instruction.called_computations for i in region.instructions)):
        if i.opcode in ELEMENTS:
            element(i, [""] * len(i.operands))


def _is_native(shape: Shape) -> bool:
    return shape.is_array and shape.is_static and is_native(shape.element_type)


def _has_small_control(instruction: Instruction) -> bool:
    """Whether a loop or branch is as small as ops of a bundle are, but for what a loop only reads, and native code knows all of
    it."""
    results = instruction.called_computations[-1].root.operands
    if not instruction.shape.is_tuple or not all(map(_is_native, instruction.shape.tuple_shapes)):
        return False
    changed = [s for s, result in zip(instruction.shape.tuple_shapes, results, strict=True) if not result.is_element]
    if sum(s.element_count for s in changed) > 8 * tuning.BUNDLED_UP_TO:
        return False
    if sum(map(size_with_regions, instruction.called_computations)) > tuning.BUNDLE_MOST:
        return False
    source = _source_of(instruction)
    if source is None or source.work > source.calls * tuning.NATIVE_UNDER:
        return False
    return not _takes_long(instruction, source)


def _is_long(instruction: Instruction) -> bool:
    """Whether a loop is better native code by itself, which takes over in the middle of its first run."""
    if instruction.opcode != control.while_ or counted_loop(instruction) is None:
        return False
    if max(map(size_with_regions, instruction.called_computations)) > tuning.NATIVE_INSTRUCTIONS:
        return False
    source = _source_of(instruction)
    return source is not None and _takes_long(instruction, source)


def _takes_long(instruction: Instruction, source: Source) -> bool:
    counted = counted_loop(instruction) if instruction.opcode == control.while_ else None
    if counted is None or counted.trip_count < tuning.BUNDLED_STEPS:
        return False
    return counted.trip_count * source.calls * tuning.NATIVE_CALL > tuning.BUNDLED_LOOP


def _source_of(instruction: Instruction) -> Source | None:
    """The source of a loop or branch alone."""
    tuples = list(dict.fromkeys(o for o in instruction.operands if o.is_tuple))
    inputs = list(dict.fromkeys(o for i in (*tuples, instruction) for o in i.operands if o not in tuples))
    parts = [Instruction(GET_TUPLE_ELEMENT, s, [instruction], {"index": k}) for k, s in enumerate(instruction.shape.tuple_shapes)]
    try:
        return bundle_source(region_of("alone", [*tuples, instruction, *parts], inputs, parts), machine())
    except Unfit:
        return None


_IN_PASSES = frozenset({*VIEWS, movement.concatenate, movement.pad, movement.reverse, movement.copy, movement.iota,
                        reduction.reduce, indexing.dynamic_slice, indexing.dynamic_update_slice})
"""Ops that go once through arrays, beside elementwise ones."""

_READ_IN_PART = frozenset({movement.slice_, indexing.dynamic_slice, indexing.gather})
"""Ops that read no more elements of the first operand than they give."""


def lower_fusion(instruction: Instruction, operands: Sequence[Value], region: Computation) -> Value:
    """The value of a fusion: a bundle where that can be, otherwise what its computation gives."""
    tracer = evaluator()
    bundled = _bundled(tracer, instruction, operands, region) if isinstance(tracer, Tracer) and tracer.shapes_hold else None
    return tracer.run(region, operands) if bundled is None else bundled


def _bundled(tracer: Tracer, instruction: Instruction, operands: Sequence[Value], region: Computation) -> Value | None:
    weights = _Weights()
    source = _bundle_of(region, weights)
    inner = tracer.inside()
    inner.bundles = False
    if source is not None and _seconds_in_torch(region) >= made_after(source.text):
        inner.whole = machine_code(source.text, options())
        inner.whole.make()  # beside the lowering of what runs until it is there
    inputs = [inner.placeholder(p.name, p.shape) for p in region.parameters]
    results = inner.run(region, inputs)
    made = instruction.shape.tuple_shapes
    outputs = tuple(inner.rows(v, s) if is_stack(s) else inner.materialise(v, s) for v, s in zip(results, made, strict=True))
    module = inner.finish(outputs, "Bundle", fresh_outputs=True)
    if source is not None:
        sizes = [bytes_of(p.shape) for p in region.parameters]
        native = NativeBundle(source, module, sizes, list(map(array_of, made)), 8 * _most_in_passes())
    else:
        native = PlanWriter(tracer, weights.native, region).native(module, 8 * _most_in_passes())
    given = tuple(tracer.materialise(v, p.shape) for v, p in zip(operands, region.parameters, strict=True))
    found = tracer.emit(bundle, tracer.submodule(instruction.name, native), given)
    found.node.meta["owned"] = frozenset(range(len(made)))
    found.node.meta["inside"] = [i for i in region.instructions if i.operands and i is not region.root]
    parts = tuple(found[k] for k in range(len(made)))
    for part, shape in zip(parts, made, strict=True):
        describe(part.node, shape, storage_dtype)
    return parts


def _bundle_of(region: Computation, weights: _Weights) -> Source | None:
    """The source of a region as one function of bounded length; None where it is a plan."""
    ops = [i for i in region.instructions if not (i.is_parameter or i.is_tuple or i.is_element)]
    if sum(weights.native(i) or 0 for i in ops) > tuning.BUNDLE_MOST or size_with_regions(region) > 4 * tuning.BUNDLE_MOST:
        return None
    try:
        source = bundle_source(region, machine())
    except Unfit:
        return None
    return None if source.work > source.calls * tuning.NATIVE_UNDER else source


def _seconds_in_torch(region: Computation) -> float:
    """What the loops of a bundle take in torch at least, as far as their steps are counted."""
    loops = [(i, counted_loop(i)) for i in region.instructions if i.opcode == control.while_]
    return sum(counted.trip_count * size_with_regions(i.called_computations[-1]) * tuning.NATIVE_CALL
               for i, counted in loops if counted is not None)

