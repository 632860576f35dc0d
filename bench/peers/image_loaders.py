"""What bench/peers/images.py compares: each loader's way from JPEGs to batches of 224 x 224 uint8."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from litdata_over_http import litdata_source

__all__ = ["BATCH", "LOADERS", "MODULES", "ONLY_RESIZE", "SIDE", "TORCH", "TORCHVISION", "paths_of"]

BATCH = 64
SIDE = 224


def transform(mode: str) -> Callable[[bytes], Any]:
    """What peers do with a JPEG: one thread of torchvision."""
    import torch
    from torchvision.io import ImageReadMode, decode_jpeg
    from torchvision.transforms import v2

    torch.set_num_threads(1)
    steps = (
        v2.Resize((SIDE, SIDE), antialias=True)
        if mode == "resize"
        else v2.Compose([v2.RandomResizedCrop(SIDE, antialias=True), v2.RandomHorizontalFlip()])
    )

    def apply(data: bytes) -> Any:
        return steps(decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8), ImageReadMode.RGB))

    return apply


def headrace_batches(endpoint: str, args: argparse.Namespace, exact: bool = True) -> Iterator[Any]:
    import headrace as hr

    how = {"resize": (SIDE, SIDE)} if args.mode == "resize" else {"random_resized_crop": SIDE, "flip": True}
    decode = {"image": hr.decode.image(**how, exact=exact)}  # type: ignore[arg-type]
    with hr.Loader("s3://bench/mds", endpoint=endpoint, batch_size=BATCH, decode=decode) as loader:
        for batch in loader:
            yield batch["image"]


def headrace_fast_batches(endpoint: str, args: argparse.Namespace) -> Iterator[Any]:
    yield from headrace_batches(endpoint, args, exact=False)


def litdata_batches(endpoint: str, args: argparse.Namespace) -> Iterator[Any]:
    import litdata

    apply = transform(args.mode)

    class Images(litdata.StreamingDataset):  # type: ignore[misc, name-defined]
        def __getitem__(self, index: Any) -> Any:
            return apply(super().__getitem__(index)["image"])

    dataset = Images(
        **litdata_source("s3://bench/litdata", args.cache, endpoint),
        shuffle=True,
        drop_last=False,
    )
    yield from litdata.StreamingDataLoader(dataset, batch_size=BATCH, num_workers=args.workers)


def mosaic_batches(endpoint: str, args: argparse.Namespace) -> Iterator[Any]:
    from streaming import StreamingDataset
    from torch.utils.data import DataLoader

    os.environ["S3_ENDPOINT_URL"] = endpoint
    apply = transform(args.mode)

    class Images(StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, index: Any) -> Any:
            return apply(super().__getitem__(index)["image"])

    dataset = Images(remote="s3://bench/mds", local=str(args.cache), shuffle=True, batch_size=BATCH)
    yield from DataLoader(dataset, batch_size=BATCH, num_workers=args.workers)


def webdataset_batches(endpoint: str, args: argparse.Namespace) -> Iterator[Any]:
    import webdataset
    from torch.utils.data import DataLoader

    apply = transform(args.mode)
    names = sorted(p.name for p in (args.data / "buckets/bench/wds").iterdir())
    # By curl, without a signature.
    urls = [f"pipe:curl -s -f {endpoint}/bench/wds/{name}" for name in names]
    dataset = (
        webdataset.WebDataset(urls, shardshuffle=100, empty_check=False)
        .shuffle(1000)
        .map(lambda sample: (apply(sample["jpg"]),))
        .batched(BATCH)
    )
    for (batch,) in DataLoader(dataset, batch_size=None, num_workers=args.workers):
        yield batch


def files_batches(endpoint: str, args: argparse.Namespace) -> Iterator[Any]:
    from torch.utils.data import DataLoader, Dataset

    apply = transform(args.mode)
    paths = [Path(path) for path in paths_of(args.data)]

    class Files(Dataset[Any]):
        def __len__(self) -> int:
            return len(paths)

        def __getitem__(self, index: int) -> Any:
            return apply(paths[index].read_bytes())

    yield from DataLoader(Files(), batch_size=BATCH, shuffle=True, num_workers=args.workers)


def paths_of(data: Path) -> list[str]:
    return sorted(map(str, (data / "files").iterdir()))


def tfdata_batches(endpoint: str, args: argparse.Namespace) -> Iterator[Any]:
    import tensorflow as tf  # type: ignore[import-not-found]

    def resize(data: Any) -> Any:
        return tf.image.resize(
            tf.io.decode_jpeg(data, 3, dct_method="INTEGER_ACCURATE"), (SIDE, SIDE), antialias=True
        )

    def crop(data: Any) -> Any:
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.io.extract_jpeg_shape(data),
            tf.zeros((1, 0, 4)),
            area_range=(0.08, 1.0),
            aspect_ratio_range=(3 / 4, 4 / 3),
            use_image_if_no_bounding_boxes=True,
        )
        window = tf.stack([begin[0], begin[1], size[0], size[1]])
        image = tf.io.decode_and_crop_jpeg(data, window, 3, dct_method="INTEGER_ACCURATE")
        return tf.image.random_flip_left_right(tf.image.resize(image, (SIDE, SIDE), antialias=True))

    steps = resize if args.mode == "resize" else crop
    paths = paths_of(args.data)
    dataset = (
        tf.data.Dataset.from_tensor_slices(paths)
        .shuffle(len(paths))
        .map(lambda path: tf.cast(steps(tf.io.read_file(path)), tf.uint8), num_parallel_calls=args.workers)
        .batch(BATCH)
        .prefetch(2)
    )
    for batch in dataset:
        yield batch.numpy()


def dali_batches(endpoint: str, args: argparse.Namespace) -> Iterator[Any]:
    from nvidia.dali import fn, pipeline_def, types  # type: ignore[import-not-found]

    @pipeline_def(batch_size=BATCH, num_threads=args.workers, device_id=None)  # type: ignore[untyped-decorator]
    def pipeline() -> Any:
        data, _ = fn.readers.file(files=paths_of(args.data), random_shuffle=True)
        if args.mode == "resize":
            images = fn.decoders.image(data, device="cpu", output_type=types.RGB)
        else:
            images = fn.decoders.image_random_crop(
                data, device="cpu", output_type=types.RGB, random_area=(0.08, 1.0)
            )
        images = fn.resize(images, size=(SIDE, SIDE), interp_type=types.INTERP_LINEAR, antialias=True)
        return images if args.mode == "resize" else fn.flip(images, horizontal=fn.random.coin_flip())

    running = pipeline()
    running.build()
    for _ in range(len(paths_of(args.data)) // BATCH):
        (batch,) = running.run()
        yield batch.as_array()


def spdl_batches(endpoint: str, args: argparse.Namespace) -> Iterator[Any]:
    import random

    import spdl.io  # type: ignore[import-not-found]
    from spdl.pipeline import PipelineBuilder  # type: ignore[import-not-found]

    paths = paths_of(args.data)
    random.shuffle(paths)
    batches = [paths[i : i + BATCH] for i in range(0, len(paths), BATCH)]

    def load(batch: list[str]) -> Any:
        frames = spdl.io.load_image_batch(batch, width=SIDE, height=SIDE, pix_fmt="rgb24")
        return spdl.io.to_numpy(frames)

    built = PipelineBuilder().add_source(batches).pipe(load, concurrency=args.workers).add_sink(2)
    pipeline = built.build(num_threads=args.workers)
    with pipeline.auto_stop():
        yield from pipeline.get_iterator()


def grain_batches(endpoint: str, args: argparse.Namespace) -> Iterator[Any]:
    """Over ArrayRecord, the format it is made for, in threads: torchvision decodes and resizes without the
    GIL."""
    import grain  # type: ignore[import-not-found]

    options = grain.ReadOptions(num_threads=max(1, args.workers), prefetch_buffer_size=2 * BATCH)
    yield from grain_images(args).to_iter_dataset(options).batch(BATCH)


def grain_processes_batches(endpoint: str, args: argparse.Namespace) -> Iterator[Any]:
    """In processes, which it starts anew: each imports torch."""
    import grain

    options = grain.MultiprocessingOptions(num_workers=max(1, args.workers))
    yield from grain_images(args).to_iter_dataset().batch(BATCH).mp_prefetch(options)


def grain_images(args: argparse.Namespace) -> Any:
    import grain
    import numpy as np

    apply = transform(args.mode)
    source = grain.sources.ArrayRecordDataSource(sorted(map(str, (args.data / "arrayrecord").iterdir())))
    return grain.MapDataset.source(source).shuffle(seed=17).map(lambda data: np.asarray(apply(data)))


def energon_batches(endpoint: str, args: argparse.Namespace) -> Iterator[Any]:
    """Over the tar files of webdataset, from the local disk: to it, a store is msc://, with packages of its
    own."""
    from energon_images import open_images

    yield from open_images(args.data / "energon", transform(args.mode), BATCH, args.workers)


def ffcv_batches(endpoint: str, args: argparse.Namespace) -> Iterator[Any]:
    """Over its own format, with the JPEGs as they are. Its resize does not antialias."""
    from ffcv.fields.decoders import (  # type: ignore[import-not-found]
        CenterCropRGBImageDecoder,
        RandomResizedCropRGBImageDecoder,
    )
    from ffcv.loader import Loader, OrderOption  # type: ignore[import-not-found]
    from ffcv.transforms import RandomHorizontalFlip  # type: ignore[import-not-found]

    size = (SIDE, SIDE)
    steps = (
        [CenterCropRGBImageDecoder(size, ratio=1)]
        if args.mode == "resize"
        else [RandomResizedCropRGBImageDecoder(size), RandomHorizontalFlip()]
    )
    loader = Loader(
        str(args.data / "ffcv.beton"),
        batch_size=BATCH,
        num_workers=args.workers,
        order=OrderOption.RANDOM,
        os_cache=True,
        pipelines={"image": steps},
    )
    for (batch,) in loader:
        yield batch


LOADERS: dict[str, Callable[[str, argparse.Namespace], Iterator[Any]]] = {
    "headrace": headrace_batches,
    "headrace-fast": headrace_fast_batches,
    "litdata": litdata_batches,
    "mosaicml-streaming": mosaic_batches,
    "webdataset": webdataset_batches,
    "files": files_batches,
    "tfdata": tfdata_batches,
    "dali": dali_batches,
    "spdl": spdl_batches,
    "grain": grain_batches,
    "grain-processes": grain_processes_batches,
    "megatron-energon": energon_batches,
    "ffcv": ffcv_batches,
}
MODULES = {
    "headrace": "headrace",
    "headrace-fast": "headrace",
    "litdata": "litdata",
    "mosaicml-streaming": "streaming",
    "webdataset": "webdataset",
    "tfdata": "tensorflow",
    "dali": "nvidia.dali",
    "spdl": "spdl.io",
    "grain": "grain",
    "grain-processes": "grain",
    "megatron-energon": "megatron.energon",
    "ffcv": "ffcv",
}
TORCH = ("litdata", "mosaicml-streaming", "webdataset", "files")
"""Peers of the venv of the tests."""
TORCHVISION = (*TORCH, "grain", "grain-processes", "megatron-energon")
"""Peers that decode and transform by it."""
ONLY_RESIZE = ("spdl",)
"""No random resized crop there that decodes and resizes in one call."""
