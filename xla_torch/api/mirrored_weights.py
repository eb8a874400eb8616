"""Modules that hold the weights of other ones, by the same names, before these are converted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch

from ..storage.torch_private import contents, without_autocast


def mirror(given: torch.nn.Module, own: torch.nn.Module, group: Callable[[], torch.nn.Module]) -> None:
    """Let a module hold the parameters and buffers of another one, in groups by their names."""
    saved = given.state_dict(keep_vars=True)
    made = {id(given): own}
    names = [name for name, _ in (*given.named_parameters(remove_duplicate=False), *given.named_buffers(remove_duplicate=False))]
    for path, module in given.named_modules(remove_duplicate=False):
        if path and not any(name.startswith(f"{path}.") for name in names):
            continue
        outer, _, last = path.rpartition(".")
        if path:
            place = made.setdefault(id(module), group())
            own.get_submodule(outer).add_module(last, place)
        else:
            place = own
        place.training = module.training
        parameters, buffers, _ = contents(module)
        for name, parameter in parameters.items():
            if parameter is not None:
                place.register_parameter(name, parameter)
        for name, buffer in buffers.items():
            if buffer is not None:
                place.register_buffer(name, buffer, persistent=f"{path}.{name}".removeprefix(".") in saved)


def restore(given: torch.nn.Module, own: torch.nn.Module) -> None:
    """Let a module hold what one that `mirror` made holds by now."""
    for path, group in own.named_modules(remove_duplicate=False):
        module = given.get_submodule(path)
        module.training = group.training
        for held, kept in zip(contents(module)[:2], contents(group)[:2], strict=True):
            held.update(kept)


def add(own: torch.nn.Module, other: torch.nn.Module) -> None:
    """Let a module also hold the buffers of another one that it has none of these names for."""
    held = dict(own.named_buffers(remove_duplicate=False))
    for name, buffer in other.named_buffers(remove_duplicate=False):
        if name not in held:
            outer, _, last = name.rpartition(".")
            own.get_submodule(outer).register_buffer(last, buffer)


@contextlib.contextmanager
def converting() -> Iterator[None]:
    """A block in which modules are converted in one way, whatever modes of gradients and precision are on around it."""
    with contextlib.ExitStack() as modes:
        for device_type in ("cpu", "cuda"):
            modes.enter_context(without_autocast(device_type))
        modes.enter_context(torch.inference_mode(False))
        modes.enter_context(torch.enable_grad())
        yield


def usable_in_autograd(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor that later calls outside of inference mode can take, as what they are given in it they cannot."""
    if torch.compiler.is_dynamo_compiling() or not torch.is_inference_mode_enabled():
        return tensor
    with torch.inference_mode(False):
        return tensor.clone()
