"""The demo that ships with the package: it agrees with JAX, it trains, its files are what gpt.py makes."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch

from xla_torch import demo, load
from xla_torch.demo.__main__ import check, show_code, train
from xla_torch.demo.text import CONTEXT, TEXT, VOCABULARY, batches, encode
from xla_torch.errors import LostDerivatives
from xla_torch.nn import XlaModule


def test_values_and_gradients_are_those_of_jax(capsys: pytest.CaptureFixture[str]):
    check(load(demo.PROGRAM), demo.stored())
    assert "gradients  differ" in capsys.readouterr().out


def test_it_says_nothing_of_derivatives():
    """Its author vouches for them, in the file."""
    program, given = load(demo.PROGRAM), demo.stored()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("error", LostDerivatives)
        check(program, given)


def test_a_wrong_value_is_found():
    given = demo.stored()
    with pytest.raises(AssertionError, match="the loss is not JAX's"):
        check(load(demo.PROGRAM), given._replace(loss=given.loss * 1.01))


def test_training_lowers_the_loss(capsys: pytest.CaptureFixture[str]):
    losses = train(XlaModule(load(demo.PROGRAM), parameters=demo.stored().parameters), steps=60)
    assert np.mean(losses[-10:]) < 0.8 * losses[0]
    assert "step   50" in capsys.readouterr().out


def test_the_code_is_shown(capsys: pytest.CaptureFixture[str]):
    show_code(load(demo.PROGRAM))
    assert "def forward(" in capsys.readouterr().out


def test_it_runs_where_jax_cannot_be_imported():
    """The demo and all that it imports leave jax alone, even where it is installed."""
    code = """
import sys
sys.modules["jax"] = sys.modules["jaxlib"] = None
from xla_torch import demo
from xla_torch.demo.__main__ import check, load
check(load(demo.PROGRAM), demo.stored())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().startswith("loss ")


def test_text_is_encoded_in_the_vocabulary():
    codes = encode(TEXT)
    assert codes.min() == 0
    assert codes.max() < VOCABULARY
    assert encode("\n ~").tolist() == [0, 1, 95]
    batch = next(batches(seed=3))
    assert batch.shape[1] == CONTEXT + 1
    np.testing.assert_array_equal(batch, next(batches(seed=3)))


def test_the_files_are_what_gpt_py_makes():
    pytest.importorskip("jax")
    from xla_torch.demo import gpt

    loss, given = load(demo.PROGRAM), demo.stored()
    parameters = gpt.initial_parameters(seed=0)
    tensors = [torch.from_numpy(leaf) for leaf in gpt.jax.tree_util.tree_leaves(parameters)]
    for stored, made in zip(given.parameters, tensors, strict=True):
        torch.testing.assert_close(stored, made)
    with gpt.jax.enable_x64(False):
        value = float(gpt.gpt_loss(parameters, given.characters.numpy()))
    assert loss(*tensors, given.characters).item() == pytest.approx(value, rel=1e-5)
