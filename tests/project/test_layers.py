"""Import layers: no import points upwards, there are no import cycles, and programs are read without torch.

The layers are the contracts in `pyproject.toml`, which `make lint` checks; this checks what they cannot say.
"""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OPTIONAL = {"jax", "jaxlib", "rich"}
"""Libraries that are imported only where they are needed, since a user may not have them."""

PATHS = {".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p
         for folder in ("xla_torch", "grad_rules") for p in sorted((ROOT / folder).rglob("*.py"))}


def imports(module: str) -> Iterator[tuple[str, bool]]:
    """What a module imports, wherever it stands (also for types alone), and whether inside a function."""
    path = PATHS[module]
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]

    def visit(node: ast.AST, inside: bool) -> Iterator[tuple[str, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from ((alias.name, inside) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                base = package[:len(package) - child.level + 1] if child.level else []
                whole = ".".join([*base, *([child.module] if child.module else [])])
                yield from ((f"{whole}.{alias.name}" if f"{whole}.{alias.name}" in PATHS else whole, inside)
                            for alias in child.names)
            else:
                yield from visit(child, inside or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)))

    yield from visit(ast.parse(path.read_text(encoding="utf-8")), False)


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The groups of modules that import each other, by Tarjan's way of finding strongly connected components."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        number[node] = low[node] = len(number)
        stack.append(node)
        for other in graph[node]:
            if other not in number:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], number[other])
        if low[node] == number[node]:
            group = [stack.pop()]
            while group[-1] != node:
                group.append(stack.pop())
            if len(group) > 1:
                found.append(sorted(group))

    for node in graph:
        if node not in number:
            visit(node)
    return found


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}) == [["a", "b", "c"]]


def test_no_imports_go_round() -> None:
    """Not at import, not inside functions, not for types alone. The package's `__init__` names all modules, so it is left out."""
    graph = {module: {name for name, _ in imports(module) if name in PATHS and name not in (module, "xla_torch")}
             for module in PATHS if module != "xla_torch"}
    assert circles(graph) == []


def test_only_optional_libraries_are_imported_inside_functions() -> None:
    found = [(module, name) for module in PATHS for name, inside in imports(module)
             if inside and name.partition(".")[0] not in OPTIONAL]
    assert found == []


def test_the_contracts_hold() -> None:
    done = subprocess.run([sys.executable, "-c", "import sys; from importlinter.cli import lint_imports_command; "
                           "sys.exit(lint_imports_command())"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


WITHOUT_TORCH = {
    "the front": "import xla_torch.opcodes.front",
    "the package": "import xla_torch",
    "reading, checking and printing": (
        "from xla_torch.opcodes import front\n"
        "text = 'HloModule m\\nENTRY e { p = f32[2]{0} parameter(0) ROOT r = f32[2]{0} negate(p) }'\n"
        "module = front.parse_module(text)\n"
        "front.verify(module)\n"
        "assert 'negate' in front.print_module(module)"),
    "analyses": "import xla_torch.analysis.loops, xla_torch.analysis.reducers",
    "gradient rules": "import grad_rules",
}


@pytest.mark.parametrize("code", WITHOUT_TORCH.values(), ids=WITHOUT_TORCH.keys())
def test_torch_is_not_imported_for(code: str) -> None:
    check = f"{code}\nimport sys\nassert 'torch' not in sys.modules, 'torch was imported'"
    done = subprocess.run([sys.executable, "-W", "error", "-c", check], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


NOT_TO_RUN = (
    "grad_rules", "google.protobuf", "xla_torch.api.exported_function", "xla_torch.autodiff.derivatives",
    "xla_torch.batching.programs",
    "xla_torch.custom_calls.solvers", "xla_torch.distributed.processes", "xla_torch.functions.elementwise",
    "xla_torch.jax_interop.exported", "xla_torch.lowering.bodies.sorting", "xla_torch.mlir.ir",
    "xla_torch.partitioning.manual_regions", "xla_torch.precision.programs", "xla_torch.proto.schema",
    "xla_torch.runtime.polymorphic", "xla_torch.stablehlo.convert", "xla_torch.visualization.page",
    "xla_torch.xla_backend.client")
"""What a program does not need that is only read and run: one module at least of each such package."""

MODULES_TO_RUN = 290
"""At most as many modules of this package load to read and run a small program. Reading one costs a millisecond or two."""


def test_a_program_runs_without_the_modules_of_derivatives_and_formats() -> None:
    """A fresh process is measured by the modules that it loads, since each costs time before the first result."""
    code = ("import sys, torch, xla_torch\n"
            "text = 'HloModule m\\nENTRY e { p = f32[2]{0} parameter(0) ROOT r = f32[2]{0} negate(p) }'\n"
            "computation = xla_torch.parse_hlo(text)\n"
            "for _ in range(3):\n"
            "    assert computation(torch.ones(2)).tolist() == [-1, -1]\n"
            f"print(*sorted({{*{NOT_TO_RUN}}} & {{*sys.modules}}))\n"
            "print(sum(name.startswith('xla_torch') for name in sys.modules))")
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded, count = done.stdout.splitlines()
    assert loaded == ""
    assert int(count) <= MODULES_TO_RUN


def test_packages_with_lazy_modules_name_the_same_for_type_checkers() -> None:
    """What a package imports on first use is what it imports for type checkers, and it exists."""
    lazy = [name for name, path in PATHS.items() if name.startswith("xla_torch.") and "lazy(__name__" in path.read_text("utf-8")
            and name != "xla_torch.core.lazy_imports"]
    assert len(lazy) > 10
    for name in lazy:
        tree = ast.parse(PATHS[name].read_text(encoding="utf-8"))
        (stated,) = [n for n in tree.body if isinstance(n, ast.If)]
        names = {alias.name for n in stated.body if isinstance(n, ast.ImportFrom) for alias in n.names}
        package = importlib.import_module(name)
        assert names == {*package.__all__}, name
        assert all(getattr(package, export) is not None for export in names)


def test_the_package_names_existing_modules() -> None:
    """What the package's entry point says for type checkers is what it gives at run time."""
    import xla_torch

    tree = ast.parse(PATHS["xla_torch"].read_text(encoding="utf-8"))
    (stated,) = [n for n in tree.body if isinstance(n, ast.If)]
    names = {alias.name for n in stated.body if isinstance(n, ast.ImportFrom) for alias in n.names}
    assert names | {"PrimitiveType"} == set(xla_torch.__all__)
    for name in xla_torch.__all__:
        assert getattr(xla_torch, name) is not None
    assert set(xla_torch.__all__) <= set(dir(xla_torch))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = xla_torch.no_such_name


KINDS = {"Derivable", "XlaComputation", "StaticComputation", "PolymorphicComputation", "TreeFunction", "TorchFunction"}


def test_nobody_asks_which_kind_a_computation_is() -> None:
    """What differs between them is a method of each. One place asks whether something is a computation at all."""
    asked = [f"{module}: {ast.unparse(node)}" for module, path in PATHS.items() for node in ast.walk(
        ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance"
        and KINDS & {name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)}]
    assert asked == ["xla_torch.runtime.steps: isinstance(value, Derivable)"]
