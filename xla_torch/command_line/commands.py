"""Define the commands: arguments, options, help and examples. A command imports its implementation when called."""

from __future__ import annotations

import importlib
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.shell_completion import get_completion_class

from .. import __version__
from ..core import progress
from ..core.errors import InvalidArgument
from ..core.tuning import EXCHANGE_TIMEOUT
from .messages import Message, as_json

NAME = "xla_torch"

FORMS = (".hlo", ".txt", ".mlir", ".mlirbc", ".pb", ".html", ".dot", ".pt2", ".onnx")
"""Output formats by file extension: HLO and StableHLO text, bytecode, proto, HTML, Graphviz, torch.export, ONNX."""

COMPLETE = "_XLA_TORCH_COMPLETE"
"""The environment variable with which a shell requests completions."""


# ---------------------------------------------------------------------------------------------------- kinds of values


class _Input(click.Path):
    """A file to read; ``-`` is standard input, which is read once, into a file that lasts as long as the command."""

    def __init__(self):
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        open_files = None if ctx is None or ctx.resilient_parsing else ctx.find_object(ExitStack)
        if str(value) != "-" or ctx is None or open_files is None:
            return super().convert(value, param, ctx)
        if "stdin" in ctx.meta:
            raise InvalidArgument("standard input can be read only once", subject="-", got="two files", expected="one")
        folder = open_files.enter_context(tempfile.TemporaryDirectory())
        ctx.meta["stdin"] = path = Path(folder, "stdin")
        path.write_bytes(sys.stdin.buffer.read())
        return path


class _Parsed(click.ParamType):
    """A value that a function parses from text; the function raises ValueError for invalid text."""

    def __init__(self, name: str, parse: Any):
        self.name, self._parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _sizes(text: str) -> dict[str, int]:
    sizes = {}
    for part in text.split(","):
        name, _, number = part.partition("=")
        if not name.strip() or not number.strip().isdecimal():
            raise ValueError(f"{part!r} is not NAME=N")
        sizes[name.strip()] = int(number)
    return sizes


def _shard(text: str) -> tuple[str, str | tuple[str | tuple[str, ...] | None, ...]]:
    """``w*=(None,model)``."""
    name, _, words = text.partition("=")
    if not name or not words:
        raise ValueError(f"{text!r} is not NAME=(AXIS,...)")
    return name.strip(), _spec(words)


def _spec(text: str) -> str | tuple[str | tuple[str, ...] | None, ...]:
    """``(None,data+model)``, or an HLO sharding in braces."""
    words = text.strip()
    if words.startswith("{"):
        return words
    if not (words.startswith("(") and words.endswith(")")):
        raise ValueError(f"{text!r} is not (AXIS,None,...) nor an HLO sharding in braces")
    axes = [axis.strip().strip("'\"") for axis in words[1:-1].split(",") if axis.strip()]
    return tuple(None if axis == "None" else tuple(axis.split("+")) for axis in axes)


def _seed(text: str) -> int:
    if int(text) < 0:
        raise ValueError(f"{text} is not a seed: an integer of 0 or more")
    return int(text)


def _tolerance(text: str) -> float:
    tolerance = float(text)
    if not 0 <= tolerance < float("inf"):
        raise ValueError(f"{text} is not a tolerance: a number of 0 or more")
    return tolerance


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"{text!r} is not N or N,N: numbers of arguments, from 0 on") from None


INPUT, OUTPUT = _Input(), click.Path(path_type=Path)
SIZES, SPEC, SEED = _Parsed("sizes", _sizes), _Parsed("spec", _spec), _Parsed("seed", _seed)


# ---------------------------------------------------------------------------------------------------- the program


def _about() -> str:
    return ("Run, read and differentiate XLA programs.\n\nFILE is HLO text, StableHLO text or bytecode, or an HLO proto, and - "
            "is standard input. Exit status: 0 on success, 1 if results differ (diff, replay), 2 after an error, 130 after "
            "Ctrl-C.")


program = click.Group(NAME, help=_about(), context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
                      params=[click.Option(["--version"], is_flag=True, is_eager=True, expose_value=False,
                                           callback=lambda ctx, _, asked: _version(ctx) if asked else None,
                                           help="Print the version.")])


def _version(context: click.Context) -> None:
    click.echo(f"{NAME} {__version__}")
    context.exit()


def _command(name: str, module: str, about: str, *parameters: click.Parameter, examples: tuple[str, ...]) -> None:
    """Add a command, implemented by the function of the same name in a neighbouring module."""
    lines = "".join(f"\n  python -m xla_torch {example}" for example in examples)
    in_json = click.Option(["--json", "in_json"], is_flag=True, help="Print one line of JSON.")
    program.add_command(click.Command(name, params=[*parameters, in_json], callback=partial(_call, module, name), help=about,
                                      short_help=about.partition(". ")[0].rstrip("."), epilog=f"\b\nExamples:{lines}"))


def _call(module: str, name: str, in_json: bool, **options: Any) -> int:
    with progress.shown():
        message: Message = getattr(importlib.import_module(f".{module}", __package__), name)(**options)
        text = as_json(message.facts()) if in_json else message.text()
    # In one piece: the processes of a program share the terminal.
    sys.stdout.write(f"{text}\n" if text else "")
    return message.status


def _file() -> click.Argument:
    return click.Argument(["file"], type=INPUT, metavar="FILE")


def _sizes_option() -> click.Option:
    return click.Option(["--sizes"], type=SIZES, metavar="NAME=N,...", default=None,
                        help="Sizes for dimensions of unknown size (default: small ones).")


_command(
    "run", "running", "Run the program and print its results.", _file(),
    click.Option(["--args"], type=INPUT, metavar="NPZ", help="Arguments: arrays named arg0, arg1, ... or like the parameters, "
                 "else in file order. Under torchrun, {participant} in the name is the process's number."),
    click.Option(["--random"], type=SEED, metavar="SEED", help="Draw random arguments from this seed."),
    click.Option(["--whole"], is_flag=True, help="Treat the arrays of --args as whole: each process takes its part, by the "
                 "annotations of a partitioned program (default: if the arrays have the whole sizes)."),
    click.Option(["--save"], type=OUTPUT, metavar="NPZ", help="Write the results as out0, out1, ...; for a partitioned program "
                 "whole arrays, unless {participant} is in the name."),
    click.Option(["--device"], default="cpu", show_default=True, help="Run on this torch device; under torchrun, cuda is the "
                 "process's own."),
    click.Option(["--replicas"], type=click.IntRange(min=1), metavar="N",
                 help="Under torchrun: number of replicas (default: the program's, or all)."),
    click.Option(["--partitions"], type=click.IntRange(min=1), metavar="N",
                 help="Under torchrun: number of partitions (default: the program's)."),
    click.Option(["--timeout"], type=float, default=EXCHANGE_TIMEOUT, show_default=True, metavar="S",
                 help="Under torchrun: seconds that a process waits for others."),
    _sizes_option(),
    examples=("run model.hlo --random 0", "run model.hlo --args data.npz --save out.npz", "run - --random 0 --json < model.hlo",
              "run model.mlir --random 0 --sizes b=4,s=16"))

_command(
    "show", "looking", "Show parameters, results, ops, cost, constants and unsupported ops. For a folder of --xla_dump_to, "
    "list its modules and stages.", _file(),
    click.Option(["--passes"], is_flag=True, help="Show what each pass over the lowered graph changed."), _sizes_option(),
    examples=("show model.hlo", "show dump/", "show model.hlo --json"))

_command(
    "diff", "comparing", "Compare the results of two programs, or folders of programs, on random arguments. Two folders of "
    "--xla_dump_to are compared by module name and stage; in one folder, each stage with the next. The exit status is 0 if "
    "all are equal, 1 if some differ or are missing, 2 if they cannot be compared.", _file(),
    click.Argument(["other"], type=INPUT, required=False, metavar="[FILE]"),
    click.Option(["--tolerance"], type=_Parsed("tolerance", _tolerance), default=0.0, show_default=True, metavar="T",
                 help="Relative difference that is allowed, to each element and the largest."),
    click.Option(["--random"], type=SEED, default=0, show_default=True, metavar="SEED",
                 help="Draw random arguments from this seed."),
    examples=("diff before.hlo after.hlo --tolerance 1e-5", "diff dump_good/ dump_bad/", "diff dump/"))

_command(
    "code", "looking", "Print the PyTorch code of the program.", _file(),
    click.Option(["--device"], default="cpu", show_default=True, help="Generate code for this device."), _sizes_option(),
    examples=("code model.hlo", "code model.hlo | less"))

_command(
    "grad", "writing", "Print the gradient program as HLO text.", _file(),
    click.Option(["--argnums"], type=_Parsed("numbers", _numbers), metavar="N,N",
                 help="Differentiate by these arguments (default: all floating ones)."),
    click.Option(["--value"], is_flag=True, help="Return (value, gradients) instead of gradients."),
    click.Option(["--out"], type=OUTPUT, metavar="FILE", help="Write to this file instead of printing."), _sizes_option(),
    examples=("grad loss.hlo", "grad loss.hlo --argnums 0,1 --value --out step.hlo"))

_command(
    "replay", "running", "Run a recording of debug.record again and compare the results bit by bit. The exit status is 1 if they "
    "differ.", _file(),
    click.Option(["--device"], help="Run on this torch device (default: the recorded one)."),
    examples=("replay run.xlarun", "replay run.xlarun --device cuda"))

_command(
    "convert", "writing", f"Convert the program to another format. The extension of OUT selects it: {', '.join(FORMS)}.", _file(),
    click.Argument(["out"], type=OUTPUT, metavar="OUT"), _sizes_option(),
    examples=("convert model.hlo model.mlir", "convert model.mlir model.onnx", "convert - page.html < model.hlo"))

_command(
    "partition", "writing", "Partition the program for a mesh with XLA's partitioner, which needs jaxlib.",
    _file(),
    click.Option(["--mesh"], type=SIZES, metavar="NAME=N,...", help="Mesh axes and their sizes (default: the program's)."),
    click.Option(["--shard"], type=_Parsed("shard", _shard), multiple=True, metavar="NAME=(AXIS,...)",
                 help="Sharding of arguments whose names match a pattern: for each dimension an axis, None, or axes as a+b; or "
                 "an HLO sharding in braces. Repeatable."),
    click.Option(["--result"], type=SPEC, metavar="(AXIS,...)", help="Sharding of all results (default: chosen by XLA)."),
    click.Option(["-o", "--out"], type=OUTPUT, metavar="OUT", required=True,
                 help="Write to this file; its extension selects the format, as in convert."),
    examples=("partition model.hlo --mesh data=2,model=2 --shard 'w*=(None,model)' -o part.hlo",))

_command(
    "ops", "looking", "List every op with operands, gradient and rule tables. For given names, print details with file, "
    "line and source. A name is an opcode, a documented function (Rev) or a StableHLO op.",
    click.Argument(["names"], nargs=-1, metavar="[NAME]..."),
    examples=("ops", "ops reverse", "ops Rev stablehlo.reverse --json"))


@program.command(epilog="\b\nExamples:\n  source <(xla_torch completion bash)\n  xla_torch completion fish | source")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.option("--json", "in_json", is_flag=True, help="Print one line of JSON.")
def completion(shell: str, in_json: bool) -> None:
    """Print the shell completion script for xla_torch."""
    made = get_completion_class(shell)
    assert made is not None
    script = made(program, {}, NAME, COMPLETE).source()
    click.echo(as_json({"shell": shell, "script": script}) if in_json else script)
