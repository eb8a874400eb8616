"""nn.TransformerEncoder without gradients: eager torch makes nested tensors of padded sequences, which gives 0 at the padding.

torch.export and torch.compile do not take that path, so that their results differ from eager torch's at padded positions.
"""

from __future__ import annotations

import contextlib
import math
import types
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from ..core.errors import XlaWarning
from .replaced_attributes import replacing
from .torch_private import assert_in_graph, private

_Encoder: Any = torch.nn.TransformerEncoder
_forward = _Encoder.forward
_canonical_mask: Any = private(torch.nn.functional, "_canonical_mask")


@contextlib.contextmanager
def as_eager() -> Iterator[None]:
    """A block in which encoders give at padded positions what eager torch gives."""
    with replacing() as put:
        put(_Encoder, "forward", _run)
        yield


def _run(self: Any, src: torch.Tensor, mask: torch.Tensor | None = None, src_key_padding_mask: torch.Tensor | None = None,
         is_causal: bool | None = None) -> torch.Tensor:
    if src_key_padding_mask is None or mask is not None or not _may_be_nested(self, src):
        return _forward(self, src, mask, src_key_padding_mask, is_causal)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (src, *_weights(self.layers[0]))):
        warnings.warn("from_torch: without gradients eager torch's nn.TransformerEncoder gives 0 at padded positions; the "
                      "program gives what it does with gradients. Make it with enable_nested_tensor=False for the same in "
                      "both, or call it within torch.no_grad in the model", XlaWarning, stacklevel=2)
        return _forward(self, src, mask, src_key_padding_mask, is_causal)
    padding: Any = _canonical_mask(src_key_padding_mask, "src_key_padding_mask", None, "", src.dtype)
    is_padding = padding != 0
    if src_key_padding_mask.is_floating_point():  # eager torch takes other floats for padding and as weights, by its path
        assert_in_graph((padding.isneginf() | ~is_padding).all(), "a padding mask of floats has no others than 0 and -inf")
    # Only sequences whose padding is at the end become nested ones.
    is_nested = ~(is_padding[:, :-1] & ~is_padding[:, 1:]).any()
    layers: Any = types.SimpleNamespace(layers=self.layers, norm=None, use_nested_tensor=False)
    found = _forward(layers, src, None, padding.masked_fill(is_nested & is_padding, -math.inf), is_causal)
    found = found.masked_fill((is_nested & is_padding)[:, :, None], 0.0)
    return found if self.norm is None else self.norm(found)


def _may_be_nested(encoder: Any, src: torch.Tensor) -> bool:
    """Whether eager torch makes nested tensors, gradients and places of the padding apart."""
    return (torch.backends.mha.get_fastpath_enabled() and getattr(encoder, "use_nested_tensor", False)
            and not encoder.layers[0].training and src.ndim == 3 and not torch.is_autocast_enabled())


def _weights(layer: Any) -> list[torch.Tensor]:
    """The weights whose gradients eager torch asks for."""
    attention, parts = layer.self_attn, (layer.self_attn.out_proj, layer.norm1, layer.norm2, layer.linear1, layer.linear2)
    return [attention.in_proj_weight, attention.in_proj_bias, *(w for part in parts for w in (part.weight, part.bias))]
