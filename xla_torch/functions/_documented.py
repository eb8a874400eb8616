"""What makes a function a documented one: it finds its builder, checks what it is given, takes older parameter names and operands
one by one, and may run at once."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..core.errors import InvalidArgument, XlaError
from ..core.forks import cached_property
from ..core.types import PrimitiveType, require_element_type
from ..hlo.canonical_values import LISTS
from ._kinds import Kind, Refused, described, hint_for, kind_of
from .hlo_builder import NUMBERS, Builder, XlaOp, tensor_beside

Build = Callable[[Builder | None, Sequence[Any], dict[str, Any]], Any]
"""A documented function as it stands, with its builder."""


class WrongArguments(InvalidArgument, TypeError):
    """Too many, too few or unknown arguments of a documented function."""


def _nothing_runs(build: Build, name: str, args: Sequence[Any], kwargs: dict[str, Any], values: Sequence[Any]) -> Any:
    raise InvalidArgument("no operand is an XlaOp", subject=name, got="no builder",
                          expected="an XlaOp, or a builder", hint="use xla_torch.ops, whose functions take tensors too")


def _nothing_is_ready(build: Build, args: Sequence[Any]) -> Any:
    return None


@dataclasses.dataclass
class _Immediate:
    """What runs a documented function at once, and the types of the values that it runs on."""

    types: tuple[type, ...] = ()
    run_ready: Callable[[Build, Sequence[Any]], Any] = _nothing_is_ready
    run: Callable[[Build, str, Sequence[Any], dict[str, Any], Sequence[Any]], Any] = _nothing_runs


_immediate = _Immediate()


def run_at_once_with(run: Callable[[Build, str, Sequence[Any], dict[str, Any], Sequence[Any]], Any],
                     run_ready: Callable[[Build, Sequence[Any]], Any], *types: type) -> None:
    """Install what runs documented functions on values of these types: `run(build, name, args, kwargs, values)`, and before
    that `run_ready(build, args)`, which gives the result of a call that it knows, and else None. What can only build programs
    stands below what can run them, and so does not know it."""
    _immediate.run, _immediate.run_ready, _immediate.types = run, run_ready, types


# --------------------------------------------------------------------------------- checks of arguments


_OLDER = {"broadcast_dimension": "broadcast_dimensions"}
"""Spellings that documents use for a parameter of any function, beside the one that most of them use."""


class ArgumentChecker:
    """Check and convert a documented function's arguments, by the names and annotations of its signature."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        self.older: dict[str, str] = dict(_OLDER)
        self.one_by_one: tuple[str, ...] = ()
        """The parameters that may be given one operand after another; see `variadic`."""
        self.numbers = False
        parameters = {n: p for n, p in inspect.signature(function).parameters.items() if n != "builder"}
        self.named = {n: p for n, p in parameters.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
        self.positional = [n for n, p in self.named.items() if p.kind is not p.KEYWORD_ONLY]
        self.required = [n for n, p in self.named.items() if p.default is p.empty]
        self.open_end = any(p.kind is p.VAR_POSITIONAL for p in parameters.values())
        self.open_names = any(p.kind is p.VAR_KEYWORD for p in parameters.values())

    @cached_property
    def kinds(self) -> dict[str, Kind]:
        """What each parameter takes. Found when the function is first called: annotations name what is imported later."""
        hints = typing.get_type_hints(self.function)
        return {name: kind_of(hints.get(name, Any)) for name in self.named}

    @cached_property
    def _takes(self) -> list[Callable[[Any], Any]]:
        return [self.kinds[name].take for name in self.positional]

    def checked(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments in canonical form. Raises InvalidArgument for a value of the wrong kind, and WrongArguments."""
        if self.one_by_one:
            args = self._gathered(args)
        count = len(self.positional)
        if len(args) > count and not self.open_end:
            raise self._wrong("too many arguments", f"{len(args)} by position")
        given = list(args)
        for position, take in enumerate(self._takes[:len(given)]):
            try:
                given[position] = take(given[position])
            except Refused:
                raise self._refused(self.positional[position], given[position]) from None
        named = self._by_name(kwargs, len(given)) if kwargs else kwargs
        if len(given) < len(self.required):
            missing = [n for n in self.required if n not in named and n not in self.positional[:len(given)]]
            if missing:
                raise self._wrong("an argument is missing", f"no {missing[0]}")
        return given, named

    def _by_name(self, kwargs: dict[str, Any], placed: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in kwargs.items():
            new = name if name in self.named else self.older.get(name, name)
            if new in found or new in self.positional[:placed] or (new != name and new in kwargs):
                raise self._wrong(f"an argument is given twice{f': {name!r} is its older name' if new != name else ''}", new)
            if new not in self.named:
                if not self.open_names:
                    close = difflib.get_close_matches(name, self.named, 1)
                    raise self._wrong("there is no such parameter", name, f"did you mean {close[0]!r}?" if close else "")
                found[new] = value
                continue
            try:
                found[new] = self.kinds[new].take(value)
            except Refused:
                raise self._refused(name, value) from None
        return found

    def _gathered(self, args: Sequence[Any]) -> Sequence[Any]:
        """The arguments, with operands that are given one after another in the lists that they stand for."""
        start = self.positional.index(self.one_by_one[0].removesuffix("..."))
        if len(args) <= start or not isinstance(args[start], XlaOp):
            return args
        kinds = (XlaOp, list, tuple, *NUMBERS) if self.numbers else (XlaOp, list, tuple)
        run = start
        while run < len(args) and isinstance(args[run], kinds):
            run += 1
        many = sum(name.endswith("...") for name in self.one_by_one)
        single, length = len(self.one_by_one) - many, run - start
        each = (length - single) // many
        if (each < 2 and len(self.one_by_one) > 1) or each * many + single != length:
            return args
        groups: list[Any] = []
        at = start
        for name in self.one_by_one:
            several = name.endswith("...")
            groups.append(list(args[at:at + each]) if several else args[at])
            at += each if several else 1
        return [*args[:start], *groups, *args[run:]]

    def _wrong(self, what: str, got: str, hint: str = "") -> WrongArguments:
        return WrongArguments(what, subject=self.function.__name__, got=got, hint=hint,
                              expected=f"{self.function.__name__}({', '.join(self.named)})")

    def _refused(self, name: str, value: Any) -> InvalidArgument:
        kind = self.kinds[name if name in self.kinds else self.older[name]]
        if kind is kind_of(PrimitiveType):
            require_element_type(value, self.function.__name__)
        hint = hint_for(value) if "XlaOp" in kind.words else ""
        if isinstance(value, XlaOp) and "XlaOp" not in kind.words:
            hint = f"{self.function.__name__}({', '.join(self.named)}): the operands come first, in this order"
        return InvalidArgument(f"{name} is of the wrong kind", subject=self.function.__name__, got=described(value),
                               expected=kind.words, hint=hint)


def documented(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a documented function find its builder, check its arguments, and run at once where it gets values and no ops.

    Given XlaOps it runs as it is. A `builder` parameter need not be given, as in the documents: it is that of the XlaOps among
    the arguments; and it may be given first to any function, as XLA's client library has it. Values (torch tensors, tokens;
    anywhere, also in lists) go to what `run_at_once_with` has installed, as do calls without any operand and builder
    (``Iota(shape, 0)``). What each parameter takes follows from its annotation (`_kinds.py`). The type says that a function
    takes both.
    """
    checker = ArgumentChecker(function)
    parameters = inspect.signature(function).parameters
    takes_builder, leads = "builder" in parameters, next(iter(parameters), "") == "builder"

    def build(builder: Builder | None, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        given, named = checker.checked(args, kwargs)
        if leads:
            return function(builder, *given, **named)
        return function(*given, **named, builder=builder) if takes_builder else function(*given, **named)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not kwargs:
            result = _immediate.run_ready(build, args)
            if result is not None:
                return result
        builder = None
        if args and (isinstance(args[0], Builder) or (leads and args[0] is None)):
            builder, args = args[0], args[1:]
        if takes_builder and kwargs:
            builder = kwargs.pop("builder", builder)
        values: list[Any] = []
        ops: list[XlaOp] = []
        _collect((*args, *kwargs.values()) if kwargs else args, values, ops)
        if builder is None and ops:
            builder = ops[0].builder
        try:
            if values and ops:
                raise tensor_beside(values[0], ops[0].builder)
            if values or (takes_builder and builder is None):
                return _immediate.run(build, function.__name__, args, kwargs, values)
            return build(builder, args, kwargs)
        except XlaError as error:
            error.located(subject=function.__name__)
            raise

    call.checker = checker  # pyright: ignore[reportAttributeAccessIssue] (for `renamed` and `variadic`)
    return call


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check the arguments of a function that is beside the documented ones: it needs no builder, or has to be given one."""
    checker = ArgumentChecker(function)
    leads = next(iter(inspect.signature(function).parameters), "") == "builder"

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        builder: tuple[Any, ...] = ()
        if leads:
            builder, args = ((kwargs.pop("builder"),), args) if "builder" in kwargs else (args[:1], args[1:])
            if not builder or not isinstance(builder[0], Builder):
                raise InvalidArgument("a builder is missing", subject=function.__name__,
                                      got=described(builder[0]) if builder else "no arguments", expected="an XlaBuilder first")
        given, named = checker.checked(args, kwargs)
        return function(*builder, *given, **named)

    return call


def renamed(**older: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a documented function take parameters by the names that older documents, or XLA's client library, give them:
    ``older_name="name"``."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        function.checker.older.update(older)  # pyright: ignore[reportFunctionMemberAccess]
        return function

    return decorate


def variadic(*names: str, numbers: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a documented function take operands one by one, as documents write ``operands...``: the parameters `names`, which
    follow one another, of which those with ``...`` get equally many. With `numbers`, operands may be numbers too."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        checker = function.checker  # pyright: ignore[reportFunctionMemberAccess]
        checker.one_by_one, checker.numbers = names, numbers
        return function

    return decorate


def _collect(given: Iterable[Any], values: list[Any], ops: list[XlaOp]) -> None:
    """The tensors and tokens, and the XlaOps, among arguments, also in lists."""
    for value in given:
        if isinstance(value, _immediate.types):
            values.append(value)
        elif isinstance(value, XlaOp):
            ops.append(value)
        elif isinstance(value, LISTS):
            _collect(value, values, ops)
