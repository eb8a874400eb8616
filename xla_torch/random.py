"""Seeding of XLA's `rng` ops (RngUniform, RngNormal). RngBitGenerator needs none: its state is an argument."""

from __future__ import annotations

from .kernels.random import seed, use_generator

__all__ = ["seed", "use_generator"]
