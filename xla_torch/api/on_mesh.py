"""`on_mesh`: a program whose participants are the processes of a torch DeviceMesh, called with DTensors::

    mesh = torch.distributed.init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
    step = xla_torch.on_mesh(loss, mesh, {"*.kernel": (None, "model"), "batch": ("data",)})
    step(parameters, batch).backward()
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from .. import distributed
from ..autodiff.options import GradientOptions
from ..core.errors import InvalidArgument, MissingDependency, UnsupportedError, XlaError
from ..core.shape import ProgramShape, Shape
from ..hlo.ir import Instruction
from ..hlo.sharding import Sharding, ShardingKind
from ..hlo.tree import arrays, from_arrays, grouped
from ..lowering import numerics
from ..partitioning.annotations import whole_shape
from ..proto.containers import read_proto
from ..runtime.computation import XlaComputation
from ..runtime.program import Program
from ..runtime.steps import Step, entry_point, require_computation
from .arguments import tensor_of
from .loading import computation_of, load
from .partition import like, of_trees, partition_flat
from .placements import Placed, pieces_of

__all__ = ["on_mesh"]


def on_mesh(program: XlaComputation | str | os.PathLike[str], mesh: Any, in_shardings: Any = None,
            out_shardings: Any = None, weights: Sequence[int] | None = None) -> XlaComputation:
    """Run a program on the processes of a torch `DeviceMesh`, with whole arrays as DTensors.

    `program`, `in_shardings`, `out_shardings` and `weights` are as in `partition`, which the first process calls for all.
    `program` may also be a result of `partition` or its file, which needs no jaxlib. All processes create the result together,
    and call it together. Arguments are DTensors on this mesh, redistributed if necessary, or whole tensors, arrays and numbers,
    equal on all processes. Results are DTensors; ``.full_tensor()`` gathers one.

    Gradients refer to whole arrays: the cotangent of a result counts once, and an argument's gradient has the argument's
    sharding. torch's optimizers, ``clip_grad_norm_`` and checkpoints work as with any DTensor. `XlaModule(computation,
    parameters, mesh=mesh, shardings=...)` makes a module.

    Raises InvalidArgument on all processes if their programs differ, if the mesh doesn't span all processes, or if DTensors
    can't express a sharding (choose other `out_shardings`). Raises UnsupportedError for programs derived from the result:
    derive before. Other errors are those of `partition`.

    >>> import pathlib, subprocess, sys
    >>> written = pathlib.Path("run.py").write_text('''
    ... import torch, xla_torch
    ... mesh = torch.distributed.init_device_mesh("cpu", (2,), mesh_dim_names=("data",))
    ... square = xla_torch.parse_hlo("ENTRY e { x = f32[4] parameter(0) ROOT y = f32[4] multiply(x, x) }")
    ... whole = xla_torch.on_mesh(square, mesh, [("data",)], ("data",))
    ... result = whole(torch.arange(4.0))
    ... everything = result.full_tensor()
    ... if mesh.get_rank() == 0:
    ...     print(result.to_local(), everything)
    ... torch.distributed.destroy_process_group()
    ... ''')
    >>> torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    >>> print(subprocess.run([*torchrun, "run.py"], capture_output=True, text=True).stdout)
    tensor([0., 1.]) tensor([0., 1., 4., 9.])
    <BLANKLINE>
    """
    computation = load(program) if isinstance(program, (str, os.PathLike)) else program
    require_computation(computation, "on_mesh")
    return _on_mesh(computation, mesh, in_shardings, out_shardings, weights)


@entry_point(over_trees=of_trees)
def _on_mesh(computation: XlaComputation, mesh: Any, in_shardings: Any, out_shardings: Any,
             weights: Sequence[int] | None = None, names: Sequence[str] | None = None) -> XlaComputation:
    if not dist.is_available():
        raise MissingDependency("on_mesh needs a torch with torch.distributed", got=f"torch {torch.__version__}")
    session = distributed.standing()
    _check_mesh(mesh, session)
    stated = (in_shardings, out_shardings)
    _check_same(repr((stated, weights)).encode() + computation.to_hlo_proto(), computation.name)
    if not computation.partitioning.about or computation.partitioning.is_whole:
        made = _by_first(lambda: partition_flat(computation, mesh, *stated, weights, names).to_hlo_proto())
        computation = like(computation_of(read_proto(made).module(), False), computation)
    elif stated != (None, None):
        raise InvalidArgument("the program has been partitioned: its shardings are fixed", subject="on_mesh",
                              got="shardings", expected="None")
    return MeshComputation(computation, mesh, session)


def _check_mesh(mesh: Any, session: Any) -> None:
    if not isinstance(mesh, dist.device_mesh.DeviceMesh):
        raise InvalidArgument("not a mesh of processes", subject="on_mesh", got=type(mesh).__name__,
                              expected="a DeviceMesh, as torch.distributed.init_device_mesh gives")
    ranks = mesh.mesh.flatten().tolist()
    if sorted(ranks) != list(range(session.num_partitions)):
        raise InvalidArgument("the mesh is not all processes", subject="on_mesh", got=f"ranks {ranks}",
                              expected=f"each of 0 to {session.num_partitions - 1} once",
                              hint="start as many processes as the mesh has participants")


def _check_same(stated: bytes, name: str) -> None:
    """Raise InvalidArgument, on all processes, where they do not give the same."""
    own = hashlib.sha256(stated).hexdigest()
    all_of: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(all_of, own)
    others = [rank for rank, digest in enumerate(all_of) if digest != all_of[0]]
    if others:
        raise InvalidArgument("processes give different programs or shardings", subject=f"on_mesh of {name}",
                              got=f"ranks {others} differ from rank 0", expected="the same on all",
                              hint="trace with the same shapes, constants and random seeds on all processes")


def _by_first(make: Callable[[], bytes]) -> bytes:
    """What the first process makes, on all; its error is raised on all."""
    made: list[Any] = [None]
    if dist.get_rank() == 0:
        try:
            made = [make()]
        except XlaError as error:
            made = [error]
    dist.broadcast_object_list(made)
    if isinstance(made[0], XlaError):
        raise made[0]
    return made[0]


class MeshComputation(XlaComputation):
    """One participant's program on the processes of a mesh: see `on_mesh`. Its `program` is that of this participant, and its
    `program_shape` of whole arrays."""

    def __init__(self, part: XlaComputation, mesh: Any, session: Any):
        self.part, self.mesh, self._session = part, mesh, session
        try:
            self._shape = _whole_shape(part)
            self._arguments = [
                Placed(mesh, *of) for parameter, whole in zip(part.entry.parameters, self._shape.parameters, strict=True)
                for of in _leaves(parameter, whole)]
            self._results = [Placed(mesh, *of) for of in _leaves(part.entry.root, self._shape.result)]
        except InvalidArgument as error:
            raise error.located(f"on_mesh of {part.name}") from None

    @property
    def program(self) -> Program:
        return self.part.program

    @property
    def program_shape(self) -> ProgramShape:
        return self._shape

    def __repr__(self) -> str:
        return f"XlaComputation({self.name}: {self.program_shape}; on {self.mesh})"

    def derived(self, step: Step) -> XlaComputation:
        raise UnsupportedError("a program on a mesh cannot be transformed", subject=step.function.__name__.strip("_"),
                               got=self.name, hint="derive from the program of whole arrays, and pass the result to on_mesh")

    def with_gradient_options(self, options: GradientOptions) -> XlaComputation:
        return MeshComputation(self.part.with_gradient_options(options), self.mesh, self._session)

    # ---- running

    def __call__(self, *arguments: Any, device: torch.device | str | None = None, **named: Any) -> Any:
        arguments = self.in_order(arguments, named)
        if len(arguments) != len(self._shape.parameters):
            raise InvalidArgument("wrong number of arguments", subject=self.name, got=len(arguments),
                                  expected=f"{len(self._shape.parameters)} for {self._shape}")
        leaves = [leaf for a, p in zip(arguments, self._shape.parameters, strict=True) for leaf in arrays(a, p)]
        where = torch.device(self.mesh.device_type)
        return self.run_fitting([tensor_of(value, shape, functools.partial(self._called, number), where, narrow=False)
                                 for number, (value, shape) in enumerate(leaves)])

    def _called(self, number: int) -> str:
        names = self._shape.parameter_names
        return f"argument {number}" + (f" ({names[number]})" if len(names) == len(self._arguments) else "") + f" of {self.name}"

    def run_fitting(self, tensors: Sequence[torch.Tensor]) -> Any:
        pieces = pieces_of(self._arguments, tensors)
        with self._session.as_participant():
            results = self.part.run_fitting(pieces)
        flat = [leaf for leaf, _ in arrays(results, self.part.program_shape.result)]
        return from_arrays([placed.whole(t) for placed, t in zip(self._results, flat, strict=True)], self._shape.result)

    def run_numpy(self, *arguments: Any, device: torch.device | str = "cpu") -> tuple[np.ndarray, ...]:
        """Run on whole NumPy arrays, the same on all processes; the whole results."""
        with torch.no_grad():
            results = arrays(self(*arguments), self._shape.result)
            return tuple(numerics.numpy_from_storage(numerics.to_storage(r.full_tensor(), s.element_type), s.element_type)
                         for r, s in results)

    def placed(self, number: int, tensor: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return self._arguments[number].cut(tensor).clone()


def placing(mesh: Any, shardings: Any, weights: Sequence[int]) -> Callable[[XlaComputation], XlaComputation]:
    """`on_mesh` for a mesh and shardings; without a mesh nothing. Raises InvalidArgument for shardings alone."""
    if mesh is None and shardings is not None:
        raise InvalidArgument("shardings without a mesh", subject="XlaModule", got=repr(shardings), expected="a mesh, too")
    return _anywhere if mesh is None else functools.partial(on_mesh, mesh=mesh, in_shardings=shardings,
                                                                weights=weights)


def _anywhere(computation: XlaComputation) -> XlaComputation:
    return computation


def _leaves(instruction: Instruction, whole: Shape) -> list[tuple[Sharding, Shape, Shape]]:
    """How each array of a parameter or root lies, its shape here and that of the whole."""
    sharding = instruction.common.get("sharding", Sharding(ShardingKind.REPLICATED))
    all_of = zip(sharding.leaves(instruction.shape), instruction.shape.leaves(), whole.leaves(), strict=True)
    return [(own_sharding, own, leaf) for own_sharding, own, leaf in all_of if own.is_array]


def _whole_shape(part: XlaComputation) -> ProgramShape:
    """The shapes of whole arrays, which the program says; of one that does not, multiples of what is here."""
    stated = whole_shape(part.module)
    if stated is not None:
        return stated
    own, count = part.entry.program_shape, part.partitioning.partitions

    def whole(instruction: Instruction) -> Shape:
        shape = instruction.shape
        grown = iter([own.with_dimensions(np.multiply(own.dimensions, sharding.grid(own.rank, count).counts).tolist())
                      for sharding, own, _ in _leaves(instruction, shape)])
        return grouped((next(grown) if leaf.is_array else leaf for leaf in shape.leaves()), shape, Shape.tuple)

    return ProgramShape(tuple(map(whole, part.entry.parameters)), whole(part.entry.root), own.parameter_names)
