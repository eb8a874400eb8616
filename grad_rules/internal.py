"""Gradients of ops that appear in compiled programs only: most are the identity. Custom calls bring their own rule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xla_torch.builder import XlaBuilder, XlaOp
from xla_torch.errors import DifferentiationError
from xla_torch.hlo.ir import Instruction
from xla_torch.interop.custom_calls import is_vjp_target, why_no_gradient
from xla_torch.interop.tapes import is_tape_call
from xla_torch.ops import CustomCallVjp, GetTupleElement, Tuple
from xla_torch.shape import Shape

from ._calculus import inverse, reshape, transpose, zeros
from ._table import linear, vjp
from ._user import apply_target_rule, target_rule

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
    """The user's rule for the target; else another custom call, which knows what `register_custom_call` was told, or goes
    by torch's autograd through the target's function. Tapes know themselves."""
    rule = target_rule(custom_call_target)
    if rule is not None:
        return apply_target_rule(rule, _whole(out, ct), out, operands, inst)
    if is_tape_call(inst):
        from xla_torch.autodiff import tape  # which is written in rules itself

        return tape.pull(inst, ct, operands)
    refused = why_no_gradient(custom_call_target)
    if refused is not None:
        raise DifferentiationError(f"this custom call has no gradient: {refused[0]}", got=custom_call_target, hint=refused[1])
    builder = next(_leaves(operands)).builder
    if is_vjp_target(custom_call_target) and not any(_flags(operands[0], wanted[0])):
        # A gradient is linear in its cotangents: if only they move, it does not matter what they are. So tangents are found.
        operands = (operands[0], _zeros(operands[1]))
    flags = [flag for operand, part in zip(operands, wanted, strict=True) for flag in _flags(operand, part)]
    found = CustomCallVjp([_packed(builder, o) for o in operands], list(_cotangents(ct, inst.shape)), flags,
                          custom_call_target, str(inst.common.get("backend_config", "")))
    parts = iter([GetTupleElement(found, k) for k in range(len(found.shape.tuple_shapes))])
    return [_distributed(operand, part, parts) for operand, part in zip(operands, wanted, strict=True)]


def _zeros(value: Any) -> Any:
    return zeros(value) if isinstance(value, XlaOp) else tuple(map(_zeros, value))


def _whole(out: Any, ct: Any) -> Any:
    """The cotangent of a result with zeros where there is none."""
    if isinstance(out, XlaOp):
        return zeros(out) if ct is None else ct
    return tuple(_whole(o, c) for o, c in zip(out, ct or (None,) * len(out), strict=True))


def _leaves(value: Any) -> Iterator[XlaOp]:
    if isinstance(value, XlaOp):
        yield value
    else:
        for part in value:
            yield from _leaves(part)


def _packed(builder: XlaBuilder, value: Any) -> XlaOp:
    """Nested Python tuples as one op."""
    return value if isinstance(value, XlaOp) else Tuple(builder, [_packed(builder, part) for part in value])


def _flags(operand: Any, wanted: Any) -> Iterator[bool]:
    """Of the floating and complex arrays in an operand, which are wanted."""
    if not isinstance(operand, XlaOp):
        for part, flag in zip(operand, wanted, strict=True):
            yield from _flags(part, flag)
    elif operand.element_type.is_differentiable:
        yield wanted


def _cotangents(ct: Any, shape: Shape) -> Iterator[XlaOp | None]:
    """The cotangents of all arrays in a result."""
    if shape.is_tuple:
        for part, inner in zip(ct or (None,) * len(shape.tuple_shapes), shape.tuple_shapes, strict=True):
            yield from _cotangents(part, inner)
    elif shape.is_array:
        yield ct


def _distributed(operand: Any, wanted: Any, parts: Iterator[XlaOp]) -> Any:
    """The next cotangents for an operand, in its own form."""
    if not isinstance(operand, XlaOp):
        return tuple(_distributed(part, flag, parts) for part, flag in zip(operand, wanted, strict=True))
    return next(parts) if wanted and operand.element_type.is_differentiable else None


vjp("custom-call", operands=_custom_call)
