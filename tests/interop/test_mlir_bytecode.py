"""The own reader of MLIR bytecode and portable artifacts against jaxlib's: the same operations, whatever wrote them."""

from __future__ import annotations

import contextlib
import io
import mmap
import re
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies
from jaxlib._jax import mlir as jaxlib_mlir
from jaxlib.mlir import ir as bindings
from jaxlib.mlir.dialects import stablehlo

import xla_torch
from support import mlir_oracle
from support.counting import python_calls
from support.mlir_equal import difference
from support.mlir_texts import operations
from support.stablehlo_oracle import new_context, parse
from support.stored_programs import FOLDERS, SHARED, name_of
from xla_torch.errors import HloSyntaxError, XlaError
from xla_torch.mlir import ir
from xla_torch.mlir.bytecode import parser as bytecode
from xla_torch.mlir.text import parser as text

CASES = sorted((SHARED / "conformance" / "cases").glob("*/*/module.mlir"))
VERSIONS = ("0.9.0", "0.12.0", "0.15.0", "0.20.0", "1.0.0", "1.4.0", "1.8.0", "1.10.0", "1.14.0", stablehlo.get_current_version())
ENCODINGS = range(7)
DATA = Path(__file__).parents[1] / "data" / "mlir"
ROWS, NEWER = (dict(re.findall(r"^// ===== (.*)\n((?:(?!// =====).*\n)*)", (DATA / name).read_text(), re.MULTILINE))
               for name in ("rows.mlir", "newer.mlir"))
STORED, STORED_NEWER = (dict(np.load(DATA / name)) for name in ("artifacts.npz", "newer.npz"))
LAYOUTS = ("affine_map<", "strided<")
"""Layouts of buffers, of which bytecode's reader only hands on that they are there."""


@pytest.fixture(scope="module")
def context() -> Iterator[Any]:
    with new_context() as made:
        made.allow_unregistered_dialects = True
        yield made


def written(module: Any, version: int | None = None) -> bytes:
    """A module as plain bytecode, in a version of the encoding."""
    out = io.BytesIO()
    module.operation.write_bytecode(out, **({} if version is None else {"desired_version": version}))
    return out.getvalue()


def placed(operation: ir.Operation) -> ir.Operation:
    """A program without the locations that are but places in the text that it was made from."""
    for o in ir.walk(operation):
        if o.location is not None and not o.location.name and o.location.frames[0][0] == "-":
            o.location = None
    return operation


def artifact(program: str, version: str) -> bytes | None:
    """A portable artifact for a version of StableHLO; None where that does not have what the program needs."""
    try:
        return jaxlib_mlir.serialize_portable_artifact(program, version)
    except Exception:  # of jaxlib, in several classes
        return None


def check_plain(path: Path, context: Any, encodings: Any = (None,)) -> None:
    module = parse(path.read_text(), context)
    want = placed(mlir_oracle.operation(module))
    for version in encodings:
        assert difference(placed(bytecode.parse(written(module, version))), want) == ""


def check_artifact(program: str, version: str, context: Any) -> bool:
    """Whether there is an artifact for this version; it has to be read right."""
    data = artifact(program, version)
    if data is None:
        return False
    assert bytecode.header(data).producer == f"StableHLO_v{version}"
    want = placed(mlir_oracle.operation(stablehlo.deserialize_portable_artifact(context, data)))
    assert difference(placed(bytecode.parse(data)), want) == ""
    return True


@pytest.mark.parametrize("name", ROWS)
def test_rows(name: str, context: Any) -> None:
    """Each operation, attribute and type: in every version of the encoding, and of StableHLO where that has it."""
    module = parse(ROWS[name], context)
    want = placed(mlir_oracle.operation(module))
    for version in (None, 0, 3, 5):
        assert difference(placed(bytecode.parse(written(module, version))), want) == ""
    for version in VERSIONS:
        try:
            data = stablehlo.serialize_portable_artifact(module, version, allow_other_dialects=True)
        except Exception:  # of jaxlib, in several classes: the version does not have it
            continue
        want = placed(mlir_oracle.operation(stablehlo.deserialize_portable_artifact(context, data)))
        assert difference(placed(bytecode.parse(data)), want) == ""


@pytest.mark.parametrize("program", [p for p in operations() if not any(word in p for word in LAYOUTS)])
def test_each_operation_with_the_properties_that_the_installed_jaxlib_writes(program: str, context: Any) -> None:
    module = parse(program, context)
    assert difference(placed(bytecode.parse(written(module))), placed(mlir_oracle.operation(module))) == ""


@pytest.mark.parametrize("layout", ["affine_map<(d0) -> (d0)>", "strided<[1], offset: 2>"])
def test_layouts_of_buffers_are_handed_on(layout: str, context: Any) -> None:
    """MLIR encodes them itself from jaxlib 0.12 on, and wrote their text before. What stands beside them is read."""
    module = parse(f'"foo.bar"() {{a = {layout}, b = 3 : index}} : () -> ()', context)
    (found,) = (o for o in ir.walk(bytecode.parse(written(module))) if o.name == "foo.bar")
    assert isinstance(found.attributes["a"], ir.Opaque)
    assert found.attributes["b"] == 3


@pytest.mark.parametrize("name", STORED)
def test_stored_artifacts(name: str) -> None:
    """Those of old versions, as jaxlib 0.10.2 wrote them, hold what their text says. jaxlib is not asked."""
    got, want = bytecode.parse(STORED[name].tobytes()), text.parse(ROWS[name.partition(" @ ")[0]])
    assert [(o.name, [v.type for v in o.results]) for o in ir.walk(got)] == [
        (o.name, [v.type for v in o.results]) for o in ir.walk(want)]


@pytest.mark.parametrize("name", NEWER)
def test_bytecode_of_newer_versions_is_what_its_text_says(name: str) -> None:
    """As jaxlib 0.12.0.1 wrote it. jaxlib is not asked."""
    found = bytecode.parse(STORED_NEWER[name].tobytes())
    assert difference(found, text.parse(NEWER[name]), locations=False) == ""


@pytest.mark.parametrize("name", NEWER)
def test_newer_versions_are_read_as_a_newer_jaxlib_reads_them(name: str, context: Any) -> None:
    try:
        module = parse(NEWER[name], context)
    except HloSyntaxError:
        pytest.skip("the installed jaxlib cannot read it")
    want = placed(mlir_oracle.operation(module))
    assert difference(placed(bytecode.parse(written(module))), want) == ""
    for generic in (False, True):
        assert difference(text.parse(module.operation.get_asm(print_generic_op_form=generic)), want, locations=False) == ""


@pytest.mark.parametrize("form", [STORED_NEWER, NEWER], ids=["bytecode", "text"])
@pytest.mark.parametrize(("name", "sign"), list(zip(NEWER, [1, -1], strict=True)))
def test_reductions_of_parts_leave_the_array_as_it_is(form: dict[str, Any], name: str, sign: int) -> None:
    given = form[name] if isinstance(form[name], str) else form[name].tobytes()
    array = np.arange(64, dtype=np.float32).reshape(8, 8)
    np.testing.assert_array_equal(xla_torch.from_stablehlo(given).run_numpy(array)[0], sign * array)


def test_a_reduction_that_nobody_knows_is_refused() -> None:
    data = STORED_NEWER["shardings of parts that are reduced by an operation"].tobytes()
    axes = b"\x03#"  # one axis along which parts are reduced, and behind it the number of the reduction, of which 3 is none
    assert axes + b"\x09" in data
    with pytest.raises(HloSyntaxError, match="unknown reduction of sdy"):
        bytecode.parse(data.replace(axes + b"\x09", axes + b"\x0d"))


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_programs(folder: Path, context: Any) -> None:
    path = folder / "module.stablehlo.mlir"
    check_plain(path, context)
    program = path.read_text()
    assert sum(check_artifact(program, version, context) for version in VERSIONS[::3]) > 0


@pytest.mark.skipif(not CASES, reason="needs the conformance cases beside the checkout")
def test_a_sample_of_conformance_cases(context: Any) -> None:
    read = 0
    for k, path in enumerate(CASES[::12]):
        check_plain(path, context, (None, k % 7))
        read += check_artifact(path.read_text(), VERSIONS[k % len(VERSIONS)], context)
    assert read > len(CASES[::12]) // 2


@pytest.mark.slow
@pytest.mark.skipif(not CASES, reason="needs the conformance cases beside the checkout")
@pytest.mark.parametrize("version", VERSIONS)
def test_all_conformance_cases(version: str, context: Any) -> None:
    read = [check_artifact(path.read_text(), version, context) for path in CASES]
    assert sum(read) > 0.9 * len(CASES)


@pytest.mark.slow
@pytest.mark.skipif(not CASES, reason="needs the conformance cases beside the checkout")
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_all_encodings(encoding: int, context: Any) -> None:
    for path in CASES:
        check_plain(path, context, (encoding,))


# ------------------------------------------------------------------------------------------------------ constants, harm, speed


def big(array: np.ndarray) -> bytes:
    """A program with a constant, in bytecode."""
    with new_context(), bindings.Location.unknown():
        module = bindings.Module.create()
        with bindings.InsertionPoint(module.body):
            stablehlo.constant(bindings.DenseElementsAttr.get(array))  # pyright: ignore[reportCallIssue, reportArgumentType]
        return written(module)


def test_constants_are_views(tmp_path: Path) -> None:
    """Nothing of the data is copied, neither of bytes nor of a mapped file."""
    array = np.arange(1 << 20, dtype=np.float32).reshape(1024, 1024)
    path = tmp_path / "big.mlirbc"
    path.write_bytes(big(array))
    with path.open("rb") as file:
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    tracemalloc.start()
    module = bytecode.parse(view)
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    value = module.regions[0].blocks[0].operations[0].attributes["value"].value
    assert used < array.nbytes / 10
    assert np.shares_memory(value, np.frombuffer(view, np.uint8))
    np.testing.assert_array_equal(value, array)


def test_splats_are_views() -> None:
    module = text.parse("module { %0 = stablehlo.constant dense<1.0> : tensor<1000x1000xf32> }")
    with new_context() as context:
        found = bytecode.parse(written(parse("module { %0 = stablehlo.constant dense<1.0> : tensor<1000x1000xf32> }", context)))
    value = found.regions[0].blocks[0].operations[0].attributes["value"].value
    assert value.strides == (0, 0)
    assert difference(placed(found), placed(module), locations=False) == ""


def test_resources() -> None:
    """Large data that stand apart: here in a resource of the file."""
    program = ('module { %0 = stablehlo.constant dense_resource<r> : tensor<2xf32> }\n'
               '{-# dialect_resources: { builtin: { r: "0x040000000000803F00000040" } } #-}')
    with new_context() as context:
        found = bytecode.parse(written(parse(program, context)))
    value = found.regions[0].blocks[0].operations[0].attributes["value"].value
    np.testing.assert_array_equal(value, np.array([1, 2], np.float32))


HARMED = [STORED[name].tobytes() for name in list(STORED)[::7]]


@settings(max_examples=300, deadline=None, database=None, derandomize=True)
@given(strategies.data())
def test_harm(data: strategies.DataObject) -> None:
    """Flipped and cut bytes give an xla_torch error or another program: no traceback, no hang, no recursion, no wild memory."""
    changed = bytearray(data.draw(strategies.sampled_from(HARMED)))
    for _ in range(data.draw(strategies.integers(1, 4))):
        changed[data.draw(strategies.integers(0, len(changed) - 1))] = data.draw(strategies.integers(0, 255))
    with contextlib.suppress(XlaError):
        bytecode.parse(bytes(changed[:data.draw(strategies.integers(0, len(changed)))]))


def sections(*entries: bytes, attributes: int, operations: bytes) -> bytes:
    """A file of a few attributes of MLIR's own, in version 0."""
    def varint(value: int) -> bytes:
        return bytes([value << 1 | 1]) if value < 128 else bytes([0]) + value.to_bytes(8, "little")

    strings = varint(2) + varint(7) + varint(8) + b"builtin\0module\0"
    offsets = varint(attributes) + varint(0) + varint(0) + varint(attributes) + b"".join(varint(len(e) << 1 | 1) for e in entries)
    parts = {0: strings, 1: varint(1) + varint(0) + varint(0) + varint(1) + varint(1), 2: b"".join(entries), 3: offsets,
             4: operations}
    return b"ML\xefR" + varint(0) + b"test\0" + b"".join(bytes([k]) + varint(len(p)) + p for k, p in parts.items())


MODULE = bytes([1 << 2 | 1, 1, 1, 1])
"""A block of one operation: the module, with its first attribute as attributes and as location."""


@pytest.mark.parametrize(("entries", "what"), [
    ([bytes([1, 3, 1])], "hold themselves"),
    ([bytes([1, 3, 3]), bytes([1, 3, 1])], "hold themselves"),
    ([bytes([1, 5, 3 + 2 * k, 3 + 2 * k]) for k in range(60)] + [bytes([15])], "hold too much"),
    ([bytes([1, 3, 3 + 2 * k]) for k in range(120)] + [bytes([15])], "hold too much"),
    ([bytes([1, 0]) + b"\xff" * 8], "more attributes than there are bytes"),
    ([bytes([99])], "unknown kind"),
    ([b""], "the data end"),
], ids=["itself", "each other", "a tree without end", "too deep", "too many", "unknown", "empty"])
def test_attributes_that_do_harm(entries: list[bytes], what: str) -> None:
    with pytest.raises(HloSyntaxError, match=what) as caught:
        bytecode.parse(sections(*entries, attributes=len(entries), operations=MODULE))
    assert "byte " in caught.value.where


@pytest.mark.parametrize(("data", "what"), [
    (b"", "no MLIR bytecode"),
    (b"module {}", "no MLIR bytecode"),
    (b"ML\xefR", "the data end"),
    (b"ML\xefR\x0f", "a version of the encoding"),
    (b"ML\xefR\x0dMLIR", "the data end"),
    (b"ML\xefR\x0dMLIR\0", "sections are missing"),
    (b"ML\xefR\x0dMLIR\0\x00\xff", "ends behind the data"),
])
def test_other_bytes(data: bytes, what: str) -> None:
    with pytest.raises(HloSyntaxError, match=what):
        bytecode.parse(data)


def test_newer_versions_are_refused_where_they_stand() -> None:
    """Operations of VHLO that this reader does not know, because StableHLO did not have them: the file is read all the same."""
    data = STORED["attributes @ 0.9.0"].tobytes().replace(b"abs_v1", b"abs_v9")
    refused = [o.refused for o in ir.walk(bytecode.parse(data)) if o.refused is not None]
    assert refused
    assert all("unknown VHLO operation" in str(error) for error in refused)


def test_many_operations() -> None:
    """As much for each, however many there are; and each location is its own."""
    count = 20_000
    lines = "\n".join(f'%{k} = stablehlo.add %{k - 1}, %a : tensor<4xf32> loc("f{k}"("a.py":{k}:1))' for k in range(1, count))
    with new_context() as context:
        data = written(parse(f"func.func @main(%a: tensor<4xf32>) {{\n%0 = stablehlo.abs %a : tensor<4xf32>\n{lines}\nreturn\n}}",
                             context))
    found = []
    assert python_calls(lambda: found.append(bytecode.parse(data))) < 150 * count
    (module,) = found
    assert sum(1 for _ in ir.walk(module)) == count + 3
