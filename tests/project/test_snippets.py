"""The snippets of README and of the pages in docs run, one after the other, and print what stands below them."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from support.expected import fits
from support.oracle import needs_xla

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "how-to").glob("*.md"))]
SNIPPET = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.S)


def snippets(page: Path) -> list[tuple[str, str | None]]:
    return [(m.group(1), m.group(2)) for m in SNIPPET.finditer(page.read_text(encoding="utf-8"))]


def printed(code: str, names: dict[str, Any]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, "snippet", "exec"), names)
    return out.getvalue()


def flax_model() -> dict[str, Any]:
    """What the first snippet of README starts from."""
    flax, jax = pytest.importorskip("flax.linen"), pytest.importorskip("jax")

    class Net(flax.Module):
        @flax.compact
        def __call__(self, x: Any) -> Any:
            x = flax.relu(flax.Conv(4, (3, 3))(x))
            return flax.Dense(10)(x.reshape(x.shape[0], -1))

    net, images = Net(), np.ones((2, 8, 8, 1), np.float32)
    batch = torch.ones(2, 8, 8, 1), torch.tensor([1, 2])
    return {"net": net, "variables": net.init(jax.random.key(0), images), "images": images, "new_images": [batch]}


@needs_xla
@pytest.mark.parametrize("page", [p for p in PAGES if snippets(p)], ids=lambda p: p.name)
def test_snippets_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = flax_model() if page.name == "README.md" else {}
    for number, (code, expected) in enumerate(snippets(page)):
        said = printed(code, names)
        assert expected is None or fits(said, expected), f"snippet {number} prints\n{said}"


def test_links_lead_somewhere() -> None:
    missing = []
    for page in [*PAGES, *(ROOT / "docs").rglob("README.md"), ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]:
        prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", prose):
            if not (page.parent / link).exists():
                missing.append(f"{page.name}: {link}")
    assert missing == []
