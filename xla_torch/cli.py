"""The command line: run a program, look into it, read its PyTorch, differentiate it; and the table of all ops.

    python -m xla_torch run FILE [--args data.npz | --random SEED] [--save out.npz] [--device cuda]
    torchrun --nproc-per-node 4 -m xla_torch run FILE --args 'data.{participant}.npz'
    python -m xla_torch show FILE [--passes] | DIR
    python -m xla_torch diff FILE FILE | DIR DIR | DIR [--tolerance 1e-5]
    python -m xla_torch code FILE
    python -m xla_torch grad FILE [--argnums 0,1] [--value] [--out FILE]
    python -m xla_torch replay FILE [--device cuda]
    python -m xla_torch convert FILE OUT
    python -m xla_torch partition FILE --mesh data=2,model=2 [--shard 'NAME=(None,model)' ...] -o OUT
    python -m xla_torch ops [NAME ...]

Programs of unknown sizes are shown, and run on random arguments, for those of ``--sizes b=4,s=16`` and small ones for all others.

Under torchrun each process runs one participant of the program; ``{participant}`` in a file's name is its number.

FILE is HLO text, StableHLO text or bytecode, or an HLO proto, and ``-`` is standard input; for ``replay`` it is what
``xla_torch.debug.record`` wrote. Errors go to standard error in the house form, with exit status 2; that of ``replay`` is 1 where
results have other bits than were recorded, that of ``diff`` where results differ by more than the tolerance, or where one folder
has more; after Ctrl-C it is 130. On a terminal, long loads and loops show a progress bar where tqdm is installed.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from . import __version__, distributed
from .core import progress, tuning
from .core.errors import InvalidArgument, XlaError
from .core.shape import Shape
from .core.tuning import EXCHANGE_TIMEOUT
from .debug.files import DIFFERENT, difference
from .debug.recording import replay
from .doors import weights
from .doors.arguments import as_written
from .doors.dumps import compared, listing, paired, stages, stored_run
from .doors.gradients import grad, value_and_grad
from .doors.loading import load
from .doors.op_view import view
from .doors.partition import partition
from .doors.summary import ops_table, summary
from .doors.whole_files import are_whole, own_part, own_path, save
from .fusing.passes import recorded
from .running.computation import XlaComputation
from .running.polymorphic import of_unknown_sizes

FAILED = 2
"""Exit status after an error, the same as for a wrong command line."""

INTERRUPTED = 130
"""Exit status after Ctrl-C, as a shell has it."""

_SHOWN = 40
"""Lines of each pass's changes that `show --passes` prints."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    options = _parser().parse_args(argv)
    try:
        with progress.shown(), _stdin_as_file(options):
            status = options.command(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (head, less) has seen enough. Point stdout elsewhere, or the interpreter complains at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except XlaError as error:
        return _failed(error)
    except OSError as error:
        return _failed(f"{error.filename}: {error.strerror}" if error.filename else error)
    else:
        return status or 0
    return 0


@contextlib.contextmanager
def _stdin_as_file(options: argparse.Namespace) -> Iterator[None]:
    """What is read for a FILE of ``-`` is standard input, once."""
    names = [name for name in ("file", "other") if str(getattr(options, name, None)) == "-"]
    if not names:
        yield
        return
    if len(names) > 1:
        raise InvalidArgument("there is one standard input", subject="-", got="two files", expected="one")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "stdin")
        path.write_bytes(sys.stdin.buffer.read())
        setattr(options, names[0], path)
        yield


def _failed(error: object) -> int:
    print(f"error: {error}", file=sys.stderr)
    return FAILED


def _parser() -> argparse.ArgumentParser:
    description = "Run, read and differentiate XLA programs."
    parser = argparse.ArgumentParser(prog="python -m xla_torch", description=description)
    parser.add_argument("--version", action="version", version=f"xla_torch {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run the program and print its results")
    run.add_argument("file", type=Path, metavar="FILE")
    given = run.add_mutually_exclusive_group()
    given.add_argument("--args", type=Path, metavar="NPZ",
                       help="arguments: arrays named arg0, arg1, ... or as the parameters, else in the file's order")
    given.add_argument("--random", type=_seed, metavar="SEED", help="random arguments, the same for the same seed")
    run.add_argument("--whole", action="store_true", help="the arrays of --args are whole ones: each process takes its own part, "
                     "as the annotations of a partitioned program say (default: where they have the sizes that it says)")
    run.add_argument("--save", type=Path, metavar="NPZ", help="write the results as out0, out1, ...; of a partitioned program "
                     "the whole ones, unless {participant} is in the name")
    run.add_argument("--device", default="cpu", help="where to run, as torch names it (default: cpu; under torchrun cuda is "
                     "the process's own)")
    run.add_argument("--replicas", type=int, metavar="N", help="under torchrun: replicas (default: as the program says, or all)")
    run.add_argument("--partitions", type=int, metavar="N", help="under torchrun: partitions (default: as the program says)")
    run.add_argument("--timeout", type=float, default=EXCHANGE_TIMEOUT, metavar="S",
                     help="under torchrun: seconds that processes wait for each other (default: %(default)g)")
    run.set_defaults(command=_run)

    show = commands.add_parser("show", help="parameters, results, ops, cost, constants, what cannot run; of a "
                               "folder of --xla_dump_to its modules and stages")
    show.add_argument("file", type=Path, metavar="FILE")
    show.add_argument("--passes", action="store_true", help="what each pass over the lowered graph changed, instead")
    show.set_defaults(command=_show)

    diff = commands.add_parser("diff", help="compare the results of two programs, of the modules of two folders of --xla_dump_to "
                               "by name and stage, or of the stages of one, on drawn arguments")
    diff.add_argument("file", type=Path, metavar="FILE")
    diff.add_argument("other", type=Path, nargs="?", metavar="FILE")
    diff.add_argument("--tolerance", type=_tolerance, default=0.0, metavar="T",
                      help="by how much of themselves, and of the largest, elements may differ (default: 0)")
    diff.add_argument("--random", type=_seed, default=0, metavar="SEED", help="what the arguments are drawn from (default: 0)")
    diff.set_defaults(command=_diff)

    code = commands.add_parser("code", help="the PyTorch that the program becomes")
    code.add_argument("file", type=Path, metavar="FILE")
    code.add_argument("--device", default="cpu", help="the device it is made for (default: cpu)")
    code.set_defaults(command=_code)

    derive = commands.add_parser("grad", help="the gradient program, as HLO text")
    derive.add_argument("file", type=Path, metavar="FILE")
    derive.add_argument("--argnums", type=_numbers, metavar="N,N", help="arguments (default: all of floating types)")
    derive.add_argument("--value", action="store_true", help="return (value, gradients), not the gradients alone")
    derive.add_argument("--out", type=Path, metavar="FILE", help="write there instead of printing")
    derive.set_defaults(command=_grad)

    again = commands.add_parser("replay", help="run what debug.record wrote once more, and compare the results' bits")
    again.add_argument("file", type=Path, metavar="FILE")
    again.add_argument("--device", help="where to run, as torch names it (default: where it was recorded)")
    again.set_defaults(command=_replay)

    convert = commands.add_parser("convert", help="write the program in another form, as the name of OUT says: "
                                  + ", ".join(_WRITERS))
    convert.add_argument("file", type=Path, metavar="FILE")
    convert.add_argument("out", type=Path, metavar="OUT")
    convert.set_defaults(command=_convert)

    divide = commands.add_parser("partition", help="the program of one participant of a mesh, made by XLA's partitioner (jaxlib)")
    divide.add_argument("file", type=Path, metavar="FILE")
    divide.add_argument("--mesh", type=_sizes, metavar="NAME=N,...", help="axes and their sizes (default: the program's own)")
    divide.add_argument("--shard", type=_shard, action="append", metavar="NAME=(AXIS,...)", default=[],
                        help="how arguments lie whose names fit a pattern: for each dimension "
                             "an axis, None, or axes as a+b; or an HLO sharding in braces")
    divide.add_argument("--result", type=_spec, metavar="(AXIS,...)", help="how all results lie (default: as XLA chooses)")
    divide.add_argument("-o", "--out", type=Path, metavar="OUT", required=True, help="its name says the form, as in convert")
    divide.set_defaults(command=_partition)

    for command in (run, show, code, derive, convert):
        command.add_argument("--sizes", type=_sizes, metavar="NAME=N,...", default={}, help="sizes of a program of unknown ones")

    ops = commands.add_parser("ops", help="every op: operands, gradient, and in which tables of rules it is; of those that are "
                              "named all that is known, with file, line and source")
    ops.add_argument("names", nargs="*", metavar="NAME", help="an opcode, a documented function (Rev) or StableHLO's name")
    ops.set_defaults(command=_ops)
    return parser


def _sizes(text: str) -> dict[str, int]:
    parts = (part.partition("=") for part in text.split(","))
    return {name.strip(): int(number) for name, _, number in parts}


def _shard(text: str) -> tuple[str, str | tuple[str | tuple[str, ...] | None, ...]]:
    """``w*=(None,model)``."""
    name, _, words = text.partition("=")
    if not name or not words:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=(AXIS,...)")
    return name.strip(), _spec(words)


def _spec(text: str) -> str | tuple[str | tuple[str, ...] | None, ...]:
    """``(None,data+model)``; what stands in braces is HLO's."""
    words = text.strip()
    if words.startswith("{"):
        return words
    if not (words.startswith("(") and words.endswith(")")):
        raise argparse.ArgumentTypeError(f"{text!r} is not (AXIS,None,...) nor an HLO sharding in braces")
    axes = [axis.strip().strip("'\"") for axis in words[1:-1].split(",") if axis.strip()]
    return tuple(None if axis == "None" else tuple(axis.split("+")) for axis in axes)


def _seed(text: str) -> int:
    seed = int(text)
    if seed < 0:
        raise argparse.ArgumentTypeError(f"{seed} is no seed: 0 or more")
    return seed


def _tolerance(text: str) -> float:
    tolerance = float(text)
    if not 0 <= tolerance < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no tolerance: 0 or more")
    return tolerance


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


# ---------------------------------------------------------------------------------------------------- commands


def _program(options: argparse.Namespace) -> XlaComputation:
    """The program of the file. Raises InvalidArgument for sizes of one that knows its own."""
    computation = load(options.file)
    if options.sizes and of_unknown_sizes(computation) is None:
        raise InvalidArgument("the program has no unknown sizes", subject="--sizes", got=computation.program_shape)
    return computation


def _of_sizes(options: argparse.Namespace, computation: XlaComputation) -> XlaComputation:
    """The program that is run: that for the arguments' sizes, where those are unknown, or for the sizes that are said."""
    unknown = of_unknown_sizes(computation)
    if unknown is None:
        return computation
    if options.args is None:
        return unknown.at(options.sizes)
    return unknown.specialised(*_arguments(options, unknown, tuning.environment("RANK", int, 0, "a number")))


def _code(options: argparse.Namespace) -> None:
    computation, device = _program(options), _device(options.device)
    unknown = of_unknown_sizes(computation)
    print(computation.python_code(device) if unknown is None else unknown.python_code(device, options.sizes))


def _show(options: argparse.Namespace) -> None:
    if options.file.is_dir():
        print(listing(options.file))
    elif options.passes:
        print(_passes(_program(options), options.sizes))
    else:
        print(summary(_program(options), options.sizes))


def _passes(computation: XlaComputation, sizes: dict[str, int]) -> str:
    """What each pass took out of a graph (``-``) and put into it (``+``)."""
    unknown = of_unknown_sizes(computation)
    with recorded() as log:
        (computation if unknown is None else unknown.at(sizes)).lowered()
    lines = []
    for change in log:
        before, after = change.calls
        lines += [f"{change.graph}: {change.name}, {before} nodes to {after}", *(f"    {line}" for line in change.lines[:_SHOWN])]
        lines += [f"    ... and {len(change.lines) - _SHOWN} more"] * (len(change.lines) > _SHOWN)
    return "\n".join(lines)


def _diff(options: argparse.Namespace) -> int:
    """Results of two programs, of the modules of two dumps, or of each stage and the next of a dump's modules."""
    first, second = options.file, options.other
    if second is None and not first.is_dir():
        raise InvalidArgument("one file has nothing to differ from", subject="diff", got=first,
                              expected="two files, or a folder of --xla_dump_to")
    if second is not None and first.is_dir() != second.is_dir():
        raise InvalidArgument("a folder and a file are not compared", subject="diff", got=f"{first} and {second}",
                              expected="two files, or two folders of --xla_dump_to")
    if second is None:
        pairs = [(f"module {y.module}: {x.stage} -> {y.stage}", x.path, y.path)
                 for x, y in itertools.pairwise(stages(first)) if x.module == y.module]
    elif first.is_dir():
        pairs = paired(first, second)
    else:
        pairs = [("", first, second)]
    return max((_said(*pair, options) for pair in pairs), default=0)


def _said(label: str, first: Path | None, second: Path | None, options: argparse.Namespace) -> int:
    """Print what is to be said of one pair, of a folder with its label; returns the exit status that it asks for."""
    if first is None or second is None:
        print(f"{label}: only in {options.file if second is None else options.other}")
        return DIFFERENT
    said, status = difference(first, second, partial(_drawn, options.random), options.tolerance)
    print(f"{label}: {said}" if label else said)
    return status


def _drawn(seed: int, shapes: Sequence[Shape]) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [_random(random, shape) for shape in shapes]


def _run(options: argparse.Namespace) -> None:
    computation = _of_sizes(options, _program(options))
    with _joined(options, computation) if "TORCHELASTIC_RUN_ID" in os.environ else contextlib.nullcontext() as session:
        _run_as(options, computation, session)


def _run_as(options: argparse.Namespace, computation: XlaComputation, session: distributed.Processes | None) -> None:
    device = _device(options.device)
    number = 0 if session is None else session.numbers[0]
    if computation.partitioning.about and number == 0:
        print(computation.partitioning, file=sys.stderr)
    stored = stored_run(options.file, number) if options.args is None and options.random is None else None
    arguments = _arguments(options, computation, number) if stored is None else stored[0]
    if options.whole and options.args is None:
        raise InvalidArgument("random arguments are not whole", subject="--whole", got="--random", expected="--args data.npz")
    if options.whole or (options.args is not None and are_whole(computation, arguments)):
        arguments = own_part(computation, arguments, session)
    start = time.perf_counter()
    computation.lowered(device)
    lowered = time.perf_counter()
    results = computation.run_numpy(*arguments, device=device)
    done = time.perf_counter()
    shapes = [leaf for leaf in computation.program_shape.result.leaves() if leaf.is_array]
    lines = [] if session is None else [f"participant {number}"]
    for place, (result, shape) in enumerate(zip(results, shapes, strict=True)):
        text = np.array2string(result, threshold=20, edgeitems=3, separator=", ", max_line_width=110)
        lines.append(f"out{place}  {shape}\n{text}")
    if stored is not None and stored[1] is not None:
        lines.append(compared(results, stored[1]))
    # In one piece: the processes of a program share the terminal.
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    print(f"lowered in {lowered - start:.3f} s, run in {done - lowered:.3f} s on {device}", file=sys.stderr)
    if options.save is not None:
        save(options.save, computation, results, session)


@contextlib.contextmanager
def _joined(options: argparse.Namespace, computation: XlaComputation) -> Iterator[distributed.Processes]:
    """Take part in the program with the other processes that torchrun has started."""
    if options.device == "cuda":
        options.device = f"cuda:{tuning.environment('LOCAL_RANK', int, 0, 'a number') % max(1, torch.cuda.device_count())}"
    on_cuda = _device(options.device).type == "cuda"
    if on_cuda:
        torch.cuda.set_device(options.device)
    module = computation.module
    replicas = options.replicas or (module.replica_count if "replica_count" in module.header else None)
    dist.init_process_group("cpu:gloo,cuda:nccl" if on_cuda else "gloo")
    try:
        with distributed.of_process_group(num_replicas=replicas, num_partitions=options.partitions or module.num_partitions,
                                         timeout=options.timeout) as session:
            session.check(computation)
            yield session
    finally:
        dist.destroy_process_group()


def _grad(options: argparse.Namespace) -> None:
    computation = _program(options)
    parameters = computation.program_shape.parameters
    every = tuple(n for n, shape in enumerate(parameters) if shape.element_type.is_differentiable)
    derive = value_and_grad if options.value else grad
    found = derive(computation, argnums=every if options.argnums is None else options.argnums)
    unknown = of_unknown_sizes(found)
    text = found.to_hlo_text() if unknown is None else unknown.to_hlo_text(options.sizes)
    if options.out is None:
        print(text)
    else:
        options.out.write_text(text)


def _replay(options: argparse.Namespace) -> int:
    found = replay(options.file, None if options.device is None else _device(options.device))
    print(found)
    return 0 if found.same else DIFFERENT


def _whole(text_of: Callable[[XlaComputation], str | bytes]) -> Callable[[XlaComputation, Path], None]:
    def write(computation: XlaComputation, out: Path) -> None:
        text = text_of(computation)
        out.write_bytes(text if isinstance(text, bytes) else text.encode())

    return write


_WRITERS: dict[str, Callable[[XlaComputation, Path], None]] = {
    ".hlo": _whole(XlaComputation.to_hlo_text), ".txt": _whole(XlaComputation.to_hlo_text),
    ".mlir": _whole(XlaComputation.to_stablehlo), ".mlirbc": _whole(XlaComputation.to_stablehlo_bytecode),
    ".pb": _whole(XlaComputation.to_hlo_proto), ".html": _whole(XlaComputation.to_html), ".dot": _whole(XlaComputation.to_dot),
    ".pt2": lambda computation, out: computation.to_pt2(out), ".onnx": lambda computation, out: computation.to_onnx(out)}
"""How a program is written, by the end of the file's name: HLO and StableHLO text, bytecode, proto, page, graph, torch, ONNX."""


def _convert(options: argparse.Namespace) -> None:
    write = _writer(options.out, "convert")
    computation = _program(options)
    unknown = of_unknown_sizes(computation)
    write(computation if unknown is None else unknown.at(options.sizes), options.out)


def _partition(options: argparse.Namespace) -> None:
    write = _writer(options.out, "partition")
    write(partition(options.file, options.mesh, dict(options.shard), options.result), options.out)


def _writer(out: Path, subject: str) -> Callable[[XlaComputation, Path], None]:
    write = _WRITERS.get(out.suffix)
    if write is None:
        raise InvalidArgument("no form has this name", subject=subject, got=out, expected=", ".join(_WRITERS))
    return write


def _ops(options: argparse.Namespace) -> None:
    print("\n\n\n".join(map(view, options.names)) if options.names else ops_table())


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
        if device.type == "meta":
            raise RuntimeError("tensors there have no values")
    except (RuntimeError, AssertionError) as error:  # torch asserts that it was built with CUDA
        raise InvalidArgument("no such device here", subject="--device", got=name,
                              hint=str(error).partition("\n")[0]) from None
    return device


# --------------------------------------------------------------------------------------------------- arguments


def _arguments(options: argparse.Namespace, computation: XlaComputation, number: int) -> list[np.ndarray]:
    signature = computation.program_shape
    if options.args is not None:
        return _stored(own_path(options.args, number), signature.parameters, signature.parameter_names)
    if options.random is not None:
        random = np.random.default_rng(options.random + number)
        return [_random(random, shape) for shape in signature.parameters]
    if signature.parameters:
        raise InvalidArgument("the program takes arguments", subject="run", got="none", expected=signature,
                              hint="--args data.npz, or --random 0 to try it")
    return []


def _stored(path: Path, shapes: Sequence[Shape], names: Sequence[str]) -> list[np.ndarray]:
    """Arguments from an .npz file: by number, by parameter name, or in the file's order."""
    try:
        data = weights.npz(path)
    except InvalidArgument as error:
        raise error.located("--args") from None
    by_number = [f"arg{number}" for number in range(len(shapes))]
    keys = next((k for k in (by_number, list(names)) if set(k) <= set(data)), list(data))
    arrays = [data[key] for key in keys]
    if len(arrays) != len(shapes):
        raise InvalidArgument("wrong number of arrays in the file", subject="--args", got=", ".join(keys) or "none",
                              expected=f"{len(shapes)}: {', '.join(by_number)} or {', '.join(names)}")
    return [as_written(array, shape) for array, shape in zip(arrays, shapes, strict=True)]


def _random(random: np.random.Generator, shape: Shape) -> np.ndarray:
    """Standard normal floats, integers from 0 to 9 (as many as a narrow type holds), random booleans."""
    element_type, dims = shape.element_type, shape.dimensions
    if element_type.numpy is None or not shape.is_static:
        raise InvalidArgument("no random argument of this shape", subject="--random", got=shape,
                              expected="arrays with static dimensions", hint="--args data.npz")
    if element_type.is_integral or element_type.is_pred:
        values = element_type.bits - element_type.is_signed
        return random.integers(2 if element_type.is_pred else min(10, 2**values), size=dims).astype(element_type.numpy)
    normal = random.standard_normal(dims)
    if element_type.is_complex:
        normal = normal + 1j * random.standard_normal(dims)
    return np.asarray(normal).astype(element_type.numpy)
