"""Uses of torch libraries as their documentation shows them: graphs, Gaussian processes, ODEs, flows, distributions.

A row imports its library when it is built. `make zoo` passes over a row whose library is not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from zoo.judging import Build

ROWS: dict[str, Build] = {}
Made = tuple[Any, Sequence[Any]]


class _Use(nn.Module):
    """A function of modules and inputs."""

    def __init__(self, function: Callable[..., Any], *parts: nn.Module):
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, *arguments: Any) -> Any:
        return self.function(*self.parts, *arguments)


def _row_of(rows: dict[str, Build]) -> Callable[[str], Callable[[Build], Build]]:
    """What keeps a function as the row of a name."""
    def row(name: str) -> Callable[[Build], Build]:
        return lambda build: rows.setdefault(name, build)

    return row


_row = _row_of(ROWS)


def _unit(*shape: int) -> torch.Tensor:
    return torch.rand(*shape)


# ---- graphs

def _edges(nodes: int = 12, count: int = 40) -> torch.Tensor:
    return torch.stack([torch.randint(nodes, (count,)), torch.randint(nodes, (count,))])


def _graph_net(make: Callable[[Any], Sequence[nn.Module]]) -> Made:
    import torch_geometric.nn as pyg

    def run(first: nn.Module, second: nn.Module, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        return functional.log_softmax(second(first(x, edges).relu(), edges), dim=1)

    return _Use(run, *make(pyg)), (torch.randn(12, 6), _edges())


def _mlp(inside: int, outside: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inside, 8), nn.ReLU(), nn.Linear(8, outside))


CONVOLUTIONS: dict[str, Callable[[Any], Sequence[nn.Module]]] = {
    "GCNConv": lambda p: (p.GCNConv(6, 8), p.GCNConv(8, 3)),
    "GATv2Conv": lambda p: (p.GATv2Conv(6, 4, heads=2), p.GATv2Conv(8, 3)),
    "EdgeConv": lambda p: (p.EdgeConv(_mlp(12, 8)), p.EdgeConv(_mlp(16, 3), aggr="mean")),
    "ChebConv": lambda p: (p.ChebConv(6, 8, K=3), p.ChebConv(8, 3, K=2)),
    "TransformerConv": lambda p: (p.TransformerConv(6, 4, heads=2), p.TransformerConv(8, 3)),
    "APPNP": lambda p: (p.SAGEConv(6, 3), p.APPNP(K=4, alpha=0.1)),
}
ROWS |= {f"torch_geometric {name}": lambda make=make: _graph_net(make) for name, make in CONVOLUTIONS.items()}


def _pooled(make: Callable[[Any], Sequence[nn.Module]]) -> Made:
    import torch_geometric.nn as pyg

    def run(conv: nn.Module, pool: nn.Module, x: torch.Tensor, edges: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        x, edges, _, batch, *_ = pool(conv(x, edges).relu(), edges, None, batch)
        return pyg.global_mean_pool(x, batch)

    batch = torch.arange(12) // 6
    source = torch.randint(12, (40,))
    return _Use(run, *make(pyg)), (torch.randn(12, 6), torch.stack([source, source // 6 * 6 + torch.randint(6, (40,))]), batch)


ROWS |= {"torch_geometric TopKPooling": lambda: _pooled(lambda p: (p.GraphConv(6, 8), p.TopKPooling(8, ratio=0.5))),
         "torch_geometric SAGPooling": lambda: _pooled(lambda p: (p.GraphConv(6, 8), p.SAGPooling(8, ratio=3)))}


@_row("torch_geometric GIN and global_add_pool")
def _gin() -> Made:
    import torch_geometric.nn as pyg

    def run(model: nn.Module, x: torch.Tensor, edges: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        return pyg.global_add_pool(model(x, edges), batch)

    return _Use(run, pyg.GIN(6, 8, num_layers=2)), (torch.randn(12, 6), _edges(), torch.arange(12) // 4)


@_row("torch_geometric GPSConv")
def _gps() -> Made:
    import torch_geometric.nn as pyg

    conv = pyg.GPSConv(8, pyg.GINConv(_mlp(8, 8)), heads=2)
    return _Use(lambda conv, x, edges, batch: conv(x, edges, batch), conv), (
        torch.randn(12, 8), _edges(), torch.arange(12) // 5)


@_row("egnn_pytorch EGNN")
def _egnn() -> Made:
    from egnn_pytorch import EGNN

    return EGNN(dim=8), (torch.randn(1, 6, 8), torch.randn(1, 6, 3))


# ---- Gaussian processes

def _exact(kernel: Callable[[Any], Any]) -> Any:
    import gpytorch

    class Model(gpytorch.models.ExactGP):
        def __init__(self, likelihood: Any):
            super().__init__(None, None, likelihood)
            self.mean_module, self.covar_module = gpytorch.means.ConstantMean(), kernel(gpytorch.kernels)

        def forward(self, x: torch.Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    return Model(gpytorch.likelihoods.GaussianLikelihood())


def _trained(kernel: Callable[[Any], Any]) -> Made:
    import gpytorch

    model = _exact(kernel)

    def run(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        model.set_train_data(x, y, strict=False)
        model.train()
        return -gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)(model(x), y)

    return _Use(run, model), (_unit(9, 2), torch.randn(9))


def _predicted(kernel: Callable[[Any], Any]) -> Made:
    model = _exact(kernel)

    def run(model: Any, x: torch.Tensor, y: torch.Tensor, at: torch.Tensor) -> Any:
        model.set_train_data(x, y, strict=False)
        model.eval()
        found = model.likelihood(model(at))
        return found.mean, found.variance

    return _Use(run, model), (_unit(9, 2), torch.randn(9), _unit(4, 2))


KERNELS: dict[str, Callable[[Any], Any]] = {
    "RBF": lambda k: k.ScaleKernel(k.RBFKernel()), "Matern": lambda k: k.ScaleKernel(k.MaternKernel(nu=2.5, ard_num_dims=2)),
    "periodic": lambda k: k.ScaleKernel(k.PeriodicKernel() + k.LinearKernel()),
    "spectral mixture": lambda k: k.SpectralMixtureKernel(num_mixtures=3, ard_num_dims=2)}
ROWS |= {f"gpytorch marginal likelihood, {n}": lambda kernel=kernel: _trained(kernel) for n, kernel in KERNELS.items()}
ROWS |= {f"gpytorch prediction, {n}": lambda kernel=kernel: _predicted(kernel)
         for n, kernel in KERNELS.items() if n != "periodic"}


@_row("gpytorch variational ELBO")
def _variational() -> Made:
    import gpytorch

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self, points: torch.Tensor):
            distribution = gpytorch.variational.CholeskyVariationalDistribution(len(points))
            super().__init__(gpytorch.variational.VariationalStrategy(self, points, distribution))
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x: torch.Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    def run(model: Any, likelihood: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return gpytorch.mlls.VariationalELBO(likelihood, model, num_data=9)(model(x), y)

    model = Model(_unit(4, 2))
    model.variational_strategy.variational_params_initialized.fill_(1)
    return _Use(run, model, gpytorch.likelihoods.GaussianLikelihood()), (_unit(9, 2), torch.randn(9))


@_row("linear_operator solve and log determinant")
def _operator() -> Made:
    import linear_operator.operators as lo

    def run(root: torch.Tensor, diagonal: torch.Tensor, y: torch.Tensor) -> Any:
        operator = lo.RootLinearOperator(root).add_diagonal(diagonal.abs() + 1)
        return operator.inv_quad_logdet(inv_quad_rhs=y, logdet=True)

    return _Use(run), (torch.randn(6, 2), torch.randn(6), torch.randn(6, 1))


def _acquisition(name: str, **options: Any) -> Made:
    import botorch
    from botorch.models import SingleTaskGP

    def run(x: torch.Tensor, y: torch.Tensor, at: torch.Tensor) -> Any:
        model = SingleTaskGP(x, y, outcome_transform=None)
        model.eval()
        return getattr(botorch.acquisition, name)(model, **options)(at)

    return _Use(run), (_unit(7, 2), torch.randn(7, 1), _unit(5, 1, 2))


ROWS |= {"botorch LogExpectedImprovement": lambda: _acquisition("LogExpectedImprovement", best_f=0.2),
         "botorch UpperConfidenceBound": lambda: _acquisition("UpperConfidenceBound", beta=0.1)}


@_row("botorch qExpectedImprovement")
def _sampled_improvement() -> Made:
    from botorch.sampling import SobolQMCNormalSampler

    return _acquisition("qExpectedImprovement", best_f=0.2, sampler=SobolQMCNormalSampler(torch.Size([16]), seed=1))


# ---- differential equations

class _Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))

    def forward(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.net(y ** 3)


def _solved(name: str, **options: Any) -> Made:
    import torchdiffeq

    def run(field: nn.Module, y: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        return getattr(torchdiffeq, name)(field, y, times, **options)

    return _Use(run, _Field()), (torch.randn(3, 2), torch.linspace(0, 1, 4))


ROWS |= {"torchdiffeq dopri5": lambda: _solved("odeint", rtol=1e-4, atol=1e-5),
         "torchdiffeq rk4": lambda: _solved("odeint", method="rk4", options={"step_size": 0.25}),
         "torchdiffeq implicit_adams": lambda: _solved("odeint", method="implicit_adams"),
         "torchdiffeq adjoint": lambda: _solved("odeint_adjoint", method="midpoint")}


@_row("torchode Tsit5")
def _torchode() -> Made:
    import torchode

    def run(field: nn.Module, y: torch.Tensor) -> torch.Tensor:
        term = torchode.ODETerm(field)
        solver = torchode.AutoDiffAdjoint(torchode.Tsit5(term=term), torchode.IntegralController(1e-6, 1e-3, term=term))
        times = torch.linspace(0, 1, 4, dtype=y.dtype).expand(len(y), -1)
        return solver.solve(torchode.InitialValueProblem(y0=y, t_eval=times)).ys

    return _Use(run, _Field()), (torch.randn(3, 2),)


@_row("torchsde Euler")
def _stochastic() -> Made:
    import torchsde

    class Field(nn.Module):
        noise_type, sde_type = "diagonal", "ito"

        def __init__(self):
            super().__init__()
            self.drift, self.spread = nn.Linear(2, 2), nn.Linear(2, 2)

        def f(self, t: Any, y: torch.Tensor) -> torch.Tensor:
            return self.drift(y)

        def g(self, t: Any, y: torch.Tensor) -> torch.Tensor:
            return torch.sigmoid(self.spread(y))

    def run(field: nn.Module, y: torch.Tensor) -> torch.Tensor:
        noise = torchsde.BrownianInterval(0.0, 1.0, size=y.shape, dtype=y.dtype, entropy=7)
        return torchsde.sdeint(field, y, torch.tensor([0.0, 0.5, 1.0], dtype=y.dtype), dt=0.25, method="euler", bm=noise)

    return _Use(run, Field()), (torch.randn(3, 2),)


@_row("torchcde neural CDE")
def _controlled() -> Made:
    import torchcde

    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            self.line = nn.Linear(4, 12)

        def forward(self, t: Any, z: torch.Tensor) -> torch.Tensor:
            return self.line(z).tanh().view(*z.shape, 3)

    def run(field: nn.Module, first: nn.Module, x: torch.Tensor) -> torch.Tensor:
        path = torchcde.CubicSpline(torchcde.hermite_cubic_coefficients_with_backward_differences(x))
        return torchcde.cdeint(X=path, func=field, z0=first(path.evaluate(path.interval[0])), t=path.interval, adjoint=False,
                               method="rk4", options={"step_size": 1.0})[:, -1]

    return _Use(run, Field(), nn.Linear(3, 4)), (torch.randn(2, 5, 3),)


# ---- flows

def _logged(make: Callable[[], nn.Module], size: int = 4) -> Made:
    return _Use(lambda flow, x: flow.log_prob(x), make()), (torch.randn(5, size),)


def _normflows(spline: bool) -> nn.Module:
    import normflows as nf

    flows: list[Any] = []
    for _ in range(2):
        flows += [nf.flows.AutoregressiveRationalQuadraticSpline(4, 1, 8), nf.flows.LULinearPermute(4)] if spline else [
            nf.flows.AffineCouplingBlock(nf.nets.MLP([2, 8, 4], init_zeros=True)), nf.flows.Permute(4, mode="swap")]
    return nf.NormalizingFlow(nf.distributions.DiagGaussian(4, trainable=False), flows)


def _nflows(kind: str) -> nn.Module:
    from nflows import distributions, flows, transforms

    made: dict[str, Callable[[], Any]] = {
        "autoregressive": lambda: transforms.MaskedAffineAutoregressiveTransform(features=4, hidden_features=8),
        "splines": lambda: transforms.MaskedPiecewiseRationalQuadraticAutoregressiveTransform(
            features=4, hidden_features=8, num_bins=4, tails="linear", tail_bound=3.0),
        "orthogonal": lambda: transforms.SVDLinear(4, num_householder=2)}
    chain = transforms.CompositeTransform([transforms.ReversePermutation(features=4), made[kind]()])
    return flows.Flow(chain, distributions.StandardNormal([4]))


def _zuko(kind: str, **options: Any) -> Made:
    import zuko

    flow = getattr(zuko.flows, kind)(features=3, context=2, **options)
    return _Use(lambda flow, x, c: flow(c).log_prob(x), flow), (torch.randn(5, 3), torch.randn(5, 2))


ROWS |= {"normflows RealNVP": lambda: _logged(lambda: _normflows(False)),
         "normflows spline": lambda: _logged(lambda: _normflows(True))}
ROWS |= {f"nflows {kind}": lambda kind=kind: _logged(lambda: _nflows(kind))
         for kind in ("autoregressive", "splines", "orthogonal")}
ROWS |= {f"zuko {kind}": lambda kind=kind, options=options: _zuko(kind, **options) for kind, options in {
    "NSF": {"transforms": 2, "hidden_features": (8, 8)}, "MAF": {"transforms": 2, "hidden_features": (8,)},
    "NAF": {"transforms": 1, "hidden_features": (8,)}, "GMM": {"components": 3}, "CNF": {"hidden_features": (8,)}}.items()}


# ---- torch.distributions and libraries on them

@_row("torch.distributions mixture")
def _mixture() -> Made:
    import torch.distributions as td

    def run(logits: torch.Tensor, means: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return td.MixtureSameFamily(td.Categorical(logits=logits), td.Normal(means, 1.0)).log_prob(x)

    return _Use(run), (torch.randn(3), torch.randn(3), torch.randn(6))


@_row("torch.distributions KL of multivariate normals")
def _kl() -> Made:
    import torch.distributions as td

    def run(mean: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        covariance = factor @ factor.mT + torch.eye(4, dtype=factor.dtype)
        return td.kl_divergence(td.MultivariateNormal(mean, covariance), td.LowRankMultivariateNormal(
            mean * 0, factor[:, :2], torch.ones(4, dtype=factor.dtype)))

    return _Use(run), (torch.randn(4), torch.randn(4, 4))


@_row("torch.distributions transformed")
def _transformed() -> Made:
    import torch.distributions as td

    def run(loc: torch.Tensor, scale: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        base = td.Independent(td.StudentT(3.0, loc, scale.exp()), 1)
        transforms = [td.StickBreakingTransform()]
        return td.TransformedDistribution(base, transforms).log_prob(torch.softmax(x, -1))

    return _Use(run), (torch.randn(3), torch.randn(3), torch.randn(6, 4))


@_row("pyro log density")
def _pyro() -> Made:
    import pyro
    import pyro.distributions as pd
    from pyro import poutine

    def model(x: torch.Tensor, y: torch.Tensor) -> None:
        w = pyro.sample("w", pd.Normal(torch.zeros(3, dtype=x.dtype), 1.0).to_event(1))
        scale = pyro.sample("scale", pd.HalfCauchy(torch.ones((), dtype=x.dtype)))
        with pyro.plate("data", len(x)):
            pyro.sample("y", pd.Normal(x @ w, scale), obs=y)

    def run(w: torch.Tensor, scale: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        given = poutine.condition(model, {"w": w, "scale": scale.exp()})
        return poutine.trace(given).get_trace(x, y).log_prob_sum()

    return _Use(run), (torch.randn(3), torch.randn(()), torch.randn(6, 3), torch.randn(6))
