"""StableHLO (text and bytecode) and HLO protos, by XLA's own converters, which `jaxlib` brings along.

Everything becomes HLO text and then takes the one way in, through the parser. Nothing is elided on the way: large
constants are printed in full.
"""

from __future__ import annotations

import re
from types import ModuleType

from ..errors import HloSyntaxError, InvalidArgument, MissingDependency
from ..hlo.ir import Computation, Module

_WITH_REGIONS = dict.fromkeys(("reduce", "reduce-window", "all-reduce", "reduce-scatter", "scatter"), "to_apply") | {
    "select-and-scatter": "scatter"}
"""Opcodes of reductions and the attribute that holds the region which sums."""

BYTECODE_MAGIC = b"ML\xefR"
"""The first bytes of MLIR bytecode."""

_UNKNOWN_SIZE = re.compile(r"\b[a-z]+\d*\[[\d,<=]*\?")
_POSITION = re.compile(r"^(?:\w+: )?-:(\d+):(\d+): error: (.*)")


def load_stablehlo(program: str | bytes, unknown_sizes: bool = False) -> str:
    """The HLO text of a StableHLO (or MHLO, CHLO) module, given as text or as bytecode.

    Raises MissingDependency where jaxlib is not installed, HloSyntaxError for what XLA's reader refuses and, unless
    `unknown_sizes` are welcome, for HLO with dimensions of unknown size.
    """
    mlir, _ = _jaxlib("StableHLO")
    program = as_mlir(program)
    try:
        computation = mlir.mlir_module_to_xla_computation(program, use_tuple_args=False, return_tuple=False)
    except RuntimeError as error:  # XlaRuntimeError derives from it
        raise _refused("StableHLO", error) from None
    text = _text(computation.get_hlo_module())
    found = None if unknown_sizes or "?" not in text else _UNKNOWN_SIZE.search(text)
    if found is not None:
        raise HloSyntaxError("dimensions of unknown size are left", subject="StableHLO", got=found[0])
    return text


def lost_promotions(module: Module) -> bool:
    """Whether an HLO module has reductions whose regions take other element types than their operands have: the converter
    forgets to convert the operands."""
    for computation in module.computations:
        for instruction in computation.instructions:
            region = instruction.attributes.get(_WITH_REGIONS.get(instruction.opcode, ""))
            if isinstance(region, Computation):
                given, taken = instruction.operands[0].shape, region.parameters[0].shape
                if given.is_array and given.element_type is not taken.element_type:
                    return True
    return False


def as_mlir(program: str | bytes) -> str | bytes:
    """Text as a string, bytecode as bytes. Raises HloSyntaxError for bytes that are neither, MissingDependency where jaxlib,
    which reads both, is not installed."""
    _jaxlib("StableHLO")
    if isinstance(program, str) or program.startswith(BYTECODE_MAGIC):
        return program
    return _decode(program)


def has_quantized_types(program: str | bytes) -> bool:
    """Whether a program may have quantized types. XLA's converter must not see them: it ends the process for some."""
    if isinstance(program, str):
        return "!quant." in program
    if b"StableHLO_v" in program[:32]:  # a portable artifact, which has no names of types
        from .modules import bytecode, new_context, parse

        with new_context() as context:
            program = bytecode(parse(program, context))
    return b"quant\0" in program


def refine_shapes(program: bytes, strict: bool = True) -> bytes:
    """StableHLO bytecode with a static main function, all its sizes made static (or, if not `strict`, those that XLA can).
    Raises InvalidArgument where they do not follow from it, with XLA's reason."""
    mlir, _ = _jaxlib("StableHLO")
    try:
        return mlir.refine_polymorphic_shapes(program, enable_shape_assertions=True, validate_static_shapes=strict)
    except RuntimeError as error:
        reason = str(error).partition("\n")[0].rpartition("error: ")[2]
        raise InvalidArgument("the argument shapes do not fit the program", subject="StableHLO", got=reason) from None


def hlo_text_from_proto(data: bytes) -> str:
    """The HLO text of a serialised HloModuleProto, or of an HloProto around one (``.pb``).

    Raises MissingDependency where jaxlib is not installed, HloSyntaxError for bytes that are neither.
    """
    _, hlo = _jaxlib("HLO protos")
    read = hlo.HloModule.from_serialized_hlo_module_proto
    try:
        return _text(read(data))
    except RuntimeError as error:
        inner = _first_field(data)
        if inner is None:
            raise _refused("HLO proto", error) from None
    try:
        return _text(read(inner))
    except RuntimeError as error:
        raise _refused("HLO proto", error) from None


def _first_field(data: bytes) -> bytes | None:
    """The message in field 1, which of an HloProto is its HloModuleProto; None if the bytes do not begin with one."""
    length, shift, position = 0, 0, 1
    if data[:1] != b"\x0a":
        return None
    while position < len(data):
        byte = data[position]
        length, shift, position = length | (byte & 127) << shift, shift + 7, position + 1
        if byte < 128:
            return data[position:position + length] if position + length <= len(data) else None
    return None


def _jaxlib(what: str) -> tuple[ModuleType, ModuleType]:
    """jaxlib's modules for MLIR conversion and for HLO."""
    try:
        from jaxlib import _hlo, _jax  # pyright: ignore[reportAttributeAccessIssue]
    except ImportError as error:
        raise MissingDependency(
            f"reading {what} needs jaxlib", got=error, expected="jaxlib 0.10.2 or newer",
            hint="pip install 'xla_torch[jax]', or convert the program to HLO text where JAX is installed") from None
    return _jax.mlir, _hlo


def _text(module: object) -> str:
    """An HloModule of jaxlib as text that loses nothing. (The default options elide large constants.)"""
    _, hlo = _jaxlib("HLO")
    options = hlo.HloPrintOptions()
    options.print_large_constants = True
    return module.to_string(options)  # pyright: ignore[reportAttributeAccessIssue]


def _decode(program: bytes) -> str:
    try:
        return program.decode()
    except UnicodeDecodeError as error:
        raise HloSyntaxError(
            "neither MLIR bytecode nor text", subject="StableHLO", got=f"bytes that begin with {program[:8]!r}",
            expected=f"{BYTECODE_MAGIC!r} or UTF-8 text", where=f"byte {error.start}") from None


def _refused(subject: str, error: RuntimeError) -> HloSyntaxError:
    """XLA's own words in the house form, with the position where it gives one."""
    first = str(error).partition("\n")[0]
    position = _POSITION.match(first)
    if position is None:
        reason = first.partition(": ")[2] or first
        return HloSyntaxError("XLA's reader refuses the program", subject=subject, got=reason)
    line, column, reason = int(position[1]), int(position[2]), position[3]
    refused = HloSyntaxError(reason, subject=subject, where=f"line {line}, column {column}")
    refused.line, refused.column = line, column
    return refused
