"""The forms that dialects print their operations in.

Most of StableHLO's are of one make, ``op %a, %b, word = value {attributes} : types``: what the words stand for is a table. The
others have a function each, here or in the files that are imported.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from ...core.types import PrimitiveType, complex_part
from ...hlo.scanner import nearest
from ..ir import NO_BRANCHES, Attribute, Elements, Enum, Struct, Tensor, TupleType, Type, Value
from .pretty_functions import FUNCTIONS, call_contents
from .pretty_regions import REGIONS
from .pretty_shapes import SHAPES
from .pretty_shardings import SHARDINGS
from .reader import Contents, Form, FormReader, OperationReader
from .scanner import BLANK

_clause = re.compile(rf"{BLANK},?{BLANK}([a-z_]\w*)\s*=(?!=)")
_exponent_mantissa = re.compile(rf"{BLANK}e(\d{{1,4}})m(\d{{1,4}})(?!\w)")
_range = re.compile(rf"{BLANK}(-?\d{{1,19}})\s*:\s*(-?\d{{1,19}})(?:\s*:\s*(-?\d{{1,19}}))?")
_window_pair = re.compile(rf"{BLANK}\[\s*(-?\d{{1,19}})\s*,\s*(-?\d{{1,19}})\s*\]")

Clauses = dict[str, Attribute]
ClauseReader = Callable[[OperationReader, str, Clauses], None]


def reader_of(reader: OperationReader, name: str, start: int) -> tuple[str, FormReader]:
    """The whole name of an operation in a form of its own, and what reads it. Raises HloSyntaxError where no form is known."""
    for full in (name,) if "." in name else (f"func.{name}", f"builtin.{name}"):
        found = _FORMS.get(full)
        if found is not None:
            return full, found
    if name.partition(".")[0] in ("stablehlo", "mhlo", "chlo") and "." in name:
        return name, _clauses
    raise reader.error(f"no form of the operation {name!r} is known", start, hint=_what_to_do(name))


def _what_to_do(name: str) -> str:
    dialect = name.partition(".")[0] if "." in name else ""
    if dialect in ("cf", "scf"):
        return NO_BRANCHES
    known = sorted({form.partition(".")[0] for form in _FORMS})
    if dialect and dialect not in known:
        return f"the dialects that can be read are {', '.join(known)}: take the program before it was lowered to others"
    return nearest(name, _FORMS) or "print the program in the generic form (mlir-opt --mlir-print-op-generic)"


def has_form(name: str) -> bool:
    """Whether an operation of StableHLO, CHLO or MHLO has a form of its own."""
    return name in _FORMS


# ------------------------------------------------------------------------------- op %a, %b, word = value {attributes} : types


def _clauses(reader: OperationReader, name: str) -> Form:
    attributes: dict[str, Attribute] = {}
    operands = _operands(reader)
    _read_words(reader, name, attributes)
    attributes |= reader.optional_attributes()
    return Contents(operands, _types(reader, operands), attributes)


def _read_words(reader: OperationReader, name: str, into: Clauses) -> None:
    """``, word = value, ...``, as far as it goes."""
    dialect, _, rest = name.partition(".")
    words = _WORDS.get(f"stablehlo.{rest}", {})
    while clause := _clause.match(reader.text, reader.pos):
        read = words.get(clause[1])
        if read is None:
            raise reader.error(f"{name} has no {clause[1]!r}", clause.start(1), expected=" or ".join(words),
                               hint=nearest(clause[1], words))
        reader.pos = clause.end()
        read(reader, dialect, into)


def _operands(reader: OperationReader) -> list[Value]:
    """``%a, %b``, up to a comma that a clause follows; may be empty."""
    found = []
    while reader.peek() == "%":
        found.append(reader.value())
        mark = reader.pos
        if not reader.accept(",") or reader.peek() != "%":
            reader.pos = mark
            break
    return found


def _types(reader: OperationReader, operands: list[Value]) -> list[Type]:
    """``: type``, that of all operands and the result, or ``: types -> types``."""
    reader.expect(":", "in front of the types")
    start = reader.skip()
    if reader.peek() == "(":
        return reader.function_type(operands)
    types = reader.types_listed()
    if reader.accept("->"):
        reader.check_types(operands, types, start)
        return reader.types_in_parentheses() if reader.peek() == "(" else reader.types_listed()
    if len(types) != 1:
        raise reader.error("expects one type, or the types of the operands and of the results", start)
    reader.check_types(operands, types * len(operands), start)
    return types


# ---- what the words stand for


def _integers(attribute: str) -> ClauseReader:
    def read(reader: OperationReader, _: str, into: Clauses) -> None:
        into[attribute] = reader.integers()
    return read


def _integer(attribute: str) -> ClauseReader:
    def read(reader: OperationReader, _: str, into: Clauses) -> None:
        into[attribute] = reader.integer()
    return read


def _boolean(attribute: str) -> ClauseReader:
    def read(reader: OperationReader, _: str, into: Clauses) -> None:
        into[attribute] = reader.boolean()
    return read


def _string(attribute: str) -> ClauseReader:
    def read(reader: OperationReader, _: str, into: Clauses) -> None:
        into[attribute] = reader.string()
    return read


def _enum(attribute: str) -> ClauseReader:
    def read(reader: OperationReader, dialect: str, into: Clauses) -> None:
        into[attribute] = Enum(f"{dialect}.{attribute}", reader.word())
    return read


def _precision(reader: OperationReader, dialect: str, into: Clauses) -> None:
    into["precision_config"] = tuple(Enum(f"{dialect}.precision", w) for w in reader.listed(reader.word, "[", "]"))


def _format(reader: OperationReader, _: str, into: Clauses) -> None:
    match = reader.take(_exponent_mantissa, "a format such as e5m10")
    into["exponent_bits"], into["mantissa_bits"] = int(match[1]), int(match[2])


def _dimension_pairs(kind: str) -> ClauseReader:
    def read(reader: OperationReader, dialect: str, into: Clauses) -> None:
        sides = [reader.integers()]
        reader.expect("x", "between the dimensions of the operands")
        sides.append(reader.integers())
        numbers = into.setdefault("dot_dimension_numbers", Struct(f"{dialect}.dot", {})).fields
        numbers |= {f"{side}_{kind}_dimensions": found for side, found in zip(("lhs", "rhs"), sides, strict=True) if found}
    return read


def _algorithm(reader: OperationReader, dialect: str, into: Clauses) -> None:
    into["algorithm"] = Struct(f"{dialect}.dot_algorithm", reader.fields("dot_algorithm"))


def _convolution_dimensions(reader: OperationReader, dialect: str, into: Clauses) -> None:
    into["dimension_numbers"] = Struct(f"{dialect}.conv", reader.convolution_dimensions())


def _window(reader: OperationReader, _: str, into: Clauses) -> None:
    """``{stride = [2], pad = [[1, 1]], lhs_dilate = [1], rhs_dilate = [1], reverse = [false]}``."""
    def field() -> None:
        start, word = reader.skip(), reader.word()
        reader.expect("=")
        if word == "pad":
            pairs = reader.listed(lambda: reader.take(_window_pair, "a pair of integers"), "[", "]")
            numbers = np.array([(int(m[1]), int(m[2])) for m in pairs], np.int64).reshape(-1, 2)
            into["padding"] = Elements(Tensor(numbers.shape, PrimitiveType.S64), numbers)
        elif word == "reverse":
            into["window_reversal"] = tuple(reader.listed(lambda: _truth(reader), "[", "]"))
        elif word in _WINDOW:
            into[_WINDOW[word]] = reader.integers()
        else:
            raise reader.error(f"a window has no {word!r}", start, hint=nearest(word, (*_WINDOW, "pad", "reverse")))

    reader.listed(field)


def _truth(reader: OperationReader) -> bool:
    """``true`` or ``false``, in older texts ``1`` or ``0``."""
    return reader.integer() != 0 if reader.peek().isdigit() else reader.boolean()


_WINDOW = {"stride": "window_strides", "lhs_dilate": "lhs_dilation", "rhs_dilate": "rhs_dilation"}

_WORDS: dict[str, dict[str, ClauseReader]] = {
    "stablehlo.broadcast": {"sizes": _integers("broadcast_sizes")},
    "stablehlo.broadcast_in_dim": {"dims": _integers("broadcast_dimensions")},
    "stablehlo.dynamic_broadcast_in_dim": {"dims": _integers("broadcast_dimensions")},
    "stablehlo.cholesky": {"lower": _boolean("lower")},
    "stablehlo.concatenate": {"dim": _integer("dimension")},
    "stablehlo.dot": {"precision": _precision},
    "stablehlo.dot_general": {"batching_dims": _dimension_pairs("batching"), "contracting_dims": _dimension_pairs("contracting"),
                              "precision": _precision, "algorithm": _algorithm},
    "stablehlo.dynamic_iota": {"dim": _integer("iota_dimension")},
    "stablehlo.dynamic_slice": {"sizes": _integers("slice_sizes")},
    "stablehlo.einsum": {"config": _string("einsum_config")},
    "stablehlo.unary_einsum": {"config": _string("einsum_config")},
    "stablehlo.fft": {"type": _enum("fft_type"), "length": _integers("fft_length")},
    "stablehlo.get_dimension_size": {"dim": _integer("dimension")},
    "stablehlo.iota": {"dim": _integer("iota_dimension")},
    "stablehlo.pad": {"low": _integers("edge_padding_low"), "high": _integers("edge_padding_high"),
                      "interior": _integers("interior_padding")},
    "stablehlo.reduce_precision": {"format": _format},
    "stablehlo.reverse": {"dims": _integers("dimensions")},
    "stablehlo.rng": {"distribution": _enum("rng_distribution")},
    "stablehlo.rng_bit_generator": {"algorithm": _enum("rng_algorithm")},
    "stablehlo.set_dimension_size": {"dim": _integer("dimension")},
    "stablehlo.torch_index_select": {"dim": _integer("dim"), "batch_dims": _integer("batch_dims")},
    "stablehlo.transpose": {"dims": _integers("permutation")},
    "stablehlo.topk": {"k": _integer("k"), "largest": _boolean("largest")},
    "stablehlo.top_k": {"k": _integer("k"), "is_stable": _boolean("is_stable")},
    "stablehlo.convolution": {"dim_numbers": _convolution_dimensions, "window": _window},
    "stablehlo.dynamic_conv": {"dim_numbers": _convolution_dimensions, "window": _window},
}
"""By the name that the operation has in StableHLO, where CHLO and MHLO have it too."""


# ------------------------------------------------------------------------------------------------- forms of their own


def _value_and_types(reader: OperationReader, name: str) -> Form:
    """``constant dense<...> : type``, also ``constant() <{value = dense<...> : type}> : () -> type``."""
    if reader.accept("("):
        reader.expect(")")
        attributes: dict[str, Attribute] = {}
        if reader.accept("<"):
            attributes = reader.dictionary()
            reader.expect(">")
        attributes |= reader.optional_attributes()
        return Contents([], reader.signature([]), attributes)
    attributes = reader.optional_attributes()
    start = reader.skip()
    value = reader.attribute()
    if not isinstance(value, Elements):
        raise reader.error("a constant has the value dense<...>", start, expected="dense<...> : type")
    return Contents([], [value.type], {**attributes, "value": value})


def _comparison(reader: OperationReader, name: str) -> Form:
    """``compare EQ, %a, %b, FLOAT : types``."""
    dialect = name.partition(".")[0]
    attributes: dict[str, Attribute] = {"comparison_direction": Enum(f"{dialect}.comparison_direction", reader.word())}
    reader.expect(",", "after the direction of a comparison")
    operands = _operands(reader)
    if reader.accept(","):
        attributes["compare_type"] = Enum(f"{dialect}.comparison_type", reader.word())
    attributes |= reader.optional_attributes()
    return Contents(operands, _types(reader, operands), attributes)


def _slice(reader: OperationReader, name: str) -> Form:
    """``slice %a [0:4, 1:8:2] : types``."""
    operands = [reader.value()]
    ranges = reader.listed(lambda: reader.take(_range, "start:limit:stride"), "[", "]")
    attributes: dict[str, Attribute] = {
        "start_indices": tuple(int(m[1]) for m in ranges), "limit_indices": tuple(int(m[2]) for m in ranges),
        "strides": tuple(int(m[3] or 1) for m in ranges)}
    attributes |= reader.optional_attributes()
    return Contents(operands, _types(reader, operands), attributes)


def _custom_call(reader: OperationReader, name: str) -> Form:
    """``custom_call @target(%a) {attributes} : types``."""
    return call_contents(reader, {"call_target_name": reader.symbol_name()})


def _composite(reader: OperationReader, name: str) -> Form:
    """``composite "name" %a, %b {attributes} : types``."""
    attributes: dict[str, Attribute] = {"name": reader.string()}
    operands = reader.values_listed()
    attributes |= reader.optional_attributes()
    return Contents(operands, reader.signature(operands), attributes)


def _tuple_element(reader: OperationReader, name: str) -> Form:
    """``get_tuple_element %a[0] : types``."""
    operands = [reader.value()]
    reader.expect("[")
    attributes: dict[str, Attribute] = {"index": reader.integer()}
    reader.expect("]")
    attributes |= reader.optional_attributes()
    return Contents(operands, reader.signature(operands), attributes)


def _by_types(types_of: Callable[[OperationReader, list[Value], list[Type], int], list[Type]]) -> FormReader:
    """``op %a, %b {attributes} : types``, where the types need not say all."""
    def read(reader: OperationReader, name: str) -> Form:
        operands = reader.values_listed()
        attributes = reader.optional_attributes()
        reader.expect(":", "in front of the types")
        start = reader.skip()
        if reader.peek() == "(":
            return Contents(operands, reader.function_type(operands), attributes)
        return Contents(operands, types_of(reader, operands, reader.types_listed(), start), attributes)
    return read


def _of_selection(reader: OperationReader, operands: list[Value], types: list[Type], start: int) -> list[Type]:
    if len(types) != 2:
        raise reader.error("expects the types of the predicate and of the result", start)
    reader.check_types(operands, [types[0], types[1], types[1]], start)
    return types[1:]


def _of_complex(reader: OperationReader, operands: list[Value], types: list[Type], start: int) -> list[Type]:
    found = types[0]
    if len(types) != 1 or not isinstance(found, Tensor) or found.element not in (PrimitiveType.C64, PrimitiveType.C128):
        raise reader.error("expects a tensor of complex elements", start)
    part = Tensor(found.dimensions, complex_part(found.element), found.encoding)
    reader.check_types(operands, [part, part], start)
    return types


def _of_tuple(reader: OperationReader, operands: list[Value], types: list[Type], start: int) -> list[Type]:
    if len(types) != 1 or not isinstance(types[0], TupleType):
        raise reader.error("expects a tuple's type", start, expected="tuple<...>")
    reader.check_types(operands, types[0].elements, start)
    return types


def _barrier(reader: OperationReader, name: str) -> Form:
    """``optimization_barrier %a, %b : type, type``, or ``()`` without operands."""
    if reader.accept("("):
        reader.expect(")")
        return Contents([], [], reader.optional_attributes())
    operands = reader.values_listed()
    attributes = reader.optional_attributes()
    reader.expect(":", "in front of the types")
    start = reader.skip()
    types = reader.types_listed()
    reader.check_types(operands, types, start)
    return Contents(operands, types, attributes)


def _in_parentheses(reader: OperationReader, name: str) -> Form:
    """``op(%a, %b, word = value) ... : types``: operands and words may stand in the parentheses, words also behind them."""
    reader.expect("(")
    operands, attributes = _operands(reader), {}
    _read_words(reader, name, attributes)
    reader.expect(")", "after operands")
    _read_words(reader, name, attributes)
    attributes |= reader.optional_attributes()
    return Contents(operands, _types(reader, operands), attributes)


def _trace(reader: OperationReader, name: str) -> Form:
    """``mhlo.trace %a, "tag" : type``."""
    operands = [reader.value()]
    reader.expect(",")
    attributes: dict[str, Attribute] = {"tag": reader.string(), **reader.optional_attributes()}
    reader.expect(":")
    start = reader.skip()
    reader.check_types(operands, [reader.type()], start)
    return Contents(operands, [], attributes)


def _random_state(reader: OperationReader, name: str) -> Form:
    """``mhlo.xla.rng_get_and_update_state {delta = 1 : i64}``."""
    attributes = reader.optional_attributes()
    return Contents([], [Tensor((2,), PrimitiveType.U64)], attributes)


_OF_STABLEHLO: dict[str, FormReader] = {
    "stablehlo.compare": _comparison,
    "stablehlo.complex": _by_types(_of_complex),
    "stablehlo.composite": _composite,
    "stablehlo.constant": _value_and_types,
    "stablehlo.convolution": _in_parentheses,
    "stablehlo.custom_call": _custom_call,
    "stablehlo.dynamic_conv": _in_parentheses,
    "stablehlo.get_tuple_element": _tuple_element,
    "stablehlo.optimization_barrier": _barrier,
    "stablehlo.return": FUNCTIONS["func.return"],
    "stablehlo.select": _by_types(_of_selection),
    "stablehlo.slice": _slice,
    "stablehlo.top_k": _in_parentheses,
    "stablehlo.topk": _in_parentheses,
    "stablehlo.tuple": _by_types(_of_tuple),
}

_FORMS: dict[str, FormReader] = {
    **{dialect + name.removeprefix("stablehlo"): form for name, form in (_OF_STABLEHLO | REGIONS).items()
       for dialect in ("stablehlo", "mhlo", "chlo")},
    **FUNCTIONS,
    **SHAPES,
    **SHARDINGS,
    "mhlo.trace": _trace,
    "mhlo.xla.rng_get_and_update_state": _random_state,
}
