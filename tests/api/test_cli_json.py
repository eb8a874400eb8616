"""The command line for programs and shells: JSON, standard input, exit statuses without tracebacks, completion."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import torch

import xla_torch
from xla_torch import debug, runtime
from xla_torch.cli import main
from xla_torch.command_line.commands import program
from xla_torch.command_line.messages import as_json
from xla_torch.hlo.schema import OPS

PROGRAM = """
HloModule square

ENTRY main {
  x = f32[2] parameter(0)
  n = s32[] parameter(1)
  y = f32[2] multiply(x, x)
  ROOT out = (f32[2], s32[]) tuple(y, n)
}
"""
OTHER = PROGRAM.replace("multiply", "add")
X = np.array([3.0, -2.0], np.float32)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where files are, under short names."""
    monkeypatch.chdir(tmp_path)
    Path("a.hlo").write_text(PROGRAM)
    Path("b.hlo").write_text(OTHER)
    Path("bad.hlo").write_text("ENTRY main { ROOT x = f32[2 parameter(0) }")
    for name, text in (("one", PROGRAM), ("two", OTHER)):
        Path(name).mkdir()
        Path(name, "module_0001.f.before_optimizations.txt").write_text(text)
    np.savez("data.npz", arg0=X, arg1=np.int32(5))
    debug.record(xla_torch.load("a.hlo"), torch.from_numpy(X), torch.tensor(5, dtype=torch.int32), path="a.xlarun")
    return tmp_path


def facts(command: list[str], capsys: pytest.CaptureFixture[str], status: int = 0) -> Any:
    assert main([*command, "--json"]) == status
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    return json.loads(out, parse_constant=pytest.fail)


def show(found: Any) -> bool:
    return (found["name"] == "square" and found["instructions"] == 4 and found["ops"]["multiply"] == 1
            and found["cost"]["flops"] == 2 and [p["shape"] for p in found["parameters"]] == ["f32[2]", "s32[]"]
            and [r["bytes"] for r in found["results"]] == [8, 4])


def run(found: Any) -> bool:
    results = [(r["name"], r["shape"], r["values"]) for r in found["results"]]
    return (results == [("out0", "f32[2]", [9.0, 4.0]), ("out1", "s32[]", 5)]
            and found["device"] == "cpu" and sorted(found["seconds"]) == ["load", "lower", "run"])


def differs(found: Any) -> bool:
    one, = found["pairs"]
    return found["status"] == one["status"] == "differs" and [r["number"] for r in one["results"]] == [0] and "%y" in one["words"]


def gradient(found: Any) -> bool:
    derived = xla_torch.parse_hlo(found["hlo"])
    return [str(s) for s in derived.program_shape.result.leaves()] == ["f32[]"]


FACTS = {
    "show": (["show", "a.hlo"], 0, show),
    "show a folder": (["show", "one"], 0, lambda f: [s["stage"] for s in f] == ["before_optimizations"]),
    "passes": (["show", "a.hlo", "--passes"], 0, lambda f: all(c.keys() == {"graph", "pass", "nodes", "lines"} for c in f)),
    "run": (["run", "a.hlo", "--args", "data.npz"], 0, run),
    "code": (["code", "a.hlo"], 0, lambda f: "def forward(self, x, n)" in f["code"] and f["device"] == "cpu"),
    "grad": (["grad", "dot.hlo"], 0, gradient),
    "grad into a file": (["grad", "dot.hlo", "--out", "g.hlo"], 0,
                         lambda f: f == {"written": "g.hlo", "bytes": Path("g.hlo").stat().st_size}),
    "convert": (["convert", "a.hlo", "a.mlir"], 0, lambda f: f["written"] == "a.mlir" and f["bytes"] > 100),
    "replay": (["replay", "a.xlarun"], 0, lambda f: f["same"] is True),
    "diff, equal": (["diff", "a.hlo", "a.hlo"], 0, lambda f: f["status"] == "equal" and f["pairs"][0]["results"] == []),
    "diff, differs": (["diff", "a.hlo", "b.hlo"], 1, differs),
    "diff of folders": (["diff", "one", "two"], 1, differs),
    "diff, not compared": (["diff", "a.hlo", "bad.hlo"], 2, lambda f: f["status"] == "not compared"),
    "ops": (["ops"], 0, lambda f: {op["opcode"] for op in f["ops"]} == set(OPS) and f["lacking"] == {}),
    "an op": (["ops", "Rev"], 0, lambda f: [op["opcode"] for op in f] == ["reverse"]
              and {"schema", "body", "gradient"} <= {s["title"] for s in f[0]["sections"]}),
    "completion": (["completion", "zsh"], 0, lambda f: "#compdef xla_torch" in f["script"]),
}


@pytest.mark.parametrize(("command", "status", "holds"), FACTS.values(), ids=FACTS.keys())
def test_json_says_the_facts(command: list[str], status: int, holds: Any, folder: Path, capsys: pytest.CaptureFixture[str]):
    Path("dot.hlo").write_text("ENTRY main { x = f32[] parameter(0) ROOT y = f32[] sine(x) }")
    found = facts(command, capsys, status)
    assert holds(found), found


def test_every_command_is_in_the_table():
    assert {command[0] for command, _, _ in FACTS.values()} == program.commands.keys() - {"partition"}  # which is XLA's work


VALUES = [("f32[3]", "{nan, inf, -inf}", ["NaN", "Infinity", "-Infinity"]), ("c64[1]", "{(1, nan)}", [[1.0, "NaN"]]),
          ("pred[2]", "{true, false}", [True, False]), ("bf16[]", "1.5", 1.5), ("s4[2]", "{-8, 7}", [-8, 7]),
          ("u64[]", "18446744073709551615", 2**64 - 1), ("f32[0]", "{}", [])]


@pytest.mark.parametrize(("shape", "literal", "expected"), VALUES, ids=[shape for shape, _, _ in VALUES])
def test_values_in_json(shape: str, literal: str, expected: Any, folder: Path, capsys: pytest.CaptureFixture[str]):
    Path("c.hlo").write_text(f"ENTRY main {{ ROOT c = {shape} constant({literal}) }}")
    assert facts(["run", "c.hlo"], capsys)["results"][0]["values"] == expected


def test_large_arrays_are_left_to_save(folder: Path, capsys: pytest.CaptureFixture[str]):
    Path("i.hlo").write_text("ENTRY main { ROOT i = s32[1001] iota(), iota_dimension=0 }")
    assert facts(["run", "i.hlo"], capsys)["results"] == [{"name": "out0", "shape": "s32[1001]", "values": None}]


def test_no_constant_of_another_language_gets_into_json():
    assert as_json({"a": (float("nan"), 1)}) == '{"a": ["NaN", 1]}'


FROM_STDIN = [["show", "-"], ["run", "-", "--args", "data.npz"], ["code", "-"], ["grad", "-", "--argnums", "0"],
              ["diff", "-", "a.hlo"], ["diff", "a.hlo", "-"], ["convert", "-", "out.dot"]]


@pytest.mark.parametrize("command", FROM_STDIN, ids=" ".join)
def test_a_file_may_be_standard_input(command: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch,
                                      capsys: pytest.CaptureFixture[str]):
    text = PROGRAM if command[0] != "grad" else "ENTRY main { x = f32[] parameter(0) ROOT y = f32[] sine(x) }"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert main(command) == 0, capsys.readouterr().err
    if command[0] == "run":
        assert "[9., 4.]" in capsys.readouterr().out


def test_arguments_may_be_standard_input(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path("data.npz").read_bytes())))
    assert main(["run", "a.hlo", "--args", "-"]) == 0
    assert "[9., 4.]" in capsys.readouterr().out


ERRORS = [  # the command, and the parts of its error
    (["show", "nowhere.hlo"], {"error": "nowhere.hlo: No such file or directory", "kind": "FileNotFoundError"}),
    (["show", "bad.hlo"], {"kind": "HloSyntaxError"}),
    (["run", "a.hlo"], {"error": "the program takes arguments", "hint": "pass --args data.npz, or --random 0 to try it"}),
    (["run", "a.hlo", "--colour"], {"kind": "NoSuchOption", "error": "No such option"}),
    (["run", "a.hlo", "--random", "-1"], {"error": "Invalid value for '--random': -1 is not a seed: an integer of 0 or more"}),
    (["run", "a.hlo", "--random", "0", "--args", "data.npz"], {"error": "--args and --random exclude each other"}),
    (["show", "a.hlo", "--sizes", "b"], {"error": "Invalid value for '--sizes': 'b' is not NAME=N"}),
    (["show", "a.hlo", "--sizes", "b=2"], {"subject": "--sizes"}),
    (["grad", "a.hlo", "--argnums", "9"], {"error": "argnums names parameter 9", "expected": "0 (x), 1 (n)"}),
    (["grad", "a.hlo", "--argnums", "1"], {"error": "parameter 1 (n) has no gradient"}),
    (["grad", "a.hlo", "--argnums", "x"], {"error": "Invalid value for '--argnums': 'x' is not N or N,N"}),
    (["run", "a.hlo", "--args", "batch.npz"], {"error": "argument 0 (x) has the wrong shape or dtype", "got": "float32[3]",
                                               "expected": "f32[2]"}),
    (["replay", "a.hlo"], {"kind": "InvalidArgument"}),
    (["convert", "a.hlo", "a.jpg"], {"error": "unknown output format"}),
    (["diff", "a.hlo", "one"], {"error": "diff cannot compare a folder and a file"}),
    (["ops", "revers"], {"hint": "did you mean reverse"}),
    (["paint"], {"error": "No such command 'paint'"}),
    (["completion", "tcsh"], {"kind": "BadParameter"}),
]


@pytest.mark.parametrize(("command", "parts"), ERRORS, ids=[" ".join(command) for command, _ in ERRORS])
def test_errors_exit_with_2_in_words_and_in_json(command: list[str], parts: dict[str, str], folder: Path,
                                                 capsys: pytest.CaptureFixture[str]):
    np.savez("batch.npz", arg0=np.zeros(3, np.float32), arg1=np.int32(5))
    assert main(command) == 2
    messages = capsys.readouterr()
    assert messages.out == ""
    assert "Traceback" not in messages.err
    assert parts.get("error", "") in messages.err
    assert main([*command, "--json"]) == 2
    messages = capsys.readouterr()
    assert messages.out == ""
    found = json.loads(messages.err)
    wrong = {name: found.get(name) for name, part in parts.items() if not str(found.get(name)).startswith(part)}
    assert wrong == {}


def test_help_has_an_example_of_each_command_that_parses(capsys: pytest.CaptureFixture[str]):
    for name, command in program.commands.items():
        assert main([name, "--help"]) == 0
        lines = capsys.readouterr().out.partition("Examples:")[2].splitlines()
        examples = [line.split("xla_torch ", 1)[1] for line in lines if "xla_torch " in line]
        assert examples, name
        for example in examples:
            words = [word.strip("'") for word in example.partition(" |")[0].partition(" <")[0].split()]
            assert words[0] == name
            if "-" not in words and name != "completion":
                assert isinstance(command.make_context(name, words[1:]), click.Context)


def test_one_program_for_many_sizes_is_lowered_once(folder: Path, monkeypatch: pytest.MonkeyPatch,
                                                    capsys: pytest.CaptureFixture[str]):
    execution = importlib.import_module(f"{runtime.__name__}.execution")
    lowered: list[str] = []
    lower = execution.lower
    monkeypatch.setattr(execution, "lower", lambda *args, **options: (lowered.append("once"), lower(*args, **options))[1])
    Path("s.mlir").write_text("func.func @main(%x: tensor<?x3xf32>) -> tensor<?x3xf32> {\n"
                              "  %0 = stablehlo.sine %x : tensor<?x3xf32>\n"
                              "  return %0 : tensor<?x3xf32>\n}")
    np.savez("two.npz", arg0=np.zeros((2, 3), np.float32))
    assert main(["run", "s.mlir", "--args", "two.npz"]) == 0
    assert lowered == ["once"]


def test_diff_runs_equal_programs_once_each(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    static = importlib.import_module(f"{runtime.__name__}.static").StaticComputation
    runs: list[str] = []
    run_fitting, run_numpy = static.run_fitting, static.run_numpy
    monkeypatch.setattr(static, "run_fitting", lambda self, *given: (runs.append(self.name), run_fitting(self, *given))[1])
    monkeypatch.setattr(static, "run_numpy", lambda self, *given: (runs.append(self.name), run_numpy(self, *given))[1])
    assert main(["diff", "a.hlo", "a.hlo"]) == 0
    assert runs == ["square", "square"]


# ------------------------------------------------------------------------------------------------------ as a process


@pytest.mark.parametrize(("code", "without"), [
    ("import xla_torch", {"click", "rich", "torch", "jax"}),
    ("from xla_torch.cli import main; main(['run', '--help'])", {"rich", "torch", "jax"})], ids=["import", "help"])
def test_what_need_not_be_waited_for(code: str, without: set[str]):
    code = f"import sys; {code}; sys.exit(' '.join({without!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert done.stderr.strip() == ""


def test_a_shell_completes_commands_and_options():
    def completed(*words: str) -> list[str]:
        there = {"_XLA_TORCH_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
        done = subprocess.run([sys.executable, "-m", "xla_torch"], env={**os.environ, **there}, check=True, capture_output=True,
                              text=True)
        return [line.partition(",")[2] for line in done.stdout.splitlines()]

    assert completed("xla_torch", "co") == ["code", "completion", "convert"]
    assert "--random" in completed("xla_torch", "run", "--r")


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a terminal")
def test_a_terminal_shows_progress_and_ctrl_c_clears_it(tmp_path: Path):
    path = tmp_path / "endless.hlo"
    path.write_text("""
HloModule endless
cond { c = s32[] parameter(0)  zero = s32[] constant(-1)  ROOT go = pred[] compare(c, zero), direction=GT }
body { b = s32[] parameter(0)  one = s32[] constant(1)  next = s32[] xor(b, one)  ROOT n = s32[] abs(next) }
ENTRY main { start = s32[] constant(0)  ROOT loop = s32[] while(start), condition=cond, body=body }
""")
    # A shell's jobs in the background ignore the signal, and so would their children.
    begin = ("import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
             "from xla_torch.cli import main; sys.exit(main(sys.argv[1:]))")
    ours, theirs = os.openpty()
    with subprocess.Popen([sys.executable, "-c", begin, "run", str(path)], stdout=subprocess.PIPE, stderr=theirs,
                          env={**os.environ, "TERM": "xterm"}) as process:
        os.close(theirs)
        messages = b""
        while b"running" not in messages:
            messages += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # as the end of a terminal is told
            while part := os.read(ours, 4096):
                messages += part
        assert process.stdout
        out = process.stdout.read()
    os.close(ours)
    assert (process.returncode, out) == (130, b"")
    assert b"Traceback" not in messages
    assert messages.endswith(b"\x1b[2K\x1b[?25h\rinterrupted\r\n")  # the line is empty again, and the cursor is back
