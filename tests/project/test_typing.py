"""What editors and type checkers are told of the package: the stub of `xla_torch.ops` is that of the functions, a user's script
passes pyright's strictest mode, and names that are offered are ours."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import types
from pathlib import Path

import pytest

import xla_torch
from support import stubs, typed_script
from xla_torch import PrimitiveType, ops

ROOT = Path(__file__).parents[2]


def test_the_stub_is_up_to_date() -> None:
    assert (ROOT / stubs.STUB).read_text(encoding="utf-8") == stubs.stub(), f"{stubs.STUB} is stale; `make pages` writes it anew"


def test_the_stub_has_every_function_with_all_its_parameters() -> None:
    written = stubs.stub()
    for name in dir(ops):
        found = getattr(ops, name)
        if isinstance(found, types.FunctionType) and not name.startswith("_"):
            forms = [line for line in written.splitlines() if line.startswith(f"def {name}(")]
            names = inspect.signature(inspect.unwrap(found)).parameters
            assert all(any(f"{p}: " in form for form in forms) for p in names), name


def test_the_script_runs() -> None:
    typed_script.main()


MISTAKES = """
tensor = torch.ones(2)
ops.Exp(tensor, tensor)
ops.Exp("text")
ops.Reduce(tensor, 0.0, "add", [0])
ops.Reverse(tensor, [0])
ops.Rev(tensor, dimension=[0])
ops.Rev(tensor, 0.5)
ops.Fft(tensor, 2, [2])
an_op: XlaOp = ops.Exp(tensor)
"""


@pytest.mark.slow
def test_pyright_reads_the_script_in_its_strictest_mode(tmp_path: Path) -> None:
    """And finds mistakes that stand behind it, each on its line."""
    script, right = tmp_path / "script.py", Path(typed_script.__file__).read_text(encoding="utf-8")
    script.write_text(right + MISTAKES, encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(script)]
    messages = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = {(d["range"]["start"]["line"] + 1, d["severity"]) for d in json.loads(messages.stdout)["generalDiagnostics"]}
    first = right.count("\n") + 3
    assert found == {(line, "error") for line in range(first, first + 8)}, messages.stdout


def test_names_that_are_offered_are_ours() -> None:
    shown = [name for name in dir(xla_torch) if not name.startswith("__")]
    assert sorted(shown) == sorted([*xla_torch.__all__, *(t.name for t in PrimitiveType)])
    assert all(getattr(xla_torch, name) is not None for name in shown)
    assert [name for name in dir(ops) if isinstance(getattr(ops, name), types.ModuleType) or name == "Any"] == []
    assert {"Add", "Padding", "make_padding_config"} < set(dir(ops))
