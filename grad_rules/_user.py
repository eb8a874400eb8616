"""Rules of users: for an opcode in the place of the table's, or for the target of custom calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from grad_rules._table import TABLE, Entry, GradientKind, Rule, operand_positions, replace
from xla_torch.core.errors import DifferentiationError, InvalidArgument
from xla_torch.functions.hlo_builder import XlaOp
from xla_torch.hlo.canonical_values import LISTS
from xla_torch.hlo.gradient_changes import changed, set_target_rule, target_rule
from xla_torch.hlo.ir import Instruction
from xla_torch.hlo.schema import OPS, OpSchema

_SEQUENCE: type[Any] = Sequence

class Registration:
    """A registered gradient. Leaving it as a context manager, or `undo`, puts back what was there before it."""

    def __init__(self, name: str, undo: Callable[[], None]):
        self.name, self._undo = name, undo

    def undo(self) -> None:
        self._undo()
        changed()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.undo()

    def __repr__(self) -> str:
        return f"Registration({self.name!r})"


def register_gradient(name: str, rule: Rule | None = None, /, **rules: Rule) -> Registration:
    """Override the gradient of an opcode, or of custom calls of a target, in every program.

    For an opcode, pass a rule for each operand by name, or one rule if the op has one operand. A rule requests its inputs by
    parameter name (``ct``, ``out``, operands, attributes, ``inst``; see grad_rules/README.md). It returns the operand's
    cotangent, in its shape, or None for zero. Operands without a rule have gradient zero.

    For a target (any other name), ``rule(ct, out, *operands)`` returns a cotangent or None for each operand (for one operand,
    just that). It takes precedence over the `vjp` of `register_custom_call`.

    Rules use `xla_torch.ops`, so their results can be differentiated again. Programs that were differentiated before use the
    new rule. Raises InvalidArgument for a rule with unknown parameter or operand names, and for structural ops. Raises
    DifferentiationError, with the rule, for a wrong number or shape of cotangents.

        with xla_torch.register_gradient("tanh", lambda ct, out: ct):
            straight_through = xla_torch.grad(program)

    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] tanh(x) }")
    >>> with xla_torch.register_gradient("tanh", operand=lambda ct, operand: ct):
    ...     xla_torch.grad(square)(torch.tensor([1.0, 2.0]))
    tensor([1., 1.])
    """
    given = dict(rules)
    definition = OPS.get(name)
    if definition is not None:
        undo = _of_opcode(definition, given if rule is None else {_only_operand(definition): rule, **given})
    else:
        undo = _of_target(name, rule, given)
    return Registration(name, undo)


# --------------------------------------------------------------------------------------------------------- opcodes


def _of_opcode(definition: OpSchema, rules: Mapping[str, Rule]) -> Callable[[], None]:
    opcode = definition.opcode
    before = TABLE.get(opcode)
    if before is not None and before.kind is GradientKind.STRUCTURAL:
        raise InvalidArgument("this op is a program's structure and takes no rule", subject=_subject(opcode),
                              hint=f"differentiate it with {before.by}")
    if not rules:
        raise InvalidArgument("a rule is missing", subject=_subject(opcode), expected=f"one for {_names(definition)}")
    try:
        replace(opcode, **{operand: _checked(definition, operand, rule) for operand, rule in rules.items()})
    except TypeError as error:
        _put_back(opcode, before)
        raise InvalidArgument(str(error), subject=_subject(opcode)) from None
    return lambda: _put_back(opcode, before)


def _put_back(opcode: str, entry: Entry | None) -> None:
    if entry is None:
        TABLE.pop(opcode, None)
    else:
        TABLE[opcode] = entry


def _only_operand(definition: OpSchema) -> str:
    names = _names(definition)
    if len(names) != 1:
        raise InvalidArgument("a single rule requires an op with one operand", subject=_subject(definition.opcode),
                              expected=", ".join(f"{name}=rule" for name in names) or "an op with operands")
    return names[0]


def _names(definition: OpSchema) -> list[str]:
    return [*definition.operands, *([definition.variadic] if definition.variadic else [])]


def _subject(name: str) -> str:
    return f"register_gradient({name!r})"


def _checked(definition: OpSchema, operand: str, rule: Callable[..., Any]) -> Callable[..., Any]:
    """The rule, with a look at what it returns. It asks for the instruction, too, to know the shapes."""
    words = inspect.signature(rule).parameters

    def checked(**given: Any) -> Any:
        found = rule(**{word: given[word] for word in words})
        inst: Instruction = given["inst"]
        operands = [inst.operands[k] for k in operand_positions(inst, operand)]
        _check(rule, [found] if operand != definition.variadic else found, operands)
        return found

    parameters = [inspect.Parameter(word, inspect.Parameter.KEYWORD_ONLY) for word in dict.fromkeys([*words, "inst"])]
    checked.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    return checked


def _check(rule: Callable[..., Any], found: Any, operands: Sequence[Instruction]) -> None:
    """One cotangent for each operand, of its shape."""
    parts: Sequence[Any] | None = found if isinstance(found, _SEQUENCE) else None
    if parts is None or len(parts) != len(operands):
        raise DifferentiationError(f"{_place(rule)} returned another number of cotangents than there are operands",
                                   got=type(found).__name__ if parts is None else len(parts), expected=len(operands))
    for number, (part, operand) in enumerate(zip(parts, operands, strict=True)):
        if part is None or operand.shape.is_tuple:
            continue
        if not isinstance(part, XlaOp) or not part.shape.compatible(operand.shape, ignore_precision=True):
            raise DifferentiationError(f"{_place(rule)} returned a cotangent of another shape than its operand",
                                       got=part.shape if isinstance(part, XlaOp) else type(part).__name__,
                                       expected=f"{operand.shape} for operand {number}")


def _place(rule: Rule) -> str:
    """The rule by its name and where it is written."""
    name, code = getattr(rule, "__qualname__", type(rule).__name__), getattr(rule, "__code__", None)
    return f"gradient rule {name}" + (f" ({code.co_filename}:{code.co_firstlineno})" if code else "")


# --------------------------------------------------------------------------------------------------------- targets


def _of_target(target: str, rule: Rule | None, rules: Mapping[str, Rule]) -> Callable[[], None]:
    if rules or rule is None or not callable(rule):
        raise InvalidArgument("a custom call's target takes one rule", subject=_subject(target),
                              got=", ".join(rules) or type(rule).__name__, expected="rule(ct, out, *operands)",
                              hint="pass one rule; rules by operand are for opcodes")
    before = target_rule(target)
    set_target_rule(target, rule)
    changed()
    return lambda: set_target_rule(target, before)


def apply_target_rule(rule: Callable[..., Any], ct: Any, out: Any, operands: Sequence[Any], inst: Instruction) -> list[Any]:
    """What the rule says for one custom call. Raises DifferentiationError for a rule of other arguments or results."""
    try:
        inspect.signature(rule).bind(ct, out, *operands)
    except TypeError as error:
        raise DifferentiationError(f"{_place(rule)} takes other arguments", got=str(error),
                                   expected=f"the cotangent, the result and {len(operands)} operands") from None
    found = rule(ct, out, *operands)
    parts: Sequence[Any] = found if isinstance(found, LISTS) else [found]
    _check(rule, parts, inst.operands)
    return list(parts)
