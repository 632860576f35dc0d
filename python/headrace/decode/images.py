"""Images: JPEG, PNG, WebP, GIF, TIFF."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace import _native
from headrace.base.option_names import OptionNames
from headrace.decode.decoding import Decoding
from headrace.errors import InvalidArgumentError

if TYPE_CHECKING:
    from typing_extensions import Never

__all__ = ["image", "jpeg"]

_Size = int | tuple[int, int]


def image(
    *,
    resize: _Size | None = None,
    crop: _Size | None = None,
    random_crop: _Size | None = None,
    random_resized_crop: _Size | None = None,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    flip: bool | float = False,
    vertical_flip: bool | float = False,
    pad: int | tuple[int, int, int, int] = 0,
    augment: str | tuple[int, int] | None = None,
    jitter: float | Sequence[float] | None = None,
    mean: Sequence[float] | float | None = None,
    std: Sequence[float] | float | None = None,
    dtype: str = "uint8",
    layout: str = "HWC",
    mode: str = "RGB",
    interpolation: str = "bilinear",
    exact: bool = False,
    truncated: str = "error",
    orient: bool = True,
    max_pixels: int = 178_956_970,
    **unknown: Never,
) -> Decoding:
    """Pixels of JPEG, PNG, WebP, GIF (of animations the first frame), TIFF and MDS's ``pil``, told apart by
    their bytes.

    Where the arguments fix a size, the column is one array ``(samples, height, width, channels)`` over the
    batch's memory; else a list of arrays of their own sizes. In this order: ``random_resized_crop``, or
    ``resize``, ``pad``, then ``crop`` or ``random_crop``; then flips, ``augment``, ``jitter``, ``mean`` and
    ``std``.

    :param resize: ``(height, width)``, whatever the aspect; a number: the shorter side, as torchvision's
        ``Resize``. Antialiased, within 1 of Pillow's.
    :param crop: the middle, ``(height, width)`` or a number for a square; zeros where the image is smaller.
    :param random_crop: the same, anywhere.
    :param random_resized_crop: torchvision's ``RandomResizedCrop`` with ``scale`` (of the area) and ``ratio``
        (width by height). Of a JPEG only what the crop needs becomes pixels.
    :param flip: left and right are exchanged, with this probability; True: 0.5.
    :param vertical_flip: top and bottom likewise.
    :param pad: zeros around the image in pixels: of all sides, or left, top, right, bottom.
    :param augment: ``"randaugment"`` (two operations at magnitude 9, as torchvision's), or ``(operations,
        magnitude)``, the magnitude 0 .. 30.
    :param jitter: torchvision's ``ColorJitter``: a number for brightness, contrast and saturation, or up to
        four for these and hue (0 .. 0.5).
    :param mean: taken from pixels of 0 .. 1, by channel or one for all; then divided by ``std``. Transparency
        has none. Needs a floating-point ``dtype``. Cheaper on the GPU, from uint8.
    :param dtype: uint8 (0 .. 255), or float16, bfloat16 (as its bits in uint16), float32: 0 .. 1.
    :param layout: ``"HWC"`` or ``"CHW"``.
    :param mode: ``"RGB"``, ``"L"`` (grey, one channel) or ``"RGBA"``. Other images are converted as Pillow
        does, but: of 16 bits the upper eight are taken (Pillow cuts at 255); grey of a JPEG in colour is its
        own luminance; LAB and CMYK in TIFF have conversions of their own.
    :param interpolation: ``"nearest"``, ``"bilinear"`` or ``"bicubic"``.
    :param exact: False: a JPEG of twice the wanted size and more is decoded at a half, a quarter or an eighth
        of its size, which is several times cheaper and as good to the eye. True: all pixels are decoded.
    :param truncated: ``"error"``: a file that ends early is a bad sample. ``"grey"``: what is missing is
        grey.
    :param orient: turn photographs as their EXIF data says.
    :param max_pixels: larger images are bad samples: some bytes can claim to be gigabytes.
    :raises InvalidArgumentError: arguments that contradict each other.
    """
    _NAMES.check(unknown)
    del unknown
    resize, crop, pad = _plain(resize), _plain(crop), _plain(pad)
    random_crop, random_resized_crop = _plain(random_crop), _plain(random_resized_crop)
    scale, ratio, augment = _plain(scale), _plain(ratio), _plain(augment)
    jitter, mean, std = _plain(jitter), _plain(mean), _plain(std)
    given = {name: value for name, value in locals().items() if value != _DEFAULTS[name]}
    shorter = resize if isinstance(resize, int) else 0
    if isinstance(resize, int) and resize < 1:
        raise InvalidArgumentError(f"resize={resize}: expected at least 1")
    if crop is not None and random_crop is not None:
        raise InvalidArgumentError("crop= and random_crop= exclude each other")
    if truncated not in ("error", "grey"):
        raise InvalidArgumentError(f"truncated={truncated!r} is unknown; there are error, grey")
    options = {
        "resize": None if isinstance(resize, int) else _size("resize", resize),
        "resize_shorter": shorter,
        "crop": _size("crop", crop) or _size("random_crop", random_crop),
        "is_crop_random": random_crop is not None,
        "random_resized_crop": _size("random_resized_crop", random_resized_crop),
        "scale": scale,
        "ratio": ratio,
        "horizontal_flip": _chance(flip),
        "vertical_flip": _chance(vertical_flip),
        "pad": _pad(pad),
        "jitter": _jitter(jitter),
        "rand_augment": _augment(augment),
        "mean": _channels("mean", mean, mode),
        "stddev": _channels("std", std, mode),
        "dtype": dtype,
        "layout": layout,
        "mode": mode,
        "interpolation": interpolation,
        "orient": orient,
        "exact": exact,
        "allows_truncated": truncated == "grey",
        "max_pixels": max_pixels,
    }
    return Decoding(image, given, _native.decode_image(options))


_DEFAULTS: dict[str, Any] = dict(image.__kwdefaults__ or {})
_NAMES = OptionNames(
    "decode.image()",
    {"": _DEFAULTS},
    {
        "size": "use resize=, crop=, random_crop= or random_resized_crop=",
        "normalize": "use mean= and std=",
        "color_jitter": "use jitter=",
        "channels": "use mode=",
    },
)


def jpeg(**arguments: Any) -> Decoding:
    """The same as :func:`image`."""
    return image(**arguments)


def _plain(value: Any) -> Any:
    """Arrays and numbers of numpy, torch and others as lists and numbers of Python; the rest as it is."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    return operator.index(value) if hasattr(value, "__index__") else value


def _size(name: str, value: _Size | None) -> tuple[int, int] | None:
    if value is None:
        return None
    try:
        height, width = map(operator.index, (value, value) if isinstance(value, int) else value)
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"{name}={value!r}: expected a whole number or (height, width)") from None
    return height, width


def _pad(value: int | Sequence[int]) -> tuple[int, ...]:
    try:
        return (value,) * 4 if isinstance(value, int) else tuple(map(operator.index, value))
    except TypeError:
        raise InvalidArgumentError(
            f"pad={value!r}: expected a whole number or (left, top, right, bottom)"
        ) from None


def _chance(value: bool | float) -> float:
    import numpy as np

    return (0.5 if value else 0.0) if isinstance(value, bool | np.bool_) else float(value)


def _channels(name: str, value: Sequence[float] | float | None, mode: str) -> tuple[float, ...] | None:
    if value is None:
        return None
    given = (value,) if isinstance(value, int | float) else tuple(value)
    channels = 1 if mode == "L" else 3
    if len(given) not in (1, channels):
        raise InvalidArgumentError(
            f"{name}={value!r}: expected one number, or one for each of {channels} channels (mode={mode!r})"
            if channels > 1
            else f"{name}={value!r}: expected one number: mode='L' has one channel"
        )
    return given * (3 // len(given))


def _jitter(value: float | Sequence[float] | None) -> tuple[float, ...]:
    if value is None:
        return (0.0,) * 4
    given = (value,) * 3 if isinstance(value, int | float) else tuple(value)
    if len(given) > 4:
        raise InvalidArgumentError(
            f"jitter={value!r}: expected at most brightness, contrast, saturation and hue"
        )
    return tuple(map(float, given)) + (0.0,) * (4 - len(given))


def _augment(value: str | tuple[int, int] | None) -> tuple[int, int]:
    if value is None:
        return 0, 0
    if value == "randaugment":
        return 2, 9
    if isinstance(value, str):
        raise InvalidArgumentError(
            f"augment={value!r} is unknown; there are randaugment and (operations, magnitude)"
        )
    if len(value) != 2:
        raise InvalidArgumentError(f"augment={value!r}: expected (operations, magnitude)")
    operations, magnitude = value
    return operations, magnitude
