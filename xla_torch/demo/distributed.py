"""The demo's model trained by several processes on a mesh, which goes on from its newest checkpoint when a process was killed.

    torchrun --standalone --nproc-per-node 4 --max-restarts 3 -m xla_torch.demo.distributed --checkpoints FOLDER

Each process holds its pieces of the parameters and of the optimizer's state, and writes these into a checkpoint, which may be
read on another mesh. XLA's partitioner (jaxlib) is needed once: what it made is stored beside the checkpoints.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from ..api.loading import load
from ..api.on_mesh import on_mesh
from ..core.errors import MissingDependency
from ..nn import XlaModule
from ..runtime.computation import XlaComputation
from . import PROGRAM, stored
from .text import batches

PREFIX, UNFINISHED = "step-", "unfinished-"
"""How a checkpoint's folder is called, and until all of it is there."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, from the newest checkpoint on. Exits with an error where the loss does not fall."""
    options = options_of(arguments)
    join()
    if np.prod(list(options.mesh.values())) != dist.get_world_size():
        say(f"the mesh {options.mesh} is not for {dist.get_world_size()} processes: give another with --mesh")
        raise SystemExit(1)
    mesh = dist.init_device_mesh("cpu", tuple(options.mesh.values()), mesh_dim_names=tuple(options.mesh))
    try:
        program = program_on(mesh, options.shardings, options.checkpoints)
    except MissingDependency as error:
        say(f"{error}\nor give a folder of checkpoints that has been trained in with this mesh and these shardings")
        raise SystemExit(1) from None
    training = Training(program, options.lr)
    if options.checkpoints and (newest := by_first(lambda: newest_in(options.checkpoints))):
        training.load(newest)
        say(f"goes on at step {len(training.losses)}, from {newest.name}")
    train(training, options)
    say(training.holdings())
    count = max(1, min(10, len(training.losses) // 2))
    first, last = np.mean(training.losses[:count]), np.mean(training.losses[-count:])
    falls = bool(last < first)
    say(f"loss {first:.3f} at first, {last:.3f} at last, means of {count}" + ("" if falls else ": it did not fall"))
    raise SystemExit(not falls)


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="xla_torch.demo.distributed", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mesh", type=pairs, default="data=2,model=2", metavar="AXIS=SIZE,...",
                        help="the mesh of processes (default: %(default)s)")
    parser.add_argument("--shardings", type=layouts, default="data=fully_sharded,model=tensor", metavar="LAYOUT",
                        help="data, fully_sharded or tensor, or one for each axis (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=100, help="steps in all (default: %(default)s)")
    parser.add_argument("--every", type=int, default=20, metavar="K", help="steps to a checkpoint (default: %(default)s)")
    parser.add_argument("--print-every", type=int, default=10, metavar="K", help="steps to a line (default: %(default)s)")
    parser.add_argument("--checkpoints", type=Path, metavar="FOLDER", help="where all processes keep checkpoints (default: none)")
    parser.add_argument("--lr", type=float, default=3e-3, help="AdamW's learning rate (default: %(default)s)")
    options = parser.parse_args(arguments)
    if not dist.is_torchelastic_launched():
        parser.error("torchrun starts this: torchrun --standalone --nproc-per-node 4 -m xla_torch.demo.distributed")
    return options


def pairs(text: str) -> dict[str, int]:
    return {axis: int(size) for axis, size in (part.split("=") for part in text.split(","))}


def layouts(text: str) -> str | dict[str, str]:
    return dict(part.split("=") for part in text.split(",")) if "=" in text else text


def join() -> None:
    """Begin torch.distributed. torchrun's store outlives its processes (pytorch issue 135712): after a restart they would look
    for those that are gone, whose addresses stand there. So each start has a part of the store for itself."""
    store, rank, size = next(dist.rendezvous("env://"))
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        store = dist.PrefixStore(f"start {os.environ['TORCHELASTIC_RESTART_COUNT']}", store)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)


# ------------------------------------------------------------------------------------------------ the program


def program_on(mesh: Any, shardings: str | dict[str, str], folder: Path | None) -> XlaComputation:
    """The loss on the mesh: partitioned now, or when it was first needed, if there is a folder. One process has it whole. Raises
    MissingDependency on all processes where it takes a jaxlib that is not there."""
    if mesh.size() == 1:
        return load(PROGRAM)
    weights = range(len(stored().parameters))
    stated = repr((mesh.mesh.tolist(), mesh.mesh_dim_names, shardings)).encode() + PROGRAM.read_bytes()
    path = folder / f"program-{hashlib.sha256(stated).hexdigest()[:12]}.hlo" if folder else None
    if path and by_first(path.exists):
        say(f"partitioned before: {path.name}")
        return on_mesh(path, mesh)
    program: Any = on_mesh(load(PROGRAM), mesh, shardings, weights=weights)
    if path and dist.get_rank() == 0:
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_suffix(".unfinished")
        written.write_text(program.part.to_hlo_text())
        written.rename(path)
    return program


# ------------------------------------------------------------------------------------------------ training


class Training:
    """The model, its optimizer and the losses so far: what a checkpoint holds."""

    def __init__(self, program: XlaComputation, lr: float):
        self.model = XlaModule(program, parameters=stored().parameters)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr)
        self.losses: list[float] = []

    def step(self, batch: torch.Tensor) -> None:
        loss = self.model(batch)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.losses.append((loss.full_tensor() if hasattr(loss, "full_tensor") else loss).item())

    def state(self) -> dict[str, Any]:
        """By names, so that it fits on any mesh."""
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "losses": self.losses}

    def save(self, folder: Path) -> None:
        """Write a checkpoint, all processes together. It gets its name when all of it is there."""
        unfinished = folder / f"{UNFINISHED}{len(self.losses):06d}"
        checkpoint.save(self.state(), checkpoint_id=unfinished)  # the first process returns when all have written
        if dist.get_rank() == 0:
            commit(unfinished, folder / f"{PREFIX}{len(self.losses):06d}")

    def load(self, path: Path) -> None:
        """Go on from a checkpoint, all processes together."""
        state = self.state()
        checkpoint.load(state, checkpoint_id=path)
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self.losses = state["losses"]

    def holdings(self) -> str:
        """A table of the bytes that each process holds, beside the whole."""
        kept = [value for state in self.optimizer.state.values() for value in state.values()]
        own = [held(self.model.parameters()), held(kept)]
        rows: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(rows, own)
        lines = [f"{number:7d} {mine:17,d} {its:24,d}" for number, ((mine, _), (its, _)) in enumerate(rows)]
        return "\n".join(["process  parameters, bytes  optimizer's state, bytes", *lines,
                          f"  whole {own[0][1]:17,d} {own[1][1]:24,d}"])


def held(tensors: Iterable[Any]) -> tuple[int, int]:
    """The bytes of this process's pieces, and of the whole tensors."""
    given = list(tensors)
    return sum((t.to_local() if hasattr(t, "to_local") else t).nbytes for t in given), sum(t.nbytes for t in given)


def train(training: Training, options: argparse.Namespace) -> None:
    """The steps that are left. Each has its batch by its number, so that after a restart it has the same."""
    for step in range(len(training.losses), options.steps):
        training.step(batch_of(step))
        if step % options.print_every == 0 or step == options.steps - 1:
            say(f"  step {step:4d}   loss {training.losses[-1]:.6f}")
        if options.checkpoints and ((step + 1) % options.every == 0 or step == options.steps - 1):
            training.save(options.checkpoints)


def batch_of(step: int) -> torch.Tensor:
    return torch.from_numpy(next(batches(seed=step)))


# ------------------------------------------------------------------------------------------------ checkpoints


def newest_in(folder: Path) -> Path | None:
    """The newest whole checkpoint, once what is left of others has been removed."""
    for left in folder.glob(f"{UNFINISHED}*"):
        shutil.rmtree(left)
    return max(folder.glob(f"{PREFIX}*"), key=lambda path: path.name, default=None)


def commit(unfinished: Path, path: Path) -> None:
    """From here on there is a checkpoint."""
    os.replace(unfinished, path)


def by_first(decide: Any) -> Any:
    """What the first process finds, on all."""
    found = [decide() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(found)
    return found[0]


def say(text: str) -> None:
    """Print it, in the first process, and at once: who is killed prints nothing afterwards."""
    if dist.get_rank() == 0:
        print(text, flush=True)


if __name__ == "__main__":
    main()
