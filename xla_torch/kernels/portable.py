"""Loops and branches in graphs that torch makes: its own operators for them, whose bodies are graphs within.

These want functions that are given all they read, and whose results share memory with nothing and lie as what they take the
place of.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..storage.torch_private import cond_operator, of_same_code, while_operator

Tensors = tuple[torch.Tensor, ...]


def while_loop(condition: torch.nn.Module, body: torch.nn.Module, carried: Tensors, invariant: Tensors) -> Tensors:
    """Run `body(*carried, *invariant)` while the condition of the same values holds; each result is the next `carried`."""
    held, count = constants(condition, body), len(carried)
    shared, places = _once((*invariant, *held))

    def inside(module: torch.nn.Module, values: Tensors) -> Tensors:
        given = [values[count + place] for place in places]
        return with_constants(module, held, given[len(invariant):])(*values[:count], *given[:len(invariant)])

    return tuple(while_operator(lambda *values: inside(condition, values)[0].clone(), lambda *values: _own(inside(body, values)),
                                _own(carried), shared))


def conditional(selector: torch.Tensor, branches: Sequence[torch.nn.Module], operands: Sequence[Tensors]) -> Tensors:
    """Run the branch that a 0-dimensional tensor chooses: of a boolean the first where it is true; of numbers the last for any
    out of range."""
    if len(branches) == 1:
        return branches[0](*operands[0])
    held = constants(*branches)
    shared, places = _once((*itertools.chain(*operands), *held))

    def chosen(number: int) -> Callable[..., Tensors]:
        first = sum(map(len, operands[:number]))

        def run(*values: Any) -> Tensors:
            given = [values[place] for place in places]
            inside = with_constants(branches[number], held, given[len(given) - len(held):])
            return _own(inside(*given[first:first + len(operands[number])]))

        return run

    def from_number(number: int) -> Callable[..., Tensors]:
        """The branches from this one on, of which the index behind all other values chooses."""
        if number == len(branches) - 1:
            return chosen(number)
        return lambda *values: tuple(cond_operator(values[-1] == number, chosen(number), from_number(number + 1), values))

    if selector.dtype is torch.bool:
        return tuple(cond_operator(selector.clone(), chosen(0), chosen(1), shared))
    return from_number(0)(*shared, selector.clone())


def _once(values: Tensors) -> tuple[Tensors, list[int]]:
    """The arrays without those that come twice, each in memory of its own as torch's operators want it, and for each value its
    place in them."""
    found = {id(value): value for value in values}
    numbers = {name: number for number, name in enumerate(found)}
    return _own(tuple(found.values())), [numbers[id(value)] for value in values]


def _own(values: Tensors) -> Tensors:
    return tuple(value.clone(memory_format=torch.contiguous_format) for value in values)


def constants(*modules: torch.nn.Module) -> Tensors:
    """The arrays that modules hold, and those in them."""
    return tuple({id(array): array for module in modules for array in module.buffers()}.values())


def with_constants(module: torch.nn.Module, held: Tensors, given: Sequence[torch.Tensor]) -> torch.nn.Module:
    """The module with other arrays in the place of those that it holds."""
    new = {id(own): other for own, other in zip(held, given, strict=True)}

    def changed(value: Any) -> Any:
        return {name: new.get(id(own), own) for name, own in value.items()} if isinstance(value, dict) else value

    return of_same_code(module, changed) if held else module
