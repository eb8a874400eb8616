"""Rules: custom calls with all that they may say, and those that stand for operations or for assertions about sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.errors import InvalidArgument
from ..core.shape import Shape
from ..functions.hlo_builder import XlaOp
from ..hlo.attributes import WindowDimension
from ..mlir.ir import Operation, Struct, Symbol, Tensor, Type
from ..opcodes import internal
from ..opcodes.window import reduce_window
from . import reading_rules
from .annotations import attribute_text
from .attributes import boolean, integer, text
from .calls import computation_of
from .collective import RAGGED_ALL_TO_ALL
from .layouts import laid
from .reading_rules import Results, rule
from .scope import Scope

_VERSIONS = {0: "", 1: "", 2: "API_VERSION_STATUS_RETURNING", 3: "API_VERSION_STATUS_RETURNING_UNIFIED",
             4: "API_VERSION_TYPED_FFI"}
_DYNAMIC = "stablehlo.dynamic_"
"""How targets begin that are operations whose sizes are operands."""

_DYNAMIC_REDUCE_WINDOW, _SIZE_OPERANDS = "stablehlo.dynamic_reduce_window", 5
"""A target whose last operands are sizes, strides, dilations of base and window, and padding."""

_SCHEDULES = {"LATEST": "SCHEDULE_LATEST", "EARLIEST": "SCHEDULE_EARLIEST"}


@rule("stablehlo.custom_call")
def custom_call(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    target = text(operation, "call_target_name")
    if target in _OWN:
        return _OWN[target](scope, operation, operands)
    meant = operation.attributes.get("mhlo.attributes")
    if isinstance(meant, dict) and reading_rules.find(target) is not None:
        return _as_operation(scope, operation, operands, target, meant)
    return _kept(scope, operation, operands, target)


def _kept(scope: Scope, operation: Operation, operands: Sequence[XlaOp], target: str) -> Results:
    """The call as a call."""
    if target.startswith(_DYNAMIC):
        operands = [_constant(scope, o) for o in operands]
    attributes: dict[str, Any] = {"custom_call_target": target} | _stated(scope, operation, operands)
    made = scope.add(internal.custom_call, operands, attributes, _result(scope, operation, operands))
    config = backend_config(operation)
    if config:
        made.instruction.common["backend_config"] = config
    return [made] if len(operation.results) == 1 else scope.parts(made, len(operation.results))


def _constant(scope: Scope, operand: XlaOp) -> XlaOp:
    """What is known of an operand, in its place: those who read the call look for constants."""
    known = scope.known(operand)
    return operand if known is None else scope.constant(known.astype(operand.element_type.numpy))


def _as_operation(scope: Scope, operation: Operation, operands: Sequence[XlaOp], name: str, meant: dict[str, Any],
                  results: Sequence[Type] | None = None) -> Results:
    """An operation of MHLO or CHLO in the spelling that survives StableHLO's versions."""
    called = operation.attributes.get("called_computations", ())
    regions = [r for c in called if isinstance(c, Symbol) for r in scope.program.functions[c.name].regions]
    other = Operation(name, operation.operands, list(results or [r.type for r in operation.results]), dict(meant), regions,
                      operation.location, operation.line, operation.column)
    rule_of = reading_rules.find(name)
    assert rule_of is not None
    return rule_of(scope, other, operands)


def _stated(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> dict[str, Any]:
    """The attributes of the call, where they say something."""
    found: dict[str, Any] = {}
    typed = isinstance(operation.attributes.get("mhlo.backend_config"), dict)  # how StableHLO wrote what has version 4
    version = 4 if typed else integer(operation, "api_version", 1)
    if version not in _VERSIONS:
        raise InvalidArgument("no such version of custom calls", got=version, expected="1 to 4")
    if _VERSIONS[version]:
        found["api_version"] = _VERSIONS[version]
    if boolean(operation, "has_side_effect"):
        found["custom_call_has_side_effect"] = True
    called = [s.name for s in operation.attributes.get("called_computations", ()) if isinstance(s, Symbol)]
    if called:
        found["called_computations"] = tuple(_called(scope, name) for name in called)
    layouts = operation.attributes.get("operand_layouts")
    if layouts is not None:
        shapes = [laid(o.shape, layout) for o, layout in zip(operands, layouts, strict=True)]
        found["operand_layout_constraints"] = "{" + ", ".join(s.to_text() for s in shapes) + "}"
    aliases = operation.attributes.get("output_operand_aliases")
    if aliases:
        found["output_to_operand_aliasing"] = "{" + ", ".join(_alias(a.fields) for a in aliases) + "}"
    schedule = getattr(operation.attributes.get("custom_call_schedule"), "value", "")
    if schedule in _SCHEDULES:
        found["schedule"] = _SCHEDULES[schedule]
    return found


def _called(scope: Scope, name: str) -> Any:
    """The computation of a function that the call's target calls itself."""
    function = scope.program.functions.get(name)
    if function is None:
        raise InvalidArgument("no such function in the module", got=f"@{name}")
    arguments = function.regions[0].blocks[0].arguments
    inner = Scope(scope.program, f"of_{name}")
    given = [inner.builder.parameter(k, scope.program.shape_of(a.type)) for k, a in enumerate(arguments)]
    return computation_of(scope, name, given)


def _alias(given: dict[str, Any]) -> str:
    output, inner = (",".join(map(str, given.get(k, ()))) for k in ("output_tuple_indices", "operand_tuple_indices"))
    return f"{{{output}}}: ({given.get('operand_index', 0)}, {{{inner}}})"


def _result(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Shape:
    """The written shapes, with layouts, and with the sizes that operands say where those are unknown."""
    shapes = [scope.declared(operation, k) for k in range(len(operation.results))]
    stated = operation.attributes.get("indices_of_shape_operands")
    if stated is not None:
        shapes = [_sized(scope, s, operands[k]) for s, k in zip(shapes, _indices(stated), strict=True)]
    layouts = operation.attributes.get("result_layouts")
    if layouts is not None:
        if len(shapes) == 1 and shapes[0].is_tuple:
            return Shape.tuple([laid(s, k) for s, k in zip(shapes[0].tuple_shapes, layouts, strict=True)])
        shapes = [laid(s, k) for s, k in zip(shapes, layouts, strict=True)]
    return shapes[0] if len(shapes) == 1 else Shape.tuple(shapes)


def _indices(stated: Any) -> list[int]:
    return [int(k) for k in (stated.value.reshape(-1) if hasattr(stated, "value") else stated)]


def _sized(scope: Scope, shape: Shape, sizes: XlaOp) -> Shape:
    known = scope.known(sizes)
    return shape if known is None else shape.with_dimensions(known.tolist())


def backend_config(operation: Operation) -> str:
    """The configuration as text: as it is written, or a dictionary as MLIR writes it."""
    given = operation.attributes.get("backend_config")
    if given is None or given == "":
        given = operation.attributes.get("mhlo.backend_config", "")
    if isinstance(given, dict):
        return attribute_text(given)
    if isinstance(given, bytes):
        return given.decode("utf-8", "surrogateescape")
    return given if isinstance(given, str) else attribute_text(given)


# ------------------------------------------------------------------------------------------------------- targets of our own


def _shape_assertion(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    """What jax.export asserts of sizes: true, or an error in the program's own words."""
    holds = scope.known(operands[0])
    if holds is None:
        raise InvalidArgument("an assertion about sizes cannot be decided", expected="sizes that follow from the arguments")
    if not holds:
        message = str(operation.attributes.get("error_message", "an assertion about sizes does not hold"))
        for number, operand in enumerate(operands[1:]):
            value = scope.known(operand)
            message = message.replace(f"{{{number}}}", "?" if value is None else str(int(value)))
        raise InvalidArgument(message, subject="StableHLO")
    return []


def _rng_bit_generator(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    """Random bits in an array whose sizes are an operand."""
    sizes = scope.known(operands[1])
    if sizes is None:
        raise InvalidArgument("the sizes of random numbers are not known before the program runs", got=operands[1].shape)
    bits = Tensor(tuple(sizes.tolist()), scope.declared(operation, 1).element_type)
    return _as_operation(scope, operation, operands[:1], "stablehlo.rng_bit_generator", operation.attributes,
                         [operation.results[0].type, bits])


def _top_k(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    """The largest elements, of which an operand says how many."""
    count = scope.known(operands[1])
    if count is None:
        raise InvalidArgument("how many elements are wanted is not known before the program runs", got=operands[1].shape)
    return _as_operation(scope, operation, operands[:1], "chlo.top_k", {"k": int(count)})


def _reduce_window(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    """A window's reduction whose sizes are operands: where they are known, the operation, whose result has a known shape."""
    width, count = (len(operands) - _SIZE_OPERANDS) // 2, len(operation.results)
    known = [scope.known(o) for o in operands[2 * width:]]
    called = operation.attributes.get("called_computations", ())
    if width != count or len(operands) != 2 * width + _SIZE_OPERANDS or len(called) != 1 or any(k is None for k in known):
        return _kept(scope, operation, operands, _DYNAMIC_REDUCE_WINDOW)
    columns = [k.tolist() for k in known if k is not None]
    window = tuple(WindowDimension(size, stride, low, high, base, spread) for size, stride, base, spread, (low, high) in
                   zip(*columns, strict=True))
    made = scope.add(reduce_window, operands[:2 * width], {"to_apply": _called(scope, called[0].name), "window": window})
    return scope.several(made, operation)


def _ragged_all_to_all(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    """An exchange of rows, whose groups and channel are its configuration."""
    config = operation.attributes.get("backend_config") or operation.attributes.get("mhlo.backend_config")
    if not isinstance(config, dict):
        raise InvalidArgument("the exchange does not say its groups", subject=operation.name, got=config,
                              expected="{replica_groups = dense<...>, channel_id = 1}")
    stated: dict[str, Any] = {"replica_groups": config.get("replica_groups")}
    if config.get("channel_id"):
        stated["channel_handle"] = Struct("stablehlo.channel_handle", {"handle": config["channel_id"], "type": 1})
    return _as_operation(scope, operation, operands, "mhlo.ragged_all_to_all", stated)


_OWN: dict[str, reading_rules.Rule] = {
    RAGGED_ALL_TO_ALL: _ragged_all_to_all, "shape_assertion": _shape_assertion,
    _DYNAMIC_REDUCE_WINDOW: _reduce_window, "stablehlo.dynamic_rng_bit_generator": _rng_bit_generator,
    "stablehlo.dynamic_top_k": _top_k}
