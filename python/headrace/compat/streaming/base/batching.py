"""The order of an epoch."""

import numpy as np
import numpy.typing as npt

from headrace.compat.streaming._dataset import StreamingDataset
from headrace.compat.streaming._world import World

__all__ = ["generate_work"]


def generate_work(
    batching_method: str, dataset: StreamingDataset, world: World, epoch: int, sample_in_epoch: int
) -> npt.NDArray[np.int64]:
    """:meth:`StreamingDataset.generate_work`."""
    return dataset.generate_work(batching_method, world, epoch, sample_in_epoch)
