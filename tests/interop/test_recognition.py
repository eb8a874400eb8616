"""A file is what its content says: the forms of programs, and what is none, by name and first bytes."""

from __future__ import annotations

import gzip
import io
import pickle
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import xla_torch
from support import oracle
from support.stored_programs import DATA, SHARED
from xla_torch import from_hlo_proto, from_stablehlo, load, parse_hlo
from xla_torch.errors import HloSyntaxError, InvalidArgument, XlaError
from xla_torch.jax_interop.recognition import Form, recognise

HLO = "HloModule m\n\nENTRY e {\n  a = f32[2] parameter(0)\n  ROOT b = f32[2] negate(a)\n}\n"
MLIR = """module @m {
  func.func public @main(%a: tensor<2xf32>) -> tensor<2xf32> {
    %0 = stablehlo.negate %a : tensor<2xf32>
    return %0 : tensor<2xf32>
  }
}
"""
PROTO = parse_hlo(HLO).to_hlo_proto()

FORMS = [
    (HLO, Form.HLO_TEXT), ("// made by hand\n\n" + HLO, Form.HLO_TEXT), ("/* a\nb */ " + HLO, Form.HLO_TEXT),
    ("ENTRY e { ROOT a = f32[] parameter(0) }", Form.HLO_TEXT),
    ("%e (a: f32[]) -> f32[] { ROOT %a = f32[] parameter(0) }", Form.HLO_TEXT),
    ("e {\n ROOT a = f32[] parameter(0)\n}", Form.HLO_TEXT), ("ROOT %r = f32[2]{0} negate(f32[2]{0} %a)", Form.HLO_TEXT),
    ("f32[2] add(f32[2] a, f32[2] b)", Form.HLO_TEXT), ("module {\n  ROOT a = f32[] parameter(0)\n}", Form.MLIR_TEXT),
    ("r = (f32[2], s32[]) tuple(f32[2] a, s32[] b)", Form.HLO_TEXT), ("r = negate(f32[2] a)", Form.HLO_TEXT),
    (MLIR, Form.MLIR_TEXT), ("// comment\n" + MLIR, Form.MLIR_TEXT), ("#loc = loc(unknown)\n" + MLIR, Form.MLIR_TEXT),
    ("#map = affine_map<(d0) -> (d0)>\n" + MLIR, Form.MLIR_TEXT), ("!t = tensor<2xf32>\n" + MLIR, Form.MLIR_TEXT),
    ('"builtin.module"() ({}) : () -> ()', Form.MLIR_TEXT), ("func.func @main() { return }", Form.MLIR_TEXT),
    ('vhlo.func_v1 @main() {}', Form.MLIR_TEXT), (PROTO, Form.HLO_PROTO), (b"ML\xefR\x06", Form.MLIR_BYTECODE),
]


@pytest.mark.parametrize(("data", "form"), FORMS, ids=[str(n) for n in range(len(FORMS))])
def test_forms(data: str | bytes, form: Form):
    assert recognise(data.encode() if isinstance(data, str) else data) is form


PROGRAMS = [*DATA.glob("*/module.*"), *SHARED.glob("programs/*/module.*"),
            *list(SHARED.glob("conformance/cases/*/*/module.*"))[::20]]


def test_programs():
    for path in PROGRAMS:
        assert recognise(path.read_bytes()) is (Form.HLO_TEXT if path.suffix == ".hlo" else Form.MLIR_TEXT), path


def _zip() -> bytes:
    data = io.BytesIO()
    np.savez(data, a=np.zeros(2))
    with zipfile.ZipFile(io.BytesIO(data.getvalue())):
        return data.getvalue()


FOREIGN = [
    (b"", "the file is empty"),
    (b"\n \n", "empty but for blanks"),
    (gzip.compress(HLO.encode()), "a gzip file"),
    (_zip(), "a zip file"),
    (b"\xff\xd8\xff\xe0\0\x10JFIF", "a JPEG image"),
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"\x7fELF\x02\x01\x01", "an ELF file"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (pickle.dumps({"a": 1}), "a pickle"),
    (b"\x93NUMPY\x01\0v\0", "a .npy file"),
    (b"BC\xc0\xde5\x14", "LLVM bitcode"),
    ((20).to_bytes(8, "little") + b'{"w":{"dtype":"F32"}}', "a safetensors file"),
    (HLO.encode("utf-16"), "UTF-16"),
    (HLO.encode("utf-16-le"), "UTF-16"),
    (HLO.encode("utf-16-be"), "neither|UTF-16"),
    (b"\xef\xbb\xbf" + HLO.encode(), "byte order mark"),
    (b"junk", "neither HLO nor MLIR"),
    (b"Lorem ipsum dolor sit amet.", "neither HLO nor MLIR"),
    (b"<!DOCTYPE html><html>", "HTML"),
    (b'{"a": 1}', "JSON"),
    (b"version https://git-lfs.github.com/spec/v1\n", "git LFS"),
    (b"import jax\n", "Python"),
    (b"{ lambda ; a:f32[2]. let b:f32[2] = neg a in (b,) }", "jaxpr"),
    (b'hlo_module {\n  name: "m"\n}', "proto as text"),
    (bytes(range(128, 256)), "neither"),
    (b"\x08\x07\x12\x05torch", "neither"),
]


@pytest.mark.parametrize("name", ["program", "program.mlir", "program.hlo", "program.pb", "program.mlirbc"])
@pytest.mark.parametrize(("data", "what"), FOREIGN, ids=[what for _, what in FOREIGN])
def test_what_is_no_program_is_named(data: bytes, what: str, name: str, tmp_path: Path):
    """Whatever the file is called; with its name and its first bytes."""
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(InvalidArgument, match=what) as caught:
        load(path)
    message = str(caught.value)
    assert str(path) in message
    assert (repr(data[:16]) if data else "0 bytes") in message


def test_folders(tmp_path: Path):
    with pytest.raises(InvalidArgument, match="folder"):
        load(tmp_path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "missing")


@pytest.mark.parametrize(("call", "hint"), [
    (lambda: parse_hlo(MLIR), "from_stablehlo"),
    (lambda: from_stablehlo(HLO), "parse_hlo"),
    (lambda: from_stablehlo(HLO.encode()), "parse_hlo"),
    (lambda: from_stablehlo(PROTO), "from_hlo_proto"),
    (lambda: parse_hlo(PROTO), "from_hlo_proto"),  # pyright: ignore[reportArgumentType]
    (lambda: parse_hlo(HLO.encode()), "decode it"),  # pyright: ignore[reportArgumentType]
    (lambda: parse_hlo(MLIR.encode()), "from_stablehlo"),  # pyright: ignore[reportArgumentType]
], ids=[str(n) for n in range(7)])
def test_the_function_that_reads_it_is_named(call: object, hint: str):
    with pytest.raises(InvalidArgument, match=rf"(?s)hint.*{hint}"):
        call()  # pyright: ignore[reportCallIssue]


@oracle.needs_xla
def test_every_container_runs(tmp_path: Path):
    """Text, bytecode, portable artifacts, protos, and files of jax.export."""
    import jax
    from jaxlib import _jax  # pyright: ignore[reportAttributeAccessIssue]

    exported = jax.export.export(jax.jit(lambda a: -a))(jax.ShapeDtypeStruct((2,), np.float32))
    files = {"a.hlo": HLO.encode(), "a.mlir": MLIR.encode(), "a.pb": PROTO, "a.export": bytes(exported.serialize()),
             "a.mlirbc": _jax.mlir.serialize_portable_artifact(MLIR, "1.0.0"), "b.mlirbc": exported.mlir_module_serialized}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        result, = load(tmp_path / name).run_numpy(np.array([1, -2], np.float32))
        np.testing.assert_array_equal(result, [-1, 2])


def test_text_that_is_not_utf8_somewhere(tmp_path: Path):
    (tmp_path / "a.hlo").write_bytes(HLO.encode() + b"x" * 70000 + b"\xff")
    with pytest.raises(HloSyntaxError, match="not UTF-8"):
        load(tmp_path / "a.hlo")


# ------------------------------------------------------------------------------------------------------------ hostile bytes


def _mutants(data: bytes) -> st.SearchStrategy[bytes]:
    """The bytes with some replaced, cut out or doubled."""
    places = st.integers(0, len(data) - 1)
    edits = st.lists(st.tuples(places, st.binary(max_size=3), st.integers(0, 8)), min_size=1, max_size=4)

    def edited(made: list[tuple[int, bytes, int]]) -> bytes:
        changed = data
        for place, new, gone in made:
            changed = changed[:place] + new + changed[place + gone:]
        return changed

    return edits.map(edited)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(_mutants(PROTO))
@pytest.mark.filterwarnings("ignore:the HLO proto has fields")
def test_changed_protos_are_programs_or_errors(data: bytes):
    try:
        from_hlo_proto(data)
    except XlaError as error:
        assert re.search(r"\w", error.what), error  # noqa: PT017


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.binary(max_size=60))
def test_any_bytes_are_named(data: bytes):
    try:
        recognise(data)
    except InvalidArgument as error:
        assert error.got, error  # noqa: PT017


def test_entry_points_are_public():
    assert {"load", "parse_hlo", "from_stablehlo", "from_hlo_proto"} <= set(xla_torch.__all__)
