"""What torch.compile sees of a program: one call that it leaves as it is, with its gradients.

Imported only while torch.compile looks at code that calls a program. (`xla_torch.compile` is the way to have the program
itself compiled.)
"""

from __future__ import annotations

from typing import Any

import torch

from .computation import XlaComputation

one_call: Any = torch.compiler.disable(XlaComputation.__call__)
