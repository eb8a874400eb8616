"""The element types that an op takes, found by asking its shape function."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from xla_torch.errors import XlaError
from xla_torch.hlo.attributes import PaddingCodec, SliceCodec
from xla_torch.hlo.codecs import ChoiceCodec, Codec, DimsCodec, FloatCodec, IntCodec
from xla_torch.hlo.inference import infer_shape
from xla_torch.hlo.schema import OPS, Attribute, OpSchema
from xla_torch.shape import Shape
from xla_torch.types import C64, F32, PRED, S32, U32, Kind, PrimitiveType


def operand_names(schema: OpSchema) -> tuple[str, ...]:
    """The names of an op's operands; a variadic one begins with ``*``."""
    return schema.operands + ((f"*{schema.variadic}",) if schema.variadic else ())


_SEEDS = (F32, S32, PRED, C64, U32)
_DIMENSIONS = ((2, 2), (2,), ())
_ARRAY_TYPES = tuple(t for t in PrimitiveType if t.is_array)
_SAMPLES: dict[type[Codec], tuple[Any, ...]] = {
    DimsCodec: ((0,), (2,), (), (0, 1)), IntCodec: (0, 1), FloatCodec: (0.5,), PaddingCodec: (((0, 0, 0),) * 2,),
    SliceCodec: (((0, 2, 1),) * 2,)}
_KIND_NAMES = {Kind.PRED: "pred", Kind.SIGNED: "signed", Kind.UNSIGNED: "unsigned", Kind.FLOAT: "floats",
               Kind.COMPLEX: "complex"}


@functools.cache
def element_types(opcode: str) -> str:
    """The element types of an op's operands, found by trying: its shape inference is given small arrays of every type.

    Operands that take different types are named. Empty for ops of regions, windows, tuples and tokens, which it cannot try.
    """
    definition = OPS[opcode]
    names = operand_names(definition)
    if not names or any(a.required and not _samples(a) for a in definition.attributes.values()):
        return ""
    found = _accepted(definition, len(names))
    if not all(found):
        return ""
    texts = [_type_text(types) for types in found]
    if len(set(texts)) == 1:
        return texts[0]
    return "; ".join(f"{name.lstrip('*')}: {text}" for name, text in zip(names, texts, strict=True))


def _samples(attribute: Attribute) -> tuple[Any, ...]:
    """Values to try for a required attribute; none for what has no small example."""
    codec = attribute.codec
    if isinstance(codec, ChoiceCodec):
        return codec.words
    return _SAMPLES.get(type(codec), ())


def _accepted(definition: OpSchema, count: int) -> list[set[PrimitiveType]]:
    """For each operand the types that are taken, over all choices of attributes that are one word of several."""
    found: list[set[PrimitiveType]] = [set() for _ in range(count)]
    required = [a for a in definition.attributes.values() if a.required]
    words, others = ([a for a in required if isinstance(a.codec, ChoiceCodec) is chosen] for chosen in (True, False))
    for choice in _settings(words):
        taken = (_taken(definition.opcode, count, choice | setting) for setting in _settings(others))
        for types in next(filter(None, taken), ()):
            for place, element_type in enumerate(types):
                found[place].add(element_type)
    return found


def _settings(attributes: Sequence[Attribute]) -> Iterator[dict[str, Any]]:
    """Every combination of the attributes' samples."""
    for values in itertools.product(*map(_samples, attributes)):
        yield {a.name: value for a, value in zip(attributes, values, strict=True)}


Types = tuple[PrimitiveType, ...]


def _taken(opcode: str, count: int, attributes: dict[str, Any]) -> list[Types]:
    """Type combinations that are taken, in the first dimensions in which there is one.

    All combinations of up to two operands; of more, a few, and these with every type in some of the places.
    """
    for dims in itertools.product(_DIMENSIONS, repeat=count) if count <= 3 else _same_but_first(count):
        examples = [types for types in _seed_types(count) if _takes(opcode, types, dims, attributes)]
        if examples:
            tried = itertools.product(_ARRAY_TYPES, repeat=count) if count <= 2 else _varied(examples, count)
            return [types for types in tried if _takes(opcode, types, dims, attributes)]
    return []


def _same_but_first(count: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    for first, other in itertools.product(_DIMENSIONS, repeat=2):
        yield (first, *[other] * (count - 1))


def _seed_types(count: int) -> Iterator[Types]:
    """One type for all operands, or one of them of another type."""
    for common, other in itertools.product(_SEEDS, repeat=2):
        for place in range(count) if common is not other else (0,):
            yield tuple(other if k == place else common for k in range(count))


def _varied(examples: Sequence[Types], count: int) -> set[Types]:
    """Each example, with every type in the place of some of its own, all at once."""
    places = [p for size in range(1, count + 1) for p in itertools.combinations(range(count), size)]
    return {tuple(tried if k in changed else t for k, t in enumerate(types))
            for types, changed, tried in itertools.product(examples, places, _ARRAY_TYPES)}


def _takes(opcode: str, types: Sequence[PrimitiveType], dims: Sequence[tuple[int, ...]], attributes: dict[str, Any]) -> bool:
    shapes = [Shape.array(t, d) for t, d in zip(types, dims, strict=True)]
    try:
        infer_shape(opcode, shapes[0], shapes, attributes)
    except XlaError:
        return False
    return True


def _type_text(types: set[PrimitiveType]) -> str:
    """Whole kinds by their names, other types by their own."""
    by_kind = {kind: {t for t in _ARRAY_TYPES if t.kind is kind} for kind in _KIND_NAMES}
    whole = [kind for kind, members in by_kind.items() if members <= types]
    if len(whole) == len(by_kind):
        return "any"
    words = [_KIND_NAMES[kind] for kind in whole]
    if Kind.SIGNED in whole and Kind.UNSIGNED in whole:
        words[words.index("signed"):words.index("unsigned") + 1] = ["integers"]
    return ", ".join(words + [t.text for t in _ARRAY_TYPES if t in types and t.kind not in whole])
