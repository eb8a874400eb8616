"""XlaModule: parameters, buffers, training, state, errors."""

from __future__ import annotations

import io

import pytest
import torch

from xla_torch import parse_hlo
from xla_torch.errors import InvalidArgument
from xla_torch.nn import XlaModule

LINEAR = """
ENTRY main {
  w.1 = f32[3,2] parameter(0)
  x = f32[4,3] parameter(1)
  b = f32[2] parameter(2)
  shift = s32[] parameter(3)
  product = f32[4,2] dot(x, w.1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  rows = f32[4,2] broadcast(b), dimensions={1}
  sum = f32[4,2] add(product, rows)
  offset = f32[] convert(shift)
  offsets = f32[4,2] broadcast(offset), dimensions={}
  ROOT out = f32[4,2] add(sum, offsets)
}
"""

W, X, B, SHIFT = torch.randn(3, 2), torch.randn(4, 3), torch.randn(2), torch.tensor(5, dtype=torch.int32)


def linear(**options: object) -> XlaModule:
    return XlaModule(parse_hlo(LINEAR), parameters={0: W, 2: B, 3: SHIFT}, **options)  # pyright: ignore[reportArgumentType]


def test_forward_takes_what_the_module_does_not_hold():
    torch.testing.assert_close(linear()(X), X @ W + B + 5)


def test_floats_are_parameters_and_integers_buffers():
    module = linear()
    assert [name for name, _ in module.named_parameters()] == ["w_1", "b"]
    assert [name for name, _ in module.named_buffers()] == ["shift"]
    assert repr(module) == "XlaModule((x: f32[4,3]) -> f32[4,2])"


def test_buffers_are_not_trained():
    module = linear(buffers=[2])
    assert [name for name, _ in module.named_parameters()] == ["w_1"]
    module(X).sum().backward()
    assert module.get_parameter("w_1").grad is not None


def test_values_are_copied():
    module, before = linear(), W.clone()
    with torch.no_grad():
        module.get_parameter("w_1").zero_()
    torch.testing.assert_close(W, before)


def test_a_list_fills_the_first_arguments():
    module = XlaModule(parse_hlo(LINEAR), parameters=[W, X])
    torch.testing.assert_close(module(B, SHIFT), X @ W + B + 5)


def test_it_trains():
    torch.manual_seed(0)
    module, target = linear(), torch.randn(4, 2)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    losses = []
    for _ in range(100):
        loss = ((module(X) - target) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 10


def test_state_is_saved_and_loaded():
    first, file = linear(), io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = XlaModule(parse_hlo(LINEAR), {0: torch.zeros(3, 2), 2: torch.zeros(2), 3: SHIFT * 0})
    second.load_state_dict(torch.load(file))
    torch.testing.assert_close(second(X), first(X))


def test_names_never_clash_with_the_module():
    text = """
    ENTRY main {
      forward = f32[] parameter(0)
      training = f32[] parameter(1)
      ROOT r = f32[] add(forward, training)
    }"""
    module = XlaModule(parse_hlo(text), [torch.tensor(1.0), torch.tensor(2.0)])
    assert [name for name, _ in module.named_parameters()] == ["forward_", "training_"]
    assert module().item() == 3


ERRORS = [
    ({4: W}, "no such argument"),
    ({-1: W}, "no such argument"),
    ({0: W.T}, "argument 0 has another shape"),
]


@pytest.mark.parametrize(("parameters", "message"), ERRORS)
def test_wrong_parameters(parameters: dict[int, torch.Tensor], message: str):
    with pytest.raises(InvalidArgument, match=message):
        XlaModule(parse_hlo(LINEAR), parameters)


def test_wrong_number_of_arguments():
    with pytest.raises(InvalidArgument, match=r"(?s)got +2.*\(x: f32\[4,3\]\) -> f32\[4,2\]"):
        linear()(X, X)
