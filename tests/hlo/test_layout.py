"""Arrays in their physical buffers: orders, tiles over tiles, padding. The documented examples, and every element's place."""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

import xla_torch
from xla_torch import Layout, Shape, Tile, pack, unpack
from xla_torch.errors import InvalidArgument, UnsupportedError
from xla_torch.storage.dtypes import torch_dtype
from xla_torch.types import S32

# --------------------------------------------------------------------------------------------- documented examples
# hlo/SPEC.md, Tiling. An array counts 0, 1, 2, ... in row-major order; x stands for padding, filled with -1.

BUFFERS = [
    ("s32[]", "0"),
    ("s32[2,3]", "0 1 2 3 4 5"),
    ("s32[2,3]{1,0}", "0 1 2 3 4 5"),  # a b c d e f
    ("s32[2,3]{0,1}", "0 3 1 4 2 5"),  # a d b e c f
    ("s32[2,1,3]{0,2,1}", "0 3 1 4 2 5"),
    ("s32[5]{0:L(4)}", "0 1 2 3 4 x x x"),
    ("s32[4]{0:L(4)}", "0 1 2 3"),
    ("s32[3,5]{1,0:T(2,2)}", "0 1 5 6  2 3 7 8  4 x 9 x  10 11 x x  12 13 x x  14 x x x"),
    ("s32[3,5]{0,1:T(2,2)}", "0 5 1 6  10 x 11 x  2 7 3 8  12 x 13 x  4 9 x x  14 x x x"),
    ("s32[5]{0:T(2,4)}", "0 1 2 3 x x x x  4 x x x x x x x"),  # a rank-1 array in tiles of rank 2 is one row
    ("s32[4,8]{1,0:T(2,4)(2,1)}",  # pairs of rows interleave
     "0 8 1 9 2 10 3 11  4 12 5 13 6 14 7 15  16 24 17 25 18 26 19 27  20 28 21 29 22 30 23 31"),
    ("s32[2,3]{1,0:T(*,4)}", "0 1 2 3 4 5 x x"),
    ("s32[2,2,3]{2,1,0:T(*,2,2)}", "0 1 3 4  2 x 5 x  6 7 9 10  8 x 11 x"),
    ("s32[3]{0:T(2)L(8)E(4)S(1)}", "0 1 2 x x x x x"),
    ("s32[3]{0:T(2)(4)}", "0 1 x x  2 x x x"),  # the second level is longer than the first
    ("s32[0,3]{1,0:T(2,2)}", ""),
]


def expected(text: str) -> list[int]:
    return [-1 if word == "x" else int(word) for word in text.split()]


def counted(shape: Shape) -> torch.Tensor:
    return torch.arange(shape.element_count, dtype=torch.int32).reshape(shape.dimensions)


@pytest.mark.parametrize(("text", "buffer"), BUFFERS)
def test_buffers(text: str, buffer: str) -> None:
    shape = Shape.parse(text)
    packed = pack(counted(shape), shape, -1)
    assert packed.tolist() == expected(buffer)
    assert torch.equal(unpack(packed, shape), counted(shape))


@pytest.mark.parametrize(("text", "index", "place"), [
    ("s32[3,5]{1,0:T(2,2)}", (2, 3), 17), ("s32[3,5]{1,0:T(2,2)}", (2, 4), 20), ("s32[4,8]{1,0:T(2,4)(2,1)}", (1, 2), 5),
    ("s32[2,3]{1,0}", (1, 2), 5), ("s32[2,3]{0,1}", (0, 2), 4),
])
def test_places_of_the_document(text: str, index: tuple[int, ...], place: int) -> None:
    shape = Shape.parse(text)
    assert pack(counted(shape), shape, -1)[place] == counted(shape)[index]


def test_combined_dimensions_of_the_document() -> None:
    """F32[2,7,8,11,10] with (*,*,2,*,3) is F32[112,110] with (2,3)."""
    shape, plain = Shape.parse("s32[2,7,8,11,10]{4,3,2,1,0:T(*,*,2,*,3)}"), Shape.parse("s32[112,110]{1,0:T(2,3)}")
    assert torch.equal(pack(counted(shape), shape), pack(counted(plain), plain))


def test_the_tiles_of_a_tpu() -> None:
    """bf16 in (8,128)(2,1): two rows interleave, so that two values of 16 bits form a word of 32."""
    shape = Shape.parse("bf16[8,200]{1,0:T(8,128)(2,1)}")
    x = torch.arange(1600).reshape(8, 200).to(torch.bfloat16)
    buffer = pack(x, shape)
    assert buffer.shape == (shape.buffer_size,) == (2048,)
    assert torch.equal(buffer[:4], torch.stack([x[0, 0], x[1, 0], x[0, 1], x[1, 1]]))
    assert torch.equal(unpack(buffer, shape), x)


# --------------------------------------------------------------------------------------------- every element's place

SIZES = st.lists(st.integers(0, 5), max_size=4)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    dims = draw(SIZES)
    tiles = [Tile((*(draw(st.sampled_from([-1, 1, 2, 3])) for _ in range(draw(st.integers(0, 3)))), draw(st.integers(1, 4))))
             for _ in range(draw(st.integers(0, 2)))]
    order = draw(st.permutations(range(len(dims))))
    return Shape.array(S32, dims, layout=Layout(tuple(order), tuple(tiles), draw(st.sampled_from([1, 1, 2, 8]))))


@settings(max_examples=150, deadline=None)
@given(shapes())
def test_every_element_stands_at_its_linear_index(shape: Shape) -> None:
    x = counted(shape)
    buffer = pack(x, shape, -1)
    places = [shape.linear_index(index) for index in itertools.product(*map(range, shape.dimensions))]
    assert buffer.shape == (shape.buffer_size,)
    assert buffer[places].tolist() == list(range(shape.element_count))
    assert int((buffer == -1).sum()) == shape.buffer_size - shape.element_count
    assert torch.equal(unpack(buffer, shape), x)


@pytest.mark.parametrize("text", ["pred", "s4", "u4", "u8", "u16", "u32", "u64", "f16", "bf16", "f64", "f8e5m2", "f8e4m3",
                                  "f8e4m3fnuz", "f4e2m1fn", "c64"])
def test_element_types(text: str) -> None:
    """Each in torch's dtype for it, sub-byte types with one entry for each element."""
    shape = Shape.parse(text + "[3,3]{0,1:T(2,2)}")
    dtype = torch_dtype(shape.element_type)
    assert dtype is not None
    x = torch.tensor([[0, 1, 1], [1, 0, 1], [1, 1, 0]]).to(dtype)
    buffer = pack(x, shape, 1)
    assert buffer.dtype == dtype
    assert buffer.to(torch.complex64).real.tolist() == [0, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1]
    assert unpack(buffer, shape).tolist() == x.tolist()


def test_a_dynamic_dimension_is_padded_to_its_bound() -> None:
    shape = Shape.parse("s32[<=4,2]{0,1}")
    buffer = pack(torch.tensor([[1, 2], [3, 4]], dtype=torch.int32), shape)
    assert buffer.tolist() == [1, 3, 0, 0, 2, 4, 0, 0]
    assert unpack(buffer, shape).tolist() == [[1, 2], [3, 4], [0, 0], [0, 0]]


def test_gradients_flow_through() -> None:
    shape = Shape.parse("f32[3,3]{0,1:T(2,2)}")
    x = torch.ones(3, 3, requires_grad=True)
    weights = torch.arange(16.0)
    (pack(x, shape) * weights).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, unpack(weights, shape))


@pytest.mark.parametrize("text", ["f32[64,48]{0,1:T(8,128)}", "f32[8,8]"])
def test_the_tensor_is_not_changed(text: str) -> None:
    shape = Shape.parse(text)
    x = torch.rand(shape.dimensions)
    before = x.clone()
    unpack(pack(x, shape) + 1, shape).add_(1)
    assert torch.equal(x, before)


# --------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(("text", "tensor", "what"), [
    ("s32[3]", torch.zeros(4, dtype=torch.int32), "the tensor does not fit the shape"),
    ("s32[3]", torch.zeros(3, 1, dtype=torch.int32), "the tensor does not fit the shape"),
    ("s32[3]", torch.zeros(3), "the tensor does not fit the shape"),
    ("s32[<=3]", torch.zeros(4, dtype=torch.int32), "the tensor does not fit the shape"),
    ("s32[?]", torch.zeros(4, dtype=torch.int32), "only arrays of known size"),
    ("(s32[3])", torch.zeros(3, dtype=torch.int32), "only arrays of known size"),
])
def test_refusals(text: str, tensor: torch.Tensor, what: str) -> None:
    with pytest.raises(InvalidArgument, match=what):
        pack(tensor, Shape.parse(text))


@pytest.mark.parametrize("layout", ["D(C)", "M(8)", "P(s32[4])"])
def test_layouts_that_are_not_dense_are_refused(layout: str) -> None:
    with pytest.raises(UnsupportedError, match="only dense layouts"):
        xla_torch.pack(torch.zeros(3, dtype=torch.int32), Shape.parse(f"s32[3]{{0:{layout}}}"))


@pytest.mark.parametrize("buffer", [torch.zeros(15), torch.zeros(4, 4), torch.zeros(16, dtype=torch.float64)])
def test_a_buffer_must_fit(buffer: torch.Tensor) -> None:
    with pytest.raises(InvalidArgument, match=r"expected  torch.float32\[16\]"):
        xla_torch.unpack(buffer, Shape.parse("f32[3,3]{1,0:T(2,2)}"))
