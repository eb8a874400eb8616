"""`partition`: one participant's program, of a program about whole arrays. XLA's partitioner makes it, torch runs it::

    step = xla_torch.partition(program, {"data": 2, "model": 2}, {"*.kernel": (None, "model"), "batch": ("data",)})
    results = xla_torch.run_replicas(step, xla_torch.shard_arguments(step, arguments), num_partitions=4)

What is partitioned is an ordinary program, with the shardings of its parameters and results as annotations: stored as text it is
loaded and runs where there is no jaxlib.
"""

from __future__ import annotations

import difflib
import fnmatch
import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.errors import InvalidArgument
from ..core.shape import Shape
from ..hlo.ir import Computation, Instruction, Module
from ..hlo.mesh_sharding import Mesh
from ..hlo.sharding import Sharding, ShardingKind
from ..opcodes.front import verify
from ..opcodes.internal import custom_call
from ..opcodes.movement import copy
from ..partitioning.annotations import SHARDING, is_shardy, state_whole
from ..partitioning.summands import leave_summands, stated_sums
from ..proto.containers import read_proto
from ..pytree.parameter_paths import paths
from ..pytree.structure import Structure, dotted
from ..runtime.computation import XlaComputation
from ..runtime.polymorphic import of_unknown_sizes
from ..runtime.steps import Step, entry_point, require_computation
from ..xla_backend.client import require_client
from ..xla_backend.partitioner import partitioned
from .layouts import is_layout, require_axes, shardings_of
from .loading import computation_of, load
from .mesh_words import is_stated, mesh_of, sharding_of, stated_for_each
from .tree_function import TreeFunction

__all__ = ["partition"]

_REPLICATED = Sharding(ShardingKind.REPLICATED)


def partition(program: XlaComputation | str | os.PathLike[str], mesh: Any = None, in_shardings: Any = None,
              out_shardings: Any = None, weights: Sequence[int] | None = None) -> XlaComputation:
    """Partition a program for a mesh with XLA's SPMD partitioner, which needs jaxlib.

    `program` is a computation, a result of `from_jax` (then the result is one as well) or a file. `mesh` has names and sizes,
    as in ``{"data": 2, "model": 2}``, or is a torch DeviceMesh; its last axis varies fastest. None takes the mesh of the
    program's annotations.

    A sharding is a tuple of mesh axes, one for each dimension, ``(None, "model")`` or ``(("data", "model"),)``; a list of torch
    placements, one for each mesh axis, ``[Shard(0), Replicate()]``; or an HLO `Sharding` or its text. `in_shardings` has one
    for each argument, or a pytree of them for a pytree. It may be a dict from name patterns, ``{"*.kernel": (None, "model")}``,
    whose first match counts. A sharding for a pytree applies to all leaves. Arguments without one use the program's annotations
    or are replicated. `out_shardings` has one for each result, or one for all; XLA chooses the rest. `Partial()` or
    ``unreduced`` axes there leave partial sums; other partial results, and partial arguments, are refused.

    `in_shardings` may also name a layout, ``"data"``, ``"fully_sharded"`` or ``"tensor"`` (see `layouts.py`), or map axes to
    layouts, ``{"data": "fully_sharded", "model": "tensor"}``. `suggest_sharding` compares layouts. `weights` are then the
    numbers of the weight arguments: by default the first one, or the parameters that were its leaves.

    Parameters and results carry their shardings: `shard_arguments` splits arguments, and ``unshard(results, program)``
    reassembles results. Differentiate first and partition the gradient: the gradient of a partitioned program is that of the
    sum of all participants' results.

    Raises InvalidArgument for shardings that don't fit, for a mesh of another size than the annotations, and for partitioned
    programs. Raises MissingDependency without jaxlib, and UnsupportedError with XLA's message if XLA refuses.

    >>> program = xla_torch.parse_hlo('''HloModule m, num_partitions=2
    ... ENTRY e {
    ...   x = f32[4] parameter(0), sharding={devices=[2]<=[2]}
    ...   ROOT y = f32[4] negate(x), sharding={devices=[2]<=[2]}
    ... }''')
    >>> str(xla_torch.partition(program).program_shape.result)
    'f32[2]'
    """
    computation = load(program) if isinstance(program, (str, os.PathLike)) else program
    require_computation(computation, "partition")
    if of_unknown_sizes(computation) is not None:
        raise InvalidArgument("the program has unknown sizes", subject=f"partition of {computation.name}",
                              got=computation.program_shape, expected="one of known sizes",
                              hint="call its method `at` to get the program for given sizes")
    try:
        return partition_flat(computation, mesh, in_shardings, out_shardings, weights)
    except InvalidArgument as error:
        raise error.located(f"partition of {computation.name}") from None


def of_trees(function: TreeFunction, step: Step) -> TreeFunction:
    """What is said of trees as what is said of their leaves, in the order of the program's parameters."""
    given, wanted, weights = (step.given[name] for name in ("in_shardings", "out_shardings", "weights"))
    names = [""] * len(function.places)
    for path, place in zip(function.in_tree.paths(), function.places, strict=True):
        names[place] = function.signature.describe(path).removeprefix("argument ")
    if is_layout(given):
        weights = [place for k in ([0] if weights is None else weights) for place in function.parameters_of(k)]
    elif given is not None and not isinstance(given, Mapping):
        by_place, by_name = function.in_tree.children
        shapes = [function.program_shape.parameters[place] for place in function.places[:by_place.leaf_count]]
        stated = _leaves(by_place, given, "in_shardings", shapes) + [None] * by_name.leaf_count
        given = [None] * len(names)
        for place, words in zip(function.places, stated, strict=True):
            given[place] = words
    if wanted is not None and not isinstance(wanted, (str, Sharding)):
        leaves = _leaves(function.out_tree, wanted, "out_shardings", function.result_leaves(), is_top=False)
        wanted = leaves if function.program_shape.result.is_tuple else leaves[0]
    return function.with_computation(step(function.computation, in_shardings=given, out_shardings=wanted, weights=weights,
                                          names=names))


@entry_point(over_trees=of_trees)
def partition_flat(computation: XlaComputation, mesh: Any, in_shardings: Any, out_shardings: Any,
                   weights: Sequence[int] | None = None, names: Sequence[str] | None = None) -> XlaComputation:
    require_client("partition")
    stated = computation.partitioning
    if stated.about and not stated.is_whole:
        raise InvalidArgument("the program has been partitioned", got=str(stated), expected="a program about whole arrays")
    if computation.module.replica_count > 1:
        raise InvalidArgument("the program is for several replicas", got=computation.module.replica_count, expected=1)
    grid = mesh_of(mesh, computation.module, stated.partitions)
    used: Mapping[int, Any] = {}
    if is_layout(in_shardings):
        require_axes(in_shardings, grid)
        numbers = weights_of(computation, weights)
        in_shardings, used = shardings_of(in_shardings, grid, computation.program.canonical, numbers)
    module = read_proto(computation.to_hlo_proto()).module()  # a copy, in which shardings are written
    _annotate_parameters(module.entry.parameters, in_shardings, grid, names)
    module.entry = _used_as(module.entry, used, grid)
    propagates = _annotate_results(module, out_shardings, grid)
    module.header["num_partitions"] = grid.device_count
    summands = stated_sums(module)
    shardy = any(is_shardy(i) for c in module.computations for i in c.instructions)
    whole = module.entry.program_shape
    part = partitioned(module, grid.device_count, propagates, shardy)
    leave_summands(part, summands)
    state_whole(part, whole)
    verify(part)
    return like(computation_of(part, False), computation)


def like(made: XlaComputation, computation: XlaComputation) -> XlaComputation:
    """A program whose gradients are found in the way of the one that it was made of."""
    made.program.by_ops = computation.program.by_ops
    return made if computation.gradient_options is None else made.with_gradient_options(computation.gradient_options)


# ------------------------------------------------------------------------------------------------ arguments


def weights_of(computation: XlaComputation, given: Sequence[int] | None) -> set[int]:
    """The numbers of the parameters that are weights. Raises InvalidArgument where they are not said and not to be seen."""
    parameters = computation.entry.parameters
    if given is None:
        places = paths([p.name for p in parameters], [p.op_name for p in parameters])
        given = [k for k, path in enumerate(places) if path[:1] == places[0][:1]]
        if len(places[0]) < 2 <= len(places):
            raise InvalidArgument("a named layout needs the numbers of the weight arguments", got="weights=None",
                                  expected="weights=[0, 1, ...], the numbers of arguments")
    if not all(isinstance(k, int) and 0 <= k < len(parameters) for k in given):
        raise InvalidArgument("weights must be numbers of arguments", got=repr(given), expected=f"of 0 to {len(parameters) - 1}")
    return set(given)


def _annotate_parameters(parameters: Sequence[Instruction], given: Any, mesh: Mesh, names: Sequence[str] | None) -> None:
    if names is None:  # where each stood in the arguments of the function, with dots
        names = [dotted(path) for path in paths([p.name for p in parameters], [p.op_name for p in parameters])]
    stated = _by_pattern(given, parameters, names) if isinstance(given, Mapping) else _by_argument(given, len(names))
    for parameter, name, words in zip(parameters, names, stated, strict=True):
        _annotate(parameter, words, mesh, f"argument {name}")


def _used_as(entry: Computation, specs: Mapping[int, Any], mesh: Mesh) -> Computation:
    """The entry, in which some parameters lie otherwise where they are used."""
    parameters = entry.parameters
    instead: dict[Instruction, Instruction] = {}
    for number, spec in specs.items():
        own = parameters[number]
        common = {"sharding": sharding_of(spec, own.shape.rank, mesh)}
        instead[own] = Instruction(custom_call, own.shape, (own,), {"custom_call_target": SHARDING}, f"{own.name}.used", common)
    rest = [i for i in entry.instructions if not i.is_parameter]
    for instruction in rest:
        instruction.operands = tuple(instead.get(o, o) for o in instruction.operands)
    return Computation(entry.name, [*parameters, *instead.values(), *rest], entry.root)


def _by_pattern(given: Mapping[Any, Any], parameters: Sequence[Instruction], names: Sequence[str]) -> list[Any]:
    """What the first pattern that fits says of each. Raises InvalidArgument for a pattern that fits none."""
    fits = {pattern: [fnmatch.fnmatchcase(name, str(pattern)) or fnmatch.fnmatchcase(p.name, str(pattern))
                      for name, p in zip(names, parameters, strict=True)] for pattern in given}
    for pattern, fitting in fits.items():
        if not any(fitting):
            near = difflib.get_close_matches(str(pattern), names, 3, 0.3) or names[:3]
            raise InvalidArgument("no argument has such a name", got=repr(pattern), expected=", ".join(near) + ", ...")
    return [next((given[pattern] for pattern, fitting in fits.items() if fitting[k]), None) for k in range(len(names))]


def _by_argument(given: Any, count: int) -> list[Any]:
    if given is None:
        return [None] * count
    if not isinstance(given, (list, tuple)) or len(given) != count:
        raise InvalidArgument("in_shardings must have one entry for each argument", got=repr(given),
                              expected=f"a list of {count}")
    return list(given)


def _leaves(structure: Structure, given: Any, what: str, shapes: Sequence[Shape], is_top: bool = True) -> list[Any]:
    """What is said of each leaf of a tree, of these shapes, by a tree that may end early."""
    counts = [child.leaf_count for child in structure.children]
    parts_of = [shapes[end - count:end] for count, end in zip(counts, itertools.accumulate(counts), strict=True)]
    if not is_top and parts_of and all(parts_of):
        given = stated_for_each(given, [min(s.rank for s in part) for part in parts_of])
    if given is None or (is_stated(given) and not (is_top and isinstance(given, (list, tuple)))):
        return [given] * structure.leaf_count
    edges = structure.edges()
    parts = [given.get(edge) for edge in edges] if isinstance(given, Mapping) else given
    unknown = set(given) - set(edges) if isinstance(given, Mapping) else set()
    if not isinstance(parts, (list, tuple)) or len(parts) != len(edges) or unknown:
        raise InvalidArgument(f"{what} are no tree as the function's", got=repr(given), expected=str(structure))
    return [leaf for child, part, own in zip(structure.children, parts, parts_of, strict=True)
            for leaf in _leaves(child, part, what, own, False)]


def _annotate(instruction: Instruction, words: Any, mesh: Mesh, what: str) -> None:
    """Say how a parameter or the root lies; a tuple is said of in words for each of its arrays, or for all."""
    try:
        found = _of_shape(words, instruction.shape, mesh)
    except InvalidArgument as error:
        error.what = f"{what}: {error.what}"
        raise
    if found is not None:
        instruction.common["sharding"] = found
    elif "sharding" not in instruction.common:
        instruction.common["sharding"] = _REPLICATED.of_tuple(instruction.shape) if instruction.shape.is_tuple else _REPLICATED


def _in_words(words: Any, shape: Shape) -> Any:
    """What is said of all arrays of a shape, or a list of what is said of each."""
    if not shape.is_tuple:
        return words
    found = Sharding.parse(words) if isinstance(words, str) and words.startswith("{{") else words
    return (list(found.elements) if isinstance(found, Sharding) and found.kind == ShardingKind.TUPLE
            else stated_for_each(found, [leaf.rank for leaf in shape.leaves() if leaf.is_array]))


def _of_shape(words: Any, shape: Shape, mesh: Mesh) -> Sharding | None:
    if not shape.is_tuple:
        return sharding_of(words, shape.rank, mesh) if shape.is_array else None
    leaves = list(shape.leaves())
    words = _in_words(words, shape)
    each = [words] * len(leaves) if is_stated(words) else list(words)
    if len(each) != len(leaves):
        raise InvalidArgument("not one sharding for each array", got=repr(words), expected=f"{len(leaves)} for {shape}")
    if all(one is None for one in each):
        return None
    elements = [_of_shape(one, leaf, mesh) or _REPLICATED for one, leaf in zip(each, leaves, strict=True)]
    return Sharding(ShardingKind.TUPLE, elements=tuple(elements))


# ------------------------------------------------------------------------------------------------ results


def _annotate_results(module: Module, stated: Any, mesh: Mesh) -> list[bool]:
    """Say how results lie; returns for each whether XLA is to choose."""
    entry, root = module.entry, module.entry.root
    stated, count = _in_words(stated, root.shape), len(list(root.shape.leaves()))
    if stated is not None and root.is_parameter:  # which lies as the argument does
        root = Instruction(copy, root.shape, (root,), name="result")
        module.entry = Computation(entry.name, [*entry.instructions, root], root)
    each = stated if root.shape.is_tuple and stated is not None and not is_stated(stated) else [stated] * count
    chosen = [words is None for words in each]
    if all(chosen):
        return [True] if "sharding" not in root.common else [False]
    _annotate(root, stated, mesh, "results")
    return chosen
