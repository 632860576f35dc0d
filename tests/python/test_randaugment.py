"""augment="randaugment": each result is one of torchvision's operations on the image, and all of them
come."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import headrace as hr

torch = pytest.importorskip("torch")
autoaugment = pytest.importorskip("torchvision.transforms.autoaugment")
InterpolationMode = pytest.importorskip("torchvision.transforms").InterpolationMode

HEIGHT, WIDTH, COUNT = 30, 44, 120


def photograph(seed: int) -> Any:
    """Smooth, with edges and little of the range, so that every operation changes it."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    planes = [110 + 70 * np.sin((x * (1 + seed % 3) + y * c) / (5.0 + c + seed % 7)) for c in range(3)]
    pixels = np.stack(planes, axis=-1).clip(0, 255).astype(np.uint8)
    pixels[10:15, 11 : 15 + seed % 9] = (seed * 37 % 200, 180, 60)
    return pixels


def candidates(pixels: Any, magnitude: int) -> dict[str, Any]:
    """What torchvision makes of the image with each operation, by its name and sign."""
    space = autoaugment.RandAugment()._augmentation_space(31, (HEIGHT, WIDTH))
    image, made = torch.from_numpy(pixels.transpose(2, 0, 1).copy()), {}
    for name, (magnitudes, is_signed) in space.items():
        strength = float(magnitudes[magnitude]) if magnitudes.ndim else 0.0
        for sign in (1, -1) if is_signed else (1,):
            # Fill 0, as RandAugment(fill=0): without, geometry near the edge is the same.
            value = autoaugment._apply_op(image, name, sign * strength, InterpolationMode.NEAREST, [0.0] * 3)
            made[f"{name}{sign:+}"] = value.numpy().transpose(1, 2, 0)
    return made


@pytest.fixture
def one_thread() -> Iterator[None]:
    """For images this small, torch's threads only wait for each other."""
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(count)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("magnitude", [9, 30])
def test_results_are_torchvisions(tmp_path: Path, open_loader: Any, magnitude: int) -> None:
    root = tmp_path / "files"
    root.mkdir()
    for i in range(COUNT):
        out = io.BytesIO()
        Image.fromarray(photograph(i)).save(out, "PNG")
        (root / f"{i:04}.png").write_bytes(out.getvalue())
    seen: set[str] = set()
    for batch in open_loader(root, batch_size=50, decode={"data": hr.decode.image(augment=(1, magnitude))}):
        for i, value in zip(batch.ids.tolist(), batch["data"], strict=True):
            best = {}
            for name, expected in candidates(photograph(i), magnitude).items():
                apart = np.abs(value.astype(int) - expected.astype(int)).max(axis=2)
                # Nearest pixels of a turn or shear may round the other way; what they are is exact.
                best[name] = (float((apart > 1).mean()), name)
            wrong, name = min(best.values())
            geometric = name.startswith(("Shear", "Rotate"))
            assert wrong <= (0.01 if geometric else 0), (i, sorted(best.values())[:3])
            seen.add(name)
    assert len({name[:-2] for name in seen}) >= 13, "Identity may be taken for an operation that did nothing"
    assert len(seen) >= 20
