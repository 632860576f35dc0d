"""Each pair of examples/migrate on the same data, which the other library wrote: the same samples, each
once, the same pixels within what two JPEG decoders differ by; and ours is not longer."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "migrate"
COUNT = 44  # Not a multiple of the batch size, 8.
EPOCHS = 2


def photograph(i: int) -> Image.Image:
    """A smooth one: its left is as bright as its number, and its quarters differ."""
    y, x = np.mgrid[0:80, 0:100]
    left = np.full(x.shape, 20 + 5 * i)
    pixels = np.stack([np.where(x < 50, left, 255 - left), 2 * x, 255 - 3 * y], axis=-1)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def jpeg(i: int) -> bytes:
    out = io.BytesIO()
    photograph(i).save(out, "JPEG", quality=90)
    return out.getvalue()


def samples() -> Iterator[tuple[bytes, int]]:
    for i in range(COUNT):
        yield jpeg(i), i % 10


def write_mosaic(root: Path) -> str:
    from streaming import MDSWriter

    with MDSWriter(out=str(root), columns={"image": "jpeg", "label": "int"}, size_limit=1 << 14) as writer:
        for image, label in samples():
            writer.write({"image": Image.open(io.BytesIO(image)), "label": label})
    return str(root)


def write_webdataset(root: Path) -> str:
    from webdataset import ShardWriter

    root.mkdir()
    with ShardWriter(f"{root}/%02d.tar", maxcount=11, verbose=0) as writer:
        for i, (image, label) in enumerate(samples()):
            writer.write({"__key__": f"{i:04}", "jpg": image, "cls": label})
    return f"{root}/{{00..03}}.tar"


def litdata_sample(directory: str, i: int) -> dict[str, Any]:
    return {"image": Image.open(f"{directory}/{i}.jpg"), "label": i % 10}


def write_litdata(root: Path) -> str:
    from litdata import optimize

    files = root.with_name("files")
    files.mkdir()
    for i, (image, _) in enumerate(samples()):
        (files / f"{i}.jpg").write_bytes(image)
    optimize(partial(litdata_sample, str(files)), list(range(COUNT)), str(root), chunk_size=11, num_workers=1)
    return str(root)


def write_datasets(root: Path) -> str:
    import datasets

    root.mkdir()
    rows = [{"image": {"bytes": image, "path": None}, "label": label} for image, label in samples()]
    made = datasets.Dataset.from_list(rows).cast_column("image", datasets.Image())
    for part in range(2):
        made.shard(2, part).to_parquet(root / f"{part}.parquet")
    return str(root)


def write_imagefolder(root: Path) -> str:
    for i, (image, label) in enumerate(samples()):
        directory = root / f"class-{label}"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{i:04}.jpg").write_bytes(image)
    return str(root)


PAIRS: dict[str, tuple[str, Callable[[Path], str]]] = {
    "mosaic": ("streaming", write_mosaic),
    "webdataset": ("webdataset", write_webdataset),
    "litdata": ("litdata", write_litdata),
    "datasets": ("datasets", write_datasets),
    "imagefolder": ("torchvision", write_imagefolder),
}


def run(script: str, data: str, directory: Path, python: str = sys.executable) -> dict[str, Any]:
    """The last line of what the script prints."""
    environment = os.environ | {"HOME": str(directory), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [python, str(EXAMPLES / script), data],
        capture_output=True,
        text=True,
        timeout=200,
        cwd=directory,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def check(before: dict[str, Any], after: dict[str, Any], tolerance: float) -> None:
    labels = sorted(i % 10 for i in range(COUNT))
    assert before["trained"] == after["trained"] == sorted(EPOCHS * labels)
    theirs, ours = np.array(before["evaluated"]), np.array(after["evaluated"])
    assert theirs[:, 0].tolist() == ours[:, 0].tolist() == labels
    assert len(np.unique(ours, axis=0)) == COUNT, "each image is another"
    assert np.abs(theirs - ours).max() <= tolerance


@pytest.mark.parametrize("name", PAIRS)
def test_the_same_samples_and_pixels(tmp_path: Path, name: str) -> None:
    module, write = PAIRS[name]
    pytest.importorskip(module)
    data = write(tmp_path / "data")
    with ThreadPoolExecutor() as pool:
        before, after = pool.map(lambda side: run(f"{name}_{side}.py", data, tmp_path), ("before", "after"))
    check(before, after, tolerance=1)


@pytest.mark.parametrize("name", PAIRS)
def test_ours_is_not_longer(name: str) -> None:
    before, after = (
        len((EXAMPLES / f"{name}_{side}.py").read_text().splitlines()) for side in ("before", "after")
    )
    assert after <= before
