"""Element types: names, numbers, widths, NumPy and torch faces, float formats."""

import ml_dtypes
import numpy as np
import pytest
import torch

from support import oracle
from xla_torch import types
from xla_torch.hlo.numbers import range_of
from xla_torch.storage import dtypes
from xla_torch.storage.dtypes import storage_dtype, torch_dtype
from xla_torch.types import PrimitiveType

ARRAY_TYPES = [t for t in PrimitiveType if t.is_array]
FLOATS = [t for t in PrimitiveType if t.is_floating]

NUMBERS = {  # xla_data.proto
    "PRED": 1, "S8": 2, "S16": 3, "S32": 4, "S64": 5, "U8": 6, "U16": 7, "U32": 8, "U64": 9, "F16": 10, "F32": 11, "F64": 12,
    "TUPLE": 13, "OPAQUE_TYPE": 14, "C64": 15, "BF16": 16, "TOKEN": 17, "C128": 18, "F8E5M2": 19, "F8E4M3FN": 20, "S4": 21,
    "U4": 22, "F8E4M3B11FNUZ": 23, "F8E5M2FNUZ": 24, "F8E4M3FNUZ": 25, "S2": 26, "U2": 27, "F8E4M3": 28, "F8E3M4": 29,
    "S1": 30, "U1": 31, "F4E2M1FN": 32, "F8E8M0FNU": 33, "BUFFER": 34,
    "F6E3M2FN": 35, "F6E2M3FN": 36}


def test_every_type_is_listed_with_its_number():
    assert {t.name: t.number for t in PrimitiveType} == NUMBERS
    assert all(types.type_from_number(t.number) is t for t in PrimitiveType)
    assert types.type_from_number(0) is None


@oracle.needs_xla
@pytest.mark.parametrize("element_type", ARRAY_TYPES, ids=str)
def test_names_are_those_of_xla(element_type):
    text = f"ENTRY e {{\n ROOT p = {element_type.text}[2] parameter(0)\n}}"
    assert f"= {element_type.text}[2]{{0}} parameter(0)" in oracle.xla_canonical(text)


@pytest.mark.parametrize("element_type", ARRAY_TYPES, ids=str)
def test_faces(element_type):
    t = element_type
    assert types.type_from_text(t.text) is t
    assert types.type_from_numpy(t.numpy) is t
    assert t.numpy.itemsize == t.itemsize
    assert torch_dtype(t) is not None
    assert storage_dtype(t) is not None
    if t.bits >= 8 and torch_dtype(t) is storage_dtype(t) and not t.is_narrow:
        assert dtypes.type_from_torch(torch_dtype(t)) is t
    if t.hides_sign:
        assert not storage_dtype(t).is_floating_point
        assert storage_dtype(t).is_signed
        assert storage_dtype(t).itemsize == t.itemsize
    if t.is_floating and t.is_narrow:
        assert storage_dtype(t) is torch.float32


@pytest.mark.parametrize("element_type", FLOATS, ids=str)
def test_float_formats(element_type):
    info = ml_dtypes.finfo(element_type.numpy)
    assert types.mantissa_bits(element_type) == info.nmant
    # The exponent-only type has no sign bit, which finfo counts as one more exponent bit.
    assert types.exponent_bits(element_type) == (8 if element_type is types.F8E8M0FNU else info.iexp)


@pytest.mark.parametrize(("kind", "names"), [
    ("is_integral", "S1 S2 S4 S8 S16 S32 S64 U1 U2 U4 U8 U16 U32 U64"),
    ("is_unsigned", "U1 U2 U4 U8 U16 U32 U64"),
    ("is_signed", "S1 S2 S4 S8 S16 S32 S64"),
    ("is_complex", "C64 C128"),
    ("is_pred", "PRED"),
    ("hides_sign", "U16 U32 U64"),
    ("is_narrow", "S1 S2 S4 U1 U2 U4 F8E5M2 F8E4M3 F8E4M3FN F8E4M3B11FNUZ F8E4M3FNUZ F8E5M2FNUZ F8E3M4 F8E8M0FNU F4E2M1FN "
                  "F6E3M2FN F6E2M3FN"),
    ("is_differentiable", "F16 F32 F64 BF16 F8E5M2 F8E4M3 F8E4M3FN F8E4M3B11FNUZ F8E4M3FNUZ F8E5M2FNUZ F8E3M4 F8E8M0FNU "
                          "F4E2M1FN F6E3M2FN F6E2M3FN C64 C128"),
])
def test_kinds(kind, names):
    assert {t.name for t in PrimitiveType if getattr(t, kind)} == set(names.split())


@pytest.mark.parametrize(("a", "b", "higher"), [
    ("F32", "F32", "F32"), ("F16", "F32", "F32"), ("F64", "BF16", "F64"), ("BF16", "F16", "BF16"), ("F16", "BF16", "BF16"),
    ("F8E5M2", "F8E4M3FN", "F8E5M2"), ("F8E4M3FN", "F4E2M1FN", "F8E4M3FN"), ("F8E8M0FNU", "F16", "F8E8M0FNU"),
    ("F8E8M0FNU", "BF16", "BF16"), ("F8E4M3FNUZ", "F8E4M3FN", "F8E4M3FN"), ("F8E4M3B11FNUZ", "F8E4M3", "F8E4M3"),
])
def test_higher_precision(a, b, higher):
    a, b = PrimitiveType[a], PrimitiveType[b]
    assert types.higher_precision(a, b) is PrimitiveType[higher]
    assert types.same_type_ignoring_precision(a, b)


@pytest.mark.parametrize(("dtype", "expected"), [
    (torch.int8, types.S8), (torch.uint8, types.U8), (torch.bool, types.PRED), (torch.float32, types.F32),
    (torch.uint16, types.U16), (torch.float8_e4m3fn, types.F8E4M3FN), (torch.complex32, None), (torch.qint8, None)])
def test_from_torch(dtype, expected):
    assert dtypes.type_from_torch(dtype) is expected


def test_foreign_names_and_dtypes():
    assert types.type_from_text("tuple") is None
    assert types.type_from_text("f33") is None
    assert types.type_from_numpy(np.dtype("U3")) is None
    assert types.complex_part(types.C128) is types.F64
    assert types.complex_part(types.F32) is types.F32
    assert not types.same_type_ignoring_precision(types.S32, types.S64)


def every_value(t: PrimitiveType) -> np.ndarray:
    """All numbers of a type of at most 16 bits."""
    if not t.is_floating:
        least, greatest = range_of(t)
        return np.arange(least, greatest + 1.0)
    codes = np.arange(1 << t.bits, dtype=np.uint16 if t.bits > 8 else np.uint8)
    with np.errstate(invalid="ignore"):
        values = codes.view(t.numpy).astype(np.float64)  # pyright: ignore[reportCallIssue, reportArgumentType]
    return values[~np.isnan(values)]


@pytest.mark.parametrize("target", [t for t in ARRAY_TYPES if t.bits <= 32 and not (t.is_complex or t.is_pred)], ids=str)
def test_values_are_preserved_where_all_come_back(target):
    for source in (t for t in ARRAY_TYPES if t.bits <= 16 and t.is_floating <= target.is_floating):
        values = every_value(source)
        with np.errstate(all="ignore"):
            back = values.astype(target.numpy).astype(np.float64) if target.is_floating else np.clip(values, *range_of(target))
        assert types.preserves_values(source, target) == np.array_equal(back, values), source
