"""Programs as ONNX models, which onnxruntime runs."""

import io
import os
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from support.graphed_programs import PROGRAMS, assert_same, case, leaves
from xla_torch import from_jax, parse_hlo
from xla_torch.cli import main
from xla_torch.errors import MissingDependency, UnsupportedError
from xla_torch.nn import XlaModule

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own and onnxscript's

CANNOT = {
    "sort": "aten.sort.stable",
    "rng-bit-generator": "aten.view.dtype",
}
REFUSED = {  # and all operators that the error names
    "sorted keys": (lambda x: jnp.sort(x).view(np.int32), np.ones(3, np.float32), "aten.sort.stable, aten.view.dtype"),
    "in a loop": (lambda x: jax.lax.fori_loop(0, 30, lambda i, h: jnp.sort(h) * i, x), np.ones(3, np.float32), "aten.sort"),
    "cholesky": (jnp.linalg.cholesky, np.eye(2, dtype=np.float32), "aten.linalg_cholesky_ex"),
    "a complex argument": (lambda x: x.real, np.ones(3, np.complex64), "complex arguments or results"),
    "a complex result": (lambda x: jax.lax.complex(x, x), np.ones(3, np.float32), "complex arguments or results"),
    "a result of another type": (jnp.abs, np.ones(3, np.float16), "out0 would be torch.float32 in the place of torch.float16"),
}
POWER = "HloModule m\nENTRY e {\n x = s32[3] parameter(0)\n ROOT y = s32[3] power(x, x)\n}"


def ran(model: bytes, arguments) -> list[torch.Tensor]:
    session = onnxruntime.InferenceSession(model)
    given = {i.name: a.numpy() for i, a in zip(session.get_inputs(), arguments, strict=True)}
    return [torch.from_numpy(np.asarray(result)) for result in session.run(None, given)]


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in CANNOT])
def test_runs(name):
    program, arguments = case(name)
    program.to_onnx(file := io.BytesIO())
    assert_same(ran(file.getvalue(), arguments), leaves(program(*arguments)))


@pytest.mark.parametrize("sign", [-1, 1])
def test_loops_and_branches_depend_on_numbers(sign):
    program = from_jax(lambda x, n: jax.lax.cond(x.sum() > 0, lambda a: jax.lax.fori_loop(0, n, lambda i, h: jnp.sin(h) + i, a),
                                                 lambda a: a * 2, x), np.ones(3, np.float32), np.int32(3))
    program.to_onnx(file := io.BytesIO())
    for steps in (0, 1, 5):
        given = [torch.tensor([0.1, 0.2, 0.3]) * sign, torch.tensor(steps, dtype=torch.int32)]
        assert_same(ran(file.getvalue(), given), [program(*given)])


@pytest.mark.parametrize("wrapped", [False, True], ids=["a module", "in another module"])
def test_torch_exports_a_module_directly(wrapped: bool, tmp_path: Path):
    network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh())
    x = torch.linspace(-1, 1, 6).reshape(2, 3)
    module = XlaModule.from_torch(network, x)
    module = torch.nn.Sequential(module, torch.nn.Linear(4, 2)) if wrapped else module
    made = torch.onnx.export(module, (x,), dynamo=True, verbose=False)
    assert made is not None
    made.save(tmp_path / "model.onnx", external_data=False)
    assert_same(ran((tmp_path / "model.onnx").read_bytes(), [x]), [module(x).detach()])
    module(x).sum().backward()  # the guard of other exports is as it was


@pytest.mark.parametrize("name", [*CANNOT, *REFUSED])
def test_what_onnx_cannot_say_is_refused_and_leaves_no_file(name, tmp_path):
    if name in CANNOT:
        program, expected = case(name)[0], CANNOT[name]
    else:
        function, example, expected = REFUSED[name]
        program = from_jax(function, example)
    (tmp_path / "m.onnx").write_bytes(b"before")
    with pytest.raises(UnsupportedError, match=expected):
        program.to_onnx(tmp_path / "m.onnx")
    assert os.listdir(tmp_path) == ["m.onnx"]
    assert (tmp_path / "m.onnx").read_bytes() == b"before"


def test_powers_of_integers_are_refused():
    with pytest.raises(UnsupportedError, match=r"aten\.pow of integers"):  # onnxruntime's do not wrap around
        parse_hlo(POWER).to_onnx(io.BytesIO())


def test_inputs_and_outputs_have_names(tmp_path):
    program = from_jax(lambda p, x: {"a": jnp.tanh(x @ p["w"]), "b": x[0]}, {"w": np.ones((4, 4), np.float32)},
                       np.ones((2, 4), np.float32))
    program.to_onnx(tmp_path / "m.onnx")
    graph = onnx.load(tmp_path / "m.onnx").graph
    assert [i.name for i in graph.input] == ["p.w", "x"]
    assert [o.name for o in graph.output] == ["out0", "out1"]


def test_tuples_are_taken_apart():
    program = parse_hlo("HloModule m\nENTRY e {\n p = (f32[2], (s32[], f32[2])) parameter(0)\n a = f32[2] get-tuple-element(p), "
                        "index=0\n q = (s32[], f32[2]) get-tuple-element(p), index=1\n b = f32[2] get-tuple-element(q), index=1\n"
                        " ROOT r = f32[2] add(a, b)\n}")
    program.to_onnx(file := io.BytesIO())
    given = torch.ones(2), torch.tensor(3, dtype=torch.int32), torch.ones(2)
    assert_same(ran(file.getvalue(), given), [torch.full((2,), 2.0)])
    assert [i.name for i in onnx.load_from_string(file.getvalue()).graph.input] == ["p.0", "p.1.0", "p.1.1"]


def test_the_command_line_writes_them(tmp_path):
    (tmp_path / "p.hlo").write_text(from_jax(jnp.tanh, np.ones(3, np.float32)).to_hlo_text())
    assert not main(["convert", str(tmp_path / "p.hlo"), str(tmp_path / "p.onnx")])
    x = torch.tensor([-1.0, 0, 2])
    assert_same(ran((tmp_path / "p.onnx").read_bytes(), [x]), [x.tanh()])
    (tmp_path / "s.hlo").write_text(case("sort")[0].to_hlo_text())
    assert main(["convert", str(tmp_path / "s.hlo"), str(tmp_path / "s.onnx")]) == 2
    assert not (tmp_path / "s.onnx").exists()


def test_without_onnx_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(MissingDependency, match=r"xla_torch\[onnx\]"):
        case("elementwise")[0].to_onnx(io.BytesIO())
