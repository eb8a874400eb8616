"""Constants in HLO protos, read and written without XLA, against XLA's own reader and writer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from support import hlo_protos, oracle
from support.hlo_protos import entry, read, written
from xla_torch.errors import HloSyntaxError, UnsupportedError
from xla_torch.hlo.literals.literal import Literal
from xla_torch.opcodes import front
from xla_torch.proto import wire
from xla_torch.proto.schema import message_class
from xla_torch.proto.writing import serialized
from xla_torch.shape import Shape
from xla_torch.types import PrimitiveType

pytestmark = oracle.needs_xla



def drawn(element_type: PrimitiveType, count: int, seed: int = 0) -> np.ndarray:
    """All bit patterns that the type has, in any order."""
    random = np.random.default_rng(seed)
    dtype = element_type.numpy
    assert dtype is not None
    if element_type.is_pred:
        return random.integers(0, 2, count).astype(bool)
    if element_type.is_integral:
        bits = element_type.bits
        low = -(2 ** (bits - 1)) if element_type.is_signed else 0
        kind = np.int64 if element_type.is_signed else np.uint64
        return random.integers(low, low + 2**bits - 1, count, dtype=kind, endpoint=True).astype(dtype)
    raw = random.integers(0, 256, count * dtype.itemsize).astype(np.uint8)
    return (raw & 15 if element_type.bits == 4 else raw).view(dtype)


TYPES = [t for t in PrimitiveType if t.is_array and t.bits != 6]  # of which constants are no part of protos


@pytest.mark.parametrize("count", [0, 6, 5001], ids=["none", "small", "large"])
@pytest.mark.parametrize("element_type", TYPES, ids=str)
def test_literals(element_type: PrimitiveType, count: int):
    """Every type, small (protobuf reads it) and large (cut out of the bytes), bit by bit, also as XLA reads it."""
    literal = Literal.of(drawn(element_type, count))
    shape = literal.shape
    module = front.parse_module(entry(f"ROOT c = {shape} constant({{...}})" if count else f"ROOT c = {shape} constant({{}})"))
    module.entry.root.attributes["literal"] = literal
    data = b"".join(serialized(module))
    assert read(data).entry.root.attributes["literal"] == literal
    if element_type.bits == 1:  # which XLA does not read
        return
    again = hlo_protos._hlo.HloModule.from_serialized_hlo_module_proto(data).as_serialized_hlo_module_proto()
    assert read(again).entry.root.attributes["literal"] == literal


@pytest.mark.parametrize("count", [6, 5000])
def test_literals_in_another_layout(count: int):
    array = np.arange(3 * count, dtype=np.int32).reshape(3, count)
    module = front.parse_module(entry(f"ROOT c = s32[3,{count}]{{0,1}} constant({{...}})"))
    module.entry.root.attributes["literal"] = Literal.of(array)
    again = read(b"".join(serialized(module))).entry.root
    assert again.shape.to_text() == f"s32[3,{count}]{{0,1}}"
    np.testing.assert_array_equal(again.attributes["literal"].array, array)


def test_tuples_of_literals():
    text = entry("ROOT c = (s32[2], (f32[], pred[3])) constant(({1, 2}, (1.5, {1, 0, 1})))")
    constant = front.parse_module(text).entry.root.attributes["literal"]
    assert read(written(text)).entry.root.attributes["literal"] == constant


@pytest.mark.parametrize(("dtype", "values"), [
    (np.int32, [0, 1, 127, 128, -1, 2**31 - 1, -(2**31), 300]), (np.uint32, [0, 127, 128, 2**32 - 1, 2**28, 2**28 - 1]),
    (np.int64, [0, -1, 2**63 - 1, -(2**63), 2**56, 2**56 - 1, 2**49]), (np.uint64, [0, 2**64 - 1, 2**63, 2**63 - 1, 1])])
def test_varints(dtype: Any, values: list[int]):
    """Numbers of all lengths, against protobuf."""
    name = {"i4": "s32s", "i8": "s64s", "u4": "u32s", "u8": "u64s"}[np.dtype(dtype).str[1:]]
    for repeats in (1, 1000):
        array = np.tile(np.array(values, dtype), repeats)
        data = message_class("LiteralProto")(**{name: array.tolist()}).SerializeToString()
        field, = wire.fields(data, 0, len(data))
        body = data[field.start:field.end]
        assert wire.encoded(array) == body
        np.testing.assert_array_equal(wire.decoded(body, array.size, array.dtype), array)


@pytest.mark.parametrize("bits", [4, 2, 1])
def test_packed_narrow_integers(bits: int):
    """Older protos have several narrow integers in a byte, the first in the low bits."""
    values = drawn(PrimitiveType[f"U{bits}"], 21)
    raw = np.packbits(np.unpackbits(values.view(np.uint8)[:, None], axis=1, bitorder="little")[:, :bits].reshape(-1),
                      bitorder="little")
    assert literal_of(f"u{bits}[21]", **{f"u{bits}s": raw.tobytes()}) == Literal.of(values)


def literal_of(shape: str, **data: Any) -> Literal:
    """The constant of a module whose literal has these fields."""
    proto = message_class("HloModuleProto").FromString(written(entry(f"ROOT c = {shape} parameter(0)")))
    instruction = proto.computations[0].instructions[0]
    instruction.opcode = "constant"
    literal = instruction.literal
    literal.shape.CopyFrom(instruction.shape)
    for name, value in data.items():
        setattr(literal, name, value) if isinstance(value, bytes) else getattr(literal, name).extend(value)
    return read(proto.SerializeToString()).entry.root.attributes["literal"]


def test_constants_that_were_left_out():
    """Dumps may leave large constants out: they are known by their shapes."""
    constant = read(written(entry("ROOT c = f32[1000000] constant({...})"))).entry.root.attributes["literal"]
    assert constant.elided
    assert constant.shape == Shape.parse("f32[1000000]")


WRONG_LITERALS = [
    ("f32[3]", {"f32s": [1.0, 2.0]}, "a literal has 2 elements"),
    ("f32[1000000000]", {}, "a literal has 0 elements"),
    ("f32[9000000000000000000]", {"f32s": [1.0]}, "a literal has 1 elements"),
    ("bf16[3]", {"bf16s": b"12345"}, "a literal has 5 bytes"),
    ("s4[3]", {"s4s": b"12345"}, "a literal has 5 bytes"),
    ("s32[9000]", {"s32s": [1] * 8999}, "8999"),
    ("s32[3]", {"s32s": [1] * 8999}, "8999"),
    ("s32[2]", {"sparse_indices": [1, 2], "s32s": [1, 2]}, "sparse"),
]


@pytest.mark.parametrize(("shape", "data", "reason"), WRONG_LITERALS, ids=[reason for *_, reason in WRONG_LITERALS])
def test_wrong_literals(shape: str, data: dict[str, Any], reason: str):
    with pytest.raises((HloSyntaxError, UnsupportedError), match=reason) as caught:
        literal_of(shape, **data)
    assert "constant (%c)" in str(caught.value) or "literal of" in str(caught.value)
