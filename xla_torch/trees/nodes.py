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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
        self._type_name, self._items, self._static = type_name, dict(zip(keys, values, strict=True)), static

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
        raise AttributeError(f"{self.__dict__.get('_type_name', 'Node')!r} has no field {name!r}")

    def __repr__(self) -> str:
        return f"{self._type_name.rpartition('.')[2]}({', '.join(f'{k}={v!r}' for k, v in self._items.items())})"


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
        return not known or _equal(own, value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Static):
            return False
        if self.exported is not None or other.exported is not None:
            return self.exported == other.exported
        (known, own), (other_known, others) = self.get(), other.get()
        return _equal(own, others) if known and other_known else self.plain == other.plain

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __reduce__(self) -> tuple[Any, ...]:
        pickled = self._pickled
        if self._known:
            try:
                pickled = pickle.dumps(self._value)
            except Exception:  # functions without a name, and whatever else cannot be pickled
                pickled = None
        return Static, (None, self.plain, self.exported, pickled, False)


def _equal(one: Any, other: Any) -> bool:
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
            raise InvalidArgument("the names of a node do not fit its children", subject=self.kind.text, got=self.keys,
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
        return Found(Kind.CUSTOM, list(node.values()), tuple(node), node._type_name, None, node._static)
    registry = _registry()
    if registry is not None and registry.is_node(type(node)) and not _is_named_tuple(node):
        keys, children, static = _from_registry(registry, node)
        return Found(Kind.CUSTOM, children, keys, _type_name(cls), ClassReference(cls), static)
    if _is_named_tuple(node):
        return Found(Kind.NAMED_TUPLE, node, node._fields, _type_name(cls), ClassReference(cls))
    return Found(Kind.LEAF)


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
        return Found(Kind.NAMED_TUPLE, keys=fields, type_name=_type_name(cls), type=ClassReference(cls))
    keys, static = tuple(range(count)), Static(value)
    registry = _registry()
    try:
        node = _made_by_jax(cls, value, [object() for _ in range(count)])
        keys, _, static = _from_registry(registry, node)
    except Exception:  # a class that wants arrays as its children: these have numbers then, as in JAX's own messages
        pass
    return Found(Kind.CUSTOM, (), keys, _type_name(cls), ClassReference(cls), static)


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
    return (Kind.NAMED_TUPLE if _are_fields(names) else Kind.CUSTOM), tuple(names)


def _are_fields(names: Iterable[str]) -> bool:
    return all(n.isidentifier() and not keyword.iskeyword(n) and not n.startswith("_") for n in names)


def in_order(keys: Iterable[Any]) -> tuple[Any, ...]:
    """The keys of a dict in the order of its leaves. Raises InvalidArgument for keys that have no order, as JAX does."""
    try:
        return tuple(sorted(keys))
    except TypeError:
        raise InvalidArgument("the keys of a dict have no order", got=", ".join(map(repr, keys)),
                              expected="keys that can be sorted, such as strings") from None


def _registry() -> Any:
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


def _is_named_tuple(node: Any) -> bool:
    return isinstance(node, tuple) and isinstance(getattr(node, "_fields", None), tuple)


def _type_name(cls: type) -> str:
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


def is_container(node: Any) -> bool:
    """Whether this is no leaf. A subclass of a container that nobody registered is one, as in JAX."""
    cls = type(node)
    if node is None or cls in _CONTAINERS or (isinstance(node, tuple) and _is_named_tuple(node)):
        return True
    registry = _registry()
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
    if not isinstance(node, (list, tuple)) or _is_named_tuple(node):
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
    if not _is_named_tuple(node) or node._fields != structure.keys:
        raise WrongNode("is another kind of node", words(node), _expected(structure))
    return node


def _custom(node: Any, structure: Form) -> Sequence[Any]:
    cls, registry = class_of(structure), _registry()
    same = type(node) is cls or _type_name(type(node)) == structure.type_name
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
        _, serialize = getattr(_export(), "serialization_registry", {}).get(type(node), (None, None))
        return serialize is None or bytes(serialize(value)) == static.exported
    if static.get()[0]:
        return static.allows(value)
    return all(_equal(getattr(node, name, None), own) for name, own in static.plain)


def _attributes(node: Any, structure: Form) -> Sequence[Any]:
    """The fields of an object, which need not be of the class that was traced; its static fields must be as they were."""
    for name, value in structure.static.plain if structure.static is not None else ():
        if not _equal(getattr(node, name, value), value):
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
    if _is_named_tuple(node):
        return f"a {type(node).__name__} of {', '.join(node._fields)}"
    if isinstance(node, (list, tuple)):
        return f"a {type(node).__name__} of {len(node)}"
    return f"a value of type {type(node).__name__}"


def _expected(structure: Form) -> str:
    name = structure.type_name.rpartition(".")[2] or structure.kind.text.replace(" ", "")
    if not structure.kind.is_named:
        return f"a {name} of {len(structure.children)}"
    return f"a {name} with {', '.join(map(str, structure.keys)) or 'nothing'}"


# ------------------------------------------------------------------------------------ putting nodes together


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
    if not _are_fields(structure.keys):
        return lambda *values: Node(structure.type_name, structure.keys, values)
    return _stand_in(structure.type_name.rpartition(".")[2], structure.keys)


@functools.lru_cache(maxsize=1024)
def _stand_in(name: str, fields: tuple[str, ...]) -> Callable[..., Any]:
    return collections.namedtuple(name if _are_fields([name]) else "Fields", fields)  # noqa: PYI024


def _custom_node(structure: Form, children: Sequence[Any]) -> Any:
    cls, static = class_of(structure), structure.static
    known, value = static.get() if static is not None else (False, None)
    if static is not None and static.exported is not None and cls is not None:
        _, deserialize, make = _export().deserialization_registry[structure.type_name]
        return make(deserialize(static.exported), children)
    if cls is None or not known or _registry() is None:
        return Node(structure.type_name, structure.keys, children, static)
    return _made_by_jax(cls, value, children)


def class_of(structure: Form) -> type | None:
    """The class of a named tuple or custom node, if it is here: as it was seen, or as it is registered with jax.export."""
    if structure.type is not None:
        return structure.type.get()
    registered = getattr(_export(), "deserialization_registry", {}).get(structure.type_name)
    return None if registered is None else registered[0]


def _export() -> Any:
    """Where jax.export keeps what was registered for files, or None where it has not been imported."""
    return sys.modules.get("jax._src.export._export")


def _made_by_jax(cls: type, value: Any, children: Sequence[Any]) -> Any:
    tree_util = sys.modules["jax.tree_util"]
    leaf = tree_util.tree_structure(0)
    one_level = tree_util.PyTreeDef.from_node_data_and_children(_registry(), (cls, value), [leaf] * len(children))
    return one_level.unflatten(children)
