"""Hashes of shards, compared before the first of their samples is served."""

from __future__ import annotations

import json
import threading
from typing import Any

from headrace.compat.streaming._codecs import find_hash
from headrace.store.store import Store

_PARTS = ("data", "meta")


class ShardHashes:
    """Reads each shard's files whole, once, when :meth:`check` first asks for it."""

    def __init__(self, url: str, algorithm: str) -> None:
        self._url, self._algorithm = url, algorithm
        self._store = Store(url)
        self._checked: set[str] = set()
        self._lock = threading.Lock()
        # The files of a shard as they are stored, by the name of the first.
        self._files: dict[str, list[dict[str, Any]]] = {}
        for shard in json.loads(self._store.get("index.json"))["shards"]:
            files = [
                shard.get(f"zip_{part}") or shard[f"raw_{part}"] for part in _PARTS if f"raw_{part}" in shard
            ]
            self._files[files[0]["basename"]] = files

    def check(self, key: str) -> None:
        """Raises ValueError, as Mosaic does, unless the shard's files have the hashes of the index."""
        with self._lock:
            if key in self._checked:
                return
            for file in self._files[key]:
                self._check_file(file["basename"], file["hashes"])
            self._checked.add(key)

    def _check_file(self, name: str, hashes: dict[str, str]) -> None:
        if self._algorithm not in hashes:
            raise ValueError(
                f"Hash algorithm `{self._algorithm}` chosen for data validation does not match with those "
                f"provided during dataset creation `{sorted(hashes)}`. Provide one of those."
            )
        if find_hash(self._algorithm)(self._store.get(name)) != hashes[self._algorithm]:
            raise ValueError(f"Checksum failure: {self._url}/{name}")
