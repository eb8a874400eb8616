"""Provide XlaBuilder, XlaOp, XlaComputation and HloModule as XLA's client library does."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from ..analysis.cost import computation_cost
from ..api.loading import from_hlo_proto, from_stablehlo, parse_hlo
from ..core.errors import InvalidArgument, UnsupportedError
from ..functions import hlo_builder
from ..hlo.ir import Instruction, Module
from ..hlo.printer import PrintOptions, print_module
from ..hlo.sharding import Sharding, ShardingKind
from ..opcodes import collective, control, dynamic, internal, movement, random, token
from ..runtime.computation import XlaComputation as Computation
from ..runtime.program import Program
from ..runtime.static import StaticComputation
from . import shapes
from .errors import raising_methods
from .records import OpMetadata, OpSharding
from .shapes import given

__all__ = ["HloComputation", "HloModule", "HloPrintOptions", "XlaBuilder", "XlaComputation", "XlaOp",
           "hlo_module_cost_analysis", "hlo_module_from_text", "hlo_module_to_dot_graph", "mlir_module_to_xla_computation",
           "xla_computation_to_mlir_module"]

_ELIDED_ABOVE = 10
"""Elements of a constant that stand in the text unless all are asked for, as there."""


class XlaOp(hlo_builder.XlaOp):
    """Represent a value of a computation under construction.

    Operators build ops, but ``==`` compares identity.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self is other

    def __ne__(self, other: object) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self is not other

    __hash__ = object.__hash__


_DEPENDS = {movement.parameter, random.rng, control.while_, control.call, internal.custom_call, collective.all_reduce,
            collective.reduce_scatter, token.infeed, token.outfeed}
"""Opcodes whose results XLA's builder takes for no constants, whatever their operands are."""


@raising_methods
class XlaBuilder(hlo_builder.Builder):
    """Collects the instructions of one computation, whose root is the last one unless `build` is told another.

    Errors are raised by the call that makes the bad op, not by `build`.
    """

    def __init__(self, name: str):
        super().__init__(name)
        self._common: dict[str, Any] = {}
        self._aliases: list[str] = []

    def append(self, instruction: Instruction) -> XlaOp:
        for name, value in self._common.items():
            instruction.common.setdefault(name, _for_leaves(value, instruction) if name == "sharding" else value)
        return XlaOp(self, super().append(instruction).instruction)

    def build(self, root: hlo_builder.XlaOp | None = None) -> XlaComputation:
        """Close the computation. Raises InvalidArgument where parameter numbers are not 0, 1, 2, ... ."""
        header = {"input_output_alias": "{ " + ", ".join(self._aliases) + " }"} if self._aliases else None
        return XlaComputation.of(StaticComputation(Module(self.name, self.finish(root), header)))

    Build = build

    def get_shape(self, op: hlo_builder.XlaOp) -> shapes.Shape:
        return shapes.Shape.of(self._own(op, "get_shape").shape)

    GetShape = get_shape

    def get_program_shape(self, root: hlo_builder.XlaOp | None = None) -> shapes.ProgramShape:
        return shapes.ProgramShape.of(self.finish(root).program_shape)

    def is_constant(self, op: hlo_builder.XlaOp) -> bool:
        """Whether the op is the same in each run as far as XLA's builder sees: it depends on no parameter, random number, loop,
        call or exchange. What is asked of a dimension's size is that of the operand's shape."""
        stack, seen = [self._own(op, "is_constant").instruction], set()
        while stack:
            instruction = stack.pop()
            if instruction.opcode in _DEPENDS:
                return False
            if id(instruction) in seen or (instruction.opcode == dynamic.get_dimension_size and _is_static(instruction)):
                continue
            seen.add(id(instruction))
            stack.extend(instruction.operands)
        return True

    def set_op_metadata(self, metadata: OpMetadata) -> None:
        """Note where the instructions come from that are built from here on."""
        fields = {field.name: getattr(metadata, field.name) for field in dataclasses.fields(OpMetadata)}
        self._common["metadata"] = {name: value for name, value in fields.items() if value}

    def clear_op_metadata(self) -> None:
        self._common.pop("metadata", None)

    def set_sharding(self, sharding: OpSharding) -> None:
        """Give the instructions that are built from here on a sharding."""
        self._common["sharding"] = given(sharding)

    def clear_sharding(self) -> None:
        self._common.pop("sharding", None)

    def set_frontend_attributes(self, attributes: Mapping[str, str]) -> None:
        """Give the instructions that are built from here on these attributes."""
        self._common["frontend_attributes"] = dict(attributes)

    def clear_frontend_attributes(self) -> None:
        self._common.pop("frontend_attributes", None)

    def setup_alias(self, output_index: Sequence[int], param_number: int, param_index: Sequence[int]) -> None:
        """Note that a result may take a parameter's memory. It is written into the program, and changes no value."""
        places = [", ".join(map(str, index)) for index in (output_index, param_index)]
        self._aliases.append(f"{{{places[0]}}}: ({param_number}, {{{places[1]}}}, may-alias)")

    def _own(self, op: hlo_builder.XlaOp, subject: str) -> hlo_builder.XlaOp:
        if not isinstance(op, hlo_builder.XlaOp) or op.builder is not self:
            raise InvalidArgument("not an op of this builder", subject=subject, got=type(op).__name__)
        return op


def _is_static(instruction: Instruction) -> bool:
    (dimension,) = instruction.attributes["dimensions"]
    return not instruction.operands[0].shape.dynamic_flags[dimension]


def _for_leaves(sharding: Sharding, instruction: Instruction) -> Sharding:
    """The sharding, said for each array of a tuple."""
    shape = instruction.shape
    if not shape.is_tuple or sharding.kind == ShardingKind.TUPLE:
        return sharding
    return Sharding(ShardingKind.TUPLE, elements=(sharding,) * shape.leaf_count)


@raising_methods
class XlaComputation:
    """A program, of `XlaBuilder.build` or of a serialised HloModuleProto. `computation` is that of xla_torch, which can be
    differentiated, batched and called with tensors."""

    def __init__(self, serialized_hlo_module_proto: bytes):
        self.computation: Computation = from_hlo_proto(serialized_hlo_module_proto)

    @classmethod
    def of(cls, computation: Computation) -> XlaComputation:
        """A computation of xla_torch."""
        made = cls.__new__(cls)
        made.computation = computation
        return made

    @property
    def program(self) -> Program:
        """What ops that call computations ask for."""
        return self.computation.program

    def name(self) -> str:
        return self.computation.name

    def program_shape(self) -> shapes.ProgramShape:
        return shapes.ProgramShape.of(self.computation.program_shape)

    def as_hlo_text(self, print_large_constants: bool = False) -> str:
        """The program as HLO text, in which constants of more than ten elements are left out unless they are asked for."""
        if print_large_constants:
            return self.computation.to_hlo_text()
        return print_module(self.computation.module, PrintOptions(elide_above=_ELIDED_ABOVE))

    def as_serialized_hlo_module_proto(self) -> bytes:
        return self.computation.to_hlo_proto()

    def as_hlo_dot_graph(self) -> str:
        return self.computation.to_dot()

    def as_hlo_module(self) -> HloModule:
        return HloModule.of(self.computation)

    get_hlo_module = as_hlo_module

    def hash(self) -> int:
        """Equal for equal programs; another number than there."""
        return int.from_bytes(hashlib.sha256(self.computation.to_hlo_text().encode()).digest()[:8], "little")


@dataclasses.dataclass(slots=True)
class HloPrintOptions:
    """How `HloModule.to_string` prints. What is printed otherwise here, or not at all, has no field."""

    print_large_constants: bool = False
    print_metadata: bool = True
    include_layout_in_shapes: bool = True

    def of_xla_torch(self) -> PrintOptions:
        return PrintOptions(None if self.print_large_constants else _ELIDED_ABOVE, self.print_metadata,
                            self.include_layout_in_shapes)


@dataclasses.dataclass(frozen=True, slots=True)
class HloComputation:
    """One computation of a module, by its name."""

    name: str


@raising_methods
class HloModule:
    """A program as HLO."""

    def __init__(self, *_: Any):
        raise UnsupportedError("HloModule takes a program", subject="HloModule",
                               hint="use XlaComputation.get_hlo_module() or hlo_module_from_text(text)")

    @staticmethod
    def of(computation: Computation) -> HloModule:
        """The module of a computation of xla_torch."""
        made = HloModule.__new__(HloModule)
        made.computation = computation
        return made

    @staticmethod
    def from_serialized_hlo_module_proto(serialized_hlo_module_proto: bytes) -> HloModule:
        return HloModule.of(from_hlo_proto(serialized_hlo_module_proto))

    computation: Computation

    @property
    def name(self) -> str:
        return self.computation.name

    def to_string(self, options: HloPrintOptions | None = None) -> str:
        return print_module(self.computation.module, given(options or HloPrintOptions()))

    def as_serialized_hlo_module_proto(self) -> bytes:
        return self.computation.to_hlo_proto()

    def computations(self) -> list[HloComputation]:
        return [HloComputation(c.name) for c in self.computation.module.computations]


def hlo_module_from_text(hlo_module_text: str) -> HloModule:
    """A module from HLO text."""
    return HloModule.of(parse_hlo(hlo_module_text))


def hlo_module_to_dot_graph(hlo_module: HloModule) -> str:
    """The module as a graph for Graphviz."""
    return hlo_module.computation.to_dot()


def hlo_module_cost_analysis(client: Any, module: HloModule) -> dict[str, float]:
    """What a run costs, counted from shapes: flops, transcendentals and bytes accessed."""
    cost = computation_cost(module.computation.entry)
    return {"flops": float(cost.flops), "transcendentals": float(cost.transcendentals), "bytes accessed": float(cost.bytes)}


# ------------------------------------------------------------------------------------------- MLIR


def xla_computation_to_mlir_module(computation: XlaComputation) -> str:
    """The program as StableHLO text."""
    return computation.computation.to_stablehlo()


def mlir_module_to_xla_computation(mlir_module: str | bytes, use_tuple_args: bool = False,
                                   return_tuple: bool = False) -> XlaComputation:
    """The program of StableHLO text or bytecode; with one tuple as its argument, or as its result, where that is asked for."""
    plain = XlaComputation.of(from_stablehlo(mlir_module))
    if not use_tuple_args and not return_tuple:
        return plain
    own = plain.computation.program_shape
    builder = XlaBuilder(plain.name())
    if use_tuple_args:
        whole = builder.parameter(0, shapes.given(shapes.Shape.tuple_shape([shapes.Shape.of(p) for p in own.parameters])))
        arguments = [builder.add(control.get_tuple_element, [whole], {"index": n}) for n in range(len(own.parameters))]
    else:
        arguments = [builder.parameter(number, shape) for number, shape in enumerate(own.parameters)]
    result = builder.add(control.call, arguments, {"to_apply": plain.program.embedded})
    if return_tuple and not own.result.is_tuple:
        result = builder.add(control.tuple_, [result])
    return builder.build(result)
