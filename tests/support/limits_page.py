"""The page of limits, made of the docstrings in `xla_torch/core/tuning.py`: each limit, its value, and what was
measured; and the reasons why an op has no C code."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = Path("xla_torch/core/tuning.py")
PAGE = Path("docs/limits.md")
COMMAND = "make pages"

HEAD = f"""# Limits

This page lists the constants of [tuning.py](../{SOURCE.as_posix()}) that decide when and how much, with what was measured on
both sides of each. It is for people who tune speed.

Results do not depend on these limits. `{COMMAND}` writes the page.
A program changes one by `xla_torch.core.tuning.NAME = value` before it lowers programs.
[Configuration](configuration.md) lists those that the environment sets.
"""


def limits() -> Iterator[tuple[str, str, str, str]]:
    """The section, the name, the value as it is written, and the words of each limit."""
    text = (ROOT / SOURCE).read_text(encoding="utf-8")
    titles = [(number, line.rstrip("- ").lstrip("# -").strip()) for number, line in enumerate(text.splitlines(), 1)
              if line.startswith("# -----")]
    body = ast.parse(text).body
    for assigned, docstring in itertools.pairwise(body):
        target = assigned.targets[0] if isinstance(assigned, ast.Assign) else getattr(assigned, "target", None)
        if isinstance(target, ast.Name) and target.id.isupper() and isinstance(docstring, ast.Expr) and isinstance(
                docstring.value, ast.Constant):
            value = ast.unparse(assigned.value)  # pyright: ignore
            title = [name for number, name in titles if number < assigned.lineno][-1:]
            yield "".join(title), target.id, value, " ".join(str(docstring.value.value).split())


FOOT = """
## Ops that native code leaves to torch

A plan calls torch for each op that has one of these reasons, and for that op alone: the loops and branches around it stay
native. Ops on arrays of dynamic size are calls of torch beside the plan. A value in a reason, such as an element type, is `...`.

| module | reason |
| --- | --- |
"""


def reasons() -> Iterator[tuple[str, str]]:
    """The module and the words of each reason why an op has no C code, as `Unfit` is raised with them."""
    for path in sorted((ROOT / "xla_torch").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            call = node.exc if isinstance(node, ast.Raise) else None
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Unfit":
                yield path.relative_to(ROOT).as_posix(), _words(call.args[0])


def _words(message: ast.expr) -> str:
    parts = message.values if isinstance(message, ast.JoinedStr) else [message]
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "..." for part in parts)


def markdown() -> str:
    """The page."""
    lines, section = [HEAD], ""
    for title, name, value, words in limits():
        if title != section:
            section = title
            lines += [f"## {title[:1].upper()}{title[1:]}\n", "| limit | value | what was weighed |", "| --- | --- | --- |"]
        following = f"| `{name}` | `{value}` | {words.replace('|', chr(92) + '|')} |"
        lines.append(following)
    text = "\n".join(lines) + "\n" + FOOT + "".join(f"| `{module}` | {words} |\n" for module, words in reasons())
    return text.replace(" |\n## ", " |\n\n## ")
