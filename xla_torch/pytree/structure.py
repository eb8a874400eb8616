"""Trees of arguments and results, as JAX has them, without JAX: which containers stand around the leaves, and their names.

A `Structure` says what a tree is made of, takes trees of that form apart, and puts them together. It is found from a tree
(`Structure.of`) or from JAX's own description (`Structure.from_jax`), is compared, printed and pickled, and needs no jax for
any of it. The order of leaves is JAX's: dicts by sorted keys, everything else as it stands.

Where a form was written down in a file or another process, the classes of its nodes may be missing. Such nodes are taken from
whatever has the same names (`nodes.py`), and made as stand-ins. No class is imported because a file names it.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from ..core.errors import InvalidArgument
from . import nodes as tree_nodes
from .assembling import put_together
from .nodes import MAX_DEPTH, Form, Kind, Static, WrongNode
from .taking_apart import is_container, taken_apart, words

Path: TypeAlias = tuple[Any, ...]
"""Where something stands in a tree: keys of dicts, names of fields, numbers of elements."""


def dotted(path: Path) -> str:
    """A path as a name: ``params.Conv_0.bias``."""
    return ".".join(map(str, path))


def _as_argument(path: Path) -> str:
    return f"argument {dotted(path)}" if path else "the tree"


class Leaves(list[Any]):
    """The leaves of a tree that is taken apart already. They may stand for the tree."""


class Structure(Form):
    """The form of a tree, with all that is done by it: see `Form` for what it consists of."""

    children: tuple[Structure, ...]

    # ---- where structures come from

    @staticmethod
    def of(tree: Any) -> Structure:
        """The structure of a tree, whose nodes are what they are to JAX: None, tuples, lists, dicts, OrderedDicts, named tuples,
        stand-ins, and instances of classes that are registered with it. Everything else is a leaf."""
        found = tree_nodes.look_at(tree)
        return _of_node(found, [Structure.of(child) for child in found.children])

    @staticmethod
    def of_torch(tree: Any) -> Structure:
        """The structure of a tree that torch made: dicts have the order of their keys, and dataclasses are nodes."""
        found = tree_nodes.look_at_torchs(tree)
        return _of_node(found, [Structure.of_torch(child) for child in found.children])

    @staticmethod
    def from_jax(treedef: Any) -> Structure:
        """The structure that a `jax.tree_util.PyTreeDef` describes."""
        children = treedef.children()
        return _of_node(tree_nodes.look_at_treedef(treedef, len(children)), [Structure.from_jax(c) for c in children])

    @staticmethod
    def exported(type_name: str, data: bytes, children: Sequence[Structure]) -> Structure:
        """A custom node as jax.export writes it: the name that its class was registered under, and its data in bytes, which for
        named tuples and OrderedDicts are the names of the children."""
        kind, keys = tree_nodes.exported_names(type_name, data, len(children))
        static = Static(exported=data) if kind is Kind.CUSTOM else None
        return Structure(kind, tuple(children), keys, "" if kind is Kind.ORDERED_DICT else type_name, static=static)

    # ---- trees of this form

    def flatten(self, tree: Any, describe: Callable[[Path], str] = _as_argument) -> list[Any]:
        """The leaves of a tree of this form, in order.

        A list may stand for a tuple and the other way round, any mapping for a dict, for a node of another class whatever has its
        fields, and `Leaves` for anything. Raises InvalidArgument, which names the first place that differs as `describe` says it.
        """
        leaves: list[Any] = []
        try:
            self._take(tree, leaves)
        except WrongNode as wrong:
            raise InvalidArgument(f"{describe(wrong.path)} {wrong.what}", got=wrong.got, expected=wrong.expected) from None
        return leaves

    def _take(self, tree: Any, leaves: list[Any]) -> None:
        if type(tree) is Leaves and len(tree) == self.leaf_count:
            leaves += tree
            return
        if self.kind is Kind.LEAF and not is_container(tree):
            leaves.append(tree)
            return
        for number, (child, part) in enumerate(zip(self.children, taken_apart(tree, self), strict=True)):
            # As the call below does, for calls of many arrays.
            if child.kind is Kind.LEAF and type(part) is not Leaves and not is_container(part):
                leaves.append(part)
                continue
            try:
                child._take(part, leaves)
            except WrongNode as wrong:
                wrong.path = (self.edges()[number], *wrong.path)
                raise

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The tree with these leaves. Nodes whose class is not here are stand-ins: named tuples of the same fields, or `Node`s.
        Raises InvalidArgument for another number of leaves."""
        given = list(leaves)
        if len(given) != self.leaf_count:
            raise InvalidArgument("wrong number of leaves for the pytree", got=len(given), expected=self.leaf_count)
        return given[0] if self.kind is Kind.LEAF else self._put(iter(given))

    def _put(self, leaves: Iterator[Any]) -> Any:
        if self.kind is Kind.LEAF:
            return next(leaves)
        return put_together(self, [next(leaves) if child.kind is Kind.LEAF else child._put(leaves)
                                              for child in self.children])

    def broadcast_prefix(self, prefix: Any) -> list[Any]:
        """For each leaf of this form what a tree says of it that may end early: None, or what is no container, stands for all
        leaves below it. Raises InvalidArgument where it is no such tree."""
        if prefix is None or not is_container(prefix):
            return [prefix] * self.leaf_count
        if self.kind is Kind.LEAF:
            raise InvalidArgument("a pytree was given in place of a leaf", got=words(prefix), expected="one value")
        try:
            parts = taken_apart(prefix, self)
        except WrongNode as wrong:
            raise InvalidArgument(f"{dotted(wrong.path) or 'a prefix'} {wrong.what}", got=wrong.got,
                                  expected=wrong.expected) from None
        return [one for child, part in zip(self.children, parts, strict=True) for one in child.broadcast_prefix(part)]

    def only(self, kept: Iterable[bool]) -> Structure:
        """The form with None in place of those leaves that are not kept."""
        return self._only(iter(kept))

    def _only(self, kept: Iterator[bool]) -> Structure:
        if self.kind is Kind.LEAF:
            return self if next(kept) else NONE
        parts = tuple(child._only(kept) for child in self.children)
        return self if parts == self.children else Structure(self.kind, parts, self.keys, self.type_name, self.type, self.static)

    # ---- names

    def edges(self) -> tuple[Any, ...]:
        """What leads to each child: its key, its field, or its number."""
        return self.keys if self.kind.is_named else tuple(range(len(self.children)))

    def paths(self) -> list[Path]:
        """Where each leaf stands."""
        if self.kind is Kind.LEAF:
            return [()]
        return [(edge, *rest) for edge, child in zip(self.edges(), self.children, strict=True) for rest in child.paths()]

    def names(self) -> list[str]:
        """The paths of the leaves with dots: ``params.Conv_0.bias``. The one value in a box of flax, which its path calls
        ``value``, has the box's name."""
        return [dotted(path) for path in self.plain_paths()]

    def plain_paths(self) -> list[Path]:
        """Where each leaf stands, without the boxes of flax."""
        if self.kind is Kind.LEAF:
            return [()]
        boxed = tree_nodes.is_box(self)
        return [rest if boxed else (edge, *rest)
                for edge, child in zip(self.edges(), self.children, strict=True) for rest in child.plain_paths()]

    def trained(self) -> list[bool]:
        """For each leaf whether it is trained, as far as its class says: variables of flax.nnx are if they are Params."""
        if tree_nodes.is_untrained_variable(self):
            return [False] * self.leaf_count
        return [True] if self.kind is Kind.LEAF else [one for child in self.children for one in child.trained()]

    # ---- as values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Structure) and self._facts() == other._facts() and self.static == other.static

    def __hash__(self) -> int:
        return hash(self._facts())

    def _facts(self) -> tuple[Any, ...]:
        return self.kind, self.keys, self.type_name, self.children

    def __repr__(self) -> str:
        """As JAX prints trees, with ``*`` for leaves."""
        parts = [repr(child) for child in self.children]
        if self.kind in (Kind.DICT, Kind.ORDERED_DICT):
            inner = "{" + ", ".join(f"{key!r}: {part}" for key, part in zip(self.keys, parts, strict=True)) + "}"
            return inner if self.kind is Kind.DICT else f"OrderedDict({inner})"
        if self.kind.is_named:
            inner = ", ".join(f"{key}={part}" for key, part in zip(self.keys, parts, strict=True))
            return f"{self.type_name.rpartition('.')[2]}({inner})"
        inner = ", ".join(parts)
        return {Kind.LEAF: "*", Kind.NONE: "None", Kind.LIST: f"[{inner}]"}.get(
            self.kind, f"({inner},)" if len(parts) == 1 else f"({inner})")

    def __reduce__(self) -> tuple[Any, ...]:
        return Structure, (self.kind, self.children, self.keys, self.type_name, self.type, self.static)

    def to_json(self) -> Any:
        """The structure in lists, strings and numbers alone. What custom nodes keep beside their children, and classes, are left
        out. Raises InvalidArgument for keys that are neither strings nor integers."""
        odd = next((k for k in self.keys if type(k) not in (str, int)), None)
        if odd is not None:
            raise InvalidArgument("a key cannot be stored safely", got=repr(odd), expected="a string or an integer")
        if self.kind.is_atom:
            return self.kind.text
        return [self.kind.text, [child.to_json() for child in self.children], list(self.keys), self.type_name]

    @staticmethod
    def from_json(form: Any) -> Structure:
        """The inverse of `to_json`. Raises InvalidArgument for what it does not write."""
        return _from_json(form, MAX_DEPTH)


def _from_json(form: Any, levels: int) -> Structure:
    if isinstance(form, str) and form in _ATOMS:
        return Structure(_ATOMS[form])
    match form:
        case [str(text), list(children), list(keys), str(type_name)] if text in _CONTAINERS and levels > 0 and all(
                type(k) in (str, int) for k in keys):
            parts = tuple(_from_json(child, levels - 1) for child in children)
            return Structure(_CONTAINERS[text], parts, tuple(keys), type_name)
    raise InvalidArgument("not a pytree structure", got=reprlib.repr(form), expected="what Structure.to_json gives")


_ATOMS = {k.text: k for k in Kind if k.is_atom}
_CONTAINERS = {k.text: k for k in Kind if not k.is_atom}

LEAF = Structure(Kind.LEAF)
NONE = Structure(Kind.NONE)


def tuple_of(children: Iterable[Structure]) -> Structure:
    """The structure of a tuple of trees."""
    return Structure(Kind.TUPLE, tuple(children))


def list_of(children: Iterable[Structure]) -> Structure:
    """The structure of a list of trees."""
    return Structure(Kind.LIST, tuple(children))


def dict_of(children: Mapping[Any, Structure]) -> Structure:
    """The structure of a dict of trees; its keys are put in order."""
    keys = tree_nodes.in_order(children)
    return Structure(Kind.DICT, tuple(children[key] for key in keys), keys)


def nested(leaves: Mapping[Path, Any]) -> Any:
    """The tree of dicts whose leaves stand at these places. Dicts with the keys 0, 1, ... become lists."""
    if () in leaves:
        return leaves[()]
    parts: dict[Any, dict[Path, Any]] = {}
    for path, leaf in leaves.items():
        parts.setdefault(path[0], {})[path[1:]] = leaf
    tree = {key: nested(inner) for key, inner in parts.items()}
    numbered = tree and all(str(k) in map(str, tree) for k in range(len(tree)))
    return [tree[k] for k in sorted(tree, key=int)] if numbered else tree


def flattened(tree: Any) -> tuple[list[Any], Structure]:
    """The leaves of a tree, and its structure."""
    structure = Structure.of(tree)
    return structure.flatten(tree), structure


def _of_node(found: tree_nodes.Found, children: Sequence[Structure]) -> Structure:
    if found.kind.is_atom:
        return LEAF if found.kind is Kind.LEAF else NONE
    return Structure(found.kind, tuple(children), found.keys, found.type_name, found.type, found.static)
