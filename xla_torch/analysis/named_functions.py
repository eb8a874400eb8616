"""Functions of which a program shows only what they are called: by the ops alone they could be another.

``max(x, 0)`` is the maximum of x and 0, of which both have half a share where they are equal, or `relu`, of which everybody who
writes it says that it has no slope at 0. The ops are the same; but frontends leave names: of functions that are called, and in
the metadata of ops. So an instruction is a part of `relu` if that name stands with it, and its ops are those of `relu`.
"""

from __future__ import annotations

import re

from ..hlo.ir import Computation, Instruction

CLIPPED = frozenset({"relu", "relu6"})
"""Functions made of max and min that have no slope at the ends of their range: JAX's custom_jvp, TensorFlow's gradient and
torch's derivative say so."""

_IN_JAX = re.compile(r"\bp?jit\((\w+)\)+/[\w\-]+\)*$")
"""The innermost function in the name of an op of JAX: ``jit(f)/vmap(jit(relu))/max``."""
_OP_TYPES = {"Relu": "relu", "Relu6": "relu6", "aten__relu": "relu"}
"""What TensorFlow and torch_xla write as ``op_type``."""
_COPY = re.compile(r"(\w+?)(?:_\d+)?(?:\.[\w.\-]*)?")
"""A function's name among those of its copies: ``relu_1.clone.2``."""


def clipped_part(instruction: Instruction) -> str:
    """The function of `CLIPPED` in which an instruction says that it stands, "" if it does not."""
    metadata = instruction.common.get("metadata")
    if not metadata:
        return ""
    traced = _IN_JAX.search(instruction.op_name)
    name = traced[1] if traced is not None else _OP_TYPES.get(metadata.get("op_type", ""), "")
    return name if name in CLIPPED else ""


def is_merged_clamp(instruction: Instruction) -> bool:
    """Whether a clamp says that it was max and min, which share a cotangent where they tie, before a compiler merged them.
    (A clamp of JAX's own is called so, and gives nothing to the operand at its ends; nor does `relu6`.)"""
    return instruction.op_name.endswith(("/min", "/max")) and not clipped_part(instruction)


def say_where_from(instructions: list[Instruction], computation: Computation) -> None:
    """Note with instructions that were copied out of a computation that is called which function that was, where it is of
    `CLIPPED`: the call is gone, and the name with it. Names of ops that have a path already say where they are from, and what
    such a function calls is another one's."""
    name = _COPY.fullmatch(computation.name)
    if name is None or name[1] not in CLIPPED or any(i.called_computations for i in computation.instructions):
        return
    for each in instructions:
        if "/" not in each.op_name:
            path = f"jit({name[1]})/{each.op_name or each.opcode}"
            each.common = each.common | {"metadata": {**each.common.get("metadata", {}), "op_name": path}}
