"""Programs in StableHLO, whatever holds them, as operations: text, bytecode, and objects of JAX and of MLIR's bindings.

Such objects are known by what they can do, so that neither jax nor jaxlib is asked for.
"""

from __future__ import annotations

import io
import re
from typing import Any

from ..core.errors import HloSyntaxError, InvalidArgument
from ..hlo.cut_text import CutText
from ..mlir.bytecode.cursor import MAGIC
from ..mlir.bytecode.parser import parse as parse_bytecode
from ..mlir.ir import Operation
from ..mlir.text.parser import parse as parse_text

_HLO = re.compile(r"\s*(?:HloModule\b|ENTRY\b)")


def read_mlir(program: Any, filename: str = "", cuts: CutText | None = None) -> Operation:
    """The ``builtin.module`` of StableHLO text or bytecode, of a ``jax.export.Exported``, a ``jax.stages.Lowered`` or a module
    of MLIR's Python bindings.

    Raises HloSyntaxError for text and bytes that are no MLIR, InvalidArgument for other objects and for HLO. `cuts` is what was
    cut out of a text.
    """
    program = _plain(program)
    if isinstance(program, str):
        return _from_text(program, filename, cuts)
    if program.startswith(MAGIC):
        return parse_bytecode(program)
    try:
        return _from_text(program.decode(), filename)
    except UnicodeDecodeError as error:
        raise HloSyntaxError("neither MLIR bytecode nor text", subject="StableHLO", got=f"bytes that begin with {program[:8]!r}",
                             expected=f"{MAGIC!r} or UTF-8 text", where=f"byte {error.start}") from None


def _from_text(text: str, filename: str, cuts: CutText | None = None) -> Operation:
    if _HLO.match(text):
        raise InvalidArgument("this is HLO text, not StableHLO", got=repr(text[:1000].strip()[:40]),
                              hint="use xla_torch.parse_hlo")
    return parse_text(text, filename, cuts)


def _plain(program: Any) -> str | bytes:
    """Text or bytes of whatever holds a program."""
    if isinstance(program, str):
        return program
    if isinstance(program, bytes | bytearray | memoryview):
        return bytes(program)
    serialized = getattr(program, "mlir_module_serialized", None)  # jax.export.Exported
    if isinstance(serialized, bytes):
        return serialized
    if hasattr(program, "compiler_ir"):  # jax.stages.Lowered
        program = program.compiler_ir("stablehlo")
    operation = getattr(program, "operation", None)  # a module of the bindings
    if operation is not None and hasattr(operation, "write_bytecode"):
        written = io.BytesIO()
        operation.write_bytecode(written)
        return written.getvalue()
    raise InvalidArgument("not a StableHLO program", got=type(program).__name__,
                          expected="text, bytecode, or an object of jax.export, jax.stages or MLIR's bindings")
