"""Attribute values of HLO instructions and their codecs: how each is checked, parsed from text and printed.

An op definition annotates its keyword-only parameters with the names at the end of this file (`Dims`, `Region`, ...), which
are ordinary types for a type checker and carry the codec for the op table.
"""

# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from ..core.errors import InvalidArgument
from ..core.participant_groups import GroupMode
from .canonical_values import canonical_numbers, integers_of, sequence_of, triples_of, wrong
from .codecs import (
    BoolCodec,
    ChoiceCodec,
    Codec,
    DimsCodec,
    FloatCodec,
    IntCodec,
    OperandAliasesCodec,
    RawCodec,
    RegionCodec,
    RegionsCodec,
    ShapesCodec,
    TextCodec,
    braced,
)
from .ir import Computation
from .literals.literal import Literal
from .literals.printing import format_literal
from .reader import Reader
from .replica_groups import parse_replica_groups
from .scanner import nearest

# ------------------------------------------------------------------------------------------------ values


@dataclasses.dataclass(frozen=True, slots=True)
class WindowDimension:
    """One dimension of a window (hlo/SPEC.md, Windows). Dilations are the base's (lhs) and the window's own (rhs)."""

    size: int
    stride: int = 1
    padding_low: int = 0
    padding_high: int = 0
    base_dilation: int = 1
    window_dilation: int = 1
    reversal: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class ConvolutionDimensionNumbers:
    """Which dimension of lhs (`input_batch_dimension`, `input_feature_dimension`, `input_spatial_dimensions`), rhs
    (`kernel_input_feature_dimension`, `kernel_output_feature_dimension`, `kernel_spatial_dimensions`) and output
    (`output_batch_dimension`, `output_feature_dimension`, `output_spatial_dimensions`) plays which part: numbers from 0, for
    spatial ones as many as the window has dimensions. ``b01f_01io->b01f`` in text. Raises InvalidArgument for no integer.

    >>> numbers = ops.ConvolutionDimensionNumbers(0, 2, (1,), 1, 2, (0,), 0, 2, (1,))          # b0f_0io->b0f
    >>> ops.ConvGeneral(torch.ones(1, 4, 2), torch.ones(3, 2, 5), [1], [(0, 0)], numbers).shape
    torch.Size([1, 2, 5])
    """

    input_batch_dimension: int
    input_feature_dimension: int
    input_spatial_dimensions: tuple[int, ...]
    kernel_input_feature_dimension: int
    kernel_output_feature_dimension: int
    kernel_spatial_dimensions: tuple[int, ...]
    output_batch_dimension: int
    output_feature_dimension: int
    output_spatial_dimensions: tuple[int, ...]

    def __post_init__(self) -> None:
        canonical_numbers(self)


@dataclasses.dataclass(frozen=True, slots=True)
class ReplicaGroups:
    """Groups of participants (`groups`, their numbers from 0), and the `text` they were written as (v1 braces, v2 iota or v3
    mesh) for printing back, which does not count where two are compared.

    >>> ops.ReplicaGroups(((0, 1), (2, 3))) == ops.ReplicaGroups(((0, 1), (2, 3)), text="[2,2]<=[4]")
    True
    """

    groups: tuple[tuple[int, ...], ...]
    text: str = dataclasses.field(default="", compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class ResultAccuracy:
    """A hint on accuracy: a `mode` (``default``, ``highest``) or tolerances (of which the mode is ``tolerance``): `atol`
    absolute, `rtol` relative to the exact value, `ulps` in units in the last place, numbers of 0 or more. Raises InvalidArgument
    for another mode, for tolerances beside one, and for a negative tolerance.

    >>> ops.ResultAccuracy(rtol=1e-3).mode
    'tolerance'
    """

    mode: str = "default"
    atol: float | None = None
    rtol: float | None = None
    ulps: int | None = None

    def __post_init__(self) -> None:
        given = [n for n in (self.atol, self.rtol, self.ulps) if n is not None]
        mode = "tolerance" if given and self.mode == "default" else str(self.mode).lower()
        if mode not in ("default", "highest", "tolerance") or (given and mode != "tolerance"):
            raise InvalidArgument("unknown result accuracy", subject="ResultAccuracy", got=self, expected="a mode or tolerances")
        if not all(isinstance(n, (int, float)) and not isinstance(n, bool) and n >= 0 for n in given):
            raise InvalidArgument("a tolerance must be a number of 0 or more", subject="ResultAccuracy", got=self)
        object.__setattr__(self, "mode", mode)


# ------------------------------------------------------------------------------------------------ codecs


class WindowCodec(Codec):
    """``{size=2x2 stride=2x2 pad=0_0x0_1 lhs_dilate=.. rhs_dilate=.. rhs_reversal=..}``."""

    fields: ClassVar[dict[str, tuple[str, str]]] = {
        "size": ("size", ""), "stride": ("stride", "1"), "pad": ("", "0_0"), "lhs_dilate": ("base_dilation", "1"),
        "rhs_dilate": ("window_dilation", "1"), "rhs_reversal": ("reversal", "0")}

    def parse(self, reader: Reader) -> tuple[WindowDimension, ...]:
        start = reader.skip()
        reader.expect("{")
        lists: dict[str, list[tuple[int, ...]]] = {}
        while not reader.accept("}"):
            at = reader.skip()
            key = reader.match(_window_key, "a field of the window: " + " ".join(self.fields)).group(1)
            if key not in self.fields or key in lists:
                raise reader.error("a window has no such field" if key not in self.fields else "a window's field is given twice",
                                   at, "fields " + " ".join(self.fields), nearest(key, self.fields))
            lists[key] = _crossed(reader)
            reader.skip()
            if any(len(entry) != (2 if key == "pad" else 1) or (key != "pad" and entry[0] < 0) for entry in lists[key]):
                raise reader.error(f"the window's {key} is malformed", at, "low_high for each dimension" if key == "pad"
                                   else "one integer for each dimension, not negative, as in 3x3")
        rank = len(lists.get("size", ()))
        for key, entries in lists.items():
            if len(entries) != rank:
                raise reader.error(f"the window's {key} has {len(entries)} entries and its size {rank}", start,
                                   "one entry for each window dimension")
        return tuple(self._dimension({k: v[d] for k, v in lists.items()}) for d in range(rank))

    def _dimension(self, entries: dict[str, tuple[int, ...]]) -> WindowDimension:
        low, high = entries.pop("pad", (0, 0))
        reversal = entries.pop("rhs_reversal", (0,))[0] == 1
        numbers = {self.fields[key][0]: entry[0] for key, entry in entries.items()}
        return WindowDimension(**numbers, padding_low=low, padding_high=high, reversal=reversal)

    def format(self, value: Sequence[WindowDimension]) -> str:
        columns = {key: [f"{w.padding_low}_{w.padding_high}" if key == "pad" else str(int(getattr(w, name))) for w in value]
                   for key, (name, _) in self.fields.items()}
        kept = (f"{key}={'x'.join(texts)}" for key, texts in columns.items()
                if any(text != self.fields[key][1] for text in texts))
        return "{" + " ".join(kept) + "}"

    def normalise(self, value: Any) -> tuple[WindowDimension, ...]:
        dimensions = sequence_of(value, "a sequence of WindowDimension")
        for dimension in dimensions:
            if not isinstance(dimension, WindowDimension):
                raise wrong("a WindowDimension", dimension)
        return dimensions


class ConvDimsCodec(Codec):
    """``b01f_01io->b01f``."""

    def parse(self, reader: Reader) -> ConvolutionDimensionNumbers:
        start = reader.skip()
        match = reader.match(_conv_dims, "dimension labels, as in b01f_01io->b01f")
        try:
            return self._read(*match.groups())
        except InvalidArgument as error:
            raise reader.error(error.what, start, error.expected) from None

    def _read(self, lhs: str, rhs: str, out: str) -> ConvolutionDimensionNumbers:
        spatial = len(lhs) - 2 - lhs.count("?")

        def places(labels: str, first: str, second: str) -> tuple[int, int, tuple[int, ...]]:
            words = [first, second, *map(str, range(spatial))]
            used = labels.replace("?", "")
            if sorted(used) != sorted(words):
                raise InvalidArgument(f"the dimension labels {labels!r} are not right for {spatial} spatial dimensions",
                                      expected=f"each of {' '.join(words)} once")
            return labels.index(first), labels.index(second), tuple(labels.index(w) for w in words[2:])

        return ConvolutionDimensionNumbers(*places(lhs, "b", "f"), *places(rhs, "i", "o"), *places(out, "b", "f"))

    def format(self, value: ConvolutionDimensionNumbers) -> str:
        def labels(named: dict[int, str], spatial: Sequence[int]) -> str:
            placed = named | {place: str(d) for d, place in enumerate(spatial)}
            return "".join(placed.get(d, "?") for d in range(max(placed) + 1))

        v = value
        return (labels({v.input_batch_dimension: "b", v.input_feature_dimension: "f"}, v.input_spatial_dimensions) + "_"
                + labels({v.kernel_input_feature_dimension: "i", v.kernel_output_feature_dimension: "o"},
                         v.kernel_spatial_dimensions) + "->"
                + labels({v.output_batch_dimension: "b", v.output_feature_dimension: "f"}, v.output_spatial_dimensions))

    def normalise(self, value: Any) -> ConvolutionDimensionNumbers:
        if isinstance(value, str) and (match := _conv_dims.fullmatch(value)):
            return self._read(*match.groups())
        if not isinstance(value, ConvolutionDimensionNumbers):
            raise wrong("ConvolutionDimensionNumbers, or labels as b01f_01io->b01f", value)
        return value


class PaddingCodec(Codec):
    """``1_2x0_-1_3``: (low, high, interior) for each dimension."""

    def parse(self, reader: Reader) -> tuple[tuple[int, int, int], ...]:
        start = reader.skip()
        if reader.token() in ("", ",", "}"):  # a scalar's, as XLA prints it (and cannot read)
            return ()
        entries = _crossed(reader)
        if not all(2 <= len(entry) <= 3 for entry in entries):
            raise reader.error("the padding is malformed", start, "low_high or low_high_interior for each dimension")
        return tuple((e[0], e[1], e[2] if len(e) > 2 else 0) for e in entries)

    def format(self, value: Sequence[tuple[int, int, int]]) -> str:
        interior = any(entry[2] for entry in value)
        return "x".join(f"{low}_{high}" + (f"_{inner}" if interior else "") for low, high, inner in value)

    def normalise(self, value: Any) -> tuple[tuple[int, int, int], ...]:
        return triples_of(value, "(low, high) or (low, high, interior) for each dimension", 0)


class SliceCodec(Codec):
    """``{[0:4:2], [1:3]}``: (start, limit, stride) for each dimension."""

    def parse(self, reader: Reader) -> tuple[tuple[int, int, int], ...]:
        def bounds() -> tuple[int, int, int]:
            match = reader.match(_bounds, "[start:limit] or [start:limit:stride]")
            return int(match.group(1)), int(match.group(2)), int(match.group(3) or 1)

        return tuple(reader.listed(bounds))

    def format(self, value: Sequence[tuple[int, int, int]]) -> str:
        strided = any(stride != 1 for _, _, stride in value)
        return "{" + ", ".join(f"[{start}:{limit}" + (f":{stride}]" if strided else "]")
                               for start, limit, stride in value) + "}"

    def normalise(self, value: Any) -> tuple[tuple[int, int, int], ...]:
        return triples_of(value, "(start, limit) or (start, limit, stride) for each dimension", 1)


class PairsCodec(Codec):
    """``{{0,1},{1,0}}``: tuples of integers."""

    def parse(self, reader: Reader) -> tuple[tuple[int, ...], ...]:
        return tuple(reader.listed(lambda: tuple(reader.listed(reader.integer))))

    def format(self, value: Sequence[Sequence[int]]) -> str:
        return braced(braced(map(str, group)) for group in value)

    def normalise(self, value: Any) -> tuple[tuple[int, ...], ...]:
        return tuple(map(integers_of, sequence_of(value, "a sequence of integer sequences")))


class ReplicaGroupsCodec(Codec):
    """v1 ``{{0,1},{2,3}}``, v2 ``[2,2]<=[4]`` or v3 ``mesh[...] {...}``."""

    def parse(self, reader: Reader) -> ReplicaGroups:
        start = reader.skip()
        groups = parse_replica_groups(reader)
        return ReplicaGroups(groups, reader.since(start))

    def format(self, value: ReplicaGroups) -> str:
        return value.text or PairsCodec().format(value.groups)

    def normalise(self, value: Any) -> ReplicaGroups:
        if isinstance(value, ReplicaGroups):
            return value
        return ReplicaGroups(PairsCodec().normalise(value))


class PrecisionCodec(Codec):
    """``{highest,default}``: one word for each operand."""

    words: ClassVar[tuple[str, ...]] = ("default", "high", "highest", "packed_nibble")

    def parse(self, reader: Reader) -> tuple[str, ...]:
        word = ChoiceCodec(self.words, any_case=True)
        return tuple(reader.listed(lambda: word.parse(reader)))

    def format(self, value: Sequence[str]) -> str:
        return braced(value)

    def normalise(self, value: Any) -> tuple[str, ...]:
        return tuple(map(ChoiceCodec(self.words).normalise, sequence_of(value, "a word for each operand")))


class ResultAccuracyCodec(Codec):
    """``{mode=highest}`` or ``{tolerance={atol=1e-3,rtol=0,ulps=2}}``."""

    modes: ClassVar[ChoiceCodec] = ChoiceCodec(("default", "highest"), any_case=True)

    def parse(self, reader: Reader) -> ResultAccuracy:
        reader.expect("{")
        key = reader.match(_field, "mode= or tolerance=").group(1)
        if key == "mode":
            value = ResultAccuracy(self.modes.parse(reader))
        elif key == "tolerance":
            value = self._tolerance(reader)
        else:
            raise reader.error("a result accuracy has no such field", expected="mode= or tolerance=")
        reader.expect("}")
        return value

    def _tolerance(self, reader: Reader) -> ResultAccuracy:
        def field() -> tuple[str, float]:
            key = reader.match(_field, "atol=, rtol= or ulps=").group(1)
            if key not in ("atol", "rtol", "ulps"):
                raise reader.error("a tolerance has no such field", expected="atol=, rtol= or ulps=")
            return key, reader.integer() if key == "ulps" else reader.number()

        return ResultAccuracy("tolerance", **dict(reader.listed(field)))  # pyright: ignore[reportArgumentType]

    def format(self, value: ResultAccuracy) -> str:
        if value.mode != "tolerance":
            return f"{{mode={value.mode}}}"
        return f"{{tolerance={{atol={value.atol or 0:g},rtol={value.rtol or 0:g},ulps={value.ulps or 0}}}}}"

    def normalise(self, value: Any) -> ResultAccuracy | None:
        if value is None or isinstance(value, ResultAccuracy):
            return value
        return ResultAccuracy(self.modes.normalise(value))


class LiteralCodec(Codec):
    """``literal=s32[] 4``: a literal with its shape in front."""

    context_free = False

    def parse(self, reader: Reader) -> Literal:
        return reader.literal(reader.shape())

    def format(self, value: Literal) -> str:
        return f"{value.shape.to_text(with_layout=True)} {format_literal(value)}"

    def normalise(self, value: Any) -> Literal:
        return value if isinstance(value, Literal) else Literal.of(value)


class AlgorithmCodec(ChoiceCodec):
    """How precisely a dot multiplies and adds; ``unset`` leaves that to its precision."""


# ------------------------------------------------------------------------------------------------ parts of codecs

_window_key = re.compile(r"(\w++)=")
_field = re.compile(r"(\w++)=")
_entry = re.compile(r"-?[0-9]++(?:_-?[0-9]++)*+")
_conv_dims = re.compile(r"([0-9bf?]{2,})_([0-9io?]{2,})->([0-9bf?]{2,})")
_bounds = re.compile(r"\[\s*+([0-9]++)\s*+:\s*+(-?[0-9]++)\s*+(?::\s*+([0-9]++)\s*+)?\]")


def _crossed(reader: Reader) -> list[tuple[int, ...]]:
    """``1_2x0_-1``: entries joined by ``x``, each of integers joined by ``_``."""
    entries: list[tuple[int, ...]] = []
    while True:
        entries.append(tuple(map(int, reader.match(_entry, "integers joined by x and _").group().split("_"))))
        if not reader.text.startswith("x", reader.pos):
            return entries
        reader.pos += 1


# ------------------------------------------------------------------------------------------------ annotations

Dims = Annotated[tuple[int, ...], DimsCodec()]
Int = Annotated[int, IntCodec()]
Bool = Annotated[bool, BoolCodec()]
Float = Annotated[float, FloatCodec()]
Text = Annotated[str, TextCodec()]
Region = Annotated[Computation, RegionCodec()]
Regions = Annotated[tuple[Computation, ...], RegionsCodec()]
Window = Annotated[tuple[WindowDimension, ...], WindowCodec()]
ConvDims = Annotated[ConvolutionDimensionNumbers, ConvDimsCodec()]
Padding = Annotated[tuple[tuple[int, int, int], ...], PaddingCodec()]
SliceBounds = Annotated[tuple[tuple[int, int, int], ...], SliceCodec()]
Pairs = Annotated[tuple[tuple[int, ...], ...], PairsCodec()]
Groups = Annotated[ReplicaGroups, ReplicaGroupsCodec()]
Precision = Annotated[tuple[str, ...], PrecisionCodec()]
Accuracy = Annotated[ResultAccuracy | None, ResultAccuracyCodec()]
LiteralWithShape = Annotated[Literal, LiteralCodec()]
Raw = Annotated[str, RawCodec()]
ShapeTexts = Annotated[str, ShapesCodec()]
OperandAliases = Annotated[str, OperandAliasesCodec()]

Direction = Annotated[str, ChoiceCodec(("EQ", "NE", "GE", "GT", "LE", "LT"))]
CompareType = Annotated[str, ChoiceCodec(("FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"))]
DotAlgorithm = Annotated[str, AlgorithmCodec((
    "unset", "dot_any_f8_any_f8_f32", "dot_any_f8_any_f8_f32_fast_accum", "dot_f16_f16_f16", "dot_f16_f16_f32",
    "dot_bf16_bf16_bf16", "dot_bf16_bf16_f32", "dot_bf16_bf16_f32_x3", "dot_bf16_bf16_f32_x6", "dot_tf32_tf32_f32",
    "dot_tf32_tf32_f32_x3", "dot_f32_f32_f32", "dot_f64_f64_f64", "dot_bf16_bf16_f32_x9"), any_case=True)]
FftType = Annotated[str, ChoiceCodec(("FFT", "IFFT", "RFFT", "IRFFT"))]
TransposeKind = Annotated[str, ChoiceCodec(("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"))]
RngDistribution = Annotated[str, ChoiceCodec(("rng_uniform", "rng_normal"), any_case=True)]
RngAlgorithm = Annotated[str, ChoiceCodec(("rng_default", "rng_three_fry", "rng_philox"), any_case=True)]
FusionKind = Annotated[str, ChoiceCodec(("kLoop", "kInput", "kOutput", "kCustom"))]
CustomCallSchedule = Annotated[str, ChoiceCodec(("SCHEDULE_NONE", "SCHEDULE_LATEST", "SCHEDULE_EARLIEST"), any_case=True)]
CustomCallApiVersion = Annotated[str, ChoiceCodec((
    "API_VERSION_ORIGINAL", "API_VERSION_STATUS_RETURNING", "API_VERSION_STATUS_RETURNING_UNIFIED",
    "API_VERSION_TYPED_FFI"), any_case=True)]
CollectiveMode = Annotated[GroupMode, ChoiceCodec(tuple(GroupMode))]
PaddingType = Annotated[str, ChoiceCodec(("PADDING_INVALID", "PADDING_VALID", "PADDING_SAME"))]
