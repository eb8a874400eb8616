"""Where operations are converted: a scope for each computation under construction, in a program that all of them share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..core.errors import InvalidArgument, UnsupportedError, XlaError
from ..core.shape import Shape
from ..core.types import S32
from ..functions.hlo_builder import Builder, XlaOp
from ..hlo.inference import is_pure
from ..hlo.ir import Computation, Instruction
from ..hlo.mesh_sharding import Mesh
from ..mlir.ir import NO_BRANCHES, Block, Operation, OtherType, Quantized, Region, Tensor, Type, Value
from ..opcodes import control
from . import annotations, reading_rules
from .folding import Folder
from .types import refined, shape_of

_TERMINATORS = frozenset({"stablehlo.return", "mhlo.return", "func.return", "chlo.return", "sdy.return"})
_IN_PROGRESS = ("!stablehlo.future", "!mhlo.async_bundle")
"""Types of what was begun, which HLO has as tuples."""

_CONSTANTS = frozenset({"stablehlo.constant", "mhlo.constant", "chlo.constant", "arith.constant"})


class Program:
    """What the scopes of one program share: its functions, what was made of them, and what is known of values."""

    def __init__(self, functions: dict[str, Operation], meshes: dict[str, Mesh] | None = None):
        self.functions, self.meshes = functions, meshes or {}
        self.is_sized = False
        """Whether sizes are found that the program does not say."""
        self.folder = Folder()
        self.called: dict[Any, Computation] = {}
        """Computations that were made of functions, by `calls.py`'s keys."""
        self.open: set[Any] = set()
        """Keys of functions that are being converted: a call of one of them is a recursion."""
        self.facts: dict[str, bool] = {}
        self.has_quantized = any(map(_has_quantized, functions.values()))
        self._captured: dict[int, list[Value]] = {}
        self._names: dict[str, int] = {}
        self._shapes: dict[int, tuple[Type, Shape]] = {}
        self._inferred: dict[tuple[Any, ...], tuple[Shape, list[Shape]]] = {}

    def name(self, stem: str) -> str:
        """A name for a computation that no other has."""
        count = self._names[stem] = self._names.get(stem, -1) + 1
        return f"{stem}_{count}" if count else stem

    def shape_of(self, given: Type) -> Shape:
        """`types.shape_of`, once for each type."""
        known = self._shapes.get(id(given))  # readers make one object of equal types, which is found faster than its hash
        if known is None:
            known = self._shapes[id(given)] = given, shape_of(given)
        return known[1]

    def elementwise(self, builder: Builder, opcode: str, operands: Sequence[XlaOp]) -> XlaOp:
        """`Builder.add` of an op without attributes: what was found right for the very same shapes is not looked at again."""
        key = (opcode, *[id(o.instruction.shape) for o in operands])
        known = self._inferred.get(key)
        if known is None:
            made = builder.add(opcode, operands)
            # The shapes live on with the entry, so that their ids stand for them.
            self._inferred[key] = made.instruction.shape, [o.instruction.shape for o in operands]
            return made
        return builder.append(Instruction(opcode, known[0], [o.instruction for o in operands], None, opcode))

    def captured(self, region: Region) -> list[Value]:
        """The values from outside that a region uses, constants left out, in the order of their use."""
        known = self._captured.get(id(region))
        if known is None:
            inside = {a for b in region.blocks for a in b.arguments}
            known = [v for v in self.used(o for b in region.blocks for o in b.operations) if v not in inside]
            self._captured[id(region)] = known
        return known

    def used(self, operations: Iterable[Operation]) -> list[Value]:
        """The values that operations use and none of them makes, constants left out, in the order of their use."""
        inside: set[Value] = set()
        found: dict[Value, None] = {}
        for operation in operations:
            inside.update(operation.results)
            for region in operation.regions:
                found.update(dict.fromkeys(self.captured(region)))
            found.update(dict.fromkeys(operation.operands))
        return [v for v in found if v not in inside and not is_constant(v)]


def is_constant(value: Value) -> bool:
    return isinstance(value.owner, Operation) and value.owner.name in _CONSTANTS


def _has_quantized(function: Operation) -> bool:
    stack = [function]
    while stack:
        operation = stack.pop()
        if is_quantized(operation):
            return True
        stack.extend(o for r in operation.regions for b in r.blocks for o in b.operations)
    return any(isinstance(a.type, Tensor) and isinstance(a.type.element, Quantized)
               for r in function.regions for b in r.blocks for a in b.arguments)


def is_quantized(operation: Operation) -> bool:
    """Whether an operand or result has quantized elements."""
    return any(isinstance(v.type, Tensor) and isinstance(v.type.element, Quantized)
               for values in (operation.operands, operation.results) for v in values)


class Scope:
    """One computation under construction: the builder, and the op that stands for each value of the dialects.

    Rules build with `builder` (or with documented functions on their operands), and ask here for shapes (`declared`), for
    computations of regions (`region`) and for values that are known already (`known`).
    """

    def __init__(self, program: Program, name: str, outer: Scope | None = None, is_manual: bool = False):
        self.program, self.outer = program, outer
        self.is_manual = is_manual or (outer is not None and outer.is_manual)
        """Within a manual computation of Shardy, where arrays are one partition's."""
        self.builder = Builder(name)
        self.values: dict[Value, XlaOp] = {}

    # ------------------------------------------------------------------------------------------------------ for rules

    def add(self, opcode: str, operands: Iterable[XlaOp] = (), attributes: dict[str, Any] | None = None,
            shape: Shape | None = None) -> XlaOp:
        """`Builder.add` of this scope."""
        return self.builder.add(opcode, operands, attributes, shape)

    def constant(self, value: Any) -> XlaOp:
        """A constant of a NumPy array or scalar of the right dtype."""
        return self.builder.constant(np.asarray(value))

    def size(self, number: int) -> XlaOp:
        """A constant of a size, as an s32 scalar. Raises OverflowError where it does not fit."""
        return self.builder.constant(number, S32)

    def declared(self, operation: Operation, number: int = 0) -> Shape:
        """The shape that is written for a result. Raises UnsupportedError for types that have none."""
        return self.program.shape_of(operation.results[number].type)

    def known(self, op: XlaOp) -> np.ndarray | None:
        """The value of a small integer array where it follows from constants and shapes, otherwise None."""
        return self.program.folder.value(op.instruction)

    def parts(self, pair: XlaOp, count: int) -> list[XlaOp]:
        """The elements of a tuple."""
        return [self.add(control.get_tuple_element, [pair], {"index": k}) for k in range(count)]

    def several(self, op: XlaOp, operation: Operation) -> list[XlaOp]:
        """The results of an operation of which HLO makes a tuple where there are several, or the one result."""
        return self.parts(op, len(operation.results)) if op.shape.is_tuple and len(operation.results) != 1 else [op]

    def one(self, values: Sequence[XlaOp]) -> XlaOp:
        """One op for several: itself where there is one, otherwise their tuple."""
        return values[0] if len(values) == 1 else self.add(control.tuple_, values)

    def rest(self, operation: Operation, operands: Sequence[XlaOp]) -> reading_rules.Results:
        """What the operation's own rule gives: for rules that only prepare operands."""
        own = reading_rules.find(operation.name)
        if own is None:
            raise unknown(operation)
        return own(self, operation, operands)

    def region(self, region: Region, parameters: Sequence[Shape], stem: str = "region",
               prepare: Callable[[Scope, list[XlaOp]], Sequence[XlaOp]] | None = None, is_manual: bool = False) -> Computation:
        """The computation of a region with a parameter of each shape; of several results it gives a tuple.

        `prepare` makes of the parameters what the region's arguments are, where that is not the same. Constants that the region
        uses from outside are made again within it. Raises UnsupportedError for a region that uses other values from outside.
        """
        block = only_block(region)
        scope = Scope(self.program, self.program.name(stem), self, is_manual)
        made = [scope.builder.parameter(k, s.without_layout()) for k, s in enumerate(parameters)]
        return scope.finish(block, prepare(scope, made) if prepare else made)

    def finish(self, block: Block, arguments: Sequence[XlaOp]) -> Computation:
        """The computation of a block whose arguments are these ops."""
        self.bind(block, arguments)
        return self.close(self.block(block))

    def close(self, results: Sequence[XlaOp]) -> Computation:
        """The computation with these results."""
        return self.builder.finish(self.one(results))

    # ------------------------------------------------------------------------------------------------------ conversion

    def bind(self, block: Block, arguments: Sequence[XlaOp]) -> None:
        """Let ops stand for the arguments of a block."""
        if len(block.arguments) != len(arguments):
            raise InvalidArgument("the region takes another number of arguments", got=len(block.arguments),
                                  expected=len(arguments))
        self.values.update(zip(block.arguments, arguments, strict=True))

    def block(self, block: Block, wanted: Sequence[int] | None = None) -> list[XlaOp]:
        """Convert the operations of a block; gives what its terminator returns, or only the results of these numbers."""
        for operation in block.operations:
            if operation.name in _TERMINATORS:
                return [self.value(operation.operands[k]) for k in (range(len(operation.operands)) if wanted is None else wanted)]
            self.convert(operation)
        raise InvalidArgument("a region ends without a return", subject="StableHLO")

    def value(self, value: Value) -> XlaOp:
        """The op that stands for a value. See `region` for those from outside."""
        found = self.values.get(value)
        if found is None:
            if is_constant(value):
                assert isinstance(value.owner, Operation)
                self.convert(value.owner)
                return self.values[value]
            found = self.values[value] = self._again(value)
        return found

    def convert(self, operation: Operation) -> None:
        """Convert one operation, whose results are then known."""
        operands = [self.value(v) for v in operation.operands]
        before = len(self.builder.instructions)
        try:
            results = self._rule(operation)(self, operation, operands)
            results = [results] if isinstance(results, XlaOp) else list(results)
            self._check(operation, results)
            annotations.annotate(self.builder.instructions[before:], operation, results,
                                 {} if self.is_manual else self.program.meshes)
        except XlaError as error:
            error.subject = operation.name if not error.subject or " " not in error.subject else error.subject
            raise error.located(where=operation.where) from None
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            # Rules take operands, regions and fields apart as the specification has them.
            raise InvalidArgument("the operation is not of the form that it has in the specification", subject=operation.name,
                                  got=f"{len(operation.operands)} operands, {len(operation.regions)} regions, "
                                      f"{len(operation.results)} results: {error}", where=operation.where) from error
        self.values.update(zip(operation.results, results, strict=True))

    def _rule(self, operation: Operation) -> reading_rules.Rule:
        if operation.refused is not None:
            raise operation.refused
        if self.program.has_quantized and is_quantized(operation):
            quantized = reading_rules.find(reading_rules.QUANTIZED)
            if quantized is None:
                raise UnsupportedError("quantized types have no rule")
            return quantized
        found = reading_rules.find(operation.name)
        if found is None:
            raise unknown(operation)
        return found

    def _check(self, operation: Operation, results: Sequence[XlaOp]) -> None:
        """The results have the types that are written."""
        if len(results) != len(operation.results):
            raise InvalidArgument("another number of results", got=len(operation.results), expected=len(results))
        for value, result in zip(operation.results, results, strict=True):
            if isinstance(value.type, OtherType) and value.type.text.startswith(_IN_PROGRESS):
                continue
            written = self.program.shape_of(value.type)
            if result.instruction.shape == written:
                continue
            if not result.shape.compatible(written):
                raise InvalidArgument("the result is not of the type that is written", got=f"written {written}",
                                      expected=result.shape)
            if result.shape.is_array and not result.shape.is_static:
                result.instruction.shape = refined(result.shape, written)

    def _again(self, value: Value) -> XlaOp:
        """A value from outside, made again within: what is computed from constants alone."""
        scope = self.outer
        while scope is not None and value not in scope.values:
            scope = scope.outer
        if scope is None:
            raise InvalidArgument("a value is used before it is defined", subject="StableHLO")
        made: dict[int, XlaOp] = {}
        stack = [scope.values[value].instruction]
        root = stack[0]
        while stack:
            current = stack[-1]
            if current.is_parameter or not is_pure(current) or current.called_computations:
                raise UnsupportedError("a region of elements uses a value from outside that is no constant", got=repr(current),
                                       hint="pass it as an operand")
            missing = [o for o in current.operands if id(o) not in made]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            if id(current) not in made:
                made[id(current)] = self.builder.append(Instruction(
                    current.opcode, current.shape, [made[id(o)].instruction for o in current.operands], current.attributes,
                    current.name, dict(current.common), current.line, current.column))
        return made[id(root)]


def only_block(region: Region) -> Block:
    """The block of a region. Raises UnsupportedError for control flow between several."""
    if len(region.blocks) != 1:
        raise UnsupportedError("a region of several blocks", subject="StableHLO", got=len(region.blocks), expected="one block",
                               hint=NO_BRANCHES)
    return region.blocks[0]


def unknown(operation: Operation) -> UnsupportedError:
    """The error for an operation that no table has."""
    dialect = operation.name.partition(".")[0]
    known = sorted({n.partition(".")[0] for n in reading_rules.RULES if "." in n})
    hint = "" if dialect in known else f"the dialects that can be read are {', '.join(known)}"
    return UnsupportedError("there is no such operation, or HLO has nothing for it", subject=operation.name,
                            where=operation.where, hint=hint)
