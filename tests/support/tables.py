"""Tables of Markdown: written, read again, and put into pages between marks of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from xla_torch.errors import InvalidArgument

Row = Mapping[str, str]


def markdown(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    return "".join(map(line, [header, ["---"] * len(header), *lines]))


def line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def rows(text: str, first: str) -> list[Row]:
    """The rows of the table in a text whose head begins with this cell, by the names of its columns."""
    lines = text.splitlines()
    at = next(k for k, line in enumerate(lines) if line.startswith(f"| {first} |"))
    head, found = _cells(lines[at]), []
    for row in lines[at + 2:]:
        if not row.startswith("|"):
            break
        found.append(dict(zip(head, _cells(row), strict=True)))
    return found


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def part(page: str, name: str) -> str:
    """What stands between ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``."""
    return _parted(page, name)[1].strip()


def with_part(page: str, name: str, text: str) -> str:
    """The page with another text there."""
    before, _, after = _parted(page, name)
    return f"{before}\n\n{text.rstrip()}\n\n{after}"


def write_part(path: Path, name: str, text: str) -> None:
    path.write_text(with_part(path.read_text(encoding="utf-8"), name, text), encoding="utf-8")


def _parted(page: str, name: str) -> tuple[str, str, str]:
    """The page up to the first mark with it, what stands between them, and the rest. Raises InvalidArgument without marks."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = page.partition(begin)
    between, closed, after = rest.partition(end)
    if not (found and closed):
        raise InvalidArgument(f"no page to write the {name} into", subject="tables", got=page[:60],
                              expected=f"a page with {begin} and {end} in it")
    return before + begin, between, end + after
