"""Programs for those who know fewer opcodes: what only newer XLAs read, in ops that all of them read; and without checks of
values, which no XLA knows.

Texts and protos are written of this form. Computations that need nothing of it are passed on as they are, and instructions keep
names, layouts and what is noted with them; so what is written is what the program is, but for these ops.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from .. import functions as ops
from ..core.errors import XlaWarning
from ..core.types import C64
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.checks import described, is_check
from ..hlo.composites import is_composite
from ..hlo.ir import Computation, Instruction, Module
from ..opcodes import elementwise
from .composites import as_call
from .stops import is_stop


def _atan(x: XlaOp) -> XlaOp:
    """``atan2(x, 1)``; of complex numbers, half the angle and a quarter of the logarithm that it is."""
    if not x.element_type.is_complex:
        return ops.Atan2(x, 1.0)
    # Squares of what is beyond the limit would overflow, and there the result is the angle alone, to all digits.
    limit = 1e18 if x.element_type is C64 else 1e150
    re, im = (ops.Clamp(-limit, part, limit) for part in (ops.Real(x), ops.Imag(x)))
    height = ops.Abs(im)
    angle = ops.Atan2(2.0 * re, (1.0 - height) * (1.0 + height) - re * re) * 0.5
    size = ops.Log1p(4.0 * height / (re * re + (1.0 - height) * (1.0 - height))) * 0.25
    return ops.Complex(angle, ops.Select(ops.Lt(im, 0.0), -size, size))


SPELLINGS: dict[str, Callable[[XlaOp], XlaOp]] = {elementwise.atan: _atan}
"""Opcodes of one operand that XLA 0.10 does not know, by which all know. Others that it does not know have no such words:
collective-reduce and shuffle."""


def for_other_readers(module: Module) -> Module:
    """The module in opcodes that all XLAs know, as far as there are such, without calls that stop gradients, which its header
    names, and without checks, of which it warns; itself where it is so."""
    return _rewritten(without_checks(module), lambda i: i.opcode in SPELLINGS or is_stop(i) or is_composite(i))


def without_checks(module: Module) -> Module:
    """The module without its checks of values. Warns, naming them."""
    found = dict.fromkeys(described(i) for c in module.computations for i in c.instructions if is_check(i))
    if not found:
        return module
    warnings.warn(f"{module.name}: only xla_torch runs checks of values; what is written here does not check "
                  + "; ".join(found), XlaWarning, stacklevel=3)
    return _rewritten(module, is_check)


def _rewritten(module: Module, is_other: Callable[[Instruction], bool]) -> Module:
    """The module with these instructions spelled in other ops, or left out where they are checks."""
    changed: dict[int, Computation] = {}
    for computation in module.computations:
        if any(is_other(i) or _calls_changed(i, changed) for i in computation.instructions):
            changed[id(computation)] = _respelled(computation, changed)
    if not changed:
        return module
    entry = changed.get(id(module.entry), module.entry)
    unreachable = [changed.get(id(c), c) for c in module.unreachable]
    return Module(module.name, entry, module.header, module.tables, unreachable)


def _calls_changed(instruction: Instruction, changed: dict[int, Computation]) -> bool:
    return any(id(c) in changed for c in instruction.called_computations)


def _respelled(computation: Computation, changed: dict[int, Computation]) -> Computation:
    built: list[Instruction] = []
    now: dict[Instruction, Instruction] = {}
    for old in computation.instructions:
        if is_check(old):
            continue
        operands = [now[o] for o in old.operands]
        if is_stop(old):
            now[old] = operands[0]
            continue
        if old.opcode in SPELLINGS:
            built += _spelled(old, operands[0])
        elif is_composite(old):
            built.append(as_call(old, operands))
        else:
            attributes = {name: _current(value, changed) for name, value in old.attributes.items()}
            built.append(Instruction(old.opcode, old.shape, operands, attributes, old.name, old.common, old.line, old.column))
        now[old] = built[-1]
        if "control_predecessors" in old.common:
            built[-1].common = old.common | {"control_predecessors": [now[p] for p in old.common["control_predecessors"]]}
    return Computation(computation.name, built, now[computation.root], computation.execution_thread)


def _current(value: Any, changed: dict[int, Computation]) -> Any:
    """An attribute with the computations that took the place of others."""
    if isinstance(value, Computation):
        return changed.get(id(value), value)
    return tuple(_current(part, changed) for part in value) if isinstance(value, tuple) and value else value


def _spelled(old: Instruction, operand: Instruction) -> list[Instruction]:
    """The instructions that do what one does; the last has its name."""
    builder = Builder(old.opcode)
    x = builder.parameter(0, operand.shape.without_layout())
    root = SPELLINGS[old.opcode](x).instruction
    new = builder.instructions[1:]
    for instruction in new:
        instruction.operands = tuple(operand if o is x.instruction else o for o in instruction.operands)
        if instruction.shape.dimensions == old.shape.dimensions:
            instruction.shape = old.shape.with_element_type(instruction.shape.element_type)
    root.name, root.common, root.line, root.column = old.name, old.common, old.line, old.column
    return new
