"""A whole training epoch, packing and the store's Python surface against a real S3 server (versitygw; see
tests/with_servers)."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import numpy as np
import pytest

import headrace as hr

ENDPOINT = os.environ.get("HEADRACE_TEST_S3_ENDPOINT", "")
pytestmark = pytest.mark.skipif(not ENDPOINT, reason="run under tests/with_servers")


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> str:
    """URL of an empty prefix on the real server; credentials in the environment, as a user would have
    them."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", ENDPOINT)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", os.environ["HEADRACE_TEST_S3_ACCESS_KEY"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", os.environ["HEADRACE_TEST_S3_SECRET_KEY"])
    return f"s3://{os.environ['HEADRACE_TEST_S3_BUCKET']}/{uuid.uuid4().hex}"


def test_epoch_of_a_dataset_written_by_mosaic_comes_exactly_once(root: str, tmp_path: Path) -> None:
    streaming = pytest.importorskip("streaming")
    rows = np.random.default_rng(5).integers(0, 60_000, (5_000, 128), dtype=np.uint16)
    with streaming.MDSWriter(
        out=str(tmp_path / "ds"), columns={"tokens": "ndarray:uint16:128", "n": "int"}, size_limit=1 << 17
    ) as writer:
        for n, row in enumerate(rows):
            writer.write({"tokens": row, "n": n})
    with hr.Store(root) as store:
        for path in sorted((tmp_path / "ds").iterdir()):
            store.put(path.name, path)
    seen: list[int] = []
    for rank in range(3):
        with hr.Loader(
            root, batch_size=17, rank=rank, world_size=3, shuffle=True, seed=2, memory="64MiB"
        ) as loader:
            for batch in loader:
                real = np.asarray(batch.mask, dtype=bool)
                ids = np.asarray(batch.ids)[real]
                assert np.array_equal(np.asarray(batch["n"])[real], ids)
                assert np.array_equal(batch["tokens"][real], rows[ids])
                seen += ids.tolist()
    assert sorted(seen) == list(range(5_000))


def test_objects_with_odd_names_round_trip(root: str) -> None:
    names = ["plain", "with space", "plus+percent%41", "ünïcode/日本", "a=b&c?d#e", "deep/er/path"]
    with hr.Store(root) as store:
        for name in names:
            store.put(name, name.encode() * 100)
        assert sorted(o.key for o in store.list()) == sorted(names)
        for name in names:
            assert bytes(store.get(name)) == name.encode() * 100
        store.delete(names[0])
        with pytest.raises(hr.NotFoundError, match="plain"):
            store.get(names[0])
