"""What an op's schema is, and the table of all of them.

A schema is one decorated signature for each HLO opcode, in `xla_torch.opcodes`, a file for each family::

    @op("dynamic-slice", infer=dynamic_slice_shape, stablehlo="dynamic_slice", traits=Trait.REARRANGES)
    def dynamic_slice(operand, *start_indices, dynamic_slice_sizes: Dims): ...

- The positional parameters are operands, in HLO order; a default marks an operand that may be left out.
- Keyword-only parameters are the HLO attributes; the annotation is the attribute's codec (`hlo/attributes.py`), the default
  is the value of an attribute that is not written, and none means required.
- `infer(declared, *operand_shapes, **attributes) -> Shape` is strict and always runs before torch. `declared` is the shape
  written in the text, or None; an op whose result does not follow from its operands returns `declared` after checking it.
- `traits` say what every analysis and transform may know of the op without knowing its name.

The decorator returns the opcode, so that code which is about one certain op names it ``movement.dynamic_slice`` and not by a
string of its own.

Nothing here and in `xla_torch.opcodes` imports torch. What an op computes stands in `lowering/bodies`, its gradient in
`grad_rules`, its other rules in rule tables (`hlo/rule_tables.py`), all under the same family name.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..core.errors import UnsupportedError
from ..core.shape import Shape

REQUIRED: Any = inspect.Parameter.empty


class Trait(enum.Flag):
    """What is true of every instruction of an op."""

    NONE = 0
    ELEMENTWISE = enum.auto()
    """Each result element depends on the operands' elements at the same place only: operands may come as scalars that stand
    for an array of equal elements."""
    MOVES_DATA = enum.auto()
    """Result elements are operand elements (or are read from their bits), unchanged: there is nothing to wrap or round for
    narrow types."""
    REARRANGES = enum.auto()
    """Moves elements of operand 0 only, so that an array of equal elements stays one, unless the element type changes."""
    FORWARDS = enum.auto()
    """The result is the value of operand 0, perhaps in another layout, memory or shape of as many elements: where the shapes
    are compatible (`inference.forwarded`) the two are one value."""
    READS_LAYOUT = enum.auto()
    """Which element of the operand is which of the result follows from the layouts of both."""
    COMMUTATIVE = enum.auto()
    """Of two operands, whose order does not matter."""
    ASSOCIATIVE = enum.auto()
    """``(a b) c`` is ``a (b c)``, up to rounding."""
    TRANSCENDENTAL = enum.auto()
    """Counted apart from arithmetic, and dear to compute again."""
    SINGULAR_DERIVATIVE = enum.auto()
    """The derivative is infinite somewhere in the domain or at its edge."""
    FREE = enum.auto()
    """Computes nothing: it names or views what is there."""
    CHEAP = enum.auto()
    """Dearer to keep than to compute again."""
    STREAMS = enum.auto()
    """Costs what copying its result costs: elements are read in an order that no operand's values decide."""
    NO_TRAFFIC = enum.auto()
    """Reads and writes no memory at run time."""
    MIXED_PRECISION = enum.auto()
    """Operands may differ in float width: the op passes buffers on, or says itself what precision it computes in."""
    PARTIAL_READ = enum.auto()
    """Reads no more of operand 0 than it returns."""


class Control(enum.Enum):
    """How values pass between an instruction and the computations that it runs (see `hlo/regions.py`)."""

    CALL = enum.auto()
    """One computation of the operands; its result is the instruction's."""
    START = enum.auto()
    """One computation of the operands, begun here: the result is (operands, the computation's result, ...)."""
    BRANCHES = enum.auto()
    """One of several computations, each of an operand of its own behind the selector; its result is the instruction's."""
    LOOP = enum.auto()
    """A condition and a body of the one carried value; the body's result is carried on, and the last one is the result."""


@dataclasses.dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of an op: its codec (see `codecs.Codec`) and its default."""

    name: str
    codec: Any
    default: Any = REQUIRED

    @property
    def required(self) -> bool:
        return self.default is REQUIRED


class Newer(NamedTuple):
    """Attributes that newer XLA writes in text, by name, and what makes the schema's attributes of them: a function of the
    operands and the attributes, which it changes. It returns what is wrong with them, or ""."""

    codecs: Mapping[str, Any]
    as_older: Callable[[Sequence[Any], dict[str, Any]], str]


@dataclasses.dataclass(frozen=True, slots=True)
class OpSchema:
    """All that is known of one HLO opcode without running it."""

    opcode: str
    infer: Callable[..., Shape]
    operands: tuple[str, ...]
    variadic: str | None
    """Name of the ``*parameter`` that takes the remaining operands, or None."""
    optional_operands: int
    attributes: dict[str, Attribute]
    family: str
    where: str
    """Module and name of the schema."""
    stablehlo: str = ""
    traits: Trait = Trait.NONE
    pure: bool = True
    """Equal operands give equal results and nothing else happens; False for random numbers and feeds."""
    exchange: bool = False
    """Not pure, as all participants must do it equally often, but nothing is lost where none of them does it."""
    effect: str = ""
    """The attribute that says of one instruction of an op whether it has an effect all the same (see `inference.is_pure`)."""
    inferable: bool = True
    """The shape may be left out of HLO text."""
    control: Control | None = None
    element_region: int | None = None
    """For an op whose computation takes elements of the operands, in their own precision: how many parameters one after another
    each operand has in it; 0 where any operand may be in any parameter."""
    completes: tuple[str, ...] = ()
    """The opcodes whose instruction this one ends, or goes on with: the first half must be its operand."""
    returns_tuple: bool = False
    """The result is a tuple also of one; text may write the one by itself."""
    channel_of: str = ""
    """As `completes`, but a loop may carry what was begun, so that the operand need not be the first half itself."""
    newer: Newer | None = None
    """Attributes that newer XLA writes for the schema's."""

    def has(self, trait: Trait) -> bool:
        return trait in self.traits

    @property
    def elementwise(self) -> bool:
        return Trait.ELEMENTWISE in self.traits

    @property
    def is_second_half(self) -> bool:
        """Whether it ends, or goes on with, what another instruction began."""
        return bool(self.completes or self.channel_of)

    def attribute_values(self, attributes: dict[str, Any]) -> dict[str, Any]:
        """`attributes` with the defaults filled in."""
        if len(attributes) == len(self.attributes):
            return attributes
        return {n: a.default for n, a in self.attributes.items() if not a.required} | attributes

    def operand_names(self, count: int) -> tuple[str, ...]:
        """The names of `count` operands; the variadic ones all have one name."""
        names = self.operands[:count]
        return names + (self.variadic or "",) * (count - len(names))


def _codec_of(hint: Any) -> Any:
    """The codec inside an annotation, also of ``Region | None``."""
    for metadata in getattr(hint, "__metadata__", ()):
        if hasattr(metadata, "parse"):
            return metadata
    return next((codec for part in typing.get_args(hint) if (codec := _codec_of(part)) is not None), None)


OPS: dict[str, OpSchema] = {}
"""Every op's schema by opcode. Filled by importing `xla_torch.opcodes`."""


WITHOUT_COMPUTATIONS: set[str] = set()
"""The opcodes whose instructions refer to no computation: nearly all."""


def schema_of(opcode: str) -> OpSchema:
    """The schema of an opcode. Raises UnsupportedError with the nearest known names."""
    schema = OPS.get(opcode)
    if schema is None:
        near = ", ".join(difflib.get_close_matches(opcode, OPS, 3))
        raise UnsupportedError(f"unknown opcode {opcode!r}", expected="an opcode of XLA",
                               hint=f"did you mean {near}?" if near else "")
    return schema


def op(opcode: str, *, infer: Callable[..., Shape], stablehlo: str = "", traits: Trait = Trait.NONE, pure: bool = True,
       exchange: bool = False, effect: str = "", inferable: bool = True, control: Control | None = None,
       element_region: int | None = None, completes: tuple[str, ...] = (), returns_tuple: bool = False, channel_of: str = "",
       newer: Newer | None = None) -> Callable[[Callable[..., Any]], str]:
    """Define an opcode; what is decorated becomes the opcode itself.

    Raises TypeError at import for a duplicate, an `infer` that cannot be called and an attribute without a codec.
    """

    def define(signature: Callable[..., Any]) -> str:
        place = f"{signature.__module__}.{signature.__qualname__}"
        if opcode in OPS:
            raise TypeError(f"opcode {opcode!r} is defined twice: {OPS[opcode].where} and {place}")
        if not callable(infer):
            raise TypeError(f"{place}: infer must be a function")
        operands, variadic, optional, attributes = _parameters(signature, place)
        OPS[opcode] = OpSchema(
            opcode, infer, operands, variadic, optional, attributes, signature.__module__.rpartition(".")[2], place, stablehlo,
            traits, pure and not exchange, exchange, effect, inferable, control, element_region, completes, returns_tuple,
            channel_of, newer)
        if all(attribute.codec.context_free for attribute in attributes.values()):
            WITHOUT_COMPUTATIONS.add(opcode)
        return opcode

    return define


def _parameters(signature: Callable[..., Any], place: str) -> tuple[tuple[str, ...], str | None, int, dict[str, Attribute]]:
    """Operands, the variadic one's name, how many may be left out, and attributes."""
    hints = typing.get_type_hints(signature, include_extras=True)
    operands: list[str] = []
    attributes: dict[str, Attribute] = {}
    variadic, optional = None, 0
    for name, parameter in inspect.signature(signature).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            variadic = name
        elif parameter.kind is parameter.KEYWORD_ONLY:
            codec = _codec_of(hints.get(name))
            if codec is None:
                raise TypeError(f"{place}: attribute {name!r} has no codec annotation")
            attributes[name] = Attribute(name, codec, parameter.default)
        else:
            operands.append(name)
            optional += parameter.default is not REQUIRED
    return tuple(operands), variadic, optional, attributes
