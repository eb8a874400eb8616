"""Attacks on what reads files: mutants in child processes (`fuzz.py`)."""
