"""What torch.export asserts of sizes and values is checked when a program runs, however it runs."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import xla_torch
from xla_torch.errors import ExecutionError, UnsupportedError, XlaWarning
from xla_torch.hlo.checks import is_check
from xla_torch.nn import XlaModule

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated")  # by torch's own scan
X, Y = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4.0, 5.0, 6.0, 7.0, 8.0])
LAYER = nn.Linear(2, 4)


def mask(*rows: int) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.bool)


def added(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return x[m] + torch.tensor([10.0, 20.0])


def bounded(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    n = m.sum().item()
    torch._check(n >= 1)
    torch._check(n <= 2)
    return x[:n]  # pyright: ignore


def known(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    n = m.sum().item()
    torch._check(n == 2)
    return x * n


def limited(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    torch._check(x[m].shape[0] <= 2)
    return x[m]


def asserted(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    torch._assert_async(m.any(), "one must be chosen")
    return x * 2


def branched(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x, m: x[m].reshape(2, 1).sum(), lambda x, m: x.sum(), (x, m))


def doubled(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    def step(k: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        torch._assert_async(m.any(), "one must be chosen")
        return k + 1, c * 2

    return while_loop(lambda k, c: k < 3, step, (torch.tensor(0), x))[1]  # pyright: ignore


def summed(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    def step(c: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        torch._assert_async(m.any(), "one must be chosen")
        return c + row, c * row

    return scan(step, torch.zeros(()), x)[0]  # pyright: ignore


def columns_written(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    y = x.outer(x)
    y[:, m] = x[:, None] * x[:2]
    return y


TWO, ONE, THREE, NONE = mask(1, 0, 1), mask(0, 1, 0), mask(1, 1, 1), mask(0, 0, 0)
ROWS: dict[str, tuple[Callable[..., Any], list[torch.Tensor], list[torch.Tensor], str]] = {
    "a sum with a known array": (added, [TWO], [THREE, ONE, NONE], "size 2"),
    "a view": (lambda x, m: x[m].reshape(2, 1), [TWO], [THREE, ONE], "size 2"),
    "columns of a layer": (lambda x, m: LAYER(x.expand(5, 3)[:, m]), [TWO, mask(0, 1, 1)], [THREE, ONE], "size 2"),
    "one column of a layer": (lambda x, m: F.linear(x.expand(5, 3)[:, m], x[:, None][:2, :1]), [ONE], [THREE, TWO], "size 1"),
    "nonzero": (lambda x, m: m.nonzero()[:, 0] * x[:2], [TWO], [THREE, ONE], "size 2"),
    "masked_select": (lambda x, m: x.masked_select(m) * x[:2], [TWO], [THREE, ONE], "size 2"),
    "unique": (lambda x, m: torch.unique(m.long()) * x[:2], [TWO, ONE], [THREE, NONE], "size 2"),
    "a greatest size": (limited, [TWO, ONE, NONE], [THREE], "u0 <= 2"),
    "a value as a size": (bounded, [TWO, ONE], [THREE, NONE], "u0 (<= 2|>= 1)"),
    "a value as a number": (known, [TWO], [THREE, ONE], "the value is 2"),
    "an assertion of values": (asserted, [TWO, ONE], [NONE], "one must be chosen"),
    "a branch": (branched, [TWO], [THREE, ONE], "size 2"),
    "a loop that nobody reads": (lambda x, m: (doubled(x, m), x * 2)[1], [TWO, ONE], [NONE], "one must be chosen"),
    "a scan": (summed, [TWO, ONE], [NONE], "one must be chosen"),
    "a scan that nobody reads": (lambda x, m: (summed(x, m), x * 2)[1], [TWO, ONE], [NONE], "one must be chosen"),
    "a branch that nobody reads": (lambda x, m: (torch.cond(x.sum() > 0, asserted, lambda x, m: x * 3, (x, m)), x * 2)[1],
                                   [TWO, ONE], [NONE], "one must be chosen"),
    "values written by a mask": (lambda x, m: x.index_put((m,), torch.tensor([10.0, 20.0])), [TWO, mask(0, 1, 1)],
                                 [THREE, ONE, NONE], "as many values as places"),
    "values for all that a mask has": (lambda x, m: x.index_put((m,), x * 10), [THREE], [TWO, ONE, NONE], "as many values"),
    "values added by a mask": (lambda x, m: x.index_put((m,), x[:2], accumulate=True), [TWO], [THREE, ONE], "as many values"),
    "values written to columns": (columns_written, [TWO], [THREE, ONE], "as many values"),
    "values written to places": (lambda x, m: x.index_put((m.nonzero()[:, 0],), x[:2]), [TWO], [THREE, ONE], "as many values"),
    "values of one mask written by another": (lambda x, m: x.index_put((m,), (x * 2)[x > 1]), [TWO], [THREE, NONE],
                                              "as many values"),
    "values written to a known number of places": (lambda x, m: x.index_put((torch.tensor([2, 0]),), x[m]), [TWO],
                                                   [THREE, NONE], "as many values"),
    "values written by a mask to what one chose": (lambda x, m: x[x > 0].index_put((m,), x[:2]), [TWO], [THREE, NONE],
                                                   "as many values"),
    "one value written by a mask": (lambda x, m: x.index_put((m,), x[:1]), [TWO, ONE, THREE, NONE], [], ""),
    "values that a mask has and takes": (lambda x, m: x.index_put((m,), (x * 2)[m]), [TWO, ONE, THREE, NONE], [], ""),
    "masked_scatter": (lambda x, m: x.masked_scatter(m, x[:2] * 10), [TWO, ONE, NONE], [THREE], "no fewer values than places"),
    "repeats": (lambda x, m: torch.repeat_interleave(x, m + 1) + torch.arange(5.0), [TWO], [THREE, ONE, NONE], "has size 5"),
    "repeats of which the user says how many": (lambda x, m: x.repeat_interleave(m + 1, output_size=5), [TWO],
                                                [THREE, ONE], "sum is 5"),
    "repeats below zero of which the sum fits": (
        lambda x, m: x.repeat_interleave(torch.stack([m[0] * 3 + 1, 1 - m[1] * 2, m[2] * 2 + 1])) + torch.arange(3.0),
        [mask(0, 0, 0)], [mask(1, 1, 0), mask(0, 1, 1)], "repeats from 0 on"),
    "repeats below zero": (lambda x, m: x.repeat_interleave(m * torch.tensor([5, -1, 1]), output_size=5), [mask(1, 0, 0)],
                           [THREE], "from 0 on"),
    "updates scattered to places": (lambda x, m: x.scatter(0, m.nonzero()[:, 0], x[:2] * 5), [TWO], [THREE], "u0 <= 2"),
    "updates added to places": (lambda x, m: x.scatter_add(0, m.nonzero()[:, 0], x[:2] * 5), [TWO], [THREE], "u0 <= 2"),
    "a squeeze": (lambda x, m: x[m].squeeze(0), [TWO, THREE, NONE], [ONE], "size other than 1"),
    "a squeeze of all": (lambda x, m: x[m][:, None].squeeze(), [TWO, THREE, NONE], [ONE], "size other than 1"),
    "classes": (lambda x, m: F.one_hot(m.long() * 2, 3) * x[:, None], [TWO], [], ""),
}
KIN = {"values for all that a mask has", "values added by a mask", "values written to columns",
       "values of one mask written by another", "values written by a mask to what one chose",
       "repeats of which the user says how many", "repeats below zero", "updates added to places", "a squeeze of all"}
EACH = pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) if name in KIN else name for name in ROWS])


@EACH
def test_it_is_checked_in_each_call(name: str):
    """The third call runs the native code that the first one has compiled."""
    function, good, bad, words = ROWS[name]
    ours = xla_torch.from_torch(function, X, good[0])
    for _ in range(3):
        for m in good:
            torch.testing.assert_close(ours(X, m), function(X, m))
        for m in bad:
            with pytest.raises(ExecutionError, match=f"got .*= |false(.*\n)*.*expected .*{words}"):
                ours(X, m)


@EACH
def test_it_is_checked_where_gradients_are_wanted_and_after_pickling(name: str):
    function, good, bad, words = ROWS[name]
    ours = pickle.loads(pickle.dumps(xla_torch.from_torch(function, X, good[0])))
    for m in good:
        x = X.clone().requires_grad_()
        expected, found = (torch.autograd.grad(f(x, m).sum(), x, allow_unused=True)[0] for f in (function, ours))
        torch.testing.assert_close(found, expected)
    for m in bad:
        with pytest.raises(ExecutionError, match=words):
            ours(X.clone().requires_grad_(), m)
        with pytest.raises(ExecutionError, match=words):
            xla_torch.value_and_grad(xla_torch.from_torch(lambda x, m: function(x, m).sum(), X, good[0]))(X, m)


def test_a_loop_without_derivatives_is_checked_in_each_step():
    ours = xla_torch.from_torch(doubled, X, TWO)
    torch.testing.assert_close(ours(X, ONE), X * 8)
    with pytest.raises(ExecutionError, match="one must be chosen"):
        ours(X, NONE)


@pytest.mark.parametrize("name", ["nonzero", "unique", "a value as a number", "an assertion of values",
                                  "a loop that nobody reads", "a scan that nobody reads"])
def test_it_is_checked_in_batches(name: str):
    function, good, bad, words = ROWS[name]
    ours = xla_torch.from_torch(function, X, good[0])
    batch = torch.stack([X, X * 2])
    for run in (lambda m: xla_torch.vmap(ours, 2, [0, None])(batch, m), lambda m: torch.func.vmap(ours, (0, None))(batch, m)):
        torch.testing.assert_close(run(good[0]), torch.stack([function(x, good[0]) for x in batch]))
        for m in bad:
            with pytest.raises(ExecutionError, match=words):
                run(m)


def test_branches_that_examples_take_apart_are_not_checked_together():
    ours = xla_torch.from_torch(lambda x, m: torch.cond(x.sum() > 0, asserted, lambda x, m: x * 3, (x, m)), X, TWO)
    with pytest.raises(UnsupportedError, match="taken by some examples only"):
        xla_torch.vmap(ours, 2, [0, None])(torch.stack([X, -X]), TWO)


def test_each_example_of_a_batch_is_checked():
    ours = xla_torch.vmap(xla_torch.from_torch(asserted, X, TWO), 2)
    torch.testing.assert_close(ours(torch.stack([X, X]), torch.stack([TWO, ONE])), torch.stack([X, X]) * 2)
    with pytest.raises(ExecutionError, match="one must be chosen"):
        ours(torch.stack([X, X]), torch.stack([TWO, NONE]))


def test_the_message_names_the_line_of_the_user():
    with pytest.raises(ExecutionError) as caught:
        xla_torch.from_torch(added, X, TWO)(X, THREE)
    line = added.__code__.co_firstlineno + 1
    assert f"{__file__}:{line}, in forward: return x[m] + torch.tensor([10.0, 20.0])" in str(caught.value)
    assert "got       the size = 3" in str(caught.value)


def test_masks_that_must_choose_as_many():
    """Also where one of them may choose more."""
    ours = xla_torch.from_torch(lambda x, y, m, k: x[m] * y[k], X, Y, TWO, mask(0, 1, 1, 0, 0))
    for m, k in ((TWO, mask(1, 0, 0, 0, 1)), (THREE, mask(1, 1, 0, 1, 0)), (NONE, mask(0, 0, 0, 0, 0))):
        torch.testing.assert_close(ours(X, Y, m, k), X[m] * Y[k])
    for m, k in ((TWO, mask(1, 1, 1, 1, 1)), (THREE, mask(1, 1, 0, 0, 0)), (ONE, mask(1, 1, 0, 1, 0))):
        with pytest.raises(ExecutionError, match="size"):
            ours(X, Y, m, k)


def checks(function: Any) -> list[Any]:
    return [i for c in function.program.module.computations for i in c.instructions if is_check(i)]


def test_what_always_holds_is_not_checked():
    for function in (lambda x, m: x[m] * x.exp()[m], lambda x, m: x.exp()[x > 1] + x[x > 1],
                     lambda x, m: x[m].sum() * m.nonzero()):
        assert not checks(xla_torch.from_torch(function, X, TWO))


# ------------------------------------------------------------------------------------------- what leaves


LEAVES = {"StableHLO": lambda f: xla_torch.from_stablehlo(f.to_stablehlo()),
          "bytecode": lambda f: xla_torch.from_stablehlo(f.to_stablehlo_bytecode()),
          "HLO": lambda f: xla_torch.parse_hlo(f.to_hlo_text()),
          "proto": lambda f: xla_torch.from_hlo_proto(f.to_hlo_proto())}


@pytest.mark.parametrize("form", LEAVES)
def test_a_warning_names_what_is_not_checked_elsewhere(form: str):
    ours = xla_torch.from_torch(added, X, TWO)
    with pytest.warns(XlaWarning, match="does not check .* has size 2 .*test_from_torch_checks.py"):
        written = LEAVES[form](ours)
    torch.testing.assert_close(written(X, TWO), added(X, TWO))



def test_a_warning_names_what_jax_does_not_check():
    pytest.importorskip("jax")
    with pytest.warns(XlaWarning, match="does not check .* has size 2"):
        function = xla_torch.to_jax(xla_torch.from_torch(added, X, TWO))
    assert function(X.numpy(), TWO.numpy()).tolist() == [11.0, 23.0]


def test_a_graph_of_torchs_checks_and_onnx_does_not(tmp_path: Any):
    ours = xla_torch.from_torch(asserted, X, TWO)
    ours.to_pt2(tmp_path / "a.pt2")
    written = torch.export.load(tmp_path / "a.pt2").module()
    torch.testing.assert_close(written(X, TWO), X * 2)
    with pytest.raises(RuntimeError, match="one must be chosen"):
        written(X, NONE)
    pytest.importorskip("onnxscript")
    with pytest.warns(XlaWarning, match="does not check one must be chosen"):
        ours.computation.to_onnx(tmp_path / "a.onnx")


# ------------------------------------------------------------------------------------------- buffers


class Columns(nn.Module):
    def __init__(self, *rows: int):
        super().__init__()
        self.layer, self.mask = nn.Linear(sum(rows), 4), nn.Buffer(mask(*rows))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x[:, self.mask]) * self.mask.nonzero().shape[0]


@pytest.mark.parametrize("rows", [(0, 1, 0), (1, 1, 0), (1, 1, 1)])
@pytest.mark.parametrize("weights", ["arguments", "constants"])
def test_the_size_of_what_a_buffer_chooses_is_known(rows: tuple[int, ...], weights: Any):
    model, x = Columns(*rows), torch.randn(5, 3)
    ours = xla_torch.from_torch(model, x, weights=weights)
    given = (ours.weights,) if weights == "arguments" else ()
    torch.testing.assert_close(ours(*given, x), model(x))
    assert ours.program_shape.result.is_static
    if weights == "constants":
        assert xla_torch.from_stablehlo(ours.to_stablehlo())(x).shape == (5, 4)


def test_another_buffer_that_chooses_as_many_may_be_loaded():
    model, x = Columns(0, 1, 0), torch.randn(5, 3)
    ours = XlaModule.from_torch(model, x)
    model.mask.copy_(mask(1, 0, 0))
    ours.load_state_dict(model.state_dict())
    torch.testing.assert_close(ours(x), model(x))
    model.mask.copy_(mask(1, 1, 0))
    ours.load_state_dict(model.state_dict())
    with pytest.raises(ExecutionError, match="size 1"):
        ours(x)
