"""The sweep over JAX's differentiable functions: a row for each function and kind of number, with the points where it is asked.

An elementwise function is asked at 200 drawn points of its domain and at special points (zeros of both signs, ends, ties, branch
points, infinities), those of several arguments in all combinations; any other function at arrays, some of them with ties.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from support.oracle import HAS_XLA

if HAS_XLA:
    import jax
    import jax.numpy as jnp
    import jax.scipy.special as special
    from jax import lax, nn

DRAWN = 200


@dataclasses.dataclass(frozen=True)
class Domain:
    """Where an argument is drawn, from standard normal numbers, and its special points."""

    draw: Callable[[np.ndarray], np.ndarray]
    points: tuple[complex, ...]


_ENDS = (np.inf, -np.inf)
DOMAINS = {
    "R": Domain(lambda n: 2 * n, (0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, 8.0, -8.0, 40.0, -40.0, 1e-30, 1e30, *_ENDS)),
    "r": Domain(lambda n: 2 * n, (0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, 8.0)),
    "S": Domain(lambda n: 2 * n, (0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, *_ENDS)),
    "P": Domain(np.exp, (0.0, 0.5, 1.0, 2.0, 3.0, 8.0, 40.0, 1e-30, 1e30, np.inf)),
    "p": Domain(np.exp, (0.5, 1.0, 2.0, 3.0, 8.0)),
    "Q": Domain(np.exp, (0.0, 0.5, 1.0, 2.0, 3.0)),
    "U": Domain(np.tanh, (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 0.999, 1e-30)),
    "I": Domain(lambda n: 1 / (1 + np.exp(-n)), (0.0, 1.0, 0.5, 0.25, 0.999, 1e-30)),
    "G": Domain(lambda n: 1 + np.exp(n), (1.0, 2.0, 3.0, 8.0, 40.0, 1e30, np.inf)),
    "Z": Domain(lambda n: 2 * n[0::2] + 2j * n[1::2], tuple(
        complex(x, y) for x in (0.0, 1.0, -1.0, 0.5, -2.25, 30.0, -800.0) for y in (0.0, 1.0, -1.0, 0.5, -2.25, 30.0))),
    "z": Domain(lambda n: 2 * n[0::2] + 2j * n[1::2], (0.5 + 1j, 1j, 1.0, -1 + 0.5j, 2 - 2j)),
}


@dataclasses.dataclass(frozen=True)
class FunctionRow:
    """A function of one kind of number. `cases` are lists of arguments. `order` is how often it is differentiated and `rtol` to
    what its derivatives agree, relative to the largest of a case where the case is not `elementwise`."""

    name: str
    function: Callable[..., Any]
    cases: tuple[tuple[np.ndarray, ...], ...]
    elementwise: bool
    rtol: float
    order: int = 2

    @property
    def is_wide(self) -> bool:
        return self.cases[0][0].dtype in (np.float64, np.complex128)

    def __str__(self) -> str:
        return f"{self.name}-{self.cases[0][0].dtype}"


def _drawn(name: str, domains: str) -> tuple[np.ndarray, ...]:
    """200 drawn points, and all combinations of the special ones."""
    random = np.random.default_rng(zlib.crc32(name.encode()))
    columns = [DOMAINS[d].draw(random.standard_normal(DRAWN * (2 if d in "Zz" else 1))) for d in domains]
    special_points = list(itertools.product(*(DOMAINS[d].points for d in domains)))
    return tuple(np.concatenate([column, [p[k] for p in special_points]]) for k, column in enumerate(columns))


def _rows(prefix: str, names: str, domains: str, order: int = 2, others: Mapping[str, Any] | None = None) -> list[FunctionRow]:
    """Rows for functions of a module by name, and for others given as they are; real ones for both widths."""
    if not HAS_XLA:
        return []
    module = {"nn": nn, "jnp": jnp, "special": special, "lax": lax}[prefix]
    found = {n: getattr(module, n) for n in names.split()} | dict(others or {})
    rows = []
    for name, function in found.items():
        arguments = _drawn(name, domains)
        types = (np.complex128, np.complex64) if domains[0] in "Zz" else (np.float64, np.float32)
        rows += [FunctionRow(f"{prefix}.{name}", function, (tuple(a.astype(t) for a in arguments),), True,
                             1e-8 if t in (np.float64, np.complex128) else 2e-3, order if t in (np.float64, np.complex128) else 1)
                 for t in types]
    return rows


_G = np.random.default_rng(7)
VECTOR, MATRIX, SQUARE = _G.standard_normal(6), _G.standard_normal((3, 4)), _G.standard_normal((4, 4))
TIED = np.array([1.0, 2.0, 2.0, -1.0, 2.0, 0.0])
ZEROS, ONES, TABLE_OF_TIES = np.zeros(4), np.ones(3), np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
POSITIVE = SQUARE @ SQUARE.T + 4 * np.eye(4)


def _array_rows(prefix: str, cases: Sequence[tuple[np.ndarray, ...] | np.ndarray], complex_too: bool = False, order: int = 2,
                **functions: Any) -> list[FunctionRow]:
    """Rows for functions of arrays."""
    given = tuple(c if isinstance(c, tuple) else (c,) for c in cases)
    turned = tuple(tuple(a + 0.5j * a[::-1] for a in case) for case in given) if complex_too else ()
    return [FunctionRow(f"{prefix}.{name}", function, chosen, False, 1e-7, order)
            for name, function in functions.items() for chosen in ((given, turned) if complex_too else (given,))]


def _jnp(*names: str) -> dict[str, Any]:
    return {name: getattr(jnp, name) for name in names} if HAS_XLA else {}


def _partial(function: str, *options: Any, **named: Any) -> Any:
    """A function of jax.numpy.linalg with options."""
    return functools.partial(getattr(jnp.linalg, function), *options, **named) if HAS_XLA else None


def _all() -> list[FunctionRow]:
    return [*_of_nn(), *_of_numpy(), *_of_special(), *_of_lax(), *_of_complex(), *_of_arrays()] if HAS_XLA else []


def _of_nn() -> list[FunctionRow]:
    names = ("relu relu6 sigmoid softplus sparse_plus sparse_sigmoid soft_sign silu log_sigmoid leaky_relu hard_sigmoid "
             "hard_silu hard_tanh elu celu selu gelu squareplus mish identity tanh")
    exact = functools.partial(nn.gelu, approximate=False)
    return [*_rows("nn", names, "R", others={"gelu_exact": exact}), *_rows("nn", "log1mexp", "P")]


def _of_numpy() -> list[FunctionRow]:
    names = ("abs positive negative sign square exp exp2 expm1 sin cos tan sinh cosh tanh arctan arcsinh sinc deg2rad rad2deg i0 "
             "nan_to_num rint floor ceil trunc conj real cbrt")
    powers = {f"power_{e}": functools.partial(_power, exponent=e) for e in (-2, -1, 0, 1, 2, 3, 0.5, 1.5)}
    of_two = ("add subtract multiply divide arctan2 hypot logaddexp logaddexp2 maximum minimum fmax fmin fmod remainder copysign "
              "heaviside")
    return [*_rows("jnp", names, "R", others=powers), *_rows("jnp", "sqrt log log2 log10 log1p reciprocal", "P"),
            *_rows("jnp", "arcsin arccos arctanh", "U"), *_rows("jnp", "arccosh", "G"), *_rows("jnp", of_two, "SS"),
            *_rows("jnp", "power float_power", "QS"), *_rows("jnp", "clip", "Rrr")]


def _power(x: Any, exponent: float) -> Any:
    return jnp.power(x, exponent)


def _of_special() -> list[FunctionRow]:
    positive = {"gammainc_x": lambda x: special.gammainc(2.5, x), "gammaincc_x": lambda x: special.gammaincc(2.5, x),
                "zeta_2": lambda x: special.zeta(2.5, x + 0.5), "polygamma_1": lambda x: special.polygamma(1, x),
                "polygamma_3": lambda x: special.polygamma(3, x), "multigammaln": lambda x: special.multigammaln(x + 2, 3)}
    inside = {"betainc_x": lambda x: special.betainc(2.5, 1.5, x), "boxcox": lambda x: special.boxcox(x, 0.5)}
    loops = {"expn_2": lambda x: special.expn(2, x), "hyp1f1": lambda x: special.hyp1f1(1.5, 2.5, x)}
    return [*_rows("special", "digamma gamma gammaln erf erfc i0 i0e i1 i1e expit log_ndtr ndtr", "R"),
            *_rows("special", "entr spence", "P", others=positive), *_rows("special", "exp1", "p", order=1),
            *_rows("special", "erfinv", "U"), *_rows("special", "logit ndtri", "I", others=inside),
            *_rows("special", "xlogy xlog1py kl_div rel_entr", "QQ"), *_rows("special", "beta betaln poch", "pp", order=1),
            *_rows("special", "gammainc gammaincc", "pp", order=1), *_rows("special", "", "p", order=1, others=loops),
            *_rows("special", "expi fresnel erfcx dawsn sici", "r", order=1)]


def _of_lax() -> list[FunctionRow]:
    names = ("abs neg sign exp exp2 expm1 logistic tanh sin cos tan sinh cosh asinh atan erf erfc bessel_i0e bessel_i1e digamma "
             "lgamma square cbrt floor ceil round")
    others: dict[str, Any] = {f"integer_pow_{e}": functools.partial(lax.integer_pow, y=e) for e in (-3, -2, -1, 0, 1, 2, 3, 5)}
    others["clamp"] = lambda x: lax.clamp(x.dtype.type(-1), x, x.dtype.type(3))
    others["reduce_precision"] = functools.partial(lax.reduce_precision, exponent_bits=8, mantissa_bits=10)
    return [*_rows("lax", names, "R", others=others), *_rows("lax", "log log1p sqrt rsqrt reciprocal", "P"),
            *_rows("lax", "asin acos atanh erf_inv", "U"), *_rows("lax", "acosh", "G"), *_rows("lax", "pow", "QS"),
            *_rows("lax", "add sub mul div rem max min atan2", "SS"),
            *_rows("lax", "igamma igammac", "pp", order=1)]


def _of_complex() -> list[FunctionRow]:
    names = ("abs neg exp expm1 logistic tanh sin cos tan sinh cosh asin acos atan asinh acosh atanh square log log1p sqrt rsqrt "
             "reciprocal real imag conj sign exp2")
    powers = {f"integer_pow_{e}": functools.partial(lax.integer_pow, y=e) for e in (-2, 2, 3)}
    return [*_rows("lax", names, "Z", others=powers), *_rows("jnp", "angle absolute sinc log2 log10", "Z"),
            *_rows("jnp", "add subtract multiply divide power logaddexp", "zz"), *_rows("nn", "sigmoid silu softplus", "z")]


def _of_arrays() -> list[FunctionRow]:
    arrays = [TIED, TABLE_OF_TIES, MATRIX]
    rows = _array_rows("jnp", arrays, **_jnp("sum", "prod", "mean", "cumsum", "cumprod"))
    rows += _array_rows("jnp", [MATRIX], True, **_jnp("sum", "prod", "cumprod"))
    rows += _array_rows("jnp", arrays, **_jnp("max", "min", "ptp", "median", "sort", "nansum", "nanprod", "nanmax", "average"))
    rows += _array_rows("jnp", [VECTOR, TIED, MATRIX], **_jnp("var", "std"))
    rows += _array_rows("jnp", [VECTOR, TIED], quantile=lambda x: jnp.quantile(x, 0.3), diff=jnp.diff, gradient=jnp.gradient,
                        interp=lambda x: jnp.interp(x, jnp.array([-1.0, 0.0, 2.0]), jnp.array([0.0, 1.0, 4.0])),
                        convolve=lambda x: jnp.convolve(x, x), unwrap=jnp.unwrap, cov=jnp.cov)
    rows += _array_rows("nn", [*arrays, np.array([0.0, np.inf, -np.inf]), np.array([-np.inf, -np.inf])],
                        softmax=nn.softmax, log_softmax=nn.log_softmax, logsumexp=nn.logsumexp, standardize=nn.standardize)
    rows += _array_rows("nn", [VECTOR, TIED, ZEROS], glu=nn.glu)
    rows += _array_rows("lax", arrays, cumlogsumexp=lax.cumlogsumexp, cummax=lax.cummax, cummin=lax.cummin)
    rows += _array_rows("lax", [VECTOR, TIED], top_k=lambda x: lax.top_k(x, 2)[0],
                        reverse_cumlogsumexp=functools.partial(lax.cumlogsumexp, reverse=True))
    rows += _array_rows("lax", [np.resize(TIED, n) for n in (1, 2, 3, 8, 13, 70)], cummax_of_many=lax.cummax,
                        reverse_cummin=functools.partial(lax.cummin, reverse=True))
    rows += _array_rows("linalg", [VECTOR, TIED, ONES], norm=_partial("norm"), norm_1=_partial("norm", ord=1),
                        norm_inf=_partial("norm", ord=np.inf), norm_3=_partial("norm", ord=3))
    rows += _array_rows("linalg", [SQUARE, POSITIVE], det=_partial("det"), inv=_partial("inv"),
                        slogdet=lambda x: jnp.linalg.slogdet(x)[1], norm_fro=_partial("norm"), trace=jnp.trace,
                        solve=lambda x: jnp.linalg.solve(x, jnp.arange(4.0)), matrix_power=_partial("matrix_power", n=3),
                        expm=lambda x: jax.scipy.linalg.expm(x / 4), qr=lambda x: jnp.linalg.qr(x)[1])
    rows += _array_rows("linalg", [POSITIVE], cholesky=_partial("cholesky"), eigvalsh=_partial("eigvalsh"))
    rows += _array_rows("linalg", [SQUARE, MATRIX], order=1, svdvals=_partial("svdvals"), pinv=_partial("pinv"))
    return rows


ROWS = _all()
