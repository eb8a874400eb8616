"""Where a program's parameter stood in the arguments of its function: ``('p', 'params', 'Conv_0', 'bias')``.

JAX writes it as the parameter's op_name, ``p['params']['Conv_0']['bias']``, and again as its name, where everything but letters
and digits has become an underscore: ``p__params____Conv_0____bias__.1``. The former is exact. The latter is taken apart where
there is nothing else and it can only have been such a place.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Any

_STEP = re.compile(r"""\[<flat\ index\ (?P<flat>\d+)>\]                                  # a child without a name
                     | \[(?P<key>'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | -?\d+)\]       # an item
                     | \.(?P<field>[^\W\d]\w*)""", re.VERBOSE)
_PLACE = re.compile(r"(?P<argument>[^\W\d]\w*)(?P<steps>[\[.].*)?", re.DOTALL)
_WORD = "[A-Za-z0-9](?:_?[A-Za-z0-9])*"
_WRITTEN = re.compile(rf"(?P<argument>(?!\d){_WORD})(?P<steps>(?:__{_WORD}__|_\d+_)+)(?:[._]?\d+)?")
_WRITTEN_STEP = re.compile(rf"__({_WORD})__|_(\d+)_")


def paths(names: Sequence[str], op_names: Sequence[str]) -> list[tuple[Any, ...]]:
    """The place of each of a program's parameters. Where it is not known, or several would have the same, the name itself, with
    anything but letters, digits and underscores replaced."""
    found = [_exact(op_name) or _written(name) for name, op_name in zip(names, op_names, strict=True)]
    unique = len({tuple(map(str, path)) for path in found if path}) == sum(path is not None for path in found)
    return [path if path and unique else (re.sub(r"\W", "_", name, flags=re.ASCII) or f"arg{k}",)
            for k, (path, name) in enumerate(zip(found, names, strict=True))]


def _exact(op_name: str) -> tuple[Any, ...] | None:
    place = _PLACE.fullmatch(op_name)
    if place is None:
        return None
    steps, position, text = [place["argument"]], 0, place["steps"] or ""
    while position < len(text):
        step = _STEP.match(text, position)
        if step is None:
            return None
        steps.append(_edge(step))
        position = step.end()
    # The value in a box of flax has the box's name, as in `Structure.names`.
    return tuple(steps[:-1] if len(steps) > 2 and text.endswith(".value") else steps)


def _edge(step: re.Match[str]) -> Any:
    if step["field"] is not None:
        return step["field"]
    return int(step["flat"]) if step["flat"] is not None else ast.literal_eval(step["key"])


def _written(name: str) -> tuple[Any, ...] | None:
    written = _WRITTEN.fullmatch(name)
    if written is None:
        return None
    steps = (step[1] if step[1] is not None else int(step[2]) for step in _WRITTEN_STEP.finditer(written["steps"]))
    return (written["argument"], *steps)
