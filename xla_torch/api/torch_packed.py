"""Packed sequences of torch while torch exports them: packing moves elements to places that the lengths say, and recurrent
layers run over all steps of one batch size at once, as over a padded batch.

torch.export has no packed sequences. Lengths that calls may change are values that Python asks for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..storage.torch_private import private, undisturbed

Layer = Callable[..., Any]
_pack, _pad = (private(torch, name) for name in ("_pack_padded_sequence", "_pad_packed_sequence"))
_NUMBERS = "xla_torch_numbers"
"""The attribute of a tensor of batch sizes that packing made: nothing needs to read them again."""


def pack(input: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """As `torch._pack_padded_sequence`, which itself says where each element goes."""
    known = _read(lengths)
    with undisturbed():
        numbers = torch.arange(input.shape[0] * input.shape[1]).view(*input.shape[:2], 1)
        found, sizes = _pack(numbers, torch.tensor(known), batch_first)
        places, known = found.flatten().tolist(), sizes.tolist()
    batch_sizes = torch.tensor(known)
    setattr(batch_sizes, _NUMBERS, known)
    return input.flatten(0, 1).index_select(0, torch.tensor(places, device=input.device)), batch_sizes


def pad(data: torch.Tensor, batch_sizes: torch.Tensor, batch_first: bool, padding_value: float, total_length: int
        ) -> tuple[torch.Tensor, torch.Tensor]:
    """As `torch._pad_packed_sequence`, which itself says where each element goes."""
    count, known = data.shape[0], sizes_of(batch_sizes)
    with undisturbed():
        found, sizes = _pad(torch.arange(count)[:, None], torch.tensor(known), batch_first, count, total_length)
        places, lengths = found.squeeze(-1).tolist(), sizes.tolist()
    rows = torch.cat([data, data.new_full((1, *data.shape[1:]), padding_value)])
    return rows[torch.tensor(places, device=data.device)], torch.tensor(lengths)


def sizes_of(batch_sizes: torch.Tensor) -> list[int]:
    """How many sequences have each step."""
    known = getattr(batch_sizes, _NUMBERS, None)
    return _read(batch_sizes) if known is None else known


def _read(numbers: torch.Tensor) -> list[int]:
    return [int(one.item()) for one in numbers.unbind()]


# ------------------------------------------------------------------------------------------- recurrent layers


def states_of(hx: Any, batch: int) -> Any:
    """States of so many sequences: those that torch makes of `batch_sizes[0]` have a size that it takes for one of values."""
    if isinstance(hx, torch.Tensor):
        return hx.reshape(hx.shape[0], batch, hx.shape[2])
    return [states_of(one, batch) for one in hx]


def layers(whole: Layer, data: torch.Tensor, batch_sizes: Sequence[int], hx: Any, params: Sequence[torch.Tensor],
           has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool) -> tuple[torch.Tensor, ...]:
    """Recurrent layers over packed sequences, where `whole` runs one over a padded batch."""
    runs = [(size, len([*steps])) for size, steps in itertools.groupby(batch_sizes)]
    states = [hx] if isinstance(hx, torch.Tensor) else hx
    directions, ends = 1 + bidirectional, list[list[torch.Tensor]]()
    each = len(params) // (num_layers * directions)
    for layer in range(num_layers):
        found = list[torch.Tensor]()
        for number in range(layer * directions, (layer + 1) * directions):
            def one(steps: torch.Tensor, given: list[torch.Tensor], number: int = number) -> Any:
                own = list(params[number * each:(number + 1) * each])
                return whole(steps, tuple(given) if len(given) > 1 else given[0], own, has_biases, 1, 0.0, train, False, False)

            way = _backwards if number % directions else _forwards
            out, end = way(one, data, runs, [s[number:number + 1] for s in states])
            found.append(out)
            ends.append(end)
        data = torch.cat(found, -1) if bidirectional else found[0]
        if dropout and train and layer < num_layers - 1:
            data = torch.dropout(data, dropout, train)
    return data, *(torch.cat(parts) for parts in zip(*ends, strict=True))


Runs = Sequence[tuple[int, int]]
"""Batch sizes, and of how many steps each is the size."""


def _forwards(layer: Layer, data: torch.Tensor, runs: Runs, states: list[torch.Tensor]
              ) -> tuple[torch.Tensor, list[torch.Tensor]]:
    found, ended = list[torch.Tensor](), list[list[torch.Tensor]]()
    for part, (batch, steps) in zip(data.split([b * n for b, n in runs]), runs, strict=True):
        ended.insert(0, [s[:, batch:] for s in states])
        out, *states = layer(part.unflatten(0, (steps, batch)), [s[:, :batch] for s in states])
        found.append(out.flatten(0, 1))
    return torch.cat(found), [torch.cat(parts, 1) for parts in zip(states, *ended, strict=True)]


def _backwards(layer: Layer, data: torch.Tensor, runs: Runs, first: list[torch.Tensor]
               ) -> tuple[torch.Tensor, list[torch.Tensor]]:
    found, states = list[torch.Tensor](), [s[:, :0] for s in first]
    for part, (batch, steps) in reversed([*zip(data.split([b * n for b, n in runs]), runs, strict=True)]):
        # Sequences that end here begin with their first states.
        joined = [torch.cat([s, own[:, s.shape[1]:batch]], 1) for s, own in zip(states, first, strict=True)]
        out, *states = layer(part.unflatten(0, (steps, batch)).flip(0), joined)
        found.insert(0, out.flip(0).flatten(0, 1))
    return torch.cat(found), states


FUNCTIONS: dict[Any, Callable[..., Any]] = {_pack: pack, _pad: pad}
"""Functions of torch for packed sequences in others."""
