"""Codecs of attributes: values given from Python, text, and what is refused."""

import numpy as np
import pytest

from xla_torch.core.participant_groups import GroupMode
from xla_torch.errors import HloSyntaxError, InvalidArgument
from xla_torch.hlo import attributes as a
from xla_torch.hlo.attributes import ReplicaGroups, ResultAccuracy, WindowDimension
from xla_torch.hlo.ir import Computation, Instruction
from xla_torch.hlo.literals.literal import Literal
from xla_torch.hlo.parser import Parser
from xla_torch.hlo.replica_groups import parse_replica_groups
from xla_torch.hlo.scanner import Scanner, quote, unescape
from xla_torch.shape import Shape
from xla_torch.types import F32

DIRECTION = a.ChoiceCodec(("EQ", "LT"))
MODE = a.ChoiceCodec(tuple(GroupMode))
LABELS = a.ConvDimsCodec().normalise("b0f_0io->bf0")

NORMALISED = [  # codec, as given, canonical, text
    (a.DimsCodec(), [0, np.int64(2)], (0, 2), "{0,2}"),
    (a.DimsCodec(), (), (), "{}"),
    (a.IntCodec(), np.int32(3), 3, "3"),
    (a.BoolCodec(), np.True_, True, "true"),
    (a.BoolCodec(), 0, False, "false"),
    (a.FloatCodec(), 0.001, float(np.float32(0.001)), "0.001"),
    (a.FloatCodec(), 1, 1.0, "1"),
    (a.TextCodec(), 'a"b\n', 'a"b\n', '"a\\"b\\n"'),
    (DIRECTION, "lt", "LT", "LT"),
    (MODE, "flattened_id", GroupMode.FLATTENED, "flattened_id"),
    (MODE, GroupMode.CROSS_REPLICA, GroupMode.CROSS_REPLICA, "cross_replica"),
    (a.WindowCodec(), [WindowDimension(2, 2, 0, 1), WindowDimension(3, reversal=True)],
     (WindowDimension(2, 2, 0, 1), WindowDimension(3, reversal=True)), "{size=2x3 stride=2x1 pad=0_1x0_0 rhs_reversal=0x1}"),
    (a.WindowCodec(), [], (), "{}"),
    (a.ConvDimsCodec(), "b0f_0io->bf0", LABELS, "b0f_0io->bf0"),
    (a.ConvDimsCodec(), LABELS, LABELS, "b0f_0io->bf0"),
    (a.PaddingCodec(), [[1, 2], (0, -1)], ((1, 2, 0), (0, -1, 0)), "1_2x0_-1"),
    (a.PaddingCodec(), [(1, 2, 3)], ((1, 2, 3),), "1_2_3"),
    (a.SliceCodec(), [(0, 4), (1, 3, 2)], ((0, 4, 1), (1, 3, 2)), "{[0:4:1], [1:3:2]}"),
    (a.SliceCodec(), [(0, 4)], ((0, 4, 1),), "{[0:4]}"),
    (a.PairsCodec(), [[0, 1], (1, 0)], ((0, 1), (1, 0)), "{{0,1},{1,0}}"),
    (a.ReplicaGroupsCodec(), [[0, 1]], ReplicaGroups(((0, 1),)), "{{0,1}}"),
    (a.ReplicaGroupsCodec(), ReplicaGroups(((0, 1),), "[1,2]<=[2]"), ReplicaGroups(((0, 1),)), "[1,2]<=[2]"),
    (a.PrecisionCodec(), ["HIGHEST", "default"], ("highest", "default"), "{highest,default}"),
    (a.ResultAccuracyCodec(), "HIGHEST", ResultAccuracy("highest"), "{mode=highest}"),
    (a.ResultAccuracyCodec(), ResultAccuracy("tolerance", 0.5, 0.0, 2), ResultAccuracy("tolerance", 0.5, 0.0, 2),
     "{tolerance={atol=0.5,rtol=0,ulps=2}}"),
    (a.LiteralCodec(), np.array([1, 2], np.int32), Literal.of(np.array([1, 2], np.int32)), "s32[2]{0} {1,2}"),
    (a.RawCodec(), "{a={b}}", "{a={b}}", "{a={b}}"),
    (a.RawCodec(), "f32[2]{0}", "f32[2]{0}", "f32[2]{0}"),
]


@pytest.mark.parametrize(("codec", "given", "canonical", "text"), NORMALISED)
def test_values_and_text(codec, given, canonical, text):
    assert codec.normalise(given) == canonical
    assert codec.format(codec.normalise(given)) == text
    parser = Parser(f"  {text}, next")
    assert codec.parse(parser) == canonical
    assert parser.looking_at(",")


def test_regions():
    p = Instruction("parameter", Shape(F32), (), {"parameter_number": 0}, "p")
    computation = Computation("f", [p])
    assert a.RegionCodec().format(computation) == "%f"
    assert a.RegionsCodec().normalise([computation, computation]) == (computation, computation)
    assert a.RegionsCodec().format((computation, computation)) == "{%f, %f}"


@pytest.mark.parametrize(("codec", "value"), [
    (a.DimsCodec(), 3), (a.DimsCodec(), [0.5]), (a.DimsCodec(), "12"), (a.IntCodec(), 1.0), (a.IntCodec(), "1"),
    (a.BoolCodec(), "yes"), (a.BoolCodec(), 2), (a.FloatCodec(), "x"), (a.FloatCodec(), None), (a.TextCodec(), 1),
    (DIRECTION, "GT"), (DIRECTION, None), (MODE, "by_replica"), (a.RegionCodec(), "f"), (a.RegionsCodec(), ["f"]),
    (a.WindowCodec(), [(1, 1)]),
    (a.ConvDimsCodec(), "bf"), (a.ConvDimsCodec(), "b0f_0io->bf1"), (a.PaddingCodec(), [1]), (a.PaddingCodec(), [(1,)]),
    (a.SliceCodec(), [(1, 2, 3, 4)]), (a.PairsCodec(), [1]), (a.ReplicaGroupsCodec(), 2), (a.PrecisionCodec(), ["most"]),
    (a.PrecisionCodec(), "high"), (a.ResultAccuracyCodec(), "exact"), (a.LiteralCodec(), "text"), (a.RawCodec(), 1)])
def test_refused_values(codec, value):
    with pytest.raises(InvalidArgument):
        codec.normalise(value)


@pytest.mark.parametrize(("text", "groups"), [
    ("{}", ()),
    ("{{0,2},{1,3}}", ((0, 2), (1, 3))),
    ("{{0},{1,2}}", ((0,), (1, 2))),
    ("[2,2]<=[4]", ((0, 1), (2, 3))),
    ("[2,4]<=[4,2]T(1,0)", ((0, 2, 4, 6), (1, 3, 5, 7))),
    ("[1,6]<=[1,2,3]T(2,0,1)", ((0, 3, 1, 4, 2, 5),)),
    ("mesh['a'=2,'b'=2] {'a'}", ((0, 2), (1, 3))),
    ("mesh['a'=2,'b'=2] {'b'}", ((0, 1), (2, 3))),
    ("mesh['a'=2,'b'=2] {'a','b'}", ((0, 1, 2, 3),)),
    ("mesh['a'=2,'b'=2] {'b','a'}", ((0, 2, 1, 3),)),
    ("mesh['a'=2,'b'=4] {'b':(2)2}", ((0, 1), (2, 3), (4, 5), (6, 7))),
    ("mesh['a'=2,'b'=4] {'b':(1)2}", ((0, 2), (1, 3), (4, 6), (5, 7))),
    ("mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0)) {'b'}", ((0, 2), (1, 3))),
    ("mesh['a'=2,'b'=2], device_ids=(3,1,2,0) {'b'}", ((3, 1), (2, 0))),
])
def test_replica_groups(text, groups):
    assert parse_replica_groups(Scanner(text)) == groups


@pytest.mark.parametrize(("text", "message"), [
    ("[2,2]<=[6]", "do not hold all ids"), ("[4]<=[4]", "do not hold all ids"), ("[2,2]<=[2,2]T(0,0)", "not a permutation"),
    ("mesh['a'=2] {'c'}", "no axis 'c'"), ("mesh['a'=4] {'a':(1)3}", "no such part"),
    ("mesh['a'=4], device_ids=(1) {'a'}", "do not fill"),
    ("{{0,x}}", "expects an integer"), ("2", "expects '\\['")])
def test_replica_groups_refused(text, message):
    with pytest.raises(HloSyntaxError, match=message):
        parse_replica_groups(Scanner(text))


@pytest.mark.parametrize("text", [
    "", "plain", 'a"b', "it's", "back\\slash", "tab\tline\nreturn\r", "\x00\x01\x7f", "é ∀ 🙂", "{a}"])
def test_strings_survive_quoting(text):
    quoted = quote(text)
    assert quoted.isascii()
    assert "\n" not in quoted
    assert unescape(quoted[1:-1]) == text
    assert Scanner(quoted).string() == text
