"""The gradient table itself: its words, what they refuse, and what rules may ask for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import grad_rules
import xla_torch
from grad_rules import TABLE, GradientKind
from xla_torch import Shape, ops
from xla_torch.errors import DifferentiationError
from xla_torch.opcodes import OPS


@pytest.fixture
def cosine() -> Iterator[str]:
    """An opcode whose entry is put back afterwards."""
    kept = TABLE["cosine"]
    yield "cosine"
    TABLE["cosine"] = kept


def unary(function) -> xla_torch.XlaComputation:
    builder = xla_torch.XlaBuilder("unary")
    return builder.build(function(builder.parameter(0, Shape.parse("f32[3]"))))


X, CT = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 10.0, 100.0])


def pull(function) -> torch.Tensor:
    return xla_torch.vjp(unary(function))(X, CT)[0]


@pytest.mark.parametrize(("word", "message"), [
    (lambda: grad_rules.vjp("cosine", operand=lambda ct: ct), "'cosine' stands in the gradient table twice"),
    (lambda: grad_rules.vjp("cosign", operand=lambda ct: ct), "unknown opcode 'cosign'"),
    (lambda: grad_rules.replace("cosine", x=lambda ct: ct), "no operand 'x'; it has .'operand'."),
    (lambda: grad_rules.replace("cosine", operand=lambda ct, y: ct), r"asks for \['y'\]; known words are"),
])
def test_wrong_rules_fail_at_once(cosine: str, word, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        word()


def test_a_users_own_rule(cosine: str) -> None:
    """`replace` puts a rule in the table's place, from then on and for every door."""
    grad_rules.replace(cosine, operand=lambda ct, out, inst: ct * out * float(inst.shape.dimensions[0]))
    torch.testing.assert_close(pull(ops.Cos), CT * torch.cos(X) * 3)


def test_refused(cosine: str) -> None:
    """A refused op is an error on a path that is differentiated, and names reason, way out and place."""
    TABLE.pop(cosine)
    grad_rules.refuse(cosine, because="cosines are not for sale", instead="use a sine")
    assert torch.isfinite(pull(lambda x: ops.Select(ops.Gt(ops.Cos(x), 0.0), x, x))).all()
    with pytest.raises(DifferentiationError) as error:
        pull(lambda x: ops.Cos(x) + x)
    assert str(error.value).startswith("cosine (%cosine): cosines are not for sale")
    assert "use a sine" in str(error.value)


def test_zero_is_no_cotangent() -> None:
    """What depends on a zero op only has gradient zero, and its backward program is nothing but zeros."""
    program = xla_torch.vjp(unary(lambda x: ops.Floor(x) * 2.0))
    torch.testing.assert_close(program(X, CT)[0], torch.zeros(3))
    assert "multiply" not in program.to_hlo_text()


def test_asked_words_are_remembered() -> None:
    assert TABLE["tanh"].asks == {"operand": ("ct", "out")}
    assert TABLE["dynamic-slice"].asks["operand"][1] == "acc"
    assert TABLE["multiply"].asks == {"lhs": ("ct", "rhs"), "rhs": ("ct", "lhs")}


def test_every_entry_says_something() -> None:
    """Formulas and data movement have rules, refusals a reason and a way out, structure its place; zeros have nothing."""
    for opcode, entry in TABLE.items():
        has_rules = entry.kind in (GradientKind.FORMULA, GradientKind.LINEAR)
        assert bool(entry.rules) is has_rules, opcode
        assert bool(entry.because and entry.instead) is (entry.kind is GradientKind.REFUSED), opcode
        assert bool(entry.by) is (entry.kind is GradientKind.STRUCTURAL), opcode


def test_rules_stand_with_their_family() -> None:
    """Who knows where an op is defined knows where its gradient stands."""
    misplaced = {opcode: rule.__module__ for opcode, entry in TABLE.items() for rule in entry.rules.values()
                 if rule.__module__ != f"grad_rules.{OPS[opcode].family}"}
    assert not misplaced
