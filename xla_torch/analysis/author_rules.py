"""Derivatives that the author of a program wrote and the program does not have, as far as it shows them.

JAX lowers what a function computes. Of `custom_jvp` and `custom_vjp` it leaves at most a part of some ops' names
(``jit(f)/custom_jvp_call``), and version 0.10 on few ops only; of `stop_gradient` it leaves no name. Sums that make no sense
without it show it: ``x + (q - x)`` is `q` with the gradient of `x`. So what is found is lost, but what is not found may be, too:
of programs that JAX wrote that is said, and of no others. Programs that this package wrote say in their header what they lost.
Nothing is said where somebody vouches for the derivatives of the ops: who reads the program (``derivatives="as written"``), or
the header, by ``frontend_attributes={xla_torch.derivatives="as written"}``. What is written of such a program
has that header.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..hlo.derivatives import AS_WRITTEN, AsWritten, Lost, brings, rules_of
from ..hlo.ir import Computation, Instruction, Module, reachable
from ..opcodes import elementwise

HEADER_MARK = "xla_torch.author_derivatives"
"""The module's frontend attribute that names rules which are not in the text."""

VOUCHED = {"xla_torch.derivatives": "as written"}
"""The module's frontend attribute which says that the derivatives of its ops are what its author meant."""

_TRACE = re.compile(r"(custom_jvp_call|custom_vjp_call|stop_gradient)")
_NAMES = re.compile(r"[\w.<>]+")
_JAX_MODULE = re.compile(r"(?:p?jit|pmap|xla_computation)_")
_HARMLESS = frozenset({"relu", "relu6", "silu", "swish", "softmax", "_softmax", "log_softmax", "logsumexp", "logaddexp",
                       "logaddexp2", "softplus", "gelu", "celu", "elu", "selu", "log_sigmoid"})
"""Functions of JAX's own whose rules say what their ops say, but perhaps at ties."""
_HINT = ('from_jax keeps them, and so does jax.export with vjp_order=1; where those of the ops are meant, read it with '
         'derivatives="as written"')
_PERHAPS = Lost((), hint=_HINT)


def lost_rules(module: Module) -> list[Lost]:
    """What the instructions and the header of a module show of rules that their author wrote, and what was noted with its
    computations when they were read; each rule once. Computations that bring derivatives, or have those of their ops, have lost
    nothing."""
    if isinstance(module.entry.derivatives, AsWritten):
        return []
    marked, found = _marked(module), []
    if marked:  # names them all
        return [Lost(tuple(marked), "the module's header", _HINT)]
    for computation in _without_derivatives(module):
        found += _shown(computation)
        if isinstance(computation.derivatives, Lost):
            found.append(computation.derivatives)
    named: dict[str, Lost] = {}
    for one in found:
        for rule in one.rules:
            named.setdefault(rule, one)
    unnamed = [lost for lost in found if not lost.rules]
    return list(dict.fromkeys(named.values())) or unnamed[:1]


def note_author(module: Module, as_written: bool = False) -> Module:
    """Note with a module that was read that the derivatives of its ops are meant, if its header or who reads it says so; or else
    that rules may be lost, if JAX wrote it. The module."""
    if as_written or VOUCHED.items() <= module.header.get("frontend_attributes", {}).items():
        module.entry.derivatives = AS_WRITTEN
    elif module.entry.derivatives is None and _JAX_MODULE.match(module.name):
        module.entry.derivatives = _PERHAPS
    return module


def stated(module: Module, by_calls: Computation | None = None) -> Module:
    """The module for printing: with what its text does not say in its header, that the derivatives of its ops are meant, or the
    rules that its computations, or those that it was made of, bring. Itself where there are none."""
    made_of = reachable([by_calls]) if by_calls is not None else []
    brought = [rule for c in (*module.computations, *made_of) for rule in rules_of(c.derivatives)]
    rules = list(dict.fromkeys([*_marked(module), *brought]))
    given = module.header.get("frontend_attributes", {})
    attributes = given | ({HEADER_MARK: ", ".join(rules)} if rules else {})
    if isinstance(module.entry.derivatives, AsWritten):
        attributes |= VOUCHED
    if attributes == given:
        return module
    return Module(module.name, module.entry, module.header | {"frontend_attributes": attributes}, module.tables,
                  module.unreachable)


def _without_derivatives(module: Module) -> list[Computation]:
    """The computations that run apart from those that bring derivatives or have those of their ops, the entry first."""
    found = {id(module.entry): module.entry}
    pending = [module.entry]
    while pending:
        for called in (c for i in pending.pop().instructions for c in i.called_computations):
            if id(called) not in found and not brings(called) and not isinstance(called.derivatives, AsWritten):
                found[id(called)] = called
                pending.append(called)
    return list(found.values())


def _marked(module: Module) -> list[str]:
    text = module.header.get("frontend_attributes", {}).get(HEADER_MARK, "")
    return [rule for rule in text.split(", ") if rule]


def _shown(computation: Computation) -> Iterator[Lost]:
    for instruction in computation.instructions:
        trace = _TRACE.search(instruction.op_name)
        if trace is not None and not _HARMLESS.intersection(_NAMES.findall(instruction.op_name)):
            yield Lost((trace[1].removesuffix("_call"),), instruction.op_name, _HINT)
        elif _is_straight_through(instruction):
            yield Lost(("stop_gradient",), f"{instruction.subject}: a sum x + (y - x), as straight-through estimators have",
                       _HINT, sure=False)


def _is_straight_through(instruction: Instruction) -> bool:
    """Whether it is ``x + (y - x)``, which is `y` but for what `stop_gradient` says."""
    if instruction.opcode != elementwise.add:
        return False
    one, other = instruction.operands
    return any(d.opcode == elementwise.subtract and d.operands[1] is x and d.operands[0] is not x
               for d, x in ((one, other), (other, one)))
