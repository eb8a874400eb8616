"""How long HLO text takes to load: seconds to parse, verify and print programs of growing size.

    python tests/benchmarks/load.py [--sizes 25000 50000 100000] [--print]

The programs look like what JAX emits: elementwise chains, broadcasts, reductions and products, with layouts and metadata.
Time for each instruction must stay the same as the program grows.
"""

from __future__ import annotations

import argparse
import time

import xla_torch.opcodes.front  # noqa: F401 - knows the opcodes
from xla_torch.hlo.parser import parse_hlo
from xla_torch.hlo.printer import print_module
from xla_torch.hlo.verifier import verify

_BLOCK = (
    "%c.{n} = f32[] constant({n}.5), metadata={{op_name=\"jit(step)/layer_{layer}/const\" stack_frame_id={layer}}}",
    "%b.{n} = f32[32,64]{{1,0}} broadcast(%c.{n}), dimensions={{}}, metadata={{op_name=\"jit(step)/layer_{layer}/broadcast\"}}",
    "%m.{n} = f32[32,64]{{1,0}} multiply(%x.{p}, %b.{n}), metadata={{op_name=\"jit(step)/layer_{layer}/mul\" stack_frame_id=7}}",
    "%d.{n} = f32[32,64]{{1,0}} dot(%m.{n}, %w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
    "%r.{n} = f32[32]{{0}} reduce(%d.{n}, %zero), dimensions={{1}}, to_apply=%sum",
    "%e.{n} = f32[32,64]{{1,0}} broadcast(%r.{n}), dimensions={{0}}",
    "%s.{n} = f32[32,64]{{1,0}} subtract(%d.{n}, %e.{n}), metadata={{op_name=\"jit(step)/layer_{layer}/sub\"}}",
    "%t.{n} = f32[64,32]{{1,0}} transpose(%s.{n}), dimensions={{1,0}}",
    "%g.{n} = pred[64,32]{{1,0}} compare(%t.{n}, %t.{n}), direction=GT",
    "%k.{n} = f32[64,32]{{1,0}} select(%g.{n}, %t.{n}, %t.{n}), metadata={{op_name=\"jit(step)/layer_{layer}/select_n\"}}",
    "%l.{n} = f32[8,32]{{1,0}} slice(%k.{n}), slice={{[0:8], [0:32]}}",
    "%a.{n} = f32[32,64]{{1,0}} reshape(%k.{n})",
    "%x.{n} = f32[32,64]{{1,0}} tanh(%a.{n}), metadata={{op_name=\"jit(step)/layer_{layer}/tanh\" source_file=\"model.py\" "
    "source_line={layer}}}",
)


def program(instructions: int) -> str:
    """HLO text of about this many instructions."""
    lines = ["HloModule long_program, entry_computation_layout={(f32[32,64]{1,0}, f32[64,64]{1,0})->f32[32,64]{1,0}}", "",
             "%sum (a: f32[], b: f32[]) -> f32[] {", "  %a = f32[] parameter(0)", "  %b = f32[] parameter(1)",
             "  ROOT %add = f32[] add(%a, %b)", "}", "", "ENTRY %main (x: f32[32,64], w: f32[64,64]) -> f32[32,64] {",
             "  %x.0 = f32[32,64]{1,0} parameter(0)", "  %w = f32[64,64]{1,0} parameter(1)", "  %zero = f32[] constant(0)"]
    blocks = max(1, (instructions - 7) // len(_BLOCK))
    for n in range(1, blocks + 1):
        lines += ["  " + line.format(n=n, p=n - 1, layer=n % 48) for line in _BLOCK]
    lines += [f"  ROOT %out = f32[32,64]{{1,0}} add(%x.{blocks}, %x.{blocks})", "}", ""]
    return "\n".join(lines)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sizes", type=int, nargs="+", default=[25_000, 50_000, 100_000])
    options.add_argument("--print", action="store_true", help="also time printing")
    chosen = options.parse_args()
    parse_hlo(program(100))
    print(f"{'instructions':>12} {'MB':>6} {'parse s':>8} {'verify s':>9} {'us each':>8}")
    for size in chosen.sizes:
        text = program(size)
        start = time.perf_counter()
        module = parse_hlo(text)
        parsed = time.perf_counter()
        verify(module)
        verified = time.perf_counter()
        each = (verified - start) / len(module.entry.instructions) * 1e6
        print(f"{size:12} {len(text) / 1e6:6.1f} {parsed - start:8.2f} {verified - parsed:9.2f} {each:8.1f}", flush=True)
        if chosen.print:
            start = time.perf_counter()
            print_module(module)
            print(f"{'printing':>12} {time.perf_counter() - start:15.2f}")


if __name__ == "__main__":
    main()
