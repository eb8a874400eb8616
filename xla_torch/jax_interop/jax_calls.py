"""Programs as operations of JAX's: traced, batched and differentiated by its transformations, lowered to their StableHLO.

A program is one primitive. Its rules are our own derivations: the batch of a program is a program, and so are its forward part,
which also returns what the way back reads, its tangents and its way back. The tangents are an operation of their own, linear
in the tangents, whose transpose is the way back: so JAX's forward and reverse modes, to any order, are these programs.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from ..core.errors import InvalidArgument, UnsupportedError
from ..core.shape import ProgramShape, Shape
from .bindings import OptionalModule, jax, jax_core

_ad: Any = OptionalModule("jax.interpreters.ad")
_batching: Any = OptionalModule("jax.interpreters.batching")
_mlir: Any = OptionalModule("jax.interpreters.mlir")
_func: Any = OptionalModule("jaxlib.mlir.dialects.func")

Mask = tuple[bool, ...]


class Plan(Protocol):
    """How a program is walked back (see `runtime/program.py`)."""

    outputs: int
    returned: int
    read: list[int]
    kept: list[int]
    constant: list[int]
    forward: Any

    def backward(self, present: Mask, wanted: tuple[int, ...]) -> Any: ...


class FlatProgram(Protocol):
    """A program over flat arrays, and what is derived from it."""

    @property
    def name(self) -> str: ...
    @property
    def program_shape(self) -> ProgramShape: ...
    def stablehlo(self) -> bytes: ...
    def plan(self, needed: Mask, sized: bool) -> Any: ...
    def tangents(self, present: Mask) -> Any: ...
    def batched(self, size: int, axes: tuple[int | None, ...]) -> tuple[Any, list[int | None]]: ...


def call(program: FlatProgram, arrays: Sequence[Any]) -> list[Any]:
    """The program's flat results, of JAX arrays that are as it takes them."""
    return _operations().program.bind(*_varying_alike(arrays), program=program)


class _Linear:
    """The derivative of a program at a point. Both ways are functions of JAX's: ``push(primals, tangents)``, and
    ``pull(present, wanted, primals, kept, cotangents)``, of the cotangents that are `present` to the gradients number `wanted`.
    What `push` gives is like `results`, which is known without it: a function may have one of the ways alone."""

    def __init__(self, inputs: int, kept: int, results: Sequence[Any], push: Callable[..., Any], pull: Callable[..., Any]):
        self.inputs, self.kept, self.results, self.push, self.pull = inputs, kept, results, push, pull

    def parted(self, given: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
        """Primals, what was kept, and tangents."""
        last = self.inputs + self.kept
        return given[:self.inputs], given[self.inputs:last], given[last:]


def _of_plan(program: FlatProgram, needed: Mask, plan: Plan) -> _Linear:
    """The derivative of a program by the inputs that are `needed`, whose tangents and gradients alone are counted."""
    numbers = [k for k, flag in enumerate(needed) if flag]
    leaves = _leaves(program)
    moving = [k for k, shape in enumerate(leaves) if shape.element_type.is_differentiable]

    def push(primals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        return call(program.tangents(needed), [*primals, *tangents])

    def pull(present: Mask, wanted: Sequence[int], primals: Sequence[Any], kept: Sequence[Any], cotangents: Sequence[Any]) -> Any:
        there = {k for k, flag in zip(moving, present, strict=True) if flag and k not in plan.constant}
        given = iter(cotangents)
        seeds = {k: next(given) for k, flag in zip(moving, present, strict=True) if flag}
        chosen = [numbers[k] for k in wanted]
        if not there:
            return [jax.numpy.zeros_like(primals[k]) for k in chosen]
        back = plan.backward(tuple(k in there for k in range(plan.returned)), tuple(chosen))
        found = call(back, [*(primals[k] for k in plan.read), *kept, *(conj(seeds[k]) for k in sorted(there))])
        return [conj(gradient) for gradient in found]

    return _Linear(len(needed), len(plan.kept), [jax_core_aval(leaves[k]) for k in moving], push, pull)


def conj(value: Any) -> Any:
    """Between JAX's cotangents of complex values and ours, which are torch's: their conjugates."""
    return jax.numpy.conj(value) if jax.dtypes.issubdtype(value.dtype, jax.numpy.complexfloating) else value


# ------------------------------------------------------------------------------------------------------- the operations


class _Operations:
    """Two primitives of JAX's: a program, and the derivative of one."""

    def __init__(self) -> None:
        self.program, self.linear = jax_core.Primitive("xla_torch_program"), jax_core.Primitive("xla_torch_tangents")
        for primitive in (self.program, self.linear):
            primitive.multiple_results = True
        self.program.def_impl(functools.partial(_compiled_apart, self.program))
        self.program.def_abstract_eval(_avals)
        self.linear.def_impl(_pushed)
        self.linear.def_abstract_eval(_avals_of_tangents)
        _mlir.register_lowering(self.program, _lowered)
        _mlir.register_lowering(self.linear, _mlir.lower_fun(_pushed, multiple_results=True))
        _ad.primitive_jvps[self.program] = _jvp_of_program
        _ad.primitive_jvps[self.linear] = _jvp_of_tangents
        _ad.primitive_transposes[self.linear] = _transposed
        _batching.primitive_batchers[self.program] = _batched_program
        _batching.primitive_batchers[self.linear] = _batched_tangents


@functools.cache
def _operations() -> _Operations:
    return _Operations()


def _compiled_apart(primitive: Any, *arrays: Any, program: FlatProgram) -> Any:
    """The program called outside of `jax.jit`: compiled by itself, once."""
    return _jitted(program)(*arrays)


def _jitted(program: Any) -> Any:
    found = program.__dict__.get(_JITTED)
    if found is None:
        found = jax.jit(functools.partial(_operations().program.bind, program=program))
        found = program.__dict__.setdefault(_JITTED, found)
    return found


_JITTED = "_jitted_by_jax"
"""Kept with the program, so that it goes when the program goes."""


def _leaves(program: FlatProgram) -> list[Shape]:
    return [leaf for leaf in program.program_shape.result.leaves() if leaf.is_array]


def _avals(*arguments: Any, program: FlatProgram) -> list[Any]:
    return _placed([jax_core_aval(shape) for shape in _leaves(program)], arguments)


def _avals_of_tangents(*arguments: Any, linear: _Linear) -> list[Any]:
    return _placed(linear.results, arguments)


def _placed(avals: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    """Results on the mesh of the arguments, varying over the axes of `jax.shard_map` that these vary over."""
    if not arguments:
        return list(avals)
    for argument in arguments:
        spec, varying = argument.sharding.spec, argument.manual_axis_type
        if spec.unreduced or spec.reduced or varying.unreduced or varying.reduced:
            raise UnsupportedError("a program of whole arrays got partial sums", subject="to_jax", got=argument.str_short(),
                                   hint="add them with jax.lax.psum, or jax.sharding.reshard on an explicit mesh")
        if any(part is not None for part in spec.partitions):
            raise UnsupportedError("JAX cannot infer the shardings of the results on an explicit mesh", subject="to_jax",
                                   got=argument.str_short(), hint="jax.sharding.auto_axes(function) lets XLA choose; a mesh may "
                                   "be made with axis_types of Auto; in jax.shard_map nothing is to be chosen")
    first = arguments[0]
    return [aval.update(sharding=first.sharding.update(spec=jax.sharding.PartitionSpec(*[None] * len(aval.shape))),
                        manual_axis_type=first.manual_axis_type) for aval in avals]


def jax_core_aval(shape: Shape) -> Any:
    """What JAX knows of an array. Raises UnsupportedError for element types and sizes that JAX does not have."""
    dtype = shape.element_type.numpy
    if dtype is None or shape.element_type.name in _WITHOUT:
        raise UnsupportedError(f"JAX has no arrays of {shape.element_type}", subject="to_jax", got=shape)
    if not shape.is_static:
        raise UnsupportedError("JAX has no arrays whose size depends on values", subject="to_jax", got=shape,
                               expected="results of known sizes",
                               hint="use sums over masked elements, or torch.where(mask, x, 0)")
    return jax.core.ShapedArray(tuple(shape.dimensions), dtype)


_WITHOUT = ("F6E3M2FN", "F6E2M3FN")


def _varying_alike(arrays: Sequence[Any]) -> Sequence[Any]:
    """Arrays that all vary over the same axes of `jax.shard_map`, as one operation's operands have to."""
    axes = [jax.typeof(a).manual_axis_type.varying for a in arrays]
    union = frozenset().union(*axes)
    if not union:
        return arrays
    return [a if own == union else jax.lax.pcast(a, tuple(sorted(union - own)), to="varying")
            for a, own in zip(arrays, axes, strict=True)]


def _lowered(context: Any, *operands: Any, program: FlatProgram) -> Any:
    """The program's functions in the module that JAX makes, and a call."""
    module = context.module_context
    with module.module.context:
        own = _mlir.ir.Module.parse(program.stablehlo())
        main = own.body.operations[0]
        for name in ("arg_attrs", "res_attrs"):  # layouts and shardings of arguments, which a function inside has none of
            if name in main.attributes:
                del main.attributes[name]
        types = main.type.results
        name = _mlir.merge_mlir_modules(module.module, f"xla_torch_{program.name}", own, dst_symtab=module.symbol_table)
        return _func.CallOp(types, _mlir.ir.FlatSymbolRefAttr.get(name), list(operands)).results


# ------------------------------------------------------------------------------------------------------------ their rules


def _is_zero(tangent: Any) -> bool:
    return type(tangent) is _ad.Zero


def _no_tangent(result: Any) -> Any:
    return _ad.Zero(jax.typeof(result).to_tangent_aval())


def _jvp_of_program(primals: Sequence[Any], tangents: Sequence[Any], program: FlatProgram) -> tuple[Any, Any]:
    needed = tuple(not _is_zero(t) for t in tangents)
    plan: Plan = program.plan(needed, True)
    found = call(plan.forward, primals)
    results = found[:plan.outputs]
    linear = _of_plan(program, needed, plan)
    given = [*primals, *(found[k] for k in plan.kept), *(t for t in tangents if not _is_zero(t))]
    moved = iter(_operations().linear.bind(*_varying_alike(given), linear=linear))
    return results, [next(moved) if shape.element_type.is_differentiable else _no_tangent(result)
                     for shape, result in zip(_leaves(program), results, strict=True)]


def _pushed(*given: Any, linear: _Linear) -> Any:
    primals, _, tangents = linear.parted(given)
    return linear.push(primals, tangents)


def _jvp_of_tangents(given: Sequence[Any], moved: Sequence[Any], linear: _Linear) -> tuple[Any, Any]:
    """The tangents are a program of the primals and tangents, and are differentiated as such: what was kept is not read."""
    active = [k for k, t in enumerate(moved) if not _is_zero(t) and not linear.inputs <= k < linear.inputs + linear.kept]

    def of(*values: Any) -> Any:
        whole = list(given)
        for k, value in zip(active, values, strict=True):
            whole[k] = value
        return _pushed(*whole, linear=linear)

    if not active:
        results = of()
        return results, [_no_tangent(result) for result in results]
    return jax.jvp(of, tuple(given[k] for k in active), tuple(moved[k] for k in active))


def _transposed(cotangents: Sequence[Any], *given: Any, linear: _Linear) -> list[Any]:
    primals, kept, tangents = linear.parted(given)
    wanted = tuple(k for k, t in enumerate(tangents) if _ad.is_undefined_primal(t))
    present = tuple(not _is_zero(ct) for ct in cotangents)
    found: list[Any] = [None] * len(given)
    if any(present):
        gradients = linear.pull(present, wanted, primals, kept, [ct for ct in cotangents if not _is_zero(ct)])
        for k, gradient in zip(wanted, gradients, strict=True):
            found[linear.inputs + linear.kept + k] = gradient
    return found


def _batched_program(arrays: Sequence[Any], axes: Sequence[int | None], program: FlatProgram) -> tuple[Any, Any]:
    found, places = program.batched(_size(arrays, axes), tuple(axes))
    return call(found, arrays), places


def _batched_tangents(given: Sequence[Any], axes: Sequence[int | None], linear: _Linear) -> tuple[Any, Any]:
    """All tangents have the batch, and so their gradients have it, too."""
    size, last = _size(given, axes), linear.inputs + linear.kept
    spread = [_batching.bdim_at_front(t, axis, size) for t, axis in zip(given[last:], axes[last:], strict=True)]
    of_primals, of_kept = tuple(axes[:linear.inputs]), tuple(axes[linear.inputs:last])

    def push(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        return jax.vmap(linear.push, (of_primals, 0), axis_size=size)(tuple(primals), list(tangents))

    def pull(present: Mask, wanted: Sequence[int], primals: Sequence[Any], kept: Sequence[Any], cotangents: Sequence[Any]) -> Any:
        return jax.vmap(lambda p, k, ct: linear.pull(present, wanted, p, k, ct), (of_primals, of_kept, 0), axis_size=size)(
            tuple(primals), tuple(kept), list(cotangents))

    results = [aval.update(shape=(size, *aval.shape)) for aval in linear.results]
    batched = _Linear(linear.inputs, linear.kept, results, push, pull)
    found = _operations().linear.bind(*given[:last], *spread, linear=batched)
    return found, [0] * len(found)


def _size(arrays: Sequence[Any], axes: Sequence[int | None]) -> int:
    return next(a.shape[axis] for a, axis in zip(arrays, axes, strict=True) if axis is not None)


# ------------------------------------------------------------------------------------------------------ entry points


def is_array(value: Any) -> bool:
    """Whether a value is JAX's: an array, or what stands for one while JAX traces."""
    return isinstance(value, jax.Array)


def own_array(array: Any, key: str | None = None) -> Any:
    """A NumPy array as JAX's, in memory of its own and of its own type, of 64 bits, too; or typed PRNG keys of a kind."""
    with _wide():
        made = jax.numpy.array(array)
    return made if key is None else key_of(made, key)


def _wide() -> Any:
    return jax.enable_x64(True)


def fitting(array: Any, shape: Shape, what: Callable[[], str]) -> Any:
    """A JAX array as an operand of this shape: integers may be narrower than S64 and U64. Raises InvalidArgument for another
    shape or type."""
    wanted = shape.element_type.numpy
    if tuple(array.shape) != tuple(shape.dimensions):
        raise InvalidArgument(f"{what()} has another shape", got=array.aval.str_short(), expected=shape)
    if array.dtype == wanted:
        return array
    if shape.element_type.is_integral and wanted is not None and wanted.itemsize == 8 and array.dtype.kind in "iu" and \
            np.can_cast(array.dtype, wanted):
        with _wide():
            return jax.lax.convert_element_type(array, wanted)
    raise InvalidArgument(f"{what()} has another dtype", got=array.aval.str_short(), expected=shape,
                          hint=f"x.astype({wanted})" + (_WIDE if wanted is not None and wanted.itemsize >= 8 else ""))


_WIDE = ", with jax.config.update('jax_enable_x64', True)"


def known_sizes(leaf: Any) -> tuple[int, ...]:
    """The sizes of an argument. Raises UnsupportedError where JAX does not know them."""
    sizes = np.shape(leaf)
    if not all(isinstance(size, int) for size in sizes):
        raise UnsupportedError("a program of unknown sizes must be traced with known sizes", subject="to_jax", got=sizes)
    return sizes


def data_of_key(key: Any, kind: str, dimensions: tuple[int, ...], of_others: Callable[..., Any]) -> Any:
    """The data of a typed PRNG key, also while JAX traces."""
    if is_array(key) and jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key) and \
            jax.random.key_impl(key) == _KINDS.get(kind, kind):
        return jax.random.key_data(key)
    return of_others(key, kind, dimensions)


_KINDS = {"fry": "threefry2x32"}
"""What kinds of keys that files of jax.export have by their tags are called otherwise."""


def key_of(data: Any, kind: str) -> Any:
    """The typed PRNG key of this data."""
    return jax.random.wrap_key_data(data, impl=_KINDS.get(kind, kind))


def leaves_of(tree: Any) -> list[Any]:
    """The leaves of a tree."""
    return jax.tree_util.tree_leaves(tree)


def abstract(shape: Shape, key: str | None = None) -> Any:
    """What stands for an array of this shape, or for the typed PRNG keys of a kind whose data it is."""
    aval = jax_core_aval(shape)
    if key is None:
        return jax.ShapeDtypeStruct(aval.shape, aval.dtype)
    return jax.eval_shape(lambda data: key_of(data, key), jax.ShapeDtypeStruct(aval.shape, aval.dtype))


def exported(function: Callable[..., Any], args: Sequence[Any], kwargs: Any, platforms: Sequence[str], vjp_order: int) -> bytes:
    """A function as a file of jax.export."""
    with _wide():
        export = importlib.import_module("jax.export")
        return bytes(export.export(jax.jit(function), platforms=tuple(platforms))(*args, **kwargs).serialize(vjp_order=vjp_order))
