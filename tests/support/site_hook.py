"""What `mkdocs.yml` hooks into the build: pages that stand elsewhere in the repository than in docs/, and generated ones.

Pages keep their links as they are in the repository, where the hosting service follows them. In the site, a link to a page of the
repository leads to that page; one to a source file or notebook to a page that shows it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from support import site_pages

ROOT = Path(__file__).parents[2]
FIRST = "README.md"
ELSEWHERE = (FIRST, "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "grad_rules/README.md",
             "tests/benchmarks/README.md", "tests/documents/README.md", "tests/documents/accuracy.md", "tests/fuzz/README.md",
             "tests/zoo/README.md", "xla_torch/hlo/SPEC.md", "xla_torch/opcodes/README.md", "xla_torch/ops/README.md")
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")
FENCED = re.compile(r"(```.*?```)", re.S)


def place_of(path: str) -> str:
    """Where a file of the repository stands in the site."""
    if path == FIRST:
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"repository/{path}" if path.endswith(".md") else f"repository/{path}.md"


def path_of(place: str) -> str | None:
    """The file of the repository that a page of the site is; None for generated ones."""
    if place == "index.md":
        return FIRST
    path = place.removeprefix("repository/") if place.startswith("repository/") else f"docs/{place}"
    path = path.replace(".ipynb.md", ".ipynb")
    return path if (ROOT / path).is_file() else None


def linked(path: str, link: str) -> str | None:
    """The file of the repository that a link on one of its pages leads to; of a folder that which says what is in it."""
    target = PurePosixPath(os.path.normpath(PurePosixPath(path).parent / link)).as_posix()
    readme = f"{target}/README.md"
    found = readme if (ROOT / readme).is_file() else target
    return found if (ROOT / found).is_file() else None


def links(path: str) -> Iterator[str]:
    for prose in FENCED.split((ROOT / path).read_text(encoding="utf-8"))[::2]:
        yield from filter(None, (linked(path, match[1]) for match in LINK.finditer(prose)))


def shown(inside: list[str]) -> set[str]:
    """The files that get a page beside those in docs/: what `ELSEWHERE` lists, and what pages and notebooks link to."""
    found: set[str] = {*ELSEWHERE}
    waiting = [*inside, *ELSEWHERE]
    while waiting:
        path = waiting.pop()
        if path.endswith((".md", ".ipynb")):  # what stands in code is no link
            new = {link for link in links(path) if not link.startswith("docs/")} - found
            found |= new
            waiting += new
    return found


# ------------------------------------------------------------------------------------------------- events


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    reference = next(entry for entry in config.nav or [] if "Reference" in entry)
    reference["Reference"] += site_pages.navigation()
    # The theme would fetch a replacement for web workers. Without it, search from disk is for browsers alone that let files have
    # workers; in others the theme hides its field, and a server (`python -m http.server -d build/site`) has it everywhere.
    config.extra["polyfills"] = []
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path in sorted(shown([f"docs/{file.src_uri}" for file in files.documentation_pages()])):
        text = (ROOT / path).read_text(encoding="utf-8")
        files.append(File.generated(config, place_of(path), content=text if path.endswith(".md") else source_page(path, text)))
    for place, text in site_pages.pages().items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    path = path_of(page.file.src_uri)
    if path is None:
        return markdown

    def in_site(match: re.Match[str]) -> str:
        found = linked(path, match[1])
        if found is None:
            return match[0]
        return f"]({os.path.relpath(place_of(found), PurePosixPath(page.file.src_uri).parent)}{match[2] or ''})"

    parts = FENCED.split(markdown)
    parts[::2] = [LINK.sub(in_site, prose) for prose in parts[::2]]
    return "".join(parts)


# ------------------------------------------------------------------------------------------------- files as pages


def source_page(path: str, text: str) -> str:
    """A page that shows a file."""
    if path.endswith(".ipynb"):
        return "\n\n".join(_cells(json.loads(text)["cells"])) + "\n"
    language = {".py": "python", ".toml": "toml"}.get(PurePosixPath(path).suffix, "text")
    numbered = f'{language} linenums="1"'
    return f"# {path}\n\n{_fenced(text, numbered)}\n"


def _cells(cells: list[dict[str, Any]]) -> Iterator[str]:
    for cell in cells:
        source = "".join(cell["source"])
        yield source if cell["cell_type"] == "markdown" else _fenced(source, "python")
        yield from (shown for output in cell.get("outputs", ()) if (shown := _output(output)))


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        return f'<img alt="what the cell draws" src="data:image/png;base64,{"".join(data["image/png"]).strip()}">'
    if "text/html" in data:
        return "".join(data["text/html"])
    text = "".join(output.get("text", data.get("text/plain", [])))
    return _fenced(text, "text") if text else ""


def _fenced(text: str, head: str) -> str:
    return f"````{head}\n{text.rstrip()}\n````"
