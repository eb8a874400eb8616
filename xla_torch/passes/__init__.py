"""Passes over lowered graphs: results over operands that die, chains in blocks, products, calls in groups, early exchanges."""
