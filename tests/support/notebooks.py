"""Notebooks as they are stored: executed, with what they print and draw, and without what differs from run to run."""

from __future__ import annotations

import base64
import io
import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.expected import fits

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
RELATIVE, ABSOLUTE = 0.02, 1e-4
"""How far a number may be from the stored one: rounding differs between machines, and a training carries it on."""
LARGEST_PICTURE = 60_000
"""Bytes of a picture."""

Cell = dict[str, Any]


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def code_cells(notebook: dict[str, Any]) -> list[Cell]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def executed(path: Path) -> dict[str, Any]:
    """The notebook, run in a kernel of its own, as it is stored. Raises nbclient's CellExecutionError where a cell raises."""
    import nbformat
    from nbclient import NotebookClient

    # What tests tell JAX, XLA and torch is no business of readers.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_", "TORCH_"))}
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}},
                   record_timing=False, coalesce_streams=True,
                   extra_arguments=["--HistoryManager.enabled=False", "--log-level=ERROR"]).execute(env=environment)
    return stored_form(json.loads(nbformat.writes(notebook)))


def stored_form(notebook: dict[str, Any]) -> dict[str, Any]:
    """Without counts and versions, with cells numbered in their order and pictures small."""
    cells = [{**cell, "id": f"cell-{number}", "metadata": {}} for number, cell in enumerate(notebook["cells"])]
    for cell in filter(lambda c: c["cell_type"] == "code", cells):
        cell |= {"execution_count": None, "outputs": [_output(output) for output in cell["outputs"]]}
    return {"cells": cells, "metadata": {"kernelspec": KERNEL, "language_info": {"name": "python"}},
            "nbformat": 4, "nbformat_minor": 5}


def _output(output: Cell) -> Cell:
    output = {**output, **({"execution_count": None} if output["output_type"] == "execute_result" else {})}
    if "data" not in output:
        return output
    data = {kind: small("".join(content)) if kind == "image/png" else content for kind, content in output["data"].items()}
    return {**output, "data": data, "metadata": {}}


def small(picture: str) -> str:
    """A PNG of at most 64 colours, without the program's name that made it."""
    from PIL import Image

    out = io.BytesIO()
    with Image.open(io.BytesIO(base64.b64decode(picture))) as image:
        image.convert("RGB").quantize(64, dither=Image.Dither.NONE).save(out, "png", optimize=True)
    return base64.b64encode(out.getvalue()).decode()


def text_of(notebook: dict[str, Any]) -> str:
    """The file of a notebook."""
    return json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


# ------------------------------------------------------------------------------------------------- comparing


def shown(output: Cell) -> Iterator[tuple[str, str]]:
    """What an output shows, by kind: texts, and of a picture how wide and high it is."""
    yield "kind", f"{output['output_type']} {output.get('name', '')}"
    for kind, content in output.get("data", {"text": output.get("text", "")}).items():
        content = "".join(content) if isinstance(content, list) else content
        yield kind, "{}x{}".format(*picture_size(content)) if kind == "image/png" else content


def picture_size(picture: str) -> tuple[int, int]:
    """Width and height of a PNG: its header says it."""
    width, height = struct.unpack(">II", base64.b64decode(picture)[16:24])
    return width, height


def same(made: Cell, stored: Cell) -> bool:
    """Whether two outputs show the same."""
    ours, theirs = list(shown(made)), list(shown(stored))
    return [kind for kind, _ in ours] == [kind for kind, _ in theirs] and all(
        _same_size(messages, expected) if kind == "image/png" else fits(messages, expected, relative=RELATIVE, absolute=ABSOLUTE)
        for (kind, messages), (_, expected) in zip(ours, theirs, strict=True))


def _same_size(made: str, stored: str) -> bool:
    """Texts in a picture are a little wider with another version of what draws."""
    return all(abs(int(a) - int(b)) <= 0.05 * int(b) for a, b in zip(made.split("x"), stored.split("x"), strict=True))


def differences(made: dict[str, Any], stored: dict[str, Any]) -> list[str]:
    """Where a notebook that was run now shows something else than is stored: cells, and both outputs."""
    found = []
    for now, before in zip(code_cells(made), code_cells(stored), strict=True):
        outputs = now["outputs"], before["outputs"]
        if len(outputs[0]) != len(outputs[1]) or not all(map(same, *outputs)):
            sides = ["\n".join(f"  {kind}: {messages[:2000]}" for o in side for kind, messages in shown(o)) for side in outputs]
            found.append(f"{now['id']} shows\n{sides[0]}\nand stored is\n{sides[1]}")
    return found


def renewed(made: dict[str, Any], stored: dict[str, Any]) -> dict[str, Any]:
    """What is to be stored: the new outputs, but texts that still fit as they were, with ``...`` where somebody wrote it."""
    for now, before in zip(code_cells(made), code_cells(stored), strict=True):
        old = before["outputs"] if len(before["outputs"]) == len(now["outputs"]) else [None] * len(now["outputs"])
        now["outputs"] = [b if b is not None and "image/png" not in b.get("data", {}) and same(a, b) else a
                          for a, b in zip(now["outputs"], old, strict=True)]
    return made
