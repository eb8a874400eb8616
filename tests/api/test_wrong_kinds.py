"""Every function of `xla_torch.ops` is fed with values of wrong kinds, in each of its parameters, on ops and on tensors: it takes
them, or refuses them in an error of our own, which says what it is about."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from support.document_signatures import FORMS, Arguments, parsed
from xla_torch import F32, Shape, XlaBuilder, XlaOp, ops
from xla_torch.distributed import feeds
from xla_torch.errors import InternalError, XlaError
from xla_torch.hlo.ir import Token
from xla_torch.storage.dtypes import torch_dtype
from xla_torch.types import require_element_type

NAMES = sorted(name for name in dir(ops) if name[0].isupper() and isinstance(getattr(ops, name), types.FunctionType))

WRONG: list[Any] = [
    None, True, 2.5, -1, 10**30, 1e300, float("nan"), 1j, "text", b"bytes", [], [1.5], (1, 2, 3), [[1, 2], [3]], {}, {"a": 1},
    {1}, object(), len, int, np.float32(1.5), np.int64(7), np.zeros((2, 2)), np.array(["a"]), np.array([None]),
    Shape.parse("f32[7]"), Shape.parse("(f32[], token[])"), F32, range(3), slice(1), ops.Padding.SAME,
    ops.DotDimensionNumbers((0,), (0,)), [None],
]
"""What stands in the place of one argument."""

VALUES = [torch.ones(2, 3), torch.ones(()), torch.ones(2, dtype=torch.int32), torch.ones(2, dtype=torch.bfloat16), torch.ones(0),
          Token()]
"""Wrong values, which a builder gets as parameters."""

_FORM = {parsed(form).function: parsed(form) for form in reversed(FORMS)}


def rightly(name: str) -> tuple[XlaBuilder, dict[str, Any]]:
    """A builder, and arguments that the function takes, as far as the documents have a form of it."""
    if name in _FORM and not _FORM[name].by_name:
        made = Arguments(_FORM[name])
        return made.builder, {p: made.value(p) for p in _FORM[name].parameters}
    builder = XlaBuilder("program")
    parameters = inspect.signature(getattr(ops, name)).parameters.values()
    needed = [p.name for p in parameters if p.default is p.empty and p.name != "builder" and p.kind is not p.VAR_KEYWORD]
    return builder, {p: builder.parameter(k, Shape.parse("f32[2]")) for k, p in enumerate(needed)}


def as_tensors(value: Any) -> Any:
    """The same arguments, with tensors in the place of ops."""
    if isinstance(value, XlaOp):
        leaves = [Token() if leaf.is_token else torch.ones(leaf.dimensions, dtype=torch_dtype(leaf.element_type))
                  for leaf in value.shape.leaves()]
        return tuple(leaves) if value.shape.is_tuple else leaves[0]
    return [as_tensors(v) for v in value] if type(value) in (list, tuple) else value


def as_ops(builder: XlaBuilder, value: Any) -> Any:
    if isinstance(value, Token):
        return ops.CreateToken(builder)
    if isinstance(value, torch.Tensor):
        element = {torch.float32: "f32", torch.int32: "s32", torch.bfloat16: "bf16"}[value.dtype]
        number = sum(i.is_parameter for i in builder.instructions)
        return builder.parameter(number, Shape.parse(f"{element}{list(value.shape)}".replace(" ", "")))
    return value


def tried(name: str, arguments: list[Any], builder: Any = ()) -> None:
    """Call a function. What it raises must be an error of our own, with a subject, and no defect that we report of ourselves."""
    caught: XlaError | None = None
    try:
        getattr(ops, name)(*builder, *arguments)
    except XlaError as error:
        caught = error
    assert not isinstance(caught, InternalError), caught
    assert caught is None or caught.subject, caught


NEEDS_OTHERS = {"Infeed", "InfeedWithToken", "Recv", "RecvFromHost", "RecvToHost", "RecvWithToken", "RecvWithTokens", "RecvStart",
                "Parameter", "RecvDone"}
"""Functions that wait for the host, or that have no meaning without a builder: tried on ops alone."""


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """What is sent here nobody receives."""
    yield
    feeds.clear()


@pytest.mark.parametrize("name", NAMES)
def test_wrong_kinds_are_refused_in_words(name: str) -> None:
    _, right = rightly(name)
    takes_builder = "builder" in inspect.signature(getattr(ops, name)).parameters
    for place in range(len(right)):
        for wrong in [*WRONG, *VALUES]:
            builder, arguments = rightly(name)
            given = list(arguments.values())
            given[place] = as_ops(builder, wrong)
            tried(name, given, (builder,) if takes_builder else ())
            if name not in NEEDS_OTHERS:
                given = as_tensors(list(arguments.values()))
                given[place] = wrong
                tried(name, given)


_CONV, _DOT, _MOVED = {"lhs": "f64", "rhs": "f64"}, {"lhs": "f64 s64", "rhs": "f64 s64"}, {"operand": "f64 s64"}
TAKES_OTHERS = {
    "Conv": _CONV, "ConvGeneral": _CONV, "ConvGeneralDilated": _CONV, "ConvWithGeneralDimensions": _CONV,
    "ConvWithGeneralPadding": _CONV, "Dot": _DOT, "DotGeneral": _DOT, "RaggedDot": {**_DOT, "group_sizes": "s64"},
    "ScaledDot": {**_DOT, "lhs_scale": "f64", "rhs_scale": "f64"}, "Gather": {**_MOVED, "start_indices": "s64"},
    "Scatter": {"scatter_indices": "s64"}, "DynamicReshape": _MOVED, "DynamicSlice": _MOVED, "SetDimensionSize": _MOVED,
    "Tuple": {"elements": "f64 s64"},
}
"""Which operands may be of another type than they are in the documents' forms, beside the others as they are."""


@pytest.mark.parametrize("name", [name for name in _FORM if name in NAMES])
def test_operands_of_other_types_are_refused(name: str) -> None:
    if _FORM[name].by_name:
        return
    taken: dict[str, set[str]] = {}
    for path in _paths(list(rightly(name)[1].values())):
        for element in ("f64", "s64"):
            builder, arguments = rightly(name)
            given = list(arguments.values())
            if len(_paths(given)) < 2:
                continue
            place = list(arguments)[path[0]]
            try:
                getattr(ops, name)(*_with_type(given, path, builder, element))
            except XlaError:
                continue
            taken.setdefault(place, set()).add(element)
    assert {place: " ".join(sorted(found)) for place, found in taken.items()} == TAKES_OTHERS.get(name, {})


def _paths(value: Any, path: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    """Where in arguments there are arrays."""
    if isinstance(value, XlaOp):
        return [path] if value.shape.is_array else []
    return [p for k, v in enumerate(value) for p in _paths(v, (*path, k))] if type(value) in (list, tuple) else []


def _with_type(value: Any, path: tuple[int, ...], builder: XlaBuilder, element: str) -> Any:
    if not path:
        return builder.parameter(sum(i.is_parameter for i in builder.instructions),
                                 value.shape.with_element_type(require_element_type(element)))
    return [_with_type(v, path[1:], builder, element) if k == path[0] else v for k, v in enumerate(value)]


@pytest.mark.parametrize("name", NAMES)
def test_wrong_numbers_of_arguments_are_refused_in_words(name: str) -> None:
    builder, arguments = rightly(name)
    tried(name, [])
    tried(name, [builder])
    tried(name, [builder, *arguments.values(), *[None] * 20])
    tried(name, [torch.ones(2)] * 30)
    with pytest.raises((TypeError, XlaError)):
        getattr(ops, name)(builder, *arguments.values(), no_such_parameter=1)
