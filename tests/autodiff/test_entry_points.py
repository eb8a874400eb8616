"""Every entry point of torch to differentiation: torch.func, forward mode, autograd.functional, checkpoints, hooks,
torch.compile."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest
import torch
from torch import func
from torch.autograd import forward_ad, functional, gradcheck, gradgradcheck
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

import xla_torch
from support.jax_functions import NAMES, ROWS, elementwise, mlp_loss, newton, scanned
from support.jax_oracle import evaluated, flat, is_differentiable, program, to_torch
from support.kept import backward_programs
from support.oracle import HAS_XLA, needs_xla
from support.torch_programs import build, complex_square, dense, f64, random_branch, several
from xla_torch import C128, F32, F64, Shape, XlaBuilder, nn, ops
from xla_torch.errors import DifferentiationError
from xla_torch.opcodes.front import print_module

if HAS_XLA:
    import jax

# What torch says about its own parts when forward mode and torch.compile first run.
pytestmark = [pytest.mark.filterwarnings("ignore:.*torch.jit.script.*"), pytest.mark.filterwarnings("ignore:The .grad attribute"),
              pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")]


def floats(value):
    """The real floating results of a program or of a function of JAX, as a tuple."""
    parts = flat(list(value) if isinstance(value, tuple) else value)
    return tuple(p for p in parts if np.dtype(str(p.dtype).removeprefix("torch.")).kind == "f")


def close(found, want):
    for got, expected in zip(flat(list(found)), flat(list(want)), strict=True):
        np.testing.assert_allclose(got.detach().numpy(), np.asarray(expected), rtol=1e-8, atol=1e-8)


# ------------------------------------------------------------------------------------------------ against JAX


@needs_xla
@pytest.mark.parametrize(("function", "arguments"), ROWS, ids=NAMES)
def test_jacobians_are_jax_s(function, arguments):
    computation = program(function, *arguments)
    first, *rest = map(to_torch, arguments)
    if function is newton:  # which JAX differentiates forward only
        want = list(evaluated(lambda a: floats(jax.jacfwd(function)(a)), arguments[0]))
    else:
        want = list(evaluated(lambda a: floats(jax.jacrev(lambda a: floats(function(a, *arguments[1:])))(a)), arguments[0]))
    for entry_point in (func.jacrev, func.jacfwd):
        close(entry_point(lambda a: floats(computation(a, *rest)))(first), want)


def square_loss(function):
    return lambda a, *rest: sum((o * o).sum() for o in floats(function(a, *rest)))


@needs_xla
@pytest.mark.parametrize(("function", "arguments"), ROWS, ids=NAMES)
def test_gradients_of_a_batch_are_jax_s(function, arguments):
    if function is newton:
        pytest.skip("JAX has no gradient of this loop")
    computation = program(function, *arguments)
    first, *rest = map(to_torch, arguments)
    batch = torch.stack([first, first * 1.25])
    want = evaluated(jax.vmap(lambda a: jax.grad(square_loss(function))(a, *arguments[1:])), batch.numpy())
    close([func.vmap(lambda a: func.grad(square_loss(computation))(a, *rest))(batch)], [want])


@needs_xla
@pytest.mark.parametrize("function", [elementwise, mlp_loss, scanned], ids=lambda f: f.__name__)
def test_hessians_are_jax_s(function):
    arguments = next(row for f, row in ROWS if f is function)
    computation = program(function, *arguments)
    first, *rest = map(to_torch, arguments)
    want = evaluated(jax.hessian(square_loss(function)), *arguments)
    loss = square_loss(computation)
    close([func.hessian(lambda a: loss(a, *rest))(first)], [want])
    close([func.jacrev(func.jacrev(lambda a: loss(a, *rest)))(first)], [want])
    close([functional.hessian(lambda a: loss(a, *rest), first)], [want])


@needs_xla
def test_a_loop_of_unknown_length():
    a = torch.tensor([0.5, 2.0, 9.0], dtype=torch.float64)
    root, want = program(newton, a.numpy()), 0.5 / a.sqrt()
    assert_close(func.jvp(root, (a,), (torch.ones_like(a),))[1], want)
    assert_close(func.grad(lambda a: root(a).sum())(a), want)
    batch = torch.stack([a, a * 1000])
    assert_close(func.vmap(root)(batch), batch.sqrt())
    assert_close(func.vmap(func.grad(lambda a: root(a).sum()))(batch), 0.5 / batch.sqrt())
    assert_close(func.grad(lambda b: func.vmap(root)(b).sum())(batch), 0.5 / batch.sqrt())
    assert_close(func.hessian(lambda a: root(a).sum())(a), torch.diag(-0.25 * a**-1.5), rtol=1e-5, atol=1e-6)


# ------------------------------------------------------------------------------------------------ against torch

DENSE, X, W = build(dense, (2, 3), (3, 4)), f64(2, 3).detach(), f64(3, 4, seed=1).detach()
BATCH, WEIGHTS = torch.stack([X, -X, 2 * X]), torch.stack([W, W.flip(0)])


def reference(x, w):
    return torch.tanh(x @ w)


def loss_of(f):
    return lambda x, w: f(x, w).pow(2).sum()


TRANSFORMS = {
    "grad": lambda f: func.grad(loss_of(f), (0, 1))(X, W),
    "grad of grad": lambda f: func.grad(lambda x, w: func.grad(loss_of(f))(x, w).pow(2).sum(), (0, 1))(X, W),
    "grad and value": lambda f: func.grad_and_value(loss_of(f), 1)(X, W),
    "vjp": lambda f: func.vjp(f, X, W)[1](torch.ones(2, 4).double()),
    "jvp": lambda f: func.jvp(f, (X, W), (X + 1, W * 2)),
    "jvp of jvp": lambda f: func.jvp(lambda x: func.jvp(lambda x: f(x, W), (x,), (X,))[1], (X,), (X,)),
    "jacrev": lambda f: func.jacrev(f, (0, 1))(X, W),
    "jacrev in chunks": lambda f: func.jacrev(f, (0, 1), chunk_size=3)(X, W),
    "jacfwd": lambda f: func.jacfwd(f, (0, 1))(X, W),
    "hessian": lambda f: func.hessian(loss_of(f), (0, 1))(X, W),
    "reverse over forward": lambda f: func.jacrev(func.jacfwd(loss_of(f)))(X, W),
    "forward over forward": lambda f: func.jacfwd(func.jacfwd(loss_of(f)))(X, W),
    "linearize": lambda f: func.linearize(f, X, W)[1](X, W),
    "vmap": lambda f: func.vmap(f, (0, None))(BATCH, W),
    "vmap elsewhere": lambda f: func.vmap(f, (2, 1), 1)(BATCH.permute(1, 2, 0), W[:, None].expand(3, 3, 4)),
    "vmap of vmap": lambda f: func.vmap(func.vmap(f, (0, None)), (None, 0))(BATCH, WEIGHTS),
    "vmap of grad": lambda f: func.vmap(func.grad(loss_of(f), (0, 1)), (0, None))(BATCH, W),
    "vmap of hessian": lambda f: func.vmap(func.hessian(loss_of(f)), (0, None))(BATCH, W),
    "vmap of jvp": lambda f: func.vmap(lambda x: func.jvp(lambda x: f(x, W), (x,), (x,))[1])(BATCH),
    "grad of vmap": lambda f: func.grad(lambda w: func.vmap(f, (0, None))(BATCH, w).pow(2).sum())(W),
    "jacobian": lambda f: functional.jacobian(f, (X, W), create_graph=True),
    "jacobian vectorized": lambda f: functional.jacobian(f, (X, W), vectorize=True),
    "jacobian forward": lambda f: functional.jacobian(f, (X, W), vectorize=True, strategy="forward-mode"),
    "hessian forward": lambda f: functional.hessian(loss_of(f), (X, W), vectorize=True, outer_jacobian_strategy="forward-mode"),
    "vhp": lambda f: functional.vhp(loss_of(f), (X, W), (X, W)),
    "hvp": lambda f: functional.hvp(loss_of(f), (X, W), (X, W)),
    "double backward jvp": lambda f: functional.jvp(f, (X, W), (X, W)),
}


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("ours", [DENSE, lambda x, w: ops.Tanh(ops.Dot(x, w))], ids=["program", "ops"])
def test_transforms_are_torch_s(name, ours):
    assert_close(TRANSFORMS[name](ours), TRANSFORMS[name](reference))


@pytest.mark.parametrize("ours", [lambda: build(dense, (256, 256), (256, 256)), lambda: lambda x, w: ops.Tanh(ops.Dot(x, w))],
                         ids=["program", "ops"])
def test_what_is_written_down_writes_over_nothing(ours):
    """Calls on large arrays write over what is read no more; torch may do again what it has written down, or cannot batch it."""
    f, x, w = ours(), f64(256, 256).detach() / 16, f64(256, 256, seed=1).detach() / 16
    assert_close(func.linearize(f, x, w)[1](w, x), func.jvp(reference, (x, w), (w, x))[1])
    batched = func.vmap(lambda t: func.jvp(lambda x: f(x, w), (x,), (t,))[1])
    assert_close(functional.jacobian(lambda x: f(x, w)[:1, 0], x, vectorize=True),
                 functional.jacobian(lambda x: reference(x, w)[:1, 0], x))
    assert_close(batched(torch.stack([x, w])), torch.stack([func.jvp(reference, (x, w), (t, 0 * w))[1] for t in (x, w)]))


def test_backward_through_vmap():
    def found(f):
        w = W.clone().requires_grad_()
        return torch.autograd.grad(func.vmap(f, (0, None))(BATCH, w).pow(2).sum(), w)

    assert_close(found(DENSE), found(reference))


CHECKED = {"dense": (dense, (2, 3), (3, 4)), "several": (several, (3,), (3,)), "complex": (complex_square, (3,), (3,))}


@pytest.mark.parametrize("name", CHECKED)
def test_gradcheck_of_all_kinds(name):
    function, *dims = CHECKED[name]
    computation, inputs = build(function, *dims), tuple(f64(*d, seed=k) for k, d in enumerate(dims))

    def differentiable(*values):
        found = computation(*values)
        return tuple(o for o in (found if isinstance(found, tuple) else (found,)) if o.is_floating_point() or o.is_complex())

    assert gradcheck(differentiable, inputs, check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True)
    assert gradgradcheck(differentiable, inputs, check_fwd_over_rev=True, check_batched_grad=True)


def test_dual_numbers_through_backward():
    def found(f):
        x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
        with forward_ad.dual_level():
            loss = f(forward_ad.make_dual(x, torch.ones_like(x)), w).pow(2).sum()
            gradients = torch.autograd.grad(loss, (x, w), create_graph=True)
            tangent = forward_ad.unpack_dual(loss).tangent
            assert tangent is not None
            along = torch.autograd.grad(tangent, (x, w))
            return [*along, *(part for g in gradients for part in forward_ad.unpack_dual(g))]

    assert_close(found(DENSE), found(reference))


def test_only_what_depends_has_a_tangent():
    computation = build(several, (3,), (3,))
    with forward_ad.dual_level():
        product, integers, sine, _ = computation(forward_ad.make_dual(X[0], X[1]), W[:, 0].clone())
        assert_close(forward_ad.unpack_dual(product).tangent, X[1] * W[:, 0].exp())
        assert forward_ad.unpack_dual(integers).tangent is None
        assert_close(forward_ad.unpack_dual(sine).tangent, torch.zeros(3).double())


def test_an_op_without_gradient_under_transforms():
    noisy = random_branch()
    with pytest.raises(DifferentiationError):
        func.grad(lambda x: noisy(x)[0].sum())(torch.ones(3).double())
    assert_close(func.grad(lambda x: noisy(x)[1].sum())(X[0]), X[0].cos())


# ------------------------------------------------------------------------------------------------ modules and state


def gradients(f, run):
    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
    run(lambda x: f(x, w), x).sum().backward()
    return x.grad, w.grad


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(reentrant):
    def run(f, x):
        return checkpoint(f, x * 1, use_reentrant=reentrant)

    assert_close(gradients(DENSE, run), gradients(reference, run))


def test_saved_tensors_elsewhere():
    with torch.autograd.graph.save_on_cpu():
        assert_close(gradients(DENSE, lambda f, x: f(x)), gradients(reference, lambda f, x: f(x)))


def test_hooks_of_tensors_and_modules():
    module, seen = nn.XlaModule(DENSE, {1: W}), []
    module.register_full_backward_hook(lambda _, given, got: seen.append((given[0].shape, got[0].shape)))
    module.register_full_backward_pre_hook(lambda _, got: (got[0] * 2,))
    module.register_forward_hook(lambda _, given, result: torch.mul(result, 3))  # pyright: ignore[reportArgumentType]
    x = X.clone().requires_grad_()
    x.register_hook(lambda g: g + 1)
    module(x).sum().backward()
    y = X.clone().requires_grad_()
    (reference(y, W) * 6).sum().backward()
    assert y.grad is not None
    assert_close(x.grad, y.grad + 1)
    assert seen == [((2, 3), (2, 4))]


def test_a_parameter_used_twice():
    twice = build(dense, (3, 3), (3, 3))
    x = f64(3, 3)
    assert_close(torch.autograd.grad(twice(x, x).sum(), x), torch.autograd.grad(reference(x, x).sum(), x))


def test_functional_call_and_ensembles():
    module = nn.XlaModule(DENSE, {1: W})
    ((name, _),) = module.named_parameters()
    found = func.grad(lambda w: func.functional_call(module, {name: w}, (X,)).sum())(W)
    assert_close(found, func.grad(lambda w: reference(X, w).sum())(W))
    parameters, buffers = func.stack_module_state([module, nn.XlaModule(DENSE, {1: 2 * W})])
    both = func.vmap(lambda p, b: func.functional_call(module, (p, b), (X,)))(parameters, buffers)
    assert_close(both, torch.stack([reference(X, W), reference(X, 2 * W)]))


def test_copies_and_pickles():
    module = nn.XlaModule(DENSE, {1: W})
    module(X).sum().backward()
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    copies = [copy.deepcopy(module), pickle.loads(pickle.dumps(module)), torch.load(file, weights_only=False)]
    with torch.no_grad():
        next(module.parameters()).zero_()
    for other in copies:
        assert_close(other(X), reference(X, W))
    assert copy.deepcopy(DENSE) is DENSE
    assert pickle.loads(pickle.dumps(DENSE)).to_hlo_text() == DENSE.to_hlo_text()


# ------------------------------------------------------------------------------------------------ modes


def test_autocast_leaves_types_alone():
    computation = build(dense, (2, 3), (3, 4), element_type=F32)
    x, w = X.float().requires_grad_(), W.float().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = computation(x, w)
        found = torch.autograd.grad(result.sum(), (x, w))
    assert result.dtype is torch.float32
    assert_close(result, reference(x, w))
    assert_close(found, torch.autograd.grad(reference(x, w).sum(), (x, w)))


def test_autocast_leaves_types_of_compiled_programs_alone():
    compiled = xla_torch.compile(build(dense, (2, 3), (3, 4), element_type=F32), "aot_eager")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = compiled(X.float(), W.float())
    assert result.dtype is torch.float32
    assert_close(result, reference(X.float(), W.float()))
    assert_close(compiled(X.float(), W.float()), result)
    torch._dynamo.reset()


def test_inference_mode_spoils_nothing():
    computation = build(lambda x: ops.Mul(x, x.builder.constant(np.arange(3.0))), (3,))
    with torch.inference_mode():
        assert computation(torch.ones(3).double()).is_inference()
    x = f64(3)
    computation(x).sum().backward()
    assert_close(x.grad, torch.arange(3.0).double())


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_anomaly_mode():
    with torch.autograd.detect_anomaly():
        assert_close(gradients(DENSE, lambda f, x: f(x)), gradients(reference, lambda f, x: f(x)))


def test_views_and_lazy_conjugates():
    big, column = f64(3, 8), f64(3, 1)
    found = torch.autograd.grad(DENSE(column.expand(3, 2).T, big[:, ::2]).sum(), (big, column))
    assert_close(found, torch.autograd.grad(reference(column.expand(3, 2).T, big[:, ::2]).sum(), (big, column)))
    times_exp = build(lambda z: ops.Mul(z, ops.Exp(z)), (3,), element_type=C128)
    z = torch.complex(f64(3).detach(), f64(3, seed=1).detach()).requires_grad_()
    found = torch.autograd.grad(times_exp(z.conj()).abs().sum(), z)
    assert_close(found, torch.autograd.grad((z.conj() * z.conj().exp()).abs().sum(), z))
    negative = z.conj().imag
    assert_close(build(ops.Sin, (3,))(negative), negative.sin())


def test_inputs_that_no_gradient_reads_may_change():
    x = f64(3) * 1
    result = build(lambda x: ops.Add(x, x), (3,))(x)
    with torch.no_grad():
        x.add_(1)
    result.sum().backward()


def test_a_second_backward_runs_nothing_again():
    """What the forward part kept serves the way back of the way back."""
    computation = build(lambda x, w: ops.Sin(ops.Tanh(ops.Dot(x, w))), (2, 3), (3, 4))
    x, w = f64(2, 3), f64(3, 4)
    (g,) = torch.autograd.grad(computation(x, w).sum(), x, create_graph=True)
    g.square().sum().backward()
    texts = [print_module(program.module) for program in backward_programs(computation.program)]
    assert len(texts) == 2
    assert not any("tanh(" in text for text in texts)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_torch_compile_leaves_a_program_as_one_call(backend):
    compiled = torch.compile(lambda x, w: DENSE(x * 2, w).sum() * 3, backend=backend)
    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
    want = reference(x * 2, w).sum() * 3
    assert_close(compiled(x, w), want)
    assert_close(torch.autograd.grad(compiled(x, w), (x, w)), torch.autograd.grad(want, (x, w)))
    torch._dynamo.reset()


def test_ops_with_regions_in_a_batch():
    builder = XlaBuilder("add")
    scalar = Shape.array(F64)
    add = builder.build(ops.Add(builder.parameter(0, scalar), builder.parameter(1, scalar)))
    assert_close(func.vmap(lambda row: ops.Reduce(row, 0.0, add, [0]))(X), X.sum(1))
    assert xla_torch.vmap(add, 3).program_shape.result == Shape.array(F64, (3,))


def test_integers_pass_through_transforms():
    builder = XlaBuilder("pick")
    x, start = builder.parameter(0, Shape.array(F64, (5,))), builder.parameter(1, Shape.array(xla_torch.S32, ()))
    pick = builder.build(ops.DynamicSlice(x, [start], [2]))
    starts = torch.tensor([0, 2, 9], dtype=torch.int32)
    found = func.vmap(func.jacrev(pick), (None, 0))(torch.arange(5.0).double(), starts)
    assert_close(found.argmax(-1), torch.tensor([[0, 1], [2, 3], [3, 4]]))
    assert is_differentiable(np.float64(1))
