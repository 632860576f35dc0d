"""Who else reads from a loader."""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["Reader"]


class Reader(Protocol):
    """Takes batches from a loader ahead of the training loop, and so knows the position better than it."""

    @property
    def _is_ahead(self) -> bool:
        """Whether the loader stands behind what was delivered."""

    @property
    def _is_placed(self) -> bool:
        """See :class:`Loader`."""

    @property
    def batches_left(self) -> int: ...

    @property
    def epoch(self) -> int: ...

    def state_dict(self) -> dict[str, Any]: ...

    def _rewind(self) -> None:
        """Gives back what was not delivered: the loader goes to the position."""

    def _stop(self) -> None:
        """The loader is being closed."""
