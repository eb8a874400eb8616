"""Pages as a person sees them: Chromium's screenshots, and how like each other two are."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from support.layered import layers

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

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
    flags = ["--headless", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder / 'profile'}",
             f"--blink-settings=preferredColorScheme={prefers}", f"--window-size={SIZE[0]},{SIZE[1]}", f"--screenshot={shot}"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        flags.append("--no-sandbox")  # without which it does not start for root
    subprocess.run([str(CHROMIUM), *flags, page.as_uri() + at], check=True, capture_output=True, timeout=120)
    return Image.open(shot).convert("RGB")


def apart(one: Any, other: Any) -> float:
    """The share of pieces of 20 by 20 in which two images are clearly not the same, whatever the fonts are."""
    from PIL import ImageChops

    coarse = [image.resize((SIZE[0] // 20, SIZE[1] // 20), resample=4) for image in (one, other)]  # 4: box
    pieces = ImageChops.difference(*coarse).convert("L").tobytes()
    return sum(piece > 8 for piece in pieces) / len(pieces)
