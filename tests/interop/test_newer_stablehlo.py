"""Artifacts of versions of StableHLO that are newer than the installed jaxlib: what they mean is read, and what is not known is
refused where it is used."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import xla_torch
from support.newer_artifacts import newer
from xla_torch.errors import UnsupportedError
from xla_torch.mlir import vhlo_table
from xla_torch.mlir.bytecode import parser as bytecode
from xla_torch.mlir.bytecode.property_table import LAYOUTS

_jax, jax = pytest.importorskip("jaxlib._jax"), pytest.importorskip("jax")

ROW = np.array([1, 2], np.float32)
CALL = """
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.custom_call @Sharding(%x) : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}"""
REDUCE = """
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = "stablehlo.all_reduce"(%x) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) {replica_groups = dense<[[0]]> : tensor<1x1xi64>} : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}"""


def of_current(program: str) -> bytes:
    return _jax.mlir.serialize_portable_artifact(program, "1.17.0")


def as_they_are(properties: list[list[int]]) -> list[list[int]]:
    return properties


def with_tilings(properties: list[list[int]]) -> list[list[int]]:
    """A custom call has no tilings, as it has no layouts (which stand sixth among eight)."""
    return [[*p, p[5]] if len(p) == 8 else p for p in properties]


def test_a_custom_call_has_tilings() -> None:
    data = newer(of_current(CALL), "custom_call_v1", "custom_call_v2", with_tilings, "1.18.0")
    assert bytecode.header(data).producer == "StableHLO_v1.18.0"
    assert xla_torch.from_stablehlo(data).run_numpy(ROW)[0].tolist() == [1, 2]


PRINTED = """
vhlo.func_v1 @main(%arg0: !vhlo.tensor_v1<2x!vhlo.f32_v1>) -> !vhlo.tensor_v1<2x!vhlo.f32_v1> {{
  {operation}
  "vhlo.return_v1"(%0) : (!vhlo.tensor_v1<2x!vhlo.f32_v1>) -> ()
}} {{arg_attrs = #vhlo.array_v1<[]>, res_attrs = #vhlo.array_v1<[]>, sym_visibility = #vhlo.string_v1<"">}}"""
GROUPS = "replica_groups = #vhlo.tensor_v1<dense<[[0]]> : tensor<1x1xi64>>"
TYPE = "(!vhlo.tensor_v1<2x!vhlo.f32_v1>) -> !vhlo.tensor_v1<2x!vhlo.f32_v1>"
REDUCER = """({
  ^bb0(%a: !vhlo.tensor_v1<!vhlo.f32_v1>, %b: !vhlo.tensor_v1<!vhlo.f32_v1>):
    %s = "vhlo.add_v1"(%a, %b) : (!vhlo.tensor_v1<!vhlo.f32_v1>, !vhlo.tensor_v1<!vhlo.f32_v1>) -> !vhlo.tensor_v1<!vhlo.f32_v1>
    "vhlo.return_v1"(%s) : (!vhlo.tensor_v1<!vhlo.f32_v1>) -> ()
  })"""


def broadcast(root: str) -> str:
    return (f'%0 = "vhlo.collective_broadcast_v2"(%arg0) <{{channel_id = #vhlo.integer_v1<0 : i64>, '
            f'has_dynamic_root = #vhlo.bool_v1<{root}>, {GROUPS}}}> : {TYPE}')


def reduce(root: str) -> str:
    return (f'%0 = "vhlo.collective_reduce_v1"(%arg0) <{{channel_id = #vhlo.integer_v1<0 : i64>, '
            f'has_dynamic_root = #vhlo.bool_v1<{root}>, {GROUPS}, use_global_device_ids = #vhlo.bool_v1<false>}}> '
            f'{REDUCER} : {TYPE}')


@pytest.mark.parametrize("operation", [broadcast, reduce])
def test_a_root_is_the_first_or_refused(operation: Callable[[str], str]) -> None:
    program = xla_torch.from_stablehlo(PRINTED.format(operation=operation("false")))
    assert program.run_numpy(ROW)[0].tolist() == [1, 2]
    with pytest.raises(UnsupportedError, match="root participant must be static"):
        xla_torch.from_stablehlo(PRINTED.format(operation=operation("true")))


BOTH = REDUCE.replace("return %0", """%2 = "stablehlo.collective_broadcast"(%0) {replica_groups = dense<[[0]]> : tensor<1x1xi64>}
    : (tensor<2xf32>) -> tensor<2xf32>
  return %2""")


def test_a_broadcast_in_bytecode_has_a_root() -> None:
    """A truth value between the channel and the groups: here the one that the reduction before has as its last property."""
    def with_root(properties: list[list[int]]) -> list[list[int]]:
        flag = next(p[2] for p in properties if len(p) == 3)
        return [[p[0], flag, p[1]] if len(p) == 2 and any(p) else p for p in properties]  # a module has two that are missing

    data = newer(of_current(BOTH), "collective_broadcast_v1", "collective_broadcast_v2", with_root, "1.20.0")
    program = xla_torch.from_stablehlo(data)
    assert "collective-broadcast" in program.to_hlo_text()
    assert program.run_numpy(ROW)[0].tolist() == [1, 2]


def test_the_largest_have_an_order() -> None:
    """JAX 0.11 says of equal ones that they stay in order, which they do here: here with the flag of the sort beside it."""
    def function(x: Any) -> Any:
        return jax.lax.top_k(jax.lax.sort(x, is_stable=True), 2)

    def with_order(properties: list[list[int]]) -> list[list[int]]:
        sort = next(p for p in properties if len(p) == 2 and all(n & 1 for n in p))  # both of its properties may be missing
        last = properties[-1]
        return [*properties[:-1], last if len(last) == 2 else [sort[1], *last]]  # newer JAX has it there already

    out = io.BytesIO()
    jax.jit(function).lower(ROW).compiler_ir("stablehlo").operation.write_bytecode(out)
    data = newer(out.getvalue(), "top_k", "top_k", with_order, "")
    assert [r.tolist() for r in xla_torch.from_stablehlo(data).run_numpy(ROW)] == [[2, 1], [1, 0]]


def test_a_version_that_nobody_knows_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="older version of StableHLO") as raised:
        xla_torch.from_stablehlo(newer(of_current(REDUCE), "all_reduce_v2", "all_reduce_v9", as_they_are, "9.0.0"))
    assert "all_reduce_v9" in str(raised.value)


def test_what_is_not_known_is_refused_where_it_is_used() -> None:
    """A function that nobody calls may hold anything."""
    program = PRINTED.format(operation=f'%0 = "vhlo.sqrt_v9"(%arg0) : {TYPE}').replace("@main", "@other").replace(
        "sym_visibility = #vhlo.string_v1<\"\">", "sym_visibility = #vhlo.string_v1<\"private\">")
    main = PRINTED.format(operation=f'%0 = "vhlo.abs_v1"(%arg0) : {TYPE}')
    assert xla_torch.from_stablehlo(program + main).run_numpy(-ROW)[0].tolist() == [1, 2]
    calling = PRINTED.format(operation=f'%0 = "vhlo.call_v1"(%arg0) <{{callee = #vhlo.string_v1<"other">}}> : {TYPE}')
    with pytest.raises(UnsupportedError, match="sqrt_v9"):
        xla_torch.from_stablehlo(program + calling)


def test_an_unused_function_of_a_newer_artifact_closes_nothing() -> None:
    program = CALL + CALL.replace("@main", "private @other").replace("custom_call @Sharding(%x)", "sqrt %x").replace(
        "(tensor<2xf32>) -> tensor<2xf32>\n  return", "tensor<2xf32>\n  return")
    data = newer(of_current(program), "sqrt_v2", "sqrt_v9", as_they_are, "9.0.0")
    assert xla_torch.from_stablehlo(data).run_numpy(ROW)[0].tolist() == [1, 2]


def test_a_weak_order_is_refused() -> None:
    compared = ('%0 = "vhlo.compare_v1"(%arg0, %arg0) <{compare_type = #vhlo<comparison_type_v1 WEAKORDER>, '
                'comparison_direction = #vhlo<comparison_direction_v1 LT>}> : '
                '(!vhlo.tensor_v1<2x!vhlo.f32_v1>, !vhlo.tensor_v1<2x!vhlo.f32_v1>) -> !vhlo.tensor_v1<2x!vhlo.bool_v1>')
    with pytest.raises(UnsupportedError, match="weak order"):
        xla_torch.from_stablehlo(PRINTED.format(operation=compared).replace("-> !vhlo.tensor_v1<2x!vhlo.f32_v1> {",
                                                                            "-> !vhlo.tensor_v1<2x!vhlo.bool_v1> {").replace(
            '(%0) : (!vhlo.tensor_v1<2x!vhlo.f32_v1>)', '(%0) : (!vhlo.tensor_v1<2x!vhlo.bool_v1>)'))


def test_each_version_has_its_properties() -> None:
    """An operation that has attributes in one version has a layout in each: `LISTS`, `DEFAULTS` and the versions know the same
    operations."""
    named = {name for name in LAYOUTS if name.startswith("vhlo.")}
    bases = {name.rpartition("_v")[0] for name in named}
    accurate = {base for base, versions in vhlo_table.VERSIONS.items() if len(versions) == 2 and f"{base}_v1" not in named}
    missing = [f"{base}_v{version}" for base in sorted(bases - accurate) for version in vhlo_table.VERSIONS[base]
               if f"{base}_v{version}" not in named]
    assert missing == []
    assert [n for n in sorted(named) if n.rpartition("_v")[2] not in vhlo_table.VERSIONS.get(n.rpartition("_v")[0], ())] == []


@pytest.mark.parametrize("name", ["broadcast", "reduce"])
def test_a_root_is_an_operand(name: str) -> None:
    """As StableHLO prints it."""
    region = """ ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  })""" if name == "reduce" else ""
    with pytest.raises(UnsupportedError, match="root participant must be static"):
        xla_torch.from_stablehlo(f"""func.func @main(%x: tensor<f32>, %r: tensor<1xi32>) -> tensor<f32> {{
  %0 = "stablehlo.collective_{name}"(%x, %r){region} {{replica_groups = dense<[[0]]> : tensor<1x1xi64>, has_dynamic_root}}
    : (tensor<f32>, tensor<1xi32>) -> tensor<f32>
  return %0 : tensor<f32>
}}""")


@pytest.mark.parametrize("operation", ["collective-broadcast(p)", "collective-reduce(p), to_apply=add"])
def test_hlo_text_says_that_the_root_is_the_first(operation: str) -> None:
    """As newer XLAs print it."""
    text = ("HloModule m\n\nadd {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n\n"
            "ENTRY e {\n"
            f"  p = f32[2] parameter(0)\n  ROOT r = f32[2] {operation}, replica_groups={{{{0}}}}, has_dynamic_root=ROOTED\n}}\n")
    program = xla_torch.parse_hlo(text.replace("ROOTED", "false"))
    assert program.run_numpy(ROW)[0].tolist() == [1, 2]
    with pytest.raises(UnsupportedError, match="root participant must be static"):
        xla_torch.parse_hlo(text.replace("ROOTED", "true"))
