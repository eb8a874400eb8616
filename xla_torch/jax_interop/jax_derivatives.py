"""JAX's own derivatives of a traced function, as programs that run without JAX.

What JAX traced of a function, its jaxpr, still has what its ops do not say: `stop_gradient`, `custom_jvp`, `custom_vjp`. So
`jax.vjp` and `jax.jvp` of it are traced when a derivative is first asked for, and kept as computations. Each of these has its
own jaxpr, so their derivatives are JAX's again, to any order that JAX has.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from ..core.errors import DifferentiationError, InternalError, XlaError
from ..core.forks import Lock
from ..hlo.derivatives import Mask, Pullback, Pushforward, Stored, bringing
from ..hlo.ir import Computation
from .bindings import jax, jax_core
from .jax import Lowered, lowered_program
from .jax_calls import conj
from .jaxprs import equations, function_name, interpreting_kernels

Convert = Callable[[Lowered], Computation]
"""What JAX has lowered to a computation in canonical form."""
T = TypeVar("T")


class JaxDerivatives:
    """The derivatives of the function `name` over flat arrays, of which JAX has made a jaxpr. `convert` reads what JAX lowers.

    A rule may close over values of the function that it is written in. They are gone once there is a jaxpr, as under `jax.jit`.
    So where JAX has no derivative of the jaxpr, the `function` itself is differentiated, if it is given.

    Where JAX has no derivative (that of a while loop, backwards), the ops' rules are as good, unless the function has `rules`
    that they do not know: then DifferentiationError is raised with JAX's reason. Pickled, it has what was traced by then, and
    for so many orders the way back from all results to all arguments. What a pickled one does not have is found by the ops'
    rules, too, or refused.
    """

    _jaxpr: Any
    """None in one that was pickled."""

    def __init__(self, name: str, jaxpr: Any, convert: Convert, orders: int = 1,
                 function: Callable[..., list[Any]] | None = None):
        self.name, self.rules, self._orders, self._function = name, lost_rules(jaxpr), orders, function
        self._jaxpr, self._convert, self._lock = jaxpr, convert, Lock()
        self._pullbacks: dict[tuple[Mask, Mask], Pullback | None] = {}
        self._pushforwards: dict[Mask, Pushforward | None] = {}

    def pullback(self, needed: Mask, demanded: Mask) -> Pullback | None:
        with self._lock:
            key = needed, demanded
            if key not in self._pullbacks and self._jaxpr is not None:
                self._pullbacks[key] = self._traced(lambda: self._pullback(needed, demanded),
                                                    lambda function: self._pullback_at_once(function, needed, demanded))
            if key in self._pullbacks:
                return self._pullbacks[key]
            return self._of_more([w for w in self._pullbacks.values()
                                  if w and _covers(w.needed, needed) and _covers(w.demanded, demanded)])

    def pushforward(self, present: Mask) -> Pushforward | None:
        with self._lock:
            if present not in self._pushforwards and self._jaxpr is not None:
                self._pushforwards[present] = self._traced(
                    lambda: self._pushforward(jax_core.jaxpr_as_fun(self._jaxpr), present),
                    lambda function: self._pushforward(function, present))
            if present in self._pushforwards:
                return self._pushforwards[present]
            return self._of_more([w for w in self._pushforwards.values() if w and _covers(w.present, present)])

    def _traced(self, trace: Callable[[], T], trace_function: Callable[[Callable[..., Any]], T]) -> T | None:
        try:
            try:
                return trace()
            except XlaError:
                raise
            except Exception:
                if self._function is None or not self.rules:
                    raise
                return trace_function(self._function)
        except XlaError:
            raise
        except Exception as error:  # whatever JAX, or a rule of the function's author, raises
            if not self.rules:
                return None
            raise DifferentiationError(
                "JAX has no such derivative of the function", got=f"{type(error).__name__}: {str(error).partition(chr(10))[0]}",
                hint=_INSTEAD.format(", ".join(self.rules))) from error

    def _of_more(self, found: list[T]) -> T | None:
        if found or not self.rules:
            return found[0] if found else None
        raise DifferentiationError(
            "this derivative was not traced before the function was pickled", expected=f"JAX's rules for {', '.join(self.rules)}",
            hint="differentiate it in this way where JAX is installed, then pickle it")

    # ---- tracing

    def _pullback(self, needed: Mask, demanded: Mask) -> Pullback:
        avals, function = self._jaxpr.in_avals, jax_core.jaxpr_as_fun(self._jaxpr)
        trees: list[Any] = []

        def forward(*arguments: Any) -> list[Any]:
            def of(*active: Any) -> tuple[list[Any], list[Any]]:
                results = function(*_merged(needed, active, _chosen(arguments, needed, False)))
                return _chosen(results, demanded), _chosen(results, demanded, False)

            results, back, others = jax.vjp(of, *_chosen(arguments, needed), has_aux=True)
            residuals, tree = jax.tree_util.tree_flatten(back)
            trees.append(tree)
            return [*_merged(demanded, results, others), *residuals]

        whole = self._trace(forward, avals).jaxpr
        residuals = _Residuals(whole.jaxpr, len(demanded))

        def backward(*given: Any) -> list[Any]:
            back = jax.tree_util.tree_unflatten(trees[-1], residuals.put_together(given))
            gradients = back([conj(ct) for ct in given[residuals.count:]])
            return [conj(gradient) for gradient in gradients]

        produce = jax_core.jaxpr_as_fun(whole)
        ahead = self._trace(lambda *arguments: residuals.chosen(produce(*arguments)), avals)
        cotangents = _chosen(self._jaxpr.out_avals, demanded)
        back = self._trace(backward, [*(avals[k] for k in residuals.read), *ahead.jaxpr.out_avals[len(demanded):], *cotangents])
        return Pullback(needed, demanded, tuple(residuals.read), self._computation(ahead), self._computation(back))

    def _pullback_at_once(self, function: Callable[..., Any], needed: Mask, demanded: Mask) -> Pullback:
        """The way back as one program from arguments and cotangents to gradients, which computes what it reads of the way forward
        again."""
        avals = self._jaxpr.in_avals

        def backward(*given: Any) -> list[Any]:
            arguments, cotangents = given[:len(avals)], given[len(avals):]

            def of(*active: Any) -> list[Any]:
                return _chosen(function(*_merged(needed, active, _chosen(arguments, needed, False))), demanded)

            back = jax.vjp(of, *_chosen(arguments, needed))[1]
            return [conj(gradient) for gradient in back([conj(ct) for ct in cotangents])]

        ahead, back = self._trace(function, avals), self._trace(backward, [*avals, *_chosen(self._jaxpr.out_avals, demanded)])
        return Pullback(needed, demanded, tuple(range(len(avals))), self._computation(ahead, function), self._computation(back))

    def _pushforward(self, function: Callable[..., Any], present: Mask) -> Pushforward:
        avals = self._jaxpr.in_avals
        moving = [_is_differentiable(aval) for aval in self._jaxpr.out_avals]

        def program(*given: Any) -> list[Any]:
            arguments, tangents = given[:len(avals)], given[len(avals):]

            def of(*active: Any) -> tuple[list[Any], list[Any]]:
                results = function(*_merged(present, active, _chosen(arguments, present, False)))
                return _chosen(results, moving), _chosen(results, moving, False)

            results, moved, others = jax.jvp(of, tuple(_chosen(arguments, present)), tuple(tangents), has_aux=True)
            return [*_merged(moving, results, others), *moved]

        return Pushforward(present, self._computation(self._trace(program, [*avals, *_chosen(avals, present)])))

    def _trace(self, function: Callable[..., Any], avals: Sequence[Any]) -> Any:
        """The function as JAX traces it (`jax.stages.Traced`): its jaxpr, with what it closes over, which can be lowered."""
        def trace() -> Any:
            named = functools.partial(function)
            named.__name__ = self.name  # pyright: ignore[reportAttributeAccessIssue]
            return jax.jit(named, keep_unused=True).trace(*map(_abstract, avals))

        return interpreting_kernels(trace, warns=False)

    def _computation(self, traced: Any, function: Callable[..., Any] | None = None) -> Computation:
        derivatives = JaxDerivatives(self.name, traced.jaxpr, self._convert, self._orders - 1, function)
        lowered = traced.lower()
        computation = self._convert(lowered_program(lowered))
        if len(computation.parameters) != lowered.in_tree.num_leaves:  # JAX may make arguments of tracers that have ended
            raise ValueError("a rule closes over a value of a trace that has ended")
        return bringing(computation, derivatives)

    # ---- pickling

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            if self._orders > 0 and self._jaxpr is not None:
                self._complete()
            pullbacks = [(w.needed, w.demanded, w.read, Stored.of_computation(w.forward), Stored.of_computation(w.backward))
                         for w in self._pullbacks.values() if w is not None]
            pushforwards = [(w.present, Stored.of_computation(w.program)) for w in self._pushforwards.values() if w is not None]
            return {"name": self.name, "rules": self.rules, "pullbacks": pullbacks, "pushforwards": pushforwards}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.name, self.rules, self._orders, self._lock = state["name"], state["rules"], 0, Lock()
        self._jaxpr, self._function, self._convert = None, None, _no_jax
        self._pullbacks = {(needed, demanded): Pullback(needed, demanded, read, forward.entry(), backward.entry())
                           for needed, demanded, read, forward, backward in state["pullbacks"]}
        self._pushforwards = {present: Pushforward(present, program.entry()) for present, program in state["pushforwards"]}

    def _complete(self) -> None:
        """Trace the way back from all results to all arguments, if there is one."""
        key = tuple(map(_is_differentiable, self._jaxpr.in_avals)), tuple(map(_is_differentiable, self._jaxpr.out_avals))
        if all(map(any, key)):
            with contextlib.suppress(DifferentiationError):
                self.pullback(*key)


class _Residuals:
    """What a way forward returns behind its `results` first outputs: of it, each value once, and no argument or constant."""

    def __init__(self, jaxpr: Any, results: int):
        inputs = {var: k for k, var in enumerate(jaxpr.invars)}
        places: dict[Any, int] = {}
        self.read: list[int] = []
        self.returned = list(range(results))
        """The numbers of the outputs that are returned."""
        self._sources: list[tuple[str, Any]] = []
        for k, var in enumerate(jaxpr.outvars[results:], results):
            if isinstance(var, jax_core.Literal):
                self._sources.append(("value", var.val))
            elif var in inputs:
                if inputs[var] not in self.read:
                    self.read.append(inputs[var])
                self._sources.append(("read", self.read.index(inputs[var])))
            else:
                if var not in places:
                    places[var] = len(places)
                    self.returned.append(k)
                self._sources.append(("returned", places[var]))
        self.count = len(self.read) + len(places)

    def chosen(self, outputs: Sequence[Any]) -> list[Any]:
        """Of all outputs, those that are returned."""
        return [outputs[k] for k in self.returned]

    def put_together(self, given: Sequence[Any]) -> list[Any]:
        """All of it again, from the arguments that are read and what was returned."""
        first = {"read": 0, "returned": len(self.read)}
        return [what if where == "value" else given[first[where] + what] for where, what in self._sources]


def lost_rules(jaxpr: Any) -> list[str]:
    """The names of the rules in a jaxpr that are not in the ops it lowers to, each once."""
    return list(dict.fromkeys(_rules_in(jaxpr.jaxpr)))


def _rules_in(jaxpr: Any) -> Iterator[str]:
    for equation in equations(jaxpr):
        name = equation.primitive.name
        if name == "stop_gradient":
            yield name
        elif name.startswith(("custom_jvp_call", "custom_vjp_call")):
            yield f"{name.partition('_call')[0]} {function_name(equation.params.get('call_jaxpr'))}".rstrip()


_INSTEAD = "from_jax(..., derivatives='xla') differentiates the ops, which do not know of: {}"


def _abstract(aval: Any) -> Any:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)


def _is_differentiable(aval: Any) -> bool:
    return jax.dtypes.issubdtype(aval.dtype, jax.numpy.inexact)


def _chosen(values: Sequence[T], flags: Sequence[bool], which: bool = True) -> list[T]:
    return [value for value, flag in zip(values, flags, strict=True) if flag is which]


def _merged(flags: Sequence[bool], flagged: Sequence[T], others: Sequence[T]) -> list[T]:
    first, second = iter(flagged), iter(others)
    return [next(first if flag else second) for flag in flags]


def _covers(have: Mask, wanted: Mask) -> bool:
    return all(a or not b for a, b in zip(have, wanted, strict=True))


def _no_jax(program: Lowered) -> Computation:
    raise InternalError("an unpickled function cannot be traced again", got=f"{len(program.bytecode)} bytes")
