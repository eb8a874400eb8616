"""Names for the unknown sizes of a program's arguments.

JAX writes what it calls them into the assertions of its programs; in all others they are invented: a, b, c, ... Sizes that an
operation makes equal (the two of an addition) have one name.
"""

from __future__ import annotations

import ast
import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..core.errors import InvalidArgument
from ..hlo.schema import OPS
from ..mlir.ir import Operation, Symbol, Tensor, Value, walk
from .attributes import integers
from .headers import attributes_of_each

Size = int | str
"""A known size, or what an unknown one is in terms of names: ``b``, ``2*b + 1``."""

_SPECIFIED = re.compile(r"shapes specifications: (.*?)\. Obtained dimension variables")
_SHAPE = re.compile(r"\.shape = \(([^=]*)\)(?=,|$)")
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclasses.dataclass(frozen=True, slots=True)
class Symbols:
    """The sizes of each argument, and what the arguments are called."""

    sizes: tuple[tuple[Size, ...], ...]
    arguments: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in the order of the arguments."""
        found = (n for sizes in self.sizes for s in sizes if isinstance(s, str) for n in _NAME.findall(s))
        return tuple(n for n in dict.fromkeys(found) if n not in _FUNCTIONS)

    def bound(self, given: Sequence[Sequence[int]], subject: str) -> dict[str, int]:
        """What the names stand for in a call with these dimensions. Raises InvalidArgument in words for those that do not fit."""
        if len(given) != len(self.sizes):
            raise InvalidArgument("wrong number of arguments", subject=subject, got=len(given), expected=len(self.sizes))
        found: dict[str, int] = {}
        first: dict[str, int] = {}
        for number, (sizes, have) in enumerate(zip(self.sizes, given, strict=True)):
            wrong = f"{self._named(number)} has the wrong shape", f"dimensions {list(have)}", f"[{', '.join(map(str, sizes))}]"
            if len(have) != len(sizes):
                raise InvalidArgument(wrong[0], subject=subject, got=wrong[1], expected=wrong[2])
            for size, n in zip(sizes, have, strict=True):
                if size in found and found[size] != n:  # pyright: ignore[reportArgumentType]
                    raise InvalidArgument(
                        f"{size} was {found[size]} in {self._named(first[size])} and {n} in {self._named(number)}",  # pyright: ignore
                        subject=subject, got=wrong[1], expected=f"{wrong[2]} with {size} = {found[size]}")  # pyright: ignore
                if isinstance(size, str) and _NAME.fullmatch(size):
                    found[size], first[size] = n, first.get(size, number)
                elif size != n and isinstance(size, int):
                    raise InvalidArgument(wrong[0], subject=subject, got=wrong[1], expected=wrong[2])
        self._check_rest(found, given, subject)
        return found

    def _check_rest(self, names: Mapping[str, int], given: Sequence[Sequence[int]], subject: str) -> None:
        """The sizes that are said in terms of names."""
        for number, (sizes, have) in enumerate(zip(self.sizes, given, strict=True)):
            for size, n in zip(sizes, have, strict=True):
                value = evaluated(size, names) if isinstance(size, str) else None
                if value is not None and value != n:
                    stated = ", ".join(f"{name} = {names[name]}" for name in _NAME.findall(str(size)) if name in names)
                    raise InvalidArgument(f"{size} was {value}, as {stated}, but {n} in {self._named(number)}", subject=subject,
                                          got=f"dimensions {list(have)}", expected=f"[{', '.join(map(str, sizes))}]")

    def dimensions(self, names: Mapping[str, Any]) -> list[tuple[int, ...]]:
        """The dimensions of the arguments for such sizes, also for those that stand for many (`sizes.py`). Raises
        InvalidArgument where they do not follow."""
        return [tuple(self._size(size, names) for size in sizes) for sizes in self.sizes]

    def _size(self, size: Size, names: Mapping[str, Any]) -> Any:
        value = size if isinstance(size, int) else evaluated(size, names)
        if value is None or value < 0:
            raise InvalidArgument("sizes that do not follow from those that are given", got=", ".join(
                f"{n} = {v}" for n, v in names.items()) or "none", expected=f"a value for {size}")
        return value

    def _named(self, number: int) -> str:
        return f"argument {number}" + (f" ({self.arguments[number]})" if self.arguments[number] else "")


# --------------------------------------------------------------------------------------------------------- expressions

_FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b, "max": max, "min": min}
_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b, ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b, ast.Pow: lambda a, b: a ** b if 0 <= b <= 8 else 0}


def evaluated(text: str, names: Mapping[str, int]) -> int | None:
    """The value of a size such as ``2*b + floordiv(s, 2)``. None for what is none, or has other names. Nothing is executed."""
    if len(text) > 400:
        return None
    try:
        return _value(ast.parse(text.replace("^", "**"), mode="eval").body, names)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, KeyError):
        return None


def _value(node: ast.expr, names: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, names)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left, names), _value(node.right, names))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 2:
        return _FUNCTIONS[node.func.id](*(_value(a, names) for a in node.args))
    raise ValueError


# --------------------------------------------------------------------------------------------------------- names


def symbols_of(functions: Mapping[str, Operation], entry: str) -> Symbols:
    """The names for the unknown sizes of a function's arguments."""
    function = functions[entry]
    arguments = function.regions[0].blocks[0].arguments
    types = [a.type.dimensions if isinstance(a.type, Tensor) and a.type.dimensions is not None else () for a in arguments]
    sizes = _specified(function, types) or _invented(functions, entry, types)
    return Symbols(sizes, tuple(_names(functions, function)))


def _names(functions: Mapping[str, Operation], function: Operation) -> Iterator[str]:
    """What arguments are called, where attributes say it."""
    for own in attributes_of_each(function, "arg_attrs", len(function.regions[0].blocks[0].arguments)):
        name = own.get("jax.arg_info") or own.get("mhlo.name") or ""
        yield name if isinstance(name, str) else ""


def _specified(function: Operation, types: Sequence[Sequence[int | None]]) -> tuple[tuple[Size, ...], ...] | None:
    """What JAX's assertions say of the arguments that have unknown sizes, in their order; None where they do not."""
    messages = (o.attributes.get("error_message") for b in function.regions[0].blocks for o in b.operations
                if o.name == "stablehlo.custom_call")
    found = next((m for text in messages if isinstance(text, str) and (m := _SPECIFIED.search(text))), None)
    if found is None:
        return None
    written = [tuple(_parts(m[1])) for m in _SHAPE.finditer(found[1])]
    symbolic = [sizes for sizes in written if not all(s.isdigit() for s in sizes)]
    rest, named = iter(symbolic), []
    for dimensions in types:
        if None not in dimensions:
            named.append(tuple(dimensions))
            continue
        sizes = next(rest, ())
        if len(sizes) != len(dimensions) or any(d is not None and s != str(d) for s, d in zip(sizes, dimensions, strict=True)):
            return None
        named.append(tuple(int(s) if s.isdigit() else s for s in sizes))
    return None if next(rest, None) is not None else tuple(named)


def _parts(text: str) -> Iterator[str]:
    """What stands between the commas outside of parentheses."""
    depth, start = 0, 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            yield text[start:place].strip()
            start = place + 1
    if text[start:].strip():
        yield text[start:].strip()


def _invented(functions: Mapping[str, Operation], entry: str,
              types: Sequence[Sequence[int | None]]) -> tuple[tuple[Size, ...], ...]:
    same = _Same(functions)
    same.function(entry)
    letters = itertools.chain("abcdefghijklmnopqrstuvwxyz", (f"d{k}" for k in itertools.count()))
    names: dict[object, str] = {}
    found: list[tuple[Size, ...]] = []
    for argument, dimensions in zip(functions[entry].regions[0].blocks[0].arguments, types, strict=True):
        places = [same.root((0, argument, d)) for d in range(len(dimensions))]
        found.append(tuple(names.setdefault(p, names.get(p) or next(letters)) if n is None else n
                           for p, n in zip(places, dimensions, strict=True)))
    return tuple(found)


_ALIKE = frozenset(f"{dialect}.{schema.stablehlo}" for schema in OPS.values() if schema.elementwise and schema.stablehlo
                   for dialect in ("stablehlo", "mhlo"))
"""Operations whose operands and results have the same dimensions, but for scalars."""


_MOST_OPERATIONS = 100_000
"""After so many operations, those within calls counted for each call, no more is looked for."""

_Place = tuple[int, Value, int]
"""The number of a call (0 outside of all), a value and one of its dimensions: each call may have sizes of its own."""


class _Same:
    """Which dimensions of which values are equal, as the operations between them say: sets that are joined."""

    def __init__(self, functions: Mapping[str, Operation]) -> None:
        self._functions = functions
        self._parents: dict[_Place, _Place] = {}
        self._calls, self._seen = 0, 0

    def root(self, place: _Place) -> _Place:
        while (parent := self._parents.get(place, place)) != place:
            self._parents[place] = self._parents.get(parent, parent)
            place = parent
        return place

    def _join(self, one: _Place, other: _Place) -> None:
        one, other = self.root(one), self.root(other)
        if one != other:
            self._parents[other] = one

    def _alike(self, values: Sequence[tuple[int, Value]]) -> None:
        """All dimensions of values of one rank are equal; the first that is no scalar says of which."""
        listed = [(call, v) for call, v in values if _rank(v)]
        for call, value in listed[1:]:
            if _rank(value) == _rank(listed[0][1]):
                for d in range(_rank(value)):
                    self._join((*listed[0], d), (call, value, d))

    def function(self, name: str, call: int = 0, within: tuple[str, ...] = ()) -> None:
        """Look through a function, and those that it calls, each time anew."""
        function = self._functions.get(name)
        if function is None or name in within or not function.regions or not function.regions[0].blocks:
            return
        for operation in walk(function):
            self._seen += 1
            if self._seen > _MOST_OPERATIONS:
                return
            self._operation(operation, call)
            called = operation.attributes.get("callee")
            if isinstance(called, Symbol):
                self._call(operation, called.name, call, (*within, name))

    def _call(self, operation: Operation, name: str, outer: int, within: tuple[str, ...]) -> None:
        function = self._functions.get(name)
        if function is None or not function.regions or not function.regions[0].blocks:
            return
        self._calls += 1
        inner, block = self._calls, function.regions[0].blocks[0]
        for given, argument in zip(operation.operands, block.arguments, strict=False):
            self._alike([(outer, given), (inner, argument)])
        for result, returned in zip(operation.results, block.operations[-1].operands if block.operations else (), strict=False):
            self._alike([(outer, result), (inner, returned)])
        self.function(name, inner, within)

    def _operation(self, operation: Operation, call: int) -> None:
        def alike(*values: Value) -> None:
            self._alike([(call, v) for v in values])

        def join(a: Value, i: int, b: Value, j: int) -> None:
            self._join((call, a, i), (call, b, j))

        rule = _RULES.get(operation.name.replace("mhlo.", "stablehlo.", 1))
        if operation.name in _ALIKE:
            alike(*operation.operands, *operation.results)
        elif rule is not None:
            rule(operation, alike, join)


# ------------------------------------------------------------------------------------------- what operations say of sizes

_Alike = Callable[..., None]
_Join = Callable[[Value, int, Value, int], None]


def _loop(operation: Operation, alike: _Alike, join: _Join) -> None:
    for k, value in enumerate(operation.operands):
        alike(value, operation.results[k], *(r.blocks[0].arguments[k] for r in operation.regions if r.blocks))


def _branches(operation: Operation, alike: _Alike, join: _Join) -> None:
    for block in (b for r in operation.regions for b in r.blocks):
        for result, given in zip(operation.results, block.operations[-1].operands, strict=False):
            alike(result, given)


def _one_by_one(operation: Operation, alike: _Alike, join: _Join) -> None:
    for value, result in zip(operation.operands, operation.results, strict=False):
        alike(value, result)


def _sorted(operation: Operation, alike: _Alike, join: _Join) -> None:
    alike(*operation.operands, *operation.results)


def _concatenated(operation: Operation, alike: _Alike, join: _Join) -> None:
    along, result = integers(operation, "dimension", ()), operation.results[0]
    for d in range(_rank(result)):
        for value in operation.operands if d not in along else ():
            join(result, d, value, d)


def _transposed(operation: Operation, alike: _Alike, join: _Join) -> None:
    for there, own in enumerate(integers(operation, "permutation", ())):
        join(operation.operands[0], own, operation.results[0], there)


def _reduced(operation: Operation, alike: _Alike, join: _Join) -> None:
    gone, arrays = integers(operation, "dimensions", ()), operation.operands[:len(operation.results)]
    alike(*arrays)
    for value, result in zip(arrays, operation.results, strict=False):
        for there, own in enumerate(d for d in range(_rank(value)) if d not in gone):
            join(value, own, result, there)


def _product(operation: Operation, alike: _Alike, join: _Join) -> None:
    given = getattr(operation.attributes.get("dot_dimension_numbers"), "fields", {})
    lhs, rhs = operation.operands[:2]
    batch = [tuple(given.get(f"{side}_batching_dimensions", ())) for side in ("lhs", "rhs")]
    summed = [tuple(given.get(f"{side}_contracting_dimensions", ())) for side in ("lhs", "rhs")]
    if operation.name.endswith(".dot"):
        summed = [(_rank(lhs) - 1,), (0,)]
    for a, b in (*zip(*batch, strict=False), *zip(*summed, strict=False)):
        join(lhs, a, rhs, b)
    there = itertools.count(len(batch[0]))
    for place, d in enumerate(batch[0]):
        join(lhs, d, operation.results[0], place)
    for side, value in enumerate((lhs, rhs)):
        for d in range(_rank(value)):
            if d not in batch[side] and d not in summed[side]:
                join(value, d, operation.results[0], next(there))


_RULES: dict[str, Callable[[Operation, _Alike, _Join], None]] = {
    "stablehlo.while": _loop, "stablehlo.case": _branches, "stablehlo.if": _branches, "stablehlo.sort": _sorted,
    "stablehlo.optimization_barrier": _one_by_one, "stablehlo.reverse": _one_by_one, "stablehlo.concatenate": _concatenated,
    "stablehlo.transpose": _transposed, "stablehlo.reduce": _reduced, "stablehlo.dot": _product,
    "stablehlo.dot_general": _product,
}


def _rank(value: Value) -> int:
    return len(value.type.dimensions) if isinstance(value.type, Tensor) and value.type.dimensions is not None else 0
