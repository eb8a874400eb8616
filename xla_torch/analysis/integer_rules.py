"""Ops on single integers that are known: what `loops` computes counters, steps and bounds with.

A rule works on Python integers; the caller wraps its result to the element type.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from ..core.sizes import integer
from ..hlo.rule_tables import RuleTable
from ..opcodes import convert, elementwise

INTEGERS: RuleTable[Callable[..., int]] = RuleTable("known integer")
INTEGERS.add_all({
    elementwise.add: operator.add,
    elementwise.subtract: operator.sub,
    elementwise.multiply: operator.mul,
    elementwise.maximum: max,
    elementwise.minimum: min,
    elementwise.negate: lambda n: -n,
    convert.convert: integer,
})
