"""torch's decompositions of operators, for what has no rule and no kernel of its own."""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

from ..aten.operator_rules import RULES
from ..storage import torch_graphs, torch_private
from . import torch_compositions, torch_decompositions, torch_graph, torch_ways_back

_DECOMPOSED = ("col2im", "gru", "im2col", "lstm", "tril_indices", "triu_indices", "upsample_bicubic2d",
               "upsample_bilinear2d", "upsample_linear1d", "upsample_nearest2d", "upsample_trilinear3d")
"""Operators for which torch itself says what they are in others, beyond its own choice."""

_OF_THE_WAY_BACK = ("batch_norm_backward", "native_group_norm_backward", "native_layer_norm_backward",
                    "rrelu_with_noise_backward")
"""The same of the way back. They take what the way forward keeps and autograd calls constant, so that their derivatives are those
of the operators, and not of the others."""

_FORWARD = ("hardshrink", "softshrink", "multi_margin_loss", "replication_pad1d", "replication_pad2d", "replication_pad3d",
            "upsample_nearest1d", "upsample_nearest3d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
            "_upsample_nearest_exact3d")
"""Operators with rules of their own, of which torch says what is differentiated where their gradients are operators."""


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
    found |= torch_ways_back.formulas()
    return {target: way for target, way in found.items() if torch_graph.name_of(target) not in RULES}, first


def opened(exported: Any) -> Any:
    """The exported program with gradients of what operators forwards are, in the place of operators that are such."""
    if not torch_ways_back.has_rows(exported.graph_module):
        return exported
    module = torch_graphs.deep_copied(exported)
    torch_ways_back.opened(module, {**torch_private.decompositions(*_operators(_FORWARD)), **without_composites()[1]})
    signature, results = copy.deepcopy(exported.graph_signature), next(iter(reversed(module.graph.nodes))).args[0]
    for spec, node in zip(signature.output_specs, results, strict=True):
        if isinstance(node, torch.fx.Node):  # a node that was replaced had another name
            spec.arg.name = node.name
    return torch_graphs.with_graph(exported, module, signature, {})
