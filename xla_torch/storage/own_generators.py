"""Random generators that a model makes or seeds itself: they draw the same in each call, so that is a constant."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.fx.experimental.proxy_tensor

from ..core.errors import UnsupportedError
from .replaced_attributes import replacing
from .torch_private import private, pytree

_without_modes: Callable[[], Any] = private(torch, "utils._python_dispatch._disable_current_modes")
_proxies: Callable[[], Any] = private(torch.fx.experimental.proxy_tensor, "get_proxy_mode")
_random: Any = torch.random
_Generator = torch.Generator


class _IsGenerator(type(_Generator)):
    def __instancecheck__(cls, instance: Any) -> bool:
        return type.__instancecheck__(_Generator, instance)


class _Own(_Generator, metaclass=_IsGenerator):
    """A generator that was made while a model is traced."""

    is_seeded = True

    def seed(self) -> int:
        self.is_seeded = False
        return super().seed()


class _Seeded:
    """torch's own generator while a model is traced: from where the model seeds it until the model puts its state back, it draws
    the same in each call."""

    def __init__(self) -> None:
        self.generator: _Own | None = None
        self._outer: torch.Tensor | None = None
        self._before: Any = None  # the last node of the graph when the generator was seeded

    def manual_seed(self, seed: Any) -> torch.Generator:
        return self._begin().manual_seed(int(seed))

    def seed(self) -> int:
        self.end()
        return _random.default_generator.seed()

    def get_rng_state(self) -> torch.Tensor:
        with _without_modes():
            if self.generator is not None:
                return self.generator.get_state()
            self._outer = state = _random.default_generator.get_state()
            return state

    def set_rng_state(self, new_state: torch.Tensor) -> None:
        with _without_modes():
            is_outer = self._outer is not None and torch.equal(self._outer, new_state)
        if is_outer:
            return self.end()
        generator = self._begin()
        with _without_modes():
            generator.set_state(new_state)
        return None

    def _begin(self) -> _Own:
        self.end()
        found, mode = _Own(), _proxies()
        self.generator = found
        self._before = mode and next(iter(reversed(mode.tracer.graph.nodes)), None)
        return found

    def end(self) -> None:
        """Raises UnsupportedError for numbers that were drawn since the generator was seeded and did not become constants."""
        self.generator, node, self._before = None, self._before, None
        while node is not None and (node := node.next).op != "root":
            if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
                raise UnsupportedError("random numbers that depend on a tensor, after torch.manual_seed within the model",
                                       subject=str(node.target), expected="torch.rand, torch.randn or the like",
                                       hint="draw standard numbers, and compute with them")


_seeded: list[_Seeded] = []


@contextlib.contextmanager
def noted() -> Iterator[None]:
    """A block in which generators that are made are known by their class, and seeds of torch's own are noted."""
    own = _Seeded()
    _seeded.append(own)
    try:
        with replacing() as put:
            put(torch, "Generator", _Own)
            for name in ("manual_seed", "seed", "get_rng_state", "set_rng_state"):
                function = _in_this_thread(getattr(own, name), getattr(_random, name))
                put(torch, name, function)
                put(_random, name, function)
            yield
        own.end()
    finally:
        _seeded.pop()


def _in_this_thread(function: Callable[..., Any], otherwise: Callable[..., Any]) -> Callable[..., Any]:
    thread = threading.get_ident()

    def called(*args: Any, **named: Any) -> Any:
        return (function if threading.get_ident() == thread else otherwise)(*args, **named)

    return called


def of_call(func: Any, kwargs: Mapping[str, Any]) -> Any:
    """The generator that a call draws from, other than torch's own with an unknown state; or None."""
    given = kwargs.get("generator")
    if given is None and _seeded and (func in _DRAWING or func in _LIKE):
        return _seeded[-1].generator
    return given


_DRAWING = {
    torch.rand, torch.randn, torch.randint, torch.randperm, torch.normal, torch.bernoulli, torch.multinomial,
    torch.Tensor.normal_, torch.Tensor.uniform_, torch.Tensor.random_, torch.Tensor.bernoulli_, torch.Tensor.exponential_,
    torch.Tensor.cauchy_, torch.Tensor.geometric_, torch.Tensor.log_normal_}
_LIKE = {torch.rand_like: torch.rand, torch.randn_like: torch.randn}


def drawn(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What a function draws of the generator among its arguments. Raises UnsupportedError unless the model made and seeded it, or
    where the numbers depend on a tensor."""
    generator, name = kwargs["generator"], getattr(func, "__name__", str(func))
    if type(generator) is not _Own or not generator.is_seeded:
        raise UnsupportedError("a random generator from outside of the model is not supported", subject=name, got=generator,
                               expected="a torch.Generator that the model makes and seeds, whose numbers become constants",
                               hint="draw from torch's own generator, or pass the numbers as an argument")
    if func in _LIKE:
        like, func = args[0], _LIKE[func]
        args, kwargs = (like.shape, *args[1:]), {"dtype": like.dtype, **kwargs}
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    writes = name.endswith("_") and len(tensors) == 1 and tensors[0] is args[0]
    if tensors and not writes:
        raise UnsupportedError("numbers of a generator depend on a tensor", subject=name, expected="numbers as parameters",
                               hint="draw standard numbers, and compute with them")
    with _without_modes(), torch.no_grad():
        if not writes:
            return func(*args, **kwargs)
        found = func(torch.empty(args[0].shape, dtype=args[0].dtype), *args[1:], **kwargs)
    return args[0].copy_(found)
