"""What checkpoints there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from headrace.checkpoint.place import Place
from headrace.errors import CorruptError, NotFoundError, UnsupportedError

__all__ = ["Listed", "list_checkpoints"]

_READERS = 16


class Listed(NamedTuple):
    """A checkpoint, as its manifest and a listing of the data files say; nothing else was read."""

    step: int
    save: str = ""
    created: str = ""
    ranks: int = 0
    arrays: int = 0
    bytes: int = 0
    """Of all that it has, also in files of earlier saves."""
    written_bytes: int = 0
    """Of its own data files."""
    storage_classes: Sequence[str] = ()
    """Of the data files that it needs, as far as the store tells any."""
    metadata: Mapping[str, Any] = {}
    is_pinned: bool = False
    problem: str = ""
    """Why the manifest cannot be read; nothing else is known then."""


def list_checkpoints(place: Place) -> list[Listed]:
    """Of all steps, rising."""
    pins, classes = place.pins(), place.storage_classes()

    def read(step: int) -> Listed | None:
        try:
            manifest = place.manifest(step)
        except NotFoundError:
            return None  # Deleted meanwhile.
        except (CorruptError, UnsupportedError) as error:
            return Listed(step, is_pinned=step in pins, problem=str(error))
        return Listed(
            step,
            manifest.save,
            manifest.created,
            manifest.world_size,
            len(manifest.arrays),
            manifest.size,
            manifest.written,
            sorted({classes[key] for key in manifest.data_keys if key in classes}),
            manifest.metadata,
            step in pins,
        )

    with ThreadPoolExecutor(_READERS, "headrace-checkpoint-list") as pool:
        return [each for each in pool.map(read, place.steps()) if each is not None]
