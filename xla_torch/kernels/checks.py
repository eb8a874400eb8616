"""Checks that raise while a program runs."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..core.errors import AssumptionError, ExecutionError
from ..hlo.custom_calls import CustomCall
from ..storage.torch_private import assert_in_graph, is_graphed


def require(holds: torch.Tensor, *values: torch.Tensor, call: CustomCall) -> None:
    """Raise ExecutionError where a check's condition is false. In a graph of torch's it is torch's own assertion."""
    asserted, where = call.config["asserted"], call.config["where"]
    if is_graphed():
        assert_in_graph(holds, f"{asserted} {where}")
    elif not holds and "assumption" in call.config:
        expression, value = call.config["assumption"]["expression"], call.config["assumption"]["value"]
        other = "another text" if isinstance(value, str) else "another number"
        raise AssumptionError(
            "an assumption of the traced program does not hold", subject="from_torch",
            got=f"{expression} is {not value if isinstance(value, bool) else _found(call, values) or other}",
            expected=asserted, where=where,
            hint='trace with from_torch(..., assumptions="retrace"), which makes a program for each case; within a `backward` '
                 "use torch.where")
    elif not holds:
        raise ExecutionError("a check of the exported program failed", subject="from_torch", got=_found(call, values) or "false",
                             expected=asserted, where=where,
                             hint="call it with values that satisfy the check, or write the model for all sizes")


def _found(call: CustomCall, values: Sequence[torch.Tensor]) -> str:
    return ", ".join(f"{name} = {value.item()}" for name, value in zip(call.config["names"], values, strict=True))
