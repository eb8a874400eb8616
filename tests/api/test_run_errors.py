"""What goes wrong on this machine or with these sizes is said in the standard error format: too little memory, sizes that do
not fit."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import xla_torch
from xla_torch import Shape, cli
from xla_torch.api.arguments import tensor_of
from xla_torch.api.custom_calls import register_custom_call, unregister_custom_call
from xla_torch.errors import ExecutionError, HloSyntaxError, LimitError, UnsupportedError, XlaError

LARGE = "HloModule m\nENTRY e {{ p = f32[] parameter(0)\n "\
        "b = f32[{size}] broadcast(p), dimensions={{}}\n ROOT grown = f32[{size}] sine(b) }}"
UNKNOWN = "HloModule m\nENTRY e {{ p = f32[?,?] parameter(0)\n q = f32[?,?] parameter(1)\n ROOT r = f32[?,?] {op} }}"
ONES = "1," * 64 + "1"


@pytest.mark.parametrize("size", ["1048576,1048576,1024", "9223372036854775807,4"])
def test_too_little_memory(size: str) -> None:
    with pytest.raises(LimitError, match=r"m: there is not enough memory[\s\S]*from +\w+ = "):
        xla_torch.parse_hlo(LARGE.format(size=size))(torch.tensor(1.0))


@pytest.mark.parametrize("op", [
    "add(p, q)", "dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "concatenate(p, q), dimensions={1}"])
def test_unknown_sizes_that_do_not_fit(op: str) -> None:
    program = xla_torch.parse_hlo(UNKNOWN.format(op=op))
    with pytest.raises(ExecutionError, match=r"m: torch refused: [\s\S]*from +r = [\s\S]*hint +check the sizes"):
        program(torch.ones(3, 4), torch.ones(5, 3))


def test_errors_of_users_functions_are_theirs() -> None:
    def refused(*_: object) -> None:
        raise RuntimeError("mine")

    text = ('HloModule m\nENTRY e { p = f32[2] parameter(0)\n ROOT r = f32[2] custom-call(p), custom_call_target="of_the_test" }')
    register_custom_call("of_the_test", refused)
    try:
        with pytest.raises(RuntimeError, match="mine") as raised:
            xla_torch.parse_hlo(text)(torch.ones(2))
    finally:
        unregister_custom_call("of_the_test")
    assert not isinstance(raised.value, LimitError)


@pytest.mark.parametrize(("read", "text"), [
    (xla_torch.parse_hlo, f"HloModule m\nENTRY e {{ ROOT c = f32[{ONES}] constant({'{' * 65}1{'}' * 65}) }}"),
    (xla_torch.parse_hlo, f"HloModule m\nENTRY e {{ ROOT c = f32[{ONES}] constant({{...}}) }}"),
    (xla_torch.from_stablehlo, f"func.func @main() -> tensor<{'1x' * 65}f32> {{ %0 = stablehlo.constant dense<1.0> : "
     f"tensor<{'1x' * 65}f32>\n return %0 : tensor<{'1x' * 65}f32> }}")])
def test_constants_of_too_many_dimensions(read: object, text: str) -> None:
    with pytest.raises((HloSyntaxError, UnsupportedError), match="more than 64 dimensions"):
        read(text)  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize("shape", ["f32[2]{0²}", "f32[2²]", "f32[2]{0:T(2²)}", "f32[2]{0:E(2²)}", "f32[٢]"])
def test_digits_are_ascii(shape: str) -> None:
    with pytest.raises(HloSyntaxError):
        xla_torch.parse_hlo(f"HloModule m\nENTRY e {{ p = {shape} parameter(0)\n ROOT r = f32[2] sine(p) }}")


@pytest.mark.parametrize(("options", "messages"), [
    (["--args", "{folder}/one.npy"], r"not an \.npz file\n.*one\.npy, one array"),
    (["--device", "meta", "--random", "0"], "no values"), (["--random", "-1"], "-1 is not a seed"),
    (["--args", "{folder}"], "directory"),
    (["--args", "{folder}/program.hlo"], r"not an \.npz file")])
def test_command_line(options: list[str], messages: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "one.npy", np.ones(3, np.float32))
    program = tmp_path / "program.hlo"
    program.write_text("HloModule m\nENTRY e { p = f32[3] parameter(0)\n ROOT r = f32[3] negate(p) }")
    assert cli.main(["run", str(program), *[o.replace("{folder}", str(tmp_path)) for o in options]]) == 2
    assert re.search(messages, capsys.readouterr().err, re.IGNORECASE)


def test_limit_errors_are_runtime_errors() -> None:
    assert issubclass(LimitError, XlaError)
    assert issubclass(LimitError, RuntimeError)


BATCH = xla_torch.parse_hlo("HloModule m\nENTRY e { p = f32[3,2] parameter(0)\n n = s32[] parameter(1)\n "
                            "ROOT r = f32[3,2] negate(p) }")
ONE, N, N64 = torch.ones, torch.tensor(1, dtype=torch.int32), np.int32(1)
REBATCH = r"hint +xla_torch\.rebatch\(program"
NOT_FITTING = [  # the call, what is said
    ("a batch of tensors", lambda: BATCH(ONE(5, 2), N), rf"argument 0 \(p\) has the wrong shape[\s\S]*{REBATCH}"),
    ("a batch of arrays", lambda: BATCH.run_numpy(np.ones((5, 2), np.float32), N64), rf"argument 0 \(p\) has[\s\S]*{REBATCH}"),
    ("a batch at other entry points", lambda: tensor_of(ONE(5, 2), Shape.parse("f32[3,2]"), lambda: "images"),
     rf"images has another shape[\s\S]*{REBATCH}"),
    ("another size", lambda: BATCH(ONE(3, 4), N), r"argument 0 \(p\) has the wrong shape(?![\s\S]*rebatch)"),
    ("another type", lambda: BATCH(ONE(5, 2).double(), N), r"argument 0 \(p\) has(?![\s\S]*rebatch)"),
    ("an array of another type", lambda: BATCH.run_numpy(np.ones((3, 2)), N64), r"argument 0 \(p\) has(?![\s\S]*rebatch)"),
    ("no tensor", lambda: BATCH([1.0], N), r"argument 0 \(p\) is not a tensor"),
    ("a number that does not fit", lambda: BATCH(ONE(3, 2), 1 << 40), r"argument 1 \(n\)"),
    ("no such argument", lambda: xla_torch.grad(BATCH, argnums=2), r"argnums names parameter 2[\s\S]*0 \(p\), 1 \(n\)"),
    ("an argument of integers", lambda: xla_torch.grad(BATCH, argnums=1), r"parameter 1 \(n\) has no gradient"),
]


@pytest.mark.parametrize(("call", "messages"), [row[1:] for row in NOT_FITTING], ids=[row[0] for row in NOT_FITTING])
def test_arguments_that_do_not_fit_are_named(call: Callable[[], object], messages: str) -> None:
    with pytest.raises(XlaError, match=messages):
        call()
