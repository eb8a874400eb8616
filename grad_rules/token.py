"""Gradients of tokens, feeds and channels. A token carries no number; what comes from outside is a constant."""

from __future__ import annotations

from ._table import refuse, zero

zero("after-all", "infeed", "outfeed")
refuse("send", "send-done", "recv", "recv-done",
       because="a value sent over a channel leaves the program, and its cotangent would have to come back over another one",
       instead="use collective-permute, whose gradient is the permutation undone, or cut the program at the channel")
