"""`from_jax` differentiates as JAX does: gradients, tangents and second derivatives of functions whose authors wrote rules."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

import xla_torch
from xla_torch import from_jax, parse_hlo
from xla_torch.errors import DifferentiationError

jax = pytest.importorskip("jax")
jnp, lax, nn, special = jax.numpy, jax.lax, jax.nn, jax.scipy.special
linalg = jnp.linalg
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")

_rng = np.random.default_rng(1)
MATRIX = _rng.normal(size=(4, 4)).astype(np.float32)
POSITIVE = MATRIX @ MATRIX.T + 4 * np.eye(4, dtype=np.float32)
VECTOR = _rng.normal(size=4).astype(np.float32)
TIES = np.array([-2, -1, -0.0, 0, 0, 0.5, 1, 1, 2, 7], np.float32)
ABOVE = np.array([0.1, 0.5, 1, 2, 3.5], np.float32)
COMPLEX = (MATRIX + 1j * MATRIX.T).astype(np.complex64)


# ------------------------------------------------------------------------------------------------ functions with rules


@jax.custom_vjp
def rounded(x):
    return jnp.round(x)


rounded.defvjp(lambda x: (rounded(x), None), lambda _, ct: (ct,))


@jax.custom_vjp
def clipped_back(x):
    return x


clipped_back.defvjp(lambda x: (x, None), lambda _, ct: (jnp.clip(ct, -0.5, 0.5),))


@jax.custom_jvp
def log1pexp(x):
    return jnp.log(1 + jnp.exp(x))


@log1pexp.defjvp
def _log1pexp_jvp(primals, tangents):
    (x,), (t,) = primals, tangents
    return log1pexp(x), (1 - 1 / (1 + jnp.exp(x))) * t


@jax.custom_vjp
def fixed_point(a, x0):
    return lax.while_loop(lambda c: jnp.abs(c[0] - c[1]) > 1e-6, lambda c: (c[1], jnp.cos(a * c[1])), (x0 + 1, x0))[1]


def _fixed_forward(a, x0):
    z = fixed_point(a, x0)
    return z, (a, z)


def _fixed_back(kept, ct):
    a, z = kept
    slope = -jnp.sin(a * z)
    return ct / (1 - slope * a) * slope * z, jnp.zeros_like(z)


fixed_point.defvjp(_fixed_forward, _fixed_back)


def stopped(x):
    return x * lax.stop_gradient(x)


def straight_through(x):
    return x + lax.stop_gradient(jnp.round(x) - x)


def vq_vae(x, codes):
    distances = ((x[:, None] - codes[None]) ** 2).sum(-1)
    q = codes[jnp.argmin(distances, 1)]
    commitment = ((x - lax.stop_gradient(q)) ** 2).mean() + 0.25 * ((lax.stop_gradient(x) - q) ** 2).mean()
    return commitment + ((x + lax.stop_gradient(q - x)) ** 3).sum()


def custom_root(a):
    def newton(f, x0):
        return lax.fori_loop(0, 30, lambda _, x: x - f(x) / (3 * x * x), x0)

    return lax.custom_root(lambda x: x ** 3 - a, jnp.float32(1), newton, lambda g, y: y / g(jnp.float32(1)))


def linear_solve(m, b):
    return lax.custom_linear_solve(lambda x: m @ x, b, lambda _, b: linalg.solve(m, b), symmetric=True)


def rematerialised(w, x):
    block = jax.checkpoint(lambda w, x: jnp.tanh(w @ jnp.tanh(w @ x)))
    return block(w, block(w, x))


def scanned(w, x):
    return lax.scan(lambda c, _: (clipped_back(jnp.tanh(w @ c) * rounded(c * 3) / 3), c), x, None, 5)


def branched(x):
    return lax.cond(x[0] > 0, lambda x: clipped_back(x) * 3, lambda x: x * lax.stop_gradient(x), x)


def mapped_inside(x):
    return jax.vmap(lambda row: clipped_back(row).sum() * log1pexp(row))(x)


def gradient_inside(w, x):
    return jax.grad(lambda x: (log1pexp(w @ x) * lax.stop_gradient(x)).sum())(x)


def several_results(x):
    return {"a": x * 2, "b": (x.astype(jnp.int32), clipped_back(x).sum())}


def narrow(x):
    x = x.astype(jnp.bfloat16)
    return (clipped_back(x) * nn.gelu(x)).astype(jnp.float32)


def softmax_loss(logits):
    """optax.softmax_cross_entropy_with_integer_labels."""
    labels = jnp.array([1, 0, 3, 2])
    shifted = logits - lax.stop_gradient(logits.max(-1, keepdims=True))
    return jnp.log(jnp.exp(shifted).sum(-1)) - jnp.take_along_axis(shifted, labels[:, None], -1)[:, 0]


def sigmoid_loss(logits):
    """optax.sigmoid_binary_cross_entropy."""
    labels = jnp.arange(10) % 2
    return -labels * nn.log_sigmoid(logits) - (1 - labels) * nn.log_sigmoid(-logits)


def huber(x):
    """optax.huber_loss."""
    error = jnp.abs(x)
    quadratic = jnp.minimum(error, 1)
    return 0.5 * quadratic ** 2 + (error - quadratic)


def cosine(x):
    """optax.cosine_similarity."""
    norms = jnp.sqrt((x ** 2).sum(-1))
    safe = jnp.where(norms == 0, 1, norms)
    return (x[:-1] * x[1:]).sum(-1) / (safe[:-1] * safe[1:])


QUICK = {
    "stop_gradient": (stopped, TIES), "straight-through": (straight_through, TIES),
    "its own vjp": (lambda x: rounded(x) ** 2, TIES),
    "VQ-VAE": (vq_vae, MATRIX, POSITIVE), "implicit": (lambda a, x: fixed_point(a, x) ** 2, np.float32(0.7), np.float32(0.3)),
    "safe log1pexp": (log1pexp, np.array([-100, 0, 1, 100], np.float32)), "clipped": (lambda x: clipped_back(x) ** 2 * 3, TIES),
    "custom_root": (custom_root, np.float32(2)), "remat": (rematerialised, MATRIX, VECTOR), "scan": (scanned, MATRIX, VECTOR),
    "cond": (branched, VECTOR), "vmap": (mapped_inside, MATRIX), "several results": (several_results, TIES),
    "complex": (lambda z: (z * lax.stop_gradient(z) * jnp.exp(z)).sum(), COMPLEX), "bf16": (narrow, TIES),
    "abs of complex": (lambda z: jnp.abs(z).sum() + jnp.real(z ** 2 * 1j).sum(), COMPLEX), "relu": (nn.relu, TIES),
    "max": (jnp.max, TIES), "norm": (linalg.norm, MATRIX), "logsumexp": (nn.logsumexp, TIES),
    "softmax loss": (softmax_loss, MATRIX),
}
SWEEP = {
    **{f"nn.{n}": (getattr(nn, n), TIES) for n in (
        "relu6", "silu", "softmax", "gelu", "elu", "log_sigmoid", "softplus", "log_softmax", "leaky_relu", "hard_tanh", "celu",
        "selu", "glu", "sigmoid", "soft_sign", "squareplus", "mish", "hard_swish", "standardize")},
    "norms of rows": (lambda x: linalg.norm(x, axis=1), MATRIX), "inv": (linalg.inv, POSITIVE),
    "solve": (linalg.solve, POSITIVE, VECTOR), "det": (linalg.det, MATRIX), "slogdet": (lambda x: linalg.slogdet(x)[1], POSITIVE),
    "eigh": (lambda x: linalg.eigh(x)[0], POSITIVE), "eigenvectors": (lambda x: jnp.abs(linalg.eigh(x)[1]), POSITIVE),
    "svd": (lambda x: linalg.svd(x, compute_uv=False), MATRIX), "qr": (lambda x: tuple(linalg.qr(x)), MATRIX),
    "cholesky": (linalg.cholesky, POSITIVE), "pinv": (linalg.pinv, MATRIX[:, :3].copy()),
    "complex eigh": (lambda z: linalg.eigh(z + z.conj().T)[0], COMPLEX), "fft": (lambda x: jnp.abs(jnp.fft.fft2(x)), MATRIX),
    "min": (jnp.min, TIES), "abs": (jnp.abs, TIES), "sort": (jnp.sort, TIES), "clip": (lambda x: jnp.clip(x, -1, 1), TIES),
    "maximum": (lambda x: jnp.maximum(x, 0) * jnp.minimum(x, 1), TIES), "cumprod": (jnp.cumprod, TIES), "prod": (jnp.prod, TIES),
    "where trick": (lambda x: jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1.0)), 0.0), TIES), "median": (jnp.median, TIES),
    "where without it": (lambda x: jnp.where(x > 0, jnp.sqrt(x), 0.0), TIES), "top_k": (lambda x: lax.top_k(x, 3)[0], TIES),
    "power": (lambda x, y: x ** y, np.abs(TIES), TIES), "sinc": (jnp.sinc, TIES), "std": (jnp.std, TIES),
    "logaddexp": (lambda x: jnp.logaddexp(x, -x), TIES), "hypot": (lambda x: jnp.hypot(x, x + 1), TIES),
    "cumlogsumexp": (lax.cumlogsumexp, TIES), "cummax": (lax.cummax, TIES),
    "xlogy": (lambda x: special.xlogy(x, x + 0.5), np.abs(TIES)),
    "entr": (special.entr, ABOVE), "gammainc": (special.gammainc, ABOVE, ABOVE[::-1].copy()), "i0e": (special.i0e, TIES),
    "betainc": (lambda x: special.betainc(ABOVE, ABOVE + 1, x), ABOVE / 5),
    "erfinv": (special.erfinv, TIES / 8), "i1e": (special.i1e, TIES),
    "digamma": (special.digamma, ABOVE), "ndtri": (special.ndtri, ABOVE / 5), "betaln": (special.betaln, ABOVE, ABOVE + 1),
    "log_ndtr": (special.log_ndtr, TIES), "spence": (special.spence, ABOVE), "zeta": (lambda q: special.zeta(3.0, q), ABOVE),
    "linear solve": (linear_solve, POSITIVE, VECTOR), "sigmoid loss": (sigmoid_loss, TIES), "huber": (huber, TIES),
    "cosine": (cosine, MATRIX), "gradient inside": (gradient_inside, MATRIX, VECTOR),
    "cg": (lambda m, b: jax.scipy.sparse.linalg.cg(lambda x: m @ x, b)[0], POSITIVE, VECTOR),
    "attention": (lambda q: nn.dot_product_attention(q[:, None, :], q[:, None, :], q[:, None, :]), MATRIX),
    "fori": (lambda w, x: lax.fori_loop(0, 4, lambda _, c: jnp.tanh(w @ c), x), MATRIX, VECTOR),
    "switch": (lambda x: lax.switch(2, [lambda x: x, lambda x: -x, lambda x: rounded(x) * x], x), VECTOR),
    "jit": (jax.jit(lambda x: log1pexp(x) * lax.stop_gradient(x)), MATRIX),
}


NO_TANGENTS = {"its own vjp", "implicit", "clipped", "scan", "cond", "vmap", "several results", "bf16", "switch"}
"""Functions of which JAX refuses to have any, since a part has a custom_vjp."""
ONCE = {"gammainc"}
"""Functions that JAX does not differentiate twice."""


def flat(function):
    return lambda *arguments: tuple(jax.tree_util.tree_leaves(function(*arguments)))


def drawn(shape, dtype):
    values = _rng.normal(size=shape)
    return (values + 1j * _rng.normal(size=shape) if np.issubdtype(dtype, np.complexfloating) else values).astype(dtype)


def equal(ours, theirs, rtol=2e-5, atol=1e-5):
    np.testing.assert_allclose(ours.detach().numpy(), np.asarray(theirs), rtol=rtol, atol=atol)


def tensors(arguments):
    return [torch.tensor(a, requires_grad=True) for a in arguments]


def results_of(computation, arguments):
    found = computation(*arguments)
    return list(found) if isinstance(found, tuple) else [found]


def check_gradients(function, arguments):
    """The way back from all floating results, for drawn cotangents."""
    computation, given = from_jax(function, *arguments).computation, tensors(arguments)
    results, back = jax.vjp(flat(function), *arguments)
    moving = [k for k, r in enumerate(results) if jnp.issubdtype(r.dtype, jnp.inexact)]
    cotangents = {k: drawn(results[k].shape, results[k].dtype) for k in moving}
    theirs = back(tuple(cotangents.get(k, np.zeros(r.shape, jax.dtypes.float0)) for k, r in enumerate(results)))
    outputs = results_of(computation, given)
    ours = torch.autograd.grad([outputs[k] for k in moving], given, [torch.tensor(np.conj(cotangents[k])) for k in moving])
    for a, b in zip(ours, theirs, strict=True):
        equal(a, np.conj(b))
    return computation


def check_tangents(computation, function, arguments):
    given = [drawn(a.shape, a.dtype) for a in arguments]
    theirs = [t for t in jax.jvp(flat(function), arguments, tuple(given))[1] if t.dtype != jax.dtypes.float0]
    ours = xla_torch.jvp(computation)(*map(torch.tensor, (*arguments, *given)))[1]
    for a, b in zip(ours if isinstance(ours, tuple) else [ours], theirs, strict=True):
        equal(a, b)


def check_twice(computation, function, arguments):
    """The gradient of the first argument's gradient of the first result, walked back with a drawn cotangent."""
    ct, tangent = drawn(flat(function)(*arguments)[0].shape, np.float32), drawn(arguments[0].shape, arguments[0].dtype)
    if any(np.iscomplexobj(a) for a in (*arguments, *flat(function)(*arguments))):
        return

    def gradient(x):
        return jax.grad(lambda x: (flat(function)(x, *arguments[1:])[0] * ct).sum())(x)

    theirs = jax.vjp(gradient, arguments[0])[1](tangent)[0]
    x, *rest = tensors(arguments)
    (first,) = torch.autograd.grad(results_of(computation, [x, *rest])[0], x, torch.tensor(ct), create_graph=True)
    found = torch.autograd.grad(first, x, torch.tensor(tangent), allow_unused=True)[0] if first.requires_grad else None
    tolerance = 2e-2 if function is narrow else 1e-4
    equal(torch.zeros_like(x) if found is None else found, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", QUICK)
def test_gradients_are_jaxs(name):
    function, *arguments = QUICK[name]
    check_gradients(function, tuple(arguments))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*QUICK, *SWEEP])
def test_all_derivatives_are_jaxs(name):
    function, *arguments = (QUICK | SWEEP)[name]
    computation = check_gradients(function, tuple(arguments))
    if name not in NO_TANGENTS:
        check_tangents(computation, function, tuple(arguments))
    if name not in ONCE:
        check_twice(computation, function, tuple(arguments))


# ------------------------------------------------------------------------------------------------ entry points


def loss(x, w):
    return (x * lax.stop_gradient(jnp.sin(x)) @ w).sum() + (jnp.exp(x) * log1pexp(x)).sum()


X, W, MANY = MATRIX[:3, :3].copy(), POSITIVE[:3, :3].copy(), _rng.normal(size=(5, 3, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def computation():
    return from_jax(loss, X, W).computation


ENTRY_POINTS = {
    "torch.func.grad": lambda c, x, w, xs: torch.func.grad(c)(x, w),
    "torch.func.vjp": lambda c, x, w, xs: torch.func.vjp(c, x, w)[1](torch.ones(()))[0],
    "torch.func.jacfwd": lambda c, x, w, xs: torch.func.jacfwd(c)(x, w),
    "xla_torch.grad": lambda c, x, w, xs: xla_torch.grad(c)(x, w),
    "xla_torch.value_and_grad": lambda c, x, w, xs: xla_torch.value_and_grad(c)(x, w)[1],
    "xla_torch.vjp": lambda c, x, w, xs: xla_torch.vjp(c)(x, w, torch.ones(()))[0],
    "compile": lambda c, x, w, xs: xla_torch.grad(xla_torch.compile(c, "aot_eager"))(x, w),
    "its text": lambda c, x, w, xs: parse_hlo(xla_torch.grad(c).to_hlo_text())(x, w),
    "pickled": lambda c, x, w, xs: xla_torch.grad(pickle.loads(pickle.dumps(c)))(x, w),
    "pickled gradient": lambda c, x, w, xs: pickle.loads(pickle.dumps(xla_torch.grad(c)))(x, w),
}
SECOND = {
    "torch.func.hessian": lambda c, x, w, xs: torch.func.hessian(c)(x, w),
    "jacrev of jacrev": lambda c, x, w, xs: torch.func.jacrev(torch.func.jacrev(c))(x, w),
    "jvp of grad": lambda c, x, w, xs: torch.func.jacfwd(lambda x: xla_torch.grad(c)(x, w))(x),
    "pickled gradient's": lambda c, x, w, xs: torch.func.jacrev(pickle.loads(pickle.dumps(xla_torch.grad(c))))(x, w),
}
BATCHES = {
    "vmap of grad": lambda c, x, w, xs: torch.func.vmap(torch.func.grad(c, argnums=1), (0, None))(xs, w).sum(0),
    "grad of vmap": lambda c, x, w, xs: torch.func.grad(lambda w: torch.func.vmap(c, (0, None))(xs, w).sum())(w),
    "xla_torch's": lambda c, x, w, xs: xla_torch.vjp(xla_torch.vmap(c, 5, (0, None)))(xs, w, torch.ones(5))[1],
}


def called(entry_point, computation):
    return entry_point(computation, *map(torch.tensor, (X, W, MANY)))


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_each_entry_point_has_jaxs_gradient(entry_point, computation):
    equal(called(ENTRY_POINTS[entry_point], computation), jax.grad(loss)(X, W))


@pytest.mark.parametrize("entry_point", SECOND)
def test_each_entry_point_has_jaxs_second_derivative(entry_point, computation):
    equal(called(SECOND[entry_point], computation), jax.hessian(loss)(X, W), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("entry_point", BATCHES)
def test_batches_have_jaxs_gradient(entry_point, computation):
    theirs = jax.grad(lambda w: jax.vmap(loss, (0, None))(MANY, w).sum())(W)
    equal(called(BATCHES[entry_point], computation), theirs, rtol=1e-4, atol=1e-4)


def test_backward_and_backward_of_it(computation):
    x, w = torch.tensor(X, requires_grad=True), torch.tensor(W)
    (first,) = torch.autograd.grad(computation(x, w), x, create_graph=True)
    equal(first, jax.grad(loss)(X, W))
    (second,) = torch.autograd.grad((first * torch.tensor(W)).sum(), x)
    equal(second, jax.vjp(lambda x: jax.grad(loss)(x, W), X)[1](W)[0], rtol=1e-4)


def test_dual_tensors_go_through_forwards_and_backwards(computation):
    x, w = torch.tensor(X, requires_grad=True), torch.tensor(W)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.tensor(W))
        result = computation(dual, w)
        (gradient,) = torch.autograd.grad(result, x, create_graph=True)
        tangents = [torch.autograd.forward_ad.unpack_dual(t).tangent for t in (result, gradient)]
    equal(tangents[0], jax.jvp(lambda x: loss(x, W), (X,), (W,))[1])
    equal(tangents[1], jax.jvp(lambda x: jax.grad(loss)(x, W), (X,), (W,))[1], rtol=1e-4, atol=1e-4)


def test_a_module_and_a_training_step(computation):
    module = xla_torch.nn.XlaModule(computation, parameters={1: torch.tensor(W)})
    module(torch.tensor(X)).backward()
    (gradient,) = (p.grad for p in module.parameters())
    theirs = jax.grad(loss, 1)(X, W)
    equal(gradient, theirs)
    sgd = xla_torch.training.sgd(0.1)
    step = xla_torch.training.training_step(computation, sgd, 1)
    equal(step(torch.tensor(X), torch.tensor(W), *sgd.init([torch.tensor(W)]))[1], W - 0.1 * theirs)


def test_ops_alone_where_the_user_says_so():
    found = from_jax(stopped, TIES, derivatives="xla")
    x = torch.tensor(TIES, requires_grad=True)
    found(x).sum().backward()
    equal(x.grad, 2 * TIES)


def test_arguments_without_gradient():
    key = jax.random.key(3)

    def noisy(x, n, key):
        return (lax.stop_gradient(x) * x * n + jax.random.normal(key, x.shape)).sum(), n + 1

    function, x = from_jax(noisy, TIES, 3, key), torch.tensor(TIES, requires_grad=True)
    function(x, 3, key)[0].backward()
    equal(x.grad, 3 * TIES)


def test_what_jax_cannot_walk_back_is_walked_back_by_ops():
    def doubled(x):
        return lax.while_loop(lambda x: x.sum() < 100, lambda x: x * 2, x)

    x = torch.tensor(ABOVE, requires_grad=True)
    from_jax(doubled, ABOVE)(x).sum().backward()
    equal(x.grad, np.full(5, 16.0, np.float32))


def test_what_its_author_refuses_is_refused_with_jaxs_words():
    def half_known(x):
        return lax.while_loop(lambda x: x.sum() < 100, lambda x: x * 2, rounded(x))

    x = torch.tensor(ABOVE, requires_grad=True)
    with pytest.raises(DifferentiationError, match="Reverse-mode differentiation does not work"):
        from_jax(half_known, ABOVE)(x).sum().backward()


def scaled_by_a_closure(x, s):
    """Its rule reads a value of the function that it is written in, which is gone when this has been traced."""
    scale = jnp.max(s) + 1.0

    @jax.custom_vjp
    def scaled(y):
        return y * scale

    scaled.defvjp(lambda y: (scaled(y), None), lambda _, ct: (3 * ct * scale,))
    return jnp.sum(scaled(x) ** 2), scaled(x)


def tilted_by_a_closure(x, s):
    scale = jnp.max(s) + 1.0

    @jax.custom_jvp
    def tilted(y):
        return y * scale

    tilted.defjvp(lambda primals, tangents: (tilted(*primals), 3 * scale * tangents[0]))
    return jnp.sum(tilted(x) ** 2), tilted(x)


@pytest.mark.parametrize("function", [scaled_by_a_closure, tilted_by_a_closure])
def test_rules_that_close_over_traced_values(function):
    """JAX differentiates the function, but not the jitted one."""
    with pytest.raises(TypeError, match="DynamicJaxprTracer"):
        jax.grad(lambda x: jax.jit(function)(x, ABOVE)[0])(VECTOR)
    program, x = from_jax(function, VECTOR, ABOVE), torch.tensor(VECTOR, requires_grad=True)
    results = program(x, torch.tensor(ABOVE))
    for k, ct in enumerate((np.float32(2), VECTOR)):
        theirs = jax.vjp(lambda x, k=k: function(x, ABOVE)[k], VECTOR)[1](ct)[0]
        equal(torch.autograd.grad(results[k], x, torch.tensor(ct), retain_graph=True)[0], theirs)


def test_their_tangents():
    x, t = VECTOR, VECTOR[::-1].copy()
    program = from_jax(tilted_by_a_closure, x, ABOVE)
    theirs = jax.jvp(lambda x: tilted_by_a_closure(x, ABOVE), (x,), (t,))[1]
    ours = torch.func.jvp(lambda x: program(x, torch.tensor(ABOVE)), (torch.tensor(x),), (torch.tensor(t),))[1]
    for own, other in zip(ours, theirs, strict=True):
        equal(own, other)
    with pytest.raises(DifferentiationError, match="closes over a value of a trace that has ended"):  # so does JAX
        xla_torch.jvp(program.computation)


def test_pickles_differentiate_without_jax(tmp_path):
    path = tmp_path / "function"
    path.write_bytes(pickle.dumps((from_jax(loss, X, W).computation, X, W, np.asarray(jax.grad(loss)(X, W)))))
    program = ("import sys; sys.modules['jax'] = sys.modules['jaxlib'] = None\n"
               "import pickle, numpy, torch\n"
               f"computation, x, w, theirs = pickle.load(open({str(path)!r}, 'rb'))\n"
               "x = torch.tensor(x, requires_grad=True)\n"
               "computation(x, torch.tensor(w)).backward()\n"
               "numpy.testing.assert_allclose(x.grad, theirs, rtol=1e-4, atol=1e-5)\n")
    subprocess.run([sys.executable, "-c", program], check=True)


def test_double_precision():
    program = ("import jax; jax.config.update('jax_enable_x64', True)\n"
               "import numpy, torch; from xla_torch import from_jax\n"
               "f = lambda x: (x * jax.lax.stop_gradient(jax.numpy.sin(x))).sum()\n"
               "x = numpy.linspace(0., 1., 5); t = torch.tensor(x, requires_grad=True)\n"
               "from_jax(f, x)(t).backward()\n"
               "numpy.testing.assert_allclose(t.grad, jax.grad(f)(x), rtol=1e-14)\n")
    subprocess.run([sys.executable, "-c", program], check=True)
