"""The forms of the dialects that compute sizes in programs of unknown sizes: shape, arith, tensor."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator

import numpy as np

from ...core.types import PRED
from ..ir import INDEX, Attribute, Elements, Opaque, OtherType, Region, Tensor, Type, Value
from .pretty_functions import constant, terminator
from .reader import Contents, Form, FormReader, OperationReader, RegionRequest
from .scanner import BLANK
from .types import type_text

SHAPE, SIZE, WITNESS = (OtherType(f"!shape.{word}") for word in ("shape", "size", "witness"))
VALUE_SHAPE = OtherType("!shape.value_shape")

_word = re.compile(rf"{BLANK}([a-z_]\w*)")
_flags = re.compile(rf"{BLANK}(overflow|fastmath)<\s*(\w+(?:\s*,\s*\w+)*)\s*>")
_INTEGER_ORDER = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
_FLOAT_ORDER = ("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true")
_WITH_FASTMATH = ("addf", "cmpf", "divf", "maximumf", "maxnumf", "minimumf", "minnumf", "mulf", "negf", "remf", "subf")
_WITH_OVERFLOW = ("addi", "muli", "shli", "subi", "trunci")
_ROUNDING = ("to_nearest_even", "downward", "upward", "toward_zero", "to_nearest_away")


def _typed(reader: OperationReader, operands: list[Value]) -> list[Type]:
    """``: types``, those of the operands."""
    reader.expect(":", "in front of the types")
    start = reader.skip()
    types = reader.types_listed()
    reader.check_types(operands, types, start)
    return types


def _same(reader: OperationReader, operands: list[Value]) -> Type:
    """``: type``, that of each operand."""
    reader.expect(":", "in front of the type")
    start = reader.skip()
    found = reader.type()
    reader.check_types(operands, [found] * len(operands), start)
    return found


# ------------------------------------------------------------------------------------------------------------------ shape


def _to_types(reader: OperationReader, name: str) -> Form:
    """``op %a, %b {attributes} : types -> types``."""
    operands = reader.values_listed()
    attributes = reader.optional_attributes()
    reader.expect(":", "in front of the types")
    return Contents(operands, reader.function_type(operands), attributes)


def _to(result: Type) -> FormReader:
    """``op %a, %b {attributes} : types``, with this result."""
    def read(reader: OperationReader, name: str) -> Form:
        operands = reader.values_listed()
        attributes = reader.optional_attributes()
        _typed(reader, operands)
        return Contents(operands, [result], attributes)
    return read


def _untyped(operand: Type, result: Type) -> FormReader:
    """``op %a, %b {attributes}``: the operation knows its types. Some versions print the operand's."""
    def read(reader: OperationReader, name: str) -> Form:
        start, operands = reader.skip(), reader.values_listed()
        attributes = reader.optional_attributes()
        if reader.accept(":"):
            start = reader.skip()
            reader.check_types(operands, reader.types_listed(), start)
        else:
            reader.check_types(operands, [operand] * len(operands), start)
        return Contents(operands, [result], attributes)
    return read


def _value_of(reader: OperationReader, name: str) -> Form:
    """``shape.value_of %a : type``, the type being the result's."""
    operands = [reader.value()]
    attributes = reader.optional_attributes()
    reader.expect(":")
    return Contents(operands, [reader.type()], attributes)


def _required(reader: OperationReader, name: str) -> Form:
    """``shape.cstr_require %a, "message"``."""
    operands = [reader.value()]
    reader.expect(",")
    return Contents(operands, [WITNESS], {"msg": reader.string(), **reader.optional_attributes()})


def _constant_witness(reader: OperationReader, name: str) -> Form:
    attributes = reader.optional_attributes()
    return Contents([], [WITNESS], {**attributes, "passing": reader.boolean()})


def _constant_shape(reader: OperationReader, name: str) -> Form:
    """``shape.const_shape [1, 2] : type``."""
    attributes = reader.optional_attributes()
    sizes = np.array(reader.integers(), np.int64)
    reader.expect(":", "in front of the type")
    return Contents([], [reader.type()], {**attributes, "shape": Elements(Tensor(sizes.shape, INDEX), sizes)})


def _constant_size(reader: OperationReader, name: str) -> Form:
    attributes = reader.optional_attributes()
    return Contents([], [SIZE], {**attributes, "value": reader.integer()})


def _assuming(reader: OperationReader, name: str) -> Generator[RegionRequest, Region, Contents]:
    """``shape.assuming %w -> (types) { ... }``."""
    operands = [reader.value()]
    results = reader.result_types() if reader.accept("->") else []
    region = yield RegionRequest([])
    return Contents(operands, results, reader.optional_attributes(), [region])


def _reduce_shape(reader: OperationReader, name: str) -> Generator[RegionRequest, Region, Contents]:
    """``shape.reduce(%shape, %init) : type -> types { ... }``."""
    operands = reader.values_in_parentheses()
    reader.expect(":")
    start = reader.skip()
    shape = reader.type()
    reader.expect("->")
    results = reader.result_types()
    reader.check_types(operands, [shape, *results], start)
    region = yield RegionRequest()
    return Contents(operands, results, reader.optional_attributes(), [region])


# ------------------------------------------------------------------------------------------------------------------ arith


def _arithmetic(reader: OperationReader, name: str) -> Form:
    """``arith.addi %a, %b overflow<nsw> : type``."""
    operands = reader.values_listed()
    attributes = _flag_attributes(reader, name) | reader.optional_attributes()
    return Contents(operands, [_same(reader, operands)], attributes)


def _flag_attributes(reader: OperationReader, name: str) -> dict[str, Attribute]:
    """``overflow<nsw>``, ``fastmath<fast>``, ``exact``, ``nneg``. The first two have a default that the generic form shows."""
    word = name.partition(".")[2]
    attributes: dict[str, Attribute] = {}
    if word in _WITH_FASTMATH:
        attributes["fastmath"] = Opaque("#arith.fastmath<none>")
    elif word in _WITH_OVERFLOW:
        attributes["overflowFlags"] = Opaque("#arith.overflow<none>")
    while match := _flags.match(reader.text, reader.pos):
        reader.pos = match.end()
        attributes["overflowFlags" if match[1] == "overflow" else "fastmath"] = Opaque(f"#arith.{match[1]}<{match[2]}>")
    for word, attribute in (("exact", "isExact"), ("nneg", "nonNeg")):
        if reader.accept_word(word):
            attributes[attribute] = True
    return attributes


def _comparison(order: tuple[str, ...]) -> FormReader:
    """``arith.cmpi slt, %a, %b : type``."""
    def read(reader: OperationReader, name: str) -> Form:
        start, word = reader.skip(), reader.word("how to compare")
        if word not in order:
            raise reader.error(f"{name} cannot compare by {word!r}", start, expected=" or ".join(order))
        reader.expect(",")
        operands = reader.values_listed()
        attributes = {"predicate": order.index(word), **_flag_attributes(reader, name), **reader.optional_attributes()}
        compared = _same(reader, operands)
        result = Tensor(compared.dimensions, PRED, compared.encoding) if isinstance(compared, Tensor) else PRED
        return Contents(operands, [result], attributes)
    return read


def _selection(reader: OperationReader, name: str) -> Form:
    """``arith.select %p, %a, %b : type``, or the predicate's type and theirs."""
    operands = reader.values_listed()
    attributes = reader.optional_attributes()
    reader.expect(":", "in front of the types")
    start = reader.skip()
    types = reader.types_listed()
    predicate, of = (PRED, types[0]) if len(types) == 1 else (types[0], types[1])
    reader.check_types(operands, [predicate, of, of], start)
    return Contents(operands, [of], attributes)


def _cast(reader: OperationReader, name: str) -> Form:
    """``arith.index_cast %a : type to type``."""
    operands = [reader.value()]
    attributes = _flag_attributes(reader, name)
    match = _word.match(reader.text, reader.pos)
    if match and match[1] in _ROUNDING:
        reader.pos = match.end()
        attributes["roundingmode"] = _ROUNDING.index(match[1])
    attributes |= reader.optional_attributes()
    _typed(reader, operands)
    if not reader.accept_word("to"):
        raise reader.error("expects 'to' between types", expected="'to'")
    return Contents(operands, [reader.type()], attributes)


def _extended(results: Callable[[Type], list[Type]]) -> FormReader:
    """``arith.mulsi_extended %a, %b : type``: two results."""
    def read(reader: OperationReader, name: str) -> Form:
        operands = reader.values_listed()
        attributes = reader.optional_attributes()
        reader.expect(":")
        start = reader.skip()
        types = reader.types_listed()
        reader.check_types(operands, [types[0]] * len(operands), start)
        return Contents(operands, types if len(types) == 2 else results(types[0]), attributes)
    return read


# ----------------------------------------------------------------------------------------------------------------- tensor


def _from_elements(reader: OperationReader, name: str) -> Form:
    """``tensor.from_elements %a, %b : type``."""
    operands = reader.values_listed()
    attributes = reader.optional_attributes()
    reader.expect(":")
    start = reader.skip()
    of = reader.type()
    reader.check_types(operands, [_element(reader, of, start)] * len(operands), start)
    return Contents(operands, [of], attributes)


def _extract(reader: OperationReader, name: str) -> Form:
    """``tensor.extract %a[%i, %j] : type``."""
    of, indices = reader.value(), reader.listed(reader.value, "[", "]")
    attributes = reader.optional_attributes()
    start = reader.skip()
    found = _same(reader, [of])
    return Contents([of, *indices], [_element(reader, found, start)], attributes)


def _insert(reader: OperationReader, name: str) -> Form:
    """``tensor.insert %x into %a[%i] : type``."""
    scalar = reader.value()
    if not reader.accept_word("into"):
        raise reader.error("expects 'into'", expected="'into'")
    into, indices = reader.value(), reader.listed(reader.value, "[", "]")
    attributes = reader.optional_attributes()
    return Contents([scalar, into, *indices], [_same(reader, [into])], attributes)


def _element(reader: OperationReader, of: Type, start: int) -> Type:
    if not isinstance(of, Tensor):
        raise reader.error("expects a tensor's type", start, expected=f"tensor<...>, not {type_text(of)}")
    return of.element


def _dimension(reader: OperationReader, name: str) -> Form:
    """``tensor.dim %a, %i : type``, ``tensor.rank %a : type``."""
    operands = reader.values_listed()
    attributes = reader.optional_attributes()
    _same(reader, operands[:1])
    return Contents(operands, [INDEX], attributes)


def _empty(reader: OperationReader, name: str) -> Form:
    """``tensor.empty(%n) : type``."""
    operands = reader.values_in_parentheses()
    attributes = reader.optional_attributes()
    reader.expect(":")
    return Contents(operands, [reader.type()], attributes)


def _splat(reader: OperationReader, name: str) -> Form:
    """``tensor.splat %x[%n] : type``."""
    scalar = reader.value()
    sizes = reader.listed(reader.value, "[", "]") if reader.peek() == "[" else []
    attributes = reader.optional_attributes()
    reader.expect(":")
    return Contents([scalar, *sizes], [reader.type()], attributes)


def _reshape(reader: OperationReader, name: str) -> Form:
    """``tensor.reshape %a(%sizes) : types -> type``."""
    operands = [reader.value(), *reader.values_in_parentheses()]
    attributes = reader.optional_attributes()
    return Contents(operands, reader.signature(operands), attributes)


def _concatenation(reader: OperationReader, name: str) -> Form:
    """``tensor.concat dim(0) %a, %b : types -> type``."""
    if not reader.accept_word("dim"):
        raise reader.error("expects 'dim(...)'", expected="'dim(...)'")
    reader.expect("(")
    attributes: dict[str, Attribute] = {"dim": reader.integer()}
    reader.expect(")")
    operands = reader.values_listed()
    attributes |= reader.optional_attributes()
    return Contents(operands, reader.signature(operands), attributes)


def _collapse(reader: OperationReader, name: str) -> Form:
    """``tensor.collapse_shape %a [[0, 1]] : type into type``, ``tensor.expand_shape %a [[0, 1]] output_shape [%n, 3] : ...``."""
    operands = [reader.value()]
    attributes: dict[str, Attribute] = {"reassociation": tuple(reader.listed(reader.integers, "[", "]"))}
    if reader.accept_word("output_shape"):
        sizes = reader.listed(lambda: reader.value() if reader.peek() == "%" else reader.integer(), "[", "]")
        operands += [s for s in sizes if isinstance(s, Value)]
        attributes["static_output_shape"] = tuple(-(2**63) if isinstance(s, Value) else s for s in sizes)
    attributes |= reader.optional_attributes()
    _same(reader, operands[:1])
    if not reader.accept_word("into"):
        raise reader.error("expects 'into' between types", expected="'into'")
    return Contents(operands, [reader.type()], attributes)


def _generate(reader: OperationReader, name: str) -> Generator[RegionRequest, Region, Contents]:
    """``tensor.generate %n { ... } : type``."""
    operands = reader.values_listed()
    region = yield RegionRequest()
    attributes = reader.optional_attributes()
    reader.expect(":")
    return Contents(operands, [reader.type()], attributes, [region])


_ARITHMETIC = (
    "addf addi andi ceildivsi ceildivui divf divsi divui floordivsi maxnumf maxsi maxui maximumf minnumf minsi minui minimumf "
    "mulf muli negf ori remf remsi remui shli shrsi shrui subf subi xori")
_CASTS = "bitcast convertf extf extsi extui fptosi fptoui index_cast index_castui sitofp truncf trunci uitofp"
_TO_TYPES = ("any add broadcast concat dim div get_extent max meet min mul num_elements rank shape_of to_extent_tensor "
             "value_as_shape split_at")

SHAPES: dict[str, FormReader] = {
    **{f"shape.{word}": _to_types for word in _TO_TYPES.split()},
    "shape.assuming": _assuming,
    "shape.assuming_all": _untyped(WITNESS, WITNESS),
    "shape.assuming_yield": terminator,
    "shape.const_shape": _constant_shape,
    "shape.const_size": _constant_size,
    "shape.const_witness": _constant_witness,
    "shape.cstr_broadcastable": _to(WITNESS),
    "shape.cstr_eq": _to(WITNESS),
    "shape.cstr_require": _required,
    "shape.from_extent_tensor": _to(SHAPE),
    "shape.from_extents": _to(SHAPE),
    "shape.index_to_size": _untyped(INDEX, SIZE),
    "shape.is_broadcastable": _to(PRED),
    "shape.reduce": _reduce_shape,
    "shape.shape_eq": _to(PRED),
    "shape.size_to_index": _to(INDEX),
    "shape.value_of": _value_of,
    "shape.with_shape": _to(VALUE_SHAPE),
    "shape.yield": terminator,
    **{f"arith.{word}": _arithmetic for word in _ARITHMETIC.split()},
    **{f"arith.{word}": _cast for word in _CASTS.split()},
    "arith.addui_extended": _extended(lambda t: [t, Tensor(t.dimensions, PRED) if isinstance(t, Tensor) else PRED]),
    "arith.cmpf": _comparison(_FLOAT_ORDER),
    "arith.cmpi": _comparison(_INTEGER_ORDER),
    "arith.constant": constant,
    "arith.mulsi_extended": _extended(lambda t: [t, t]),
    "arith.mului_extended": _extended(lambda t: [t, t]),
    "arith.select": _selection,
    "tensor.bitcast": _cast,
    "tensor.cast": _cast,
    "tensor.collapse_shape": _collapse,
    "tensor.concat": _concatenation,
    "tensor.dim": _dimension,
    "tensor.empty": _empty,
    "tensor.expand_shape": _collapse,
    "tensor.extract": _extract,
    "tensor.from_elements": _from_elements,
    "tensor.generate": _generate,
    "tensor.insert": _insert,
    "tensor.rank": _dimension,
    "tensor.reshape": _reshape,
    "tensor.splat": _splat,
    "tensor.yield": terminator,
}
