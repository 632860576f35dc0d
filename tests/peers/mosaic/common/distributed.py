"""Tests of classes that run in several processes of torch.distributed."""

import os

import pytest
import torch.multiprocessing as mp
from tests.common.utils import get_free_tcp_port
from torch import distributed

_SECONDS = 120


def _run(test, kwargs, rank, world_size, port):
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    distributed.init_process_group("gloo", rank=rank, world_size=world_size)
    test(**kwargs)
    distributed.barrier()
    distributed.destroy_process_group()


class DistributedTest:
    is_dist_test = True
    world_size = 1

    def run_in_processes(self, request):
        marker = next(
            (mark for mark in getattr(request.function, "pytestmark", []) if mark.name == "world_size"), None
        )
        if marker is not None:
            self.world_size = marker.args[0]
        test = getattr(self, request.function.__name__)
        names = [
            name
            for name in request.fixturenames
            if name in test.__code__.co_varnames[: test.__code__.co_argcount]
        ]
        kwargs = {name: request.getfixturevalue(name) for name in names}
        port = get_free_tcp_port()
        ranks = [
            mp.get_context("fork").Process(target=_run, args=(test, kwargs, rank, self.world_size, port))
            for rank in range(self.world_size)
        ]
        for rank in ranks:
            rank.start()
        for number, rank in enumerate(ranks):
            rank.join(_SECONDS)
            if rank.exitcode != 0:
                for other in ranks:
                    other.kill()
                pytest.fail(f"rank {number} ended with {rank.exitcode}", pytrace=False)
