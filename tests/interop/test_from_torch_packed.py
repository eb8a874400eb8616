"""Packed sequences and recurrent layers over them have the values and gradients of eager torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import rnn
from torch.utils import _pytree as pytree

import xla_torch
from xla_torch.errors import AssumptionError, UnsupportedError
from xla_torch.nn import XlaModule

SORTED, MIXED, EQUAL = [5, 3, 3, 1], [1, 3, 5, 3], [4, 4, 4, 4]


class Tagger(nn.Module):
    """Recurrent layers over packed sequences, and all that they give."""

    def __init__(self, kind: Callable[..., nn.RNNBase], lengths: Any = None, unpack: dict[str, Any] | None = None,
                 states: bool = False, **options: Any):
        super().__init__()
        self.layers = kind(3, 4, **options)
        self.lengths, self.unpack, self.states = lengths, unpack or {}, states
        first = torch.randn(self.layers.num_layers * (1 + self.layers.bidirectional), 4, self.layers.proj_size or 4)
        self.first, self.cell = nn.Parameter(first), nn.Parameter(first.new_ones(*first.shape[:2], 4))

    def forward(self, x: torch.Tensor, lengths: Any = None) -> Any:
        lengths = self.lengths if lengths is None else lengths
        lengths = torch.tensor(lengths) if isinstance(lengths, tuple) else lengths
        packed = rnn.pack_padded_sequence(x, lengths, self.layers.batch_first, enforce_sorted=False)
        states = (self.first, self.cell) if isinstance(self.layers, nn.LSTM) else self.first
        out, after = self.layers(packed, states if self.states else None)
        padded, ends = rnn.pad_packed_sequence(out, self.layers.batch_first, **self.unpack)
        return padded, ends, after, out.data


class Sorted(nn.Module):
    """Sequences that are given in decreasing order of their lengths, or each by itself."""

    def __init__(self, use: Callable[..., Any]):
        super().__init__()
        self.layers, self.use = nn.GRU(3, 4, 2), use

    def forward(self, *given: Any) -> Any:
        return self.use(self.layers, *given)


def as_list(layers: nn.Module, x: torch.Tensor) -> Any:
    out, after = layers(rnn.pack_padded_sequence(x, SORTED))
    return rnn.pad_packed_sequence(out), after


def of_sequences(layers: nn.Module, x: torch.Tensor) -> Any:
    out, after = layers(rnn.pack_sequence([x[:n, k] for k, n in enumerate(MIXED)], enforce_sorted=False))
    return rnn.unpack_sequence(out), after


def embedded(layers: nn.Module, x: torch.Tensor) -> Any:
    packed = rnn.pack_padded_sequence(x, SORTED)
    out, _ = layers(packed._replace(data=packed.data.sin()))
    return rnn.pad_packed_sequence(out)[0]


def without_layers(layers: nn.Module, x: torch.Tensor) -> Any:
    images = x[..., None].expand(-1, -1, -1, 2)
    return rnn.pad_packed_sequence(rnn.pack_padded_sequence(images, SORTED), padding_value=-1.5), layers(x)[1]


MODELS: dict[str, Callable[[], nn.Module]] = {
    "lstm": lambda: Tagger(nn.LSTM, MIXED), "gru": lambda: Tagger(nn.GRU, MIXED),
    "rnn": lambda: Tagger(nn.RNN, MIXED), "rnn of relu": lambda: Tagger(nn.RNN, MIXED, nonlinearity="relu"),
    "lstm both ways": lambda: Tagger(nn.LSTM, MIXED, bidirectional=True, num_layers=2),
    "gru both ways": lambda: Tagger(nn.GRU, MIXED, bidirectional=True, num_layers=2, states=True),
    "projections": lambda: Tagger(nn.LSTM, MIXED, proj_size=2, num_layers=2, bidirectional=True, states=True),
    "without biases": lambda: Tagger(nn.LSTM, MIXED, bias=False, num_layers=2),
    "dropout in evaluation": lambda: Tagger(nn.LSTM, MIXED, dropout=0.5, num_layers=2).eval(),
    "first states": lambda: Tagger(nn.LSTM, MIXED, states=True, bidirectional=True),
    "batch first": lambda: Tagger(nn.LSTM, [1, 3, 4, 3, 2], batch_first=True),
    "equal lengths": lambda: Tagger(nn.LSTM, EQUAL, num_layers=2),
    "a tensor of lengths": lambda: Tagger(nn.LSTM, (1, 3, 5, 3)),
    "padded with a number to a length": lambda: Tagger(nn.RNN, MIXED, {"padding_value": -2.5, "total_length": 7}),
    "sorted": lambda: Sorted(as_list), "sequences": lambda: Sorted(of_sequences), "other data": lambda: Sorted(embedded),
    "without layers": lambda: Sorted(without_layers)}


def made(make: Callable[[], nn.Module], *sizes: int) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(3)
    return make().double(), torch.randn(*sizes, dtype=torch.float64)


def results(model: Any, x: torch.Tensor, *others: Any) -> tuple[Any, Any]:
    """What a model gives, and its gradients of the input and the weights."""
    given = x.clone().requires_grad_()
    found = pytree.tree_leaves(model(given, *others))
    total = sum((f.sin().sum() for f in found if f.is_floating_point()), start=x.new_zeros(()))
    return found, torch.autograd.grad(total, [given, *model.parameters()], allow_unused=True, materialize_grads=True)


@pytest.mark.parametrize("name", MODELS)
def test_values_and_gradients_are_those_of_eager_torch(name: str):
    model, x = made(MODELS[name], 5, 4, 3)
    ours = XlaModule.from_torch(model, x)
    for given in (x, x * 1.5):
        torch.testing.assert_close(results(ours, given), results(model, given))


def test_lengths_that_are_known_are_no_assumptions():
    model, x = made(MODELS["lstm both ways"], 5, 4, 3)
    ours = xla_torch.from_torch(model, x)
    assert not ours.assumptions
    assert ours.computation.lowered("cpu").code.count("composites_run('aten.lstm.data'") == 1


def test_lengths_that_are_an_argument_are_assumptions():
    model, x = made(lambda: Tagger(nn.LSTM, bidirectional=True), 5, 4, 3)
    ours = XlaModule.from_torch(model, x, torch.tensor(MIXED))
    family = XlaModule.from_torch(model, x, torch.tensor(MIXED), assumptions="retrace")
    # The same lengths in another order are sorted by the program.
    for lengths in (MIXED, SORTED):
        torch.testing.assert_close(results(ours, x, torch.tensor(lengths)), results(model, x, torch.tensor(lengths)))
    for lengths in (EQUAL, [2, 5, 4, 3]):
        with pytest.raises(AssumptionError, match=r"pack_padded_sequence(.*\n)*.*test_from_torch_packed.py"):
            ours(x, torch.tensor(lengths))
        torch.testing.assert_close(family(x, torch.tensor(lengths)), model(x, torch.tensor(lengths)))


def test_packed_sequences_that_are_arguments():
    def use(layers: nn.Module, data: torch.Tensor, sizes: torch.Tensor) -> Any:
        out, after = layers(rnn.PackedSequence(data, sizes))
        return rnn.pad_packed_sequence(out)[0], after

    model, x = made(lambda: Sorted(use), 5, 4, 3)
    packed = rnn.pack_padded_sequence(x, SORTED)
    ours = XlaModule.from_torch(model, packed.data, packed.batch_sizes)
    torch.testing.assert_close(results(ours, packed.data, packed.batch_sizes), results(model, packed.data, packed.batch_sizes))
    with pytest.raises(AssumptionError, match=__file__):
        ours(packed.data, torch.tensor([3, 3, 3, 2, 1]))


def test_dropout_between_layers_is_drawn():
    model, x = made(lambda: Tagger(nn.LSTM, MIXED, dropout=0.5, num_layers=2), 5, 4, 3)
    ours = XlaModule.from_torch(model, x)
    first, second = (ours(x)[0] for _ in range(2))
    assert first.shape == (5, 4, 4)
    assert not first.allclose(second)


@pytest.mark.parametrize(("lengths", "words"), [
    ([3, 5, 1, 1], "sorted in decreasing order"), ([5, 3, 1, 0], "greater than 0"), ([5, 3, 1], "batch_size"),
    ([6, 5, 3, 3], "6")])
def test_lengths_that_torch_refuses(lengths: list[int], words: str):
    model, x = made(lambda: Sorted(lambda layers, x: layers(rnn.pack_padded_sequence(x, lengths))[1]), 5, 4, 3)
    with pytest.raises(RuntimeError):
        model(x)
    with pytest.raises(UnsupportedError, match=words):
        xla_torch.from_torch(model, x)
