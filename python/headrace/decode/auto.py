"""``decode="auto"``: what a dataset itself says of its columns.

Names, encodings and declarations are believed, values are never looked at. What is said must hold for the
whole column: where one file in a thousand ends otherwise, nothing is.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from headrace import _native
from headrace.data.tables.features import declared_features
from headrace.decode.arrays import audio, json, npy, npz, text
from headrace.decode.decoding import Decoding
from headrace.decode.images import image
from headrace.errors import InvalidArgumentError

if TYPE_CHECKING:
    from headrace.sources.source import Source

__all__ = ["decodings_of"]

_IMAGES = ("jpeg", "jpg", "png", "webp", "gif", "tif", "tiff", "image", "pil", "ppm")
# What files, and members of WebDataset samples, are named by.
_BY_ENDING: dict[str, Callable[..., Decoding]] = {
    **dict.fromkeys(("jpg", "jpeg", "png", "webp", "gif", "tif", "tiff"), image),
    **dict.fromkeys(("wav", "flac", "ogg", "aiff"), audio),
    "json": json,
    "txt": text,
    "npy": npy,
    "npz": npz,
}


def decodings_of(
    given: Mapping[str, Decoding] | str | None, source: Source, columns: list[str]
) -> dict[str, _native.Decode]:
    """The engine's decoders, by column.

    :param given: what a Loader was told. ``"auto"``: what encodings, names of members and files, and
        declarations beside the data say; a warning where they say nothing of any column of bytes.
    :param columns: those that are delivered; empty: all.
    """
    if given is None:
        return {}
    if isinstance(given, str):
        if given != "auto":
            raise InvalidArgumentError(
                f'decode={given!r} is unknown: expected "auto" or a dict of columns, {{"image": '
                f"hr.decode.image(...)}}"
            )
        given = _obvious(source, columns)
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


def _obvious(source: Source, columns: list[str]) -> dict[str, Decoding]:
    encodings = {
        name: encoding for name, encoding, *_ in source.native.columns() if not columns or name in columns
    }
    parts = [_Part(part, encodings) for part in _leaves(source)]
    found = {}
    for name in encodings:
        said = {part.decodings.get(name) for part in parts if name in part.encodings}
        if len(said) == 1 and (decoding := said.pop()) is not None:
            found[name] = decoding
    if not found:
        _warn(parts)
    return found


def _leaves(source: Source) -> Iterator[Source]:
    """The datasets that a source is made of."""
    for part in source.parts.values():
        yield from _leaves(part)
    if not source.parts:
        yield source


class _Part:
    """What one dataset says of those of its columns that are wanted."""

    def __init__(self, source: Source, wanted: Mapping[str, str]) -> None:
        self.url = source.native.url
        self.encodings = {name: encoding for name, encoding, *_ in source.native.columns() if name in wanted}
        self.bytes = [name for name, encoding in self.encodings.items() if encoding == "bytes"]
        self.looked_at = "their names"
        """Beside encodings; for people."""
        self.decodings: dict[str, Decoding] = {
            name: image() for name, encoding in self.encodings.items() if encoding in _IMAGES
        }
        if self.bytes:
            self.decodings |= self._of_bytes(source)

    def _of_bytes(self, source: Source) -> dict[str, Decoding]:
        found = {
            name: make() for name in self.bytes if (make := _BY_ENDING.get(name.rpartition(".")[2].lower()))
        }
        look = {"raw": self._by_files, "table": self._by_features, "tfrecord": self._by_companion}.get(
            source.native.format
        )
        return found | look(source) if look else found

    def _by_files(self, source: Source) -> dict[str, Decoding]:
        """Of raw files, which must all be of one kind."""
        endings = source.native.key_endings()
        most = sorted(endings, key=lambda name: -endings[name])
        shown = [f"{endings[name]} with {'.' + name if name else 'none'}" for name in most[:5]]
        self.looked_at = "endings of its files: " + ", ".join(shown) + (", ..." if most[5:] else "")
        makers = {_BY_ENDING.get(name) for name in endings}
        make = makers.pop() if len(makers) == 1 else None
        return {} if make is None else {name: make() for name in self.bytes if name == "data"}

    def _by_features(self, source: Source) -> dict[str, Decoding]:
        """Of tables that Hugging Face's `datasets` wrote."""
        self.looked_at = "their names, and the features that `datasets` declares in its files"
        if source.native.shard_count == 0 or not (key := source.native.shard(0)[0]):
            return {}
        features = declared_features(source.store, key)
        made = {name: _of_feature(features[name]) for name in self.bytes if name in features}
        return {name: decoding for name, decoding in made.items() if decoding is not None}

    def _by_companion(self, source: Source) -> dict[str, Decoding]:
        """Of tf.train.Examples as TensorFlow's own models name their features: the format beside the
        image."""
        self.looked_at = "their names"
        is_image = {"image/encoded", "image/format"} <= {name for name, *_ in source.native.columns()}
        return {"image/encoded": image()} if is_image and "image/encoded" in self.bytes else {}


def _of_feature(feature: Mapping[str, Any]) -> Decoding | None:
    kind = feature["_type"]
    if kind not in ("Image", "Audio") or not feature.get("decode", True):
        return None
    if kind == "Audio":
        return audio(sample_rate=feature.get("sampling_rate"))
    mode = feature.get("mode") or "RGB"
    return image(mode=mode) if mode in ("RGB", "RGBA", "L") else None


def _warn(parts: list[_Part]) -> None:
    """Says which columns stay bytes; where none is of bytes there is nothing to decode."""
    left = [
        f"{', '.join(map(repr, part.bytes))} of {part.url} ({part.looked_at})" for part in parts if part.bytes
    ]
    if not left:
        return
    name = next(part.bytes[0] for part in parts if part.bytes)
    warnings.warn(
        f'decode="auto" found nothing to decode. Looked at encodings, and of {"; ".join(left)}. Say what a '
        "column "
        f"holds: decode={{{name!r}: headrace.decode.image()}}, or leave decode= out.",
        RuntimeWarning,
        stacklevel=6,
    )
