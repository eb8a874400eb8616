"""Operations as flat tables, for pickles: operations refer to each other in chains as long as the program."""

from __future__ import annotations

from typing import Any

from .ir import Block, Operation, Region, Value


def flattened(operation: Operation) -> Any:
    """An operation that uses no value from outside, with all within it, as nested tuples in which numbers stand for values."""
    numbers: dict[Value, int] = {}
    stack = [operation]
    while stack:
        found = stack.pop()
        for value in found.results:
            numbers[value] = len(numbers)
        for block in (b for r in found.regions for b in r.blocks):
            for value in block.arguments:
                numbers[value] = len(numbers)
            stack.extend(block.operations)
    return _operation(operation, numbers)


def _operation(operation: Operation, numbers: dict[Value, int]) -> Any:
    regions = [[([(a.type, a.location) for a in b.arguments], [numbers[a] for a in b.arguments],
                 [_operation(o, numbers) for o in b.operations]) for b in r.blocks] for r in operation.regions]
    return (operation.name, [numbers[v] for v in operation.operands], [r.type for r in operation.results],
            [numbers[r] for r in operation.results], operation.attributes, regions, operation.location, operation.line,
            operation.column)


def restored(flat: Any) -> Operation:
    """The operation that `flattened` took apart."""
    values: dict[int, Value] = {}
    operands: list[tuple[Operation, list[int]]] = []
    found = _restored(flat, values, operands)
    for operation, numbers in operands:
        operation.operands = [values[n] for n in numbers]
    return found


def _restored(flat: Any, values: dict[int, Value], operands: list[tuple[Operation, list[int]]]) -> Operation:
    name, used, types, numbers, attributes, regions, location, line, column = flat
    made = Operation(name, [], types, attributes, [], location, line, column)
    values.update(zip(numbers, made.results, strict=True))
    operands.append((made, used))
    for blocks in regions:
        region = Region()
        for of_arguments, numbers, operations in blocks:
            block = Block([type for type, _ in of_arguments])
            for value, (_, where) in zip(block.arguments, of_arguments, strict=True):
                value.location = where
            values.update(zip(numbers, block.arguments, strict=True))
            block.operations = [_restored(o, values, operands) for o in operations]
            region.blocks.append(block)
        made.regions.append(region)
    return made
