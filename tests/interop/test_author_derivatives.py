"""Derivatives that a program's author wrote are never lost without a word: every entry point against every kind of rule.

A cell is right, equal to JAX's gradient, or it warns (LostDerivatives). Which entry points must be right is said in the table.
"""

import io
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import xla_torch
from xla_torch import from_exported, from_hlo_proto, from_jax, from_stablehlo, from_torch, load, ops, parse_hlo
from xla_torch.api.vectorizing import rebatch
from xla_torch.builder import XlaBuilder
from xla_torch.errors import InvalidArgument, LostDerivatives, PerhapsLostDerivatives
from xla_torch.shape import Shape
from xla_torch.types import F32, S32

jax: Any = pytest.importorskip("jax")
export: Any = pytest.importorskip("jax.export")
jnp, lax = jax.numpy, jax.lax

X = np.array([-1.6, -0.3, 0.0, 0.4, 1.2, 2.7], np.float32)
WIDE = np.array([-1.6, -0.3, 0.4, 1.2, 2.7, 0.7, 0.1, -0.9], np.float32)

# ------------------------------------------------------------------------------------------------ kinds of rules


@jax.custom_vjp
def rounded(x: Any) -> Any:
    return jnp.round(x * 3)


rounded.defvjp(lambda x: (rounded(x), x), lambda x, ct: (ct * jnp.cos(x),))


@jax.custom_jvp
def softened(x: Any) -> Any:
    return jnp.log(1 + jnp.exp(x))


@softened.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return softened(primals[0]), tangents[0] * 5 * primals[0]


RULES: dict[str, Callable[[Any], Any]] = {
    "stop_gradient": lambda x: x * lax.stop_gradient(jnp.sin(x)) + x,
    "custom_vjp": lambda x: rounded(x) * x + 1,
    "custom_jvp": lambda x: softened(x) * x,
    "straight-through": lambda x: (x + lax.stop_gradient(jnp.round(x) - x)) ** 2,
}

# ------------------------------------------------------------------------------------------------ entry points

Found = tuple[torch.Tensor, Any]
"""A gradient, and what it should be."""


def gradient(computation: Any, x: np.ndarray = X) -> torch.Tensor:
    leaf = torch.tensor(x, requires_grad=True)
    result = only(computation(leaf))
    (found,) = torch.autograd.grad(result, leaf, torch.ones_like(result))
    return found


def only(result: Any) -> torch.Tensor:
    return result[0] if isinstance(result, tuple) else result


def theirs(f: Any, x: np.ndarray = X) -> Any:
    return jax.grad(lambda x: f(x).sum())(x)


def built(make: Callable[[Any], Any], shape: Any = None) -> Any:
    builder = XlaBuilder("outer")
    return builder.build(make(builder.parameter(0, shape or Shape.array(F32, X.shape), "x")))


def counted(shape: Any) -> Any:
    condition = XlaBuilder("condition")
    carry = condition.parameter(0, shape)
    return condition.build(ops.Lt(ops.GetTupleElement(carry, 0), condition.constant(3)))


def looped(f: Any) -> Any:
    """A loop whose body calls the function three times."""
    inner, shape = from_jax(f, X), Shape.tuple([Shape.array(S32, ()), Shape.array(F32, X.shape)])
    body = XlaBuilder("body")
    carry = body.parameter(0, shape)
    state = ops.Tuple(body, [ops.GetTupleElement(carry, 0) + 1,
                             ops.Call(body, inner, [ops.GetTupleElement(carry, 1)])])
    outer = XlaBuilder("outer")
    start = ops.Tuple(outer, [outer.constant(0), outer.parameter(0, Shape.array(F32, X.shape))])
    found = ops.While(counted(shape), body.build(state), start)
    return outer.build(ops.GetTupleElement(found, 1))


def growing(f: Any) -> Any:
    return lambda x: x + 1 + f(x) / 100


def body_itself(f: Any) -> Any:
    """A loop whose body is the function, run until the sum of what it gives is 15."""
    add, condition, outer = XlaBuilder("add"), XlaBuilder("condition"), XlaBuilder("outer")
    total = add.build(add.parameter(0, Shape.array(F32, ())) + add.parameter(1, Shape.array(F32, ())))
    carry = condition.parameter(0, Shape.array(F32, X.shape))
    found = ops.Reduce(carry, condition.constant(np.float32(0)), total, [0])
    return outer.build(ops.While(condition.build(ops.Lt(found, condition.constant(np.float32(15)))), from_jax(growing(f), X),
                                 outer.parameter(0, Shape.array(F32, X.shape))))


def by_jax(f: Any) -> Any:
    """The same in JAX."""
    def run(x: Any) -> Any:
        while jax.lax.stop_gradient(x).sum() < 15:
            x = growing(f)(x)
        return x

    return run


def twice(f: Any) -> Any:
    return lambda x: f(f(x))


def branch(f: Any) -> Any:
    def make(x: Any) -> Any:
        pred = ops.Gt(ops.Reshape(ops.Slice(x, [0], [1], [1]), []), x.builder.constant(np.float32(5)))
        return ops.Conditional(pred, x, from_jax(lambda x: x * 100, X), x, from_jax(f, X))

    return built(make)


def mapped(f: Any) -> Any:
    return built(lambda x: ops.Map(x.builder, [x], from_jax(f, np.float32(1)), [0]))


def called(computation: Any, shape: Any = None) -> Any:
    return built(lambda x: ops.Call(x.builder, computation, [x]), shape)


def exported(f: Any, order: int, x: Any = X) -> bytes:
    return bytes(export.export(jax.jit(f))(x).serialize(vjp_order=order))


def symbolic(f: Any) -> Any:
    (b,) = export.symbolic_shape("b,")
    return export.export(jax.jit(f))(jax.ShapeDtypeStruct((b,), np.float32))


def bytecode(f: Any) -> bytes:
    written = io.BytesIO()
    jax.jit(f).lower(X).compiler_ir("stablehlo").operation.write_bytecode(written)
    return written.getvalue()


def rebatched(f: Any) -> Any:
    return rebatch(from_jax(f, X), 0, len(WIDE))


def module(f: Any) -> torch.Tensor:
    held = xla_torch.nn.XlaModule(from_jax(lambda w, x: f(w) * x, X, X), parameters=[torch.tensor(X)])
    held(torch.ones(len(X))).sum().backward()
    (parameter,) = held.parameters()
    assert parameter.grad is not None
    return parameter.grad


def stepped(f: Any) -> torch.Tensor:
    sgd = xla_torch.training.sgd(1.0)
    step = xla_torch.training.training_step(from_jax(lambda x: f(x).sum(), X), sgd, 0)
    return torch.tensor(X) - step(torch.tensor(X), *sgd.init([torch.tensor(X)]))[1]


RIGHT: dict[str, Callable[[Any], Found]] = {
    "from_jax": lambda f: (gradient(from_jax(f, X)), theirs(f)),
    "called": lambda f: (gradient(called(from_jax(f, X))), theirs(f)),
    "called, and pickled": lambda f: (gradient(pickle.loads(pickle.dumps(called(from_jax(f, X))))), theirs(f)),
    "called by one that is called": lambda f: (gradient(called(called(from_jax(f, X)))), theirs(f)),
    "called twice": lambda f: (gradient(built(lambda x: ops.Call(x.builder, c, [ops.Call(x.builder, c, [x])])
                                              if (c := from_jax(f, X)) else x)), theirs(twice(f))),
    "called batched": lambda f: (gradient(called(xla_torch.vmap(from_jax(f, np.float32(0)), len(X)))), theirs(f)),
    "batched called": lambda f: (gradient(xla_torch.vmap(called(from_jax(f, np.float32(0)), Shape.array(F32, ())), len(X))),
                                 theirs(f)),
    "called compiled": lambda f: (gradient(xla_torch.compile(called(from_jax(f, X)), "aot_eager")), theirs(f)),
    "a call of its gradient": lambda f: (gradient(called(xla_torch.grad(from_jax(lambda x: f(x).sum(), X)).computation)),
                                         theirs(jax.grad(lambda x: f(x).sum()))),
    "mapped": lambda f: (gradient(mapped(f)), theirs(f)),
    "in a loop's body": lambda f: (gradient(looped(f)), theirs(lambda x: f(twice(f)(x)))),
    "a loop's body": lambda f: (gradient(body_itself(f)), theirs(by_jax(f))),
    "a branch": lambda f: (gradient(branch(f)), theirs(f)),
    "rebatched": lambda f: (gradient(rebatched(f), WIDE), theirs(f, WIDE)),
    "rebatched, and pickled": lambda f: (gradient(pickle.loads(pickle.dumps(rebatched(f))), WIDE), theirs(f, WIDE)),
    "rebatched, called": lambda f: (gradient(called(rebatched(f), Shape.array(F32, WIDE.shape)), WIDE), theirs(f, WIDE)),
    "exported": lambda f: (gradient(from_exported(exported(f, 1))), theirs(f)),
    "exported, called": lambda f: (gradient(called(from_exported(exported(f, 1)))), theirs(f)),
    "exported, loaded": lambda f: (gradient(from_stablehlo(exported(f, 1))), theirs(f)),
    "exported, in memory": lambda f: (gradient(from_exported(export.export(jax.jit(f))(X))), theirs(f)),
    "exported, in memory, as StableHLO": lambda f: (gradient(from_stablehlo(export.export(jax.jit(f))(X))), theirs(f)),
    "unknown sizes": lambda f: (gradient(from_exported(bytes(symbolic(f).serialize(vjp_order=1)))), theirs(f)),
    "unknown sizes, in memory": lambda f: (gradient(from_stablehlo(symbolic(f))), theirs(f)),
    "unknown sizes, pickled": lambda f: (gradient(pickle.loads(pickle.dumps(from_exported(symbolic(f))))), theirs(f)),
    "unknown sizes, compiled": lambda f: (gradient(xla_torch.compile(from_exported(symbolic(f)), "aot_eager")), theirs(f)),
    "unknown sizes, grad": lambda f: (xla_torch.grad(from_exported(symbolic(lambda x: f(x).sum())))(torch.tensor(X)), theirs(f)),
    "batched": lambda f: (gradient(xla_torch.vmap(from_jax(f, np.float32(0)), len(X))), theirs(f)),
    "compiled": lambda f: (gradient(xla_torch.compile(from_jax(f, X), "aot_eager")), theirs(f)),
    "pickled": lambda f: (gradient(pickle.loads(pickle.dumps(from_jax(f, X)))), theirs(f)),
    "torch.func": lambda f: (torch.func.vmap(torch.func.grad(from_jax(f, np.float32(0))))(torch.tensor(X)), theirs(f)),
    "its gradient's text": lambda f: (
        only(parse_hlo(xla_torch.grad(from_jax(lambda x: f(x).sum(), X)).to_hlo_text())(torch.tensor(X))), theirs(f)),
    "a module": lambda f: (module(f), theirs(f)),
    "a training step": lambda f: (stepped(f), theirs(f)),
}
WARNS: dict[str, Callable[[Any], Found]] = {
    "its text": lambda f: (gradient(parse_hlo(from_jax(f, X).to_hlo_text())), theirs(f)),
    "its proto": lambda f: (gradient(from_hlo_proto(from_jax(f, X).to_hlo_proto())), theirs(f)),
    "text of a call": lambda f: (gradient(parse_hlo(called(from_jax(f, X)).to_hlo_text())), theirs(f)),
    "text of a batch": lambda f: (
        gradient(parse_hlo(xla_torch.vmap(from_jax(f, np.float32(0)), len(X)).to_hlo_text())), theirs(f)),
    "text of its gradient": lambda f: (
        gradient(parse_hlo(xla_torch.grad(from_jax(lambda x: f(x).sum(), X)).to_hlo_text())),
        theirs(jax.grad(lambda x: f(x).sum()))),
    "StableHLO": lambda f: (gradient(from_stablehlo(jax.jit(f).lower(X).as_text())), theirs(f)),
    "StableHLO with names": lambda f: (gradient(from_stablehlo(jax.jit(f).lower(X).as_text(debug_info=True))), theirs(f)),
    "bytecode": lambda f: (gradient(from_stablehlo(bytecode(f))), theirs(f)),
    "lowered": lambda f: (gradient(from_stablehlo(jax.jit(f).lower(X))), theirs(f)),
    "bindings": lambda f: (gradient(from_stablehlo(jax.jit(f).lower(X).compiler_ir("stablehlo"))), theirs(f)),
    "compiled HLO": lambda f: (gradient(parse_hlo(jax.jit(f).lower(X).compile().as_text())), theirs(f)),
    "HLO": lambda f: (gradient(parse_hlo(jax.jit(f).lower(X).compiler_ir("hlo").as_hlo_text())), theirs(f)),
    "proto": lambda f: (gradient(from_hlo_proto(jax.jit(f).lower(X).compiler_ir("hlo").as_serialized_hlo_module_proto())),
                        theirs(f)),
    "StableHLO, called": lambda f: (gradient(called(from_stablehlo(jax.jit(f).lower(X).as_text()))), theirs(f)),
    "StableHLO, batched": lambda f: (
        gradient(xla_torch.vmap(from_stablehlo(jax.jit(f).lower(np.float32(0)).as_text()), len(X))), theirs(f)),
    "StableHLO, pickled": lambda f: (
        gradient(pickle.loads(pickle.dumps(from_stablehlo(jax.jit(f).lower(X).as_text())))), theirs(f)),
    "StableHLO, compiled": lambda f: (
        gradient(xla_torch.compile(from_stablehlo(jax.jit(f).lower(X).as_text()), "aot_eager")), theirs(f)),
    "StableHLO, rebatched": lambda f: (
        gradient(rebatch(from_stablehlo(jax.jit(f).lower(X).as_text()), 0, len(WIDE)), WIDE),
        theirs(f, WIDE)),
    "exported without": lambda f: (gradient(from_exported(exported(f, 0))), theirs(f)),
    "exported without, batched": lambda f: (
        gradient(xla_torch.vmap(from_exported(exported(f, 0, np.float32(0))), len(X))), theirs(f)),
    "exported, beyond its order": lambda f: (
        gradient(xla_torch.grad(from_exported(exported(lambda x: f(x).sum(), 1)))), theirs(jax.grad(lambda x: f(x).sum()))),
    "unknown sizes without": lambda f: (gradient(from_exported(bytes(symbolic(f).serialize()))), theirs(f)),
    "unknown sizes in text": lambda f: (gradient(from_stablehlo(symbolic(f).mlir_module())), theirs(f)),
    "a reducer": lambda f: (gradient(built(lambda x: ops.Reduce(
        x, x.builder.constant(np.float32(0)), from_jax(lambda a, b: a + f(b), np.float32(0), np.float32(0)), [0]))), theirs(f)),
}


def check(entry_point: str, rule: str) -> None:
    if entry_point in WARNS:
        with pytest.warns(LostDerivatives):
            WARNS[entry_point](RULES[rule])
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated")
        found = RIGHT[entry_point](RULES[rule])
    np.testing.assert_allclose(found[0].detach().numpy(), np.asarray(found[1]), rtol=1e-4, atol=1e-5)


ENTRY_POINTS = [*RIGHT, *WARNS]


@pytest.mark.parametrize(("number", "entry_point"), list(enumerate(ENTRY_POINTS)), ids=ENTRY_POINTS)
def test_each_entry_point(number: int, entry_point: str) -> None:
    """With one kind of rule, each entry point with the next one."""
    check(entry_point, list(RULES)[number % len(RULES)])


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_every_cell(entry_point: str, rule: str) -> None:
    check(entry_point, rule)


NAMED = {
    "its text": ("custom_vjp", LostDerivatives, "what custom_vjp rounded says"),
    "text of a batch": ("custom_jvp", LostDerivatives, "custom_jvp softened"),
    "StableHLO with names": ("custom_jvp", LostDerivatives, "what custom_jvp says"),
    "StableHLO": ("straight-through", PerhapsLostDerivatives, "(?s)what stop_gradient says.*straight-through"),
    "compiled HLO": ("custom_vjp", PerhapsLostDerivatives, "JAX writes into no program"),
    "proto": ("custom_jvp", PerhapsLostDerivatives, "as written"),
    "lowered": ("custom_vjp", LostDerivatives, "what custom_vjp says"),
    "exported without": ("stop_gradient", PerhapsLostDerivatives, "(?s)vjp_order=1"),
    "a reducer": ("stop_gradient", LostDerivatives, "(?s)what stop_gradient says.*a computation inside the program"),
}


@pytest.mark.parametrize("entry_point", NAMED)
def test_a_warning_says_what_is_known(entry_point: str) -> None:
    rule, kind, match = NAMED[entry_point]
    with pytest.warns(kind, match=match) as found:
        WARNS[entry_point](RULES[rule])
    messages = [w for w in found if issubclass(w.category, LostDerivatives)]
    assert [w.category for w in messages] == [kind]
    assert len(str(messages[0].message).splitlines()) == 1


# ------------------------------------------------------------------------------------------------ who vouches

MEANT: dict[str, Any] = {"derivatives": "as written"}


def by_its_ops(x: Any) -> Any:
    """What `RULES["custom_jvp"]` is without its rule."""
    return jnp.log(1 + jnp.exp(x)) * x


def hlo(f: Any) -> Any:
    return jax.jit(f).lower(X).compiler_ir("hlo")


def in_file(folder: Path, content: str | bytes, **given: Any) -> Any:
    path = folder / "program"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return load(path, **given)


READ: dict[str, Callable[..., Any]] = {
    "HLO": lambda f, _, **given: parse_hlo(hlo(f).as_hlo_text(), **given),
    "proto": lambda f, _, **given: from_hlo_proto(hlo(f).as_serialized_hlo_module_proto(), **given),
    "StableHLO": lambda f, _, **given: from_stablehlo(jax.jit(f).lower(X).as_text(), **given),
    "bytecode": lambda f, _, **given: from_stablehlo(bytecode(f), **given),
    "lowered": lambda f, _, **given: from_stablehlo(jax.jit(f).lower(X), **given),
    "unknown sizes": lambda f, _, **given: from_stablehlo(symbolic(f).mlir_module(), **given),
    "exported": lambda f, _, **given: from_exported(exported(f, 0), **given),
    "exported, as StableHLO": lambda f, _, **given: from_stablehlo(exported(f, 0), **given),
    "exported with unknown sizes": lambda f, _, **given: from_exported(bytes(symbolic(f).serialize()), **given),
    "a file of HLO": lambda f, folder, **given: in_file(folder, hlo(f).as_hlo_text(), **given),
    "a file of a proto": lambda f, folder, **given: in_file(folder, hlo(f).as_serialized_hlo_module_proto(), **given),
    "a file of StableHLO": lambda f, folder, **given: in_file(folder, jax.jit(f).lower(X).as_text(), **given),
    "a file of bytecode": lambda f, folder, **given: in_file(folder, bytecode(f), **given),
    "a file of jax.export": lambda f, folder, **given: in_file(folder, exported(f, 0), **given),
}


def silent(make: Callable[[], Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error", LostDerivatives)
        return make()


@pytest.mark.parametrize("entry_point", READ)
def test_who_reads_it_vouches(entry_point: str, tmp_path: Path) -> None:
    f = RULES["custom_jvp"]
    with pytest.warns(LostDerivatives):
        messages = gradient(READ[entry_point](f, tmp_path))
    found = silent(lambda: gradient(READ[entry_point](f, tmp_path, **MEANT)))
    np.testing.assert_allclose(found, theirs(by_its_ops), rtol=1e-4, atol=1e-5)
    assert torch.equal(found, messages)


KEPT: dict[str, Callable[[Any], Any]] = {
    "pickled": lambda c: pickle.loads(pickle.dumps(c)),
    "called": called,
    "a batch, called": lambda c: called(xla_torch.vmap(c, 2), Shape.array(F32, (2, *X.shape))),
    "rebatched": lambda c: rebatch(c, 0, len(WIDE)),
    "compiled": lambda c: xla_torch.compile(c, "aot_eager"),
    "its text": lambda c: parse_hlo(c.to_hlo_text()),
    "its proto": lambda c: from_hlo_proto(c.to_hlo_proto()),
    "its StableHLO": lambda c: from_stablehlo(c.to_stablehlo()),
    "its bytecode": lambda c: from_stablehlo(c.to_stablehlo_bytecode()),
    "text of a batch": lambda c: parse_hlo(rebatch(c, 0, len(WIDE)).to_hlo_text()),
    "its gradient's text": lambda c: parse_hlo(xla_torch.vjp(c).to_hlo_text()),
}


@pytest.mark.parametrize("then", KEPT)
def test_a_vouched_program_stays_one(then: str) -> None:
    """Also where names of its ops show the rule."""
    vouched = from_stablehlo(bytecode(RULES["custom_jvp"]), **MEANT)
    program = KEPT[then](vouched).program
    silent(program.to_differentiate)


@pytest.mark.parametrize("entry_point", ["unknown sizes", "exported", "exported with unknown sizes"])
def test_a_vouched_program_is_pickled(entry_point: str, tmp_path: Path) -> None:
    vouched = pickle.loads(pickle.dumps(READ[entry_point](RULES["custom_jvp"], tmp_path, **MEANT)))
    np.testing.assert_allclose(silent(lambda: gradient(vouched)), theirs(by_its_ops), rtol=1e-4, atol=1e-5)


def test_a_traced_function_is_vouched_for() -> None:
    vouched = parse_hlo(from_jax(RULES["custom_jvp"], X, **MEANT).to_hlo_text())
    np.testing.assert_allclose(silent(lambda: gradient(vouched)), theirs(by_its_ops), rtol=1e-4, atol=1e-5)


def test_who_vouches_keeps_what_the_file_brings() -> None:
    f = RULES["custom_jvp"]
    found = silent(lambda: gradient(from_exported(exported(f, 1), **MEANT)))
    np.testing.assert_allclose(found, theirs(f), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("word", ["ops", X])
@pytest.mark.parametrize("entry_point", [*READ, "from_jax", "from_torch"])
def test_another_word_is_no_voucher(entry_point: str, word: Any, tmp_path: Path) -> None:
    made = {"from_jax": lambda f, _, **given: from_jax(f, X, **given),
            "from_torch": lambda _, __, **given: from_torch(torch.sin, torch.ones(3), **given)}
    with pytest.raises(InvalidArgument, match=r'(?s)unknown value of derivatives.*"as written"'):
        (READ | made)[entry_point](jnp.sin, tmp_path, derivatives=word)


SEVERAL = """HloModule m

ENTRY main {
  x = f32[3] parameter(0)
  y = f32[3] exponential(x), metadata={op_name="jit(f)/custom_jvp_call/exp"}
  z = f32[3] sine(y), metadata={op_name="jit(f)/custom_vjp_call/sin"}
  s = f32[3] subtract(y, z)
  ROOT t = f32[3] add(z, s)
}"""


def test_one_program_warns_once_of_all_rules() -> None:
    with pytest.warns(LostDerivatives, match=r"custom_jvp says.* what custom_vjp says.* what stop_gradient says") as found:
        xla_torch.grad(parse_hlo(SEVERAL))
    assert len(found) == 1
    assert len(str(found[0].message).splitlines()) == 1


def test_a_batch_whose_examples_meet_loses_rules() -> None:
    program = rebatch(from_jax(lambda x: RULES["custom_vjp"](x) / jnp.max(jnp.abs(x)), X), 0, len(WIDE))
    with pytest.warns(LostDerivatives, match=r"(?s)custom_vjp rounded.*examples meet"):
        gradient(program, WIDE)


@pytest.mark.parametrize("old", [1, 2, 3])
@pytest.mark.parametrize("new", [1, 2, 7])
def test_a_batch_of_another_size_has_its_derivatives(old: int, new: int) -> None:
    """With what all examples share, and the batch within other dimensions, of arguments and of results."""
    def function(w: Any, x: Any) -> Any:
        y = rounded(jnp.einsum("ab,cnb->cna", w, x)) * lax.stop_gradient(x)
        return (y,) if old == 1 else (y, y.reshape(-1, w.shape[0]))  # of one, nothing says where it is in that

    rng = np.random.default_rng(0)
    w, x, more = (rng.normal(size=s).astype(np.float32) for s in ((3, 3), (2, old, 3), (2, new, 3)))
    program = rebatch(from_jax(function, w, x), 1, new, 1)
    given = torch.tensor(w, requires_grad=True), torch.tensor(more, requires_grad=True)
    results, back = jax.vjp(function, w, more)
    cotangents = [rng.normal(size=r.shape).astype(np.float32) for r in results]
    found = torch.autograd.grad(program(*given), given, [torch.tensor(c) for c in cotangents])
    for ours, true in zip(found, back(tuple(map(jnp.asarray, cotangents))), strict=True):
        np.testing.assert_allclose(ours, true, rtol=1e-4, atol=1e-5)
