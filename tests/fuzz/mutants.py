"""Programs to begin with, in each form that is read from files, and what chance makes of them.

Texts are changed by their words, so that most of what comes out is nearly a program; bytes by bits, pieces and lengths. A mutant
is its kind and its number, and always the same.
"""

from __future__ import annotations

import contextlib
import functools
import io
import random
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

import xla_torch
from support import shared_programs, stablehlo_oracle
from support.acceptance_rows import REGIONS, rows
from xla_torch.errors import HloSyntaxError, XlaError

DATA = Path(__file__).parents[1] / "data"
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|[A-Za-z_][\w.\-]*|-?\d+(?:\.\d+)?|\s+|.', re.S)
_NUMBERS = ["0", "1", "-1", "2", "3", "7", "64", "65", "255", "65536", "2147483647", "2147483648", "-2147483648",
            "9223372036854775807", "9223372036854775808", "1e400", "nan", "inf", "0x1", "1_0", "²", "٣"]
_TEXTS = ["{", "}", "(", ")", "[", "]", "<", ">", ",", "=", "%", "?", "<=", "...", '"', "\x1b[31m", "\u202e", "\0", "  " * 40,
          "/*", "*/", "//", "\n"]


def _hlo() -> list[bytes]:
    texts = []
    for parameters, op in rows():
        given = [f"p{k} = {s.strip()} parameter({k})" for k, s in enumerate(filter(None, parameters.split(";")))]
        texts.append("\n".join(["HloModule m", REGIONS if isinstance(REGIONS, str) else "", "ENTRY e {", *given,
                                f"ROOT r = {op}" if not op.startswith("ROOT") else op, "}"]))
    built = [shared_programs.conditionals(3), shared_programs.loops(2), shared_programs.reductions(2), shared_programs.calls(3)]
    stored = [p.read_text() for p in sorted((DATA / "programs").glob("*/module.hlo"))[:4]]
    return [t.encode() for t in [*texts[::7], *built, *built, *(t for t in stored if len(t) < 60_000)]]


def _mlir() -> list[bytes]:
    text = (DATA / "mlir_programs.mlir").read_text()
    pieces = [p for p in re.split(r"^// -----.*$", text, flags=re.M) if "func.func" in p]
    return [p.encode() for p in pieces or [text]]


def _bytecode() -> list[bytes]:
    """The texts as bytecode, as far as real StableHLO reads them."""
    found = []
    context = stablehlo_oracle.new_context()
    for text in _mlir():
        with contextlib.suppress(HloSyntaxError):
            found.append(stablehlo_oracle.bytecode(stablehlo_oracle.parse(text.decode(), context)))
    return found


def _protos() -> list[bytes]:
    found = []
    for text in _hlo():
        try:
            found.append(xla_torch.parse_hlo(text.decode()).to_hlo_proto())
        except XlaError:
            continue
    return found


NPZ_PROGRAM = "ENTRY e {\n  a = f32[2,3] parameter(0)\n  b = s32[4] parameter(1)\n  ROOT t = (f32[2,3], s32[4]) tuple(a, b)\n}"


def _npz() -> list[bytes]:
    """Arguments of `NPZ_PROGRAM`, and arrays that are none."""
    found = []
    whole, numbers = np.ones((2, 3), np.float32), np.arange(4, dtype=np.int32)
    for save in (np.savez, np.savez_compressed):
        for arrays in ([whole, numbers], [whole.T, numbers.astype(">i8")], [np.array("text"), np.zeros(0, bool)]):
            file = io.BytesIO()
            save(file, *arrays)
            found.append(file.getvalue())
    return found


SEEDS: dict[str, Callable[[], list[bytes]]] = {
    "hlo": _hlo, "stablehlo": _mlir, "bytecode": _bytecode, "proto": _protos, "npz": _npz}
_seeds = functools.cache(lambda kind: SEEDS[kind]())


def mutant(kind: str, number: int) -> bytes:
    """Mutant `number` of a kind."""
    chance = random.Random(f"{kind} {number}")
    seeds = _seeds(kind)
    data, other = chance.choice(seeds), chance.choice(seeds)
    change = _changed_text if kind in ("hlo", "stablehlo") else _changed_bytes
    for _ in range(chance.choice((1, 1, 1, 2, 3, 5))):
        data = change(chance, data, other)
    return data


def _changed_text(chance: random.Random, data: bytes, other: bytes) -> bytes:
    words, others = (_WORD.findall(d.decode("utf-8", "replace")) for d in (data, other))
    if not words:
        return other
    at = chance.randrange(len(words))
    to = min(len(words), at + chance.choice((1, 1, 2, 5, 20)))
    numbers = [k for k, w in enumerate(words) if w[-1:].isdigit()]
    match chance.randrange(8):
        case 0:
            del words[at:to]
        case 1:
            words[at:to] = words[at:to] * 2
        case 2:
            words[at] = chance.choice(others)
        case 3:
            words[at:at] = chance.choice(_TEXTS)
        case 4 if numbers:
            words[chance.choice(numbers)] = chance.choice(_NUMBERS)
        case 5:
            words[at:to] = words[at:to] * chance.choice((50, 500))
        case 6:
            swapped = chance.randrange(len(words))
            words[at], words[swapped] = words[swapped], words[at]
        case _:
            words[at:to] = others[at:to]
    return "".join(words).encode("utf-8", "replace")[:1 << 20]


def _changed_bytes(chance: random.Random, data: bytes, other: bytes) -> bytes:
    found = bytearray(data)
    at = chance.randrange(len(found) or 1)
    match chance.randrange(6):
        case 0 | 1 if found:
            found[at] ^= 1 << chance.randrange(8)
        case 2:
            found[at:at + 1] = chance.choice((b"\0", b"\xff" * 9 + b"\1", b"\x7f", b"\x80\x80\x01"))
        case 3:
            del found[at:at + chance.choice((1, 2, 8, 64))]
        case 4:
            found[at:at] = other[at:at + chance.choice((1, 8, 64))]
        case _:
            del found[at:]
    return bytes(found)
