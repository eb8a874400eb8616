"""Long reductions by regions in native code. To scalars by what is not associative they are loops, which native code takes over
(`kernels/native.py`): elements meet one after another, so that torch has nothing to do at once. By what is associative they are
one function (`kernels/native_reductions.py`)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..analysis.associativity import is_commutative
from ..codegen.compiled import is_available
from ..codegen.elements import Unfit
from ..codegen.loops import loop_source
from ..codegen.reductions import reduce_blocks
from ..core import tuning
from ..core.shape import Shape
from ..core.types import S32
from ..functions import Call, DynamicSlice, GetTupleElement, Lt, Reshape, Tuple, While
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.ir import Computation
from ..hlo.regions import is_loop
from ..kernels.native import machine
from ..kernels.native_reductions import NativeReduction
from ..transform.canonical import canonicalize
from .emit import Tracer
from .values import Number, Splat, Value, evaluator


def folded_by_a_loop(reducer: Computation, operands: Sequence[Value], inits: Sequence[Value], shape: Shape) -> list[Value] | None:
    """The operands, arrays of this shape, reduced to scalars from the inits on; None where torch does it as well: if there are
    few elements, or if no native code can be made of the loop."""
    runner = evaluator()
    if not (isinstance(runner, Tracer) and runner.device.type == "cpu" and is_available() and shape.is_static):
        return None
    is_long = tuning.FOLDED_BY_A_LOOP_FROM <= shape.element_count < 1 << 31
    if not is_long or math.isinf(tuning.NATIVE_AFTER):
        return None
    computation = _loop(reducer, shape.element_count)
    (loop,) = (i for i in computation.instructions if is_loop(i))
    try:
        loop_source(loop, frozenset(range(1 + len(inits), len(loop.shape.tuple_shapes))), machine())
    except Unfit:
        return None
    starts = [Splat(init) if isinstance(init, Number) else init for init in inits]
    return list(runner.run(computation, [*starts, *(o.reshape(-1) for o in operands)]))


def native_reduction(reducer: Computation, shape: Shape) -> Value | None:
    """What reduces arrays of this shape by an associative reducer in native code, for `reduce_by`; None where torch does it as
    well: if there are few elements, or if no native code can be made of the reducer."""
    runner = evaluator()
    if not (isinstance(runner, Tracer) and runner.device.type == "cpu" and not runner.portable and is_available()):
        return None
    if shape.has_sizes or not shape.is_static or shape.element_count < tuning.REDUCED_NATIVELY_FROM:
        return None
    try:
        text = reduce_blocks(canonicalize(reducer), machine(), is_commutative(reducer))
    except Unfit:
        return None
    native = NativeReduction(text)
    native.begin()
    return runner.submodule(f"{reducer.name}_native", native)


def _loop(reducer: Computation, size: int) -> Computation:
    """Of scalars to begin with and as many vectors: the scalars after all elements of the vectors."""
    kinds = [p.shape.element_type for p in reducer.parameters[:len(reducer.parameters) // 2]]
    builder, count = Builder("fold"), len(kinds)
    scalars = [builder.parameter(k, Shape.array(t)) for k, t in enumerate(kinds)]
    vectors = [builder.parameter(count + k, Shape.array(t, [size])) for k, t in enumerate(kinds)]
    start = Tuple(builder, [builder.constant(0, S32), *scalars, *vectors])

    condition = Builder("elements_left")
    carry = condition.parameter(0, start.shape)
    left = Lt(GetTupleElement(carry, 0), condition.constant(size, S32))

    body = Builder("element")
    place, *carried = _elements(body.parameter(0, start.shape))
    elements = [Reshape(DynamicSlice(x, [place], [1]), []) for x in carried[count:]]
    met = Call(body, reducer, [*carried[:count], *elements])
    results = _elements(met) if met.shape.is_tuple else [met]
    after = body.finish(Tuple(body, [place + 1, *results, *carried[count:]]))
    loop = While(condition.finish(left), after, start)
    return canonicalize(builder.finish(Tuple(builder, _elements(loop)[1:1 + count])))


def _elements(whole: XlaOp) -> list[XlaOp]:
    return [GetTupleElement(whole, k) for k in range(len(whole.shape.tuple_shapes))]
