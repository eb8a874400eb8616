"""Weights for a program: from files and trees, by name.

A name is a place in a tree with dots, ``params.Conv_0.bias``. What is given may be trees of arrays, mappings from names to
arrays, or files: safetensors, NumPy's .npz, and checkpoints of orbax, each read by its own library.
"""

from __future__ import annotations

import difflib
import importlib
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..core.errors import InvalidArgument, MissingDependency
from ..pytree.structure import Path, Structure, flattened


def read(path: str | os.PathLike[str]) -> Any:
    """The arrays in a file or folder: a mapping from names, or a tree. Raises MissingDependency where the library that reads it
    is not installed, InvalidArgument for what is no such file."""
    place = pathlib.Path(path)
    if place.is_dir():
        return _orbax(place)
    reader = _READERS.get(place.suffix)
    if reader is None:
        raise InvalidArgument("not a file of weights", got=str(place), expected="; ".join((*_READERS, "a folder of orbax")))
    return reader(place)


def _safetensors(path: pathlib.Path) -> dict[str, Any]:
    return _library("safetensors.torch", "safetensors").load_file(path)


def npz(path: pathlib.Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz file, by name. Raises OSError where it cannot be opened, InvalidArgument for any other file."""
    with path.open("rb") as file:  # NumPy leaves its own open where it fails
        try:
            data = np.load(file, allow_pickle=False)
            if not isinstance(data, np.lib.npyio.NpzFile):
                raise InvalidArgument("not an .npz file", got=f"{path}, one array", hint="write the arrays by name: np.savez")
            with data:
                return dict(data)
        except InvalidArgument:
            raise
        except Exception as error:  # zipfile, zlib and NumPy raise of all kinds for broken files
            raise InvalidArgument("not an .npz file", got=f"{path}, {type(error).__name__}: {error}",
                                  hint="write the arrays by name: np.savez") from None


def _orbax(path: pathlib.Path) -> Any:
    if not any((path / name).exists() for name in ("_METADATA", "_CHECKPOINT_METADATA", "manifest.ocdbt", "default")):
        raise InvalidArgument("not a checkpoint", got=str(path), expected="a folder that orbax wrote")
    checkpoint = _library("orbax.checkpoint", "orbax-checkpoint")
    inner = path / "default" if (path / "default").is_dir() else path
    with checkpoint.PyTreeCheckpointer() as reader:
        return reader.restore(inner.absolute())


_READERS: dict[str, Callable[[pathlib.Path], Any]] = {".safetensors": _safetensors, ".npz": npz}


def _library(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingDependency(f"reading this file needs {package}", got=error,
                                hint=f"pip install {package}, or 'xla_torch[weights]'") from None


def for_tree(given: Any, structure: Structure, what: Callable[[Path], str]) -> list[Any]:
    """The leaves of a structure from a tree of this form, or from a mapping from the names of its leaves. Raises InvalidArgument
    for anything else, which says by `what` where it differs."""
    names = structure.names()
    if isinstance(given, Mapping) and names and not any(isinstance(value, Mapping) for value in given.values()):
        dotted = given if {*given} == {*names} else {_dotted(name): value for name, value in given.items()}
        if {*dotted} == {*names}:
            return [dotted[name] for name in names]
        if any("." in name for name in dotted):
            raise _differing(dotted, names)
    return structure.flatten(given, what)


def for_names(given: Any, known: Mapping[str, int]) -> dict[int, Any]:
    """Values by the numbers that their names stand for. `given` is a mapping from names or a tree. Raises InvalidArgument for a
    name that is not `known`."""
    leaves, structure = flattened(given)
    named = {name if name in known else _dotted(name): leaf for name, leaf in zip(structure.names(), leaves, strict=True)}
    if not all(name in known for name in named):
        raise _differing(named, list(known))
    return {known[name]: value for name, value in named.items()}


def _dotted(name: Any) -> str:
    """A name as it is written elsewhere: with slashes in files of flax's own tools."""
    return name if "." in (name := str(name)) else name.replace("/", ".")


def _differing(given: Mapping[str, Any], names: Sequence[str]) -> InvalidArgument:
    missing = [n for n in names if n not in given]
    unknown = [n for n in given if n not in names]
    if unknown:
        near = difflib.get_close_matches(unknown[0], names, 1)
        return InvalidArgument(f"there is no weight {unknown[0]}", got=_some(unknown), expected=_some(missing or names),
                               hint=f"did you mean {near[0]}?" if near else "")
    return InvalidArgument(f"weight {missing[0]} is missing", got=_some(list(given)), expected=_some(names))


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
