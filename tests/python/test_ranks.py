"""Ranks: sure, or an error that says what to set; taken at the first loop."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.base.ranks import find_rank


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Any:
    def use(variables: Mapping[str, str]) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return use


OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}
PMI = {"PMI_RANK": "5", "PMI_SIZE": "6"}
STEP = {"SLURM_PROCID": "6", "SLURM_NTASKS": "8", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "7"}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, (0, 1)),
        ({"RANK": "1", "WORLD_SIZE": "2"}, (1, 2)),
        (OPEN_MPI, (3, 4)),
        (PMI, (5, 6)),
        (STEP, (6, 7)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_STEP_ID": "2"}, (0, 8)),
        # A batch script, or a shell of salloc: one process.
        ({"SLURM_JOB_ID": "9", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, (0, 1)),
        ({"SLURM_JOB_ID": "9", "SLURM_NTASKS": "8"}, (0, 1)),
        # srun starts the daemons of mpirun, or torchrun, one a node: what they set counts.
        ({**STEP, **OPEN_MPI}, (3, 4)),
        ({**STEP, **PMI}, (5, 6)),
        ({**STEP, **OPEN_MPI, "RANK": "1", "WORLD_SIZE": "2"}, (1, 2)),
        ({**STEP, "PMIX_RANK": "6"}, (6, 7)),
    ],
)
def test_a_launcher_says_the_rank(
    environment: Any, variables: dict[str, str], expected: tuple[int, int]
) -> None:
    environment(variables)
    assert find_rank() == expected


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE=2 is set and RANK is not"),
        ({"RANK": "0"}, "RANK=0 is set and WORLD_SIZE is not"),
        ({"OMPI_COMM_WORLD_RANK": "0"}, "OMPI_COMM_WORLD_SIZE is not"),
        ({"PMI_SIZE": "2"}, "PMI_RANK is not"),
        ({"PMIX_RANK": "1"}, "nothing says of how many"),
        ({"SLURM_STEP_NUM_TASKS": "2"}, "SLURM_PROCID is not"),
        ({"SLURM_PROCID": "1"}, "SLURM_NTASKS is not"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "expected RANK below WORLD_SIZE"),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, "RANK='-1'"),
        ({"RANK": "", "WORLD_SIZE": "2"}, "RANK=''"),
    ],
)
def test_half_a_rank_is_an_error(
    numbers: Path, environment: Any, open_loader: Any, variables: dict[str, str], message: str
) -> None:
    environment(variables)
    with pytest.raises(hr.InvalidArgumentError, match=message):
        open_loader(numbers)
    assert open_loader(numbers, rank=1, world_size=2).rank == 1


@pytest.mark.parametrize(
    "use",
    [len, iter, hr.Loader.state_dict, lambda loader: loader.rank, lambda loader: next(loader.sample_ids())],
)
def test_half_a_rank_waits_for_the_group_that_is_to_come_until_it_is_used(
    numbers: Path, environment: Any, open_loader: Any, use: Any
) -> None:
    environment({"WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"})
    loader = open_loader(numbers)
    assert "Loader(" in repr(loader)
    with pytest.raises(hr.InvalidArgumentError, match="RANK is not"):
        use(loader)
    environment({"RANK": "1"})
    use(loader)
    assert (loader.rank, loader.world_size, len(loader)) == (1, 2, 50)


def test_the_rank_is_final_at_the_first_loop(numbers: Path, environment: Any, open_loader: Any) -> None:
    with hr.Loader(numbers, batch_size=10, block_bytes="64KiB", memory="64MiB") as first:
        list(zip(range(3), first, strict=False))
        state = first.state_dict()
        rest = [ids for batch in first for ids in batch.ids.tolist()]
    loaders = [open_loader(numbers, batch_size=5) for _ in range(2)]
    for loader in loaders:
        assert len(loader) == 200
        loader.load_state_dict(state)
        assert loader.state_dict()["t"] == state["t"]
    received = []
    for rank, loader in enumerate(loaders):
        environment({"RANK": str(rank), "WORLD_SIZE": "2"})
        assert loader.state_dict()["t"] == state["t"]
        assert loader.batches_left == len(rest) / 10
        received.append([batch.ids.tolist() for batch in loader])
    assert [i for batches in zip(*received, strict=True) for ids in batches for i in ids] == rest
    environment({"RANK": "0", "WORLD_SIZE": "1"})
    assert (loaders[1].rank, loaders[1].world_size) == (1, 2)


def test_an_epoch_that_was_set_outlives_a_change_of_rank(
    numbers: Path, environment: Any, open_loader: Any
) -> None:
    loader = open_loader(numbers)
    loader.set_epoch(2)
    environment({"RANK": "1", "WORLD_SIZE": "2"})
    assert loader.epoch == 2
    expected = open_loader(numbers)
    assert [batch.ids.tolist() for batch in loader] == [ids.tolist() for ids in expected.sample_ids(2)]


@pytest.mark.parametrize("kind", ["mixture", "mosaic"])
def test_orders_that_depend_on_the_world_follow_the_rank(
    numbers: Path, environment: Any, open_loader: Any, kind: str
) -> None:
    def make() -> hr.Loader:
        if kind == "mosaic":
            return open_loader(numbers, order="mosaic:py1e")  # type: ignore[no-any-return]
        return open_loader(hr.Mixture({"a": (hr.Dataset(numbers, block_bytes="64KiB"), 1.0)}))  # type: ignore[no-any-return]

    loader = make()
    environment({"RANK": "1", "WORLD_SIZE": "2"})
    expected = make()
    assert [batch.ids.tolist() for batch in loader] == [batch.ids.tolist() for batch in expected]


def test_set_epoch_keeps_what_load_state_dict_chose(numbers: Path, open_loader: Any) -> None:
    loader = open_loader(numbers)
    planned = [[ids.tolist() for ids in loader.sample_ids(epoch)] for epoch in range(3)]
    loader.set_epoch(1)
    assert [next(iter(loader)).ids.tolist() for _ in range(2)] == planned[1][:2]
    state = loader.state_dict()
    loader.set_epoch(1)
    assert next(iter(loader)).ids.tolist() == planned[1][0]

    loader.load_state_dict(state)
    for epoch in (0, 2):
        with pytest.raises(
            hr.InvalidArgumentError, match=r"load_state_dict\(\) has put the loader into epoch 1"
        ):
            loader.set_epoch(epoch)
    loader.set_epoch(1)
    assert [batch.ids.tolist() for batch in loader] == planned[1][2:]
    loader.set_epoch(2)
    assert [batch.ids.tolist() for batch in loader] == planned[2]
    with pytest.raises(hr.InvalidArgumentError, match="epoch=-1"):
        loader.set_epoch(-1)
