"""Attributes in MLIR's text, as the Python values that `ir.py` says."""

from __future__ import annotations

import re

import numpy as np

from ...core.types import PrimitiveType
from ...hlo.literals.number_text import round_to
from ...hlo.scanner import nearest
from ..ir import Attribute, Elements, Enum, Opaque, OtherType, Struct, Symbol, Type, typed
from .elements import hexadecimal, integer_as, integer_for_float, read_blob, read_dense
from .scanner import BLANK, NAME, TextScanner
from .types import TypeReader, type_text

_number = re.compile(rf"{BLANK}(-?(?:0x[0-9a-fA-F]+|\d+(?:\.\d*(?:[eE][+-]?\d+)?)?))(?![\w.])")
_hash = re.compile(rf"{BLANK}#({NAME}|\d+)")
_keyword = re.compile(rf"{BLANK}([a-z_]\w*)")
_key = re.compile(rf'{BLANK}(?:({NAME})|(?="))\s*')
_field = re.compile(rf"{BLANK}([A-Za-z_]\w*)\s*=")
_enum = re.compile(r'<\s*+"?\s*+([a-z_]\w*+)\s++([A-Za-z_]\w*+)\s*+"?\s*+>')
_mode = re.compile(r"<\s*([A-Z][A-Z_0-9]*)\s*>")
_integers = re.compile(rf"{BLANK}\[((?:\s*-?\d{{1,19}}\s*,)*\s*-?\d{{1,19}}\s*)?\]")
_empty = re.compile(r"<\s*>")
_other_entry = re.compile(rf"{BLANK}[\w$.\-]+\s*:\s*[^{{}}\s,]+,?")
_bounds = re.compile(r"\?|-?\d+")
_sizes = r"\s*+(?:(?:\?|-?\d++)\s*+(?:,\s*+(?:\?|-?\d++)\s*+)*+)?+"
_bounds_body = re.compile(rf"\s*+bounds\s*+=\s*+\[{_sizes}\]\s*+|{_sizes}")
_dimension_group = re.compile(rf"{BLANK}\[([\s\w,?]*)\]")

DIALECTS = ("stablehlo", "mhlo", "chlo")
"""Those whose attributes are read into their fields; other dialects' are kept as text."""

_DOT = tuple(f"{side}_{kind}_dimensions" for kind in ("batching", "contracting") for side in ("lhs", "rhs"))

_COMMA_AT_THE_END = frozenset({"stablehlo.conv", "stablehlo.dot", "stablehlo.gather", "stablehlo.scatter"})
"""Attributes whose last field MLIR reads with a comma behind it."""

FIELDS: dict[str, tuple[str, ...]] = {
    "stablehlo.channel_handle": ("handle", "type"),
    "stablehlo.conv": tuple(f"{side}_{field}" for side, fields in (
        ("input", ("batch_dimension", "feature_dimension", "spatial_dimensions")),
        ("kernel", ("input_feature_dimension", "output_feature_dimension", "spatial_dimensions")),
        ("output", ("batch_dimension", "feature_dimension", "spatial_dimensions"))) for field in fields),
    "stablehlo.dot": _DOT,
    "stablehlo.dot_algorithm": (
        "lhs_precision_type", "rhs_precision_type", "accumulation_type", "lhs_component_count", "rhs_component_count",
        "num_primitive_operations", "allow_imprecise_accumulation"),
    "stablehlo.gather": (
        "offset_dims", "collapsed_slice_dims", "operand_batching_dims", "start_indices_batching_dims", "start_index_map",
        "index_vector_dim"),
    "stablehlo.output_operand_alias": ("output_tuple_indices", "operand_index", "operand_tuple_indices"),
    "stablehlo.ragged_dot": ("dot_dimension_numbers", *_DOT, "lhs_ragged_dimensions", "rhs_group_dimensions"),
    "stablehlo.result_accuracy": ("atol", "rtol", "ulps", "mode"),
    "stablehlo.scatter": (
        "update_window_dims", "inserted_window_dims", "input_batching_dims", "scatter_indices_batching_dims",
        "scatter_dims_to_operand_dims", "index_vector_dim"),
}
"""The fields of attributes, by their names in StableHLO; CHLO and MHLO have the same. A misspelt one would go unseen."""

_CONVOLUTION = (("input", "b", "batch", "f", "feature"), ("kernel", "i", "input_feature", "o", "output_feature"),
                ("output", "b", "batch", "f", "feature"))


class AttributeReader(TypeReader):
    """Reads attributes. Aliases are known from where they are defined."""

    def __init__(self, text: str, filename: str = ""):
        super().__init__(text, filename)
        self.aliases: dict[str, Attribute] = {}
        self._number_type: Type | None = None
        self._resources: dict[str, tuple[int, int]] | None = None

    def attribute(self) -> Attribute:
        """An attribute with the type that may follow it."""
        letter = self.peek()
        if letter.isdigit() or letter == "-":
            return self._number()
        read = _READERS.get(letter)
        if read is not None:
            self.deeper()
            found = read(self)
            self.depth -= 1
            return found
        return self._by_keyword()

    def versioned_attribute(self, name: str, start: int) -> Attribute:
        """An attribute of VHLO at the cursor, behind its name (`text_vhlo.py`)."""
        raise NotImplementedError

    def typed_attribute(self) -> tuple[Attribute, Type | None]:
        """An attribute with its type, where it has one: a number, a truth value or a dense constant."""
        found = self.attribute()
        if isinstance(found, Elements):
            return found, found.type
        if isinstance(found, bool):
            return found, PrimitiveType.PRED
        if isinstance(found, int | float):
            return found, self._number_type or (PrimitiveType.S64 if isinstance(found, int) else PrimitiveType.F64)
        return found, None

    def dictionary(self) -> dict[str, Attribute]:
        """``{name = attribute, name, ...}``."""
        found: dict[str, Attribute] = {}
        self.expect("{")
        while not self.accept("}"):
            if found and not self.accept(","):
                raise self.error("expects ',' or '}' in a list of attributes", expected="',' or '}'")
            start = self.skip()
            match = self.take(_key, "an attribute's name")
            name = match[1] if match[1] is not None else self.string()
            if name in found:
                raise self.error(f"the attribute {name!r} is given twice", start)
            found[name] = self.attribute() if self.accept("=") else True
        return found

    def symbol(self) -> Symbol:
        """``@name::@nested``."""
        names = [self.symbol_name()]
        while self.accept("::"):
            names.append(self.symbol_name())
        return Symbol(names[0], tuple(names[1:]))

    def integers(self) -> tuple[int, ...]:
        """``[1, 2]``."""
        match = self.take(_integers, "integers in brackets")
        return tuple(map(int, match[1].split(","))) if match[1] else ()

    def boolean(self) -> bool:
        start, word = self.skip(), self.word("true or false")
        if word not in ("true", "false"):
            raise self.error("expects true or false", start, expected="true or false")
        return word == "true"

    # ---- the kinds of attributes

    def _text(self) -> str | bytes:
        found = self.string_or_bytes()
        if self.accept(":"):
            self.type()
        return found

    def _array(self) -> tuple[Attribute, ...]:
        match = _integers.match(self.text, self.pos)
        if match:
            self.pos = match.end()
            return tuple(map(int, match[1].split(","))) if match[1] else ()
        return tuple(self.listed(self.attribute, "[", "]"))

    def _number(self) -> Attribute:
        match = self.take(_number, "a number")
        self._number_type = of = self.type() if self.accept(":") else None
        return typed(self._valued(match[1], of, match.start(1)), of)

    def _valued(self, text: str, of: Type | None, start: int) -> bool | int | float:
        if "." in text and "x" not in text:
            return self._rounded(float(text), of, start)
        if len(text) > 60:
            raise self.error("the integer is too long", start)
        number = int(text, 0) if "x" in text else int(text)
        if isinstance(of, PrimitiveType) and of.is_floating:
            if "x" not in text:
                raise integer_for_float(self, text, start, of)
            return self._from_bits(number, of, start)
        if isinstance(of, OtherType) and of.text.startswith(("f", "tf")) and of.text != "f80":
            return float(number)
        if not isinstance(of, PrimitiveType):
            return number
        number = self._fitted(number, of, start)
        return number if of is not PrimitiveType.PRED else number != 0

    def _fitted(self, number: int, of: PrimitiveType, start: int) -> int:
        found = integer_as(number, of)
        if found is None:
            raise self.error(f"{number} is out of range for the type {type_text(of)}", start)
        return found

    def _rounded(self, number: float, of: Type | None, start: int) -> float:
        if of is None or isinstance(of, OtherType):
            return number
        if not isinstance(of, PrimitiveType) or not of.is_floating:
            raise self.error(f"a decimal number has a floating type, not {type_text(of)}", start)
        assert of.numpy is not None
        return float(round_to(np.array(number), of.numpy))

    def _from_bits(self, bits: int, of: PrimitiveType, start: int) -> float:
        width = of.itemsize
        if not 0 <= bits < 2 ** (8 * width):
            raise self.error(f"these bits do not fit in {type_text(of)}", start)
        assert of.numpy is not None
        with np.errstate(all="ignore"):
            return float(np.array(bits, f"u{width}").view(of.numpy).astype(np.float64))

    def _by_keyword(self) -> Attribute:
        start = self.skip()
        match = _keyword.match(self.text, self.pos)
        if match:
            read = _KEYWORDS.get(match[1])
            if read is not None:
                self.pos = match.end()
                return read(self, start)
            if match[1] in _KEPT_AS_TEXT and self.text[match.end():match.end() + 1] in ("<", "["):
                self.pos = self.balanced_end(match.end())
                if match[1] == "distinct" and self.peek() == "<":
                    self.pos = self.balanced_end(self.pos)
                return Opaque(self.text[start:self.pos])
        if not self.at_type():
            raise self.error("expects an attribute", start, expected="an attribute")
        return self.type()

    def _dense(self, start: int) -> Elements:
        """``dense<...> : type``; what stands in the brackets is looked at when the type is known."""
        self.expect("<", "after 'dense'")
        begin = self.skip()
        end = self.text.find('"', begin + 1) + 1 if self.text.startswith('"', begin) else begin
        end = self.text.find(">", end) if end or begin == 0 else -1
        if end < 0:
            raise self.error("the literal has no end", start, expected="'>'")
        self.pos = end + 1
        if not self.accept(":"):
            raise self.error("expects a literal, '>', ':' and its type", start, expected="dense<...> : type")
        of = self.type()
        after, self.pos = self.pos, begin
        found = read_dense(self, end, of, start)
        self.pos = after
        return found

    def _packed_array(self, start: int) -> tuple[Attribute, ...]:
        """``array<i64: 1, 2>``."""
        self.expect("<", "after 'array'")
        of = self.type()
        if not isinstance(of, PrimitiveType):
            raise self.error("an array has elements of an integer or floating type", start)
        if self.accept(">"):
            return typed((), of)
        self.expect(":", "behind the type of an array")
        found = [self._packed_element(of)]
        while self.accept(","):
            found.append(self._packed_element(of))
        self.expect(">")
        return typed(tuple(found), of)

    def _packed_element(self, of: PrimitiveType) -> bool | int | float:
        start = self.skip()
        if of.is_pred:
            return self.boolean()
        if not of.is_floating:
            return self._fitted(self.integer(), of, start)
        text = self.take(_number, "a number")[1]
        if "x" in text:
            return self._from_bits(int(text, 16), of, start)
        if "." not in text:
            raise integer_for_float(self, text, start, of)
        return self._rounded(float(text), of, start)

    def _resource(self, start: int) -> Elements:
        """``dense_resource<name> : type``, whose data stand at the end of the file."""
        self.expect("<", "after 'dense_resource'")
        at = self.skip()
        name = self.string() if self.peek() == '"' else self.take(_resource_name, "a resource's name")[1]
        self.expect(">")
        self.expect(":", "between a resource and its type")
        of = self.type()
        if self._resources is None:
            self._resources = find_resources(self.text, self.filename)
        place = self._resources.get(name)
        if place is None:
            raise self.error(f"the file has no data of the resource {name!r}", at)
        data = hexadecimal(self, place[0] + 3, place[1] - 1)
        return read_blob(self, name, data[4:], of, at)

    # ---- attributes of dialects

    def _dialect_attribute(self) -> Attribute:
        start = self.skip()
        match = self.take(_hash, "an attribute")
        name, opening = match[1], self.text[match.end():match.end() + 1]
        if "." not in name and opening != "<":
            if "#" + name not in self.aliases:
                raise self.error(f"the alias #{name} is not defined", start)
            return self.aliases["#" + name]
        dialect, _, kind = name.partition(".")
        if dialect == "vhlo":
            return self.versioned_attribute(kind, start)
        if dialect in DIALECTS:
            return self._known(dialect, kind, start)
        if opening == "<":
            self.pos = self.balanced_end(self.pos)
        text = self.text[start:self.pos]
        if name == "complex.number" and self.accept(":"):
            self.type()
        return Opaque(text)

    def _known(self, dialect: str, kind: str, start: int) -> Attribute:
        match = (_mode if kind else _enum).match(self.text, self.pos)
        if match:
            self.pos = match.end()
            return Enum(f"{dialect}.{kind or match[1]}", match[match.lastindex or 1])
        if not kind and self.text.startswith("<", self.pos):  # the long spelling #stablehlo<dot ...>
            self.pos += 1
            kind = self.word("an attribute's name")
        if kind in ("bounds", "type_extensions"):
            return Struct(f"{dialect}.bounds", {"bounds": self.bounds()})
        if kind == "conv":
            return Struct(f"{dialect}.conv", self._convolution())
        if self.peek() != "<":
            return Opaque(self.text[start:self.pos])
        known = f"stablehlo.{kind}" in FIELDS or _field.match(self.text, self.pos + 1) or _empty.match(self.text, self.pos)
        if not known or kind == "result_alias":  # which has words that are no fields
            self.pos = self.balanced_end(self.pos)
            return Opaque(self.text[start:self.pos])
        return Struct(f"{dialect}.{kind}", self.fields(kind))

    def fields(self, kind: str) -> dict[str, Attribute]:
        """``<name = value, ...>``, the fields of an attribute of this kind."""
        self.expect("<")
        return self._fields_until_closed(kind)

    def _fields_until_closed(self, kind: str) -> dict[str, Attribute]:
        found: dict[str, Attribute] = {}
        known = FIELDS.get(f"stablehlo.{kind}")
        while not self.accept(">"):
            if found and not self.accept(","):
                raise self.error("expects ',' or '>' in an attribute", expected="',' or '>'")
            if found and f"stablehlo.{kind}" in _COMMA_AT_THE_END and self.accept(">"):
                break
            match = self.take(_field, "a field")
            if known and match[1] not in known:
                raise self.error(f"{kind} has no field {match[1]!r}", match.start(1), expected=" or ".join(known),
                                 hint=nearest(match[1], known))
            if match[1] in found:
                raise self.error(f"the field {match[1]!r} is given twice", match.start(1))
            start = self.skip()
            found[match[1]] = value = self.attribute()
            if known and isinstance(value, tuple) and any(type(v) is not int for v in value):
                raise self.error(f"the field {match[1]!r} is a list of integers", start)
        return found

    def bounds(self) -> tuple[int | None, ...]:
        """``<4, ?>`` or, as it was once written, ``<bounds = [4, ?]>``."""
        start, end = self.skip(), self.balanced_end(self.skip())
        body = self.text[start + 1:end - 1]
        if not _bounds_body.fullmatch(body) or any(len(n) > 19 for n in _bounds.findall(body)):
            raise self.error("expects bounds", start, expected="integers and '?'")
        self.pos = end
        return tuple(None if n == "?" or int(n) < 0 else int(n) for n in _bounds.findall(body))

    def _convolution(self) -> dict[str, Attribute]:
        self.expect("<")
        if self.accept_word("raw"):
            return self._fields_until_closed("conv")
        found = self.convolution_dimensions()
        self.expect(">")
        return found

    def convolution_dimensions(self) -> dict[str, Attribute]:
        """``[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]`` by the names of the specification."""
        found: dict[str, Attribute] = {}
        for (side, *letters), before in zip(_CONVOLUTION, ("", "x", "->"), strict=True):
            if before:
                self.expect(before, "between the dimensions of a convolution")
            start = self.skip()
            match = self.take(_dimension_group, "the dimensions of a convolution")
            places = [p.strip() for p in match[1].split(",")]
            named = dict(zip(letters[::2], letters[1::2], strict=True))
            spatial = {int(p): k for k, p in enumerate(places) if p.isdecimal() and len(p) < 4}
            if any(places.count(letter) != 1 for letter in named) or sorted(spatial) != list(range(len(spatial))) or \
                    len(spatial) + sum(p in (*named, "?") for p in places) != len(places):
                raise self.error("these are not the dimensions of a convolution", start,
                                 expected=f"{' and '.join(named)} once, and 0, 1, ... for the spatial dimensions")
            found |= {f"{side}_{word}_dimension": places.index(letter) for letter, word in named.items()}
            found[f"{side}_spatial_dimensions"] = tuple(spatial[k] for k in range(len(spatial)))
        return found


_resource_name = re.compile(rf"{BLANK}([\w$.\-]+)")
_resource_entry = re.compile(rf'{BLANK}(?:([\w$.\-]+)|"([^"\\]*)")\s*:\s*(?="0x)')
_group = re.compile(rf"{BLANK}([\w$.\-]+)\s*:\s*\{{")


def find_resources(text: str, filename: str) -> dict[str, tuple[int, int]]:
    """Where in the text the data of resources stand (their quotes included), by name."""
    found: dict[str, tuple[int, int]] = {}
    start = text.rfind("{-#")
    if start < 0:
        return found
    scanner = TextScanner(text, filename)
    scanner.pos = start + 3
    depth = 0
    while not scanner.accept("#-}"):
        if entry := _resource_entry.match(text, scanner.pos):
            close = text.find('"', entry.end() + 1)
            if close < 0:
                raise scanner.error("the data of a resource have no end", entry.end())
            found[entry[1] or entry[2]] = entry.end(), close + 1
            scanner.pos = close + 1
            scanner.accept(",")
        elif group := _group.match(text, scanner.pos):
            scanner.pos, depth = group.end(), depth + 1
        elif depth and scanner.accept("}"):
            depth -= 1
            scanner.accept(",")
        elif other := _other_entry.match(text, scanner.pos):
            scanner.pos = other.end()
        else:
            raise scanner.error("expects a resource", expected='name: "0x..."')
    return found


def _typed_true(reader: AttributeReader, _: int) -> bool:
    return True


def _sparse(reader: AttributeReader, start: int) -> Attribute:
    raise reader.error("sparse constants cannot be read", start)


_KEPT_AS_TEXT = ("affine_map", "affine_set", "strided", "distinct", "loc")

_READERS = {
    '"': AttributeReader._text,
    "[": AttributeReader._array,
    "{": AttributeReader.dictionary,
    "@": AttributeReader.symbol,
    "#": AttributeReader._dialect_attribute,
}

_KEYWORDS = {
    "true": _typed_true,
    "unit": _typed_true,
    "false": lambda _reader, _start: False,
    "dense": AttributeReader._dense,
    "dense_resource": AttributeReader._resource,
    "array": AttributeReader._packed_array,
    "sparse": _sparse,
}
