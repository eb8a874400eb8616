"""The examples in docstrings run and give what stands below them; every documented function and public class has one."""

from __future__ import annotations

import ast
import dataclasses
import doctest
import functools
import inspect
import itertools
import re
import textwrap
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from support import site_pages
from xla_torch import Shape, XlaBuilder, errors, ops, run_replicas
from xla_torch.distributed import feeds

NAMES = {"np": np, "torch": torch, "xla_torch": xla_torch, "Shape": Shape, "XlaBuilder": XlaBuilder, "ops": ops,
         "run_replicas": run_replicas, "feeds": feeds}
"""What every example may use without importing it; `xla_torch.functions` and the site say so."""

NEEDS = {"import jax": "jax", ".partition(": "jaxlib", ".on_mesh(": "jaxlib", "import nnx": "flax", ".to_onnx(": "onnxscript"}
"""What examples with these words need installed."""

FUNCTIONS = {name: inspect.unwrap(getattr(ops, name))
             for family in site_pages.families() for name in site_pages.documented(family)}


def examples(name: str, thing: Any) -> list[doctest.DocTest]:
    """The examples of a function, or of a class and its methods."""
    found = doctest.DocTestFinder(recurse=inspect.isclass(thing)).find(thing, name, module=False, globs=dict(NAMES))
    return [test for test in found if test.examples]


def test_public_functions_have_an_example():
    assert [name for name, thing in site_pages.names().items() if inspect.isfunction(thing) and not examples(name, thing)] == []


CLASSES = {name: thing for name, thing in site_pages.public().items() if inspect.isclass(thing)}
ERRORS = {name: thing for name, thing in CLASSES.items() if issubclass(thing, BaseException)}
OTHERS = {name: thing for name, thing in CLASSES.items() if name not in ERRORS}
WHEN, TO_DO = re.compile(r"^(Raised|Warned) |never raised itself"), re.compile(r"^What to do: \w", re.M)


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_says_when_it_is_raised_and_what_to_do(name: str):
    messages = inspect.cleandoc(vars(ERRORS[name]).get("__doc__") or "")
    assert WHEN.search(messages)
    assert TO_DO.search(messages)


def test_errors_and_classes_are_all_of_them():
    named = {value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, BaseException | Warning)}
    assert named <= set(ERRORS.values())
    assert {xla_torch.Shape, xla_torch.XlaBuilder, xla_torch.XlaComputation, xla_torch.nn.XlaModule} <= set(OTHERS.values())


@pytest.mark.parametrize("name", OTHERS)
def test_a_class_has_an_example_and_says_what_each_field_holds(name: str):
    """Each field of a class of data stands in its docstring, in backticks, or has one of its own."""
    thing = OTHERS[name]
    messages, explained = vars(thing).get("__doc__") or "", own_docstrings(thing)
    assert any(test.name == name for test in examples(name, thing)), "no example in the docstring of the class"
    fields = [field.name for field in dataclasses.fields(thing)] if dataclasses.is_dataclass(thing) else []
    assert [field for field in fields if f"`{field}`" not in messages and field not in explained] == []


@pytest.mark.parametrize("name", OTHERS)
def test_an_example_uses_each_method(name: str):
    """Each public method and property, those of base classes of this package too, has a docstring, and stands in an example: in
    its own or in one of the class."""
    sources = "".join(re.sub(r" # .*", "", e.source) for test in examples(name, OTHERS[name]) for e in test.examples)
    found = methods(OTHERS[name])
    assert [method for method, value in found.items() if not inspect.getdoc(value)] == []
    assert [method for method in found if not re.search(rf"\.{method}\b", sources)] == []


def methods(thing: type) -> dict[str, Any]:
    """What a class's own body, or that of a base class of ours, defines: methods and properties by name."""
    bodies = [base for base in reversed(thing.__mro__) if base.__module__.startswith("xla_torch")]
    kinds = staticmethod, classmethod, property, functools.cached_property
    return {name: value for body in bodies for name, value in vars(body).items() if not name.startswith(("_", "why_apart")) and (
        isinstance(value, kinds) or (inspect.isfunction(value) and value.__qualname__ == f"{body.__qualname__}.{name}"))}


def own_docstrings(thing: type) -> set[str]:
    """The fields of a class behind which a docstring stands."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(thing))).body
    assert isinstance(body, ast.ClassDef)
    return {field.target.id for field, messages in itertools.pairwise(body.body)
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
            and isinstance(messages, ast.Expr) and isinstance(messages.value, ast.Constant)}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_documented_functions_have_an_example(name: str):
    assert examples(name, FUNCTIONS[name])


@pytest.mark.parametrize("name", [*FUNCTIONS, *site_pages.public()])
def test_examples_run(name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    messages: list[str] = []
    found = examples(name, FUNCTIONS.get(name) or site_pages.public()[name])
    for word, library in NEEDS.items():
        if any(word in example.source for test in found for example in test.examples):
            pytest.importorskip(library)
    with ThreadPoolExecutor(1) as thread:  # what an example sets for its thread, such as a seed, ends with it
        for test in found:
            thread.submit(runner.run, test, out=messages.append).result()
    assert not runner.failures, "".join(messages)


def test_a_wrong_example_is_found():
    def wrong() -> None:
        """
        >>> ops.Neg(torch.tensor([1.0]))
        tensor([1.])
        """

    (test,) = examples("wrong", wrong)
    assert doctest.DocTestRunner().run(test, out=lambda text: None).failed == 1
