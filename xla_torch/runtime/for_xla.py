"""A program as XLA itself can run it in one process: what it has to be, and what is refused before XLA is asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ..core.errors import UnsupportedError
from ..hlo.custom_calls import target_of
from ..hlo.inference import has_effect
from ..hlo.ir import Computation, Instruction, Module
from ..hlo.schema import schema_of
from ..opcodes.internal import custom_call

_KNOWN = re.compile(r"lapack_[sdcz]\w+_ffi|Qr|ProductOfElementaryHouseholderReflectors")
"""Custom calls that XLA has for the CPU, or that jaxlib brings."""


def module_for_xla(stated: Module, canonical: Callable[[], Computation], participants: Mapping[str, int]) -> Module:
    """The program as a module that is a function of its arguments: for one participant, without effects, and without custom calls
    that XLA does not know, which the canonical form may not have any more. Raises UnsupportedError, which names the instruction,
    for all others."""
    for name, count in participants.items():
        if count > 1:
            raise UnsupportedError("XLA runs a program for several participants on as many devices", subject=stated.name,
                                   got=f"{name}={count}", expected="a program of one",
                                   hint="use run_replicas or torchrun to run it in xla_torch")
    # Without the header: nothing is donated or laid out in another way than its callers have it.
    module = Module(stated.name, stated.entry, {}, stated.tables)
    if any(map(_is_foreign, _instructions(module))):
        module = Module(stated.name, canonical(), {})
    for instruction in _instructions(module):
        _check(instruction)
    return module


def _instructions(module: Module) -> list[Instruction]:
    return [i for c in module.computations for i in c.instructions]


def _is_foreign(instruction: Instruction) -> bool:
    return instruction.opcode == custom_call and not _KNOWN.fullmatch(target_of(instruction))


def _check(instruction: Instruction) -> None:
    labels = {"subject": instruction.subject, "where": instruction.where}
    if _is_foreign(instruction):
        raise UnsupportedError("a custom call that XLA does not know on the CPU", got=target_of(instruction), **labels,
                               hint="run it in xla_torch, if its target is registered")
    if schema_of(instruction.opcode).exchange:
        raise UnsupportedError("XLA runs a collective on several devices", expected="a program of one participant", **labels)
    if not instruction.is_parameter and has_effect(instruction):
        raise UnsupportedError("an instruction with an effect has no place in a function of JAX's or XLA's", **labels,
                               expected="a program that is a function of its arguments",
                               hint="draw random numbers from an explicit state (rng-bit-generator), which has no effects")
