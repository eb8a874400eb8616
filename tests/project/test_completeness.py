"""Every op has its places: a definition, a documented function, an entry in the gradient table; and what is said of an opcode
that no test executes (`support/executed_opcodes.py`)."""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from grad_rules import TABLE
from support import executed_opcodes
from xla_torch.api.emitted_ops import functions_of_ops
from xla_torch.command_line import looking
from xla_torch.hlo.rule_tables import TABLES
from xla_torch.opcodes import OPS

FROM_FILES_ONLY = {"collective-reduce"}
"""Opcodes that compiled programs contain and that no documented function builds."""


@functools.cache
def builders() -> dict[str, set[str]]:
    """For each opcode the documented functions whose result it is."""
    found: dict[str, set[str]] = {opcode: set() for opcode in OPS}
    for name, emitted in functions_of_ops().items():
        for opcode in emitted.results:
            found[opcode].add(name)
    return found


def test_every_opcode_stands_in_the_gradient_table() -> None:
    """Once each: a second entry fails at import."""
    assert sorted(OPS.keys() - TABLE.keys()) == []
    assert sorted(TABLE.keys() - OPS.keys()) == []


def test_every_opcode_has_a_documented_function() -> None:
    assert sorted(o for o, names in builders().items() if not names and o not in FROM_FILES_ONLY) == []


def test_no_table_of_rules_lacks_one() -> None:
    """Where a table says which ops it serves, it serves them all. (The command line imports every package with a table.)"""
    assert looking is not None
    assert {name: table.lacking() for name, table in TABLES.items() if table.lacking()} == {}
    assert {"body", "gradient", "batching", "partitioning", "arithmetic"} <= TABLES.keys()


def test_gradients_stand_in_the_file_of_their_family() -> None:
    """Who knows where an op is defined knows where its gradient stands."""
    places = {opcode: Path(entry.where.rpartition(":")[0]).stem for opcode, entry in TABLE.items() if not entry.own}
    assert {opcode: place for opcode, place in places.items() if place != OPS[opcode].family} == {}


@pytest.mark.parametrize(("chosen", "is_whole"), [
    ({}, executed_opcodes.HAS_XLA), ({"part": "0/3"}, False), ({"oracle": "xla"}, False), ({"markexpr": "slow"}, False),
    ({"keyword": "sort"}, False)])
def test_a_part_of_the_tests_need_not_execute_all(chosen: dict[str, str], is_whole: bool, pytestconfig: pytest.Config) -> None:
    whole = {"keyword": "", "deselect": None, "markexpr": "not slow", "part": None, "oracle": "stored", "collectonly": False}
    config: Any = SimpleNamespace(option=SimpleNamespace(**{**whole, **chosen}), ArgsSource=pytest.Config.ArgsSource,
                                  args_source=pytest.Config.ArgsSource.TESTPATHS)
    assert whole.keys() <= vars(pytestconfig.option).keys()
    assert executed_opcodes.is_whole(config) is is_whole


def executed(*opcodes: str) -> Counter[str]:
    return Counter(dict.fromkeys(OPS.keys() - executed_opcodes.UNEXECUTED.keys() - set(opcodes), 1))


def test_an_opcode_that_no_test_executes_is_named() -> None:
    """Which ones the tests execute is counted while they run."""
    assert executed_opcodes.wrong(executed()) == []
    assert executed_opcodes.wrong(executed("sort")) == ["sort was executed by no test"]
    (excused, *_) = executed_opcodes.UNEXECUTED
    assert executed_opcodes.wrong(executed() + Counter([excused])) == [
        f"{excused} was executed, so UNEXECUTED need not excuse it"]
