"""Gradients of tokens, feeds and channels. A token carries no number; what comes from outside is a constant; what another
participant sent is none: its cotangent goes back there."""

from __future__ import annotations

from grad_rules._table import structural, zero

zero("after-all", "infeed", "outfeed")
structural("send", "send-done", "recv", "recv-done", by="xla_torch.autodiff.transfers")
