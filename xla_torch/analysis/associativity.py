"""Whether a reducer is associative, and whether it is commutative, by proof.

XLA leaves open in what order a reducer meets its elements. One that is associative may be evaluated in trees, which takes few
calls. Any other has one meaning that users see: what XLA's CPU code makes of it, so its elements are combined in that order.

A reducer takes N accumulated and N new scalars. It is proven to be associative where it is

- one of the reducers with a name (`reducers`), or a selection of the one or the other operands (`selections`), or
- equal to itself in ``(a b) c`` and ``a (b c)`` for unknown a, b and c, in all cases (`symbolic`): results that depend on one
  another are proven together, others on their own. For integers and predicates that is exact. For floats it means equal for
  real numbers, up to rounding, where nothing on the way overflows or is undefined (0 / 0), and NaN for the same NaNs among the
  operands.

So sums, products, composed affine maps, products of matrices or of complex numbers, logarithms of sums of exponentials,
lexicographic orders and what is chosen by predicates are proven, in whatever way they are written. What has loops, works on
arrays, or is associative only for operands of a certain range, is not. That ``a b`` is ``b a`` is proven in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..hlo.inference import origin
from ..hlo.ir import Computation, Instruction, cached_on_computation, live_instructions
from ..opcodes.reducer_kinds import ReducerKind
from .algebra import TooLarge
from .reducers import reducer_kinds
from .selections import selection
from .symbolic import Case, Facts, Open, Symbol, Unprovable, cases

MOST_CASES = 1000
"""Cases after which a proof is given up: twice what the largest by a computed key, with NaNs and ties by number, takes (409)."""

_Symbols = dict[int, Symbol]
"""An unknown for each number of a group."""


@cached_on_computation
def is_associative(reducer: Computation) -> bool:
    """Whether a reducer of 2N scalars is proven to be associative. False where it is not, and where it is not known."""
    shapes = [*(p.shape for p in reducer.parameters), *reducer.root.shape.leaves()]
    types, count = [s.element_type for s in shapes], len(shapes) // 3
    if not (all(s.is_scalar for s in shapes) and types[:count] == types[count:2 * count] == types[2 * count:]):
        return False
    kinds = reducer_kinds(reducer)
    if all(kind is not None and kind is not ReducerKind.SUBTRACT for kind in kinds):
        return True
    return selection(reducer) is not None or all(_is_proven(_associates, reducer, group) for group in _groups(reducer, count))


@cached_on_computation
def is_commutative(reducer: Computation) -> bool:
    """Whether a reducer that `is_associative` is proven to be commutative. False where it is not, and where it is not known."""
    kinds = reducer_kinds(reducer)
    if all(kind is not None and kind.is_commutative for kind in kinds):
        return True
    return all(_is_proven(_commutes, reducer, group) for group in _groups(reducer, len(reducer.parameters) // 2))


def _groups(reducer: Computation, count: int) -> list[tuple[int, ...]]:
    """The numbers of results, those together that depend on one another's operands."""
    groups: list[set[int]] = []
    for number in range(count):
        result = _result(reducer, number)
        used = {number}
        if result is not None:
            used |= {i.attributes["parameter_number"] % count for i in live_instructions(reducer, [result]) if i.is_parameter}
        else:
            used |= set(range(count))
        used = used.union(*(g for g in groups if g & used))
        groups = [g for g in groups if not g & used] + [used]
    return [tuple(sorted(group)) for group in groups]


def _result(reducer: Computation, number: int) -> Instruction | None:
    """The instruction of one result; None where the root does not name it."""
    root = origin(reducer.root)
    if not root.shape.is_tuple:
        return root
    return root.operands[number] if root.is_tuple else None


Law = Callable[[Callable[[_Symbols, _Symbols], _Symbols], _Symbols, _Symbols, _Symbols], tuple[_Symbols, _Symbols]]
"""What has to be equal of three values, and how two are combined."""


def _associates(combined: Callable[[_Symbols, _Symbols], _Symbols], a: _Symbols, b: _Symbols, c: _Symbols) -> tuple[
        _Symbols, _Symbols]:
    return combined(combined(a, b), c), combined(a, combined(b, c))


def _commutes(combined: Callable[[_Symbols, _Symbols], _Symbols], a: _Symbols, b: _Symbols, _: _Symbols) -> tuple[
        _Symbols, _Symbols]:
    return combined(a, b), combined(b, a)


def _is_proven(law: Law, reducer: Computation, group: Sequence[int]) -> bool:
    """Maximum and minimum as algebra, and where that does not do, case by case."""
    facts = Facts()
    if _holds_in_all_cases(law, facts, reducer, group, lattice=True):
        return True
    return facts.needs_order and _holds_in_all_cases(law, Facts(), reducer, group, lattice=False)


def _holds_in_all_cases(law: Law, facts: Facts, reducer: Computation, group: Sequence[int], lattice: bool) -> bool:
    try:
        for case in cases(facts, lattice, MOST_CASES):
            try:
                if not _holds(law, case, reducer, group):
                    return False
            except Open as met:
                case.met = met
    except (Unprovable, TooLarge):
        return False
    return True


def _holds(law: Law, case: Case, reducer: Computation, group: Sequence[int]) -> bool:
    """Whether a law holds for unknown a, b and c in this case."""
    count = len(reducer.parameters) // 2
    types = [p.shape.element_type for p in reducer.parameters[:count]]
    a, b, c = ({k: case.parameter(types[k], (side, k)) for k in group} for side in "abc")

    def combined(left: _Symbols, right: _Symbols) -> _Symbols:
        arguments = [side.get(k) for side in (left, right) for k in range(count)]
        if len(group) == count:
            found = case.run(reducer, arguments)
            return dict(enumerate(found if isinstance(found, tuple) else (found,)))
        return {k: case.run(reducer, arguments, _result(reducer, k)) for k in group}

    left, right = law(combined, a, b, c)
    return all(case.same(left[k], right[k]) for k in group)
