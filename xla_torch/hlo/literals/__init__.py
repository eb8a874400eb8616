"""Literals: constant values, and their text, which is read and written many numbers at a time."""
