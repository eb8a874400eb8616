"""No regular expression of the package takes more than linear time: each is tried on texts made to let it backtrack.

The texts come from the expression itself: what leads to each of its repetitions, then the repeated part many times over, then
something that cannot follow. Expressions that are searched for, and so begin anew at each place, are tried in that way too.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import signal
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import grad_rules
import xla_torch

_parser: Any = importlib.import_module("re._parser")
_constants: Any = importlib.import_module("re._constants")

COUNT = 6_000
"""How often a part is repeated: what is linear takes a millisecond, what is quadratic much longer than `SECONDS`."""
SECONDS = 0.25
_LETTERS = string.printable
_REPEATS = {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}


def compiled() -> dict[str, re.Pattern[Any]]:
    """The compiled expressions that modules of the package keep, by module and name."""
    found: dict[str, re.Pattern[Any]] = {}
    for package in (xla_torch, grad_rules):
        for entry in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if entry.name.endswith("__main__"):
                continue
            try:
                module = importlib.import_module(entry.name)
            except ImportError:  # of something optional
                continue
            for name, value in vars(module).items():
                several = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
                for key, one in [("", value), *several]:
                    if isinstance(one, re.Pattern):
                        found[f"{entry.name}.{name}{key}"] = one
    unique: dict[tuple[Any, int], str] = {}
    for name, one in found.items():
        unique.setdefault((one.pattern, one.flags), name)
    return {name: found[name] for name in unique.values()}


def _searched() -> set[str]:
    """Names of expressions that some line of the package searches for."""
    lines = "\n".join(path.read_text() for package in (xla_torch, grad_rules) for path in Path(package.__path__[0]).rglob("*.py"))
    return set(re.findall(r"(\w+)\.(?:search|sub|subn|findall|finditer|split)\(", lines))


# ------------------------------------------------------------------------------------------------ texts that are hard to match


def _one(kind: Any, argument: Any) -> str:
    """A text that the smallest part of an expression matches."""
    name = str(kind)
    if name in ("LITERAL", "NOT_LITERAL"):
        return chr(argument) if name == "LITERAL" else "a" if argument != ord("a") else "b"
    if name == "IN":
        pattern = re.compile("[" + "".join(map(_set_text, argument)) + "]")
        return next((c for c in _LETTERS if pattern.match(c)), "\u2003")
    return {"ANY": "a"}.get(name, "")


def _set_text(part: tuple[Any, Any]) -> str:
    kind, argument = str(part[0]), part[1]
    if kind == "RANGE":
        return f"{re.escape(chr(argument[0]))}-{re.escape(chr(argument[1]))}"
    categories = {"CATEGORY_DIGIT": r"\d", "CATEGORY_SPACE": r"\s", "CATEGORY_WORD": r"\w", "CATEGORY_NOT_DIGIT": r"\D",
                  "CATEGORY_NOT_SPACE": r"\S", "CATEGORY_NOT_WORD": r"\W"}
    return "^" if kind == "NEGATE" else re.escape(chr(argument)) if kind == "LITERAL" else categories[str(argument)]


def _least(nodes: Any) -> str:
    """A short text that a part matches, but for what assertions ask."""
    text = ""
    for kind, argument in nodes:
        name = str(kind)
        if name == "SUBPATTERN":
            text += _least(argument[3])
        elif name == "ATOMIC_GROUP":
            text += _least(argument)
        elif name in _REPEATS:
            text += _least(argument[2]) * argument[0]
        elif name == "BRANCH":
            text += min((_least(branch) for branch in argument[1]), key=len)
        else:
            text += _one(kind, argument)
    return text


def _variants(nodes: Any) -> set[str]:
    """Texts that a part matches, one for each of its alternatives."""
    found = {_least(nodes)}
    for place, (kind, argument) in enumerate(nodes):
        name = str(kind)
        parts = argument[1] if name == "BRANCH" else [argument[3]] if name == "SUBPATTERN" else (
            [argument[2]] if name in _REPEATS else [argument] if name == "ATOMIC_GROUP" else [])
        around = _least(nodes[:place]), _least(nodes[place + 1:])
        found |= {around[0] + one + around[1] for part in parts for one in _variants(part)}
    return found


def _pumps(nodes: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """What leads to each repetition, and a text that it repeats."""
    for kind, argument in nodes:
        name = str(kind)
        if name in _REPEATS:
            if argument[1] > 20:
                body = argument[2]
                for one in {*_variants(body), *(f"{_least(body)}{c}" for c in " \t0a\"\\{}[](),/*")}:
                    yield before, one
                yield from ((before, c) for c in " 0a\"{([,/<x")
            yield from _pumps(argument[2], before)
            before += _least(argument[2]) * argument[0]
        elif name == "SUBPATTERN":
            yield from _pumps(argument[3], before)
            before += _least(argument[3])
        elif name == "ATOMIC_GROUP":
            yield from _pumps(argument, before)
            before += _least(argument)
        elif name == "BRANCH":
            for branch in argument[1]:
                yield from _pumps(branch, before)
            before += min((_least(branch) for branch in argument[1]), key=len)
        else:
            before += _one(kind, argument)


def hard_texts(pattern: re.Pattern[Any]) -> Iterator[str]:
    """Texts of some thousand repetitions, and short ones for what is exponential."""
    source = pattern.pattern.decode("latin-1") if isinstance(pattern.pattern, bytes) else pattern.pattern
    for before, pump in sorted({(b, p) for b, p in _pumps(_parser.parse(source, pattern.flags & ~re.UNICODE)) if p}):
        for end in ("\0", ""):
            yield before + pump * 30 + end
            yield before + pump * COUNT + end


class _TooSlow(Exception):
    pass


def _stop(*_: object) -> None:
    raise _TooSlow


def slow_text(pattern: re.Pattern[Any], searched: bool) -> str:
    """A text for which the expression takes more than linear time, of this process and not of the machine; "" where there is
    none."""
    before = signal.signal(signal.SIGVTALRM, _stop)
    try:
        for text in dict.fromkeys(hard_texts(pattern)):
            given = text.encode("latin-1", "replace") if isinstance(pattern.pattern, bytes) else text
            for tried in (pattern.match, pattern.fullmatch, *([pattern.search] if searched else [])):
                try:
                    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
                    tried(given)  # pyright: ignore[reportArgumentType]
                    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
                except _TooSlow:
                    return text
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    return ""


def test_every_expression_is_linear() -> None:
    searched = _searched()
    slow = {name: f"{text[:60]!r}... of {len(text)}" for name, pattern in compiled().items()
            if (text := slow_text(pattern, name.rpartition(".")[2] in searched))}
    assert slow == {}


@pytest.mark.parametrize("bad", [r"(?:\s+|/\*.*?\*/)*x", r"(a+)+b", r"(?:[^()]*)*\)"])
def test_what_backtracks_is_found(bad: str) -> None:
    assert slow_text(re.compile(bad), searched=False)
