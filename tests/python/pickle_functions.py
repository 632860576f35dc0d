"""What test_pickles.py calls in other processes."""

from __future__ import annotations

import os
from typing import Any


def rest(loader: Any) -> dict[str, Any]:
    """What a loader delivers there until the end of its epoch, and where it stands then."""
    with loader:
        batches = [(batch.ids.tolist(), batch["x"].tolist()) for batch in loader]
        return {"pid": os.getpid(), "batches": batches, "state": loader.state_dict(), "rank": loader.rank}


def read(dataset: Any, positions: list[int]) -> list[int]:
    return [int(sample["x"]) for sample in dataset.read(positions)]


def get(store: Any, key: str) -> bytes:
    content: bytes = store.get(key)
    return content


def double(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "x": sample["x"] * 2}


class Around:
    """A dataset that iterates a loader: in each worker all of it."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __len__(self) -> int:
        return len(self.loader)

    def __getitem__(self, index: int) -> Any:
        return next(iter(self.loader))
