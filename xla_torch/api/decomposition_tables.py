"""torch's decompositions of operators, for what has no rule and no kernel of its own."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from ..aten.operator_rules import RULES
from ..storage import torch_private
from . import torch_compositions, torch_decompositions, torch_graph

_DECOMPOSED = ("col2im", "grid_sampler_2d", "gru", "im2col", "lstm", "tril_indices", "triu_indices", "upsample_bicubic2d",
               "upsample_bilinear2d", "upsample_linear1d", "upsample_nearest2d", "upsample_trilinear3d")
"""Operators for which torch itself says what they are in others, beyond its own choice."""

_OF_THE_WAY_BACK = ("native_group_norm_backward", "native_layer_norm_backward")
"""The same of the way back. They take what the way forward keeps and autograd calls constant, so that their derivatives are those
of the operators, and not of the others."""


def _operators(names: Sequence[str]) -> list[Any]:
    packets = [getattr(torch.ops.aten, name) for name in names]
    return [getattr(packet, overload) for packet in packets for overload in packet.overloads() if overload != "out"]


@functools.cache
def without_composites() -> tuple[dict[Any, Any], dict[Any, Any]]:
    """torch's decompositions of all that has no rule: to core operators, and of core operators into others. The latter come
    before autograd, whose operators for the way back have none."""
    first = {**torch_private.decompositions(*_operators(_DECOMPOSED)), **torch_decompositions.decompositions()}
    back = torch_private.decompositions(*_operators(_OF_THE_WAY_BACK))
    found = {**torch.export.default_decompositions(), **torch_compositions.compositions(), **first, **back}
    return {target: way for target, way in found.items() if torch_graph.name_of(target) not in RULES}, first
