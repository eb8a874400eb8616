"""Rule tables: what they refuse, what they find, what they lack."""

from __future__ import annotations

import pytest

import xla_torch.batching
import xla_torch.lowering.bodies
import xla_torch.transform.canonical
import xla_torch.transform.dynamic_sizes  # noqa: F401  (all these fill tables)
from xla_torch.hlo import rule_tables
from xla_torch.hlo.rule_tables import RuleTable
from xla_torch.hlo.schema import OPS, Trait


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> RuleTable:
    """A table of its own, which no other test sees."""
    monkeypatch.setattr(rule_tables, "TABLES", {})
    return RuleTable("test", serves=lambda schema: schema.family == "comparison")


def rule_one() -> None: ...


def rule_two() -> None: ...


def test_an_unknown_opcode_is_refused(table: RuleTable) -> None:
    """This is how two tables once named "optimization-barrier", which is "opt-barrier" here."""
    with pytest.raises(TypeError, match=r"test rule for an unknown opcode 'optimization-barrier': .*test_rule_tables\.rule_one"):
        table.add("optimization-barrier", rule_one)
    assert not table


def test_a_second_rule_is_refused_and_both_places_are_named(table: RuleTable) -> None:
    table.rule("compare", "clamp")(rule_one)
    twice = r"'clamp' has two test rules: .*test_rule_tables\.rule_one and .*test_rule_tables\.rule_two"
    with pytest.raises(TypeError, match=twice):
        table.rule("select", "clamp")(rule_two)
    assert table["compare"] is table["clamp"] is rule_one


def test_a_second_rule_for_a_trait_is_refused(table: RuleTable) -> None:
    table.by_trait(Trait.ELEMENTWISE)(rule_one)
    with pytest.raises(TypeError, match=r"ELEMENTWISE has two test rules: .*rule_one and .*rule_two"):
        table.by_trait(Trait.ELEMENTWISE)(rule_two)


def test_a_second_table_of_one_name_is_refused(table: RuleTable) -> None:
    with pytest.raises(TypeError, match="two rule tables called 'test'"):
        RuleTable(table.name)


def test_an_own_rule_goes_before_that_of_a_trait(table: RuleTable) -> None:
    table.by_trait(Trait.ELEMENTWISE)(rule_one)
    table.add("select", rule_two)
    assert table.find("add") is rule_one
    assert table.find("select") is rule_two
    assert table.find("dot") is None
    assert table.get("add") is None, "a rule of its own"
    assert list(table) == ["select"]


def test_what_lacks_is_named(table: RuleTable) -> None:
    assert table.lacking() == ["clamp", "compare", "select"]
    table.add("clamp", rule_one)
    assert table.lacking() == ["compare", "select"]
    table.by_trait(Trait.ELEMENTWISE)(rule_two)
    assert table.lacking() == []


def test_every_table_of_the_library_is_checked() -> None:
    """Importing them has entered their rules, so none names an opcode that does not exist."""
    assert {"batching", "dynamic size", "canonical form"} <= rule_tables.TABLES.keys()
    assert [(name, opcode) for name, table in rule_tables.TABLES.items() for opcode in table if opcode not in OPS] == []
    assert {name: table.lacking() for name, table in rule_tables.TABLES.items() if table.lacking()} == {}
