"""Attributes that are no opcode's own: those that any instruction may carry, and those of the module's header.

Each is a codec like the opcodes' attributes. What nothing here computes with (aliasing, origins, ...) is kept as balanced text
and printed back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..opcodes.attributes import BoolCodec, Codec, IntCodec, RawCodec
from .ir import Instruction
from .scanner import quote, unescape
from .sharding import Sharding, parse_sharding

if TYPE_CHECKING:
    from .parser import Parser
    from .scanner import Scanner

_field = re.compile(r"(\w+)=")
_fields = re.compile(r'[\s,]*(\w+)=(?:"((?:[^"\\]|\\.)*)"|(-?\d+)(?=[\s,}])|(\w+)(?=[\s,}]))')
_word = re.compile(r"[^\s,{}\"]+")
_key = re.compile(r'([A-Za-z_][\w.\-/]*)\s*=|"((?:[^"\\]|\\.)*)"\s*=')


class MetadataCodec(Codec):
    """``{op_type="t" op_name="n" source_line=3}``: a dict; strings and integers as such, other values as text."""

    strings = ("op_type", "op_name", "source_file", "deduplicated_name", "scheduling_name")

    def parse(self, parser: Parser) -> dict[str, Any]:
        parser.expect("{")
        found: dict[str, Any] = {}
        text, pos = parser.text, parser.pos
        while match := _fields.match(text, pos):
            key, string, number, word = match.groups()
            found[key] = unescape(string) if string is not None else int(number) if number is not None else word
            pos = match.end()
        parser.pos = pos
        while not parser.accept("}"):
            parser.accept(",")
            key = parser.match(_field, "a field of the metadata, as in op_name=\"...\"").group(1)
            found[key] = self._value(parser)
        return found

    def _value(self, parser: Parser) -> Any:
        if parser.looking_at('"'):
            return parser.string()
        if parser.looking_at("{"):
            return parser.balanced()
        word = parser.match(_word, "a value").group()
        return int(word) if word.removeprefix("-").isdigit() else word

    def format(self, value: Mapping[str, Any]) -> str:
        def text(key: str, field: Any) -> str:
            return quote(field) if key in self.strings else str(field).lower() if isinstance(field, bool) else str(field)

        return "{" + " ".join(f"{key}={text(key, field)}" for key, field in value.items()) + "}"


class ConfigCodec(Codec):
    """``"opaque"`` or ``{"a": 1}``: a string; quotes are left away where it reads as a dictionary."""

    def parse(self, parser: Parser) -> str:
        return parser.balanced() if parser.looking_at("{") else parser.string()

    def format(self, value: str) -> str:
        return value if _reads_as_dictionary(value) else quote(value)


class FrontendAttributesCodec(Codec):
    """``{key="value",key={...}}``: a dict of strings, printed in the order of the keys."""

    def parse(self, parser: Parser) -> dict[str, str]:
        def entry() -> tuple[str, str]:
            match = parser.match(_key, "key=")
            key = match.group(1) if match.group(1) is not None else unescape(match.group(2))
            return key, parser.balanced() if parser.looking_at("{") else parser.string()

        return dict(parser.listed(entry))

    def format(self, value: Mapping[str, str]) -> str:
        return "{" + ",".join(f"{key}={text if _reads_as_dictionary(text) else quote(text)}"
                              for key, text in sorted(value.items())) + "}"


class PredecessorsCodec(Codec):
    """``{%a, %b}``: earlier instructions of the same computation."""

    context_free = False

    def parse(self, parser: Parser) -> list[Instruction]:
        if parser.looking_at("{"):
            return parser.listed(parser.instruction_reference)
        return [parser.instruction_reference()]

    def format(self, value: Sequence[Instruction]) -> str:
        return "{" + ", ".join(f"%{instruction.name}" for instruction in value) + "}"


class BracedCodec(RawCodec):
    """A value in braces, kept as text."""

    def parse(self, parser: Parser) -> str:
        if not parser.looking_at("{"):
            raise parser.error("expects '{'", expected="a value in braces")
        return parser.balanced()


class ShardingCodec(Codec):
    """``{devices=[2,1]<=[2]}`` and the like: a `Sharding`."""

    def parse(self, parser: Parser) -> Sharding:
        return parse_sharding(parser)

    def format(self, value: Sharding) -> str:
        return str(value)

    def normalise(self, value: Any) -> Sharding:
        return value if isinstance(value, Sharding) else Sharding.parse(str(value))


class BoolsCodec(RawCodec):
    """``true`` or ``{true,false}``, kept as text."""

    def parse(self, parser: Parser) -> str:
        start = parser.skip()
        if parser.looking_at("{"):
            parser.listed(parser.boolean)
        else:
            parser.boolean()
        return parser.text[start:parser.pos]


class EntryLayoutCodec(RawCodec):
    """``{(f32[2]{0})->f32[2]{0}}``, kept as text."""

    def parse(self, parser: Parser) -> str:
        start = parser.skip()
        parser.expect("{")
        parser.listed(parser.shape, "(", ")")
        parser.expect("->", "in a program shape")
        parser.shape()
        parser.expect("}")
        return parser.text[start:parser.pos]


class AliasCodec(RawCodec):
    """``{ {0}: (1, {}, may-alias) }``: which result reuses which parameter; kept as text."""

    def parse(self, parser: Parser) -> str:
        def entry() -> None:
            parser.listed(parser.integer)
            parser.expect(":", "after the index of a result")
            _parameter_place(parser, with_kind=True)

        start = parser.skip()
        parser.listed(entry)
        return parser.text[start:parser.pos]


class DonorCodec(RawCodec):
    """``{ (0, {}), (1, {0}) }``: parameters whose buffers may be reused; kept as text."""

    def parse(self, parser: Parser) -> str:
        start = parser.skip()
        parser.listed(lambda: _parameter_place(parser, with_kind=False))
        return parser.text[start:parser.pos]


def _parameter_place(scanner: Scanner, with_kind: bool) -> None:
    """``(1, {0})``, with ``, may-alias`` or ``, must-alias`` where allowed."""
    if scanner.looking_at("(") or not with_kind:
        scanner.expect("(")
        scanner.integer()
        scanner.expect(",")
        scanner.listed(scanner.integer)
        if with_kind and scanner.accept(","):
            start = scanner.skip()
            if scanner.name("may-alias or must-alias") not in ("may-alias", "must-alias"):
                raise scanner.error("unknown kind of alias", start, "may-alias or must-alias")
        scanner.expect(")")
    else:
        scanner.integer()


def _reads_as_dictionary(text: str) -> bool:
    """True where the parser reads `text` as one value in braces."""
    from ..errors import HloSyntaxError
    from .scanner import Scanner

    if not (text.startswith("{") and text.endswith("}")):
        return False
    scanner = Scanner(text)
    try:
        scanner.balanced()
    except HloSyntaxError:
        return False
    return scanner.pos == len(text)


COMMON: dict[str, Codec] = {
    "frontend_attributes": FrontendAttributesCodec(),
    "parameter_replication": BoolsCodec(),
    "sharding": ShardingCodec(),
    "control-predecessors": PredecessorsCodec(),
    "metadata": MetadataCodec(),
    "backend_config": ConfigCodec(),
    "statistics": BracedCodec(),
    "origin": BracedCodec(),
}
"""What any instruction may carry, by HLO name and in the order of printing. Instructions keep a value under its name with
underscores."""

HEADER: dict[str, Codec] = {
    "is_scheduled": BoolCodec(),
    "input_output_alias": AliasCodec(),
    "buffer_donor": DonorCodec(),
    "alias_passthrough_params": BoolCodec(),
    "entry_computation_layout": EntryLayoutCodec(),
    "allow_spmd_sharding_propagation_to_parameters": BoolsCodec(),
    "allow_spmd_sharding_propagation_to_output": BoolsCodec(),
    "replica_count": IntCodec(),
    "num_partitions": IntCodec(),
    "frontend_attributes": FrontendAttributesCodec(),
    "origin_recovery_table": BracedCodec(),
}
"""What the module's header may carry, in the order of printing."""

TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
"""The numbered tables after the header that metadata refers to."""
