"""Rules: tokens, infeed and outfeed, sending and receiving, random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.shape import Shape
from ..core.types import U32
from ..functions.hlo_builder import XlaOp
from ..mlir.ir import Operation
from ..opcodes import control, random, token
from .attributes import boolean, fields, integer, text, word
from .reading_rules import Results, rule
from .scope import Scope

# ------------------------------------------------------------------------------------------------------------------- tokens


@rule("stablehlo.create_token")
def create_token(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return scope.add(token.after_all, [])


@rule("stablehlo.after_all")
def after_all(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return scope.add(token.after_all, operands)


def _data(scope: Scope, operation: Operation) -> list[Shape]:
    """The shapes of all results but the token."""
    return [scope.declared(operation, k) for k in range(len(operation.results) - 1)]


@rule("stablehlo.infeed")
def infeed(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    data = _data(scope, operation)
    config = text(operation, "infeed_config", "")
    fed = scope.add(token.infeed, operands, {"infeed_config": config} if config else {},
                    Shape.tuple([Shape.tuple(data), Shape.token()]))
    whole, after = scope.parts(fed, 2)
    return [*scope.parts(whole, len(data)), after]


@rule("stablehlo.outfeed")
def outfeed(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    *data, before = operands
    config = text(operation, "outfeed_config", "")
    whole = scope.add(control.tuple_, data)
    return scope.add(token.outfeed, [whole, before], {
        "outfeed_shape": whole.shape.to_text(), **({"outfeed_config": config} if config else {})})


def _channel(operation: Operation) -> dict[str, Any]:
    channel: dict[str, Any] = {"channel_id": fields(operation, "channel_handle").get("handle", 0)}
    return channel | ({"is_host_transfer": True} if boolean(operation, "is_host_transfer") else {})


@rule("stablehlo.send")
def send(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    *data, before = operands
    channel = _channel(operation)
    begun = scope.add(token.send, [scope.one(data), before], channel)
    return scope.add(token.send_done, [begun], channel)


@rule("stablehlo.recv")
def recv(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    data, channel = _data(scope, operation), _channel(operation)
    shape = data[0] if len(data) == 1 else Shape.tuple(data)
    begun = scope.add(token.recv, operands, channel, Shape.tuple([shape, Shape(U32), Shape.token()]))
    whole, after = scope.parts(scope.add(token.recv_done, [begun], channel), 2)
    return [*([whole] if len(data) == 1 else scope.parts(whole, len(data))), after]


# ----------------------------------------------------------------------------------------------------------- random numbers


@rule("stablehlo.rng")
def rng(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    low, high, sizes = operands
    shape = scope.declared(operation)
    known = scope.known(sizes)
    if known is not None:
        shape = shape.with_dimensions(known.tolist())
    return scope.add(random.rng, [low, high], {"distribution": f"rng_{word(operation, 'rng_distribution').lower()}"}, shape)


@rule("mhlo.rng_uniform", "mhlo.rng_normal")
def old_rng(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    kind = operation.name.removeprefix("mhlo.")
    return scope.add(random.rng, operands[:2], {"distribution": kind}, scope.declared(operation))


_ALGORITHMS = {"DEFAULT": "rng_default", "THREE_FRY": "rng_three_fry", "PHILOX": "rng_philox"}


@rule("stablehlo.rng_bit_generator")
def rng_bit_generator(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    algorithm = word(operation, "rng_algorithm")
    shape = Shape.tuple([operands[0].shape.without_layout(), scope.declared(operation, 1)])
    made = scope.add(random.rng_bit_generator, operands, {"algorithm": _ALGORITHMS.get(algorithm, algorithm)}, shape)
    return scope.parts(made, 2)


@rule("mhlo.xla.rng_get_and_update_state")
def rng_get_and_update_state(scope: Scope, operation: Operation, operands: Sequence[XlaOp]) -> Results:
    return scope.add(random.rng_get_and_update_state, [], {"delta": integer(operation, "delta")})
