"""Checkpoints of several ranks (gloo): any mesh saves, any other loads; a rank that fails fails the save."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from framework_ranks import LONG, Job, run_without_errors

pytest.importorskip("torch")

pytestmark = pytest.mark.timeout(3600 if LONG else 900)

PROGRAM = Path(__file__).with_name("checkpoint_ways.py")
WORLDS = [(1, 4), (4, 1), (4, 2), (2, 3), (3, 8)]
DIFFERENT = {
    "array": "x: ranks 0 and 1 have different values",
    "number": "is 0 on a rank before and 1 on rank 1",
    "shape": "x: rank 1 has F32[4] of torch, rank 0 F32[3] of torch",
    "step": "ranks save different steps: [0, 1]",
    "kind": "rank 1: its state cannot be saved: state['x'] is a builtins.object",
}


def results(jobs: list[Job]) -> list[list[Any]]:
    return run_without_errors(PROGRAM, jobs, failing="different")


def test_any_mesh_loads_what_any_other_has_saved(tmp_path: Path) -> None:
    jobs = []
    for number, (saved, loaded) in enumerate(WORLDS):
        compression = "zstd" if number % 3 < 2 else None
        options = {"seed": 10 * number, "differential": number % 2 == 1, "compression": compression}
        place = str(tmp_path / f"{saved}-{loaded}")
        jobs += [Job("save", place, saved, options=options), Job("load", place, loaded, options=options)]
    assert all(result == 2 for ranks in results(jobs)[1::2] for result in ranks)


@pytest.mark.parametrize("way", ["fsdp", "ddp"])
def test_training_goes_on_on_other_ranks(tmp_path: Path, way: str) -> None:
    """Four steps on 4 ranks, two more on 2, two on 1, as eight on 4."""
    runs = [(4, 4, "a"), (2, 6, "a"), (1, 8, "a"), (4, 8, "b")]
    out = results(
        [
            Job("train", str(tmp_path / name), world, options={"steps": steps, "way": way})
            for world, steps, name in runs
        ]
    )
    assert [result["steps"] for result in out[0]] == [[3, 4]] * 4
    for result in (*out[2], *out[3]):
        assert result["steps"] == [7, 8]
        assert result["weights"] == pytest.approx(out[3][0]["weights"], rel=1e-5)


@pytest.mark.parametrize("saved", ["fsdp", "ddp"])
def test_what_four_ranks_have_trained_loads_on_any_number(tmp_path: Path, saved: str) -> None:
    """Weights and moments, bit by bit, and by the other way as well."""

    def job(world: int, way: str) -> Job:
        return Job("train", str(tmp_path), world, options={"steps": 2, "way": way})

    loads = [(1, saved), (2, saved), (3, saved), (8, saved), (2, "ddp" if saved == "fsdp" else "fsdp")]
    trained, *loaded = results([job(4, saved), *(job(world, way) for world, way in loads)])
    expected = trained[0]["digests"]
    assert len(expected) > 20
    for ranks in (trained, *loaded):
        for result in ranks:
            assert result["steps"] == [1, 2], "nothing was trained anew"
            assert result["digests"] == expected


@pytest.mark.parametrize("way", ["fsdp", "ddp"])
def test_training_goes_on_bit_by_bit(tmp_path: Path, way: str) -> None:
    """In torch's deterministic mode, on as many ranks."""
    stopped, on, whole = (
        Job("train", str(tmp_path / name), 2, options={"steps": steps, "way": way})
        for name, steps in (("a", 3), ("a", 6), ("b", 6))
    )
    before, after, expected = ([rank["digests"] for rank in ranks] for ranks in results([stopped, on, whole]))
    assert after == expected
    assert before != expected


def test_what_only_one_rank_would_save_is_an_error(tmp_path: Path) -> None:
    jobs = [Job("different", str(tmp_path / name), 2, options={"name": name}) for name in DIFFERENT]
    for ranks, text in zip(results(jobs), DIFFERENT.values(), strict=True):
        for result in ranks:
            assert "InvalidArgumentError" in result["error"]
            assert text in result["error"]


def test_ranks_may_have_other_keys(tmp_path: Path) -> None:
    for result in results([Job("different", str(tmp_path), 2, options={"name": "stage"})])[0]:
        assert result == {"stage0": [0, 0, 0], "stage1": [1, 1, 1]}


def test_a_rank_that_is_gone_fails_the_save_and_is_named(tmp_path: Path) -> None:
    ((first, second),) = results([Job("lost", str(tmp_path), 2)])
    assert second == "gone"
    kind, text, steps = first
    assert (kind, steps) == ("DeadlineError", [1])
    assert "rank 1 of 2 said nothing" in text


def test_all_ranks_fall_back_together(tmp_path: Path) -> None:
    results([Job("save_numbers", str(tmp_path), 3)])
    (file,) = (tmp_path / "saves").glob("*-000000000002-*/00001.safetensors")
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    for result in results([Job("damaged", str(tmp_path), 3)])[0]:
        assert result == [5000.0, [2], 1]


def test_a_reference_that_differs_on_a_rank_differs_on_all(tmp_path: Path) -> None:
    for rank, told in enumerate(results([Job("reference", str(tmp_path), 2)])[0]):
        same, other, misnamed = told
        assert same == "alike"
        assert other.startswith("ChangedError: ")
        assert "on rank 1 loss is 3, and was 2 when it was saved" in other
        assert misnamed.startswith("InvalidArgumentError: " if rank == 1 else "ChangedError: ")
        assert "its reference has loss, and other were measured" in misnamed
