"""Values that hold values of their own: tf.train.Example, msgpack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headrace import _native
from headrace.decode.arrays import sides_of, text
from headrace.decode.decoding import Decoding
from headrace.errors import InvalidArgumentError

__all__ = ["Feature", "feature", "msgpack", "tf_example"]

_NUMBERS = ("float32", "int64")


class Feature(NamedTuple):
    """What is known of a feature of tf.train.Examples; made by :func:`feature`."""

    kind: str | Decoding
    shape: tuple[int, ...] | None
    default: Any

    def __repr__(self) -> str:
        shape = "" if self.shape == () else f", shape={self.shape!r}"
        default = "" if self.default is None else f", default={self.default!r}"
        return f"headrace.decode.feature({self.kind!r}{shape}{default})"


def feature(
    kind: str | Decoding = "bytes", shape: int | Sequence[int] | None = (), *, default: Any = None
) -> Feature:
    """A feature for :func:`tf_example`.

    :param kind: what the records hold: ``"int64"``, ``"float32"``, ``"bytes"``; ``"str"``: bytes that are
        UTF-8; or a decoder for the bytes, as :func:`image`.
    :param shape: of the values: ``()`` a single one, ``4`` or ``(2, 2)`` so many; a sample with another
        number of them is a bad sample. None: any number, none where the feature is missing. Bytes are one
        value or any number.
    :param default: what a sample has where the feature is missing: a number for all values, or as many as
        ``shape`` says; bytes or a str. None: a sample without it is a bad sample.
    """
    if kind not in (*_NUMBERS, "bytes", "str") and not isinstance(kind, Decoding):
        raise InvalidArgumentError(
            f"feature({kind!r}): expected int64, float32, bytes, str or what a function of headrace.decode "
            "makes"
        )
    if shape is None:
        return Feature(kind, None, default)
    return Feature(kind, sides_of("feature()", shape), default)


def tf_example(features: Mapping[str, str | Decoding | Feature]) -> Decoding:
    """Serialized ``tf.train.Example`` messages: a column for each feature, named like it, in place of the
    stored one.

    >>> hr.decode.tf_example({                                      # doctest: +SKIP
    ...     "image/encoded": hr.decode.image(random_resized_crop=224),
    ...     "image/class/label": "int64",                           # one number: an array (samples,)
    ...     "box": hr.decode.feature("float32", shape=4, default=0),
    ...     "tokens": hr.decode.feature("int64", shape=None),       # any number: a list of arrays
    ... })

    For Examples that lie in ArrayRecord, WebDataset, MDS or anything else. Those of TFRecord files are
    columns already; ``columns=["record"]`` gives them whole, for this.

    :param features: by name, what :func:`feature` makes, or its first argument. Others are passed over.
    :raises InvalidArgumentError: a feature that contradicts itself.
    """
    given = {name: what if isinstance(what, Feature) else feature(what) for name, what in features.items()}
    native = _native.decode_tf_example([_native_feature(name, what) for name, what in given.items()])
    return Decoding(tf_example, {"features": dict(features)}, native)


def msgpack(*, numpy: bool = False) -> Decoding:
    """The bytes are one msgpack object each: a list of what they say. Timestamps are
    ``numpy.datetime64[ns]``; other extension types are an UnsupportedError. Text must be UTF-8.

    :param numpy: maps as the package msgpack-numpy writes them become arrays and numpy's numbers. Arrays of
        Python objects, which it pickles, are an error.
    """
    return Decoding(msgpack, {"numpy": True} if numpy else {}, _native.decode_msgpack(numpy))


def _native_feature(
    name: str, what: Feature
) -> tuple[str, str, tuple[int, ...] | None, bytes | None, _native.Decode | None]:
    kind, shape, default = what
    if kind in _NUMBERS:
        return name, str(kind), shape, _number_default(name, what), None
    if isinstance(default, str):
        default = default.encode()
    if default is not None and not isinstance(default, bytes):
        raise InvalidArgumentError(
            f"tf_example: feature {name!r} is of bytes, and its default {default!r} is not"
        )
    decoding = text() if kind == "str" and shape is not None else kind
    if shape is None and kind == "str":
        raise InvalidArgumentError(f'tf_example: feature {name!r}: a list of "str" is given as "bytes"')
    return name, "bytes", shape, default, decoding._native if isinstance(decoding, Decoding) else None


def _number_default(name: str, what: Feature) -> bytes | None:
    """The values of a sample that lacks the feature, as a column has them."""
    import numpy as np

    if what.default is None:
        return None
    if what.shape is None:
        raise InvalidArgumentError(
            f"tf_example: feature {name!r} has any number of values, so none where it is missing: leave out "
            "default="
        )
    try:
        values = np.asarray(what.default)
        exact = values.astype(str(what.kind))
        if what.kind == "int64" and not np.array_equal(values, exact):
            raise ValueError(f"{what.default!r} is not int64")
        return np.broadcast_to(exact, what.shape).tobytes()
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidArgumentError(
            f"tf_example: feature {name!r}, default={what.default!r}: {error}"
        ) from None
