"""The arguments of a program some of which a module holds: which they are, and under what names."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch

from ..core.errors import InvalidArgument
from ..pytree.nodes import Kind
from ..pytree.parameter_paths import paths
from ..pytree.structure import Leaves, Path, dotted, nested
from ..runtime import dynamo
from ..runtime.computation import XlaComputation, in_order
from ..runtime.polymorphic import of_unknown_sizes
from . import weights
from .arguments import tensor_of
from .tree_function import TreeFunction
from .vectorizing import rebatch


def _as_weight(path: Path) -> str:
    return f"weight {dotted(path)}" if path else "the tree of weights"


def _argument(number: int, names: Sequence[str]) -> str:
    return f"argument {number} ({names[number]})" if names and names[number] else f"argument {number}"


def places_of(computation: XlaComputation) -> list[Path]:
    """Where each parameter of a program stood in the arguments of its function."""
    unknown = of_unknown_sizes(computation)
    one = computation if unknown is None else unknown.at()
    parameters = one.entry.parameters
    return paths(computation.program_shape.parameter_names or [""] * len(parameters), [p.op_name for p in parameters])


def missing(held: Sequence[Any]) -> int:
    """How many of the program's parameters a module does not hold. (`list.count` would ask tensors whether they equal None.)"""
    return sum([own is None for own in held])


class ModuleArguments(abc.ABC):
    """How a module calls its program: with what it holds, and with the arguments."""

    def __init__(self, computation: XlaComputation):
        self.computation, self.graph_name = computation, dynamo.graph_name(self)
        self.shapes = computation.program_shape.parameters
        self._batches: dict[tuple[tuple[int, ...], int], ModuleArguments] = {}

    def __call__(self, held: Sequence[Any], arguments: Sequence[Any], /, **named: Any) -> Any:
        return self.computation(*self.filled(held, arguments), **named)

    def in_graph(self, held: Sequence[Any], arguments: Sequence[Any], /, **named: Any) -> Any:
        """See `XlaComputation`, as for the two others."""
        return self.computation.in_graph(*self.filled(held, arguments), **named)

    def in_form(self, result: Any) -> Any:
        return self.computation.in_form(result)

    def reason_not_capturable(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> str:
        return self.computation.reason_not_capturable(list(self.placed(*arguments)), named)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.graph_name = dynamo.graph_name(self)  # a copy is called by a name of its own

    def for_batch(self, held: Sequence[Any], arguments: Sequence[Any], named: Mapping[str, Any]) -> ModuleArguments | None:
        """The same for the batch that these arguments have, made once; None where they differ from what the program takes in
        other ways than by one size in front. Raises UnsupportedError where the program is not the same for each example."""
        found = self._batch(self.values(held, arguments, named))
        if found is None:
            return None
        if found not in self._batches:
            self._batches[found] = self._rebatched(list(found[0]), found[1])
        return self._batches[found]

    def _batch(self, values: Mapping[int, Any]) -> tuple[tuple[int, ...], int] | None:
        """The parameters that another size in front is given for, and that size."""
        sizes: dict[int, tuple[int, int]] = {}
        for number, value in values.items():
            want: tuple[int, ...] = self.shapes[number].dimensions
            if isinstance(value, torch.Tensor) and value.is_nested:
                return None
            have: tuple[int, ...] = tuple(getattr(value, "shape", ()))
            if have == want:
                continue
            if not have or not want or len(have) != len(want) or have[1:] != want[1:] or not self.shapes[number].is_static:
                return None
            sizes[number] = want[0], have[0]
        same = len(set(sizes.values())) == 1 and all(new > 0 for _, new in sizes.values())
        return (tuple(sorted(sizes)), next(iter(sizes.values()))[1]) if same else None

    @abc.abstractmethod
    def in_order(self, held: Sequence[Any], arguments: tuple[Any, ...],
                 named: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments by place, and those by name that have to stay so. Raises InvalidArgument for names that nothing has."""

    @abc.abstractmethod
    def values(self, held: Sequence[Any], arguments: Sequence[Any], named: Mapping[str, Any]) -> dict[int, Any]:
        """What stands for each of the program's parameters, as it is given."""

    @abc.abstractmethod
    def _rebatched(self, numbers: list[int], size: int) -> ModuleArguments:
        """The same for a batch of another size in these parameters."""

    @abc.abstractmethod
    def placed(self, held: Sequence[Any], arguments: Sequence[Any]) -> Iterator[Any]:
        """What the module holds, and between that the rest."""

    def filled(self, held: Sequence[Any], arguments: Sequence[Any]) -> Iterator[Any]:
        """The same as the program takes it."""
        return self.placed(held, arguments)


class FlatArguments(ModuleArguments):
    """The arguments of a program that is called with arrays."""

    strips = True
    """Whether the name of the one argument that all weights are parts of is left out."""

    def __init__(self, computation: XlaComputation, narrows: bool):
        super().__init__(computation)
        self._narrows = narrows
        self._written = computation.program_shape.parameter_names
        self._paths = places_of(computation)

    def path(self, number: int) -> Path:
        return self._paths[number]

    def untrained(self) -> set[int]:
        return set()

    def numbers_of(self, argument: int) -> list[int]:
        return [argument]

    def arguments_with(self, numbers: Collection[int]) -> list[int]:
        """The numbers of the arguments in which these of the program's parameters stand."""
        return sorted(numbers)

    def held(self, given: Any) -> dict[int, Any]:
        """The values that are given, by the numbers of the program's parameters."""
        if not isinstance(given, Mapping):
            if not isinstance(given, (list, tuple)) and not hasattr(given, "__iter__"):
                raise InvalidArgument("not the values of parameters", subject="XlaModule", got=type(given).__name__,
                                      expected="a list of arrays, or a mapping of names or numbers to arrays")
            given = dict(enumerate(given))
        if given and not all(isinstance(key, int) for key in given):
            return weights.for_names(given, self._known())
        for number in given:
            if not 0 <= number < len(self.shapes):
                raise InvalidArgument("no such argument", subject="XlaModule", got=number,
                                      expected=f"0 to {len(self.shapes) - 1}")
        return dict(given)

    def _known(self) -> dict[str, int]:
        """Each parameter by its name in the program and by its place, with and, where that is one parameter's, without the name
        of the argument."""
        inner = [dotted(path[1:]) for path in self._paths]
        known = {name: k for k, name in enumerate(inner) if name and inner.count(name) == 1}
        known |= {dotted(path): k for k, path in enumerate(self._paths)}
        return known | {name: k for k, name in enumerate(self._written) if name}

    def tensor(self, number: int, value: Any, name: str) -> torch.Tensor:
        return _own(tensor_of(value, self.shapes[number], lambda: f"argument {number}" if "." not in name else f"weight {name}",
                              narrow=False))

    def takes(self, held: Sequence[Any], arguments: Sequence[Any]) -> bool:
        return len(arguments) == missing(held)

    def in_order(self, held: Sequence[Any], arguments: tuple[Any, ...],
                 named: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if not named:
            return arguments, {}
        known = self._known()
        given = {known[name]: value for name, value in named.items() if name in known and held[known[name]] is None}
        if len(given) != len(named):
            free = [dotted(path) or f"argument {k}" for k, path in enumerate(self._paths) if held[k] is None]
            unknown = next(name for name in named if name not in known or held[known[name]] is not None)
            raise InvalidArgument("no argument has this name", subject="XlaModule", got=unknown, expected=", ".join(free))
        return in_order([k for k, own in enumerate(held) if own is None], given, arguments), {}

    def values(self, held: Sequence[Any], arguments: Sequence[Any], named: Mapping[str, Any]) -> dict[int, Any]:
        return dict(enumerate(self.placed(held, arguments)))

    def _rebatched(self, numbers: list[int], size: int) -> FlatArguments:
        return FlatArguments(rebatch(self.computation, numbers, size), self._narrows)

    def placed(self, held: Sequence[Any], arguments: Sequence[Any]) -> Iterator[Any]:
        rest = iter(arguments)
        return (next(rest) if own is None else own for own in held)

    def filled(self, held: Sequence[Any], arguments: Sequence[Any]) -> Iterator[Any]:
        device = next((t.device for t in held if t is not None), None)
        for number, (value, own, part) in enumerate(zip(self.placed(held, arguments), held, self.shapes, strict=True)):
            called = functools.partial(_argument, number, self._written)
            as_it_is = own is not None or not part.is_array
            yield value if as_it_is else tensor_of(value, part, called, device, self._narrows)

    def trees(self, arrays: Mapping[int, Any], names: Mapping[int, str], make: Callable[[Any, str | None], Any]) -> Any:
        return nested({tuple(name.split(".")): make(arrays[k], None) for k, name in names.items()})


class TreeArguments(ModuleArguments):
    """The arguments of a function over trees. What the module holds are whole positional arguments."""

    strips = False

    def __init__(self, function: TreeFunction, narrows: bool):
        self._function = function.with_narrowing(narrows)
        super().__init__(self._function)
        self._trees = function.in_tree.children[0].children
        self._numbers = [function.parameters_of(k) for k in range(len(self._trees))]
        self._paths: dict[int, Path] = {}
        by_place = not (function.in_tree.children[1].children or function.signature.static)
        by_place &= type(function).__call__ is TreeFunction.__call__  # others choose among programs by their arguments
        self._arrays = [numbers[0] for tree, numbers in zip(self._trees, self._numbers, strict=True)
                        if by_place and tree.kind is Kind.LEAF]
        """The parameters that are arguments by themselves, in the order of the arguments."""

    def __call__(self, held: Sequence[Any], arguments: Sequence[Any], /, **named: Any) -> Any:
        if self._arrays and not named and missing(held) == len(arguments):
            given, rest = list(held), iter(arguments)
            for number in self._arrays:
                if given[number] is None:
                    given[number] = next(rest, None)
            found = self._function.of_tensors(given)
            if found is not None:
                return found
        return super().__call__(held, arguments, **named)

    def path(self, number: int) -> Path:
        return self._paths[number]

    def held(self, given: Any) -> dict[int, Any]:
        found: dict[int, Any] = {}
        trees = self._by_argument(given)
        for argument, tree in trees.items():
            structure = self._function.argument(argument)
            leaves = weights.for_tree(tree, structure, _as_weight)
            own = (self._function.signature.describe((0, argument)).removeprefix("argument "),)
            for number, path, leaf in zip(self._numbers[argument], structure.plain_paths(), leaves, strict=True):
                self._paths[number] = path if len(trees) == 1 and path else (*own, *path)
                found[number] = leaf
        return found

    def _by_argument(self, given: Any) -> dict[int, Any]:
        if isinstance(given, (list, tuple)) and type(given) in (list, tuple):
            return dict(enumerate(given))
        if isinstance(given, Mapping) and given and all(isinstance(key, int) for key in given):
            return dict(given)
        return {0: given}

    def untrained(self) -> set[int]:
        """The program's parameters that are variables of flax.nnx but not its Params."""
        return {number for tree, numbers in zip(self._trees, self._numbers, strict=True)
                for number, trained in zip(numbers, tree.trained(), strict=True) if not trained}

    def tensor(self, number: int, value: Any, name: str) -> torch.Tensor:
        return _own(self._function.weight(value, number, lambda: f"weight {name}"))

    def numbers_of(self, argument: int) -> list[int]:
        return self._function.parameters_of(argument)

    def arguments_with(self, numbers: Collection[int]) -> list[int]:
        return [k for k, own in enumerate(self._numbers) if any(number in numbers for number in own)]

    def takes(self, held: Sequence[Any], arguments: Sequence[Any]) -> bool:
        return True  # the function knows

    def in_order(self, held: Sequence[Any], arguments: tuple[Any, ...],
                 named: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return arguments, dict(named)

    def values(self, held: Sequence[Any], arguments: Sequence[Any], named: Mapping[str, Any]) -> dict[int, Any]:
        leaves = self._function.leaves(*self.placed(held, arguments), **named)
        return dict(zip(self._function.places, leaves, strict=True))

    def _rebatched(self, numbers: list[int], size: int) -> TreeArguments:
        function = self._function
        return TreeArguments(function.with_computation(rebatch(function.computation, numbers, size)), function.narrows)

    def placed(self, held: Sequence[Any], arguments: Sequence[Any]) -> Iterator[Any]:
        """The positional arguments of a call: what is held, as leaves, and between that the rest."""
        rest = iter(arguments)
        for numbers in self._numbers:
            own = [held[k] for k in numbers]
            if own and own[0] is not None:
                yield Leaves(own)
            else:
                yield from (argument for argument in (next(rest, _ENDED),) if argument is not _ENDED)
        yield from rest

    def trees(self, arrays: Mapping[int, Any], names: Mapping[int, str], make: Callable[[Any, str | None], Any]) -> Any:
        kinds = dict(self._function.signature.key_inputs)
        found = []
        for tree, numbers in zip(self._trees, self._numbers, strict=True):
            if numbers and numbers[0] in arrays:
                found.append(tree.unflatten(make(arrays[k], kinds.get(k)) for k in numbers))
        return found[0] if len(found) == 1 else tuple(found)


_ENDED = object()


@functools.singledispatch
def arguments_of(computation: XlaComputation, narrows: bool) -> FlatArguments | TreeArguments:
    """How a module holds some of a computation's arguments."""
    return FlatArguments(computation, narrows)


arguments_of.register(TreeFunction, TreeArguments)


def _own(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in memory of its own."""
    return tensor.detach().clone()


def untrained_numbers(buffers: Sequence[int | str], places: Mapping[int, str],
                      binding: FlatArguments | TreeArguments) -> set[int]:
    """The numbers of those that are not trained. Raises InvalidArgument for names that nothing has."""
    found = binding.untrained()
    for buffer in buffers:
        if isinstance(buffer, int):
            found |= set(binding.numbers_of(buffer))
            continue
        own = {k for k, name in places.items() if name == buffer or name.startswith(f"{buffer}.")}
        if not own:
            raise InvalidArgument("no weight has this name", subject="buffers", got=buffer,
                                  expected=", ".join([*places.values()][:6]))
        found |= own
    return found


def named(module: torch.nn.Module, found: Mapping[int, Path], strips: bool) -> dict[int, str]:
    """Names with dots for what stands at these places: parts of names hold no dots, none is taken twice, and none is a name that
    a module has already."""
    if strips and all(len(path) > 1 for path in found.values()) and len({path[0] for path in found.values()}) == 1:
        found = {k: path[1:] for k, path in found.items()}
    blank = torch.nn.Module()
    names: dict[int, str] = {}
    groups = {tuple(map(_clean, path[:n])) for path in found.values() for n in range(1, len(path))}
    taken: set[tuple[str, ...]] = set()
    for number, path in sorted(found.items()):
        parts = [_clean(part) for part in path]
        inner = [_free(part, module if k == 0 else blank) for k, part in enumerate(parts)]
        while tuple(inner) in taken or (tuple(parts) in groups and inner == parts):
            inner[-1] += "_"
        taken.add(tuple(inner))
        names[number] = ".".join(inner)
    return names


def _clean(part: Any) -> str:
    return str(part).replace(".", "_") or "_"


def _free(part: str, module: torch.nn.Module) -> str:
    while hasattr(module, part):
        part += "_"
    return part
