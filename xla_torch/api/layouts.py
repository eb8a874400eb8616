"""Layouts by name: how the arguments of a program lie on a mesh that is to train it, in a word for the mesh or for each axis.

- ``"data"``: examples are cut along their first dimension, weights are whole.
- ``"fully_sharded"``: examples likewise, and every weight along its largest dimension that the axis divides, as ZeRO-3 has it:
  parameters, gradients and what an optimizer keeps. Where a weight is used, it is gathered, and not kept for the way back.
- ``"tensor"``: weights of products are cut by columns and by rows in turns, so that what is between two of them stays cut, as
  Megatron has it. XLA carries that on through the program. Rows of tables that are only looked up are cut, too.

Layouts only say where arrays lie: what the program computes is the same.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from ..core.errors import InvalidArgument
from ..core.shape import Shape
from ..hlo.ir import Computation, Instruction
from ..hlo.mesh_sharding import Mesh
from ..hlo.scanner import nearest
from ..hlo.schema import Trait
from ..opcodes.contraction import dot
from ..opcodes.convolution import convolution
from ..opcodes.indexing import gather
from ..opcodes.movement import transpose

Axes = list[list[str]]
"""For each dimension of an array the axes that it is cut along."""


def is_layout(words: Any) -> bool:
    """Whether shardings are said by names of layouts: one, or one for each of some axes of a mesh. Raises InvalidArgument for a
    name that no layout has."""
    names = list(words.values()) if isinstance(words, Mapping) else [words]
    if not names or not all(isinstance(name, str) and not name.lstrip().startswith("{") for name in names):
        return False  # in braces they are shardings as HLO has them
    for name in names:
        if name not in LAYOUTS:
            raise InvalidArgument("no layout has this name", got=repr(name), expected=", ".join(LAYOUTS),
                                  hint=nearest(name, LAYOUTS))
    return True


def require_axes(words: Any, mesh: Mesh) -> None:
    """Raises InvalidArgument where layouts are said for axes that the mesh does not have."""
    for axis in words if isinstance(words, Mapping) else ():
        if axis not in dict(mesh.axes):
            raise InvalidArgument(f"the mesh has no axis {axis!r}", got=repr(words), expected=", ".join(dict(mesh.axes)),
                                  hint=nearest(axis, dict(mesh.axes)) or
                                  "pass a tuple for an argument, as ('data', None), with an axis or None for each dimension")


Spec = tuple[tuple[str, ...], ...]
"""The axes that the dimensions of an array are cut along, as `partition` takes them."""


def shardings_of(words: Any, mesh: Mesh, canonical: Computation, weights: Collection[int]) -> tuple[list[Spec], dict[int, Spec]]:
    """How each parameter lies, and those that lie otherwise where they are used, by number: what is fully sharded is gathered
    there. `weights` are numbers of parameters."""
    sizes = dict(mesh.axes)
    by_axis: Mapping[str, str] = words if isinstance(words, Mapping) else dict.fromkeys(sizes, str(words))
    arrays = [_Array(p.shape, k in weights, sizes) for k, p in enumerate(canonical.parameters)]
    for axis in sorted(by_axis, key=lambda axis: by_axis[axis] != "tensor"):  # its places are given, the others' are not
        LAYOUTS[by_axis[axis]](axis, arrays, canonical)
    order = list(sizes)
    gathered = {axis for axis, name in by_axis.items() if name == "fully_sharded"}
    lies = [tuple(tuple(sorted(own, key=order.index)) for own in array.axes) for array in arrays]
    used = [tuple(tuple(axis for axis in own if axis not in gathered) for own in spec) for spec in lies]
    return lies, {k: used[k] for k in sorted(weights) if used[k] != lies[k]}


@dataclasses.dataclass
class _Array:
    """A parameter, and the axes that it is cut along so far."""

    shape: Shape
    is_weight: bool
    sizes: Mapping[str, int]
    axes: Axes = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.axes = [[] for _ in range(self.shape.rank if self.shape.is_array else 0)]

    def may_cut(self, dimension: int, axis: str) -> bool:
        """Whether the axis divides what each has of the dimension."""
        parts = math.prod(self.sizes[a] for a in (*self.axes[dimension], axis))
        return self.shape.dimensions[dimension] % parts == 0 and self.shape.dimensions[dimension] > 0

    def cut(self, dimension: int, axis: str) -> bool:
        """Cut a dimension, if the axis divides it."""
        may = self.may_cut(dimension, axis)
        if may:
            self.axes[dimension].append(axis)
        return may


def _data(axis: str, arrays: Sequence[_Array], canonical: Computation) -> None:
    for array in arrays:
        if not array.is_weight and array.axes:
            array.cut(0, axis)


def _fully_sharded(axis: str, arrays: Sequence[_Array], canonical: Computation) -> None:
    _data(axis, arrays, canonical)
    for array in arrays:
        if array.is_weight:
            free = sorted(range(len(array.axes)), key=lambda d: (len(array.axes[d]), -array.shape.dimensions[d]))
            next((d for d in free if array.cut(d, axis)), None)


# ------------------------------------------------------------------------------------------------ tensor


def _tensor(axis: str, arrays: Sequence[_Array], canonical: Computation) -> None:
    origins, cut = dict(_weights(canonical, arrays)), set[Instruction]()
    placed, looked_up = set[int](), set[int]()
    for instruction in canonical.instructions:
        products = [origins[o] for o in instruction.operands if o in origins]
        if instruction.opcode in (dot, convolution) and len(products) == 1:
            number, dimensions = products[0]
            weight_side = 0 if instruction.operands[0] in origins else 1
            if _product(instruction, weight_side, arrays[number], dimensions, axis, cut, number in placed):
                cut.add(instruction)
            placed.add(number)
        elif instruction.opcode == gather and instruction.operands[0] in origins:
            looked_up.add(origins[instruction.operands[0]][0])
        elif any(o in cut for o in instruction.operands):
            cut.add(instruction)
    for number in looked_up - placed:
        arrays[number].cut(0, axis)


def _product(instruction: Instruction, side: int, weight: _Array, dimensions: Sequence[int], axis: str,
             cut: Collection[Instruction], is_placed: bool) -> bool:
    """Cut the weight of a product, by rows where the other operand is cut, else by columns; whether the result is cut."""
    rows, columns = _sides(instruction, side)
    by_rows = instruction.operands[1 - side] in cut
    first, second = (rows, columns) if by_rows else (columns, rows)
    for group in (first, second) if not is_placed else ():
        if any(weight.cut(dimensions[d], axis) for d in group[:1]):
            return group is columns
    return any(axis in weight.axes[dimensions[d]] for d in columns)


def _sides(instruction: Instruction, side: int) -> tuple[list[int], list[int]]:
    """The dimensions of a product's operand that are summed over, and those that stay."""
    attributes, rank = instruction.attributes, instruction.operands[side].shape.rank
    if instruction.opcode == convolution:
        labels = attributes["dim_labels"]
        return [labels.kernel_input_feature_dimension], [labels.kernel_output_feature_dimension]
    prefix = ("lhs", "rhs")[side]
    rows = list(attributes[f"{prefix}_contracting_dims"])
    batch = attributes.get(f"{prefix}_batch_dims") or ()
    return rows, sorted((d for d in range(rank) if d not in rows and d not in batch),
                        key=lambda d: -instruction.operands[side].shape.dimensions[d])


def _weights(canonical: Computation, arrays: Sequence[_Array]) -> Iterator[tuple[Instruction, tuple[int, list[int]]]]:
    """What is a weight as it is, transposed or converted: its number, and for each dimension that of the weight."""
    found: dict[Instruction, tuple[int, list[int]]] = {}
    for number, parameter in enumerate(canonical.parameters):
        if arrays[number].is_weight and parameter.shape.is_array and parameter.shape.rank > 1:
            found[parameter] = number, list(range(parameter.shape.rank))
    for instruction in canonical.instructions:
        if len(instruction.operands) == 1 and instruction.operands[0] in found:
            number, dimensions = found[instruction.operands[0]]
            if instruction.opcode == transpose:
                found[instruction] = number, [dimensions[d] for d in instruction.attributes["dimensions"]]
            elif instruction.has(Trait.ELEMENTWISE):
                found[instruction] = number, dimensions
    yield from found.items()


LAYOUTS: Mapping[str, Callable[[str, Sequence[_Array], Computation], None]] = {
    "data": _data, "fully_sharded": _fully_sharded, "tensor": _tensor}
