"""Functions for the tests of map(): a module, so that workers import them."""

from __future__ import annotations

import os
import random
import signal
import sys
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


def wait_for_ever(sample: Sample) -> Sample:
    print(os.getpid(), flush=True)
    signal.pause()
    return sample
