"""XLA's own converter from StableHLO to HLO, which jaxlib brings along: the oracle for `xla_torch.stablehlo`.

Some StableHLO it refuses or mistakes, which `legalize` writes in other StableHLO first: regions of reductions may take wider
elements than the op's operands have (the specification promotes the operands, which the converter forgets), ``unary_einsum`` has
no HLO, and shape refinement does not look into composites.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from typing import Any

from jaxlib import _hlo as hlo  # pyright: ignore[reportAttributeAccessIssue]
from jaxlib import _jax as jaxlib  # pyright: ignore[reportAttributeAccessIssue]
from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext as registration  # pyright: ignore
from jaxlib.mlir.dialects import chlo, mhlo, sdy, stablehlo

from xla_torch.errors import HloSyntaxError
from xla_torch.opcodes.front import Module, parse_module, verify

# ------------------------------------------------------------------------------------------------------ modules of bindings


def new_context() -> Any:
    """An MLIR context that knows StableHLO, what stands beside it (shardings by Shardy), and quantized types."""
    context, dialects = ir.Context(), ir.DialectRegistry()
    registration.register_dialects(dialects)
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
    return jaxlib.mlir.serialize_portable_artifact("module {}", stablehlo.get_current_version())


def parse(program: str | bytes, context: Any) -> Any:
    """The MLIR module of StableHLO text, MLIR bytecode, or a portable artifact (VHLO). Raises HloSyntaxError."""
    try:
        if isinstance(program, bytes) and b"StableHLO_v" in program[:32]:
            return stablehlo.deserialize_portable_artifact(context, program)
        return ir.Module.parse(program, context)
    except (ir.MLIRError, ValueError) as error:
        raise HloSyntaxError("not an MLIR module", subject="StableHLO", got=str(error)) from None


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


# --------------------------------------------------------------------------------------------------------------- conversion


def load_stablehlo(program: str | bytes) -> str:
    """The HLO text of a StableHLO (or MHLO, CHLO) module, given as text or as bytecode. Raises HloSyntaxError."""
    try:
        computation = jaxlib.mlir.mlir_module_to_xla_computation(program, use_tuple_args=False, return_tuple=False)
    except RuntimeError as error:  # XlaRuntimeError derives from it
        raise HloSyntaxError("XLA's reader refuses the program", subject="StableHLO", got=str(error).partition("\n")[0]) from None
    options = hlo.HloPrintOptions()
    options.print_large_constants = True
    return computation.get_hlo_module().to_string(options)


class UnknownSizes:
    """What stands for a program whose sizes XLA does not know before it runs."""


def module_of(program: str | bytes) -> Module | UnknownSizes:
    """The HLO of ``main`` as XLA's converter gives it, after shape refinement where sizes are unknown. Raises HloSyntaxError."""
    with new_context() as context, ir.Location.unknown():
        module = parse(program, context)
        legalize(module)
        program, unknown = bytecode(module), _has_unknown_sizes(module)
    if not unknown:
        return _checked(program)
    try:
        return _checked(jaxlib.mlir.refine_polymorphic_shapes(program, enable_shape_assertions=True, validate_static_shapes=True))
    except (RuntimeError, HloSyntaxError):
        return UnknownSizes()


def _checked(program: str | bytes) -> Module:
    found = parse_module(load_stablehlo(program))
    verify(found)
    return found


def _has_unknown_sizes(module: Any) -> bool:
    """Whether any value has dimensions of unknown size (``?``), or an op takes sizes or the like as operands."""
    for operation in operations(module):
        if operation.name.startswith(("stablehlo.dynamic_", "stablehlo.real_dynamic_")):
            return True
        types = [v.type for v in (*operation.operands, *operation.results)]
        if any(isinstance(t, ir.RankedTensorType) and not t.has_static_shape and "bounds" not in str(t) for t in types):
            return True
    return False


_PROMOTED: dict[str, Callable[[int, int], int | None]] = {
    "stablehlo.reduce": lambda operand, count: operand % count,
    "stablehlo.reduce_window": lambda operand, count: operand % count,
    "stablehlo.all_reduce": lambda operand, count: operand,
    "stablehlo.reduce_scatter": lambda operand, count: operand,
    "stablehlo.scatter": lambda operand, count: None if operand == count else operand % (count + 1),
    "stablehlo.select_and_scatter": lambda operand, count: 0,
}
"""An operand's number and the number of results -> the result whose element type the region takes for this operand."""


def legalize(module: Any) -> None:
    """Rewrite an MLIR module in place."""
    others = {"stablehlo.unary_einsum": _to_einsum}
    for operation in operations(module):
        change = _promote if operation.name in _PROMOTED else others.get(operation.name)
        if change is not None:
            with operation.location, ir.InsertionPoint(operation):
                change(operation)


def _promote(operation: Any) -> None:
    """Convert operands to the element types that the region takes."""
    result_of = _PROMOTED[operation.name]
    for number, operand in enumerate(operation.operands):
        result = result_of(number, len(operation.results))
        if result is not None:
            operation.operands[number] = _converted(operand, operation.results[result].type.element_type)
    if operation.name == "stablehlo.select_and_scatter":
        # XLA has the choice in the same type as the sum; the region that chooses goes on in its own.
        block = operation.regions[0].blocks[0]
        for argument in block.arguments:
            _widen(argument, operation.results[0].type.element_type, block)


def _converted(value: Any, element: Any) -> Any:
    """`value` with other elements: converted or, to quantized types, quantized."""
    if value.type.element_type == element:
        return value
    name = "stablehlo.uniform_quantize" if str(element).startswith("!quant.") else "stablehlo.convert"
    return ir.Operation.create(name, [ir.RankedTensorType.get(value.type.shape, element, value.type.encoding)], [value]).result


def _widen(argument: Any, element: Any, block: Any) -> None:
    """Give a region's argument another element type, and what uses it the one that it had."""
    own = argument.type.element_type
    if own == element:
        return
    uses = [(use.owner, use.operand_number) for use in argument.uses]
    argument.set_type(ir.RankedTensorType.get(argument.type.shape, element))
    with ir.InsertionPoint.at_block_begin(block):
        narrow = _converted(argument, own)
    for owner, number in uses:
        owner.operands[number] = narrow


def _to_einsum(operation: Any) -> None:
    """A sum of products with one."""
    element = operation.operands[0].type.element_type
    of_one: Callable[..., Any] = ir.IntegerAttr.get if isinstance(element, ir.IntegerType) else ir.FloatAttr.get
    one = ir.DenseElementsAttr.get([of_one(element, 1)], ir.RankedTensorType.get([], element))
    config = ir.StringAttr.get("," + ir.StringAttr(operation.attributes["einsum_config"]).value)
    einsum = ir.Operation.create("stablehlo.einsum", [operation.results[0].type],
                                 [stablehlo.ConstantOp(one).result, operation.operands[0]], {"einsum_config": config})
    operation.results[0].replace_all_uses_with(einsum.result)
    operation.erase()


def _to_call(operation: Any) -> None:
    """A composite as a call of its decomposition."""
    callee = {"callee": operation.attributes["decomposition"]}
    call = ir.Operation.create("func.call", [r.type for r in operation.results], list(operation.operands), callee)
    for before, after in zip(operation.results, call.results, strict=True):
        before.replace_all_uses_with(after)
    operation.erase()
