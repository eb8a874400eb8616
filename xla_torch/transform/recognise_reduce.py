"""Reducers that select: argmax, argmin and their kin, told by what they do and not by how they are written.

A reducer made of comparisons, selects and logic only can depend on nothing but how its operands compare. So a few probes,
one for each way that two keys can compare (NaN included) and each way that the values beside them can, decide what it does
for all operands. That holds however JAX, StableHLO or a user spell it.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from ..hlo.ir import Computation, Instruction, live_instructions
from ..types import PrimitiveType


@dataclasses.dataclass(frozen=True, slots=True)
class Selection:
    """A reducer that keeps one of its two tuples of values whole: the one whose value number `key` is larger (or smaller).

    `ties` says which of equal keys stays: "first" the accumulated one, "last" the new one, "lowest" the one whose other
    value is lower (where there are two values). NaN wins over all other keys, and of several NaNs the first (for "last",
    the last).
    """

    key: int
    largest: bool
    ties: str


@functools.lru_cache(maxsize=1024)
def selection(computation: Computation) -> Selection | None:
    """The selection that a reducer of 2N scalars does, or None if it does something else or is not known."""
    parameters = computation.parameters
    count = len(parameters) // 2
    if not 1 <= count <= 3 or len(parameters) != 2 * count or not _only_compares(computation):
        return None
    types = [p.shape.element_type for p in parameters[:count]]
    probes = list(itertools.product(*(_PAIRS_OF_FLOATS if t.is_floating else _PAIRS for t in types)))
    results = [_evaluate(computation, [a for a, _ in probe] + [b for _, b in probe]) for probe in probes]
    for candidate in _candidates(types):
        if all(_same(result, _expected(candidate, probe)) for result, probe in zip(results, probes, strict=True)):
            return candidate
    return None


def _candidates(types: Sequence[PrimitiveType]) -> list[Selection]:
    ties = ["first", "last", "lowest"] if len(types) == 2 else ["first", "last"]
    found = [Selection(k, largest, tie) for k, t in enumerate(types) for largest in (True, False) for tie in ties
             if tie != "lowest" or types[1 - k].is_integral]
    return [s for s in found if not types[s.key].is_complex]


_PAIRS = [(old, new) for old in (0, 1) for new in (0, 1)]
_PAIRS_OF_FLOATS = [(old, new) for old in (0.0, 1.0, math.nan) for new in (0.0, 1.0, math.nan)]


def _expected(rule: Selection, probe: Sequence[tuple[Any, Any]]) -> list[Any]:
    return [pair[0 if _keeps(rule, probe) else 1] for pair in probe]


def _keeps(rule: Selection, probe: Sequence[tuple[Any, Any]]) -> bool:
    """Whether the accumulated tuple stays."""
    old, new = probe[rule.key]
    if math.isnan(old) or math.isnan(new):
        return not math.isnan(new) if rule.ties == "last" else math.isnan(old)
    if old != new:
        return (old > new) is rule.largest
    if rule.ties == "lowest":
        beside_old, beside_new = probe[1 - rule.key]
        return beside_old < beside_new
    return rule.ties == "first"


def _same(got: Sequence[Any], want: Sequence[Any]) -> bool:
    return all(g == w or (g != g and w != w) for g, w in zip(got, want, strict=True))


# ------------------------------------------------------------------------------------------------ probing

_DIRECTIONS = {"EQ": operator.eq, "NE": operator.ne, "LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge}


def _extreme(choose: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _, a, b: a if a != a else b if b != b else choose(a, b)


_RULES: dict[str, Callable[..., Any]] = {
    "compare": lambda i, a, b: _DIRECTIONS[i.attributes["direction"]](a, b),
    "select": lambda _, pred, on_true, on_false: on_true if pred else on_false,
    "maximum": _extreme(max),
    "minimum": _extreme(min),
    "tuple": lambda _, *elements: elements,
    "get-tuple-element": lambda i, operand: operand[i.attributes["index"]],
    "copy": lambda _, x: x,
    "call": lambda i, *operands: _root(i.attributes["to_apply"], operands),
}
_LOGIC: dict[str, Callable[..., Any]] = {"and": lambda _, a, b: a and b, "or": lambda _, a, b: a or b, "not": lambda _, a: not a}


def _only_compares(computation: Computation) -> bool:
    return all(_is_comparison(i) for i in live_instructions(computation))


def _is_comparison(instruction: Instruction) -> bool:
    if instruction.opcode in _LOGIC:
        return instruction.shape.element_type.is_pred
    if instruction.opcode == "call":
        return _only_compares(instruction.attributes["to_apply"])
    # The total order tells -0 from +0, which the probes do not; a signed comparison of unsigned integers cannot occur.
    if instruction.opcode == "compare" and instruction.attributes.get("type") == "TOTALORDER":
        return not instruction.operands[0].shape.element_type.is_floating
    return instruction.opcode == "parameter" or instruction.opcode in _RULES


def _evaluate(computation: Computation, arguments: Sequence[Any]) -> Sequence[Any]:
    result = _root(computation, arguments)
    return result if isinstance(result, tuple) else (result,)


def _root(computation: Computation, arguments: Sequence[Any]) -> Any:
    values: dict[int, Any] = {}
    for i in live_instructions(computation):
        if i.opcode == "parameter":
            values[id(i)] = arguments[i.attributes["parameter_number"]]
        else:
            rule = _RULES.get(i.opcode) or _LOGIC[i.opcode]
            values[id(i)] = rule(i, *(values[id(o)] for o in i.operands))
    return values[id(computation.root)]


# ------------------------------------------------------------------------------------------------ operands and loops


def counts_along(instruction: Instruction, dimension: int) -> bool:
    """Whether the values are known to be 0, 1, 2, ... along a dimension, the same at all other positions."""
    if instruction.opcode == "iota":
        return instruction.attributes["iota_dimension"] == dimension
    if instruction.opcode == "broadcast":
        dims = instruction.attributes["dimensions"]
        return dimension in dims and counts_along(instruction.operands[0], dims.index(dimension))
    return False


def running_reducer(computation: Computation, inputs: int) -> str | None:
    """The kind ("add", "multiply", "minimum", "maximum") of a scan body ``(x, c) -> (f(c, x), f(c, x))``, or None."""
    root, parameters = computation.root, computation.parameters
    if inputs != 1 or len(parameters) != 2 or root.opcode != "tuple" or len(root.operands) != 2:
        return None
    step = root.operands[0]
    if step is not root.operands[1] or step.opcode not in ("add", "multiply", "minimum", "maximum"):
        return None
    return step.opcode if set(step.operands) == set(parameters) else None


def keeps_every_carry(computation: Computation) -> bool:
    """Whether the outputs of a scan body are its carries: ``(x..., c...) -> (y..., y...)``, as many as there are inputs."""
    root = computation.root
    count = len(root.operands) // 2
    return (root.opcode == "tuple" and len(root.operands) == len(computation.parameters) == 2 * count
            and list(root.operands[:count]) == list(root.operands[count:]))
