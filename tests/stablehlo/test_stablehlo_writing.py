"""HLO to StableHLO text: read back by ourselves it gives the same bits, and MLIR's own parser accepts it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from support.agreement import one_of_each
from support.op_rows import ROWS, Drawn, Row
from support.oracle import needs_xla
from support.stablehlo_oracle import load_stablehlo, new_context
from support.stablehlo_oracle import parse as parse_by_bindings
from xla_torch import ops, run_replicas
from xla_torch.api.loading import from_stablehlo, load, parse_hlo
from xla_torch.cli import main as command
from xla_torch.errors import UnsupportedError
from xla_torch.hlo.schema import OPS
from xla_torch.opcodes import movement
from xla_torch.opcodes.front import parse_module
from xla_torch.runtime.computation import XlaComputation
from xla_torch.shape import Shape
from xla_torch.stablehlo.writing.elementwise import ACCURATE
from xla_torch.stablehlo.writing.module import to_stablehlo
from xla_torch.stablehlo.writing.refused import ATTRIBUTES, OPCODES
from xla_torch.stablehlo.writing.writing_rules import RULES

SHARED = Path(__file__).parents[3] / "shared"
ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b) }\n"
PROGRAMS = {
    "elementwise": "ENTRY e { x = f32[4] parameter(0)\n y = f32[4] tanh(x)\n z = f32[4] erf(y)\n"
                   " c = pred[4] compare(z, x), direction=LT\n ROOT r = f32[4] select(c, y, z) }",
    "constants": "ENTRY e { x = f32[2] parameter(0)\n a = f32[2] constant({0.1, nan})\n b = pred[2] constant({true, false})\n"
                 " c = s4[2] constant({-8, 7})\n d = c64[2] constant({(1,-2), (0.1,inf)})\n f = f32[0] constant({})\n"
                 " g = bf16[] constant(-inf)\n ROOT r = (f32[2], f32[2], pred[2], s4[2], c64[2], f32[0], bf16[]) "
                 "tuple(x, a, b, c, d, f, g) }",
    "a tuple as parameter": "ENTRY e { p = (f32[2], (s32[], f32[3])) parameter(0)\n"
                            " q = (s32[], f32[3]) get-tuple-element(p), index=1\n n = s32[] get-tuple-element(q), index=0\n"
                            " x = f32[2] get-tuple-element(p), index=0\n"
                            " ROOT r = (s32[], f32[2]) tuple(n, x) }",
    "reduce": ADD + "ENTRY e { x = f32[3,4] parameter(0)\n z = f32[] constant(0.1)\n"
                    " ROOT r = f32[3] reduce(x, z), dimensions={1}, to_apply=add }",
    "call and fusion": "f { a = f32[3] parameter(0)\n ROOT s = f32[3] multiply(a, a) }\n"
                       "g { a = f32[3] parameter(0)\n ROOT s = f32[3] negate(a) }\n"
                       "ENTRY e { x = f32[3] parameter(0)\n y = f32[3] call(x), to_apply=f\n z = f32[3] call(y), to_apply=f\n"
                       " ROOT r = f32[3] fusion(z), kind=kLoop, calls=g }",
    "loop": "c { p = (s32[], f32[2]) parameter(0)\n i = s32[] get-tuple-element(p), index=0\n n = s32[] constant(5)\n"
            " ROOT r = pred[] compare(i, n), direction=LT }\n"
            "b { p = (s32[], f32[2]) parameter(0)\n i = s32[] get-tuple-element(p), index=0\n o = s32[] constant(1)\n"
            " j = s32[] add(i, o)\n x = f32[2] get-tuple-element(p), index=1\n y = f32[2] sine(x)\n"
            " ROOT t = (s32[], f32[2]) tuple(j, y) }\n"
            "ENTRY e { x = f32[2] parameter(0)\n z = s32[] constant(0)\n t = (s32[], f32[2]) tuple(z, x)\n"
            " ROOT w = (s32[], f32[2]) while(t), condition=c, body=b }",
    "branches": "f { a = f32[3] parameter(0)\n ROOT s = f32[3] exponential(a) }\n"
                "g { a = (f32[3], f32[3]) parameter(0)\n x = f32[3] get-tuple-element(a), index=0\n"
                " y = f32[3] get-tuple-element(a), index=1\n ROOT s = f32[3] add(x, y) }\n"
                "ENTRY e { x = f32[3] parameter(0)\n k = s32[] parameter(1)\n t = (f32[3], f32[3]) tuple(x, x)\n"
                " ROOT r = f32[3] conditional(k, x, t), branch_computations={f, g} }",
    "convolution": "ENTRY e { x = f32[1,5,6,2] parameter(0)\n k = f32[3,2,2,4] parameter(1)\n"
                   " ROOT r = f32[1,3,3,4] convolution(x, k), window={size=3x2 stride=1x2 rhs_reversal=1x0}, "
                   "dim_labels=b01f_01io->b01f }",
    "windows": ADD + "ENTRY e { x = f32[6] parameter(0)\n z = f32[] constant(0)\n"
                     " ROOT r = f32[4] reduce-window(x, z), window={size=3 pad=1_1 stride=1 rhs_dilate=2}, to_apply=add }",
}
TWO = "ENTRY e { x = f32[4,6] parameter(0)\n y = f32[6,4] parameter(1)\n t = token[] after-all()\n"
PROGRAMS |= {
    "a copy in two halves": f"{TWO} s = (f32[4,6], f32[4,6], u32[]) copy-start(x)\n ROOT r = f32[4,6] copy-done(s) }}",
    "work in two halves": "f { a = f32[4,6] parameter(0)\n ROOT s = f32[4,6] multiply(a, a) }\n" + TWO
                          + " s = ((f32[4,6]), f32[4,6], u32[]) async-start(x), calls=f\n"
                            " u = ((f32[4,6]), f32[4,6], u32[]) async-update(s)\n ROOT r = f32[4,6] async-done(u) }",
    "what waits": f"{TWO} n = f32[4,6] negate(x)\n ROOT r = f32[4,6] add-dependency(n, t) }}",
    "a domain": f"{TWO} n = f32[4,6] negate(x)\n ROOT r = f32[4,6] domain(n), domain={{kind=\"sharding\", "
                "entry={maximal device=0}, exit={maximal device=1}} }",
    "memory in another order": f"{TWO} ROOT r = f32[3,8]{{0,1}} bitcast(x) }}",
    "memory of narrower elements": f"{TWO} ROOT r = u8[4,24] bitcast(x) }}",
    "memory of wider elements": f"{TWO} ROOT r = f64[12]{{0}} bitcast(x) }}",
    "bytes of booleans": f"{TWO} p = pred[4,6] compare(x, x), direction=EQ\n b = u8[4,6] bitcast-convert(p)\n"
                         " q = pred[4,6] bitcast-convert(b)\n r = pred[4,6,4] bitcast-convert(x)\n"
                         " ROOT w = (u8[4,6], pred[4,6], pred[4,6,4]) tuple(b, q, r) }",
    "wide memory of booleans": "ENTRY e { p = pred[3,4] parameter(0)\n ROOT r = s32[3] bitcast-convert(p) }",
    "rounded by chance": f"{TWO} b = u32[4,6] bitcast-convert(x)\n ROOT r = s8[4,6] stochastic-convert(x, b) }}",
    "scaled products": f"{TWO} a = f32[2,3] slice(x), slice={{[0:2], [0:3]}}\n b = f32[3,1] slice(y), slice={{[0:3], [1:2]}}\n"
                       " ROOT r = bf16[4,4] scaled-dot(x, y, a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0} }",
    "ragged products": f"{TWO} g = s32[3] constant({{1, 2, 1}})\n z = f32[3,6,4] broadcast(y), dimensions={{1,2}}\n"
                       " ROOT r = f32[4,4] ragged-dot(x, z, g), lhs_contracting_dims={1}, rhs_contracting_dims={1}, "
                       "lhs_ragged_dims={0}, rhs_group_dims={0} }",
    "an algorithm": f"{TWO} ROOT r = f32[4,4] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, "
                    "algorithm=dot_tf32_tf32_f32_x3 }",
    "products of eight bits": f"{TWO} a = f8e4m3fn[4,6] convert(x)\n b = f8e5m2[6,4] convert(y)\n"
                              " ROOT r = f32[4,4] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
                              "algorithm=dot_any_f8_any_f8_f32_fast_accum }",
    "the smallest": f"{TWO} ROOT r = (f32[4,2], s32[4,2]) topk(x), k=2, largest=false }}",
    "accuracy": f"{TWO} h = f32[4,6] tanh(x), result_accuracy={{mode=highest}}\n"
                " ROOT r = f32[4,6] cosine(h), result_accuracy={tolerance={atol=1e-7,rtol=0.5,ulps=3}} }",
    "steps": "f { a = f32[6] parameter(0)\n c = f32[6] parameter(1)\n s = f32[6] add(a, c)\n"
             " ROOT t = (f32[6], f32[6]) tuple(s, s) }\n" + f"{TWO} w = f32[6,1] slice(y), slice={{[0:6], [0:1]}}\n"
             " q = f32[6] reshape(w)\n"
             " ROOT r = (f32[4,6], f32[6]) scan(x, q), dimensions={0}, num_carries=1, is_reverse=true, to_apply=f }",
    "sizes that are data": f"{TWO} n = s32[] constant(3)\n m = s32[] constant(8)\n"
                           " ROOT r = f32[3,<=8] dynamic-reshape(x, n, m) }",
    "sizes that are data, joined and divided": f"{TWO} n = s32[] constant(3)\n"
                           " a = f32[<=4,6] set-dimension-size(x, n), dimensions={0}\n b = f32[<=24] reshape(a)\n"
                           " c = f32[<=8,1,3] reshape(b)\n ROOT r = f32[1,<=8,3] reshape(c) }",
    "places in a vector": f"{TWO} i = s32[2] constant({{1, 2}})\n a = f32[2,3] dynamic-slice(x, i), dynamic_slice_sizes={{2,3}}\n"
                          " ROOT r = f32[4,6] dynamic-update-slice(x, a, i) }",
    "a composite": "f { a = f32[4,6] parameter(0)\n ROOT s = f32[4,6] multiply(a, a) }\n" + TWO
                   + ' ROOT r = f32[4,6] call(x), to_apply=f, is_composite=true, frontend_attributes={composite.name="my.square",'
                     'composite.attributes={n = 1 : i32, s = "a"},composite.version="2"} }',
}

REFUSED = {
    "rng-get-and-update-state": "ENTRY e { ROOT r = u64[2] rng-get-and-update-state(), delta=1 }",
    "begins to receive": "f { t = (f32[2], u32[], token[]) parameter(0)\n"
                         " ROOT d = (f32[2], token[]) recv-done(t), channel_id=1 }\n"
                         "ENTRY e { t = token[] after-all()\n s = (f32[2], u32[], token[]) recv(t), channel_id=1\n"
                         " ROOT r = (f32[2], token[]) call(s), to_apply=f }",
    "sizes that are not known": f"{TWO} n = s32[] constant(3)\n a = f32[<=4,6] set-dimension-size(x, n), dimensions={{0}}\n"
                                " b = f32[<=4,<=6] set-dimension-size(a, n), dimensions={1}\n ROOT r = f32[<=24] reshape(b) }",
    "slice_sizes": "ENTRY e { x = f32[4] parameter(0)\n y = f32[4] parameter(1)\n i = (s32[]) parameter(2)\n"
                   " ROOT r = f32[4] collective-permute(x, y, i, i), source_target_pairs={{0,0}}, slice_sizes={{2}} }",
    "reversal": ADD + "ENTRY e { x = f32[6] parameter(0)\n z = f32[] constant(0)\n"
                      " ROOT r = f32[4] reduce-window(x, z), window={size=3 rhs_reversal=1}, to_apply=add }",
}


def drawn(shapes: Sequence[Shape]) -> list[np.ndarray]:
    random = np.random.default_rng(7)
    return [random.integers(0, 2, s.dimensions).astype(s.element_type.numpy) if s.element_type.is_integral
            else random.standard_normal(s.dimensions).astype(s.element_type.numpy) for s in shapes]


def nested(shape: Shape, leaves: Iterator[np.ndarray]) -> Any:
    return tuple(nested(s, leaves) for s in shape.tuple_shapes) if shape.is_tuple else next(leaves)


def stored(folder: Path, shapes: Sequence[Shape]) -> list[np.ndarray]:
    """A case's own arguments."""
    sizes = [s for _, s in json.loads((folder / "case.json").read_text())["inputs"]]
    data = np.load(folder / "data.npz")
    return [np.frombuffer(data[f"in{k}"].tobytes(), shape.element_type.numpy).reshape(s)
            for k, (s, shape) in enumerate(zip(sizes, shapes, strict=True))]


def leaves(values: Any) -> Iterator[Any]:
    for value in values:
        yield from leaves(value) if isinstance(value, tuple | list) else (value,)


def assert_bytecode_is(text: str, program: XlaComputation) -> None:
    """MLIR's parser reads the text and the bytecode as one program, and so do we."""
    data = program.to_stablehlo_bytecode()
    with new_context() as context:
        assert str(parse_by_bindings(data, context)) == str(parse_by_bindings(text, context))
    assert from_stablehlo(data).to_hlo_text() == from_stablehlo(text).to_hlo_text()


def assert_same(path_or_text: str | Path) -> None:
    program = load(path_or_text) if isinstance(path_or_text, Path) else parse_hlo(path_or_text)
    text = program.to_stablehlo()
    assert_bytecode_is(text, program)
    shapes = [leaf for p in program.program_shape.parameters for leaf in p.leaves()]
    is_case = isinstance(path_or_text, Path) and (path_or_text.parent / "case.json").exists()
    arguments = stored(path_or_text.parent, shapes) if is_case else drawn(shapes)  # pyright: ignore
    left = iter(arguments)
    got, want = from_stablehlo(text).run_numpy(*arguments), list(leaves(program.run_numpy(*[
        nested(p, left) for p in program.program_shape.parameters])))
    assert [(a.dtype, a.shape, a.tobytes()) for a in got] == [(a.dtype, a.shape, a.tobytes()) for a in want]


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_written_reads_as_the_same_program(name: str):
    assert_same("HloModule m\n" + PROGRAMS[name])


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_words_is_refused_and_named(name: str):
    with pytest.raises(UnsupportedError, match=name):
        to_stablehlo(parse_module("HloModule m\n" + REFUSED[name]))


def test_each_op_and_attribute_has_a_rule_or_a_reason():
    """Parameters are the arguments of blocks."""
    assert OPS.keys() - RULES.keys() - {movement.parameter} == OPCODES.keys()
    messages = {(o, a) for o, r in RULES.items() for a in r.says}
    every = {(o, a) for o in RULES for a in OPS[o].attributes}
    assert every - messages == ATTRIBUTES.keys()


TOGETHER = {
    "all-gather": "s = (f32[4], f32[8]) all-gather-start(x), dimensions={0}, replica_groups={{0,1}}\n"
                  " ROOT r = f32[8] all-gather-done(s)",
    "all-reduce": "s = f32[4] all-reduce-start(x), replica_groups={{0,1}}, to_apply=add\n ROOT r = f32[4] all-reduce-done(s)",
    "collective-permute": "s = (f32[4], f32[4], u32[], u32[]) collective-permute-start(x), source_target_pairs={{0,1},{1,0}}\n"
                          " ROOT r = f32[4] collective-permute-done(s)",
    "all-to-all of several": "n = f32[4] negate(x)\n ROOT r = (f32[4], f32[4]) all-to-all(x, n), replica_groups={{1,0}}",
    "all-to-all": "ROOT r = f32[4] all-to-all(x), dimensions={0}, replica_groups={{0,1}}",
    "several at once": "n = f32[4] negate(x)\n ROOT r = (f32[4], f32[4]) all-reduce(x, n), replica_groups={{0,1}}, to_apply=add",
    "permuted, of several": "n = f32[4] negate(x)\n"
                            " ROOT r = (f32[4], f32[4]) collective-permute(x, n), source_target_pairs={{0,1}}",
    "ragged-all-to-all": "i = s32[2] constant({0, 2})\n n = s32[2] constant({2, 2})\n p = u32[] replica-id()\n"
                         " q = s32[] convert(p)\n two = s32[] constant(2)\n b = s32[] multiply(q, two)\n"
                         " o = s32[2] broadcast(b), dimensions={}\n"
                         " ROOT r = f32[4] ragged-all-to-all(x, x, i, n, o, n), replica_groups={{0,1}}",
    "sent": "t = token[] after-all()\n e = (f32[4], u32[], token[]) recv(t), channel_id=1, frontend_attributes={PAIRS}\n"
            " s = (f32[4], u32[], token[]) send(x, t), channel_id=1, frontend_attributes={PAIRS}\n"
            " u = token[] send-done(s), channel_id=1\n d = (f32[4], token[]) recv-done(e), channel_id=1\n"
            " ROOT r = f32[4] get-tuple-element(d), index=0",
}
PAIRS = '_xla_send_recv_source_target_pairs="{{0,1},{1,0}}"'


@pytest.mark.parametrize("name", TOGETHER)
def test_what_participants_do_is_the_same_for_each(name: str):
    body = TOGETHER[name].replace("PAIRS", PAIRS)
    program = parse_hlo(f"HloModule m, replica_count=2\n{ADD}ENTRY e {{ x = f32[4] parameter(0)\n {body} }}")
    text = program.to_stablehlo()
    arguments = [(np.arange(4, dtype=np.float32) + 10 * k,) for k in range(2)]
    got, want = (run_replicas(p, arguments, num_replicas=2) for p in (from_stablehlo(text), program))
    for one, other in zip(got, want, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)
    assert_bytecode_is(text, program)
    load_stablehlo(text)


def test_feeds_and_routines_of_libraries_keep_what_they_say():
    text = parse_hlo(
        "HloModule m\nf { a = f32[] parameter(0)\n ROOT r = f32[] negate(a) }\n"
        "ENTRY e { t = token[] after-all()\n i = ((f32[2,3], s32[]), token[]) infeed(t), infeed_config=\"a b\"\n"
        " d = (f32[2,3], s32[]) get-tuple-element(i), index=0\n u = token[] get-tuple-element(i), index=1\n"
        " o = token[] outfeed(d, u), outfeed_shape=(f32[2,3], s32[]), outfeed_config=\"c\"\n"
        " x = f32[2,3] get-tuple-element(d), index=0\n"
        " k = (f32[2,3]{0,1}) custom-call(x), custom_call_target=\"one\", operand_layout_constraints={f32[2,3]{0,1}},"
        " output_to_operand_aliasing={{0}: (0, {})}, called_computations={f}\n"
        " v = f32[2,3] get-tuple-element(k), index=0\n"
        " ROOT j = (f32[2], (s32[], f32[3])) custom-call(v, d), custom_call_target=\"two\", custom_call_has_side_effect=true,"
        " api_version=API_VERSION_TYPED_FFI, backend_config={n = 5 : i32} }").to_stablehlo()
    with new_context() as context:
        parse_by_bindings(text, context)
    for again in (load_stablehlo(text), from_stablehlo(text).to_hlo_text()):
        calls = [line for line in again.splitlines() if "custom-call(" in line]
        for words, place in ((('infeed_config="a b"', 'outfeed_config="c"'), again),
                             (("{0,1}", "output_to_operand_aliasing={{0}: (0, {})}", "called_computations"), calls[0]),
                             (("(f32[2]", "(s32[], f32[3]", "has_side_effect=true"), calls[1])):
            assert [w for w in words if w not in place] == []


HEADERS = {
    "aliases": ("input_output_alias={ {1}: (0, {0}, must-alias), {0}: (1, {}, may-alias) }, buffer_donor={ (0, {1}) }",
                ("x = (f32[2], f32[2]) parameter(0)", "y = f32[2] parameter(1)", "a = f32[2] get-tuple-element(x), index=0",
                 "b = f32[2] get-tuple-element(x), index=1", "ROOT t = (f32[2], f32[2], f32[2]) tuple(y, a, b)"),
                ("input_output_alias={ {0}: (2, {}, may-alias), {1}: (0, {}, may-alias) }", "buffer_donor={ (1, {}) }")),
    "layouts": ("entry_computation_layout={(f32[2,3]{0,1}, f32[])->f32[3,2]{0,1}}",
                ("x = f32[2,3] parameter(0)", "y = f32[] parameter(1)", "ROOT t = f32[3,2] transpose(x), dimensions={1,0}"),
                ("entry_computation_layout={(f32[2,3]{0,1}, f32[])->f32[3,2]{0,1}}",)),
    "shardings": ("num_partitions=2",
                  ("x = (f32[2], f32[4]) parameter(0), sharding={{replicated}, {devices=[2]<=[2]}}",
                   "a = f32[2] get-tuple-element(x), index=0", "b = f32[4] get-tuple-element(x), index=1",
                   "ROOT t = (f32[2], f32[4]) tuple(a, b), sharding={{devices=[2]<=[2]}, {replicated}}"),
                  ("num_partitions=2", "parameter(0), sharding={replicated}", "parameter(1), sharding={devices=[2]<=[2]}",
                   "get-tuple-element(tuple), index=0, sharding={devices=[2]<=[2]}",
                   "index=1, sharding={replicated}")),
    "a sharding of several results": (
        "num_partitions=2", ("x = f32[4,4] parameter(0)", "ROOT t = (f32[4,2], s32[4,2]) topk(x), k=2, largest=true, "
                             "sharding={{devices=[2,1]<=[2]}, {replicated}}"),
        ("sharding={{devices=[2,1]<=[2]}, {replicated}}",)),
}


@pytest.mark.parametrize("name", HEADERS)
def test_what_stands_beside_the_program_goes_along(name: str):
    header, lines, words = HEADERS[name]
    program = parse_hlo(f"HloModule m, {header}\nENTRY e {{ " + "\n ".join(lines) + " }")
    text = program.to_stablehlo()
    assert_bytecode_is(text, program)
    again, by_xla = from_stablehlo(text).to_hlo_text().replace("%", ""), load_stablehlo(text).replace("%", "")
    assert [w for w in words if w not in again] == []
    assert [w for w in words if w not in by_xla and "shard" not in name] == []
    assert ("sharding={devices=[2" in by_xla) == (name == "shardings")


@needs_xla
@pytest.mark.slow
@pytest.mark.parametrize("row", [r for r in ROWS if r.participants == (1, 1)], ids=lambda r: r.name)
def test_every_row_of_every_op_reads_as_the_same(row: Row):
    """A result may be asked to be more accurate than StableHLO has a word for: that is refused."""
    for kind in one_of_each(row.types):
        _assert_row_is_the_same(row, kind)


def _assert_row_is_the_same(row: Row, kind: str) -> None:
    @settings(max_examples=2, deadline=None, derandomize=True, database=None, phases=(Phase.generate,),
              suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large,
                                     HealthCheck.large_base_example])
    @given(st.data())
    def same(data: Any) -> None:
        drawn = Drawn(data.draw, kind)
        root = row.build(drawn)
        assert drawn.builder is not None
        built = drawn.builder.build(ops.Tuple(drawn.builder, list(root)) if isinstance(root, list | tuple) else root)
        asked = [i for i in built.module.entry.instructions if i.attributes.get("result_accuracy") is not None]
        if any(i.opcode not in ACCURATE and i.attributes["result_accuracy"].mode != "default" for i in asked):
            with pytest.raises(UnsupportedError, match="accuracy"):
                built.to_stablehlo()
            return
        text = built.to_stablehlo()
        with new_context() as context:
            parse_by_bindings(text, context)
        got, want = from_stablehlo(text).run_numpy(*drawn.arrays), list(map(np.asarray, leaves(built.run_numpy(*drawn.arrays))))
        assert [(a.dtype, a.shape, a.tobytes()) for a in got] == [(a.dtype, a.shape, a.tobytes()) for a in want], text

    same()


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.exists(), reason="the programs are not here")
def test_cases_and_programs_read_as_the_same():
    for path in sorted([*SHARED.glob("conformance/cases/*/*/module.hlo"), *SHARED.glob("programs/*/module.hlo")]):
        assert_same(path)


def test_files_are_converted_by_their_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "a.hlo"
    path.write_text("HloModule m\n" + PROGRAMS["loop"])
    want = load(path).run_numpy(x := np.array([0.5, 2.0], np.float32))
    for before, after in (("a.hlo", "b.mlir"), ("b.mlir", "c.pb"), ("c.pb", "d.hlo"), ("d.hlo", "e.mlirbc")):
        assert command(["convert", str(tmp_path / before), str(tmp_path / after)]) == 0
        assert [a.tobytes() for a in load(tmp_path / after).run_numpy(x)] == [a.tobytes() for a in want]
    for name, begin in (("e.html", "<!doctype html>"), ("e.dot", "digraph")):
        assert command(["convert", str(path), str(tmp_path / name)]) == 0
        assert (tmp_path / name).read_text().startswith(begin)
    assert command(["convert", str(path), str(tmp_path / "a.gguf")]) == 2
    assert ".mlir" in capsys.readouterr().err
