"""The forms of Shardy's operations. Their attributes are kept as the text that the generic form has."""

from __future__ import annotations

import re
from collections.abc import Generator

from ...hlo.mesh_sharding import REDUCTIONS
from ..ir import Attribute, Opaque, Region, Type, Value
from .pretty_functions import constant, terminator
from .reader import Contents, Form, FormReader, OperationReader, RegionRequest
from .scanner import BLANK

_DIRECTIONS = ("NONE", "FORWARD", "BACKWARD", "BOTH")
_named = re.compile(rf"{BLANK}([a-z_]+)\s*=\s*(?=[\[<{{])")


def _bracketed(reader: OperationReader, before: str, after: str = "") -> Opaque:
    """What stands in brackets at the cursor, between these."""
    start = reader.skip()
    if reader.peek() not in ("<", "[", "{"):
        raise reader.error("expects a sharding or axes in brackets", expected="'<', '[' or '{'")
    reader.pos = reader.balanced_end(start)
    return Opaque(before + reader.text[start:reader.pos] + after)


def _result(reader: OperationReader, operands: list[Value]) -> list[Type]:
    """``: type``, that of the operand and the result."""
    reader.expect(":", "in front of the type")
    start = reader.skip()
    found = reader.type()
    reader.check_types(operands, [found] * len(operands), start)
    return [found]


def _mesh(reader: OperationReader, name: str) -> Form:
    """``sdy.mesh @name = <["x"=2]>``."""
    attributes: dict[str, Attribute] = {"sym_name": reader.symbol_name()}
    reader.expect("=")
    attributes["mesh"] = _bracketed(reader, "#sdy.mesh")
    return Contents([], [], attributes | reader.optional_attributes())


def _constrained(reader: OperationReader, name: str) -> Form:
    """``sdy.sharding_constraint %a <@mesh, [{"x"}]> : type``."""
    operands = [reader.value()]
    attributes: dict[str, Attribute] = {"sharding": _bracketed(reader, "#sdy.sharding")}
    attributes |= reader.optional_attributes()
    return Contents(operands, _result(reader, operands), attributes)


def _collective(attribute: str, kind: str, is_reduction: bool = False) -> FormReader:
    """``sdy.all_gather [{"x"}] %a out_sharding=<@mesh, [{}]> : type``; ``max`` or ``min`` in front of a reduction's axes."""
    def read(reader: OperationReader, name: str) -> Form:
        attributes: dict[str, Attribute] = {}
        if is_reduction and (number := next((k for k, word in enumerate(REDUCTIONS) if reader.accept_word(word)), 0)):
            attributes["reduction_op"] = number
        if attribute:
            attributes[attribute] = _bracketed(reader, f"#sdy<{kind}", ">")
        operands = [reader.value()]
        attributes["out_sharding"] = _named_sharding(reader, "out_sharding")
        attributes |= reader.optional_attributes()
        return Contents(operands, _result(reader, operands), attributes)
    return read


def _named_sharding(reader: OperationReader, word: str) -> Opaque:
    if not reader.accept_word(word):
        raise reader.error(f"expects {word!r}", expected=f"{word}=<...>")
    reader.expect("=")
    return _bracketed(reader, "#sdy.sharding")


def _edge(reader: OperationReader, name: str) -> Form:
    """``sdy.data_flow_edge %a sharding=<@mesh, [{"x"}]> : type``."""
    operands = [reader.value()]
    attributes: dict[str, Attribute] = {}
    if match := _named.match(reader.text, reader.pos):
        reader.pos = match.end()
        attributes[match[1]] = _bracketed(reader, "#sdy.sharding")
    attributes |= reader.optional_attributes()
    return Contents(operands, _result(reader, operands), attributes)


def _barrier(reader: OperationReader, name: str) -> Form:
    """``sdy.propagation_barrier %a allowed_direction=FORWARD : type``."""
    operands = [reader.value()]
    if not reader.accept_word("allowed_direction"):
        raise reader.error("expects 'allowed_direction'", expected="allowed_direction=...")
    reader.expect("=")
    start, word = reader.skip(), reader.word()
    if word not in _DIRECTIONS:
        raise reader.error(f"no direction is called {word!r}", start, expected=" or ".join(_DIRECTIONS))
    attributes: dict[str, Attribute] = {"allowed_direction": _DIRECTIONS.index(word), **reader.optional_attributes()}
    return Contents(operands, _result(reader, operands), attributes)


def _group(reader: OperationReader, name: str) -> Form:
    """``sdy.sharding_group %a group_id=3 : type``."""
    operands = [reader.value()]
    if not reader.accept_word("group_id"):
        raise reader.error("expects 'group_id'", expected="group_id=...")
    reader.expect("=")
    attributes: dict[str, Attribute] = {"group_id": reader.integer(), **reader.optional_attributes()}
    _result(reader, operands)
    return Contents(operands, [], attributes)


def _region_shardings(reader: OperationReader) -> dict[str, Attribute]:
    """``in_shardings=[...] out_shardings=[...] manual_axes={...}``, as far as they are written."""
    attributes: dict[str, Attribute] = {}
    while match := _named.match(reader.text, reader.pos):
        reader.pos = match.end()
        before, after = ("#sdy<manual_axes", ">") if match[1] == "manual_axes" else ("#sdy.sharding_per_value<", ">")
        attributes[match[1]] = _bracketed(reader, before, after)
    return attributes


def _manual(reader: OperationReader, name: str) -> Generator[RegionRequest, Region, Contents]:
    """``sdy.manual_computation(%a) in_shardings=[...] out_shardings=[...] manual_axes={...} (%x: type) { ... } : types``."""
    operands = reader.values_in_parentheses()
    attributes = _region_shardings(reader)
    region = yield RegionRequest(reader.arguments())
    attributes |= reader.optional_attributes()
    return Contents(operands, reader.signature(operands), attributes, [region])


def _computation(reader: OperationReader, name: str) -> Generator[RegionRequest, Region, Contents]:
    """``sdy.named_computation<"name">(%a) in_shardings=[...] (%x: type) { ... } : types``."""
    reader.expect("<")
    attributes: dict[str, Attribute] = {"name": reader.string()}
    reader.expect(">")
    operands = reader.values_in_parentheses()
    attributes |= _region_shardings(reader)
    region = yield RegionRequest(reader.arguments())
    attributes |= reader.optional_attributes()
    return Contents(operands, reader.signature(operands), attributes, [region])


SHARDINGS: dict[str, FormReader] = {
    "sdy.all_gather": _collective("gathering_axes", "list_of_axis_ref_lists"),
    "sdy.all_reduce": _collective("reduction_axes", "axis_ref_list", is_reduction=True),
    "sdy.all_slice": _collective("slicing_axes", "list_of_axis_ref_lists"),
    "sdy.all_to_all": _collective("params", "all_to_all_param_list"),
    "sdy.collective_permute": _collective("", ""),
    "sdy.constant": constant,
    "sdy.data_flow_edge": _edge,
    "sdy.func_data_flow_edge": _edge,
    "sdy.manual_computation": _manual,
    "sdy.mesh": _mesh,
    "sdy.named_computation": _computation,
    "sdy.propagation_barrier": _barrier,
    "sdy.reduce_scatter": _collective("reduce_scatter_axes", "list_of_axis_ref_lists", is_reduction=True),
    "sdy.replicated_to_unreduced": _collective("axes", "axis_ref_list"),
    "sdy.reshard": _constrained,
    "sdy.return": terminator,
    "sdy.sharded_to_unreduced": _collective("axes", "list_of_axis_ref_lists"),
    "sdy.sharding_constraint": _constrained,
    "sdy.sharding_group": _group,
}
