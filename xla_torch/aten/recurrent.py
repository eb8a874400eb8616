"""Recurrent layers: one loop over the steps for each layer and direction. Dropout between layers is left to torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .. import functions as ops
from ..functions.hlo_builder import XlaOp
from .contraction import product
from .control import scan
from .operator_rules import rule

State = list[XlaOp]
Step = Callable[[XlaOp, State, XlaOp], State]
"""From what the inputs give, the state and what the last output gives (both of all gates) to the next state, whose first
part is the output."""


@rule("lstm.input")
def _lstm(input: XlaOp, hx: list[XlaOp], params: list[XlaOp], has_biases: bool, num_layers: int, dropout: float, train: bool,
          bidirectional: bool, batch_first: bool) -> list[XlaOp]:
    layers = _Layers(input, params, has_biases, bidirectional, batch_first, 4, projects=hx[0].shape != hx[1].shape)
    return layers.run(hx, _lstm_step)


@rule("gru.input")
def _gru(input: XlaOp, hx: XlaOp, params: list[XlaOp], has_biases: bool, num_layers: int, dropout: float, train: bool,
         bidirectional: bool, batch_first: bool) -> list[XlaOp]:
    return _Layers(input, params, has_biases, bidirectional, batch_first, 3).run([hx], _gru_step)


@rule("rnn_tanh.input")
def _rnn_tanh(input: XlaOp, hx: XlaOp, params: list[XlaOp], has_biases: bool, num_layers: int, dropout: float, train: bool,
              bidirectional: bool, batch_first: bool) -> list[XlaOp]:
    return _Layers(input, params, has_biases, bidirectional, batch_first, 1).run([hx], lambda x, h, own: [ops.Tanh(x + own)])


@rule("rnn_relu.input")
def _rnn_relu(input: XlaOp, hx: XlaOp, params: list[XlaOp], has_biases: bool, num_layers: int, dropout: float, train: bool,
              bidirectional: bool, batch_first: bool) -> list[XlaOp]:
    return _Layers(input, params, has_biases, bidirectional, batch_first, 1).run([hx], lambda x, h, own: [ops.Max(x + own, 0.0)])


def _lstm_step(x: XlaOp, state: State, own: XlaOp) -> State:
    enter, forget, new, leave = _gates(x + own, 4)
    cell = ops.Logistic(forget) * state[1] + ops.Logistic(enter) * ops.Tanh(new)
    return [ops.Logistic(leave) * ops.Tanh(cell), cell]


def _gru_step(x: XlaOp, state: State, own: XlaOp) -> State:
    (reset, update, new), (own_reset, own_update, own_new) = _gates(x, 3), _gates(own, 3)
    candidate = ops.Tanh(new + ops.Logistic(reset + own_reset) * own_new)
    return [(state[0] - candidate) * ops.Logistic(update + own_update) + candidate]


def _gates(x: XlaOp, count: int) -> list[XlaOp]:
    size = x.shape.dimensions[1] // count
    return [ops.SliceInDim(x, k * size, (k + 1) * size, 1, 1) for k in range(count)]


class _Layers:
    """The layers of a network, whose weights come as torch has them in `params`."""

    def __init__(self, x: XlaOp, params: Sequence[XlaOp], has_biases: bool, bidirectional: bool, batch_first: bool, gates: int,
                 projects: bool = False):
        self.batch_first, self.directions, self.gates, self.projects = batch_first, 1 + bidirectional, gates, projects
        self.x = ops.Transpose(x, [1, 0, 2]) if batch_first else x
        each = 2 + 2 * has_biases + projects
        self.has_biases, self.weights = has_biases, [params[k:k + each] for k in range(0, len(params), each)]

    def run(self, states: Sequence[XlaOp], step: Step) -> list[XlaOp]:
        """The outputs of the last layer, and each of the states after the last step."""
        x, last = self.x, list[State]()
        for layer in range(0, len(self.weights), self.directions):
            outputs = []
            for number in range(layer, layer + self.directions):
                given = [ops.Reshape(ops.SliceInDim(s, number, number + 1, 1, 0), s.shape.dimensions[1:]) for s in states]
                output, state = self._direction(x, self.weights[number], given, step, backwards=number > layer)
                outputs.append(output)
                last.append(state)
            x = outputs[0] if self.directions == 1 else ops.ConcatInDim(x.builder, outputs, 2)
        after = [ops.ConcatInDim(x.builder, [ops.Reshape(s[k], [1, *s[k].shape.dimensions]) for s in last], 0)
                 for k in range(len(states))]
        return [ops.Transpose(x, [1, 0, 2]) if self.batch_first else x, *after]

    def _direction(self, x: XlaOp, weights: Sequence[XlaOp], state: State, step: Step, backwards: bool) -> tuple[XlaOp, State]:
        of_input, of_output, *rest = weights
        biases, projection = rest[:2] if self.has_biases else (), rest[-1:] if self.projects else ()
        given = _times(x, of_input)
        if biases:
            # The candidate of a GRU has the two biases in two places.
            given = given + ops.BroadcastInDim(biases[0], given.shape.dimensions, [2])
        if backwards:
            given = ops.Rev(given, [0])

        def one(_: object, values: Sequence[XlaOp]) -> list[XlaOp]:
            output, *others, x_now, to_gates, bias, out = (
                *values[:len(state)], values[len(state)], values[len(state) + 1],
                values[len(state) + 2] if biases else None, values[-1] if projection else None)
            own = _times(output, to_gates)
            if bias is not None:
                own = own + ops.BroadcastInDim(bias, own.shape.dimensions, [1])
            after = step(x_now, [output, *others], own)
            if out is not None:
                after = [_times(after[0], out), *after[1:]]
            return [*after, after[0]]

        stacked = x.shape.with_dimensions([x.shape.dimensions[0], *state[0].shape.dimensions])
        *after, outputs = scan(one, state, [given], [of_output, *biases[1:], *projection], [*(s.shape for s in state), stacked])
        return ops.Rev(outputs, [0]) if backwards else outputs, after


def _times(x: XlaOp, weight: XlaOp) -> XlaOp:
    """The product of the last dimension with the last one of a weight."""
    return product(x, ops.Transpose(weight, [1, 0]))
