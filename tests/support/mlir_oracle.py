"""The bindings of jaxlib as a second reader of MLIR: `read` gives the objects of `mlir.ir` that the own readers give."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from jaxlib.mlir import ir as bindings

from support.stablehlo_oracle import load_stablehlo, new_context, parse
from xla_torch.mlir import ir
from xla_torch.opcodes.front import parse_module
from xla_torch.types import C64, C128, PrimitiveType, type_from_text

_CONV = re.compile(r"#(\w+)\.conv<\[(.*?)\]x\[(.*?)\]->\[(.*?)\]>")
_CONV_FIELDS = ("input", "kernel", "output")
_CONV_LETTERS = {"b": "batch", "f": "feature", "i": "input_feature", "o": "output_feature"}
_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|->|-?\d+\.\d*(?:[eE][-+]?\d+)?|-?\d+|[#@!]?[A-Za-z_$][\w.$]*|.)')
_STRUCTS = ("dot", "gather", "scatter", "dot_algorithm", "channel_handle", "output_operand_alias", "result_accuracy",
            "ragged_dot", "replica_group_mesh_axes")
_NATIVE = {"i1": "pred"}


def read(program: str | bytes) -> ir.Operation:
    """The ``builtin.module`` of StableHLO text, bytecode or a portable artifact."""
    with new_context() as context:
        return operation(parse(program, context).operation)


def operation(given: Any) -> ir.Operation:
    """An operation of the bindings, with all within it, as one of `xla_torch.mlir.ir`."""
    return _operation(given.operation, {})


def _operation(given: Any, values: dict[Any, ir.Value]) -> ir.Operation:
    keys = [k if isinstance(k, str) else k.name for k in given.attributes]
    made = ir.Operation(given.name, [values[v] for v in given.operands], [type_of(r.type) for r in given.results],
                        {k: _named(given, k) for k in keys})
    made.location = location(str(given.location))
    if made.location is not None and not made.location.name and made.location.frames[0][0] == "-":  # a place in the text itself
        (_, made.line, made.column), made.location = made.location.frames[0], None
    values.update(zip(given.results, made.results, strict=True))
    made.regions = [ir.Region([_block(b, values) for b in region.blocks]) for region in given.regions]
    return made


def _block(given: Any, values: dict[Any, ir.Value]) -> ir.Block:
    block = ir.Block([type_of(a.type) for a in given.arguments])
    values.update(zip(given.arguments, block.arguments, strict=True))
    block.operations = [_operation(o.operation, values) for o in given.operations]
    return block


# ------------------------------------------------------------------------------------------------------------------- types


def type_of(given: Any) -> ir.Type:
    if isinstance(given, bindings.RankedTensorType):
        sizes = tuple(None if given.is_dynamic_dim(d) else given.get_dim_size(d) for d in range(given.rank))
        return ir.Tensor(sizes, _element(given.element_type), None if given.encoding is None else attribute(given.encoding))
    if isinstance(given, bindings.UnrankedTensorType):
        return ir.Tensor(None, _element(given.element_type))
    if isinstance(given, bindings.TupleType):
        return ir.TupleType(tuple(type_of(given.get_type(k)) for k in range(given.num_types)))
    if isinstance(given, bindings.FunctionType):
        return ir.FunctionType(tuple(map(type_of, given.inputs)), tuple(map(type_of, given.results)))
    return _element(given)


def _element(given: Any) -> Any:
    text = str(given)
    if text.startswith("!quant.uniform"):
        return _quantized(text)
    if text.endswith(".token"):
        return ir.TOKEN
    return _primitive(text) or ir.OtherType(text)


def _primitive(text: str) -> PrimitiveType | None:
    if text in ("complex<f32>", "complex<f64>"):
        return C64 if text == "complex<f32>" else C128
    text = _NATIVE.get(text) or re.sub(r"^i(\d+)$", r"s\1", re.sub(r"^ui(\d+)$", r"u\1", text))
    return type_from_text(text.lower())


def _quantized(text: str) -> ir.Quantized:
    found: Any = re.fullmatch(
        r"!quant\.uniform<([iu])(\d+)(?:<(-?\d+):(-?\d+)>)?:(\w+)(?::(\d+)|:\{(.*?)\})?, ?(.*)>", text)
    sign, width, low, high, expressed, axis, blocks, parameters = found.groups()
    bits, pairs = int(width), [p.strip().partition(":") for p in re.sub(r"[{}\s]", "", parameters).split(",")]
    least = -(1 << (bits - 1)) if sign == "i" else 0
    axes, block = ((int(axis),), (1,)) if axis is not None else ((), ())
    if blocks:
        numbers = [tuple(map(int, b.split(":"))) for b in blocks.split(",")]
        axes, block = tuple(n[0] for n in numbers), tuple(n[1] for n in numbers)
    storage: Any = type_from_text(("s" if sign == "i" else "u") + width)
    return ir.Quantized(storage, least if low is None else int(low), least + (1 << bits) - 1 if high is None else int(high),
                        _primitive(expressed) or PrimitiveType.F32,
                        tuple(float(s) for s, _, _ in pairs), tuple(int(z or 0) for _, _, z in pairs),
                        axes, block)


# -------------------------------------------------------------------------------------------------------------- attributes


def _named(given: Any, key: str) -> ir.Attribute:
    try:
        value = given.attributes[key]
    except TypeError:  # complex numbers have no class in these bindings
        text = given.get_asm(print_generic_op_form=True, large_elements_limit=1 << 40)
        found = re.search(rf"\b{key} = (dense<.*?> : (tensor<[^<>]*complex<\w+>>))", text, re.DOTALL)
        return _elements_of_text(found[1], bindings.Type.parse(found[2], given.context)) if found else ir.Opaque("")
    return attribute(value)


_PLAIN = (bindings.BoolAttr, bindings.IntegerAttr, bindings.FloatAttr)
_ARRAYS = (bindings.DenseBoolArrayAttr, bindings.DenseI8ArrayAttr, bindings.DenseI16ArrayAttr, bindings.DenseI32ArrayAttr,
           bindings.DenseI64ArrayAttr, bindings.DenseF32ArrayAttr, bindings.DenseF64ArrayAttr)
_ARRAY_TYPE: Any = re.compile(r"array<(\w+)")
_DENSE = (bindings.DenseElementsAttr, bindings.DenseIntElementsAttr, bindings.DenseFPElementsAttr,
          bindings.DenseResourceElementsAttr)


def attribute(given: Any) -> ir.Attribute:
    if isinstance(given, _PLAIN):
        return ir.typed(given.value, type_of(given.type))
    if isinstance(given, bindings.StringAttr):
        try:
            return given.value_bytes.decode()
        except UnicodeDecodeError:
            return given.value_bytes
    if isinstance(given, bindings.ArrayAttr):
        return tuple(attribute(a) for a in given)
    if isinstance(given, _ARRAYS):
        return ir.typed(tuple(given), type_of(bindings.Type.parse(_ARRAY_TYPE.match(str(given))[1], given.context)))
    if isinstance(given, bindings.DictAttr):
        return {given[k].name: attribute(given[k].attr) for k in range(len(given))}
    if isinstance(given, bindings.TypeAttr):
        return type_of(given.value)
    if isinstance(given, bindings.UnitAttr):
        return True
    if isinstance(given, bindings.SymbolRefAttr | bindings.FlatSymbolRefAttr):
        first, *nested = given.value if isinstance(given.value, list) else [given.value]
        return ir.Symbol(first, tuple(nested))
    if isinstance(given, _DENSE):
        return _elements(given)
    return _dialect(str(given))


def _elements(given: Any) -> ir.Elements:
    of: Any = type_of(given.type)
    try:
        value = np.array(given)
    except (TypeError, ValueError, RuntimeError):
        return _elements_of_text(str(given), given.type)
    return ir.Elements(of, value.reshape(of.dimensions).astype(_dtype(of), copy=False))


def _dtype(of: Any) -> Any:
    element = of.element.storage if isinstance(of.element, ir.Quantized) else of.element
    return np.dtype(np.int64) if element == ir.INDEX else element.numpy


def _elements_of_text(text: str, given: Any) -> ir.Elements:
    """By XLA's converter, which has all types."""
    of: Any = type_of(given)
    stored = ir.Tensor(of.dimensions, of.element.storage) if isinstance(of.element, ir.Quantized) else of
    if stored is not of:
        native = re.sub(r"!quant\.uniform<([iu]\d+).*>>", r"\1>", str(given)).replace("xu", "xui")
        text, given = text.removesuffix(str(given)) + native, native
    module = parse_module(load_stablehlo(
        f"func.func @main() -> {given} {{ %0 = stablehlo.constant {text}\n return %0 : {given} }}"))
    constant = next(i for i in module.entry.instructions if "literal" in i.attributes)  # one element where all are equal
    return ir.Elements(of, np.broadcast_to(constant.attributes["literal"].array, of.dimensions))


# ------------------------------------------------------------------------------------------------ attributes of dialects


def _dialect(text: str) -> ir.Attribute:
    """An attribute of a dialect from its text."""
    found = _CONV.fullmatch(text)
    if found is not None:
        return ir.Struct(f"{found[1]}.conv", _conv(found.groups()[1:]))
    found = re.fullmatch(r"#(\w+)<(\w+) (\w+)>", text) or re.fullmatch(r"#(\w+)\.(result_accuracy_mode)<(\w+)>", text)
    if found is not None and found[1] in ("stablehlo", "mhlo", "chlo"):
        return ir.Enum(f"{found[1]}.{found[2]}", found[3])
    found = re.fullmatch(r"#(\w+)\.(bounds|type_extensions)<(.*)>", text)
    if found is not None:
        numbers = re.findall(r"\d+|\?", found[3])
        return ir.Struct(f"{found[1]}.bounds", {"bounds": tuple(None if n == "?" else int(n) for n in numbers)})
    found = re.match(r"#(stablehlo|mhlo|chlo)\.(\w+)<", text)
    if found is not None and found[2] in _STRUCTS:
        return _Reader(text).value()
    return ir.Opaque(text)


def _conv(parts: tuple[str, ...]) -> dict[str, ir.Attribute]:
    fields: dict[str, ir.Attribute] = {}
    for side, part in zip(_CONV_FIELDS, parts, strict=True):
        places = [p.strip() for p in part.split(",")]
        for letter, name in _CONV_LETTERS.items():
            if letter in places:
                fields[f"{side}_{name}_dimension"] = places.index(letter)
        spatial = {int(p): k for k, p in enumerate(places) if p.isdigit()}
        fields[f"{side}_spatial_dimensions"] = tuple(spatial[k] for k in sorted(spatial))
    return fields


class _Reader:
    """Values inside the angle brackets of an attribute."""

    def __init__(self, text: str):
        self._tokens, self._at = _TOKEN.findall(text), 0

    def _next(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1]

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def value(self) -> ir.Attribute:
        token = self._next()
        if token == "[":
            return self._until("]")
        if token.startswith("#"):
            return self._struct(token[1:])
        if token in ("true", "false"):
            return token == "true"
        if token.startswith("@"):
            return ir.Symbol(token[1:])
        if token.startswith('"'):
            return token[1:-1]
        if re.fullmatch(r"-?\d+", token):
            return int(token)
        if re.fullmatch(r"-?\d+\..*", token):
            return float(token)
        return _primitive(token) or ir.OtherType(token)

    def _until(self, end: str) -> tuple[ir.Attribute, ...]:
        found = []
        while self._peek() != end:
            found.append(self.value())
            if self._peek() == ",":
                self._next()
        self._next()
        return tuple(found)

    def _struct(self, kind: str) -> ir.Attribute:
        assert self._next() == "<"
        if kind.endswith("result_accuracy_mode"):
            return ir.Enum(kind, next(w.text if isinstance(w, ir.OtherType) else str(w) for w in self._until(">")))
        fields: dict[str, ir.Attribute] = {}
        while self._peek() != ">":
            name = self._next()
            assert self._next() == "=", name
            fields[name] = self.value()
            if self._peek() == ",":
                self._next()
        self._next()
        return ir.Struct(kind, fields)


# --------------------------------------------------------------------------------------------------------------- locations


def location(text: str) -> ir.Location | None:
    """A location from its text: the outermost name, and the places in files, innermost call first."""
    name, frames = _location(text.removeprefix("loc(").removesuffix(")"))
    return ir.Location(name, tuple(frames)) if name or frames else None


def _location(text: str) -> tuple[str, list[tuple[str, int, int]]]:
    text = text.strip()
    found = re.fullmatch(r'("(?:[^"\\]|\\.)*"):(\d+):(\d+)(?: to .*)?', text)
    if found is not None:
        return "", [(_unquoted(found[1]), int(found[2]), int(found[3]))]
    found = re.fullmatch(r'("(?:[^"\\]|\\.)*")(?:\((.*)\))?', text, re.DOTALL)
    if found is not None:
        return _unquoted(found[1]), _location(found[2])[1] if found[2] else []
    if text.startswith("callsite("):
        callee, caller = _split(text[9:-1], " at ")
        (name, inner), (_, outer) = _location(callee), _location(caller)
        return name, inner + outer
    if text.startswith("fused"):
        names, frames = [], []
        for part in _split(text[text.index("[") + 1:-1], ", "):
            name, found_frames = _location(part)
            names.append(name)
            frames += found_frames
        return ";".join(filter(None, names)), frames
    return "", []


def _split(text: str, separator: str) -> list[str]:
    """At the separators outside of brackets and strings."""
    parts, depth, quoted, begin = [], 0, False, 0
    for k, letter in enumerate(text):
        if letter == '"' and text[k - 1] != "\\":
            quoted = not quoted
        elif not quoted and letter in "([<":
            depth += 1
        elif not quoted and letter in ")]>":
            depth -= 1
        elif not quoted and not depth and text.startswith(separator, k):
            parts.append(text[begin:k])
            begin = k + len(separator)
    return [*parts, text[begin:]]


def _unquoted(text: str) -> str:
    return re.sub(r"\\(?:([0-9A-Fa-f]{2})|(.))", lambda m: chr(int(m[1], 16)) if m[1] else m[2], text[1:-1])
