"""TreeFunction: a computation behind trees, called as the function that it was traced from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.fx

from ..autodiff.options import GradientOptions
from ..core.errors import DifferentiationError, InvalidArgument
from ..core.shape import ProgramShape, Shape
from ..hlo.tree import arrays
from ..jax_interop.jax import key_data
from ..partitioning.state import Partitioning
from ..pytree.nodes import Kind
from ..pytree.signatures import Signature
from ..pytree.structure import Path, Structure
from ..runtime import dynamo
from ..runtime.computation import XlaComputation
from ..runtime.graphs_of_fx import symbolic_call
from ..runtime.program import Program
from ..runtime.steps import Step
from ..storage.dtypes import is_as, torch_dtype
from ..storage.torch_private import is_traced_symbolically
from .arguments import tensor_of


class TreeFunction(XlaComputation):
    """A computation behind the trees that its arguments and results are leaves of: what files of `jax.export`, JAX functions
    and torch modules become. It is called with trees of tensors, arrays or numbers, and goes wherever a computation goes: `grad`,
    `vmap`, `compile`, `XlaModule` and the like take it, and what they give has trees.

    `in_tree` is the form of ``(args, kwargs)``, `out_tree` that of the result; neither needs JAX. `computation` is the program
    over flat leaves. As in JAX without 64-bit mode, a 64-bit argument is narrowed where the traced parameter has 32 bits, with
    an error for integers that do not fit; `with_narrowing(False)` refuses it. Typed PRNG keys are their data, as U32; an integer
    stands for the key that it seeds. Gradients flow to every floating leaf, as for any torch function.
    """

    def __init__(self, computation: XlaComputation, in_tree: Structure, out_tree: Structure, signature: Signature | None = None,
                 places: Sequence[int] | None = None, narrows: bool = True):
        self.computation, self.in_tree, self.out_tree = computation, in_tree, out_tree
        self.signature, self.narrows = signature or Signature(), narrows
        self.places = tuple(range(in_tree.leaf_count)) if places is None else tuple(places)
        """For each leaf of the arguments the number of the program's parameter."""
        shape = self.program_shape
        count = len(shape.parameters)
        if sorted(self.places) != list(range(count)):
            raise InvalidArgument("the pytree of arguments does not match the program", got=f"{in_tree.leaf_count} leaves",
                                  expected=f"{count} parameters")
        self._accepts = [(s.dimensions, torch_dtype(s.element_type), s) for s in shape.parameters]
        self._dimensions, self._dtypes = [dims for dims, _, _ in self._accepts], [dtype for _, dtype, _ in self._accepts]
        self._is_array_result = shape.result.is_array
        self._is_flat_result = shape.result.is_tuple and all(s.is_array for s in shape.result.tuple_shapes)
        self._keys = dict(self.signature.key_inputs)
        self._is_flat_call = self._is_called_by_place()
        self._is_tuple_of_leaves = _is_tuple_of_leaves(out_tree) and out_tree.leaf_count == len(self.result_leaves())

    # ---- calling

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on trees like those of the trace. Raises InvalidArgument, which names the argument (``argument params.w``), for
        other trees, shapes or dtypes."""
        if torch.compiler.is_dynamo_compiling():
            return dynamo.called(self, args, kwargs)
        if is_traced_symbolically() and (call := symbolic_call(self, args, kwargs)) is not None:
            return call
        leaves = self.in_graph(*args, **kwargs)
        return leaves if self._is_tuple_of_leaves else self.out_tree.unflatten(leaves)

    def in_graph(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        """The leaves of the result."""
        if self._is_flat_call and not kwargs and (found := self._of_fitting(args)) is not None:
            return found
        return self._leaves_of(self.computation(*self.tensors(*args, **kwargs)))

    def _leaves_of(self, result: Any) -> tuple[torch.Tensor, ...]:
        if self._is_array_result:
            return (result,)
        return result if self._is_flat_result else tuple(leaf for leaf, _ in arrays(result, self.program_shape.result))

    def of_tensors(self, tensors: Sequence[Any]) -> Any:
        """The result for one value for each of the program's parameters, in their order; None where they are not tensors that
        the program takes as they are."""
        if torch.compiler.is_dynamo_compiling() or is_traced_symbolically() or (found := self._of_fitting(tensors)) is None:
            return None
        return found if self._is_tuple_of_leaves else self.out_tree.unflatten(found)

    def in_form(self, result: Any) -> Any:
        """The tree with these leaves."""
        return self.out_tree.unflatten(result)

    def run_fitting(self, tensors: Sequence[torch.Tensor]) -> Any:
        """The flat result for flat tensors."""
        return self.computation.run_fitting(tensors)

    def run_numpy(self, *arguments: Any, device: torch.device | str = "cpu") -> tuple[np.ndarray, ...]:
        """Run on NumPy arrays, one for each parameter of the program."""
        return self.computation.run_numpy(*arguments, device=device)

    def _is_called_by_place(self) -> bool:
        """Whether the program's parameters are the arguments themselves, in order."""
        by_place, by_name = self.in_tree.children
        return (_is_tuple_of_leaves(by_place) and not by_name.children and not self.signature.static
                and self.places == tuple(range(len(by_place.children))))

    def _of_fitting(self, args: Sequence[Any]) -> tuple[torch.Tensor, ...] | None:
        """The leaves of the result where arguments are tensors as the program takes them, so that nothing is to be done with
        them; None otherwise."""
        if (found := self.computation.run_known(args)) is not None:
            return tuple(found)
        fit = len(args) == len(self._accepts) and all(map(is_as, args, self._dimensions, self._dtypes))
        return self._leaves_of(self.run_fitting(args)) if fit else None

    def tensors(self, *args: Any, **kwargs: Any) -> list[torch.Tensor]:
        """The arguments of a call as the program takes them."""
        leaves = self.leaves(*args, **kwargs)
        device = next((leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor)), None)
        given: list[Any] = [None] * len(leaves)
        for number, (leaf, place) in enumerate(zip(leaves, self.places, strict=True)):
            dimensions, dtype, shape = self._accepts[place]
            given[place] = leaf if is_as(leaf, dimensions, dtype) else self._tensor(leaf, number, place, shape, device)
        return given

    def leaves(self, *args: Any, **kwargs: Any) -> list[Any]:
        """The leaves of a call's arguments as they are given, in the order of `places`."""
        return self.in_tree.flatten(self.signature.bind(args, kwargs, self.in_tree), self.signature.describe)

    def _tensor(self, leaf: Any, number: int, place: int, shape: Shape, device: torch.device | None) -> torch.Tensor:
        if place in self._keys:
            leaf = key_data(leaf, self._keys[place], shape.dimensions)
        return tensor_of(leaf, shape, lambda: self.signature.describe(self.in_tree.paths()[number]), device, self.narrows)

    def weight(self, leaf: Any, parameter: int, what: Callable[[], str]) -> torch.Tensor:
        """A value for one of the program's parameters as it takes it, never narrowed. Raises InvalidArgument, which calls it what
        `what` says."""
        shape = self.program_shape.parameters[parameter]
        data = key_data(leaf, self._keys[parameter], shape.dimensions) if parameter in self._keys else leaf
        return tensor_of(data, shape, what, narrow=False)

    # ---- what is asked of its program

    @property
    def program(self) -> Program:
        return self.computation.program

    def placed(self, number: int, tensor: torch.Tensor) -> torch.Tensor:
        return self.computation.placed(number, tensor)

    @property
    def family(self) -> XlaComputation | None:
        return self.computation.family

    @property
    def name(self) -> str:
        return self.computation.name

    @property
    def program_shape(self) -> ProgramShape:
        """Shapes and names of the program's parameters, and the shape of its result."""
        return self.computation.program_shape

    @property
    def gradient_options(self) -> GradientOptions | None:
        return self.computation.gradient_options

    @property
    def partitioning(self) -> Partitioning:
        return self.computation.partitioning

    @property
    def participants(self) -> dict[str, int]:
        return self.computation.participants

    def _repr_html_(self) -> str | None:
        return self.computation._repr_html_()

    def to_hlo_text(self, *args: Any, **kwargs: Any) -> str:
        return self.computation.to_hlo_text(*args, **kwargs)

    def python_code(self, *args: Any, **kwargs: Any) -> str:
        return self.computation.python_code(*args, **kwargs)

    def lowered(self, *args: Any, **kwargs: Any) -> torch.fx.GraphModule:
        return self.computation.lowered(*args, **kwargs)

    def _leaves(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        leaves = self.in_tree.flatten(self.signature.bind(arguments, named, self.in_tree), self.signature.describe)
        return [leaf for _, leaf in sorted(zip(self.places, leaves, strict=True), key=lambda pair: pair[0])]

    def _examples(self) -> tuple[Sequence[Any], dict[str, Any]]:
        flat, _ = super()._examples()
        return self.in_tree.unflatten(flat[place] for place in self.places)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}: {self.in_tree} -> {self.out_tree}; {self.program_shape})"

    # ---- the same in another way

    def with_computation(self, computation: XlaComputation, in_tree: Structure | None = None, out_tree: Structure | None = None,
                         places: Sequence[int] | None = None) -> TreeFunction:
        """Another program with the same call; the forms of arguments and result change with it."""
        kept = self.signature if out_tree is None else dataclasses.replace(self.signature, key_results=())
        return TreeFunction(computation, in_tree or self.in_tree, out_tree or self.out_tree, kept,
                           self.places if places is None else places, self.narrows)

    def derived(self, step: Step) -> XlaComputation:
        return step.over_trees(self, step)

    def with_gradient_options(self, options: GradientOptions) -> TreeFunction:
        return self.with_computation(self.computation.with_gradient_options(options))

    def with_narrowing(self, narrows: bool) -> TreeFunction:
        """The same function, which narrows 64-bit arguments, or refuses them."""
        return TreeFunction(self.computation, self.in_tree, self.out_tree, self.signature, self.places, narrows)

    # ---- its arguments

    def argument(self, number: int) -> Structure:
        """The form of a positional argument. Raises InvalidArgument for a number that the function does not have."""
        arguments = self.in_tree.children[0].children
        if not 0 <= number < len(arguments):
            raise InvalidArgument(f"argnums names argument {number}", subject=self.name, got=number,
                                  expected=f"0 to {len(arguments) - 1}")
        return arguments[number]

    def parameters_of(self, number: int) -> list[int]:
        """The program's parameters that are the leaves of a positional argument."""
        first = sum(self.argument(k).leaf_count for k in range(number))
        return list(self.places[first:first + self.argument(number).leaf_count])

    def is_differentiable(self, parameter: int) -> bool:
        return self.program_shape.parameters[parameter].element_type.is_differentiable

    def differentiable_of(self, number: int) -> list[int]:
        """The program's parameters that are the leaves of a positional argument. Raises DifferentiationError, which names the
        leaf, if not all of them are floating or complex."""
        found = self.parameters_of(number)
        for path, parameter in zip(self.argument(number).paths(), found, strict=True):
            if not self.is_differentiable(parameter):
                place: Path = (0, number, *path)
                raise DifferentiationError(f"{self.signature.describe(place)} has no gradient", subject=self.name,
                                           got=self.program_shape.parameters[parameter], expected="a floating or complex leaf",
                                           hint="use vjp, which returns None for such leaves, or pass them in another argument")
        return found

    def result_leaves(self) -> list[Shape]:
        """The shapes of the leaves of the result."""
        return [leaf for leaf in self.program_shape.result.leaves() if leaf.is_array]

    def with_arguments(self, more: Iterable[Structure]) -> tuple[Structure, list[int]]:
        """The form of the arguments with more of them behind the positional ones, and the places of their leaves in a program
        that has their parameters behind all others."""
        by_place, by_name = self.in_tree.children
        added = list(more)
        first, last = by_place.leaf_count, self.in_tree.leaf_count
        count = sum(a.leaf_count for a in added)
        places = [*self.places[:first], *range(last, last + count), *self.places[first:]]
        positional = Structure(by_place.kind, (*by_place.children, *added))
        return Structure(self.in_tree.kind, (positional, by_name)), places


def _is_tuple_of_leaves(tree: Structure) -> bool:
    return tree.kind is Kind.TUPLE and all(child.kind is Kind.LEAF for child in tree.children)
