"""XlaComputation: a program to call, print, differentiate and look into. Builders and files both end here.

It is the face of one program (`static.py`), of a family of them for many sizes (`polymorphic.py`) and of either behind trees of
arguments (`api/tree_function.py`). What a `door` makes of a computation is a `Step`, and each kind of computation says in
`derived` what a step makes of it.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, Self, TypeVar

import numpy as np
import torch
import torch.fx

from ..autodiff.options import GradientOptions
from ..core.errors import InvalidArgument
from ..core.shape import ProgramShape, Shape
from ..core.types import BF16, F16, PrimitiveType
from ..hlo.ir import Computation, Module
from ..hlo.tree import arrays, places
from ..opcodes.front import print_module
from ..partitioning.state import Partitioning
from ..precision import programs as precision
from ..precision.policy import PRECISIONS
from ..proto.writing import serialized
from ..pytree.parameter_paths import paths
from ..pytree.structure import dotted
from ..stablehlo.convert import Fact
from ..stablehlo.writing.module import to_stablehlo, to_stablehlo_bytecode
from ..storage.dtypes import torch_dtype, type_from_torch
from ..transform.other_readers import for_other_readers, without_checks
from ..visualization.dot import dot
from ..visualization.model_explorer import model_explorer
from ..visualization.page import glance, page
from ..visualization.rows import seen_by
from .annotated_code import annotated_code, in_torch
from .dynamo import graph_name
from .exporting import save_exported, save_onnx, zeros
from .program import Program

K = TypeVar("K")


class XlaComputation(abc.ABC):
    """An XLA program.

    Call it with torch tensors, one for each parameter (a tuple for a tuple parameter), all on one device: it runs there. The
    result is a tensor, or a tuple for a tuple root. If an argument requires grad, so does the result.

    >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> square(x).sum().backward()
    >>> x.grad
    tensor([2., 4.])

    What it is, and what it can be written as:

    >>> square.name, square.program_shape, square.entry.root.opcode, square.module.name, len(square.participants)
    ('module_e', ProgramShape(parameters=(f32[2]{0},), result=f32[2]{0}, parameter_names=('x',)), 'multiply', 'module_e', 0)
    >>> text, proto, code = square.to_hlo_text(), square.to_hlo_proto(), square.python_code()
    >>> html, dot, graph = square.to_html(), square.to_dot(), square.to_model_explorer()
    >>> stablehlo, bytecode = square.to_stablehlo(), square.to_stablehlo_bytecode()
    >>> "multiply(" in text, "stablehlo.multiply" in stablehlo, "def forward" in code, "<html" in html, dot.startswith("digraph")
    (True, True, True, True, True)
    >>> square.to_pt2("square.pt2")
    >>> square.run_numpy(np.array([3.0, 4.0], np.float32)), square.to(torch.bfloat16)(torch.tensor([3.0, 4.0]).bfloat16())
    ((array([ 9., 16.], dtype=float32),), tensor([ 9., 16.], dtype=torch.bfloat16))
    >>> square.under_autocast(torch.bfloat16)(torch.tensor([3.0, 4.0]))          # products of matrices alone are narrower
    tensor([ 9., 16.])

    How it runs, and how gradients are found:

    >>> square.prepare()                                          # what the first call would have to make
    >>> square.lowered("cpu")(torch.tensor([3.0, 4.0]))
    (tensor([ 9., 16.]),)
    >>> options = xla_torch.GradientOptions(loop_checkpoint=None)
    >>> square.gradient_options, square.with_gradient_options(options).gradient_options == options
    (None, True)
    >>> square.chosen, square.family, square.partitioning.partitions    # of compile(..., "fastest"), unknown sizes, and partition
    (None, None, 1)

    What modules, meshes and torch.compile ask of it:

    >>> square.in_order([], {"x": 1}), square.placed(0, x) is x, square.why_apart([False], {})
    ((1,), True, '')
    >>> square.run_fitting([torch.tensor([3.0, 4.0])]), square.in_form(square.in_graph(torch.tensor([3.0, 4.0])))
    (tensor([ 9., 16.]), tensor([ 9., 16.]))
    >>> from xla_torch.runtime.computation import Step
    >>> square.derived(Step(xla_torch.grad, {})).program is square.program
    False
    """

    graph_name: str
    """What graphs of torch's call it by."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        self = super().__new__(cls)
        self.graph_name = graph_name(self)
        return self

    @property
    @abc.abstractmethod
    def program(self) -> Program:
        """The one program that it is. Raises InvalidArgument where it is many."""

    @abc.abstractmethod
    def __call__(self, *arguments: Any, device: torch.device | str | None = None, **named: Any) -> Any:
        """Run on torch tensors, by place or by the names of parameters. Raises InvalidArgument for a wrong number, shape or dtype
        of arguments and DeviceError for arguments on several devices. `device` is for programs without arguments."""

    def in_order(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Arguments by place and by name, in order. Raises InvalidArgument for a name that no parameter has, or that is given
        twice."""
        names = self.program_shape.parameter_names
        for name in named:
            if name not in names:
                raise InvalidArgument("no parameter has this name", subject=self.name, got=name, expected=", ".join(names))
        return in_order(names, named, arguments)

    @abc.abstractmethod
    def run_numpy(self, *arguments: Any, device: torch.device | str = "cpu") -> tuple[np.ndarray, ...]:
        """Run on NumPy arrays (ml_dtypes for narrow types); the flat results as arrays, always a tuple."""

    @abc.abstractmethod
    def run_fitting(self, tensors: Sequence[torch.Tensor]) -> Any:
        """Run on flat tensors, each of which is what the program takes there."""

    @abc.abstractmethod
    def derived(self, step: Step) -> XlaComputation:
        """What a step makes of it."""

    @abc.abstractmethod
    def with_gradient_options(self, options: GradientOptions) -> XlaComputation:
        """The same program, whose gradients are found in another way, through every door: `backward`, torch.func, `grad`."""

    def in_graph(self, *arguments: Any, **named: Any) -> Any:
        """The call within a graph of torch's: the result's arrays, or tuples of them."""
        return self(*arguments, **named)

    def in_form(self, result: Any) -> Any:
        """What a call gives of what `in_graph` does."""
        return result

    def why_apart(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> str:
        """Why a call, or its way back, cannot be part of a graph of torch's; empty where it can, or where that depends on sizes.
        In the place of each tensor stands whether it is differentiated. Raises InvalidArgument as the call does."""
        if self.family is not None:
            return ""
        given, shape = self._leaves(arguments, named), self.program_shape
        own = [leaf for parameter in shape.parameters for leaf in parameter.leaves() if leaf.is_array]
        return self.program.why_apart(tuple(
            flag is True and leaf.element_type.is_differentiable for flag, leaf in zip(given, own, strict=False)))

    def _leaves(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """What stands in a call for each array that the program takes."""
        parameters = self.program_shape.parameters
        return [leaf for a, p in zip(arguments, parameters, strict=False) for leaf, _ in arrays(a, p)]

    def placed(self, number: int, tensor: torch.Tensor) -> torch.Tensor:
        """A whole tensor for the array number `number` of the arguments, as it lies there: itself, or of a program on a mesh a
        DTensor, in its own memory."""
        return tensor

    @property
    def family(self) -> XlaComputation | None:
        """The family of programs that it is, or that it stands before, where sizes are unknown; otherwise None."""
        return None

    def __copy__(self) -> XlaComputation:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> XlaComputation:
        return self  # a program does not change

    def to(self, dtype: torch.dtype) -> XlaComputation:
        """The program in another precision: float16, bfloat16, float32 or float64, which floating parameters and results then
        have. In the lower two only products take and give it; sums, exponentials, norms and losses compute in the program's own
        and are rounded where a product or the result wants that (`xla_torch/precision/policy.py` has the whole rule)::

            half = computation.to(torch.bfloat16)       # takes and gives bfloat16

        Raises InvalidArgument for another dtype, and UnsupportedError for a custom call that would have to be of another type."""
        return _in_precision(self, dtype)

    def under_autocast(self, dtype: torch.dtype) -> XlaComputation:
        """The program as torch's autocast runs modules: parameters are as they were, products are of `dtype`, and results of
        the precision that they come in. Raises InvalidArgument for what is not float16 or bfloat16."""
        return _under_autocast(self, dtype)

    # ---- looking

    @property
    def module(self) -> Module:
        """The program's IR, with all its computations."""
        return self.program.module

    @property
    def name(self) -> str:
        """The module's name."""
        return self.module.name

    @property
    def entry(self) -> Computation:
        """The computation that runs."""
        return self.module.entry

    @property
    def program_shape(self) -> ProgramShape:
        """Parameter shapes and names, and the result shape."""
        return self.module.entry.program_shape

    @property
    def gradient_options(self) -> GradientOptions | None:
        """How gradients are found; None where that is as by default."""
        return self.program.options

    @property
    def chosen(self) -> str | None:
        """Which backend ``compile(computation, "fastest")`` has kept, after the first call; otherwise None. What calls derive,
        such as the way back, has choices of its own."""
        return next((choice.backend for choice in self.program.choices.values()), None)

    @property
    def partitioning(self) -> Partitioning:
        """Whether an annotated program for several partitions is about whole arrays, and runs with its global meaning, or
        has been partitioned, and is about one partition's."""
        return self.program.partitioning

    @property
    def participants(self) -> dict[str, int]:
        """How many the program is for, where its header says so, and as a program derived from it should say."""
        return self.program.participants

    def to_hlo_text(self) -> str:
        """The program as HLO text, with all constants. XLA reads it. Opcodes that older XLAs do not know, and stacks in gradients
        of loops of unknown length, are in the words of plain HLO there."""
        return print_module(for_other_readers(self.program.elsewhere.stated))

    def to_hlo_proto(self) -> bytes:
        """The program as a serialised HloModuleProto, with all constants, in the words of `to_hlo_text`. XLA reads it, and so
        does `load`."""
        return b"".join(serialized(for_other_readers(self.program.elsewhere.stated)))

    def to_html(self, *, profile: Any = None, trace: Any = None) -> str:
        """The program as one page to look through: its graph, collapsed by computation and op_name, that opens by clicks;
        operands and users, shapes, layouts, costs, live bytes, search. It needs no network. With a profile or a trace of
        `xla_torch.debug` it is about the canonical form, which these have seen: with times, and with how many NaNs and Infs there
        were. Raises InvalidArgument where they are of another program."""
        if profile is None and trace is None:
            return page(self.module, {})
        module = Module(self.name, self.program.canonical, self.participants)
        seen = seen_by(module, profile, trace)
        for given, name in ((profile, "profile"), (trace, "trace")):
            if given is not None and not any(row.instruction in seen for row in given.rows):
                raise InvalidArgument(f"the {name} is of another program", subject="to_html", expected=f"one of {self.name}")
        return page(module, seen)

    def to_dot(self) -> str:
        """The program as a graph for Graphviz, a cluster for each computation."""
        return dot(self.module)

    def to_model_explorer(self) -> str:
        """The program as JSON for Google's Model Explorer, which opens it as a file: a graph for each computation, with its calls
        as subgraphs, in namespaces by op_name::

            Path("step.json").write_text(computation.to_model_explorer())
        """
        return model_explorer(self.module)

    def _repr_html_(self) -> str | None:
        """What notebooks show."""
        return glance(self.module)

    def to_stablehlo(self) -> str:
        """The program as StableHLO text, with all constants, in the words of `to_hlo_text`. Arguments and results of its ``main``
        are the arrays in the program's own, tuples taken apart; fusions are opened, and what is begun and awaited stands where it
        begins. `from_stablehlo` reads it, and so does XLA. Raises UnsupportedError, with the instruction and the reason, for
        what StableHLO cannot say. Derivatives are left out, and layouts but those of arguments and results."""
        return to_stablehlo(without_checks(self.program.elsewhere.stated))

    def to_stablehlo_bytecode(self) -> bytes:
        """What `to_stablehlo` writes, as MLIR bytecode: large constants take their own size."""
        return to_stablehlo_bytecode(without_checks(self.program.elsewhere.stated))

    def to_pt2(self, out: str | os.PathLike[str] | IO[bytes]) -> None:
        """Write the program as `torch.export.save` does: a graph of torch's own operators, which `torch.export.load` reads where
        this package is not installed, and torch._inductor's `aoti_compile_and_package` compiles. It is called with the trees that
        the program is called with. What gradients go back through it raise; after ``run_decompositions`` that takes out
        `torch.ops.prims.clone`, they are torch's derivatives of these operators, which may be others than the program's
        (`custom_vjp`, ties, points without a derivative). Raises UnsupportedError for what torch has no graph of: exchanges,
        feeds, random states, callbacks, results of dynamic size; InvalidArgument for unknown sizes::

            computation.to_pt2("model.pt2")
            torch.export.load("model.pt2").module()(x)
        """
        arguments, named = self._examples()
        save_exported(self, arguments, named, out)

    def to_onnx(self, out: str | os.PathLike[str] | IO[bytes]) -> None:
        """Write the program as an ONNX model, which `torch.onnx` makes of the graph that `to_pt2` writes. Its inputs are the
        program's parameters in order, by their names, its outputs ``out0``, ``out1``, ...; arrays beyond 2 GB stand in a file
        beside it. It has no gradients. Raises MissingDependency without onnx and onnxscript, UnsupportedError, with the names of
        all operators concerned, for what ONNX cannot say, and all that `to_pt2` raises; no file is left then::

            onnxruntime.InferenceSession("model.onnx").run(None, {"x": x})

        >>> square = xla_torch.parse_hlo("ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] multiply(x, x) }")
        >>> square.to_onnx("model.onnx")
        """
        module = without_checks(self.module)
        program = self.program if module is self.module else self.program.derived(module.entry)
        named = dict(_named_arrays(program))
        results = [leaf for leaf in program.program_shape.result.leaves() if leaf.is_array]
        save_onnx(lambda *arrays: program.run(arrays, torch.device("cpu")), list(map(zeros, named.values())), list(named),
                  results, self.name, out)

    def _examples(self) -> tuple[Sequence[Any], dict[str, Any]]:
        """Arguments as a call takes them."""
        return [zeros(p) for p in self.program.program_shape.parameters], {}

    def python_code(self, device: torch.device | str = "cpu") -> str:
        """The PyTorch that runs: one line for each call, with the HLO instruction it comes from. Small ops that run as one native
        call stand as what they are in torch."""
        return annotated_code(in_torch(self.program.canonical, self.lowered(device), torch.device(device)))

    def lowered(self, device: torch.device | str = "cpu") -> torch.fx.GraphModule:
        """The program as a torch.fx GraphModule for a device: flat array inputs to a flat tuple of arrays. Cached."""
        return self.program.lowered(torch.device(device))

    def prepare(self, device: torch.device | str = "cpu") -> None:
        """Make what a call runs on a device, which the first one would have to."""
        self.program.runner(torch.device(device))


def _named_arrays(program: Program) -> Iterator[tuple[str, Shape]]:
    """The arrays that a program's parameters are, with names."""
    shape = program.program_shape
    names = shape.parameter_names or [""] * len(shape.parameters)
    found = paths(names, [p.op_name for p in program.module.entry.parameters])
    for path, parameter in zip(found, shape.parameters, strict=True):
        yield from ((dotted((*path, *place)), leaf) for place, leaf in places(parameter) if leaf.is_array)


def in_order(places: Iterable[K], given: Mapping[K, Any], arguments: Iterable[Any]) -> tuple[Any, ...]:
    """What is given for some places, and in the others the arguments, one after the other; those that are left at the end."""
    rest, missing = iter(arguments), object()
    found = [given[place] if place in given else next(rest, missing) for place in places]
    return (*(value for value in found if value is not missing), *rest)


def require_computation(value: Any, subject: str) -> None:
    """Raise InvalidArgument for what is no program."""
    if not isinstance(value, XlaComputation):
        hint = ""
        if callable(value):
            hint = "trace a JAX function with from_jax(function, *arguments); torch.func differentiates a torch function"
        raise InvalidArgument("not a computation", subject=subject, got=type(value).__name__,
                              expected="an XlaComputation (of load, from_jax or XlaBuilder.build())", hint=hint)


# ------------------------------------------------------------------------------------------------------ what is made of it

OfArguments = Callable[["Step", Sequence[Fact], int], Sequence[Fact]]
"""From what is known of the arguments of a derived program, and how many the one that it was derived from takes, to what is known
of that one's."""

OverTrees = Callable[[Any, "Step"], XlaComputation]
"""From a function over trees and a step to the function over trees that it makes."""


def same_arguments(step: Step, facts: Sequence[Fact], count: int) -> Sequence[Fact]:
    """The derived program takes the same arguments, and perhaps more behind them."""
    return facts[:count]


def same_trees(function: Any, step: Step) -> XlaComputation:
    """The derived function takes and gives the same trees."""
    return function.with_computation(step(function.computation))


@dataclasses.dataclass(frozen=True)
class Step:
    """What is made of a computation: ``function(computation, **given)``, where `function` is a door."""

    function: Callable[..., XlaComputation]
    given: Mapping[str, Any]
    of_arguments: OfArguments = same_arguments
    over_trees: OverTrees = same_trees

    def __call__(self, computation: XlaComputation, **otherwise: Any) -> XlaComputation:
        """The same of any computation, with other arguments."""
        return self.function(computation, **{**self.given, **otherwise})

    def of_one(self, computation: XlaComputation) -> XlaComputation:
        """What it makes of one flat program."""
        return inspect.unwrap(self.function)(computation, **self.given)


F = TypeVar("F", bound=Callable[..., Any])


def door(of_arguments: OfArguments = same_arguments, over_trees: OverTrees = same_trees) -> Callable[[F], F]:
    """Decorate a function that makes one flat program of another: it then takes every computation, of a program of unknown sizes
    makes one of such, and of a function over trees one of such, whose trees `over_trees` says. Raises InvalidArgument for what is
    no computation."""

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        subject = next(iter(signature.parameters))

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            given = dict(bound.arguments)
            computation = given.pop(subject)
            require_computation(computation, function.__name__)
            return computation.derived(Step(call, given, of_arguments, over_trees))

        return call  # pyright: ignore[reportReturnType]

    return decorate


# ------------------------------------------------------------------------------------------------------ in another precision


@door()
def _in_precision(computation: Any, dtype: torch.dtype) -> Any:
    program = computation.program
    return type(computation)(program.derived(precision.in_precision(program.authored, _element_type(dtype, PRECISIONS))))


@door()
def _under_autocast(computation: Any, dtype: torch.dtype) -> Any:
    program = computation.program
    return type(computation)(program.derived(precision.under_autocast(program.authored, _element_type(dtype, (F16, BF16)))))


def _element_type(dtype: Any, choices: Sequence[PrimitiveType]) -> PrimitiveType:
    found = type_from_torch(dtype) if isinstance(dtype, torch.dtype) else None
    if found is None or found not in choices:
        raise InvalidArgument("no precision of programs", subject="to", got=dtype,
                              expected=", ".join(str(torch_dtype(c)) for c in choices))
    return found
