"""What a model keeps in its attributes when it is called, which a program does not: it is put back, and its names are known."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook


@contextlib.contextmanager
def keeping_nothing(model: torch.nn.Module) -> Iterator[None]:
    """A block after which the model's attributes are what they were, and which sees copies of those that are neither tensors nor
    modules: of what a call keeps in them, as a cache of what it computes from weights, no other call gets to know."""
    modules, memo = list(model.modules()), _memo(model)
    held = [(vars(module), dict(vars(module))) for module in modules]
    weights: list[tuple[dict[str, Any], dict[str, Any]]] = [
        (tensors, dict(tensors)) for module in modules for tensors in (module._buffers, module._parameters)]
    try:
        for own, before in held:
            own.update({name: _copied(one, memo) for name, one in before.items()
                        if name not in _OF_MODULES and not isinstance(one, torch.Tensor)})
        yield
    finally:
        for own, before in held:
            own.clear()
            own.update(before)
        for tensors, before in weights:  # torch leaves what it traced in the model
            if tensors.keys() != before.keys() or any(tensors[name] is not one for name, one in before.items()):
                tensors.clear()
                tensors.update(before)


def changes(model: torch.nn.Module) -> Callable[[], list[str]]:
    """What tells, once, the names of the attributes that have changed since now, and of parameters that were replaced, but of
    buffers only of those that were None: of others torch.export sees that they are written."""
    memo, replaced = _memo(model), list[str]()
    paths = {id(module): path for path, module in model.named_modules()}

    def note(module: torch.nn.Module, name: str, parameter: torch.nn.Parameter) -> None:
        if id(module) in paths:
            replaced.append(f"{paths[id(module)]}.{name}".lstrip("."))

    watch = register_module_parameter_registration_hook(note)
    held = [(path, module, {name: _copied(one, memo) for name, one in _kept(module).items()})
            for path, module in model.named_modules()]

    def changed() -> list[str]:
        watch.remove()
        return replaced + [f"{path}.{name}".lstrip(".") for path, module, before in held
                for name in dict.fromkeys((*before, *_kept(module)))
                if _differ({**module._buffers, **_kept(module)}.get(name), before.get(name))]

    return changed


_OF_MODULES = vars(torch.nn.Module()).keys()


def _memo(model: torch.nn.Module) -> dict[int, Any]:
    """What copies of attributes share with the model."""
    return {id(one): one for one in (*model.modules(), *model.parameters(), *model.buffers())}


def _kept(module: torch.nn.Module) -> dict[str, Any]:
    """A module's attributes, and its buffers that are None."""
    own = {name: one for name, one in vars(module).items() if name not in _OF_MODULES}
    return {**own, **{name: one for name, one in module._buffers.items() if one is None}}


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    if isinstance(value, torch.Tensor):
        return value
    try:
        return copy.deepcopy(value, memo)
    except Exception:  # whatever an object of the user's raises that cannot be copied
        return value


def _differ(now: Any, before: Any) -> bool:
    """Whether an attribute has changed. Objects of other classes are copies, of which that cannot be seen."""
    if now is before:
        return False
    if type(now) is not type(before) or isinstance(now, torch.Tensor):
        return True
    if not isinstance(now, (bool, int, float, complex, str, bytes, tuple, list, dict, set)):
        return False
    try:
        return bool(now != before)
    except Exception:  # whatever comparisons raise, as those of tensors do
        return True
