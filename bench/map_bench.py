#!/usr/bin/env python3
"""What map() costs beside the functions themselves: CPU of all processes, and microseconds a batch.

Usage: bench/map_bench.py [--workers 2] [--rounds 5] [--cases images,jpeg,tokens,overhead]
Needs torch, torchvision and transformers. Data is made in a temporary directory and read from the page cache.

images: torchvision's RandomResizedCrop(224) and flip over arrays of 3 x 375 x 500, 64 a batch.
jpeg: the same, behind Pillow's decoder, from JPEG of 500 x 375 (about 100 KB).
tokens: a byte-level BPE tokenizer, made here, over documents of about 2 KB, 64 a batch, a batch a call.
beside: images once more, with the function's own CPU measured within the workers: what they and the caller's
thread use beside it, and beside one torch.stack of the results, which any loop does (not by default).
overhead: a function that returns its batch of 64 numbers, ids and text.
mix: MixUp and CutMix of headrace.transforms and torchvision over batches in memory (not by default).
CPU is user and system time of this process and its children in a second epoch; "bare" is the
function over the same samples in memory, "loader" the loop over the loader alone. Medians of the rounds; on a
machine that others use, "overhead_of_least" compares the least of each.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from decode_settings import write_jpegs
from PIL import Image

import headrace as hr
import headrace.torch

torch.set_num_threads(1)
os.environ["TOKENIZERS_PARALLELISM"] = "false"
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "python"))
from conftest import write_mds  # noqa: E402


class Augment:
    def __init__(self) -> None:
        from torchvision.transforms import v2

        self.transform = v2.Compose([v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()])

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        return {"image": self.transform(sample["image"])}


class Timed(Augment):
    """Tells what it used of the CPU."""

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        begun = time.thread_time()
        made = super().__call__(sample)
        made["cpu_ms"] = (time.thread_time() - begun) * 1e3
        return made


class Decode(Augment):
    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        with Image.open(io.BytesIO(sample["jpg"])) as image:
            pixels = np.array(image.convert("RGB"))
        return super().__call__({"image": torch.from_numpy(pixels).permute(2, 0, 1)})


class Tokenize:
    def __init__(self, texts: list[str]) -> None:
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers
        from transformers import PreTrainedTokenizerFast

        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
        tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=4000, show_progress=False))
        self.tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer)

    def __call__(self, batch: Any) -> dict[str, Any]:
        return {"tokens": self.tokenizer(batch["text"], return_attention_mask=False)["input_ids"]}


def as_is(batch: Any) -> Any:
    return batch


def write_images(root: Path, count: int) -> Path:
    rng = np.random.default_rng(1)
    image = rng.integers(0, 256, (3, 375, 500), np.uint8)
    samples = [{"image": np.roll(image, i, 2).tobytes()} for i in range(count)]
    return write_mds(root, {"image": ("ndarray:uint8:3,375,500", image.nbytes)}, samples, per_shard=64)


def write_texts(root: Path, count: int) -> Path:
    words = sorted(
        set(" ".join(p.read_text() for p in (Path(__file__).parents[1] / "docs").glob("*.md")).split())
    )
    rng = np.random.default_rng(1)
    samples = [{"text": " ".join(rng.choice(words, 300)).encode()} for _ in range(count)]
    return write_mds(root, {"text": ("str", None)}, samples, per_shard=1000)


def write_numbers(root: Path, count: int) -> Path:
    samples = [{"x": struct.pack("<q", i), "text": f"s{i}".encode()} for i in range(count)]
    return write_mds(root, {"x": ("int", 8), "text": ("str", None)}, samples, per_shard=10_000)


def cpu_seconds() -> float:
    """Of this process and its children that run."""
    own = psutil.Process()
    return sum(sum(process.cpu_times()[:2]) for process in (own, *own.children()))


def measured(loader: Any) -> tuple[float, int]:
    """(CPU s, batches) of a second epoch: in the first one workers start and memory is touched first."""
    for _ in loader:
        pass
    cpu, batches = cpu_seconds(), sum(1 for _ in loader)
    return cpu_seconds() - cpu, batches


def compare(
    open_loader: Callable[[], Any], bare: Callable[[], float], mapped: Callable[[Any], Any], rounds: int
) -> dict[str, float]:
    """CPU ms a batch of the loader alone, the bare function, and both by map(); interleaved."""
    found: dict[str, list[float]] = {"loader": [], "bare": [], "mapped": []}
    for _ in range(rounds):
        with open_loader() as loader:
            cpu, batches = measured(loader)
            found["loader"].append(cpu / batches * 1e3)
        found["bare"].append(bare() * 1e3)
        with mapped(open_loader()) as loader:
            cpu, batches = measured(loader)
            found["mapped"].append(cpu / batches * 1e3)
    medians = {name: statistics.median(values) for name, values in found.items()}
    beside = [m - b - a for m, b, a in zip(found["mapped"], found["bare"], found["loader"], strict=True)]
    shares = [extra / b for extra, b in zip(beside, found["bare"], strict=True)]
    return {
        **{f"{name}_ms": round(value, 3) for name, value in medians.items()},
        "overhead": round(statistics.median(shares), 3),
        "spread": [round(min(shares), 3), round(max(shares), 3)],
        "overhead_of_least": round(
            (min(found["mapped"]) - min(found["bare"]) - min(found["loader"])) / min(found["bare"]), 3
        ),
    }


def timed(fn: Callable[[], Any], times: int) -> float:
    """CPU s a call."""
    fn()
    begun = time.process_time()
    for _ in range(times):
        fn()
    return (time.process_time() - begun) / times


def images(root: Path, workers: int, rounds: int) -> dict[str, Any]:
    path, augment = write_images(root / "images", 1024), Augment()
    options: dict[str, Any] = {"batch_size": 64, "memory": "1GiB", "index_cache": ""}

    def bare() -> float:
        with headrace.torch.Loader(path, **options) as loader:
            samples = [image.clone() for image in next(iter(loader))["image"]]

        def one() -> Any:
            return torch.stack([augment({"image": sample})["image"] for sample in samples])

        return timed(one, 12)

    open_loader = partial(headrace.torch.Loader, path, **options)
    return compare(open_loader, bare, lambda loader: loader.map(augment, workers=workers), rounds)


def children_ms() -> float:
    """CPU of all threads of the children."""
    stats = [
        path.read_text().split()
        for child in psutil.Process().children()
        for path in Path(f"/proc/{child.pid}/task").glob("*/schedstat")
    ]
    return sum(int(stat[0]) for stat in stats) / 1e6


def beside(root: Path, workers: int, rounds: int) -> dict[str, Any]:
    path, augment = write_images(root / "images", 1024), Timed()
    found: dict[str, list[float]] = {"function": [], "stack": [], "worker": [], "caller": []}
    crops = [torch.zeros(3, 224, 224, dtype=torch.uint8) for _ in range(64)]
    for _ in range(rounds):
        found["stack"].append(timed(lambda: torch.stack(crops), 12) * 1e3)
        loader = headrace.torch.Loader(path, batch_size=64, memory="1GiB", index_cache="")
        with loader.map(augment, workers=workers) as mapped:
            for _ in mapped:
                pass
            children, caller = children_ms(), time.thread_time()
            used = [float(batch["cpu_ms"].sum()) for _ in range(3) for batch in mapped]
            found["function"].append(sum(used) / len(used))
            found["caller"].append((time.thread_time() - caller) * 1e3 / len(used))
            found["worker"].append((children_ms() - children) / len(used) - found["function"][-1])
    shares = [(w + c - s) / (f + s) for f, s, w, c in zip(*found.values(), strict=True)]
    medians = {f"{name}_ms": round(statistics.median(values), 2) for name, values in found.items()}
    spread = [round(f(shares), 3) for f in (statistics.median, min, max)]
    return {**medians, "above_function": spread}


def jpeg(root: Path, workers: int, rounds: int) -> dict[str, Any]:
    path, decode = write_jpegs(root / "jpegs", 1024), Decode()
    options: dict[str, Any] = {"batch_size": 64, "memory": "256MiB", "index_cache": ""}

    def bare() -> float:
        with hr.Loader(path, **options) as loader:
            samples = [{"jpg": jpg} for jpg in next(iter(loader))["jpg"]]
        return timed(lambda: torch.stack([decode(sample)["image"] for sample in samples]), 12)

    open_loader = partial(headrace.torch.Loader, path, **options)
    return compare(open_loader, bare, lambda loader: loader.map(decode, workers=workers), rounds)


def tokens(root: Path, workers: int, rounds: int) -> dict[str, Any]:
    path = write_texts(root / "texts", 6400)
    options: dict[str, Any] = {"batch_size": 64, "memory": "256MiB", "index_cache": ""}
    with hr.Loader(path, **options) as loader:
        texts = [batch["text"] for _, batch in zip(range(16), loader, strict=False)]
    tokenize = Tokenize([text for batch in texts for text in batch])

    def bare() -> float:
        return timed(lambda: [tokenize({"text": batch}) for batch in texts], 2) / len(texts)

    found = compare(
        lambda: hr.Loader(path, **options),
        bare,
        lambda loader: loader.map(tokenize, per="batch", workers=workers),
        rounds,
    )
    found["of_bare_tokens_per_core"] = round(found["bare_ms"] / (found["mapped_ms"] - found["loader_ms"]), 3)
    return found


def overhead(root: Path, workers: int, rounds: int) -> dict[str, Any]:
    path = write_numbers(root / "numbers", 640_000)
    options: dict[str, Any] = {"batch_size": 64, "memory": "256MiB", "index_cache": ""}
    found: dict[str, list[float]] = {"loader": [], "inline": [], "processes": []}
    for _ in range(rounds):
        for name, count in (("loader", None), ("inline", 0), ("processes", workers)):
            loader: Any = hr.Loader(path, **options)
            if count is not None:
                loader = loader.map(as_is, per="batch", workers=count)
            with loader:
                stream = iter(loader)
                for _ in range(100):
                    next(stream)
                begun = time.thread_time()
                batches = sum(1 for _ in stream)
                found[name].append((time.thread_time() - begun) / batches * 1e6)
    medians = {name: statistics.median(values) for name, values in found.items()}
    return {
        "loader_us": round(medians["loader"], 1),
        "inline_us": round(medians["inline"] - medians["loader"], 1),
        "processes_us": round(medians["processes"] - medians["loader"], 1),
    }


def mix(root: Path, workers: int, rounds: int) -> dict[str, Any]:
    """CPU us an image of 224 x 224, 256 a batch, on one thread: ours, and torchvision's on tensors."""
    from torchvision.transforms import v2

    from headrace import transforms

    rng = np.random.default_rng(1)
    batch = {
        "image": rng.integers(0, 256, (256, 224, 224, 3), np.uint8),
        "label": rng.integers(0, 1000, 256),
    }
    pair = torch.from_numpy(batch["image"].transpose(0, 3, 1, 2).copy()), torch.from_numpy(batch["label"])
    floats = pair[0].float(), pair[1]
    found: dict[str, list[float]] = {}
    for name, ours, theirs in (
        ("mixup", transforms.mixup, v2.MixUp),
        ("cutmix", transforms.cutmix, v2.CutMix),
    ):
        own, other = ours("image", "label", classes=1000), theirs(num_classes=1000)
        ways: dict[str, Callable[[], Any]] = {
            name: lambda own=own: own(batch, rng=rng),  # type: ignore[misc]
            f"{name}_torchvision_float32": lambda other=other: other(*floats),  # type: ignore[misc]
        }
        if (
            name == "cutmix"
        ):  # torchvision's MixUp of uint8 is no mixture: its shares are cut to whole numbers.
            ways["cutmix_torchvision"] = lambda other=other: other(*pair)  # type: ignore[misc]
        for _ in range(rounds):
            for way, run in ways.items():
                found.setdefault(way, []).append(timed(run, 3) / 256 * 1e6)
    return {
        name: [round(f(values), 1) for f in (statistics.median, min, max)] for name, values in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cases", default="images,jpeg,tokens,overhead")
    arguments = parser.parse_args()
    cases = {
        "images": images,
        "jpeg": jpeg,
        "tokens": tokens,
        "overhead": overhead,
        "beside": beside,
        "mix": mix,
    }
    with tempfile.TemporaryDirectory(dir="/dev/shm") as root:
        for name in arguments.cases.split(","):
            print(
                json.dumps({name: cases[name](Path(root), arguments.workers, arguments.rounds)}), flush=True
            )


if __name__ == "__main__":
    main()
