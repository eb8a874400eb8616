"""What constants cost: programs with large constants, loaded from each form, each in a process of its own.

    python tests/benchmarks/literals.py [MEGABYTES]

Two programs: one with a single constant of a size, and a ResNet-50 with its 25.6 million weights inside (102 MB), which
JAX makes. For each form: the file's size, seconds to load it (of the clock, and of the processor), MB of data and of the file for
each second of the processor, and by how much the process grew at most while it loaded, in multiples of the data:

    peak/data   the most memory that the process had while it loaded (resident, with the pages of the mapped file), less what it
                had before, to the bytes of the arrays. The arrays themselves count, so that 1 is the least.
    of a str    the same for text that the caller holds as a string already, which is not counted; blank for what is no text.

The last three columns are the first call, MB of data printed as HLO text in a second of the processor, and MB that the process
copied into fresh memory in one before it loaded: what nothing that leaves the file behind can exceed.

A virtual machine takes memory from its host where it is touched for the first time, which costs many times as much as reading. By
the copy each process touches, and frees again, as much as loading needs.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measuring import forget_peak, in_child, resident


def _mlir(body: str, rows: int) -> str:
    kind = f"tensor<{rows}x1024xf32>"
    return f"""module @m {{
  func.func public @main(%x: {kind}) -> {kind} {{
    %c = stablehlo.constant dense<{body}> : {kind}
    %0 = stablehlo.add %x, %c : {kind}
    return %0 : {kind}
  }}
}}
"""


def one_constant(megabytes: int) -> dict[str, bytes]:
    """A program with one constant, in each form."""
    from jaxlib import _jax  # pyright: ignore[reportAttributeAccessIssue]

    from xla_torch import from_stablehlo

    rows = megabytes * 256
    array = np.random.default_rng(0).standard_normal((rows, 1024)).astype(np.float32)
    hexadecimal = _mlir(f'"0x{array.tobytes().hex().upper()}"', rows)
    program = from_stablehlo(hexadecimal)
    hlo = program.to_hlo_text()
    start = hlo.index("constant(") + len("constant(")
    decimal = hlo[start:hlo.index(")", start)].replace("{", "[").replace("}", "]")
    return {
        "bytecode": _jax.mlir.serialize_portable_artifact(hexadecimal, "1.0.0"),
        "proto": program.to_hlo_proto(),
        "hexadecimal MLIR": hexadecimal.encode(),
        "decimal MLIR": _mlir(decimal, rows).encode(),
        "decimal HLO": hlo.encode(),
    }


def resnet(side: int = 64, width: int = 64) -> dict[str, bytes]:
    """A ResNet-50 with weights drawn at random and baked in, in each form."""
    import jax
    import jax.numpy as jnp
    from jax.interpreters import mlir as jax_mlir
    from jaxlib import _jax  # pyright: ignore[reportAttributeAccessIssue]

    from xla_torch import from_stablehlo

    random = np.random.default_rng(0)

    def drawn(*sizes: int) -> Any:
        return (random.standard_normal(sizes) * np.sqrt(2 / max(1, np.prod(sizes[:-1])))).astype(np.float32)

    def convolved(x: Any, features: int, window: int, stride: int = 1) -> Any:
        kernel, scale, offset = drawn(window, window, x.shape[-1], features), drawn(features) + 1, drawn(features)
        x = jax.lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return x * scale + offset

    def block(x: Any, features: int, stride: int) -> Any:
        y = jax.nn.relu(convolved(x, features, 1))
        y = jax.nn.relu(convolved(y, features, 3, stride))
        y = convolved(y, 4 * features, 1)
        return jax.nn.relu(y + (convolved(x, 4 * features, 1, stride) if x.shape != y.shape else x))

    def network(x: Any) -> Any:
        x = jax.nn.relu(convolved(x, width, 7, 2))
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        for stage, blocks in enumerate((3, 4, 6, 3)):
            for number in range(blocks):
                x = block(x, width << stage, 2 if stage and not number else 1)
        x = x.mean((1, 2))
        return x @ drawn(x.shape[-1], 1000) + drawn(1000)

    module: Any = jax.jit(network).lower(jax.ShapeDtypeStruct((1, side, side, 3), np.float32)).compiler_ir("stablehlo")
    hexadecimal = jax_mlir.module_to_string(module, enable_debug_info=False)
    program = from_stablehlo(hexadecimal)
    return {
        "bytecode": _jax.mlir.serialize_portable_artifact(hexadecimal, "1.0.0"),
        "proto": program.to_hlo_proto(),
        "hexadecimal MLIR": hexadecimal.encode(),
        "decimal HLO": program.to_hlo_text().encode(),
    }


def _copied_in_a_second(size: int) -> float:
    """Bytes that a second of the processor copies into fresh memory, of this many at a time."""
    source, seconds = np.ones(size, np.uint8), 0.0
    for _ in range(2):  # the second time into what the first has freed
        seconds = time.process_time()
        source.copy()
        seconds = time.process_time() - seconds
    return size / seconds


def measure(path: str, as_string: bool) -> dict[str, float]:
    """Load a file, in this process."""
    import torch

    from xla_torch import from_stablehlo, load, parse_hlo

    parse_hlo("HloModule m\nENTRY e { x = f32[2] parameter(0) ROOT r = f32[2] add(x, x) }")(torch.ones(2))
    from_stablehlo(_mlir("1.0", 1))  # whatever is imported late, or made at first use
    text = Path(path).read_text() if as_string else ""
    copied = _copied_in_a_second(Path(path).stat().st_size)
    forget_peak()
    before = resident("VmHWM")
    clock, processor = time.perf_counter(), time.process_time()
    computation = (parse_hlo if text.startswith("HloModule") else from_stablehlo)(text) if as_string else load(path)
    clock, processor = time.perf_counter() - clock, time.process_time() - processor
    grown = resident("VmHWM") - before
    argument = torch.zeros(computation.program_shape.parameters[0].dimensions)
    call = time.perf_counter()
    computation(argument)
    call = time.perf_counter() - call
    printed = time.process_time()
    computation.to_hlo_text()
    printed = time.process_time() - printed
    data = sum(i.attributes["literal"].array.nbytes for c in computation.module.computations
               for i in c.instructions if i.opcode == "constant")
    return {"clock": clock, "processor": processor, "grown": grown, "data": data, "call": call,
            "printed": printed, "copied": copied}


def measured(path: Path, as_string: bool = False) -> dict[str, float]:
    """`measure` in a process of its own."""
    return in_child(__file__, "--measure-string" if as_string else "--measure", str(path))


def rows(title: str, forms: dict[str, bytes]) -> None:
    print(f"\n{title:18} {'file MB':>8} {'data MB':>8} {'s':>7} {'s (cpu)':>8} {'MB/s data':>10} {'MB/s file':>10} "
          f"{'peak/data':>10} {'of a str':>10} {'first call s':>13} {'printed MB/s':>13} "
          f"{'copied MB/s':>12}")
    with tempfile.TemporaryDirectory() as folder:
        for name, content in forms.items():
            path = Path(folder) / name.replace(" ", "_")
            path.write_bytes(content)
            found = measured(path)
            data = found["data"]
            of_string = f"{measured(path, as_string=True)['grown'] / data:10.2f}" if name.endswith(("MLIR", "HLO")) else " " * 10
            print(f"{name:18} {len(content) / 1e6:8.1f} {data / 1e6:8.1f} {found['clock']:7.3f} {found['processor']:8.3f} "
                  f"{data / 1e6 / found['processor']:10.0f} {len(content) / 1e6 / found['processor']:10.0f} "
                  f"{found['grown'] / data:10.2f} {of_string} {found['call']:13.3f} {data / 1e6 / found['printed']:13.0f} "
                  f"{found['copied'] / 1e6:12.0f}",
                  flush=True)


def main(megabytes: int) -> None:
    rows("one constant", one_constant(megabytes))
    rows("ResNet-50", resnet())


if __name__ == "__main__":
    if sys.argv[1:2] in (["--measure"], ["--measure-string"]):
        print(json.dumps(measure(sys.argv[2], sys.argv[1] == "--measure-string")))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 64)
