"""The forms in which programs are written: each gives a program as it is read again."""

from __future__ import annotations

from collections.abc import Callable

import xla_torch
from xla_torch import XlaComputation

EntryPoint = Callable[[XlaComputation], XlaComputation]

WRITTEN: dict[str, EntryPoint] = {
    "text of StableHLO": lambda c: xla_torch.from_stablehlo(c.to_stablehlo()),
    "bytecode of StableHLO": lambda c: xla_torch.from_stablehlo(c.to_stablehlo_bytecode()),
    "text of HLO": lambda c: xla_torch.parse_hlo(c.to_hlo_text()),
    "proto": lambda c: xla_torch.from_hlo_proto(c.to_hlo_proto()),
}
