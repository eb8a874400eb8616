"""The stub of `xla_torch.ops`, by which editors and type checkers know its functions: on ops and on tensors.

It is generated from the functions' own annotations, which are also what checks arguments when they are called. A function has an
overload for a builder that is given first, one for tensors, and one for XlaOps. Older parameter names are not in it.
"""

from __future__ import annotations

import collections.abc
import enum
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xla_torch import PrimitiveType, XlaOp, ops
from xla_torch.functions.hlo_builder import Builder, Liftable, Region

STUB = Path("xla_torch/ops/__init__.pyi")

HEAD = '''"""The documented functions, as editors and type checkers see them: generated from their annotations by `make pages`."""

# ruff: noqa
# pyright: reportOverlappingOverload=false
from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np
from torch import Tensor, dtype

{imports}

Liftable = bool | int | float | complex | np.ndarray[Any, np.dtype[Any]] | np.number[Any] | np.bool_
"""What may stand beside an op or tensor as an operand."""
ElementType = PrimitiveType | str | dtype | np.dtype[Any] | type[np.generic]
Region = XlaComputation | Computation | Callable[[XlaOp, XlaOp], Any] | Callable[..., Any]
"""A computation, or a Python function of XlaOps that stands for one."""
RegionOfValues = XlaComputation | Computation | Callable[..., Any]
"""The same of values as they are, which may be tuples."""
'''

_NUMBERS = set(typing.get_args(Liftable))
Parameter = inspect.Parameter


class Written:
    """Annotations as texts of the stub, and what they need to be imported."""

    def __init__(self) -> None:
        self.imports: set[tuple[str, str]] = {
            ("xla_torch.core.types", "PrimitiveType"), ("xla_torch.functions.hlo_builder", "Builder"),
            ("xla_torch.functions.hlo_builder", "XlaOp"),
            ("xla_torch.runtime.computation", "XlaComputation"), ("xla_torch.hlo.ir", "Computation")}

    def text(self, annotation: Any, value: str) -> str:
        """The annotation, with `value` for each XlaOp."""
        if annotation in (Any, None, type(None), Ellipsis):
            return {Any: "Any", Ellipsis: "..."}.get(annotation, "None")
        if annotation == Region:
            return "Region"
        if annotation is XlaOp:
            return value
        if annotation is PrimitiveType:
            return "ElementType"
        origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
        if origin in (typing.Union, types.UnionType):
            return self._union(parts, value)
        if origin is collections.abc.Callable:
            return "Callable[..., Any]"
        if origin is not None:
            name = {collections.abc.Sequence: "Sequence"}.get(origin, origin.__name__)
            return f"{name}[{', '.join(self.text(part, value) for part in parts)}]"
        if annotation.__module__ != "builtins":
            self.imports.add((annotation.__module__, annotation.__name__))
        return f"{annotation.__name__} | str" if issubclass(annotation, enum.Enum) else annotation.__name__

    def _union(self, parts: Sequence[Any], value: str) -> str:
        rest = [part for part in parts if part not in _NUMBERS] if np.ndarray in parts else parts
        texts = [word for part in rest for word in self.text(part, value).split(" | ")]
        if len(rest) < len(parts):
            texts.append("Liftable")
        return " | ".join(sorted(dict.fromkeys(texts), key=lambda t: t == "None"))


def stub() -> str:
    """The text of the stub."""
    written, made, listed = Written(), [], []
    for name, found in sorted(vars(ops).items()):
        if name.startswith("_") or isinstance(found, types.ModuleType):
            continue
        listed.append(name)
        if isinstance(found, types.FunctionType):
            made.append("\n" + "".join(_function(name, found, written)))
        else:
            written.imports.add((found.__module__, name))
    imports = "\n".join(f"from {module} import {name} as {name}" if name in listed else f"from {module} import {name}"
                        for module, name in sorted(written.imports))
    return HEAD.format(imports=imports) + "\n__all__ = [\n" + "".join(f"    {name!r},\n".replace("'", '"') for name in listed) \
        + "]\n" + "".join(made)


def _function(name: str, function: Callable[..., Any], written: Written) -> Iterator[str]:
    inner = inspect.unwrap(function)
    hints = typing.get_type_hints(inner)
    parameters = [p.replace(annotation=hints[p.name]) for p in inspect.signature(inner).parameters.values()]
    result = hints["return"]
    if not hasattr(function, "checker"):
        yield _definition(name, parameters, "XlaOp", written.text(result, "XlaOp"), written)
        return
    tokens = inner.__module__.endswith(".token")
    tuples, whole = _may_be_tuple(inner), inner.__module__.endswith((".control", ".internal"))
    value = "Tensor | Token" if tokens else "Tensor"
    if tokens:
        written.imports.add(("xla_torch.hlo.ir", "Token"))
    built = written.text(result, "XlaOp")
    own = [p for p in parameters if p.name != "builder"]
    forms: list[tuple[list[Parameter], str, str]] = []
    at_once = f"list[{value}]" if result is not XlaOp else "Any" if tuples else "Tensor"
    if len(own) < len(parameters):
        forms += [(_with_builder(parameters, form, Builder), "XlaOp", built) for form in _forms(own, function)]
        forms += [(_with_builder(parameters, form, None), value, at_once) for form in _forms(own, function)]
    for form in _forms(own, function):
        alone = _alone(form)
        if alone is not None and at_once == "Any":
            forms.append((alone, value, "Tensor"))
        forms.append((form, value, at_once))
    if any(_holds_ops(p.annotation) for p in own):
        forms += [(form, "XlaOp", built) for form in _forms(own, function)]
    for form, operand, made in forms:
        text = _definition(name, form, operand, made, written)
        yield ("@overload\n" if len(forms) > 1 else "") + (text.replace(": Region", ": RegionOfValues") if whole else text)


def _forms(parameters: list[Parameter], function: Any) -> list[list[Parameter]]:
    """The parameters, and those in which operands that a list holds are given one by one, where nothing must follow them."""
    group = [name.removesuffix("...") for name in function.checker.one_by_one]
    at = next((k for k, p in enumerate(parameters) if [p.name] == group), None)
    if at is None or any(p.default is p.empty for p in parameters[at + 1:]):
        return [parameters]
    element = next(part for part in (parameters[at].annotation, *typing.get_args(parameters[at].annotation))
                   if typing.get_origin(part) is collections.abc.Sequence)
    spread = Parameter(parameters[at].name, Parameter.VAR_POSITIONAL, annotation=typing.get_args(element)[0])
    return [parameters, [*parameters[:at], spread, *(p.replace(kind=Parameter.KEYWORD_ONLY) for p in parameters[at + 1:])]]


def _with_builder(parameters: list[Parameter], form: list[Parameter], annotation: Any) -> list[Parameter]:
    (builder,) = [p for p in parameters if p.name == "builder"]
    builder = builder.replace(annotation=annotation)
    return [builder, *form] if builder is parameters[0] or builder.kind is not Parameter.KEYWORD_ONLY else [*form, builder]


def _alone(form: list[Parameter]) -> list[Parameter] | None:
    """The parameters of the form in which one array is given where several could be; None where there is no such one."""
    several = XlaOp | collections.abc.Sequence[XlaOp]
    if not any(p.annotation == several for p in form):
        return None
    return [p.replace(annotation=XlaOp) if p.annotation == several else p for p in form]


def _may_be_tuple(function: Any) -> bool:
    """Whether results on tensors may be anything but a tensor, as far as is said of the function."""
    family = function.__module__.rpartition(".")[2]
    return family in ("control", "internal", "token") or "tuple" in function.__doc__


def _holds_ops(annotation: Any) -> bool:
    return annotation is XlaOp or any(map(_holds_ops, typing.get_args(annotation)))


def _definition(name: str, parameters: list[Parameter], value: str, result: str, written: Written) -> str:
    parts: list[str] = []
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY and not any(part.startswith("*") for part in parts):
            parts.append("*")
        stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        parts.append(f"{stars}{p.name}: {written.text(p.annotation, value)}{'' if p.default is p.empty else ' = ...'}")
    return f"def {name}({', '.join(parts)}) -> {result}: ...\n"
