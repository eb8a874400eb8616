"""StaticComputation: one program, for arguments of one shape.

It knows a `Program`, or a `Member` of a general one, which know flat and checked tensors only: here arguments are checked, trees
of them taken apart, and results put together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ..autodiff.options import GradientOptions
from ..core.errors import DeviceError, InvalidArgument
from ..core.shape import ProgramShape, Shape
from ..core.types import PrimitiveType, type_from_numpy
from ..hlo.derivatives import Lost, Stored
from ..hlo.ir import Module
from ..hlo.numbers import constant_of
from ..hlo.tree import arrays, from_arrays
from ..lowering import numerics
from ..lowering.emit import comment
from ..lowering.programs import check_devices
from ..opcodes.front import parse_module, verify
from ..storage.dtypes import in_memory, is_as, is_in_memory, torch_dtype, type_from_torch
from ..storage.tensor_guards import KnownTensors
from ..storage.torch_private import does_more_than_compute, is_traced_symbolically, is_wrapped, unwrapped
from . import dynamo
from .autograd_bridge import call_with_autograd, is_differentiated
from .backends import EAGER, Backend, Run
from .computation import XlaComputation
from .graphs_of_fx import symbolic_call
from .members import Member
from .program import Program
from .steps import Step


class StaticComputation(XlaComputation):
    """One program, whose arguments have one shape."""

    def __init__(self, module: Module | Program | Member):
        self._runs = Program(module) if isinstance(module, Module) else module
        shape = self._shape = self._runs.program_shape
        self._inputs = [leaf for p in shape.parameters for leaf in p.leaves() if leaf.is_array]
        self._flat = all(p.is_array for p in shape.parameters)
        self._result = shape.result
        self._is_array_result = shape.result.is_array
        self._is_flat_result = shape.result.is_tuple and all(s.is_array for s in shape.result.tuple_shapes)
        self._accepts = [(s.dimensions, torch_dtype(s.element_type), s) for s in self._inputs]
        self._dimensions, self._dtypes = [dims for dims, _, _ in self._accepts], [dtype for _, dtype, _ in self._accepts]
        self._known = KnownTensors()
        self._wider = any(_comes_wider(s.element_type) for s in self._inputs)

    @property
    def program(self) -> Program:
        return self._runs.own

    @property
    def program_shape(self) -> ProgramShape:
        return self._shape

    def __repr__(self) -> str:
        stated = f"; {self.partitioning}" if self.partitioning.about else ""
        backend = getattr(self.program.backend, "__name__", self.program.backend)
        compiled = "" if backend == EAGER else f"; compiled by {backend}"
        compiled += "".join(f": {choice}" for choice in self.program.choices)
        return f"XlaComputation({comment(self.name)}: {self.program_shape}{stated}{compiled})"

    # ---- the same program in another way

    def with_gradient_options(self, options: GradientOptions) -> StaticComputation:
        return StaticComputation(self.program.again(options, self.program.backend))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as its text, with the derivatives that it brings: what else was derived from the program is derived again."""
        by_calls = self.program.by_calls
        calls = None if by_calls is None else Stored.of_computation(by_calls)
        return _unpickled, (Stored.of(self.module), self.gradient_options, self.program.backend, calls, self.program.by_ops,
                             self.program.dropped_before)

    def derived(self, step: Step) -> XlaComputation:
        return step.of_one(self)

    # ---- running

    def prepare(self, device: torch.device | str = "cpu") -> None:
        self._runs.runner(torch.device(device))

    def __call__(self, *arguments: Any, device: torch.device | str | None = None, **named: Any) -> Any:
        if named:
            arguments = self.in_order(arguments, named)
        if torch.compiler.is_dynamo_compiling():
            return dynamo.called(self, arguments, {} if device is None else {"device": str(device)})
        if is_traced_symbolically() and (call := symbolic_call(self, arguments, {})) is not None:
            return call
        if device is None and self._flat and (found := self.run_known(arguments)) is not None:
            return self._unflatten(found)
        tensors = list(arguments) if self._flat else self._flatten(arguments)
        self._check(tensors)
        return self.run_fitting(tensors, device)

    def run_known(self, tensors: Sequence[Any]) -> Sequence[torch.Tensor] | None:
        """The flat results where all that `run_fitting` asks of the tensors is known from an earlier call with such as these;
        None otherwise."""
        needs_grad = self._known.needs_grad(tensors)
        if needs_grad is None or does_more_than_compute():
            return None
        if needs_grad and torch.is_grad_enabled():
            return call_with_autograd(self._runs, tensors)
        return self._runs.run_plain(tensors, tensors[0].device)

    def run_fitting(self, tensors: Sequence[torch.Tensor], device: torch.device | str | None = None) -> Any:
        self._check_together(tensors)
        if not (self._wider or does_more_than_compute()):  # `run_known` takes no others
            self._known.remember(tensors)
        if is_differentiated(tensors):
            return self._unflatten(call_with_autograd(self._runs, tensors))
        where = tensors[0].device if tensors else torch.device(device or "cpu")
        if device is not None and torch.device(device) != where:
            raise DeviceError("arguments are not on the requested device", got=where, expected=torch.device(device),
                              hint="move the arguments: a program runs on their device")
        return self._unflatten(self._runs.run(tensors, where))

    def run_numpy(self, *arguments: Any, device: torch.device | str = "cpu") -> tuple[np.ndarray, ...]:
        leaves = [leaf for a, p in zip(arguments, self.program_shape.parameters, strict=False) for leaf, _ in arrays(a, p)]
        if len(leaves) != len(self._inputs):
            raise self._wrong_count(len(leaves))
        tensors = [tensor_from_numpy(a, s, self._called(number)).to(device)
                   for number, (a, s) in enumerate(zip(leaves, self._inputs, strict=True))]
        results = self._runs.run(tensors, torch.device(device))
        shapes = [leaf for leaf in self._result.leaves() if leaf.is_array]
        return tuple(numpy_from_tensor(r, s) for r, s in zip(results, shapes, strict=True))

    def unchecked_run(self, device: torch.device) -> Run | None:
        """What a call comes to where nothing is differentiated: flat tensors, whose number, shapes and types are as they must
        be, to a tuple with the result. None where a call does more: it looks at values, or its result is no array."""
        if self._wider or not self._result.is_array or not isinstance(self._runs, Program):
            return None
        return self._runs.runner(device)

    # ---- checks of arguments

    def _unflatten(self, results: Sequence[torch.Tensor]) -> Any:
        """Flat results in the structure of the root."""
        if self._is_array_result:
            return results[0]
        return tuple(results) if self._is_flat_result else from_arrays(results, self._result)

    def _flatten(self, arguments: Sequence[Any]) -> list[torch.Tensor]:
        parameters = self.program_shape.parameters
        if len(arguments) != len(parameters):
            raise self._wrong_count(len(arguments))
        return [leaf for a, p in zip(arguments, parameters, strict=True) for leaf, _ in arrays(a, p)]

    def _check(self, tensors: list[Any]) -> None:
        if len(tensors) != len(self._accepts):
            raise self._wrong_count(len(tensors))
        if all(map(is_as, tensors, self._dimensions, self._dtypes)):
            return
        for number, (tensor, (dims, dtype, shape)) in enumerate(zip(tensors, self._accepts, strict=True)):
            if not isinstance(tensor, torch.Tensor):
                tensors[number] = tensor = self._tensor(tensor, number, shape, tensors)
            elif not is_in_memory(tensor):
                tensors[number] = tensor = in_memory(tensor, lambda number=number: self._called(number), self.name)
            if tensor.dtype is not dtype or (tensor.shape != dims and not fits(tensor.shape, shape)):
                raise self._wrong_argument(tensor, number, shape)

    def _check_together(self, tensors: Sequence[torch.Tensor]) -> None:
        if self._wider:
            for number, (tensor, shape) in enumerate(zip(tensors, self._inputs, strict=True)):
                require_in_range(tensor, shape, lambda number=number: f"{self._called(number)} of {self.name}")
        if len(tensors) > 1:
            first = tensors[0].device
            for tensor in tensors:
                if tensor.device != first:
                    check_devices(tensors)

    def _called(self, number: int) -> str:
        """What an argument is called in errors."""
        names = self.program_shape.parameter_names
        return f"argument {number}" + (f" ({names[number]})" if self._flat and names else "")

    def _tensor(self, value: Any, number: int, shape: Shape, tensors: list[Any]) -> torch.Tensor:
        if shape.dimensions or not isinstance(value, (bool, int, float, complex)):
            raise InvalidArgument(f"{self._called(number)} is not a tensor", subject=self.name, got=type(value).__name__,
                                  expected=f"a torch.Tensor of {shape}", hint="use run_numpy for NumPy arrays")
        device = next((t.device for t in tensors if isinstance(t, torch.Tensor)), None)
        try:
            array = constant_of(value, shape.element_type)
        except InvalidArgument as error:
            error.what = f"{self._called(number)}: {error.what}"
            raise error.located(self.name) from None
        return tensor_from_numpy(array, shape, self._called(number)).to(device)

    def _wrong_count(self, count: int) -> InvalidArgument:
        return InvalidArgument("wrong number of arguments", subject=self.name, got=count,
                               expected=f"{len(self._inputs)} for {self.program_shape}")

    def _wrong_argument(self, tensor: torch.Tensor, number: int, shape: Shape) -> InvalidArgument:
        have = type_from_torch(tensor.dtype)
        return InvalidArgument(
            f"{self._called(number)} has the wrong shape or dtype", subject=self.name,
            got=f"{have.text if have else tensor.dtype}[{','.join(map(str, tensor.shape))}]",
            expected=f"{shape} as {torch_dtype(shape.element_type)}",
            hint=self.partitioning.hint or of_another_dtype(tensor, shape) or of_another_batch(have, tensor.shape, shape))


def of_another_dtype(tensor: torch.Tensor, shape: Shape) -> str:
    """A hint where an argument of these sizes has another dtype alone."""
    wanted = torch_dtype(shape.element_type)
    return f".to({wanted}) converts it" if fits(tensor.shape, shape) and tensor.dtype is not wanted else ""


def of_another_batch(given: PrimitiveType | None, sizes: Sequence[int], shape: Shape) -> str:
    """A hint where an argument of this type and these sizes is of another size in its first dimension alone."""
    if given is not shape.element_type or not shape.rank or not sizes or tuple(sizes[1:]) != shape.dimensions[1:]:
        return ""
    return "xla_torch.rebatch(program, argnums, size) makes it for a batch of another size, and symbolic export for all sizes"


def _unpickled(stored: Stored | str, options: GradientOptions | None, backend: Backend = EAGER,
               calls: Stored | None = None, by_ops: bool = False, dropped: Sequence[Lost] | None = None) -> StaticComputation:
    by_calls = None if calls is None else calls.entry()
    return StaticComputation(Program(_restored(stored), options, backend, by_calls, by_ops, dropped))


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


def fits(sizes: Sequence[int], shape: Shape) -> bool:
    """Whether sizes are those of a shape; of dynamic dimensions at most the bound, or anything where there is none."""
    if shape.is_static or len(sizes) != shape.rank:
        return tuple(sizes) == shape.dimensions
    return all(have == size or (dynamic and (size < 0 or have <= size))
               for have, size, dynamic in zip(sizes, shape.dimensions, shape.dynamic_flags, strict=True))


def tensor_from_numpy(array: Any, shape: Shape, what: int | str) -> torch.Tensor:
    """A NumPy argument as a tensor of the parameter's boundary dtype. Raises InvalidArgument, which says `what` (an argument's
    number) has another type or shape."""
    array = np.asarray(array)
    given = type_from_numpy(array.dtype)
    if given is not shape.element_type or (array.shape != shape.dimensions and not fits(array.shape, shape)):
        called = f"argument {what}" if isinstance(what, int) else what
        raise InvalidArgument(f"{called} has the wrong shape or dtype", got=f"{array.dtype}{list(array.shape)}",
                              expected=str(shape), hint=of_another_batch(given, array.shape, shape))
    stored = numerics.storage_from_numpy(array, shape.element_type)
    return numerics.from_storage(stored, shape.element_type)


def numpy_from_tensor(tensor: torch.Tensor, shape: Shape) -> np.ndarray:
    """A result as NumPy has its element type."""
    return numerics.numpy_from_storage(numerics.to_storage(tensor, shape.element_type), shape.element_type)
