"""Writes the library of spellings, `xla_torch/transform/expansions/expansions.xz`: what functions look like where converters,
JAX, XLA's compiler for CPUs and this package's own documented functions write them out in ops.

    python tests/make_expansions.py            # the installed JAX's, and this package's own
    python tests/make_expansions.py --keep     # those of another JAX, beside what the library has
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy import special

import xla_torch
from grad_rules._functions import rules_of_function
from xla_torch import ops
from xla_torch.errors import XlaError
from xla_torch.hlo.ir import Computation, reachable
from xla_torch.transform.expansions.library import FILE, written
from xla_torch.transform.expansions.matching import TEMPLATE_SIZE
from xla_torch.types import type_from_numpy

Function = Callable[..., Any]
REAL, COMPLEX = (np.float32, np.float64), (np.complex64, np.complex128)

JAX_REAL: dict[str, Function] = {
    "asin": lax.asin, "acos": lax.acos, "atan": lax.atan, "asinh": lax.asinh, "acosh": lax.acosh, "atanh": lax.atanh,
    "sinh": lax.sinh, "cosh": lax.cosh, "tan": lax.tan, "erf": lax.erf, "erfc": lax.erfc, "erf_inv": lax.erf_inv,
    "lgamma": lax.lgamma, "digamma": lax.digamma, "polygamma": lax.polygamma, "bessel_i0e": lax.bessel_i0e,
    "bessel_i1e": lax.bessel_i1e, "igamma": lax.igamma, "igammac": lax.igammac, "incomplete_beta": lax.betainc,
    "logaddexp": jnp.logaddexp, "logaddexp2": jnp.logaddexp2, "softplus": jax.nn.softplus, "logistic": lax.logistic,
    "exponential-minus-one": lax.expm1, "log-plus-one": lax.log1p, "cbrt": lax.cbrt, "tanh": lax.tanh, "sinc": jnp.sinc,
    "logit": special.logit, "bessel_i0": special.i0, "xlogy": special.xlogy, "xlog1py": special.xlog1py, "ndtr": special.ndtr,
    "erfcx": special.erfcx, "dawsn": special.dawsn, "fresnel_s": lambda x: special.fresnel(x)[0],
    "fresnel_c": lambda x: special.fresnel(x)[1], "sine_integral": lambda x: special.sici(x)[0],
    "cosine_integral": lambda x: special.sici(x)[1], "expi": special.expi, "exp1": special.exp1,
}
JAX_COMPLEX: dict[str, Function] = {
    "exponential": lax.exp, "exponential-minus-one": lax.expm1, "log": lax.log, "log-plus-one": lax.log1p, "sqrt": lax.sqrt,
    "rsqrt": lax.rsqrt, "square": lax.square, "logistic": lax.logistic, "sine": lax.sin, "cosine": lax.cos, "tan": lax.tan,
    "sinh": lax.sinh, "cosh": lax.cosh, "tanh": lax.tanh, "asin": lax.asin, "acos": lax.acos, "atan": lax.atan,
    "asinh": lax.asinh, "acosh": lax.acosh, "atanh": lax.atanh, "logaddexp": jnp.logaddexp, "logaddexp2": jnp.logaddexp2,
    "sinc": jnp.sinc, "log2": jnp.log2, "log10": jnp.log10,
}
JAX_ALSO: dict[str, Function] = {"bessel_i0": jnp.i0}
OWN: dict[str, Function] = {
    "erfc": ops.Erfc, "erf_inv": ops.ErfInv, "lgamma": ops.Lgamma, "digamma": ops.Digamma, "polygamma": ops.Polygamma,
    "bessel_i0e": ops.BesselI0e, "bessel_i1e": ops.BesselI1e, "igamma": ops.Igamma, "igammac": ops.Igammac,
    "incomplete_beta": ops.RegularizedIncompleteBeta,
}


def from_jax(function: Function, arguments: list[np.ndarray]) -> Iterator[xla_torch.XlaComputation]:
    """As StableHLO that is read here, as HLO of jaxlib's converter, and as what XLA compiles."""
    lowered: Any = jax.jit(function, keep_unused=True).lower(*arguments)
    yield xla_torch.from_stablehlo(lowered.as_text())
    yield xla_torch.parse_hlo(lowered.compiler_ir("hlo").as_hlo_text(print_large_constants=True))
    yield xla_torch.parse_hlo(lowered.compile().as_text())


def built(function: Function, arguments: list[np.ndarray]) -> Iterator[xla_torch.XlaComputation]:
    """Of our own."""
    builder = xla_torch.XlaBuilder("own")
    parameters = []
    for k, a in enumerate(arguments):
        element_type = type_from_numpy(a.dtype)
        assert element_type is not None
        parameters.append(builder.parameter(k, xla_torch.Shape.array(element_type, a.shape)))
    yield builder.build(function(*parameters))


def spelling(computation: xla_torch.XlaComputation) -> Computation | None:
    """The program in canonical form, None where it is no spelling: one op, or not elementwise."""
    entry = computation.program.canonical
    whole = [leaf.dimensions for i in (*entry.parameters, entry.root) for leaf in i.shape.leaves()]
    inside = [leaf for c in reachable([entry]) for i in c.instructions for leaf in i.shape.leaves()]
    elementwise = all(d in ((), (TEMPLATE_SIZE,)) for d in whole) and all(
        leaf.is_array and leaf.dimensions.count(TEMPLATE_SIZE) < 2 for leaf in inside)
    computed = [i for i in entry.instructions if i.operands]
    return entry if elementwise and len(computed) > 2 else None


def spellings(make: Function, function: Function, operands: int, types: tuple[Any, ...]) -> Iterator[Computation]:
    for dtype in types:
        for dimensions in ((TEMPLATE_SIZE,), ()):
            arguments = [np.full(dimensions, 0.5, dtype) for _ in range(operands)]
            try:
                for computation in make(function, arguments):
                    found = spelling(computation)
                    if found is not None:
                        yield found
            except XlaError as error:
                print(f"{function}: {error}")


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    found: dict[str, list[Computation]] = {}
    for make, functions, types in (
            (from_jax, JAX_REAL, REAL), (from_jax, JAX_ALSO, REAL), (from_jax, JAX_COMPLEX, COMPLEX), (built, OWN, REAL)):
        for name, function in functions.items():
            operands = len(rules_of_function(name).operands)
            found.setdefault(name, []).extend(spellings(make, function, operands, types))
    data = written(found, FILE.read_bytes() if "--keep" in sys.argv else None)
    FILE.write_bytes(data)
    print(f"{sum(map(len, found.values()))} spellings of {len(found)} functions, {len(data)} bytes")


if __name__ == "__main__":
    main()
