"""Checks that raise while a program runs."""

from __future__ import annotations

import torch

from ..core.errors import ExecutionError
from ..hlo.custom_calls import CustomCall
from ..storage.torch_private import assert_in_graph, is_graphed


def require(holds: torch.Tensor, *values: torch.Tensor, call: CustomCall) -> None:
    """Raise ExecutionError where a check's condition is false. In a graph of torch's it is torch's own assertion."""
    asserted, where = call.config["asserted"], call.config["where"]
    if is_graphed():
        assert_in_graph(holds, f"{asserted} {where}")
    elif not holds:
        found = ", ".join(f"{name} = {value.item()}" for name, value in zip(call.config["names"], values, strict=True))
        raise ExecutionError("a check of the exported program failed", subject="from_torch", got=found or "false",
                             expected=asserted, where=where,
                             hint="call it with values that satisfy the check, or write the model for all sizes")
