"""JAX programs that come in and are no networks: diffrax, numpyro, blackjax, optax."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import lineax
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer.util import log_density

from zoo.judging import Build

ROWS: dict[str, Build] = {}
Made = tuple[Any, Sequence[Any]]


def _normal(*shape: int) -> Any:
    return jax.random.normal(jax.random.key(9), shape)


# ---- diffrax

def _field(t: Any, y: Any, args: Any) -> Any:
    return jnp.tanh(args @ y) - y * jnp.cos(t)


def _solved(solver: Any, controller: Any = None, adjoint: Any = None, dense: bool = False) -> Made:
    def run(weights: Any, y: Any) -> Any:
        options = {"stepsize_controller": controller} if controller is not None else {}
        options |= {"adjoint": adjoint} if adjoint is not None else {}
        found = diffrax.diffeqsolve(diffrax.ODETerm(_field), solver, 0.0, 1.0, 0.1, y, weights, max_steps=64,
                                    saveat=diffrax.SaveAt(ts=jnp.linspace(0, 1, 5)) if dense else diffrax.SaveAt(t1=True),
                                    **options)
        return found.ys

    return run, (_normal(4, 4), _normal(4))


def _stochastic() -> Made:
    def run(weights: Any, y: Any) -> Any:
        path = diffrax.VirtualBrownianTree(0.0, 1.0, 1e-2, (4,), jax.random.key(3))
        terms = diffrax.MultiTerm(diffrax.ODETerm(_field), diffrax.ControlTerm(
            lambda t, y, args: lineax.DiagonalLinearOperator(0.1 * y), path))
        return diffrax.diffeqsolve(terms, diffrax.EulerHeun(), 0.0, 1.0, 0.1, y, weights, max_steps=16).ys

    return run, (_normal(4, 4), _normal(4))


ADAPTIVE = functools.partial(diffrax.PIDController, rtol=1e-4, atol=1e-6)
DIFFRAX: dict[str, Callable[[], Made]] = {
    "Euler": lambda: _solved(diffrax.Euler()), "Heun": lambda: _solved(diffrax.Heun()),
    "Midpoint": lambda: _solved(diffrax.Midpoint()),
    "Tsit5": lambda: _solved(diffrax.Tsit5()), "Dopri5, adaptive": lambda: _solved(diffrax.Dopri5(), ADAPTIVE()),
    "Dopri8, adaptive": lambda: _solved(diffrax.Dopri8(), ADAPTIVE()),
    "Tsit5 at times": lambda: _solved(diffrax.Tsit5(), ADAPTIVE(), dense=True),
    "Kvaerno3": lambda: _solved(diffrax.Kvaerno3(), ADAPTIVE()), "direct adjoint": lambda: _solved(
        diffrax.Tsit5(), adjoint=diffrax.DirectAdjoint()), "backsolve adjoint": lambda: _solved(
            diffrax.Tsit5(), adjoint=diffrax.BacksolveAdjoint()), "stochastic": _stochastic,
}
ROWS |= {f"diffrax {n}": build for n, build in DIFFRAX.items()}


# ---- numpyro

def _regression(x: Any, y: Any) -> None:
    w = numpyro.sample("w", dist.Normal(0, 1).expand([3]).to_event(1))
    scale = numpyro.sample("scale", dist.HalfCauchy(1.0))
    with numpyro.plate("data", len(x)):
        numpyro.sample("y", dist.Normal(x @ w, scale), obs=y)


def _logistic(x: Any, y: Any) -> None:
    w = numpyro.sample("w", dist.Laplace(0, 1).expand([3]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=x @ w).to_event(1), obs=(y > 0).astype(int))


def _process(x: Any, y: Any) -> None:
    length, scale = numpyro.sample("length", dist.LogNormal(0, 1)), numpyro.sample("scale", dist.Gamma(2.0, 1.0))
    apart = jnp.sum((x[:, None] - x[None]) ** 2, -1)
    numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(len(x)), scale * jnp.exp(-apart / length) + jnp.eye(len(x))), obs=y)


def _mixture(x: Any, y: Any) -> None:
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(2)))
    means = numpyro.sample("means", dist.StudentT(4.0, 0.0, 3.0).expand([2]).to_event(1))
    mixed = dist.MixtureSameFamily(dist.Categorical(probs=weights), dist.Normal(means, 1.0))
    numpyro.sample("y", mixed.expand([len(y)]).to_event(1), obs=y)


def _counts(x: Any, y: Any) -> None:
    rate = numpyro.sample("rate", dist.InverseGamma(3.0, 2.0))
    shape = numpyro.sample("shape", dist.Beta(2.0, 3.0))
    numpyro.sample("n", dist.NegativeBinomial2(rate, 1 + shape).expand([len(y)]).to_event(1), obs=jnp.round(jnp.abs(y) * 3))
    numpyro.factor("vm", dist.VonMises(0.1, 1 + shape).log_prob(y).sum())


def _correlated(x: Any, y: Any) -> None:
    chol = numpyro.sample("chol", dist.LKJCholesky(3, 1.5))
    numpyro.sample("x", dist.MultivariateNormal(jnp.zeros(3), scale_tril=chol).expand([len(x)]).to_event(1), obs=x)


CHOL = np.array([[1.0, 0, 0], [0.6, 0.8, 0], [0.0, 0.6, 0.8]])
SITES: dict[str, tuple[Callable[..., None], dict[str, Any]]] = {
    "regression": (_regression, {"w": np.array([0.1, -0.5, 0.3]), "scale": np.array(0.7)}),
    "logistic regression": (_logistic, {"w": np.array([0.1, -0.5, 0.3])}),
    "Gaussian process": (_process, {"length": np.array(1.2), "scale": np.array(0.9)}),
    "mixture": (_mixture, {"weights": np.array([0.3, 0.7]), "means": np.array([-1.0, 0.5])}),
    "counts and angles": (_counts, {"rate": np.array(1.5), "shape": np.array(0.4)}),
    "correlations": (_correlated, {"chol": CHOL}),
}


def _density(model: Callable[..., None], sites: dict[str, Any]) -> Made:
    return lambda sites, x, y: log_density(model, (x, y), {}, sites)[0], (sites, _normal(6, 3), _normal(6))


def _drawn(make: Callable[[Any], Any]) -> Made:
    return lambda p: make(p).sample(jax.random.key(5), (3,)), (np.array([0.7, 1.8]),)


def _elbo() -> Made:
    from numpyro.infer import Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal

    guide = AutoNormal(_regression)
    x, y = _normal(6, 3), _normal(6)
    svi = numpyro.infer.SVI(_regression, guide, numpyro.optim.Adam(0.01), Trace_ELBO())
    parameters = svi.get_params(svi.init(jax.random.key(0), x, y))
    return lambda p, x, y: Trace_ELBO().loss(jax.random.key(1), p, _regression, guide, x, y), (parameters, x, y)


ROWS |= {f"numpyro {n}": functools.partial(_density, *row) for n, row in SITES.items()}
ROWS |= {f"numpyro draws of {n}": functools.partial(_drawn, make) for n, make in {
    "Normal": lambda p: dist.Normal(p, 1.0), "Gamma": lambda p: dist.Gamma(p, 1.5), "Beta": lambda p: dist.Beta(p, 2.0),
    "StudentT": lambda p: dist.StudentT(3.0, p), "Gumbel": lambda p: dist.Gumbel(p, 1.0), "Dirichlet": dist.Dirichlet}.items()}
ROWS |= {"numpyro ELBO": _elbo}


# ---- blackjax

def _target(x: Any) -> Any:
    return -0.5 * jnp.sum(x ** 2) - jnp.sum(jnp.cosh(0.3 * x))


def _chain(make: Callable[[Any], Any], steps: int = 3) -> Made:
    import blackjax  # which starts JAX's backend, and that must not be in the process that is forked

    def run(x: Any) -> Any:
        sampler = make(blackjax)
        state = sampler.init(x, jax.random.key(6))
        for key in jax.random.split(jax.random.key(7), steps):
            state, _ = sampler.step(key, state)
        return state.position

    return run, (_normal(3),)


MASS = np.ones(3)
ROWS |= {f"blackjax {n}": functools.partial(_chain, make) for n, make in {
    "HMC": lambda b: b.hmc(_target, 0.1, MASS, 4), "NUTS": lambda b: b.nuts(_target, 0.3, MASS),
    "MALA": lambda b: b.mala(_target, 0.1), "random walk": lambda b: b.additive_step_random_walk(
        _target, b.mcmc.random_walk.normal(MASS)), "GHMC": lambda b: b.ghmc(_target, 0.1, MASS, 0.3, 0.1),
    "barker": lambda b: b.barker_proposal(_target, 0.1)}.items()}


# ---- optax

def _trained(make: Callable[[], Any]) -> Made:
    """Three steps of training."""
    def run(weights: Any, x: Any, y: Any) -> Any:
        optimizer = make()
        state = optimizer.init(weights)
        for _ in range(3):
            gradient = jax.grad(lambda w: jnp.mean((jnp.tanh(x @ w) - y) ** 2))(weights)
            updates, state = optimizer.update(gradient, state, weights)
            weights = optax.apply_updates(weights, updates)
        return weights

    return run, (_normal(3, 2), _normal(6, 3), _normal(6, 2))


ROWS |= {f"optax {n}": functools.partial(_trained, make) for n, make in {
    "adam": lambda: optax.adam(0.1), "adamw": lambda: optax.adamw(0.1), "lamb": lambda: optax.lamb(0.1),
    "lion": lambda: optax.lion(0.1), "adafactor": lambda: optax.adafactor(0.1), "rmsprop": lambda: optax.rmsprop(0.1),
    "sgd with momentum": lambda: optax.sgd(0.1, 0.9, nesterov=True), "muon": lambda: optax.contrib.muon(0.1),
    "clipped, on a schedule": lambda: optax.chain(optax.clip_by_global_norm(1.0), optax.adam(
        optax.warmup_cosine_decay_schedule(0.0, 0.1, 2, 10)))}.items()}


def _loss(function: Callable[..., Any], *targets: Any) -> Made:
    return function, (_normal(4, 5), *targets)


ROWS |= {f"optax {n}": functools.partial(_loss, f, *t) for n, (f, t) in {
    "cross entropy": (optax.softmax_cross_entropy_with_integer_labels, (np.array([0, 2, 4, 1]),)),
    "huber": (optax.huber_loss, (np.zeros((4, 5)),)), "log cosh": (optax.log_cosh, (np.zeros((4, 5)),)),
    "hinge": (optax.hinge_loss, (np.ones((4, 5)),)), "focal": (optax.sigmoid_focal_loss, (np.ones((4, 5)),))}.items()}
