"""Memory of this machine through which comes what nothing can be read into: tensors on a GPU, views that
conjugate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["LANDING_BYTES", "Landing"]

LANDING_BYTES = 1 << 30
"""Of a load. Reads under way end each time when it is full: with less the store's latency would show."""

_BLOCK_BYTES = 64 << 20  # A power of two, as which torch counts pinned memory.
_ALIGNMENT = 64


class Landing:
    """Blocks of memory, pinned where a GPU copies out of them, which are filled one after the other.

    They have LANDING_BYTES in all, but for a row that is longer.

    :param when_full: reads what was taken, and calls :meth:`land`. None: more is taken.
    """

    def __init__(self, when_full: Callable[[], None] | None = None) -> None:
        self._when_full = when_full
        self._taken: list[Any] = []  # Blocks. The last one is being filled, from _at on.
        self._free: list[Any] = []  # Of the usual size.
        self._at = 0
        self._targets: list[tuple[Any, Any]] = []  # And what was taken for each.

    def room_for(self, least_bytes: int, is_pinned: bool) -> int:
        """Bytes that may be taken in one piece: ``least_bytes`` or more."""
        if self._left < least_bytes:
            size = max(least_bytes, _BLOCK_BYTES)
            taken = sum(map(len, self._taken))
            if taken and taken + size > LANDING_BYTES and self._when_full is not None:
                self._when_full()
            reused = size == _BLOCK_BYTES and self._free
            self._taken.append(self._free.pop() if reused else _memory(size, is_pinned))
            self._at = 0
        return self._left

    def take(self, target: Any) -> Any:
        """A tensor of the same shape and dtype, to be filled for ``target``. After room_for() has said that
        there is room."""
        begin = self._at
        self._at = begin + -(-target.nbytes // _ALIGNMENT) * _ALIGNMENT
        taken = self._taken[-1][begin : begin + target.nbytes].view(target.dtype).view(target.shape)
        self._targets.append((target, taken))
        return taken

    def land(self) -> None:
        """Copies what was filled to where it belongs; what was taken is free again."""
        for target, taken in self._targets:
            target.copy_(taken)
        self._targets.clear()
        self._free += [block for block in self._taken if len(block) == _BLOCK_BYTES]
        self._taken.clear()
        self._at = 0

    def close(self) -> None:
        """Gives all of it back, to torch what is pinned, and lets go of ``when_full``."""
        self._taken, self._free, self._when_full = [], [], None

    @property
    def _left(self) -> int:
        return max(0, len(self._taken[-1]) - self._at) if self._taken else 0


def _memory(size: int, is_pinned: bool) -> Any:
    import torch

    return torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=is_pinned)
