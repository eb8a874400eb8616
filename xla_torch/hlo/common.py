"""Attributes that are no opcode's own: those that any instruction may carry, and those of the module's header.

Each is a codec like the opcodes' attributes. What nothing here computes with (aliasing, origins, ...) is kept as balanced text
and printed back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.errors import HloSyntaxError
from .codecs import BoolCodec, Codec, IntCodec, RawCodec, alias, aliased
from .ir import Instruction
from .reader import Reader
from .scanner import Scanner, quote, unescape
from .sharding import Sharding, parse_sharding

_field = re.compile(r"(\w++)=")
_fields = re.compile(r'[ \t\r\n]*+,?[ \t\r\n]*+(\w++)=(?:"([^"\\]*+(?:\\.[^"\\]*+)*+)"|(-?[0-9]++)(?=[\s,}]))', re.S)
_word = re.compile(r"[^\s,{}\"]++")
_number = re.compile(r"-?[0-9]{1,18}")
_key = re.compile(r'([A-Za-z_][\w.\-/]*+)\s*+=|"([^"\\]*+(?:\\.[^"\\]*+)*+)"\s*+=', re.S)
_result_place = re.compile(r"\{([0-9,\s]*+)\}\s*+:")
_plain_key = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*+")


class MetadataCodec(Codec):
    """``{op_type="t" op_name="n" source_line=3}``: a dict; strings and integers as such, other values as text. Fields that other
    versions of XLA write are kept as text, too."""

    strings = ("op_type", "op_name", "source_file", "deduplicated_name", "scheduling_name")
    numbers = ("source_line", "source_end_line", "source_column", "source_end_column", "stack_frame_id")

    def parse(self, reader: Reader) -> dict[str, Any]:
        reader.expect("{")
        found: dict[str, Any] = {}
        text, pos = reader.text, reader.pos
        while match := _fields.match(text, pos):
            key, string, number = match.groups()
            expected = self.strings if number is None else self.numbers
            if key in found or key not in expected or len(number or "") > 9 or "\\" in (string or ""):
                break
            found[key] = string if number is None else int(number)
            pos = match.end()
        reader.pos = pos
        while not reader.accept("}"):
            reader.accept(",")
            start = reader.skip()
            key = reader.match(_field, "a field of the metadata, as in op_name=\"...\"").group(1)
            if key in found:
                raise reader.error(f"attribute {key} already exists", start)
            found[key] = self._value(reader, key)
        return found

    def _value(self, reader: Reader, key: str) -> Any:
        start = reader.skip()
        if key in self.strings or reader.text.startswith('"', start):
            if key in self.numbers:
                raise reader.error("expects an integer", start, f"{key}=1")
            return reader.string()
        if key in self.numbers:
            value = reader.integer()
            if not -(2**31) <= value < 2**31:
                raise reader.error("the number does not fit in 32 bits", start)
            return value
        if key == "profile_type":
            reader.listed(reader.integer)
            return reader.since(start)
        if reader.looking_at("{"):
            return reader.balanced()
        word = reader.match(_word, "a value").group()
        return int(word) if _number.fullmatch(word) else word

    def format(self, value: Mapping[str, Any]) -> str:
        def text(key: str, field: Any) -> str:
            return quote(field) if key in self.strings else str(field).lower() if isinstance(field, bool) else str(field)

        return "{" + " ".join(f"{key}={text(key, field)}" for key, field in value.items()) + "}"


class ConfigCodec(Codec):
    """``"opaque"`` or ``{"a": 1}``: a string; quotes are left away where it reads as a dictionary."""

    def parse(self, reader: Reader) -> str:
        return reader.balanced() if reader.looking_at("{") else reader.string()

    def format(self, value: str) -> str:
        return value if _reads_as_dictionary(value) else quote(value)


class FrontendAttributesCodec(Codec):
    """``{key="value",key={...}}``: a dict of strings, printed in the order of the keys."""

    def parse(self, reader: Reader) -> dict[str, str]:
        def entry() -> tuple[str, str]:
            match = reader.match(_key, "key=")
            key = match.group(1) if match.group(1) is not None else unescape(match.group(2))
            return key, reader.balanced() if reader.looking_at("{") else reader.string()

        return dict(reader.listed(entry))

    def format(self, value: Mapping[str, str]) -> str:
        return "{" + ",".join(f"{_key_text(key)}={text if _reads_as_dictionary(text) else quote(text)}"
                              for key, text in sorted(value.items())) + "}"


def _key_text(key: str) -> str:
    """In quotes where XLA cannot read the key anyway: so it is one key to us."""
    return key if _plain_key.fullmatch(key) else quote(key)


class PredecessorsCodec(Codec):
    """``{%a, %b}``: earlier instructions of the same computation."""

    context_free = False

    def parse(self, reader: Reader) -> list[Instruction]:
        if not (found := reader.listed(reader.instruction_reference)):
            raise reader.error("expects the name of an instruction", expected="{name, ...}")
        return found

    def format(self, value: Sequence[Instruction]) -> str:
        return "{" + ", ".join(f"%{instruction.name}" for instruction in value) + "}"


class BracedCodec(RawCodec):
    """A value in braces, kept as text."""

    def parse(self, reader: Reader) -> str:
        if not reader.looking_at("{"):
            raise reader.error("expects '{'", expected="a value in braces")
        return reader.balanced()


class OriginCodec(BracedCodec):
    """``{{"a" {0}}}`` or ``{({"a"}, {"b"})}``: the arrays that an array was made of; kept as text."""

    def parse(self, reader: Reader) -> str:
        start = reader.skip()
        reader.expect("{", "before the origin of a value")
        if reader.text[reader.skip():reader.pos + 1] not in ("{", "(", "[", "}"):
            raise reader.error("expects a tree of original arrays", expected='{{"name" {0}}}')
        reader.pos = start
        return super().parse(reader)


class StatisticsCodec(RawCodec):
    """``{visualizing_index=0,stat=1.5}``, kept as text."""

    def parse(self, reader: Reader) -> str:
        def field() -> str:
            key = reader.match(_field, "a statistic, as in stat=1.5").group(1)
            reader.number()
            return key

        start = reader.skip()
        if (keys := reader.listed(field)) and keys[0] != "visualizing_index":
            raise reader.error("statistics begin with the index of that which is shown", start, "{visualizing_index=0,stat=1.5}")
        return reader.since(start)


class ShardingCodec(Codec):
    """``{devices=[2,1]<=[2]}`` and the like: a `Sharding`."""

    def parse(self, reader: Reader) -> Sharding:
        return parse_sharding(reader)

    def format(self, value: Sharding) -> str:
        return str(value)

    def normalise(self, value: Any) -> Sharding:
        return value if isinstance(value, Sharding) else Sharding.parse(str(value))


class BoolsCodec(RawCodec):
    """``true`` or ``{true,false}``, kept as text."""

    def parse(self, reader: Reader) -> str:
        start = reader.skip()
        if reader.looking_at("{"):
            reader.listed(reader.boolean)
        else:
            reader.boolean()
        return reader.since(start)


class BracedBoolsCodec(BoolsCodec):
    """``{true,false}``, kept as text."""

    def parse(self, reader: Reader) -> str:
        if not reader.looking_at("{"):
            raise reader.error("expects '{'", expected="{true,false}")
        return super().parse(reader)


class EntryLayoutCodec(RawCodec):
    """``{(f32[2]{0})->f32[2]{0}}``, kept as text."""

    def parse(self, reader: Reader) -> str:
        start = reader.skip()
        reader.expect("{")
        reader.listed(reader.shape, "(", ")")
        reader.expect("->", "in a program shape")
        reader.shape()
        reader.expect("}")
        return reader.since(start)


class AliasCodec(RawCodec):
    """``{ {0}: (1, {}, may-alias) }``: which result reuses which parameter; kept as text."""

    def parse(self, reader: Reader) -> str:
        start = reader.skip()
        reader.listed(lambda: alias(reader, ("may-alias", "must-alias")))
        return reader.since(start)

    @staticmethod
    def results(text: str) -> list[tuple[int, ...]]:
        """The places in the result that the text speaks of."""
        found = _result_place.findall(text)
        return [tuple(int(step) for step in place.split(",") if step.strip()) for place in found]


class DonorCodec(RawCodec):
    """``{ (0, {}), (1, {0}) }``: parameters whose buffers may be reused; kept as text."""

    def parse(self, reader: Reader) -> str:
        start = reader.skip()
        reader.listed(lambda: aliased(reader))
        return reader.since(start)


def _reads_as_dictionary(text: str) -> bool:
    """True where the reader reads `text` as one value in braces."""
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
    "parameter_replication": BracedBoolsCodec(),
    "sharding": ShardingCodec(),
    "control-predecessors": PredecessorsCodec(),
    "metadata": MetadataCodec(),
    "backend_config": ConfigCodec(),
    "statistics": StatisticsCodec(),
    "origin": OriginCodec(),
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
