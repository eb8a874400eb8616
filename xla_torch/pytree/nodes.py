"""One node of a tree: what it is, what it holds, how one like it is made.

Classes that are registered with JAX are asked of its registry, which is there only where jax has been imported: where it was not,
nobody can have registered one. A node whose class is missing, or which stands in for one of another class, is known by its names.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import functools
import importlib
import json
import keyword
import pickle
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..core.errors import InvalidArgument

MAX_DEPTH = 100
"""How deep a tree may be. Forms are built from their leaves upwards, so one that is made can be walked by recursion."""


class Kind(enum.Enum):
    """What a node is. Of those that `is_named`, each child has a key of its own; an atom has none."""

    NONE = "none"
    LEAF = "leaf"
    TUPLE = "tuple"
    LIST = "list"
    DICT = "dict"
    ORDERED_DICT = "ordered dict"
    NAMED_TUPLE = "named tuple"
    CUSTOM = "custom"

    @property
    def text(self) -> str:
        return self.value

    @property
    def is_atom(self) -> bool:
        return self in (Kind.NONE, Kind.LEAF)

    @property
    def is_named(self) -> bool:
        return self in (Kind.DICT, Kind.ORDERED_DICT, Kind.NAMED_TUPLE, Kind.CUSTOM)


class WrongNode(Exception):
    """A node that is not what a structure says: `path` leads from it to the place that differs."""

    def __init__(self, what: str, got: str, expected: str, path: tuple[Any, ...] = ()):
        super().__init__(what)
        self.what, self.got, self.expected, self.path = what, got, expected, path


class Node(Mapping[Any, Any]):
    """Stands for a node of a class that is not here. Its children are items and, where their keys are names, attributes."""

    def __init__(self, type_name: str, keys: Sequence[Any], values: Sequence[Any], static: Static | None = None):
        self.type_name_of, self._items, self._static = type_name, dict(zip(keys, values, strict=True)), static

    def __getitem__(self, key: Any) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __getattr__(self, name: str) -> Any:
        items = self.__dict__.get("_items", {})
        if name in items:
            return items[name]
        raise AttributeError(f"{self.__dict__.get('type_name_of', 'Node')!r} has no field {name!r}")

    def __repr__(self) -> str:
        return f"{self.type_name_of.rpartition('.')[2]}({', '.join(f'{k}={v!r}' for k, v in self._items.items())})"


class ClassReference:
    """A class of this process, or the name of one in another, which is imported when it is first needed. Only pickles make such
    names, as pickles of the class itself would; files never do."""

    def __init__(self, found: type | None, module: str = "", name: str = ""):
        self._found, self._module, self._name = found, module, name

    def get(self) -> type | None:
        """The class, or None where it cannot be imported."""
        if self._found is None and self._module:
            try:
                found = functools.reduce(getattr, self._name.split("."), importlib.import_module(self._module))
            except (ImportError, AttributeError):
                found = None
            self._found, self._module = found if isinstance(found, type) else None, ""
        return self._found

    def __reduce__(self) -> tuple[Any, ...]:
        if self._found is None:
            return ClassReference, (None, self._module, self._name)
        return ClassReference, (None, self._found.__module__, self._found.__qualname__)


class Static:
    """What a custom node keeps beside its children, such as the static fields of a dataclass.

    `plain` are the values of such fields as far as they are numbers, strings and the like: they are compared where JAX is not
    there to ask. `exported` are the bytes in a file of jax.export. The value itself is pickled apart from all else, so that what
    has lost it (a class that is not installed there, a lambda) still has its form.
    """

    def __init__(self, value: Any = None, plain: tuple[tuple[str, Any], ...] = (), exported: bytes | None = None,
                 pickled: bytes | None = None, known: bool = True):
        self._value, self.plain, self.exported, self._pickled = value, plain, exported, pickled
        self._known = known and exported is None and pickled is None

    def get(self) -> tuple[bool, Any]:
        """Whether the value is known in this process, and the value."""
        if not self._known and self._pickled is not None:
            try:
                self._value, self._known = pickle.loads(self._pickled), True
            except Exception:  # whatever the value's own classes raise: it is not to be had here
                self._pickled = None
        return self._known, self._value

    def allows(self, value: Any) -> bool:
        """Whether a node with this value beside its children has the same form; where it is not known here, every one."""
        known, own = self.get()
        return not known or equal(own, value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Static):
            return False
        if self.exported is not None or other.exported is not None:
            return self.exported == other.exported
        (known, own), (other_known, others) = self.get(), other.get()
        return equal(own, others) if known and other_known else self.plain == other.plain

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __reduce__(self) -> tuple[Any, ...]:
        pickled = self._pickled
        if self._known:
            try:
                pickled = pickle.dumps(self._value)
            except Exception:  # functions without a name, and whatever else cannot be pickled
                pickled = None
        return Static, (None, self.plain, self.exported, pickled, False)


def equal(one: Any, other: Any) -> bool:
    """Whether two static values are the same, arrays too."""
    if one is other:
        return True
    try:
        return bool(one == other)
    except Exception:  # arrays and other values that do not say so in one word
        return False


@dataclasses.dataclass(frozen=True, eq=False)
class Form:
    """What a tree is made of. `keys` name its `children`: the keys of a dict in JAX's order, the fields of a named tuple or
    dataclass, names or numbers of a custom node's children; of tuples and lists there are none.

    `type_name` is the class of a named tuple or custom node (``optax._src.transform.ScaleByAdamState``, or what jax.export calls
    it), `type` the class itself where it is at hand, `static` what such a node keeps beside its children. Raises InvalidArgument
    for names that do not fit the children, and for trees deeper than MAX_DEPTH.
    """

    kind: Kind
    children: tuple[Any, ...] = ()
    keys: tuple[Any, ...] = ()
    type_name: str = ""
    type: ClassReference | None = None
    static: Static | None = None
    leaf_count: int = dataclasses.field(init=False)
    depth: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        named = self.kind.is_named
        if len(self.keys) != (len(self.children) if named else 0) or (self.kind.is_atom and self.children):
            raise InvalidArgument("a pytree node has a wrong number of names", subject=self.kind.text, got=self.keys,
                                  expected=f"{len(self.children)} names" if named else "no names")
        depth = 1 + max((c.depth for c in self.children), default=0)
        if depth > MAX_DEPTH:
            raise InvalidArgument("the tree is too deep", got=f"{depth} levels", expected=f"at most {MAX_DEPTH}")
        object.__setattr__(self, "depth", depth)
        leaves = 1 if self.kind is Kind.LEAF else sum(c.leaf_count for c in self.children)
        object.__setattr__(self, "leaf_count", leaves)


# ------------------------------------------------------------------------------------------- what a node is


@dataclasses.dataclass(frozen=True)
class Found:
    """One node as it was found: with its children, if it was a node and not its description."""

    kind: Kind
    children: Sequence[Any] = ()
    keys: tuple[Any, ...] = ()
    type_name: str = ""
    type: ClassReference | None = None
    static: Static | None = None


def look_at(node: Any) -> Found:
    """A node as JAX sees it. Raises InvalidArgument for a dict whose keys have no order."""
    cls = type(node)
    if node is None:
        return Found(Kind.NONE)
    if cls is tuple or cls is list:
        return Found(Kind.TUPLE if cls is tuple else Kind.LIST, node)
    if cls is dict or cls is collections.OrderedDict:
        keys = in_order(node) if cls is dict else tuple(node)
        return Found(Kind.DICT if cls is dict else Kind.ORDERED_DICT, [node[k] for k in keys], keys)
    if cls is Node:
        return Found(Kind.CUSTOM, list(node.values()), tuple(node), node.type_name_of, None, node._static)
    registry = registry_of_jax()
    if registry is not None and registry.is_node(type(node)) and not is_named_tuple(node):
        keys, children, static = _from_registry(registry, node)
        return Found(Kind.CUSTOM, children, keys, type_name_of(cls), ClassReference(cls), static)
    if is_named_tuple(node):
        return Found(Kind.NAMED_TUPLE, node, node._fields, type_name_of(cls), ClassReference(cls))
    return Found(Kind.LEAF)


def look_at_torchs(node: Any) -> Found:
    """A node of a tree that torch made."""
    cls = type(node)
    if cls is dict:
        return Found(Kind.DICT, list(node.values()), tuple(node))
    if dataclasses.is_dataclass(cls):
        keys = tuple(field.name for field in dataclasses.fields(cls))
        return Found(Kind.CUSTOM, [getattr(node, key) for key in keys], keys, type_name_of(cls), ClassReference(cls))
    return look_at(node)


def look_at_treedef(treedef: Any, count: int) -> Found:
    """The topmost node of a description of JAX's, with `count` children."""
    data = treedef.node_data()
    if data is None:
        return Found(Kind.LEAF)
    cls, value = data
    plain = {type(None): Kind.NONE, tuple: Kind.TUPLE, list: Kind.LIST}.get(cls)
    if plain is not None:
        return Found(plain)
    if cls is dict or cls is collections.OrderedDict:
        return Found(Kind.DICT if cls is dict else Kind.ORDERED_DICT, keys=tuple(value))
    fields = getattr(cls, "_fields", None)
    if value is None and issubclass(cls, tuple) and fields is not None:
        return Found(Kind.NAMED_TUPLE, keys=fields, type_name=type_name_of(cls), type=ClassReference(cls))
    keys, static = tuple(range(count)), Static(value)
    registry = registry_of_jax()
    try:
        node = made_by_jax(cls, value, [object() for _ in range(count)])
        keys, _, static = _from_registry(registry, node)
    except Exception:  # a class that wants arrays as its children: these have numbers then, as in JAX's own messages
        pass
    return Found(Kind.CUSTOM, (), keys, type_name_of(cls), ClassReference(cls), static)


def exported_names(type_name: str, data: bytes, count: int) -> tuple[Kind, tuple[Any, ...]]:
    """What a custom node of jax.export is, and the names of its `count` children."""
    names: Any = None
    with contextlib.suppress(ValueError, RecursionError):
        names = json.loads(data)
    fits = isinstance(names, list) and len(names) == count and all(isinstance(n, str) for n in names)
    if not fits or len(set(names)) != count:
        return Kind.CUSTOM, tuple(range(count))
    if type_name == "collections.OrderedDict":
        return Kind.ORDERED_DICT, tuple(names)
    return (Kind.NAMED_TUPLE if are_fields(names) else Kind.CUSTOM), tuple(names)


def are_fields(names: Iterable[str]) -> bool:
    """Whether names may be those of a named tuple's fields."""
    return all(n.isidentifier() and not keyword.iskeyword(n) and not n.startswith("_") for n in names)


def in_order(keys: Iterable[Any]) -> tuple[Any, ...]:
    """The keys of a dict in the order of its leaves. Raises InvalidArgument for keys that have no order, as JAX does."""
    try:
        return tuple(sorted(keys))
    except TypeError:
        raise InvalidArgument("the keys of a dict must be sortable", got=", ".join(map(repr, keys)),
                              expected="keys that can be sorted, such as strings") from None


def registry_of_jax() -> Any:
    """JAX's registry of classes, or None where jax has not been imported."""
    return getattr(sys.modules.get("jax.tree_util"), "default_registry", None)


def _from_registry(registry: Any, node: Any) -> tuple[tuple[Any, ...], Sequence[Any], Static]:
    """The keys and children of a node whose class is registered, and what it keeps beside them."""
    pairs, value = registry.flatten_one_level_with_keys(node)
    keys = tuple(_key(k) for k, _ in pairs)
    if len(set(keys)) != len(keys):
        keys = tuple(range(len(keys)))
    return keys, [child for _, child in pairs], Static(value, _plain_fields(node, keys))


def _key(entry: Any) -> Any:
    """What an entry of a key path is called: DictKey, FlattenedIndexKey, GetAttrKey and SequenceKey have it by three names."""
    for name in ("key", "name", "idx"):
        if hasattr(entry, name):
            return getattr(entry, name)
    return str(entry)


def _plain_fields(node: Any, keys: Sequence[Any]) -> tuple[tuple[str, Any], ...]:
    """The fields of a dataclass that are not among its children, as far as they are plain; none where children have no names."""
    fields = [f.name for f in dataclasses.fields(node)] if dataclasses.is_dataclass(node) else []
    rest = [(name, getattr(node, name, None)) for name in fields if name not in keys] if {*keys} <= {*fields} else []
    return tuple((name, value) for name, value in rest if _is_plain(value))


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, complex, str, bytes)


def is_named_tuple(node: Any) -> bool:
    """Whether it is an object of a named tuple's class."""
    return isinstance(node, tuple) and isinstance(getattr(node, "_fields", None), tuple)


def type_name_of(cls: type) -> str:
    """The name by which files know a class."""
    return f"{cls.__module__}.{cls.__qualname__}"


def is_box(structure: Form) -> bool:
    """Whether a node is about one value that it puts metadata around: flax's variables and partitioned parameters."""
    return structure.kind is Kind.CUSTOM and structure.keys == ("value",)


def is_untrained_variable(structure: Form) -> bool:
    """Whether a box is a variable of flax.nnx that is no Param: a running mean, the state of a random generator."""
    cls = class_of(structure) if is_box(structure) else None
    bases = [c.__name__ for c in cls.__mro__ if c.__module__.startswith("flax.nnx")] if cls is not None else []
    return "Variable" in bases and "Param" not in bases


# ---------------------------------------------------------------------------------------- taking nodes apart


def class_of(structure: Form) -> type | None:
    """The class of a named tuple or custom node, if it is here: as it was seen, or as it is registered with jax.export."""
    if structure.type is not None:
        return structure.type.get()
    registered = getattr(export_module(), "deserialization_registry", {}).get(structure.type_name)
    return None if registered is None else registered[0]


def export_module() -> Any:
    """Where jax.export keeps what was registered for files, or None where it has not been imported."""
    return sys.modules.get("jax._src.export._export")


def made_by_jax(cls: type, value: Any, children: Sequence[Any]) -> Any:
    """A node of a class that is registered with JAX, as its registry makes it."""
    tree_util = sys.modules["jax.tree_util"]
    leaf = tree_util.tree_structure(0)
    one_level = tree_util.PyTreeDef.from_node_data_and_children(registry_of_jax(), (cls, value), [leaf] * len(children))
    return one_level.unflatten(children)
