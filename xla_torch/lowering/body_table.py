"""The lowering table: what each op computes, in plain torch.

A body's first parameter is its instruction: result shape, operand shapes. It takes static facts from there, never from a
tensor, because the same body runs on torch tensors and on torch.fx proxies (that is how a program is lowered). The other
positional parameters are the op's operands, in storage dtypes (tuples as Python tuples), and keyword-only ones its
attributes, both under the names of the op's schema; the evaluator passes every attribute, defaults filled in.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable

from ..hlo.rule_tables import RuleTable
from ..hlo.schema import OPS, OpSchema
from .values import Value


@dataclasses.dataclass(frozen=True, slots=True)
class Body:
    """How one op is computed."""

    function: Callable[..., Value]
    numbers: frozenset[str] = frozenset()
    """Operands that may be Python numbers. At least one operand of an elementwise body is always a tensor."""
    view: bool = False
    """The result may share memory with operand 0, so it is never overwritten."""
    structural: bool = False
    """Takes values as they are (splats, numbers on the host, tuples): tuples, calls, loops and branches."""


_FAMILIES = ("collective", "comparison", "contraction", "control", "convert", "convolution", "dynamic", "elementwise", "indexing",
             "internal", "linalg", "movement", "random", "reduction", "sorting", "token", "window")

BODIES: RuleTable[Body] = RuleTable("body", serves=lambda _: True,
                                    filled_by=[f"{__package__}.bodies.{family}" for family in _FAMILIES])


def body(opcode: str, *, numbers: str = "", view: bool = False,
         structural: bool = False) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Enter the body of an op. Raises TypeError for parameters that are not the schema's operands and attributes."""

    def register(function: Callable[..., Value]) -> Callable[..., Value]:
        BODIES.add(opcode, Body(function, frozenset(numbers.split()), view, structural))
        _check_parameters(OPS[opcode], function)
        return function

    return register


def _check_parameters(schema: OpSchema, function: Callable[..., Value]) -> None:
    _, *parameters = inspect.signature(function).parameters.values()
    operands = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    variadic = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    attributes = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    rest = any(p.kind is p.VAR_KEYWORD for p in parameters)
    if (operands, variadic) != (list(schema.operands), schema.variadic) or (
            not set(attributes) <= schema.attributes.keys() if rest else set(attributes) != schema.attributes.keys()):
        raise TypeError(f"body of {schema.opcode!r} ({function.__module__}.{function.__qualname__}): its parameters are not "
                        f"the schema's operands {schema.operands} and attributes {tuple(schema.attributes)}")
