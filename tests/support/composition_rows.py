"""Calls of operators that `xla_torch.api.torch_compositions` and `xla_torch.aten.special` know, with their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from .aten_rows import SPECIAL, floats, ints

ROW, OTHER, CUBE = floats(3, 4), floats(3, 4, seed=1), floats(2, 3, 4)
POSITIVE, WHOLE = ROW.abs() + 0.3, ints(3, 4, low=1, high=30)
BELOW = torch.tensor([-20.3, -7.5, -0.7, -1e-3, 1e-3, 0.4, 3.5, 40.0])
"""Numbers on both sides of 0, far and near."""

PAIRS = torch.complex(ROW, OTHER)
ZEROS = [torch.tensor([0, 0, 7, -12]), torch.tensor([0, 5, 0, 18])]
SEGMENTS = torch.tensor([1, 0, 2])
S: Any = torch.special
Call = tuple[Callable[..., Any], list[torch.Tensor]]

_WINDOWS = ("bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window")


def _windows(name: str) -> list[Call]:
    window = getattr(torch, name)

    def windows(x: torch.Tensor) -> list[torch.Tensor]:
        return [x[0, 0] * window(n, periodic=periodic) for n in (0, 1, 2, 7, 8) for periodic in (True, False)]

    return [(windows, [ROW]), (lambda x: x * window(4, dtype=torch.float64), [ROW])]


def _of_numbers(function: Callable[..., Any]) -> list[Call]:
    return [(function, [ROW]), (function, [SPECIAL])]


_FAR = torch.cat([torch.linspace(-40, 40, 33) + 0.03, SPECIAL])
_ORDERS = torch.tensor([-1.0, 0, 1, 2, 5, 7, 9, 12, 30, 600])
_AT = torch.linspace(-2.5, 2.5, 21)[:, None]


def rules() -> dict[str, list[Any]]:
    """Arguments of the operators of `xla_torch.aten.special` and `xla_torch.aten.polynomials`, as in `aten_rows`."""
    names = ("i0", "special_i0e", "special_i1", "special_i1e", "special_modified_bessel_i0", "special_modified_bessel_i1",
             "special_modified_bessel_k0", "special_modified_bessel_k1", "special_scaled_modified_bessel_k0",
             "special_scaled_modified_bessel_k1", "special_bessel_j0", "special_bessel_j1", "special_bessel_y0",
             "special_bessel_y1", "special_spherical_bessel_j0", "special_airy_ai")
    found: dict[str, list[Any]] = {name: [(_FAR,), (WHOLE,), (SPECIAL.double(),)] for name in names}
    kinds = [f"{shift}chebyshev_polynomial_{letter}" for shift in ("", "shifted_") for letter in "tuvw"]
    for kind in (*kinds, "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"):
        found[f"special_{kind}"] = [(_AT.double(), _ORDERS.double()), (_AT[4:17], _ORDERS[:6])]
        found[f"special_{kind}.x_scalar"] = [(0.25, _ORDERS[:6])]
        found[f"special_{kind}.n_scalar"] = [(_AT, 3)]
    found["special_airy_ai"] = [(_FAR,), (WHOLE,)]
    pairs = (POSITIVE, POSITIVE.flip(0))
    ends = (SPECIAL[:-1, None].abs(), SPECIAL[:-1].abs())
    return found | {
        "special_erfcx": [(_FAR[_FAR > -9],), (SPECIAL.double(),), (torch.tensor([-30.0, 1e30]),)],
        "special_ndtri": [(torch.linspace(-0.1, 1.1, 40),), (torch.logspace(-300, 0, 50, dtype=torch.float64),)],
        # In F64 torch's own of order 1 has ten right digits, and so has its Airy function.
        "polygamma": [*((n, x) for n in range(5) for x in (BELOW, POSITIVE)), *((n, BELOW.double()) for n in (0, 2, 3, 4))],
        "special_zeta": [(POSITIVE + 1, POSITIVE), (torch.tensor([2.0, 3.0, 4.0, 1.0, 0.5])[:, None], BELOW.double()),
                         (torch.tensor([2.0, 3.0, 2.5])[:, None], SPECIAL)],
        "igamma": [pairs, ends], "igammac": [pairs, ends],
        "nextafter": [(ROW, OTHER), (SPECIAL.double()[:, None], SPECIAL.double())],
        "gcd": [(WHOLE * 6 - 40, WHOLE.flip(0)), (ints(5, low=0, dtype=torch.uint8), ints(5, low=0, dtype=torch.uint8, seed=1)),
                (torch.tensor([0, 0, 7]), torch.tensor([0, 5, 0]))],
        "bincount": [(torch.tensor([1, 3, 1]), None, 4), (torch.tensor([1, 3, 1]), POSITIVE[0, :3], 5),
                     (torch.tensor([1, 1]), torch.tensor([2, 3]), 4), (torch.zeros(0, dtype=torch.int64), None, 3)],
    }


CALLS: dict[str, list[Call]] = {
    "angle": [(torch.angle, [ROW]), (torch.angle, [PAIRS]), (torch.angle, [SPECIAL]), (torch.angle, [WHOLE - 9])],
    "polar": [(torch.polar, [POSITIVE, OTHER])],
    **{name: _windows(name) for name in _WINDOWS},
    "hamming_window of other heights": [(lambda x: x[0, 0] * torch.hamming_window(6, True, 0.5, 0.4), [ROW])],
    "kaiser_window of another beta": [(lambda x: x[0, 0] * torch.kaiser_window(6, False, 5.0), [ROW])],
    **{f"special.{name}": _of_numbers(getattr(S, name)) for name in (
        "erfcx", "log_ndtr", "i0", "i0e", "i1", "i1e", "spherical_bessel_j0")},
    **{f"special.{name}": [(getattr(S, name), [4 * ROW]), (getattr(S, name), [SPECIAL])] for name in (
        "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0",
        "modified_bessel_k1", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "airy_ai")},
    "special.ndtri": [(S.ndtri, [torch.sigmoid(3 * ROW)]),
                      (S.ndtri, [torch.tensor([0.0, 1e-30, 1e-20, 1e-7, 0.5, 1.0, 1.5, -1.0, float("nan")])])],
    "bincount": [(lambda x: torch.bincount(x.flatten(), minlength=32), [WHOLE]),
                 (lambda x: torch.bincount(x.flatten(), POSITIVE.flatten(), minlength=32), [WHOLE])],
    "triu_indices": [(lambda x: x.sum() + torch.triu_indices(3, 4, 1), [ROW])],
    "tril_indices": [(lambda x: x.sum() + torch.tril_indices(3, 4, -1), [ROW])],
    "bilinear": [(F.bilinear, [CUBE, CUBE[..., :2], floats(5, 4, 2), floats(5)]),
                 (F.bilinear, [ROW, OTHER, floats(5, 4, 4)])],
    "rrelu": [(F.rrelu, [ROW]), (F.rrelu, [SPECIAL])],
    "embedding of longest rows": [(lambda i, w: F.embedding(i, w * 1, max_norm=0.5), [WHOLE % 4, floats(6, 5)]),
                                  (lambda i, w: F.embedding(i, w * 1, max_norm=1.0, norm_type=1), [WHOLE % 4, floats(6, 5)])],
    "polygamma": [(lambda x: [torch.polygamma(n, x) for n in range(1, 5)], [BELOW]), (lambda x: torch.polygamma(0, x), [BELOW]),
                  (lambda x: torch.polygamma(2, x), [SPECIAL[1:]]), (lambda x: torch.polygamma(3, x), [SPECIAL[1:]])],
    "special.zeta": [(lambda x: S.zeta(POSITIVE.flip(0) + 1, x), [POSITIVE]),
                     (lambda x: (S.zeta(3, x), S.zeta(2.0, x)), [SPECIAL[1:]]),
                     (lambda x: (S.zeta(3, x), S.zeta(4, x)), [BELOW]), (lambda x: S.zeta(x, 0.5), [WHOLE])],
    "gammainc": [(lambda x: S.gammainc(POSITIVE, x), [POSITIVE.flip(0)])],
    "gammaincc": [(lambda x: S.gammaincc(POSITIVE, x), [POSITIVE.flip(0)])],
    "hypot": [(torch.hypot, [ROW, OTHER]), (torch.hypot, [SPECIAL[:, None], SPECIAL]),
              (torch.hypot, [torch.tensor([1e30, 1e-30, 3.0]), torch.tensor([1e30, 1e-30, 4.0])])],
    "fmax": [(torch.fmax, [ROW, OTHER]), (torch.fmax, [SPECIAL[:, None], SPECIAL])],
    "fmin": [(torch.fmin, [ROW, OTHER]), (torch.fmin, [SPECIAL[:, None], SPECIAL])],
    "nextafter": [(torch.nextafter, [ROW, OTHER])],
    "ldexp": [(torch.ldexp, [ROW, WHOLE]), (torch.ldexp, [PAIRS, WHOLE])],
    "frexp": [(torch.frexp, [ROW]), (torch.frexp, [SPECIAL]), (torch.frexp, [torch.tensor([1e-40, -1e-44, 3e38])]),
              (torch.frexp, [ROW.double()]), (torch.frexp, [ROW.half()])],
    "gcd": [(torch.gcd, [WHOLE * 6 - 40, WHOLE.flip(0)]), (torch.gcd, ZEROS)],
    "lcm": [(torch.lcm, [WHOLE - 9, WHOLE.flip(0)]), (torch.lcm, ZEROS)],
    "round": [(lambda x: (x.round(decimals=2), x.round(decimals=0), (1000 * x).round(decimals=-2)), [ROW])],
    "signbit": [(lambda x: (torch.signbit(x), torch.signbit(x.double()), torch.signbit(x > 0)), [torch.cat([SPECIAL, -SPECIAL])]),
                (torch.signbit, [WHOLE - 9])],
    "_neg_view": [(lambda x: x.conj().imag * 2, [PAIRS]), (lambda x: torch._neg_view(x) + 1, [ROW])],
    "index_reduce": [(lambda x, y, word=word, own=own: x.index_reduce(0, torch.tensor([0, 2, 0]), y, word, include_self=own),
                      [ROW, OTHER]) for word in ("prod", "mean", "amax", "amin") for own in (True, False)],
    "put": [(lambda x, y: x.put(torch.tensor([1, -3]), y[0, :2]), [ROW, OTHER]),
            (lambda x, y: x.put(torch.tensor([[1, 1]]), y[:1, :2], accumulate=True), [ROW, OTHER])],
    "take": [(lambda x: x.take(torch.tensor([[1, -1], [5, 5]])), [ROW]), (lambda x: x.take(torch.tensor(1)), [ROW])],
    "nonzero_static": [(lambda x: torch.nonzero_static(x > 0, size=4), [ROW]),
                       (lambda x: torch.nonzero_static(x > 0, size=14, fill_value=7), [ROW])],
    "segment_reduce": [
        *((lambda x, word=word: torch.segment_reduce(x, word, lengths=SEGMENTS), [ROW])
          for word in ("sum", "mean", "max", "min", "prod")),
        *((lambda x, word=word: torch.segment_reduce(x, word, lengths=SEGMENTS, initial=0.5), [ROW])
          for word in ("sum", "max", "min", "prod")),
        (lambda x: torch.segment_reduce(x, "sum", offsets=torch.tensor([0, 1, 1, 3])), [ROW]),
        (lambda x: torch.segment_reduce(x, "max", lengths=torch.tensor([[1, 3], [4, 0], [2, 2]]), axis=1), [ROW])],
    "dist": [(lambda x, y, p=p: torch.dist(x, y, p), [ROW, OTHER]) for p in (2, 1, 3.5, float("inf"))],
    "conv_tbc": [(lambda x, w, b: torch.conv_tbc(x, w, b, 1), [floats(5, 2, 3), floats(3, 3, 4), floats(4)])],
    "special.xlog1py": [(lambda x: (S.xlog1py(2.0, x), S.xlog1py(x, 2.0), S.xlog1py(0, x)), [POSITIVE])],
    "addmv": [(lambda x, m, v: torch.addmv(x, m, v, beta=0.5, alpha=2), [floats(3), ROW, floats(4)])],
    "addbmm": [(lambda x, a, b: torch.addbmm(x, a, b, beta=0.5, alpha=2), [floats(3, 2), CUBE, floats(2, 4, 2)])],
    "copies": [(lambda x: (torch.permute_copy(x, (1, 0)), torch.narrow_copy(x, 1, 1, 2), torch.view_copy(x, (4, 3)),
                           *torch.ops.aten.unbind_copy.int(x), torch.as_strided_copy(x, (2, 2), (1, 4)),
                           torch.slice_copy(x, 1, 1, 4, 2), torch.transpose_copy(x, 0, 1),
                           *torch.ops.aten.split_copy.Tensor(x, 2), torch.unsqueeze_copy(x, 1),
                           *torch.ops.aten.split_with_sizes_copy.default(x, [1, 2]), torch.select_copy(x, 0, 1),
                           torch.squeeze_copy(x[:, :1], 1), torch.squeeze_copy(x[:, :1], [1]), torch.t_copy(x),
                           torch.alias_copy(x), torch.diagonal_copy(x), torch.expand_copy(x[:1], (2, 4)),
                           torch.unfold_copy(x, 1, 2, 1)), [ROW])],
}

UNDER_OTHER_NAMES = {"_trilinear", "rrelu_with_noise_functional", "embedding_renorm", "special_xlog1py", "special_zeta",
                     *(f"{view}_copy" for view in (
                         "alias", "as_strided", "diagonal", "expand", "narrow", "permute", "select", "slice", "split",
                         "split_with_sizes", "squeeze", "t", "transpose", "unbind", "unfold", "unsqueeze", "view"))}
"""Operators that a call above makes under the name of a function."""
