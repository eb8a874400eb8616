"""The gradient-rule table and the four words that fill it: `vjp`, `linear`, `zero`, `refuse`.

A fifth, `structural`, names the few opcodes that are the program's structure (tuples, calls, loops): the engine itself
knows how to go back through them, and the entry says where. What several ops have together is in the table of fused rules
(`_fused.py`).

A rule is an ordinary function (mostly a lambda of one line) written in the documented functions of `xla_torch.ops`. It says
what one operand's cotangent is, and asks for what it needs by parameter name:

- ``ct``: the result's cotangent; for an op with a tuple result, a tuple with None where an element's cotangent is zero;
- ``out``: the result (a tuple for a tuple result);
- an operand's name from the op's definition: that operand (a variadic one is a tuple);
- an attribute's name: its value, the default where it was not written;
- ``inst``: the instruction, for shapes and types;
- ``wanted``: whether the operand's cotangent is used (of a tuple operand, and for a variadic one, a tuple);
- ``acc``: the cotangent this operand has so far (None if none). A rule that asks for it returns the new total, which is how
  a slice's cotangent is added into a large array in place instead of as a large array of zeros.

What a rule does not ask for is not kept from the forward pass. A rule may return None for "zero".
For a variadic operand a rule returns a tuple, one cotangent (or None) for each.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from xla_torch.hlo.gradient_changes import changed
from xla_torch.hlo.ir import Instruction
from xla_torch.hlo.rule_tables import RuleTable
from xla_torch.hlo.schema import OPS, OpSchema

Rule = (Callable[[Any], Any] | Callable[[Any, Any], Any] | Callable[[Any, Any, Any], Any] | Callable[[Any, Any, Any, Any], Any]
        | Callable[[Any, Any, Any, Any, Any], Any] | Callable[[Any, Any, Any, Any, Any, Any], Any]
        | Callable[[Any, Any, Any, Any, Any, Any, Any], Any]
        | Callable[[Any, Any, Any, Any, Any, Any, Any, Any], Any])
"""A function of what its parameters' names ask for. Their numbers are said for lambdas, which cannot say their types."""


class GradientKind(enum.Enum):
    """The kinds of entry, for the coverage report: the four kinds of rule, and the program's structure."""

    FORMULA = "formula"
    LINEAR = "linear data movement"
    ZERO = "zero"
    REFUSED = "refused"
    STRUCTURAL = "structural"


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """What the table knows of one opcode. `asks` lists, for each operand, the words its rule asks for."""

    opcode: str
    kind: GradientKind
    rules: Mapping[str, Callable[..., Any]]
    asks: dict[str, tuple[str, ...]]
    because: str = ""
    instead: str = ""
    by: str = ""
    """Of a structural opcode: the module that differentiates it."""
    where: str = ""
    """The file and line of the entry."""
    own: bool = False
    """Whether a user has replaced the table's rules."""


class GradientTable(RuleTable[Entry], MutableMapping[str, Entry]):
    """A rule table whose entries users may put others in the place of, and put back."""

    def __setitem__(self, opcode: str, entry: Entry) -> None:
        self._rules[opcode] = entry

    def __delitem__(self, opcode: str) -> None:
        del self._rules[opcode]


TABLE = GradientTable("gradient", serves=lambda _: True)
"""Every op's entry by opcode. Filled by importing `grad_rules`."""


def vjp(opcode: str, **rules: Rule) -> None:
    """A formula for each differentiable operand; operands without a rule have gradient zero."""
    _enter(opcode, GradientKind.FORMULA, rules)


def linear(opcode: str, **rules: Rule) -> None:
    """Data movement: the rule is the transpose of the op itself, and the operand's values do not matter."""
    _enter(opcode, GradientKind.LINEAR, rules)


def zero(*opcodes: str) -> None:
    """Gradient zero by mathematics (steps, comparisons, integers)."""
    for opcode in opcodes:
        _enter(opcode, GradientKind.ZERO, {})


def refuse(*opcodes: str, because: str, instead: str) -> None:
    """No gradient: differentiating raises DifferentiationError with the reason and what to do instead."""
    for opcode in opcodes:
        _enter(opcode, GradientKind.REFUSED, {}, because, instead)


def structural(*opcodes: str, by: str) -> None:
    """Structure of the program, differentiated by the engine itself: `by` names the module that does it."""
    for opcode in opcodes:
        _enter(opcode, GradientKind.STRUCTURAL, {}, by=by)


def replace(opcode: str, **rules: Rule) -> None:
    """A user's own rules for an opcode, instead of the table's."""
    before = TABLE.pop(opcode, None)
    try:
        _enter(opcode, GradientKind.FORMULA, rules, own=True)
    except TypeError:
        if before is not None:
            TABLE[opcode] = before
        raise


def _enter(opcode: str, kind: GradientKind, rules: Mapping[str, Callable[..., Any]], because: str = "", instead: str = "",
           by: str = "", own: bool = False) -> None:
    definition = OPS.get(opcode)
    if definition is None:
        raise TypeError(f"gradient rule for an unknown opcode {opcode!r}")
    if opcode in TABLE:
        raise TypeError(f"{opcode!r} stands in the gradient table twice: in {TABLE[opcode].where} and in {_caller()}")
    asks = {operand: _asks(definition, operand, rule) for operand, rule in rules.items()}
    TABLE.add(opcode, Entry(opcode, kind, rules, asks, because, instead, by, _caller(), own))
    if own:
        changed()


def _caller() -> str:
    """Where the word of the table stands that is being read."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "an unknown place"


def _asks(definition: OpSchema, operand: str, rule: Callable[..., Any]) -> tuple[str, ...]:
    """The words a rule asks for, checked against what the op has."""
    operands = {*definition.operands, *([definition.variadic] if definition.variadic else [])}
    known = operands | set(definition.attributes) | {"ct", "out", "inst", "wanted", "acc"}
    if operand not in operands:
        raise TypeError(f"gradient rule of {definition.opcode!r}: no operand {operand!r}; it has {sorted(operands)}")
    words = tuple(inspect.signature(rule).parameters)
    unknown = [w for w in words if w not in known]
    if unknown:
        raise TypeError(f"gradient rule of {definition.opcode!r} for {operand!r} asks for {unknown}; "
                        f"known words are {sorted(known)}")
    return words


def operand_positions(instruction: Instruction, name: str) -> range:
    """Where the operand called `name` stands; a variadic one takes the rest."""
    schema = instruction.schema
    if name == schema.variadic:
        return range(len(schema.operands), len(instruction.operands))
    position = schema.operands.index(name)
    return range(position, min(position + 1, len(instruction.operands)))
