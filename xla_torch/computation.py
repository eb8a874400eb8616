"""XlaComputation: a program to call, print, differentiate and look into. Builders and files both end here."""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.fx
from torch.autograd import forward_ad

from .errors import DeviceError, InvalidArgument
from .hlo.ir import Computation, Module
from .interop.custom_calls import check_custom_calls
from .lowering import numerics
from .lowering.emit import check_devices, comment, flatten, freeing, lower, unflatten
from .shape import ProgramShape, Shape
from .types import type_from_numpy, type_from_torch

if TYPE_CHECKING:
    from .autodiff.options import GradientOptions
    from .sharding import Partitioning


_log = logging.getLogger(__name__)


class XlaComputation:
    """An XLA program.

    Call it with torch tensors, one for each parameter (a tuple for a tuple parameter), all on one device: it runs there. The
    result is a tensor, or a tuple for a tuple root. If an argument requires grad, so does the result.
    """

    def __init__(self, module: Module):
        self.module = module
        self._lock = threading.RLock()
        self._lowered: dict[torch.device, torch.fx.GraphModule] = {}
        self._derived: dict[Any, Any] = {}
        self._inputs = [leaf for p in module.entry.parameters for leaf in p.shape.leaves() if leaf.is_array]
        self._flat = all(p.shape.is_array for p in module.entry.parameters)
        self._result = module.entry.root.shape
        self._accepts = [(s.dimensions, s.element_type.torch, s) for s in self._inputs]
        self.gradient_options: GradientOptions | None = None

    def with_gradient_options(self, options: GradientOptions) -> XlaComputation:
        """The same program, whose gradients are found in another way, through every door: `backward`, torch.func, `grad`."""
        computation = XlaComputation(self.module)
        computation.gradient_options = options
        return computation

    # ---- looking

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
    def partitioning(self) -> Partitioning:
        """Whether an annotated program for several partitions is about whole arrays, and runs with its global meaning, or
        has been partitioned, and is about one partition's."""
        from .sharding import partitioning_of

        return self.derived("partitioning", lambda: partitioning_of(self.module))

    @property
    def participants(self) -> dict[str, int]:
        """How many the program is for, where its header says so, and as a program derived from it should say. One about whole
        arrays needs no other partition."""
        names = ["replica_count"] if self.partitioning.is_whole else ["replica_count", "num_partitions"]
        return {name: self.module.header[name] for name in names if name in self.module.header}

    def to_hlo_text(self) -> str:
        """The program as HLO text, with all constants. XLA's own parser reads it."""
        from .hlo.printer import print_module

        return print_module(self.module)

    def python_code(self, device: torch.device | str = "cpu") -> str:
        """The PyTorch that runs: one line for each call, with the HLO instruction it comes from."""
        return annotated_code(self.lowered(device))

    def __repr__(self) -> str:
        stated = f"; {self.partitioning}" if self.partitioning.about else ""
        return f"XlaComputation({comment(self.name)}: {self.program_shape}{stated})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as its text: what was derived from the program is derived again."""
        return _unpickled, (self.to_hlo_text(), self.gradient_options)

    def __copy__(self) -> XlaComputation:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> XlaComputation:
        return self  # a program does not change

    # ---- running

    def lowered(self, device: torch.device | str = "cpu") -> torch.fx.GraphModule:
        """The program as a torch.fx GraphModule for a device: flat array inputs to a flat tuple of arrays. Cached."""
        device = torch.device(device)
        module = self._lowered.get(device)
        if module is None:
            with self._lock:
                module = self._lowered.get(device)
                if module is None:
                    with _undisturbed():
                        check_custom_calls(self.prepared())
                        if self.partitioning.about:
                            _log.info("%s: %s", self.name, self.partitioning)
                        module = lower(self.prepared(), device)
                    self._lowered[device] = module
        return module

    def prepared(self) -> Computation:
        """The entry as the lowering sees it: calls and fusions inlined, dead code gone, dynamic sizes settled."""
        from .transform.dynamic_sizes import settle
        from .transform.inline import inline

        return self.derived("inlined", lambda: settle(inline(self.meant_entry())))

    def meant_entry(self) -> Computation:
        """The entry as one participant runs it: where regions of it are about one partition's arrays, but the program is
        about whole ones, those of all partitions."""
        if not self.partitioning.manual_regions:
            return self.module.entry
        from .transform.partitions import without_regions

        return self.derived("meant", lambda: without_regions(self.module, self.partitioning.partitions))

    def derived(self, key: Any, make: Any) -> Any:
        """Something computed from this program once and kept with it. Safe to call from several threads."""
        if key not in self._derived:
            with self._lock:
                if key not in self._derived:
                    with _undisturbed():
                        self._derived[key] = make()
        return self._derived[key]

    def __call__(self, *arguments: Any, device: torch.device | str | None = None) -> Any:
        """Run on torch tensors. `device` is for programs without arguments; raises InvalidArgument for a wrong number,
        shape or dtype of arguments and DeviceError for arguments on several devices."""
        if torch.compiler.is_compiling():
            from .dynamo import one_call

            return one_call(self, *arguments, device=device)
        tensors = list(arguments) if self._flat else self._flatten(arguments)
        self._check(tensors)
        if is_differentiated(tensors):
            from .autodiff.bridge import call_with_autograd

            return self.unflatten(call_with_autograd(self, tensors))
        where = tensors[0].device if tensors else torch.device(device or "cpu")
        if device is not None and torch.device(device) != where:
            raise DeviceError("arguments are not on the requested device", got=where, expected=torch.device(device),
                              hint="a program runs where its arguments are")
        return self.unflatten(self.run_flat(tensors, where))

    def run_flat(self, tensors: Sequence[torch.Tensor], device: torch.device) -> tuple[torch.Tensor, ...]:
        """Run without autograd on flat arguments that were checked; the flat results."""
        module = self._lowered.get(device) or self.lowered(device)
        if torch.is_autocast_enabled(device.type):  # XLA's types are what the program says
            with torch.autocast(device.type, enabled=False):
                return self.run_flat(tensors, device)
        with torch.no_grad():
            return module.forward(*tensors)

    def run_freeing(self, tensors: list[torch.Tensor], device: torch.device) -> tuple[torch.Tensor, ...]:
        """Like `run_flat`, on a list that is emptied: what nobody else holds is freed after its last use, during the run."""
        module = self.derived(("freeing", device), lambda: freeing(self.lowered(device)))
        if torch.is_autocast_enabled(device.type):
            with torch.autocast(device.type, enabled=False):
                return self.run_freeing(tensors, device)
        with torch.no_grad():
            return module.forward(tensors)

    def unflatten(self, results: Sequence[torch.Tensor]) -> Any:
        """Flat results in the structure of the root."""
        return unflatten(iter(results), self._result)

    def run_numpy(self, *arrays: Any, device: torch.device | str = "cpu") -> tuple[np.ndarray, ...]:
        """Run on NumPy arrays (ml_dtypes for narrow types); the flat results as arrays, always a tuple."""
        leaves = [leaf for a, p in zip(arrays, self.program_shape.parameters, strict=False) for leaf, _ in flatten(a, p)]
        if len(leaves) != len(self._inputs):
            raise self._wrong_count(len(leaves))
        tensors = [tensor_from_numpy(a, s, number).to(device)
                   for number, (a, s) in enumerate(zip(leaves, self._inputs, strict=True))]
        results = self.run_flat(tensors, torch.device(device))
        shapes = [leaf for leaf in self._result.leaves() if leaf.is_array]
        return tuple(numerics.numpy_from_carrier(numerics.to_carrier(r, s.element_type), s.element_type)
                     for r, s in zip(results, shapes, strict=True))

    # ---- at the door

    def _flatten(self, arguments: Sequence[Any]) -> list[torch.Tensor]:
        parameters = self.program_shape.parameters
        if len(arguments) != len(parameters):
            raise self._wrong_count(len(arguments))
        return [leaf for a, p in zip(arguments, parameters, strict=True) for leaf, _ in flatten(a, p)]

    def _check(self, tensors: list[Any]) -> None:
        if len(tensors) != len(self._accepts):
            raise self._wrong_count(len(tensors))
        for number, (tensor, (dims, dtype, shape)) in enumerate(zip(tensors, self._accepts, strict=True)):
            if not isinstance(tensor, torch.Tensor):
                tensors[number] = tensor = self._tensor(tensor, number, shape, tensors)
            if tensor.dtype is not dtype or (tensor.shape != dims and not _fits(tensor.shape, shape)):
                raise self._wrong_argument(tensor, number, shape)
        if len({t.device for t in tensors}) > 1:
            check_devices(tensors)

    def _tensor(self, value: Any, number: int, shape: Shape, tensors: list[Any]) -> torch.Tensor:
        if shape.dimensions or not isinstance(value, (bool, int, float, complex)):
            raise InvalidArgument(f"argument {number} is not a tensor", subject=self.name, got=type(value).__name__,
                                  expected=f"a torch.Tensor of {shape}", hint="run_numpy takes NumPy arrays")
        device = next((t.device for t in tensors if isinstance(t, torch.Tensor)), None)
        return torch.tensor(value, dtype=shape.element_type.torch, device=device)

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
            expected=f"{shape} as {shape.element_type.torch}", hint=self.partitioning.hint)


def _unpickled(text: str, options: GradientOptions | None) -> XlaComputation:
    from .loading import parse_hlo

    computation = parse_hlo(text)
    computation.gradient_options = options
    return computation


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """What is kept with a program is made in the same way wherever it is first called: under no transform of torch.func, no
    mode that makes other tensors, and not as inference tensors."""
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
    from torch.utils._python_dispatch import _disable_current_modes

    with temporarily_clear_interpreter_stack(), _disable_current_modes(), torch.inference_mode(False):
        yield


def is_differentiated(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether a call is more than a run: autograd records it, tangents go through it, or a torch.func transform is on."""
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return True
    return bool(tensors) and (forward_ad._current_level >= 0 or torch._C._are_functorch_transforms_active())


def _fits(sizes: Sequence[int], shape: Shape) -> bool:
    """Sizes for a shape with dynamic dimensions: at most the bound, or anything where there is none."""
    if shape.is_static or len(sizes) != shape.rank:
        return False
    return all(have == size or (dynamic and (size < 0 or have <= size))
               for have, size, dynamic in zip(sizes, shape.dimensions, shape.dynamic_flags, strict=True))


def tensor_from_numpy(array: Any, shape: Shape, number: int) -> torch.Tensor:
    """A NumPy argument as a tensor of the parameter's boundary dtype. Raises InvalidArgument for another type or shape."""
    array = np.asarray(array)
    if type_from_numpy(array.dtype) is not shape.element_type or (
            array.shape != shape.dimensions and not _fits(array.shape, shape)):
        raise InvalidArgument(f"argument {number} has the wrong shape or dtype", got=f"{array.dtype}{list(array.shape)}",
                              expected=str(shape))
    carrier = numerics.carrier_from_numpy(array, shape.element_type)
    return numerics.from_carrier(carrier, shape.element_type)


_SLICE = re.compile(r"slice\((None|-?\d+), (None|-?\d+), (None|-?\d+)\)")
_INDEX = re.compile(r"\[\(((?:[-\d:]+(?:, )?)+),?\)\]|\[\(?([-\d:]+),?\)?\]$")
_KERNEL = re.compile(r"= xla_torch_lowering_kernels_([a-z]+)_(\w+)\(")


def _readable(code: str) -> str:
    """What torch.fx prints as ``x[(slice(None, None, None), slice(0, 3, None))]`` the way people write it, ``x[:, 0:3]``,
    and our own kernels by their name below `xla_torch.lowering`."""
    def colon(match: re.Match[str]) -> str:
        start, stop, step = ("" if word == "None" else word for word in match.groups())
        return f"{start}:{stop}" + (f":{step}" if step else "")

    code = _KERNEL.sub(r"= kernels.\1.\2(", code)
    if "slice(" not in code:
        return code
    return _INDEX.sub(lambda m: f"[{m.group(1) or m.group(2)}]", _SLICE.sub(colon, code))


def annotated_code(module: torch.fx.GraphModule, indent: str = "") -> str:
    """The source of a GraphModule and its sub-programs, each line with the name of its HLO instruction."""
    origin = {n.name: n.meta["hlo"] for n in module.graph.nodes if "hlo" in n.meta}
    lines: list[str] = []
    for line in module.code.strip().splitlines():
        instruction = origin.get(line.split("=", 1)[0].strip().split(":")[0])
        code = _readable(line.split(";  ")[0])
        note = f"  # %{comment(instruction.name)}" if instruction is not None else ""
        lines.append(f"{indent}{code}{note}".rstrip())
    for name, child in module.named_children():
        if isinstance(child, torch.fx.GraphModule):
            lines += ["", f"{indent}# self.{name}:", annotated_code(child, indent)]
    return "\n".join(lines)
