"""Element types, under the name that users import: `xla_torch.types.F32`."""

from .core.types import *  # noqa: F403
