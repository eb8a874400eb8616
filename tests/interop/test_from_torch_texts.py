"""Models whose Python makes text of values: it is eager torch's and an assumption, unless it only goes to a message."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import logging
import math
import numbers
import pickle
import struct
import sys
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import xla_torch
from xla_torch.api.torch_members import RetracedFunction
from xla_torch.errors import AssumptionError, UnsupportedError, XlaWarning

F64 = torch.float64
X = torch.tensor([0.5, 1.0, 2.0, 3.0], dtype=F64)
OTHER = torch.tensor([0.5, 1.25, 2.0, 300.0], dtype=F64)
LOG = logging.getLogger(__name__)


def hashed(x: torch.Tensor) -> torch.Tensor:
    return x * (hash(x.sum().item()) % 7)


TEXTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "repr": lambda x: x * len(repr(x.detach())),
    "str": lambda x: x * len(str(x.detach().sum())),
    "an f-string": lambda x: x * len(f"{x.detach()}"),
    "an f-string of repr": lambda x: x * len(f"{x.detach()!r}"),
    "an f-string of a scalar": lambda x: x * len(f"{x.sum()}"),
    "an f-string with a format": lambda x: x * float(f"{x.sum():.1f}"),
    "format": lambda x: x * float(format(x.sum(), ".2f")),
    "a format": lambda x: x * float("{:.2f}".format(x.sum())),  # noqa: UP032
    "percent": lambda x: x * len("%s" % x.detach().sum()),  # noqa: UP031
    "percent with a format": lambda x: x * float("%.2f" % x.detach().sum()),  # noqa: UP031
    "a list of tensors": lambda x: x * len(str([x.detach()])),
    "what a mask chooses": lambda x: x * len(str(x.detach()[x > 1.1])),
    "more than fits": lambda x: x * len(str(x.detach().repeat(300))),
    "str of a number": lambda x: x * len(str(x.sum().item())),
    "repr of an integer": lambda x: x * len(repr(x.long().sum().item())),
    "an f-string of a number": lambda x: x * len(f"{x.sum().item()}"),
    "a number with a format": lambda x: x * len(f"{x.sum().item():.12f}"),
    "a number in arithmetic": lambda x: x * len(str(x.sum().item() * 2 + 1)),
    "a truth": lambda x: x * len(str((x < 4).all().item())),
    "tolist": lambda x: x * len(str(x.tolist())),
    "numpy": lambda x: x * len(str(x.detach().numpy())),
    "an array of NumPy": lambda x: x * len(np.array2string(np.asarray(x.detach()))),
    "a size": lambda x: x * len(str(x[x > 1.1].shape)),
    "hash": hashed,
    "pickle": lambda x: x * len(pickle.dumps(x.long().sum().item() * 100)),
    "json": lambda x: x * len(json.dumps(x.tolist())),
    "struct": lambda x: x * struct.pack("d", x.sum().item())[6],
    "a fraction": lambda x: x * float(Fraction(x.sum().item())),
    "a key": lambda x: x * {6.5: 2}.get(x.sum().item(), 3),
    "an index": lambda x: x * [1, 2, 3, 4][int(x.argmin().item())] * int(x.sum().item()),
    "the type of a number": lambda x: x * (2 if type(x.long().sum().item()) is int else 3)}


@pytest.mark.parametrize("name", TEXTS)
def test_text_is_that_of_eager_torch_and_an_assumption(name: str):
    ours = xla_torch.from_torch(TEXTS[name], X)
    torch.testing.assert_close(ours(X), TEXTS[name](X))
    assert {assumption.file for assumption in ours.assumptions} == {__file__}
    with pytest.raises(AssumptionError, match=__file__):
        ours(OTHER)


def test_text_of_a_tensor_is_one_assumption_and_is_traced_again():
    family = xla_torch.from_torch(TEXTS["repr"], X, assumptions="retrace")
    for x in (X, OTHER, X):
        torch.testing.assert_close(family(x), TEXTS["repr"](x))
    assert isinstance(family, RetracedFunction)
    assert len(family.members) == 2
    found = {str(assumption) for member in family.members for assumption in member.assumptions}
    assert "repr(x.detach()) is tensor([0.5000, 1.0000, 2.0000, 3.0000], dtype=torch.float64)" in found
    assert len(found) == 2


def test_trusted_text_warns():
    with pytest.warns(XlaWarning, match=r"trusts.* repr\(x.detach\(\)\) is tensor"):
        ours = xla_torch.from_torch(TEXTS["repr"], X, assumptions="trust")
    torch.testing.assert_close(ours(OTHER), OTHER * len(repr(X)))


class Held(nn.Module):
    def __init__(self, name: str):
        super().__init__()
        self.name, self.weight = name, nn.Parameter(X.clone())
        self.register_buffer("mean", X * 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * len(f"{getattr(self, self.name)}")


@pytest.mark.parametrize("name", ["weight", "mean"])
def test_text_of_a_parameter_or_buffer(name: str):
    model = Held(name)
    ours = xla_torch.from_torch(model, X)
    torch.testing.assert_close(ours(ours.weights, OTHER), model(OTHER))
    with pytest.raises(AssumptionError):
        ours({**ours.weights, name: ours.weights[name] * 1.5}, X)


def test_text_that_names_a_gradient_is_refused():
    with pytest.raises(UnsupportedError, match=r"names the function of its gradient(.|\n)*detach"):
        xla_torch.from_torch(lambda x: x * len(str(x.sin())), X.clone().requires_grad_())


# ------------------------------------------------------------------------------------------- messages


def printed(x: torch.Tensor) -> torch.Tensor:
    print(f"loss {x.sum().item():.2f}", x.detach(), file=sys.stderr)
    print(x.sum().item(), "%.1f" % x.mean().item())  # noqa: UP031
    return x * 2


def printed_floats(x: torch.Tensor) -> torch.Tensor:
    y = x.sum().item()
    print(float(x.sum()), round(y, 2), x.tolist(), int(y))
    return x * y


def logged(x: torch.Tensor) -> torch.Tensor:
    logging.getLogger("values").warning("loss %s", x.sum().item())
    LOG.error(f"loss {x.sum():.3f}")
    return x * 2


def warned(x: torch.Tensor) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn(f"sum {x.sum().item():.2f}", stacklevel=1)
    return x * 2


def named(x: torch.Tensor) -> torch.Tensor:
    message = (
        "the data are not standardised "
        f"(mean = {x.mean()}, sum = {x.sum().item():.2f})"
    )
    if x.shape[0] > 100:
        raise ValueError(message)
    print(message)
    return x * 2


def named_and_measured(x: torch.Tensor) -> torch.Tensor:
    message = f"mean {x.mean().item():.2f}"
    print(message)
    return x * len(message)


def raised(x: torch.Tensor) -> torch.Tensor:
    assert x.sum() > -100, f"{x.sum().item():.2f}"
    if x.sum() < -100:
        raise ValueError(f"{x.sum().item():.2f}")
    return x * 2


@pytest.mark.parametrize("function", [printed, printed_floats, logged, warned, named])
def test_text_that_only_goes_to_a_message_is_no_assumption(function: Callable[[torch.Tensor], torch.Tensor]):
    ours = xla_torch.from_torch(function, X)
    assert not ours.assumptions
    torch.testing.assert_close(ours(OTHER), function(OTHER))


def test_text_of_a_name_that_is_also_read_is_an_assumption():
    ours = xla_torch.from_torch(named_and_measured, X)
    assert ours.assumptions
    with pytest.raises(AssumptionError):
        ours(OTHER)


def test_text_of_an_error_that_is_not_raised_is_no_assumption():
    ours = xla_torch.from_torch(raised, X)
    torch.testing.assert_close(ours(OTHER), OTHER * 2)
    assert {assumption.value for assumption in ours.assumptions} == {True, False}


def test_a_printed_value_is_that_of_the_example(capsys: pytest.CaptureFixture[str]):
    xla_torch.from_torch(printed_floats, X)
    assert "6.5 6.5 [0.5, 1.0, 2.0, 3.0] 6\n" in capsys.readouterr().out


def kept_by_a_method(x: torch.Tensor) -> torch.Tensor:
    kept: list[str] = []
    print(kept.append(str(x.sum().item())))
    return x * len(kept[0])


def kept_by_a_name(x: torch.Tensor) -> torch.Tensor:
    print(kept := str(x.sum().item()))
    return x * len(kept)


def kept_in_a_file(x: torch.Tensor) -> torch.Tensor:
    file = io.StringIO()
    print(x.sum().item(), file=file)
    return x * len(file.getvalue())


def kept_from_output(x: torch.Tensor) -> torch.Tensor:
    with contextlib.redirect_stdout(io.StringIO()) as file:
        print(x.sum().item())
    return x * len(file.getvalue())


def kept_by_another_print(x: torch.Tensor) -> torch.Tensor:
    kept: list[Any] = []
    print = kept.append
    print(f"{x.sum().item()}")
    return x * len(kept[0])


def kept_from_an_error(x: torch.Tensor) -> torch.Tensor:
    try:
        raise ValueError(f"{x.sum().item()}")
    except ValueError as error:
        return x * len(str(error))


KEPT = [kept_by_a_method, kept_by_a_name, kept_in_a_file, kept_from_output, kept_by_another_print, kept_from_an_error]


@pytest.mark.parametrize("function", KEPT)
def test_text_that_a_message_may_keep_is_an_assumption(function: Callable[[torch.Tensor], torch.Tensor]):
    ours = xla_torch.from_torch(function, X)
    torch.testing.assert_close(ours(X), function(X))
    with pytest.raises(AssumptionError, match=__file__):
        ours(OTHER)


# ------------------------------------------------------------------------------------------- numbers


def without_nan(x: torch.Tensor) -> torch.Tensor:
    total = x.sum().item()
    return x.nan_to_num() if total != total else x * total


def at_most_itself(x: torch.Tensor) -> torch.Tensor:
    total = x.sum().item()
    return x * total if total <= total else x.nan_to_num()


NUMBERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "unlike itself": without_nan, "at most itself": at_most_itself,
    "isnan": lambda x: x.nan_to_num() if math.isnan(x.sum().item()) else x * 2,
    "isfinite": lambda x: x * 2 if math.isfinite(x.sum().item() * 2 + 1) else x.nan_to_num()}


@pytest.mark.parametrize("name", NUMBERS)
def test_whether_a_number_is_nan_is_all_that_is_assumed(name: str):
    ours = xla_torch.from_torch(NUMBERS[name], X)
    torch.testing.assert_close(ours(OTHER), NUMBERS[name](OTHER))
    with pytest.raises(AssumptionError, match=__file__):
        ours(X * math.nan)
    family = xla_torch.from_torch(NUMBERS[name], X, assumptions="retrace")
    torch.testing.assert_close(family(X * math.nan), NUMBERS[name](X * math.nan))


VALUES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a float": lambda x: x * (2 if isinstance(x.sum().item(), float) else 3),
    "a number": lambda x: x * (x.sum().item() if isinstance(x.sum().item(), numbers.Number) else 3),
    "a copy": lambda x: x * copy.deepcopy(x.sum().item()),
    "an absolute": lambda x: x * abs(x.mean().item()) - x.min().item() ** 2}


@pytest.mark.parametrize("name", VALUES)
def test_a_number_is_a_number_and_stays_a_value(name: str):
    ours = xla_torch.from_torch(VALUES[name], X)
    assert not ours.assumptions
    for x in (OTHER, -X):
        torch.testing.assert_close(ours(x), VALUES[name](x))


def test_a_negative_float_that_is_frozen():
    ours = xla_torch.from_torch(lambda x: x * float(x.detach().min()), -X)
    torch.testing.assert_close(ours(-X), X * 3)
    with pytest.raises(AssumptionError):
        ours(X)


def test_a_number_that_is_returned_is_computed_in_each_call():
    ours = xla_torch.from_torch(lambda x: (x.sin(), x.sum().item(), x.sum().item() - 1), X)
    torch.testing.assert_close(ours(OTHER), (OTHER.sin(), OTHER.sum(), OTHER.sum() - 1))


def test_a_random_number_that_is_returned_is_no_assumption():
    def loss(x: torch.Tensor) -> float:
        drawn = (x * torch.rand(4, dtype=F64)).sum()
        return -(drawn.item() - x.sum().item()) if isinstance(drawn.item(), numbers.Number) else 0.0

    ours = xla_torch.from_torch(loss, X)
    assert not ours.assumptions
    first, _ = ours(ours.weights, X)
    other, _ = ours(ours.weights, X * 2)
    torch.testing.assert_close(other, first * 2)


def test_a_constant_that_is_returned_is_checked():
    ours = xla_torch.from_torch(lambda x: (x, float(x.sum())), X)
    assert ours(X)[1].item() == float(X.sum())
    with pytest.raises(AssumptionError):
        ours(X * 2)


def test_text_within_a_transform_is_refused():
    with pytest.raises(UnsupportedError, match=r"the text of a tensor within torch\.func"):
        xla_torch.from_torch(torch.vmap(lambda row: row * len(str(row))), X)
