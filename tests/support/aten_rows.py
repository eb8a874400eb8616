"""Calls of ATen operators that the rules of `xla_torch.aten` are tested with: by operator, tuples of arguments."""

from __future__ import annotations

import math
from typing import Any

import torch

nan, inf = math.nan, math.inf

SPECIAL = torch.tensor([-inf, -2.5, -1.5, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 1.5, 2.5, inf, nan])
WHOLE = torch.tensor([-7, -3, -2, -1, 0, 1, 2, 3, 7])
FLAGS = torch.tensor([True, False, True, True])
PAIRS = (SPECIAL[:, None], SPECIAL[None, :])
WHOLE_PAIRS = (WHOLE[:, None], torch.tensor([-3, -2, -1, 1, 2, 3]))
MIXED = (WHOLE[:, None], SPECIAL)


def floats(*sizes: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(sizes))
    return torch.randn(sizes, generator=generator, dtype=torch.float64).to(dtype)


def ints(*sizes: int, low: int = -5, high: int = 6, dtype: torch.dtype = torch.int64, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(sizes))
    return torch.randint(low, high, sizes, generator=generator).to(dtype)


def flags(*sizes: int) -> torch.Tensor:
    return ints(*sizes, low=0, high=2).bool()


BF16, F16, F64 = torch.bfloat16, torch.float16, torch.float64
U8, I8, I32 = torch.uint8, torch.int8, torch.int32
TIES = torch.tensor([[1.0, 3.0, 3.0, nan, 2.0], [0.0, -0.0, -1.0, 0.0, -inf], [inf, 2.0, inf, 1.0, 1.0]])
Row = tuple[Any, ...]
"""The arguments of a call; a dict at the end has those by name."""

_OF_FLOATS = ("acos acosh asin asinh atan atanh cos cosh digamma erf erfc erfinv exp exp2 expm1 lgamma log log10 log1p log2 "
              "reciprocal rsqrt sigmoid sin sinh sqrt tan tanh")
_ROUNDING = "ceil floor round trunc"
_COMPARISONS = "eq ne lt le gt ge"


def _layers(gates: int, width: int, state: int, count: int) -> list[torch.Tensor]:
    """The weights and biases of so many directions of a recurrent layer."""
    return [floats(*sizes, seed=k) for k in range(count) for sizes in ((gates, width), (gates, state), (gates,), (gates,))]


def rows() -> dict[str, list[Row]]:
    """The calls of each operator."""
    return {**_pointwise(), **_reductions(), **_ranks(), **_views(), **_indexing(), **_networks(), **_creation(), **_spectra()}


def _pointwise() -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {name: [(SPECIAL,), (WHOLE,), (SPECIAL.to(F64),), (floats(3, 2, dtype=BF16),), (FLAGS,)]
                                   for name in _OF_FLOATS.split()}
    found |= {name: [(SPECIAL,), (WHOLE,), (floats(4, dtype=F16),)] for name in _ROUNDING.split()}
    for name in _COMPARISONS.split():
        found[f"{name}.Tensor"] = [PAIRS, WHOLE_PAIRS, MIXED, (FLAGS, WHOLE[:4]), (SPECIAL.to(F64), torch.tensor(0.5))]
        found[f"{name}.Scalar"] = [(SPECIAL, 0.5), (WHOLE, 2), (WHOLE, 1.5), (SPECIAL, nan), (ints(3, dtype=I8), 300),
                                   (ints(3, dtype=U8, low=0), -1), (FLAGS, 1), (floats(3, dtype=BF16), 0.3)]
    for name in ("and", "or", "xor"):
        found[f"bitwise_{name}.Tensor"] = [WHOLE_PAIRS, (FLAGS, FLAGS[:1]), (WHOLE, torch.tensor(3, dtype=I8))]
        found[f"bitwise_{name}.Scalar"] = [(WHOLE, 5), (FLAGS, True)]
        found[f"logical_{name}"] = [PAIRS, (WHOLE[:4], FLAGS)]
    divisions = [PAIRS, WHOLE_PAIRS, MIXED, (ints(5, low=0, dtype=U8), torch.tensor(3, dtype=U8)), (floats(6), floats(6, seed=1))]
    numbers = [(SPECIAL, 0.75), (WHOLE, 3), (WHOLE, -2), (SPECIAL, -1.5)]
    found |= {
        "abs": [(SPECIAL,), (WHOLE,), (ints(3, low=0, dtype=U8),), (torch.complex(floats(3), floats(3, seed=1)),)],
        "neg": [(SPECIAL,), (WHOLE,), (ints(3, low=0, dtype=U8),)],
        "sign": [(SPECIAL,), (WHOLE,), (FLAGS,), (ints(3, low=0, dtype=U8),)],
        "sgn": [(SPECIAL,), (WHOLE,), (FLAGS,), (torch.complex(floats(3), floats(3, seed=1)),),
                (torch.tensor([0, 3 + 4j, -2j, 1e-3 - 1e-3j]),)],
        "isnan": [(SPECIAL,), (WHOLE,)],
        "isinf": [(SPECIAL,), (WHOLE,)],
        "bitwise_not": [(WHOLE,), (FLAGS,), (ints(3, low=0, dtype=U8),)],
        "logical_not": [(WHOLE,), (FLAGS,), (SPECIAL,)],
        "add.Tensor": [PAIRS, MIXED, (WHOLE, WHOLE, {"alpha": 3}), (SPECIAL, SPECIAL, {"alpha": 0.5}), (FLAGS, FLAGS[:1]),
                       (floats(2, 3, dtype=BF16), floats(3)), (floats(3, dtype=F16), floats(3, dtype=BF16)),
                       (floats(2, dtype=BF16), torch.tensor(1.0)), (ints(2, dtype=I8), torch.tensor(2)),
                       (ints(2, dtype=I8), ints(2, low=0, dtype=U8)), (WHOLE, 2.5), (floats(2, dtype=BF16), 2),
                       (torch.complex(floats(2), floats(2)), floats(2, dtype=F64))],
        "add.Scalar": [(SPECIAL, 2.5), (WHOLE, 2), (WHOLE, 0.5), (WHOLE, 2, 3), (floats(2, dtype=F16), 1)],
        "sub.Tensor": [PAIRS, MIXED, (WHOLE, WHOLE[:1], {"alpha": 3})],
        "sub.Scalar": [(SPECIAL, 2.5), (WHOLE, 2, 3)],
        "mul.Tensor": [PAIRS, MIXED, (FLAGS, FLAGS[:1]), (FLAGS, WHOLE[:4]), (ints(3, low=100, high=120, dtype=I8),
                                                                            ints(3, dtype=I8))],
        "mul.Scalar": [(SPECIAL, -2.5), (WHOLE, 2), (FLAGS, 2)],
        "div.Tensor": [PAIRS, WHOLE_PAIRS, (WHOLE, WHOLE), (FLAGS, WHOLE[:4])],
        "div.Scalar": [(SPECIAL, 0.3), (WHOLE, 2), (WHOLE, 0)],
        "div.Tensor_mode": [(*p, {"rounding_mode": m}) for p in divisions for m in (None, "floor", "trunc")],
        "div.Scalar_mode": [(*p, {"rounding_mode": m}) for p in numbers for m in (None, "floor", "trunc")],
        "remainder.Tensor": divisions, "remainder.Scalar": numbers, "fmod.Tensor": divisions, "fmod.Scalar": numbers,
        "pow.Tensor_Tensor": [PAIRS, (WHOLE[:, None], WHOLE), (ints(4, low=0, dtype=U8), ints(4, low=0, dtype=U8)), MIXED],
        "pow.Tensor_Scalar": [*((SPECIAL, e) for e in (0, 0.5, -0.5, 1, 2, 3, -1, -2, 2.5)), (WHOLE, 2), (WHOLE, 3), (WHOLE, 5),
                              (WHOLE, 0.5), (WHOLE, -1.0), (floats(3, dtype=BF16), 2)],
        "pow.Scalar": [(2.0, SPECIAL), (-2, WHOLE), (2.5, WHOLE), (0.0, SPECIAL)],
        "atan2": [PAIRS, WHOLE_PAIRS],
        "maximum": [PAIRS, WHOLE_PAIRS, MIXED, (FLAGS, FLAGS[:1])], "minimum": [PAIRS, WHOLE_PAIRS, MIXED, (FLAGS, FLAGS[:1])],
        "where.self": [(FLAGS, floats(4), torch.tensor(nan)), (flags(3, 1), floats(2), WHOLE[:2]),
                       (FLAGS, torch.tensor(1.5, dtype=F64), floats(4)), (FLAGS, FLAGS, ints(1))],
        "clamp": [(SPECIAL, -1.0, 1.5), (SPECIAL, None, 0.5), (SPECIAL, 2.0, 1.0), (SPECIAL, nan), (WHOLE, -2), (WHOLE, 0.5, 2),
                  (ints(4, dtype=I32), -1, 3)],
        "clamp.Tensor": [(SPECIAL[:, None], SPECIAL, torch.tensor(1.0)), (WHOLE, WHOLE.flip(0)), (WHOLE, None, torch.tensor(1.5)),
                         (floats(2, 3), floats(3, seed=2), floats(2, 1))],
        **{name.format(side): calls for side in ("left", "right") for name, calls in {
            "bitwise_{}_shift.Tensor": [(WHOLE[:, None], torch.tensor([0, 1, 5]))],
            "bitwise_{}_shift.Tensor_Scalar": [(WHOLE, 1), (WHOLE, 3), (ints(3, low=0, dtype=U8), 2)],
            "bitwise_{}_shift.Scalar_Tensor": [(-200, torch.tensor([0, 1, 5]))]}.items()},
        **{f"__{side}shift__.{form}": [(x, other) for x in (WHOLE, ints(3, dtype=I8)) for other in others] for side in "lr"
           for form, others in (("Scalar", (2, 70)), ("Tensor", (torch.tensor(3),)))},
        "copysign.Tensor": [PAIRS, WHOLE_PAIRS, (SPECIAL, -SPECIAL), (floats(3, dtype=BF16), -floats(3, dtype=BF16, seed=1))],
        "copysign.Scalar": [(SPECIAL, -0.0), (WHOLE, 2)],
        "relu": [(SPECIAL,), (WHOLE,)], "leaky_relu": [(SPECIAL,), (SPECIAL, 0.3), (floats(3, dtype=BF16), 0.3)],
        "hardtanh": [(SPECIAL,), (SPECIAL, 0.0, 6.0), (WHOLE, -2, 3)],
        "elu": [(SPECIAL,), (SPECIAL, 0.5, 2.0, 1.5), (floats(4, dtype=BF16),)],
        "gelu": [(SPECIAL[SPECIAL < 3],), (SPECIAL[SPECIAL < 3], {"approximate": "tanh"}), (floats(4, dtype=BF16),)],
    }
    return found


def _reductions() -> dict[str, list[Row]]:
    cube, whole, empty = floats(2, 3, 4), ints(2, 3, 4), torch.zeros(2, 0, 3)
    dims: list[Row] = [(cube, [1]), (cube, [0, -1]), (cube, [1], True), (whole, [1]), (cube, []), (torch.tensor(2.5), [0]),
                       (cube.to(BF16), [0, 1, 2])]
    along: list[Row] = [(TIES, 1), (TIES, 0), (TIES, -1, True), (whole, 1), (torch.tensor(1.5), 0), (flags(3, 4), 1)]
    every = [(cube,), (whole,), (SPECIAL,), (torch.tensor(2.5),)]
    return {
        "sum.dim_IntList": [*dims, (whole.to(I32), None), (flags(3, 4), [0]), (cube, [1], {"dtype": F64}), (empty, [1]),
                            (floats(2000, dtype=BF16), None), (cube.to(F16), [2]), (TIES, [1])],
        "mean": [(cube,), (cube.to(BF16),), (cube, {"dtype": F64}), (whole, {"dtype": torch.float32}), (torch.zeros(0),)],
        "mean.dim": [(cube, [1]), (cube, [0, -1], True), (cube, None), (empty, [1]), (cube.to(BF16), [-1])],
        "nonzero": [(whole,), (flags(3, 4),), (torch.tensor(3),), (flags(0, 3),), (flags(1),)],
        "masked_select": [(floats(3, 4), flags(3, 4)), (floats(3, 1), flags(4)), (floats(0, 4), flags(4))],
        "unique_dim": [(whole, 0, True, True, True), (TIES[1:], -1, True, True, True)],  # torch has no order of NaNs here
        "_new_zeros_with_same_feature_meta": [(floats(3, 4), floats(2))],
        "_unique2": [(whole, True, True, True), (TIES, True, True), (flags(3, 4), True, True, True),
                     (whole[:0], True, True, True)],
        "unique_consecutive": [(whole, True, True), (whole[0, 0], True, True, 0), (whole[:0], True, True)],
        "repeat_interleave.Tensor": [(torch.tensor([2, 0, 1]), {"output_size": 3}), (torch.tensor([0, 0]), {"output_size": 0})],
        "std.correction": [(cube, [1]), (cube, None, {"correction": 0}), (cube, [0, 2], {"correction": 2, "keepdim": True})],
        "var.correction": [(cube, [1]), (cube, None, {"correction": 0}), (cube, [0, 2], {"correction": 2, "keepdim": True}),
                           (cube, [0], {"correction": 3}), (cube.to(BF16), [2]), (torch.tensor([[1.0]]), [0]),
                           (torch.complex(cube, cube.flip(0)), [1])],
        "var.dim": [(cube, [1]), (cube, [1], False), (cube, [0, 2], True, True)],
        "prod": [*every, (flags(4),), (cube.to(BF16),)],
        "prod.dim_int": [(cube, 1), (whole, -1, True), (cube, 0, {"dtype": F64}), (empty, 1)],
        "amax": [(TIES, [1]), (whole, [0, 1], True), (TIES, []), (flags(3, 4), [1]), (torch.tensor(1.0), [0])],
        "amin": [(TIES, [1]), (whole, [0, 1], True), (TIES, []), (flags(3, 4), [1]), (ints(3, 2, low=0, dtype=U8), [0])],
        "max.dim": along, "min.dim": along,
        "argmax": [(TIES,), (TIES, 1), (TIES, 0, True), (whole, -1), (torch.tensor(1.0),), (torch.tensor(1.0), 0)],
        "argmin": [(TIES,), (TIES, 1), (TIES, 0, True), (whole, -1)],
        "any": [(flags(3, 4),), (WHOLE,), (SPECIAL,), (torch.zeros(0),), (ints(3, low=0, dtype=U8),)],
        "_is_all_true": [(flags(3, 4),), (torch.ones(2, 3, dtype=torch.bool),), (torch.zeros(0, dtype=torch.bool),)],
        "_is_any_true": [(flags(3, 4),), (torch.zeros(2, 3, dtype=torch.bool),), (torch.zeros(0, dtype=torch.bool),)],
        "any.dim": [(flags(3, 4), 1), (TIES, 0, True), (empty, 1)],
        "any.dims": [(flags(3, 4), [0, 1]), (TIES, [0], True), (TIES, None)],
        "cumsum": [(cube, 1), (whole, -1), (whole.to(I32), 0), (flags(3, 4), 1), (cube, 2, {"dtype": F64}),
                   (torch.tensor(2.0), 0), (empty, 1), (TIES, 1), (floats(300, dtype=BF16), 0)],
        "cumprod": [(cube, 1), (whole, -1), (torch.tensor(2.0), 0)],
        "_softmax": [(cube, 1, False), (cube, -1, False), (TIES, 1, False), (cube.to(BF16), 2, False),
                     (torch.tensor(3.0), 0, False)],
        "_log_softmax": [(cube, 1, False), (TIES, 0, False), (cube.to(BF16), 2, False), (floats(3, 2, dtype=F64), 0, False)],
        "_cdist_forward": [(floats(2, 4, 3), floats(1, 5, 3), p, None) for p in (2.0, 1.0, 0.0, inf, 3.0)],
        "_cdist_backward": [(floats(2, 4, 5), a, b, p, torch.cdist(a, b, p)) for p in (2.0, 1.0, 0.0, inf, 3.0, 1.5, 0.5)
                            for a, b in [(floats(2, 4, 3), torch.cat([floats(2, 4, 3)[:, :2], floats(2, 3, 3) + 1], 1))]],
        "_pdist_forward": [(floats(5, 3), 2.0), (floats(5, 3), 1.5), (floats(1, 3), 2.0)],
        "linalg_vector_norm": [(cube,), (cube, 2, [1]), (cube, 1, [0], True), (cube, inf, [1]), (cube, -inf, [2]), (cube, 0, [1]),
                               (cube, 3.5, [1]), (cube.to(BF16), 2, [2]), (cube, 2, [1], {"dtype": F64})],
        "max": every, "min": every,
        "var_mean.correction": [(cube, [1]), (cube, None, {"correction": 0}), (cube.to(BF16), [2], {"keepdim": True}),
                                (torch.complex(cube, cube.flip(0)), [1])],
        "sort": [(TIES,), (TIES, 0), (TIES, 1, True), (whole, -1, True), (torch.tensor(1.0),)],
        "sort.stable": [(TIES, {"stable": True}), (TIES, {"stable": True, "dim": 0, "descending": True})],
        "lstm.input": [(floats(5, 2, 4), [floats(2, 2, 3), floats(2, 2, 3, seed=1)], _layers(12, 4, 3, 2), True, 1, 0.0, False,
                        True, False),
                       (floats(2, 5, 4), [floats(2, 2, 3), floats(2, 2, 3)], [*_layers(12, 4, 3, 1), *_layers(12, 3, 3, 1)], True,
                        2, 0.0, True, False, True),
                       (floats(5, 2, 4), [floats(1, 2, 2), floats(1, 2, 3)], [*_layers(12, 4, 2, 1)[:2], floats(2, 3)], False, 1,
                        0.0, False, False, False)],
        "gru.input": [(floats(5, 2, 4), floats(1, 2, 3), _layers(9, 4, 3, 1), True, 1, 0.0, False, False, False)],
        "rnn_tanh.input": [(floats(5, 2, 4), floats(2, 2, 3), _layers(3, 4, 3, 2), True, 1, 0.0, False, True, False)],
        "rnn_relu.input": [(floats(5, 2, 4), floats(1, 2, 3), _layers(3, 4, 3, 1)[:2], False, 1, 0.0, False, False, False)],
        "topk": [(floats(4, 9), 3), (floats(9, 4), 2, 0), (floats(9, 4), 4, 0, False), (torch.tensor(2.0), 1),
                 (torch.tensor([1.0, nan, 3.0, -inf]), 2)],
    }


def _views() -> dict[str, list[Row]]:
    cube, square = floats(2, 3, 4), floats(4, 5)
    return {
        "alias": [(cube,)], "clone": [(cube,)],
        "_to_copy": [(SPECIAL.nan_to_num(0, 5, -5), {"dtype": torch.int64}), (WHOLE, {"dtype": torch.bool}),
                     (cube, {"dtype": BF16}), (SPECIAL, {"dtype": torch.bool}),
                     (FLAGS, {"dtype": torch.float32}), (WHOLE, {"dtype": U8}), (cube,),
                     (ints(3, low=120, high=300), {"dtype": I8}), (cube, {"dtype": torch.complex64})],
        "copy": [(cube, floats(3, 1)), (cube, ints(4)), (ints(3), floats(3) * 3)],
        "view.dtype": [(cube, I32), (cube, U8), (cube, F64), (cube, BF16), (cube, torch.complex64), (FLAGS, U8),
                       (torch.complex(cube, cube), torch.float32), (torch.complex(cube, cube), torch.int64),
                       (torch.tensor(2.0), I32), (torch.zeros(0, 4), I8)],
        "view": [(cube, [6, -1]), (cube, [24]), (torch.tensor(2.0), [1, 1]), (torch.zeros(0, 3), [3, 0])],
        "squeeze.dim": [(floats(2, 1, 3), 1), (cube, 1), (torch.tensor(1.0), 0)],
        "squeeze.dims": [(floats(1, 2, 1), [0, -1]), (cube, [0])],
        "unsqueeze": [(cube, 0), (cube, -1), (torch.tensor(1.0), 0)],
        "expand": [(floats(3, 1), [2, 3, 4]), (floats(3, 1), [-1, 5]), (torch.tensor(1.0), [2])],
        "permute": [(cube, [2, 0, 1]), (cube, [-1, 0, -2]), (torch.tensor(1.0), [])],
        "flip": [(cube, [0, -1]), (cube, [])],
        "slice.Tensor": [(cube, 1, 1, 3), (cube, -1, -3, None), (cube, 2, 0, 100, 2), (cube, 0, 5, 9), (cube, 1, 2, 1),
                         (cube,), (cube, 2, None, -1)],
        "select.int": [(cube, 1, -1), (cube, -1, 0)],
        "split_with_sizes": [(cube, [1, 2], 1), (cube, [1, 0, 3], -1)],
        "slice_scatter": [(cube, floats(2, 2, 4), 1, 1, 3), (cube, floats(2, 3, 2), -1, 0, None, 2),
                          (cube, floats(2, 3, 2), 2, 1, 4, 2), (cube, floats(2, 0, 4), 1, 3, 2)],
        "select_scatter": [(cube, floats(2, 4), 1, -1), (cube, floats(2, 3), 2, 0)],
        "diagonal": [(square,), (square, 1), (square, -2), (floats(3, 4, 3), 0, 0, 2), (square, 7), (floats(2, 3, 4), -1, -1, 1)],
        "cat": [([cube, floats(2, 1, 4)], 1), ([torch.zeros(0), cube, cube], -1), ([WHOLE, SPECIAL],), ([torch.zeros(0)],),
                ([cube],)],
        "repeat": [(floats(2, 3), [2, 1, 3]), (floats(2), [0]), (torch.tensor(1.0), [2, 2])],
        "as_strided": [(cube, [2, 2], [3, 5], 1), (floats(7), [3, 3], [2, 1])],
        "as_strided_scatter": [(cube, floats(2, 2), [2, 2], [3, 5], 1), (floats(2, 3), floats(3, 2), [3, 2], [1, 3]),
                               (floats(2, 3), floats(6), [6], [1])],
        "unfold": [(cube, 1, 2, 1), (cube, -1, 3, 2), (floats(7), 0, 2, 3)],
        "constant_pad_nd": [(cube, [1, 2], 0.5), (cube, [1, -1, 0, 2]), (WHOLE, [2, 0], 7), (FLAGS, [1, 1], True)],
        "replication_pad1d": [(floats(2, 3, 5), [2, 3])],
        "reflection_pad1d": [(floats(2, 3, 5), [2, 3]), (floats(3, 5), [0, 4])],
        "reflection_pad2d": [(floats(1, 2, 4, 5), [2, 3, 1, 0])],
        "reflection_pad3d": [(floats(1, 1, 3, 4, 5), [1, 2, 0, 3, 2, 1])],
        "replication_pad2d": [(floats(1, 2, 4, 5), [2, 3, 1, 0]), (floats(2, 4, 5), [-1, 2, 3, -2])],
        "replication_pad3d": [(floats(1, 1, 3, 4, 5), [1, 2, 0, 3, 2, 1])],
    }


def _indexing() -> dict[str, list[Row]]:
    cube, square = floats(3, 4, 5), floats(4, 5)
    at = torch.tensor([[0, 2, 1], [3, 1, 1]])
    unique = torch.tensor([[0, 2, 1, 3, 3], [3, 1, 0, 2, 1]])
    words = ("sum", "prod", "mean", "amax", "amin")
    return {
        "gather": [(square, 0, at), (square, 1, at), (ints(4, 5), -1, at), (torch.tensor(2.0), 0, torch.tensor(0)),
                   (cube, 1, ints(3, 2, 5, low=0, high=4))],
        "scatter.src": [(square, 0, unique, floats(2, 5)), (square, 0, unique[:, :3], floats(3, 4)),
                        (torch.tensor(1.0), 0, torch.tensor(0), torch.tensor(5.0))],
        "scatter.value": [(square, 1, at, 2.5), (ints(4, 5), 0, unique, 7)],
        "scatter_add": [(square, 0, at, floats(2, 3)), (square, 1, at, floats(3, 3)), (ints(4, 5), 0, at, ints(2, 3))],
        "scatter_reduce.two": [(square, 0, at, floats(2, 3), word, {"include_self": include}) for word in words
                               for include in (True, False)] + [(ints(4, 5), 0, at, ints(2, 3), "mean")],
        "index.Tensor": [(cube, [at % 3]), (cube, [None, at]), (cube, [at[:1], None, at]), (cube, [None, at, at[:, :1]]),
                         (cube, [torch.tensor(-1)]), (cube, [None, None, torch.tensor([0, -1])]), (ints(4), [at])],
        "index_put": [(cube, [unique[0, :3], at[1]], floats(5)), (cube, [None, at[0]], floats(3, 3, 5)),
                      (cube, [at % 3], torch.tensor(2.0), True), (cube, [None, at, at[:, :1]], floats(3, 2, 3), True),
                      (cube, [at[:1] % 3, None, at], torch.tensor(1.0), True),
                      (cube, [flags(3, 4)], torch.tensor(7.0)), (cube, [flags(3, 4, 5)], torch.tensor([2.0]), True),
                      (ints(5), [torch.tensor([-1, 0])], torch.tensor([7, 8]))],
        "index_select": [(cube, 1, torch.tensor([3, 0, 0])), (cube, -1, torch.tensor(2)),
                         (torch.tensor(1.0), 0, torch.tensor([0]))],
        "embedding": [(floats(7, 3), at), (floats(7, 3), torch.tensor(2)), (floats(7, 3), at, 1)],
        "embedding_dense_backward": [(floats(2, 3, 4), at, 6, -1, False), (floats(2, 3, 4), at, 6, 1, False)],
        "masked_scatter": [(square, flags(4, 5), floats(20)), (floats(5), flags(4, 5), floats(20)),
                           (square, flags(5), floats(30)), (ints(4), FLAGS, ints(3, 2))],
    }


def _ranks() -> dict[str, list[Row]]:
    """Running extremes, and elements by their place in order. Which of equal ones has the place, torch leaves open."""
    cube, one = floats(2, 3, 5), torch.tensor(2.0)
    holes = torch.where(floats(4, 6) > 0.8, nan, floats(4, 6, seed=1))
    ordered: list[Row] = [(cube, 1), (cube, -1, True), (holes, 0), (holes, 1), (one, 0), (torch.tensor([3, 1, 2, 9]), 0),
                          (floats(3, 4, dtype=BF16), 1)]
    images = [(floats(1, 2, 7, 5), *row) for row in [
        ([3, 4], False), ([9, 2], True), ([4, 5], False, 0.6, 0.9), ([4, 3], False, 0.6, 0.7), ([1, 1], True)]]
    running: list[Row] = [(cube, 1), (TIES, 1), (TIES, 0), (ints(3, 7), -1), (one, 0), (flags(2, 5), 1), (torch.zeros(0, 2), 0)]
    return {
        "cummax": running, "cummin": running,
        "logcumsumexp": [(cube, 1), (100 * cube, -1), (torch.tensor([-inf, -inf, 1.0, inf, 2.0, nan]), 0), (one, 0),
                         (floats(9, dtype=BF16), 0), (floats(9, dtype=F64), 0)],
        "kthvalue": [(cube, 2, 1), (cube, 5, -1, True), (holes, 1, 0), (one, 1, 0), (torch.tensor([3, 1, 2]), 1)],
        "median": [(cube,), (TIES,), (holes,), (one,), (ints(3, 4),), (torch.full((3,), nan),)],
        "nanmedian": [(cube,), (TIES,), (holes,), (one,), (ints(3, 4),), (torch.full((3,), nan),)],
        "median.dim": ordered, "nanmedian.dim": ordered,
        "mode": [(torch.tensor([[2.0, 1, 2, 1, 3], [5, 5, 4, 1, 5]]), 1),
                 (ints(4, 9, low=0, high=3), 1, True), (cube, 0), (one, 0)],
        "_upsample_bilinear2d_aa": images, "_upsample_bicubic2d_aa": images,
        **{f"_upsample_{kind}2d_aa_backward": [(floats(1, 2, *size), size, list(x.shape), *rest) for x, size, *rest in images]
           for kind in ("bilinear", "bicubic")},
        "native_dropout": [(cube, 0.0, True), (cube, 0.5, False), (cube, 1.0, True)],
    }


def _networks() -> dict[str, list[Row]]:
    line, image, volume = floats(2, 4, 9), floats(2, 4, 7, 6), floats(1, 2, 5, 6, 4)
    kernel, grouped = floats(6, 4, 3, 2), floats(6, 2, 3, 2)
    plain = ([1, 1], [0, 0], [1, 1])
    odd = ([2, 1], [1, 2], [1, 2])
    groups = (floats(2, 6, 4), floats(6), floats(6, seed=1), 2, 6, 4, 3, 1e-5)
    stats = (floats(4).abs(), floats(4, seed=2).abs())
    labels = torch.tensor([[3, 0, -1, 1], [-1, 0, 1, 2], [1, 2, 3, 0]])
    labelled: list[Row] = [
        *((floats(3, 4), labels, reduction) for reduction in (1, 0, 2)), (floats(4), torch.tensor([1, 1, -1, 0]), 0),
        (floats(4), torch.tensor([-1, 1, -1, 0]), 1), (floats(2, 3, dtype=F64), torch.tensor([[2, -1, 1], [0, 1, -1]]), 1)]
    heads = (floats(2, 2, 3, 8), floats(2, 2, 5, 8), floats(2, 2, 5, 8, seed=1))
    deep = torch.ops.aten.max_pool3d_with_indices(volume, [2, 3, 2], [1], [1])[1]
    pooled = torch.ops.aten.max_pool2d_with_indices(image, [3, 2], [2, 1], [1, 0])[1]
    return {
        "mm": [(floats(3, 4), floats(4, 2)), (ints(3, 4), ints(4, 2)), (floats(3, 4, dtype=BF16), floats(4, 2, dtype=BF16))],
        "bmm": [(floats(2, 3, 4), floats(2, 4, 5))],
        "multilabel_margin_loss_forward": labelled,
        "multilabel_margin_loss_backward": [
            (found * 0.5, *row, is_target) for row in labelled
            for found, is_target in (torch.ops.aten.multilabel_margin_loss_forward(*row),)],
        "scaled_dot_product_attention": [
            heads, (*heads, None, 0.0, True), (*heads, flags(3, 5)), (*heads, floats(2, 1, 3, 5), {"scale": 0.3}),
            (*heads, torch.full((3, 5), -inf)), (*heads, torch.zeros(1, 1, 1, 5).bool()),
            (floats(2, 4, 3, 8), *heads[1:], {"enable_gqa": True}), (floats(2, 4, 5, 8), *heads[1:], None, 0.0, True, {
                "enable_gqa": True, "scale": 2.0}),
            tuple(x.to(BF16) for x in heads), (floats(3, 8), floats(5, 8), floats(5, 6)), (floats(4, 3, 8), floats(4, 5, 8),
                                                                                        floats(4, 5, 2), flags(3, 5))],
        "addmm": [(floats(2), floats(3, 4), floats(4, 2)),
                  (floats(3, 2), floats(3, 4), floats(4, 2), {"beta": 0.5, "alpha": 2.0}),
                  (torch.full((2,), nan), floats(3, 4), floats(4, 2), {"beta": 0})],
        "convolution": [
            (line, floats(5, 4, 3), floats(5), [2], [1], [2], False, [0], 1),
            (image, kernel, None, *plain, False, [0, 0], 1), (image, kernel, floats(6), *odd, False, [0, 0], 1),
            (image, grouped, floats(6), *odd, False, [0, 0], 2),
            (volume, floats(3, 2, 2, 3, 2), None, [1], [1], [1], False, [0], 1),
            (image, floats(4, 6, 3, 2), None, *plain, True, [0, 0], 1),
            (image, floats(4, 3, 3, 2), floats(6), [2, 3], [1, 0], [1, 2], True, [1, 2], 2),
            (line, floats(4, 5, 3), None, [3], [1], [1], True, [2], 1)],
        "convolution_backward": [
            (torch.ops.aten.convolution(x, w, None, s, p, d, t, o, g) * 0.5, x, w, [g * w.shape[1]] if t else [w.shape[0]],
             s, p, d, t, o, g, [True, True, True]) for x, w, s, p, d, t, o, g in [
                 (image, kernel, *plain, False, [0, 0], 1), (image, grouped, *odd, False, [0, 0], 2),
                 (line, floats(5, 4, 3), [2], [1], [2], False, [0], 1),
                 (image, floats(4, 3, 3, 2), [2, 3], [1, 0], [1, 2], True, [1, 2], 2)]],
        "avg_pool1d": [(line, [3], [2], [1]), (line, [2]), (line, [3], [2], [1], True, False)],
        "avg_pool2d": [(image, [3, 2], [2, 1], [1, 0]), (image, [3], [2], [1], True), (image, [3], [2], [1], True, False),
                       (image, [2, 2], [], [0, 0], False, True, 3), (floats(4, 7, 6), [2])],
        "avg_pool3d": [(volume, [3], [2], [1], True, False), (volume, [2])],
        "avg_pool2d_backward": [
            (torch.ops.aten.avg_pool2d(image, *row), image, *row) for row in [
                ([3, 2], [2, 1], [1, 0], False, True, None), ([3, 3], [2, 2], [1, 1], True, False, None),
                ([2, 2], [2, 2], [0, 0], False, True, 3)]],
        "avg_pool3d_backward": [(torch.ops.aten.avg_pool3d(volume, *row), volume, *row) for row in [
            ([3, 3, 3], [2, 2, 2], [1, 1, 1], True, False, None)]],
        "_adaptive_avg_pool3d_backward": [(floats(1, 2, 2, 3, 4), volume)],
        "_adaptive_avg_pool2d": [(image, [3, 2]), (image, [1, 1]), (image, [7, 4])],
        "_adaptive_avg_pool3d": [(volume, [2, 3, 3])],
        "adaptive_avg_pool1d": [(line, [3]), (line, [4])],
        "_adaptive_avg_pool2d_backward": [(floats(2, 4, 3, 2), image), (floats(2, 4, 7, 4), image)],
        "max_pool2d_with_indices": [(image, [3, 2], [2, 1], [1, 0]), (image, [3], [2], [1], [1], True),
                                    (image, [2], [], [0], [2]),
                                    (TIES[None], [2, 2]), (floats(4, 7, 6), [2])],
        "max_pool3d_with_indices": [(volume, [2, 3, 2], [1], [1])],
        "max_pool2d_with_indices_backward": [(pooled.float(), image, [3, 2], [2, 1], [1, 0], [1, 1], False, pooled)],
        "max_pool3d_with_indices_backward": [
            (deep.float(), volume, [2, 3, 2], [1, 1, 1], [1, 1, 1], [1, 1, 1], False, deep)],
        **{f"{kind}_max_pool{count}d_backward": [(at.float(), x, *sizes, at)]
           for count, x, at in ((2, image, pooled), (3, volume, deep))
           for kind, sizes in (("adaptive", []), ("fractional", [[2] * count, list(at.shape[-count:])]))},
        "_native_batch_norm_legit.no_stats": [(image, floats(4), floats(4, seed=1), True, 0.1, 1e-5),
                                             (image, None, None, True, 0.1, 1e-3)],
        "_native_batch_norm_legit_no_training": [(image, floats(4), floats(4, seed=1), *stats, 0.1, 1e-5),
                                                 (line, None, None, *stats, 0.1, 1e-3)],
        "_native_batch_norm_legit_functional": [(image, floats(4), floats(4, seed=1), *stats, True, 0.1, 1e-5),
                                                (image, None, None, *stats, False, 0.1, 1e-5)],
        "native_batch_norm": [(image, floats(4), floats(4, seed=1), *(s.clone() for s in stats), True, 0.1, 1e-5),
                              (image, None, None, *stats, False, 0.1, 1e-5)],
        "native_layer_norm": [(floats(2, 3, 4), [4], floats(4), floats(4, seed=1), 1e-5),
                              (floats(2, 3, 4), [3, 4], None, None, 1e-3),
                              (floats(2, 3, 8, dtype=BF16), [8], floats(8, dtype=BF16), floats(8, dtype=BF16), 1e-5)],
        "native_group_norm": [groups, (floats(2, 6, 4), None, None, *groups[3:])],
    }


def _creation() -> dict[str, list[Row]]:
    cube, typed = floats(2, 3), {"dtype": torch.float32}
    return {
        "full": [([2, 3], 2.5), ([2], 7), ([], True), ([2], 1, {"dtype": BF16}), ([2], 1.5, {"dtype": torch.int64})],
        "full_like": [(cube, 2), (WHOLE, 2.5), (cube, 1, {"dtype": torch.bool})],
        "scalar_tensor": [(2.5, typed), (3, {"dtype": torch.int64}), (-inf, typed)],
        "fill.Scalar": [(cube, 2), (WHOLE, 3)],
        "empty.memory_format": [([2, 3],)], "empty_strided": [([2, 3], [3, 1])], "empty_permuted": [([2, 3], [0, 1])],
        "new_empty_strided": [(cube, [4], [1])],
        "arange.start_step": [(0, 5), (2, 9, 3), (5, 0, -2), (0.0, 1.0, 0.1), (1, 4, 1, typed), (0, 0)],
    }


def _spectra() -> dict[str, list[Row]]:
    real, other = floats(2, 3, 6), floats(2, 3, 6, seed=1)
    pairs = torch.complex(real, other)
    half = torch.ops.aten._fft_r2c(real, [0, 2], 0, True)
    return {
        "complex": [(real, other)], "view_as_real": [(pairs,)], "view_as_complex": [(floats(3, 2),)],
        "_conj": [(pairs,)], "_conj_physical": [(pairs,)], "conj_physical": [(pairs,), (real,)],
        "_fft_c2c": [(pairs, [1], 0, True), (pairs, [0, 2], 1, False), (pairs, [2], 2, False), (pairs, [1], 2, True)],
        "_fft_r2c": [(real, [2], 0, True), (real, [0, 1], 1, True), (real, [1, 2], 2, False)],
        "_fft_c2r": [(half, [0, 2], 2, 6), (half, [2], 0, 6), (half, [1, 2], 1, 7)],
    }
