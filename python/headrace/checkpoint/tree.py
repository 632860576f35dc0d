"""The tree of a state as JSON, with arrays taken out: no pickle, and so nothing that runs when it is read.

A node is a JSON scalar (text, integer, finite float, true, false, null), or an object with one entry that
says what it is: see ``_KINDS``.
"""

from __future__ import annotations

import base64
import io
import json
import math
import pickle
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from headrace.checkpoint.fields import Remaking, fields_of
from headrace.checkpoint.refused import why_refused
from headrace.errors import CorruptError, InvalidArgumentError

__all__ = [
    "DICTS",
    "TORCH_SAVE",
    "Node",
    "Path",
    "Template",
    "adopt",
    "copied_metadata",
    "differences",
    "flatten",
    "is_array",
    "made_key",
    "only_saved",
    "overlay",
    "paths_of",
    "rebuild",
    "template_of",
    "values_in",
]

Node: TypeAlias = Any
Path: TypeAlias = tuple[str, ...]
"""The keys on the way to a node, as JSON."""

TORCH_SAVE = "torch.save"
"""Kind of a node: the name of an array of bytes, which torch.save() has written."""
_DEPTH = 200
_KIND_OF: Mapping[type, str] = {dict: "dict", OrderedDict: "ordered", Counter: "counter"}
FIELDS = "fields"
"""Kind of a node: the fields of an object, by name; see fields_of()."""
DICTS: Mapping[str, Callable[[Any], Any]] = {FIELDS: dict} | {kind: made for made, kind in _KIND_OF.items()}
"""Kinds of nodes that are pairs of a key and a node, and what is made of them."""
_HELP = (
    "save numbers, text, bytes, arrays, and lists, tuples and dicts of them; or, where whoever loads it may "
    "run its code, allow_pickle=True"
)
_STATEFUL_HELP = (
    "which is saved by its state: put it into the outermost dict under a name, as in "
    '{"model": model, "optimizer": optimizer}, or save its state_dict()'
)


def is_array(value: Any) -> bool:
    """Whether a value is stored as an array: a numpy array, torch tensor or JAX array."""
    kind = type(value)
    if isinstance(value, np.ndarray):
        return True
    modules = {base.__module__.split(".")[0] for base in kind.__mro__}
    return ("torch" in modules and hasattr(value, "untyped_storage")) or (
        bool(modules & {"torch", "jax", "jaxlib"}) and hasattr(value, "shape") and hasattr(value, "dtype")
    )


class _Kept:
    """A node of a template: a value that has no place in a checkpoint, as it is."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Template(NamedTuple):
    """A state to load into."""

    tree: Node
    """With values that have no place in a checkpoint as they are."""
    arrays: dict[str, Any]
    """By name."""
    objects: Mapping[Path, Remaking]
    """Those that have fields."""


class _Flattening:
    def __init__(self, allow_pickle: bool, keeps: bool) -> None:
        self.allow_pickle, self.keeps = allow_pickle, keeps
        self.arrays: dict[str, Any] = {}
        self.objects: dict[Path, Remaking] = {}
        self._names: dict[Any, str] = {}
        self._keys: list[Any] = []  # On the way.

    def node(self, value: Any, path: tuple[str, ...]) -> Node:
        if len(path) > _DEPTH:
            raise InvalidArgumentError(f"{_shown(path)}: the state is nested more than {_DEPTH} deep")
        if value is None or type(value) in (bool, str, int):
            return _checked(value, path)
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if is_array(value):
            return {"array": self._name(value, path)}
        if type(value) in _KIND_OF:
            return {_KIND_OF[type(value)]: self._pairs(value.items(), path)}
        if type(value) in (list, tuple):
            items = [item for _, item in self._pairs(enumerate(value), path)]
            return items if type(value) is list else {"tuple": items}
        return self._leaf(value, path)

    def _pairs(self, items: Iterable[tuple[Any, Any]], path: tuple[str, ...]) -> list[Any]:
        pairs = []
        for key, value in items:
            named = _key(key, path)
            self._keys.append(named)
            pairs.append([named, self.node(value, (*path, str(key)))])
            self._keys.pop()
        return pairs

    def _leaf(self, value: Any, path: tuple[str, ...]) -> Node:
        if type(value) in (bytes, bytearray):
            return {type(value).__name__: base64.b64encode(value).decode()}
        if type(value) is complex:
            return {"complex": [repr(value.real), repr(value.imag)]}
        if isinstance(value, np.generic) and _says_all(value.dtype):
            return {"scalar": [value.dtype.str, base64.b64encode(value.tobytes()).decode()]}
        if type(value).__module__ == "torch" and type(value).__name__ in ("Size", "dtype", "device"):
            text = list(value) if type(value).__name__ == "Size" else str(value)
            return {"torch." + type(value).__name__: text}
        fields = fields_of(value)
        if fields is not None:
            self.objects[tuple(map(json.dumps, self._keys))] = fields.remaking
            return {FIELDS: self._pairs(zip(fields.remaking.names, fields.values, strict=True), path)}
        if self.keeps:
            return _Kept(value)
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        if self.allow_pickle:
            return {"pickle": base64.b64encode(_pickled(value, kind, path)).decode()}
        has_state = callable(getattr(value, "state_dict", None)) and not isinstance(value, type)
        why = _STATEFUL_HELP if has_state else f"which is no value of a checkpoint: {_HELP}"
        raise InvalidArgumentError(f"{_shown(path)} is a {kind}, {why}")

    def _name(self, value: Any, path: tuple[str, ...]) -> str:
        same = _identity(value)
        if same in self._names:
            return self._names[same]
        name = base = ".".join(path) or "state"
        number = 1
        while name in self.arrays:
            number += 1
            name = f"{base}#{number}"
        self.arrays[name] = value
        self._names[same] = name
        return name


def _pickled(value: Any, kind: str, path: tuple[str, ...]) -> bytes:
    try:
        return pickle.dumps(value, protocol=4)
    except Exception as error:  # Whatever its own methods raise.
        raise InvalidArgumentError(f"{_shown(path)} is a {kind}, which cannot be pickled: {error}") from error


def _identity(value: Any) -> Any:
    """The same for arrays that are one memory: tied weights are saved once."""
    if hasattr(value, "untyped_storage") and not hasattr(value, "__create_chunk_list__"):
        try:
            memory = value.data_ptr(), value.storage_offset(), value.stride()
        except (RuntimeError, ValueError):
            return id(value)  # It has none: sparse ones and others, which describe() refuses by name.
        bits = value.is_conj(), value.is_neg()
        if memory[0]:
            return ("torch", *memory, *bits, str(value.device), value.dtype, value.shape)
    return id(value)


def _shown(path: tuple[str, ...]) -> str:
    return "state" + "".join(f"[{key!r}]" for key in path)


def _checked(value: Any, path: tuple[str, ...]) -> Any:
    """A value that JSON can say in UTF-8."""
    try:
        str(value).encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            f"{_shown(path)} has text with a half of a surrogate pair, which UTF-8 cannot say: "
            f"{error.object[:80]!r}"
        ) from None
    except ValueError:  # Python's own limit.
        raise InvalidArgumentError(
            f"{_shown(path)} has an integer of {value.bit_length()} bits, too long to be written out; save "
            "its to_bytes()"
        ) from None
    return value


def copied_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """As whoever loads it has it; what changes later is not in it. Raises InvalidArgumentError for what is no
    mapping, and no JSON in UTF-8."""
    if metadata is not None and not isinstance(metadata, Mapping):
        raise InvalidArgumentError(f"metadata={metadata!r:.80}: expected a dict")
    try:
        text = json.dumps(dict(metadata or {}), allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"metadata= cannot be written as JSON: {error}") from None
    copy: dict[str, Any] = json.loads(text)
    return copy


def _key(key: Any, path: tuple[str, ...]) -> Any:
    if key is None or type(key) in (str, int, bool) or (type(key) is float and math.isfinite(key)):
        return _checked(key, path)
    if type(key) is tuple:
        return {"tuple": [_key(each, path) for each in key]}
    raise InvalidArgumentError(
        f"{_shown(path)} has a key of type {type(key).__qualname__}: keys are text, numbers, or tuples of "
        "them"
    )


def flatten(state: Any, allow_pickle: bool = False) -> tuple[Node, dict[str, Any]]:
    """(tree, arrays by name) of a state. Names are the keys on the way, joined by dots; the same memory twice
    is one array. Raises InvalidArgumentError for what has no place in a checkpoint, naming it."""
    flattening = _Flattening(allow_pickle, False)
    return flattening.node(state, ()), flattening.arrays


def template_of(state: Any) -> Template:
    """Named as by flatten()."""
    flattening = _Flattening(False, True)
    return Template(flattening.node(state, ()), flattening.arrays, flattening.objects)


def paths_of(node: Node, path: Path = ()) -> dict[Path, str]:
    """Names of all arrays in a tree, by the keys on the way."""
    if isinstance(node, list):
        node = {"tuple": node}
    if not isinstance(node, dict):
        return {}
    ((kind, value),) = node.items()
    if kind == "array":
        return {path: value}
    if kind == "tuple":
        value = list(enumerate(value))
    elif kind not in DICTS:
        return {}
    found: dict[Path, str] = {}
    for key, each in value:
        found |= paths_of(each, (*path, json.dumps(key)))
    return found


def values_in(node: Node) -> set[str]:
    """Names of the arrays that hold values which torch.save() has written."""
    if isinstance(node, list):
        return set().union(*map(values_in, node))
    if not isinstance(node, dict):
        return set()
    ((kind, value),) = node.items()
    if kind == TORCH_SAVE:
        return {value}
    if kind in DICTS:
        return set().union(*(values_in(each) for _, each in value))
    return values_in(value) if kind == "tuple" else set()


class _OnlySaved(str):
    """The name of an array in an overlaid tree that only the saved tree has."""


def only_saved(name: str) -> str:
    """The name of an array in an overlaid tree that only the saved tree has; ``""``: it is the template's."""
    return name if isinstance(name, _OnlySaved) else ""


def _marked(node: Node) -> Node:
    if isinstance(node, list):
        return [_marked(each) for each in node]
    if not isinstance(node, dict):
        return node
    ((kind, value),) = node.items()
    if kind in ("array", TORCH_SAVE):
        return {kind: _OnlySaved(value)}
    if kind in DICTS:
        return {kind: [[key, _marked(each)] for key, each in value]}
    return {kind: _marked(value)} if kind == "tuple" else node


def adopt(template: Node, saved: Node, is_alike: Callable[[str, str], bool]) -> Node:
    """The saved tree, with the template's array wherever both have one at a place and
    ``is_alike(its name, the saved name)``; where the saved one has an array of its own, the template has
    none."""
    own = paths_of(template)

    def node(saved: Node, path: Path) -> Node:
        if isinstance(saved, list):
            return [node(each, (*path, json.dumps(i))) for i, each in enumerate(saved)]
        if not isinstance(saved, dict):
            return saved
        ((kind, value),) = saved.items()
        if kind == "array":
            name = own.get(path)
            return {"array": name} if name is not None and is_alike(name, value) else None
        if kind in DICTS:
            return {kind: [[key, node(each, (*path, json.dumps(key)))] for key, each in value]}
        return {"tuple": node(value, path)} if kind == "tuple" else saved

    return node(saved, ())


def overlay(template: Node, saved: Node, *, union: bool) -> Node:
    """The template's tree with its own arrays, and the saved values of what is no array. ``union``: also what
    only the saved tree has; names of arrays in it are told apart by only_saved()."""
    if isinstance(template, list) and isinstance(saved, list) and len(template) == len(saved):
        return [overlay(a, b, union=union) for a, b in zip(template, saved, strict=True)]
    if not isinstance(template, dict) or not isinstance(saved, dict):
        return template if paths_of(template) else _marked(saved)
    ((kind, own), (other, value)) = (*template.items(), *saved.items())
    if kind in DICTS and other in DICTS:
        there = {json.dumps(key): each for key, each in value}
        keys = [json.dumps(key) for key, _ in own]
        pairs = [
            [key, overlay(each, there[text], union=union) if text in there else each]
            for text, (key, each) in zip(keys, own, strict=True)
        ]
        rest = [pair for pair in value if union and json.dumps(pair[0]) not in keys]
        return {kind: pairs + [[key, _marked(each)] for key, each in rest]}
    if kind == other == "tuple" and len(own) == len(value):
        return {"tuple": [overlay(a, b, union=union) for a, b in zip(own, value, strict=True)]}
    return template if paths_of(template) else _marked(saved)


def differences(template: Node, saved: Node, growing: Set[str]) -> Iterator[str]:
    """What overlay() leaves as the template has it, though it is no array of both: what the saved tree lacks,
    and lists with arrays that differ in kind or length. Below outermost keys that are ``growing``, something
    may be lacking: whoever takes it knows what to do without."""
    yield from _differences(template, saved, (), False, growing)


def _differences(
    template: Node, saved: Node, path: tuple[Any, ...], may_lack: bool, growing: Set[str]
) -> Iterator[str]:
    one, other = _opened(template), _opened(saved)
    if one is None:
        return  # Arrays are compared by their paths; of anything else the saved value is taken.
    kind, items = one
    if other is None or other[0] != kind or (kind != "dict" and len(other[1]) != len(items)):
        if paths_of(template):
            what = "no container" if other is None else f"a {other[0]} of {len(other[1])}"
            yield f"{_shown(path)} is a {kind} of {len(items)} here, and {what} there"
        return
    there = dict(other[1])
    for text, value in items:
        key = json.loads(text)
        if text in there:
            grows = may_lack or (not path and isinstance(key, str) and key in growing)
            yield from _differences(value, there[text], (*path, key), grows, growing)
        elif not may_lack and value not in _EMPTY:
            yield f"{_shown((*path, key))} is not in it"


_EMPTY: Sequence[Node] = ([], {"tuple": []}, *({kind: []} for kind in DICTS))


def _opened(node: Node) -> tuple[str, list[tuple[str, Node]]] | None:
    """Kind and items of a container."""
    if isinstance(node, list):
        return "list", [(str(i), each) for i, each in enumerate(node)]
    if not isinstance(node, dict):
        return None
    ((kind, value),) = node.items()
    if kind == "tuple":
        return kind, [(str(i), each) for i, each in enumerate(value)]
    return ("dict", [(json.dumps(key), each) for key, each in value]) if kind in DICTS else None


def rebuild(
    node: Node,
    array: Callable[[str], Any],
    allow_pickle: bool = False,
    objects: Mapping[Path, Remaking] = MappingProxyType({}),
) -> Any:
    """The state of a tree; ``array`` gives those by name. What has fields is what ``objects`` make of them,
    else a dict. Raises CorruptError for what is no tree, and InvalidArgumentError for a pickle where none is
    allowed, and for other fields."""
    return _Rebuilding(array, allow_pickle, objects).value(node, ())


class _Rebuilding:
    def __init__(
        self, array: Callable[[str], Any], allow_pickle: bool, objects: Mapping[Path, Remaking]
    ) -> None:
        self._array, self._allow_pickle, self._objects = array, allow_pickle, objects

    def value(self, node: Node, path: Path) -> Any:
        if node is None or isinstance(node, (bool, str, int, float)):
            return node
        if isinstance(node, _Kept):
            return node.value
        if isinstance(node, list):
            return self._items(node, path)
        if not isinstance(node, dict) or len(node) != 1:
            raise CorruptError(f"no node of a checkpoint's tree: {json.dumps(node)[:100]}")
        ((kind, value),) = node.items()
        if kind == "array":
            return self._array(value)
        if kind == "tuple":
            return tuple(self._items(value, path))
        if kind in DICTS:
            made = {made_key(key): self.value(each, (*path, json.dumps(key))) for key, each in value}
            return self._of_kind(kind, made, path)
        return self._leaf(kind, value)

    def _items(self, nodes: Sequence[Node], path: Path) -> list[Any]:
        return [self.value(each, (*path, json.dumps(i))) for i, each in enumerate(nodes)]

    def _of_kind(self, kind: str, made: dict[Any, Any], path: Path) -> Any:
        if kind == FIELDS and path in self._objects:
            return self._objects[path].of(made)
        return DICTS[kind](made)

    def _leaf(self, kind: str, value: Any) -> Any:
        if kind == TORCH_SAVE:
            return _torch_load(only_saved(value) or value, self._array(value), self._allow_pickle)
        if kind == "pickle":
            if not self._allow_pickle:
                raise InvalidArgumentError(
                    "the checkpoint holds pickled values, which run code when they are loaded: "
                    "allow_pickle=True if you trust who wrote it"
                )
            return pickle.loads(base64.b64decode(value))
        try:
            return _LEAVES.get(kind, _unknown)(value)
        except (AttributeError, TypeError, ValueError) as error:
            raise CorruptError(f"no {kind} of a checkpoint's tree: {value!r:.100}: {error}") from None


def _says_all(dtype: np.dtype[Any]) -> bool:
    """Whether its text makes the same again: that of records has no fields, that of others' types no name."""
    return not dtype.hasobject and np.dtype(dtype.str) == dtype


def _scalar(text: str, data: str) -> Any:
    dtype = np.dtype(text)
    return np.frombuffer(base64.b64decode(data), dtype)[0] if dtype.itemsize else dtype.type()


def _torch_load(name: str, data: Any, allow_pickle: bool) -> Any:
    """Of a tensor of bytes."""
    import torch

    try:
        return torch.load(io.BytesIO(data.numpy()), weights_only=not allow_pickle)
    except pickle.UnpicklingError as error:
        raise InvalidArgumentError(
            f"{name}: the checkpoint holds a value of other types than numbers, text, bytes, lists and "
            "dicts, which runs code when it is loaded: allow_pickle=True if you trust who wrote it "
            f"({why_refused(error)})"
        ) from None


def made_key(key: Any) -> Any:
    """Of a dict, of what a node has for it."""
    return tuple(made_key(each) for each in key["tuple"]) if isinstance(key, dict) else key


def _unknown(value: Any) -> Any:
    raise CorruptError(
        f"the checkpoint's tree has a kind of value that this version does not know: {value!r:.100}"
    )


def _torch(name: str, value: Any) -> Any:
    import torch

    if name == "dtype":
        return getattr(torch, value.removeprefix("torch."))
    return getattr(torch, name)(value)


_LEAVES: Mapping[str, Callable[[Any], Any]] = {
    "float": float,
    "bytes": base64.b64decode,
    "complex": lambda parts: complex(float(parts[0]), float(parts[1])),
    "bytearray": lambda text: bytearray(base64.b64decode(text)),
    "scalar": lambda parts: _scalar(*parts),
    "torch.Size": lambda value: _torch("Size", value),
    "torch.dtype": lambda value: _torch("dtype", value),
    "torch.device": lambda value: _torch("device", value),
}
