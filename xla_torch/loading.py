"""Programs from files and text, whatever their form, and compiled callables."""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Callable
from typing import Any

import torch

from .computation import XlaComputation
from .errors import HloSyntaxError, InvalidArgument
from .hlo.parser import parse_hlo as parse_module
from .hlo.verifier import verify
from .lowering.emit import lower

_MLIR = re.compile(r"(?:\s|//[^\n]*\n)*(?:module(?: @| \{| attributes)|func\.func|#loc)")
"""How MLIR text begins, perhaps after comments."""


def load(path: str | os.PathLike[str], entry: str | None = None) -> XlaComputation:
    """A program from a file: HLO text (.hlo, .txt), StableHLO text or bytecode (.mlir, .mlirbc), HLO proto (.pb).

    The content decides, not the name. `entry` is the function to run of a StableHLO module, see `from_stablehlo`. Raises
    HloSyntaxError, InvalidArgument or UnsupportedError with the place in the file; StableHLO and protos need jaxlib
    (MissingDependency says what to install).
    """
    path = pathlib.Path(path)
    data = path.read_bytes()
    if data[:4] == b"ML\xefR" or path.suffix == ".mlirbc":
        return from_stablehlo(data, entry)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return from_hlo_proto(data)
    if path.suffix == ".pb":
        return from_hlo_proto(data)
    return from_stablehlo(text, entry) if _is_mlir(text, path) else parse_hlo(text, str(path))


def _is_mlir(text: str, path: pathlib.Path) -> bool:
    return path.suffix == ".mlir" or _MLIR.match(text) is not None


def parse_hlo(text: str, filename: str = "") -> XlaComputation:
    """A program from HLO text. Every instruction's shape is checked."""
    if not isinstance(text, str):
        raise InvalidArgument("HLO text must be a string", got=type(text).__name__)
    module = parse_module(text, filename)
    verify(module)
    return XlaComputation(module)


def from_stablehlo(program: str | bytes, entry: str | None = None) -> XlaComputation:
    """A program from StableHLO (or MHLO) text or bytecode, by XLA's own converter. Needs jaxlib.

    `entry` names the function to run; without it that is ``main``, or the only public function. Of a module with several
    and no ``main``, a mapping from names to computations is returned. Quantized parameters and results are arrays of their
    storage type. A program with dimensions of unknown size becomes a PolymorphicComputation, which is called in the same
    way; for everything else its `specialised` gives an XlaComputation. Raises HloSyntaxError for what XLA's reader refuses,
    InvalidArgument for an entry that does not exist.
    """
    from .interop.stablehlo import as_mlir, has_quantized_types, load_stablehlo, lost_promotions

    program, computation, refused = as_mlir(program), None, None
    try:
        if entry in (None, "main") and not has_quantized_types(program):
            computation = parse_hlo(load_stablehlo(program))
    except (HloSyntaxError, InvalidArgument) as error:
        refused = error
    if computation is not None and not lost_promotions(computation.module):
        return computation
    from .interop.rewriting import rewritten

    try:
        return rewritten(program, entry)  # pyright: ignore[reportReturnType]
    except HloSyntaxError as error:
        raise refused or error from None


def from_hlo_proto(data: bytes) -> XlaComputation:
    """A program from a serialized HloModuleProto (or an HloProto around one). Needs jaxlib."""
    from .interop.stablehlo import hlo_text_from_proto

    return parse_hlo(hlo_text_from_proto(data))


def compile(computation: XlaComputation, backend: str = "eager") -> Callable[..., Any]:
    """A callable for repeated runs. ``eager`` is the program itself; any other backend is one of torch.compile's
    (``inductor``), which fuses it. Raises InvalidArgument for something that is no computation."""
    if not isinstance(computation, XlaComputation):
        raise InvalidArgument("not a computation", subject="compile", got=type(computation).__name__)
    if backend == "eager":
        return computation
    compiled: dict[torch.device, Callable[..., Any]] = {}

    def call(*arguments: torch.Tensor) -> Any:
        device = arguments[0].device if arguments else torch.device("cpu")
        if torch.is_autocast_enabled(device.type):  # XLA's types are what the program says
            with torch.autocast(device.type, enabled=False):
                return call(*arguments)
        if device not in compiled:
            compiled[device] = torch.compile(lower(computation.prepared(), device, blocks=False), backend=backend)
        with torch.no_grad():
            return computation.unflatten(compiled[device](*arguments))

    return call
