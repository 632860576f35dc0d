#!/usr/bin/env python3
"""JPEGs (500 x 375, about 100 KB) to batches of 224 x 224 uint8, from S3: Headrace and its peers in one run.

    pip install litdata mosaicml-streaming webdataset torchvision    (others: README.md)
    bench/peers/images.py --photos DIR --data /dev/shm/images --rounds 3 [--images 3000] [--mode resize,crop]

--photos: a directory of photographs (Debian's plasma-workspace-wallpapers), which are cut into tiles. The
same tiles are written as MDS, LitData chunks, WebDataset tars and files, and served by `headrace sim`
(profile none) on loopback; `files` (a DataLoader), tf.data, DALI (its CPU pipeline), SPDL, Grain
(ArrayRecord), megatron-energon (the tar files) and FFCV read local files. Each read is a fresh process with
an empty cache, interleaved; CPU is user + system time of it and its children from the end of the imports to
the last batch. Peers decode by torchvision (libjpeg-turbo) with transforms v2, in --workers processes (0: in
their own).

Peers that need packages of their own get them by --path dali=DIR or --python tfdata=EXECUTABLE.

resize: to 224 x 224, antialiased bilinear, all pixels decoded (`exact`; `headrace-fast` decodes at a fraction
of the size where that is enough). crop: random resized crop and flip.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from image_loaders import LOADERS, MODULES, ONLY_RESIZE, SIDE, TORCH, TORCHVISION, paths_of
from tokens import cpu_seconds, empty_cache, named, run_peer, start_simulator

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


def prepare_own(data: Path, name: str) -> None:
    """What only this peer reads, of the same JPEGs, once; in a process that has its packages."""
    if name.startswith("grain") and not (data / "arrayrecord").exists():
        from array_record.python.array_record_module import ArrayRecordWriter

        (data / "arrayrecord").mkdir()
        writer = ArrayRecordWriter(str(data / "arrayrecord" / "images.arrayrecord"), "group_size:1")
        for path in paths_of(data):
            writer.write(Path(path).read_bytes())
        writer.close()
    elif name == "megatron-energon" and not (data / "energon").exists():
        from energon_images import prepare as prepare_energon

        prepare_energon(data / "buckets" / "bench" / "wds", data / "energon")
    elif name == "ffcv" and not (data / "ffcv.beton").exists():
        write_beton(data)


def write_beton(data: Path) -> None:
    from ffcv.fields import RGBImageField  # type: ignore[import-not-found]
    from ffcv.writer import DatasetWriter  # type: ignore[import-not-found]
    from PIL import Image

    class Images:
        paths = paths_of(data)

        def __len__(self) -> int:
            return len(self.paths)

        def __getitem__(self, index: int) -> Any:
            return (Image.open(self.paths[index]),)

    writer = DatasetWriter(
        str(data / "ffcv.beton"), {"image": RGBImageField(write_mode="jpg")}, num_workers=1
    )
    writer.from_indexed_dataset(Images())


def peak_rss_mib() -> float:
    """Of this process alone: ru_maxrss begins with what its parent had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def child(args: argparse.Namespace) -> None:
    """One epoch in this process."""
    if args.child in TORCHVISION:
        import torchvision.transforms.v2  # noqa: F401
    if args.child in MODULES:
        __import__(MODULES[args.child])
    prepare_own(args.data, args.child)
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
    cache = empty_cache(args.data)
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
    return run_peer(name, command, args.path)


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
