"""What an op definition is, and the table of all of them.

A definition is one decorated function for each HLO opcode::

    @op("dynamic-slice", infer=dynamic_slice_shape, stablehlo="dynamic_slice")
    def dynamic_slice(inst, operand, *start_indices, dynamic_slice_sizes: Dims):
        ...torch...

- The first parameter is the instruction: result shape, operand shapes. The body takes static facts from it, never from a
  tensor, because the same body runs on torch tensors and on torch.fx proxies (that is how a program is lowered).
- The other positional parameters are operands (values in carrier dtypes; tuples as Python tuples), in HLO order.
- Keyword-only parameters are the HLO attributes; the annotation is the attribute's codec (`opcodes/attributes.py`), the
  default is the value of an attribute that is not written, and none means required.
- `infer(declared, *operand_shapes, **attributes) -> Shape` is strict and always runs before torch. `declared` is the shape
  written in the text, or None; an op whose result does not follow from its operands returns `declared` after checking it.

The parser, printer, verifier, builder, lowering, the docs' op table and the completeness test read this table.
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable
from typing import Any

from ..shape import Shape

REQUIRED: Any = inspect.Parameter.empty


@dataclasses.dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of an op: its codec (see `attributes.Codec`) and its default."""

    name: str
    codec: Any
    default: Any = REQUIRED

    @property
    def required(self) -> bool:
        return self.default is REQUIRED


@dataclasses.dataclass(frozen=True, slots=True)
class OpDefinition:
    """All that the project knows of one HLO opcode."""

    opcode: str
    body: Callable[..., Any]
    infer: Callable[..., Shape]
    operands: tuple[str, ...]
    variadic: str | None
    """Name of the ``*parameter`` that takes the remaining operands, or None."""
    optional_operands: int
    attributes: dict[str, Attribute]
    family: str
    stablehlo: str = ""
    elementwise: bool = False
    """Each result element depends on the operands' elements at the same place only: operands may come as scalars
    (0-dimensional tensors or Python numbers) that stand for an array of equal elements."""
    numbers: tuple[str, ...] = ()
    """Operands of an elementwise body that may be Python numbers. At least one operand is always a tensor."""
    movement: bool = False
    """Result elements are operand elements, unchanged: nothing to wrap or round for narrow types."""
    view: bool = False
    """The result may share memory with operand 0, so it is never overwritten."""
    pure: bool = True
    """Equal operands give equal results and nothing else happens; False for random numbers and feeds."""
    exchange: bool = False
    """Not pure, as all participants must do it equally often, but nothing is lost where none of them does it."""
    effect: str = ""
    """The attribute that says of one instruction of an op whether it has an effect all the same (see `inference.is_pure`)."""
    inferable: bool = True
    """The shape may be left out of HLO text."""
    control: bool = False
    """Evaluated by the lowering (while, conditional, call, ...), which passes computations, not values."""

    def attribute_values(self, attributes: dict[str, Any]) -> dict[str, Any]:
        """`attributes` with the defaults filled in."""
        if len(attributes) == len(self.attributes):
            return attributes
        return {n: a.default for n, a in self.attributes.items() if not a.required} | attributes

    def named_operands(self, values: tuple[Any, ...] | list[Any]) -> dict[str, Any]:
        """Operand values by name; the variadic ones as a tuple under their one name."""
        count = len(self.operands)
        named = dict(zip(self.operands, values, strict=False))
        if self.variadic:
            named[self.variadic] = tuple(values[count:])
        return named


def _codec_of(hint: Any) -> Any:
    """The codec inside an annotation, also of ``Region | None``."""
    for metadata in getattr(hint, "__metadata__", ()):
        if hasattr(metadata, "parse"):
            return metadata
    return next(filter(None, map(_codec_of, typing.get_args(hint))), None)


OPS: dict[str, OpDefinition] = {}
"""Every op definition by opcode. Filled by importing `xla_torch.opcodes`."""


def op(opcode: str, *, infer: Callable[..., Shape], stablehlo: str = "", elementwise: bool = False,
       numbers: str = "", movement: bool = False, view: bool = False, pure: bool = True, exchange: bool = False,
       effect: str = "", inferable: bool = True, control: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Define an opcode. Fails at import for a duplicate, a missing `infer` or an attribute without a codec."""

    def define(body: Callable[..., Any]) -> Callable[..., Any]:
        place = f"{body.__module__}.{body.__qualname__}"
        if opcode in OPS:
            earlier = OPS[opcode].body
            raise TypeError(f"opcode {opcode!r} is defined twice: {earlier.__module__}.{earlier.__qualname__} and {place}")
        if not callable(infer):
            raise TypeError(f"{place}: infer must be a function")
        hints = typing.get_type_hints(body, include_extras=True)
        operands: list[str] = []
        variadic, optional, attributes = None, 0, {}
        for position, (name, parameter) in enumerate(inspect.signature(body).parameters.items()):
            if position == 0:
                continue  # the instruction
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
        OPS[opcode] = OpDefinition(
            opcode, body, infer, tuple(operands), variadic, optional, attributes, body.__module__.rpartition(".")[2],
            stablehlo, elementwise, tuple(numbers.split()), movement, view, pure and not exchange, exchange, effect, inferable,
            control)
        return body

    return define
