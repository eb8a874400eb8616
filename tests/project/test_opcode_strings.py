"""An opcode's text stands in its schema, in rules, and in tests. Everything else asks for traits, or names the schema.

A string literal that equals an opcode counts, whatever it is meant for: a word that only looks like one ("add" for a kind of
reducer) should be a member of an enumeration as well.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

from xla_torch.opcodes import front

ROOT = Path(__file__).parents[2]

SCHEMAS = ("xla_torch/opcodes/", "xla_torch/hlo/structure.py")
RULES = ("xla_torch/lowering/bodies/", "grad_rules/", "xla_torch/batching/batching_rules.py",
         "xla_torch/aten/", "xla_torch/codegen/arrays.py", "xla_torch/batching/rebatching_link_rules.py",
         "xla_torch/transform/dynamic_sizes/resolving_rules.py")
"""Files of rules by opcode, or by operators of torch: a table's entries, and what they are made of."""

ELSEWHERE: dict[str, dict[str, str]] = {
    "xla_torch/hlo/attributes.py": {"pad": "a field of a window in HLO text"},
    "xla_torch/autodiff/options.py": {"sqrt": "how many iterations a segment has"},
    "xla_torch/api/custom_calls.py": {"call": "a keyword that a registered function may ask for"},
    "xla_torch/demo/__init__.py": {"parameter": "what arrays are called in the model's file"},
    "xla_torch/demo/gpt.py": {"parameter": "what arrays are called in the model's file"},
    "xla_torch/functions/__init__.py": {"convert": "a module"},
    "xla_torch/lowering/body_table.py": {"convert": "a module", "convolution": "another one"},
    "xla_torch/stablehlo/__init__.py": {"convert": "a module"},
    "xla_torch/visualization/__init__.py": {"dot": "a module"},
    "xla_torch/functions/internal.py": {"domain": "an attribute of domain"},
    "xla_torch/codegen/lapack.py": {"transpose": "a configuration entry of LAPACK's routines"},
    "xla_torch/functions/movement.py": {"slice": "the attribute of slice"},
    "xla_torch/transform/canonical_rules.py": {"slice": "the attribute of slice"},
    "xla_torch/functions/window.py": {"select": "an attribute of select-and-scatter", "scatter": "the other one"},
    "xla_torch/kernels/composites.py": {"gather": "an operator of torch's", "topk": "another one"},
    "xla_torch/kernels/lapack.py": {"transpose": "a configuration entry of LAPACK's routines"},
    "xla_torch/mlir/bytecode/dialects.py": {"dot": "an attribute of StableHLO", "gather": "as above", "scatter": "as above",
                                            "transpose": "an enumeration of StableHLO"},
    "xla_torch/mlir/bytecode/vhlo.py": {"transpose": "an enumeration of StableHLO"},
    "xla_torch/mlir/text/pretty.py": {"pad": "a field of a window in MLIR's text", "reverse": "another one"},
    "xla_torch/mlir/text/types.py": {"complex": "the word of a type", "tuple": "another one"},
    "xla_torch/mlir/text/vhlo.py": {"complex": "the word of a type", "tuple": "another one"},
    "xla_torch/storage/below_autograd.py": {"and": "an operator of Python's", "or": "another one", "xor": "a third"},
    "xla_torch/storage/messages.py": {"abs": "a builtin of Python's", "tuple": "another one", "log": "a method of loggers"},
    "xla_torch/storage/read_numbers.py": {"power": "a function of NumPy"},
    "xla_torch/storage/value_reads.py": {"add": "an operator of torch's", "log": "a logger of torch's"},
    "xla_torch/storage/torch_private.py": {"scan": "a higher-order operator of torch's"},
    "xla_torch/stablehlo/dynamic.py": {"slice": "the attribute of slice"},
    "xla_torch/stablehlo/folding.py": {"slice": "the attribute of slice"},
    "xla_torch/stablehlo/movement.py": {"slice": "the attribute of slice"},
    "xla_torch/stablehlo/reduction.py": {"select": "an attribute of select-and-scatter", "scatter": "the other one"},
    "xla_torch/stablehlo/writing/movement.py": {"slice": "the attribute of slice"},
    "xla_torch/stablehlo/writing/reduction.py": {"select": "an attribute of select-and-scatter", "scatter": "the other one"},
    "xla_torch/command_line/commands.py": {"convert": "a verb of the command line"},
    "xla_torch/command_line/writing.py": {"convert": "the same"},
    "xla_torch/proto/links.py": {"domain": "an attribute of domain", "select": "an attribute of select-and-scatter",
                                 "scatter": "the other one", "slice": "the attribute of slice"},
    "xla_torch/pytree/nodes.py": {"tuple": "a kind of Python container"},
    "xla_torch/core/types.py": {"complex": "a kind of element types"},
    "xla_torch/api/emitted_ops.py": {"add": "a method of builders"},
    "xla_torch/api/torch_random.py": {"exponential": "an operator of torch's"},
    "xla_torch/api/summary.py": {"call": "a keyword that a registered function may ask for"},
    "xla_torch/custom_calls/convolutions.py": {"add": "an op of cuDNN's graphs"},
    "xla_torch/custom_calls/solvers.py": {"transpose": "a configuration entry of LAPACK's routines"},
    "xla_torch/transform/expansions/matching.py": {"slice": "the attribute of slice"},
}
"""Literals that equal an opcode and are none: file, literal, what it is."""


def literals(path: Path) -> Counter[str]:
    """The string literals of a file, docstrings left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return Counter(n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str))


def test_opcodes_are_written_in_schemas_and_rules_only() -> None:
    found = {}
    for folder in ("xla_torch", "grad_rules"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith((*SCHEMAS, *RULES)):
                here = {text for text in literals(path) if text in front.OPS} - ELSEWHERE.get(name, {}).keys()
                found |= {name: sorted(here)} if here else {}
    assert found == {}, f"{sum(map(len, found.values()))} in {len(found)} files"


def test_exceptions_occur() -> None:
    """What is excused stands where it is said to stand."""
    gone = [(name, text) for name, excused in ELSEWHERE.items() for text in excused if not literals(ROOT / name)[text]]
    assert gone == []


def test_schemas_write_an_opcode_once() -> None:
    """In its own schema, and where an op is said to complete another."""
    counts: Counter[object] = Counter()
    for place in SCHEMAS:
        for path in [ROOT / place] if place.endswith(".py") else sorted((ROOT / place).glob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            counts.update(n.args[0].value for n in ast.walk(tree)
                          if isinstance(n, ast.Call) and n.args and isinstance(n.args[0], ast.Constant)
                          and isinstance(n.func, ast.Name) and n.func.id in ("op", "_unary", "_binary", "_function"))
            counts.update(n.value.value for n in tree.body if path.name == "structure.py" and isinstance(n, ast.Assign)
                          and isinstance(n.value, ast.Constant))
    assert [opcode for opcode in front.OPS if counts[opcode] != 1] == []
