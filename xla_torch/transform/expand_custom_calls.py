"""Custom calls that are plain XLA ops in other words: written as those ops, they print, run and differentiate as they do.

Compiled programs for the CPU call LAPACK for Cholesky factors and triangular solves, and routines of XLA's own for TopK and
for dynamic sizes. Partitioners and memory placement mark values by calls that only pass them on. `expansion` gives the
computation that stands for one such instruction, `expand` puts it in the place of every one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from ..builder import XlaBuilder, XlaOp
from ..hlo.ir import Computation, Instruction
from ..interop.custom_calls import CustomCall, is_registered
from ..shape import Shape
from ..types import PRED, S32
from .inline import Inliner, Value, rebuilt

_LAPACK = re.compile(r"lapack_[sdcz](potrf|trsm)_ffi")
_IDENTITIES = frozenset({"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "xla.sdy.FuncResultSharding",
                         "xla.sdy.GlobalToLocalShape", "xla.sdy.LocalToGlobalShape", "annotate_device_placement",
                         "MoveToHost", "MoveToDevice", "PinToDevice", "PinToDeviceSram", "Pin", "Unpin", "LayoutConstraint"})


def expand(computation: Computation) -> Computation:
    """The computation in plain form (see `inline`), with ops in place of the custom calls that have an expansion."""
    return rebuilt(computation, _Expander)


class _Expander(Inliner):
    def visit(self, instruction: Instruction, operands: list[Value], arguments: Sequence[Value]) -> Value:
        meaning = expansion(instruction) if instruction.opcode == "custom-call" and not _has_own_gradient(instruction) else None
        return self.run(meaning, operands) if meaning else super().visit(instruction, operands, arguments)


def _has_own_gradient(instruction: Instruction) -> bool:
    from grad_rules._user import target_rule

    return target_rule(instruction.attributes["custom_call_target"]) is not None


def expansion(instruction: Instruction) -> Computation | None:
    """A computation of the instruction's operands that does what a custom call does, or None where there is none.

    A function that the user registered for the target goes first.
    """
    target = instruction.attributes["custom_call_target"]
    lapack = _LAPACK.fullmatch(target)
    rule = _RULES.get(lapack.group(1) if lapack else target)
    if rule is None and target in _IDENTITIES and _keeps_shape(instruction):
        rule = _identity
    if rule is None or is_registered(target):
        return None
    builder = XlaBuilder(re.sub(r"\W", "_", target))
    operands = [builder.parameter(k, o.shape.without_layout()) for k, o in enumerate(instruction.operands)]
    return builder.finish(rule(builder, instruction, operands))


def _keeps_shape(instruction: Instruction) -> bool:
    return len(instruction.operands) == 1 and instruction.operands[0].shape.compatible(instruction.shape)


Rule = Callable[[XlaBuilder, Instruction, Sequence[XlaOp]], XlaOp]


def _described(instruction: Instruction) -> CustomCall:
    return CustomCall(instruction.attributes["custom_call_target"], instruction.shape.without_layout(),
                      str(instruction.common.get("backend_config", "")))


def _identity(builder: XlaBuilder, instruction: Instruction, operands: Sequence[XlaOp]) -> XlaOp:
    return builder.add("copy", operands)


def _nothing(builder: XlaBuilder, instruction: Instruction, operands: Sequence[XlaOp]) -> XlaOp:
    """Of a call that only has its operands computed."""
    return builder.add("tuple", [])


def _zeros(builder: XlaBuilder, instruction: Instruction, operands: Sequence[XlaOp]) -> XlaOp:
    """Of a buffer that nothing has been written to."""
    shape = instruction.shape
    return _broadcast(builder, builder.constant(0, shape.element_type), shape.dimensions)


# ------------------------------------------------------------------------------------------- linear algebra


def _potrf(builder: XlaBuilder, instruction: Instruction, operands: Sequence[XlaOp]) -> XlaOp:
    """(factor in one triangle and the operand's elements in the other, info)."""
    (a,), call = operands, _described(instruction)
    lower = call.letter("uplo", "L") == "L"
    factor = builder.add("cholesky", [a], {"lower": lower})
    inside = _triangle(builder, a.shape, lower)
    kept = builder.add("select", [inside, factor, a])
    # A matrix that is not positive definite has a factor of NaN: info is whether its last element is.
    rank, size = a.shape.rank, a.shape.dimensions[-1]
    info_shape = call.shape.tuple_shapes[1]
    if not size:
        return builder.add("tuple", [kept, _broadcast(builder, builder.constant(0), info_shape.dimensions)])
    bounds = tuple((0, n, 1) if d < rank - 2 else (n - 1, n, 1) for d, n in enumerate(a.shape.dimensions))
    last = builder.add("slice", [factor], {"slice": bounds}, a.shape.with_dimensions([*a.shape.dimensions[:-2], 1, 1]))
    last = builder.add("reshape", [last], {}, a.shape.with_dimensions(info_shape.dimensions))
    if last.element_type.is_complex:
        last = builder.add("real", [last])
    failed = builder.add("compare", [last, last], {"direction": "NE"})
    return builder.add("tuple", [kept, builder.add("convert", [failed], {}, Shape.array(S32, info_shape.dimensions))])


def _triangle(builder: XlaBuilder, shape: Shape, lower: bool) -> XlaOp:
    """PRED of the shape: inside the triangle."""
    size = shape.dimensions[-1]
    mask = np.tri(size, dtype=np.bool_)
    matrix = builder.constant(np.ascontiguousarray(mask if lower else mask.T), PRED)
    return builder.add("broadcast", [matrix], {"dimensions": (shape.rank - 2, shape.rank - 1)},
                       Shape.array(PRED, shape.dimensions))


def _broadcast(builder: XlaBuilder, scalar: XlaOp, dimensions: Sequence[int]) -> XlaOp:
    return builder.add("broadcast", [scalar], {"dimensions": ()}, Shape.array(scalar.element_type, dimensions))


def _trsm(builder: XlaBuilder, instruction: Instruction, operands: Sequence[XlaOp]) -> XlaOp:
    """The solution, which LAPACK writes over the right side."""
    call = _described(instruction)
    transposed = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}[call.letter("trans_x", "N")]
    return builder.add("triangular-solve", operands, {
        "left_side": call.letter("side", "L") == "L", "lower": call.letter("uplo", "L") == "L",
        "unit_diagonal": call.letter("diag", "N") == "U", "transpose_a": transposed})


# ------------------------------------------------------------------------------------------- XLA's own


def _top_k(builder: XlaBuilder, instruction: Instruction, operands: Sequence[XlaOp]) -> XlaOp:
    """(largest values, their indices)."""
    return builder.add("topk", operands, {"k": instruction.shape.tuple_shapes[0].dimensions[-1], "largest": True})


def _partial_reduce(builder: XlaBuilder, instruction: Instruction, operands: Sequence[XlaOp]) -> XlaOp:
    """The first elements of a dimension in the comparator's order: of the answers that are allowed, one that misses nothing.

    Where more are asked for than there are, the rest is filled with the init values.
    """
    arrays, inits = operands[:len(operands) // 2], operands[len(operands) // 2:]
    dimension = _described(instruction).config["reduction_dim"]
    results = instruction.shape.tuple_shapes if instruction.shape.is_tuple else (instruction.shape,)
    (comparator,) = instruction.called_computations
    ordered = builder.add("sort", arrays, {"dimensions": (dimension,), "is_stable": True, "to_apply": comparator})
    parts = [ordered]
    if len(arrays) > 1:
        parts = [builder.add("get-tuple-element", [ordered], {"index": k}) for k in range(len(arrays))]
    found = [_resized(builder, part, init, dimension, result.dimensions[dimension])
             for part, init, result in zip(parts, inits, results, strict=True)]
    return builder.add("tuple", found) if instruction.shape.is_tuple else found[0]


def _resized(builder: XlaBuilder, x: XlaOp, filler: XlaOp, dimension: int, size: int) -> XlaOp:
    """The first elements of a dimension, with fillers behind where there are fewer."""
    padding = tuple((0, size - n if d == dimension else 0, 0) for d, n in enumerate(x.shape.dimensions))
    return builder.add("pad", [x, filler], {"padding": padding})


def _pad_to_static(builder: XlaBuilder, instruction: Instruction, operands: Sequence[XlaOp]) -> XlaOp:
    """(the elements in an array as large as the bounds, the size of each dimension)."""
    (x,) = operands
    sizes = [builder.add("get-dimension-size", [x], {"dimensions": (d,)}) for d in range(x.shape.rank)]
    static = x
    for d, bound in enumerate(x.shape.dimensions):
        if x.shape.dynamic_flags[d]:
            flags = [flag and k > d for k, flag in enumerate(x.shape.dynamic_flags)]
            static = builder.add("set-dimension-size", [static, builder.constant(bound, S32)], {"dimensions": (d,)},
                                 x.shape.with_dimensions(x.shape.dimensions, flags))
    return builder.add("tuple", [static, *sizes])


def _slice_to_dynamic(builder: XlaBuilder, instruction: Instruction, operands: Sequence[XlaOp]) -> XlaOp:
    """An array of which each dynamic dimension has the size that an operand says."""
    x, *sizes = operands
    for d, size in enumerate(sizes):
        if instruction.shape.dynamic_flags[d]:
            x = builder.add("set-dimension-size", [x, size], {"dimensions": (d,)})
    return x


_RULES: dict[str, Rule] = {
    "potrf": _potrf, "trsm": _trsm, "TopK": _top_k, "PartialReduce": _partial_reduce, "PadToStatic": _pad_to_static,
    "SliceToDynamic": _slice_to_dynamic, "AllocateBuffer": _zeros, "CreateBuffer": _zeros, "dce_sink": _nothing,
    "InspectSharding": _nothing,
}
