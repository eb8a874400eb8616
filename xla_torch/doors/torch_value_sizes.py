"""Sizes that depend on values, in graphs of torch.export: symbols, each a size of an operator's result when it runs."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from .. import functions as ops
from ..core.errors import UnsupportedError, XlaWarning
from ..core.shape import UNBOUNDED, Shape
from ..core.types import F64, S32, S64, PrimitiveType
from ..functions.hlo_builder import Builder, XlaOp
from ..opcodes.dynamic import INT32_MAX

Symbolic = (torch.SymInt, torch.SymFloat, torch.SymBool)
Range: TypeAlias = tuple[int, int]


def depends_on_values(value: Any) -> bool:
    """Whether a tensor has sizes that are symbols, or a value is one."""
    sizes = value.shape if isinstance(value, torch.Tensor) else [value]
    return any(isinstance(n, Symbolic) for n in sizes)


class ValueSizes:
    """The symbols that are known as far as a program is built: of each, the greatest size, and the op that is the size."""

    def __init__(self, builder: Builder):
        self._builder = builder
        self._known: dict[Any, tuple[int, XlaOp]] = {}
        self._values: set[Any] = set()
        """The symbols that are values of the program: what bounds them is what torch._check was told."""

    def shape(self, element_type: PrimitiveType, sizes: Sequence[Any]) -> Shape:
        """The shape of these sizes, with bounds for those that depend on values; a symbol that is still to be known has none."""
        ranges = [(n, n) if type(n) is int else self._range(n) for n in sizes]
        flags = [low != high for low, high in ranges]
        return Shape.array(element_type, [n if not flag or n == UNBOUNDED else max(n, 2)
                                          for (_, n), flag in zip(ranges, flags, strict=True)], flags)

    def learn(self, found: XlaOp, sizes: Sequence[Any]) -> None:
        """Take sizes of an operator's result for the symbols that they are."""
        for d, size in enumerate(sizes):
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol and size.node.expr not in self._known:
                self._known[size.node.expr] = found.shape.dimensions[d], ops.GetDimensionSize(found, d)

    def take(self, value: Any, found: XlaOp) -> XlaOp:
        """The number that a value of the program is, of which `torch.export` made a symbol."""
        if isinstance(value, torch.SymBool) or not value.node.expr.is_Symbol:
            raise UnsupportedError("a value of the program that becomes a truth in Python", subject="item", got=found.shape,
                                   expected="a number", hint="torch.where(condition, x, y) or torch.cond")
        symbol, is_float = value.node.expr, isinstance(value, torch.SymFloat)
        upper = value.node.shape_env.bound_sympy(symbol).upper
        bound = int(upper) if not is_float and upper.is_Integer and upper <= INT32_MAX else UNBOUNDED
        number = ops.ConvertElementType(ops.Reshape(found, []), F64 if is_float else S64)
        if is_float:  # a number of Python's has no derivative, and bits have none
            number = ops.BitcastConvertType(ops.BitcastConvertType(number, S64), F64)
        self._known[symbol] = bound, number
        self._values.add(symbol)
        return number

    def fitted(self, found: XlaOp, sizes: Sequence[Any], name: str) -> XlaOp:
        """A result with dynamic dimensions where torch has symbols, which `learn` knows: where it has the bound it is cut."""
        shape = self.shape(found.element_type, sizes)
        for d, (size, flag) in enumerate(zip(sizes, shape.dynamic_flags, strict=True)):
            if found.shape.dimensions[d] != shape.dimensions[d] or (found.shape.dynamic_flags[d] and not flag):
                raise UnsupportedError("a size that depends on values has another bound than torch makes of the sizes before",
                                       subject=name, got=found.shape, expected=shape)
            if flag and not found.shape.dynamic_flags[d]:
                found = ops.SetDimensionSize(found, ops.ConvertElementType(self.number(size), S32), d)
        return found

    # ---- expressions

    def number(self, value: Any) -> XlaOp | None:
        """A symbolic number, s64[] or f64[]; nothing for a truth, which only checks ask for."""
        return None if isinstance(value, torch.SymBool) else self._op(value.node.expr)

    def _op(self, expression: Any) -> XlaOp:
        kind = type(expression).__name__
        if expression.is_Integer:
            return self._builder.constant(int(expression), S64)
        if expression.is_Symbol:
            found = self._symbol(expression)[1]
            return found if expression in self._values else ops.ConvertElementType(found, S64)
        if kind not in _OPS:
            raise UnsupportedError("a number made of sizes that depend on values", subject="from_torch", got=str(expression),
                                   expected=", ".join(_OPS))
        return functools.reduce(_OPS[kind], map(self._op, expression.args)) if len(expression.args) > 1 else _as_float(
            self._op(expression.args[0]))

    def _symbol(self, symbol: Any) -> tuple[int, XlaOp]:
        if symbol not in self._known:
            raise UnsupportedError("a number that is a value of the program, and no size of a result", subject="from_torch",
                                   got=str(symbol), expected="sizes of what nonzero, masks, unique and repeat_interleave give")
        return self._known[symbol]

    def _range(self, size: Any) -> Range:
        expression = size.node.expr
        if expression.is_Symbol and expression not in self._known:
            return 0, UNBOUNDED
        return self._between(expression)

    def _bound(self, symbol: Any) -> int:
        bound, _ = self._symbol(symbol)
        if symbol not in self._values:
            return bound
        if bound == UNBOUNDED:
            raise UnsupportedError("a size that is a value of the program, and nothing says how great it may be",
                                   subject="from_torch", got=str(symbol), expected="n = x.item(); torch._check(n <= 8)")
        warnings.warn(f"from_torch: {symbol}, a value of the program, is a size of at most {bound}: XLA does not check that "
                      "while it runs, and what is more is cut off", XlaWarning, stacklevel=2)
        return bound

    def _between(self, expression: Any) -> Range:
        kind = type(expression).__name__
        if expression.is_Integer:
            return int(expression), int(expression)
        if expression.is_Symbol:
            return 0, self._bound(expression)
        if kind not in _ENDS:
            raise UnsupportedError("a size made of sizes that depend on values", subject="from_torch", got=str(expression),
                                   expected=", ".join(_ENDS))
        parts = list(map(self._between, expression.args))
        return functools.reduce(_ENDS[kind], parts)


def _as_float(x: XlaOp) -> XlaOp:
    return x if x.element_type is F64 else ops.ConvertElementType(x, F64)


def _divided(a: XlaOp, b: XlaOp) -> XlaOp:
    return ops.Div(_as_float(a), _as_float(b))


def _floored(a: XlaOp, b: XlaOp) -> XlaOp:
    return ops.Div(ops.Sub(a, ops.Rem(ops.Add(ops.Rem(a, b), b), b)), b)


def _of_floats(function: Callable[[XlaOp, XlaOp], XlaOp]) -> Callable[[XlaOp, XlaOp], XlaOp]:
    def apply(a: XlaOp, b: XlaOp) -> XlaOp:
        return function(a, b) if a.element_type is b.element_type else function(_as_float(a), _as_float(b))

    return apply


_OPS: dict[str, Callable[[XlaOp, XlaOp], XlaOp]] = {
    "Add": _of_floats(ops.Add), "Mul": _of_floats(ops.Mul), "Min": ops.Min, "Max": ops.Max, "IntTrueDiv": _divided,
    "FloorDiv": _floored, "FloatTrueDiv": _divided, "ToFloat": lambda a, b: a}
"""What torch makes numbers of sizes with."""


def _products(a: Range, b: Range) -> Range:
    ends = [x * y for x in a for y in b]
    return min(ends), max(ends)


def _quotients(a: Range, b: Range) -> Range:
    if b[0] <= 0:
        raise UnsupportedError("a size that is divided by what may be 0", subject="from_torch", got=f"{b[0]} to {b[1]}")
    ends = [x // y for x in a for y in b]
    return min(ends), max(ends)


_ENDS: dict[str, Callable[[Range, Range], Range]] = {
    "Add": lambda a, b: (a[0] + b[0], a[1] + b[1]), "Mul": _products, "FloorDiv": _quotients,
    "Min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "Max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1]))}
