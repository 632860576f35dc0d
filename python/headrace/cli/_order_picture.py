"""An epoch's order as a picture: where in the dataset the samples of each global batch lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.cli._knee_picture import COLOURS

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MOST_BATCHES, MOST_SLOTS = 400, 50
"""More points than these would be one grey area."""


def _spread(count: int, most: int) -> list[int]:
    """At most so many of [0, count), evenly spaced."""
    return list(range(count)) if count <= most else [i * count // most for i in range(most)]


def points(
    read: Callable[[int, int], npt.NDArray[np.int64]], total: int, global_batch: int
) -> list[tuple[int, int, int]]:
    """(global batch, slot, dataset position) of some samples of all parts of an epoch.

    :param read: positions of slots [start, start + count).
    """
    found = []
    for batch in _spread(-(-total // global_batch), MOST_BATCHES):
        start = batch * global_batch
        positions = read(start, min(global_batch, total - start))
        found += [(batch, slot, int(positions[slot])) for slot in _spread(len(positions), MOST_SLOTS)]
    return found


def draw(figure: Any, found: list[tuple[int, int, int]], shape: tuple[int, int]) -> None:
    """A scatter of position against step, coloured by rank where these are few.

    :param shape: global batch size, ranks.
    """
    global_batch, ranks = shape
    axes = figure.subplots()
    for rank in range(ranks) if ranks <= len(COLOURS) else (None,):
        mine = [p for p in found if rank is None or p[1] * ranks // global_batch == rank]
        label = "" if rank is None or ranks == 1 else f"rank {rank}"
        # An empty slot of another loader's order is at -1.
        places = [p for p in mine if p[2] >= 0]
        axes.scatter(
            [batch for batch, _, _ in places],
            [position for _, _, position in places],
            s=3,
            lw=0,
            color=COLOURS[rank or 0],
            label=label,
            rasterized=True,
        )
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlabel("global batch")
    axes.set_ylabel("position in the dataset")
    if 1 < ranks <= len(COLOURS):
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), markerscale=4, fontsize=8)
