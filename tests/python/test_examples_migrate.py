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
from other_venv import TENSORFLOW, need_tensorflow, package_alone
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


def write_files(root: Path) -> Path:
    """Beside ``root``."""
    files = root.with_name("files")
    files.mkdir()
    for i, (image, _) in enumerate(samples()):
        (files / f"{i}.jpg").write_bytes(image)
    return files


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

    sample = partial(litdata_sample, str(write_files(root)))
    optimize(sample, list(range(COUNT)), str(root), chunk_size=11, num_workers=1)
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


WRITE_TFRECORDS = """
import pathlib, sys
import tensorflow as tf
for part in range(2):
    with tf.io.TFRecordWriter(f"{sys.argv[2]}/{part}.tfrecord") as writer:
        for path in sorted(pathlib.Path(sys.argv[1]).glob("*.jpg"))[part::2]:
            image = tf.train.Feature(bytes_list=tf.train.BytesList(value=[path.read_bytes()]))
            label = tf.train.Feature(int64_list=tf.train.Int64List(value=[int(path.stem) % 10]))
            features = tf.train.Features(feature={"image": image, "label": label})
            writer.write(tf.train.Example(features=features).SerializeToString())
"""


def write_tfdata(root: Path) -> str:
    root.mkdir()
    command = [str(TENSORFLOW), "-c", WRITE_TFRECORDS, str(write_files(root)), str(root)]
    subprocess.run(command, check=True, capture_output=True, timeout=200)
    return str(root)


PAIRS: dict[str, tuple[str, Callable[[Path], str]]] = {
    "mosaic": ("streaming", write_mosaic),
    "webdataset": ("webdataset", write_webdataset),
    "litdata": ("litdata", write_litdata),
    "datasets": ("datasets", write_datasets),
    "imagefolder": ("torchvision", write_imagefolder),
    "tfdata": ("", write_tfdata),  # In a venv of its own.
}


def run(script: str, data: str, directory: Path, python: Path | None) -> dict[str, Any]:
    """The last line of what the script prints."""
    environment = os.environ | (package_alone(directory) if python else {})
    environment |= {"HOME": str(directory), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [str(python or sys.executable), str(EXAMPLES / script), data],
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
    python = None if module else need_tensorflow()
    if module:
        pytest.importorskip(module)
    data = write(tmp_path / "data")
    with ThreadPoolExecutor() as pool:
        before, after = pool.map(
            lambda side: run(f"{name}_{side}.py", data, tmp_path, python), ("before", "after")
        )
    check(before, after, tolerance=1)


@pytest.mark.parametrize("name", PAIRS)
def test_ours_is_not_longer(name: str) -> None:
    before, after = (
        len((EXAMPLES / f"{name}_{side}.py").read_text().splitlines()) for side in ("before", "after")
    )
    assert after <= before
