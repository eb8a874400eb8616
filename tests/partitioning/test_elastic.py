"""The demo over processes that torchrun starts: one is killed, all begin again, and the losses are those of one process that
nothing happened to."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import xla_torch
from support.oracle import needs_xla
from xla_torch import demo
from xla_torch.demo import distributed
from xla_torch.nn import XlaModule

ROOT = Path(__file__).parents[2]
STEPS = 18


@pytest.fixture(scope="module")
def undisturbed() -> list[float]:
    """The losses of one process that has all to itself."""
    module = XlaModule(xla_torch.load(demo.PROGRAM), parameters=demo.stored().parameters)
    optimizer, losses = torch.optim.AdamW(module.parameters(), lr=3e-3), []
    for step in range(STEPS):
        loss = module(distributed.batch_of(step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def torchrun(processes: int, folder: Path, *options: str, when: str = "never") -> subprocess.CompletedProcess:
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), "--max-restarts", "1",
               "-m", "support.killed_training", when, "--checkpoints", str(folder), "--print-every", "1", *options]
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=240, check=False, cwd=ROOT,
                          env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path})


def losses_in(printed: str) -> list[tuple[int, float]]:
    return [(int(step), float(loss)) for step, loss in re.findall(r"step +(\d+) +loss ([\d.]+)", printed)]


def check(printed: str, steps: list[int], want: list[float]) -> None:
    """That these steps were printed, in this order, and with these losses."""
    found = losses_in(printed)
    assert [step for step, _ in found] == steps
    for step, loss in found:
        assert loss == pytest.approx(want[step], rel=1e-4), step


@needs_xla
@pytest.mark.slow
@pytest.mark.parametrize(("when", "last", "first_again"), [
    ("in a step", 6, 4),
    ("while shards are written", 7, 4),
    ("before the checkpoint has its name", 7, 4),
])
def test_a_killed_process_changes_nothing(tmp_path: Path, undisturbed: list[float], when: str, last: int,
                                          first_again: int) -> None:
    done = torchrun(4, tmp_path, "--steps", "12", "--every", "4", when=when)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "failed (exitcode: -9)" in done.stderr
    assert f"goes on at step {first_again}, from step-{first_again:06d}\n" in done.stdout
    assert "partitioned before" in done.stdout  # without jaxlib
    check(done.stdout, [*range(last + 1), *range(first_again, 12)], undisturbed)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["step-000004", "step-000008", "step-000012"]


@needs_xla
@pytest.mark.slow
def test_a_checkpoint_is_read_on_other_meshes(tmp_path: Path, undisturbed: list[float]) -> None:
    begun = 0
    for processes, steps, options in [(4, 6, ()), (2, 12, ("--mesh", "model=2", "--shardings", "tensor")),
                                      (1, 18, ("--mesh", "data=1"))]:
        done = torchrun(processes, tmp_path, "--steps", str(steps), *options)
        assert done.returncode == 0, done.stderr[-3000:]
        check(done.stdout, list(range(begun, steps)), undisturbed)
        begun = steps


@pytest.mark.slow
@pytest.mark.parametrize(("mesh", "words"), [
    ("data=2", "jaxlib"),
    ("data=3", "the mesh {'data': 3} is not for 2 processes"),
])
def test_a_wrong_setup_is_named_in_the_output(tmp_path: Path, mesh: str, words: str) -> None:
    done = torchrun(2, tmp_path, "--mesh", mesh, "--shardings", "data", when="without jaxlib")
    assert done.returncode == 1
    assert words in done.stdout
    assert "Traceback" not in done.stdout
    assert losses_in(done.stdout) == []


def test_only_whole_checkpoints_are_taken(tmp_path: Path) -> None:
    assert distributed.newest_in(tmp_path / "none") is None
    for name in ("step-000009", "step-000100", "unfinished-000200"):
        (tmp_path / name).mkdir()
        (tmp_path / name / ".metadata").touch()
    assert distributed.newest_in(tmp_path) == tmp_path / "step-000100"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000009", "step-000100"]


def test_without_torchrun(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        distributed.options_of([])
    assert "torchrun starts this" in capsys.readouterr().err
