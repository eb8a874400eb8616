"""Exported programs of torch whose sizes are symbols: a family, as all programs of unknown sizes are.

A program of the family is the exported graph, exported again for certain sizes: torch itself puts numbers in the places of its
symbols and checks what it knows of them, and decompositions and derivatives are traced for sizes that are known. So what holds
of the import of a program holds here, and nothing computes with symbols but what arguments are asked for.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.export.graph_signature import InputKind, TensorArgument

from ..core.errors import InvalidArgument, UnsupportedError, XlaError
from ..core.forks import cached_property
from ..core.shape import ProgramShape
from ..core.sizes import Size
from ..runtime.computation import XlaComputation
from ..runtime.polymorphic import PolymorphicComputation
from ..stablehlo.convert import Fact
from ..stablehlo.symbols import Symbols, evaluated
from ..storage import torch_graphs, torch_private
from .torch_value_sizes import depends_on_values


def are_unknown(exported: Any) -> bool:
    """Whether sizes of an exported program's arguments are symbols, or numbers among them are."""
    values = [node.meta.get("val") for node in exported.graph.nodes if node.op == "placeholder"]
    return any(not all(type(n) is int for n in v.shape) if isinstance(v, torch.Tensor) else isinstance(v, torch.SymInt)
               for v in values)


def depend_on_values(exported: Any) -> bool:
    """Whether sizes within an exported program depend on values."""
    return any(depends_on_values(value) for node in exported.graph.nodes
               for value in torch_private.pytree.tree_leaves(node.meta.get("val")))


def exported_again(exported: Any, sizes: Mapping[str, Sequence[int]] | None = None) -> Any:
    """An exported program, exported for arguments of these sizes, by name; by itself for those that it has."""
    values = {node.name: node.meta.get("val") for node in exported.graph.nodes if node.op == "placeholder"}
    given = [spec.arg for spec in exported.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    leaves = [torch_graphs.example(values[a.name], values[a.name].shape if sizes is None else sizes[a.name])
              if isinstance(a, TensorArgument) else getattr(a, "value", None) for a in given]
    args, kwargs = torch_private.pytree.tree_unflatten(leaves, exported.call_spec.in_spec)
    return torch_private.quietly(lambda: torch.export.export(exported.module(), tuple(args), kwargs, strict=False))


class TorchFamily(PolymorphicComputation):
    """The programs of an exported program whose sizes are symbols. `make` makes the `TorchFunction` of one of known sizes."""

    def __init__(self, exported: Any, make: Callable[[Any], Any]):
        self._exported, self._make_function = exported, make
        self._values = {node.name: node.meta["val"] for node in exported.graph.nodes if node.op == "placeholder"}
        self._given = [s.arg for s in exported.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
        for argument in self._given:
            if isinstance(self._values[argument.name], torch.SymInt):
                raise UnsupportedError("a number that depends on the arguments of the call", subject="from_torch",
                                       got=f"argument {argument.name}", expected="tensors, whose sizes may be unknown",
                                       hint="leave it out of dynamic_shapes, then it is part of the program")
        self._tensors = [a.name for a in self._given if isinstance(a, TensorArgument)]
        self._start("program")
        self._first = [tuple(map(torch_graphs.hint, self._values[name].shape)) for name in self._tensors]
        self.function = self._made(self._first)
        """The function for the sizes of the examples, which has the form of all others."""
        self._name = self.function.name

    # ---- one of its programs

    def _made(self, sizes: Sequence[Sequence[int]]) -> Any:
        """The function for arguments of these sizes."""
        try:
            known = exported_again(self._exported, dict(zip(self._tensors, sizes, strict=True)))
        except Exception as error:  # its own check of sizes, or an operator's
            raise InvalidArgument("the exported program is not for arguments of these sizes", subject=self._name,
                                  got=f"{', '.join(str(list(n)) for n in sizes)}: {str(error).strip().partition(chr(10))[0]}",
                                  expected=self._stated) from error
        with torch.random.fork_rng(devices=[]):  # the state of its random numbers is the first one's
            return self._make_function(known)

    def _static(self, facts: Sequence[Fact]) -> XlaComputation:
        given = [dimensions for dimensions, _ in facts]
        self._check_ranges(given, self.symbols.bound(given, self.name))
        sizes = given[len(given) - len(self._tensors):]
        function = self.function if sizes == self._first else self._made(sizes)
        return function.computation

    def _check_ranges(self, given: Sequence[Sequence[int]], names: Mapping[str, int]) -> None:
        values = {str(s): n for sizes, have in zip(self.symbols.sizes, given, strict=True)
                  for s, n in zip(sizes, have, strict=True)}
        for text, (low, high) in self._ranges.items():
            value = values.get(text, evaluated(text, names))
            if value is not None and not low <= value <= high:
                raise InvalidArgument(f"{text} is out of the range that the program was exported for", subject=self.name,
                                      got=f"{text} = {value}", expected=self._stated)

    def _of_sizes(self, names: Mapping[str, Size]) -> XlaComputation:
        raise UnsupportedError("torch exports again for each combination of sizes", subject=self.name)

    def _at(self, names: Mapping[str, int]) -> XlaComputation:
        return self._computation(tuple((dimensions, None) for dimensions in self.symbols.dimensions(names)))

    # ---- sizes

    @cached_property
    def _words(self) -> Callable[[Any], str]:
        return torch_graphs.names_of_symbols([n for name in self._tensors for n in self._values[name].shape])

    @cached_property
    def symbols(self) -> Symbols:
        shape = self.function.program_shape
        held = shape.parameters[:len(shape.parameters) - len(self._tensors)]
        given = [tuple(n if type(n) is int else self._words(n) for n in self._values[name].shape) for name in self._tensors]
        return Symbols((*(s.dimensions for s in held), *given), shape.parameter_names)

    @cached_property
    def _ranges(self) -> dict[str, tuple[Any, Any]]:
        """The least and the greatest that sizes may be."""
        return {self._words(expression): (r.lower, r.upper) for expression, r in self._exported.range_constraints.items()}

    @property
    def _stated(self) -> str:
        """What sizes the program is for."""
        sizes = ", ".join(f"[{', '.join(map(str, s))}]" for s in self.symbols.sizes[-len(self._tensors):])
        return f"{sizes} where " + ", ".join(f"{low} <= {text} <= {high}" for text, (low, high) in self._ranges.items())

    def _sizes(self, given: Mapping[str, int]) -> dict[str, int]:
        own, shapes = self.symbols, self.function.program_shape.parameters
        found = own.bound([s.dimensions for s in shapes], self.name)
        for sizes, shape in zip(own.sizes, shapes, strict=True):
            for text, n in zip(map(str, sizes), shape.dimensions, strict=True):
                for name in (m for m in own.names if m not in found and m in text):  # a size follows from it, and no other
                    found.update((name, k) for k in range(n + 1) if evaluated(text, {**found, name: k}) == n)
        return {name: given.get(name, found[name]) for name in own.names}

    # ---- looking

    @property
    def program_shape(self) -> ProgramShape:
        return self._signature[0]

    @property
    def argument_count(self) -> int:
        return len(self.symbols.sizes)

    def __repr__(self) -> str:
        try:
            return f"PolymorphicComputation({self._name}: {self._signature[1]})"
        except XlaError:
            return f"PolymorphicComputation({self._name}: {self._stated})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as torch saves exported programs."""
        file = io.BytesIO()
        torch.export.save(self._exported, file)
        return _unpickled, (file.getvalue(), self._make_function)


def _unpickled(data: bytes, make: Callable[[Any], Any]) -> TorchFamily:
    return TorchFamily(torch.export.load(io.BytesIO(data)), make)
