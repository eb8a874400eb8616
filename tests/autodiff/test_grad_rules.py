"""The gradient table itself: its words, what they refuse, and what rules may ask for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import grad_rules
import xla_torch
from grad_rules import FUSED, TABLE, GradientKind
from grad_rules._fused import fused
from xla_torch import Shape, ops
from xla_torch.api.custom_calls import unregister_custom_call
from xla_torch.autodiff.structure import REGIONS, STRUCTURE
from xla_torch.errors import DifferentiationError, ExecutionError, InvalidArgument
from xla_torch.hlo.rule_tables import TABLES
from xla_torch.hlo.schema import OPS, Control


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
    (lambda: grad_rules.vjp("cosine", operand=lambda ct: ct),
     r"'cosine' stands in the gradient table twice: in .*elementwise.py:\d+ and in .*test_grad_rules.py:\d+"),
    (lambda: grad_rules.vjp("cosign", operand=lambda ct: ct), "unknown opcode 'cosign'"),
    (lambda: grad_rules.replace("cosine", x=lambda ct: ct), "no operand 'x'; it has .'operand'."),
    (lambda: grad_rules.replace("cosine", operand=lambda ct, y: ct), r"asks for \['y'\]; known words are"),
])
def test_wrong_rules_fail_at_once(cosine: str, word, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        word()


def test_a_users_own_rule(cosine: str) -> None:
    """`replace` puts a rule in the table's place, from then on and for every entry point."""
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
    assert TABLE["divide"].asks == {"lhs": ("ct", "rhs"), "rhs": ("ct", "out", "rhs")}


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


# ---------------------------------------------------------------------------------------------------- tables


def test_the_table_is_one_of_the_rule_tables() -> None:
    assert TABLES["gradient"] is TABLE
    assert TABLE.lacking() == []


def test_structure_is_found_by_the_kind_of_its_regions() -> None:
    """So an op of a new name that is a loop, branches or a call is differentiated as these are; what starts is opened before."""
    kinds = {schema.control for schema in OPS.values()} - {None, Control.START}
    assert kinds == set(REGIONS)
    entered = {opcode for opcode, entry in TABLE.items() if entry.kind is GradientKind.STRUCTURAL and OPS[opcode].control is None}
    assert set(STRUCTURE) <= entered


@pytest.mark.parametrize(("name", "opcodes", "message"), [
    ("another", ("divide", "quotient"), "'another' for unknown opcodes: .'quotient'."),
    ("another", (), "'another' for unknown opcodes"),
    ("softmax", ("divide",), "two fused gradient rules called 'softmax'"),
])
def test_wrong_fused_rules_fail_at_once(name: str, opcodes: tuple[str, ...], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        fused(name, *opcodes)(lambda result: None)


def test_fused_rules_do_not_go_around_a_users_own() -> None:
    """x ** -2 has a rule as a power; with a user's rule for products it has that one's gradient."""
    def power(x: xla_torch.XlaOp) -> xla_torch.XlaOp:
        return 1.0 / (x * x)

    torch.testing.assert_close(pull(power), -2 * CT / X**3)
    with xla_torch.register_gradient("multiply", lhs=lambda ct, rhs: ct * rhs):  # half of it
        torch.testing.assert_close(pull(power), -CT / X**3)
    assert all(rule.what for rule in FUSED.values())


# ---------------------------------------------------------------------------------------------------- users' own rules


def test_register_gradient_of_an_op() -> None:
    """A rule alone for an op with one operand; leaving the context puts the table's rule back."""
    with xla_torch.register_gradient("cosine", lambda ct, out: ct * out):
        torch.testing.assert_close(pull(ops.Cos), CT * torch.cos(X))
    torch.testing.assert_close(pull(ops.Cos), -CT * torch.sin(X))


def test_registrations_are_undone_one_by_one() -> None:
    first = xla_torch.register_gradient("multiply", lhs=lambda ct, rhs: ct)
    with xla_torch.register_gradient("multiply", rhs=lambda ct, lhs, inst: ct * 2.0):
        torch.testing.assert_close(pull(lambda x: x * x), 2 * CT)
    torch.testing.assert_close(pull(lambda x: x * x), CT)
    first.undo()
    torch.testing.assert_close(pull(lambda x: x * x), 2 * CT * X)


def test_programs_notice_another_rule() -> None:
    """What was derived before, by `vjp` or by a backward pass, is derived anew."""
    program, x = unary(ops.Tanh), X.clone().requires_grad_()

    def slope() -> torch.Tensor:
        return torch.autograd.grad(program(x), x, CT)[0]

    before = slope()
    with xla_torch.register_gradient("tanh", lambda ct: ct):
        torch.testing.assert_close(slope(), CT)
        torch.testing.assert_close(xla_torch.vjp(program)(X, CT)[0], CT)
    torch.testing.assert_close(slope(), before)


def test_own_rules_are_not_gone_around() -> None:
    """Softmax is differentiated as one op, but not where a user has said what a quotient's gradient is."""
    def softmax(x):
        e = ops.Exp(x)
        return e / ops.BroadcastInDim(ops.Reduce(e, 0.0, _sum(), [0]), (3,), ())

    with xla_torch.register_gradient("divide", lhs=lambda ct: ct):
        torch.testing.assert_close(pull(softmax), CT * torch.exp(X))


def _sum() -> xla_torch.XlaComputation:
    builder = xla_torch.XlaBuilder("sum")
    scalar = Shape.parse("f32[]")
    return builder.build(builder.parameter(0, scalar) + builder.parameter(1, scalar))


def calling(target: str, *shapes: str, result: str = "f64[3]") -> xla_torch.XlaComputation:
    builder = xla_torch.XlaBuilder("calling")
    operands = [builder.parameter(k, Shape.parse(s)) for k, s in enumerate(shapes)]
    return builder.build(ops.CustomCall(builder, target, operands, Shape.parse(result)))


@pytest.fixture
def cube() -> Iterator[str]:
    """A target with a function that torch cannot differentiate."""
    xla_torch.register_custom_call("my.cube", lambda x: torch.from_numpy(x.detach().numpy() ** 3))
    yield "my.cube"
    unregister_custom_call("my.cube")


def test_register_gradient_of_a_target(cube: str) -> None:
    """The rule is made of ops, so that its second derivative is known too, and it stands in the program's text."""
    program = calling(cube, "f64[3]")
    x = torch.tensor([1.0, 2.0, -3.0], dtype=torch.float64, requires_grad=True)
    with xla_torch.register_gradient(cube, lambda ct, out, x: ct * 3.0 * x * x):
        assert torch.autograd.gradcheck(program, x)
        assert torch.autograd.gradgradcheck(program, x)
        assert "xla_torch.vjp" not in xla_torch.vjp(program).to_hlo_text()
    with pytest.raises(ExecutionError, match="the gradient is unknown"):  # by torch's autograd again, which sees a constant
        torch.autograd.grad(program(x).sum(), x)


def test_a_rule_goes_before_what_is_known_of_a_target() -> None:
    """Targets that are ops in other words are differentiated by the user's rule, where there is one."""
    program = calling("Sharding", "f64[3]")
    x = torch.ones(3, dtype=torch.float64)
    with xla_torch.register_gradient("Sharding", lambda ct, out, x: ct * 5.0):
        assert xla_torch.vjp(program)(x, x)[0].tolist() == [5, 5, 5]
    assert xla_torch.vjp(program)(x, x)[0].tolist() == [1, 1, 1]


def test_rules_of_targets_with_several_results() -> None:
    """Results without a cotangent have zeros, operands without gradient have None."""
    xla_torch.register_custom_call("my.three", lambda x, n, y: (x, y))
    program = calling("my.three", "f64[3]", "s32[2]", "f64[]", result="(f64[3], f64[])")

    def rule(ct, out, x, n, y):
        return ct[0] * 2.0, None, ct[1] * 3.0

    with xla_torch.register_gradient("my.three", rule):
        derivative = xla_torch.vjp(program)
    assert str(derivative.program_shape.result) == "(f64[3], f64[])"
    ones = [torch.ones(3, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64)]
    found = derivative(ones[0], torch.zeros(2, dtype=torch.int32), ones[1], *ones)
    assert [f.tolist() for f in found] == [[2, 2, 2], 3]
    unregister_custom_call("my.three")


@pytest.mark.parametrize(("register", "message"), [
    (lambda: xla_torch.register_gradient("cosine", lambda ct, y: ct), r"asks for \['y'\]; known words are"),
    (lambda: xla_torch.register_gradient("cosine", x=lambda ct: ct), "no operand 'x'; it has .'operand'."),
    (lambda: xla_torch.register_gradient("cosine"), "a rule is missing"),
    (lambda: xla_torch.register_gradient("add", lambda ct: ct), "a single rule requires an op with one operand"),
    (lambda: xla_torch.register_gradient("while", lambda ct: ct), "differentiate it with xla_torch.autodiff.loops"),
    (lambda: xla_torch.register_gradient("cosign", operand=lambda ct: ct), "rules by operand are for opcodes"),
    (lambda: xla_torch.register_gradient("my.target"), "takes one rule"),
])
def test_wrong_registrations_fail_at_once(register, message: str) -> None:
    before = dict(TABLE)
    with pytest.raises(InvalidArgument, match=message):
        register()
    assert before == TABLE


def wrong_rule(ct):
    return ops.Broadcast(ct, [2])


@pytest.mark.parametrize(("name", "rules", "program", "message"), [
    ("cosine", {"operand": wrong_rule}, lambda: unary(ops.Cos), r"gradient rule wrong_rule \(.*test_grad_rules.py:\d+\)"),
    ("cosine", {"operand": lambda ct: 1.0}, lambda: unary(ops.Cos), "(?s)another shape.*got +float"),
    ("concatenate", {"operands": lambda ct: (ct,)}, lambda: unary(lambda x: ops.ConcatInDim(x.builder, [x, x], 0)),
     r"(?s)another number of cotangents.*got +1.*expected +2"),
])
def test_a_rules_result_is_checked(name: str, rules, program, message: str) -> None:
    with xla_torch.register_gradient(name, **rules), pytest.raises(DifferentiationError, match=message):
        xla_torch.vjp(program())


@pytest.mark.parametrize(("rule", "message"), [
    (lambda ct, out: ct, r"(?s)takes other arguments.*1 operands"),
    (lambda ct, out, x: (ct, ct), "another number of cotangents"),
    (wrong_rule, r"gradient rule wrong_rule"),
    (lambda ct, out, x: ops.Broadcast(x, [2]), "(?s)another shape.*expected +f64.3. for operand 0"),
])
def test_the_result_of_a_targets_rule_is_checked(cube: str, rule, message: str) -> None:
    with xla_torch.register_gradient(cube, rule), pytest.raises(DifferentiationError, match=message):
        xla_torch.vjp(calling(cube, "f64[3]"))


# ---------------------------------------------------------------------------------- custom calls, differentiated twice


@pytest.mark.parametrize("vjp", [None, lambda ct, out, x: (3 * ct * out / x,)])
def test_second_derivatives_of_custom_calls(vjp) -> None:
    """By torch's autograd through the function, or through the registered rule, whose use of the result counts as well."""
    xla_torch.register_custom_call("my.power", lambda x: x ** 3, vjp)
    program = calling("my.power", "f64[3]")
    x = torch.tensor([1.0, 2.0, -3.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(program, x)
    twice = xla_torch.vjp(xla_torch.vjp(program, 0), 0)
    ones = torch.ones(3, dtype=torch.float64)
    assert twice(x.detach(), ones, ones)[0].tolist() == [6, 12, -18]
    assert torch.autograd.gradcheck(twice, (x, ones, ones))
    unregister_custom_call("my.power")


def test_a_rule_that_torch_cannot_differentiate() -> None:
    """Its second derivative is an error, and not zero."""
    def rule(ct, out, x):
        return (torch.from_numpy(3 * ct.detach().numpy() * x.detach().numpy() ** 2),)

    xla_torch.register_custom_call("my.opaque", lambda x: x ** 3, rule)
    program, x = calling("my.opaque", "f64[3]"), torch.ones(3, dtype=torch.float64)
    derivative = xla_torch.vjp(program)
    assert derivative(x, x)[0].tolist() == [3, 3, 3]
    with pytest.raises(ExecutionError, match="torch cannot differentiate this vjp"):
        xla_torch.vjp(derivative)(x, x, x)
    unregister_custom_call("my.opaque")


class Opaque(torch.autograd.Function):
    """The square, by a backward that leaves torch."""

    @staticmethod
    def forward(ctx, x):  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, ct):  # pyright: ignore[reportIncompatibleMethodOverride]
        return torch.from_numpy(2 * ct.detach().numpy() * ctx.saved_tensors[0].detach().numpy())


def untraced(x):
    with torch.no_grad():
        return x * x


ONES = torch.ones(3, dtype=torch.float64)


@pytest.mark.parametrize(("function", "argnums", "message"), [
    (lambda x, y: (x.detach() * 2, y), 0, "a result without a graph"),
    (lambda x, y: (untraced(x), y), 0, "a result without a graph"),
    (lambda x, y: (torch.from_numpy(x.detach().numpy() ** 2), y), 0, "a result without a graph"),
    (lambda x, y: (torch.from_numpy(x.detach().numpy()) * y, y), 0, "no way to floating operand 0"),
    (lambda x, y: (torch.from_numpy(x.detach().numpy()) * y, y), 1, ""),
    (lambda x, y: (x * y, (x * y).detach()), (0, 1), "a result without a graph"),
    (lambda x, y: (x.floor() * y, y * y), (0, 1), ""),
    (lambda x, y: (y * y, x * x), (0, 1), ""),
], ids=["detached", "no graph", "numpy", "one of two", "the other one", "one result", "a step", "crossed"])
def test_what_torch_cannot_follow_is_no_zero(function, argnums, message) -> None:
    """A custom call that leaves torch has no gradient, unless no one asks for that operand's."""
    xla_torch.register_custom_call("my.pair", function)
    whole = calling("my.pair", "f64[3]", "f64[3]", result="(f64[3], f64[3])")
    derivative = xla_torch.vjp(whole, argnums)
    if message:
        with pytest.raises(ExecutionError, match=f"(?s)my.pair.*the gradient is unknown.*{message}"):
            derivative(ONES, ONES, ONES, ONES)
    else:
        x, y = (torch.full((3,), v, dtype=torch.float64, requires_grad=True) for v in (1.5, 2.5))
        wanted = [(x, y)[k] for k in ([argnums] if isinstance(argnums, int) else argnums)]
        want = torch.autograd.grad([r for r in function(x, y) if r.requires_grad], wanted, [ONES, ONES])
        found = derivative(x.detach(), y.detach(), ONES, ONES)
        torch.testing.assert_close(found if isinstance(found, tuple) else (found,), want)
    unregister_custom_call("my.pair")


def test_a_result_without_cotangent_needs_no_graph() -> None:
    """Only what the loss reads has to be followed; and a call that nothing reads is not in a gradient's program."""
    xla_torch.register_custom_call("my.pair", lambda x, y: (x * y, x.detach()))
    whole = calling("my.pair", "f64[3]", "f64[3]", result="(f64[3], f64[3])")
    program = xla_torch.grad(sum_of_first(whole))
    assert program(2 * ONES, 3 * ONES).tolist() == [3, 3, 3]
    assert program.to_hlo_text().count(" custom-call(") == 1  # the gradient's own: the call itself is dead
    unregister_custom_call("my.pair")


def sum_of_first(program: xla_torch.XlaComputation) -> xla_torch.XlaComputation:
    builder = xla_torch.XlaBuilder("first")
    operands = [builder.parameter(k, s) for k, s in enumerate(program.program_shape.parameters)]
    first = ops.GetTupleElement(ops.Call(builder, program, operands), 0)
    total = xla_torch.XlaBuilder("total")
    scalar = Shape.parse("f64[]")
    add = total.build(total.parameter(0, scalar) + total.parameter(1, scalar))
    return builder.build(ops.ReduceAll(first, 0.0, add))


@pytest.mark.parametrize(("has_effect", "calls"), [(False, 1), (True, 2)])
def test_a_call_with_an_effect_stays(has_effect: bool, calls: int) -> None:
    """As in XLA: without an effect, a call that nothing reads is left out, in the program and in its gradient."""
    seen = []
    xla_torch.register_custom_call("my.seen", lambda x: (seen.append(1), x * 2.0)[1], lambda ct, out, x: (ct * 2.0,))
    builder = xla_torch.XlaBuilder("seen")
    x = builder.parameter(0, Shape.parse("f64[3]"))
    used, _ = (ops.CustomCall(builder, "my.seen", [v], x.shape, has_side_effect=has_effect) for v in (x, x * x))
    program = builder.build(used)
    program(ONES)
    assert len(seen) == calls
    assert xla_torch.vjp(program).to_hlo_text().count('"my.seen"') == calls, "a vjp is given the result"
    unregister_custom_call("my.seen")


def test_configurations_make_calls_different() -> None:
    """Calls of one target with other configurations are never one."""
    xla_torch.register_custom_call("my.times", lambda x, *, call: x * float(call.opaque))
    builder = xla_torch.XlaBuilder("times")
    x = builder.parameter(0, Shape.parse("f64[3]"))
    doubled, tripled = (ops.CustomCall(builder, "my.times", [x], x.shape, opaque) for opaque in ("2", "3"))
    assert xla_torch.vjp(builder.build(doubled * tripled))(ONES, ONES)[0].tolist() == [12, 12, 12]
    unregister_custom_call("my.times")


def test_an_autograd_function_that_torch_cannot_differentiate_twice() -> None:
    """Its second derivative is an error, and not zero."""
    xla_torch.register_custom_call("my.opaque", Opaque.apply)
    derivative = xla_torch.vjp(calling("my.opaque", "f64[3]"))
    assert derivative(ONES, ONES)[0].tolist() == [2, 2, 2]
    with pytest.raises(ExecutionError, match="torch cannot differentiate the backward"):
        xla_torch.vjp(derivative)(ONES, ONES, ONES)
    unregister_custom_call("my.opaque")


@pytest.mark.parametrize(("vjp", "message"), [
    (lambda ct, out, x: (ct, ct), r"(?s)register_custom_call\('my.power'\).*another number of cotangents.*got +2.*expected +1"),
    (lambda ct, out, x: 2.0, "(?s)must return cotangents.*got +float"),
    (lambda ct, out, x: (ct[:1],), r"(?s)another shape.*got +torch.float64.1..*expected +torch.float64.3."),
])
def test_what_a_vjp_returns_is_checked(vjp, message: str) -> None:
    xla_torch.register_custom_call("my.power", lambda x: x ** 3, vjp)
    with pytest.raises(ExecutionError, match=message):
        xla_torch.vjp(calling("my.power", "f64[3]"))(*[torch.ones(3, dtype=torch.float64)] * 2)
    unregister_custom_call("my.power")


def test_vjps_of_tuples() -> None:
    """A tuple operand's cotangent is a tuple, or None."""
    text = """HloModule m
ENTRY e {
  x = f64[2] parameter(0)
  y = f64[2] parameter(1)
  p = (f64[2], f64[2]) tuple(x, y)
  ROOT r = f64[2] custom-call(p), custom_call_target="my.product"
}"""
    ones = torch.ones(2, dtype=torch.float64)
    for vjp, want in ((lambda ct, out, p: ((ct * 2, None),), [2, 0]), (lambda ct, out, p: (None,), [0, 0])):
        xla_torch.register_custom_call("my.product", lambda p: p[0] * p[1], vjp)
        assert [f[0].item() for f in xla_torch.vjp(xla_torch.parse_hlo(text))(ones, ones, ones)] == want
    unregister_custom_call("my.product")
