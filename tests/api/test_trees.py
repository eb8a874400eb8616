"""Trees without JAX: the same leaves, order and names as JAX has, and a form that is compared, pickled and read from files."""

from __future__ import annotations

import collections
import dataclasses
import json
import pickle
import subprocess
import sys
from typing import Any, NamedTuple

import pytest

from support import oracle
from xla_torch.errors import InvalidArgument
from xla_torch.pytree import structure as trees
from xla_torch.pytree.nodes import MAX_DEPTH, Kind, Node
from xla_torch.pytree.structure import LEAF, NONE, Structure, dict_of, list_of, tuple_of

if oracle.HAS_XLA:
    import jax
    from jax.tree_util import register_dataclass, register_pytree_node, register_pytree_node_class
else:
    register_dataclass = register_pytree_node_class = lambda cls: cls  # the table's classes are then leaves


class Pair(NamedTuple):
    second: Any
    first: Any


@register_dataclass
@dataclasses.dataclass
class Layer:
    weight: Any
    bias: Any
    activation: str = dataclasses.field(default="relu", metadata={"static": True})


@register_pytree_node_class
class Scaled:
    def __init__(self, value: Any, by: Any):
        self.value, self.by = value, by

    def tree_flatten(self) -> tuple[tuple[Any], Any]:
        return (self.value,), self.by

    @classmethod
    def tree_unflatten(cls, by: Any, children: tuple[Any]) -> Scaled:
        return cls(*children, by)


@dataclasses.dataclass
class Picky:
    """Makes something of its child as soon as it is made."""

    value: Any

    def __post_init__(self) -> None:
        self.value = self.value + 0


if oracle.HAS_XLA:
    register_pytree_node(Picky, lambda p: ((p.value,), None), lambda _, children: Picky(*children))

BOTTOM: Any = 1.0
TREES: list[tuple[str, Any, list[str]]] = [
    ("leaf", 1, [""]),
    ("none", None, []),
    ("tuple", (1, 2), ["0", "1"]),
    ("empty", ((), [], {}), []),
    ("mixed", {"b": 1, "a": (2, [3, None])}, ["a.0", "a.1.0", "b"]),
    ("numbered", {3: 1, 1: {"x": 2}}, ["1.x", "3"]),
    ("ordered", collections.OrderedDict(b=1, a=2), ["b", "a"]),
    ("default", collections.defaultdict(list, b=1, a=2), ["a", "b"]),
    ("named", Pair(1, {"x": 2}), ["second", "first.x"]),
    ("dataclass", Layer(1, (2, 3)), ["weight", "bias.0", "bias.1"]),
    ("class", [Scaled(1, 2)], ["0.0"]),
    ("picky", Picky(3), ["0"]),
    ("size", [collections.Counter(a=1)], ["0"]),
]
IDS = [name for name, *_ in TREES]


@oracle.needs_xla
@pytest.mark.parametrize(("tree", "names"), [t[1:] for t in TREES], ids=IDS)
def test_leaves_are_those_of_jax(tree: Any, names: list[str]):
    leaves, treedef = jax.tree_util.tree_flatten(tree)
    structure = Structure.of(tree)
    assert structure == Structure.from_jax(treedef)
    assert hash(structure) == hash(Structure.from_jax(treedef))
    assert structure.flatten(tree) == leaves
    assert structure.leaf_count == treedef.num_leaves
    assert structure.names() == names
    assert jax.tree_util.tree_structure(structure.unflatten(leaves)) == treedef


@oracle.needs_xla
@pytest.mark.parametrize("tree", [t[1] for t in TREES], ids=IDS)
def test_a_pickle_keeps_the_form(tree: Any):
    structure = Structure.of(tree)
    again = pickle.loads(pickle.dumps(structure))
    assert again == structure
    assert structure == again
    assert repr(again) == repr(structure)
    leaves = structure.flatten(tree)
    assert jax.tree_util.tree_structure(again.unflatten(leaves)) == jax.tree_util.tree_structure(tree)


@pytest.mark.parametrize("tree", [t[1] for t in TREES if t[0] not in ("default", "dataclass", "class", "picky")],
                         ids=[n for n in IDS if n not in ("default", "dataclass", "class", "picky")])
def test_a_safe_form_keeps_names_and_leaves(tree: Any):
    structure = Structure.of(tree)
    again = Structure.from_json(json.loads(json.dumps(structure.to_json())))
    assert again == structure
    assert again.flatten(again.unflatten(range(structure.leaf_count))) == list(range(structure.leaf_count))
    assert again.flatten(tree) == structure.flatten(tree)


NO_FORMS: list[Any] = [3, None, [], "tree", ["dict", [], ["a"], ""], ["tuple", ["leaf"], ["a"], ""],
                       ["dict", ["leaf"], [None], ""], ["set", [], [], ""], ["leaf", [], [], ""], ["tuple", "leaf", [], ""]]


@pytest.mark.parametrize("form", NO_FORMS, ids=str)
def test_other_forms_are_refused(form: Any):
    with pytest.raises(InvalidArgument):
        Structure.from_json(form)


def test_deep_trees_are_refused():
    form: Any = "leaf"
    for _ in range(100_000):
        form = ["list", [form], [], ""]
    with pytest.raises(InvalidArgument, match="not a pytree structure"):
        Structure.from_json(form)
    deep = LEAF
    for _ in range(MAX_DEPTH - 1):
        deep = list_of([deep])
    assert Structure.from_json(deep.to_json()) == deep
    with pytest.raises(InvalidArgument, match="too deep"):
        list_of([deep])


REPRS = [
    (LEAF, "*"), (NONE, "None"), (tuple_of([LEAF]), "(*,)"), (list_of([LEAF, NONE]), "[*, None]"),
    (dict_of({"b": LEAF, "a": tuple_of([])}), "{'a': (), 'b': *}"),
    (Structure.exported("shapes.Point", b'["x", "y"]', [LEAF, LEAF]), "Point(x=*, y=*)"),
    (Structure.exported("collections.OrderedDict", b'["y", "x"]', [LEAF, NONE]), "OrderedDict({'y': *, 'x': None})"),
    (Structure.exported("shapes.Box", b"\0", [LEAF]), "Box(0=*)"),
]


@pytest.mark.parametrize(("structure", "text"), REPRS, ids=[t for _, t in REPRS])
def test_repr(structure: Structure, text: str):
    assert repr(structure) == text


ONE_ANOTHER: list[tuple[str, Structure, Any, list[Any]]] = [
    ("a list for a tuple", tuple_of([LEAF, LEAF]), [1, 2], [1, 2]),
    ("a tuple for a list", list_of([LEAF, LEAF]), (1, 2), [1, 2]),
    ("a mapping for a dict", dict_of({"a": LEAF, "b": LEAF}), collections.OrderedDict(b=2, a=1), [1, 2]),
    ("an object for a named tuple's fields", Structure.exported("m.P", b'["x", "y"]', [LEAF, LEAF]), {"y": 2, "x": 1}, [1, 2]),
    ("attributes for a node's", Structure(Kind.CUSTOM, (LEAF, LEAF), ("weight", "bias"), "m.Other"), Layer(1, 2), [1, 2]),
    ("a dict for a node", Structure(Kind.CUSTOM, (LEAF, NONE), ("weight", "bias"), "m.Layer"), {"weight": 1}, [1]),
    ("a value for a box", Structure(Kind.CUSTOM, (LEAF,), ("value",), "flax.Param"), 7, [7]),
    ("a box", Structure(Kind.CUSTOM, (LEAF,), ("value",), "flax.Param"), Node("flax.Param", ["value"], [7]), [7]),
]


@pytest.mark.parametrize(("structure", "tree", "leaves"), [o[1:] for o in ONE_ANOTHER], ids=[o[0] for o in ONE_ANOTHER])
def test_one_node_stands_for_another(structure: Structure, tree: Any, leaves: list[Any]):
    assert structure.flatten(tree) == leaves


DENSE = dict_of({"params": dict_of({"Dense_0": dict_of({"bias": LEAF, "kernel": LEAF})}), "pair": tuple_of([LEAF, NONE])})
GOOD = {"params": {"Dense_0": {"bias": 1, "kernel": 2}}, "pair": (3, None)}
ERRORS: list[tuple[str, Any, str]] = [
    ("missing", GOOD | {"params": {"Dense_0": {"bias": 1}}},
     r"(?s)argument params\.Dense_0\.kernel is missing.*got +keys bias\n.*expected +bias, kernel"),
    ("extra", GOOD | {"params": {"Dense_0": {"bias": 1, "kernel": 2, "scale": 3}}},
     r"argument params\.Dense_0\.scale is not expected"),
    ("nothing", {}, r"(?s)argument pair is missing.*keys of none"),
    ("kind", GOOD | {"params": [1]}, r"(?s)argument params is another kind of node.*a list of 1.*a dict with Dense_0"),
    ("length", GOOD | {"pair": (1, None, 2)}, r"(?s)argument pair has another length.*a tuple of 3.*a tuple of 2"),
    ("none", GOOD | {"pair": (None, None)}, r"(?s)argument pair\.0 is not a leaf.*None.*an array or a number"),
    ("tree", GOOD | {"pair": ({"a": 1}, None)}, r"(?s)argument pair\.0 is not a leaf.*a dict with keys a"),
    ("not none", GOOD | {"pair": (1, 2)}, r"(?s)argument pair\.1 is something where there was None.*a value of type int"),
    ("leaf", 3, r"the tree is another kind of node"),
]


@pytest.mark.parametrize(("tree", "message"), [e[1:] for e in ERRORS], ids=[e[0] for e in ERRORS])
def test_errors_say_where_trees_differ(tree: Any, message: str):
    assert DENSE.flatten(GOOD) == [3, 1, 2]
    with pytest.raises(InvalidArgument, match=message):
        DENSE.flatten(tree)


@oracle.needs_xla
@pytest.mark.parametrize("pickled", [False, True])
def test_static_fields_are_part_of_the_form(pickled: bool):
    structure = Structure.of(Layer(1, 2))
    structure = pickle.loads(pickle.dumps(structure)) if pickled else structure
    assert structure.flatten(Layer(3, 4)) == [3, 4]
    with pytest.raises(InvalidArgument, match="other static fields"):
        structure.flatten(Layer(3, 4, "tanh"))
    assert structure != Structure.of(Layer(1, 2, "tanh"))
    with pytest.raises(InvalidArgument, match="other static fields"):
        Structure.of(Scaled(1, lambda: 0)).flatten(Scaled(1, lambda: 1))


def test_a_wrong_number_of_leaves():
    with pytest.raises(InvalidArgument, match="wrong number of leaves"):
        DENSE.unflatten([1, 2])


SPREAD = [(None, [None] * 3), (5, [5] * 3), ({"params": 1, "pair": (2, None)}, [2, 1, 1]),
          ({"params": None, "pair": 0}, [0, None, None])]


@pytest.mark.parametrize(("prefix", "leaves"), SPREAD, ids=[str(p) for p, _ in SPREAD])
def test_a_prefix_spreads(prefix: Any, leaves: list[Any]):
    assert DENSE.broadcast_prefix(prefix) == leaves


def test_keys_without_order_are_refused():
    with pytest.raises(InvalidArgument, match="must be sortable"):
        Structure.of({1: 1, "a": 2})


def test_stand_ins():
    point = Structure.exported("shapes.Point", b'["x", "y"]', [LEAF, LEAF]).unflatten([1, 2])
    assert (point.x, point.y, type(point).__name__, isinstance(point, tuple)) == (1, 2, "Point", True)
    node = Structure(Kind.CUSTOM, (LEAF, LEAF), ("weight", "bias"), "m.Layer").unflatten([1, 2])
    assert (node.weight, node["bias"], repr(node)) == (1, 2, "Layer(weight=1, bias=2)")
    assert Structure.of(node).names() == ["weight", "bias"]
    with pytest.raises(AttributeError, match="has no field 'scale'"):
        _ = node.scale


WITHOUT_JAX = """
import pickle, sys
sys.modules["jax"] = sys.modules["jaxlib"] = sys.modules["flax"] = None
structure = pickle.load(sys.stdin.buffer)
assert "torch" not in sys.modules
tree = structure.unflatten(range(structure.leaf_count))
assert structure.flatten(tree) == list(range(structure.leaf_count))
print(structure.names(), type(tree["layer"]).__name__, tree["state"].bn["mean"].value)
print(structure.flatten({"layer": tree["layer"], "state": {"bn": {"mean": "m", "var": "v"}}}))
"""


@oracle.needs_xla
def test_forms_of_classes_that_are_not_installed():
    """A pickle opens where neither jax nor the classes are; dicts and plain values stand for flax's states and boxes."""
    nnx = pytest.importorskip("flax.nnx")
    bn = {"mean": nnx.BatchStat(1.0), "var": nnx.BatchStat(2.0)}
    tree = {"state": nnx.State({"bn": bn}), "layer": Layer(1, None)}
    structure = Structure.from_jax(jax.tree_util.tree_structure(tree))
    ran = subprocess.run([sys.executable, "-c", WITHOUT_JAX], input=pickle.dumps(structure), capture_output=True, check=False)
    printed = ["['layer.weight', 'state.bn.mean', 'state.bn.var'] Node 1", "[0, 'm', 'v']"]
    assert ran.stdout.decode().splitlines() == printed, ran.stderr


def test_trees_of_a_module_name():
    assert trees.flattened({"a": [1, 2]}) == ([1, 2], dict_of({"a": list_of([LEAF, LEAF])}))
