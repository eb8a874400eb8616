"""What the demo learns to write, and batches of it. The text was written for it and is in the public domain."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

BATCH, CONTEXT, VOCABULARY = 8, 32, 96

TEXT = """\
The river keeps no record of the rain.
It takes the water and it takes the stone,
and what it took it does not give again,
and yet the valley knows that it has grown.

The miller's wheel is slower than the stream.
It takes a little, lets the rest go by,
and turns the heavy stone, and turns the beam,
and grinds the summer's wheat while it is dry.

The ferryman has crossed a thousand times.
He does not count the crossings any more.
He hears the village clock, he knows its chimes,
and ties his boat up to the other shore.

The fisher sits beside the water's edge.
He throws the line, and waits, and draws it in,
and throws again across the reeds and sedge,
and every throw is where the rest begin.

The children build a dam of sticks and clay.
It holds the river for an afternoon.
By evening all the sticks have gone away,
and they will build another very soon.

The heron stands as if it were a reed.
It sees the fish, the fish does not see it.
It does not want the river, or its speed,
it only wants the river's smallest bit.

The traveller asks how far it is to sea.
As far, they say, as any river goes.
And how long will it take? That seems to be
a thing, they say, that just the river knows.

The river keeps no record of the snow.
It takes the winter down from every hill,
and all that it has learned is how to go,
and all that it has heard is to be still.
"""


def encode(text: str) -> np.ndarray:
    """Characters as numbers: newline is 0, the printable ASCII characters follow from 1."""
    codes = np.frombuffer(text.encode("ascii"), np.uint8).astype(np.int32)
    return np.where(codes == ord("\n"), 0, codes - ord(" ") + 1).astype(np.int32)


def batches(seed: int) -> Iterator[np.ndarray]:
    """Endless random excerpts, each int32[BATCH, CONTEXT + 1]."""
    codes, random = encode(TEXT), np.random.default_rng(seed)
    windows = np.lib.stride_tricks.sliding_window_view(codes, CONTEXT + 1)
    while True:
        yield windows[random.integers(len(windows), size=BATCH)]
