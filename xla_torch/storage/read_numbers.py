"""Python's arithmetic with floats that it reads from tensors, while torch.export traces a model.

torch notes such arithmetic in sympy, which takes ``(x + 1e20) - 1e20`` for x, knows no zero that is divided by, and lacks most
functions. Here each operation is one of torch on float64 tensors, whose result is read: it rounds as Python does, and the program
raises where Python would.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributions.utils
import torch.fx.experimental.proxy_tensor
import torch.fx.experimental.symbolic_shapes

from .replaced_attributes import Put, replacing
from .torch_private import assert_in_graph, private

_is_tracing: Callable[[], Any] = private(torch.fx.experimental.proxy_tensor, "get_proxy_mode")
_is_of_kind: Callable[[Any, Any], bool] = private(torch.fx.experimental.symbolic_shapes, "symbol_is_type")
_Kinds: Any = private(torch.fx.experimental.symbolic_shapes, "SymT")
_READ, _UNKNOWN = _Kinds.UNBACKED_FLOAT, (_Kinds.UNBACKED_FLOAT, _Kinds.UNBACKED_INT)
_distributions: Any = torch.distributions.utils
_plain: tuple[type, ...] = private(_distributions, "_Number")
Function = Callable[..., Any]
_BEYOND = 2.0 ** 63  # the first float that is no int64


def _is_read(number: Any) -> bool:
    """Whether a float was read from a tensor, and is made of no size."""
    return isinstance(number, torch.SymFloat) and any(_is_of_kind(s, _READ) for s in number.node.expr.free_symbols)


def _is_unknown(number: Any) -> bool:
    """Whether a number is made of values of the program."""
    return isinstance(number, (torch.SymFloat, torch.SymInt)) and bool(symbols := number.node.expr.free_symbols) and all(
        _is_of_kind(s, _UNKNOWN) for s in symbols)


def _tensors(numbers: tuple[Any, ...]) -> list[torch.Tensor]:
    return [torch.scalar_tensor(number, dtype=torch.float64) for number in numbers]


def _floored(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """As Python's ``a // b``, which rounds ``(a - fmod(a, b)) / b`` and not ``a / b``: 1.0 // 0.1 is 9."""
    rest = torch.fmod(a, b)
    return torch.round((a - rest) / b) - ((rest != 0) & ((rest < 0) != (b < 0))).to(torch.float64)


def _quotient(name: str, function: Function) -> Function:
    """A division, which raises for a divisor of 0 and for nothing else."""
    def apply(*numbers: Any) -> Any:
        a, b = _tensors(numbers)
        assert_in_graph(b != 0, f"{name} has a divisor other than 0")
        return function(a, b).item()

    return apply


def _result(name: str, function: Function, numbers: tuple[Any, ...]) -> torch.Tensor:
    """A function of numbers. The program raises, as Python does, for NaN of other numbers and for infinity of finite ones."""
    given = _tensors(numbers)
    found = function(*given)
    with_nan, with_infinity = (functools.reduce(torch.logical_or, map(is_so, given)) for is_so in (torch.isnan, torch.isinf))
    assert_in_graph(found.isfinite() | with_nan | with_infinity & ~found.isnan(), f"{name} has a result")
    return found


def _number(name: str, function: Function) -> Function:
    return lambda *numbers: _result(name, function, numbers).item()


def _truth(function: Function) -> Function:
    return lambda *numbers: bool(function(*_tensors(numbers)))


def _unchecked(function: Function) -> Function:
    return lambda *numbers: function(*_tensors(numbers)).item()


def _whole(name: str, function: Function) -> Function:
    """A float as an integer. The program raises for one that has no 64 bits; Python has longer ones."""
    def apply(*numbers: Any) -> Any:
        found = function(*_tensors(numbers))
        assert_in_graph(found.abs() < _BEYOND, f"{name} has an integer of 64 bits")
        return found.to(torch.int64).item()

    return apply


def _rounded(number: Any, digits: Any = None) -> Any:
    if digits is None:
        return _whole("round", torch.round)(number)
    if type(digits) is int and 0 <= digits <= _EXACT_POWERS:
        return _decimal(_tensors((number,))[0], 10.0 ** digits).item()
    return round(float(number), digits)


_EXACT_POWERS = 22  # the powers of ten that float64 has
_SPLIT = 2.0 ** 27 + 1


def _decimal(x: torch.Tensor, scale: float) -> torch.Tensor:
    """The nearest multiple of ``1 / scale``, the even one of two: of the exact product with `scale`, as Python has it."""
    product = x * scale
    high, scale_high = (a * _SPLIT - (a * _SPLIT - a) for a in (x, scale))
    low, scale_low = x - high, scale - scale_high
    lost = ((high * scale_high - product) + high * scale_low + low * scale_high) + low * scale_low
    nearest = torch.round(product)
    # Halfway as rounded is one side of it where the product lost digits.
    is_halfway = ((product - nearest).abs() == 0.5) & (lost != 0)
    nearest = torch.where(is_halfway, product + torch.copysign(torch.full_like(lost, 0.5), lost), nearest)
    return torch.where(product.abs() < 2.0 ** 53, nearest / scale, x)


def _swapped(function: Function) -> Function:
    return lambda a, b: function(b, a)


_PAIRS: dict[str, Function] = {
    "__add__": _unchecked(torch.add), "__sub__": _unchecked(torch.sub), "__mul__": _unchecked(torch.mul),
    "__truediv__": _quotient("/", torch.div), "__mod__": _quotient("%", torch.remainder),
    "__floordiv__": _quotient("//", _floored)}
_POWERS: dict[str, Function] = {"__pow__": _number("**", torch.pow), "__rpow__": _swapped(_number("**", torch.pow)),
                                "__round__": _rounded}
_QUOTIENTS: dict[str, Function] = {
    "__divmod__": lambda a, b: (a // b, a % b), "__rdivmod__": lambda a, b: (b // a, b % a)}
_METHODS: dict[str, Function] = {
    **_PAIRS, **{name.replace("__", "__r", 1): _swapped(function) for name, function in _PAIRS.items()},
    "__abs__": _unchecked(torch.abs), "__neg__": _unchecked(torch.neg), **_QUOTIENTS,
    **{f"__{function.__name__}__": _whole(f"math.{function.__name__}", function)
       for function in (torch.floor, torch.ceil, torch.trunc)}}
"""Methods of floats."""
_OF_INTEGERS: dict[str, Function] = {
    **_QUOTIENTS, "__invert__": lambda a: -a - 1, "__xor__": lambda a, b: (a | b) - (a & b),
    "__rxor__": lambda a, b: (a | b) - (a & b)}
"""Methods of integers that torch lacks, or does not export."""
_THAT_GROW: dict[str, Function] = {
    "__mul__": torch.mul, "__pow__": torch.pow, "__lshift__": lambda a, b: torch.where(b < 0, math.inf, a * torch.exp2(b))}
"""Methods of integers whose results soon have more than 64 bits, by what they are about in float64."""


def _log(x: torch.Tensor, *base: torch.Tensor) -> torch.Tensor:
    return torch.log(x) / torch.log(*base) if base else torch.log(x)


def _is_close(a: Any, b: Any, rel_tol: float = 1e-9, abs_tol: float = 0.0) -> bool:
    first, second = _tensors((a, b))
    most = torch.maximum(first.abs(), second.abs())
    is_near = ((first - second).abs() <= torch.clamp(rel_tol * most, min=abs_tol)) & most.isfinite()
    return bool((first == second) | is_near)


_SAME: tuple[Any, ...] = (
    torch.sqrt, torch.exp, torch.exp2, torch.expm1, torch.log2, torch.log10, torch.log1p, torch.sin, torch.cos, torch.tan,
    torch.asin, torch.acos, torch.atan, torch.sinh, torch.cosh, torch.tanh, torch.asinh, torch.acosh, torch.atanh, torch.erf,
    torch.erfc, torch.atan2, torch.hypot, torch.fmod, torch.lgamma, torch.pow)
_MATH: dict[str, Function] = {
    **{function.__name__: _number(f"math.{function.__name__}", function) for function in _SAME},
    math.log.__name__: _number("math.log", _log), "fabs": _unchecked(torch.abs), "copysign": _unchecked(torch.copysign),
    "degrees": _unchecked(torch.rad2deg), "radians": _unchecked(torch.deg2rad),
    "isnan": _truth(torch.isnan), "isinf": _truth(torch.isinf), "isfinite": _truth(torch.isfinite), "isclose": _is_close}
"""Functions of Python's math, of which the last are decisions."""
_ALIKE: tuple[Any, ...] = (
    torch.sqrt, torch.exp, torch.exp2, torch.expm1, torch.log, torch.log2, torch.log10, torch.log1p, torch.sin, torch.cos,
    torch.tan, torch.arcsin, torch.arccos, torch.arctan, torch.sinh, torch.cosh, torch.tanh, torch.arcsinh, torch.arccosh,
    torch.arctanh, torch.arctan2, torch.hypot, torch.fmod, torch.remainder, torch.add, torch.subtract, torch.multiply,
    torch.divide, torch.negative, torch.absolute, torch.sign, torch.square, torch.reciprocal, torch.floor, torch.ceil,
    torch.trunc, torch.maximum, torch.minimum, torch.fmax, torch.fmin, torch.copysign, torch.rad2deg, torch.deg2rad)
_UFUNCS: dict[str, Function] = {
    **{function.__name__: _unchecked(function) for function in _ALIKE},
    "rint": _unchecked(torch.round), "power": _unchecked(torch.pow), "floor_divide": _unchecked(_floored),
    "fabs": _unchecked(torch.abs), "isnan": _truth(torch.isnan), "isinf": _truth(torch.isinf), "isfinite": _truth(torch.isfinite)}
"""Functions of NumPy, which raise nothing."""


@contextlib.contextmanager
def as_python() -> Iterator[None]:
    """A block in which this thread's floats that were read from tensors have Python's arithmetic. One at a time."""
    thread, importing = threading.get_ident(), [*_importing()]

    def is_traced() -> bool:
        return threading.get_ident() == thread and _is_tracing() is not None

    with replacing() as put:
        _put_all(put, importing, is_traced)
        yield


def _put_all(put: Put, importing: list[tuple[Any, str, str]], is_traced: Callable[[], bool]) -> None:
    for owner, table, concerns in _TABLES:
        for name, function in table.items():
            put(owner, name, _instead(vars(owner).get(name), function, lambda n, of=concerns: of(n) and is_traced()))
    for owner, name, of in importing:
        put(owner, name, vars(math)[of])
    for owner in (torch.SymInt, torch.SymFloat):
        put(owner, "__array_ufunc__", lambda *given, **options: _by_numpy(is_traced, *given, **options))
    for name, function in _THAT_GROW.items():
        for form, order in ((name, 1), (name.replace("__", "__r", 1), -1)):
            put(torch.SymInt, form, _limited(vars(torch.SymInt)[form], name.strip("_"), function, order, is_traced))
    for name in ("__eq__", "__ne__", "__le__", "__ge__"):
        put(torch.SymFloat, name, _compared(vars(torch.SymFloat)[name], name, is_traced))
    put(_distributions, "_Number", (*_plain, torch.SymInt, torch.SymFloat))


def _importing() -> Iterator[tuple[Any, str, str]]:
    """The modules other than torch's that imported functions of `math`: (module, the name there, the name in `math`)."""
    names = {function: name for name in _MATH if (function := vars(math).get(name)) is not None}
    for module in [m for name, m in sys.modules.items() if m is not math and name.partition(".")[0] != "torch"]:
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if type(value) is types.BuiltinFunctionType and value in names:
                yield module, name, names[value]


def _instead(before: Function | None, function: Function, concerns: Callable[[Any], bool]) -> Function:
    """A function for numbers that it concerns, and for others what was there before."""
    def apply(*numbers: Any, **options: Any) -> Any:
        if any(map(concerns, numbers)):
            return function(*numbers, **options) if all(isinstance(n, _NUMBERS) for n in numbers) else NotImplemented
        return NotImplemented if before is None else before(*numbers, **options)

    return apply


def _by_numpy(is_traced: Callable[[], bool], _: Any, ufunc: Any, method: str, *given: Any, **options: Any) -> Any:
    """A function of NumPy. One that is not known, or takes arrays too, decides by the numbers."""
    function = _UFUNCS.get(ufunc.__name__) if method == "__call__" and not options else None
    if function is not None and is_traced() and any(map(_is_unknown, given)) and all(isinstance(n, _NUMBERS) for n in given):
        return function(*given)
    plain = [float(n) if isinstance(n, torch.SymFloat) else int(n) if isinstance(n, torch.SymInt) else n for n in given]
    return getattr(ufunc, method)(*plain, **options)


def _limited(before: Function, name: str, about: Function, order: int, is_traced: Callable[[], bool]) -> Function:
    """A function of integers. The program raises for a result beyond 64 bits, unless its bounds are known to lie within."""
    def apply(*numbers: Any) -> Any:
        found = before(*numbers)
        if isinstance(found, torch.SymInt) and _is_unknown(found) and is_traced() and not _is_bounded(found):
            assert_in_graph(about(*_tensors(numbers)[::order]).abs() < _BEYOND, f"{name} has an integer of 64 bits")
        return found

    return apply


def _is_bounded(number: torch.SymInt) -> bool:
    bounds = number.node.shape_env.bound_sympy(number.node.expr)
    return bool(bounds.lower > -_BEYOND) and bool(bounds.upper < _BEYOND)


def _compared(before: Function, name: str, is_traced: Callable[[], bool]) -> Function:
    """A comparison of floats. Of a number with itself sympy knows the answer, which another one is for NaN."""
    def apply(number: Any, other: Any) -> Any:
        is_itself = type(other) is torch.SymFloat and number.node.expr == other.node.expr
        if not is_itself or not _is_read(number) or not is_traced():
            return before(number, other)
        return bool(torch.isnan(*_tensors((number,)))) is (name == "__ne__")

    return apply


_NUMBERS = (int, float, torch.SymInt, torch.SymFloat)
_TABLES: tuple[tuple[Any, dict[str, Function], Callable[[Any], bool]], ...] = (
    (torch.SymFloat, _METHODS, _is_read), (torch.SymFloat, _POWERS, _is_unknown), (torch.SymInt, _OF_INTEGERS, _is_unknown),
    (math, _MATH, _is_unknown))
