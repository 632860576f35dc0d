"""Ranks (gloo) that load what they share: each byte is read from the store once, and nobody waits for one
that has failed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import where
from framework_ranks import LONG, Job, run_without_errors

from headrace import sim as simulator

pytest.importorskip("torch")

pytestmark = pytest.mark.timeout(3600 if LONG else 900)

PROGRAM = Path(__file__).with_name("checkpoint_sharing_ways.py")
STRIPE = {"stripe_blocks": 16}


@pytest.fixture(scope="module")
def sim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[simulator.Server]:
    directory = tmp_path_factory.mktemp("buckets")
    (directory / "b").mkdir()
    with simulator.Server(str(directory)) as server:
        yield server


def results(jobs: list[Job]) -> list[list[Any]]:
    return run_without_errors(PROGRAM, jobs)


@pytest.mark.parametrize("layout", ["rows", "columns", "hybrid"])
def test_each_byte_is_read_once_whatever_the_mesh(sim: simulator.Server, layout: str) -> None:
    """Saved by 4 ranks, loaded by 1, 2, 3 and 8 in rows, columns, both, and as replicas."""
    url = f"s3://b/{layout}"
    options = {"store": where(sim), "share": "always", **STRIPE}
    jobs = [Job("save", url, 4, options=options | {"layout": layout})]
    for world in (1, 2, 3, 8):
        for loaded in ("rows", "columns", "hybrid", "replicas"):
            if world in (1, 3) and loaded == "hybrid":
                continue
            jobs.append(Job("load", url, world, options=options | {"layout": loaded}))
    jobs.append(Job("load_whole", url, 3, options=options))
    for job, ranks in zip(jobs[1:], results(jobs)[1:], strict=True):
        for read, needed in ranks:
            assert needed <= read <= 1.01 * needed, job


def test_each_byte_is_read_once_through_dcp(sim: simulator.Server) -> None:
    url = "s3://b/dcp"
    options = {"store": where(sim), "share": "always", **STRIPE}
    jobs = [Job("save", url, 4, options=options | {"layout": "rows"})]
    for world, layout in ((1, "rows"), (2, "replicas"), (3, "columns"), (8, "rows"), (8, "hybrid")):
        jobs.append(Job("load_dcp", url, world, options=options | {"layout": layout}))
    for job, ranks in zip(jobs[1:], results(jobs)[1:], strict=True):
        for read, needed in ranks:
            assert needed <= read <= 1.01 * needed, job


def test_each_byte_of_a_differential_checkpoint_is_read_once(sim: simulator.Server) -> None:
    url = "s3://b/differential"
    options = {"store": where(sim), "share": "always", **STRIPE}
    jobs = [Job("save_differential", url, 2, options=options | {"layout": "rows"})]
    jobs += [
        Job("load", url, world, options=options | {"layout": layout})
        for world, layout in ((3, "columns"), (2, "replicas"), (1, "rows"))
    ]
    saved, *loads = results(jobs)
    for job, ranks in zip(jobs[1:], loads, strict=True):
        for read, needed in ranks:
            assert needed // 4 < saved[0] < needed
            assert needed <= read <= 1.01 * needed, job


def test_without_it_replicas_read_for_themselves(sim: simulator.Server) -> None:
    options = {"store": where(sim), "layout": "replicas", **STRIPE}
    url = "s3://b/never"
    jobs = [Job("save", url, 2, options=options)]
    jobs += [Job("load", url, 2, options=options | {"share": share}) for share in ("never", "auto")]
    never, auto = results(jobs)[1:]
    assert all(read >= 2 * needed for read, needed in never)
    assert all(read <= 1.01 * needed for read, needed in auto)


def save_steps(directory: Path) -> None:
    results([Job("save_steps", str(directory), 2)])


def test_all_ranks_fall_back_together(tmp_path: Path) -> None:
    save_steps(tmp_path)
    files = sorted(
        (tmp_path / "saves").glob("*-000000000002-*/*.safetensors"), key=lambda f: f.stat().st_size
    )
    data = bytearray(files[-1].read_bytes())
    data[-1] ^= 1
    files[-1].write_bytes(data)
    (ranks,) = results([Job("damaged", str(tmp_path), 3, options={"stripe_blocks": 4})])
    assert ranks == [[[1.0], [2], [1.0]]] * 3


@pytest.mark.parametrize("after", [0, 1, 4])
def test_a_rank_that_is_gone_is_named(tmp_path: Path, after: int) -> None:
    save_steps(tmp_path)
    ((first, second, third),) = results([Job("lost", str(tmp_path), 3, options={"after": after})])
    assert second == "gone"
    for text in (first, third):
        assert text.startswith("DeadlineError: ")
        # The other one too, where the machine has no time for it.
        assert re.search(r"rank (0, )?1(, 2)? of 3 said nothing", text), text


def test_ranks_that_cannot_hand_on_read_for_themselves(tmp_path: Path, sim: simulator.Server) -> None:
    options = {"store": where(sim)}
    saved, told = results(
        [
            Job("save_steps", "s3://b/alone", 2, options=options),
            Job("no_group", "s3://b/alone", 2, options=options),
        ]
    )
    assert saved == [None, None]
    for always, auto in told:
        assert always.startswith("UnavailableError: rank 1: no process group (gloo) to hand on what is read")
        assert auto == [2.0]


def test_through_dcp_some_of_the_ranks_read_for_themselves(tmp_path: Path) -> None:
    save_steps(tmp_path)
    assert results([Job("load_dcp_by_some", str(tmp_path), 3)]) == [[[2.0], [2.0], [0.0]]]


def test_through_dcp_a_rank_that_fails_fails_all(tmp_path: Path) -> None:
    save_steps(tmp_path)
    ((first, second, third),) = results([Job("mismatch_dcp", str(tmp_path), 3)])
    other = f"UnavailableError: {tmp_path}: another rank cannot load, and says why"
    assert first == second == third == [[0, other], [1, "ValueError: no place for it"], [2, other]]


def test_a_state_that_fits_on_some_ranks_only_fails_on_all(tmp_path: Path) -> None:
    save_steps(tmp_path)
    ((first, second),) = results([Job("mismatch", str(tmp_path), 2)])
    assert second.startswith("InvalidArgumentError: x: is F32[300001] here")
    assert first.startswith("InvalidArgumentError: rank 1: InvalidArgumentError: x: is F32[300001] here")
