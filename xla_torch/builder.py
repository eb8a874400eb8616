"""Builders, under the name that users import: `from xla_torch.builder import XlaBuilder`."""

from .api.builder import *  # noqa: F403
