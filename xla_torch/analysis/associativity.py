"""Whether a reducer is associative, by proof.

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
arrays, or is associative only for operands of a certain range, is not.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..hlo.inference import origin
from ..hlo.ir import Computation, Instruction, cached_on_computation, live_instructions
from ..opcodes.reducer_kinds import ReducerKind
from . import symbolic_rules  # noqa: F401  (fills the table that `symbolic` evaluates by)
from .algebra import TooLarge
from .reducers import reducer_kinds
from .selections import selection
from .symbolic import Case, Facts, Open, Symbol, Unprovable, cases

MOST_CASES = 1000
"""Cases after which a proof is given up: twice what the largest by a computed key, with NaNs and ties by number, takes (409)."""


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
    return selection(reducer) is not None or all(_is_proven(reducer, group) for group in _groups(reducer, count))


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


def _is_proven(reducer: Computation, group: Sequence[int]) -> bool:
    """Maximum and minimum as algebra, and where that does not do, case by case."""
    facts = Facts()
    if _holds_in_all_cases(facts, reducer, group, lattice=True):
        return True
    return facts.needs_order and _holds_in_all_cases(Facts(), reducer, group, lattice=False)


def _holds_in_all_cases(facts: Facts, reducer: Computation, group: Sequence[int], lattice: bool) -> bool:
    try:
        for case in cases(facts, lattice, MOST_CASES):
            try:
                if not _holds(case, reducer, group):
                    return False
            except Open as met:
                case.met = met
    except (Unprovable, TooLarge):
        return False
    return True


def _holds(case: Case, reducer: Computation, group: Sequence[int]) -> bool:
    """Whether (a b) c is a (b c) in this case."""
    count = len(reducer.parameters) // 2
    types = [p.shape.element_type for p in reducer.parameters[:count]]
    a, b, c = ({k: case.parameter(types[k], (side, k)) for k in group} for side in "abc")

    def combined(left: dict[int, Symbol], right: dict[int, Symbol]) -> dict[int, Symbol]:
        arguments = [side.get(k) for side in (left, right) for k in range(count)]
        if len(group) == count:
            found = case.run(reducer, arguments)
            return dict(enumerate(found if isinstance(found, tuple) else (found,)))
        return {k: case.run(reducer, arguments, _result(reducer, k)) for k in group}

    left, right = combined(combined(a, b), c), combined(a, combined(b, c))
    return all(case.same(left[k], right[k]) for k in group)
