"""How ranks hand bytes to one another: by torch.distributed, over a process group of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Protocol, TypeAlias

import numpy as np

from headrace.errors import UnavailableError

__all__ = ["Bytes", "Exchange", "TorchExchange"]

Bytes: TypeAlias = np.ndarray[Any, Any]
"""uint8, in one piece, writable."""


class Exchange(Protocol):
    """Between all ranks of a group. Calls come in the same order on each of them; all raise where a rank does
    not come within the time limit, or has gone."""

    def open(self) -> None:
        """Before the first call, and again after an error."""

    def any(self, here: bool) -> bool:
        """Whether it is so on any rank."""

    def swap(self, parts: Sequence[bytes]) -> list[bytes]:
        """Hands ``parts[r]`` to rank r. Returns what each had for this one."""

    def pass_on(self, sends: Sequence[tuple[int, Bytes]], receives: Sequence[tuple[int, Bytes]]) -> None:
        """Sends to ranks and fills what comes from others, of which both sides know; at most one for each
        rank."""

    def close(self) -> None: ...


class TorchExchange:
    """Over gloo.

    :param timeout: seconds that a rank may be late.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timedelta(seconds=timeout)
        self._group: Any = None

    def open(self) -> None:
        import torch.distributed as dist

        if self._group is None:
            self._group = dist.new_group(backend="gloo", timeout=self._timeout)

    def any(self, here: bool) -> bool:
        import torch
        import torch.distributed as dist

        flag = torch.tensor([int(here)], dtype=torch.int32, device="cpu")
        with _explained():
            dist.all_reduce(flag, dist.ReduceOp.MAX, group=self._group)
        return bool(flag.item())

    def swap(self, parts: Sequence[bytes]) -> list[bytes]:
        import torch
        import torch.distributed as dist

        rank = dist.get_rank()
        sizes = torch.tensor([len(part) for part in parts], dtype=torch.int64, device="cpu")
        coming = torch.empty_like(sizes)
        with _explained():
            dist.all_to_all_single(coming, sizes, group=self._group)
        got = [np.empty(size, np.uint8) for size in coming.tolist()]
        self.pass_on(
            [
                (r, np.frombuffer(bytearray(part), np.uint8))
                for r, part in enumerate(parts)
                if part and r != rank
            ],
            [(r, each) for r, each in enumerate(got) if len(each) and r != rank],
        )
        return [parts[rank] if r == rank else each.tobytes() for r, each in enumerate(got)]

    def pass_on(self, sends: Sequence[tuple[int, Bytes]], receives: Sequence[tuple[int, Bytes]]) -> None:
        import torch.distributed as dist

        with _explained():
            work = [dist.irecv(_tensor(each), rank, group=self._group) for rank, each in receives]
            work += [dist.isend(_tensor(each), rank, group=self._group) for rank, each in sends]
            for each in work:
                if each is not None:  # As for a rank that is not of the group.
                    each.wait(self._timeout)

    def close(self) -> None:
        """Drops the process group: what waits for this rank on others ends with an error."""
        import torch.distributed as dist

        group, self._group = self._group, None
        if group is not None and dist.is_initialized():
            with suppress(ValueError):  # It was destroyed with all others.
                dist.destroy_process_group(group)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UnavailableError(f"ranks cannot hand bytes to one another (gloo): {reason}") from error


def _tensor(data: Bytes) -> Any:
    """Over the same memory."""
    import torch

    return torch.from_numpy(data)
