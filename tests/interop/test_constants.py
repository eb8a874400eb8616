"""Constants are read once and shared: by a program, its copies, its gradient and its pickles."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from support import oracle
from xla_torch import XlaComputation, from_stablehlo, grad, load, parse_hlo, value_and_grad
from xla_torch.hlo.literals.literal import Literal
from xla_torch.hlo.memory import mapped, owned, unmapped
from xla_torch.runtime.static import StaticComputation

ROWS = 1 << 11
TEXT = f"""HloModule m

ENTRY e {{
  x = f32[{ROWS},1024] parameter(0)
  k = s32[3] constant({{1, 2, 3}})
  c = f32[{ROWS},1024] constant({{...}})
  s = f32[{ROWS},1024] multiply(x, c)
  ROOT r = f32[{ROWS},1024] tanh(s)
}}
"""


@pytest.fixture(scope="module")
def weights() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((ROWS, 1024)).astype(np.float32)


SUMMED = TEXT.replace("ENTRY", "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n\nENTRY"
                      ).replace(
    f"  ROOT r = f32[{ROWS},1024] tanh(s)", f"  r = f32[{ROWS},1024] tanh(s)\n  z = f32[] constant(0)\n"
    "  ROOT l = f32[] reduce(r, z), dimensions={0,1}, to_apply=add")


def program(weights: np.ndarray, text: str = TEXT) -> XlaComputation:
    module = parse_hlo(text).module
    next(i for i in module.entry.instructions if i.name == "c").attributes["literal"] = Literal.of(weights)
    return StaticComputation(module)


def buffers(computation: XlaComputation) -> list[torch.Tensor]:
    return [b for b in computation.lowered().buffers() if b.numel() > 1000]


def test_a_program_and_its_way_back_have_the_constant_s_own_memory(weights: np.ndarray):
    computation = program(weights)
    x = torch.ones(ROWS, 1024, requires_grad=True)
    computation(x).sum().backward()
    held, = buffers(computation)
    assert np.shares_memory(held.numpy(), weights)
    assert buffers(StaticComputation(computation.module))[0] is held
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), weights * (1 - np.tanh(weights) ** 2), rtol=1e-4, atol=1e-5)


def test_copies_and_pickles_hold_it_once(weights: np.ndarray):
    computation = program(weights)
    data = pickle.dumps([computation, copy.copy(computation), copy.deepcopy(computation), StaticComputation(computation.module)])
    assert len(data) < 1.01 * weights.nbytes
    x = torch.randn(ROWS, 1024)
    first, *_, last = pickle.loads(data)
    assert torch.equal(first(x), computation(x))
    assert buffers(last)[0] is buffers(first)[0]


def test_a_program_its_gradient_and_their_pickles_hold_it_once(weights: np.ndarray):
    def held(*computations: XlaComputation) -> set[int]:
        """The memory of their large constants, by address."""
        return {i.attributes["literal"].array.__array_interface__["data"][0]
                for made in computations for part in made.module.computations for i in part.instructions
                if i.opcode == "constant" and i.attributes["literal"].array.size == weights.size}

    computation = program(weights, SUMMED)
    family = [computation, grad(computation), value_and_grad(computation), copy.copy(computation), copy.deepcopy(computation)]
    assert held(*family) == {weights.__array_interface__["data"][0]}
    data = pickle.dumps(family)
    assert len(data) < 1.01 * weights.nbytes
    assert len(held(*pickle.loads(data))) == 1
    apart: list[pickle.PickleBuffer] = []
    assert len(pickle.dumps(family, protocol=5, buffer_callback=apart.append)) < 0.01 * weights.nbytes
    assert sum(part.raw().nbytes for part in apart) < 1.01 * weights.nbytes


def test_elided_constants_stay_elided():
    again = pickle.loads(pickle.dumps(parse_hlo(TEXT)))
    assert [i.attributes["literal"].elided for i in again.entry.instructions if i.opcode == "constant"] == [False, True]


def test_hashing_reads_few_elements(weights: np.ndarray):
    literal = Literal.of(weights)
    other = weights.copy()
    other[-1, -1] += 1
    assert hash(literal) == hash(Literal.of(other))
    assert literal == Literal.of(weights.copy())
    assert literal != Literal.of(other)
    assert Literal.of(np.float32("nan")) == Literal.of(np.float32("nan"))
    assert Literal.of(np.float32(0.0)) != Literal.of(np.float32(-0.0))


@oracle.needs_xla
@pytest.mark.parametrize("form", ["bytecode", "proto", "hexadecimal"])
def test_files_may_change_after_they_are_read(form: str, weights: np.ndarray, tmp_path: Path):
    from jaxlib import _jax  # pyright: ignore[reportAttributeAccessIssue]

    kind = f"tensor<{ROWS}x1024xf32>"
    text = (f'func.func @main() -> {kind} {{ %0 = stablehlo.constant dense<"0x{weights.tobytes().hex()}"> : {kind}\n'
            f"return %0 : {kind} }}")
    data = {"bytecode": lambda: _jax.mlir.serialize_portable_artifact(text, "1.0.0"),
            "proto": lambda: from_stablehlo(text).to_hlo_proto(), "hexadecimal": text.encode}[form]()
    path = tmp_path / "program"
    path.write_bytes(data)
    computation = load(path)
    path.write_bytes(b"")
    np.testing.assert_array_equal(computation.run_numpy()[0], weights)


def test_memory(tmp_path: Path):
    path = tmp_path / "data"
    content = np.arange(9 << 20, dtype=np.uint8)
    path.write_bytes(content.tobytes())
    with mapped(path) as data:
        np.testing.assert_array_equal(owned(data[3:]), content[3:])
        view = np.frombuffer(data, np.uint8)[5:]
        again = unmapped(view.reshape(-1, 1))
        splat = unmapped(np.broadcast_to(view[:1], (3, 4)))
        assert unmapped(content) is content
        del view
    np.testing.assert_array_equal(again[:, 0], content[5:])
    assert splat.tolist() == [[5] * 4] * 3
