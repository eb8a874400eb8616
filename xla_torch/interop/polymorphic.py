"""StableHLO programs whose sizes are known only when they are called (``tensor<?x5xf32>``, as jax.export writes them).

XLA runs static shapes. At a call the argument shapes are known, and XLA's own shape refinement, which `jaxlib` brings
along, makes a static program of them; sizes may also depend on integer scalars among the arguments (jax.export passes
symbolic dimensions so), whose values then become part of the program.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..computation import XlaComputation
from ..errors import HloSyntaxError, InvalidArgument
from ..lowering import numerics
from ..types import type_from_torch
from .stablehlo import load_stablehlo, refine_shapes

Argument = torch.Tensor | np.ndarray
_Facts = tuple[tuple[int, ...], bytes | None]


class PolymorphicComputation:
    """A program for arguments of many shapes. Each combination of shapes becomes an XlaComputation, made on first use and
    kept (the last 128 of them). Call it like one; `specialised` gives the XlaComputation, to differentiate or to print."""

    def __init__(self, program: str | bytes):
        self._program = program
        self._sizes_from_values = False
        self._computation = functools.lru_cache(maxsize=128)(self._make)

    def specialised(self, *arguments: Argument) -> XlaComputation:
        """The static program for arguments of these shapes (and, where sizes depend on them, integer scalars of these
        values). Takes the same arguments as this program. Raises InvalidArgument where the shapes do not fit it."""
        if not self._sizes_from_values:
            try:
                return self._computation(tuple((tuple(a.shape), None) for a in arguments))
            except (InvalidArgument, HloSyntaxError):
                if all(_value(a) is None for a in arguments):
                    raise
                # Remembered, because reading a value waits for the device and each value makes another program.
                self._sizes_from_values = True
        return self._computation(tuple((tuple(a.shape), _value(a)) for a in arguments))

    def __call__(self, *arguments: torch.Tensor) -> Any:
        """Run on torch tensors; see `XlaComputation`."""
        return self.specialised(*arguments)(*arguments)

    def run_numpy(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        """Run on NumPy arrays; see `XlaComputation.run_numpy`."""
        arrays = tuple(map(np.asarray, arrays))
        return self.specialised(*arrays).run_numpy(*arrays)

    def _make(self, facts: Sequence[_Facts]) -> XlaComputation:
        from ..loading import parse_hlo

        return parse_hlo(load_stablehlo(specialise(self._program, facts)))


def _value(argument: Argument) -> bytes | None:
    """The bytes of an integer scalar, None for anything else."""
    if argument.ndim:
        return None
    if isinstance(argument, torch.Tensor):
        kind = type_from_torch(argument.dtype)
        if kind is None or not kind.is_integral:
            return None
        argument = numerics.numpy_from_carrier(numerics.to_carrier(argument, kind), kind)
    return argument.tobytes() if argument.dtype.kind in "iu" else None


def specialise(program: str | bytes, facts: Sequence[_Facts]) -> bytes:
    """The program as static StableHLO bytecode: its main function is called from a new one with static parameters."""
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import func, stablehlo

    with _context(), ir.Location.unknown():
        module = ir.Module.parse(program)
        main: Any = next(o for o in module.body.operations if ir.StringAttr(o.attributes["sym_name"]).value == "main")
        main.attributes["sym_name"] = ir.StringAttr.get("_main")
        main.attributes["sym_visibility"] = ir.StringAttr.get("private")
        declared = [ir.RankedTensorType(t) for t in main.type.inputs]
        if len(declared) != len(facts):
            raise InvalidArgument("wrong number of arguments", got=len(facts), expected=f"{len(declared)}: {main.type}")
        static = [ir.RankedTensorType.get(dims, t.element_type) for t, (dims, _) in zip(declared, facts, strict=True)]
        with ir.InsertionPoint(module.body):
            entry = func.FuncOp("main", (static, main.type.results), visibility="public")
        block = entry.add_entry_block()
        with ir.InsertionPoint(block):
            values = []
            for wanted, have, (_, value), parameter in zip(declared, static, facts, block.arguments, strict=True):
                if value is not None:
                    bits: Any = np.frombuffer(value, f"i{len(value)}")
                    number = ir.DenseElementsAttr.get(bits, type=have.element_type, shape=[])
                    parameter = stablehlo.ConstantOp(number).result
                elif wanted != have:
                    parameter = stablehlo.ConvertOp(wanted, parameter).result
                values.append(parameter)
            func.ReturnOp(func.CallOp(main.type.results, ir.FlatSymbolRefAttr.get("_main"), values).results)
        written = io.BytesIO()
        module.operation.write_bytecode(written)
    return refine_shapes(written.getvalue())


def _context() -> Any:
    """An MLIR context that knows StableHLO and what stands beside it."""
    from jaxlib.mlir import ir
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext
    from jaxlib.mlir.dialects import chlo, stablehlo

    context, dialects = ir.Context(), ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(dialects)
    context.append_dialect_registry(dialects)
    context.load_all_available_dialects()
    stablehlo.register_dialect(context)
    chlo.register_dialect(context)
    return context
