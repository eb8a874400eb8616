"""Models whose Python looks at values: traced with the example's, and each decision is checked in a call."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import distributions

import xla_torch
from xla_torch.api.torch_members import RetracedFunction
from xla_torch.errors import AssumptionError, ExecutionError, UnsupportedError, XlaWarning

pytestmark = pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True to a scalar")
X = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
CODES = torch.tensor([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], dtype=torch.float64)


def converged(x: torch.Tensor) -> torch.Tensor:
    while x.square().sum() > 1:
        x = x / 2
    return x.sin()


def newton(x: torch.Tensor) -> torch.Tensor:
    root = x
    for _ in range(20):
        after = (root + x / root) / 2
        if torch.allclose(after, root):
            break
        root = after
    return root


def early(x: torch.Tensor) -> torch.Tensor:
    if bool(torch.isnan(x).any()):
        return torch.zeros_like(x)
    if x.max().item() > 3.5:
        return x.exp()
    return x.sin()


def euler(x: torch.Tensor) -> torch.Tensor:
    time, step = 0.0, 0.5
    while time < 1:
        whole = x - step * x.square()
        half = x - step / 2 * x.square()
        half = half - step / 2 * half.square()
        if (whole - half).abs().max().item() > 0.05:
            step = step / 2
            continue
        x, time = half, time + step
    return x


def quantised(x: torch.Tensor) -> torch.Tensor:
    rows = x.reshape(2, 2)
    nearest = torch.cdist(rows, CODES).argmin(1)
    used = F.one_hot(nearest, 3).sum(0)
    if (used == 0).any():
        rows = rows + (CODES[nearest] - rows).detach()
    return rows * len(torch.unique(nearest))


def detached(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        with torch.no_grad():
            scale = x.norm()
        return x / scale + x.detach() * x
    return x


def asserted(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 100:
        raise ValueError("too large")
    return x.log()


def written(x: torch.Tensor) -> torch.Tensor:
    if not torch.isnan(x).any() and x.sum().item() > 0.3:
        x = x.clone()
        x[0] = 1
    return x * x.detach().sum().item()


ROWS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor | None]] = {
    "all": (lambda x: x * 2 if (x > 0).all() else x - 1, -X),
    "any": (lambda x: x.masked_fill(x < 0, 0) if (x < 0).any() else x.exp(), -X),
    "not": (lambda x: x.exp() if not (x < 0).any() else x.sin(), -X),
    "and": (lambda x: x * 3 if x[0] > 0 and x[1] > 1 else x, X / 4),
    "a conditional expression of a number": (lambda x: x.sin() if x.sum().item() > 3 else x.cos(), -X),
    "equal": (lambda x: x.exp() if torch.equal(x, x.abs()) else x, -X),
    "an error for large values": (asserted, None),
    "a normal distribution": (lambda x: distributions.Normal(x, x.abs(), validate_args=True).log_prob(x * 2), None),
    "a categorical distribution": (lambda x: distributions.Categorical(probs=x / x.sum(), validate_args=True).entropy(), None),
    "a gamma distribution": (lambda x: distributions.Gamma(x, x + 1, validate_args=True).log_prob(x), None),
    "a loop until convergence": (converged, X * 4),
    "newton's method": (newton, X * 1e6),
    "early returns": (early, X / 2),
    "adaptive steps": (euler, X / 8),
    "a codebook": (quantised, X[[0, 1, 0, 1]] * 9),
    "lengths": (lambda x: x[None, :int(x.max())].expand(int(x[0]), -1) * 2, X + 1),
    "an integer of a fraction": (lambda x: x.repeat(int(x[1] + 0.5)), X + 1),
    "slices": (lambda x: x[int(x[0]):int(x[2])].exp(), X[[1, 1, 3, 0]]),
    "a range": (lambda x: sum((x ** k for k in range(int(x[1]))), start=x), X[[1, 2, 0, 3]]),
    "the size of unique": (lambda x: x * torch.unique(x.round()).shape[0] if torch.unique(x).numel() > 2 else x, None),
    "a mask's choice": (lambda x: x[x > 1.5].sum() if x[x > 1.5].numel() else x.sum(), None),
    "a float that is frozen": (lambda x: x * float(x.detach().max()), X + 1),
    "contained": (lambda x: x.exp() if 3.0 in x else x.sin(), X + 5),
    "sizes of a split": (lambda x: torch.cat([part * k for k, part in enumerate(x.split(x[[0, 2]].long().tolist()))]),
                         X[[2, 1, 0, 3]]),
    "how many are distinct": (lambda x: x * sum(range(len(torch.unique(x)))), X[[0, 0, 1, 1]]),
    "detached": (detached, -X),
    "a result that is the argument": (lambda x: x if 0 < x.sum() < 100 else -x, -X),
    "a result of other elements": (lambda x: x[0] if (x[1:] > 0).all() else -x[0], -X),
    "places that are a list": (lambda x: x[0] * sum(i for (i,) in (x > 2.5).nonzero().tolist()), X - 1),
    "written": (written, -X)}
EACH = pytest.mark.parametrize("name", ROWS)


def gradient(function: Callable[..., Any], x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    given = x.clone().requires_grad_()
    found = function(given)
    return found.detach(), torch.autograd.grad((found * found.detach().cos()).sum(), given)[0]


def branches_on_size(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    if x[mask].numel():
        return x.exp() * 2
    return x.sin()


def halves_until_none_is_left(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    while x[(x > 1) & mask].numel():
        x = x / 2
    return x


def takes_three(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    first, second, third = x[mask]
    return x * first + second * third


def means_of_groups(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    groups, which = torch.unique((x * mask).floor(), return_inverse=True)
    return torch.stack([x[which == k].mean() for k in range(len(groups))])


MASK = torch.tensor([True, False, True, True])
MASKS = [MASK, ~MASK, torch.zeros(4, dtype=torch.bool), torch.ones(4, dtype=torch.bool), torch.tensor([False, True, True, True])]
MASKED: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "whether a mask chose": branches_on_size,
    "how many a mask chose": lambda x, m: x * 2 if len(x[m]) > 2 else x * 3,
    "a size in arithmetic": lambda x, m: x * torch.linspace(0, 1, x[m].shape[0], dtype=x.dtype).sum(),
    "a loop until a mask chooses none": halves_until_none_is_left,
    "unpacked": takes_three,
    "iterated": lambda x, m: x * sum((v.sin() for v in x[m]), start=torch.tensor(0.5, dtype=x.dtype)),
    "places": lambda x, m: x * sum(m.nonzero().flatten().tolist(), start=1),
    "chunks": lambda x, m: x * torch.stack([part.prod() for part in x[m].chunk(3)]).sum(),
    "a running maximum": lambda x, m: x * x[m].cummax(0).values.sum(),
    "groups": means_of_groups,
    "a sum of what a mask chose": lambda x, m: x.exp() if x[m].sum() > 2 else x}


@pytest.mark.parametrize("first", range(len(MASKS)))
@pytest.mark.parametrize("name", MASKED)
def test_sizes_that_decide_are_right_or_refused(name: str, first: int):
    function, refused = MASKED[name], 0
    try:
        function(X, MASKS[first])
        ours = xla_torch.from_torch(function, X, MASKS[first])
    except (UnsupportedError, ValueError, RuntimeError):
        assert name == "unpacked"  # eager torch refuses to unpack another number
        assert first in (1, 2, 3)
        return
    for mask in MASKS:
        try:
            found = gradient(lambda x, mask=mask: ours(x, mask), X)
        except AssumptionError as error:
            refused += "test_from_torch_values.py" in str(error)
            continue
        torch.testing.assert_close(found, gradient(lambda x, mask=mask: function(x, mask), X))
    assert refused or not ours.assumptions


OF_NOTHING: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "iterated": MASKED["iterated"], "places": MASKED["places"],
    "the first place": lambda x, m: x * torch.where(m)[0][0] if m.any() else x.sin(),
    "whether there are places": lambda x, m: x * x[torch.where(m)[0][0]] if len(torch.where(m)[0]) else x.cos(),
    "places in a loop": lambda x, m: x * sum((x[i] for i in m.nonzero(as_tuple=True)[0]), start=x[0]),
    "a list": lambda x, m: x * (len(list(x[m])) + len(x[m].unbind()) + len(x[m].tolist()) + 1),
    "masked_select": lambda x, m: x * (len(x.masked_select(m)) + 1)}


@pytest.mark.parametrize("first", [2, 0])
@pytest.mark.parametrize("name", OF_NOTHING)
def test_a_mask_that_chooses_nothing_is_one_program(name: str, first: int):
    function = OF_NOTHING[name]
    family = xla_torch.from_torch(function, X, MASKS[first], assumptions="retrace")
    for mask in (MASKS[first], *MASKS):
        torch.testing.assert_close(gradient(lambda x, m=mask: family(x, m), X), gradient(lambda x, m=mask: function(x, m), X))


@pytest.mark.parametrize("region", [torch.no_grad(), torch.autocast("cpu", enabled=False)], ids=["no_grad", "autocast"])
def test_a_size_that_decides_within_a_region_is_an_assumption_of_its_line(region: Any):
    def function(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        with region:
            places = torch.where(m)[0]
        return x * 2 if len(places) == 0 else x * x[places].sum()

    ours = xla_torch.from_torch(function, X, MASK)
    torch.testing.assert_close(ours(X, MASK.flip(0)), function(X, MASK.flip(0)))
    with pytest.raises(AssumptionError, match=r"expected  the size of dimension 0 in places = torch.where\(m\)\[0\] is 3\n.*"
                                              r"test_from_torch_values.py"):
        ours(X, ~MASK)


BROADCAST: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "beside all": lambda x, m: x.exp() * x[m],
    "below all": lambda x, m: torch.maximum(x[m].sin() * 3, x),
    "where it decides": lambda x, m: x * x[m] if len(x[m]) == 1 else x.exp(),
    "none beside one": lambda x, m: x.sum() + (x[:1] * x[m]).sum(),
    "columns": lambda x, m: (x[:, None] + x[m] * x[m][:, None]).sum(1)}


@pytest.mark.parametrize("name", BROADCAST)
def test_what_a_mask_chooses_is_broadcast(name: str):
    function, first = BROADCAST[name], torch.zeros(4, dtype=torch.bool) if name.startswith("none") else ~MASK
    ours = xla_torch.from_torch(function, X, first)
    again = xla_torch.from_torch(function, X, first, assumptions="retrace")
    refused = dict[int, str]()
    for mask in (first, ~MASK, ~MASK.flip(0), MASK, torch.ones(4, dtype=torch.bool)):
        try:
            expected = gradient(lambda x, mask=mask: function(x, mask), X)
        except RuntimeError:  # of eager torch: the sizes do not fit
            with pytest.raises(AssumptionError):
                ours(X, mask)
            continue
        torch.testing.assert_close(gradient(lambda x, mask=mask: again(x, mask), X), expected)
        try:
            found = gradient(lambda x, mask=mask: ours(x, mask), X)
        except AssumptionError as error:
            refused[int(mask.sum())] = str(error)
        else:
            torch.testing.assert_close(found, expected)
    assert int(first.sum()) not in refused
    assert all("test_from_torch_values.py" in message for message in refused.values())


SQUEEZED: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "all": lambda x, m: x * x[m].squeeze(),
    "one dimension": lambda x, m: x[:, None] * x[m].sin().squeeze(0),
    "after a decision": lambda x, m: (x / x[m].squeeze()).squeeze() if (x > 0).any() else x,
    "within no_grad": lambda x, m: torch.no_grad()(x[m].squeeze)() * x}


@pytest.mark.parametrize("name", SQUEEZED)
def test_a_size_of_one_is_squeezed(name: str):
    function = SQUEEZED[name]
    ours = xla_torch.from_torch(function, X, ~MASK)
    for mask in (~MASK, ~MASK.flip(0)):
        torch.testing.assert_close(gradient(lambda x, m=mask: ours(x, m), X), gradient(lambda x, m=mask: function(x, m), X))
    with pytest.raises(AssumptionError, match=__file__):
        ours(X, MASK)


@EACH
def test_values_and_gradients_are_those_of_eager_torch(name: str):
    function, _ = ROWS[name]
    ours = xla_torch.from_torch(function, X)
    for x in (X, X * (1 + 1e-9) if name not in ("a float that is frozen", "contained") else X):
        for found, expected in zip(gradient(ours, x), gradient(function, x), strict=True):
            torch.testing.assert_close(found, expected)
    # torch 2.15 exports the checks of distributions as assertions.
    is_asserted = name.endswith("distribution") and hasattr(distributions.distribution, "_all_true_or_runtime_assert")
    assert is_asserted or ours.assumptions


@pytest.mark.parametrize(("name", "other"), [(name, other) for name, (_, other) in ROWS.items() if other is not None])
def test_another_decision_raises_and_is_traced_again(name: str, other: torch.Tensor):
    function, _ = ROWS[name]
    ours = xla_torch.from_torch(function, X)
    for _ in range(3):
        with pytest.raises(AssumptionError, match=r"expected .* is .*(\n.*)*from .*test_from_torch_values.py:"):
            ours(other)
    with pytest.raises(AssumptionError):
        gradient(ours, other)
    family = xla_torch.from_torch(function, X, assumptions="retrace")
    for x in (other, X, other):
        for found, expected in zip(gradient(family, x), gradient(function, x), strict=True):
            torch.testing.assert_close(found, expected)
    assert isinstance(family, RetracedFunction)
    assert len(family.members) == 2


def test_an_assumption_says_what_was_asked_and_where():
    ours = xla_torch.from_torch(early, X)
    first, second = ours.assumptions
    line = early.__code__.co_firstlineno
    assert (first.expression, first.value, first.file, first.line) == ("bool(torch.isnan(x).any())", False, __file__, line + 1)
    assert (second.expression, second.value, second.line) == ("x.max().item() > 3.5", True, line + 3)
    assert "x.max().item() > 3.5" in ours.computation.python_code() or "x.max().item() > 3.5" in str(ours.program.module)


def test_a_number_in_arithmetic_is_no_assumption():
    ours = xla_torch.from_torch(lambda x: x * x.sum().item() if x[0] > 0 else x, X)
    assert len(ours.assumptions) == 1
    torch.testing.assert_close(gradient(ours, X * 2), (X * 2 * 20, (X * 40).cos() * 20))


NUMBERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a power": lambda x: x * x.max().item() ** 2,
    "a floor": lambda x: x * math.floor(x.mean().item()),
    "a ceiling": lambda x: x * math.ceil(x.mean().item()),
    "the integral part": lambda x: x * math.trunc(x.mean().item()),
    "beside another float": lambda x: x * (x.mean().item() * 0.1 + 0.25),
    "in a full array": lambda x: torch.full_like(x, x.sum().item() * 2) * x,
    "in an array of a size": lambda x: torch.full((4,), x.sum().item(), dtype=x.dtype) * x,
    "in a list": lambda x: torch.tensor([x.sum().item() * 2, 1.0, x.min().item(), 3.0], dtype=x.dtype) * x,
    "an integer in a tensor": lambda x: torch.tensor(x.long().sum().item()) * x}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_only_enters_arithmetic_stays_a_value(name: str):
    ours = xla_torch.from_torch(NUMBERS[name], X)
    assert not ours.assumptions
    for x in (X, X * 1.37, X * -1.2):
        torch.testing.assert_close(gradient(ours, x), gradient(NUMBERS[name], x))


@pytest.mark.parametrize("name", ["a floor", "a ceiling", "the integral part"])
def test_a_number_that_is_no_integer_raises(name: str):
    ours = xla_torch.from_torch(NUMBERS[name], X)
    for number in (torch.nan, torch.inf):
        with pytest.raises(ExecutionError, match="an integer of 64 bits"):
            ours(X * number)


FROZEN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a number rounded to tens": lambda x: x * round(x.sum().item(), -1),
    "a number for the C library": lambda x: x * math.fsum([1.5, x[0].item()]),
    "an array of NumPy": lambda x: x * torch.from_numpy(np.sin(x.detach().numpy())),
    "an array of NumPy of another type": lambda x: x * np.asarray(x.detach(), dtype=np.float32).sum().item(),
    "beside an empty array of NumPy": lambda x: x * math.fsum([x.sum().item()]) + torch.zeros(0, 3).numpy().size,
    "an order of NumPy": lambda x: x[torch.from_numpy(np.argsort(-x.detach().numpy()))] * X,
    "a function of NumPy": lambda x: x * np.interp(x.mean().item(), np.arange(9), np.arange(9) ** 2).item(),
    "a matrix of NumPy": lambda x: x * np.linalg.det(x.detach().reshape(2, 2).numpy()).item()}


@pytest.mark.parametrize("name", FROZEN)
def test_a_number_that_python_computes_with_is_frozen(name: str):
    ours = xla_torch.from_torch(FROZEN[name], X)
    for found, expected in zip(gradient(ours, X), gradient(FROZEN[name], X), strict=True):
        torch.testing.assert_close(found, expected)
    assert {assumption.file for assumption in ours.assumptions} == {__file__}
    with pytest.raises(AssumptionError, match=__file__):
        ours(X + 0.5)


def test_trust_drops_the_checks_and_warns():
    with pytest.warns(XlaWarning, match=r"trusts.* \(x > 0\).all\(\) is True .*test_from_torch_values.py"):
        ours = xla_torch.from_torch(lambda x: x * 2 if (x > 0).all() else x - 1, X, assumptions="trust")
    assert not ours.assumptions
    torch.testing.assert_close(ours(-X), -X * 2)


@pytest.mark.parametrize("assumptions", ["check", "retrace"])
def test_decisions_about_constants_are_no_assumptions(assumptions: Any):
    model = torch.nn.Linear(4, 4, dtype=torch.float64)
    model.forward = lambda input: input * model.bias if model.weight.sum() < 99 else input
    ours = xla_torch.from_torch(model, X, weights="constants", assumptions=assumptions)
    torch.testing.assert_close(ours(X), X * model.bias)


def test_a_choice_that_there_is_not():
    with pytest.raises(xla_torch.errors.InvalidArgument, match="assumptions"):
        xla_torch.from_torch(torch.sin, X, assumptions="guess")  # pyright: ignore[reportArgumentType]


def test_values_are_not_combined_with_dynamic_sizes():
    with pytest.raises(UnsupportedError, match="convert without dynamic_shapes"):
        xla_torch.from_torch(ROWS["all"][0], X, dynamic_shapes={"x": {0: torch.export.Dim("n", min=2)}})


def test_trust_keeps_the_checks_of_sizes():
    with pytest.warns(XlaWarning, match="trusts"):
        ours = xla_torch.from_torch(MASKED["iterated"], X, MASK, assumptions="trust")
    torch.testing.assert_close(ours(X, MASK), MASKED["iterated"](X, MASK))
    with pytest.raises(xla_torch.errors.ExecutionError):
        ours(X, ~MASK)


def lower_in_jax(ours: Any) -> None:
    jax = pytest.importorskip("jax")
    with jax.enable_x64():
        jax.jit(xla_torch.to_jax(ours)).lower(X.numpy())


WRITTEN: dict[str, Callable[[Any], Any]] = {
    "StableHLO": lambda ours: ours.to_stablehlo(), "bytecode": lambda ours: ours.to_stablehlo_bytecode(),
    "ONNX": lambda ours: ours.to_onnx(io.BytesIO()), "JAX": lower_in_jax, "HLO text": lambda ours: ours.to_hlo_text(),
    "HLO proto": lambda ours: ours.to_hlo_proto()}


@pytest.mark.parametrize("name", WRITTEN)
def test_each_written_format_warns(name: str):
    ours = xla_torch.from_torch(ROWS["all"][0], X)
    with pytest.warns(XlaWarning, match=r"does not check \(x > 0\).all\(\) is True"):
        WRITTEN[name](ours)


def test_a_page_shows_the_assumptions():
    page = xla_torch.from_torch(ROWS["all"][0], X).to_html()
    assert "(x &gt; 0).all() is True" in page or "(x > 0).all() is True" in page


def test_written_formats_name_the_assumptions_that_they_leave_behind():
    ours = xla_torch.from_torch(ROWS["all"][0], X)
    with pytest.warns(XlaWarning, match=r"does not check \(x > 0\).all\(\) is True"):
        text = ours.to_stablehlo()
    torch.testing.assert_close(xla_torch.from_stablehlo(text)(X), X * 2)


def test_a_long_trace_warns_with_its_count():
    def steps(x: torch.Tensor) -> torch.Tensor:
        while x.sum() < 840:
            x = x + 1
        return x

    with pytest.warns(XlaWarning, match=r"unrolled.* \d{4} operators"):
        xla_torch.from_torch(steps, X - 50)
