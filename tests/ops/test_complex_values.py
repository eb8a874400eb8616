"""Functions of complex numbers at every pair of special parts: all entry points give the same bits, and those are real XLA's
values, as are native code's.

Real XLA forgets the sign of an imaginary -0 and flushes denormal numbers to 0, so that zeros are compared without their signs,
and numbers on a cut are left out where their side of it is such a sign. The inverse functions, which XLA has spelled out in
others, give it numbers beside NaN here and there: left out too. `tests/documents/values.txt` has examples of what else differs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from support.agreement import dtype_of, elementwise_hlo
from support.native_programs import loop_of_rows, native_after, natively
from support.oracle import needs_xla, run_xla
from support.stablehlo_oracle import load_stablehlo
from xla_torch import ops
from xla_torch.codegen.compiled import is_available
from xla_torch.core import tuning
from xla_torch.kernels.native import can_fuse
from xla_torch.mlir.text.parser import parse
from xla_torch.runtime.static import StaticComputation
from xla_torch.stablehlo.convert import to_module

Excused = Callable[..., Any]
"""Where values differ as stated: a mask, by the operands."""


def _nowhere(*operands: Any) -> Any:
    return np.zeros(operands[0].shape, bool)


def _below_the_cut(z: Any) -> Any:
    return (z.imag == 0) & np.signbit(z.imag)


def _left_of_the_cut(z: Any) -> Any:
    return (z.real == 0) & np.signbit(z.real)


def _zero_times_overflow(z: Any) -> Any:
    return (z.real == 0) & (np.abs(z.imag) > 1e30) & np.isfinite(z.imag)


def _flushed_on_the_way(z: Any) -> Any:
    return (np.abs(z.real) == 1) & (np.abs(z.imag) == np.finfo(z.dtype).tiny)


def _of_arccosine(z: Any) -> Any:
    return _below_the_cut(z) | _flushed_on_the_way(z) | np.isnan(z)


def _beside_nan(cut: Excused) -> Excused:
    return lambda z: np.isnan(z) | cut(z)


UNARY: dict[str, tuple[Callable[..., torch.Tensor], str, Excused]] = {
    "abs": (ops.Abs, "stablehlo.abs", _nowhere), "sign": (ops.Sign, "stablehlo.sign", _nowhere),
    "negate": (ops.Neg, "stablehlo.negate", _nowhere), "cosine": (ops.Cos, "stablehlo.cosine", _zero_times_overflow),
    "sine": (ops.Sin, "stablehlo.sine", _zero_times_overflow), "tan": (ops.Tan, "stablehlo.tan", _nowhere),
    "tanh": (ops.Tanh, "stablehlo.tanh", _nowhere), "exponential": (ops.Exp, "stablehlo.exponential", _nowhere),
    "log": (ops.Log, "stablehlo.log", _nowhere), "sqrt": (ops.Sqrt, "stablehlo.sqrt", _below_the_cut),
    "rsqrt": (ops.Rsqrt, "stablehlo.rsqrt", _nowhere), "logistic": (ops.Logistic, "stablehlo.logistic", _nowhere),
    "exponential-minus-one": (ops.Expm1, "stablehlo.exponential_minus_one", _nowhere),
    "log-plus-one": (ops.Log1p, "stablehlo.log_plus_one", _nowhere),
    "cosh": (ops.Cosh, "chlo.cosh", _nowhere), "sinh": (ops.Sinh, "chlo.sinh", _nowhere),
    "acos": (ops.Acos, "chlo.acos", _of_arccosine), "acosh": (ops.Acosh, "chlo.acosh", _of_arccosine),
    "asin": (ops.Asin, "chlo.asin", _beside_nan(_below_the_cut)),
    "asinh": (ops.Asinh, "chlo.asinh", _beside_nan(_left_of_the_cut)),
    "atan": (ops.Atan, "chlo.atan", _beside_nan(_left_of_the_cut)),
    "atanh": (ops.Atanh, "chlo.atanh", _beside_nan(_below_the_cut)),
    "square": (ops.Square, "chlo.square", _nowhere),
}
"""For an opcode (or ``square``, which is several) the documented function, the operation of StableHLO, and what is excused."""


def _special(text: str) -> Any:
    component = np.finfo(dtype_of(text))
    parts = [0.0, -0.0, 1.0, -1.0, float(component.tiny), float(component.max), np.inf, -np.inf, np.nan]
    values = np.empty(len(parts) ** 2, dtype_of(text))
    values.real, values.imag = np.array(list(itertools.product(parts, parts))).T
    return values


def _parts(values: Any) -> Any:
    return np.stack([values.real, values.imag]) if np.iscomplexobj(values) else values[None]


def _same_bits(a: Any, b: Any) -> bool:
    a, b = _parts(a), _parts(b)
    return bool((((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))).all())


def _assert_as_xla(got: Any, want: Any, excused: Any, *operands: Any) -> None:
    a, b = _parts(got), _parts(want)
    info = np.finfo(a.dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(a - b) <= 8 * info.eps * np.maximum(np.abs(b), np.abs(want))
        zero = (np.abs(a) <= 2 * info.tiny) & (np.abs(b) <= 2 * info.tiny)
    good = ((a == b) | (np.isnan(a) & np.isnan(b)) | near | zero).all(0) | excused
    wrong = np.flatnonzero(~good)
    assert not wrong.size, [(*(o[k] for o in operands), got[k], "XLA", want[k]) for k in wrong[:8]]


NATIVE = frozenset({"abs", "sign", "negate", "cosine", "sine", "tan", "tanh", "sinh", "cosh", "exponential", "log", "sqrt",
                    "rsqrt", "add", "subtract", "multiply", "divide", "compare"})
"""What native code has of complex numbers."""
IN_VECTORS = frozenset({"power", "log-plus-one", "exponential-minus-one"})
"""What it has of those in single precision, as vector code."""


def _in_native_code(opcode: str, text: str, result: str, folder: Path, *operands: Any) -> Any:
    """What an op gives in a loop that is native code; None where there is none."""
    shape = f"[{len(operands[0])}]"
    names = dict(zip("xy", operands, strict=False))
    row = f"{result}{shape} {opcode}({', '.join(names)})" + ", direction=EQ" * (opcode == "compare")
    program = loop_of_rows([row], dict.fromkeys(names, text + shape), steps=1)
    with pytest.MonkeyPatch.context() as patch, native_after(0.0, folder):
        patch.setattr(tuning, "NATIVE_UNDER", math.inf)
        in_vectors = opcode in IN_VECTORS and text == "c64" and can_fuse()
        assert natively(program) == ((opcode in NATIVE or in_vectors) and is_available())
        return xla_torch.parse_hlo(program).run_numpy(*operands)[0] if natively(program) else None


def _stablehlo(operation: str, text: str, result: str, count: int) -> str:
    of, to = (f"tensor<{count}x{f'complex<{t}>' if k else t}>" for t, k in (
        ({"c64": "f32", "c128": "f64"}[text], True), ({"c64": "f32", "c128": "f64"}[text], result == text)))
    return f'func.func @main(%a: {of}) -> {to} {{\n %0 = "{operation}"(%a) : ({of}) -> {to}\n return %0 : {to} }}'


@needs_xla
@pytest.mark.parametrize("text", ["c64", "c128"])
@pytest.mark.parametrize("opcode", UNARY)
def test_functions_of_one_number(opcode: str, text: str, tmp_path: Path) -> None:
    documented, operation, excused = UNARY[opcode]
    values = _special(text)
    eager = documented(torch.from_numpy(values)).numpy()
    result = {"c64": "f32", "c128": "f64"}[text] if opcode == "abs" else text
    program = _stablehlo(operation, text, result, len(values))
    assert _same_bits(eager, StaticComputation(to_module(parse(program))).run_numpy(values)[0])  # pyright: ignore[reportArgumentType]
    if opcode != "square":
        hlo = elementwise_hlo(opcode, [(text, values)], result)
        assert _same_bits(eager, xla_torch.parse_hlo(hlo).run_numpy(values)[0])
    want = run_xla(load_stablehlo(program), values)[0]
    _assert_as_xla(eager, want, excused(values), values)
    native = None if opcode == "square" else _in_native_code(opcode, text, result, tmp_path, values)
    if native is not None:
        _assert_as_xla(native, want, excused(values), values)


def _huge(*operands: Any) -> Any:
    """Whether a part is near the ends of the range, where products on the way overflow at one place or another."""
    info = np.finfo(operands[0].dtype)
    parts = np.abs(np.concatenate([_parts(o) for o in operands]))
    return (((parts > info.max / 4) & np.isfinite(parts)) | ((parts > 0) & (parts < info.tiny * 4))).any(0)


def _of_atan2(y: Any, x: Any) -> Any:
    return _huge(y, x) | (y == 0)  # there is its cut


def _unordered(a: Any, b: Any) -> Any:
    return a.real == b.real


BINARY: dict[str, tuple[Callable[..., torch.Tensor], Excused]] = {
    "add": (ops.Add, _nowhere), "subtract": (ops.Sub, _nowhere), "multiply": (ops.Mul, _huge), "divide": (ops.Div, _huge),
    "power": (ops.Pow, _huge), "atan2": (ops.Atan2, _of_atan2), "maximum": (ops.Max, _unordered),
    "minimum": (ops.Min, _unordered), "compare": (ops.Eq, _nowhere),
}


@needs_xla
@pytest.mark.parametrize("text", ["c64", "c128"])
@pytest.mark.parametrize("opcode", BINARY)
def test_functions_of_two_numbers(opcode: str, text: str, tmp_path: Path) -> None:
    documented, excused = BINARY[opcode]
    values = _special(text)
    lhs, rhs = np.repeat(values, len(values)), np.tile(values, len(values))
    eager = documented(torch.from_numpy(lhs), torch.from_numpy(rhs)).numpy()
    result, attributes = ("pred", ", direction=EQ") if opcode == "compare" else (text, "")
    hlo = elementwise_hlo(opcode, [(text, lhs), (text, rhs)], result, attributes)
    assert _same_bits(eager.astype(dtype_of(text)), xla_torch.parse_hlo(hlo).run_numpy(lhs, rhs)[0].astype(dtype_of(text)))
    want = run_xla(hlo, lhs, rhs)[0]
    for found in (eager, _in_native_code(opcode, text, result, tmp_path, lhs, rhs)):
        if found is not None:
            _assert_as_xla(found.astype(dtype_of(text)), want.astype(dtype_of(text)), excused(lhs, rhs), lhs, rhs)
