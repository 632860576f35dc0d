"""Functions for the tests of map(): a module, so that workers import them."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

Sample = dict[str, Any]


def double(sample: Sample) -> Sample:
    """Of the ``numbers`` datasets: ``y = 2 x``, and who did it."""
    return {"y": sample["x"] * 2, "t": sample["t"] + "!", "pid": os.getpid()}


def is_even(sample: Sample) -> bool:
    return int(sample["x"]) % 2 == 0


def is_none_of_them(sample: Sample) -> bool:
    return False


def draw(sample: Sample, rng: np.random.Generator) -> Sample:
    """Numbers of the sample's own generator and of the global ones."""
    return {"x": sample["x"], "own": rng.random(3), "np": np.random.rand(2), "py": random.random()}


def repeat_but_13(sample: Sample) -> Sample:
    """Lists of arrays, which no batch copies into one."""
    number = int(sample["t"][1:])
    if number == 13:
        raise LookupError("unlucky")
    return {"v": np.full(1 + number % 3, number)}


def negate_lists(batch: dict[str, Any]) -> dict[str, Any]:
    """In place, one after the other."""
    for values in batch["v"]:
        values *= -1
    return batch


def fail_on_13(sample: Sample) -> Sample:
    if sample["t"] == "s13":
        raise LookupError("thirteen")
    return sample


class PickyError(Exception):
    """Cannot be made again from its arguments."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__("picky")


def fail_pickily(sample: Sample) -> Sample:
    raise PickyError(1, 2)


class EndsOnce:
    """Ends its process at sample 13, so many times; counts in a file."""

    def __init__(self, how: str, times: int, counter: Path) -> None:
        self.how, self.times, self.counter = how, times, counter

    def __call__(self, sample: Sample) -> Sample:
        sample["x"] += 1  # In place: what was sent must not change, since the batch may be done again.
        if sample["t"] == "s13" and len(self.counter.read_bytes()) < self.times:
            with self.counter.open("ab") as file:
                file.write(b".")
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            elif self.how == "exit":
                sys.exit(3)
            else:
                os._exit(4)
        return sample


def as_is(batch: Any) -> Any:
    return batch


class StopsIn:
    """Says that it has begun, and goes on when it may."""

    def __init__(self, begun: Path, go: Path) -> None:
        self.begun, self.go = begun, go

    def __call__(self, sample: Sample) -> Sample:
        self.begun.touch()
        while not self.go.exists():
            time.sleep(0.01)
        return sample


def wait_for_ever(sample: Sample) -> Sample:
    print(f"{os.getpid()}\n", end="", flush=True)  # In one piece: several workers do so at once.
    signal.pause()
    return sample


def is_not_third(sample: Sample) -> bool:
    return int(sample["t"][1:]) % 3 != 0


def is_below_20(sample: Sample) -> bool:
    return int(sample["t"][1:]) < 20


def is_within_batches_2_and_5(sample: Sample) -> bool:
    """Of batches of ten, in the order of the dataset."""
    return int(sample["t"][1:]) // 10 in (2, 5)


def fail_on_55_of_those(sample: Sample) -> bool:
    if sample["t"] == "s55":
        raise LookupError("fifty-five")
    return is_within_batches_2_and_5(sample)


def to_masked(sample: Sample) -> Sample:
    return {"m": np.ma.masked_array([1, 2, 3], [False, True, False])}


def without_columns(batch: Any) -> Any:
    return {}


def add_half(sample: Sample) -> Sample:
    return {**sample, "half": sample["x"] / 2}


def to_pair(samples: list[Sample]) -> tuple[Any, list[str]]:
    return np.array([sample["x"] for sample in samples]), [sample["t"] for sample in samples]


def mean_of(batch: Any) -> dict[str, Any]:
    return {"mean": np.array([np.mean(batch["half"])]), "x": batch["x"]}


def draw_for_batch(batch: Any, rng: np.random.Generator) -> dict[str, Any]:
    return {"first": rng.random(len(batch["x"]))}


def all_kinds(sample: Sample) -> Sample:
    """A column of each kind that batches can have."""
    i = int(sample["t"][1:])
    return {
        "int": i,
        "float": i / 2,
        "bool": i % 2 == 0,
        "numpy": np.float32(i),
        "fixed": np.full((2, 3), i, np.uint8),
        "ragged": np.arange(i % 5, dtype=np.int16),
        "list": [i, i + 1],
        "tokens": list(range(i % 5)),
        "lists": [[i] * (1 + i % 3)],
        "text": f"t{i}",
        "bytes": bytes([i % 256]) * (i % 4),
        "none": None,
        "dict": {"of": i},
        "when": np.datetime64(i, "s"),
        "empty": np.zeros((0, 4)),
        "fortran": np.asfortranarray(np.arange(6).reshape(2, 3) + i),
    }


KEPT: list[Any] = []


def keep_arrays(batch: Any) -> Any:
    """Holds what it was given, and delivers what it was given before."""
    KEPT.append(batch["x"])
    return {"x": batch["x"], "first": KEPT[0].copy(), "pid": np.array([os.getpid()])}


def to_none(sample: Sample) -> None:
    return None


def to_other_columns(sample: Sample) -> Sample:
    return {sample["t"]: 1}


def to_lambda(batch: Any) -> Any:
    return {"fn": lambda: batch}


def name_of(sample: Sample) -> Sample:
    return {"sum": float(sample["image"].sum()), "image": sample["image"]}


def lengths_of(sample: Sample) -> Sample:
    return {"t": sample["t"], "a": len(sample["a"]), "b": len(sample["b"])}


def reverse(sample: Sample) -> Sample:
    return {"a": sample["a"][::-1]}


def describe_process(sample: Sample) -> Sample:
    return {
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "parent": os.getppid(),
        "ignores_ctrl_c": signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
    }


def invert(batch: Any) -> Any:
    """In place."""
    batch["big"] ^= 255
    return batch
