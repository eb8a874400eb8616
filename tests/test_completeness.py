"""Every op has its places: a definition, a documented function, an entry in the gradient table, tests. What lacks is named."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

import xla_torch
from grad_rules import TABLE, GradientKind
from xla_torch.opcodes import OPS

HERE = Path(__file__).parent
PACKAGE = Path(xla_torch.__file__).parent

FROM_FILES_ONLY = {"collective-reduce"}
"""Opcodes that compiled programs contain and that no documented function builds."""


BUILT_BY_HELPERS = {"custom-call": "CustomCall", "parameter": "Parameter", "recv": "Recv", "send": "Send"}
"""Documented functions in whose own source their opcode does not stand."""


@functools.cache
def text_of(pattern: str) -> str:
    """The text of the test files, but for this one."""
    return "\n".join(p.read_text() for p in sorted(HERE.glob(pattern)) if p.name != Path(__file__).name)


@functools.cache
def builders() -> dict[str, set[str]]:
    """For each opcode the documented functions in whose source it stands."""
    found = {opcode: {BUILT_BY_HELPERS[opcode]} if opcode in BUILT_BY_HELPERS else set() for opcode in OPS}
    for path in (PACKAGE / "ops").glob("*.py"):
        for block in re.split(r"\n(?=@|def |[A-Z]\w* = )", path.read_text()):
            name = re.search(r"(?:def |^)([A-Z]\w*)\b", block, re.M)
            for opcode in re.findall(r'"([a-z0-9-]+)"', block) if name else ():
                if opcode in found and name:
                    found[opcode].add(name.group(1))
    return found


def is_named(opcode: str, text: str) -> bool:
    """Whether a text has the opcode, or a documented function that builds it, as a word."""
    words = [opcode, *builders()[opcode]]
    return re.search(r"(?<![\w-])(?:" + "|".join(map(re.escape, words)) + r")(?![\w-])", text) is not None


def test_every_opcode_stands_in_the_gradient_table() -> None:
    """Once each: a second entry fails at import."""
    assert sorted(OPS.keys() - TABLE.keys()) == []
    assert sorted(TABLE.keys() - OPS.keys()) == []


def test_every_opcode_has_a_documented_function() -> None:
    assert sorted(o for o, names in builders().items() if not names and o not in FROM_FILES_ONLY) == []


def test_every_opcode_has_a_test() -> None:
    assert sorted(o for o in OPS if not is_named(o, text_of("test_*.py"))) == []


def gradient_tests() -> str:
    """The text of the gradient tests, and of the rows that they import."""
    tests = text_of("test_grad_*.py")
    imported = sorted(set(re.findall(r"^from (\w+_rows) import", tests, re.M)))
    return "\n".join([tests, *(text_of(f"{name}.py") for name in imported)])


def test_every_gradient_rule_has_a_test() -> None:
    tests = gradient_tests()
    with_rules = (o for o, entry in TABLE.items() if entry.kind in (GradientKind.FORMULA, GradientKind.LINEAR))
    assert sorted(o for o in with_rules if not is_named(o, tests)) == []


@pytest.mark.parametrize("room", [PACKAGE / "opcodes", HERE.parent / "grad_rules"], ids=lambda p: p.name)
def test_families_have_the_same_names(room: Path) -> None:
    """Who knows where an op is defined knows where its gradient stands."""
    assert sorted(f for f in {definition.family for definition in OPS.values()} if not (room / f"{f}.py").exists()) == []
