"""HLO text: parser and printer. Real XLA must read what is printed as it reads the original."""

import contextlib
import pathlib

import numpy as np
import pytest

from support import oracle
from support.counting import python_calls
from support.mutations import cases
from support.stored_programs import DATA, SHARED, name_of
from support.text_rows import PREFIX
from xla_torch.errors import XlaError
from xla_torch.hlo.equality import modules_equal
from xla_torch.hlo.ir import Computation, Instruction, Module
from xla_torch.hlo.literals.literal import Literal
from xla_torch.hlo.parser import parse_hlo
from xla_torch.hlo.printer import PrintOptions, print_computation, print_instruction, print_module
from xla_torch.hlo.verifier import verify
from xla_torch.shape import Shape, parse_shape
from xla_torch.types import F32


def files(root: pathlib.Path, *patterns: str, every: int = 1) -> list[pathlib.Path]:
    return [path for pattern in patterns for path in sorted(root.glob(pattern))[::every]]


def same_after_printing(text: str) -> Module:
    """Parse, print, parse again: the modules are equal, and to XLA both texts are the same program."""
    module = parse_hlo(text)
    printed = print_module(module)
    assert modules_equal(module, parse_hlo(printed)) is None
    if oracle.HAS_XLA:
        assert oracle.xla_accepts(printed) is None
        assert oracle.xla_canonical(printed) == oracle.xla_canonical(text)
    return module


# ---------------------------------------------------------------------------------------------------- whole files


PROGRAMS = [*files(DATA, "*/*.hlo"), *files(SHARED, "programs/*/*.hlo", "perf/*/module.hlo")]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: f"{name_of(p.parent)} {p.stem}")
def test_programs(path):
    verify(same_after_printing(path.read_text()))


UNLIKE = {
    "atan": "an opcode of a newer XLA",
    "collective-reduce": "an opcode of a newer XLA",
    "async-update": "XLA numbers the instruction's name anew where the computation that it wraps has one like it",
}


@pytest.mark.parametrize("case", [case for case in cases()[::7] if case.opcode not in UNLIKE], ids=lambda case: case.opcode)
def test_a_sample_of_every_opcode(case):
    verify(same_after_printing(case.text))


if SHARED.exists():
    @pytest.mark.parametrize("path", files(SHARED, "conformance/cases/*/*/module.hlo", every=13), ids=lambda p: p.parent.name)
    def test_conformance_sample(path):
        verify(same_after_printing(path.read_text()))


# ---------------------------------------------------------------------------------------------------- attributes

ROWS = [
    "f32[2] parameter(13)",
    "f32[2] constant({1,2})",
    "s32[4,8] iota(), iota_dimension=0",
    "s32[2] convert(f)", "s32[2] bitcast-convert(f)", "f32[2] copy(f)", "f32[2] real(c)", "f32[2] imag(c)",
    "f32[6] bitcast(g)",
    "f32[2] exponential(f), result_accuracy={mode=highest}",
    "f32[2] tanh(f), result_accuracy={mode=default}",
    "f32[2] log(f), result_accuracy={tolerance={atol=0.001,rtol=0,ulps=2}}",
    "pred[2] compare(f, f), direction=LT", "pred[2] compare(f, f), direction=GE, type=TOTALORDER",
    "f32[2] add(f, f)", "f32[2] clamp(z, f, z)", "f32[2] select(b, f, f)", "c64[2] complex(f, f)", "f32[2] power(f, f)",
    "f32[2,5] broadcast(f), dimensions={0}", "f32[3,4,2] broadcast(g), dimensions={2,0}", "f32[2] broadcast(z), dimensions={}",
    "f32[6] reshape(g)", "f32[<=6] reshape(g), inferred_dimension=0",
    "f32[3,2] transpose(g), dimensions={1,0}", "f32[2] reverse(f), dimensions={0}",
    "f32[4] concatenate(f, f), dimensions={0}",
    "f32[1,2] slice(g), slice={[0:1], [0:3:2]}", "f32[1,3] slice(g), slice={[0:1], [0:3]}",
    "f32[2] dynamic-slice(f, i), dynamic_slice_sizes={2}", "f32[2] dynamic-update-slice(f, f, i)",
    "f32[5,2] pad(g, z), padding=1_2x0_-1", "f32[6,5] pad(g, z), padding=1_2_1x0_0_1",
    "f32[2,3] gather(g, idx), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
    "slice_sizes={1,3}, indices_are_sorted=true",
    "f32[2,3] scatter(g, idx, g), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
    "index_vector_dim=1, unique_indices=true, to_apply=add",
    "f32[] reduce(f, z), dimensions={0}, to_apply=add", "(f32[], f32[]) reduce(f, f, z, z), dimensions={0}, to_apply=add2",
    "f32[1,2] reduce-window(g, z), window={size=2x2 stride=1x1 pad=0_0x0_0 lhs_dilate=1x1 rhs_dilate=1x1}, to_apply=add",
    "f32[2,3] reduce-window(g, z), window={pad=0_1x1_0 size=2x2}, to_apply=add",
    "f32[2,3] select-and-scatter(g, g, z), window={size=1x1}, select=lt, scatter=add",
    "f32[2] map(f, f), dimensions={0}, to_apply=add",
    "f32[2] sort(f), dimensions={0}, is_stable=true, to_apply=lt",
    "(f32[2], f32[]) scan(f, z), dimensions={0}, num_carries=1, is_reverse=true, to_apply=step",
    "(f32[2], s32[2]) topk(f), k=2, largest=true", "(f32[1], s32[1]) topk(f), k=1, largest=false",
    "f32[3,3] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}, operand_precision={highest,default}",
    "f32[2,3] dot(g, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}, algorithm=dot_bf16_bf16_f32",
    "f32[3] dot(a, a), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    "f32[1,4,4,5] convolution(h, k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f",
    "f32[1,4,4,10] convolution(h, k), window={size=3x3 pad=1_1x1_1 rhs_reversal=1x0}, dim_labels=b01f_01io->b01f, "
    "feature_group_count=1, batch_group_count=1, operand_precision={high,highest}",
    "f32[2,3] convolution(g, a), dim_labels=bf_io->bf",
    "c64[2] fft(c), fft_type=FFT, fft_length={2}", "f32[2] fft(c), fft_type=IRFFT, fft_length={2}",
    "f32[3,3] cholesky(a), lower=true", "f32[3,3] cholesky(a)",
    "f32[3,3] triangular-solve(a, a), left_side=true, lower=true, unit_diagonal=true, transpose_a=TRANSPOSE",
    "f32[3,3] triangular-solve(a, a), transpose_a=NO_TRANSPOSE",
    "(f32[1,4,4,2], f32[2], f32[2]) batch-norm-training(h, f, f), epsilon=0.001, feature_index=3",
    "f32[1,4,4,2] batch-norm-inference(h, f, f, f, f), epsilon=1e-05, feature_index=3",
    "f32[2] reduce-precision(f), exponent_bits=5, mantissa_bits=10",
    "f32[2] rng(z, z), distribution=rng_uniform",
    "(u64[2], u32[4]) rng-bit-generator(st), algorithm=rng_three_fry",
    "u64[1] rng-get-and-update-state(), delta=4096",
    "(f32[2], s32[]) tuple(f, i)", "() tuple()",
    "f32[2] call(f), to_apply=id",
    'f32[2] call(f), to_apply=id, is_composite=true, frontend_attributes={composite.attributes={n = 1 : i32},'
    'composite.name="a.b",composite.version="1"}',
    "f32[2] while(f), condition=small, body=id",
    "f32[2] conditional(b, f, f), true_computation=id, false_computation=id",
    "f32[2] conditional(i, f, f, f), branch_computations={id, id, id}",
    "f32[2] fusion(f), kind=kLoop, calls=id",
    "f32[2] fusion(f), kind=kCustom, output_to_operand_aliasing={{}: (0, {})}, calls=id",
    'f32[2] custom-call(f), custom_call_target="t"',
    'f32[2] custom-call(f, f), custom_call_target="a \\"b\\"\\n", api_version=API_VERSION_TYPED_FFI, '
    'backend_config={a = 1 : i32}, custom_call_has_side_effect=true',
    'f32[2] custom-call(f), custom_call_target="t", backend_config="{a \\001", operand_layout_constraints={f32[2]{0}}',
    'f32[2] custom-call(f), custom_call_target="t", output_to_operand_aliasing={{}: (0, {})}, schedule=SCHEDULE_LATEST',
    'f32[2] custom-call(f), custom_call_target="t", literal=s32[2]{0} {1,2}, operand_precision={high}',
    'f32[2] custom-call(f), custom_call_target="t", literal=s32[] 4',
    'f32[2] custom-call(f), custom_call_target="t", padding_type=PADDING_SAME, window={size=2}, dim_labels=bf0_0io->bf0, '
    'feature_group_count=2, batch_group_count=3',
    'f32[2] custom-call(f), custom_call_target="t", called_computations={id, small}',
    'f32[2] custom-call(f), custom_call_target="t", to_apply=id',
    "f32[4] all-gather(f), replica_groups={{0,1}}, dimensions={0}", "f32[2] all-reduce(f), replica_groups={}, to_apply=add",
    "f32[2] all-reduce(f), channel_id=1, replica_groups=[2,4]<=[4,2]T(1,0), use_global_device_ids=true, to_apply=add",
    "f32[2] all-reduce(f), replica_groups=mesh['a'=2,'b'=2] {'a'}, to_apply=add",
    "f32[2] all-reduce(f), replica_groups=mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b':(2)2}, to_apply=add",
    "f32[2] all-reduce(f), constrain_layout=true, replica_groups={{0,1},{2,3}}, to_apply=add",
    "f32[1] reduce-scatter(f), replica_groups={{0,1}}, dimensions={0}, to_apply=add",
    "f32[2] all-to-all(f), replica_groups={{0,1}}, dimensions={0}",
    "(f32[2], f32[2]) all-to-all(f, f), replica_groups={{0,1}}",
    "f32[2] collective-broadcast(f), replica_groups={{0,1}}",
    "f32[2] collective-permute(f), source_target_pairs={{0,1},{1,0}}", "f32[2] collective-permute(f), channel_id=3, "
    "source_target_pairs={}",
    "u32[] replica-id()", "u32[] partition-id()",
    "((f32[2]), f32[2], s32[]) negate-start(f)",
    '((f32[2,3]), f32[1,3], s32[]) slice-start(g), slice={[0:1], [0:3]}, async_execution_thread="parallel"',
    "((f32[2], f32[]), f32[], s32[]) reduce-start(f, z), dimensions={0}, to_apply=add",
    "((f32[2]), f32[2], s32[]) async-start(f), calls=id",
    "(f32[2], f32[2], u32[]) copy-start(f)", "(f32[2], f32[2], u32[]) copy-start(f), cross_program_prefetch_index=0",
    "(f32[2], u32[], token[]) send(f, tk), channel_id=1, is_host_transfer=true",
    "(f32[2], u32[], token[]) recv(tk), channel_id=2",
    '((f32[2]), token[]) infeed(tk), infeed_config="cfg"', "(f32[2], token[]) infeed(tk)",
    'token[] outfeed(f, tk), outfeed_config="cfg", outfeed_shape=f32[2]{0}', "token[] outfeed(f, tk)",
    "token[] after-all(tk, tk)", "f32[2] add-dependency(f, tk)", "f32[2] opt-barrier(f)",
    'f32[2] domain(f), domain={kind="sharding", entry={replicated}, exit={maximal device=0}}',
    "s32[] get-dimension-size(g), dimensions={1}", "f32[2,<=3] set-dimension-size(g, i), dimensions={1}",
    "f32[<=6] dynamic-reshape(d, i)", "f32[2] stochastic-convert(f, u)", "s32[2] mulhi(u, u)",
]

COMMON_ROWS = [
    "sharding={replicated}", "sharding={maximal device=0}", "sharding={devices=[2]0,1}", "sharding={devices=[2]<=[2]}",
    "sharding={devices=[1,2]<=[2] last_tile_dim_replicate}", "sharding={devices=[2,2]<=[2,2]T(1,0) last_tile_dims={manual}}",
    'sharding={replicated metadata={op_name="x"}}', "sharding={mesh['a'=2], [{'a'}]}",
    'metadata={op_type="t" op_name="n(\\"a\\\')" source_file="f.py" source_line=3}',
    'metadata={op_name="x", source_end_line=4 source_column=5, source_end_column=6 profile_type={1} deduplicated_name="d" '
    'scheduling_name="s"}',
    'metadata={op_name="\\303\\251\\n\\x41{}"}', "metadata={}",
    'backend_config="opaque"', 'backend_config={"a":{"b":[1,2]}}', 'backend_config="a{\\"}"',
    'frontend_attributes={z="1",a={"k":1},b.c="x y"}', "control-predecessors={f, g}", "statistics={visualizing_index=0,stat=1.5}",
    'origin={{"a" {0}}}',
]

HEADERS = [
    "is_scheduled=true", "entry_computation_layout={(f32[2]{0}, f32[2]{0})->(f32[2]{0}, f32[2]{0})}",
    "input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, must-alias) }", "input_output_alias={ {0}: (0, {}) }",
    "buffer_donor={ (1, {}) }", "alias_passthrough_params=true", "replica_count=2, num_partitions=4",
    "allow_spmd_sharding_propagation_to_parameters={true,false}, allow_spmd_sharding_propagation_to_output={true}",
    'frontend_attributes={k="v",a={"x":1}}',
    'origin_recovery_table={ {"old" {0}} : {"new"}, "ENTRY %r (p: f32[2]) -> f32[2] { ROOT p = f32[2] parameter(0) }" }',
]


@pytest.mark.parametrize("row", ROWS)
def test_opcode_attributes(row):
    same_after_printing(f"{PREFIX}  ROOT result = {row}\n}}\n")


@pytest.mark.parametrize("row", COMMON_ROWS)
def test_common_attributes(row):
    module = same_after_printing(f"{PREFIX}  ROOT result = f32[2] negate(f), {row}\n}}\n")
    name = row.partition("=")[0].replace("-", "_")
    assert name in module.entry.root.common


@pytest.mark.parametrize("header", HEADERS)
def test_header(header):
    module = same_after_printing(f"HloModule %m, {header}\nENTRY e {{\n a = f32[2] parameter(0)\n b = f32[2] parameter(1)\n"
                                 " ROOT t = (f32[2], f32[2]) tuple(a, b)\n}")
    assert module.header
    assert module.name == "m"


def test_values_of_attributes():
    module = parse_hlo(f"""{PREFIX}
  x = f32[2,3] pad(g, z), padding=1_2x0_-1
  y = f32[1,2] slice(g), slice={{[0:1], [0:3:2]}}
  w = f32[2,3] reduce-window(g, z), window={{size=2x3 stride=1x2 pad=0_1x-1_0 lhs_dilate=2x1 rhs_dilate=1x3 rhs_reversal=0x1}},
      to_apply=add, metadata={{op_name="jit(f)/x" source_line=3}}, frontend_attributes={{k="v"}}, control-predecessors={{x, %y}}
  v = f32[1,4,4,5] convolution(h, k), window={{size=3x3}}, dim_labels=b01f_01io->b01f
  s = f32[2] all-reduce(f), replica_groups=[2,4]<=[4,2]T(1,0), to_apply=add
  m = f32[2] all-reduce(f), replica_groups=mesh['a'=2,'b'=4] {{'b':(2)2}}, to_apply=add
  c2 = f32[2] custom-call(f), custom_call_target="t", backend_config={{"a": "}}"}}
  ROOT e = f32[2] exponential(f), result_accuracy={{tolerance={{atol=1e-3,rtol=0,ulps=2}}}}
}}""")
    named = {i.name: i for i in module.entry.instructions}
    assert named["x"].attributes["padding"] == ((1, 2, 0), (0, -1, 0))
    assert named["y"].attributes["slice"] == ((0, 1, 1), (0, 3, 2))
    first, second = named["w"].attributes["window"]
    assert (first.size, first.padding_high, first.base_dilation, first.reversal) == (2, 1, 2, False)
    assert (second.stride, second.padding_low, second.window_dilation, second.reversal) == (2, -1, 3, True)
    assert named["w"].attributes["to_apply"].name == "add"
    assert named["w"].common == {"metadata": {"op_name": "jit(f)/x", "source_line": 3}, "frontend_attributes": {"k": "v"},
                                 "control_predecessors": [named["x"], named["y"]]}
    assert named["w"].op_name == "jit(f)/x"
    numbers = named["v"].attributes["dim_labels"]
    assert (numbers.input_batch_dimension, numbers.input_feature_dimension, numbers.kernel_output_feature_dimension) == (0, 3, 3)
    assert numbers.kernel_spatial_dimensions == (0, 1)
    assert named["s"].attributes["replica_groups"].groups == ((0, 2, 4, 6), (1, 3, 5, 7))
    assert named["m"].attributes["replica_groups"].groups == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert named["c2"].attributes.get("backend_config", named["c2"].common.get("backend_config")) == '{"a": "}"}'
    accuracy = named["e"].attributes["result_accuracy"]
    assert (accuracy.mode, accuracy.atol, accuracy.rtol, accuracy.ulps) == ("tolerance", 0.001, 0.0, 2)


# ---------------------------------------------------------------------------------------------------- module forms


def test_tables():
    module = same_after_printing("""HloModule m, entry_computation_layout={(f32[2]{0})->f32[2]{0}}

FileNames
1 "a.py"
2 "b \\"c\\".py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=2 function_name_id=1 line=1 end_line=1 column=1 end_column=2}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

ENTRY e { ROOT p = f32[2] parameter(0), metadata={op_name="x" stack_frame_id=1} }""")
    assert module.tables["FileNames"] == {1: '"a.py"', 2: '"b \\"c\\".py"'}
    assert module.tables["StackFrames"] == {1: "{file_location_id=1 parent_frame_id=1}"}


ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] add(a, b) }\n"


@pytest.mark.parametrize("text", [
    f"{ADD}main {{ f = f32[2] parameter(0)\n z = f32[] constant(0)\n ROOT r = f32[] reduce(f, z), dimensions={{0}}, "
    "to_apply=add }",
    f"HloModule m\n{ADD}ENTRY main {{ f = f32[2] parameter(0)\n z = f32[] constant(0)\n r = f32[] reduce(f, z), "
    "dimensions={0}, to_apply=add }",
    "HloModule m\nENTRY %e (p: f32[2], q: f32[2]) -> f32[2] {\n %p = f32[2]{0} parameter(0) // one\n %q = f32[2] parameter(1)\n"
    " /* two\n lines */ ROOT %r = f32[2]{0} add(f32[2]{0} %p, /*index=1*/f32[2] %q)\n}, execution_thread=\"main\"\n",
    "HloModule m\nworker { ROOT p = f32[2] parameter(0) }, execution_thread=\"w\"\nENTRY e { p = f32[2] parameter(0)\n"
    " s = ((f32[2]), f32[2], s32[]) async-start(p), async_execution_thread=\"w\", calls=worker\n"
    " u = ((f32[2]), f32[2], s32[]) async-update(s)\n ROOT d = f32[2] async-done(u) }",
    "HloModule m\nENTRY e { p = f32[2] parameter(0)\n s = ((f32[2]), f32[2], s32[]) negate-start(p), metadata={op_name=\"x\"}\n"
    " u = ((f32[2]), f32[2], s32[]) negate-update(s)\n ROOT d = f32[2] negate-done(u) }",
    "HloModule m\nENTRY e { a = f32[2] parameter(0)\n b = f32[2] parameter(1)\n ROOT r = add(multiply(a, a), f32[2] b) }",
    "HloModule m\nunused { ROOT p = f32[2] parameter(0) }\nENTRY e { ROOT p = f32[2] parameter(0) }",
    "HloModule m\nENTRY e { add = f32[2] parameter(0)\n ROOT c-1.x_ = f32[2] add(add, add) }",
    "HloModule m\n\n\nENTRY e {\r\n\tp = f32[2] parameter(0)\r\n\tROOT r = f32[2] negate(p)\r\n}\r\n",
    "HloModule m\nENTRY e () -> f32[2] { ROOT c = f32[2] constant({1,\n 2}) }",
])
def test_forms(text):
    same_after_printing(text)


@pytest.mark.parametrize(("text", "parameters", "opcodes"), [
    ("f32[2] add(f32[2] %a, f32[2] %b)", 2, "add"),
    ("%r = f32[2] add(f32[2] %a, f32[2] %a)", 1, "add"),
    ("r = add(f32[2] a, f32[2] b), metadata={op_name=\"x\"}", 2, "add"),
    ("f32[2] constant({1,2})", 0, "constant"),
    ("ROOT r = f32[3] iota(), iota_dimension=0", 0, "iota"),
    ("f32[2] add(multiply(f32[2] %a, f32[2] %b), f32[2] %b)", 2, "multiply add"),
])
def test_single_instruction(text, parameters, opcodes):
    module = parse_hlo(text)
    verify(module)
    assert len(module.entry.parameters) == parameters
    assert [i.opcode for i in module.entry.instructions if i.opcode != "parameter"] == opcodes.split()
    assert modules_equal(module, parse_hlo(print_module(module))) is None


def test_omitted_shapes_are_inferred():
    module = parse_hlo(f"""HloModule m
{ADD}ENTRY e {{
  a = f32[2,3] parameter(0)
  b = add(a, a)
  t = transpose(b), dimensions={{1,0}}
  d = dot(a, t), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  z = f32[] constant(0)
  r = reduce(d, z), dimensions={{1}}, to_apply=add
  s = tuple(r, t)
  ROOT g = get-tuple-element(s), index=1
}}""")
    assert [str(i.shape) for i in module.entry.instructions[1:]] == [
        "f32[2,3]", "f32[3,2]", "f32[2,2]", "f32[]", "f32[2]", "(f32[2], f32[3,2])", "f32[3,2]"]


def test_async_sugar_is_an_async_start_of_a_computation():
    start = parse_hlo("ENTRY e { p = f32[2] parameter(0)\n ROOT s = ((f32[2]), f32[2], s32[]) negate-start(p) }").entry.root
    assert start.opcode == "async-start"
    assert [i.opcode for i in start.attributes["calls"].instructions] == ["parameter", "negate"]


def test_unreachable_computations_and_text_order_are_kept():
    text = "HloModule m\n\n%b (p: f32[2]) -> f32[2] {\n  ROOT %p = f32[2]{0} parameter(0)\n}\n\n" \
           "%a (q: f32[2]) -> f32[2] {\n  ROOT %q = f32[2]{0} parameter(0)\n}\n\n" \
           "ENTRY %e (r: f32[2]) -> f32[2] {\n  %r = f32[2]{0} parameter(0)\n  ROOT %c = f32[2]{0} call(%r), to_apply=%a\n}\n"
    module = parse_hlo(text)
    assert [c.name for c in module.unreachable] == ["b"]
    assert print_module(module) == text.replace("HloModule m", "HloModule m, entry_computation_layout={(f32[2]{0})->f32[2]{0}}")


# ---------------------------------------------------------------------------------------------------- printing


def test_names_that_text_cannot_have_are_replaced_in_the_text_only():
    p = Instruction("parameter", Shape(F32), (), {"parameter_number": 0}, "7 up")
    n = Instruction("negate", Shape(F32), (p,), name="x")
    m = Instruction("negate", Shape(F32), (n,), name="x")
    module = Module("my model", Computation("a<b>", [p, n, m]))
    text = print_module(module)
    assert "%_7_up = f32[] parameter(0)" in text
    assert "%x.1 = f32[] negate(%x)" in text
    assert (p.name, n.name, m.name) == ("7 up", "x", "x")
    assert modules_equal(module, parse_hlo(text)) is None


def test_equal_computation_names_are_made_unique():
    def inner(opcode: str) -> Computation:
        x = Instruction("parameter", Shape(F32), (), {"parameter_number": 0}, "x")
        return Computation("f", [x, Instruction(opcode, Shape(F32), (x,), name="y")])

    p = Instruction("parameter", Shape(F32), (), {"parameter_number": 0}, "p")
    a = Instruction("call", Shape(F32), (p,), {"to_apply": inner("negate")}, "a")
    b = Instruction("call", Shape(F32), (a,), {"to_apply": inner("abs")}, "b")
    module = Module("m", Computation("f", [p, a, b]))
    assert modules_equal(module, parse_hlo(print_module(module))) is None


def test_options():
    module = parse_hlo('HloModule m\nENTRY e { ROOT c = f32[20] constant({' + ",".join(map(str, range(20)))
                       + '}), metadata={op_name="x"} }')
    assert "{0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19}" in print_module(module)
    short = print_module(module, PrintOptions(elide_above=10, metadata=False, layouts=False))
    assert "ROOT %c = f32[20] constant({...})\n" in short
    assert parse_hlo(short).entry.root.attributes["literal"].elided
    assert print_instruction(module.entry.root, PrintOptions(elide_above=0)) == \
        '%c = f32[20]{0} constant({...}), metadata={op_name="x"}'
    assert print_computation(module.entry, PrintOptions(elide_above=0), entry=True).startswith("ENTRY %e () -> f32[20] {\n  ROOT")


def test_differences_are_named():
    def module(body: str) -> Module:
        return parse_hlo("HloModule m\nENTRY e { p = f32[2] parameter(0)\n " + body + " }")

    base = module("ROOT n = f32[2] negate(p)")
    for other, reason in [
        ("ROOT n = f32[2] abs(p)", "opcodes negate and abs"),
        ("q = f32[2] abs(p)\n ROOT n = f32[2] negate(p)", "2 and 3 instructions"),
        ('ROOT n = f32[2] negate(p), metadata={op_name="x"}', "metadata"),
        ("ROOT n = f32[3] negate(p)", "shapes"),
    ]:
        assert reason in (modules_equal(base, module(other)) or "")
    assert modules_equal(base, module("ROOT other = f32[2] negate(p)")) is None


def test_broken_text_gives_errors_of_ours_only():
    random, marks = np.random.default_rng(0), "{}()[]=,:\"%xab01-.\\/* \n<>?'_"
    for number in range(600):
        text = f"{PREFIX}  ROOT result = {ROWS[number % len(ROWS)]}, {COMMON_ROWS[number % len(COMMON_ROWS)]}\n}}\n"
        place = int(random.integers(text.index("ENTRY"), len(text)))
        text = text[:place] + marks[random.integers(len(marks))] + text[place + int(random.integers(3)):]
        with contextlib.suppress(XlaError):
            verify(parse_hlo(text))


# ---------------------------------------------------------------------------------------------------- speed


def test_loading_is_linear_in_the_number_of_instructions():
    def calls(count: int) -> int:
        text = "ENTRY e {\n  p = f32[2] parameter(0)\n  x0 = f32[2] negate(p)\n" + "".join(
            f'  x{n} = f32[2]{{0}} add(x{n - 1}, p), metadata={{op_name="a/{n}"}}\n' for n in range(1, count)) + "}"
        return python_calls(lambda: verify(parse_hlo(text)))

    calls(200)
    assert calls(4_000) < 4.1 * calls(1_000)


def test_huge_constants_parse_as_a_whole():
    values = np.random.default_rng(0).standard_normal(200_000).astype(np.float32)
    text = "{" + ",".join(map(repr, values.tolist())) + "}"
    found = []
    assert python_calls(lambda: found.append(parse_hlo(f"ENTRY e {{ ROOT c = f32[200000] constant({text}) }}"))) < 200_000 / 30
    assert found[0].entry.root.attributes["literal"] == Literal(parse_shape("f32[200000]"), values)
