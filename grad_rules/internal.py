"""Gradients of ops that appear in compiled programs only: most are the identity. Custom calls bring their own rule."""

from __future__ import annotations

import itertools
from typing import Any

from grad_rules._calculus import inverse, reshape, transpose, zeros
from grad_rules._stacks import pull
from grad_rules._table import linear, vjp
from grad_rules._user import apply_target_rule
from grad_rules.lapack import Call, RoutineRule, rule_of
from xla_torch.core.errors import DifferentiationError
from xla_torch.core.shape import Shape
from xla_torch.functions import CustomCallVjp, GetTupleElement, Tuple
from xla_torch.functions.hlo_builder import Builder, XlaOp
from xla_torch.hlo import tree
from xla_torch.hlo.custom_calls import is_vjp_target, registered, why_no_gradient
from xla_torch.hlo.gradient_changes import target_rule
from xla_torch.hlo.ir import Instruction
from xla_torch.hlo.stacks import is_stack_call

# ------------------------------------------------------------------------------------------------------ identities


def _through_memory(ct: XlaOp, inst: Instruction) -> XlaOp | None:
    """bitcast reads the operand's memory by the result's layout, so the way back goes through both memory orders."""
    source, result = inst.operands[0].shape, inst.shape
    if source.element_type is not result.element_type:
        return None
    to_memory, from_memory = result.minor_to_major[::-1], source.minor_to_major[::-1]
    in_memory = reshape(transpose(ct, to_memory), [source.dimensions[d] for d in from_memory])
    return transpose(in_memory, inverse(from_memory))


linear("bitcast", operand=_through_memory)

linear("add-dependency", operand=lambda ct: ct)
linear("domain", operand=lambda ct: ct)
linear("opt-barrier", operand=lambda ct: ct)
linear("copy-start", operand=lambda ct: ct[0] if ct[1] is None else ct[1] if ct[0] is None else ct[0] + ct[1])
linear("copy-done", operand=lambda ct, inst: (ct, *(None,) * (len(inst.operands[0].shape.tuple_shapes) - 1)))


# ---------------------------------------------------------------------------------------------------- custom calls


def _custom_call(ct: Any, out: Any, operands: tuple[Any, ...], inst: Instruction, custom_call_target: str,
                 wanted: tuple[Any, ...]) -> list[Any]:
    """The user's rule for the target, or the formula of a routine; else another custom call, which knows what
    `register_custom_call` was told, or goes by torch's autograd through the target's function. Stacks know themselves."""
    rule = target_rule(custom_call_target)
    if rule is not None:
        return apply_target_rule(rule, _whole(out, ct, inst.shape), out, operands, inst)
    if is_stack_call(inst):
        return pull(inst, ct, operands)
    refused = why_no_gradient(custom_call_target)
    if refused is not None:
        raise DifferentiationError(f"this custom call has no gradient: {refused[0]}", got=custom_call_target, hint=refused[1])
    function = registered(custom_call_target)
    routine = rule_of(inst) if function is None else None
    if routine is None:
        result = _packed(_builder_of(operands, inst), out) if function is not None and function.vjp is not None else None
        return _by_another_call(ct, operands, inst, custom_call_target, wanted, result)
    return _by_formula(routine, ct, out, operands, inst, custom_call_target, wanted)


def _by_formula(routine: RoutineRule, ct: Any, out: Any, operands: tuple[XlaOp, ...], inst: Instruction, target: str,
                wanted: tuple[Any, ...]) -> list[Any]:
    """What a routine's formula says, and for the results that it does not know, which hardly anybody reads, another call."""
    results, cts = (out, ct) if inst.shape.is_tuple else ((out,), (ct,))
    known = [c if k in routine.results else None for k, c in enumerate(cts)]
    rest = [None if k in routine.results else c for k, c in enumerate(cts)]
    found = list(routine.rule(Call(inst, operands, results, known)))
    if all(c is None for c in rest):
        return found
    others = _by_another_call(tuple(rest), operands, inst, target, wanted)
    return [b if a is None else a if b is None else a + b for a, b in zip(found, others, strict=True)]


def _by_another_call(ct: Any, operands: tuple[Any, ...], inst: Instruction, custom_call_target: str,
                     wanted: tuple[Any, ...], result: XlaOp | None = None) -> list[Any]:
    """The custom call that is the gradient of a target."""
    shapes = [o.shape for o in inst.operands]
    builder = _builder_of(operands, inst)
    flags = [[flag for flag, own in tree.leaves(part, shape) if own.element_type.is_differentiable]
             for part, shape in zip(wanted, shapes, strict=True)]
    if is_vjp_target(custom_call_target) and not any(flags[0]) and not any(itertools.chain(*flags[2:])):
        # A gradient is linear in its cotangents: if only they move, it does not matter what they are. So tangents are found.
        operands = (operands[0], tree.mapped(lambda _, leaf: zeros(leaf), shapes[1], operands[1]), *operands[2:])
    cotangents = [leaf for leaf, _ in tree.arrays(tree.filled(ct, inst.shape), inst.shape)]
    found = CustomCallVjp([_packed(builder, o) for o in operands], cotangents, list(itertools.chain(*flags)),
                          custom_call_target, str(inst.common.get("backend_config", "")), result)
    parts = iter([GetTupleElement(found, k) for k in range(len(found.shape.tuple_shapes))])
    return [tree.mapped(lambda own, flag: next(parts) if flag and own.element_type.is_differentiable else None, shape, part)
            for part, shape in zip(wanted, shapes, strict=True)]


def _whole(out: Any, ct: Any, shape: Shape) -> Any:
    """The cotangent of a result with zeros where there is none."""
    return tree.mapped(lambda _, o, c: zeros(o) if c is None else c, shape, out, tree.filled(ct, shape))


def _builder_of(operands: tuple[Any, ...], inst: Instruction) -> Builder:
    return next(leaf for value, o in zip(operands, inst.operands, strict=True) for leaf, _ in tree.leaves(value, o.shape)).builder


def _packed(builder: Builder, value: Any) -> XlaOp:
    """Nested Python tuples as one op."""
    return value if isinstance(value, XlaOp) else Tuple(builder, [_packed(builder, part) for part in value])


vjp("custom-call", operands=_custom_call)
