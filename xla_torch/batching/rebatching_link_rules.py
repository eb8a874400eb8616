"""Along which dimensions each op treats examples alike (see `links` for what a rule gives).

An op without rule cannot have a batch of another size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..analysis.reducers import REPEATABLE, reducer_kinds
from ..core.shape import Shape, parse_shape
from ..hlo.attributes import ConvolutionDimensionNumbers, WindowDimension
from ..hlo.custom_calls import target_of
from ..hlo.ir import Instruction
from ..hlo.schema import Trait
from .rebatching_links import LINKS, Links, Place, Reshaped

rule = LINKS.rule

Linked = Mapping[int, int]
_NONE: Linked = {}


def _same(dimensions: Iterable[int]) -> Linked:
    return {d: d for d in dimensions}


def _dims(inst: Instruction, number: int = 0) -> tuple[int, ...]:
    return inst.operands[number].shape.dimensions


# ------------------------------------------------------------------------------------------------ element by element


@LINKS.by_trait(Trait.ELEMENTWISE)
def _elementwise(inst: Instruction) -> Links:
    """A scalar beside arrays is for all of their elements."""
    return Links(tuple(_same(range(o.shape.rank)) for o in inst.operands))


@rule("copy", "opt-barrier", "domain", "map", "all-reduce", "collective-permute", "collective-broadcast")
def _every_dimension(inst: Instruction) -> Links:
    return Links(tuple(_same(range(o.shape.rank)) for o in inst.operands))


@rule("batch-norm-inference")
def _normalised(inst: Instruction) -> Links:
    of_feature = {0: inst.attributes["feature_index"]}
    return Links((_same(range(inst.shape.rank)), *(of_feature for _ in inst.operands[1:])))


@rule("add-dependency")
def _behind_token(inst: Instruction) -> Links:
    return Links((_same(range(inst.shape.rank)), _NONE))


@rule("bitcast-convert")
def _bits(inst: Instruction) -> Links:
    return Links((_same(range(min(inst.shape.rank, inst.operands[0].shape.rank))),), "takes elements apart")


# ------------------------------------------------------------------------------------------------ data movement


@rule("rng-bit-generator", "rng")
def _drawn(inst: Instruction) -> Links:
    return Links((_NONE,) * len(inst.operands), "draws numbers for the whole batch, and each example would get others")


@rule("iota")
def _iota(inst: Instruction) -> Links:
    return Links((), "numbers the examples", frozenset(range(inst.shape.rank)) - {inst.attributes["iota_dimension"]})


@rule("broadcast")
def _broadcast(inst: Instruction) -> Links:
    there = inst.attributes.get("dimensions", ())
    return Links((dict(enumerate(there)),), free=frozenset(range(inst.shape.rank)) - set(there))


@rule("reshape", "bitcast")
def _reshape(inst: Instruction) -> Links:
    before, after = _dims(inst), inst.shape.dimensions
    if inst.operands[0].shape.element_type.bits != inst.shape.element_type.bits:
        return Links((_NONE,), "takes elements apart")
    reason = "splits the batch up"
    changed = {"inferred_dimension": -1} if "inferred_dimension" in inst.attributes else {}
    return Reshaped((_NONE,), reason, changed=lambda place, size: changed, before=before, after=after)


@rule("transpose")
def _transpose(inst: Instruction) -> Links:
    return Links(({own: there for there, own in enumerate(inst.attributes["dimensions"])},))


def _but(inst: Instruction, reason: str, dimensions: Sequence[int]) -> Links:
    kept = _same(d for d in range(inst.operands[0].shape.rank) if d not in dimensions)
    return Links((kept,) * len(inst.operands), reason)


@rule("reverse")
def _reverse(inst: Instruction) -> Links:
    return _but(inst, "reverses the batch", inst.attributes["dimensions"])


@rule("concatenate")
def _concatenate(inst: Instruction) -> Links:
    return _but(inst, "puts something beside the batch", inst.attributes["dimensions"])


@rule("sort")
def _sort(inst: Instruction) -> Links:
    return _but(inst, "sorts the batch", inst.attributes["dimensions"])


@rule("all-gather", "reduce-scatter")
def _exchanged(inst: Instruction) -> Links:
    return _but(inst, "exchanges parts of the batch", inst.attributes["dimensions"])


@rule("topk")
def _topk(inst: Instruction) -> Links:
    return _but(inst, "chooses among the batch", [_rank(inst) - 1])


def _rank(inst: Instruction) -> int:
    return inst.operands[0].shape.rank


@rule("slice")
def _slice(inst: Instruction) -> Links:
    bounds = inst.attributes["slice"]
    whole = [d for d, n in enumerate(_dims(inst)) if tuple(bounds[d]) == (0, n, 1)]

    def changed(place: Place, size: int) -> dict[str, Any]:
        limits = place.resized(inst.shape.dimensions, size)
        return {"slice": tuple((0, limits[d], 1) if d == place.dimension else b for d, b in enumerate(bounds))}

    return Links((_same(whole),), "takes a part of the batch", changed=changed)


@rule("pad")
def _pad(inst: Instruction) -> Links:
    untouched = [d for d, padding in enumerate(inst.attributes["padding"]) if tuple(padding) == (0, 0, 0)]
    return Links((_same(untouched), _NONE), "pads the batch")


@rule("get-dimension-size")
def _size(inst: Instruction) -> Links:
    """It asks for a size, and gets the new one."""
    return Links(({d: -1 - d for d in range(_rank(inst))},))


# ------------------------------------------------------------------------------------------------ reductions and windows


@rule("reduce")
def _reduce(inst: Instruction) -> Links:
    gone, count = set(inst.attributes["dimensions"]), len(inst.operands) // 2
    kept = [d for d in range(_rank(inst)) if d not in gone]
    linked = {own: there for there, own in enumerate(kept)}
    if set(reducer_kinds(inst.attributes["to_apply"])) <= REPEATABLE:  # so no constant behind it can stand for the size
        linked |= {d: -1 - d for d in gone}
    return Links((linked,) * count + (_NONE,) * count,
                 "reduces over the batch, whose size may then stand in a constant (of a mean it does)")


def _windowed(inst: Instruction, arrays: int) -> Links:
    window = inst.attributes.get("window", ())
    alone = [d for d, w in enumerate(window) if w == WindowDimension(1)] if window else range(_rank(inst))
    return Links((_same(alone),) * arrays + (_NONE,) * (len(inst.operands) - arrays), "has a window over the batch")


@rule("reduce-window")
def _reduce_window(inst: Instruction) -> Links:
    return _windowed(inst, len(inst.operands) // 2)


@rule("select-and-scatter")
def _select_and_scatter(inst: Instruction) -> Links:
    return _windowed(inst, 2)


# ------------------------------------------------------------------------------------------------ products, linear algebra


@rule("dot")
def _dot(inst: Instruction) -> Links:
    a = inst.attributes
    batch = [tuple(a.get(f"{side}_batch_dims", ())) for side in ("lhs", "rhs")]
    summed = [tuple(a.get(f"{side}_contracting_dims", ())) for side in ("lhs", "rhs")]
    linked: list[dict[int, int]] = []
    next_free = len(batch[0])
    for side in (0, 1):
        own = {d: there for there, d in enumerate(batch[side])}
        for d in range(inst.operands[side].shape.rank):
            if d not in batch[side] and d not in summed[side]:
                own[d] = next_free
                next_free += 1
        linked.append(own)
    return Links(tuple(linked), "sums over the batch")


@dataclasses.dataclass(frozen=True, slots=True)
class _Grouped(Links):
    """A convolution in groups of features: the batch may be the slower part of all features, whose numbers differ."""

    features: tuple[int, int, int] = (0, 0, 0)
    """The dimensions of features of lhs, rhs and the result."""
    sizes: tuple[int, int, int] = (1, 1, 1)
    groups: int = 1

    def forward(self, number: int, place: Place, batch: int) -> Place | None:
        found = Links.forward(self, number, place, batch)
        if found is None or place.dimension != self.features[number]:
            return found
        return found._replace(inner=self.sizes[2] // batch) if place.outer == 1 and self.groups % batch == 0 else None

    def backward(self, place: Place, batch: int) -> list[Place | None] | None:
        found = Links.backward(self, place, batch)
        if found is None or place.dimension != self.features[2]:
            return found
        fits = place.outer == 1 and self.groups % batch == 0
        return [Place(d, 1, n // batch) for d, n in zip(self.features[:2], self.sizes[:2], strict=True)] if fits else None


@rule("convolution")
def _convolution(inst: Instruction) -> Links:
    """A kernel for each example makes groups of features: the batch is then the slower part of the features."""
    numbers: ConvolutionDimensionNumbers = inst.attributes["dim_labels"]
    groups = inst.attributes.get("feature_group_count", 1)
    if inst.attributes.get("batch_group_count", 1) != 1:
        return Links((_NONE, _NONE), "has groups of the batch")
    features = numbers.input_feature_dimension, numbers.kernel_output_feature_dimension, numbers.output_feature_dimension
    lhs, rhs = {numbers.input_batch_dimension: numbers.output_batch_dimension}, {features[1]: features[2]}
    reason = "sums over the batch or over places in it"
    if groups == 1:
        return Links((lhs, rhs), reason)
    lhs[features[0]] = features[2]
    sizes = _dims(inst)[features[0]], _dims(inst, 1)[features[1]], inst.shape.dimensions[features[2]]

    def changed(place: Place, size: int) -> dict[str, Any]:
        batch = sizes[2] // place.inner
        return {"feature_group_count": groups // batch * size} if place.dimension == features[2] else {}

    return _Grouped((lhs, rhs), reason, changed=changed, features=features, sizes=sizes, groups=groups)


@rule("cholesky", "triangular-solve")
def _matrices(inst: Instruction) -> Links:
    return Links((_same(range(_rank(inst) - 2)),) * len(inst.operands), "takes the batch for a dimension of its matrices")


@rule("custom-call")
def _lapack(inst: Instruction) -> Links:
    """LAPACK's routines, as JAX calls them, work on each matrix of a batch, which is all dimensions that all arrays have (one of
    the results is a number for each matrix). Their older form has the batch's size among the operands."""
    target = target_of(inst)
    if not (target.startswith("lapack_") and target.endswith("_ffi")):
        return Links((_NONE,) * len(inst.operands), f"calls {target}, of which it is not known that it treats examples alike")
    shapes = [*inst.shape.leaves(), *(o.shape for o in inst.operands)]
    batch = min(s.rank for s in shapes)
    given = inst.attributes.get("operand_layout_constraints", "")

    def changed(place: Place, size: int) -> dict[str, Any]:
        laid = parse_shape(f"({given[1:-1]})").tuple_shapes if given else ()
        sized = [Shape.array(s.element_type, place.resized(s.dimensions, size), layout=s.layout) for s in laid]
        return {"operand_layout_constraints": "{" + ", ".join(s.to_text() for s in sized) + "}"} if given else {}

    return Links((_same(range(batch)),) * len(inst.operands), "takes the batch for a dimension of its matrices", changed=changed)


@rule("fft")
def _fft(inst: Instruction) -> Links:
    return Links((_same(range(_rank(inst) - len(inst.attributes["fft_length"]))),), "transforms along the batch")


# ------------------------------------------------------------------------------------------------ places in arrays


@rule("dynamic-slice")
def _dynamic_slice(inst: Instruction) -> Links:
    sizes = tuple(inst.attributes["dynamic_slice_sizes"])
    whole = [d for d, n in enumerate(_dims(inst)) if sizes[d] == n]
    return Links((_same(whole), *(_NONE for _ in inst.operands[1:])), "takes a part of the batch",
                 changed=lambda place, size: {"dynamic_slice_sizes": place.resized(sizes, size)})


@rule("dynamic-update-slice")
def _dynamic_update_slice(inst: Instruction) -> Links:
    whole = _same(d for d, (n, m) in enumerate(zip(_dims(inst), _dims(inst, 1), strict=True)) if n == m)
    return Links((whole, whole, *(_NONE for _ in inst.operands[2:])), "changes a part of the batch")


@rule("gather")
def _gather(inst: Instruction) -> Links:
    a, sizes = inst.attributes, tuple(inst.attributes["slice_sizes"])
    own, theirs = tuple(a.get("operand_batching_dims", ())), tuple(a.get("start_indices_batching_dims", ()))
    offsets = tuple(a["offset_dims"])
    among = [d for d in range(inst.shape.rank) if d not in offsets]
    of_indices = dict(zip((d for d in range(inst.operands[1].shape.rank) if d != a["index_vector_dim"]), among, strict=True))
    windows = [d for d in range(_rank(inst)) if d not in a["collapsed_slice_dims"] and d not in own]
    of_operand = {d: there for d, there in zip(windows, offsets, strict=True) if sizes[d] == _dims(inst)[d]}
    origin = {there: d for d, there in of_operand.items()}
    of_operand |= {d: of_indices[b] for d, b in zip(own, theirs, strict=True)}

    def changed(place: Place, size: int) -> dict[str, Any]:
        d = origin.get(place.dimension)
        return {} if d is None else {"slice_sizes": place._replace(dimension=d).resized(sizes, size)}

    return Links((of_operand, of_indices), "looks examples up by their numbers", changed=changed)


@rule("scatter")
def _scatter(inst: Instruction) -> Links:
    a, count = inst.attributes, len(inst.operands) // 2
    own, theirs = tuple(a.get("input_batching_dims", ())), tuple(a.get("scatter_indices_batching_dims", ()))
    updates, indices = inst.operands[count + 1].shape, inst.operands[count].shape
    windows = [d for d in range(_rank(inst)) if d not in a["inserted_window_dims"] and d not in own]
    window_dims = tuple(a["update_window_dims"])
    of_updates = {u: d for u, d in zip(window_dims, windows, strict=True) if updates.dimensions[u] == _dims(inst)[d]}
    of_operand = _same(of_updates.values())
    among = [u for u in range(updates.rank) if u not in window_dims]
    in_updates = dict(zip((d for d in range(indices.rank) if d != a["index_vector_dim"]), among, strict=True))
    of_updates |= {in_updates[b]: d for d, b in zip(own, theirs, strict=True)}
    of_indices = {b: d for d, b in zip(own, theirs, strict=True)}
    return Links(({**of_operand, **_same(own)},) * count + (of_indices,) + (of_updates,) * count,
                 "writes what comes from several examples, or to examples by their numbers")
