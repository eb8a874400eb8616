"""Op bodies: reduce-window and select-and-scatter."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...analysis.associativity import is_associative
from ...analysis.comparators import compared_in_order, is_of_an_order
from ...analysis.reducers import reducer_kind, reducer_kinds
from ...hlo.attributes import Region, Window, WindowDimension
from ...hlo.ir import Computation, Instruction
from ...kernels import reduction
from ...kernels import window as kernels
from ...opcodes.reducer_kinds import ReducerKind
from ...opcodes.reduction import split_operands
from ...opcodes.reduction_order import IN_ORDER_IN_WINDOW, running_dimension
from ...transform.canonical import without_calls
from ..body_table import body
from ..monoids import kind_of_reducer, monoid
from ..values import Value, apply_region, emit, region_function
from .reduction import converted, init_tensor

# ------------------------------------------------------------------------------------------------ reduce-window


@body("reduce-window", numbers="operands")
def reduce_window(inst: Instruction, *operands: Value, to_apply: Region, window: Window) -> Value:
    values, inits = split_operands(operands)
    results = list(inst.shape.leaves())
    sources = [o.shape.element_type for o in inst.operands]
    values = [converted(v, s, r.element_type) for v, s, r in zip(values, sources, results, strict=False)]
    inits = [converted(init_tensor(v, s), s, r.element_type)
             for v, s, r in zip(inits, sources[len(values):], results, strict=True)]
    reduced = _reduced_windows(inst, values, inits, window, to_apply)
    return tuple(reduced) if inst.shape.is_tuple else reduced[0]


def _reduced_windows(inst: Instruction, values: list[Value], inits: list[Value], window: Sequence[WindowDimension],
                     to_apply: Computation) -> list[Value]:
    results = list(inst.shape.leaves())
    plain = geometry(window)
    if all(kernels.is_trivial(d) for d in plain):
        return apply_region(to_apply, [*inits, *values], results[0].dimensions)
    kinds = (kind_of_reducer(to_apply),) if len(values) == 1 else reducer_kinds(to_apply)
    known = [monoid(kind, r.element_type) for kind, r in zip(kinds, results, strict=True)]
    along = running_dimension(inst.operands[0].shape, window)
    inclusive = along[:2] if along is not None and not along[2] else None
    if all(m is not None for m in known):
        folded = [m.reduce_windows(v, plain) if inclusive is None else m.running(v, *inclusive)
                  for m, v in zip(known, values, strict=True) if m is not None]
        if all(m.ignores(init) for m, init in zip(known, inits, strict=True) if m is not None):
            return folded
        return apply_region(to_apply, [*inits, *folded], results[0].dimensions)
    combine = region_function(to_apply)
    if not is_associative(to_apply):
        if along is None:
            found = emit(kernels.reduce_windows_in_order, combine, tuple(values), tuple(inits), plain)
        else:
            found = emit(kernels.running_in_order, combine, tuple(values), tuple(inits), *along)
        return [found[k] for k in range(len(values))]
    if inclusive is not None:
        found = emit(reduction.running, combine, tuple(values), *inclusive)
        return apply_region(to_apply, [*inits, *(found[k] for k in range(len(values)))], results[0].dimensions)
    found = emit(kernels.reduce_windows_by, combine, tuple(values), tuple(inits), plain)
    return [found[k] for k in range(len(values))]


def geometry(window: Sequence[WindowDimension]) -> tuple[tuple[int, ...], ...]:
    """The window in the form that kernels take."""
    return tuple((w.size, w.stride, w.padding_low, w.padding_high, w.base_dilation, w.window_dilation) for w in window)


# ------------------------------------------------------------------------------------------------ select-and-scatter


@body("select-and-scatter", numbers="init_value")
def select_and_scatter(inst: Instruction, operand: Value, source: Value, init_value: Value, *, select: Region,
                       scatter: Region, window: Window) -> Value:
    init, plain = init_tensor(init_value, inst.operands[2].shape.element_type), geometry(window)
    large = math.prod([size for size, *_ in plain]) > IN_ORDER_IN_WINDOW
    opened = without_calls(select)
    known: dict[str, bool | str] = {
        "transitive": is_of_an_order(opened), "but_for_nan": is_of_an_order(opened, but_for_nan=True),
        "associative": is_associative(scatter)} if large else {}
    known["compares"] = compared_in_order(opened) if reducer_kind(scatter) is ReducerKind.ADD else ""
    return emit(kernels.select_and_scatter, region_function(select), region_function(scatter), operand, source, init, plain,
                **{name: holds for name, holds in known.items() if holds})
