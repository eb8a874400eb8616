"""Nodes of a tree, made anew: of classes that are here as those, of others by their names."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

from .nodes import Form, Kind, Node, are_fields, class_of, export_module, made_by_jax, registry_of_jax


def put_together(structure: Form, children: Sequence[Any]) -> Any:
    """A node of the structure with these children."""
    kind = structure.kind
    if kind is Kind.NONE:
        return None
    if kind is Kind.TUPLE or kind is Kind.LIST:
        return tuple(children) if kind is Kind.TUPLE else list(children)
    if kind is Kind.DICT or kind is Kind.ORDERED_DICT:
        pairs = zip(structure.keys, children, strict=True)
        return dict(pairs) if kind is Kind.DICT else collections.OrderedDict(pairs)
    if kind is Kind.NAMED_TUPLE:
        return _named_tuple(structure)(*children)
    return _custom_node(structure, children)


def _named_tuple(structure: Form) -> Callable[..., Any]:
    cls: Any = class_of(structure)
    if cls is not None and getattr(cls, "_fields", None) == structure.keys:
        return cls
    if not are_fields(structure.keys):
        return lambda *values: Node(structure.type_name, structure.keys, values)
    return _stand_in(structure.type_name.rpartition(".")[2], structure.keys)


@functools.lru_cache(maxsize=1024)
def _stand_in(name: str, fields: tuple[str, ...]) -> Callable[..., Any]:
    return collections.namedtuple(name if are_fields([name]) else "Fields", fields)  # noqa: PYI024


def _custom_node(structure: Form, children: Sequence[Any]) -> Any:
    cls, static = class_of(structure), structure.static
    if static is None and cls is not None and dataclasses.is_dataclass(cls):
        return cls(**dict(zip(structure.keys, children, strict=True)))
    known, value = static.get() if static is not None else (False, None)
    if static is not None and static.exported is not None and cls is not None:
        _, deserialize, make = export_module().deserialization_registry[structure.type_name]
        return make(deserialize(static.exported), children)
    if cls is None or not known or registry_of_jax() is None:
        return Node(structure.type_name, structure.keys, children, static)
    return made_by_jax(cls, value, children)
