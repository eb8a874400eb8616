"""Tries the models of the zoo, each in a process of its own, and writes the page of what came of it.

    make zoo                     # all that have no result yet for this state of the rows; then the page
    make zoo ARGS="--only NAME"  # one again, with the whole error
    make zoo ARGS="--anew"       # all again

Results are kept in `.zoo-results.jsonl`, a line for each try: the last one counts.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Real XLA runs each program once: what LLVM would make faster takes longer than it saves.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")

from zoo.judging import TOLERANCE, TOLERANCE_F32, Build, Found, judged

HERE = Path(__file__).parent
RESULTS = HERE.parent.parent / ".zoo-results.jsonl"
PAGE = HERE / "README.md"
SECONDS = 300
"""After so long a model is given up."""

FAMILIES = {"jax_models": "in", "jax_science": "in", "torch_language": "out", "torch_pictures": "out", "torch_science": "use",
            "torch_layers": "use", "torch_training": "train", "torch_iree": "iree"}
"""The modules of rows, and which way their models go."""


def rows(only_way: str | None = None) -> Iterator[tuple[str, str, Build]]:
    """The name of each model, its way, and what makes it."""
    for family, way in FAMILIES.items():
        if only_way in (None, way):
            for name, build in importlib.import_module(f"zoo.{family}").ROWS.items():
                yield name, way, build


def tried(build: Build, way: str, seconds: float = SECONDS, loud: bool = False) -> Found:
    """A model in a forked process: libraries are imported once, and what one model leaves behind does not meet the next."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_try, args=(theirs, build, way, loud))
    process.start()
    theirs.close()
    try:
        if not ours.poll(seconds):
            return {"error": f"not done after {seconds:.0f} s"}
        return ours.recv()
    except EOFError:
        process.join()
        return {"error": f"the process ended with {process.exitcode}"}
    finally:
        process.kill()
        process.join()


def _try(pipe: Any, build: Build, way: str, loud: bool) -> None:
    try:
        found = judged(build, way)
    except BaseException as error:
        if loud:
            traceback.print_exc()
        lines = [line.strip() for line in str(error).strip().splitlines()]
        found = {"error": " ".join([f"{type(error).__name__}:", *lines[:2]])[:300]}
    pipe.send(found)


def is_right(found: Found) -> bool:
    """Whether what was found differs by rounding only."""
    limit = TOLERANCE_F32 if found.get("narrow") else TOLERANCE
    return "error" not in found and all(found.get(k, 0.0) <= limit for k in ("values", "gradients", "back"))


def kept() -> dict[str, Found]:
    """The last result of each model."""
    if not RESULTS.exists():
        return {}
    return {found["name"]: found for found in map(json.loads, RESULTS.read_text().splitlines())}


def write_page(command: str) -> None:
    results = kept()
    found = [(name, way, results[name]) for name, way, _ in rows() if name in results]
    text = [_HEAD.format(command=command, date=date.today(), tolerance=TOLERANCE, narrow=TOLERANCE_F32)]
    for way, title in _TITLES.items():
        mine = [(name, f) for name, w, f in found if w == way]
        right, untried = sum(is_right(f) for _, f in mine), sum(w == way for _, w, _ in rows()) - len(mine)
        left = f" {untried} more are not tried yet." if untried else ""
        text += [f"\n## {title}\n\n{right} of {len(mine)} models agree.{left}\n",
                 "| model | values | gradients | on XLA | s | |", "| --- | --- | --- | --- | --- | --- |"]
        text += [_line(name, f) for name, f in mine]
    PAGE.write_text("\n".join(text) + "\n")


def _line(name: str, found: Found) -> str:
    cells = ["" if k not in found else f"{found[k]:.0e}" for k in ("values", "gradients", "back")]
    seconds = f"{found['seconds']:.0f}" if "seconds" in found else ""
    reasons = [found.get("error"), found.get("note"), None if is_right(found) or "error" in found else "**differs**",
               None if {"gradients", "error"} & {*found} or name.endswith("IREE") else
               "JAX has no gradient of it, for a loop of unknown length"]
    reason = "; ".join(r.replace("|", "\\|") for r in reasons if r)
    return f"| {name} | {' | '.join(cells)} | {seconds} | {reason} |"


_TITLES = {"in": "JAX models", "out": "torch models",
           "train": "torch models in training mode",
           "use": "Uses of other torch libraries",
           "iree": "torch models compiled by IREE (its values are in the third column)"}
_HEAD = """# The zoo

This page lists models of JAX and PyTorch libraries that were converted and compared with the original. It is for people who
want to know whether a model is supported.

`{command}` wrote it on {date}. The models have small random weights, and `constraints-zoo.txt` has the versions.

- JAX models are converted with `from_jax` and compared with JAX and `jax.vjp`.
- torch models are converted with `from_torch` and compared with eager torch and its backward pass, and with a second input.
- In training mode, models with dropout disabled are compared with torch, including the new values of buffers. With dropout,
  XLA must draw the same random numbers.
- *on XLA* is the HLO text that the program writes, compiled by XLA.

Models run in float64 if they support it. Each number is the largest difference relative to the largest value of the array. For
gradients and running statistics, that value is at least a thousandth of the largest of all arrays. A model whose derivatives
are lost does not agree. Above {tolerance:g} a model *differs*; if part of the program is narrower than float64, above
{narrow:g}. *s* is the time of both sides in seconds."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make zoo", description="Try the models of other people's libraries.")
    parser.add_argument("--only", metavar="NAME", help="try this model again, and show its whole error")
    parser.add_argument("--way", choices=["in", "out", "train", "use", "iree"], help="only models that go this way")
    parser.add_argument("--anew", action="store_true", help="try those again that have a result")
    parser.add_argument("--failed", action="store_true", help="try those again that did not agree")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="the limit for each model")
    parser.add_argument("--page", action="store_true", help="only write the page")
    args = parser.parse_args()
    done = {} if args.anew else kept()
    for name, way, build in () if args.page else rows(args.way):
        again = args.failed and name in done and not is_right(done[name])
        if args.only not in (None, name) or (name in done and args.only is None and not again):
            continue
        started = time.perf_counter()
        found = {"name": name, **tried(build, way, args.seconds, loud=args.only is not None)}
        if found.get("error", "").startswith("ModuleNotFoundError"):
            print(f"not tried: {name}: {found['error']}", flush=True)
            continue
        with RESULTS.open("a") as file:
            file.write(json.dumps(found) + "\n")
        print(f"{'ok ' if is_right(found) else 'NOT'} {time.perf_counter() - started:6.1f} s  {found}", flush=True)
    if args.only is None and args.way is None:
        write_page("make zoo")
    return 0


if __name__ == "__main__":
    sys.exit(main())
