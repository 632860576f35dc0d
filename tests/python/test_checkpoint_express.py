"""Checkpoints in a directory bucket of S3 Express, as the simulator has them: sessions that end, listings
without order of whole directories alone, multipart uploads that keep sums of sums."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import sent_bytes, where
from test_checkpoint_servers import (
    check_that_one_job_has_a_step,
    check_that_parts_come_back,
    is_state,
    state,
)

from headrace import sim as simulator
from headrace.checkpoint import Checkpointer
from headrace.checkpoint.keys import SaveId, data_key
from headrace.checkpoint.leftovers import find_leftovers

BUCKET = "hot--usw2-az1--x-s3"
PART = 5 << 20


@pytest.fixture
def place(sim: simulator.Server, buckets: Path) -> tuple[str, dict[str, Any]]:
    """URL and options."""
    (buckets / BUCKET).mkdir()
    return f"s3://{BUCKET}/run", {"memory": "64MiB", **where(sim)}


def test_what_is_saved_in_parts_comes_back(place: tuple[str, dict[str, Any]], sim: simulator.Server) -> None:
    url, options = place
    # Of the session that is in use: another is made.
    check_that_parts_come_back(url, {"part_bytes": PART, **options}, between=sim.expire_credentials)


def test_of_two_jobs_one_has_the_step(place: tuple[str, dict[str, Any]]) -> None:
    check_that_one_job_has_a_step(*place)


def test_what_unfinished_saves_have_left_goes(
    place: tuple[str, dict[str, Any]], sim: simulator.Server
) -> None:
    """Objects, and uploads that were never completed."""
    boto3 = pytest.importorskip("boto3")
    url, options = place
    with Checkpointer(url, part_bytes=PART, **options) as checkpointer:
        checkpointer.save(1, state(1, 100)).result()
    left = str(SaveId.new(1, 2))
    keys = {"aws_access_key_id": sim.access_key, "aws_secret_access_key": sim.secret_key}
    client = boto3.client("s3", endpoint_url=sim.endpoint, region_name=sim.region, **keys)
    client.put_object(Bucket=BUCKET, Key=f"run/{data_key(left, 0)}", Body=b"x")
    client.create_multipart_upload(Bucket=BUCKET, Key=f"run/{data_key(left, 1)}")
    with Checkpointer(url, **options) as checkpointer:
        checkpointer.save(3, state(3, 100)).result()
        (found,) = find_leftovers(checkpointer._far)
        assert (found.save, found.objects, found.goes) == (left, 2, False)
        checkpointer._sweep(checkpointer._far.highest_fence())
        assert find_leftovers(checkpointer._far) == []
        assert checkpointer._far.uploads() == []
        assert checkpointer.steps() == [1, 3]


def test_what_is_written_in_parts_is_read_back(
    place: tuple[str, dict[str, Any]], sim: simulator.Server
) -> None:
    """The bucket tells a sum of sums, which nothing can be compared with."""
    url, options = place
    with Checkpointer(url, part_bytes=PART, **options) as checkpointer:
        before = sent_bytes(sim)
        checkpointer.save(1, state(1)).result()
        assert 12_000_000 < sent_bytes(sim) - before < 12_100_000
        before = sent_bytes(sim)
        checkpointer.save(2, state(2, 1000)).result()
        assert sent_bytes(sim) - before < 8000


def test_hot_ones_are_brought_to_a_general_bucket(
    place: tuple[str, dict[str, Any]], cli: Any, s3: simulator.Server
) -> None:
    url, options = place
    with Checkpointer(url, **options) as checkpointer:
        for step in (1, 2):
            checkpointer.save(step, state(step, 5000)).result()
    assert cli("ckpt", "cp", url, "s3://b/run", "--step", "2").code == 0
    with Checkpointer("s3://b/run", **options) as checkpointer:
        assert checkpointer.steps() == [2]
        assert is_state(checkpointer.load(), 2, 5000)
