"""Programs from files and text, whatever their form."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from .. import api, jax_interop, mlir, proto, runtime, stablehlo
from ..analysis.author_rules import note_author
from ..core.budget import running
from ..core.collection import put_off
from ..core.errors import CallbackLeftOut, HloSyntaxError, InvalidArgument, UnsupportedError, XlaError
from ..custom_calls import callbacks
from ..hlo.cut_text import CutText, cut_text
from ..hlo.derivatives import AS_WRITTEN, Vouched, vouched
from ..hlo.ir import Module
from ..hlo.literals.text import LARGE_LITERALS as LARGE_HLO
from ..hlo.memory import mapped, unmapped
from ..jax_interop.flatbuffer import is_exported
from ..jax_interop.recognition import Form, form_of_text, recognise
from ..mlir.bytecode.cursor import MAGIC
from ..opcodes.front import parse_module, verify
from ..runtime.computation import XlaComputation
from ..runtime.static import StaticComputation
from .custom_calls import register_callback

T = TypeVar("T")


@put_off()
def load(path: str | os.PathLike[str], entry: str | None = None, *, derivatives: Vouched = None) -> XlaComputation:
    """Load a program from a file in any format that xla_torch reads.

    Formats are HLO text, MLIR text or bytecode (StableHLO, portable artifacts), HLO protos (a module, an HloProto or a
    snapshot) and files of jax.export. The content decides, not the name. `entry` is the function of a StableHLO module to run,
    see `from_stablehlo`.

    Most formats can't carry custom derivatives, so differentiation warns (LostDerivatives). ``derivatives="as written"``
    accepts the derivatives of the ops, or of the jax.export file, without a warning. Programs written from the result are
    marked so.

    Raises InvalidArgument, with the format it seems to be, for a file that holds no program. Raises HloSyntaxError,
    InvalidArgument or UnsupportedError, with the position, for an invalid program.

    >>> import pathlib
    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> length = pathlib.Path("square.hlo").write_text(square.to_hlo_text())
    >>> xla_torch.load("square.hlo")(torch.tensor([1.0, 2.0]))
    tensor([1., 4.])
    """
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidArgument("not the path of a file", subject="load", got=type(path).__name__,
                              expected="a text or a pathlib.Path",
                              hint="use parse_hlo, from_stablehlo or from_hlo_proto for programs in memory")
    as_written, name = vouched(derivatives, "load"), os.fspath(path)
    if os.path.isdir(name):
        raise InvalidArgument("this is a folder", subject=name, expected="a file", hint="python -m xla_torch show DIR lists what "
                              "is in a folder of --xla_dump_to")
    with mapped(path) as data:
        form = recognise(data, name)
        if form is Form.HLO_PROTO:
            return from_hlo_proto(data, derivatives=derivatives)
        if form is Form.HLO_TEXT:
            return _read_text(data, name, LARGE_HLO, lambda text, cuts: _parsed(text, name, as_written, cuts))
        return from_stablehlo(data, entry, name, derivatives=derivatives)


def _read_text(data: memoryview, name: str, large_literals: re.Pattern[bytes], read: Callable[[str, CutText | None], T]) -> T:
    """What `read` makes of a text, without holding large literals as text if that can be."""
    cut = cut_text(data, large_literals)
    if cut is not None:
        with contextlib.suppress(XlaError):  # which would be about the shortened text
            found = read(cut.text, cut)
            if cut.all_taken:
                return found
    return read(_decoded(data, name), None)


def _decoded(data: bytes | memoryview, name: str) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise HloSyntaxError("the text is not UTF-8", subject=name, got=f"{bytes(data[error.start:error.start + 8])!r}",
                             where=f"byte {error.start}") from None


@put_off()
def parse_hlo(text: str, filename: str = "", *, derivatives: Vouched = None) -> XlaComputation:
    """Parse HLO text into a program and check every instruction's shape.

    `derivatives` is as in `load`.

    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> square(torch.tensor([1.0, 2.0]))
    tensor([1., 4.])
    """
    as_written = vouched(derivatives, "parse_hlo")
    if not isinstance(text, str):
        raise _wrong_kind("HLO text must be a string", text, Form.HLO_TEXT)
    return _parsed(text, filename, as_written)


def _parsed(text: str, filename: str, as_written: bool, cuts: CutText | None = None) -> XlaComputation:
    try:
        module = parse_module(text, filename, cuts)
    except HloSyntaxError:
        if form_of_text(text) is Form.MLIR_TEXT:
            raise InvalidArgument("this is MLIR, not HLO text", subject=filename, got=repr(text[:1000].strip()[:40]),
                                  hint="xla_torch.from_stablehlo reads it") from None
        raise
    verify(module)
    return computation_of(module, as_written)


@put_off()
def from_stablehlo(program: Any, entry: str | None = None, filename: str = "", *,
                   derivatives: Vouched = None) -> XlaComputation:
    """Load a program from StableHLO text or bytecode, which may contain CHLO and MHLO.

    `program` is text, bytes, a file of jax.export, a ``jax.export.Exported``, a ``jax.stages.Lowered``, or a module of MLIR's
    Python bindings. `entry` names the function to run; the default is ``main`` or else the only public function. A module with
    several public functions and no ``main`` returns a mapping from names to computations. So do several modules in one text, by
    name or number. Quantized parameters and results are arrays of their storage type.

    A jax.export file or object becomes a function over pytrees (`from_exported`). Other programs that JAX lowered have lost
    their custom derivatives. Differentiating them warns (LostDerivatives) unless `derivatives` accepts those of the ops, as in
    `load`. A program with dimensions of unknown size becomes a PolymorphicComputation, called in the same way; its
    `specialised` returns an XlaComputation.

    `filename` is for messages. Raises HloSyntaxError for invalid MLIR, and UnsupportedError for operations without an HLO
    equivalent. Raises InvalidArgument for other objects, for HLO, for a missing entry, and for operations that contradict their
    types.

    >>> text = '''func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
    ...   %y = stablehlo.multiply %x, %x : tensor<2xf32>
    ...   return %y : tensor<2xf32>
    ... }'''
    >>> xla_torch.from_stablehlo(text)(torch.tensor([1.0, 2.0]))
    tensor([1., 4.])
    """
    as_written = vouched(derivatives, "from_stablehlo")
    in_memory = hasattr(program, "mlir_module_serialized") and hasattr(program, "has_vjp")  # jax.export.Exported
    is_bytes = isinstance(program, (bytes, bytearray, memoryview))
    if entry is None and (in_memory or (is_bytes and is_exported(program))):
        return api.exported_function.from_exported(program, derivatives=derivatives)
    return _converted(_read_mlir(program, filename), as_written, entry)


def from_lowered(program: jax_interop.jax.Lowered) -> XlaComputation:
    """What JAX has lowered in this process, with the Python functions that it calls."""
    module = stablehlo.convert.to_module(jax_interop.exported_main.without_tokens(mlir.bytecode.parser.parse(program.bytecode)))
    if isinstance(module, stablehlo.convert.UnknownSizes):
        raise UnsupportedError("a function is traced for known sizes", subject="from_jax",
                               got="sizes of jax.export.symbolic_shape",
                               hint="export it: from_exported(jax.export.export(jax.jit(function))(*arguments).serialize())")
    assert isinstance(module, Module), module  # main is there
    callbacks.bind(module, program.callbacks, register_callback)
    return StaticComputation(module)


def _read_mlir(program: Any, filename: str) -> mlir.ir.Operation:
    if not isinstance(program, (bytes, bytearray, memoryview)):
        return stablehlo.reading.read_mlir(program, filename)
    program = memoryview(program)
    if bytes(program[:len(MAGIC)]) == MAGIC:
        return _unmapped(mlir.bytecode.parser.parse(program))
    form = recognise(program, filename)
    if form is Form.EXPORTED:
        return _unmapped(jax_interop.exported_main.module_of(jax_interop.exported.read_exported(program)))
    if form is not Form.MLIR_TEXT:
        raise InvalidArgument(f"this is {form.title}, not StableHLO", subject=filename, got=repr(bytes(program[:16])),
                              hint=f"xla_torch.{form.function} reads it")
    return _read_text(program, filename or "StableHLO", mlir.text.elements.LARGE_LITERALS,
                      lambda text, cuts: stablehlo.reading.read_mlir(text, filename, cuts))


def _unmapped(operation: mlir.ir.Operation) -> mlir.ir.Operation:
    """The operation, with constants in memory of their own where they lie in a mapped file."""
    for found in mlir.ir.walk(operation):
        for name, value in found.attributes.items():
            if isinstance(value, mlir.ir.Elements):
                found.attributes[name] = mlir.ir.Elements(value.type, unmapped(value.value))
    return operation


def _converted(operation: mlir.ir.Operation, as_written: bool, entry: str | None) -> XlaComputation:
    found = stablehlo.convert.to_module(operation, entry)
    if isinstance(found, stablehlo.convert.Functions):
        return api.library.Library(found.names, functools.partial(_converted, operation, as_written))  # pyright: ignore[reportReturnType]
    if isinstance(found, stablehlo.convert.UnknownSizes):
        return runtime.polymorphic.PolymorphicComputation(found, AS_WRITTEN if as_written else None)
    return computation_of(found, as_written)


def computation_of(module: Module, as_written: bool) -> XlaComputation:
    if (block := running()) is not None:
        block.has_instructions(lambda: sum(len(c.instructions) for c in module.computations))
    if (count := callbacks.leave_out(module)):
        warnings.warn(CallbackLeftOut(
            f"{count} Python callback{'s' * (count > 1)} of the process that traced it left out", subject=module.name,
            hint="trace the function with from_jax, which keeps them"), stacklevel=5)
    return StaticComputation(note_author(module, as_written))


def _wrong_kind(what: str, given: object, wanted: Form) -> InvalidArgument:
    """The error of an argument of another kind, with the function that takes it."""
    hint = ""
    if isinstance(given, (bytes, bytearray, memoryview)):
        try:
            form = recognise(bytes(given))
            hint = "decode it" if form is wanted else f"this is {form.title}: xla_torch.{form.function} reads it"
        except XlaError as error:
            hint = error.what
    return InvalidArgument(what, got=type(given).__name__, hint=hint)


@put_off()
def from_hlo_proto(data: bytes | memoryview, *, derivatives: Vouched = None) -> XlaComputation:
    """Load a program from a serialised HloModuleProto, HloProto or HLO snapshot.

    `derivatives` is as in `load`. Raises HloSyntaxError for other bytes, and the errors of `parse_hlo`.

    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> xla_torch.from_hlo_proto(square.to_hlo_proto())(torch.tensor([1.0, 2.0]))
    tensor([1., 4.])
    """
    as_written = vouched(derivatives, "from_hlo_proto")
    if isinstance(data, str):
        raise InvalidArgument("an HLO proto must be bytes", subject="from_hlo_proto", got="a text", expected="bytes",
                              hint="use load(path) for a file, parse_hlo for HLO text")
    module = proto.containers.read_proto(data).module()
    verify(module)
    return computation_of(module, as_written)
