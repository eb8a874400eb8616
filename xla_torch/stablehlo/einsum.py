"""Rules: ``einsum`` and ``unary_einsum``, with the meaning that XLA's client gives their letters."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from ..core.errors import InvalidArgument
from ..core.shape import Shape
from ..core.types import S32
from ..functions.comparison import Eq, Select
from ..functions.elementwise_binary import And
from ..functions.hlo_builder import Builder, XlaOp
from ..functions.movement import Broadcast, Iota
from ..mlir.ir import Operation
from ..opcodes import elementwise, movement, reduction
from .attributes import text
from .contraction import product
from .movement import broadcast_any_order
from .reading_rules import Results, rule
from .scope import Scope

_labels = re.compile(r"[A-Za-z]*+(?:\.\.\.)?+[A-Za-z]*+")
_ELLIPSIS = 0xE000
"""The dimensions of ``...`` have letters from this one on, the last dimension the first of them."""


@rule("stablehlo.einsum")
def einsum(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return _einsum(scope, operation, operands, text(operation, "einsum_config"))


@rule("stablehlo.unary_einsum")
def unary_einsum(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    """A sum of products with one."""
    one = scope.constant(np.ones((), operands[0].element_type.numpy))
    return _einsum(scope, operation, [one, *operands], "," + text(operation, "einsum_config"))


def _einsum(scope: Scope, operation: Operation, operands: Sequence[XlaOp], config: str) -> XlaOp:
    """Letters that both operands have and the result has not are summed; those that all have are batches."""
    sides, result = _letters(config, [o.shape.rank for o in operands])
    (lhs, left), (rhs, right) = (_diagonal(scope, o, letters) for o, letters in zip(operands, sides, strict=True))
    stretched = _stretched(config, lhs, left, rhs, right)
    in_left, in_right = set(left) - stretched[0], set(right) - stretched[1]
    lhs, left = _summed(scope, lhs, left, (in_right | set(result)) - stretched[0])
    rhs, right = _summed(scope, rhs, right, (in_left | set(result)) - stretched[1])
    batch = [c for c in left if c in right and c in result]
    contracted = [c for c in left if c in right and c not in result]
    made = product(scope, operation, [lhs, rhs], {
        "lhs_batch_dims": [left.index(c) for c in batch], "rhs_batch_dims": [right.index(c) for c in batch],
        "lhs_contracting_dims": [left.index(c) for c in contracted],
        "rhs_contracting_dims": [right.index(c) for c in contracted]})
    return _arranged(scope, made, batch + [c for c in left if c not in right] + [c for c in right if c not in left], result)


# ---------------------------------------------------------------------------------------------------------------- letters


def _letters(config: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """A letter for each dimension of the operands and of the result, which without an arrow has those that stand once, sorted,
    behind the dimensions of ellipses."""
    inputs, arrow, result = config.replace(" ", "").partition("->")
    sides = inputs.split(",")
    if len(sides) != len(ranks) or not all(map(_labels.fullmatch, (*sides, result))):
        raise _misfit(config)
    hidden = [rank - len(side.replace("...", "")) for side, rank in zip(sides, ranks, strict=True)]
    if any(count < 0 or (count and "..." not in side) for side, count in zip(sides, hidden, strict=True)):
        raise _misfit(config)
    if not arrow:
        counts = Counter("".join(sides))
        result = "..." + "".join(sorted(c for c, count in counts.items() if count == 1 and c != "."))
    names = [chr(_ELLIPSIS + k) for k in reversed(range(max(hidden)))]
    whole = [side.replace("...", "".join(names[len(names) - count:])) for side, count in zip(sides, hidden, strict=True)]
    result = result.replace("...", "".join(names))
    if not set(result) <= set("".join(whole)):
        raise _misfit(config)
    return whole, result


def _misfit(config: str) -> InvalidArgument:
    return InvalidArgument("the einsum does not fit the operands", got=config, expected="letters, as ab,bc->ac or ...a,ab->...b")


def _stretched(config: str, lhs: XlaOp, left: str, rhs: XlaOp, right: str) -> tuple[set[str], set[str]]:
    """The letters of dimensions of size 1, of each side, where the other side's is not."""
    sizes = [dict(zip(letters, o.shape.dimensions, strict=True)) for o, letters in ((lhs, left), (rhs, right))]
    differing = [c for c in left if c in right and sizes[0][c] != sizes[1][c]]
    if any(1 not in (sizes[0][c], sizes[1][c]) for c in differing):
        raise InvalidArgument("a letter of the einsum has two sizes", got=f"{config} of {lhs.shape}, {rhs.shape}")
    return {c for c in differing if sizes[0][c] == 1}, {c for c in differing if sizes[0][c] != 1}


# ----------------------------------------------------------------------------------------------------- what is built of them


def _diagonal(scope: Scope, operand: XlaOp, letters: str) -> tuple[XlaOp, str]:
    """The operand with one dimension for each letter: of several, the elements on the diagonal."""
    again = [d for d, letter in enumerate(letters) if letters.index(letter) != d]
    if not again:
        return operand, letters
    return _reduced(scope, _off_diagonal_zero(scope, operand, letters), again), "".join(dict.fromkeys(letters))


def _off_diagonal_zero(scope: Scope, operand: XlaOp, letters: str) -> XlaOp:
    """The operand where the places of equal letters are equal, zero elsewhere."""
    shape, here = operand.shape, None
    for d, letter in enumerate(letters):
        first = letters.index(letter)
        if first == d:
            continue
        if shape.dimensions[first] != shape.dimensions[d]:
            raise InvalidArgument("dimensions of one letter differ in size", got=shape)
        places = [Iota(scope.builder, shape.with_element_type(S32), k) for k in (first, d)]
        here = Eq(*places) if here is None else And(here, Eq(*places))
    zero = scope.constant(np.zeros((), operand.element_type.numpy))
    return operand if here is None else Select(here, operand, Broadcast(zero, shape.dimensions))


def _summed(scope: Scope, operand: XlaOp, letters: str, kept: set[str]) -> tuple[XlaOp, str]:
    """The operand summed along the dimensions whose letters are not kept, and the letters that are left."""
    lone = [d for d, letter in enumerate(letters) if letter not in kept]
    return _reduced(scope, operand, lone) if lone else operand, "".join(c for c in letters if c in kept)


def _reduced(scope: Scope, operand: XlaOp, dimensions: Sequence[int]) -> XlaOp:
    """The sum along dimensions."""
    builder = Builder("sum")
    builder.add(elementwise.add, [builder.parameter(k, Shape(operand.element_type)) for k in range(2)])
    zero = scope.constant(np.zeros((), operand.element_type.numpy))
    return scope.add(reduction.reduce, [operand, zero], {"dimensions": tuple(dimensions), "to_apply": builder.finish()})


def _arranged(scope: Scope, made: XlaOp, order: Sequence[str], result: str) -> XlaOp:
    """The product with its dimensions as in the result; where a letter stands several times there, on the diagonal."""
    once = list(dict.fromkeys(result))
    permutation = tuple(order.index(c) for c in once)
    if permutation != tuple(range(len(order))):
        made = scope.add(movement.transpose, [made], {"dimensions": permutation})
    if len(once) == len(result):
        return made
    sizes = dict(zip(once, made.shape.dimensions, strict=True))
    whole = broadcast_any_order(scope, made, [sizes[c] for c in result], [result.index(c) for c in once])
    return _off_diagonal_zero(scope, whole, result)
