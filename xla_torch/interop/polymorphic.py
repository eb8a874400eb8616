"""StableHLO programs whose sizes are known only when they are called (``tensor<?x5xf32>``, as jax.export writes them).

XLA runs static shapes. At a call the argument shapes are known, and XLA's own shape refinement, which `jaxlib` brings
along, makes a static program of them. Sizes, paddings and the like may also depend on integers among the arguments: on
scalars (jax.export passes symbolic dimensions so) or short arrays. Their values then become part of the program.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func, stablehlo

from ..computation import XlaComputation
from ..errors import HloSyntaxError, InvalidArgument
from ..lowering import numerics
from ..types import type_from_torch
from .modules import bytecode, new_context, operations, parse
from .stablehlo import load_stablehlo, refine_shapes

Argument = torch.Tensor | np.ndarray
_Facts = tuple[tuple[int, ...], bytes | None]


class PolymorphicComputation:
    """A program for arguments of many shapes. Each combination of shapes becomes an XlaComputation, made on first use and
    kept (the last 128 of them). Call it like one; `specialised` gives the XlaComputation, to differentiate or to print."""

    def __init__(self, program: str | bytes):
        self._program = program
        self._values_of_rank = -1  # the highest rank of arguments whose values make sizes
        self._computation = functools.lru_cache(maxsize=128)(self._make)

    def specialised(self, *arguments: Argument) -> XlaComputation:
        """The static program for arguments of these shapes (and, where sizes depend on them, integers of these
        values). Takes the same arguments as this program. Raises InvalidArgument where the shapes do not fit it."""
        first = self._values_of_rank
        ranks = [first, *(r for r in range(first + 1, 3) if any(a.ndim == r and _value(a, r) for a in arguments))]
        return self._specialised(arguments, ranks)

    def _specialised(self, arguments: Sequence[Argument], ranks: Sequence[int]) -> XlaComputation:
        """With the values of integers up to the first of these ranks or, where that does not do, the next."""
        try:
            computation = self._computation(tuple((tuple(a.shape), _value(a, ranks[0])) for a in arguments))
        except (InvalidArgument, HloSyntaxError):
            if len(ranks) == 1:
                raise
            return self._specialised(arguments, ranks[1:])
        # Remembered, because reading a value waits for the device and each value makes another program.
        self._values_of_rank = ranks[0]
        return computation

    def __call__(self, *arguments: torch.Tensor) -> Any:
        """Run on torch tensors; see `XlaComputation`."""
        return self.specialised(*arguments)(*arguments)

    def run_numpy(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        """Run on NumPy arrays; see `XlaComputation.run_numpy`."""
        arrays = tuple(map(np.asarray, arrays))
        return self.specialised(*arrays).run_numpy(*arrays)

    def _make(self, facts: Sequence[_Facts]) -> XlaComputation:
        from ..loading import parse_hlo

        program = specialise(self._program, facts)
        try:
            return parse_hlo(load_stablehlo(refine_shapes(program)))
        except (InvalidArgument, HloSyntaxError) as refused:
            # A few ops keep unknown sizes whatever is known of their operands; some of them run nevertheless.
            try:
                return parse_hlo(load_stablehlo(refine_shapes(program, strict=False), unknown_sizes=True))
            except (InvalidArgument, HloSyntaxError):
                raise refused from None


_SHORT = 64
"""The most elements of an argument that may hold sizes."""


def _value(argument: Argument, rank: int) -> bytes | None:
    """The bytes of a short integer array of at most this rank, None for anything else."""
    if argument.ndim > rank or math.prod(argument.shape) > _SHORT:
        return None
    if isinstance(argument, torch.Tensor):
        kind = type_from_torch(argument.dtype)
        if kind is None or not kind.is_integral:
            return None
        argument = numerics.numpy_from_carrier(numerics.to_carrier(argument, kind), kind)
    return argument.tobytes() if argument.dtype.kind in "iu" else None


def specialise(program: str | bytes, facts: Sequence[_Facts]) -> bytes:
    """The program as StableHLO bytecode whose main function has static parameters, from which all else follows."""
    with new_context() as context, ir.Location.unknown():
        module = parse(program, context)
        main: Any = next(o for o in module.body.operations if ir.StringAttr(o.attributes["sym_name"]).value == "main")
        main.attributes["sym_name"] = ir.StringAttr.get("_main")
        main.attributes["sym_visibility"] = ir.StringAttr.get("private")
        declared = list(main.type.inputs)
        if len(declared) != len(facts):
            raise InvalidArgument("wrong number of arguments", got=len(facts), expected=f"{len(declared)}: {main.type}")
        static = [ir.RankedTensorType.get(dims, t.element_type) for t, (dims, _) in zip(declared, facts, strict=True)]
        with ir.InsertionPoint(module.body):
            entry = func.FuncOp("main", (static, main.type.results), visibility="public")
        block = entry.add_entry_block()
        with ir.InsertionPoint(block):
            values = []
            for wanted, have, (dims, value), parameter in zip(declared, static, facts, block.arguments, strict=True):
                if value is not None:
                    bits: Any = np.frombuffer(value, f"i{len(value) // max(1, math.prod(dims))}")
                    number = ir.DenseElementsAttr.get(bits, type=have.element_type, shape=have.shape)
                    parameter = stablehlo.ConstantOp(number).result
                elif wanted != have:
                    parameter = stablehlo.ConvertOp(wanted, parameter).result
                values.append(parameter)
            func.ReturnOp(func.CallOp(main.type.results, ir.FlatSymbolRefAttr.get("_main"), values).results)
        _clamp_slices(module)
        return bytecode(module)


def _clamp_slices(module: Any) -> None:
    """Let slices of unknown bounds (``real_dynamic_slice``) that reach out of their operand begin where they still fit, as
    dynamic-slice does. The specification leaves open what they do; what JAX has written so relies on it."""
    for slicing in operations(module):
        if slicing.name != "stablehlo.real_dynamic_slice":
            continue
        operand, start, limit, _ = slicing.operands
        with slicing.location, ir.InsertionPoint(slicing):
            size = stablehlo.subtract(limit, start)
            last = stablehlo.subtract(_sizes(operand, start.type), size)
            zeros = stablehlo.subtract(start, start)
            slicing.operands[1] = stablehlo.clamp(zeros, start, last)
            slicing.operands[2] = stablehlo.add(slicing.operands[1], size)


def _sizes(operand: Any, to: Any) -> Any:
    """The dimensions of an array as a vector of type `to`."""
    scalar, one = ir.RankedTensorType.get([], to.element_type), ir.RankedTensorType.get([1], to.element_type)
    sizes = [stablehlo.convert(scalar, stablehlo.get_dimension_size(operand, d)) for d in range(operand.type.rank)]
    return stablehlo.concatenate([stablehlo.reshape(one, size) for size in sizes], 0)
