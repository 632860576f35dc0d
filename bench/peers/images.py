#!/usr/bin/env python3
"""JPEGs (500 x 375, about 100 KB) to batches of 224 x 224 uint8, from S3: Headrace and its peers in one run.

    pip install litdata mosaicml-streaming webdataset torchvision
    bench/peers/images.py --photos DIR --data /dev/shm/images --rounds 3 [--images 3000] [--mode resize,crop]

--photos: a directory of photographs (Debian's plasma-workspace-wallpapers), which are cut into tiles. The same
tiles are written as MDS, LitData chunks, WebDataset tars and files, and served by `headrace sim` (profile none)
on loopback; `files` (a DataLoader), tf.data, DALI (its CPU pipeline) and SPDL read the local files. Each read is a fresh process with an empty cache,
interleaved; CPU is user + system time of it and its children from the end of the imports to the last batch. Peers
decode by torchvision (libjpeg-turbo) with transforms v2, in --workers processes (0: in their own).

Peers that need packages of their own get them by --path dali=DIR or --python tfdata=EXECUTABLE.

resize: to 224 x 224, antialiased bilinear, all pixels decoded (`exact`; `headrace-fast` decodes at a fraction of the
size where that is enough). crop: random resized crop and flip.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tokens import cpu_seconds, start_simulator

BATCH = 64
SIDE = 224
WIDTH, HEIGHT = 500, 375


def tiles(photos: Path, count: int) -> Iterator[bytes]:
    """JPEGs of 90 to 115 KB, as those of ImageNet are."""
    from PIL import Image

    made = 0
    for path in sorted(p for p in photos.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg", ".png")):
        try:
            photo = Image.open(path).convert("RGB")
        except OSError:
            continue
        for top in range(0, photo.height - HEIGHT, HEIGHT):
            for left in range(0, photo.width - WIDTH, WIDTH):
                tile = photo.crop((left, top, left + WIDTH, top + HEIGHT))
                if data := fitted(tile):
                    yield data
                    made += 1
                if made == count:
                    return
    if made == 0:
        raise SystemExit(f"{photos}: no photograph gives tiles of 90 to 115 KB")
    yield from repeated(photos, count - made)


def repeated(photos: Path, count: int) -> Iterator[bytes]:
    while count > 0:
        for data in tiles(photos, count):
            yield data
            count -= 1
            if count == 0:
                return


def fitted(tile: Any) -> bytes | None:
    """The tile at the quality that gives about 100 KB; None: none does."""
    low, high = 50, 100
    while low <= high:
        quality = (low + high) // 2
        out = io.BytesIO()
        tile.save(out, "JPEG", quality=quality)
        size = len(out.getvalue())
        if 90_000 <= size <= 115_000:
            return out.getvalue()
        low, high = (quality + 1, high) if size < 90_000 else (low, quality - 1)
    return None


def as_sample(path: str) -> dict[str, Any]:
    return {"image": Path(path).read_bytes()}


def prepare(data: Path, photos: Path, count: int) -> None:
    if (data / ".done").exists() and (data / ".done").read_text() == str(count):
        return
    shutil.rmtree(data, ignore_errors=True)
    bucket, files = data / "buckets" / "bench", data / "files"
    bucket.mkdir(parents=True)
    files.mkdir()
    import litdata
    import webdataset
    from streaming import MDSWriter

    paths = []
    (bucket / "wds").mkdir()
    with (
        MDSWriter(out=str(bucket / "mds"), columns={"image": "bytes"}, size_limit=64 << 20) as mds,
        webdataset.ShardWriter(str(bucket / "wds" / "%05d.tar"), maxsize=64 << 20, verbose=0) as tars,
    ):
        for i, jpeg in enumerate(tiles(photos, count)):
            mds.write({"image": jpeg})
            tars.write({"__key__": f"{i:06}", "jpg": jpeg})
            paths.append(str(files / f"{i:06}.jpg"))
            Path(paths[-1]).write_bytes(jpeg)
    litdata.optimize(
        fn=as_sample, inputs=paths, output_dir=str(bucket / "litdata"), chunk_bytes="64MB", num_workers=1
    )
    (data / ".done").write_text(str(count))


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

    downloader = litdata.streaming.downloader
    downloader._OBSTORE_CLIENT_OPTIONS = {**(downloader._OBSTORE_CLIENT_OPTIONS or {}), "allow_http": True}
    options = {
        "endpoint_url": endpoint,
        "config": __import__("botocore.config").config.Config(s3={"addressing_style": "path"}),
    }
    apply = transform(args.mode)

    class Images(litdata.StreamingDataset):  # type: ignore[misc, name-defined]
        def __getitem__(self, index: Any) -> Any:
            return apply(super().__getitem__(index)["image"])

    dataset = Images(
        input_dir=litdata.streaming.resolver.Dir(path=str(args.cache), url="s3://bench/litdata"),
        shuffle=True,
        storage_options=options,
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
    paths = sorted((args.data / "files").iterdir())

    class Files(Dataset[Any]):
        def __len__(self) -> int:
            return len(paths)

        def __getitem__(self, index: int) -> Any:
            return apply(paths[index].read_bytes())

    yield from DataLoader(Files(), batch_size=BATCH, shuffle=True, num_workers=args.workers)


def paths_of(args: argparse.Namespace) -> list[str]:
    return sorted(map(str, (args.data / "files").iterdir()))


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
    paths = paths_of(args)
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
        data, _ = fn.readers.file(files=paths_of(args), random_shuffle=True)
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
    for _ in range(len(paths_of(args)) // BATCH):
        (batch,) = running.run()
        yield batch.as_array()


def spdl_batches(endpoint: str, args: argparse.Namespace) -> Iterator[Any]:
    import random

    import spdl.io  # type: ignore[import-not-found]
    from spdl.pipeline import PipelineBuilder  # type: ignore[import-not-found]

    paths = paths_of(args)
    random.shuffle(paths)
    batches = [paths[i : i + BATCH] for i in range(0, len(paths), BATCH)]

    def load(batch: list[str]) -> Any:
        frames = spdl.io.load_image_batch(batch, width=SIDE, height=SIDE, pix_fmt="rgb24")
        return spdl.io.to_numpy(frames)

    built = PipelineBuilder().add_source(batches).pipe(load, concurrency=args.workers).add_sink(2)
    pipeline = built.build(num_threads=args.workers)
    with pipeline.auto_stop():
        yield from pipeline.get_iterator()


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
}
TORCH = ("litdata", "mosaicml-streaming", "webdataset", "files")
ONLY_RESIZE = ("spdl",)
"""No random resized crop there that decodes and resizes in one call."""


def peak_rss_mib() -> float:
    """Of this process alone: ru_maxrss begins with what its parent had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def child(args: argparse.Namespace) -> None:
    """One epoch in this process."""
    if args.child in TORCH:
        import torchvision.transforms.v2  # noqa: F401
    if args.child in MODULES:
        __import__(MODULES[args.child])
    started, cpu = time.monotonic(), cpu_seconds()
    first, images = 0.0, 0
    for batch in LOADERS[args.child](args.endpoint, args):
        first = first or time.monotonic() - started
        assert batch.shape[1:] in ((3, SIDE, SIDE), (SIDE, SIDE, 3)), batch.shape
        images += len(batch)
    print(
        json.dumps(
            {
                "loader": args.child,
                "mode": args.mode,
                "images": images,
                "seconds": time.monotonic() - started,
                "cpu_s": cpu_seconds() - cpu,
                "first_batch_s": first,
                "peak_rss_mib": peak_rss_mib(),
            }
        )
    )


def run_child(name: str, mode: str, endpoint: str, args: argparse.Namespace) -> dict[str, Any]:
    cache = args.data / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    cache.mkdir()
    for leftover in Path("/dev/shm").glob("0000*"):
        leftover.unlink()  # mosaicml-streaming's shared memory of an earlier run
    command = [
        args.python.get(name, sys.executable),
        __file__,
        "--child",
        name,
        "--mode",
        mode,
        "--endpoint",
        endpoint,
    ]
    command += ["--cache", str(cache), "--data", str(args.data), "--workers", str(args.workers)]
    paths = [args.path[name]] if name in args.path else []
    environment = os.environ | {"PYTHONPATH": ":".join([*paths, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def summary(results: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for mode, name in dict.fromkeys((r["mode"], r["loader"]) for r in results):
        runs = [r for r in results if (r["mode"], r["loader"]) == (mode, name)]
        per_cpu = [r["images"] / r["cpu_s"] for r in runs]
        yield {
            "mode": mode,
            "loader": name,
            "images_per_cpu_s": round(statistics.median(per_cpu)),
            "spread": f"{min(per_cpu):,.0f}..{max(per_cpu):,.0f}",
            "images_per_s": round(statistics.median(r["images"] / r["seconds"] for r in runs)),
            "first_batch_ms": round(1000 * statistics.median(r["first_batch_s"] for r in runs)),
            "peak_rss_mib": round(statistics.median(r["peak_rss_mib"] for r in runs)),
        }


def named(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--photos", type=Path, default=Path("/usr/share/wallpapers"))
    parser.add_argument("--data", type=Path, default=Path("/dev/shm/headrace-images"))
    parser.add_argument("--images", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--mode", default="resize,crop")
    parser.add_argument("--loaders", default=",".join(["headrace", "headrace-fast", *TORCH]))
    parser.add_argument("--path", type=named, action="append", default=[], metavar="NAME=DIR")
    parser.add_argument("--python", type=named, action="append", default=[], metavar="NAME=EXECUTABLE")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--endpoint", help=argparse.SUPPRESS)
    parser.add_argument("--cache", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.path, args.python = dict(args.path), dict(args.python)
    if args.child:
        child(args)
        return
    prepare(args.data, args.photos, args.images)
    simulator, endpoint = start_simulator(args.data, "--unsigned")
    try:
        results = [
            run_child(name, mode, endpoint, args)
            for _ in range(args.rounds)
            for mode in args.mode.split(",")
            for name in args.loaders.split(",")
            if mode == "resize" or name not in ONLY_RESIZE
        ]
    finally:
        simulator.terminate()
        simulator.wait()
    for row in summary(results):
        print(json.dumps(row) if args.json else "  ".join(f"{k} {v}" for k, v in row.items()))


if __name__ == "__main__":
    main()
