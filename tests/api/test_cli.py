"""The command line: results, files, the standard error format and exit statuses."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import xla_torch
from xla_torch.cli import main
from xla_torch.core import progress
from xla_torch.hlo.rule_tables import TABLES
from xla_torch.hlo.schema import OPS

PROGRAM = """
HloModule scale

ENTRY main {
  x = f32[2,3] parameter(0)
  y = bf16[3] parameter(1)
  n = s32[] parameter(2)
  wide = f32[3] convert(y)
  rows = f32[2,3] broadcast(wide), dimensions={1}
  product = f32[2,3] multiply(x, rows)
  ROOT out = (f32[2,3], bf16[3], s32[]) tuple(product, y, n)
}
"""

X = np.arange(6, dtype=np.float32).reshape(2, 3)
Y = np.array([1, 2, 0.5], ml_dtypes.bfloat16)
N = np.int32(7)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "scale.hlo"
    path.write_text(PROGRAM)
    return path


def test_ops_lists_every_op_and_what_tables_lack(capsys: pytest.CaptureFixture[str]):
    assert main(["ops"]) == 0
    header, _, *lines = capsys.readouterr().out.splitlines()
    column = header.index("rules")
    assert [line for line in lines[:len(OPS)] if line[column - 2:column].strip()] == []
    assert [line.split()[0] for line in lines[:len(OPS)]] == sorted(OPS, key=lambda opcode: (OPS[opcode].family, opcode))
    assert lines[len(OPS)] == ""
    assert lines[len(OPS) + 1].startswith(f"{len(OPS)} ops. Gradients: ")
    assert lines[len(OPS) + 2:] == [f"the {name} table lacks {', '.join(table.lacking())}"
                                    for name, table in sorted(TABLES.items()) if table.lacking()]


def written(folder: Path, text: str, name: str = "program.hlo") -> Path:
    path = folder / name
    path.write_text(text)
    return path


ARGUMENT_NAMES = [("arg0", "arg1", "arg2"), ("x", "y", "n"), ("first", "second", "third")]


@pytest.mark.parametrize("names", ARGUMENT_NAMES, ids=["by number", "by name", "in order"])
def test_run_takes_arguments_and_saves_results(program: Path, tmp_path: Path, names: tuple[str, ...],
                                               capsys: pytest.CaptureFixture[str]):
    given, out = tmp_path / "data.npz", tmp_path / "out.npz"
    np.savez(given, allow_pickle=False, **dict(zip(names, (X, Y, N), strict=True)))
    assert main(["run", str(program), "--args", str(given), "--save", str(out)]) == 0
    with np.load(out) as saved:
        np.testing.assert_array_equal(saved["out0"], X * Y.astype(np.float32))
        np.testing.assert_array_equal(saved["out1"].view(ml_dtypes.bfloat16), Y)
        assert saved["out2"] == 7
    assert "out0  f32[2,3]" in capsys.readouterr().out


def test_numbered_arguments_go_before_other_arrays_of_the_file(program: Path, tmp_path: Path,
                                                               capsys: pytest.CaptureFixture[str]):
    np.savez(tmp_path / "data.npz", out0=X, arg2=N, arg1=Y, arg0=X, x=X + 1)
    assert main(["run", str(program), "--args", str(tmp_path / "data.npz")]) == 0
    assert "[[0. , 2. , 1. ]" in capsys.readouterr().out


def test_random_arguments_repeat(program: Path, capsys: pytest.CaptureFixture[str]):
    def run(seed: int) -> str:
        assert main(["run", str(program), "--random", str(seed)]) == 0
        return capsys.readouterr().out

    assert run(1) == run(1) != run(2)


@pytest.mark.parametrize("shape", ["pred[4]", "u2[4]", "s4[4]", "u64[4]", "f8e4m3fn[4]", "c64[4]", "f64[0]", "s1[4]"])
def test_random_arguments_of_every_kind(shape: str, tmp_path: Path):
    path = written(tmp_path, f"ENTRY main {{ p = {shape} parameter(0) ROOT c = {shape} copy(p) }}")
    assert main(["run", str(path), "--random", "0"]) == 0


def test_a_program_without_arguments_needs_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = written(tmp_path, "ENTRY main { ROOT i = s32[3] iota(), iota_dimension=0 }")
    assert main(["run", str(path)]) == 0
    assert capsys.readouterr().out == "out0  s32[3]\n[0, 1, 2]\n"


def test_show_names_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = written(tmp_path, """
HloModule shown
ENTRY main {
  weights = f32[64,32] parameter(0), metadata={op_name="params['w']"}
  x = f32[8,64] parameter(1)
  table = f32[2] constant({1, 2})
  hidden = f32[8,32] dot(x, weights), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  act = f32[8,32] tanh(hidden)
  foreign = f32[8,32] custom-call(act), custom_call_target="vendor$op"
  ROOT out = (f32[8,32], f32[2]) tuple(foreign, table)
}""")
    assert main(["show", str(path)]) == 0
    shown = capsys.readouterr().out
    for text in ["shown: 7 instructions in 1 computation", "params['w']", "f32[64,32]  %weights",
                 "parameters, 10.0 KiB", "parameter 2", "32.8 k flops", "256 transcendentals",
                 "vendor$op 1   UNSUPPORTED: no function is known for it", "def vendor_op(x0, *, call):",
                 "(f32[8,32]) -> f32[8,32]", "xla_torch.register_custom_call('vendor$op', vendor_op)", "%table, f32[2]"]:
        assert text in shown


def test_show_counts_rows_beyond_a_screen(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    parameters = "".join(f"p{i} = f32[] parameter({i})\n" for i in range(50))
    assert main(["show", str(written(tmp_path, f"ENTRY main {{ {parameters} ROOT r = f32[] add(p0, p1) }}"))]) == 0
    assert "... and 10 more" in capsys.readouterr().out


def test_code_prints_pytorch(program: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["code", str(program)]) == 0
    assert "def forward(self, x, y, n)" in capsys.readouterr().out


GRAD_PROGRAM = """
ENTRY main {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  n = s32[] parameter(2)
  ROOT r = f32[] multiply(x, y)
}"""
GRADIENTS = [([], (3.0, 2.0)), (["--argnums", "1"], (2.0,)), (["--argnums", "1,0"], (2.0, 3.0)),
             (["--value", "--argnums", "0"], (6.0, 3.0))]


@pytest.mark.parametrize(("options", "expected"), GRADIENTS)
def test_grad_writes_a_program(options: list[str], expected: tuple[float, ...], tmp_path: Path):
    path, out = written(tmp_path, GRAD_PROGRAM), tmp_path / "grad.hlo"
    assert main(["grad", str(path), "--out", str(out), *options]) == 0
    results = xla_torch.load(out).run_numpy(np.float32(2), np.float32(3), np.int32(1))
    assert tuple(map(float, results)) == expected


def test_grad_prints_without_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["grad", str(written(tmp_path, GRAD_PROGRAM))]) == 0
    assert capsys.readouterr().out.startswith("HloModule ")


ERRORS = [
    ("missing file", ["run", "{dir}/nowhere.hlo"], "nowhere.hlo: No such file or directory"),
    ("no arguments", ["run", "{program}"], "hint      pass --args data.npz"),
    ("not an npz", ["run", "{program}", "--args", "{program}"], "--args: not an .npz file"),
    ("no such device", ["run", "{program}", "--random", "0", "--device", "nonsense"], "--device: no such device here"),
    ("code for no such device", ["code", "{program}", "--device", "nonsense"], "--device: no such device here"),
    ("bad text", ["show", "{bad}"], "line 1"),
    ("argnums", ["grad", "{program}", "--argnums", "9"], "9"),
]


@pytest.mark.parametrize(("command", "message"), [e[1:] for e in ERRORS], ids=[e[0] for e in ERRORS])
def test_command_line_errors_have_no_traceback(command: list[str], message: str, program: Path, tmp_path: Path,
                                              capsys: pytest.CaptureFixture[str]):
    bad = written(tmp_path, "ENTRY main { ROOT x = f32[2 parameter(0) }", "bad.hlo")
    places = {"dir": tmp_path, "program": program, "bad": bad}
    assert main([part.format(**places) for part in command]) == 2
    caught = capsys.readouterr()
    assert caught.err.startswith("error: ")
    assert message in caught.err
    assert "Traceback" not in caught.err
    assert caught.out == ""


def test_too_few_arrays_are_an_error(program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    np.savez(tmp_path / "few.npz", arg0=X)
    assert main(["run", str(program), "--args", str(tmp_path / "few.npz")]) == 2
    assert "expected  3: arg0, arg1, arg2 or x, y, n" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["run"], ["paint", "f"], ["grad", "f", "--argnums", "x"]])
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(arguments) == 2
    assert "Usage: python -m xla_torch" in capsys.readouterr().err


def test_as_a_process_with_its_output_cut_short(program: Path):
    """`python -m xla_torch code FILE | head -1` ends quietly."""
    with subprocess.Popen([sys.executable, "-m", "xla_torch", "code", str(program)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


class Terminal:
    """A standard error that says it is a terminal and keeps what is written."""

    def __init__(self):
        self.text = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""


def test_bars_are_shown_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("rich")
    monkeypatch.setattr(progress, "_PAUSE", 0)
    monkeypatch.setattr(progress, "DELAY", 0)
    silent, terminal = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stderr", silent)
    assert progress.steps(range(3), "silent") == range(3)
    progress.meter(3, "silent")(3)
    assert silent.text == ""
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress.shown():
        assert list(progress.steps(range(3), "looping")) == [0, 1, 2]
        reached = progress.meter(100, "parsing")
        reached(40)
        reached(100)
        with progress.doing("waiting"):
            time.sleep(0.2)
    assert "looping" in terminal.text
    assert "waiting" in terminal.text
    assert "parsing" in terminal.text
    assert progress.steps(range(3), "silent again") == range(3)


def test_a_program_comes_from_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(PROGRAM.encode())))
    assert main(["show", "-"]) == 0
    assert "f32[2,3]" in capsys.readouterr().out
    assert main(["diff", "-", "-"]) == 2
    assert "standard input can be read only once" in capsys.readouterr().err


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"xla_torch {xla_torch.__version__}\n"


def test_an_interrupt_has_no_traceback(program: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def interrupted(path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("xla_torch.command_line.inputs.load", interrupted)
    assert main(["show", str(program)]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_lowering_and_running_are_timed_separately(program: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["run", str(program), "--random", "0"]) == 0
    assert re.fullmatch(r"loaded in \d+\.\d{3} s, lowered in \d+\.\d{3} s, run in \d+\.\d{3} s on cpu\n", capsys.readouterr().err)
