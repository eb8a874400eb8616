"""`to_jax`: programs as JAX functions, with their derivatives and batches; `to_jax_export`: as files of `jax.export`."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from ..autodiff.options import DEFAULT
from ..core.errors import InvalidArgument, UnsupportedError
from ..core.shape import Shape
from ..hlo.tree import arrays, from_arrays
from ..jax_interop import jax_calls
from ..jax_interop.bindings import require
from ..jax_interop.jax import key_data
from ..lowering import numerics
from ..pytree.structure import Structure
from ..runtime.backends import EAGER
from ..runtime.computation import XlaComputation
from ..runtime.polymorphic import of_unknown_sizes
from ..runtime.program import Program
from ..runtime.steps import require_computation
from ..storage.dtypes import type_from_torch
from .arguments import tensor_of
from .torch_function import TorchFunction
from .tree_function import TreeFunction

JaxFunction = Callable[..., Any]


@functools.singledispatch
def to_jax(computation: Any) -> Any:
    """Convert a computation to a JAX function that `jax.jit`, `grad` and `vmap` transform.

    The function takes JAX arrays, NumPy arrays or numbers in the computation's pytrees and returns JAX arrays. Its program
    becomes StableHLO in the program that JAX compiles. Derivatives of all orders are the computation's own, including those of
    `from_jax` and `from_torch`; cotangents of complex values follow JAX. Batches use `xla_torch.vmap`. For unknown sizes, each
    call's shapes get a program::

        function = xla_torch.to_jax(xla_torch.load("loss.hlo"))
        jax.jit(jax.value_and_grad(function))(x)

    An object with weights (an `XlaModule`, or a result of `from_torch`) returns a pair: the function, whose first argument are
    the parameters, and the parameters as a pytree of JAX arrays::

        function, parameters = xla_torch.to_jax(xla_torch.from_torch(network, images))
        jax.grad(lambda p: loss(function(p, images)))(parameters)

    The pytree has the structure of the weights, with None for buffers, frozen weights and repeated tied weights. Buffers keep
    their current values unless the call passes others: ``function(parameters, images, buffers=tree)``, where `function.buffers`
    is the current pytree. If a call updates buffers, the result is a pair of the result and the pytree of all buffers.

    Arrays must have the program's dtypes; only integers are widened to 64 bits, and NumPy arrays and numbers narrowed as in
    `TreeFunction`. Raises MissingDependency without jax, and InvalidArgument if `computation` is not a computation. Tracing
    raises InvalidArgument for arguments that don't fit, DifferentiationError for a missing derivative, and UnsupportedError for
    effects, collectives, custom calls that XLA lacks, and anything that StableHLO or JAX can't express.

    >>> import jax
    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> jax.jit(jax.grad(lambda x: xla_torch.to_jax(square)(x).sum()))(np.array([1, 2], np.float32))
    Array([2., 4.], dtype=float32)
    """
    require_computation(computation, "to_jax")
    require("jax", "to_jax")
    return _named(as_function(computation), computation)


def to_jax_export(computation: Any, path: str | os.PathLike[str], *, vjp_order: int = 1, platforms: Sequence[str] = ("cpu",)
                  ) -> None:
    """Write a computation as a `jax.export` file that JAX and `load` read without xla_torch.

    ``jax.export.deserialize(data).call`` runs it. It takes the computation's arguments, with weights first, for the given
    platforms, and includes the backward pass for `vjp_order` orders. Raises the errors of `to_jax`, and InvalidArgument for a
    program of unknown sizes.

    >>> import jax, pathlib
    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> xla_torch.to_jax_export(square, "square.bin")
    >>> jax.export.deserialize(pathlib.Path("square.bin").read_bytes()).call(np.array([1, 2], np.float32))
    Array([1., 4.], dtype=float32)
    """
    require_computation(computation, "to_jax_export")
    require("jax", "to_jax_export")
    if of_unknown_sizes(computation) is not None:
        raise InvalidArgument("a program of unknown sizes cannot be exported as one program", subject=computation.name,
                              hint="use computation.at(b=4) or specialised(*arguments) to get one of them")
    function = _named(as_function(computation), computation)
    args, kwargs = _examples(computation)
    Path(path).write_bytes(jax_calls.exported(function, args, kwargs, platforms, vjp_order))


# ---------------------------------------------------------------------------------------------------------- calling


@functools.singledispatch
def as_function(computation: XlaComputation) -> JaxFunction:
    """The function of a computation, which takes all of its arguments."""
    require("jax", "to_jax")
    return functools.partial(_call_flat, computation, _Programs(computation))


@as_function.register
def _(computation: TreeFunction) -> JaxFunction:
    require("jax", "to_jax")
    return functools.partial(_call_trees, computation, _Programs(computation))


@functools.singledispatch
def _examples(computation: XlaComputation) -> tuple[Any, Any]:
    """What stands for the arguments of a call, by place and by name."""
    return [from_arrays([jax_calls.abstract(leaf) for leaf in shape.leaves() if leaf.is_array], shape)
            for shape in computation.program_shape.parameters], {}


@_examples.register
def _(computation: TreeFunction) -> tuple[Any, Any]:
    keys, shapes = dict(computation.signature.key_inputs), computation.program_shape.parameters
    return computation.in_tree.unflatten(
        [jax_calls.abstract(shapes[place], keys.get(place)) for place in computation.places])


def _named(function: Callable[..., Any], computation: XlaComputation) -> JaxFunction:
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    call.__name__ = call.__qualname__ = computation.name
    call.__doc__ = f"{computation!r}, as a JAX function."
    return call


class _Programs:
    """The programs of a computation, each with gradients that are plain HLO. There is one unless sizes are unknown."""

    def __init__(self, computation: XlaComputation):
        self._family = of_unknown_sizes(computation)
        if self._family is None:
            self._one: Program | None = _portable(computation.program)
            self._one.for_xla  # noqa: B018  (refused at once, where it is)
        self._of = functools.lru_cache(maxsize=128)(_portable)

    def program(self, leaves: Sequence[Any]) -> Program:
        """The one for these arguments."""
        if self._family is None:
            assert self._one is not None
            return self._one
        sizes = [jax_calls.known_sizes(leaf) for leaf in leaves]
        return self._of(self._family.of_shapes(sizes).program)


def _portable(program: Program) -> Program:
    return program.portable.again(dataclasses.replace(program.options or DEFAULT, portable=True), EAGER)


def _call_flat(computation: XlaComputation, programs: _Programs, *arguments: Any) -> Any:
    shapes = computation.program_shape.parameters
    if len(arguments) != len(shapes):
        raise InvalidArgument("wrong number of arguments", subject=computation.name, got=len(arguments), expected=len(shapes))
    leaves = [leaf for a, p in zip(arguments, shapes, strict=True) for leaf, _ in arrays(a, p)]
    found, program = _run(programs, leaves, lambda k: f"argument {k}", True)
    return from_arrays(found, program.program_shape.result)


def _call_trees(function: TreeFunction, programs: _Programs, *args: Any, **kwargs: Any) -> Any:
    signature, keys = function.signature, dict(function.signature.key_inputs)
    bound = signature.bind(args, kwargs, function.in_tree)
    given = function.in_tree.flatten(bound, signature.describe)
    leaves: list[Any] = [None] * len(given)
    names = {}
    for leaf, place, path in zip(given, function.places, function.in_tree.paths(), strict=True):
        dimensions = function.program_shape.parameters[place].dimensions
        leaves[place] = jax_calls.data_of_key(leaf, keys[place], dimensions, key_data) if place in keys else leaf
        names[place] = path
    found, _ = _run(programs, leaves, lambda k: signature.describe(names[k]), function.narrows)
    for number, kind in signature.key_results:
        found[number] = jax_calls.key_of(found[number], kind)
    return function.out_tree.unflatten(found)


def _run(programs: _Programs, leaves: Sequence[Any], what: Callable[[int], str], narrows: bool) -> tuple[list[Any], Program]:
    program = programs.program(leaves)
    shapes = [leaf for p in program.program_shape.parameters for leaf in p.leaves() if leaf.is_array]
    operands = [_operand(leaf, shape, functools.partial(what, k), narrows)
                for k, (leaf, shape) in enumerate(zip(leaves, shapes, strict=True))]
    return list(jax_calls.call(program, operands)), program


def _operand(leaf: Any, shape: Shape, what: Callable[[], str], narrows: bool) -> Any:
    """A leaf as a JAX array that the program takes."""
    if not jax_calls.is_array(leaf):
        leaf = _array(tensor_of(leaf, shape, what, narrow=narrows))
    return jax_calls.fitting(leaf, shape, what)


def _array(tensor: torch.Tensor) -> Any:
    kind = type_from_torch(tensor.dtype)
    if kind is None:
        raise UnsupportedError("JAX has no dtype for this tensor", subject="to_jax", got=tensor.dtype)
    return jax_calls.own_array(numerics.numpy_from_storage(numerics.to_storage(tensor.detach(), kind), kind))


# ---------------------------------------------------------------------------------------------------------- weights


def with_weights(call: JaxFunction, name: str, weights: Structure, values: Sequence[Any], trained: Sequence[bool],
                 first: Sequence[int], replaced: Sequence[int] = ()) -> tuple[JaxFunction, Any]:
    """The pair of a function and its parameters.

    `call` takes the list of all weights and then the arguments. Of the leaves of `weights`, `values` are what they are now,
    `trained` says which are parameters, and `first` is the number of the leaf that each stands for. The last of a call's results
    are the leaves number `replaced`, as they are afterwards.
    """
    own = [first[k] == k for k in range(len(values))]
    parameters, buffers = (weights.only([mine and flag is which for mine, flag in zip(own, trained, strict=True)])
                           for which in (True, False))
    numbers = {flag: [k for k, mine in enumerate(own) if mine and trained[k] is flag] for flag in (True, False)}
    held = buffers.unflatten([values[k] for k in numbers[False]])

    def function(given: Any, *args: Any, buffers: Any = None, **kwargs: Any) -> Any:
        state = held if buffers is None else buffers
        leaves: dict[int, Any] = dict(zip(numbers[True], parameters.flatten(given, _as_parameter), strict=True))
        leaves |= dict(zip(numbers[False], form.flatten(state, _as_buffer), strict=True))
        result = call([leaves[first[k]] for k in range(len(first))], *args, **kwargs)
        if not replaced:
            return result
        *proper, after = result
        leaves |= {first[k]: leaf for k, leaf in zip(replaced, jax_calls.leaves_of(after), strict=True)}
        return proper[0] if len(proper) == 1 else tuple(proper), form.unflatten([leaves[k] for k in numbers[False]])

    form = buffers
    function.__name__ = function.__qualname__ = name
    function.buffers = held  # pyright: ignore[reportFunctionMemberAccess]
    return function, parameters.unflatten([values[k] for k in numbers[True]])


def _as_parameter(path: Any) -> str:
    return ".".join(["parameters", *map(str, path)])


def _as_buffer(path: Any) -> str:
    return ".".join(["buffers", *map(str, path)])


def tied(tensors: Sequence[Any]) -> list[int]:
    """For each tensor the number of the first that is the same one."""
    numbers: dict[int, int] = {}
    return [numbers.setdefault(id(tensor), k) for k, tensor in enumerate(tensors)]


@to_jax.register
def _(function: TorchFunction) -> Any:
    require("jax", "to_jax")
    if not function.weights:
        return _named(as_function(function), function)
    weights = function.argument(0)
    tensors, names = weights.flatten(function.weights), weights.names()
    trained = [isinstance(t, torch.nn.Parameter) and t.requires_grad for t in tensors]
    run = as_function(function)
    return with_weights(lambda leaves, *args, **kwargs: run(weights.unflatten(leaves), *args, **kwargs), function.name, weights,
                        [_array(t) for t in tensors], trained, tied(tensors), _numbers(function.replaced, names))


def _numbers(replaced: Sequence[str], names: Sequence[str]) -> list[int]:
    """The numbers of the weights that are replaced, in the order of the tree that they are returned in."""
    return [k for k, name in enumerate(names) if name in set(replaced)]
