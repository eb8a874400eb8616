"""Processes that torchrun starts, and many exchanges one after another."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import xla_torch
from support.distributed_programs import (
    ADD,
    HALF_SUM,
    LARGE,
    text_of,
)
from support.distributed_workers import Workers
from support.oracle import needs_xla
from xla_torch.cli import main
from xla_torch.distributed import of_process_group

ROOT = Path(__file__).parents[2]


# ------------------------------------------------------------------------------------------- the command line


def torchrun(processes: int, *command: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes),
                           "-m", "xla_torch", *command], capture_output=True, text=True, timeout=120, check=False, cwd=ROOT,
                          env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)})


def test_torchrun(tmp_path: Path) -> None:
    text = text_of("f32[2] all-reduce(p), to_apply=f, replica_groups={}", "f32[2]", header=", replica_count=2")
    (tmp_path / "sum.hlo").write_text(text)
    for k in range(2):
        np.savez(tmp_path / f"data.{k}.npz", allow_pickle=False, p=np.array([k, 10 + k], "f"))
    common = ("run", str(tmp_path / "sum.hlo"), "--args", str(tmp_path / "data.{participant}.npz"))
    done = torchrun(2, *common, "--save", str(tmp_path / "out.{participant}.npz"))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "participant 0\nout0  f32[2]\n[ 1., 21.]\n" in done.stdout
    for k in range(2):
        with np.load(tmp_path / f"out.{k}.npz") as saved:
            assert saved["out0"].tolist() == [1, 21]
    failed = torchrun(1, *common)
    assert failed.returncode != 0
    assert "1 processes" in failed.stderr
    assert "2 replicas x 1 partitions = 2 participants" in failed.stderr


UNEVEN = """HloModule m
ENTRY e {
  x = f32[7,4] parameter(0)
  w = f32[4,6] parameter(1)
  d = f32[7,6] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[7,6] tanh(d)
  ROOT r = (f32[7,6], f32[4,6]) tuple(t, w)
}"""


@pytest.mark.slow
@needs_xla
def test_torchrun_of_a_program_that_the_command_line_partitioned(tmp_path: Path) -> None:
    """Whole arrays come from one file and go to one; or each participant's own do."""
    (tmp_path / "whole.hlo").write_text(UNEVEN)
    part = str(tmp_path / "part.hlo")
    assert main(["partition", str(tmp_path / "whole.hlo"), "--mesh", "a=2,b=2", "--shard", "x=(a)", "--shard", "w=(None,b)",
                 "-o", part]) == 0
    x, w = (np.random.default_rng(k).standard_normal(s).astype(np.float32) for k, s in enumerate([(7, 4), (4, 6)]))
    np.savez(tmp_path / "data.npz", allow_pickle=False, x=x, w=w)
    done = torchrun(4, "run", part, "--args", str(tmp_path / "data.npz"), "--save", str(tmp_path / "out.npz"))
    assert done.returncode == 0, done.stderr[-3000:]
    with np.load(tmp_path / "out.npz") as saved:
        np.testing.assert_allclose(saved["out0"], np.tanh(x @ w), rtol=1e-5)
        np.testing.assert_array_equal(saved["out1"], w)
    for k, pieces in enumerate(xla_torch.shard_arguments(xla_torch.load(part), [x, w])):
        np.savez(tmp_path / f"data.{k}.npz", allow_pickle=False, x=pieces[0], w=pieces[1])
    done = torchrun(4, "run", part, "--args", str(tmp_path / "data.{participant}.npz"), "--save",
                    str(tmp_path / "out.{participant}.npz"))
    assert done.returncode == 0, done.stderr[-3000:]
    for k in range(4):
        with np.load(tmp_path / f"out.{k}.npz") as saved:
            own = np.tanh(x @ w)[k // 2 * 4:, k % 2 * 3:][:4, :3]
            np.testing.assert_allclose(saved["out0"][:len(own)], own, rtol=1e-5)


@pytest.mark.slow
def test_results_of_several_that_say_not_how_they_lie_are_not_written_over_each_other(tmp_path: Path) -> None:
    text = text_of("f32[2] all-reduce(p), to_apply=f, replica_groups={}", "f32[2]", header=", replica_count=2")
    (tmp_path / "sum.hlo").write_text(text)
    failed = torchrun(2, "run", str(tmp_path / "sum.hlo"), "--random", "0", "--save", str(tmp_path / "out.npz"))
    assert failed.returncode != 0
    assert "several processes would write one file" in failed.stderr
    assert not (tmp_path / "out.npz").exists()


# ------------------------------------------------------------------------------------------- for long

MIXED = [
    ("f32[{n}] all-reduce(p), to_apply=f, replica_groups={{}}", ADD),
    ("f32[{n}] all-reduce(p), to_apply=f, replica_groups={{{{0,2}},{{3,1}}}}", ADD),
    ("f32[{n}] all-reduce(p), to_apply=f, replica_groups={{{{3,2,1,0}}}}", HALF_SUM),
    ("f32[{n}] all-to-all(p), dimensions={{0}}, replica_groups={{}}", ADD),
    ("f32[{n}] collective-permute(p), source_target_pairs={{{{0,1}},{{1,2}},{{2,3}},{{3,0}}}}", ADD),
    ("f32[{n}] collective-broadcast(p), replica_groups={{{{2,1,0,3}}}}", ADD),
    ("f32[{n4}] all-gather(p), dimensions={{0}}, replica_groups={{}}", ADD),
    ("f32[{q}] reduce-scatter(p), to_apply=f, dimensions={{0}}, replica_groups={{}}", ADD),
]


def soak(count: int) -> str:
    """A checksum of what came through `count` exchanges. All participants give the same, and every block of an array is like
    the others, so all get the same."""
    programs = {(k, n): xla_torch.parse_hlo(text_of(instruction.format(n=n, n4=4 * n, q=n // 4), f"f32[{n}]", region))
                for k, (instruction, region) in enumerate(MIXED) for n in (16, LARGE)}
    draw = np.random.default_rng(7)
    digest = hashlib.sha256()
    with of_process_group():
        for step in range(count):
            n = LARGE if draw.random() < 0.1 else 16
            k = int(draw.integers(len(MIXED)))
            value = torch.full((n,), float(step % 97)) + torch.arange(n) % 4
            digest.update(programs[k, n](value).numpy().tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize("count", [50, pytest.param(200, marks=pytest.mark.slow), pytest.param(10_000, marks=pytest.mark.slow)])
def test_soak(four: Workers, count: int) -> None:
    sums = four.call(soak, [(count,)] * 4)
    assert len(set(sums)) == 1
