"""An op that is defined in its five places, and in no others, is understood everywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_a_new_op_needs_its_five_places_only() -> None:
    """Schema, body, documented function, gradient rule and rows: then it runs, prints, differentiates, batches, partitions."""
    path = os.pathsep.join([str(TESTS.parent), str(TESTS), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-W", "error", "-m", "support.toy_op"], env={**os.environ, "PYTHONPATH": path},
                          text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["runs_and_prints", "differentiates", "batches", "has_other_rules", "is_complete"]
