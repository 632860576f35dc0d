"""States: what they prove, states of version 1, copies of a dataset."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
import shutil
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import write_mds

import headrace as hr

# States that a build before version 2 wrote, and what it delivered from there on: `python
# tests/python/test_states.py` printed them.
RECORDED = Path(__file__).parent / "data" / "states_v1.json"
# Fields that a run does not go on from, and may be changed.
FREE = {"epoch_end", "global_batch"}


def _write(root: Path, count: int, first: int = 0) -> Path:
    samples = [
        {"x": struct.pack("<q", first + i), "t": f"t{first + i}".encode() * (1 + i % 7)} for i in range(count)
    ]
    return write_mds(root, {"x": ("int", 8), "t": ("str", None)}, samples, 10)


def _write_tokens(root: Path) -> Path:
    root.mkdir(parents=True)
    rng = np.random.default_rng(5)
    lengths = rng.integers(1, 300, 80)
    np.concatenate([np.arange(n, dtype=np.uint16) for n in lengths]).tofile(root / "a.bin")
    begins = np.concatenate([[0], np.cumsum(lengths)[:-1] * 2]).astype(np.int64)
    head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, len(lengths), len(lengths) + 1)
    (root / "a.idx").write_bytes(
        head
        + lengths.astype(np.int32).tobytes()
        + begins.tobytes()
        + np.arange(len(lengths) + 1, dtype=np.int64).tobytes()
    )
    return root


def _mixture(root: Path) -> hr.Mixture:
    return hr.Mixture({"a": (root / "mds", 3), "b": (root / "more", 1), "c": (root / "few", 2)})


Opener = Callable[..., hr.Loader]
OPENERS: dict[str, Callable[[Path], Any]] = {
    "headrace": lambda root: hr.Dataset(root / "mds"),
    "sequential": lambda root: hr.Dataset(root / "mds"),
    "mosaic:py1e": lambda root: hr.Dataset(root / "mds"),
    "litdata": lambda root: hr.Dataset(root / "mds"),
    "mixture": _mixture,
    "concat": lambda root: [root / "mds", root / "more"],
    "packed": lambda root: hr.pack_tokens(root / "tokens", length=64),
    "raw": lambda root: hr.Dataset(root / "raw"),
}


def make_root(root: Path) -> Path:
    _write(root / "mds", 230)
    _write(root / "more", 130, 1000)
    _write(root / "few", 17, 2000)
    _write_tokens(root / "tokens")
    (root / "raw").mkdir()
    for i in range(50):
        (root / "raw" / f"{i:03}.bin").write_bytes(bytes([i]) * (i + 1))
    return root


def open_loader(kind: str, root: Path, **arguments: Any) -> hr.Loader:
    order = {"order": kind} if kind in ("sequential", "mosaic:py1e", "litdata") else {}
    return hr.Loader(
        OPENERS[kind](root),
        **{"batch_size": 8, "rank": 0, "world_size": 1, "memory": "64MiB", "seed": 3, **order, **arguments},
    )


def rest_of(loader: hr.Loader, epochs: int = 2) -> list[list[int]]:
    """Ids of what is left of the epoch, and of another one."""
    return [
        [int(i) for i, real in zip(batch.ids, batch.mask, strict=True) if real]
        for _ in range(epochs)
        for batch in loader
    ]


def digest(ids: list[list[int]]) -> str:
    return hashlib.sha256(json.dumps(ids).encode()).hexdigest()


def record(root: Path) -> dict[str, Any]:
    """Of each kind a state in the second epoch, and a digest of what comes then."""
    make_root(root)
    out: dict[str, Any] = {}
    for kind in OPENERS:
        with open_loader(kind, root) as loader:
            for _ in loader:
                pass
            for _ in zip(range(3), loader, strict=False):
                pass
            out[kind] = {"state": loader.state_dict(), "rest": digest(rest_of(loader))}
    return out


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_root(tmp_path_factory.mktemp("states"))


def as_version_1(loader: hr.Loader, state: dict[str, Any]) -> dict[str, Any]:
    """A recorded state as it would have been over the objects here: fingerprints name versions of objects."""
    state = json.loads(json.dumps(state))
    state["fingerprint"] = loader._dataset.version_fingerprint
    if state["mixture"]:
        ours = loader.state_dict()["mixture"]["parts"].split()
        state["mixture"]["parts"] = " ".join(
            a[:6] + b[6:] for a, b in zip(ours, state["mixture"]["parts"].split(), strict=True)
        )
    return state


@pytest.mark.parametrize("kind", OPENERS)
def test_states_of_version_1_go_on_as_they_did(kind: str, root: Path) -> None:
    recorded = json.loads(RECORDED.read_text())[kind]
    with open_loader(kind, root) as loader:
        state = as_version_1(loader, recorded["state"])
        loader.load_state_dict(state)
        saved = loader.state_dict()
        assert digest(rest_of(loader)) == recorded["rest"]
        # And on from there as one of today's.
        assert saved["version"] == 2
        assert saved["order_version"] == state["order_version"]
        loader.load_state_dict(saved)
        assert digest(rest_of(loader)) == recorded["rest"]
    with open_loader(kind, root) as loader, pytest.raises(hr.InvalidArgumentError, match="fingerprint"):
        loader.load_state_dict(recorded["state"])  # Of other objects.


def _others(value: Any) -> list[Any]:
    if isinstance(value, bool) or not isinstance(value, int):
        return [None, 7, "", "x", [1], value + "0" if isinstance(value, str) else "0"]
    return [value + 1, value - 1 if value else 2, 0, 10**6, None, "1"]


def _alterations(state: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The state with one field altered or left out."""
    out = []
    for name, value in state.items():
        for other in _others(value):
            if other != value and name not in FREE:
                out.append((f"{name}={other!r}", {**state, name: other}))
        out.append((f"without {name}", {k: v for k, v in state.items() if k != name}))
        if isinstance(value, dict):
            out += [(f"{name}: {text}", {**state, name: part}) for text, part in _alterations(value)]
    return out


@pytest.mark.parametrize("kind", OPENERS)
def test_a_state_proves_every_field(kind: str, root: Path) -> None:
    with open_loader(kind, root) as loader:
        for _ in zip(range(3), loader, strict=False):
            pass
        state = loader.state_dict()
        assert len(json.dumps(state)) < 1024
        rest = rest_of(loader, 1)
        for what, altered in _alterations(state):
            try:
                loader.load_state_dict(altered)
            except hr.InvalidArgumentError:
                continue
            pytest.fail(f"{kind}: {what} was accepted")
        # Their sequence, and what others add, play no part.
        loader.load_state_dict({**dict(reversed(state.items())), "mine": 1})
        assert rest_of(loader, 1) == rest


@pytest.mark.parametrize("kind", OPENERS)
def test_a_state_goes_on_over_a_copy(kind: str, root: Path, tmp_path: Path) -> None:
    shutil.copytree(root, tmp_path / "copy", copy_function=shutil.copy)
    for path in (tmp_path / "copy").rglob("*"):
        os.utime(path, (1, 1))
    with open_loader(kind, root) as loader, open_loader(kind, tmp_path / "copy") as copy:
        for _ in zip(range(3), loader, strict=False):
            pass
        state = loader.state_dict()
        assert copy._dataset.version_fingerprint != loader._dataset.version_fingerprint
        copy.load_state_dict(state)
        assert copy.state_dict() == state
        assert rest_of(copy, 1) == rest_of(loader, 1)
        # One of version 1 names the versions of the objects.
        old = as_version_1(loader, {k: v for k, v in state.items() if k != "checksum"} | {"version": 1})
        loader.load_state_dict(old)
        with pytest.raises(hr.InvalidArgumentError, match="not over a copy"):
            copy.load_state_dict(old)


def test_another_content_is_another_dataset(root: Path, tmp_path: Path) -> None:
    with open_loader("headrace", root) as loader:
        state = loader.state_dict()
    shutil.copytree(root / "mds", tmp_path / "mds")
    index = json.loads((tmp_path / "mds/index.json").read_text())
    index["shards"][0]["raw_data"]["hashes"] = {"xxh64": "0123456789abcdef"}
    (tmp_path / "mds/index.json").write_text(json.dumps(index))
    with (
        open_loader("headrace", tmp_path) as loader,
        pytest.raises(hr.InvalidArgumentError, match="fingerprint"),
    ):
        loader.load_state_dict(state)


def test_an_object_that_changes_during_a_run_is_an_error(tmp_path: Path) -> None:
    _write(tmp_path / "mds", 230)
    with open_loader("sequential", tmp_path, prefetch=1, memory="1MiB") as loader:
        last = tmp_path / "mds/shard.00022.mds"
        content = last.read_bytes()
        last.unlink()
        last.write_bytes(content)
        os.utime(last, (1, 1))
        with pytest.raises(hr.ChangedError):
            rest_of(loader, 1)


@pytest.mark.parametrize("kind", [k for k in OPENERS if k not in ("mosaic:py1e", "litdata")])
@pytest.mark.filterwarnings("ignore:.*ranks read each block")
def test_fresh_runs_give_the_same_batches_on_any_number_of_ranks(kind: str, root: Path) -> None:
    def planned(batch: int, world: int) -> list[list[int]]:
        got: list[list[int]] = []
        for rank in range(world):
            with open_loader(kind, root, batch_size=batch // world, rank=rank, world_size=world) as loader:
                got = [
                    a + b
                    for a, b in zip(
                        got or [[]] * len(loader), (ids.tolist() for ids in loader.sample_ids(1)), strict=True
                    )
                ]
        return got

    for batch, worlds in ((12, (2, 4, 6)), (24, (3, 8)), (40, (5,)), (56, (7,))):
        alone = planned(batch, 1)
        for world in worlds:
            assert planned(batch, world) == alone, f"{world} ranks, batches of {batch}"


def test_ranks_that_share_blocks_are_told_how_much(root: Path) -> None:
    with pytest.warns(
        RuntimeWarning, match="8 ranks read each block 8 times on average, in global batches of 64"
    ):
        open_loader("headrace", root, batch_size=8, world_size=8, lanes=1).close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_loader(
            "headrace", root, batch_size=8, rank=1, world_size=8, lanes=1
        ).close()  # Rank 0 has said it.
        open_loader("headrace", root, batch_size=8, world_size=2, lanes=4).close()


def test_ranks_that_share_too_few_blocks_are_told_to_make_more(tmp_path: Path) -> None:
    hr.prepare.write(({"x": bytes(4096)} for _ in range(2048)), tmp_path / "set", columns={"x": "bytes"})
    options: Any = {"batch_size": 32, "rank": 0, "world_size": 8, "memory": "64MiB"}
    with pytest.warns(RuntimeWarning, match=r"Blocks there are \d: smaller ones \(block_bytes=\)"):
        hr.Loader(tmp_path / "set", block_bytes="4MiB", **options).close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hr.Loader(tmp_path / "set", block_bytes="64KiB", **options).close()


# Mosaic's and LitData's fill up and leave out by their own rules; Mosaic repeats samples to fill up its rows.
@pytest.mark.parametrize("kind", OPENERS)
@pytest.mark.parametrize("world", [1, 7])
@pytest.mark.filterwarnings("ignore:.*ranks read each block")
def test_a_dataset_smaller_than_a_global_batch(kind: str, world: int, root: Path) -> None:
    with open_loader(kind, root) as loader:
        size = loader._dataset.sample_count
    if kind == "mixture":
        return  # Its epoch has at least one global batch.
    for epoch_end in ("pad", "uneven", "drop"):
        got: list[int] = []
        for rank in range(world):
            with open_loader(
                kind, root, batch_size=size // world + 3, rank=rank, world_size=world, epoch_end=epoch_end
            ) as loader:
                if epoch_end == "drop" and not len(loader):
                    with pytest.warns(RuntimeWarning, match="delivers nothing"):
                        assert rest_of(loader, 1) == []
                    continue
                got += [i for batch in rest_of(loader, 1) for i in batch]
        if epoch_end != "drop":
            assert set(got) == set(range(size))
            if kind not in ("mosaic:py1e", "litdata"):
                assert len(got) == size


@pytest.mark.parametrize("shuffle", [True, False])
def test_mixtures_of_small_sources_are_even(shuffle: bool, root: Path) -> None:
    mixture = hr.Mixture({"few": (root / "few", 1), "more": (root / "more", 3)})
    with hr.Loader(mixture, batch_size=64, rank=0, world_size=1, memory="64MiB", shuffle=shuffle) as loader:
        counts = np.zeros(147, np.int64)
        for _ in range(40):
            for batch in loader:
                np.add.at(counts, batch.ids[batch.mask], 1)
                assert np.ptp(counts[:17]) <= 1
                assert np.ptp(counts[17:]) <= 1
        assert counts[0] > 60


ROUNDS = 2000 if os.environ.get("HEADRACE_LONG_TESTS") == "1" else 8
SEED = int(os.environ.get("HEADRACE_TEST_SEED", "20261122"))


def _write_random(root: Path, rng: random.Random) -> int:
    """A small dataset of some format; returns its samples."""
    kind, count = rng.choice(("mds", "jsonl", "raw", "gz")), rng.randint(1, rng.choice((12, 60, 400)))
    per_shard = rng.randint(1, count)
    if kind == "mds":
        write_mds(root, {"x": ("int", 8)}, [{"x": struct.pack("<q", i)} for i in range(count)], per_shard)
        return count
    root.mkdir()
    for shard, start in enumerate(range(0, count, per_shard)):
        lines = [f'{{"x": {i}}}\n'.encode() for i in range(start, min(start + per_shard, count))]
        if kind == "jsonl":
            (root / f"{shard:04}.jsonl").write_bytes(b"".join(lines))
        elif kind == "gz":
            (root / f"{shard:04}.jsonl.gz").write_bytes(gzip.compress(b"".join(lines)))
        for i, line in enumerate(lines if kind == "raw" else ()):
            (root / f"{start + i:04}.bin").write_bytes(line)
    return count


@pytest.mark.parametrize("round", range(ROUNDS))
@pytest.mark.filterwarnings("ignore:.*ranks read each block")
def test_random_runs_deliver_each_sample_once(round: int, tmp_path: Path) -> None:
    """Worlds of 1 to 8 ranks, any batch sizes and stops; a fresh run on any world has the batches of one
    rank."""
    rng = random.Random(SEED + round)
    count = _write_random(tmp_path / "data", rng)
    order = rng.choice(("headrace", "headrace", "sequential"))
    common: dict[str, Any] = {
        "order": order,
        "seed": rng.randint(0, 9),
        "memory": "32MiB",
        "epoch_end": rng.choice(("pad", "uneven")),
    }
    state: dict[str, Any] | None = None
    delivered: list[int] = []
    while state is None or state["epoch"] == 0:
        world, batch, stop = rng.randint(1, 8), rng.randint(1, rng.choice((3, 40))), rng.randint(1, 9)
        expected: list[list[int]] = []
        if state is None:
            with hr.Loader(
                tmp_path / "data", batch_size=batch * world, rank=0, world_size=1, **common
            ) as loader:
                expected = [ids.tolist() for ids in loader.sample_ids(0)]
        got: list[list[int]] = [[] for _ in range(stop)]
        states = []
        for rank in range(world):
            with hr.Loader(
                tmp_path / "data", batch_size=batch, rank=rank, world_size=world, **common
            ) as loader:
                if state is not None:
                    loader.load_state_dict(state)
                for ids, received in zip(got, loader, strict=False):
                    ids += received.ids.tolist()
                    delivered += received.ids[received.mask].tolist()
                states.append(loader.state_dict())
        assert not expected or [ids for ids in got if ids] == expected[:stop]
        # A rank without a share of the last batch may not know yet that it is over.
        state = max(states, key=lambda s: (s["epoch"], s["t"]))
    assert sorted(delivered) == list(range(count))


def test_litdata_repeats_less_than_a_global_batch_in_another_world(root: Path) -> None:
    rng = random.Random(SEED)
    for _ in range(10):
        options = {"num_workers": rng.randint(1, 3), "shuffle": rng.choice(("none", "full"))}
        state, counts, repeats = None, np.zeros(230, np.int64), 0
        for part in range(2):
            world, batch = rng.randint(1, 4), rng.randint(1, 6)
            for rank in range(world):
                with open_loader(
                    "litdata",
                    root,
                    batch_size=batch,
                    rank=rank,
                    world_size=world,
                    order_options=options,
                    epoch_end="uneven",
                ) as loader:
                    if part == 1:
                        loader.load_state_dict(state or {})
                    for _, received in zip(range(1000 if part else 7), loader, strict=False):
                        np.add.at(counts, received.ids[received.mask], 1)
                    state = loader.state_dict() if part == 0 else state
            repeats = int(counts.sum()) - 230
            assert counts.max() <= 2
        assert counts.min() == 1
        assert repeats < world * batch


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        print(json.dumps(record(Path(directory)), indent=1))
