"""Stream: one source of a StreamingDataset."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from typing import Any

from headrace.base.ranks import count_of
from headrace.compat.streaming._copies import Copies
from headrace.compat.streaming._registry import Registry
from headrace.compat.streaming._shards import INDEX, Reader, make_readers, parse_index
from headrace.compat.streaming._world import World
from headrace.store.store import Store

_WEIGHTS = ("proportion", "repeat", "choose")


class Stream:
    """A data set, or one of several that are mixed. Arguments as in mosaicml-streaming.

    With ``remote`` and ``local``, shards are copied to ``local`` before their first sample and stay there:
    the next run finds them. With one of the two, the data is read where it lies, and nothing is copied.
    ``validate_hash`` compares each shard before its first sample; a copy is compared without it too where the
    index has hashes. ``download_retry`` and ``download_timeout`` (seconds, for one shard) are those of
    copying.
    """

    proportion: Any
    repeat: Any
    choose: Any

    def __init__(
        self,
        *,
        remote: str | None = None,
        local: str | None = None,
        split: str | None = None,
        proportion: float | None = None,
        repeat: float | None = None,
        choose: int | None = None,
        download_retry: int | None = None,
        download_timeout: float | None = None,
        validate_hash: str | None = None,
        keep_zip: bool | None = None,
    ) -> None:
        given = {"proportion": proportion, "repeat": repeat, "choose": choose}
        if sum(value is not None for value in given.values()) > 1:
            raise ValueError(
                "At most one of `proportion`, `repeat`, and `choose` may be specified; the others are derived"
            )
        for name, value in {**given, "download_retry": download_retry}.items():
            if value is not None and value < 0:
                raise ValueError(f"`{name}` must be non-negative")
        if download_timeout is not None and download_timeout <= 0:
            raise ValueError("`download_timeout` must be positive")
        for name, value in given.items():
            if value is not None:
                setattr(self, name, value)
        self.remote, self._local, self.split = remote, local, split or ""
        self.local = self._unused_temporary_directory() if local is None else local
        self.download_retry, self.download_timeout = download_retry, download_timeout
        self.validate_hash, self.keep_zip = validate_hash, keep_zip
        self._given: dict[str, Any] = {}
        self._derived: dict[str, Any] = {}
        self._copies: Copies | None = None

    def _unused_temporary_directory(self) -> str:
        """Where Mosaic would keep copies. Nothing is put there, but what lies there already may be Mosaic's:
        it refuses then."""
        digest = (
            hashlib.blake2s(self.remote.encode(), digest_size=16).hexdigest()
            if self.remote is not None
            else ""
        )
        path = os.path.join(tempfile.gettempdir(), digest, self.split)
        if os.path.exists(path) and not count_of("LOCAL_RANK", 0):
            raise FileExistsError(
                f"Could not create a temporary local directory {path} because it already exists. If you want "
                "to reuse the locally cached dataset, explicitly pass in a unique local directory with the "
                "`local` argument. Otherwise, delete this directory and retry."
            )
        return path

    def apply_default(self, default: Mapping[str, Any]) -> None:
        """Takes what was not given from the data set's arguments."""
        if not (self.remote or self._local):
            raise ValueError("`remote` and/or `local` path must be provided")
        self.split = self.split or default["split"] or ""
        for name in ("download_retry", "download_timeout", "validate_hash", "keep_zip"):
            if getattr(self, name) is None:
                setattr(self, name, default[name])

    def given_weights(self) -> tuple[float | None, float | None, int | None]:
        """(proportion, repeat, choose) as the script gave them, also by attribute: not what derive_weights()
        made of them."""
        now = {name: getattr(self, name) for name in _WEIGHTS if getattr(self, name, None) is not None}
        changed = {
            name: value
            for name, value in now.items()
            if name not in self._derived or value != self._derived[name]
        }
        if changed or not self._derived:
            self._given = changed
        if len(self._given) > 1:
            raise ValueError(
                f"Streams must provide at most one of `proportion`, `repeat`, or `choose`; {self.url} has "
                f"{', '.join(self._given)}"
            )
        return self._given.get("proportion"), self._given.get("repeat"), self._given.get("choose")

    def derive_weights(self, proportion: float, repeat: float, choose: int) -> None:
        """Says what the weights come to, in the attributes."""
        self._derived = {"proportion": proportion, "repeat": repeat, "choose": choose}
        self.proportion, self.repeat, self.choose = proportion, repeat, choose

    @property
    def url(self) -> str:
        """Where the samples are read from."""
        return os.path.join(self.remote or self.local or "", self.split).rstrip("/") or "/"

    # Copies.

    @property
    def directory(self) -> str:
        """Where the files of this split are, or would be, on this machine."""
        return os.path.join(self.local, self.split)

    @property
    def keeps_copies(self) -> bool:
        """Whether samples are read from copies; also where a subclass says how to get shards."""
        has_two = self.remote is not None and self._local is not None and self.remote != self.local
        return (
            has_two
            or type(self).get_shards is not Stream.get_shards
            or type(self).prepare_shard is not Stream.prepare_shard
        )

    @property
    def copies(self) -> Copies:
        if self._copies is None:
            is_remote = self.remote is not None and self.remote != self.local
            self._copies = Copies(
                self.url if is_remote else None,
                self.directory,
                retry=2 if self.download_retry is None else self.download_retry,
                timeout=60 if self.download_timeout is None else self.download_timeout,
                validate_hash=self.validate_hash,
                keep_zip=bool(self.keep_zip),
            )
        return self._copies

    def get_shards(self, world: World, allow_unsafe_types: bool) -> list[Reader]:
        """The shards, as ``index.json`` has them; it is copied where copies are kept."""
        path = os.path.join(self.directory, INDEX)
        if self.keeps_copies:
            text = _read_file(self.copies.fetch_index())
        elif self.remote is not None:
            path = f"{self.url}/{INDEX}"
            with Store(self.url) as store:
                text = store.get(INDEX)
        elif os.path.exists(path):
            text = _read_file(path)
        else:
            raise RuntimeError(f"No `remote` provided, but local file {path} does not exist either")
        return make_readers(parse_index(text, path), self.local, self.split, allow_unsafe_types, path)

    def prepare_shard(self, shard: Reader) -> int:
        """Makes sure that a shard's files are in ``local``, whole and decompressed. Returns by how many bytes
        it has grown."""
        return self.copies.prepare(shard)

    def get_index_size(self) -> int:
        """Bytes of ``index.json`` in ``local``."""
        return os.stat(os.path.join(self.directory, INDEX)).st_size


def _read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


streams_registry = Registry("streaming_streams_registry", "Classes of streams, for `stream_name`.")
streams_registry.register("stream", func=Stream)
