"""Every exception of the package, under the name that users import: `from xla_torch.errors import InvalidArgument`."""

from .core.errors import *  # noqa: F403
