"""What a file says reaches errors and texts without what a terminal obeys, and errors stay short."""

from __future__ import annotations

import re

import pytest
import torch

import xla_torch
from xla_torch.core.printable import printable, without_controls
from xla_torch.errors import InvalidArgument, UnsupportedError, XlaError

ESCAPES = "\x1b[31m\x07\x9b\u202e\u2066\x00\x7f\r"
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")

PROGRAM = 'HloModule m\nENTRY e {{ p = f32[2] parameter(0)\n ROOT r = f32[2] {op} }}'
FROM_FILES = {
    "target": PROGRAM.format(op=f'custom-call(p), custom_call_target="{ESCAPES[:3]}{ESCAPES[4:]}"'),
    "metadata": PROGRAM.format(op=f'reverse(p), dimensions={{5}}, metadata={{op_name="{ESCAPES[:-1]}"}}'),
    "opcode": PROGRAM.format(op=f"neg{ESCAPES}(p)"),
    "long opcode": PROGRAM.format(op=f"{'n' * 100_000}(p)"),
    "long name": PROGRAM.format(op=f"negate({'p' * 100_000})"),
    "long line": PROGRAM.format(op=f"negate(p), x={{{'é' * 100_000}"),
    "stray": PROGRAM.format(op=f"negate(p), {ESCAPES}"),
}


def error_of(text: str) -> XlaError:
    with pytest.raises(XlaError) as raised:
        xla_torch.parse_hlo(text)(torch.ones(2))
    return raised.value


@pytest.mark.parametrize("text", FROM_FILES.values(), ids=FROM_FILES)
def test_errors_are_printable_and_short(text: str) -> None:
    messages = str(error_of(text))
    assert OBEYED.search(messages) is None
    assert len(messages.encode()) <= 2048


@pytest.mark.parametrize("length", [10, 1_000, 100_000])
@pytest.mark.parametrize("letter", ["a", "é", "\x1b", "\U0001f600"])
def test_every_part_is_limited(length: int, letter: str) -> None:
    text = letter * length
    messages = str(InvalidArgument(text, subject=text, got=text, expected=text, where=text, hint=text))
    assert len(messages.encode()) <= 2048
    assert OBEYED.search(messages) is None


def test_what_is_printed_stays() -> None:
    error = UnsupportedError("größe", got="a\nb", hint="c")
    assert str(error) == "größe\n  got       a\nb\n  hint      c"
    assert printable("x" * 100, 40) == f"{'x' * 30} ... (100 characters) ... {'x' * 10}"


@pytest.mark.parametrize("extra", [
    f'metadata={{op_name="{ESCAPES[:-1]}"}}', f'frontend_attributes={{a="{ESCAPES[:-1]}"}}', f'backend_config="{ESCAPES[:-1]}"',
    f'backend_config={{"a":"{ESCAPES[:-1]}"}}', f'origin={{{{"{ESCAPES[:-1]}"}}}}'])
def test_texts_are_printable(extra: str) -> None:
    program = xla_torch.parse_hlo(PROGRAM.format(op=f"negate(p), {extra}"))
    text = program.to_hlo_text()
    assert OBEYED.search(text) is None
    assert xla_torch.parse_hlo(text).to_hlo_text() == text


KEPT_AS_TEXT = {
    "layout": ("entry_computation_layout={{(f32[2]{{0}}{0})->{0}f32[2]{{0}}}}", ""),
    "aliases": ("input_output_alias={{ {0}{{}}: (0, {{}}, may-alias) }}", ""), "donors": ("buffer_donor={{ (0,{0}{{}}) }}", ""),
    "configuration": ("", "backend_config={{{0}\"a\":{0}1}}"), "metadata": ("", "metadata={{op_name=\"a\" other={{1,{0}2}}}}"),
    "statistics": ("", "statistics={{visualizing_index=1,{0}stat=2}}"), "origin": ("", "origin={{{{\"a\"{0}}}}}"),
    "frontend": ("", "frontend_attributes={{a={{1,{0}2}}}}"),
}


@pytest.mark.parametrize("end", ["\r", "\r\n", "\n"])
@pytest.mark.parametrize("name", KEPT_AS_TEXT)
def test_ends_of_lines_in_what_is_kept_as_text_are_read_again(name: str, end: str) -> None:
    header, attribute = (part and ", " + part.format(end) for part in KEPT_AS_TEXT[name])
    printed = xla_torch.parse_hlo(PROGRAM.format(op=f"negate(p){attribute}").replace("m\n", f"m{header}\n", 1)).to_hlo_text()
    assert not OBEYED.search(printed)
    assert "\\015" not in printed
    assert xla_torch.parse_hlo(printed).to_hlo_text() == printed


def test_controls_become_octal() -> None:
    assert without_controls("a\x1b\u202e\tb\n") == "a\\033\\342\\200\\256\tb\n"
