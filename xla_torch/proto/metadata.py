"""What any instruction may carry, in protos: metadata, origins, statistics, frontend attributes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..core.errors import HloSyntaxError
from ..core.shape import Shape
from ..hlo.common import MetadataCodec
from ..hlo.reader import Reader
from ..hlo.scanner import Scanner, quote
from .context import Reading

_FIELDS = ("op_type", "op_name", "source_file", "source_line", "source_end_line", "source_column", "source_end_column",
           "profile_type", "deduplicated_name", "scheduling_name", "stack_frame_id", "metadata_payload")
"""The fields that text has, in its order."""


def read_metadata(proto: Any, reading: Reading) -> dict[str, Any]:
    """OpMetadata as the text's reader gives it: strings and integers; lists as text."""
    found: dict[str, Any] = {}
    for name in _FIELDS:
        value = getattr(proto, name)
        if name == "profile_type":
            value = "{" + ",".join(map(str, value)) + "}" if value else ""
        elif name == "metadata_payload":
            value = reading.payload(value).decode("utf-8", "surrogateescape") if proto.HasField(name) else ""
        if value:
            found[name] = value
    return found


def write_metadata(value: Mapping[str, Any], proto: Any) -> None:
    """Fill an OpMetadata; what protos have no field for is left out."""
    for name, field in value.items():
        if name == "profile_type":
            proto.profile_type.extend(map(int, re.findall(r"\d+", str(field))))
        elif name == "metadata_payload":
            proto.metadata_payload.value = str(field).encode("utf-8", "surrogateescape")
        elif name in _FIELDS:
            setattr(proto, name, field)


def metadata_text(proto: Any, reading: Reading) -> str:
    """OpMetadata as text, without braces."""
    return MetadataCodec().format(read_metadata(proto, reading))[1:-1]


def metadata_from_text(text: str, proto: Any) -> None:
    """Fill an OpMetadata from its text in braces."""
    write_metadata(MetadataCodec().parse(Reader(text)), proto)


def read_statistics(proto: Any) -> str:
    """``{visualizing_index=0,a=1.5}``."""
    numbers = [f"{s.stat_name}={s.stat_val:g}" for s in proto.statistics]
    return "{" + ",".join([f"visualizing_index={proto.stat_index_to_visualize}", *numbers]) + "}"


def write_statistics(text: str, proto: Any) -> None:
    for name, value in re.findall(r"([\w.\-]+)\s*=\s*([^,{}\s]+)", text):
        if name == "visualizing_index":
            proto.stat_index_to_visualize = int(value)
        else:
            proto.statistics.add(stat_name=name, stat_val=float(value))


# --------------------------------------------------------------------------------------------------------------- origins

_in_lines = re.compile(r'"[ ]*\n(.*?)\n[ ]*"[ ]*\n', re.S)

def read_origin(proto: Any, shape: Shape) -> str:
    """Where a value's parts came from, as a tree of the value's shape: ``{({"x"}, {"y" {1}})}``."""
    if proto.is_synthetic_call:
        return "{[synthetic_call]}"
    arrays = {tuple(e.shape_index): e.original_array for e in proto.elements if e.HasField("original_array")}

    def text(part: Shape, index: tuple[int, ...]) -> str:
        if part.is_tuple:
            return "(" + ", ".join(text(p, (*index, n)) for n, p in enumerate(part.tuple_shapes)) + ")"
        return _array_text(arrays[index]) if index in arrays else "{}"

    return "{" + text(shape, ()) + "}"


def _array_text(proto: Any) -> str:
    place = " {" + ",".join(map(str, proto.shape_index)) + "}" if proto.shape_index else ""
    return "{" + quote(proto.instruction_name) + place + "}"


def write_origin(text: str, proto: Any) -> None:
    proto.SetInParent()
    scanner = Scanner(text)
    scanner.expect("{")
    if scanner.accept("["):
        proto.is_synthetic_call = True
        return

    def part(index: tuple[int, ...]) -> None:
        if scanner.looking_at("("):
            number = iter(range(2**31))
            scanner.listed(lambda: part((*index, next(number))), "(", ")")
            return
        _write_array(scanner, proto.elements.add(shape_index=index), "original_array")

    part(())


def _write_array(scanner: Scanner, proto: Any, field: str) -> None:
    """``{"name" {1}}``, or nothing in braces."""
    scanner.expect("{")
    if scanner.looking_at('"'):
        into = getattr(proto, field)
        into.instruction_name = scanner.string()
        if scanner.looking_at("{"):
            into.shape_index.extend(scanner.listed(scanner.integer))
    scanner.expect("}")


def read_recovery(proto: Any, text_of: Callable[[Any], str]) -> str:
    """How values that were replaced are had from those that replaced them: ``{ {"old" {0}} : {"new"}, "module" ... }``."""
    entries = (f"{_array_text(e.old_original_array)} : {_array_text(e.new_original_array)}"
               + (f", {quote(text_of(e.recovery_module))}" if e.HasField("recovery_module") else "") for e in proto.entries)
    return "{ " + " ".join(entries) + " }"


def write_recovery(text: str, proto: Any, fill: Callable[[str, Any], None]) -> None:
    """The inverse of `read_recovery`; `fill` writes a module's text. XLA prints that between quotes in lines of their own, with
    nothing in it escaped."""
    scanner = Scanner(text)
    scanner.expect("{")
    while not scanner.accept("}"):
        entry = proto.entries.add()
        _write_array(scanner, entry, "old_original_array")
        scanner.expect(":")
        _write_array(scanner, entry, "new_original_array")
        if scanner.accept(","):
            lines = _in_lines.match(text, scanner.skip())
            if lines:
                scanner.pos = lines.end()
            fill(lines[1] if lines else scanner.string(), entry.recovery_module)


# --------------------------------------------------------------------------------------------------- the module's tables

_LOCATION = ("file_name_id", "function_name_id", "line", "end_line", "column", "end_column")


def read_tables(proto: Any) -> dict[str, dict[int, str]]:
    """The tables after a module's header. Text counts a frame's parent from 1, as it does all else; the proto's 0 is none."""
    def rows(texts: Sequence[str]) -> dict[int, str]:
        return dict(enumerate(texts, 1))

    return {
        "FileNames": rows([quote(name) for name in proto.file_names]),
        "FunctionNames": rows([quote(name) for name in proto.function_names]),
        "FileLocations": rows(["{" + " ".join(f"{field}={getattr(row, field)}" for field in _LOCATION) + "}"
                               for row in proto.file_locations]),
        "StackFrames": rows([f"{{file_location_id={frame.file_location_id} parent_frame_id={frame.parent_frame_id + 1}}}"
                             for frame in proto.stack_frames]),
    }


def write_tables(tables: Mapping[str, Mapping[int, str]], proto: Any) -> None:
    """Fill a StackFrameIndexProto. Rows that text leaves out are empty."""
    for title, names in (("FileNames", proto.file_names), ("FunctionNames", proto.function_names)):
        names.extend(Scanner(row).string() if row else "" for row in _rows(tables.get(title, {})))
    for row in _rows(tables.get("FileLocations", {})):
        proto.file_locations.add(**{n: v for n, v in _numbers(row).items() if n in _LOCATION})
    for row in _rows(tables.get("StackFrames", {})):
        numbers = _numbers(row)
        proto.stack_frames.add(file_location_id=numbers.get("file_location_id", 0),
                               parent_frame_id=max(0, numbers.get("parent_frame_id", 1) - 1))


def _rows(rows: Mapping[int, str]) -> list[str]:
    last = max(rows, default=0)
    if last > 10 * len(rows) + 1000:
        raise HloSyntaxError("a table of the module has too many gaps", got=f"{len(rows)} rows up to {last}")
    return [rows.get(number, "") for number in range(1, last + 1)]


def _numbers(row: str) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(r"(\w+)\s*=\s*(\d+)", row)}
