"""Replica groups along axes of a mesh, as JAX 0.12 writes them, are those that are listed."""

from __future__ import annotations

import pytest

import xla_torch
from xla_torch.errors import InvalidArgument

PROGRAM = """module @m attributes {{mhlo.num_partitions = 8 : i32}} {{
  sdy.mesh @mesh = <["a"=2, "b"=4]{}>
  func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
    %0 = "stablehlo.all_reduce"(%x) <{{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
        replica_groups = {}, use_global_device_ids}}> ({{
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %1 = stablehlo.add %p, %q : tensor<f32>
      stablehlo.return %1 : tensor<f32>
    }}) : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }}
}}"""
AXES = "#stablehlo.replica_group_mesh_axes<mesh = {}, axes = [{}]>"


def axis(name: str, part: str = "") -> str:
    return f'#stablehlo.axis_ref<name = "{name}"{part}>'


PART = ", sub_axis_info = #stablehlo.sub_axis_info<pre_size = {}, size = {}>"


@pytest.mark.parametrize(("devices", "mesh", "axes", "groups"), [
    ("", "@mesh", axis("a"), "{{0,4},{1,5},{2,6},{3,7}}"),
    ("", "@mesh", axis("b"), "{{0,1,2,3},{4,5,6,7}}"),
    ("", "@mesh", f"{axis('b')}, {axis('a')}", "{{0,4,1,5,2,6,3,7}}"),
    ("", "@mesh", axis("b", PART.format(1, 2)), "{{0,2},{1,3},{4,6},{5,7}}"),
    ("", "@mesh", axis("b", PART.format(2, 2)), "{{0,1},{2,3},{4,5},{6,7}}"),
    (", device_ids=[7, 6, 5, 4, 3, 2, 1, 0]", "@mesh", axis("a"), "{{7,3},{6,2},{5,1},{4,0}}"),
])
def test_groups_along_axes(devices: str, mesh: str, axes: str, groups: str) -> None:
    text = xla_torch.from_stablehlo(PROGRAM.format(devices, AXES.format(mesh, axes))).to_hlo_text()
    assert f"replica_groups={groups}" in text


def test_a_mesh_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidArgument, match=r"no mesh has this name(.|\n)*other(.|\n)*mesh"):
        xla_torch.from_stablehlo(PROGRAM.format("", AXES.format("@other", axis("a"))))
