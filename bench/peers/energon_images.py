"""megatron-energon over tar files of JPEGs: what images.py reads with it, apart since its classes need it to
be there."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from megatron.energon import (  # type: ignore[import-not-found]
    DefaultTaskEncoder,
    WorkerConfig,
    get_loader,
    get_train_dataset,
)
from megatron.energon.flavors.webdataset import BaseWebdatasetFactory  # type: ignore[import-not-found]

__all__ = ["open_images", "prepare"]

CONFIG = """sample_type:
  __module__: megatron.energon
  __class__: ImageSample
field_map:
  image: jpg
"""


class Transforming(DefaultTaskEncoder):  # type: ignore[misc]
    """Leaves the bytes as they are, and makes pixels of them by our function."""

    decoder = None

    def __init__(self, apply: Callable[[bytes], Any]) -> None:
        super().__init__()
        self._apply = apply

    def encode_sample(self, sample: Any) -> Any:
        return dataclasses.replace(sample, image=self._apply(sample.image))


def prepare(tars: Path, root: Path) -> None:
    """A directory with links to the tar files, and with what `energon prepare` adds."""
    root.mkdir()
    for tar in sorted(tars.iterdir()):
        (root / tar.name).symlink_to(tar.resolve())
    names = sorted(path.name for path in root.iterdir())
    BaseWebdatasetFactory.prepare_dataset(root, names, split_parts_ratio=[("train", 1.0)], workers=1)
    (root / ".nv-meta" / "dataset.yaml").write_text(CONFIG)


def open_images(root: Path, apply: Callable[[bytes], Any], batch_size: int, workers: int) -> Iterator[Any]:
    """One pass over them."""
    dataset = get_train_dataset(
        root,
        batch_size=batch_size,
        shuffle_buffer_size=1000,
        max_samples_per_sequence=100,
        worker_config=WorkerConfig(rank=0, world_size=1, num_workers=workers),
        task_encoder=Transforming(apply),
        repeat=False,
    )
    for batch in get_loader(dataset):
        yield batch.image
