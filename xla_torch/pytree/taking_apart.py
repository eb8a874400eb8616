"""Nodes of a tree, taken apart as a structure says: their children in its order, or what does not fit, in words."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .assembling import put_together
from .nodes import (
    Form,
    Kind,
    Node,
    Static,
    WrongNode,
    class_of,
    equal,
    export_module,
    is_box,
    is_named_tuple,
    registry_of_jax,
    type_name_of,
)


def is_container(node: Any) -> bool:
    """Whether this is no leaf. A subclass of a container that nobody registered is one, as in JAX."""
    cls = type(node)
    if node is None or cls in _CONTAINERS or (isinstance(node, tuple) and is_named_tuple(node)):
        return True
    registry = registry_of_jax()
    return registry is not None and registry.is_node(cls)


_CONTAINERS = frozenset((tuple, list, dict, collections.OrderedDict, Node))


def taken_apart(node: Any, structure: Form) -> Sequence[Any]:
    """The children of a node, which is one of the structure's. Raises WrongNode where it is not."""
    return _TAKERS[structure.kind](node, structure)


def _leaf_is_no_container(node: Any, structure: Form) -> Sequence[Any]:
    raise WrongNode("is not a leaf", words(node), "an array or a number")


def _nothing(node: Any, structure: Form) -> Sequence[Any]:
    if node is not None:
        raise WrongNode("is something where there was None", words(node), "None")
    return ()


def _elements(node: Any, structure: Form) -> Sequence[Any]:
    if not isinstance(node, (list, tuple)) or is_named_tuple(node):
        raise WrongNode("is another kind of node", words(node), _expected(structure))
    if len(node) != len(structure.children):
        raise WrongNode("has another length", words(node), _expected(structure))
    return node


def _items(node: Any, structure: Form) -> Sequence[Any]:
    if not isinstance(node, Mapping):
        raise WrongNode("is another kind of node", words(node), _expected(structure))
    return _by_key(node, structure)


def _by_key(node: Mapping[Any, Any], structure: Form) -> Sequence[Any]:
    """The values of a mapping in the structure's order. Of a custom node, what has no leaves may be missing from it."""
    if len(node) == len(structure.keys) and all(key in node for key in structure.keys):
        return [node[key] for key in structure.keys]
    given = f"keys {', '.join(map(str, node)) or 'of none'}"
    keys = ", ".join(map(str, structure.keys)) or "no keys"
    for key, child in zip(structure.keys, structure.children, strict=True):
        if key not in node and (child.leaf_count or structure.kind is not Kind.CUSTOM):
            raise WrongNode("is missing", given, keys, (key,))
    for key in node:
        if key not in structure.keys:
            raise WrongNode("is not expected", given, keys, (key,))
    return [node[key] if key in node else _without_leaves(child)
            for key, child in zip(structure.keys, structure.children, strict=True)]


def _without_leaves(structure: Form) -> Any:
    return put_together(structure, [_without_leaves(child) for child in structure.children])


def _fields(node: Any, structure: Form) -> Sequence[Any]:
    if isinstance(node, Mapping):
        return _by_key(node, structure)
    if not is_named_tuple(node) or node._fields != structure.keys:
        raise WrongNode("is another kind of node", words(node), _expected(structure))
    return node


def _custom(node: Any, structure: Form) -> Sequence[Any]:
    cls, registry = class_of(structure), registry_of_jax()
    same = type(node) is cls or type_name_of(type(node)) == structure.type_name
    if isinstance(node, Node):
        return _by_key(node, structure)
    if same and registry is not None and registry.is_node(type(node)):
        return _registered(node, structure, registry)
    if isinstance(node, Mapping):
        return _by_key(node, structure)
    if is_box(structure) and not same:
        return [node]
    if all(isinstance(key, str) and hasattr(node, key) for key in structure.keys) and structure.keys:
        return _attributes(node, structure)
    raise WrongNode("is another kind of node", words(node), _expected(structure))


def _registered(node: Any, structure: Form, registry: Any) -> Sequence[Any]:
    children, value = registry.flatten_one_level(node)
    if structure.static is not None and not _allows(structure.static, node, value):
        raise WrongNode("has other static fields than it was traced with", str(value)[:200],
                        str(structure.static.get()[1] or structure.static.exported)[:200])
    if len(children) != len(structure.children):
        raise WrongNode("has another number of children", str(len(children)), _expected(structure))
    return children


def _allows(static: Static, node: Any, value: Any) -> bool:
    """Whether a node, which keeps this value beside its children, has the static fields that were traced. Where a pickle has lost
    the value, plain fields are compared."""
    if static.exported is not None:
        _, serialize = getattr(export_module(), "serialization_registry", {}).get(type(node), (None, None))
        return serialize is None or bytes(serialize(value)) == static.exported
    if static.get()[0]:
        return static.allows(value)
    return all(equal(getattr(node, name, None), own) for name, own in static.plain)


def _attributes(node: Any, structure: Form) -> Sequence[Any]:
    """The fields of an object, which need not be of the class that was traced; its static fields must be as they were."""
    for name, value in structure.static.plain if structure.static is not None else ():
        if not equal(getattr(node, name, value), value):
            raise WrongNode("has another value than it was traced with", repr(getattr(node, name)), repr(value), (name,))
    return [getattr(node, key) for key in structure.keys]


_TAKERS: dict[Kind, Callable[[Any, Form], Sequence[Any]]] = {
    Kind.LEAF: _leaf_is_no_container, Kind.NONE: _nothing, Kind.TUPLE: _elements, Kind.LIST: _elements, Kind.DICT: _items,
    Kind.ORDERED_DICT: _items, Kind.NAMED_TUPLE: _fields, Kind.CUSTOM: _custom,
}


def words(node: Any) -> str:
    """A node in a few words: ``a list of 2``, ``None``, ``a dict with keys a, b``."""
    if node is None:
        return "None"
    if isinstance(node, Mapping):
        return f"a {type(node).__name__} with keys {', '.join(map(str, node))}" if node else f"an empty {type(node).__name__}"
    if is_named_tuple(node):
        return f"a {type(node).__name__} of {', '.join(node._fields)}"
    if isinstance(node, (list, tuple)):
        return f"a {type(node).__name__} of {len(node)}"
    return f"a value of type {type(node).__name__}"


def _expected(structure: Form) -> str:
    name = structure.type_name.rpartition(".")[2] or structure.kind.text.replace(" ", "")
    if not structure.kind.is_named:
        return f"a {name} of {len(structure.children)}"
    return f"a {name} with {', '.join(map(str, structure.keys)) or 'nothing'}"
