"""HLO to StableHLO text: read back by ourselves it gives the same bits, and MLIR's own parser accepts it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.stablehlo_oracle import new_context
from support.stablehlo_oracle import parse as parse_by_bindings
from xla_torch.cli import main as command
from xla_torch.errors import UnsupportedError
from xla_torch.front import parse_module
from xla_torch.loading import from_stablehlo, load, parse_hlo
from xla_torch.shape import Shape
from xla_torch.stablehlo.writing.module import to_stablehlo

SHARED = Path(__file__).parents[3] / "shared"
ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b) }\n"
PROGRAMS = {
    "elementwise": "ENTRY e { x = f32[4] parameter(0)\n y = f32[4] tanh(x)\n z = f32[4] erf(y)\n"
                   " c = pred[4] compare(z, x), direction=LT\n ROOT r = f32[4] select(c, y, z) }",
    "constants": "ENTRY e { x = f32[2] parameter(0)\n a = f32[2] constant({0.1, nan})\n b = pred[2] constant({true, false})\n"
                 " c = s4[2] constant({-8, 7})\n d = c64[2] constant({(1,-2), (0.1,inf)})\n f = f32[0] constant({})\n"
                 " g = bf16[] constant(-inf)\n ROOT r = (f32[2], f32[2], pred[2], s4[2], c64[2], f32[0], bf16[]) "
                 "tuple(x, a, b, c, d, f, g) }",
    "a tuple as parameter": "ENTRY e { p = (f32[2], (s32[], f32[3])) parameter(0)\n"
                            " q = (s32[], f32[3]) get-tuple-element(p), index=1\n n = s32[] get-tuple-element(q), index=0\n"
                            " x = f32[2] get-tuple-element(p), index=0\n"
                            " ROOT r = (s32[], f32[2]) tuple(n, x) }",
    "reduce": ADD + "ENTRY e { x = f32[3,4] parameter(0)\n z = f32[] constant(0.1)\n"
                    " ROOT r = f32[3] reduce(x, z), dimensions={1}, to_apply=add }",
    "call and fusion": "f { a = f32[3] parameter(0)\n ROOT s = f32[3] multiply(a, a) }\n"
                       "g { a = f32[3] parameter(0)\n ROOT s = f32[3] negate(a) }\n"
                       "ENTRY e { x = f32[3] parameter(0)\n y = f32[3] call(x), to_apply=f\n z = f32[3] call(y), to_apply=f\n"
                       " ROOT r = f32[3] fusion(z), kind=kLoop, calls=g }",
    "loop": "c { p = (s32[], f32[2]) parameter(0)\n i = s32[] get-tuple-element(p), index=0\n n = s32[] constant(5)\n"
            " ROOT r = pred[] compare(i, n), direction=LT }\n"
            "b { p = (s32[], f32[2]) parameter(0)\n i = s32[] get-tuple-element(p), index=0\n o = s32[] constant(1)\n"
            " j = s32[] add(i, o)\n x = f32[2] get-tuple-element(p), index=1\n y = f32[2] sine(x)\n"
            " ROOT t = (s32[], f32[2]) tuple(j, y) }\n"
            "ENTRY e { x = f32[2] parameter(0)\n z = s32[] constant(0)\n t = (s32[], f32[2]) tuple(z, x)\n"
            " ROOT w = (s32[], f32[2]) while(t), condition=c, body=b }",
    "branches": "f { a = f32[3] parameter(0)\n ROOT s = f32[3] exponential(a) }\n"
                "g { a = (f32[3], f32[3]) parameter(0)\n x = f32[3] get-tuple-element(a), index=0\n"
                " y = f32[3] get-tuple-element(a), index=1\n ROOT s = f32[3] add(x, y) }\n"
                "ENTRY e { x = f32[3] parameter(0)\n k = s32[] parameter(1)\n t = (f32[3], f32[3]) tuple(x, x)\n"
                " ROOT r = f32[3] conditional(k, x, t), branch_computations={f, g} }",
    "convolution": "ENTRY e { x = f32[1,5,6,2] parameter(0)\n k = f32[3,2,2,4] parameter(1)\n"
                   " ROOT r = f32[1,3,3,4] convolution(x, k), window={size=3x2 stride=1x2 rhs_reversal=1x0}, "
                   "dim_labels=b01f_01io->b01f }",
    "windows": ADD + "ENTRY e { x = f32[6] parameter(0)\n z = f32[] constant(0)\n"
                     " ROOT r = f32[4] reduce-window(x, z), window={size=3 pad=1_1 stride=1 rhs_dilate=2}, to_apply=add }",
}
NOT_WRITTEN = ["chlo.scan.00", "chlo.scan.01", "chlo.scan.02", "chlo.scan.03", "dot_general.01", "gp_cholesky_nll"]
"""Scans, an algorithm of a product, and LAPACK's routines with layouts and aliases of their own."""

REFUSED = {
    "copy-start": "ENTRY e { x = f32[2] parameter(0)\n s = (f32[2], f32[2], u32[]) copy-start(x)\n"
                  " ROOT r = f32[2] copy-done(s) }",
    "reversal": ADD + "ENTRY e { x = f32[6] parameter(0)\n z = f32[] constant(0)\n"
                      " ROOT r = f32[4] reduce-window(x, z), window={size=3 rhs_reversal=1}, to_apply=add }",
    "algorithm": "ENTRY e { x = f32[2,2] parameter(0)\n ROOT r = f32[2,2] dot(x, x), lhs_contracting_dims={1}, "
                 "rhs_contracting_dims={0}, algorithm=dot_bf16_bf16_f32_x3 }",
}


def drawn(shapes: Sequence[Shape]) -> list[np.ndarray]:
    random = np.random.default_rng(7)
    return [random.integers(0, 2, s.dimensions).astype(s.element_type.numpy) if s.element_type.is_integral
            else random.standard_normal(s.dimensions).astype(s.element_type.numpy) for s in shapes]


def nested(shape: Shape, leaves: Iterator[np.ndarray]) -> Any:
    return tuple(nested(s, leaves) for s in shape.tuple_shapes) if shape.is_tuple else next(leaves)


def stored(folder: Path, shapes: Sequence[Shape]) -> list[np.ndarray]:
    """A case's own arguments."""
    sizes = [s for _, s in json.loads((folder / "case.json").read_text())["inputs"]]
    data = np.load(folder / "data.npz")
    return [np.frombuffer(data[f"in{k}"].tobytes(), shape.element_type.numpy).reshape(s)
            for k, (s, shape) in enumerate(zip(sizes, shapes, strict=True))]


def assert_same(path_or_text: str | Path) -> None:
    program = load(path_or_text) if isinstance(path_or_text, Path) else parse_hlo(path_or_text)
    text = program.to_stablehlo()
    with new_context() as context:
        parse_by_bindings(text, context)
    shapes = [leaf for p in program.program_shape.parameters for leaf in p.leaves()]
    is_case = isinstance(path_or_text, Path) and (path_or_text.parent / "case.json").exists()
    arguments = stored(path_or_text.parent, shapes) if is_case else drawn(shapes)  # pyright: ignore
    left = iter(arguments)
    got, want = from_stablehlo(text).run_numpy(*arguments), program.run_numpy(*[
        nested(p, left) for p in program.program_shape.parameters])
    assert [(a.dtype, a.shape, a.tobytes()) for a in got] == [(a.dtype, a.shape, a.tobytes()) for a in want]


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_written_reads_as_the_same_program(name: str):
    assert_same("HloModule m\n" + PROGRAMS[name])


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_words_is_refused_and_named(name: str):
    with pytest.raises(UnsupportedError, match=name):
        to_stablehlo(parse_module("HloModule m\n" + REFUSED[name]))


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.exists(), reason="the programs are not here")
def test_cases_and_programs_read_as_the_same():
    refused = []
    for path in sorted([*SHARED.glob("conformance/cases/*/*/module.hlo"), *SHARED.glob("programs/*/module.hlo")]):
        try:
            assert_same(path)
        except UnsupportedError:
            refused.append(path.parent.name)
    assert refused == NOT_WRITTEN


def test_files_are_converted_by_their_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "a.hlo"
    path.write_text("HloModule m\n" + PROGRAMS["loop"])
    want = load(path).run_numpy(x := np.array([0.5, 2.0], np.float32))
    for before, after in (("a.hlo", "b.mlir"), ("b.mlir", "c.pb"), ("c.pb", "d.hlo")):
        assert command(["convert", str(tmp_path / before), str(tmp_path / after)]) == 0
        assert [a.tobytes() for a in load(tmp_path / after).run_numpy(x)] == [a.tobytes() for a in want]
    assert command(["convert", str(path), str(tmp_path / "a.onnx")]) == 2
    assert ".mlir" in capsys.readouterr().err
