"""Peak memory of training steps: ours beside torch by hand, the same under torch.compile, and XLA's CPU.

    python tests/benchmarks/memory.py [--only SUBSTRING] [--write]

MiB are what a process grows by at most in a step (VmHWM), after others that have compiled and loaded all there is: of a process
of its own for each, in which glibc gives back at once what is freed (`MALLOC_MMAP_THRESHOLD_`), so that only what is held counts.
"Counted" is exact: the most bytes that torch's operations have allocated at once, without what they use inside, to those of the
same by hand; of a step and of its forward pass alone.
"""

from __future__ import annotations

import ctypes
import gc
import json
import pathlib
import sys
import tempfile

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks.cases import CASES, COMPILED, TRAINING_STEPS
from benchmarks.gradients import of_model, peaks
from benchmarks.measuring import Run, Table, forget_peak, in_child, parser, resident
from benchmarks.models import MODELS, Model
from support.counting import Counted

WHO = "ours", "torch by hand", COMPILED, "XLA"
ALONE = {"MALLOC_MMAP_THRESHOLD_": str(1 << 16), "MALLOC_TRIM_THRESHOLD_": "0", "XLA_TORCH_NATIVE_AFTER": "0"}
"""What the processes have in their environment: freed memory goes back, and native code is there from the first step on."""


def measure(model: Model) -> tuple[int, int]:
    """The most bytes that a forward pass of the XLA program and of the model by hand have allocated at once."""
    model.check()
    with torch.no_grad():
        ours, by_hand = (Counted.of(loss, model.parameters, *model.batch).peak for loss in (model.program, model.by_hand))
    return ours, by_hand


def growth(run: Run) -> int:
    """By how many bytes a run has this process grow at most, once others have made what is made once."""
    for _ in range(3):
        run()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # small blocks are in the heap, which keeps them
    before = resident("VmRSS")
    forget_peak()
    run()
    return resident("VmHWM") - before


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--of", nargs=2, help="print the bytes of a step's growth: its name, and who runs it")
    chosen = options.parse_args()
    if chosen.of:
        name, who = chosen.of
        print(json.dumps(growth(CASES[name]()[who])))
        return
    table = Table(__file__, ["program", *(f"{who} MiB" for who in WHO), "ours / by hand", "ours / XLA", "counted, to by hand",
                             "forward, counted"])
    for name, make in zip(TRAINING_STEPS, MODELS.values(), strict=True):
        if chosen.only in name:
            with tempfile.TemporaryDirectory() as folder:
                places = {"XLA_TORCH_CACHE": folder, "TORCHINDUCTOR_CACHE_DIR": folder}
                grown = {who: in_child(__file__, "--of", name, who, environment=ALONE | places) for who in WHO}
            (step, step_by_hand), (forward, forward_by_hand) = peaks(of_model(make())), measure(make())
            table.add(name, *(f"{grown[who] / 2**20:.1f}" for who in WHO), f"{grown['ours'] / grown['torch by hand']:.2f}",
                      f"{grown['ours'] / grown['XLA']:.2f}", f"{step / step_by_hand:.2f}", f"{forward / forward_by_hand:.2f}")
    table.end(write=chosen.write)


if __name__ == "__main__":
    main()
