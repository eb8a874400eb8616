"""What XLA refuses is refused before anything runs, from text and by the builder, in words that say what is wrong.

The rows of HLO instructions stand in `error_rows.py` and `error_rows_programs.py`; conditions of documented functions alone
stand here, and in the tables of their families' tests.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import xla_torch
from support.error_rows import ROWS as ARRAY_ROWS
from support.error_rows import WRONG_TYPES
from support.error_rows_programs import ROWS as PROGRAM_ROWS
from support.error_texts import opcode_of, program
from xla_torch import F32, S32, Layout, Shape, XlaBuilder, XlaOp, ops
from xla_torch.errors import HloSyntaxError, InvalidArgument, XlaError
from xla_torch.hlo.ir import Instruction
from xla_torch.hlo.parser import parse_hlo as parse_only

# --------------------------------------------------------------------------------------------- instructions


def build(text: str) -> None:
    """The instructions of a text that has not been verified, one by one in a builder."""
    builder = XlaBuilder("again")
    built: dict[Instruction, XlaOp] = {}
    for i in parse_only(text).entry.instructions:
        if i.opcode == "parameter":
            built[i] = builder.parameter(i.attributes["parameter_number"], i.shape)
        else:
            built[i] = builder.add(i.opcode, [built[o] for o in i.operands], i.attributes, i.shape)


ROWS = ARRAY_ROWS + PROGRAM_ROWS
IDS = [f"{opcode_of(instruction)}-{number}" for number, (_, instruction, _) in enumerate(ROWS)]


@pytest.mark.parametrize(("parameters", "instruction", "what"), ROWS, ids=IDS)
def test_instructions_are_refused(parameters: str, instruction: str, what: str) -> None:
    """With the op's name, the place, what is wrong, and what was got or expected."""
    text = program(parameters, instruction)
    with pytest.raises(XlaError) as loading:
        xla_torch.parse_hlo(text)
    error = loading.value
    assert what in error.what
    assert re.search(rf"(?<![\w-]){opcode_of(instruction)}(?![\w-])", str(error))
    assert re.search(r"line \d+, column \d+", error.where)
    assert error.got != "" or error.expected != ""
    if isinstance(error, HloSyntaxError):
        return
    with pytest.raises(XlaError) as building:
        build(text)
    assert what in building.value.what
    assert opcode_of(instruction) in building.value.subject


@pytest.mark.parametrize(("operands", "opcode"), [(o, opcode) for o, opcodes in WRONG_TYPES for opcode in opcodes.split()])
def test_element_types_are_refused(operands: str, opcode: str) -> None:
    shape = operands.partition(", ")[0]
    result = "pred[2]" if opcode == "is-finite" else shape
    text = program(operands, f"{result} {opcode}({', '.join(f'p{k}' for k in range(operands.count('[')))})")
    with pytest.raises(InvalidArgument) as loading:
        xla_torch.parse_hlo(text)
    message = str(loading.value)
    what = "has an element type that this operation does not take"
    for part in (f"{opcode} (%r)", what, f"got       {shape}", "expected  one of: "):
        assert part in message
    with pytest.raises(InvalidArgument, match=what):
        build(text)


HALVES = [  # over p: f32[2] and t: token[], what begins an operation, what ends it, and what is wrong
    ("f32[2] negate(p)", "f32[2] all-reduce-done(first)", "is not the operation's first half"),
    ("(f32[2], f32[2]) tuple(p, p)", "f32[2] all-gather-done(first)", "is not the operation's first half"),
    ("(f32[2], f32[2]) tuple(p, p)", "f32[2] collective-permute-done(first)", "is not the operation's first half"),
    ("(f32[2], f32[2], u32[]) custom-call(p), custom_call_target=\"x\"", "f32[2] copy-done(first)", "first half"),
    ("((f32[2]), f32[2]) custom-call(p), custom_call_target=\"x\"", "f32[2] async-done(first)", "first half"),
    ("((f32[2]), f32[2], u32[]) async-start(p), calls=f", "f32[2] async-done(first), calls=g", "calls differs between"),
    ("(f32[2], u32[], token[]) send(p, t), channel_id=1", "token[] send-done(first), channel_id=2", "channel_id differs"),
    ("(f32[2], u32[], token[]) send(p, t), channel_id=1, is_host_transfer=true", "token[] send-done(first), channel_id=1",
     "is_host_transfer differs"),
    ("(f32[2], u32[], token[]) recv(t), channel_id=1", "(f32[2], token[]) recv-done(first)", "channel_id differs"),
]


@pytest.mark.parametrize(("first", "second", "what"), HALVES)
def test_halves_that_do_not_belong_together(first: str, second: str, what: str) -> None:
    regions = "".join(f"{n} {{\n  ROOT a = f32[2] parameter(0)\n}}\n\n" for n in "fg")
    with pytest.raises(InvalidArgument, match=what) as loading:
        xla_torch.parse_hlo(f"HloModule m\n\n{regions}ENTRY e {{\n  p = f32[2] parameter(0)\n  t = token[] after-all()\n"
                            f"  first = {first}\n  ROOT r = {second}\n}}\n")
    assert loading.value.got != ""
    assert loading.value.expected != ""


# --------------------------------------------------------------------------------------------- documented functions


def add_of(element_type: Any) -> xla_torch.XlaComputation:
    builder = XlaBuilder("add")
    scalar = Shape(element_type)
    return builder.build(ops.Add(builder.parameter(0, scalar), builder.parameter(1, scalar)))


def _outfeed(x: XlaOp, shape: str) -> XlaOp:
    return ops.Outfeed(x, Shape.parse(shape))


FUNCTIONS = [  # of x, f32[4,6]: who refuses, and what is said
    (lambda x: ops.Add(x, XlaBuilder("other").parameter(0, x.shape)), "add", "operand 1 belongs to another builder"),
    (lambda x: x.builder.add("add", [x, 1.0]), "add", "operand 1 is not an XlaOp"),
    (lambda x: ops.Broadcast(x, [2, -1]), "Broadcast", "a size is negative"),
    (lambda x: ops.Collapse(x, [0, 2]), "Collapse", "not a run of the operand's"),
    (lambda x: ops.Collapse(x, [1, 0]), "Collapse", "not a run of the operand's"),
    (lambda x: ops.Map(x.builder, [x, x], add_of(F32), [0, 1], [x]), "Map", "static operands are not supported"),
    (lambda x: ops.Map(x.builder, [x], add_of(F32), [0, 1]), "Map", "another number of parameters"),
    (lambda x: ops.Reduce([x, x], [0.0], add_of(F32), [0]), "Reduce", "as many init values as arrays"),
    (lambda x: ops.Reduce(x, 0.0, add_of(S32), [0]), "reduce", "does not fit"),
    (lambda x: ops.Conv(x, x, [1], xla_torch.ops.Padding.VALID), "Conv", "wrong number of dimensions for a convolution"),
    (lambda x: ops.Infeed(x.builder, Shape.array(F32, [2]).without_layout()), "Infeed", "must have a layout"),
    (lambda x: _outfeed(x, "f32[4,6]"), "Outfeed", "must have a layout"),
    (lambda x: _outfeed(x, "f32[6,4]{1,0}"), "outfeed", "is not the operand's"),
    (lambda x: ops.Send(x, ops.ChannelHandle(1, ops.ChannelType.DEVICE_TO_HOST)), "Send", "a channel of the wrong type"),
    (lambda x: ops.Recv(x.builder, x.shape, ops.ChannelHandle(1, ops.ChannelType.HOST_TO_DEVICE)), "Recv", "wrong type"),
    (lambda x: ops.SendToHost(x, ops.CreateToken(x.builder), x.shape.without_layout(), 1), "SendToHost", "must have a layout"),
    (lambda x: ops.RecvFromHost(ops.CreateToken(x.builder), Shape.tuple([x.shape]), 1), "RecvFromHost", "arrays only"),
    (lambda x: ops.AllGather(x, 2, 2), "AllGather", "the dimension is out of range"),
    (lambda x: ops.AllGather(x, 0, 0), "AllGather", "the number of shards is not positive"),
    (lambda x: ops.AllGatherTuple([], 0, 2), "AllGatherTuple", "of an empty tuple"),
    (lambda x: ops.AllReduceTuple([], add_of(F32)), "AllReduceTuple", "of an empty tuple"),
    (lambda x: ops.AllReduceTuple([x, ops.ConvertElementType(x, S32)], add_of(F32)), "AllReduceTuple", "different element types"),
    (lambda x: ops.AllReduce(x, add_of(F32), shape_with_layout=Shape.array(F32, [3], layout=Layout((0,)))), "AllReduce",
     "shape_with_layout is not the operand's shape"),
    (lambda x: ops.ReduceScatter(x, add_of(F32), 1, 4), "ReduceScatter", "the dimension cannot be divided into shards"),
    (lambda x: ops.AllToAll(x, 2, 0, 2), "AllToAll", "the dimension is out of range"),
    (lambda x: ops.AllToAll(x, 0, -1, 2), "AllToAll", "the dimension is out of range"),
    (lambda x: ops.AllToAll(x, 1, 0, 4), "AllToAll", "expected"),
    (lambda x: ops.CustomCall(x.builder, "$mine", [x], x.shape), "CustomCall", "begin with $ are reserved"),
    (lambda x: x.builder.add("negate", [x], shape=Shape.array(F32, [3])), "negate", "the declared shape contradicts"),
]


@pytest.mark.parametrize(("call", "who", "what"), FUNCTIONS)
def test_documented_functions_refuse(call: Any, who: str, what: str) -> None:
    """By their own name where HLO has no such condition."""
    with pytest.raises(XlaError) as caught:
        call(XlaBuilder("b").parameter(0, Shape.array(F32, [4, 6])))
    assert what in str(caught.value)
    assert who in str(caught.value)


def test_on_tensors_they_refuse_as_well() -> None:
    with pytest.raises(InvalidArgument, match=r"Collapse: the dimensions are not a run"):
        ops.Collapse(torch.zeros(2, 3), [1, 0])  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidArgument, match=r"transpose.*the permutation does not fit"):
        ops.Transpose(torch.zeros(2, 3), [0, 0])  # pyright: ignore[reportArgumentType]
