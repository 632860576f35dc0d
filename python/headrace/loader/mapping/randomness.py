"""Random numbers that depend on (seed, epoch, sample) alone, not on who draws them."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from headrace.loader.mapping import pipelines

__all__ = ["Randomness", "kept_globals"]

_spare: np.random.MT19937 | None = None  # Takes 50 microseconds to make.
_ALL = (1 << 64) - 1


def _mixed(value: int, part: int) -> int:
    """64 bits of both (splitmix64). Of seed, epoch and sample in turn it is what seeds the global
    generators."""
    value = (value + part + 0x9E3779B97F4A7C15) & _ALL
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _ALL
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _ALL
    return value ^ (value >> 31)


def _torch_generator() -> Any:
    """torch's default generator of the CPU, where torch is imported."""
    torch = sys.modules.get("torch")
    return getattr(torch, "default_generator", None)


class Randomness:
    """Generators of one thread.

    :param seeds_globals: also seed ``random``, ``np.random``, torch (on the CPU) and Albumentations'
        pipelines: 7 microseconds a sample.
    """

    def __init__(self, seed: int, seeds_globals: bool) -> None:
        self._seed, self._seeds_globals = seed, seeds_globals
        self._epoch = self._sample = 0
        self._of_epoch = _mixed(_mixed(0, seed), 0)
        self._engines: dict[int, tuple[np.random.Generator, Any]] = {}

    def begin(self, epoch: int, sample: int) -> None:
        """What follows is about this sample."""
        if epoch != self._epoch:
            self._of_epoch = _mixed(_mixed(0, self._seed), epoch)
        self._epoch, self._sample = epoch, sample
        if not self._seeds_globals:
            return
        number = _mixed(self._of_epoch, sample)
        random.seed(number)
        np.random.seed(number & 0xFFFFFFFF)
        generator = _torch_generator()
        if generator is not None:
            generator.manual_seed(number)
        pipelines.seed(number)

    def generator(self, step: int) -> np.random.Generator:
        """The sample's numbers for a step: Philox with the key (seed, step) and the counter
        (0, 0, epoch, sample). The same object each time, and good until the next call for this step."""
        if step not in self._engines:
            # Of a list with numbers from 2**63 on numpy would make floats.
            engine = np.random.Philox(key=np.array([self._seed, step], np.uint64))
            self._engines[step] = np.random.Generator(engine), engine.state
        generator, state = self._engines[step]
        state["state"]["counter"][2:] = self._epoch, self._sample
        generator.bit_generator.state = state
        return generator


@contextmanager
def kept_globals() -> Iterator[None]:
    """Gives the process its global generators back as they were: they are the training loop's."""
    global _spare
    python, numpy = random.getstate(), np.random.get_bit_generator()
    generator = _torch_generator()
    torch = None if generator is None else generator.get_state()
    engine, _spare = _spare or np.random.MT19937(0), None
    np.random.set_bit_generator(engine)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_bit_generator(numpy)
        _spare = engine
        if torch is not None:
            generator.set_state(torch)
