"""Reports about PyTorch as functions of torch; eager torch is the truth."""

from __future__ import annotations

import numpy as np
import torch

from reports.rows import INF, NAN, Row, f32, f64, i64

F = torch.nn.functional

ROWS = [
    Row(
        "pytorch#193755",
        "a remainder of zero has the sign that torch gives it",
        torch.remainder,
        (f32(-1, 2, -4), f32(1, -1, 2)),
        exact=True,
    ),
    Row(
        "pytorch#1164",
        "remainders of integers have the divisor's sign",
        torch.remainder,
        (i64(-2, -1, 0, 5), i64(3, 3, 3, -3)),
        right=i64(1, 2, 0, -1),
    ),
    Row(
        "pytorch#5906",
        "remainders of large integers do not overflow",
        torch.remainder,
        (i64(-23500), i64(392486996410368)),
        right=i64(392486996386868),
    ),
    Row("pytorch#2421", "the norm's slope at zero is zero in torch", torch.linalg.vector_norm, (f64(0, 0),), True, f64(0, 0)),
    Row(
        "pytorch#26076", "distances' slopes to several points", torch.cdist, (f64([0.0]), f64([0.5], [1.0])), True, f64([-2.0])
    ),
    Row(
        "pytorch#37154",
        "distances' slopes where points are the same",
        torch.cdist,
        (f64([1.0, 2]), f64([1.0, 2], [4.0, 6])),
        True,
    ),
    Row(
        "pytorch#45720", "distances of p below one", lambda a, b: torch.cdist(a, b, p=0.5), (f64([1.0, 2]), f64([1.0, 3])), True
    ),
    Row(
        "pytorch#74607",
        "scatter_reduce leaves its own value out where it is told",
        lambda x, i, s: torch.scatter_reduce(x, 0, i, s, "amax", include_self=False),
        (f64(9, 9, 9), i64(0, 0, 2), f64(1, 2, 3)),
        right=f64(2, 9, 3),
    ),
    Row(
        "pytorch#76523",
        "ties of scatter_reduce share the slope",
        lambda s, x, i: torch.scatter_reduce(x, 0, i, s, "amax"),
        (f64(2, 2, 3), f64(0, 0), i64(0, 0, 1)),
        True,
        f64(0.5, 0.5, 1),
    ),
    Row(
        "pytorch#76523",
        "a product of scattered numbers with a zero",
        lambda s, x, i: torch.scatter_reduce(x, 0, i, s, "prod"),
        (f64(2, 0, 3), f64(1, 1), i64(0, 0, 1)),
        True,
        f64(0, 2, 1),
    ),
    Row("pytorch#773", "a product with a zero", torch.prod, (f64(2, 0, 3, 4),), True, f64(0, 24, 0, 0)),
    Row("pytorch#82644", "a product of one zero along a dimension", lambda x: x.prod(0), (f64(0),), True, f64(1)),
    Row("pytorch#31782", "a running product of nothing", lambda x: x.cumprod(-1), (np.zeros((2, 0)),), True, np.zeros((2, 0))),
    Row(
        "pytorch#27134",
        "the slope of a power of zero by its exponent",
        lambda b, a: a**b,
        (f64(1, 1), f64(0, 2)),
        True,
        f64(0, 2 * np.log(2)),
    ),
    Row("pytorch#8940", "zero to the power of zero", lambda x: x**0, (f64(0, 1),), True, f64(0, 0)),
    Row("pytorch#6864", "softmax with an infinity", lambda x: F.softmax(x, -1), (f64([0, INF], [0, -INF]),)),
    Row(
        "pytorch#31829",
        "the slope of logsumexp at negative infinities",
        lambda x: torch.logsumexp(x, 0),
        (f64(-INF, -INF),),
        True,
    ),
    Row("pytorch#49724", "logaddexp of infinities", torch.logaddexp, (f64(-INF, 1, INF), f64(-INF, INF, INF))),
    Row(
        "pytorch#93784",
        "clamp_min and maximum keep NaN",
        lambda x, y: (torch.clamp_min(x, 0.5), torch.maximum(x, y), F.relu(x)),
        (f32(-3, NAN, 2), f32(0, 0, NAN)),
    ),
    Row("pytorch#76795", "a bound of NaN", torch.clamp_min, (f32(0, NAN, 1), f32(NAN, 1, 0)), right=f32(NAN, NAN, 1)),
    Row(
        "pytorch#52695",
        "clamp's slope at its bounds is torch's: one, and zero from 2.15 on",
        lambda x: torch.clamp(x, 0.0, 1.0),
        (f64(-1, 0, 0.5, 1, 2),),
        True,
        by_table=f64(0, 1, 1, 1, 0),
    ),
    Row("pytorch#4320", "the slope of a deviation of zero", torch.std, (f64(1, 1, 1),), True),
    Row("pytorch#98276", "the angle's slope at zero", torch.atan2, (f64(0, 1), f64(0, 0)), True, by_table=f64(NAN, 0)),
    Row(
        "pytorch#70904", "shifts by the width give zero", torch.bitwise_left_shift, (i64(255, 1), i64(64, 65)), right=i64(0, 0)
    ),
    Row(
        "pytorch#143555",
        "a right shift by the width",
        torch.bitwise_right_shift,
        (i64(1000, -1), i64(64, 64)),
        right=i64(0, -1),
    ),
    Row(
        "pytorch#33382",
        "max_pool2d pads with negative infinity",
        lambda x: F.max_pool2d(x, 2, 2, 1),
        (-np.ones((1, 1, 2, 2)),),
        right=-np.ones((1, 1, 2, 2)),
    ),
    Row("pytorch#7670", "max_pool2d keeps NaN", lambda x: F.max_pool2d(x, 2), (np.array([[[[1.0, NAN], [2, 3]]]]),)),
    Row(
        "pytorch#63943",
        "transforms of odd lengths",
        lambda x: torch.fft.irfft(torch.fft.rfft(x), n=7),
        (np.linspace(-1, 2, 7),),
        right=np.linspace(-1, 2, 7),
    ),
]
