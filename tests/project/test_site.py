"""The documentation site builds without a warning, within three minutes, and its links lead to pages and places that exist."""

from __future__ import annotations

import os
import pkgutil
import re
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from support import site_pages
from support.chromium import layout_faults, needs_chromium

pytest.importorskip("mkdocs")
ROOT = Path(__file__).parents[2]


class Page(HTMLParser):
    """The links and the places of a page, and what it would fetch from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.places: set[str] = set()
        self.fetched: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        address = given.get("src") or (given.get("href", "") if tag == "link" and given.get("rel") == "stylesheet" else "")
        if address.startswith(("http:", "https:", "//")):
            self.fetched.add(address)


def test_the_navigation_has_the_four_kinds_of_pages():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    navigation = text[text.index("\nnav:"):]
    assert re.findall(r"^  - ([^:]+):", navigation, re.M) == ["Home", "Tutorials", "How-to guides", "Reference", "Explanation"]
    folders = [ROOT / "docs", *(ROOT / "docs" / name for name in ("tutorials", "how-to", "how-it-works"))]
    pages = [page.relative_to(ROOT / "docs").as_posix() for folder in folders for page in folder.glob("*.md")]
    assert [page for page in sorted(pages) if f": {page}\n" not in navigation] == []


def test_every_public_name_can_be_imported_by_its_path():
    """mkdocstrings looks each of them up by this path in the sources."""
    found = {name: pkgutil.resolve_name(f"xla_torch.{name}") for name in site_pages.names()}
    assert found == site_pages.names()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    began = time.monotonic()
    run = subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)], cwd=ROOT, text=True,
                         check=False, capture_output=True, env=os.environ | {"PYTHONPATH": paths, "NO_MKDOCS_2_WARNING": "1"})
    assert run.returncode == 0, run.stderr[-4000:]
    assert time.monotonic() - began < 180
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


@pytest.mark.slow
def test_links_within_the_site_lead_somewhere(site: Path, pages: dict[Path, Page]):
    wrong = []
    for path, page in pages.items():
        if path.name == "404.html":  # its links begin at the root of a server
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = Path(os.path.normpath(path.parent / unquote(parts.path))) if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            known = pages.get(target)
            if not target.exists() or (known and parts.fragment and unquote(parts.fragment) not in known.places | {"__skip"}):
                wrong.append(f"{path.relative_to(site)}: {link}")
    assert wrong == []


@pytest.mark.slow
def test_the_site_works_without_a_network(pages: dict[Path, Page]):
    assert {address for page in pages.values() for address in page.fetched} == set()


@needs_chromium
@pytest.mark.slow
def test_code_and_tables_fit_in_a_browser(site: Path, tmp_path: Path):
    """A window of a notebook computer. On a phone, code and tables scroll, but the page does not."""
    places = ["index", "command-line", "configuration", "debugging", "distributed", "entry-points", "first-use", "gradients",
              "numerics", "performance", "supported-features", "tutorials/train-a-jax-model", "tutorials/model-over-a-mesh",
              "how-to/find-a-nan", "reference/functions/Add", "reference/names/nn.XlaModule",
              "repository/xla_torch/opcodes/index"]
    shown = {place: site / f"{place}.html" for place in places}
    assert [name for name, page in shown.items() if not page.exists()] == []
    assert {place: faults for place, faults in layout_faults(shown, 1400, tmp_path).items() if faults} == {}
    on_a_phone = layout_faults(shown, 390, tmp_path)
    assert {place: fault for place, found in on_a_phone.items() for fault in found if not fault.startswith("code")} == {}


@pytest.mark.slow
def test_every_page_of_the_navigation_is_listed(site: Path, pages: dict[Path, Page]):
    """The theme leaves out pages that it takes for the beginning of a section, as it does with README files."""
    of_each_kind = ("debugging", "entry-points", "gradients")  # pages link to those of their own kind
    links = {os.path.normpath(site / link) for name in of_each_kind for link in pages[site / f"{name}.html"].links}
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    places = re.findall(r"^      - [^:]+: (\S+)\.md$", text[text.index("\nnav:"):], re.M)
    missing = [place for place in places if not place.startswith("tutorials/")
               and str(site / (place.removesuffix("README") + "index" * place.endswith("README"))) + ".html" not in links]
    assert missing == []


@pytest.mark.slow
def test_every_generated_page_is_there(site: Path):
    assert [place for place in site_pages.pages() if not (site / place).with_suffix(".html").exists()] == []
