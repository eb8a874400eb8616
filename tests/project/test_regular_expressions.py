"""No regular expression of the package takes more than linear time: each is tried on texts made to let it backtrack.

The texts come from the expression itself: what leads to each of its repetitions, then the repeated part many times over, then
something that cannot follow. Expressions that are searched for, and so begin anew at each place, are tried in that way too.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
import string
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import grad_rules
import xla_torch

_parser: Any = importlib.import_module("re._parser")
_constants: Any = importlib.import_module("re._constants")

LENGTHS = (12, 16, 20, 24, 28, 32, 40, 160, 640, 2560, 5120)
"""How often a part is repeated, one after the other: what is exponential shows itself among the first, what is quadratic among
the last."""
MEASURABLE = 0.005
"""Seconds of this thread from which on times are compared: with the time for half the length, never with a limit."""
_LETTERS = string.printable
_REPEATS = {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}


def _modules() -> Iterator[ModuleType]:
    for package in (xla_torch, grad_rules):
        for entry in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not entry.name.endswith("__main__"):
                try:
                    yield importlib.import_module(entry.name)
                except ImportError:  # of something optional
                    continue


def _kept(module: ModuleType) -> Iterator[tuple[str, str, re.Pattern[Any]]]:
    """The expressions that a module keeps: the name, the place in a table of them ("" where it is none), the expression."""
    for name, value in vars(module).items():
        table = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, one in [("", value), *table]:
            if isinstance(one, re.Pattern):
                yield name, str(key), one


@functools.cache
def compiled() -> dict[str, tuple[re.Pattern[Any], bool]]:
    """The compiled expressions that modules of the package keep, by module and name; whether one is searched for anywhere."""
    found: dict[tuple[Any, int], tuple[str, re.Pattern[Any], bool]] = {}
    for module in _modules():
        own = list(_kept(module))
        text = Path(str(module.__file__)).read_text()
        asked = set(re.findall(r"(\w+)(?:\[\w+\])?\.(?:search|sub|subn|findall|finditer|split)\(", text))
        if set(re.findall(r"(\w+)\.(?:search|sub|subn|findall|finditer)\(", text)) - {"re", *vars(module)}:
            asked |= set(re.findall(r"[(,]\s*(\w+)(?=[,)])", text))  # what is handed to who searches by another name
        for name, key, one in own:
            label, _, before = found.get((one.pattern, one.flags), (f"{module.__name__}.{name}{key}", one, False))
            found[one.pattern, one.flags] = label, one, before or name in asked
    return {label: (one, searched) for label, one, searched in found.values()}


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


def hard_texts(pattern: re.Pattern[Any]) -> Iterator[Callable[[int], str]]:
    """What is hard to match, for each number of repetitions."""
    source = pattern.pattern.decode("latin-1") if isinstance(pattern.pattern, bytes) else pattern.pattern
    for before, pump in sorted({(b, p) for b, p in _pumps(_parser.parse(source, pattern.flags & ~re.UNICODE)) if p}):
        for end in ("\0", ""):
            yield lambda count, around=(before, pump, end): around[0] + around[1] * count + around[2]


def _seconds(tried: Callable[[Any], object], text: str | bytes, times: int) -> float:
    """The least time of this thread, of so many."""
    taken: list[float] = []
    for _ in range(times):
        start = time.thread_time()
        tried(text)
        taken.append(time.thread_time() - start)
    return min(taken)


def _grows(tried: Callable[[Any], object], text_of: Callable[[int], str | bytes]) -> int:
    """The number of repetitions at which the time was seen to grow faster than the text; 0 where it was not."""
    for count in LENGTHS:
        if _seconds(tried, text_of(count), 1) < MEASURABLE:
            continue
        taken = _seconds(tried, text_of(count), 5)
        if taken >= MEASURABLE and taken > 3 * _seconds(tried, text_of(count // 2), 9):
            return count
    return 0


def slow_text(pattern: re.Pattern[Any], searched: bool) -> str:
    """A text for which the expression takes more than linear time; "" where there is none."""
    for made in hard_texts(pattern):
        def text_of(count: int, made: Callable[[int], str] = made) -> str | bytes:
            return made(count).encode("latin-1", "replace") if isinstance(pattern.pattern, bytes) else made(count)

        for tried in (pattern.match, pattern.fullmatch, *([pattern.search] if searched else [])):
            if count := _grows(tried, text_of):
                return made(count)
    return ""


def test_every_expression_is_linear() -> None:
    slow = {name: f"{text[:60]!r}... of {len(text)}" for name, (pattern, searched) in compiled().items()
            if (text := slow_text(pattern, searched))}
    assert slow == {}


def test_what_is_searched_for_is_known_by_module() -> None:
    searched = {name for name, (_, asked) in compiled().items() if asked}
    assert "xla_torch.mlir.text.pretty_shapes._word" not in searched
    assert searched


@pytest.mark.parametrize("bad", [r"(?:\s+|/\*.*?\*/)*x", r"(a+)+b", r"(?:[^()]*)*\)", r"\s+x|a*a*a*b"])
def test_what_backtracks_is_found(bad: str) -> None:
    assert slow_text(re.compile(bad), searched=False)


def test_what_begins_anew_at_each_place_is_found_where_it_is_searched_for() -> None:
    pattern = re.compile(r"\w+!")
    assert slow_text(pattern, searched=True)
    assert not slow_text(pattern, searched=False)
