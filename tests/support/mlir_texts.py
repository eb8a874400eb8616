"""Texts of MLIR that tests read: each operation in its own form, and where the data files lie."""

from __future__ import annotations

from pathlib import Path

DATA = Path(__file__).parents[1] / "data"


def operations() -> list[str]:
    """The operations of the data file, each in a module of its own."""
    texts = []
    for line in (DATA / "mlir_operations.txt").read_text().splitlines()[1:]:
        types, _, operation = line.partition(":: ")
        arguments, depth, start = [], 0, 0
        for at, letter in enumerate(types + ","):
            depth += (letter in "<({") - (letter in ")}" or (letter == ">" and types[at - 1] != "-"))
            if letter == "," and not depth:
                arguments.append(types[start:at].strip())
                start = at + 1
        listed = ", ".join(f"%arg{k}: {t}" for k, t in enumerate(arguments) if t)
        texts.append(f'sdy.mesh @mesh = <["x"=2, "y"=4]>\nfunc.func @main({listed}) {{\n  {operation}\n  return\n}}\n')
    return texts
