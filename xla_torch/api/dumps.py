"""What XLA writes into a folder of ``--xla_dump_to``: modules and their stages, and snapshots with arguments and results."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..core.errors import InvalidArgument, XlaError
from ..hlo.literals.literal import Literal
from ..hlo.memory import mapped
from ..jax_interop.recognition import Form, recognise
from ..proto.containers import read_proto

_named = re.compile(r"module_(\d+)\.([^.]+)\.(.+?)\.?(?:txt|hlo|hlo\.pb|pb|mlir|mlirbc)")
_progress = ("before_optimizations", "after_spmd_partitioner", "after_optimizations")


class Stage(NamedTuple):
    """A file of a dump that holds a program: which module, and what was done to it before."""

    module: str
    stage: str
    path: Path
    size: int
    form: Form


def stages(folder: str | os.PathLike[str]) -> list[Stage]:
    """The programs of a folder, by module and in the order of compilation. Files of other kinds are left out.

    Raises InvalidArgument where there is none.
    """
    found = []
    for path in sorted(Path(folder).iterdir()):
        match = _named.fullmatch(path.name)
        if not path.is_file():
            continue
        try:
            with mapped(path) as data:
                form = recognise(data, path.name)
        except XlaError:
            continue
        module, stage = (f"{match[1]} {match[2]}", match[3]) if match else (path.stem, path.suffix)
        found.append(Stage(module, stage, path, path.stat().st_size, form))
    if not found:
        raise InvalidArgument("no program is in this folder", subject=str(folder), expected="a folder of --xla_dump_to")
    return sorted(found, key=lambda s: (s.module, _place(s.stage), s.path.name))


def _place(stage: str) -> tuple[int, str]:
    """Where a stage stands: passes, which have numbers, are between the beginning and the end."""
    if stage.startswith(_progress[0]):
        return 0, ""
    return (2, stage) if _progress[2] in stage and not stage[:4].isdigit() else (1, stage)


def listing(folder: str | os.PathLike[str]) -> str:
    """The modules of a folder with their stages, as text."""
    lines, module = [], ""
    for stage in stages(folder):
        if stage.module != module:
            module = stage.module
            lines.append(f"module {module}")
        lines.append(f"  {stage.stage:56} {stage.size:>12,} bytes  {stage.form.title}")
    return "\n".join(lines)


def paired(a: str | os.PathLike[str], b: str | os.PathLike[str]) -> list[tuple[str, Path | None, Path | None]]:
    """The programs of two folders by module and stage: the label of each pair and its two files, None where there is none.

    Modules are numbered anew in each run, so they are told by their names: of one name, the first with the first."""
    sides = [_by_name(stages(folder)) for folder in (a, b)]
    return [(" ".join(filter(None, (key[0], f"({key[1] + 1})" if key[1] else "", key[2]))), sides[0].get(key), sides[1].get(key))
            for key in dict.fromkeys((*sides[0], *sides[1]))]


def _by_name(found: Sequence[Stage]) -> dict[tuple[str, int, str], Path]:
    """Programs by the module's name, its number among those of that name, and the stage; one form of each."""
    modules: dict[str, list[str]] = {}
    files: dict[tuple[str, int, str], Path] = {}
    for stage in found:
        name = re.sub(r"^\d+ ", "", stage.module)
        same = modules.setdefault(name, [])
        if stage.module not in same:
            same.append(stage.module)
        files.setdefault((name, same.index(stage.module), stage.stage), stage.path)
    return files


def stored_run(path: str | os.PathLike[str], participant: int = 0) -> tuple[list[np.ndarray], list[np.ndarray] | None] | None:
    """The arguments that a snapshot holds, and its result where it has one; None for files that are no snapshots.

    `participant` is whose arguments are asked for, where there are several.
    """
    with mapped(path) as data:
        if recognise(data, os.fspath(path)) is not Form.HLO_PROTO:
            return None
        file = read_proto(data)
        given, result = file.arguments(), file.result()
        if not given or not any(given):
            return None
        if participant >= len(given):
            raise InvalidArgument("the snapshot has no arguments for this participant", subject=os.fspath(path), got=participant,
                                  expected=f"0 to {len(given) - 1}")
        return _arrays(given[participant]), None if result is None else _arrays([result])


def _arrays(literals: Sequence[Literal]) -> list[np.ndarray]:
    """The arrays of literals, those of tuples one after another."""
    found: list[np.ndarray] = []
    for literal in literals:
        found += _arrays(literal.value) if isinstance(literal.value, tuple) else [literal.value]
    return found


def compared(results: Sequence[np.ndarray], stored: Sequence[np.ndarray], other: str = "the stored result") -> str:
    """How results differ from those that were stored, or those of `other`, in words."""
    if [(r.shape, r.dtype) for r in results] != [(s.shape, s.dtype) for s in stored]:
        return f"{other} has other arrays"
    lines = []
    for place, (a, b) in enumerate(zip(results, stored, strict=True)):
        if a.tobytes() == b.tobytes():
            lines.append(f"out{place}  the same bits as {other}")
            continue
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        with np.errstate(all="ignore"):
            x, y = a.astype(wide), b.astype(wide)
            apart = np.abs(x - y)[~((x == y) | (np.isnan(x) & np.isnan(y)))]
        most = np.max(apart, initial=0.0)
        lines.append(f"out{place}  at most {most:.3g} from {other}, of {np.nanmax(np.abs(y), initial=0.0):.3g} at most")
    return "\n".join(lines)
