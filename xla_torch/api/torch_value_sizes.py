"""Sizes that depend on values, in graphs of torch.export: symbols, each a size of an operator's result when it runs."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeAlias

import torch

from .. import functions as ops
from ..aten.checks import require, require_size
from ..core.errors import UnsupportedError, XlaWarning
from ..core.shape import UNBOUNDED, Shape
from ..core.types import F64, PRED, S32, S64, PrimitiveType
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.checks import Assumption
from ..opcodes.dynamic import INT32_MAX

Symbolic = (torch.SymInt, torch.SymFloat, torch.SymBool)
Range: TypeAlias = tuple[int, int]


def depends_on_values(value: Any) -> bool:
    """Whether a tensor has sizes that are symbols, or a value is one."""
    sizes = value.shape if isinstance(value, torch.Tensor) else [value]
    return any(isinstance(n, Symbolic) for n in sizes)


class ValueSizes:
    """The symbols that are known as far as a program is built: of each, the greatest size, and the op that is the size."""

    def __init__(self, builder: Builder, equal: Mapping[Any, Any]):
        self._builder, self._equal = builder, dict(equal)
        self._known: dict[Any, tuple[int, XlaOp]] = {}
        self._counts: dict[Any, XlaOp] = {}
        """How many a mask chooses, s64[], by what says which mask it is."""
        self._values: set[Any] = set()
        """The symbols that are values of the program: what bounds them is what torch._check was told."""
        self._most: dict[Any, int] = {}
        """How great a symbol can be, where that is less than the bound."""
        self._required: set[Any] = set()
        self.are_assumed = False
        """Whether the sizes that are known are the example's."""

    def shape(self, element_type: PrimitiveType, sizes: Sequence[Any]) -> Shape:
        """The shape of these sizes, with bounds for those that depend on values; a symbol that is still to be known has none."""
        ranges = [(n, n) if type(n) is int else self._range(n) for n in sizes]
        flags = [low != high for low, high in ranges]
        return Shape.array(element_type, [n if not flag or n == UNBOUNDED else max(n, 2)
                                          for (_, n), flag in zip(ranges, flags, strict=True)], flags)

    def learn(self, found: XlaOp, sizes: Sequence[Any], mask: Hashable, most: int | None, where: str) -> None:
        """Take sizes of an operator's result for the symbols that they are. Where `mask` says what chooses how many there are, a
        size that torch has for a known one is checked to be that."""
        for d, size in enumerate(sizes):
            if not found.shape.dynamic_flags[d]:
                self._learn_fixed(size, found.shape.dimensions[d])
                continue
            if not isinstance(size, torch.SymInt):  # torch knows it by an assertion
                known = self.assumed(where, size, d)
                require_size(found, d, size, f"dimension {d} has size {size}", where, known)
                continue
            expression = self._expression(size)
            if expression.is_Symbol and expression not in self._known:
                self._known[expression] = found.shape.dimensions[d], self._count(found, d, mask)
                self._most[expression] = found.shape.dimensions[d] if most is None else min(most, found.shape.dimensions[d])
            elif mask is not None and not (expression.is_Symbol and self._known[expression][1] is self._count(found, d, mask)):
                known = self.assumed(where, int(expression), d) if expression.is_Integer else None
                require_size(found, d, self._op(expression), f"dimension {d} has size {expression}", where, known)

    def _learn_fixed(self, size: Any, fixed: int) -> None:
        """Take the size of a result that always has this one for the symbol that torch has for it."""
        if isinstance(size, torch.SymInt) and (expression := self._expression(size)).is_Symbol and expression not in self._known:
            self._equal[expression] = expression * 0 + fixed

    def assumed(self, where: str, size: int, dim: int) -> Assumption | None:
        """The assumption that an operator in the user's line has a result of a size, where sizes are the example's."""
        return self._assumption(f"the size of dimension {dim}", size, where)

    def _assumption(self, what: str, value: int, where: str) -> Assumption | None:
        if not self.are_assumed:
            return None
        found = _PLACE.match(where)
        what = f"{what} in {(found and found['code']) or 'a result'}"
        return Assumption(what, value, found["file"], int(found["line"])) if found else Assumption(what, value, where, 0)

    def _count(self, found: XlaOp, dim: int, mask: Hashable) -> XlaOp:
        """The size of a dimension. Of what one mask chooses there is one."""
        if mask is None:
            return ops.GetDimensionSize(found, dim)
        if mask not in self._counts:
            self._counts[mask] = ops.GetDimensionSize(found, dim)
        return self._counts[mask]

    def is_count(self, size: Any, chosen: Hashable) -> bool:
        """Whether a size is that of what a mask chooses, or another size that depends on the same values."""
        if not isinstance(size, torch.SymInt) or (expression := self._expression(size)) not in self._known:
            return False
        if isinstance(chosen, torch.SymInt):
            return self._expression(chosen) == expression
        return self._known[expression][1] is self._counts.get(chosen)

    def take(self, value: Any, found: XlaOp, where: str) -> XlaOp | int:
        """The number that a value of the program is, of which `torch.export` made a symbol, or which it was told."""
        if isinstance(value, Symbolic) and not isinstance(value, torch.SymBool) and (
                not self._expression(value).is_Symbol or self._expression(value) in self._known):
            self._require_value(found, self._op(self._expression(value)), str(self._expression(value)), where)
            return self._op(self._expression(value))
        if not isinstance(value, Symbolic):
            self._require_value(found, self._builder.constant(value, found.element_type), str(value), where)
            return value
        if isinstance(value, torch.SymBool):
            raise UnsupportedError("a value of the program is converted to a Python bool", subject="item", got=found.shape,
                                   expected="a number", hint="use torch.where(condition, x, y) or torch.cond")
        symbol, is_float = value.node.expr, isinstance(value, torch.SymFloat)
        upper = value.node.shape_env.bound_sympy(symbol).upper
        bound = int(upper) if not is_float and upper.is_Integer and upper <= INT32_MAX else UNBOUNDED
        number = ops.ConvertElementType(ops.Reshape(found, []), F64 if is_float else S64)
        if is_float:  # a number of Python's has no derivative, and bits have none
            number = ops.BitcastConvertType(ops.BitcastConvertType(number, S64), F64)
        self._known[symbol] = bound, number
        self._values.add(symbol)
        return number

    def _require_value(self, found: XlaOp, expected: XlaOp, asserted: str, where: str) -> None:
        number, fixed = ops.ConvertElementType(ops.Reshape(found, []), expected.element_type), None
        if asserted.isdecimal():
            fixed = self._assumption("the value", int(asserted), where)
        require(ops.Eq(number, expected), f"the value is {asserted}", {"the value": number}, where, fixed)

    def fitted(self, found: XlaOp, sizes: Sequence[Any], name: str) -> XlaOp:
        """A result with dynamic dimensions where torch has symbols, which `learn` knows: where it has the bound it is cut."""
        shape = self.shape(found.element_type, sizes)
        for d, (size, flag) in enumerate(zip(sizes, shape.dynamic_flags, strict=True)):
            if found.shape.dimensions[d] != shape.dimensions[d] or (found.shape.dynamic_flags[d] and not flag):
                raise UnsupportedError("a size that depends on values has another bound than torch makes of the sizes before",
                                       subject=name, got=found.shape, expected=shape)
            if flag and not found.shape.dynamic_flags[d]:
                found = ops.SetDimensionSize(found, ops.ConvertElementType(self._op(self._expression(size)), S32), d)
        return found

    # ---- expressions

    def number(self, value: Any) -> XlaOp | int | None:
        """A symbolic number, s64[] or f64[], as a number where it is one; nothing for a truth, which only checks ask for."""
        if isinstance(value, torch.SymBool):
            return None
        expression = self._expression(value)
        return int(expression) if expression.is_Integer else self._op(expression)

    def is_known(self, value: Any) -> bool:
        """Whether all sizes of a tensor, or a number, are known before the program runs."""
        sizes = value.shape if isinstance(value, torch.Tensor) else [value]
        return all(not isinstance(n, Symbolic) or self._expression(n).is_Integer for n in sizes)

    def _expression(self, value: Any) -> Any:
        """A number in symbols that torch knows nothing more of, of which equal ones are one."""
        expression = value.node.expr.subs(self._equal)
        first = {id(number): symbol for symbol, (_, number) in reversed(self._known.items())}
        same = {s: first[id(self._known[s][1])] for s in expression.free_symbols if s in self._known}
        return expression.xreplace(same)

    def require(self, asserted: Any, where: str, assumption: Assumption | None = None) -> None:
        """Check what torch.export asserts of sizes and values, unless it always holds."""
        if isinstance(asserted, bool) or asserted in self._required or self._always(asserted):
            return
        self._required.add(asserted)
        try:
            values = {str(s): self._op(s) for s in sorted(asserted.free_symbols, key=str)}
            require(self._truth(asserted), str(asserted), values, where, assumption)
        except UnsupportedError as error:
            if assumption is not None:
                raise
            warnings.warn(f"from_torch: {asserted} ({where}) is not checked: {error.what}", XlaWarning, stacklevel=2)

    def relation(self, function: Callable[[Any, Any], Any], *values: Any) -> Any:
        """What a comparison of numbers says of the symbols in them."""
        return function(*(self._expression(v) if isinstance(v, Symbolic) else v for v in values))

    def truth(self, value: Any) -> Any:
        """What a truth says of the symbols in it."""
        return self._expression(value) if isinstance(value, Symbolic) else value

    def _always(self, asserted: Any) -> bool:
        """Whether a comparison holds for all sizes that there can be."""
        kind = type(asserted).__name__
        if kind in ("BooleanTrue", "BooleanFalse"):
            return kind == "BooleanTrue"
        if kind not in _SURE or asserted.free_symbols & self._values or not asserted.free_symbols <= self._known.keys():
            return False
        try:
            return _SURE[kind](*(self._between(side, self._most.__getitem__) for side in asserted.args))
        except UnsupportedError:
            return False

    def _truth(self, asserted: Any) -> XlaOp:
        """A condition on numbers, pred[]."""
        kind = type(asserted).__name__
        if kind in ("BooleanTrue", "BooleanFalse"):
            return self._builder.constant(kind == "BooleanTrue", PRED)
        if kind in _JOINED:
            return functools.reduce(_JOINED[kind], map(self._truth, asserted.args))
        if kind == "Not":
            return ops.Not(self._truth(asserted.args[0]))
        if kind not in _COMPARED:
            raise UnsupportedError("unknown comparison", got=str(asserted))
        return _of_floats(_COMPARED[kind])(*map(self._op, asserted.args))

    def _op(self, expression: Any) -> XlaOp:
        kind = type(expression).__name__
        if expression.is_Integer:
            return self._builder.constant(int(expression), S64)
        if expression.is_Float:
            return self._builder.constant(float(expression), F64)
        if expression.is_Symbol:
            found = self._symbol(expression)[1]
            return found if expression in self._values else ops.ConvertElementType(found, S64)
        if kind == "ToFloat":
            return _as_float(self._op(expression.args[0]))
        if kind == "Abs":
            return ops.Abs(self._op(expression.args[0]))
        if kind in _ROUNDED:
            return self._rounded(expression, _ROUNDED[kind])
        if kind not in _OPS or (kind in ("FloatPow", "Pow") and not _is_natural(expression.args[1])):
            raise UnsupportedError("a number made of sizes that depend on values", subject="from_torch", got=str(expression),
                                   expected=", ".join((*_OPS, *_ROUNDED, "Abs")))
        if kind in _QUOTIENTS and expression.args[1].free_symbols & self._values:
            self._refuse_zero(expression.args[1])
        return functools.reduce(_OPS[kind], map(self._op, expression.args))

    def _refuse_zero(self, divisor: Any) -> None:
        """Check a number that Python divides by."""
        if divisor not in self._required:
            self._required.add(divisor)
            number = self._op(divisor)
            require(ops.Ne(number, self._builder.constant(0, number.element_type)), f"{divisor} is not 0",
                    {str(divisor): number}, "")

    def _rounded(self, expression: Any, rounds: Callable[[XlaOp], XlaOp]) -> XlaOp:
        """A float as an integer. The program raises where it is none of 64 bits."""
        number = _as_float(self._op(expression.args[0]))
        if expression not in self._required:
            self._required.add(expression)
            require(ops.Lt(ops.Abs(number), 2.0 ** 63), f"{expression.args[0]} is an integer of 64 bits",
                    {str(expression.args[0]): number}, "")
        return ops.ConvertElementType(rounds(number), S64)

    def _symbol(self, symbol: Any) -> tuple[int, XlaOp]:
        if symbol not in self._known:
            raise UnsupportedError("a value of the program is used as a number that is not a size", subject="from_torch",
                                   got=str(symbol), expected="sizes of what nonzero, masks, unique and repeat_interleave give")
        return self._known[symbol]

    def _range(self, size: Any) -> Range:
        expression = self._expression(size)
        if expression.is_Symbol and expression not in self._known:
            return 0, UNBOUNDED
        return self._between(expression, self._bound)

    def _bound(self, symbol: Any) -> int:
        bound, _ = self._symbol(symbol)
        if symbol not in self._values:
            return bound
        if bound == UNBOUNDED:
            raise UnsupportedError("a size depends on data and has no upper bound",
                                   subject="from_torch", got=str(symbol), expected="n = x.item(); torch._check(n <= 8)")
        return bound

    def _between(self, expression: Any, bound: Callable[[Any], int]) -> Range:
        kind = type(expression).__name__
        if expression.is_Integer:
            return int(expression), int(expression)
        if expression.is_Symbol:
            return 0, bound(expression)
        if kind not in _ENDS:
            raise UnsupportedError("a size made of sizes that depend on values", subject="from_torch", got=str(expression),
                                   expected=", ".join(_ENDS))
        parts = [self._between(part, bound) for part in expression.args]
        return functools.reduce(_ENDS[kind], parts)


_PLACE = re.compile(r"(?P<file>.+?):(?P<line>\d+), in [^:]+(?:: (?P<code>.*))?")


def _as_float(x: XlaOp) -> XlaOp:
    return x if x.element_type is F64 else ops.ConvertElementType(x, F64)


def _is_natural(power: Any) -> bool:
    """Whether a power is known and gives a float for each float: roots of negative numbers are complex."""
    return power.is_number and float(power).is_integer() and power >= 0


def _divided(a: XlaOp, b: XlaOp) -> XlaOp:
    return ops.Div(_as_float(a), _as_float(b))


def _floored(a: XlaOp, b: XlaOp) -> XlaOp:
    return ops.Div(ops.Sub(a, _remainder(a, b)), b)


def _remainder(a: XlaOp, b: XlaOp) -> XlaOp:
    return ops.Rem(ops.Add(ops.Rem(a, b), b), b)


def _of_floats(function: Callable[[XlaOp, XlaOp], XlaOp]) -> Callable[[XlaOp, XlaOp], XlaOp]:
    def apply(a: XlaOp, b: XlaOp) -> XlaOp:
        return function(a, b) if a.element_type is b.element_type else function(_as_float(a), _as_float(b))

    return apply


_OPS: dict[str, Callable[[XlaOp, XlaOp], XlaOp]] = {
    "Add": _of_floats(ops.Add), "Mul": _of_floats(ops.Mul), "Min": ops.Min, "Max": ops.Max, "IntTrueDiv": _divided,
    "FloorDiv": _floored, "FloatTrueDiv": _divided, "FloatPow": _of_floats(ops.Pow), "Mod": _remainder,
    "PythonMod": _remainder, "Pow": ops.Pow, "PowByNatural": ops.Pow, "BitwiseFn_bitwise_and": ops.And,
    "BitwiseFn_bitwise_or": ops.Or}
_QUOTIENTS = ("IntTrueDiv", "FloatTrueDiv", "FloorDiv", "Mod", "PythonMod")
_ROUNDED: dict[str, Callable[[XlaOp], XlaOp]] = {"FloorToInt": ops.Floor, "CeilToInt": ops.Ceil, "TruncToInt": lambda a: a}
"""What torch makes numbers of sizes with."""


def _products(a: Range, b: Range) -> Range:
    ends = [x * y for x in a for y in b]
    return min(ends), max(ends)


def _quotients(a: Range, b: Range) -> Range:
    if b[0] <= 0:
        raise UnsupportedError("a size is divided by a number that may be 0", subject="from_torch", got=f"{b[0]} to {b[1]}")
    ends = [x // y for x in a for y in b]
    return min(ends), max(ends)


_ENDS: dict[str, Callable[[Range, Range], Range]] = {
    "Add": lambda a, b: (a[0] + b[0], a[1] + b[1]), "Mul": _products, "FloorDiv": _quotients,
    "Min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "Max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1]))}

_COMPARED: dict[str, Callable[[XlaOp, XlaOp], XlaOp]] = {
    "Equality": ops.Eq, "Unequality": ops.Ne, "GreaterThan": ops.Ge, "LessThan": ops.Le, "StrictGreaterThan": ops.Gt,
    "StrictLessThan": ops.Lt}
_JOINED: dict[str, Callable[[XlaOp, XlaOp], XlaOp]] = {"And": ops.And, "Or": ops.Or}

_SURE: dict[str, Callable[[Range, Range], bool]] = {
    "GreaterThan": lambda a, b: a[0] >= b[1], "LessThan": lambda a, b: a[1] <= b[0],
    "StrictGreaterThan": lambda a, b: a[0] > b[1], "StrictLessThan": lambda a, b: a[1] < b[0],
    "Unequality": lambda a, b: a[1] < b[0] or b[1] < a[0]}
"""When a comparison holds wherever its sides are between these ends."""
