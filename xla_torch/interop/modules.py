"""StableHLO programs as MLIR modules, by the MLIR bindings of `jaxlib`: reading, writing, looking into.

For what has to be seen to before XLA's converter takes a program. Needs jaxlib, so it is imported only where a program
asks for it.
"""

from __future__ import annotations

import functools
import io
import re
from typing import Any

from jaxlib import _jax  # pyright: ignore[reportAttributeAccessIssue]
from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo, mhlo, sdy, stablehlo

from ..errors import HloSyntaxError


def new_context() -> Any:
    """An MLIR context that knows StableHLO, what stands beside it (shardings by Shardy), and quantized types."""
    context, dialects = ir.Context(), ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(dialects)
    context.append_dialect_registry(dialects)
    context.load_all_available_dialects()
    for dialect in (stablehlo, chlo, sdy):
        dialect.register_dialect(context)
    mhlo.register_mhlo_dialect(context)
    # The dialect of quantized types has no name in these bindings, but reading an artifact loads it.
    stablehlo.deserialize_portable_artifact(context, _empty_artifact())
    return context


@functools.cache
def _empty_artifact() -> bytes:
    return _jax.mlir.serialize_portable_artifact("module {}", stablehlo.get_current_version())


def parse(program: str | bytes, context: Any) -> Any:
    """The MLIR module of StableHLO text, MLIR bytecode, or a portable artifact (VHLO). Raises HloSyntaxError."""
    try:
        if isinstance(program, bytes) and b"StableHLO_v" in program[:32]:
            return stablehlo.deserialize_portable_artifact(context, program)
        return ir.Module.parse(program, context)
    except (ir.MLIRError, ValueError) as error:
        raise _refused(str(error)) from None


def _refused(message: str) -> HloSyntaxError:
    """The first error of MLIR in the house form, with the position where it gives one."""
    found = re.search(r'error: (?:"[^"]*":(\d+):(\d+): )?(.*)', message)
    if found is None or found[1] is None:
        return HloSyntaxError("not an MLIR module", subject="StableHLO", got=found[3] if found else message)
    error = HloSyntaxError(found[3], subject="StableHLO", where=f"line {found[1]}, column {found[2]}")
    error.line, error.column = int(found[1]), int(found[2])
    return error


def bytecode(module: Any) -> bytes:
    """A module as MLIR bytecode, which the converter reads."""
    written = io.BytesIO()
    module.operation.write_bytecode(written)
    return written.getvalue()


def operations(module: Any) -> list[Any]:
    """All operations of a module, those in regions before the ones that have the regions."""
    found: list[Any] = []

    def visit(operation: Any) -> Any:
        found.append(operation.operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def has_unknown_sizes(module: Any) -> bool:
    """Whether any value has dimensions of unknown size (``?``), or an op takes sizes or the like as operands."""
    for operation in operations(module):
        if operation.name.startswith(("stablehlo.dynamic_", "stablehlo.real_dynamic_")):
            return True
        types = [v.type for v in (*operation.operands, *operation.results)]
        if any(isinstance(t, ir.RankedTensorType) and not t.has_static_shape for t in types):
            return True
    return False
