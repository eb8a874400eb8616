"""Files of jax.export, read without jax, against what jax reads from them, and their programs against what jax computes."""

from __future__ import annotations

import contextlib
import dataclasses
import pickle
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax import export
from jax._src import core, effects
from jax._src.interpreters import mlir
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

from xla_torch.api.exported_function import from_exported
from xla_torch.api.jax_function import from_jax
from xla_torch.api.loading import load
from xla_torch.api.to_jax import to_jax
from xla_torch.api.tree_function import TreeFunction
from xla_torch.errors import InvalidArgument, UnsupportedError, XlaError
from xla_torch.hlo.ir import Module
from xla_torch.jax_interop import exported as reading
from xla_torch.jax_interop.exported import Aval, read_exported
from xla_torch.jax_interop.exported_main import module_of
from xla_torch.jax_interop.flatbuffer import is_exported
from xla_torch.pytree.structure import Structure
from xla_torch.runtime.static import StaticComputation
from xla_torch.stablehlo.convert import to_module
from xla_torch.types import F32, S32, PrimitiveType


class Point(NamedTuple):
    x: Any
    y: Any


export.register_namedtuple_serialization(Point, serialized_name="tests.Point")

X, N = np.linspace(-1, 2, 6, dtype=np.float32).reshape(2, 3), np.arange(3, dtype=np.int32)


def _tree(a: dict[str, Any], b: list[Any], *, scale: float) -> Any:
    return {"p": Point(a["w"] @ a["x"].T, b[0] * scale), "none": None, "l": [a["x"].sum(), (b[1],)]}


FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    "two results": (lambda x: (jnp.sin(x), x.sum()), (X,), {}),
    "trees": (_tree, ({"x": X, "w": X + 1}, [X, N]), {"scale": 2.0}),
    "unused arguments": (lambda a, b, c: b * 2, (X, X, N), {}),
    "no arguments": (lambda: jnp.arange(4), (), {}),
    "integers": (lambda n: n // 2, (N,), {}),
    "control flow": (lambda x: jax.lax.fori_loop(0, 3, lambda i, y: jnp.where(y > i, y * y, y - 1), x), (X,), {}),
    "narrow floats": (lambda x: x.astype(jnp.bfloat16) @ x.T.astype(jnp.bfloat16), (X,), {}),
    "float8": (lambda x: x * 2, (X.astype(jnp.float8_e4m3fn),), {}),
}


def check_facts(file: reading.ExportedFile, of: Any) -> None:
    """All that jax says of an exported function."""
    for name in ("fun_name", "nr_devices", "platforms", "calling_convention_version", "module_kept_var_idx",
                 "uses_global_constants"):
        assert getattr(file, name) == getattr(of, name), name
    assert repr(file.in_tree) == repr(Structure.from_jax(of.in_tree))  # a class has another name in the file
    assert repr(file.out_tree) == repr(Structure.from_jax(of.out_tree))
    for mine, theirs in ((file.in_avals, of.in_avals), (file.out_avals, of.out_avals)):
        assert [a.shape for a in mine] == [tuple(d if isinstance(d, int) else str(d) for d in a.shape) for a in theirs]
        for a, b in zip(mine, theirs, strict=True):
            native = a.dtype.numpy if isinstance(a.dtype, PrimitiveType) else a.dtype.replace("float0", "[('float0', 'V')]")
            assert str(native) == str(b.dtype)
    assert len(file.ordered_effects) == len(of.ordered_effects)
    assert [s is None for s in file.in_shardings] == [s is None for s in of._in_named_shardings]


def run(file: reading.ExportedFile, *leaves: Any, platform: str | None = None) -> list[np.ndarray]:
    """The flat results of a file's program."""
    module = to_module(module_of(file, platform), argument_shapes=[np.shape(leaf) for leaf in leaves])
    assert isinstance(module, Module)
    return list(StaticComputation(module).run_numpy(*map(np.asarray, leaves)))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    function, args, kwargs = FUNCTIONS[name]
    made = export.export(jax.jit(function))(*args, **kwargs)
    data = bytes(made.serialize())
    assert is_exported(data)
    file = read_exported(data)
    check_facts(file, made)
    assert bytes(file.module) == made.mlir_module_serialized
    assert file.vjp is None
    types = [a.dtype for a in made.in_avals]
    leaves = [np.asarray(leaf, t) for leaf, t in zip(jax.tree.leaves((args, kwargs)), types, strict=True)]
    for got, want in zip(run(file, *leaves), jax.tree.leaves(jax.jit(function)(*args, **kwargs)), strict=True):
        np.testing.assert_allclose(np.asarray(got, np.float64), np.asarray(want, np.float64), rtol=1e-5, atol=1e-6)


def test_derivatives() -> None:
    """Two orders: the derivative takes the arguments and a cotangent for each result."""
    made = export.export(jax.jit(lambda x, n: (jnp.sin(x) * n.sum(), n)))(X, N)
    file = read_exported(bytes(made.serialize(vjp_order=2)))
    assert file.vjp_order == 2
    check_facts(file, made)
    first, made_first = file.vjp, made.vjp()
    assert first is not None
    check_facts(first, made_first)
    assert [a.dtype for a in first.in_avals] == [F32, S32, F32, "float0"]
    check_facts(first.vjp, made_first.vjp())  # pyright: ignore[reportArgumentType]
    got = run(first, X, N, X, np.zeros(3, bool))
    np.testing.assert_allclose(got[0], np.cos(X) * 3 * X, rtol=1e-5)


def test_unknown_sizes() -> None:
    b, c = export.symbolic_shape("b, c")
    made = export.export(jax.jit(lambda x, y: (x @ y, x.reshape(-1))))(jax.ShapeDtypeStruct((b, 3), np.float32),
                                                                        jax.ShapeDtypeStruct((3, 2 * c), np.float32))
    file = read_exported(bytes(made.serialize()))
    check_facts(file, made)
    assert [a.shape for a in file.in_avals] == [("b", 3), (3, "2*c")]
    assert not file.in_avals[0].is_static
    assert file.out_avals[1].shape == ("3*b",)
    y = np.ones((3, 4), np.float32)
    np.testing.assert_allclose(run(file, X, y)[0], X @ y, rtol=1e-5)


def test_several_platforms() -> None:
    """The program asks which of them it runs for."""
    def function(x: Any) -> Any:
        return jax.lax.platform_dependent(x, cpu=lambda x: x + 1, tpu=lambda x: x + 2, default=lambda x: x + 3)

    made = export.export(jax.jit(function), platforms=["tpu", "cpu", "cuda"])(X)
    file = read_exported(bytes(made.serialize()))
    check_facts(file, made)
    for platform, more in ((None, 1), ("cpu", 1), ("tpu", 2), ("cuda", 3)):
        np.testing.assert_allclose(run(file, X, platform=platform)[0], X + more)
    with pytest.raises(InvalidArgument, match="not exported for this platform"):
        module_of(file, "rocm")


def test_keys() -> None:
    made = export.export(jax.jit(lambda k: (jax.random.normal(k, (3,)), jax.random.split(k))))(jax.random.key(1))
    file = read_exported(bytes(made.serialize()))
    assert file.in_avals == (Aval((), "key<fry>", "device"),)
    data = np.array(jax.random.key_data(jax.random.key(7)))
    np.testing.assert_allclose(run(file, data)[0], jax.random.normal(jax.random.key(7), (3,)), rtol=1e-5)


def test_shardings() -> None:
    mesh = AbstractMesh((2, 1), ("a", "b"))
    sharding = NamedSharding(mesh, PartitionSpec(("a", "b"), None))
    made = export.export(jax.jit(lambda x: x + 1, in_shardings=(sharding,)))(X)
    file = read_exported(bytes(made.serialize()))
    check_facts(file, made)
    (found,) = file.in_shardings
    assert isinstance(found, reading.NamedSharding)
    assert found.mesh.axis_names == ("a", "b")
    assert found.mesh.axis_sizes == (2, 1)
    assert set(found.mesh.axis_types) <= {"auto", "explicit"}  # JAX 0.12 makes meshes explicit
    assert found.partitions == (("a", "b"), ())


def test_disabled_checks() -> None:
    checks = [export.DisabledSafetyCheck.custom_call("foo"), export.DisabledSafetyCheck.platform()]
    made = export.export(jax.jit(lambda x: x + 1), disabled_checks=checks)(X)
    file = read_exported(bytes(made.serialize()))
    assert file.disabled_safety_checks == ("custom_call: foo", "platform")


@pytest.mark.parametrize("data", [b"", b"abc", b"\0" * 64, b"ML\xefR" + b"\0" * 60, b"HloModule m\n" * 9, bytes(range(256))])
def test_other_files(data: bytes) -> None:
    assert not is_exported(data)
    with pytest.raises(XlaError, match=r"no file of jax\.export"):
        read_exported(data)


def test_harm() -> None:
    """Flipped and cut bytes give xla_torch errors or another file, and nothing else."""
    made = export.export(jax.jit(_tree))({"x": X, "w": X}, [X, N], scale=1.0)
    data = bytes(made.serialize(vjp_order=1))
    outside = data.replace(made.mlir_module_serialized, made.mlir_module_serialized[:64])
    numbers = np.random.default_rng(0)
    for _ in range(1500):
        changed = bytearray(outside)
        for at in numbers.integers(0, len(changed), numbers.integers(1, 4)):
            changed[at] = numbers.integers(0, 256)
        harmed = bytes(changed[:numbers.integers(8, len(changed))] if numbers.random() < 0.2 else changed)
        with contextlib.suppress(XlaError):
            read_exported(harmed)


# ------------------------------------------------------------------------------------------------------ functions over trees


@jax.custom_vjp
def _rounded(x: Any) -> Any:
    return jnp.round(x)


_rounded.defvjp(lambda x: (jnp.round(x), None), lambda _, ct: (3 * ct,))


def _own_rule(p: dict[str, Any], n: Any, *, scale: Any) -> dict[str, Any]:
    return {"y": (_rounded(p["w"]) * p["w"] * scale).sum(), "n": n + 1}


def test_a_function_over_trees() -> None:
    """Called by place and by name; the gradient is that of the author's rule where the file holds it."""
    w = np.array([1.3, 0.2, 2.6], np.float32)
    made = export.export(jax.jit(_own_rule))({"w": w, "unused": np.float32(1)}, np.int32(1), scale=np.float32(2))
    want = jax.grad(lambda w: _own_rule({"w": w}, 1, scale=2.0)["y"])(w)
    for order in (1, 2):
        function = from_exported(bytes(made.serialize(vjp_order=order)))
        assert isinstance(function, TreeFunction)
        for one in (function, pickle.loads(pickle.dumps(function))):
            leaf = torch.tensor(w, requires_grad=True)
            result = one({"w": leaf, "unused": torch.tensor(1.0)}, torch.tensor(1, dtype=torch.int32), scale=torch.tensor(2.0))
            assert result["n"] == 2
            result["y"].backward()
            assert leaf.grad is not None
            np.testing.assert_allclose(leaf.grad, want, rtol=1e-6)


@pytest.mark.parametrize("order", range(4))
def test_higher_derivatives(order: int) -> None:
    """Beyond what the file holds, by the rules of the ops."""
    made = export.export(jax.jit(lambda x: (jnp.sin(x) ** 3).sum()))(np.ones(3, np.float32))
    function = from_exported(bytes(made.serialize(vjp_order=order)))
    x = torch.tensor([0.1, 0.5, 2.0])
    _, got = torch.autograd.functional.hvp(function, x, torch.ones(3))
    torch.testing.assert_close(got, 6 * x.sin() * x.cos() ** 2 - 3 * x.sin() ** 3)


def test_complex_derivatives() -> None:
    made = export.export(jax.jit(lambda z: (z * z * jnp.conj(z), jnp.abs(z).sum())))(np.ones(3, np.complex64))
    found = []
    for order in (0, 1):
        z = torch.tensor([1 + 2j, -1j, 0.5], requires_grad=True)
        a, b = from_exported(bytes(made.serialize(vjp_order=order)))(z)
        (a.real.sum() + 2 * a.imag.sum() + b).backward()
        found.append(z.grad)
    torch.testing.assert_close(*found)


def test_functions_of_unknown_sizes_and_files(tmp_path: Path) -> None:
    (b,) = export.symbolic_shape("b,")
    made = export.export(jax.jit(lambda x: (x * x.shape[0]).sum()))(jax.ShapeDtypeStruct((b,), np.float32))
    path = tmp_path / "function.jax"
    path.write_bytes(made.serialize())
    for given in (path, str(path), made, made.serialize()):
        function = from_exported(given)
        assert [function(torch.ones(n)).item() for n in (2, 4)] == [4, 16]
    with pytest.raises(InvalidArgument, match=r"not a function of jax\.export"):
        from_exported(3)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("function", [
    jnp.cumsum, lambda x: jax.lax.cumsum(x, reverse=True), lambda x: jnp.cumsum(x) / jnp.arange(1, x.shape[0] + 1),
    lambda x: jnp.cumsum(jnp.cumsum(x)), lambda x: jax.jit(jnp.cumsum)(x) * 2.0,
    lambda x: jnp.cumsum(jnp.stack([x, 2 * x], 1), 0), lambda x: jax.lax.approx_max_k(x, x.shape[0])[0] * jnp.arange(x.shape[0]),
    lambda x: jnp.cumsum(jax.lax.approx_min_k(jnp.stack([x, 2 * x]), x.shape[0])[0], 1),
])
def test_windows_and_sorts_of_unknown_sizes(function: Any, order: int) -> None:
    """Windows whose sizes, and sorts whose counts are operands have the shape that these say: in derivatives, and back in JAX."""
    (n,) = export.symbolic_shape("n")
    made = export.export(jax.jit(function))(jax.ShapeDtypeStruct((n,), np.float32))
    found = from_exported(bytes(made.serialize(vjp_order=order)))
    for size in (1, 3):
        x = torch.arange(1.0, size + 1).requires_grad_()
        found(x).sum().backward()
        given = jnp.arange(1.0, size + 1, dtype=np.float32)
        assert x.grad is not None
        np.testing.assert_allclose(x.grad, jax.grad(lambda x: function(x).sum())(given), rtol=1e-5)
        np.testing.assert_allclose(to_jax(found)(given), function(given), rtol=1e-5)


class _Ordered(effects.Effect):
    """An effect that orders what has it: its programs take and give tokens."""

    def __str__(self) -> str:
        return "ordered"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Ordered)

    def __hash__(self) -> int:
        return 0


effects.lowerable_effects.add_type(_Ordered)
effects.ordered_effects.add_type(_Ordered)
_doubled = core.Primitive("doubled_in_order")
_doubled.def_effectful_abstract_eval(lambda x: (x, {_Ordered()}))


def _lower(ctx: Any, x: Any) -> Any:
    ctx.set_tokens_out(ctx.tokens_in)
    return mlir.hlo.add(x, x),


mlir.register_lowering(_doubled, _lower)


def test_ordered_effects() -> None:
    """The program's tokens are no arguments, and no results."""
    made = export.export(jax.jit(lambda x, y: (_doubled.bind(x), 1.0)), platforms=["cpu", "tpu"])(X, N)
    file = read_exported(bytes(made.serialize()))
    check_facts(file, made)
    assert file.ordered_effects == (str(_Ordered),)
    got = run(file, X, N)
    assert len(got) == 2
    np.testing.assert_array_equal(got[0], 2 * X)


def test_files_of_older_versions() -> None:
    """Those before version 10 list arguments and shardings one by one, and before version 5 had a small number of devices."""
    mesh = AbstractMesh((2,), ("a",))
    sharding = NamedSharding(mesh, PartitionSpec("a"))
    made = export.export(jax.jit(lambda x, n: (x + 1, n), in_shardings=(sharding, None)))(X, N)
    data = bytearray(made.serialize())
    root = int.from_bytes(data[:4], "little")
    fields = root - int.from_bytes(data[root:root + 4], "little", signed=True)
    for field in range(19, 26):
        data[fields + 4 + 2 * field:fields + 6 + 2 * field] = b"\0\0"
    older, file = read_exported(bytes(data)), read_exported(bytes(made.serialize()))
    assert dataclasses.replace(older, module=file.module) == file
    assert not any(map(bool, data[fields + 4 + 2 * 19:fields + 4 + 2 * 26]))


def test_loaded_files(tmp_path: Path) -> None:
    """`load` knows the file by its content, whatever it is called, and gives the function over its trees."""
    made = export.export(jax.jit(lambda a, b: {"sum": a["x"] + b, "more": [b]}))({"x": X}, X)
    path = tmp_path / "function.pb"
    path.write_bytes(made.serialize(vjp_order=1))
    x = torch.tensor(X, requires_grad=True)
    result = load(path)({"x": x}, torch.ones(2, 3))
    result["sum"].sum().backward()
    torch.testing.assert_close(result["more"][0], torch.ones(2, 3))
    torch.testing.assert_close(x.grad, torch.ones(2, 3))


def test_symbolic_sizes_in_from_jax_are_refused_with_the_call_that_takes_them() -> None:
    argument = jax.ShapeDtypeStruct(export.symbolic_shape("b, 3"), np.float32)
    with pytest.raises(UnsupportedError, match=r"(?s)from_jax: .*symbolic_shape.*hint +export it: from_exported"):
        from_jax(jnp.tanh, argument)
    program = from_exported(export.export(jax.jit(jnp.tanh))(argument).serialize())
    assert program(torch.zeros(5, 3)).shape == (5, 3)
