"""XLA programs as torch modules: some arguments become parameters, and any torch optimiser trains them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from .computation import XlaComputation
from .errors import InvalidArgument

if TYPE_CHECKING:
    from .autodiff.options import GradientOptions


class XlaModule(torch.nn.Module):
    """A computation some of whose arguments live in the module.

    `parameters` gives their initial values, by argument number or as a list for the first arguments. Floating and
    complex tensors become parameters, all others buffers; so do those numbered in `buffers`, which are kept but not
    trained. The remaining arguments are passed to the call, in order::

        model = XlaModule(load("loss.hlo"), parameters=weights)      # loss(weights..., tokens, targets)
        optimizer = torch.optim.Adam(model.parameters())
        model(tokens, targets).backward()

    Names in `state_dict` are the program's parameter names, with anything but letters, digits and ``_`` replaced.
    `gradient_options` say how loops are walked back.
    Raises InvalidArgument for an argument number that the program does not have, and for a value of another shape.
    """

    def __init__(self, computation: XlaComputation,
                 parameters: Mapping[int, torch.Tensor] | Sequence[torch.Tensor] = (), buffers: Sequence[int] = (),
                 gradient_options: GradientOptions | None = None):
        super().__init__()
        self.computation = computation if gradient_options is None else computation.with_gradient_options(gradient_options)
        held = dict(parameters if isinstance(parameters, Mapping) else enumerate(parameters))
        shape = computation.program_shape
        self._names: list[str | None] = [None] * len(shape.parameters)
        for number, value in sorted(held.items()):
            self._check(number, value)
            written = shape.parameter_names[number] if shape.parameter_names else ""
            name = self._names[number] = self._free_name(written or f"arg{number}")
            trained = (value.is_floating_point() or value.is_complex()) and number not in buffers
            if trained:
                self.register_parameter(name, torch.nn.Parameter(value.detach().clone()))
            else:
                self.register_buffer(name, value.detach().clone())

    def forward(self, *arguments: torch.Tensor) -> Any:
        """The program's result, with `arguments` in the places that the module does not hold."""
        missing = self._names.count(None)
        if len(arguments) != missing:
            raise InvalidArgument("wrong number of arguments", subject="XlaModule", got=len(arguments),
                                  expected=f"{missing}: {self.extra_repr()}")
        rest = iter(arguments)
        return self.computation(*(next(rest) if name is None else getattr(self, name) for name in self._names))

    def extra_repr(self) -> str:
        """The arguments of `forward` and the result, as in ``(tokens: s32[8,32]) -> f32[]``."""
        shape = self.computation.program_shape
        names = shape.parameter_names or [f"arg{i}" for i in range(len(self._names))]
        passed = (f"{name}: {part}" for name, part, held in zip(names, shape.parameters, self._names, strict=True)
                  if held is None)
        return f"({', '.join(passed)}) -> {shape.result}"

    def _check(self, number: int, value: torch.Tensor) -> None:
        expected = self.computation.program_shape.parameters
        if not 0 <= number < len(expected):
            raise InvalidArgument("no such argument", subject="XlaModule", got=number,
                                  expected=f"0 to {len(expected) - 1}")
        shape = expected[number]
        if shape.is_static and tuple(value.shape) != shape.dimensions:
            raise InvalidArgument(f"argument {number} has another shape", subject="XlaModule", got=list(value.shape),
                                  expected=shape)

    def _free_name(self, written: str) -> str:
        name = re.sub(r"\W", "_", written, flags=re.ASCII)
        while hasattr(self, name):
            name += "_"
        return name
