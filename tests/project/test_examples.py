"""The examples in docstrings run and give what stands below them; every documented function has one."""

from __future__ import annotations

import doctest
import inspect
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from support import site_pages
from xla_torch import Shape, XlaBuilder, ops, run_replicas
from xla_torch.distributed import feeds

NAMES = {"np": np, "torch": torch, "xla_torch": xla_torch, "Shape": Shape, "XlaBuilder": XlaBuilder, "ops": ops,
         "run_replicas": run_replicas, "feeds": feeds}
"""What every example may use without importing it; `xla_torch.functions` and the site say so."""

FUNCTIONS = {name: inspect.unwrap(getattr(ops, name))
             for family in site_pages.families() for name in site_pages.documented(family)}


def examples(name: str, thing: Any) -> list[doctest.DocTest]:
    """The examples of a function, or of a class and its methods."""
    found = doctest.DocTestFinder(recurse=inspect.isclass(thing)).find(thing, name, module=False, globs=dict(NAMES))
    return [test for test in found if test.examples]


FOR_SEVERAL_PROCESSES = {"on_mesh", "distributed.of_process_group", "distributed.run_on_processes", "distributed.standing"}
"""What runs on the processes of torch.distributed, which docs/participants.md shows."""


def test_public_functions_have_an_example():
    without = {name for name, thing in site_pages.names().items() if inspect.isfunction(thing) and not examples(name, thing)}
    assert without == FOR_SEVERAL_PROCESSES


@pytest.mark.parametrize("name", FUNCTIONS)
def test_documented_functions_have_an_example(name: str):
    assert examples(name, FUNCTIONS[name])


@pytest.mark.parametrize("name", [*FUNCTIONS, *site_pages.names()])
def test_examples_run(name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    said: list[str] = []
    found = examples(name, FUNCTIONS.get(name) or site_pages.names()[name])
    if any(word in example.source for test in found for example in test.examples for word in ("import jax", ".partition(")):
        pytest.importorskip("jaxlib")
    with ThreadPoolExecutor(1) as thread:  # what an example sets for its thread, such as a seed, ends with it
        for test in found:
            thread.submit(runner.run, test, out=said.append).result()
    assert not runner.failures, "".join(said)


def test_a_wrong_example_is_found():
    def wrong() -> None:
        """
        >>> ops.Neg(torch.tensor([1.0]))
        tensor([1.])
        """

    (test,) = examples("wrong", wrong)
    assert doctest.DocTestRunner().run(test, out=lambda text: None).failed == 1
