"""The supported versions: stated once for each library, checked where the library is first used, tried by `make versions`."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest
import torch

import versions
from xla_torch.core.versions import Window, numbers
from xla_torch.errors import MissingDependency
from xla_torch.jax_interop import bindings
from xla_torch.storage import torch_private

ROOT = Path(__file__).parents[2]
WINDOWS = [torch_private.TORCH, bindings.JAX]
PAGE = versions.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(("text", "expected"), [
    ("2.13.0+cpu", (2, 13, 0)), ("2.16.0a0+git1", (2, 16, 0)), ("0.12.0.1", (0, 12, 0, 1)), ("0.11.0.dev20260101", (0, 11, 0)),
    ("3", (3,))])
def test_the_numbers_of_a_version(text: str, expected: tuple[int, ...]):
    assert numbers(text) == expected


@pytest.mark.parametrize(("window", "version"), [
    (torch_private.TORCH, "2.9.1"), (torch_private.TORCH, "1.13.1"), (bindings.JAX, "0.10.1"), (bindings.JAX, "0.9.0.1")])
def test_an_older_version_is_an_error_that_names_both_and_the_command(window: Window, version: str):
    with pytest.raises(MissingDependency, match="too old") as caught:
        window.check(version)
    for words in (f"{window.library} {version}", str(window), f"pip install '{window.requirement}'"):
        assert words in str(caught.value)


@pytest.mark.parametrize(("window", "version"), [
    (torch_private.TORCH, "2.16.0a0+git1"), (torch_private.TORCH, "3.0"), (bindings.JAX, "0.13.0"), (bindings.JAX, "1.0")])
def test_a_newer_version_is_a_warning_that_names_both(window: Window, version: str):
    with pytest.warns(UserWarning, match=re.escape(f"tested with {window}; this is {window.library} {version}")):
        window.check(version)


@pytest.mark.parametrize(("window", "version"), [
    (torch_private.TORCH, "2.11.0"), (torch_private.TORCH, "2.15.3+cu132"), (torch_private.TORCH, torch.__version__),
    (bindings.JAX, "0.10.2"), (bindings.JAX, "0.12.0.1"), (bindings.JAX, "0.12.9")])
def test_a_version_within_says_nothing(window: Window, version: str):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        window.check(version)


@pytest.mark.parametrize("library", ["jax", "jaxlib"])
def test_an_old_jax_is_refused_by_every_entry_point(library: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bindings.importlib.metadata, "version", lambda _: "0.9.2")
    bindings.check_jax.cache_clear()
    try:
        with pytest.raises(MissingDependency, match=r"jax 0\.9\.2(.|\n)*0\.10\.2 to 0\.12"):
            bindings.require(library, "from_jax")
    finally:
        bindings.check_jax.cache_clear()


def test_the_project_asks_pip_for_the_windows():
    stated = versions.project()
    assert torch_private.TORCH.requirement in stated[""]
    assert stated["jax"] == [f"{library}>={'.'.join(map(str, bindings.JAX.oldest))}" for library in ("jax", "jaxlib")]
    assert versions.torch_releases() == tuple(f"2.{k}" for k in range(torch_private.TORCH.oldest[1],
                                                                     torch_private.TORCH.newest[1] + 1))


@pytest.mark.parametrize("window", WINDOWS, ids=lambda w: w.library)
def test_the_page_states_the_windows(window: Window):
    oldest, newest = (".".join(map(str, version)) for version in (window.oldest, window.newest))
    assert re.search(rf"^\| .*{ {'torch': 'PyTorch', 'jax': 'JAX'}[window.library]}.* \| {oldest} \| {newest}", PAGE, re.M)


def test_every_corner_has_a_row_with_what_was_measured():
    rows = {line.split(" | ")[0].removeprefix("| ") for line in PAGE.splitlines() if re.search(r"\d{4}-\d\d-\d\d \|$", line)}
    assert rows == {corner.name for corner in versions.corners()}


def test_the_oldest_corner_is_at_the_lower_bounds():
    oldest = versions.corners()[0]
    assert {"torch==2.11.*", "jax==0.10.2.*", "numpy==2.0.*"} <= set(oldest.pins)


def test_a_row_takes_the_place_of_the_one_of_its_name():
    table = f"head\n\n| {' | '.join(versions.HEADINGS)} |\n| --- |\n| a | 1 |\n| b | 2 |\n\ntail | x |\n"
    replaced = versions.with_row(table, ["a", "3"])
    assert replaced == table.replace("| a | 1 |", "| a | 3 |")
    assert versions.with_row(table, ["c", "4"]) == table.replace("| b | 2 |\n", "| b | 2 |\n| c | 4 |\n")
