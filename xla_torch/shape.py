"""Shapes, under the name that users import: `from xla_torch.shape import Shape`."""

from .core.layouts import Layout, Tile  # noqa: F401
from .core.shape import *  # noqa: F403
