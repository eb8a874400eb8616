"""PyTorch models of several kinds, and how what is made of them is compared with them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.utils import _pytree as pytree


class Block(nn.Module):
    """Two convolutions beside a shorter way, as in a residual network."""

    def __init__(self, features: int, out: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(features, out, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, groups=2, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.down = nn.Sequential(nn.Conv2d(features, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(inner + self.down(x))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 5, 2, 2), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.layers = nn.Sequential(Block(4, 4, 1), Block(4, 8, 2))
        self.head = nn.Linear(8, 5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(F.adaptive_avg_pool2d(self.layers(self.stem(image)), 1).flatten(1))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(found.transpose(1, 2).reshape(batch, length, width))


class Gpt(nn.Module):
    def __init__(self, words: int = 11, width: int = 8, length: int = 6):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Parameter(torch.randn(length, width) * 0.1)
        self.attend, self.feed = Attention(width, 2), nn.Sequential(nn.Linear(width, 16), nn.GELU(), nn.Linear(16, width))
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(3)])

    def forward(self, tokens: torch.Tensor) -> dict[str, Any]:
        x = self.words(tokens) + self.places[:tokens.shape[1]]
        x = x + self.attend(self.norms[0](x))
        x = x + self.feed(self.norms[1](x))
        logits = self.norms[2](x) @ self.words.weight.T
        return {"logits": logits, "loss": F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())}


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.LSTMCell(3, 4), nn.Linear(4, 2)

    def forward(self, steps: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        state = (steps.new_zeros(steps.shape[1], 4), steps.new_zeros(steps.shape[1], 4))
        for step in steps:
            state = self.cell(step, state)
        return self.head(state[0]), list(state)


MODELS = {"residual": (Residual, lambda: torch.randn(2, 3, 16, 16)), "gpt": (Gpt, lambda: torch.randint(0, 11, (2, 6))),
          "lstm": (Lstm, lambda: torch.randn(3, 2, 3))}


def made(name: str, training: bool = False) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    kind, example = MODELS[name]
    return kind().train(training), example()


def loss_of(result: Any) -> torch.Tensor:
    leaves = pytree.tree_leaves(result)
    return sum(((leaf * torch.linspace(-1, 1, leaf.numel()).view(leaf.shape)).sum() for leaf in leaves), torch.zeros(()))


def assert_close(found: Any, expected: Any, tolerance: float = 2e-5) -> None:
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


class Wrapped(nn.Module):
    """A function as a module."""

    def __init__(self, function: Any):
        super().__init__()
        self.function = function

    def forward(self, *given: torch.Tensor) -> Any:
        return self.function(*given)
