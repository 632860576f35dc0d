"""MixUp and CutMix, for ``loader.map(..., per="batch")``.

>>> from headrace import transforms
>>> mix = transforms.one_of(
...     transforms.mixup("image", "label", classes=1000, alpha=0.2),
...     transforms.cutmix("image", "label", classes=1000),
... )
>>> loader = hr.Loader(url, batch_size=256, decode={...}).map(mix, per="batch")   # doctest: +SKIP

Each image is mixed with the one before it in its batch, the first with the last, by a share that is drawn
once a batch; labels become shares of the classes, float32 ``(samples, classes)``. What is drawn follows from
the loader's seed, the epoch and the batch's first sample: the same on any number of workers, and after a run
went on from its state. Which images meet depends on the batch of the rank, and so on the number of ranks.
Images change in their memory; no second batch is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.base.units import whole_number
from headrace.errors import InvalidArgumentError
from headrace.loader.mapping.tensors import is_tensor, to_bits, to_tensor

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["cutmix", "mixup", "one_of"]

Transform = Callable[..., dict[str, Any]]

_BLOCK = 32 << 10  # Elements mixed at a time: what they become in between stays in the cache.


def mixup(
    images: str, labels: str, *, classes: int, alpha: float = 0.2, probability: float = 1.0
) -> Transform:
    """MixUp (Zhang et al. 2017), as torchvision's: all pixels of two images, each with its share.

    :param images: a column of images of one size, uint8 or floating point. Shares of uint8 are multiples of
        1/256, and results rounded.
    :param labels: a column of class numbers, or of shares of the classes already.
    :param classes: how many there are.
    :param alpha: of the Beta(alpha, alpha) that shares are drawn from.
    :param probability: that a batch is mixed; else its labels only change their form.
    :raises InvalidArgumentError: here, numbers that make no sense; at a batch, columns that do not fit.
    """
    return _checked(_MixUp(images, labels, classes, alpha, probability))


def cutmix(
    images: str,
    labels: str,
    *,
    classes: int,
    alpha: float = 1.0,
    probability: float = 1.0,
    layout: str = "HWC",
) -> Transform:
    """CutMix (Yun et al. 2019), as torchvision's: a rectangle is of the other image, its area the share.

    :param layout: ``"HWC"`` or ``"CHW"``, as in :func:`headrace.decode.image`. Else as :func:`mixup`; images
        of any dtype.
    """
    if layout not in ("HWC", "CHW"):
        raise InvalidArgumentError(f"layout={layout!r} is unknown; there are HWC, CHW")
    return _checked(_CutMix(images, labels, classes, alpha, probability, layout == "CHW"))


def one_of(*transforms: Transform, weights: Sequence[float] | None = None) -> Transform:
    """For each batch one of them, drawn with these weights (default: all alike)."""
    if not transforms:
        raise InvalidArgumentError("one_of() needs transforms to choose from")
    shares = np.ones(len(transforms)) if weights is None else np.asarray(weights, dtype=np.float64)
    if (
        shares.shape != (len(transforms),)
        or not (np.isfinite(shares) & (shares >= 0)).all()
        or not shares.sum()
    ):
        raise InvalidArgumentError(
            f"weights={weights!r}: expected a number above 0 for each of {len(transforms)}"
        )
    return _OneOf(transforms, tuple((np.cumsum(shares) / shares.sum()).tolist()))


@dataclass(frozen=True)
class _OneOf:
    transforms: tuple[Transform, ...]
    bounds: tuple[float, ...]

    def __call__(self, batch: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        drawn = rng.random()
        return next(each for each, bound in zip(self.transforms, self.bounds, strict=True) if drawn < bound)(
            batch, rng=rng
        )


@dataclass(frozen=True)
class _Mix:
    images: str
    labels: str
    classes: int
    alpha: float
    probability: float

    def __call__(self, batch: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        images = _images(batch, self.images)
        labels = self._shares_of_classes(batch, len(images))
        share = 1.0
        if rng.random() < self.probability:
            share = self.mix(images, float(rng.beta(self.alpha, self.alpha)), rng)
        mixed = labels if share == 1 else (share * labels + (1 - share) * np.roll(labels, 1, axis=0))
        mixed = mixed.astype(np.float32)
        as_given = to_tensor if is_tensor(batch[self.images]) else _same
        return {**batch, self.images: as_given(images), self.labels: as_given(mixed)}

    def mix(self, images: npt.NDArray[Any], share: float, rng: np.random.Generator) -> float:
        """Mixes each image with the one before it, in place. Returns the share that stayed its own."""
        raise NotImplementedError

    def _shares_of_classes(self, batch: Mapping[str, Any], count: int) -> npt.NDArray[np.float32]:
        labels = _column(batch, self.labels)
        if labels.shape == (count, self.classes) and labels.dtype.kind == "f":
            return labels
        if labels.shape != (count,) or labels.dtype.kind not in "iu":
            raise InvalidArgumentError(
                f"column {self.labels!r} is {labels.dtype}{list(labels.shape)}; expected class numbers "
                f"[{count}] or shares of the classes [{count}, {self.classes}]"
            )
        wrong = np.flatnonzero((labels < 0) | (labels >= self.classes))
        if wrong.size:
            raise InvalidArgumentError(
                f"column {self.labels!r} has class {labels[wrong[0]]} in row {wrong[0]}, and "
                f"classes={self.classes}"
            )
        shares = np.zeros((count, self.classes), np.float32)
        shares[np.arange(count), labels] = 1
        return shares


@dataclass(frozen=True)
class _MixUp(_Mix):
    def mix(self, images: npt.NDArray[Any], share: float, rng: np.random.Generator) -> float:
        if images.dtype not in (np.uint8, np.float16, np.float32, np.float64):
            raise InvalidArgumentError(
                f"column {self.images!r} is {images.dtype}: mixup takes uint8, float16, float32 and float64 "
                "(bfloat16 has no numbers in numpy: mix on the GPU)"
            )
        blend = _Blend.uint8(share) if images.dtype == np.uint8 else _Blend.floats(images.dtype, share)
        rows = images.reshape(len(images), -1)
        last = rows[-1].copy()
        # From the last one on: each needs the one before it as it was.
        for row in range(len(rows) - 1, -1, -1):
            other = rows[row - 1] if row else last
            for begin in range(0, rows.shape[1], _BLOCK):
                blend(rows[row, begin : begin + _BLOCK], other[begin : begin + _BLOCK])
        return float(blend.share)


class _Blend:
    """``share`` of an array, and the rest of another, into the first."""

    def __init__(self, share: float, between: Any, weights: tuple[Any, Any]) -> None:
        self.share, self._weights = share, weights
        self._own, self._other = np.empty((2, _BLOCK), between)

    @classmethod
    def uint8(cls, share: float) -> _Blend:
        own = round(share * 256)
        return cls(own / 256, np.uint16, (np.uint16(own), np.uint16(256 - own)))

    @classmethod
    def floats(cls, dtype: Any, share: float) -> _Blend:
        wide = np.float64 if dtype == np.float64 else np.float32
        return cls(share, wide, (wide(share), wide(1 - share)))

    def __call__(self, into: npt.NDArray[Any], other: npt.NDArray[Any]) -> None:
        first, second = self._own[: len(into)], self._other[: len(into)]
        np.multiply(into, self._weights[0], out=first, dtype=first.dtype)
        np.multiply(other, self._weights[1], out=second, dtype=first.dtype)
        first += second
        if first.dtype == np.uint16:  # Of 256ths: 255 * 256 + 128 fits.
            first += np.uint16(128)
            first >>= np.uint16(8)
        into[...] = first


@dataclass(frozen=True)
class _CutMix(_Mix):
    is_channels_first: bool

    def mix(self, images: npt.NDArray[Any], share: float, rng: np.random.Generator) -> float:
        at = 2 if self.is_channels_first else 1
        if images.ndim < at + 2:
            raise InvalidArgumentError(f"column {self.images!r} is {list(images.shape)}: cutmix takes images")
        height, width = images.shape[at : at + 2]
        side = math.sqrt(1 - share) / 2
        top, bottom = _span(rng, height, side)
        left, right = _span(rng, width, side)
        inside = (slice(None),) * at + (slice(top, bottom), slice(left, right))
        images[inside] = np.roll(images[inside], 1, axis=0)
        return 1.0 - float((bottom - top) * (right - left)) / float(height * width)


def _span(rng: np.random.Generator, length: int, side: float) -> tuple[int, int]:
    """So much to both sides of a place that is drawn, as far as there is an image."""
    middle, half = int(rng.integers(length)), int(side * length)
    return max(middle - half, 0), min(middle + half, length)


def _checked(mix: _Mix) -> _Mix:
    whole_number("classes", mix.classes, 32)
    if mix.classes < 1:
        raise InvalidArgumentError(f"classes={mix.classes}: expected at least 1")
    if not 0 < mix.alpha < math.inf:
        raise InvalidArgumentError(f"alpha={mix.alpha!r}: expected a number above 0")
    if not 0 <= mix.probability <= 1:
        raise InvalidArgumentError(f"probability={mix.probability!r}: expected 0 to 1")
    return mix


def _same(value: Any) -> Any:
    return value


def _column(batch: Mapping[str, Any], name: str) -> npt.NDArray[Any]:
    if name not in batch:
        raise InvalidArgumentError(f"there is no column {name!r}; there are {', '.join(map(repr, batch))}")
    value = batch[name]
    if is_tensor(value):
        value, lacking = to_bits(value)
        if lacking:
            raise InvalidArgumentError(f"column {name!r} is {lacking}, which numpy lacks: mix on the GPU")
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biufV":
        raise InvalidArgumentError(
            f"column {name!r} is a {type(value).__name__}; expected one array of a batch (give images one "
            'size with decode=, and .map() of this function per="batch")'
        )
    return value


def _images(batch: Mapping[str, Any], name: str) -> npt.NDArray[Any]:
    """The column, to be written to."""
    images = _column(batch, name)
    return images if images.flags.writeable and images.flags.c_contiguous else images.copy()
