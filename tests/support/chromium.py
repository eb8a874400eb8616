"""Pages as a person sees them: Chromium's screenshots, and how like each other two are."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from support.layered import layers

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is missing: run apt-get install chromium")

SIZE = 1200, 760

SCREENS = {f"{size}-{scheme}": (*made, scheme) for size, made in {"300": (6, 14, ""), "10000": (40, 80, "#%25attn2.3")}.items()
           for scheme in ("light", "dark")}
"""By name: layers and instructions of a program, the instruction that is gone to, and the colours that the browser prefers."""

REFERENCES = Path(__file__).parents[1] / "data" / "pages"


def screenshot(name: str, folder: Path) -> Any:
    """The page of a program, as an image of Pillow."""
    from PIL import Image  # of the notebooks' extra

    count, ops, at, scheme = SCREENS[name]
    page, shot = folder / "page.html", folder / "page.png"
    page.write_text(layers(count, ops).to_html(), encoding="utf-8")
    prefers = {"dark": 0, "light": 1}[scheme]
    _run(folder, page.as_uri() + at, "--hide-scrollbars", f"--blink-settings=preferredColorScheme={prefers}",
         f"--window-size={SIZE[0]},{SIZE[1]}", f"--screenshot={shot}")
    return Image.open(shot).convert("RGB")


def layout_faults(pages: Mapping[str, Path], width: int, folder: Path) -> dict[str, list[str]]:
    """By name of a page what does not fit at this width: identifiers that wrap in tables, code wider than its column, and pages
    wider than the screen."""
    wrapper = folder / "layout.html"
    frames = "".join(f'<iframe name="{name}" src="{page.as_uri()}" width="{width}" height="900"></iframe>'
                     for name, page in pages.items())
    wrapper.write_text(_LAYOUT % frames, encoding="utf-8")
    shown = _run(folder, wrapper.as_uri(), "--allow-file-access-from-files", "--dump-dom", "--virtual-time-budget=20000")
    found = re.search(r'<pre id="faults">(.*?)</pre>', shown, re.S)
    assert found, shown[-2000:]
    return json.loads(html.unescape(found[1]))


_LAYOUT = """<!doctype html><body>%s<script>
function faults(page, width) {
  const found = [];
  for (const code of page.querySelectorAll(".md-content table:not(.highlighttable) code"))
    if (code.getClientRects().length > 1) found.push("wraps: " + code.textContent);
  for (const code of page.querySelectorAll(".md-content .language-python pre > code"))
    if (code.scrollWidth > code.clientWidth + 1) found.push("code of " + code.scrollWidth + " pixels: " + code.textContent);
  if (page.documentElement.scrollWidth > width) found.push("page of " + page.documentElement.scrollWidth + " pixels");
  return found;
}
addEventListener("load", () => {
  const all = {};
  for (const frame of document.querySelectorAll("iframe")) all[frame.name] = faults(frame.contentDocument, +frame.width);
  const shown = document.createElement("pre");
  shown.id = "faults";
  shown.textContent = JSON.stringify(all);
  document.body.append(shown);
});
</script>"""


def _run(folder: Path, address: str, *flags: str) -> str:
    """What Chromium prints for a page, which needs no display and no network."""
    always = ["--headless", "--disable-gpu", "--no-first-run", "--disable-background-networking",
              f"--user-data-dir={folder / 'profile'}"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        always.append("--no-sandbox")  # without which it does not start for root
    return subprocess.run([str(CHROMIUM), *always, *flags, address], check=True, capture_output=True, timeout=120,
                          text=True).stdout


def apart(one: Any, other: Any) -> float:
    """The share of pieces of 20 by 20 in which two images are clearly not the same, whatever the fonts are."""
    from PIL import ImageChops

    coarse = [image.resize((SIZE[0] // 20, SIZE[1] // 20), resample=4) for image in (one, other)]  # 4: box
    pieces = ImageChops.difference(*coarse).convert("L").tobytes()
    return sum(piece > 8 for piece in pieces) / len(pieces)
