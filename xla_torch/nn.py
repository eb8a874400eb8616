"""XLA programs as torch modules: some arguments become parameters, and any torch optimiser trains them."""

from __future__ import annotations

import abc
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from .autodiff.options import GradientOptions
from .core.errors import InvalidArgument
from .doors import weights
from .doors.arguments import tensor_of
from .doors.jax_function import from_jax
from .doors.torch_function import from_torch
from .doors.tree_function import TreeFunction
from .interop import flax
from .interop import jax as jax_arrays
from .lowering import numerics
from .running import dynamo
from .running.computation import XlaComputation, require_computation
from .running.polymorphic import of_unknown_sizes
from .storage.torch_private import contents, pytree, transforms_are_active
from .trees.parameter_paths import paths
from .trees.structure import Leaves, Path, dotted, flattened, nested

Weights = Mapping[Any, Any] | Sequence[Any] | str | os.PathLike[str]
"""Values by argument number, for the first arguments, by name, in a tree, or in a file of them."""


class XlaModule(torch.nn.Module):
    """A computation some of whose arguments live in the module.

    `parameters` gives their initial values (tensors, NumPy or JAX arrays): by argument number, as a list for the first arguments,
    by name (``params.Conv_0.bias``), as a tree, or as the path of a file (`weights.py` has which). Floating and complex arrays
    become parameters, all others buffers; so do those whose numbers or names (or the beginnings of names, ``batch_stats``) are in
    `buffers`, which are kept but not trained. The remaining arguments are passed to the call, in order::

        model = XlaModule(load("loss.hlo"), parameters=weights)      # loss(weights..., tokens, targets)
        optimizer = torch.optim.Adam(model.parameters())
        model(tokens, targets).backward()

    Of a `TreeFunction` (see also `XlaModule.from_jax`), arguments are trees: a tree is the first argument, a list the first
    ones. Names in `state_dict` are places in these trees with dots; those of other programs are what JAX wrote of such places,
    or the parameter names, with anything but letters, digits and ``_`` replaced. One `torch.nn.Parameter` given in two places
    is one parameter, and one that requires no gradient is frozen here, too. `gradient_options` say how loops are walked back.
    Unless `narrows`, 64-bit arguments are refused where the program has 32 bits; otherwise integers must fit.

    Raises InvalidArgument for an argument or name that the program does not have, and for a value of another shape or dtype,
    which it names.
    """

    def __init__(self, computation: XlaComputation, parameters: Weights = (), buffers: Sequence[int | str] = (),
                 gradient_options: GradientOptions | None = None, narrows: bool = True):
        super().__init__()
        require_computation(computation, "XlaModule")
        computation = computation if gradient_options is None else computation.with_gradient_options(gradient_options)
        door = self._door = _arguments_of(computation, narrows)
        self.computation, self.narrows = door.computation, narrows
        self._replaced: tuple[str, ...] | None = None
        given = weights.read(parameters) if isinstance(parameters, (str, os.PathLike)) else parameters
        held = door.held(given)
        places = _named(self, {number: door.path(number) for number in held}, door.strips)
        self._names: list[str | None] = [places.get(k) for k in range(len(door.shapes))]
        untrained = _untrained(buffers, places, door)
        tied: dict[int, torch.nn.Parameter] = {}
        for number, value in sorted(held.items()):
            tensor = door.tensor(number, value, places[number])
            self._keep(places[number], tensor, number not in untrained, value, tied)

    @classmethod
    def from_jax(cls, function: Callable[..., Any], parameters: Any, *example_args: Any, buffers: Sequence[int | str] = (),
                 gradient_options: GradientOptions | None = None, narrows: bool = True, **example_kwargs: Any) -> XlaModule:
        """A JAX function whose first argument is the tree `parameters`, as a module that holds it and takes the rest::

            model = XlaModule.from_jax(network.apply, variables, images, buffers=["batch_stats"])

        `example_args` and `example_kwargs` are as for `xla_torch.from_jax`; other arguments as for the class. Variables of
        flax.nnx that are not of its class Param become buffers.
        """
        traced = from_jax(function, parameters, *example_args, **example_kwargs)
        return cls(traced, [parameters], buffers, gradient_options, narrows)

    @classmethod
    def from_nnx(cls, model: Any, *example_args: Any, buffers: Sequence[int | str] = (),
                 gradient_options: GradientOptions | None = None, narrows: bool = True, **example_kwargs: Any) -> XlaModule:
        """A model of flax.nnx as a module that holds its state: Params as parameters, all other variables as buffers.

        What a call changes in the model, such as running means and the counters of random generators, it changes in the buffers.
        So `example_args` and `example_kwargs` are those of ``model(...)``, and the model should be as it is to run: in training
        or in evaluation. ``nnx.update(model, module.to_jax())`` brings the state back.
        """
        function, state, replaced = flax.as_function(model)
        module = cls.from_jax(function, state, *example_args, buffers=buffers, gradient_options=gradient_options,
                              narrows=narrows, **example_kwargs)
        module._replaced = tuple(str(module._names[k]) for k in replaced)
        return module

    @classmethod
    def from_torch(cls, module: Any, *example_args: Any, gradient_options: GradientOptions | None = None,
                   **example_kwargs: Any) -> XlaModule:
        """A PyTorch module as a module of its program (`xla_torch.from_torch`), which is called like it: with copies of its
        parameters and buffers under their names and in their order, so that a `state_dict` of the one is the other's, and that
        of an optimizer, too. What is frozen, tied, not persistent or in evaluation is so here. Buffers that a call replaces are
        replaced here."""
        exported = from_torch(module, *example_args, **example_kwargs)
        held = [exported.weights] if exported.weights else []
        made = cls(exported, held, exported.buffers, gradient_options, narrows=False)
        made._replaced = tuple(sorted(exported.replaced, key=lambda name: name.split("."))) or None
        for name in exported.unsaved:
            group, last = _parted(name)
            made.get_submodule(group).register_buffer(last, made._at(name), persistent=False)
        if isinstance(module, torch.nn.Module):
            made._resemble(module)
        return made

    def forward(self, *arguments: Any, **named: Any) -> Any:
        """The program's result, with `arguments` in the places that the module does not hold."""
        held = self._held()
        if not self._door.takes(held, arguments, named):
            raise InvalidArgument("wrong number of arguments", subject="XlaModule", got=len(arguments),
                                  expected=f"{held.count(None)}: {self.extra_repr()}")
        if torch.compiler.is_dynamo_compiling():
            return self._after(dynamo.called(self._door, (held, arguments), named))
        return self._after(self._door(held, arguments, **named))

    def _after(self, result: Any) -> Any:
        """The result proper, of one that also has what the call replaces. Inside a transform of torch.func nothing is kept,
        because there it would be one example's or a tangent's."""
        if self._replaced is None:
            return result
        *own, state = result
        result = own[0] if len(own) == 1 else tuple(own)
        if transforms_are_active():
            return result
        # torch.compile looks through torch's own trees; where a class of others' holds the arrays, what it finds does not fit.
        after = pytree.tree_leaves(state) if torch.compiler.is_dynamo_compiling() else flattened(state)[0]
        for name, tensor in zip(self._replaced, after, strict=True):
            group, last = _parted(name)
            # In a new tensor: the way back may still read the old one.
            setattr(self.get_submodule(group), last, tensor.detach())
        return result

    def _resemble(self, module: torch.nn.Module) -> None:
        """Let the groups be as the modules that they stand for: one where these are one, in training or not, in their order."""
        first: dict[int, torch.nn.Module] = {id(module): self}
        groups: dict[str, torch.nn.Module] = {"": self}
        for path, own in module.named_modules(remove_duplicate=False):
            outer, last = _parted(path)
            around = contents(groups[outer])[2] if path and outer in groups else {}
            if path and last not in around:
                continue  # it holds nothing
            if path:
                groups[path] = around[last] = first.setdefault(id(own), around[last])
            group = groups[path]
            group.training = own.training
            for kept, names in zip(contents(group), contents(own), strict=True):
                kept.update({name: kept.pop(name) for name in names if name in kept})
        buffers: dict[int, str] = {}
        for name, tensor in module.named_buffers(remove_duplicate=False):
            one, (outer, last) = buffers.setdefault(id(tensor), name), _parted(name)
            if one != name:
                setattr(self._at(outer), last, self._at(one))

    def extra_repr(self) -> str:
        """The arguments of `forward` and the result, as in ``(tokens: s32[8,32]) -> f32[]``."""
        shape = self.computation.program_shape
        names = [dotted(path) for path in _places(self.computation)]
        passed = (f"{name}: {part}" for name, part, held in zip(names, shape.parameters, self._names, strict=True)
                  if held is None)
        return f"({', '.join(passed)}) -> {shape.result}"

    def to_numpy(self) -> Any:
        """What the module holds, as the tree that it was given as, of NumPy arrays (ml_dtypes for narrow types). Of a
        `TreeFunction` with several such arguments, the tuple of them; of other programs, dicts and lists by name."""
        return self._tree(lambda array, _: array)

    def to_jax(self) -> Any:
        """As `to_numpy`, of JAX arrays (and typed PRNG keys) where jax is installed."""
        return self._tree(jax_arrays.as_jax_array)

    def _tree(self, make: Callable[[np.ndarray, str | None], Any]) -> Any:
        shapes = self.computation.program_shape.parameters
        named = [(k, name, shapes[k].element_type) for k, name in enumerate(self._names) if name is not None]
        arrays = {k: numerics.numpy_from_storage(numerics.to_storage(self._at(name).detach(), kind), kind)
                  for k, name, kind in named}
        return self._door.trees(arrays, {k: name for k, name, _ in named}, make)

    def _held(self) -> list[Any]:
        """For each of the program's parameters what the module holds of it, or None."""
        parts = [None if name is None else name.rpartition(".") for name in self._names]
        groups = {group: self._at(group) for group in {part[0] for part in parts if part is not None}}
        return [None if part is None else getattr(groups[part[0]], part[2]) for part in parts]

    def _at(self, name: str) -> Any:
        return functools.reduce(getattr, name.split("."), self) if name else self

    def _keep(self, name: str, tensor: torch.Tensor, trained: bool, given: Any, tied: dict[int, torch.nn.Parameter]) -> None:
        """Keep a tensor under a name with dots, in modules that are named as its parts."""
        *groups, last = name.split(".")
        place: torch.nn.Module = self
        for group in groups:
            if group not in dict(place.named_children()):
                place.add_module(group, Group())
            place = place.get_submodule(group)
        if trained and isinstance(given, torch.nn.Parameter):
            place.register_parameter(last, tied.setdefault(id(given), torch.nn.Parameter(tensor, given.requires_grad)))
        elif trained and (tensor.is_floating_point() or tensor.is_complex()):
            place.register_parameter(last, torch.nn.Parameter(tensor))
        else:
            place.register_buffer(last, tensor)


def _parted(name: str) -> tuple[str, str]:
    """The group that a name with dots stands in, and its name there."""
    group, _, last = name.rpartition(".")
    return group, last


class Group(torch.nn.Module):
    """Weights whose names begin alike."""

    def extra_repr(self) -> str:
        own = {**self._parameters, **self._buffers}
        return ", ".join(f"{n}: {str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for n, t in own.items() if t is not None)


def _as_weight(path: Path) -> str:
    return f"weight {dotted(path)}" if path else "the tree of weights"


def _argument(number: int, names: Sequence[str]) -> str:
    return f"argument {number} ({names[number]})" if names and names[number] else f"argument {number}"


def _places(computation: XlaComputation) -> list[Path]:
    """Where each parameter of a program stood in the arguments of its function."""
    unknown = of_unknown_sizes(computation)
    one = computation if unknown is None else unknown.at()
    parameters = one.entry.parameters
    return paths(computation.program_shape.parameter_names or [""] * len(parameters), [p.op_name for p in parameters])


class _Door(abc.ABC):
    """How a module calls its program: with what it holds, and with the arguments."""

    def __init__(self, computation: XlaComputation):
        self.computation, self.graph_name = computation, dynamo.graph_name(self)

    def __call__(self, held: Sequence[Any], arguments: Sequence[Any], /, **named: Any) -> Any:
        return self.computation(*self.filled(held, arguments), **named)

    def in_graph(self, held: Sequence[Any], arguments: Sequence[Any], /, **named: Any) -> Any:
        """See `XlaComputation`, as for the two others."""
        return self.computation.in_graph(*self.filled(held, arguments), **named)

    def in_form(self, result: Any) -> Any:
        return self.computation.in_form(result)

    def why_apart(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> str:
        return self.computation.why_apart(list(self.placed(*arguments)), named)

    @abc.abstractmethod
    def placed(self, held: Sequence[Any], arguments: Sequence[Any]) -> Iterator[Any]:
        """What the module holds, and between that the rest."""

    def filled(self, held: Sequence[Any], arguments: Sequence[Any]) -> Iterator[Any]:
        """The same as the program takes it."""
        return self.placed(held, arguments)


class _Flat(_Door):
    """The arguments of a program that is called with arrays."""

    strips = True
    """Whether the name of the one argument that all weights are parts of is left out."""

    def __init__(self, computation: XlaComputation, narrows: bool):
        super().__init__(computation)
        self._narrows = narrows
        self.shapes, self._written = computation.program_shape.parameters, computation.program_shape.parameter_names
        self._paths = _places(computation)

    def path(self, number: int) -> Path:
        return self._paths[number]

    def untrained(self) -> set[int]:
        return set()

    def numbers_of(self, argument: int) -> list[int]:
        return [argument]

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

    def takes(self, held: Sequence[Any], arguments: Sequence[Any], named: Mapping[str, Any]) -> bool:
        return len(arguments) == held.count(None) and not named

    def placed(self, held: Sequence[Any], arguments: Sequence[Any]) -> Iterator[Any]:
        rest = iter(arguments)
        return (next(rest) if own is None else own for own in held)

    def filled(self, held: Sequence[Any], arguments: Sequence[Any]) -> Iterator[Any]:
        device = next((t.device for t in held if t is not None), None)
        for number, (value, own, part) in enumerate(zip(self.placed(held, arguments), held, self.shapes, strict=True)):
            called = functools.partial(_argument, number, self._written)
            as_it_is = own is not None or not part.is_array
            yield value if as_it_is else tensor_of(value, part, called, device, self._narrows)

    def trees(self, arrays: Mapping[int, Any], names: Mapping[int, str], make: Callable[[np.ndarray, str | None], Any]) -> Any:
        return nested({tuple(name.split(".")): make(arrays[k], None) for k, name in names.items()})


class _Trees(_Door):
    """The arguments of a function over trees. What the module holds are whole positional arguments."""

    strips = False

    def __init__(self, function: TreeFunction, narrows: bool):
        self._function = function.with_narrowing(narrows)
        super().__init__(self._function)
        self._trees = function.in_tree.children[0].children
        self.shapes = function.program_shape.parameters
        self._numbers = [function.parameters_of(k) for k in range(len(self._trees))]
        self._paths: dict[int, Path] = {}

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

    def takes(self, held: Sequence[Any], arguments: Sequence[Any], named: Mapping[str, Any]) -> bool:
        return True  # the function knows

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

    def trees(self, arrays: Mapping[int, Any], names: Mapping[int, str], make: Callable[[np.ndarray, str | None], Any]) -> Any:
        kinds = dict(self._function.signature.key_inputs)
        found = []
        for tree, numbers in zip(self._trees, self._numbers, strict=True):
            if numbers and numbers[0] in arrays:
                found.append(tree.unflatten(make(arrays[k], kinds.get(k)) for k in numbers))
        return found[0] if len(found) == 1 else tuple(found)


_ENDED = object()


@functools.singledispatch
def _arguments_of(computation: XlaComputation, narrows: bool) -> _Flat | _Trees:
    """How a module holds some of a computation's arguments."""
    return _Flat(computation, narrows)


_arguments_of.register(TreeFunction, _Trees)


def _own(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in memory of its own."""
    return tensor.detach().clone()


def _untrained(buffers: Sequence[int | str], places: Mapping[int, str], door: _Flat | _Trees) -> set[int]:
    """The numbers of those that are not trained. Raises InvalidArgument for names that nothing has."""
    found = door.untrained()
    for buffer in buffers:
        if isinstance(buffer, int):
            found |= set(door.numbers_of(buffer))
            continue
        own = {k for k, name in places.items() if name == buffer or name.startswith(f"{buffer}.")}
        if not own:
            raise InvalidArgument("no weight has this name", subject="buffers", got=buffer,
                                  expected=", ".join([*places.values()][:6]))
        found |= own
    return found


def _named(module: torch.nn.Module, found: Mapping[int, Path], strips: bool) -> dict[int, str]:
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
