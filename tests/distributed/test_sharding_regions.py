"""Manual regions, and what a program about whole arrays takes and gives: in its own process, on the command line, in several."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import xla_torch
from support.oracle import needs_xla, run_xla_replicas
from xla_torch import run_replicas, shard, shard_arguments, unshard
from xla_torch.cli import main
from xla_torch.errors import InvalidArgument, UnsupportedError, XlaError

# ------------------------------------------------------------------------------------------------ programs written out

ADD = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }\n"
HALF = ("half { a = f32[] parameter(0) b = f32[] parameter(1) c = f32[] constant(0.5) h = f32[] multiply(a, c) "
        "ROOT s = f32[] add(h, b) }\n")


def region(instruction: str, local: str = "f32[2]", whole: str = "f32[8]", result: str = "", leaving: str = "",
           header: str = ", num_partitions=4", entering: str = "{devices=[4]<=[4]}", inside: str = "{manual}") -> str:
    """A program with one instruction on `x` in a manual region over four partitions."""
    return (f"HloModule m{header}\n{ADD}{HALF}ENTRY e {{\n  p = {whole} parameter(0)\n"
            f'  s = {whole} custom-call(p), custom_call_target="Sharding", sharding={entering}\n'
            f'  x = {local} custom-call(s), custom_call_target="SPMDFullToShardShape", sharding={inside}\n'
            f"  y = {instruction}, sharding={inside}\n"
            f'  ROOT r = {result or whole} custom-call(y), custom_call_target="SPMDShardToFullShape", '
            f"sharding={leaving or entering}\n}}")


X = np.arange(1, 9, dtype=np.float32)
QUARTERS = X.reshape(4, 2)
ALL = "replica_groups={{0,1,2,3}}, channel_id=1, use_global_device_ids=true"


REGIONS = [
    (region(f"f32[2] all-reduce(x), to_apply=add, {ALL}"), np.tile(QUARTERS.sum(0), 4)),
    (region("f32[2] all-reduce(x), to_apply=add, replica_groups={}, channel_id=1"), np.tile(QUARTERS.sum(0), 4)),
    (region("f32[2] all-reduce(x), to_apply=add, replica_groups={{0}}, channel_id=1"), np.tile(QUARTERS.sum(0), 4)),
    (region("f32[2] all-reduce(x), to_apply=add, replica_groups={}"), X),  # of replicas, of which there is one
    (region("f32[2] all-reduce(x), to_apply=add, replica_groups={{3,0,1},{2}}, channel_id=1, use_global_device_ids=true"),
     np.concatenate([*[QUARTERS[[0, 1, 3]].sum(0)] * 2, QUARTERS[2], QUARTERS[[0, 1, 3]].sum(0)])),
    (region(f"f32[2] all-reduce(x), to_apply=half, {ALL.replace('0,1,2,3', '2,0,3,1')}"),
     np.tile(((QUARTERS[2] / 2 + QUARTERS[0]) / 2 + QUARTERS[3]) / 2 + QUARTERS[1], 4)),
    (region(f"f32[8] all-gather(x), dimensions={{0}}, {ALL}", leaving="{replicated}"), X),
    (region("f32[4] all-gather(x), dimensions={0}, replica_groups={{3,0},{1,2}}, channel_id=1, use_global_device_ids=true",
            result="f32[16]"), QUARTERS[[3, 0, 1, 2, 1, 2, 3, 0]].reshape(-1)),
    (region("f32[2] collective-permute(x), source_target_pairs={{0,1},{3,3}}, channel_id=1"),
     np.concatenate([[0, 0], QUARTERS[0], [0, 0], QUARTERS[3]])),
    (region("f32[2] collective-broadcast(x), replica_groups={{2,0,1}}, channel_id=1"),
     np.concatenate([QUARTERS[2], QUARTERS[2], QUARTERS[2], [0, 0]])),
    (region("f32[2] all-to-all(x), dimensions={0}, replica_groups={{1,0},{2,3}}, channel_id=1"),
     np.array([4, 2, 3, 1, 5, 7, 6, 8])),
    (region("f32[1] reduce-scatter(x), dimensions={0}, to_apply=add, replica_groups={{0,2},{3,1}}, channel_id=1, "
            "use_global_device_ids=true", result="f32[4]"), np.array([6, 12, 8, 10])),
    (region("f32[2] negate(x)", whole="f32[7]"), -X[:7]),
    (region("f32[2] negate(x)", leaving="{maximal device=2}", result="f32[2]"), -QUARTERS[2]),
    (region("f32[2] negate(x)", leaving="{replicated}", result="f32[2]"), -QUARTERS[0]),
    (region("f32[2] negate(x)", leaving="{unreduced}", result="f32[2]"), -QUARTERS.sum(0)),
    (region("f32[2] negate(x)", leaving="{devices=[2,2]<=[4] last_tile_dims={unreduced}}", result="f32[4]"),
     -QUARTERS.reshape(2, 2, 2).sum(1).reshape(-1)),
    (region("f32[2] negate(x)", leaving="{devices=[1,2,2]<=[4] last_tile_dims={unreduced, replicated}}", result="f32[2]"),
     -QUARTERS[[0, 2]].sum(0)),
    (region("f32[2] negate(x)", leaving="{devices=[4]3,2,1,0}"), -QUARTERS[::-1].reshape(-1)),
    (region("f32[8] negate(x)", local="f32[8]", entering="{replicated}", header=""), -X),
    (region("(f32[2], f32[2]) all-reduce(x, x), to_apply=add, " + ALL + "\n  z = f32[2] get-tuple-element(y), index=1").replace(
        "custom-call(y), custom_call_target=\"SPMDShard", "custom-call(z), custom_call_target=\"SPMDShard"),
     np.tile(QUARTERS.sum(0), 4)),
    (region("(f32[2], f32[2]) all-to-all(x, x), replica_groups={{0,1},{2,3}}, channel_id=1\n"
            "  z = f32[2] get-tuple-element(y), index=1").replace(
        "custom-call(y), custom_call_target=\"SPMDShard", "custom-call(z), custom_call_target=\"SPMDShard"),
     QUARTERS[[1, 1, 3, 3]].reshape(-1)),
    # Some axes of a mesh are manual, and along the other the array of the region is cut too: manual ones first, and last.
    (region("f32[4] reverse(x), dimensions={0}", local="f32[4]", inside="{devices=[2,2]<=[2,2]T(1,0) last_tile_dims={manual}}"),
     np.concatenate([X[3::-1], X[:3:-1]])),
    (region("f32[4] reverse(x), dimensions={0}", local="f32[4]", inside="{devices=[2,2]<=[4] last_tile_dims={manual}}"),
     QUARTERS[[2, 3, 0, 1], ::-1].reshape(-1)),
    (region("f32[4] all-reduce(x), to_apply=add, replica_groups={{0,2},{1,3}}, channel_id=1, use_global_device_ids=true",
            local="f32[4]", inside="{devices=[2,2]<=[2,2]T(1,0) last_tile_dims={manual}}"), np.tile(X[:4] + X[4:], 2)),
]


@pytest.mark.parametrize(("text", "want"), REGIONS)
def test_exchanges_in_a_region(text: str, want: np.ndarray) -> None:
    program = xla_torch.parse_hlo(text)
    (parameter,) = program.program_shape.parameters
    (got,) = program.run_numpy(X[:parameter.dimensions[0]])
    np.testing.assert_array_equal(got, want.astype(np.float32))


UNKNOWN_TO_XLA = re.compile(r"to_apply=half|collective-broadcast\(|y = \(")
"""What XLA's CPU compiler does not do, and annotated tuples, which the way through StableHLO loses."""


@needs_xla
@pytest.mark.parametrize(("text", "want"), [row for row in REGIONS if not UNKNOWN_TO_XLA.search(row[0])])
def test_xla_makes_the_same_of_a_region(text: str, want: np.ndarray) -> None:
    entering, *_, leaving = re.findall(r"sharding=(\{[^}]*\}\}?)", text)
    size = xla_torch.parse_hlo(text).program_shape.parameters[0].dimensions[0]
    text = text.replace("parameter(0)\n  s", f"parameter(0), sharding={entering}\n  s")
    results = run_xla_replicas(text, [[part] for part in shard(X[:size], entering, 4)], 1, 4)
    np.testing.assert_array_equal(unshard([r[0] for r in results], leaving, want.shape), want.astype(np.float32))


@pytest.mark.parametrize(("text", "kind", "message"), [
    (region("f32[2] negate(x)", whole="f32[9]"), InvalidArgument, "does not have the size of a tile"),
    (region("f32[2] negate(x)", result="f32[9]"), InvalidArgument, "does not have the size of a tile"),
    (region("f32[2] negate(x)", entering="{manual}"), InvalidArgument, "sharding of the whole array is missing"),
    (region("f32[2] negate(x)", entering="{unknown}"), InvalidArgument, "does not say what each partition has"),
    (region("f32[2] negate(x)", entering="{unreduced}", whole="f32[2]"), UnsupportedError, "takes partial sums"),
    (region("f32[2] collective-permute(x), source_target_pairs={{0,7}}, channel_id=1"), InvalidArgument, "names partition 7"),
    (region("f32[2] all-reduce(x), to_apply=add, replica_groups={{0,1}}, channel_id=1, use_global_device_ids=true"),
     InvalidArgument, "in no replica group"),
    (region(f"f32[2] all-reduce(x), to_apply=add, {ALL}", header=", replica_count=2, num_partitions=4"), UnsupportedError,
     "a collective across replicas"),
    (region("f32[2] negate(x)").replace("ROOT r", "q").replace("\n}", "\n  ROOT t = f32[2] negate(y)\n}"), UnsupportedError,
     "differs between partitions"),
])
def test_regions_that_cannot_run_say_why(text: str, kind: type[XlaError], message: str) -> None:
    program = xla_torch.parse_hlo(text)
    with pytest.raises(kind, match=message):
        program.run_numpy(np.zeros(program.program_shape.parameters[0].dimensions, np.float32))


# ------------------------------------------------------------------------------------------------ what a program says of itself


def torchrun(processes: int, *command: str) -> subprocess.CompletedProcess:
    root = Path(__file__).parents[2]
    return subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes),
                           "-m", "xla_torch", *command], capture_output=True, text=True, timeout=120, check=False, cwd=root,
                          env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)})


PARTITIONED = ("HloModule m, num_partitions=2\n" + ADD +
               "ENTRY main_spmd {\n  p = f32[4] parameter(0), sharding={devices=[2]<=[2]}\n"
               "  w = f32[2] parameter(1), sharding={replicated}\n  ROOT r = f32[4] all-reduce(p), to_apply=add, "
               "replica_groups={{0,1}}, channel_id=1, use_global_device_ids=true\n}")

STATES = [
    ("HloModule m\nENTRY e { ROOT p = f32[8] parameter(0) }", "", 1),
    ("HloModule m\nENTRY e { ROOT p = f32[8] parameter(0), sharding={replicated} }", "", 1),
    ("HloModule m, num_partitions=2\nENTRY e { ROOT p = f32[8] parameter(0) }", "", 1),
    ("HloModule m, num_partitions=2\nENTRY e { ROOT p = f32[8] parameter(0), sharding={replicated} }", "whole arrays", 2),
    ("HloModule m\nENTRY e { ROOT p = f32[8] parameter(0), sharding={devices=[2]<=[2]} }", "whole arrays", 2),
    ("HloModule m\nENTRY e_spmd { ROOT p = f32[8] parameter(0), sharding={devices=[2]<=[2]} }", "one partition's arrays", 2),
    (PARTITIONED, "one partition's arrays", 2),
    (PARTITIONED.replace("main_spmd", "main"), "one partition's arrays", 2),
    (region("f32[2] negate(x)"), "whole arrays", 4),
    (region(f"f32[2] all-reduce(x), to_apply=add, {ALL}", header=""), "whole arrays", 4),
]


@pytest.mark.parametrize(("text", "about", "partitions"), STATES)
def test_a_program_knows_what_it_is_about(text: str, about: str, partitions: int) -> None:
    program = xla_torch.parse_hlo(text)
    assert (program.partitioning.about, program.partitioning.partitions) == (about, partitions)
    assert bool(str(program.partitioning)) == bool(about)
    assert str(program.partitioning) in repr(program)


def test_arguments_of_the_other_kind_are_refused_with_a_hint() -> None:
    with pytest.raises(InvalidArgument, match="every participant gives and gets whole arrays"):
        xla_torch.parse_hlo(region("f32[2] negate(x)"))(torch.zeros(2))
    with pytest.raises(InvalidArgument, match="shard_arguments cuts whole arrays"):
        xla_torch.parse_hlo(PARTITIONED)(torch.zeros(8), torch.zeros(2))
    with pytest.raises(InvalidArgument, match="has not been partitioned"):
        shard_arguments(xla_torch.parse_hlo(region("f32[2] negate(x)")), [X])
    with pytest.raises(InvalidArgument, match="the tiles of the whole array have another size") as caught:
        shard_arguments(xla_torch.parse_hlo(PARTITIONED), [np.zeros(4, "f"), np.zeros(2, "f")])
    assert caught.value.subject == "argument 0 (p)"
    with pytest.raises(InvalidArgument, match="wrong number of arguments"):
        shard_arguments(xla_torch.parse_hlo(PARTITIONED), [X])


def test_arguments_are_cut_as_parameters_say() -> None:
    program = xla_torch.parse_hlo(PARTITIONED)
    parts = shard_arguments(program, [X, np.ones(2, "f")])
    results = run_replicas(program, parts, num_partitions=2)
    assert [r[0].tolist() for r in results] == [[6, 8, 10, 12]] * 2
    pair = ("HloModule m, num_partitions=2\nENTRY e_spmd {\n  p = (f32[4], (f32[2])) parameter(0), "
            "sharding={{devices=[2]<=[2]}, {replicated}}\n  ROOT r = f32[4] get-tuple-element(p), index=0\n}")
    (first, second) = shard_arguments(xla_torch.parse_hlo(pair), [(torch.tensor(X), (torch.ones(2),))])
    assert [first[0][0].tolist(), second[0][0].tolist(), second[0][1][0].tolist()] == [[1, 2, 3, 4], [5, 6, 7, 8], [1, 1]]


def test_the_command_line_and_the_log_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                             caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "region.hlo"
    path.write_text(region("f32[2] negate(x)"))
    stated = "annotated for 4 partitions, not partitioned: runs with its global meaning, on whole arrays"
    assert main(["show", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[1] == stated
    with caplog.at_level(logging.INFO, "xla_torch"):
        assert main(["run", str(path), "--random", "0"]) == 0
    assert capsys.readouterr().err.startswith(stated)
    assert [r.getMessage() for r in caplog.records] == [f"m: {stated}"]


def test_processes_take_their_parts_of_whole_arrays(tmp_path: Path) -> None:
    (tmp_path / "sum.hlo").write_text(PARTITIONED)
    np.savez(tmp_path / "data.npz", allow_pickle=False, p=X, w=np.ones(2, "f"))
    done = torchrun(2, "run", str(tmp_path / "sum.hlo"), "--args", str(tmp_path / "data.npz"), "--whole")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("out0  f32[4]\n[ 6.,  8., 10., 12.]\n") == 2
    assert done.stderr.count("partitioned: one of 2 partitions' part, on that partition's arrays") == 1


def test_random_arguments_are_not_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sum.hlo").write_text(PARTITIONED)
    assert main(["run", str(tmp_path / "sum.hlo"), "--random", "0", "--whole"]) != 0
    assert "--whole: random arguments are not whole" in capsys.readouterr().err


def test_derived_programs_have_no_shardings_left() -> None:
    text = ("HloModule m, num_partitions=2\nENTRY e {\n  p = f32[8] parameter(0), sharding={devices=[2]<=[2]}\n"
            "  c = f32[8] cosine(p), sharding={devices=[2]<=[2]}\n  ROOT r = f32[8] multiply(c, p)\n}")
    program = xla_torch.parse_hlo(text)
    for derived in (xla_torch.grad(program), xla_torch.vmap(program, 3), xla_torch.vjp(program)):
        assert "sharding" not in derived.to_hlo_text()
        assert "num_partitions" not in derived.to_hlo_text()
