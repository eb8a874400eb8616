"""Docstrings as Markdown: what mkdocstrings reads for the site, and the generated pages of ops."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^( *)(>>> .*(?:\n\1\S.*)*(?:\n\n\1>>> .*(?:\n\1\S.*)*)*)", re.M)
_LITERAL = re.compile(r"::(?=\n\n {4})")


def as_markdown(docstring: str) -> str:
    """A docstring with its examples in fences, and code that is led to by ``::`` led to by one colon."""
    return _EXAMPLE.sub(r"\1```pycon\n\2\n\1```", _LITERAL.sub(":", docstring))


class Docstrings(griffe.Extension):
    """Makes each docstring that mkdocstrings shows into Markdown."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
