"""How long large programs take from HLO text to results, by phases, beside XLA's CPU, which compiles and runs the same text.

    python tests/benchmarks/large_programs.py [--sizes 1000 10000 100000] [--only SUBSTRING] [--limit 60] [--profile PHASE]
        [--write]

For each program: seconds to parse and verify, to lower, of the first call after that and of the second; XLA's to compile and of
the first run; and the ratio of ours to the first results (all but the second call) to XLA's, which has a process of its own and
`--limit` seconds (0 leaves it out), and is not asked for what is larger than what it did not do. Time for each instruction must
stay the same as programs grow. `--profile` prints where a phase (parse, lower, first, second) of the last program spends time.
"""

from __future__ import annotations

import cProfile
import json
import pathlib
import pstats
import random
import sys
import time
from collections.abc import Callable

import numpy as np
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import xla_torch
from benchmarks.measuring import Table, in_child, parser, timed
from xla_torch.opcodes.front import parse_module, verify
from xla_torch.runtime.computation import XlaComputation

_REGIONS = "\n".join(f"%{name} (a: f32[], b: f32[]) -> f32[] {{\n  %a = f32[] parameter(0)\n  %b = f32[] parameter(1)\n"
                     f"  ROOT %r = f32[] {opcode}(%a, %b)\n}}\n" for name, opcode in (("sum", "add"), ("max", "maximum")))


class Text:
    """Instructions of an entry, written one after another."""

    def __init__(self, *parameters: str):
        self.lines: list[str] = []
        self.parameters = [self.add(shape, f"parameter({k})") for k, shape in enumerate(parameters)]
        self.zero, self.low = self.add("f32[]", "constant(0)"), self.add("f32[]", "constant(-inf)")

    def add(self, shape: str, call: str) -> str:
        """The name of a new instruction."""
        self.lines.append(f"  %v.{len(self.lines)} = {shape} {call}")
        return f"%v.{len(self.lines) - 1}"

    def total(self, shape: str, value: str, dim: int, low: bool = False) -> str:
        return self.add(shape, f"reduce({value}, {self.low if low else self.zero}), dimensions={{{dim}}}, "
                               f"to_apply=%{'max' if low else 'sum'}")

    def dot(self, shape: str, a: str, b: str, turned: bool = False) -> str:
        return self.add(shape, f"dot({a}, {b}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{{int(turned)}}}")

    def splat(self, shape: str, number: float) -> str:
        return self.add(shape, f"broadcast({self.add('f32[]', f'constant({number})')}), dimensions={{}}")

    def module(self, shape: str, results: list[str]) -> str:
        """The module's text, with one result of a shape or several."""
        many = f"({', '.join([shape] * len(results))})"
        root = [f"  ROOT %out = {many} tuple({', '.join(results)})"] if len(results) > 1 else []
        if not root:
            at = int(results[0].removeprefix("%v."))
            self.lines[at] = self.lines[at].replace("  ", "  ROOT ", 1)
        return "\n".join(["HloModule large", "", _REGIONS, "ENTRY %main {", *self.lines, *root, "}", ""])


def drawn(instructions: int, results: int = 1, side: int = 32) -> str:
    """Ops drawn at random, of values drawn at random among those of late, so that no stretch is like another."""
    draw, half, shape = random.Random(0), side // 2, f"f32[{side},{side}]"
    text = Text(shape, shape)
    unread, late = list(text.parameters), list(text.parameters)

    def some() -> str:
        value = unread.pop(draw.randrange(len(unread))) if len(unread) > 8 else draw.choice(late[-40:])
        if value in unread:
            unread.remove(value)
        return value

    def made() -> str:
        kind = draw.choices(range(7), (10, 10, 2, 2, 2, 2, 2))[0]
        if kind == 0:
            return text.add(shape, f"{draw.choice(('tanh', 'negate', 'sine', 'logistic', 'abs'))}({some()})")
        if kind == 1:
            return text.add(shape, f"{draw.choice(('add', 'subtract', 'maximum', 'minimum'))}({some()}, {some()})")
        if kind == 2:
            return text.add(shape, f"tanh({text.dot(shape, some(), some())})")
        if kind == 3:
            parts = [text.add(f"f32[{half},{side}]", f"slice({some()}), slice={{[{at}:{at + half}], [0:{side}]}}")
                     for at in draw.sample(range(half + 1), 2)]
            return text.add(shape, f"concatenate({', '.join(parts)}), dimensions={{0}}")
        if kind == 4:
            totals = text.total(f"f32[{side}]", some(), draw.randrange(2), bool(draw.randrange(2)))
            means = text.add(f"f32[{side}]", f"tanh({totals})")
            return text.add(shape, f"broadcast({means}), dimensions={{{draw.randrange(2)}}}")
        if kind == 5:
            flat = text.add(f"f32[{side * side}]", f"reshape({some()})")
            return text.add(shape, f"reshape({text.add(f'f32[{side * side}]', f'cosine({flat})')})")
        turned, other = text.add(shape, f"transpose({some()}), dimensions={{1,0}}"), some()
        test = text.add(shape.replace("f32", "pred"), f"compare({turned}, {other}), direction=GT")
        return text.add(shape, f"select({test}, {other}, {turned})")

    while len(text.lines) < instructions - len(unread):
        late.append(made())
        unread.append(late[-1])
    out = late[-results:-1]
    whole = unread[0]
    for value in unread[1:]:
        whole = text.add(shape, f"add({whole}, {value})")
    return text.module(shape, [*out, whole])


def transformer(instructions: int, width: int = 32, rows: int = 16) -> str:
    """Layers of one attention head and a perceptron, each with weights of its own."""
    layers, x_shape, w_shape = max(1, instructions // 63), f"f32[{rows},{width}]", f"f32[{width},{width}]"
    scores, row = f"f32[{rows},{rows}]", f"f32[{rows}]"
    text = Text(x_shape, *[w_shape] * (6 * layers))
    x, *weights = text.parameters

    def along(shape: str, value: str) -> str:
        return text.add(shape, f"broadcast({value}), dimensions={{0}}")

    def normed(x: str) -> str:
        count = text.splat(row, width)
        mean = text.add(row, f"divide({text.total(row, x, 1)}, {count})")
        apart = text.add(x_shape, f"subtract({x}, {along(x_shape, mean)})")
        squares = text.total(row, text.add(x_shape, f"multiply({apart}, {apart})"), 1)
        spread = text.add(row, f"add({text.add(row, f'divide({squares}, {count})')}, {text.splat(row, 1e-5)})")
        return text.add(x_shape, f"multiply({apart}, {along(x_shape, text.add(row, f'rsqrt({spread})'))})")

    def attended(x: str, q: str, k: str, v: str, o: str) -> str:
        queries, keys, values = (text.dot(x_shape, x, w) for w in (q, k, v))
        logits = text.add(scores, f"multiply({text.dot(scores, queries, keys, True)}, {text.splat(scores, width ** -0.5)})")
        low = along(scores, text.total(row, logits, 1, True))
        powers = text.add(scores, f"exponential({text.add(scores, f'subtract({logits}, {low})')})")
        shares = text.add(scores, f"divide({powers}, {along(scores, text.total(row, powers, 1))})")
        return text.dot(x_shape, text.dot(x_shape, shares, values), o)

    for layer in range(layers):
        q, k, v, o, up, down = weights[6 * layer:6 * layer + 6]
        x = text.add(x_shape, f"add({x}, {attended(normed(x), q, k, v, o)})")
        inner = text.add(x_shape, f"tanh({text.dot(x_shape, normed(x), up)})")
        x = text.add(x_shape, f"add({x}, {text.dot(x_shape, inner, down)})")
    return text.module(x_shape, [x])


def gru(instructions: int, results: int = 1, width: int = 32) -> str:
    """Steps of a gated recurrent unit, written one after another; the last state, or as many of the last."""
    steps, shape = max(results, instructions // 20), f"f32[8,{width}]"
    text = Text(f"f32[{steps},8,{width}]", *[f"f32[{width},{width}]"] * 6)
    xs, *weights = text.parameters
    states = [text.splat(shape, 0.5)]

    def gate(x: str, h: str, which: int, opcode: str) -> str:
        own, before = text.dot(shape, x, weights[2 * which]), text.dot(shape, h, weights[2 * which + 1])
        return text.add(shape, f"{opcode}({text.add(shape, f'add({own}, {before})')})")

    for step in range(steps):
        h = states[-1]
        part = text.add(f"f32[1,8,{width}]", f"slice({xs}), slice={{[{step}:{step + 1}], [0:8], [0:{width}]}}")
        x = text.add(shape, f"reshape({part})")
        update, reset = gate(x, h, 0, "logistic"), gate(x, h, 1, "logistic")
        new = gate(x, text.add(shape, f"multiply({reset}, {h})"), 2, "tanh")
        apart = text.add(shape, f"multiply({update}, {text.add(shape, f'subtract({h}, {new})')})")
        states.append(text.add(shape, f"add({new}, {apart})"))
    return text.module(shape, states[-results:])


PROGRAMS: dict[str, Callable[[int], str]] = {
    "ops drawn at random": drawn,
    "the same, 100 results": lambda size: drawn(size, 100),
    "of larger arrays": lambda size: drawn(size, side=128),
    "transformer layers": transformer,
    "steps of a GRU": gru,
    "the same, 50 results": lambda size: gru(size, 50),
}


class Phases:
    """Runs things and notes seconds; one of them under a profiler."""

    def __init__(self, profiled: str = ""):
        self.seconds: dict[str, float] = {}
        self.profiled, self.profile = profiled, cProfile.Profile()

    def run(self, name: str, what: Callable[[], object]) -> object:
        start = time.perf_counter()
        result = self.profile.runcall(what) if name == self.profiled else what()
        self.seconds[name] = time.perf_counter() - start
        return result


def ours(text: str, arrays: list[np.ndarray], phases: Phases) -> None:
    def parsed() -> XlaComputation:
        return xla_torch.parse_hlo(text)

    computation = phases.run("parse", parsed)
    assert isinstance(computation, XlaComputation)
    tensors = [torch.from_numpy(a) for a in arrays]
    phases.run("lower", computation.lowered)
    phases.run("first", lambda: computation(*tensors))
    phases.run("second", lambda: computation(*tensors))


def theirs(text: str) -> tuple[float, float]:
    """XLA's seconds to compile and of the first run."""
    import jax

    from support.oracle import executable

    buffers = [jax.device_put(a) for a in inputs(text)]
    compile_seconds, compiled = timed(lambda: executable(text))
    return compile_seconds, timed(lambda: jax.block_until_ready(compiled(buffers)))[0]


def inputs(text: str) -> list[np.ndarray]:
    """An array for each parameter of a program."""
    module = parse_module(text)
    verify(module)
    draw = np.random.default_rng(0)
    return [(draw.standard_normal(p.shape.dimensions) * 0.2).astype(np.float32) for p in module.entry.parameters]


def row(name: str, size: int, phases: Phases, limit: float) -> list[str]:
    """A line of the table. XLA has no time if the limit is 0, and not enough of it if that is what its cell says."""
    text = PROGRAMS[name](size)
    ours(text, inputs(text), phases)
    taken = [phases.seconds[key] for key in ("parse", "lower", "first", "second")]
    xla = in_child(__file__, "--xla", name, str(size), limit=limit) if limit else []
    cells = [f"over {limit:g}", ""] if xla is None else [f"{value:.3f}" for value in xla] or ["", ""]
    ratio = f"{sum(taken[:3]) / sum(xla):.2f}" if xla else ""
    return [name, f"{text.count(' = '):,}", *(f"{value:.3f}" for value in taken), *cells, ratio]


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--sizes", type=int, nargs="+", default=[1000, 10_000, 100_000])
    options.add_argument("--profile", default="")
    options.add_argument("--limit", type=float, default=60, help="seconds that XLA has for a program")
    options.add_argument("--xla", nargs=2, help="print XLA's seconds for a program, by its name and size")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    if chosen.xla:
        print(json.dumps(theirs(PROGRAMS[chosen.xla[0]](int(chosen.xla[1])))))
        return
    small = drawn(150)
    ours(small, inputs(small), Phases())  # what is imported and compiled once
    table = Table(__file__, ["program", "instructions", "parse s", "lower s", "first s", "second s", "XLA compile s", "XLA run s",
                             "ours / XLA"])
    phases = Phases()
    for name in PROGRAMS:
        limit = chosen.limit
        for size in sorted(chosen.sizes) if chosen.only in name else ():
            phases = Phases(chosen.profile)
            cells = row(name, size, phases, limit)
            table.add(*cells)
            limit = 0 if cells[6].startswith("over") else limit
    table.end(write=chosen.write)
    if chosen.profile:
        pstats.Stats(phases.profile).sort_stats("tottime").print_stats(45)


if __name__ == "__main__":
    main()
