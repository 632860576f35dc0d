"""Loading checkpoints of torch.distributed.checkpoint: metadata and values by our own unpickler, tensors as
ranges."""

from __future__ import annotations

import math
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace import _native
from headrace.checkpoint.arrays import Chunk
from headrace.checkpoint.dcp_format.archives import Archive, Item, open_archives
from headrace.checkpoint.dcp_format.pickles import StoredTensor, read_metadata
from headrace.checkpoint.files_at_once import read_files
from headrace.checkpoint.plan import _check_cover
from headrace.errors import CorruptError, InvalidArgumentError, NotFoundError, UnsupportedError
from headrace.store.store import Store

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from headrace.store.store import StoreOptions

__all__ = ["METADATA", "load"]

METADATA = ".metadata"


def load(
    url: str | os.PathLike[str],
    *,
    names: Collection[str] | None = None,
    flat: bool = False,
    memory: int | str = "1GiB",
    progress: Callable[[int, int], None] | None = None,
    **options: Unpack[StoreOptions],
) -> dict[str, Any]:
    """Loads a checkpoint that torch.distributed.checkpoint has written: whole tensors, whatever ranks wrote
    them, and all other values.

    >>> state = headrace.checkpoint.dcp_format.load("s3://bucket/step-1000")  # doctest: +SKIP

    Nothing of the checkpoint is run: its pickles may use DCP's own classes, tensors, and plain values, and
    anything else is an error that names it. Tensors are read as ranges, in parallel, into their memory. The
    format has no sums: what the store and the wire say is believed.

    :param url: the directory that has ``.metadata``.
    :param names: only those, as DCP calls them (``model.layers.0.weight``).
    :param flat: by those names, instead of the tree that was saved. In its lists, None stands where DCP has
        saved nothing (an empty dict) and for what is not among ``names``.
    :param memory: bytes under way.
    :param progress: called with (bytes read, bytes of all files that are read from) after each file, from any
        thread.
    :param options: of the store, as :class:`headrace.Store` takes them.
    :returns: torch tensors on the CPU, and what else was saved.
    :raises NotFoundError: no ``.metadata``; a file or a name that is not there.
    :raises CorruptError: what makes no sense, with file and name.
    :raises UnsupportedError: a pickle that wants other things than a checkpoint needs, which are named;
        extensions of the format.

    Threads: any.
    """
    store = Store(url, memory=memory, **options)
    try:
        checkpoint = _Checkpoint(store, progress)
        values = checkpoint.read(list(checkpoint.names if names is None else names))
        return values if flat else _tree(values, checkpoint.paths, store.url)
    finally:
        store.close()


class _Stored(NamedTuple):
    """A piece of a tensor, or another value."""

    name: str
    chunk: Chunk | None
    item: Item


class _Checkpoint:
    def __init__(self, store: Store, progress: Callable[[int, int], None] | None) -> None:
        self._store, self._where = store, f"{store.url}/{METADATA}"
        self._progress, self._done = progress, Counter[str]()
        try:
            data = store.get(METADATA)
        except NotFoundError:
            some = [info.key for info in store.list(recursive=False) if info.key.endswith(METADATA)]
            why = (
                "was written without collectives, a metadata file a rank"
                if some
                else "is no checkpoint of DCP"
            )
            raise (UnsupportedError if some else NotFoundError)(
                f"{store.url}: has no {METADATA}: {why}"
            ) from None
        metadata = read_metadata(data, self._where)
        try:
            self.names: Mapping[str, Any] = dict(metadata.state_dict_metadata)
            self.paths: Mapping[str, Any] = dict(getattr(metadata, "planner_data", None) or {})
            self._places = {key.key: info for key, info in metadata.storage_data.items()}
        except (AttributeError, TypeError) as error:
            raise CorruptError(f"{self._where}: is not DCP's metadata: {error}") from None
        self._etags: dict[str, tuple[str, int]] = {}

    def read(self, names: list[str]) -> dict[str, Any]:
        missing = [name for name in names if name not in self.names]
        if missing:
            raise NotFoundError(f"{self._store.url}: has no {', '.join(sorted(missing)[:5])}")
        stored = [each for name in names for each in self._stored(name)]
        by_item = {each.item: each for each in stored}
        archives = open_archives(self._store, by_item, lambda item: by_item[item].name)
        values: dict[str, Any] = {}
        rows: dict[str, list[Any]] = defaultdict(list)
        for each, archive in zip(stored, (archives[n] for n in _numbers(stored, by_item)), strict=True):
            if each.chunk is None:
                values[each.name] = _plain(archive.value(), archive)
                continue
            if each.name not in values:
                values[each.name] = self._empty(each.name)
            what = f"{self._store.url}/{each.item.key}: {each.name}"
            found = _found(archive, each.chunk, values[each.name], what)
            if _is_as_it_lies(found):
                rows[each.item.key] += _rows(archive, found, each, values[each.name], what)
            else:
                _box(values[each.name], each.chunk).copy_(_tensor(found, archive))
        self._fill(rows)
        for name in names:
            if name not in values:
                values[name] = self._empty(name)
        return {name: values[name] for name in names}

    def _fill(self, rows: Mapping[str, list[Any]]) -> None:
        def read(key: str) -> None:
            _native.checkpoint_read(self._store._native, key, self._etags[key][0], rows[key])
            self._done[key] = self._etags[key][1]
            if self._progress is not None:
                self._progress(self._done.total(), sum(size for _, size in self._etags.values()))

        read_files(self._store, read, rows)

    def _stored(self, name: str) -> list[_Stored]:
        about = self.names[name]
        what = f"{self._where}: {name}"
        try:
            if not hasattr(about, "chunks"):
                return [_Stored(name, None, self._item((name, None), what))]
            shape = tuple(about.size)
            chunks = [Chunk(tuple(each.offsets), tuple(each.sizes)) for each in about.chunks]
        except (AttributeError, TypeError) as error:
            raise CorruptError(f"{what}: is described as nothing that DCP writes: {error}") from None
        try:
            _check_cover(what, shape, sorted(chunks))
        except InvalidArgumentError as error:
            raise CorruptError(str(error)) from None
        return [_Stored(name, chunk, self._item((name, chunk.offsets), what)) for chunk in chunks]

    def _item(self, key: tuple[str, Any], what: str) -> Item:
        try:
            info = self._places[key]
            path, offset, length = info.relative_path, info.offset, info.length
        except (KeyError, AttributeError):
            raise CorruptError(f"{what}: nothing says where {key[1] or 'it'} was stored") from None
        if getattr(info, "transform_descriptors", None):
            raise UnsupportedError(f"{what}: is compressed or encrypted by an extension of DCP")
        if not isinstance(path, str) or path.startswith("/") or ".." in path.split("/"):
            raise CorruptError(f"{what}: {path!r:.80} is no file of a checkpoint")
        etag, size = self._version(path)
        if not (type(offset) is type(length) is int and offset >= 0 and 0 < length <= size - offset):
            raise CorruptError(
                f"{what}: lies at {offset!r:.40}, {length!r:.40} bytes of {path}, which has {size}"
            )
        return Item(path, etag, offset, length)

    def _version(self, key: str) -> tuple[str, int]:
        if key not in self._etags:
            info = self._store.head(key)
            self._etags[key] = info.etag, info.size
        return self._etags[key]

    def _empty(self, name: str) -> Any:
        """The whole tensor, to be filled."""
        import torch

        about = self.names[name]
        properties = getattr(about, "properties", None)
        state = getattr(properties, "state", None)
        dtype = state[0] if isinstance(state, (list, tuple)) and state else getattr(properties, "dtype", None)
        if not isinstance(dtype, torch.dtype):
            raise CorruptError(f"{self._where}: {name}: {dtype!r:.40} is no dtype")
        return torch.empty(tuple(about.size), dtype=dtype, device="cpu")


def _numbers(stored: list[_Stored], by_item: Mapping[Item, Any]) -> list[int]:
    number = {item: n for n, item in enumerate(by_item)}
    return [number[each.item] for each in stored]


def _found(archive: Archive, chunk: Chunk, target: Any, what: str) -> StoredTensor:
    """The tensor of an archive, which is a piece of the target."""
    found = archive.value()
    if not isinstance(found, StoredTensor) or found.shape != chunk.sizes:
        raise CorruptError(f"{what}: the archive has {found!r:.120} instead of its piece {list(chunk.sizes)}")
    if found.dtype != str(target.dtype).removeprefix("torch."):
        raise CorruptError(f"{what}: is {found.dtype} in the archive, and {target.dtype} in {METADATA}")
    return found


def _box(target: Any, chunk: Chunk) -> Any:
    return target[tuple(slice(o, o + s) for o, s in zip(chunk.offsets, chunk.sizes, strict=True))]


def _rows(archive: Archive, found: StoredTensor, stored: _Stored, target: Any, what: str) -> list[Any]:
    """What _native.checkpoint_read() takes: the tensor of an archive as a box of the whole one."""
    chunk = stored.chunk
    assert chunk is not None
    count, width = math.prod(chunk.sizes), target.element_size()
    if count == 0:
        return []
    at, length = archive.place(found.storage.key)
    begin = found.offset * width
    if found.offset < 0 or begin + count * width > length:
        raise CorruptError(f"{what}: its storage has {length} bytes, too few")
    strides = tuple(stride * width for stride in target.stride())
    address = target.data_ptr() + sum(o * stride for o, stride in zip(chunk.offsets, strides, strict=True))
    zeros = (0,) * len(chunk.sizes)
    place = stored.item.offset + at + begin
    return [(place, count * width, None, width, chunk.sizes, zeros, chunk.sizes, address, strides)]


def _is_as_it_lies(found: StoredTensor) -> bool:
    """Row-major, and its numbers are those of its storage."""
    step = 1
    for size, stride in zip(reversed(found.shape), reversed(found.strides), strict=True):
        if size != 1 and stride != step:
            return False
        step *= size
    return not (found.is_conj or found.is_neg)


def _plain(value: Any, archive: Archive) -> Any:
    """A value with its tensors."""
    if isinstance(value, StoredTensor):
        return _tensor(value, archive)
    if isinstance(value, dict):
        return type(value)((key, _plain(each, archive)) for key, each in value.items())
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(_plain(each, archive) for each in value)
    return value


def _tensor(stored: StoredTensor, archive: Archive) -> Any:
    import torch

    data = bytearray(archive.storage(stored.storage.key))
    dtype = getattr(torch, stored.dtype)
    last = stored.offset + sum((n - 1) * s for n, s in zip(stored.shape, stored.strides, strict=True))
    if math.prod(stored.shape) == 0:
        return torch.empty(stored.shape, dtype=dtype, device="cpu")
    if min(stored.offset, *stored.strides, 0) < 0 or (last + 1) * dtype.itemsize > len(data):
        raise CorruptError(f"{archive.item.key}: a tensor lies outside of its storage")
    whole = torch.frombuffer(data, dtype=torch.uint8).view(dtype)
    found = whole.as_strided(stored.shape, stored.strides, stored.offset).clone()
    try:
        if stored.is_conj:
            found = found.conj_physical()
        return found.neg() if stored.is_neg else found
    except RuntimeError as error:
        raise UnsupportedError(
            f"{archive.item.key}: a tensor of {stored.dtype} is marked as conjugated or negated: {error}"
        ) from None


def _tree(values: Mapping[str, Any], paths: Mapping[str, Any], url: str) -> dict[str, Any]:
    """As it was before DCP made names of it: numbers in a path are places in a list."""
    root = _Node()
    for name, value in values.items():
        node: Any = root
        path = paths.get(name) or (name,)
        if type(path) is not tuple or not all(type(key) in (str, int) for key in path):
            raise CorruptError(f"{url}: {name} lies at {path!r:.80}, which is no path")
        if any(type(key) is int and not 0 <= key < _LIST_ITEMS for key in path[1:]):
            raise CorruptError(f"{url}: {name} lies at {path!r:.80}, which is no place in a list")
        for key in path[:-1]:
            node = node.setdefault(key, _Node())
            if not isinstance(node, _Node):
                raise CorruptError(f"{url}: {name} lies below another value")
        node[path[-1]] = value
    return {key: _lists(value) for key, value in root.items()}


_LIST_ITEMS = 1 << 20
"""So many a list may have: one far place alone makes as many."""


class _Node(dict[Any, Any]):
    """Of the tree, and no value."""


def _lists(node: Any) -> Any:
    """Places that have no name are None: DCP saves nothing for an empty dict or list, and may be asked for
    some names only."""
    if not isinstance(node, _Node):
        return node
    if all(type(key) is int for key in node):
        return [_lists(node.get(place)) for place in range(max(node) + 1)]
    return {key: _lists(value) for key, value in node.items()}
