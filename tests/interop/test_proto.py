"""HLO protos, read and written without XLA, against XLA's own reader and writer."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import hlo_protos, oracle
from support.hlo_protos import entry, read, written
from support.mutations import cases
from support.stored_programs import DATA, SHARED
from xla_torch import load, parse_hlo
from xla_torch.api.loading import from_hlo_proto
from xla_torch.errors import HloSyntaxError, InvalidArgument, UnknownOpcodeError, UnsupportedError, XlaError
from xla_torch.hlo.literals.literal import Literal
from xla_torch.opcodes import front
from xla_torch.proto import wire
from xla_torch.proto.containers import read_proto
from xla_torch.proto.schema import message_class
from xla_torch.proto.writing import serialized

pytestmark = oracle.needs_xla

ADD = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }\n"
PAIR = ("pair { a = f32[] parameter(0) b = f32[] parameter(1) c = f32[] add(a, b) ROOT t = (f32[], f32[]) tuple(c, c) }\n")


def one(instruction: str, parameter: str = "f32[4]", before: str = "") -> str:
    """A module of a parameter `a` and an instruction."""
    return entry(f"a = {parameter} parameter(0)", f"ROOT {instruction}", before=before)


def check_both_ways(text: str) -> None:
    """XLA's proto reads as XLA's text of it does; what we write reads as that, for XLA and for us."""
    data = hlo_protos.module_proto(text)
    text = hlo_protos.module_text(data)
    expected = hlo_protos.read_text(text)
    assert hlo_protos.canonical(read(data)) == expected
    ours = written(text)
    assert hlo_protos.canonical(read(ours)) == expected
    assert hlo_protos.read_text(hlo_protos.module_text(ours)) == expected


# ------------------------------------------------------------------------------------------------------------ programs

TABLES = """
FileNames
1 "a.py"
2 "b \\"q\\".py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=4 end_column=5}
2 {file_name_id=2 function_name_id=1 line=5 end_line=6 column=7 end_column=8}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}
"""

ROWS = {
    "alias": entry("ROOT a = (f32[2], f32[2]) parameter(0)", header=", input_output_alias={ {0}: (0, {1}, may-alias), "
                   "{1}: (0, {0}, must-alias) }, buffer_donor={ (0, {1}) }, frontend_attributes={k=\"v\"}"),
    "layouts": entry("a = f32[2,3]{0,1} parameter(0)", "ROOT b = f32[2,3]{1,0:T(2,128)(2,1)S(5)} copy(a)",
                     header=", entry_computation_layout={(f32[2,3]{0,1:T(8,128)})->f32[2,3]{1,0:T(2,128)(2,1)S(5)}}"),
    "bounds": entry("a = f32[<=4,8] parameter(0)", "ROOT b = f32[<=4,8] copy(a)"),
    "scheduled": entry("a = f32[2]{0} parameter(0)", "b = f32[2]{0} negate(a)", "c = f32[2]{0} negate(a)",
                       "ROOT t = f32[2]{0} add(c, b)", header=", is_scheduled=true"),
    "tables": "HloModule m\n" + TABLES + entry('ROOT a = f32[4] parameter(0), metadata={op_name="x" stack_frame_id=2}')[12:],
    "metadata": one('b = f32[4] copy(a), metadata={op_type="t" op_name="n\\"" source_file="f" source_line=3 source_end_line=4 '
                    'source_column=5 source_end_column=6 profile_type={1} deduplicated_name="d" scheduling_name="s"}'),
    "payload": one('b = f32[4] copy(a), metadata={op_name="n" metadata_payload="abc"}'),
    "origins": entry('a = (f32[],(f32[],f32[])) parameter(0), origin={({"x"}, ({"y" {1}}, {"z"}))}',
                     'ROOT b = f32[4] parameter(1), origin={[synthetic_call]}'),
    "statistics": one("b = f32[4] copy(a), statistics={visualizing_index=1,a=1.5,b=2}"),
    "predecessors": entry("a = f32[4] parameter(0)", "b = f32[4] negate(a)", "ROOT c = f32[4] exponential(a), "
                          'control-predecessors={b}, frontend_attributes={y="1",x={a=1}}, result_accuracy={mode=highest}'),
    "tolerance": one("b = f32[4] exponential(a), result_accuracy={tolerance={atol=1,rtol=2,ulps=3}}"),
    "replication": entry("ROOT a = (f32[4], f32[]) parameter(0), parameter_replication={true,false}"),
    "domain": one('b = f32[4] domain(a), domain={kind="sharding", entry={replicated}, exit={devices=[4]<=[4]}}'),
    "dot": one("b = f32[2,2] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
               "operand_precision={highest,default}, algorithm=dot_bf16_bf16_f32_x3", "f32[2,2]"),
    "convolution": entry("a = f32[1,4,4,4] parameter(0)", "k = f32[2,2,2,6] parameter(1)",
                         "ROOT b = f32[1,5,2,6] convolution(a, k), window={size=2x2 stride=1x2 pad=1_1x0_0 rhs_reversal=1x0}, "
                         "dim_labels=b01f_01io->b01f, "
                         "feature_group_count=2, operand_precision={high,default}, convolution_kind=fprop"),
    "sparse convolution": entry("a = f32[1,4,4,4] parameter(0)", "k = f32[2,2,4,6] parameter(1)",
                                "b = f32[1,3,3,6] convolution(a, k), window={size=2x2}, dim_labels=b01f_01io->b01f, "
                                "sparsity_config={rhs={sparsity=2x4 dimension=2 stride=1}}",
                                "ROOT c = f32[1,3,3,6] convolution(a, k), window={size=2x2}, dim_labels=b01f_01io->b01f, "
                                "sparsity_config={lhs={stride=2 dimension=-1} rhs={sparsity=1x2}}"),
    "all-reduce iota": one("b = f32[4] all-reduce(a), channel_id=3, replica_groups=[2,2]<=[2,2]T(1,0), "
                           "use_global_device_ids=true, to_apply=add", before=ADD),
    "all-reduce mesh": one("b = f32[4] all-reduce(a), channel_id=1, replica_groups=mesh['x'=2,'y'=4], "
                           "device_ids=([4,2]T(1,0)) {'y':(2)2}, to_apply=add", before=ADD),
    "all-reduce lists": one("b = f32[4] all-reduce(a), replica_groups={{0,2},{1,3}}, to_apply=add", before=ADD),
    "all-reduce all": one("b = f32[4] all-reduce(a), replica_groups={}, to_apply=add", before=ADD),
    "all-to-all": one("b = f32[4] all-to-all(a), replica_groups={{0,1}}, dimensions={0}"),
    "all-to-all tuple": one("b = (f32[4], f32[4]) all-to-all(a, a), replica_groups={{0,1}}"),
    "permute": one("b = f32[4] collective-permute(a), channel_id=1, source_target_pairs={{0,1},{1,0}}"),
    "async": entry("a = f32[4] parameter(0)", "s = ((f32[4]), f32[4], s32[]) negate-start(a)",
                   "u = ((f32[4]), f32[4], s32[]) negate-update(s)", "ROOT d = f32[4] negate-done(u)"),
    "async thread": "HloModule m\n\nw {\n  p = f32[4] parameter(0)\n  ROOT n = f32[4] custom-call(p), custom_call_target=\"f\"\n"
                    '}, execution_thread="side"\n\nENTRY e {\n  a = f32[4] parameter(0)\n'
                    '  s = ((f32[4]), f32[4], s32[]) async-start(a), async_execution_thread="side", calls=w\n'
                    "  ROOT d = f32[4] async-done(s)\n}\n",
    "fusion": one("b = f32[4] fusion(a), kind=kInput, calls=f, output_to_operand_aliasing={{}: (0, {})}",
                  before="f { p = f32[4] parameter(0) ROOT n = f32[4] negate(p) }\n"),
    "custom-call": one('b = f32[4] custom-call(a), custom_call_target="x", window={size=2}, dim_labels=bf0_0io->bf0, '
                       "feature_group_count=2, operand_layout_constraints={f32[4]{0}}, custom_call_has_side_effect=true, "
                       "called_computations={add}, api_version=API_VERSION_TYPED_FFI, schedule=SCHEDULE_LATEST, "
                       "operand_precision={highest}, backend_config={a = 1 : i64, b = \"\\22\"}, literal=s32[2]{0} {1, 2}",
                       before=ADD),
    "custom-call text": one('b = f32[4] custom-call(a), custom_call_target="x", backend_config="\\377 \\"q\\" {", '
                            "output_to_operand_aliasing={{}: (0, {})}"),
    "scan": entry("a = f32[8] parameter(0)", "i = f32[] parameter(1)", "ROOT x = (f32[8], f32[]) scan(a, i), dimensions={0}, "
                  "num_carries=1, is_reverse=true, is_associative=false, to_apply=pair", before=PAIR),
    "shardings": entry(*(f"a{n} = f32[4,4] parameter({n}), sharding={text}" for n, text in enumerate((
        "{replicated}", "{manual}", "{unknown}", "{maximal device=3}", "{devices=[2,2]<=[4]}", "{devices=[2,2]0,2,1,3}",
        "{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}", "{devices=[1,1,2,2]<=[4] last_tile_dims={manual, replicated}}",
        "{devices=[2,1]<=[2] shard_as 7}", '{devices=[2,1]<=[2] metadata={{op_name="a"}, {op_name="b" source_line=3}}}',
        "{mesh['x'=2,'y'=4], [{'x', ?}, {'y':(1)2}], replicated={'y':(2)2}}", "{mesh['x'=2], device_ids=(1,0), [{}, {'x'}]}"))),
        "t = (f32[4,4], f32[4,4]) tuple(a0, a1), sharding={{devices=[2,1]<=[2]}, {replicated}}",
        "ROOT r = f32[4,4] get-tuple-element(t), index=0"),
    "outfeed": entry("a = f32[2] parameter(0)", "t = token[] after-all()",
                     'ROOT o = token[] outfeed(a, t), outfeed_shape=f32[2]{0}, outfeed_config="ab\\001"'),
    "conditional": entry("p = pred[] parameter(0)", "i = s32[] parameter(1)", "x = f32[] constant(1)",
                         "a = f32[] conditional(p, x, x), true_computation=f, false_computation=g",
                         "ROOT b = f32[] conditional(i, x, x, x), branch_computations={f, g, f}",
                         before="f { p = f32[] parameter(0) ROOT n = f32[] negate(p) }\ng { ROOT p = f32[] parameter(0) }\n"),
    "names": entry('ROOT a.b-c_1 = f32[2] parameter(0), metadata={op_name="ä"}'),
}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=oracle.as_older) if name in ("origins", "sparse convolution") else name for name in ROWS])
def test_attributes(name: str):
    check_both_ways(ROWS[name])


CASES = [case for case in cases() if "?" not in case.text]


@pytest.mark.parametrize("part", range(8))
def test_every_opcode(part: int):
    """Every opcode, in several forms; of those few that XLA does not read as text, only our own way there and back."""
    judged = 0
    for case in CASES[part::8]:
        try:
            hlo_protos.module_proto(case.text)
        except RuntimeError:
            assert hlo_protos.canonical(read(written(case.text))) == hlo_protos.read_text(case.text)
        else:
            check_both_ways(case.text)
            judged += 1
    assert judged > 0.9 * len(CASES[part::8])


PROGRAMS = sorted([*DATA.glob("*/*.hlo"), *SHARED.glob("programs/*/*.hlo")])
CONFORMANCE = sorted(SHARED.glob("conformance/cases/*/*/module.hlo"))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_programs(path: Path):
    check_both_ways(path.read_text())


def test_conformance_sample():
    for path in CONFORMANCE[::40]:
        check_both_ways(path.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_conformance(part: int):
    for path in CONFORMANCE[part::20]:
        check_both_ways(path.read_text())


def test_participants_and_schedules_come_back():
    """What XLA keeps beside a module, not in its proto, still comes back from what we write."""
    text = entry("ROOT a = f32[2]{0} parameter(0)", header=", is_scheduled=true, replica_count=2, num_partitions=4")
    header = read(written(text)).header
    assert {n: header[n] for n in ("is_scheduled", "replica_count", "num_partitions")} == {
        "is_scheduled": True, "replica_count": 2, "num_partitions": 4}
    assert hlo_protos.module_text(written(text))


RECOVERY = (
    '{ {"old" {0}} : {"new" {1,2}}, "ENTRY %r (p: f32[4]) -> f32[4] { ROOT p = f32[4] parameter(0) }" }',
    '{ {"a"} : {"b"}, "HloModule q\n ENTRY r { k = f32[2000] constant({' + ", ".join(map(str, range(2000))) + '}) '
    'ROOT n = f32[2000] negate(k), metadata={op_name=\\"x\\"} }" {"c"} : {"d" {3}} }',
    '{ {"a"} : {} {"b"} : {"c"} }',
)


@pytest.mark.parametrize("table", [pytest.param(t, marks=oracle.as_older) if "op_name" in t else t for t in RECOVERY])
def test_recovery_tables(table: str):
    """XLA sees in what we write the table that it wrote, whether we have read its proto, its text, or our own text."""
    data = hlo_protos.module_proto(entry("ROOT a = f32[4] parameter(0)", header=f", origin_recovery_table={table}"))
    text = hlo_protos.module_text(data)
    module = read(data)
    for again in (module, front.parse_module(text), front.parse_module(front.print_module(module))):
        assert hlo_protos.module_text(b"".join(serialized(again))) == text


# ---------------------------------------------------------------------------------------------------------- containers


def module_message() -> Any:
    return message_class("HloModuleProto").FromString(written(one("b = f32[4] negate(a)")))


def raw_literal(shape: str, data: bytes) -> bytes:
    """A literal as XLA serialises it behind a snapshot."""
    module = front.parse_module(entry(f"ROOT p = {shape} parameter(0)"))
    proto = message_class("HloModuleProto").FromString(b"".join(serialized(module)))
    described = proto.computations[0].instructions[0].shape.SerializeToString()
    return len(described).to_bytes(8, "little") + described + data


def containers() -> dict[str, bytes]:
    module = module_message()
    proto = message_class("HloProto")(hlo_module=module)
    given = message_class("LiteralProto")(f32s=[1, 2, 3, 4])
    given.shape.CopyFrom(module.computations[0].instructions[0].shape)
    snapshot = message_class("HloSnapshot")(hlo=proto, arguments=[given], execution_platform="cpu")
    snapshot.result.CopyFrom(given)
    unoptimized = message_class("HloUnoptimizedSnapshot")(hlo_module=module, version=0)
    unoptimized.partitions.add(arguments=[given])
    unoptimized.partitions.add(arguments=[given])
    large = message_class("HloUnoptimizedSnapshot")(hlo_module=module)
    raw = raw_literal("f32[4]{0}", np.arange(4, dtype=np.float32).tobytes())
    large.partitions.add().arguments_descriptors.add(argument_size_bytes=len(raw))
    head = large.SerializeToString()
    return {
        "HloModuleProto": module.SerializeToString(),
        "HloProto": proto.SerializeToString(),
        "HloProto with buffers": proto.SerializeToString() + b"\x1a\x02\x08\x01",
        "HloModuleProtoWithConfig": proto.SerializeToString() + b"\x12\x04\x08\x01\x38\x02",
        "HloSnapshot": snapshot.SerializeToString(),
        "HloUnoptimizedSnapshot": unoptimized.SerializeToString(),
        "delimited HloUnoptimizedSnapshot": wire.number_bytes(len(head)) + head + raw,
    }


@pytest.mark.parametrize("name", containers())
def test_containers(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    """Each is told by its content, runs, keeps its bytes, and nothing is printed."""
    data = containers()[name]
    found = read_proto(data)
    assert found.kind == name.partition(" with")[0]
    assert found.to_bytes() == data
    (tmp_path / "program").write_bytes(data)
    result, = load(tmp_path / "program").run_numpy(np.arange(4, dtype=np.float32))
    np.testing.assert_array_equal(result, -np.arange(4, dtype=np.float32))
    assert capfd.readouterr() == ("", "")


ARGUMENTS = {"HloProto": [], "HloSnapshot": [[1, 2, 3, 4]], "HloUnoptimizedSnapshot": [[1, 2, 3, 4]] * 2,
             "delimited HloUnoptimizedSnapshot": [[0, 1, 2, 3]]}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_stored_arguments(name: str):
    found = read_proto(containers()[name])
    assert [literal.array.tolist() for part in found.arguments() for literal in part] == ARGUMENTS[name]
    assert (found.result() is not None) == (name == "HloSnapshot")


@pytest.mark.parametrize(("shape", "data", "expected"), [
    ("pred[10]", b"\x05\x02", [1, 0, 1, 0, 0, 0, 0, 0, 0, 1]), ("s4[3]", b"\x21\x0f", [1, 2, -1]),
    ("(u8[2], u16[])", b"\x01\x02\x03\x04", None), ("f32[2,2]{0,1}", np.arange(4, dtype=np.float32).tobytes(), [[0, 2], [1, 3]])])
def test_literals_behind_snapshots(shape: str, data: bytes, expected: Any):
    raw = raw_literal(shape, data)
    large = message_class("HloUnoptimizedSnapshot")(hlo_module=module_message())
    large.partitions.add().arguments_descriptors.add(argument_size_bytes=len(raw))
    head = large.SerializeToString()
    (literal,), = read_proto(wire.number_bytes(len(head)) + head + raw).arguments()
    if expected is None:
        assert [part.array.tolist() for part in literal.value] == [[1, 2], 0x0403]
    else:
        np.testing.assert_array_equal(literal.array.astype(np.int64), expected)
    with pytest.raises(HloSyntaxError, match="cut off"):
        read_proto(wire.number_bytes(len(head)) + head + raw[:-1]).arguments()


def test_unknown_fields_survive():
    """Fields of later versions, at every level, beside a large literal."""
    module = front.parse_module(entry("ROOT c = f32[5000] constant({...})"))
    module.entry.root.attributes["literal"] = Literal.of(np.arange(5000, dtype=np.float32))
    proto = message_class("HloModuleProto").FromString(b"".join(serialized(module)))
    unknown = b"\xba\x3e\x03new"  # field 999
    for message in (proto, proto.computations[0], proto.computations[0].instructions[0].metadata,
                    proto.computations[0].instructions[0].literal):
        message.MergeFromString(unknown)
    data = proto.SerializeToString()
    found = read_proto(data)
    assert len(found.blobs) == 1
    assert found.to_bytes() == data
    assert data.count(unknown) == 4


def test_unknown_fields_of_instructions_are_named():
    proto = module_message()
    proto.computations[0].instructions[1].MergeFromString(b"\xba\x3e\x03new")
    with pytest.warns(UserWarning, match="not known here.*999"):
        read(proto.SerializeToString())


# ----------------------------------------------------------------------------------------------------------- older forms


def changed(text: str, change: Any) -> front.Module:
    """The module of a proto after `change` was done to its last instruction."""
    proto = message_class("HloModuleProto").FromString(written(text))
    change(proto.computations[-1].instructions[-1], proto)
    return read(proto.SerializeToString())


REDUCED = one("b = f32[4] all-reduce(a), replica_groups={{0,1}}, to_apply=add", before=ADD)


def _old_groups(instruction: Any, _: Any) -> None:
    instruction.ClearField("collective_device_list")
    instruction.replica_groups.add(replica_ids=[1, 0])
    instruction.all_reduce_id = 5


def _old_iota(instruction: Any, _: Any) -> None:
    inner = instruction.collective_device_list.iota_replica_group_list
    inner.num_replica_groups, inner.num_devices_per_group = 2, 1
    inner.iota_reshape_dims.append(2)
    inner.iota_transpose_perm.append(0)


def _payload(instruction: Any, proto: Any) -> None:
    proto.payloads.extend([b"one", b"two"])
    instruction.backend_config_payload.id = 1


def _opaque(instruction: Any, _: Any) -> None:
    instruction.custom_call_opaque = b"old"


def _prefetch(instruction: Any, _: Any) -> None:
    instruction.is_cross_program_prefetch = True


OLDER = [
    (REDUCED, _old_groups, lambda i: (i.attributes["replica_groups"].groups, i.attributes["channel_id"]), (((1, 0),), 5)),
    (REDUCED, _old_iota, lambda i: i.attributes["replica_groups"].groups, ((0,), (1,))),
    (one("b = f32[4] negate(a)"), _payload, lambda i: i.common["backend_config"], "two"),
    (one('b = f32[4] custom-call(a), custom_call_target="x"'), _opaque, lambda i: i.common["backend_config"], "old"),
    (one("b = (f32[4], f32[4], u32[]) copy-start(a)"), _prefetch,
     lambda i: i.attributes["cross_program_prefetch_index"], 0),
]


@pytest.mark.parametrize(("text", "change", "asked", "expected"), OLDER, ids=[c.__name__[1:] for _, c, *_ in OLDER])
def test_older_forms(text: str, change: Any, asked: Any, expected: Any):
    assert asked(changed(text, change).entry.root) == expected


# --------------------------------------------------------------------------------------------------------------- mistakes


def _set(name: str, value: Any) -> Any:
    def change(instruction: Any, proto: Any) -> None:
        target = proto if hasattr(proto, name) and not hasattr(instruction, name) else instruction
        setattr(target, name, value)
    return change


def _no_entry(_: Any, proto: Any) -> None:
    proto.entry_computation_id, proto.entry_computation_name = 9, "other"


def _operands(*ids: int) -> Any:
    return lambda instruction, _: instruction.operand_ids.__setitem__(slice(None), list(ids))


def _shape(**fields: Any) -> Any:
    def change(instruction: Any, _: Any) -> None:
        for name, value in fields.items():
            setattr(instruction.shape, name, value) if isinstance(value, int) else getattr(instruction.shape, name).extend(value)
    return change


MISTAKES = [
    (_set("opcode", "frobnicate"), "unknown opcode 'frobnicate'", UnknownOpcodeError),
    (_operands(7), "an operand does not exist", HloSyntaxError),
    (_operands(1), "an operand does not exist", HloSyntaxError),
    (_operands(0, 0), "has 2 operands", HloSyntaxError),
    (_set("id", 0), "two instructions have one id", HloSyntaxError),
    (_no_entry, "entry does not exist", HloSyntaxError),
    (_shape(element_type=99), "an element type that XLA does not have", HloSyntaxError),
    (_shape(element_type=38), "an element type that XLA does not have", HloSyntaxError),
    (_shape(dimensions=[-5]), "wrong dimensions", HloSyntaxError),
    (_shape(dimensions=[5]), "wrong dimensions", HloSyntaxError),
    (lambda i, _: i.shape.layout.minor_to_major.append(3), "does not list each dimension", HloSyntaxError),
    (lambda i, _: i.ClearField("shape"), "has no shape", HloSyntaxError),
    (lambda i, _: i.called_computation_ids.append(9), "", None),
    (lambda i, _: i.backend_config_payload.__setattr__("id", 3), "a payload is missing", HloSyntaxError),
    (lambda i, _: i.sharding.__setattr__("type", 77), "unknown type", HloSyntaxError),
    (lambda _, p: p.computations[0].__setattr__("root_id", 50), "the root does not exist", HloSyntaxError),
    (lambda _, p: p.schedule.sequences.add(key=0).value.instruction_ids.extend([1, 0]), "no order of its instr", HloSyntaxError),
    (lambda _, p: p.computations[0].instructions[0].__setattr__("parameter_number", 3), "not dense", HloSyntaxError),
]


@pytest.mark.parametrize(("change", "reason", "kind"), MISTAKES, ids=[reason or "called" for _, reason, _ in MISTAKES])
def test_mistakes(change: Any, reason: str, kind: type[XlaError] | None):
    text = one("b = f32[4] negate(a)")
    if kind is None:
        changed(text, change)
        return
    with pytest.raises(kind, match=reason):
        changed(text, change)


def test_callers_stand_behind_what_they_call():
    def swap(_: Any, proto: Any) -> None:
        first, second = list(proto.computations)
        del proto.computations[:]
        proto.computations.extend([second, first])

    with pytest.raises(HloSyntaxError, match="not before its caller"):
        changed(REDUCED, swap)


def test_sparse_dots_are_refused():
    text = one("b = f32[2,2] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "f32[2,2]")
    with pytest.raises(UnsupportedError, match="sparse"):
        changed(text, lambda i, _: i.dot_sparsity.add())


def test_modes_of_collectives_are_not_lost():
    text = one("b = f32[4] all-reduce(a), replica_groups={{0,1}}, channel_id=1, mode=flattened_id, to_apply=add", before=ADD)
    with pytest.raises(InvalidArgument, match="do not hold the mode"):
        written(text)
    messages = text.replace("channel_id=1", "channel_id=1, use_global_device_ids=true")
    assert written(messages) == written(messages.replace("mode=flattened_id, ", ""))
    check_both_ways(messages)


def test_the_reduction_of_parts_is_not_lost():
    """XLA of jaxlib 0.12 knows other reductions than a sum; the reader does not need it."""
    sharding = "{mesh['x'=2], [{}], unreduced=%s{'x'}}"
    for word in ("", "max", "min"):
        text = one(f"b = f32[4] negate(a), sharding={sharding % word}")
        assert hlo_protos.canonical(read(written(text))) == hlo_protos.read_text(text)
    with pytest.raises(UnsupportedError, match="reduced by an unknown operation"):
        changed(one(f"b = f32[4] negate(a), sharding={sharding % ''}"),
                lambda i, _: setattr(i.sharding.named_sharding, "reduction_op", 3))


def test_a_sparsity_that_is_none():
    with pytest.raises(InvalidArgument, match="invalid sparsity"):
        written(ROWS["sparse convolution"].replace("2x4", "2"))


@pytest.mark.parametrize("data", [
    b"", b"\x0a", b"\x0a\xff", b"\xff\xfe\x00", b"\x0a\x03abc", b"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x00" * 50,
    b"HloModule m", b"\xff" * 100])
def test_bytes_that_are_no_proto(data: bytes):
    with pytest.raises(HloSyntaxError, match="HLO proto"):
        from_hlo_proto(data)


def test_bytes_that_are_cut_off():
    """Every way to cut a file off is an xla_torch error, or a shorter program."""
    data = containers()["HloSnapshot"]
    for end in range(len(data)):
        with contextlib.suppress(XlaError):
            from_hlo_proto(data[:end])


def test_a_computation_writes_its_proto():
    computation = parse_hlo(one("b = f32[4] negate(a)"))
    assert hlo_protos.read_text(hlo_protos.module_text(computation.to_hlo_proto())) == hlo_protos.canonical(computation.module)
