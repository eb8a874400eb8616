"""Recorded runs: the same bits again, whatever was drawn since; and invalid files, which are refused with a message."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
import xla_torch.random
from xla_torch import debug
from xla_torch.cli import main
from xla_torch.errors import InvalidArgument, XlaError


def _program(parameters: str, lines: str) -> xla_torch.XlaComputation:
    return xla_torch.parse_hlo(f"HloModule m\nENTRY e {{\n{parameters}\n{lines}\n}}")


LOOP = """HloModule m
c { p = (f32[], f32[3]) parameter(0) a = f32[] get-tuple-element(p), index=0 b = f32[] constant(90)
 ROOT r = pred[] compare(a, b), direction=LT }
b { p = (f32[], f32[3]) parameter(0) a = f32[] get-tuple-element(p), index=0 x = f32[3] get-tuple-element(p), index=1
 d = f32[] add(a, a) s = f32[3] sine(x) ROOT r = (f32[], f32[3]) tuple(d, s) }
ENTRY e { x = f32[3] parameter(0) y = f32[] constant(1) i = (f32[], f32[3]) tuple(y, x)
 w = (f32[], f32[3]) while(i), condition=c, body=b
 s = f32[3] get-tuple-element(w), index=1 z = f32[] constant(0) ROOT t = f32[] reduce(s, z), dimensions={0}, to_apply=
  { u = f32[] parameter(0) v = f32[] parameter(1) ROOT q = f32[] add(u, v) } }"""

DRAWS = "  l = f32[] constant(0)\n  h = f32[] constant(1)\n  d = f32[8] rng(l, h), distribution=rng_uniform\n"
STATE = "  s = u64[2] rng-get-and-update-state(), delta=3\n"

RUNS: dict[str, tuple[Callable[[], xla_torch.XlaComputation], list[Any]]] = {
    "arithmetic": (lambda: _program("  x = f32[4] parameter(0)", "  ROOT y = f32[4] tanh(x)"), [torch.arange(4.0) / 3]),
    "an op that older XLAs have not": (
        lambda: _program("  x = f32[4] parameter(0)", "  ROOT y = f32[4] atan(x)"), [torch.arange(4.0)]),
    "types that NumPy has not": (
        lambda: _program("  x = bf16[3] parameter(0)\n  y = f8e4m3fn[2] parameter(1)\n  z = u4[3] parameter(2)",
                         "  ROOT t = (bf16[3], f8e4m3fn[2], u4[3]) tuple(x, y, z)"),
        [torch.tensor([1.5, float("nan"), -0.0], dtype=torch.bfloat16), torch.tensor([0.5, 2]).to(torch.float8_e4m3fn),
         torch.tensor([1, 15, 3], dtype=torch.uint8)]),
    "a tuple, a scalar, nothing": (
        lambda: _program("  p = (f32[2], pred[0]) parameter(0)\n  n = s32[] parameter(1)",
                         "  ROOT t = ((f32[2], pred[0]), s32[]) tuple(p, n)"),
        [(torch.ones(2), torch.zeros(0, dtype=torch.bool)), 7]),
    "columns first": (lambda: _program("  x = f32[2,3] parameter(0)", "  ROOT y = f32[2,3] negate(x)"), [torch.rand(3, 2).T]),
    "draws": (lambda: _program("  x = f32[8] parameter(0)", DRAWS + "  ROOT y = f32[8] add(x, d)"), [torch.ones(8)]),
    "the program-wide counter": (lambda: _program("", STATE + "  ROOT y = u64[2] add(s, s)"), []),
    "a loop of unknown length": (lambda: xla_torch.parse_hlo(LOOP), [torch.rand(3)]),
    "its gradient, which has stacks": (lambda: xla_torch.grad(xla_torch.parse_hlo(LOOP)), [torch.rand(3)]),
}


@pytest.mark.parametrize(("make", "arguments"), RUNS.values(), ids=RUNS.keys())
def test_a_replay_has_the_recorded_bits(make: Callable[[], xla_torch.XlaComputation], arguments: list[Any], tmp_path: Path):
    computation, path = make(), tmp_path / "run.xlarun"
    result = debug.record(computation, *arguments, path=path)
    torch.rand(3)
    computation(*arguments)
    found = debug.replay(path)
    assert found.same, str(found)
    assert "the same bits" in str(found)
    flat = result if isinstance(result, tuple) else (result,)
    if all(isinstance(t, torch.Tensor) and t.dtype in (torch.float32, torch.int32) for t in flat):
        for tensor, array in zip(flat, found.results, strict=True):
            np.testing.assert_array_equal(tensor.numpy(), array)
    assert debug.replay(path).same


@pytest.mark.parametrize("seeded", [False, True])
def test_draws_are_those_of_the_run_and_leave_no_trace(seeded: bool, tmp_path: Path):
    computation = RUNS["draws"][0]()
    with torch.random.fork_rng():
        torch.manual_seed(5)
        with xla_torch.random.use_generator(torch.Generator().manual_seed(9)) if seeded else torch.no_grad():
            first = debug.record(computation, torch.ones(8), path=tmp_path / "run")
            after = torch.get_rng_state()
            second = computation(torch.ones(8))
            assert not torch.equal(first, second)
            state = torch.get_rng_state()
            assert torch.equal(after, state) == seeded
            found = debug.replay(tmp_path / "run")
            np.testing.assert_array_equal(found.results[0], first.numpy())
            assert torch.equal(torch.get_rng_state(), state)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    debug.record(RUNS["arithmetic"][0](), torch.arange(4.0), path=tmp_path / "run")
    return tmp_path / "run"


def test_the_command_line(recorded: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["replay", str(recorded)]) == 0
    assert "out0  the same bits as the recorded result" in capsys.readouterr().out
    _changed(recorded, out0=np.zeros(4, np.float32))
    assert main(["replay", str(recorded)]) == 1
    assert "out0  at most" in capsys.readouterr().out
    recorded.write_bytes(b"not a record")
    assert main(["replay", str(recorded)]) == 2
    assert "not a recorded run" in capsys.readouterr().err


def _changed(path: Path, **arrays: Any) -> None:
    with np.load(path) as data:
        kept = {name: data[name] for name in data.files} | arrays
    with open(path, "wb") as file:
        np.savez(file, **kept)


class _Attack:
    ran = False

    def __reduce__(self) -> Any:
        return setattr, (_Attack, "ran", True)


def _about(path: Path, **changes: Any) -> None:
    with np.load(path) as data:
        about = json.loads(data["about"].tobytes()) | changes
    _changed(path, about=np.frombuffer(json.dumps(about).encode(), np.uint8))


def _with_header(path: Path, shape: tuple[int, ...]) -> None:
    """An array that says it is larger than its bytes."""
    with zipfile.ZipFile(path) as old:
        members = {name: old.read(name) for name in old.namelist()}
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": shape})
    members["arg0.npy"] = stream.getvalue() + bytes(16)
    _zipped(path, members, zipfile.ZIP_STORED)


def _zipped(path: Path, members: dict[str, bytes], how: int) -> None:
    with zipfile.ZipFile(path, "w", how) as file:
        for name, data in members.items():
            file.writestr(name, data)


BAD: dict[str, Callable[[Path], object]] = {
    "a pickle": lambda p: p.write_bytes(pickle.dumps(_Attack())),
    "an array of objects": lambda p: _changed(p, arg0=np.array([_Attack()], object)),
    "a program that is none": lambda p: _changed(p, program=np.zeros(9, np.uint8)),
    "compressed": lambda p: _zipped(p, {"about.npy": bytes(1 << 20)}, zipfile.ZIP_DEFLATED),
    "an array larger than its bytes": lambda p: _with_header(p, (1 << 60,)),
    "an array of negative size": lambda p: _with_header(p, (-4,)),
    "an argument of another size": lambda p: _changed(p, arg0=np.zeros(5, np.float32)),
    "an argument of another type": lambda p: _changed(p, arg0=np.zeros(4, np.int32)),
    "records": lambda p: _changed(p, arg0=np.zeros(4, [("a", "<f4")])),
    "another number of arguments": lambda p: _about(p, arguments=3),
    "another format": lambda p: _about(p, format="other"),
    "another device": lambda p: _about(p, device="meta"),
    "a counter that is none": lambda p: _about(p, counter="9" * 100_000),
    "a state that is none": lambda p: _changed(p, state=np.zeros(3, np.uint8)),
    "no JSON": lambda p: _changed(p, about=np.frombuffer(b"[" * 100_000, np.uint8)),
    "cut off": lambda p: p.write_bytes(p.read_bytes()[:-200]),
    "nothing": lambda p: p.write_bytes(b""),
}


@pytest.mark.parametrize("spoil", BAD.values(), ids=BAD.keys())
def test_invalid_files_are_refused(spoil: Callable[[Path], object], recorded: Path):
    spoil(recorded)
    with pytest.raises(XlaError):
        debug.replay(recorded)
    assert not _Attack.ran


def test_any_changed_byte_ends_in_words(recorded: Path):
    """Whatever a byte is, there is a result or an error of ours."""
    data, random = recorded.read_bytes(), np.random.default_rng(0)
    for place in random.integers(0, len(data), 60):
        recorded.write_bytes(data[:place] + bytes([int(random.integers(256))]) + data[place + 1:])
        with contextlib.suppress(XlaError):
            debug.replay(recorded)


def test_what_cannot_be_recorded_raises_an_error(tmp_path: Path):
    with pytest.raises(InvalidArgument, match="wrong number"):
        debug.record(RUNS["arithmetic"][0](), path=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(InvalidArgument, match="compiled program"):
        debug.record(xla_torch.compile(RUNS["arithmetic"][0](), backend="aot_eager"), torch.ones(4), path=tmp_path / "run")
