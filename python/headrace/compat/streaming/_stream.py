"""Stream: one source of a StreamingDataset."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

_WEIGHTS = ("proportion", "repeat", "choose")


class Stream:
    """A data set, or one of several that are mixed. Arguments as in mosaicml-streaming.

    ``local`` is where the data lies when there is no ``remote``; with one it is kept for the script's sake, as shards are read
    where they lie. ``download_retry``, ``download_timeout`` and ``keep_zip`` have no effect: the engine retries within its own
    deadline and copies no shards. ``validate_hash`` compares each shard before its first sample.
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
            raise ValueError("At most one of `proportion`, `repeat`, and `choose` may be specified; the others are derived")
        for name, value in given.items():
            if value is not None and value < 0:
                raise ValueError(f"`{name}` must be non-negative")
            if value is not None:
                setattr(self, name, value)
        self.remote, self.local, self.split = remote, local, split or ""
        self.download_retry, self.download_timeout = download_retry, download_timeout
        self.validate_hash, self.keep_zip = validate_hash, keep_zip
        self._given: dict[str, Any] = {}
        self._derived: dict[str, Any] = {}

    def apply_default(self, default: Mapping[str, Any]) -> None:
        """Takes what was not given from the data set's arguments."""
        if not (self.remote or self.local):
            raise ValueError("`remote` and/or `local` path must be provided")
        self.split = self.split or default["split"] or ""
        for name in ("download_retry", "download_timeout", "validate_hash", "keep_zip"):
            if getattr(self, name) is None:
                setattr(self, name, default[name])

    def given_weights(self) -> tuple[float | None, float | None, int | None]:
        """(proportion, repeat, choose) as the script gave them, also by attribute: not what derive_weights() made of them."""
        now = {name: getattr(self, name) for name in _WEIGHTS if getattr(self, name, None) is not None}
        changed = {name: value for name, value in now.items() if name not in self._derived or value != self._derived[name]}
        if changed or not self._derived:
            self._given = changed
        if len(self._given) > 1:
            raise ValueError(f"Streams must provide at most one of `proportion`, `repeat`, or `choose`; {self.url} has {', '.join(self._given)}")
        return self._given.get("proportion"), self._given.get("repeat"), self._given.get("choose")

    def derive_weights(self, proportion: float, repeat: float, choose: int) -> None:
        """Says what the weights come to, in the attributes."""
        self._derived = {"proportion": proportion, "repeat": repeat, "choose": choose}
        self.proportion, self.repeat, self.choose = proportion, repeat, choose

    @property
    def url(self) -> str:
        """Where the samples are read from."""
        return os.path.join(self.remote or self.local or "", self.split).rstrip("/") or "/"
