"""Large literals in text: the same values, places and errors whether they are cut out of a file or read from a string, and hardly
more memory than their arrays take."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xla_torch import XlaComputation, from_stablehlo, load, parse_hlo
from xla_torch.api import loading
from xla_torch.errors import HloSyntaxError, XlaError
from xla_torch.hlo.cut_text import CutText, cut_text
from xla_torch.hlo.literals.literal import Literal
from xla_torch.hlo.literals.number_lists import Brackets
from xla_torch.hlo.literals.printing import format_literal
from xla_torch.hlo.literals.text import LARGE_LITERALS

MEGABYTE = 1 << 20


def numbers(*sizes: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(sizes).astype(np.float32)


def hlo(*bodies: tuple[str, str], between: str = "") -> str:
    """A program that returns literals of these shapes, each in a line of its own with a small op behind it."""
    lines = [f"  c{k} = {shape} constant({body}){between}\n  n{k} = {shape} copy(c{k})" for k, (shape, body) in enumerate(bodies)]
    names = ", ".join(f"n{k}" for k in range(len(bodies)))
    shapes = ", ".join(shape for shape, _ in bodies)
    return "HloModule m\n\nENTRY e {\n" + "\n".join(lines) + f"\n  ROOT r = ({shapes}) tuple({names})\n}}\n"


def mlir(*bodies: tuple[str, str], tail: str = "") -> str:
    lines = [f"    %c{k} = stablehlo.constant dense<{body}> : {shape}\n    %n{k} = stablehlo.optimization_barrier %c{k} : {shape}"
             for k, (shape, body) in enumerate(bodies)]
    shapes, names = ", ".join(s for s, _ in bodies), ", ".join(f"%n{k}" for k in range(len(bodies)))
    return ("module @m {\n  func.func public @main() -> (" + shapes + ") {\n" + "\n".join(lines)
            + f"\n    return {names} : {shapes}\n  }}\n}}\n{tail}")


def list_of(array: np.ndarray, row: str = "\n", complex: bool = False) -> str:
    """As MLIR writes it; in rows."""
    if array.ndim == 0:
        return f"({np.real(array)}, {np.imag(array)})" if complex else str(array)
    return "[" + f",{row}".join(list_of(part, row, complex) for part in array) + "]"


F32 = numbers(300, 400)
ODD = F32.copy()
ODD[::7, 3], ODD[1::7, 5], ODD[2::7, 1] = np.inf, -np.inf, np.nan
ODD.view(np.uint32)[5, 5], ODD.view(np.uint32)[299, 0] = 0x7F800001, 0xFFC00001
PAIRS = (F32[:, :200] + 1j * F32[:, 200:]).astype(np.complex64)
BYTES = np.random.default_rng(0).integers(-128, 128, (50, 40, 300)).astype(np.int8)
WIDE = np.random.default_rng(0).integers(-2**63, 2**63, (70000,), np.int64)
TRUTHS = np.random.default_rng(0).integers(0, 2, (700, 1000)).astype(bool)


def printed(array: np.ndarray) -> tuple[str, str]:
    literal = Literal.of(array)
    return literal.shape.to_text(), format_literal(literal)


HLO = {
    "floats": lambda: hlo(printed(F32)),
    "nans": lambda: hlo(printed(ODD)),
    "complex": lambda: hlo(printed(PAIRS)),
    "bytes": lambda: hlo(printed(BYTES)),
    "wide": lambda: hlo(printed(WIDE)),
    "truths": lambda: hlo(("pred[700,1000]", printed(TRUTHS)[1].replace("1", "true"))),
    "several": lambda: hlo(printed(F32), ("s32[3]", "{1, 2, 3}"), printed(BYTES), printed(WIDE), between=" // \u00e9"),
    "rows": lambda: hlo(("f32[300,400]", printed(F32)[1].replace("}, {", "},\n      {"))),
    "comments": lambda: hlo(("f32[300,400]", printed(F32)[1].replace("}, {", "}, /*i0=1*/ {"))),
    "comments to the line's end": lambda: hlo(("f32[30,400]", printed(F32[:30])[1].replace("}, {", "}, // 1, 2, {\n {"))),
    "points": lambda: hlo(("f32[300000]", "{" + "1.,2,.3e1,"[:-5] * 149999 + "0.5,1E+5}")),
    "on one line": lambda: hlo(printed(F32), printed(BYTES)).replace("\n  ", " "),
    "in rows on one line": lambda: hlo(printed(F32), printed(BYTES)).replace("\n  ", " ").replace("}, {", "},\n {"),
    "in a string": lambda: hlo(printed(F32), between=", metadata={op_name=\"constant(" + printed(F32)[1] + ")\"}"),
}


MLIR = {
    "floats": lambda: mlir(("tensor<300x400xf32>", list_of(F32))),
    "hexadecimal": lambda: mlir(("tensor<300x400xf32>", f'"0x{F32.tobytes().hex()}"'), ("tensor<2xi32>", "[1, 2]"),
                                ("tensor<300x400xf32>", f'"0x{ODD.tobytes().hex().upper()}"')),
    "complex": lambda: mlir(("tensor<300x200xcomplex<f32>>", list_of(PAIRS, complex=True))),
    "bytes": lambda: mlir(("tensor<50x40x300xi8>", list_of(BYTES, " ")), ("tensor<70000xi64>", list_of(WIDE))),
    "bits": lambda: mlir(("tensor<300x400xf32>", list_of(F32).replace("],\n", ", 0x7FC00001],\n").replace("]]", ", 0x0]]"))
                         ).replace("300x400", "300x401"),
    "comments": lambda: mlir(("tensor<300x400xf32>", list_of(F32).replace(",\n", ", // [1, 2,\n"))),
    "on one line": lambda: mlir(*[("tensor<300x400xf32>", list_of(F32))] * 2).replace("\n    ", " "),
    "resource": lambda: mlir(("tensor<300x400xf32>", "w"), tail='{-#\n dialect_resources: { builtin: { w: "0x04000000'
                             + F32.tobytes().hex() + '" } }\n#-}\n').replace("dense<w>", "dense_resource<w>"),
    "in a string": lambda: mlir(("tensor<300x400xf32>", list_of(F32))).replace(
        "module @m", f'module @m attributes {{a = "<{list_of(F32, " ")}>"}}'),
}

UNCUT = {"comments to the line's end", "in a string"}
"""Those that are read from the whole text after all."""


def states(computation: XlaComputation) -> list[Any]:
    """All of a program: its instructions with their literals and places."""
    return [(i.name, i.opcode, str(i.shape), i.line, i.column, i.attributes.get("literal"))
            for i in computation.entry.instructions]


def compared(tmp_path: Path, text: str, read: Callable[[str], XlaComputation], monkeypatch: pytest.MonkeyPatch) -> bool:
    """That a file gives what the string gives; whether it was read without its literals."""
    whole: list[bytes] = []
    decoded = loading._decoded  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(loading, "_decoded", lambda data, name: whole.append(b"") or decoded(data, name))
    text += " " * max(0, MEGABYTE - len(text))  # below which files are read as they are
    path = tmp_path / "program"
    path.write_text(text)
    assert states(load(path)) == states(read(text))
    return not whole


@pytest.mark.parametrize("name", HLO)
def test_hlo_text(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compared(tmp_path, HLO[name](), parse_hlo, monkeypatch) == (name not in UNCUT)


@pytest.mark.parametrize("name", MLIR)
def test_mlir_text(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compared(tmp_path, MLIR[name](), from_stablehlo, monkeypatch) == (name not in UNCUT | {"comments"})


def test_values() -> None:
    def values(computation: XlaComputation) -> np.ndarray:
        return next(i for i in computation.entry.instructions if i.opcode == "constant").attributes["literal"].array

    for made, want in ((HLO["nans"](), ODD), (HLO["complex"](), PAIRS), (HLO["bytes"](), BYTES), (HLO["wide"](), WIDE),
                       (HLO["truths"](), TRUTHS)):
        assert values(parse_hlo(made)).tobytes() == want.tobytes()
    for made, want in ((MLIR["floats"](), F32), (MLIR["hexadecimal"](), F32), (MLIR["complex"](), PAIRS),
                       (MLIR["bytes"](), BYTES), (MLIR["resource"](), F32)):
        assert values(from_stablehlo(made)).tobytes() == want.tobytes()


# ---- mistakes

ROW = ", ".join(["0.5"] * 1000)
LIST = "{" + f"{{{ROW}}}, " * 249 + f"{{{ROW}}}" + "}"
MIDDLE = 100 * (len(ROW) + 4) + 2
"""Where the first number of a row stands."""


def at_middle(text: str, wrong: str, instead_of: int = 0) -> str:
    return text[:MIDDLE] + wrong + text[MIDDLE + instead_of:]


BAD = {
    "element": at_middle(LIST, "x", 1), "number": at_middle(LIST, "0.5.", 3), "brace": at_middle(LIST, "}"),
    "short row": at_middle(LIST, "", 5), "long row": at_middle(LIST, "1,"),
    "no end": LIST[:MIDDLE], "no brace": LIST[:-1], "empty": at_middle(LIST, "{},"), "letters": at_middle(LIST, "\u00e9"),
    "quote": at_middle(LIST, '"'), "parenthesis": at_middle(LIST, ")"), "comment": at_middle(LIST, "/*"),
    "few rows": LIST[:MIDDLE - 3] + "}", "behind": LIST + " 1", "nul": at_middle(LIST, "\0"),
}
BAD_HEXADECIMAL = {
    "digit": "0x" + "ab" * 500_000 + "gg", "odd": "0x" + "ab" * 500_000 + "a", "few": "0x" + "ab" * 999_999,
    "line": "0x" + "ab" * 500_000 + "\n" + "ab" * 500_000, "no end": None,
}


def reported(read: Callable[[], Any]) -> str:
    with pytest.raises(XlaError) as caught:
        read()
    message = str(caught.value)
    assert len(message) < 2000
    return message


@pytest.mark.parametrize("name", BAD)
def test_errors_in_a_file_equal_those_in_a_string(name: str, tmp_path: Path) -> None:
    path, start = tmp_path / "program", time.process_time()
    for text, read in ((hlo(("f32[250,1000]", BAD[name])), parse_hlo),
                       (mlir(("tensor<250x1000xf32>", BAD[name].replace("{", "[").replace("}", "]"))), from_stablehlo)):
        path.write_text(text)
        of_file = reported(lambda: load(path))
        assert of_file.replace(f"{path}, ", "") == reported(lambda text=text, read=read: read(text))
        assert "line" in of_file
    assert time.process_time() - start < 20


@pytest.mark.parametrize("name", BAD_HEXADECIMAL)
def test_mistakes_in_hexadecimal(name: str, tmp_path: Path) -> None:
    digits = BAD_HEXADECIMAL[name]
    text = mlir(("tensor<250000xf32>", f'"{digits or "0x" + "ab" * 1_000_000}"'))
    text = text if digits else text[:2_000_000]
    path = tmp_path / "program"
    path.write_text(text)
    assert reported(lambda: load(path)).replace(f"{path}, ", "") == reported(lambda: from_stablehlo(text))


PLACES = [  # what stands in a row instead of so many characters, what is told, how far behind the row's first number
    ("0.5x", 3, "expects a value", 0), ("1e39", 3, "out of range", 0),
    ("", 5, "expects 1000 elements in dimension 1 of the literal, but sees 999", -1),
    ("1,", 0, "more than 1000 elements in dimension 1", len(ROW) - 1),
]


@pytest.mark.parametrize(("wrong", "instead", "what", "behind"), PLACES)
def test_places(wrong: str, instead: int, what: str, behind: int) -> None:
    before = "  c0 = f32[250,1000] constant("
    with pytest.raises(HloSyntaxError, match=what) as caught:
        parse_hlo(hlo(("f32[250,1000]", at_middle(LIST, wrong, instead))))
    assert (caught.value.line, caught.value.column) == (4, len(before) + MIDDLE + behind + 1)


def test_more_elements_than_the_text_can_hold() -> None:
    assert "but sees 2" in reported(lambda: parse_hlo(hlo(("f32[1000000000000]", "{1, 2}"))))
    assert "has 2 numbers" in reported(lambda: from_stablehlo(mlir(("tensor<1000000000000xf32>", "[1.0, 2.0]"))))


# ---- memory


def most_allocated(function: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("form", ["decimal HLO", "decimal MLIR", "hexadecimal MLIR"])
def test_no_more_memory_than_the_array(form: str, tmp_path: Path) -> None:
    rows, columns = 1 << 10, 3 << 10
    row = ",".join(["0.25"] * columns)
    body = {"decimal HLO": lambda: "{" + ", ".join([f"{{{row}}}"] * rows) + "}",
            "decimal MLIR": lambda: "[" + ", ".join([f"[{row}]"] * rows) + "]",
            "hexadecimal MLIR": lambda: f'"0x{"0000803E" * (rows * columns)}"'}[form]()
    text, read = (hlo((f"f32[{rows},{columns}]", body)), parse_hlo) if "HLO" in form else \
        (mlir((f"tensor<{rows}x{columns}xf32>", body)), from_stablehlo)
    path = tmp_path / "program"
    path.write_text(text)
    data = 4 * rows * columns
    assert most_allocated(lambda: read(text)) < 1.5 * data
    assert most_allocated(lambda: load(path)) < 1.5 * data


# ---- parts


def test_brackets_by_parts() -> None:
    def nested(sizes: tuple[int, ...]) -> bytes:
        return b"{" + b",".join([nested(sizes[1:])] * sizes[0]) + b"}" if sizes else b""

    for sizes in ((3,), (2, 3), (40000,), (3, 20000), (20000, 3), (5, 4000, 2), (2, 30000, 1), (4, 3, 2000, 2), (9000, 0),
                  (0, 9000)):
        brackets, whole = Brackets(sizes, ["{}"] * len(sizes)), nested(sizes)
        assert len(brackets) == len(whole)
        for start, stop in np.random.default_rng(0).integers(0, len(whole) + 1, (40, 2)).tolist():
            assert brackets.part(start, stop) == whole[start:stop]
        assert brackets.part(0, len(whole)) == whole


def test_places_in_a_cut_text() -> None:
    text = hlo(printed(F32), printed(BYTES)).replace("}, {", "},\n {").replace("ROOT", "\n // \u00e9\n  ROOT") + " " * MEGABYTE
    cut = cut_text(memoryview(text.encode()), LARGE_LITERALS)
    assert isinstance(cut, CutText)
    for name in ("c0", "n0", "c1", "n1", "ROOT"):
        short, whole = cut.text.index(name), text.index(name)
        line, column = cut.text.count("\n", 0, short) + 1, short - cut.text.rfind("\n", 0, short)
        assert cut.place(short, line, column) == (text.count("\n", 0, whole) + 1, whole - text.rfind("\n", 0, whole))
