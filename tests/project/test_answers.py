"""What is kept of real XLA's answers (`support/answers.py`): found again, asked where it is missing, held against XLA."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from support.answers import FOLDER, Answers, close, digest, pack, unpacked

ANSWER = [np.array([1.5, np.nan], np.float32), np.zeros((0, 3), np.int8), np.array(True), np.array([1, 2], ml_dtypes.bfloat16),
          np.array([[1, -1]], ml_dtypes.int4), np.array(1 + 2j)]


def same(got: list[np.ndarray], want: list[np.ndarray]) -> bool:
    return [(a.dtype, a.shape, a.tobytes()) for a in got] == [(a.dtype, a.shape, a.tobytes()) for a in want]


def refuse() -> list[np.ndarray]:
    raise AssertionError("asked")


def test_files_hold_arrays_of_any_type() -> None:
    entries = unpacked(pack({"b": ANSWER, "a": []}))
    assert entries["a"] == []
    assert same(entries["b"], ANSWER)


def test_what_is_stored_is_not_asked_again(tmp_path: Path) -> None:
    test, noting = "tests/ops/test_x.py::test_y", Answers(tmp_path, note=True)
    assert same(noting.find(test, "key", lambda: ANSWER), ANSWER)
    noting.write(noting.parts())
    assert (tmp_path / "ops" / "test_x.xz").exists()
    assert same(Answers(tmp_path).find(test, "key", refuse), ANSWER)
    with pytest.raises(AssertionError, match="asked"):
        Answers(tmp_path).find(test, "another", refuse)
    with pytest.raises(AssertionError, match="asked"):
        Answers(tmp_path).find("tests/ops/test_z.py::test_y", "key", refuse)


def test_a_wrong_answer_is_found_where_xla_is_asked(tmp_path: Path) -> None:
    test, noting = "tests/ops/test_x.py::test_y", Answers(tmp_path, note=True)
    noting.find(test, "right", lambda: [np.arange(3.0)])
    noting.find(test, "wrong", lambda: [np.arange(3.0)])
    noting.write(noting.parts())
    asking = Answers(tmp_path, ask_xla=True)
    asking.find(test, "right", lambda: [np.arange(3.0) * (1 + 1e-15)])
    assert asking.differing == []
    asking.find(test, "wrong", lambda: [np.arange(3.0) + 1e-3])
    assert len(asking.differing) == 1


@pytest.mark.parametrize(("stored", "fresh"), [
    (np.array([1]), np.array([2])), (np.array([1.0]), np.array([1.0], np.float32)), (np.array([1.0]), np.array(1.0)),
    (np.array([1.0]), np.array([np.nan])), (np.array([np.inf]), np.array([-np.inf])),
    (np.array([1, 2], ml_dtypes.int4), np.array([1, 3], ml_dtypes.int4)), (np.array([1j]), np.array([1.01j])),
    (np.array([1, 2], ml_dtypes.bfloat16), np.array([1, 3], ml_dtypes.bfloat16)),
], ids=str)
def test_answers_that_differ(stored: np.ndarray, fresh: np.ndarray) -> None:
    assert not close([stored], [fresh])
    assert close([stored], [stored.copy()])


def test_a_question_is_a_text_and_arguments() -> None:
    pytest.importorskip("jaxlib")
    text, one = 'ROOT r = f32[2]{0} negate(p), metadata={op_name="a{b}" source_line=3}', np.ones(2, np.float32)
    asked = digest("run_xla", text, [one])
    assert digest("run_xla", text.replace("=3", "=4"), [one]) == asked
    assert len({asked, digest("jax", text, [one]), digest("run_xla", text.replace("negate", "sine"), [one]),
                digest("run_xla", text, [2 * one]), digest("run_xla", text, [one[None]]),
                digest("run_xla", text, [one.view(np.int32)])}) == 6


def test_every_file_belongs_to_a_test_module() -> None:
    tests = FOLDER.parents[1]
    modules = [(tests / path.relative_to(FOLDER)).with_suffix(".py") for path in FOLDER.rglob("*.xz")]
    assert [module for module in modules if not module.exists()] == []
