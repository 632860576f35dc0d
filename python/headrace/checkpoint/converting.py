"""Checkpoints of one format as those of another: our own, Hugging Face's safetensors, DCP, torch.save."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from headrace.checkpoint import dcp_format, safetensors
from headrace.checkpoint.arrays import describe, width_of
from headrace.checkpoint.checkpointer import Checkpointer
from headrace.checkpoint.dcp_format.reading import METADATA
from headrace.checkpoint.loading import read_all
from headrace.checkpoint.place import Place
from headrace.checkpoint.refused import why_refused
from headrace.checkpoint.tree import is_array
from headrace.errors import ChangedError, InvalidArgumentError, NotFoundError, UnsupportedError
from headrace.store.store import Store
from headrace.store.urls import local_path, parent_and_key

__all__ = ["SOURCES", "TARGETS", "Conversion", "find_format"]

SOURCES = ("headrace", "safetensors", "dcp", "torch")
TARGETS = ("headrace", "safetensors", "dcp")
_TORCH_ENDS = (".pt", ".pth", ".bin", ".ckpt")
_MEMORY = "1GiB"


def find_format(url: str, **options: Any) -> str:
    """One of SOURCES. Raises NotFoundError, naming what was looked for."""
    if url.endswith((".safetensors", ".safetensors.index.json")):
        return "safetensors"
    if url.endswith(_TORCH_ENDS):
        return "torch"
    store = Store(url, **options)
    try:
        if Place(store).steps():
            return "headrace"
        keys = [info.key for info in store.list(recursive=False)]
    except NotFoundError:
        keys = []
    finally:
        store.close()
    if any(key.endswith(METADATA) for key in keys):
        return "dcp"
    if any(key.endswith((".safetensors", ".safetensors.index.json")) for key in keys):
        return "safetensors"
    raise NotFoundError(
        f"{url}: no checkpoint is there: no steps/ (of headrace), no {METADATA} (of DCP), no .safetensors "
        f"file; a file of torch.save is named as such ({', '.join(_TORCH_ENDS)})"
    )


class Conversion:
    """One conversion. All of what is converted is in memory once.

    :param source: of any of SOURCES, which is found out by what lies there.
    :param to: one of TARGETS.
    :param step: of ours that is read; None: the one committed last.
    :param only: the part of the state to take: ``model``, or ``model.layers``.
    :param to_step: under which step it is saved as ours; None: that of the source, or 0.
    :param leave_out: values that the target cannot hold are left out; else they are an InvalidArgumentError.
    :param overwrite: what is at the target already is replaced.
    :param options: of the stores, both.

    Threads: :attr:`done` and :attr:`total` from any.
    """

    def __init__(
        self,
        source: str,
        target: str,
        to: str,
        *,
        step: int | None = None,
        only: str = "",
        to_step: int | None = None,
        leave_out: bool = False,
        overwrite: bool = False,
        max_shard_bytes: int | str = "5GB",
        **options: Any,
    ) -> None:
        if to not in TARGETS:
            raise InvalidArgumentError(f"to={to!r}: expected one of {', '.join(TARGETS)}")
        if to == "dcp" and local_path(target) is None:
            raise InvalidArgumentError(f"{target}: DCP's own writer needs a directory of this machine")
        self._source, self._target, self._to = source, target, to
        self._step, self._only, self._to_step = step, only, to_step
        self._leave_out, self._overwrite, self._max_shard_bytes = leave_out, overwrite, max_shard_bytes
        self._options = options
        self.source_format = find_format(source, **options)
        if step is not None and self.source_format != "headrace":
            raise InvalidArgumentError(f"step={step}: {source} is one checkpoint of {self.source_format}")
        self.total = 1
        """Bytes to read and to write, as far as is known."""
        self.done = 0
        self.arrays, self.bytes = 0, 0
        self.left_out: list[str] = []
        """Names of values that the target cannot hold."""

    def run(self) -> None:
        """Reads, then writes. Raises what either does, and ChangedError where something is there that is not
        to be replaced; nothing that was there before is changed by an error of the first."""
        self._check_target()
        state = _part(self._read(), self._only, self._source)
        sizes = [_bytes_of(_name_of(path), value) for path, value in _leaves(state) if is_array(value)]
        self.arrays, self.bytes = len(sizes), sum(sizes)
        self.done = self.bytes
        self.total = 2 * self.bytes
        {"headrace": self._save, "safetensors": self._save_safetensors, "dcp": self._save_dcp}[self._to](
            state
        )
        self.done = self.total

    # --- Reading ---

    def _read(self) -> Any:
        if self.source_format == "headrace":
            return self._read_own()
        if self.source_format == "safetensors":
            return safetensors.load(self._source, memory=_MEMORY, progress=self._note, **self._options)
        if self.source_format == "dcp":
            return dcp_format.load(self._source, memory=_MEMORY, progress=self._note, **self._options)
        return self._read_torch()

    def _note(self, done: int, total: int) -> None:
        self.done, self.total = done, 2 * total

    def _read_own(self) -> Any:
        place = Place(Store(self._source, memory=_MEMORY, **self._options))
        try:
            steps = place.candidates()
            manifest = place.manifest(steps[0] if self._step is None and steps else self._step or 0)
            self._step, self.total = manifest.step, 2 * manifest.size
            return read_all(place, manifest, False)[0]
        finally:
            place.close()

    def _read_torch(self) -> Any:
        import torch

        file: Any = local_path(self._source)
        if file is None:
            root, key = parent_and_key(self._source) or (self._source, "")
            store = Store(root, **self._options)
            try:
                file = io.BytesIO(store.get(key))
            finally:
                store.close()
        elif not os.path.exists(file):
            raise NotFoundError(f"{self._source}: no such file")
        try:
            return torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:
            raise UnsupportedError(
                f"{self._source}: torch.load(weights_only=True) does not take it: {why_refused(error)}"
            ) from error

    # --- Writing ---

    def _check_target(self, step: int | None = None) -> None:
        """``step``: that is to be saved there as ours."""
        if self._overwrite:
            return
        store = Store(self._target, **self._options)
        try:
            there = self._what_is_there(store, step)
        finally:
            store.close()
        if there:
            raise ChangedError(
                f"{self._target}: {there}; take a directory of its own, or --overwrite replaces it"
            )

    def _what_is_there(self, store: Store, step: int | None) -> str:
        if self._to == "headrace":
            place = Place(store)
            if place.highest_fence():
                return "jobs have saved there, and one that goes on would be stopped"
            return f"step {step} is there" if step in place.steps() else ""
        if self._to == "dcp":
            return "a checkpoint of DCP is there" if store.exists(METADATA) else ""
        is_taken = store.exists(safetensors.SINGLE) or store.exists(safetensors.INDEX)
        return "a model is there" if is_taken else ""

    def _save(self, state: Any) -> None:
        step = self._to_step if self._to_step is not None else self._step or 0
        self._check_target(step)
        with Checkpointer(self._target, memory=_MEMORY, **self._options) as checkpointer:
            notes = {"converted_from": self.source_format}
            checkpointer.save(step, state, metadata=notes, overwrite=self._overwrite).result()
        self._to_step = step

    @property
    def read_step(self) -> int | None:
        """That was read, of ours; None: another format."""
        return self._step

    @property
    def saved_step(self) -> int | None:
        """Of ours; None: another format."""
        return self._to_step if self._to == "headrace" else None

    def _save_safetensors(self, state: Any) -> None:
        flat, others = _flat(state)
        if others and not self._leave_out:
            some = ", ".join(others[:5]) + (", ..." if len(others) > 5 else "")
            raise InvalidArgumentError(
                f"{self._source}: safetensors files hold arrays alone, and {len(others)} values are none "
                f"({some}): take a part of it (--only model), or leave them out (--leave-out)"
            )
        self.left_out = others
        safetensors.save_sharded(
            self._target,
            flat,
            max_shard_bytes=self._max_shard_bytes,
            overwrite=self._overwrite,
            memory=_MEMORY,
            progress=lambda done, _: self._note_written(done),
            **self._options,
        )

    def _note_written(self, done: int) -> None:
        self.done = min(self.total, self.bytes + done)

    def _save_dcp(self, state: Any) -> None:
        from torch.distributed.checkpoint.filesystem import FileSystemWriter
        from torch.distributed.checkpoint.state_dict_saver import save

        from headrace.checkpoint.dcp.metadata import names_of

        path = local_path(self._target)
        assert path is not None
        if not isinstance(state, dict):
            raise InvalidArgumentError(
                f"{self._source}: DCP saves dicts, and this is a {type(state).__name__}"
            )
        state = _of_torch(state)
        names_of(state, self._source)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled")  # As it is meant here.
            save(state, storage_writer=FileSystemWriter(path), no_dist=True)


def _part(state: Any, path: str, source: str) -> Any:
    """What is at ``model.layers``; keys may have dots themselves."""
    if not path:
        return state
    missing = None
    if isinstance(state, Mapping):
        # The longest first, so that of ``model`` and ``model.ema`` each is found.
        for key in sorted(state, key=lambda key: -len(str(key))):
            if path == str(key):
                return state[key]
            if path.startswith(f"{key}."):
                try:
                    return _part(state[key], path[len(str(key)) + 1 :], source)
                except NotFoundError as error:
                    missing = missing or error
        below = {key: value for key, value in state.items() if str(key).startswith(path + ".")}
        if below:
            return {str(key)[len(path) + 1 :]: value for key, value in below.items()}
    if missing is not None:
        raise missing
    there = (
        ", ".join(str(key) for key in list(state)[:8]) if isinstance(state, Mapping) else type(state).__name__
    )
    raise NotFoundError(f"{source}: has no {path}; there is {there}")


def _leaves(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """What is no dict, list or tuple, with where it is."""
    items: Any = None
    if isinstance(node, Mapping):
        items = node.items()
    elif type(node) in (list, tuple):
        items = enumerate(node)
    if items is None:
        yield path, node
        return
    for key, value in items:
        yield from _leaves(value, (*path, str(key)))


class _Flat(NamedTuple):
    arrays: dict[str, Any]
    others: list[str]


def _flat(state: Any) -> _Flat:
    """Arrays by dotted name, and the names of what is no array."""
    flat = _Flat({}, [])
    for path, value in _leaves(state):
        name = _name_of(path)
        if not is_array(value):
            flat.others.append(name)
        elif name in flat.arrays:
            raise InvalidArgumentError(f"{name}: two arrays would have this name")
        else:
            flat.arrays[name] = value
    return flat


def _name_of(path: tuple[str, ...]) -> str:
    return ".".join(path) or "value"


def _bytes_of(name: str, value: Any) -> int:
    own = describe(name, value)
    return int(np.prod(own.shape, dtype=np.int64)) * width_of(own.dtype)


def _of_torch(node: Any) -> Any:
    """The same with arrays as tensors."""
    if isinstance(node, Mapping):
        return {key: _of_torch(value) for key, value in node.items()}
    if type(node) in (list, tuple):
        return type(node)(_of_torch(value) for value in node)
    if not is_array(node) or hasattr(node, "untyped_storage"):
        return node
    import torch

    array = np.asarray(node)
    out = torch.empty(array.shape, dtype=getattr(torch, array.dtype.name), device="cpu")
    if array.size:
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        out.reshape(-1).view(torch.uint8).copy_(torch.from_numpy(raw.copy()))
    return out
