"""Something happens to one process of a training: `make soak` does it for an hour, these are the first of each kind."""

from __future__ import annotations

import pytest

from fuzz.chaos import FAULTS, check


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(len(FAULTS)), ids=FAULTS)
def test_all_others_end_and_checkpoints_are_whole(seed: int) -> None:
    check(seed)
