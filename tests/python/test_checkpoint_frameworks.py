"""DCP over our storage from Lightning and Accelerate: a run that is resumed on other ranks ends as one that
was never stopped."""

from __future__ import annotations

from pathlib import Path

import pytest
from framework_ranks import LONG, Job, run_jobs

pytest.importorskip("lightning")
pytest.importorskip("accelerate")

pytestmark = pytest.mark.timeout(3600 if LONG else 900)

PROGRAM = Path(__file__).with_name("checkpoint_framework_ways.py")


@pytest.mark.parametrize(
    "way", ["lightning_model_parallel", "lightning_ddp", "accelerate_fsdp", "accelerate_ddp"]
)
def test_it_goes_on_on_other_ranks(tmp_path: Path, way: str) -> None:
    runs = [(2, 2, "stopped"), (3, 4, "stopped"), (2, 4, "whole")]
    jobs = [Job(way, str(tmp_path / name), world, options={"steps": steps}) for world, steps, name in runs]
    results = run_jobs(PROGRAM, jobs)
    for ranks in results:
        for result in ranks:
            assert "error" not in result, result["error"]
    first, went_on, whole = (ranks[0] for ranks in results)
    assert went_on == pytest.approx(whole, rel=1e-5)
    assert first != pytest.approx(whole, rel=1e-5)
    assert all(ranks[0].keys() == rank.keys() for ranks in results for rank in ranks)
