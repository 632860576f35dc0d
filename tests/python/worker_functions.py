"""Functions for the tests of DataLoader workers: a module, so that spawned workers import them."""

from __future__ import annotations

import os
from typing import Any

import torch

import headrace.torch

Sample = dict[str, Any]


def double(sample: Sample) -> Sample:
    return {"y": sample["x"] * 2, "t": sample["t"] + "!", "pid": os.getpid()}


def draw(sample: Sample, rng: Any) -> Sample:
    return {"own": rng.random(3), "torch": torch.rand(2)}


def fail_on_13(sample: Sample) -> Sample:
    if sample["t"] == "s13":
        raise LookupError("thirteen")
    return {"x": sample["x"]}


def fail_often(sample: Sample) -> Sample:
    if int(sample["t"][1:]) % 16:
        raise LookupError("fünf" * 200)
    return {"x": sample["x"]}


def is_even(sample: Sample) -> bool:
    return int(sample["x"]) % 2 == 0


def with_worker(batch: Any) -> Any:
    info = torch.utils.data.get_worker_info()
    return {
        "ids": batch.ids,
        "x": batch["x"],
        "worker": None if info is None else info.id,
        "pid": os.getpid(),
    }


class Wrapped(torch.utils.data.IterableDataset[Any]):
    """A dataset around a loader, as users write them."""

    def __init__(self, loader: headrace.torch.Loader) -> None:
        self.loader = loader

    def __iter__(self) -> Any:
        return iter(self.loader)
