"""Checkpoints that must be restored before they can be read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.checkpoint.cold import is_archive
from headrace.checkpoint.manifest import Manifest
from headrace.checkpoint.place import Place
from headrace.errors import HeadraceError, UnsupportedError

__all__ = ["explaining_archives", "storage_classes_of"]


def storage_classes_of(place: Place, manifest: Manifest) -> dict[str, str]:
    """Of its data files, by key, as far as the store tells any."""
    keys = set(manifest.data_keys)
    told = (place.storage_classes(f"saves/{save}/") for save in sorted(manifest.saves))
    return {key: name for some in told for key, name in some.items() if key in keys}


@contextmanager
def explaining_archives(place: Place, manifest: Manifest) -> Iterator[None]:
    """An error that comes of a data file in an archive class says what of the checkpoint lies there, and what
    to do."""
    try:
        yield
    except UnsupportedError as error:
        archived = _archived(place, manifest)
        if not archived:
            raise
        classes = ", ".join(sorted(set(archived.values())))
        raise UnsupportedError(
            f"{place.url}: step {manifest.step} cannot be read before it is restored: {len(archived)} of its "
            f"{len(set(manifest.data_keys))} data files are in {classes}. Restore each ({_how(classes)}), "
            f"wait until that is done, and load again; headrace ckpt info {place.url} {manifest.step} --json "
            f"names them. {error}"
        ) from error


def _archived(place: Place, manifest: Manifest) -> dict[str, str]:
    try:
        return {key: name for key, name in storage_classes_of(place, manifest).items() if is_archive(name)}
    except HeadraceError:
        return {}


def _how(classes: str) -> str:
    if classes == "Archive":
        return "az storage blob set-tier --tier Hot --rehydrate-priority High"
    return "aws s3api restore-object --restore-request Days=7"
