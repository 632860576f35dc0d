"""What is made of a column's stored values, on the engine's threads and without Python's lock.

>>> import headrace as hr
>>> loader = hr.Loader(                                               # doctest: +SKIP
...     "s3://bucket/imagenet-mds", batch_size=256,
...     decode={"image": hr.decode.image(random_resized_crop=224, flip=True)},
... )
>>> next(iter(loader))["image"].shape                                 # doctest: +SKIP
(256, 224, 224, 3)

Every function gives a :class:`Decoding` for ``Loader(decode={column: ...})``. What is random follows from
the loader's seed, the epoch and the sample's position alone: the same on any number of threads and ranks,
and after a run went on from its state. A value that cannot be decoded is a bad sample: a CorruptError that
names it, or another sample in its place with ``on_bad_sample="replace"``. Only the error is there for what
Python alone makes: of ``json()`` what is UTF-8 but no JSON, ``npz()``, ``npy()`` without arguments, arrays of
``msgpack(numpy=True)``.
"""

from headrace.decode.arrays import audio, json, ndarray, npy, npz, text
from headrace.decode.decoding import Decoding
from headrace.decode.images import image, jpeg
from headrace.decode.records import feature, msgpack, tf_example

__all__ = [
    "Decoding",
    "audio",
    "feature",
    "image",
    "jpeg",
    "json",
    "msgpack",
    "ndarray",
    "npy",
    "npz",
    "text",
    "tf_example",
]
