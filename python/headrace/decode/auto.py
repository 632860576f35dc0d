"""``decode="auto"``: what is obvious about a dataset's columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace import _native
from headrace.decode.arrays import json, npy, npz, text
from headrace.decode.decoding import Decoding
from headrace.decode.images import image
from headrace.errors import InvalidArgumentError

__all__ = ["decodings_of"]

_IMAGES = ("jpeg", "jpg", "png", "webp", "gif", "tif", "tiff", "image", "pil", "ppm")
# Members of WebDataset samples are named by what they hold.
_BY_NAME = {
    **dict.fromkeys(("jpg", "jpeg", "png", "webp", "gif", "tif", "tiff"), image),
    "json": json,
    "txt": text,
    "npy": npy,
    "npz": npz,
}


def decodings_of(
    given: Mapping[str, Decoding] | str | None, dataset: _native.Dataset, columns: list[str]
) -> dict[str, _native.Decode]:
    """The engine's decoders, by column.

    :param given: what a Loader was told. ``"auto"``: images by the column's encoding or the member's name,
        JSON, text and arrays by the member's name. Nothing is guessed from values.
    :param columns: those that are delivered; empty: all.
    """
    if given is None:
        return {}
    if isinstance(given, str):
        if given != "auto":
            raise InvalidArgumentError(
                f'decode={given!r} is unknown: expected "auto" or a dict of columns, {{"image": hr.decode.image(...)}}'
            )
        given = _obvious(dataset, columns)
    if not isinstance(given, Mapping):
        raise InvalidArgumentError(
            f'decode={given!r}: expected a dict of columns, {{"image": hr.decode.image(...)}}, or "auto"'
        )
    for name, decoding in given.items():
        if not isinstance(decoding, Decoding):
            raise InvalidArgumentError(
                f"decode: column {name!r} has {decoding!r}; expected what a function of headrace.decode makes"
            )
    return {name: decoding._native for name, decoding in given.items()}


def _obvious(dataset: _native.Dataset, columns: list[str]) -> dict[str, Decoding]:
    found: dict[str, Decoding] = {}
    for name, encoding, *_ in dataset.columns():
        if columns and name not in columns:
            continue
        if decoding := _of(name, encoding):
            found[name] = decoding
    return found


def _of(name: str, encoding: str) -> Decoding | None:
    if encoding in _IMAGES:
        return image()
    if encoding != "bytes":
        return None
    make: Any = _BY_NAME.get(name.rpartition(".")[2].lower())
    return None if make is None else make()
