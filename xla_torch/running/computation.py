"""XlaComputation: a program to call, print, differentiate and look into. Builders and files both end here.

It is the face of a `Program`, which knows flat and checked tensors only: here arguments are checked, trees of them taken apart,
and results put together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.fx

from ..autodiff.options import GradientOptions
from ..core.errors import DeviceError, InvalidArgument
from ..core.shape import ProgramShape, Shape
from ..core.types import PrimitiveType, type_from_numpy
from ..hlo.derivatives import Lost, Stored
from ..hlo.ir import Computation, Module
from ..hlo.numbers import constant_of
from ..hlo.tree import arrays, from_arrays
from ..lowering import numerics
from ..lowering.emit import comment
from ..lowering.programs import check_devices
from ..opcodes.front import parse_module, print_module, verify
from ..partitioning.state import Partitioning
from ..pictures.dot import dot
from ..pictures.page import glance, page, seen_by
from ..proto.writing import serialized
from ..stablehlo.writing.module import to_stablehlo, to_stablehlo_bytecode
from ..storage.dtypes import in_memory, is_in_memory, torch_dtype, type_from_torch
from ..storage.torch_private import is_wrapped, unwrapped
from ..transform.other_readers import for_other_readers
from . import dynamo
from .annotated_code import annotated_code
from .autograd_bridge import call_with_autograd, is_differentiated
from .members import Member
from .program import EAGER, Backend, Program, Run


class XlaComputation:
    """An XLA program.

    Call it with torch tensors, one for each parameter (a tuple for a tuple parameter), all on one device: it runs there. The
    result is a tensor, or a tuple for a tuple root. If an argument requires grad, so does the result.
    """

    def __init__(self, module: Module | Program):
        self.program = module if isinstance(module, Program) else Program(module)
        self._runs: Program | Member = self.program
        self._check_for(self.entry.program_shape)

    def _check_for(self, shape: ProgramShape) -> None:
        """Arguments must be of this shape."""
        self._inputs = [leaf for p in shape.parameters for leaf in p.leaves() if leaf.is_array]
        self._flat = all(p.is_array for p in shape.parameters)
        self._result = shape.result
        self._is_flat_result = shape.result.is_tuple and all(s.is_array for s in shape.result.tuple_shapes)
        self._accepts = [(s.dimensions, torch_dtype(s.element_type), s) for s in self._inputs]
        self._wider = any(_comes_wider(s.element_type) for s in self._inputs)

    # ---- looking

    @property
    def module(self) -> Module:
        return self.program.module

    @property
    def name(self) -> str:
        return self.module.name

    @property
    def entry(self) -> Computation:
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
        """The program as one page to look through: computations, operands and users, shapes, layouts, costs, search. It needs no
        network. With a profile or a trace of `xla_torch.debug` it is about the canonical form, which these have seen: with times,
        and with how many NaNs and Infs there were. Raises InvalidArgument where they are of another program."""
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

    def _repr_html_(self) -> str | None:
        """What notebooks show."""
        return glance(self.module)

    def to_stablehlo(self) -> str:
        """The program as StableHLO text, with all constants, in the words of `to_hlo_text`. Arguments and results of its ``main``
        are the arrays in the program's own, tuples taken apart; fusions are opened, and what is begun and awaited stands where it
        begins. `from_stablehlo` reads it, and so does XLA. Raises UnsupportedError, with the instruction and the reason, for
        what StableHLO cannot say. Derivatives are left out, and layouts but those of arguments and results."""
        return to_stablehlo(self.program.elsewhere.stated)

    def to_stablehlo_bytecode(self) -> bytes:
        """What `to_stablehlo` writes, as MLIR bytecode: large constants take their own size."""
        return to_stablehlo_bytecode(self.program.elsewhere.stated)

    def python_code(self, device: torch.device | str = "cpu") -> str:
        """The PyTorch that runs: one line for each call, with the HLO instruction it comes from."""
        return annotated_code(self.lowered(device))

    def lowered(self, device: torch.device | str = "cpu") -> torch.fx.GraphModule:
        """The program as a torch.fx GraphModule for a device: flat array inputs to a flat tuple of arrays. Cached."""
        return self.program.lowered(torch.device(device))

    def __repr__(self) -> str:
        stated = f"; {self.partitioning}" if self.partitioning.about else ""
        backend = getattr(self.program.backend, "__name__", self.program.backend)
        compiled = "" if backend == EAGER else f"; compiled by {backend}"
        return f"XlaComputation({comment(self.name)}: {self.program_shape}{stated}{compiled})"

    # ---- the same program in another way

    def with_gradient_options(self, options: GradientOptions) -> XlaComputation:
        """The same program, whose gradients are found in another way, through every door: `backward`, torch.func, `grad`."""
        return XlaComputation(self.program.again(options, self.program.backend))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as its text, with the derivatives that it brings: what else was derived from the program is derived again."""
        by_calls = self.program.by_calls
        calls = None if by_calls is None else Stored.of_computation(by_calls)
        return _unpickled, (Stored.of(self.module), self.gradient_options, self.program.backend, calls, self.program.by_ops,
                             self.program.lost_before)

    def __copy__(self) -> XlaComputation:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> XlaComputation:
        return self  # a program does not change

    # ---- running

    def __call__(self, *arguments: Any, device: torch.device | str | None = None) -> Any:
        """Run on torch tensors. `device` is for programs without arguments; raises InvalidArgument for a wrong number,
        shape or dtype of arguments and DeviceError for arguments on several devices."""
        if torch.compiler.is_compiling():
            return dynamo.one_call(self, *arguments, device=device)
        tensors = list(arguments) if self._flat else self._flatten(arguments)
        self._check(tensors)
        return self._call(tensors, device)

    def _call(self, tensors: Sequence[torch.Tensor], device: torch.device | str | None = None) -> Any:
        """Run on flat tensors, each of which is what the program takes there."""
        self._check_together(tensors)
        if is_differentiated(tensors):
            return self._unflatten(call_with_autograd(self._runs, tensors))
        where = tensors[0].device if tensors else torch.device(device or "cpu")
        if device is not None and torch.device(device) != where:
            raise DeviceError("arguments are not on the requested device", got=where, expected=torch.device(device),
                              hint="a program runs where its arguments are")
        return self._unflatten(self._runs.run(tensors, where))

    def run_numpy(self, *arguments: Any, device: torch.device | str = "cpu") -> tuple[np.ndarray, ...]:
        """Run on NumPy arrays (ml_dtypes for narrow types); the flat results as arrays, always a tuple."""
        leaves = [leaf for a, p in zip(arguments, self.program_shape.parameters, strict=False) for leaf, _ in arrays(a, p)]
        if len(leaves) != len(self._inputs):
            raise self._wrong_count(len(leaves))
        tensors = [tensor_from_numpy(a, s, number).to(device)
                   for number, (a, s) in enumerate(zip(leaves, self._inputs, strict=True))]
        results = self._runs.run(tensors, torch.device(device))
        shapes = [leaf for leaf in self._result.leaves() if leaf.is_array]
        return tuple(numerics.numpy_from_storage(numerics.to_storage(r, s.element_type), s.element_type)
                     for r, s in zip(results, shapes, strict=True))

    def bare_run(self, device: torch.device) -> Run | None:
        """What a call comes to where nothing is differentiated: flat tensors, whose number, shapes and types are as they must
        be, to a tuple with the result. None where a call does more: it looks at values, or its result is no array."""
        if self._wider or not self._result.is_array or not isinstance(self._runs, Program):
            return None
        return self._runs.runner(device)

    # ---- at the door

    def _unflatten(self, results: Sequence[torch.Tensor]) -> Any:
        """Flat results in the structure of the root."""
        return tuple(results) if self._is_flat_result else from_arrays(results, self._result)

    def _flatten(self, arguments: Sequence[Any]) -> list[torch.Tensor]:
        parameters = self.program_shape.parameters
        if len(arguments) != len(parameters):
            raise self._wrong_count(len(arguments))
        return [leaf for a, p in zip(arguments, parameters, strict=True) for leaf, _ in arrays(a, p)]

    def _check(self, tensors: list[Any]) -> None:
        if len(tensors) != len(self._accepts):
            raise self._wrong_count(len(tensors))
        for number, (tensor, (dims, dtype, shape)) in enumerate(zip(tensors, self._accepts, strict=True)):
            if not isinstance(tensor, torch.Tensor):
                tensors[number] = tensor = self._tensor(tensor, number, shape, tensors)
            elif not is_in_memory(tensor):
                tensors[number] = tensor = in_memory(tensor, lambda number=number: f"argument {number}", self.name)
            if tensor.dtype is not dtype or (tensor.shape != dims and not fits(tensor.shape, shape)):
                raise self._wrong_argument(tensor, number, shape)

    def _check_together(self, tensors: Sequence[torch.Tensor]) -> None:
        if self._wider:
            for number, (tensor, shape) in enumerate(zip(tensors, self._inputs, strict=True)):
                require_in_range(tensor, shape, lambda number=number: f"argument {number} of {self.name}")
        if len({t.device for t in tensors}) > 1:
            check_devices(tensors)

    def _tensor(self, value: Any, number: int, shape: Shape, tensors: list[Any]) -> torch.Tensor:
        if shape.dimensions or not isinstance(value, (bool, int, float, complex)):
            raise InvalidArgument(f"argument {number} is not a tensor", subject=self.name, got=type(value).__name__,
                                  expected=f"a torch.Tensor of {shape}", hint="run_numpy takes NumPy arrays")
        device = next((t.device for t in tensors if isinstance(t, torch.Tensor)), None)
        try:
            array = constant_of(value, shape.element_type)
        except InvalidArgument as error:
            error.what = f"argument {number}: {error.what}"
            raise error.located(self.name) from None
        return tensor_from_numpy(array, shape, number).to(device)

    def _wrong_count(self, count: int) -> InvalidArgument:
        return InvalidArgument("wrong number of arguments", subject=self.name, got=count,
                               expected=f"{len(self._inputs)} for {self.program_shape}")

    def _wrong_argument(self, tensor: torch.Tensor, number: int, shape: Shape) -> InvalidArgument:
        have = type_from_torch(tensor.dtype)
        names = self.program_shape.parameter_names
        label = f" ({names[number]})" if self._flat else ""
        return InvalidArgument(
            f"argument {number}{label} has the wrong shape or dtype", subject=self.name,
            got=f"{have.text if have else tensor.dtype}{list(tensor.shape)}",
            expected=f"{shape} as {torch_dtype(shape.element_type)}",
            hint=self.partitioning.hint or _of_another_batch(tensor, shape))


def _of_another_batch(tensor: torch.Tensor, shape: Shape) -> str:
    """A hint where an argument is of another size in its first dimension alone."""
    if tensor.dtype is not torch_dtype(shape.element_type) or not shape.rank or tensor.shape[1:] != shape.dimensions[1:]:
        return ""
    return "xla_torch.rebatch(program, argnums, size) makes it for a batch of another size, and symbolic export for all sizes"


def _unpickled(stored: Stored | str, options: GradientOptions | None, backend: Backend = EAGER,
               calls: Stored | None = None, by_ops: bool = False, lost: Sequence[Lost] | None = None) -> XlaComputation:
    by_calls = None if calls is None else calls.entry()
    return XlaComputation(Program(_restored(stored), options, backend, by_calls, by_ops, lost))


def _restored(stored: Stored | str) -> Module:
    if isinstance(stored, Stored):
        return stored.restored()
    module = parse_module(stored)
    verify(module)
    return module


def _comes_wider(element_type: PrimitiveType) -> bool:
    """Whether tensors of this type come in a torch dtype that holds more than the type does."""
    return type_from_torch(torch_dtype(element_type)) is not element_type


def require_in_range(tensor: torch.Tensor, shape: Shape, what: Callable[[], str]) -> None:
    """Raise InvalidArgument where a tensor in a wider dtype holds what its element type does not: an integer out of range, a
    float that would become infinite or NaN, or stay at the type's largest. Tensors without data, as in torch's fake mode, are not
    asked."""
    while is_wrapped(tensor):
        tensor = unwrapped(tensor)
    if not _comes_wider(shape.element_type) or tensor.numel() == 0 or tensor.is_meta or type(tensor) not in (
            torch.Tensor, torch.nn.Parameter):
        return
    ends = torch.aminmax(tensor.detach())
    for end in (float(v) if shape.element_type.is_floating else int(v) for v in ends):
        try:
            constant_of(end, shape.element_type)
        except InvalidArgument as error:
            raise InvalidArgument(f"{what()} has numbers that do not fit", got=end,
                                  expected=f"{error.expected}, for {shape}") from None


def require_computation(value: Any, subject: str) -> None:
    """Raise InvalidArgument for what is no program."""
    if not isinstance(value, XlaComputation):
        hint = ""
        if callable(value):
            hint = "trace a JAX function with from_jax(function, *arguments); torch.func differentiates a torch function"
        raise InvalidArgument("not a computation", subject=subject, got=type(value).__name__,
                              expected="an XlaComputation (of load, from_jax or XlaBuilder.build())", hint=hint)


def fits(sizes: Sequence[int], shape: Shape) -> bool:
    """Whether sizes are those of a shape; of dynamic dimensions at most the bound, or anything where there is none."""
    if shape.is_static or len(sizes) != shape.rank:
        return tuple(sizes) == shape.dimensions
    return all(have == size or (dynamic and (size < 0 or have <= size))
               for have, size, dynamic in zip(sizes, shape.dimensions, shape.dynamic_flags, strict=True))


def tensor_from_numpy(array: Any, shape: Shape, number: int) -> torch.Tensor:
    """A NumPy argument as a tensor of the parameter's boundary dtype. Raises InvalidArgument for another type or shape."""
    array = np.asarray(array)
    if type_from_numpy(array.dtype) is not shape.element_type or (
            array.shape != shape.dimensions and not fits(array.shape, shape)):
        raise InvalidArgument(f"argument {number} has the wrong shape or dtype", got=f"{array.dtype}{list(array.shape)}",
                              expected=str(shape))
    stored = numerics.storage_from_numpy(array, shape.element_type)
    return numerics.from_storage(stored, shape.element_type)
