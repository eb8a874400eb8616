"""How modules are called: batches of other sizes, and arguments by name."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import xla_torch
from xla_torch.errors import InvalidArgument
from xla_torch.nn import XlaModule

X, T = torch.randn(10, 4, generator=torch.Generator().manual_seed(0)), torch.arange(10) % 3


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.Tanh(), torch.nn.Linear(8, 3))


def of_jax() -> XlaModule:
    def apply(params: Any, batch: Any) -> Any:
        return {"logits": jnp.tanh(batch["x"] @ params["w"] + params["b"]), "chosen": batch["t"] * 2}

    params = {"w": np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3), "b": np.ones(3, np.float32)}
    return XlaModule.from_jax(apply, params, {"x": np.zeros((4, 4), np.float32), "t": np.zeros(4, np.int32)})


def test_the_last_batch_of_a_loader() -> None:
    """Also its gradients, and each size is made once."""
    own = network()
    made = XlaModule.from_torch(own, X[:4])
    for _ in range(2):
        for (x,) in DataLoader(TensorDataset(X), batch_size=4):
            torch.testing.assert_close(made(x), own(x), rtol=1e-5, atol=1e-5)
            made(x).square().sum().backward()
            own(x).square().sum().backward()
    for name, parameter in own.named_parameters():
        torch.testing.assert_close(made.get_parameter(name).grad, parameter.grad, rtol=1e-4, atol=1e-4)
    assert len(made._binding._batches) == 1


@pytest.mark.parametrize("size", [1, 2, 7])
def test_a_batch_in_a_tree(size: int) -> None:
    module = of_jax()
    x, t = X[:size], T[:size].to(torch.int32)
    found = module({"x": x, "t": t})
    w, b = module.get_parameter("w"), module.get_parameter("b")
    torch.testing.assert_close(found["logits"], torch.tanh(x @ w + b))
    assert found["chosen"].tolist() == (t * 2).tolist()


@pytest.mark.parametrize("change", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), lambda m: m.double()])
def test_copies_and_other_precisions_have_batches_of_their_own(change: Any) -> None:
    own, made = network(), XlaModule.from_torch(network(), X[:4])
    made(X[:3])
    other = change(made)
    dtype = next(other.parameters()).dtype
    torch.testing.assert_close(other(X[:5].to(dtype)), own.to(dtype)(X[:5].to(dtype)), rtol=1e-5, atol=1e-5)


def test_autocast_has_batches_too() -> None:
    made = XlaModule.from_torch(network(), X[:4])
    with torch.autocast("cpu", torch.bfloat16):
        assert made(X[:3]).shape == (3, 3)
        assert made(X[:3]).dtype is torch.bfloat16


@pytest.mark.parametrize(("arguments", "words"), [
    ((X[:3, :2],), "another shape"),
    ((X[:3].double(),), "another dtype|narrow|f64|float64"),
    ((X[:0],), "another shape"),
    ((X[:4, None],), "another shape"),
])
def test_what_differs_otherwise_is_refused(arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        XlaModule.from_torch(network(), X[:4])(*arguments)


def test_meta() -> None:
    assert XlaModule.from_torch(network(), X[:4]).to("meta")(X[:4].to("meta")).shape == (4, 3)


def test_a_strict_module_takes_its_own_batch_only() -> None:
    exported = xla_torch.from_torch(network(), X[:4])
    module = XlaModule(exported, [exported.weights], strict=True)
    assert module(X[:4]).shape == (4, 3)
    with pytest.raises(InvalidArgument, match="another shape"):
        module(X[:3])


def test_a_mean_over_the_batch_says_why_it_has_no_other() -> None:
    """Which constant was the batch's size, no program says."""
    made = XlaModule.from_jax(lambda w, x: ((x @ w)**2).mean(), np.ones((4, 2), np.float32), np.zeros((4, 4), np.float32))
    with pytest.raises(InvalidArgument, match=r"(?s)another shape.*hint +export the program.*symbolic.*rebatch found that"):
        made(X[:3])


# ------------------------------------------------------------------------------------------------ names


TEXT = """HloModule m
ENTRY e { w = f32[4] parameter(0) x = f32[4] parameter(1) bias = f32[4] parameter(2) p = f32[4] multiply(w, x)
  ROOT r = f32[4] subtract(p, bias) }"""


@pytest.mark.parametrize(("arguments", "named"), [
    ((1, 2), {}), ((), {"x": 1, "bias": 2}), ((), {"bias": 2, "x": 1}), ((1,), {"bias": 2}), ((2,), {"x": 1})])
def test_arguments_by_name(arguments: tuple[int, ...], named: dict[str, int]) -> None:
    module = XlaModule(xla_torch.parse_hlo(TEXT, derivatives="as written"), {"w": torch.full((4,), 3.0)})
    one = [torch.full((4,), float(a)) for a in arguments]
    assert module(*one, **{name: torch.full((4,), float(a)) for name, a in named.items()}).tolist() == [1.0] * 4


@pytest.mark.parametrize(("arguments", "named", "words"), [
    ((X[0],), {"y": X[0]}, "no argument has this name"),
    ((X[0],), {"w": X[0]}, "no argument has this name"),
    ((X[0], X[0]), {"x": X[0]}, "wrong number of arguments"),
    ((), {"x": X[0]}, "wrong number of arguments"),
])
def test_names_that_do_not_fit(arguments: tuple[Any, ...], named: dict[str, Any], words: str) -> None:
    module = XlaModule(xla_torch.parse_hlo(TEXT, derivatives="as written"), {"w": torch.full((4,), 3.0)})
    with pytest.raises(InvalidArgument, match=words):
        module(*arguments, **named)


def test_jax_functions_take_names_as_before() -> None:
    module = XlaModule.from_jax(lambda w, *, x: w * x, np.float32(2), x=np.float32(3))
    assert module(x=torch.tensor(4.0)).item() == 8
    assert jax.tree.leaves(module.to_numpy()) == [2]


FAMILY = """module @m { func.func public @main(%arg0: tensor<?xf32> loc("x"), %arg1: tensor<?xf32> loc("y")) -> tensor<?xf32> {
  %0 = stablehlo.subtract %arg0, %arg1 : tensor<?xf32>
  return %0 : tensor<?xf32> } }"""


@pytest.mark.parametrize("program", [
    xla_torch.parse_hlo("HloModule m ENTRY e { x = f32[] parameter(0) y = f32[] parameter(1) ROOT r = f32[] subtract(x, y) }"),
    xla_torch.from_stablehlo(FAMILY)], ids=["one", "family"])
def test_programs_take_names(program: xla_torch.XlaComputation) -> None:
    three, one = (torch.full((2,) if program.family is not None else (), float(n)) for n in (3, 1))
    for found in (program(three, one), program(three, y=one), program(y=one, x=three), program(one, x=three)):
        assert found.flatten()[0].item() == 2
    for arguments, named, words in [((three,), {"z": one}, "no parameter has this name"),
                                    ((three, one), {"x": one}, "wrong number of arguments"),
                                    ((), {"x": one}, "wrong number of arguments")]:
        with pytest.raises(InvalidArgument, match=words):
            program(*arguments, **named)
