"""The reader of MLIR's text against jaxlib's bindings: the same objects from the pretty and from the generic form."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import mlir_oracle
from support.mlir_equal import difference
from support.mlir_texts import DATA, operations
from support.stablehlo_oracle import ir as bindings
from support.stablehlo_oracle import jaxlib, new_context, stablehlo  # pyright: ignore[reportAttributeAccessIssue]
from support.stablehlo_oracle import parse as parse_by_jaxlib
from xla_torch.errors import HloSyntaxError
from xla_torch.mlir import ir
from xla_torch.mlir.bytecode.parser import parse as parse_bytecode
from xla_torch.mlir.text.parser import parse

SHARED = Path(__file__).parents[3] / "shared"
PROGRAMS = sorted(SHARED.glob("programs/*/*.mlir")) + sorted(SHARED.glob("conformance/cases/*/*/*.mlir"))


def differences(texts: list[str]) -> list[str]:
    """What is different between the own reader and jaxlib's bindings, in each text as it is and in the forms that MLIR prints."""
    found = []
    with new_context() as context:
        context.allow_unregistered_dialects = True
        for text in texts:
            module = parse_by_jaxlib(text, context)
            want = mlir_oracle.operation(module.operation)
            found.append(difference(parse(text), want))
            for generic in (False, True):
                printed = module.operation.get_asm(print_generic_op_form=generic, large_elements_limit=1 << 40)
                found.append(difference(parse(printed), want, locations=False))
    return [d for d in found if d]


@pytest.mark.skipif(not PROGRAMS, reason="shared programs are absent")
def test_programs_are_read_as_jaxlib_reads_them():
    assert differences([p.read_text() for p in PROGRAMS[::25]]) == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
@pytest.mark.skipif(not PROGRAMS, reason="shared programs are absent")
def test_all_programs_are_read_as_jaxlib_reads_them(part):
    assert differences([p.read_text() for p in PROGRAMS[part::8]]) == []


def test_each_operation_in_its_own_form_and_in_the_generic_one():
    assert differences(operations()) == []


def test_regions_functions_shardings_and_locations():
    assert differences((DATA / "mlir_programs.mlir").read_text().split("// -----\n")) == []


def test_locations_that_jax_writes():
    jax = pytest.importorskip("jax")

    def looping(x):
        return jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jax.numpy.sin(c[1]) @ c[1]), (0, x))[1].sum()

    lowered = jax.jit(jax.value_and_grad(lambda x: jax.nn.softmax(x)[0].sum() + jax.lax.stop_gradient(looping(x)))).lower(
        jax.numpy.ones((4, 4)))
    module = lowered.compiler_ir()
    with module.context:
        want = mlir_oracle.operation(module.operation)
    for operation in ir.walk(want):
        if not any(operation.attributes.get("arg_attrs", ())):  # which is not printed
            operation.attributes.pop("arg_attrs", None)
    assert any(o.location and "while" in o.location.name for o in ir.walk(want))
    for local in (False, True):
        assert difference(parse(module.operation.get_asm(enable_debug_info=True, use_local_scope=local)), want) == ""


def test_the_versioned_copy_of_stablehlo_is_read_as_from_bytecode():
    found = []
    with new_context() as context:
        context.allow_unregistered_dialects = True
        for text in (DATA / "mlir_versions.mlir").read_text().split("// -----\n"):
            artifact = jaxlib.mlir.serialize_portable_artifact(text, stablehlo.get_current_version())
            printed = str(bindings.Module.parse(artifact, context))
            assert "vhlo.func_v1" in printed
            found.append(difference(parse(printed), parse_bytecode(artifact), locations=False))
    assert [d for d in found if d] == []


# ---- the spellings of constants

LITERALS = [tuple(map(str.strip, line.split("=", 1))) for line in r"""
tensor<f32> = 1.0
tensor<f32> = -0.0
tensor<f32> = 0x7FC00001
tensor<f32> = 3.40282347E+38
tensor<4xf32> = 2.5
tensor<2x2xf32> = [[1.0, 2.], [3.0e5, -4.1E-3]]
tensor<3xf32> = [0x7F800000, 1.0, 0xFF800001]
tensor<f32> = 1.0e50
tensor<f32> = 1.0e-50
tensor<0xf32> =
tensor<0x3xf32> =
tensor<2x0xf32> = [[], []]
tensor<f64> = 0.1
tensor<2xf64> = [0x7FF8000000000000, 5.0e-324]
tensor<2xf16> = [65504.0, 0x7E01]
tensor<2xf16> = [65520.0, 6.0e-8]
tensor<3xbf16> = [1.00390625, 1.00390626, 0x7FC1]
tensor<2xf8E4M3FN> = [448.0, 0x7F]
tensor<2xf8E5M2> = [1.0, 0x7C]
tensor<2xf8E4M3FNUZ> = [0.5, 0x80]
tensor<2xf8E4M3B11FNUZ> = [0.5, 2.0]
tensor<2xf8E3M4> = [15.5, 0.25]
tensor<2xf8E4M3> = [1.0625, 240.0]
tensor<2xf8E5M2FNUZ> = [1.0, 3.0]
tensor<2xf8E8M0FNU> = [2.0, 0x7F]
tensor<2xf4E2M1FN> = [6.0, -0.5]
tensor<i1> = true
tensor<4xi1> = false
tensor<3xi1> = [true, false, true]
tensor<2xi1> = [1, 0]
tensor<i8> = 255
tensor<2xi8> = [-128, 0xFF]
tensor<2xui8> = [0, 255]
tensor<2xi16> = [-32768, 65535]
tensor<2xi4> = [-8, 7]
tensor<2xui4> = [0, 15]
tensor<2xi2> = [-2, 1]
tensor<2xui2> = [3, 0]
tensor<2xi32> = [2147483647, -2147483648]
tensor<2xi64> = [9223372036854775807, -9223372036854775808]
tensor<2xui64> = [18446744073709551615, 0]
tensor<i64> = 18446744073709551615
tensor<2xindex> = [1, -1]
tensor<2xcomplex<f32>> = [(1.0, -0.0), (0x7FC00000, 2.0)]
tensor<2x1xcomplex<f64>> = [[(1.0,2.5)], [(3.0, 4.0)]]
tensor<2xf32> = "0x0000803F0000C07F"
tensor<3xf32> = "0x0000803F"
tensor<4xi1> = "0x01"
tensor<3xi1> = "0x010001"
tensor<2xi64> = "0xFFFFFFFFFFFFFFFF0100000000000000"
tensor<2xbf16> = "0x803FC07F"
tensor<2xcomplex<f32>> = "0x0000803F00000040000040400000C0BF"
tensor<2x2xi8> = "0x01FF0380"
tensor<3xi4> = "0x0F0801"
tensor<2xui4> = "0x0F01"
""".strip().splitlines()]


@pytest.mark.parametrize(("type", "body"), LITERALS)
def test_constants_have_the_bits_that_jaxlib_gives(type, body):
    text = f'func.func @main() {{\n  "foo.bar"() {{value = dense<{body}> : {type}}} : () -> ()\n  return\n}}'
    with new_context() as context:
        context.allow_unregistered_dialects = True
        module = parse_by_jaxlib(text, context)
        want = mlir_oracle.operation(module.operation)
    assert difference(parse(text), want) == ""


# ---- commas at the end of an attribute

@pytest.mark.parametrize("attribute", [
    "dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0],>", "dot<>", "dot<,>", "gather<offset_dims = [0],>",
    "dot<lhs_contracting_dimensions = [1,]>", "dot<lhs_contracting_dimensions = [1] rhs_contracting_dimensions = [0]>",
    "scatter<update_window_dims = [0], >", "channel_handle<handle = 1, type = 0,>", "conv<[b,f]x[i,o]->[b,f],>", "bounds<2,>",
    "bounds<2, ?>", "bounds<,>",
    "conv<raw input_batch_dimension = 0, input_feature_dimension = 1, input_spatial_dimensions = [], "
    "kernel_output_feature_dimension = 0, kernel_input_feature_dimension = 1, kernel_spatial_dimensions = [], "
    "output_batch_dimension = 0, output_feature_dimension = 1, output_spatial_dimensions = [],>",
    "output_operand_alias<output_tuple_indices = [], operand_index = 0, operand_tuple_indices = [],>",
])
def test_a_comma_at_the_end_of_an_attribute_is_read_where_mlir_reads_it(attribute: str):
    text = f"func.func @main() attributes {{x = #stablehlo.{attribute}}} {{\n  return\n}}"
    with new_context() as context:
        try:
            bindings.Module.parse(text, context)
            expected = True
        except bindings.MLIRError:
            expected = False
    try:
        parse(text)
        found = True
    except HloSyntaxError:
        found = False
    assert found == expected
