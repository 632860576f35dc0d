"""Names of a checkpoint's objects, below the URL of all checkpoints of a run.

::

    LATEST                           {"step": ..., "save": ...}: what was committed last
    steps/000000001200               the manifest; a checkpoint is there when this is
    saves/000003-000000001200-9f3a1c22/00000.safetensors   what rank 0 wrote, and
    saves/000003-000000001200-9f3a1c22/00000.index         where and with which sums
    saves/000004-000000001300-77b2c1d0-shared/...          of a save whose data later checkpoints may refer to
    fence/000003                     taken by the job that saves under this number
    pins/000000001200                that checkpoint is never deleted
"""

from __future__ import annotations

import re
import secrets
from typing import NamedTuple

__all__ = [
    "LATEST",
    "SaveId",
    "copied_key",
    "data_key",
    "fence_key",
    "fence_of",
    "index_key",
    "pin_key",
    "pin_of",
    "save_of",
    "step_key",
    "step_of",
]

LATEST = "LATEST"
_STEP = re.compile(r"steps/(\d{12,18})")
_PIN = re.compile(r"pins/(\d{12,18})")
_FENCE = re.compile(r"fence/(\d{6,18})")
_SAVE = re.compile(r"(\d{6,18})-(\d{12,18})-([0-9a-f]{8})(-shared)?")


class SaveId(NamedTuple):
    fence: int
    """Number of the job that saves."""
    step: int
    random: str
    is_shared: bool = False
    """Whether checkpoints that are saved later may refer to its data files."""

    @classmethod
    def new(cls, fence: int, step: int, *, is_shared: bool = False) -> SaveId:
        return cls(fence, step, secrets.token_hex(4), is_shared)

    @classmethod
    def parse(cls, text: str) -> SaveId | None:
        """None: it is none."""
        found = _SAVE.fullmatch(text)
        return None if found is None else cls(int(found[1]), int(found[2]), found[3], bool(found[4]))

    def __str__(self) -> str:
        return f"{self.fence:06}-{self.step:012}-{self.random}{'-shared' if self.is_shared else ''}"


def step_key(step: int) -> str:
    return f"steps/{step:012}"


def step_of(key: str) -> int | None:
    """None: it is no manifest's key."""
    found = _STEP.fullmatch(key)
    return None if found is None else int(found[1])


def pin_key(step: int) -> str:
    return f"pins/{step:012}"


def pin_of(key: str) -> int | None:
    """None: it is no pin's key."""
    found = _PIN.fullmatch(key)
    return None if found is None else int(found[1])


def fence_key(number: int) -> str:
    return f"fence/{number:06}"


def fence_of(key: str) -> int | None:
    found = _FENCE.fullmatch(key)
    return None if found is None else int(found[1])


def data_key(save: SaveId | str, rank: int) -> str:
    return f"saves/{save}/{rank:05}.safetensors"


def copied_key(save: SaveId | str, rank: int, number: int) -> str:
    """Of a copy of what a file of that rank refers to: its nth."""
    return f"saves/{save}/{rank:05}-{number:03}.safetensors"


def save_of(key: str) -> str:
    """The save that a data file or an index is of."""
    return key.split("/")[1]


def index_key(save: SaveId | str, rank: int) -> str:
    return f"saves/{save}/{rank:05}.index"
