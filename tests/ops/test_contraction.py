# pyright: reportCallIssue=false, reportArgumentType=false
"""dot, ragged-dot and scaled-dot: against real XLA, against NumPy where XLA has no CPU code, documents' examples, errors."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
import torch

import xla_torch
from support.oracle import needs_xla
from support.scaled_agreement import assert_agrees, assert_close, one, random_array, run_one
from xla_torch import F32, S32, ops
from xla_torch.errors import InvalidArgument
from xla_torch.kernels import contraction
from xla_torch.kernels.contraction import byte_matmul, integer_matmul


def dot(result: str, contracting: str, batch: str = "") -> str:
    """``dot(p0, p1)``; numbers of lhs and rhs are written ``1,2/0,1``."""
    parts = [f"{result} dot(p0, p1)"]
    for name, numbers in (("contracting", contracting), ("batch", batch)):
        lhs, _, rhs = numbers.partition("/")
        if lhs:
            parts += [f"lhs_{name}_dims={{{lhs}}}", f"rhs_{name}_dims={{{rhs}}}"]
    return ", ".join(parts)


FORMS = [
    # result, lhs, rhs, contracting, batch
    ("f32[3,5]", "f32[3,4]", "f32[4,5]", "1/0", ""),
    ("f32[3,5]", "f32[4,3]", "f32[5,4]", "0/1", ""),
    ("f32[]", "f32[4]", "f32[4]", "0/0", ""),
    ("f32[3]", "f32[3,4]", "f32[4]", "1/0", ""),
    ("f32[5]", "f32[4]", "f32[4,5]", "0/0", ""),
    ("f32[2,3,5,6]", "f32[2,3,4]", "f32[4,5,6]", "2/0", ""),
    ("f32[2,3,5,6]", "f32[2,3,4]", "f32[5,6,4]", "2/2", ""),
    ("f32[2,4,5,6]", "f32[2,3,4]", "f32[5,3,6]", "1/1", ""),
    ("f32[4,5]", "f32[2,3,4]", "f32[2,3,5]", "0,1/0,1", ""),
    ("f32[2,3,7]", "f32[2,3,4,5]", "f32[4,5,7]", "2,3/0,1", ""),
    ("f32[2,3,7]", "f32[2,3,4,5]", "f32[5,4,7]", "2,3/1,0", ""),
    ("f32[2,4,7]", "f32[2,3,4,5]", "f32[5,3,7]", "1,3/1,0", ""),
    ("f32[4,6]", "f32[2,3,4]", "f32[3,2,6]", "1,0/0,1", ""),
    ("f32[]", "f32[2,3]", "f32[2,3]", "0,1/0,1", ""),
    ("f32[8,4,6,5]", "f32[8,6,4,3]", "f32[8,5,4,3]", "3/3", "0,2/0,2"),
    ("f32[8,4,3,5]", "f32[8,6,4,3]", "f32[8,4,5,6]", "1/3", "0,2/0,1"),
    ("f32[8]", "f32[8,6]", "f32[8,6]", "1/1", "0/0"),
    ("f32[8,5]", "f32[8,6]", "f32[8,5,6]", "1/2", "0/0"),
    ("f32[8,5]", "f32[8,5,6]", "f32[8,6]", "2/1", "0/0"),
    ("f32[8,3,2,5]", "f32[3,8,2,6]", "f32[8,5,6]", "3/2", "1/0"),
    ("f32[8,3,2,5,7]", "f32[3,8,2,6]", "f32[8,5,6,7]", "3/2", "1/0"),
    ("f32[8,4]", "f32[8,2,3,4]", "f32[8,3,2]", "1,2/2,1", "0/0"),
    ("f32[3,4,5]", "f32[3,4]", "f32[5]", "", ""),
    ("f32[3,4,5]", "f32[3,4]", "f32[3,5]", "", "0/0"),
    ("f32[3,4]", "f32[3,4]", "f32[3,4]", "", "0,1/0,1"),
    ("f32[4]", "f32[4]", "f32[]", "", ""),
    ("f32[4,2]", "f32[]", "f32[4,2]", "", ""),
    ("f32[3,5]", "f32[3,0]", "f32[0,5]", "1/0", ""),
    ("f32[3,0]", "f32[3,2]", "f32[2,0]", "1/0", ""),
    ("f32[2,0,5]", "f32[2,0,3]", "f32[2,3,5]", "2/1", "0/0"),
    ("s32[17,9]", "s8[17,64]", "s8[64,9]", "1/0", ""),
    ("s32[17,9]", "s8[64,17]", "s8[9,64]", "0/1", ""),
    ("s32[1,9]", "s8[64,1]", "s8[9,64]", "0/1", ""),
    ("s32[2,3,5]", "s8[2,3,40]", "s8[2,40,5]", "2/1", "0/0"),
    ("s32[2,3,5,6]", "s8[2,3,4]", "s8[5,6,4]", "2/2", ""),
    ("s32[3,5]", "u8[3,40]", "s8[40,5]", "1/0", ""),
    ("s16[3,5]", "s8[3,4000]", "s8[4000,5]", "1/0", ""),
    ("s32[3,5]", "s8[3]", "s8[5]", "", ""),
]


@needs_xla
@pytest.mark.parametrize(("result", "lhs", "rhs", "contracting", "batch"), FORMS)
def test_every_form_of_dot(result: str, lhs: str, rhs: str, contracting: str, batch: str) -> None:
    assert_agrees(dot(result, contracting, batch), lhs, rhs)


TYPES = [(t, t, t) for t in ("s4", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "pred", "f8e4m3fn", "f8e5m2", "f16",
                             "bf16", "f64", "c64", "c128")]
TYPES += [("s32", "s8", "s8"), ("s32", "u8", "u8"), ("u32", "u16", "u16"), ("s64", "s32", "s32"), ("f32", "bf16", "bf16"),
          ("f32", "f16", "f16"), ("f32", "bf16", "f32"), ("f64", "f32", "f32"), ("f32", "f8e4m3fn", "f8e5m2")]


@needs_xla
@pytest.mark.parametrize(("result", "lhs", "rhs"), TYPES)
def test_dot_of_every_type(result: str, lhs: str, rhs: str) -> None:
    assert_agrees(dot(f"{result}[3,5]", "1/0"), f"{lhs}[3,4]", f"{rhs}[4,5]")


def test_integers_wrap() -> None:
    assert run_one(dot("s8[]", "0/0"), ["s8[3]", "s8[3]"], np.full(3, 100, np.int8), np.full(3, 100, np.int8))[0] == 48


CODE = [
    ("f32[3,5]", "f32[3,4]", "f32[4,5]", "1/0", "", ["p0 @ p1"]),
    ("f32[2,3,5]", "f32[2,3,4]", "f32[4,5]", "2/0", "", ["p0 @ p1"]),
    ("f32[3,5]", "f32[3,4]", "f32[5,4]", "1/1", "", ["p1.t()", "p0 @ r"]),
    ("f32[2,3,5]", "f32[2,3,4]", "f32[2,4,5]", "2/1", "0/0", ["p0 @ p1"]),
    ("f32[2,3,5]", "f32[2,3,4]", "f32[2,5,4]", "2/2", "0/0", ["p1.transpose(-2, -1)", "p0 @ r"]),
    ("f32[4,5]", "f32[2,3,4]", "f32[2,3,5]", "0,1/0,1", "", ["p0.flatten(0, 1)", "r.t()", "p1.flatten(0, 1)", "r_1 @ r_2"]),
]


@pytest.mark.parametrize(("result", "lhs", "rhs", "contracting", "batch", "calls"), CODE)
def test_the_torch_calls(result: str, lhs: str, rhs: str, contracting: str, batch: str, calls: list[str]) -> None:
    """Plain products become plain calls, without copies."""
    code = xla_torch.parse_hlo(one(dot(result, contracting, batch), [lhs, rhs])).python_code()
    lines = [line.split(" = ")[1].split("  #")[0] for line in code.splitlines() if "# %r" in line]
    assert lines == calls


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_integer_matmul_of_devices_without_one(dtype: torch.dtype) -> None:
    """Limbs of 16 bits give what wrapping integer arithmetic gives."""
    torch.manual_seed(0)
    limits = torch.iinfo(dtype)
    lhs, rhs = (torch.randint(limits.min, limits.max, dims, dtype=dtype) for dims in ((2, 3, 7), (2, 7, 4)))
    assert torch.equal(integer_matmul(lhs, rhs), lhs @ rhs)
    assert torch.equal(integer_matmul(lhs[0], rhs[0, :, 0]), lhs[0] @ rhs[0, :, 0])


BYTES = [
    # what oneDNN's routine takes for another matrix where a stride is open: sizes of 1, either way round
    *(((m, k), (k, n)) for m in (1, 2, 17) for k in (1, 3, 64) for n in (1, 2, 9)),
    ((0, 3), (3, 2)), ((2, 0), (0, 3)), ((2, 3), (3, 0)),
    ((2, 5, 7), (7, 3)), ((4, 5, 7), (4, 7, 3)), ((7,), (7, 3)), ((5, 7), (7,)), ((7,), (7,)), ((2, 3000), (3000, 2)),
]


def laid_out_otherwise(x: torch.Tensor, y: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Factors by columns, in steps, and with one row for all."""
    steps = torch.stack([y, y], -1)[..., 0]
    return [(x.mT.contiguous().mT, y), (x, y.mT.contiguous().mT), (x, steps), (x[:1].expand_as(x), y)]


@pytest.mark.parametrize("by_units", [True, False], ids=["oneDNN", "float32"])
@pytest.mark.parametrize(("lhs", "rhs"), BYTES)
def test_products_of_bytes(lhs: tuple[int, ...], rhs: tuple[int, ...], by_units: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums are exact for each layout and sign, the largest products among them, on processors that add in 32 bits and others."""
    if not by_units:
        monkeypatch.setattr(contraction, "int8_products", None)
    torch.manual_seed(0)
    for left, right in itertools.product((torch.int8, torch.uint8), repeat=2):
        a, b = (torch.randint(-128, 128, dims, dtype=torch.int16).to(t) for dims, t in ((lhs, left), (rhs, right)))
        for x in (a, torch.full_like(a, -128 if left is torch.int8 else 255)):
            for y in (b, torch.full_like(b, -128 if right is torch.int8 else 255)):
                for p, q in ((x, y), *(laid_out_otherwise(x, y) if x.dim() > 1 and y.dim() > 1 else ())):
                    assert byte_matmul(p, q).equal(p.to(torch.int32) @ q.to(torch.int32))


def test_sums_of_products_of_bytes_wrap() -> None:
    lhs, rhs = (torch.full(dims, -128, dtype=torch.int8) for dims in ((2, (1 << 17) + 1), ((1 << 17) + 1, 2)))
    assert byte_matmul(lhs, rhs).unique().tolist() == [(1 << 14) - (1 << 31)]


# --------------------------------------------------------------------------------------------- dynamic sizes


def test_dot_with_dynamic_sizes() -> None:
    text = one("f32[<=4,<=5,<=6,3] dot(p0, p1), lhs_contracting_dims={2}, rhs_contracting_dims={0}",
               ["f32[<=4,<=5,2]", "f32[2,<=6,3]"])
    lhs, rhs = random_array("f32[2,3,2]"), random_array("f32[2,5,3]", 1)
    assert_close(xla_torch.parse_hlo(text)(torch.tensor(lhs), torch.tensor(rhs)).numpy(), np.einsum("abk,kcd->abcd", lhs, rhs))
    text = one("f32[<=4,<=5,<=6,<=3] dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
               ["f32[<=4,2,<=5]", "f32[<=6,2,<=3]"])
    lhs, rhs = random_array("f32[2,2,4]"), random_array("f32[5,2,3]", 1)
    assert_close(xla_torch.parse_hlo(text)(torch.tensor(lhs), torch.tensor(rhs)).numpy(), np.einsum("akb,ckd->abcd", lhs, rhs))


# --------------------------------------------------------------------------------------------- ragged and scaled


def masked_rows(lhs: np.ndarray, sizes: np.ndarray, axis: int) -> np.ndarray:
    """[groups, lhs...]: the lhs with zeros for what does not belong to the group."""
    parts, start = [], 0
    for size in sizes:
        keep = (np.arange(lhs.shape[axis]) >= start) & (np.arange(lhs.shape[axis]) < start + size)
        parts.append(lhs * np.moveaxis(keep.reshape([-1] + [1] * (lhs.ndim - 1)), 0, axis))
        start += size
    return np.stack(parts)


def test_ragged_rows() -> None:
    got, = run_one("f32[4,2] ragged-dot(p0, p1, p2), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, "
                   "rhs_group_dims={0}", ["f32[4,2]", "f32[2,2,2]", "s32[2]"],
                   np.arange(1, 9, dtype="f").reshape(4, 2), np.arange(8, dtype="f").reshape(2, 2, 2), np.array([1, 2], "i4"))
    np.testing.assert_array_equal(got, [[4, 7], [36, 43], [56, 67], [0, 0]])


def test_ragged_rows_of_each_batch() -> None:
    lhs, rhs = random_array("f32[3,4,6]"), random_array("f32[2,3,6,5]", 1)
    sizes = np.array([[1, 1], [2, 2], [3, 0]], "i4")
    got, = run_one("f32[3,4,5] ragged-dot(p0, p1, p2), lhs_batch_dims={0}, rhs_batch_dims={1}, lhs_contracting_dims={2}, "
                   "rhs_contracting_dims={2}, lhs_ragged_dims={1}, rhs_group_dims={0}",
                   ["f32[3,4,6]", "f32[2,3,6,5]", "s32[3,2]"], lhs, rhs, sizes)
    want = np.stack([np.einsum("gmk,gkn->mn", masked_rows(lhs[b], sizes[b], 0), rhs[:, b]) for b in range(3)])
    assert_close(got, want)


def test_ragged_contraction() -> None:
    lhs, rhs, sizes = random_array("f32[4,6]"), random_array("f32[6,3]", 1), np.array([2, 3], "i4")
    got, = run_one("f32[2,4,3] ragged-dot(p0, p1, p2), lhs_contracting_dims={1}, rhs_contracting_dims={0}, lhs_ragged_dims={1}",
                   ["f32[4,6]", "f32[6,3]", "s32[2]"], lhs, rhs, sizes)
    assert_close(got, np.einsum("gmk,kn->gmn", masked_rows(lhs, sizes, 1), rhs))


def test_ragged_batch() -> None:
    lhs, rhs, sizes = random_array("f32[3,4,6]"), random_array("f32[3,6,5]", 1), np.array([1, 1], "i4")
    got, = run_one("f32[3,4,5] ragged-dot(p0, p1, p2), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, "
                   "rhs_contracting_dims={1}, lhs_ragged_dims={0}", ["f32[3,4,6]", "f32[3,6,5]", "s32[2]"], lhs, rhs, sizes)
    assert_close(got, np.matmul(masked_rows(lhs, sizes, 0).sum(0), rhs))


SCALES = [("[3,2]", "[2,5]"), ("[1,8]", "[8,1]"), ("[3,1]", "[1,1]"), ("[]", "[4,5]")]


@pytest.mark.parametrize(("left", "right"), SCALES)
def test_scaled_dot(left: str, right: str) -> None:
    """A scale's entry stands for a block; powers of two and 8-bit floats multiply exactly."""
    lhs, rhs = random_array("f8e4m3fn[3,8]"), random_array("f8e4m3fn[8,5]", 1)
    scales = []
    for seed, dims in enumerate((left, right)):
        shape = xla_torch.Shape.parse(f"f32{dims}").dimensions
        scales.append((2.0 ** np.random.default_rng(seed).integers(-3, 4, shape)).astype(ml_dtypes.float8_e8m0fnu))
    got, = run_one("f32[3,5] scaled-dot(p0, p1, p2, p3), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
                   ["f8e4m3fn[3,8]", "f8e4m3fn[8,5]", f"f8e8m0fnu{left}", f"f8e8m0fnu{right}"], lhs, rhs, *scales)

    def scaled(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
        wide = scale.astype(np.float64)
        for axis, size in enumerate(wide.shape):
            wide = wide.repeat(x.shape[axis] // size, axis)
        return x.astype(np.float64) * wide

    assert_close(got, (scaled(lhs, scales[0]) @ scaled(rhs, scales[1])).astype(np.float32))


# --------------------------------------------------------------------------------------------- documented functions


def test_dot_general_of_the_document() -> None:
    lhs, rhs = torch.tensor([[1.0, 2, 3], [4, 5, 6]]), torch.tensor([[1.0, 1, 1], [2, 2, 2]])
    numbers = ops.DotDimensionNumbers((1,), (1,))
    assert ops.DotGeneral(lhs, rhs, numbers).tolist() == [[6, 12], [15, 30]]
    batched = torch.arange(8.0).reshape(2, 2, 2)
    identities = torch.eye(2).expand(2, 2, 2).contiguous()
    numbers = ops.DotDimensionNumbers((2,), (1,), (0,), (0,))
    assert torch.equal(ops.DotGeneral(batched, identities, numbers), batched)


DOTS = [("f32[3]", "f32[3]", "f32[]"), ("f32[2,3]", "f32[3]", "f32[2]"), ("f32[2,3]", "f32[3,4]", "f32[2,4]"),
        ("f32[2,3,5]", "f32[3,4]", "f32[2,5,4]")]


@pytest.mark.parametrize(("lhs", "rhs", "result"), DOTS)
def test_dot_of_the_document(lhs: str, rhs: str, result: str) -> None:
    builder = xla_torch.XlaBuilder("dot")
    operands = [builder.parameter(k, xla_torch.Shape.parse(s)) for k, s in enumerate((lhs, rhs))]
    assert str(ops.Dot(*operands).shape) == result


def test_preferred_element_type() -> None:
    eights = torch.full((3,), 100, dtype=torch.int8)
    assert ops.Dot(eights, eights, preferred_element_type=S32).item() == 30000
    halves = torch.tensor([1.0, 2.0], dtype=torch.bfloat16)
    assert ops.Dot(halves, halves, preferred_element_type=F32).dtype is torch.float32


# --------------------------------------------------------------------------------------------- refusals

REFUSED = [
    ("f32[2,3,5]", "f32[2,4,6]", ((2,), (1,), (0,), (0,)), "contracting dimensions differ"),
    ("f32[2,3,5]", "f32[3,5,6]", ((2,), (1,), (0,), (0,)), "batch dimensions differ"),
    ("f32[2,3]", "f32[3,4]", ((2,), (0,), (), ()), "a lhs dimension number is out of range"),
    ("f32[2,3]", "f32[3,4]", ((1,), (-1,), (), ()), "a rhs dimension number is out of range"),
    ("f32[3,3]", "f32[3,3]", ((1,), (0,), (1,), (1,)), "a lhs dimension number is not unique"),
    ("f32[3,3]", "f32[3,3]", ((0, 1), (0,), (), ()), "lhs and rhs have different numbers of contracting dimensions"),
    ("(f32[3])", "f32[3,3]", ((), (), (), ()), "operand 0 is not an array"),
]


@pytest.mark.parametrize(("lhs", "rhs", "numbers", "what"), REFUSED)
def test_dot_refuses(lhs: str, rhs: str, numbers: tuple[tuple[int, ...], ...], what: str) -> None:
    builder = xla_torch.XlaBuilder("refused")
    operands = [builder.parameter(k, xla_torch.Shape.parse(s)) for k, s in enumerate((lhs, rhs))]
    with pytest.raises(InvalidArgument, match=what):
        ops.DotGeneral(*operands, ops.DotDimensionNumbers(*numbers))


def test_the_message_of_the_design() -> None:
    text = one("f32[2,3,6] dot(p0, p1), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, "
               "rhs_contracting_dims={1}, metadata={op_name=\"jit(loss)/dense_1\"}", ["f32[2,3,5]", "f32[2,4,6]"])
    with pytest.raises(InvalidArgument) as raised:
        xla_torch.parse_hlo(text)
    message = str(raised.value)
    for part in ("contracting dimensions differ", "got       lhs f32[2,3,5] dimension 2 (5), rhs f32[2,4,6] dimension 1 (4)",
                 "expected  equal sizes", "jit(loss)/dense_1"):
        assert part in message


@needs_xla
@pytest.mark.parametrize("opcode", ["dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
                                    "convolution(p0, p1), dim_labels=bf_io->bf"])
@pytest.mark.parametrize(("result", "operand"), [
    ("s8", "s32"), ("u8", "s32"), ("f32", "s32"), ("s8", "f32"), ("u32", "f32"), ("s32", "f32"), ("f32", "c64"), ("f64", "c64"),
    ("c64", "f32"), ("bf16", "f32")])
def test_any_result_type_is_preferred(opcode: str, result: str, operand: str) -> None:
    """Of a wider sum of products: integers wrap, floats saturate, complex numbers lose their imaginary part."""
    arrays = [np.array(v).astype(operand.replace("c64", "complex64").replace("s32", "int32").replace("f32", "float32"))
              for v in ([[100.5, 7], [-300, 2]], [[5, -9], [11, 3.25]])]
    if operand == "c64":
        arrays[0] += np.array(1j, np.complex64)
    assert_agrees(f"{result}[2,2] {opcode}", *[f"{operand}[2,2]"] * 2, arrays=arrays)


RAGGED_REFUSED = [
    ("f32[4,2]", "f32[2,2,3]", "s32[2]", (), (0,), "exactly one ragged dimension"),
    ("f32[4,2]", "f32[2,2,3]", "s32[2]", (5,), (0,), "the ragged dimension is out of range"),
    ("f32[4,2]", "f32[2,2,3]", "f32[2]", (0,), (0,), "group sizes are not integers"),
    ("f32[4,2]", "f32[2,2,3]", "s32[2]", (0,), (), "wrong number of group dimensions"),
    ("f32[4,2]", "f32[2,2,3]", "s32[2]", (0,), (1,), "batch or contracting dimension"),
    ("f32[4,2]", "f32[3,2,3]", "s32[2]", (0,), (0,), "another size than the groups"),
    ("f32[4,2]", "f32[2,2,3]", "s32[1,1,2]", (0,), (0,), "wrong number of dimensions"),
]


@pytest.mark.parametrize(("lhs", "rhs", "sizes", "ragged", "group", "what"), RAGGED_REFUSED)
def test_ragged_dot_refuses(lhs: str, rhs: str, sizes: str, ragged: tuple[int, ...], group: tuple[int, ...], what: str) -> None:
    builder = xla_torch.XlaBuilder("refused")
    operands = [builder.parameter(k, xla_torch.Shape.parse(s)) for k, s in enumerate((lhs, rhs, sizes))]
    numbers = ops.RaggedDotDimensionNumbers(ops.DotDimensionNumbers((1,), (1,)), ragged, group)
    with pytest.raises(InvalidArgument, match=what):
        ops.RaggedDot(*operands, numbers)


SCALES_REFUSED = [("f32[3]", "another rank"), ("f32[3,3]", "does not divide"), ("s8[3,8]", "not floating")]


@pytest.mark.parametrize(("scale", "what"), SCALES_REFUSED)
def test_scaled_dot_refuses(scale: str, what: str) -> None:
    builder = xla_torch.XlaBuilder("refused")
    shapes = ("f32[3,8]", scale, "f32[8,5]", "f32[8,5]")
    operands = [builder.parameter(k, xla_torch.Shape.parse(s)) for k, s in enumerate(shapes)]
    with pytest.raises(InvalidArgument, match=what):
        ops.ScaledDot(*operands, ops.DotDimensionNumbers((1,), (0,)))
