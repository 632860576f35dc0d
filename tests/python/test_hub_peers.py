"""The fake hub against software that is not ours: the hub's own Python packages read from it what we read."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_hub import TOKEN, FakeHub, running

import headrace as hr

pytest.importorskip("huggingface_hub")
pytest.importorskip("datasets")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

LARGE = os.urandom(300_000)
FILES = {
    "README.md": b"# hello",
    "data/part-0.bin": LARGE,
    "data/deep/er/x y%20z.txt": b"deep",
    "cached.txt": b"by another path of the hub",
}
ROWS, SAMPLES = range(3000), range(120)


def parquet(rows: range) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"n": list(rows), "text": [str(n * n) for n in rows]}), out, row_group_size=250)
    return out.getvalue()


def tar(samples: range) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for n in samples:
            content = json.dumps({"n": n}).encode()
            entry = tarfile.TarInfo(f"{n:06}.json")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


@pytest.fixture(scope="module")
def hub() -> Iterator[FakeHub]:
    with running() as hub:
        hub.add("datasets/org/name").commit(FILES)
        hub.add("datasets/org/secret", private=True).commit(FILES)
        hub.add("datasets/org/gated", gated=True).commit(FILES)
        hub.add("datasets/org/rows").commit(
            {
                "README.md": b"# rows",
                "data/train-0.parquet": parquet(ROWS[:2000]),
                "data/train-1.parquet": parquet(ROWS[2000:]),
            }
        )
        hub.add("datasets/org/tars").commit({"t-0.tar": tar(SAMPLES[:70]), "t-1.tar": tar(SAMPLES[70:])})
        yield hub


@pytest.fixture(autouse=True)
def _environment(hub: FakeHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def peer(hub: FakeHub) -> Any:
    asked = {
        "repository": "org/name",
        "revision": hub.repositories["datasets/org/name"].branches["main"],
        "download": sorted(FILES),
        "stream": {
            "hf://datasets/org/rows/data/train-*.parquet": "parquet",
            "hf://datasets/org/tars@main/t-*.tar": "webdataset",
        },
        "dataset": "org/rows",
    }
    program = Path(__file__).with_name("hub_peer.py")
    environment = os.environ | {"HF_TOKEN": TOKEN, "HF_HUB_DISABLE_TELEMETRY": "1", "NO_PROXY": "*"}
    done = subprocess.run(
        [sys.executable, program, json.dumps(asked)], capture_output=True, timeout=200, env=environment
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout.decode().splitlines()[-1])


def test_the_hubs_own_packages_find_what_we_find(hub: FakeHub, peer: Any) -> None:
    commit = hub.repositories["datasets/org/name"].branches["main"]
    with hr.Store(f"hf://datasets/org/name@{commit}") as store:
        ours = {info.key: [info.size, info.etag.strip('"')] for info in store.list()}
        digests = {key: hashlib.sha256(bytes(store.get(key))).hexdigest() for key in ours}
    assert peer["listed"] == ours
    assert peer["contents"] == digests
    assert peer["downloaded"] == digests
    assert peer["refusals"] == {
        "revision": "RevisionNotFoundError",
        "file": "EntryNotFoundError",
        "repository": "RepositoryNotFoundError",
        "gated": "GatedRepoError",
    }
    for url, numbers in peer["streamed"].items():
        with hr.Loader(url, batch_size=100, epoch_end="uneven") as loader:
            assert sorted(numbers_of(loader)) == sorted(numbers)
    assert sorted(peer["split"]) == list(ROWS)
    with hr.Loader("hf://datasets/org/rows", split="train", batch_size=100, epoch_end="uneven") as loader:
        assert sorted(numbers_of(loader)) == list(ROWS)
    assert sorted(peer["streamed"]["hf://datasets/org/tars@main/t-*.tar"]) == list(SAMPLES)
    # Neither of us has shown the token to the storage.
    assert {seen.authorization for seen in hub.seen if seen.server == "storage"} == {None}


def numbers_of(batches: Any) -> list[int]:
    found: list[int] = []
    for batch in batches:
        if "n" in batch:
            found += batch["n"].tolist()
        else:
            found += [json.loads(bytes(value))["n"] for value in batch["json"]]
    return found


def test_the_file_system_is_that_of_the_hub(hub: FakeHub) -> None:
    """The same paths, sizes and bytes as those of ``HfFileSystem``; pandas reads through ours."""
    from huggingface_hub import HfFileSystem

    theirs, ours = HfFileSystem(endpoint=hub.endpoint, token=TOKEN), hr.fs("hf://datasets/org/rows")
    root = "datasets/org/name@main"
    assert ours.find(root) == sorted(theirs.find(root))
    for folder in (root, f"{root}/data"):
        assert sorted(ours.ls(folder, detail=False)) == sorted(theirs.ls(folder, detail=False))
    path = f"{root}/data/part-0.bin"
    assert ours.info(path)["size"] == theirs.info(path)["size"] == len(LARGE)
    assert ours.cat_file(path, 100_000, 100_100) == theirs.cat_file(path, 100_000, 100_100)
    assert ours.glob("hf://datasets/org/rows/data/*.parquet") == theirs.glob(
        "datasets/org/rows/data/*.parquet"
    )
    table = pq.read_table("datasets/org/rows/data/train-1.parquet", filesystem=ours)
    assert table["n"].to_pylist() == list(ROWS[2000:])
    with pytest.raises(hr.errors.UnsupportedError, match="can only be read"):
        ours.pipe_file(f"{root}/x", b"1")
    with pytest.raises(hr.errors.InvalidArgumentError, match="no repository"):
        ours.ls("datasets")


@pytest.mark.parametrize(
    ("name", "folder", "expected"), [("rows", "/data", ROWS), ("tars", "", SAMPLES)], ids=["parquet", "tar"]
)
def test_a_loader_goes_on_at_the_commit_that_it_began_with(
    hub: FakeHub, name: str, folder: str, expected: range
) -> None:
    repository = hub.repositories[f"datasets/org/{name}"]
    commit = repository.branches["main"]
    url = f"hf://datasets/org/{name}@{commit}{folder}"
    options = {"batch_size": 16, "shuffle": True, "seed": 7, "epoch_end": "uneven"}
    found: list[int] = []
    with hr.Loader(url, **options) as loader:
        for batch in loader:
            found += numbers_of([batch])
            if len(found) >= len(expected) // 2:
                state = loader.state_dict()
                break
    # Whatever is pushed: the commit stays what it is.
    repository.commit({f"{folder.strip('/')}/x.jsonl".strip("/"): b'{"n": 0}\n'})
    try:
        with hr.Loader(url, **options) as loader:
            loader.load_state_dict(state)
            found += numbers_of(loader)
        assert sorted(found) == list(expected)
        assert found != list(expected)
        with (
            hr.Loader(f"hf://datasets/org/{name}{folder}", **options) as loader,
            pytest.raises(hr.HeadraceError, match="dataset"),
        ):
            loader.load_state_dict(state)
    finally:
        repository.branches["main"] = commit
