"""What mkdocstrings does to each docstring before it shows it."""

from __future__ import annotations

from typing import Any

import griffe

from support.site_pages import as_markdown


class Docstrings(griffe.Extension):
    """Makes each docstring into Markdown."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
