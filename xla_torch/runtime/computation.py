"""XlaComputation: a program to call, print, differentiate and look into. Builders and files both end here.

It is the face of one program (`static.py`), of a family of them for many sizes (`polymorphic.py`) and of either behind trees of
arguments (`api/tree_function.py`). Each kind says in `derived` what a step (`steps.py`) makes of it.
"""

from __future__ import annotations

import abc
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, Self, TypeVar

import numpy as np
import torch
import torch.fx

from .. import precision, proto, stablehlo, visualization
from ..autodiff.options import GradientOptions
from ..core.errors import InvalidArgument
from ..core.shape import ProgramShape, Shape
from ..core.types import BF16, F16, PrimitiveType
from ..hlo.checks import Assumption, assumptions
from ..hlo.ir import Computation, Module
from ..hlo.tree import arrays, places
from ..opcodes.front import print_module
from ..partitioning.state import Partitioning
from ..pytree.parameter_paths import paths
from ..pytree.structure import dotted
from ..storage.dtypes import torch_dtype, type_from_torch
from ..transform.other_readers import for_other_readers, without_checks
from .annotated_code import annotated_code, in_torch
from .dynamo import graph_name
from .exporting import save_exported, save_onnx, zeros
from .program import Program
from .steps import Derivable, Step, entry_point

K = TypeVar("K")


class XlaComputation(Derivable):
    """Hold an XLA program that runs on torch tensors.

    Call it with one tensor for each parameter (a tuple for a tuple parameter), all on one device. It runs on that device and
    returns a tensor, or a tuple for a tuple root. If an argument requires grad, so does the result.

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

    >>> square.in_order([], {"x": 1}), square.placed(0, x) is x, square.reason_not_capturable([False], {})
    ((1,), True, '')
    >>> square.run_fitting([torch.tensor([3.0, 4.0])]), square.in_form(square.in_graph(torch.tensor([3.0, 4.0])))
    (tensor([ 9., 16.]), tensor([ 9., 16.]))
    >>> square.run_known([torch.tensor([1.0, 2.0])]), square.run_known([torch.tensor([1, 2])])
    ((tensor([1., 4.]),), None)
    >>> from xla_torch.runtime.steps import Step
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
        """Run on NumPy arrays (ml_dtypes for narrow types) and return a flat tuple of arrays."""

    @abc.abstractmethod
    def run_fitting(self, tensors: Sequence[torch.Tensor]) -> Any:
        """Run on flat tensors, each of which is what the program takes there."""

    def run_known(self, tensors: Sequence[Any]) -> Sequence[torch.Tensor] | None:
        """The flat results where tensors like these have been given before; None where that is not known."""
        return None

    @abc.abstractmethod
    def derived(self, step: Step) -> XlaComputation:
        """What a step makes of it."""

    @abc.abstractmethod
    def with_gradient_options(self, options: GradientOptions) -> XlaComputation:
        """Return the same program with other options for `backward`, torch.func and `grad`."""

    def in_graph(self, *arguments: Any, **named: Any) -> Any:
        """The call within a graph of torch's: the result's arrays, or tuples of them."""
        return self(*arguments, **named)

    def in_form(self, result: Any) -> Any:
        """What a call gives of what `in_graph` does."""
        return result

    def reason_not_capturable(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> str:
        """Return why a call or its backward pass cannot be part of a torch graph; "" if it can.

        The result is "" too if it depends on sizes. Instead of each tensor, pass whether it is differentiated. Raises
        InvalidArgument as the call does.
        """
        if self.family is not None:
            return ""
        given, shape = self._leaves(arguments, named), self.program_shape
        own = [leaf for parameter in shape.parameters for leaf in parameter.leaves() if leaf.is_array]
        return self.program.reason_not_capturable(tuple(
            flag is True and leaf.element_type.is_differentiable for flag, leaf in zip(given, own, strict=False)))

    def why_apart(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> str:
        """Deprecated: use `reason_not_capturable`."""
        warnings.warn("why_apart is deprecated: use reason_not_capturable", DeprecationWarning, stacklevel=2)
        return self.reason_not_capturable(arguments, named)

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
        """Return the program in another precision: float16, bfloat16, float32 or float64.

        Floating parameters and results then have that dtype. In float16 and bfloat16, only products take and return it. Sums,
        exponentials, norms and losses compute in the program's own precision and are rounded where a product or the result
        needs the lower one (`xla_torch/precision/policy.py` has the whole rule)::

            half = computation.to(torch.bfloat16)       # takes and returns bfloat16

        Raises InvalidArgument for another dtype, and UnsupportedError for a custom call whose type would change.
        """
        return _in_precision(self, dtype)

    def under_autocast(self, dtype: torch.dtype) -> XlaComputation:
        """Return the program as torch's autocast would run it.

        Parameters keep their dtypes, products use `dtype`, and results have the precision they are computed in. Raises
        InvalidArgument unless `dtype` is float16 or bfloat16.
        """
        return _under_autocast(self, dtype)

    # ---- looking

    @property
    def module(self) -> Module:
        """Return the IR of the program with all its computations."""
        return self.program.module

    @property
    def name(self) -> str:
        """Return the name of the module."""
        return self.module.name

    @property
    def entry(self) -> Computation:
        """Return the entry computation."""
        return self.module.entry

    @property
    def program_shape(self) -> ProgramShape:
        """Return the parameter shapes and names, and the result shape."""
        return self.module.entry.program_shape

    @property
    def gradient_options(self) -> GradientOptions | None:
        """Return the gradient options; None for the defaults."""
        return self.program.options

    @property
    def chosen(self) -> str | None:
        """Return the backend that ``compile(computation, "fastest")`` chose.

        None before the first call. Derived programs, such as the backward pass, choose their own backends.
        """
        return next((choice.backend for choice in self.program.choices), None)

    @property
    def partitioning(self) -> Partitioning:
        """Return whether an annotated program takes whole arrays or those of one partition."""
        return self.program.partitioning

    @property
    def participants(self) -> dict[str, int]:
        """Return the numbers of replicas and partitions in the program's header."""
        return self.program.participants

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Return the decisions of Python that the program was traced with and that each call checks (see `from_torch`).

        >>> doubled = xla_torch.from_torch(lambda x: x * 2 if (x > 0).all() else x, torch.ones(2))
        >>> [assumption.value for assumption in doubled.computation.assumptions]
        [True]
        """
        return assumptions(self.program.module)

    def to_hlo_text(self) -> str:
        """Return the program as HLO text that XLA reads, with all constants.

        Opcodes that older versions of XLA lack, and the stacks in gradients of loops of unknown length, are written as plain
        HLO.
        """
        return print_module(for_other_readers(self.program.portable.stated))

    def to_hlo_proto(self) -> bytes:
        """Return the program as a serialised HloModuleProto that XLA and `load` read.

        It has all constants and uses the same opcodes as `to_hlo_text`.
        """
        return b"".join(proto.writing.serialized(for_other_readers(self.program.portable.stated)))

    def to_html(self, *, profile: Any = None, trace: Any = None) -> str:
        """Return the program as an interactive HTML page that needs no network.

        The page shows the graph, collapsed by computation and op_name, with operands, users, shapes, layouts, costs, live bytes
        and a search. With a profile or a trace of `xla_torch.debug`, it shows the canonical program with times and the numbers
        of NaNs and Infs. Raises InvalidArgument if the profile or trace belongs to another program.
        """
        if profile is None and trace is None:
            return visualization.page.page(self.module, {})
        module = Module(self.name, self.program.canonical, self.participants)
        seen = visualization.rows.seen_by(module, profile, trace)
        for given, name in ((profile, "profile"), (trace, "trace")):
            if given is not None and not any(row.instruction in seen for row in given.rows):
                raise InvalidArgument(f"the {name} is of another program", subject="to_html", expected=f"one of {self.name}")
        return visualization.page.page(module, seen)

    def to_dot(self) -> str:
        """Return the program as a Graphviz graph with a cluster for each computation."""
        return visualization.dot.dot(self.module)

    def to_model_explorer(self) -> str:
        """Return the program as JSON for Google's Model Explorer.

        Each computation is a graph, calls are subgraphs, and namespaces follow op_name::

            Path("step.json").write_text(computation.to_model_explorer())
        """
        return visualization.model_explorer.model_explorer(self.module)

    def _repr_html_(self) -> str | None:
        """What notebooks show."""
        return visualization.page.summary(self.module)

    def to_stablehlo(self) -> str:
        """Return the program as StableHLO text that XLA and `from_stablehlo` read.

        It has all constants and uses the same opcodes as `to_hlo_text`. ``main`` takes and returns flat arrays in the program's
        order. Fusions are inlined, and asynchronous ops become synchronous at their start. Derivatives are dropped, and so are
        layouts other than those of arguments and results. Raises UnsupportedError, with the instruction and the reason, for ops
        that StableHLO lacks.
        """
        return stablehlo.writing.module.to_stablehlo(without_checks(self.program.portable.stated))

    def to_stablehlo_bytecode(self) -> bytes:
        """Return `to_stablehlo` as MLIR bytecode, which stores large constants in binary."""
        return stablehlo.writing.module.to_stablehlo_bytecode(without_checks(self.program.portable.stated))

    def to_pt2(self, out: str | os.PathLike[str] | IO[bytes]) -> None:
        """Write the program as a torch.export file (`.pt2`) of torch's own operators.

        `torch.export.load` reads the file without xla_torch, and torch._inductor's `aoti_compile_and_package` compiles it. It
        is called with the same pytrees as the program. Its backward pass raises an error. After ``run_decompositions`` removes
        `torch.ops.prims.clone`, gradients are torch's derivatives of the operators. They may differ from the program's
        (`custom_vjp`, ties, points without a derivative). Raises UnsupportedError for collectives, feeds, random states,
        callbacks and results of dynamic size; InvalidArgument for unknown sizes::

            computation.to_pt2("model.pt2")
            torch.export.load("model.pt2").module()(x)
        """
        arguments, named = self._examples()
        save_exported(self, arguments, named, out)

    def to_onnx(self, out: str | os.PathLike[str] | IO[bytes]) -> None:
        """Write the program as an ONNX model.

        `torch.onnx` converts the graph that `to_pt2` writes. Inputs are the program's parameters by name and in order; outputs
        are ``out0``, ``out1``, ... . Arrays beyond 2 GB go to a file beside the model. The model has no gradients. Raises
        MissingDependency without onnx and onnxscript, UnsupportedError with the names of all operators that ONNX lacks, and all
        errors of `to_pt2`; no file is left in these cases::

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
        """Return the PyTorch code that runs, one line for each call, with its HLO instruction.

        Small ops that run as one generated C function are shown as their torch calls.
        """
        return annotated_code(in_torch(self.program.canonical, self.lowered(device), torch.device(device)))

    def lowered(self, device: torch.device | str = "cpu") -> torch.fx.GraphModule:
        """Return the cached torch.fx GraphModule for a device, from flat arrays to a flat tuple."""
        return self.program.lowered(torch.device(device))

    def prepare(self, device: torch.device | str = "cpu") -> None:
        """Lower and compile for a device now, instead of in the first call."""
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


# ------------------------------------------------------------------------------------------------------ in another precision


@entry_point()
def _in_precision(computation: Any, dtype: torch.dtype) -> Any:
    program = computation.program
    element_type = _element_type(dtype, precision.policy.PRECISIONS)
    return type(computation)(program.derived(precision.programs.in_precision(program.authored, element_type)))


@entry_point()
def _under_autocast(computation: Any, dtype: torch.dtype) -> Any:
    program = computation.program
    element_type = _element_type(dtype, (F16, BF16))
    return type(computation)(program.derived(precision.programs.under_autocast(program.authored, element_type)))


def _element_type(dtype: Any, choices: Sequence[PrimitiveType]) -> PrimitiveType:
    found = type_from_torch(dtype) if isinstance(dtype, torch.dtype) else None
    if found is None or found not in choices:
        raise InvalidArgument("unknown precision", subject="to", got=dtype,
                              expected=", ".join(str(torch_dtype(c)) for c in choices))
    return found
