"""Values that are not those of real XLA's CPU code, each with a program that shows it: `tests/documents/values.txt`.

``# fault: title`` begins a difference (or ``# freedom:``, where documents leave it open), the line below it says
``what XLA does | what is done here, and why``. Each further line is a program of the form that claims have (`claims.py`), what
it gives here, and what it gives on XLA: ``hlo("...", arguments) :: here :: XLA``. A side is a value, ``where`` with a condition
on the result `r`, ``!`` with words of the refusal, or ``taken`` for a program that is no more than parsed.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import xla_torch
from support.claim_entry_points import hlo, same
from support.claim_values import namespace
from support.oracle import NEWER_XLA, run_xla, xla_accepts
from xla_torch.errors import XlaError

PATH = Path(__file__).parents[1] / "documents" / "values.txt"
KINDS = {"fault": "XLA's CPU compiler is at fault", "freedom": "the documents leave it open"}


class Example(NamedTuple):
    """A program, and what it gives here and there."""

    call: str
    here: str
    there: str
    where: str


class ValueDifference(NamedTuple):
    """Something that XLA's CPU code does otherwise."""

    kind: str
    title: str
    xla: str
    here: str
    examples: tuple[Example, ...]


def value_differences() -> list[ValueDifference]:
    """All of them, in the order of the file. Raises ValueError for a line that is none."""
    found: list[ValueDifference] = []
    for place, line in enumerate(PATH.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("# "):
            kind, title = line[2:].split(": ", 1)
            if kind not in KINDS:
                raise ValueError(f"line {place}: no kind of difference: {kind}")
            found.append(ValueDifference(kind, title, "", "", ()))
        elif line and not found[-1].xla:
            xla, here = line.split(" | ")
            found[-1] = found[-1]._replace(xla=xla, here=here)
        elif line:
            call, mine, theirs = line.split(" :: ")
            example = Example(call, mine, theirs, f"{PATH.name}:{place}")
            found[-1] = found[-1]._replace(examples=(*found[-1].examples, example))
    return found


def check(example: Example) -> None:
    """Both sides give what they are said to give, XLA where it is that of the rows. Raises AssertionError where one does not."""
    text, arguments = evaluated(example.call)

    def parsed() -> None:
        xla_torch.parse_hlo(text)

    def ours() -> list[np.ndarray]:
        return list(xla_torch.parse_hlo(text).run_numpy(*arguments))

    assert example.here != example.there
    _check_side(example.here, ours, parsed)
    if not NEWER_XLA:
        _check_side(example.there, lambda: run_xla(text, *arguments), lambda: _assert_accepted(text))


def _assert_accepted(text: str) -> None:
    if (message := xla_accepts(text)) is not None:
        raise ValueError(message)


def _check_side(side: str, run: Callable[[], list[np.ndarray]], parse: Callable[[], None]) -> None:
    if side == "taken":
        parse()
    elif side.startswith("! "):
        message = ""
        try:
            run()
        except (XlaError, RuntimeError, ValueError) as error:  # jaxlib raises the latter two
            message = str(error)
        assert side[2:] in message, message or "taken"
    elif side.startswith("where "):
        assert np.all(evaluated(side[6:], r=run()[0])), run()[0]
    else:
        want = evaluated(side)
        same(run(), [np.asarray(w) for w in (want if isinstance(want, tuple) else (want,))], None)


def evaluated(expression: str, **known: Any) -> Any:
    """What an expression of a line is: of a program its text and its arguments."""
    names = {node.id for node in ast.walk(ast.parse(expression, mode="eval")) if isinstance(node, ast.Name)}
    return eval(expression, namespace(names, lambda array: array, None) | {"hlo": hlo, "np": np} | known)
