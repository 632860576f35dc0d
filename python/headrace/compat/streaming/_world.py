"""Which process of a run this is, told as Mosaic is told: by torchrun's environment and the DataLoader."""

from __future__ import annotations

import os
from typing import NamedTuple

from torch.utils.data import get_worker_info

from headrace import _native


class World(NamedTuple):
    """The ranks of a run, and the worker of a rank."""

    num_nodes: int
    ranks_per_node: int
    rank: int
    workers_per_rank: int = 1
    worker_of_rank: int = 0

    @property
    def num_ranks(self) -> int:
        return self.num_nodes * self.ranks_per_node

    @classmethod
    def detect(cls) -> World:
        ranks_per_node = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
        world_size = int(os.environ.get("WORLD_SIZE", 1))
        return cls(max(world_size // ranks_per_node, 1), ranks_per_node, int(os.environ.get("RANK", 0))).in_worker()

    def in_worker(self) -> World:
        """The same rank, seen from the DataLoader worker that calls."""
        info = get_worker_info()
        return self._replace(workers_per_rank=info.num_workers if info else 1, worker_of_rank=info.id if info else 0)

    def replicate(self, replication: int) -> World:
        """The world in which ``replication`` consecutive ranks count as one."""
        if replication <= 0:
            raise ValueError("Replication factor must be positive.")
        nodes, ranks, _, _ = _native.replicate_mosaic_world((self.num_nodes, self.ranks_per_node, 1, 1), replication)
        return self._replace(num_nodes=nodes, ranks_per_node=ranks, rank=self.rank // replication)
