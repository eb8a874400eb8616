"""Derivatives that a computation brings: programs that its author gives in the place of what its ops' rules would make.

A function traced by JAX brings those that JAX has of it, since what `stop_gradient`, `custom_jvp` and `custom_vjp` say is not in
its ops. `autodiff.call_derivatives` uses them; here is what they are, and how they are stored.
"""

from __future__ import annotations

import dataclasses
import typing
import warnings
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from ..core.errors import InvalidArgument, LostDerivatives, PerhapsLostDerivatives
from .ir import Computation, Module
from .literals.literal import Literal
from .parser import parse_hlo
from .printer import print_apart, put_back
from .verifier import verify

Mask = tuple[bool, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Pullback:
    """The way back from the results that `demanded` flags to the arguments that `needed` flags, all of them arrays.

    `forward` takes the arguments and returns one flat tuple: the results, then residuals. `backward` takes the arguments number
    `read`, the residuals and a cotangent for each demanded result, and returns the flat tuple of the needed arguments'
    gradients, in torch's convention for complex ones. Both may bring derivatives again.
    """

    needed: Mask
    demanded: Mask
    read: tuple[int, ...]
    forward: Computation
    backward: Computation


@dataclasses.dataclass(frozen=True, eq=False)
class Pushforward:
    """The way forward of the tangents that `present` flags: `program` takes the arguments and these tangents, and returns one
    flat tuple: the results, then the tangents of the floating and complex ones."""

    present: Mask
    program: Computation


class Derivatives(Protocol):
    """What a computation from flat arrays to flat arrays may bring. None says that the rules of its ops are as good. Flags set
    in what is returned beyond those asked for do no harm. Both raise DifferentiationError for what there is not to be had.
    `rules` are the names of what an author wrote that the ops do not say."""

    @property
    def rules(self) -> Sequence[str]: ...

    def pullback(self, needed: Mask, demanded: Mask) -> Pullback | None: ...

    def pushforward(self, present: Mask) -> Pushforward | None: ...


@dataclasses.dataclass(frozen=True)
class Lost:
    """What a computation has instead of derivatives where its author's did not come with it: the names of his rules (none where
    it is only known that there may be some), what shows them, and what to do. It is `sure` if what shows them says so itself."""

    rules: tuple[str, ...]
    where: str = ""
    hint: str = ""
    sure: bool = True

    def warn(self, subject: str = "") -> None:
        """Say that derivatives are those of the ops."""
        warn_of([self], subject)

    def pullback(self, needed: Mask, demanded: Mask) -> None:
        """There is none; asked for, it says so."""
        self.warn()

    def pushforward(self, present: Mask) -> None:
        """As `pullback`."""
        self.warn()


@dataclasses.dataclass(frozen=True)
class AsWritten(Lost):
    """What a computation has instead of derivatives if somebody vouches that those of its ops are meant: then nothing is lost,
    and nothing is said. For a program of unknown sizes it is what knows its author's derivatives, too."""

    rules: tuple[str, ...] = ()

    def warn(self, subject: str = "") -> None:
        """There is nothing to say."""

    def derivatives(self, computation: Computation) -> AsWritten:
        """What the program for certain sizes has."""
        return self


AS_WRITTEN = AsWritten()


@dataclasses.dataclass(frozen=True)
class Stop:
    """What an identity brings whose derivative is zero, and the names of what its author wrote (`detach`). A call of it depends
    on nothing where a program is differentiated, so that neither way is asked for."""

    rules: tuple[str, ...]

    def pullback(self, needed: Mask, demanded: Mask) -> None:
        """There is none: no cotangent comes here."""

    def pushforward(self, present: Mask) -> None:
        """There is none: no tangent goes on from here."""


Vouched: TypeAlias = typing.Literal["as written"] | None
"""How who reads a program says that the derivatives of its ops are what its author meant."""


def vouched(derivatives: Vouched, function: str) -> bool:
    """Whether the argument of a function that reads programs vouches for their derivatives."""
    check_choice(derivatives, (None, "as written"), function)
    return derivatives is not None


def check_choice(derivatives: object, choices: Sequence[str | None], function: str) -> None:
    """Raise InvalidArgument for an argument `derivatives` that is no choice of the function."""
    if not (derivatives is None or isinstance(derivatives, str)) or derivatives not in choices:
        raise InvalidArgument("unknown value of derivatives", subject=function, got=repr(derivatives),
                              expected=" or ".join(f'"{choice}"' if choice else "None" for choice in choices))


def warn_of(lost: Sequence[Lost], subject: str) -> None:
    """Say in one line that derivatives are those of the ops: LostDerivatives, or PerhapsLostDerivatives where that is not sure.
    Where no rule is known that is always the same, so that Python shows it once."""
    named = [one for one in lost if one.rules]
    kind = LostDerivatives if any(one.sure for one in named) else PerhapsLostDerivatives
    if named:
        stated = ", or what ".join(f"{', '.join(one.rules)} says{_from(one)}" for one in named)
        what = f"its derivatives are those of its ops, and not what {stated}"
    else:
        what, subject = f"{_UNKNOWN}{_from(lost[0])}", ""
    hints = dict.fromkeys(one.hint for one in named or lost[:1] if one.hint)
    warnings.warn(kind("; ".join([what, *hints]), subject=subject), stacklevel=4)


def _from(lost: Lost) -> str:
    return f" (from {lost.where})" if lost.where else ""


_UNKNOWN = ("derivatives are those of the ops: JAX writes into no program what its author said of them, if he did "
            "(stop_gradient, custom_jvp, custom_vjp)")


def brings(computation: Computation) -> bool:
    """Whether a computation brings derivatives."""
    return computation.derivatives is not None and not isinstance(computation.derivatives, Lost)


def rules_of(derivatives: Derivatives | Lost | None) -> Sequence[str]:
    """The names of the rules that an author wrote."""
    return () if derivatives is None else derivatives.rules


def bringing(computation: Computation, derivatives: Derivatives | Lost | None) -> Computation:
    """The computation with these derivatives: another one of the same instructions."""
    same = Computation(computation.name, computation.instructions, computation.root, computation.execution_thread)
    same.is_canonical, same.derivatives = computation.is_canonical, derivatives
    return same


@dataclasses.dataclass(frozen=True)
class Stored:
    """A module as what can be pickled: its text, the derivatives that its computations bring, by their places in it, and its
    large constants, which are arrays: programs that share them share them in a pickle, and after it."""

    text: str
    derivatives: dict[int, Any]
    constants: tuple[Literal, ...] = ()

    @classmethod
    def of(cls, module: Module) -> Stored:
        """What is stored of a module."""
        text, constants = print_apart(module)
        return cls(text, {k: c.derivatives for k, c in enumerate(module.computations) if c.derivatives is not None},
                   tuple(constants))

    @classmethod
    def of_computation(cls, computation: Computation) -> Stored:
        """What is stored of a computation, as the entry of a module."""
        return cls.of(Module(computation.name, computation))

    def restored(self) -> Module:
        """The module again, checked as any that is read."""
        module = parse_hlo(self.text)
        put_back(module, self.constants)
        for k, computation in enumerate(module.computations):
            computation.derivatives = self.derivatives.get(k)
        verify(module)
        return module

    def entry(self) -> Computation:
        """The entry of the module that is `restored`."""
        return self.restored().entry
