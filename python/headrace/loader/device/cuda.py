"""A CUDA device as the ring uses it, by torch's rules for several streams.

* A tensor belongs to the stream on which it was allocated, here that of the copies. Who uses it on another
  must make that stream wait, and tell the allocator (``record_stream``), which else would give the memory to
  the next copy as soon as the tensor is dropped, though the other stream's work is still to be done.
* An asynchronous copy out of pinned memory reads it after the call has returned: the buffer may be written to
  when an event behind the copy has happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from headrace.errors import InvalidArgumentError

__all__ = ["Cuda", "check_cuda"]


def check_cuda(device: torch.device) -> None:
    """Raises InvalidArgumentError where there is no such device."""
    if not torch.cuda.is_available():
        raise InvalidArgumentError(
            f"device={str(device)!r}: torch {torch.__version__} sees no CUDA device. Leave device= out, or "
            "look at torch.cuda.is_available(), nvidia-smi and CUDA_VISIBLE_DEVICES"
        )
    count = torch.cuda.device_count()
    if device.index is not None and device.index >= count:
        raise InvalidArgumentError(
            f"device={str(device)!r}: torch sees {count} CUDA devices, cuda:0 to cuda:{count - 1}"
        )


class Cuda:
    """``device`` without a number: the one that is current when this is made."""

    def __init__(self, device: torch.device) -> None:
        index = torch.cuda.current_device() if device.index is None else device.index
        self._device = torch.device("cuda", index)
        self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]

    def allocate_pinned(self, size_bytes: int) -> torch.Tensor:
        with torch.cuda.device(self._device):  # Pinning makes a context on the current device.
            return torch.empty(size_bytes, dtype=torch.uint8, device="cpu", pin_memory=True)

    def copying(self) -> AbstractContextManager[Any]:
        return torch.cuda.stream(self._stream)

    def copy(self, staged: torch.Tensor) -> torch.Tensor:
        return staged.to(self._device, non_blocking=True)

    def record(self) -> torch.cuda.Event:
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(self._stream)
        return event

    def wait_for(self, event: torch.cuda.Event) -> None:
        event.synchronize()

    def hand_over(self, event: torch.cuda.Event, tensors: Sequence[torch.Tensor]) -> None:
        consumer = torch.cuda.current_stream(self._device)
        consumer.wait_event(event)
        for tensor in tensors:
            tensor.record_stream(consumer)
