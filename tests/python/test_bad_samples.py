"""Bad samples in the feed: replaced or raised, listed or found, of really broken data."""

from __future__ import annotations

import io
import json
import os
import struct
import tarfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import write_mds, write_numbers
from test_tfrecord import one_record

import headrace as hr
from headrace.loader import quarantine
from headrace.verification import checks

COUNT = 240
OPTIONS: dict[str, Any] = {"memory": "16MiB", "block_bytes": "64KiB", "seed": 5}


@pytest.fixture(autouse=True)
def _no_stray_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def damage(path: Path, change: Callable[[bytearray], None]) -> None:
    """Changes bytes as a failing disk does: size and times stay."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def turn_bit(data: bytearray, marker: bytes) -> None:
    data[data.index(marker)] ^= 1


def write_index(root: Path) -> None:
    with hr.Dataset(root, block_bytes="64KiB") as dataset:
        dataset.write_index()


def make_tfrecord(root: Path) -> set[int]:
    root.mkdir()
    for shard in range(2):
        payloads = [f"record {shard * 120 + i:03d}.".encode() * 9 for i in range(120)]
        (root / f"part-{shard}.tfrecord").write_bytes(b"".join(map(one_record, payloads)))
    write_index(root)
    for number in (7, 8, 200):
        damage(
            root / f"part-{number // 120}.tfrecord",
            lambda data, n=number: turn_bit(data, f"record {n:03d}".encode()),
        )
    return {7, 8, 200}


def make_tar(root: Path) -> set[int]:
    root.mkdir()
    for shard in range(2):
        with tarfile.open(root / f"{shard}.tar", "w") as tar:
            for i in range(shard * 120, shard * 120 + 120):
                for name in ("cls", "txt"):
                    info = tarfile.TarInfo(f"{i:04d}.{name}")
                    info.size = 4
                    tar.addfile(info, io.BytesIO(f"{i:04d}".encode()))
    write_index(root)
    damage(root / "0.tar", lambda data: turn_bit(data, b"0031.txt"))
    return {31}


def make_mds(root: Path) -> set[int]:
    samples = [{"x": struct.pack("<q", i), "t": f"text {i:04d}".encode()} for i in range(COUNT)]
    write_mds(root, {"x": ("int", 8), "t": ("str", None)}, samples, per_shard=60)

    def break_size(data: bytearray) -> None:
        at = data.index(b"text 0065") - 4
        data[at : at + 4] = b"\xff\xff\xff\x7f"

    write_index(root)
    damage(root / "shard.00001.mds", break_size)
    return {65}


def make_hashed_zstd(root: Path) -> set[int]:
    """A turned bit in a compressed shard with hashes: all samples of the shard are bad."""
    from headrace.compat.streaming import MDSWriter

    with MDSWriter(
        out=str(root),
        columns={"id": "int", "text": "str"},
        compression="zstd",
        hashes=["xxh64"],
        size_limit=1 << 11,
    ) as writer:
        for i in range(COUNT):
            writer.write({"id": i, "text": f"row {i} " * 3})
    write_index(root)
    with hr.Dataset(root) as dataset:
        shard = dataset.shards[2]
    damage(root / shard.key, lambda data: data.__setitem__(len(data) // 2, data[len(data) // 2] ^ 4))
    return set(range(shard.first_sample, shard.first_sample + shard.sample_count))


MAKERS = {"tfrecord": make_tfrecord, "tar": make_tar, "mds": make_mds, "mds-zstd-hash": make_hashed_zstd}


@pytest.fixture(params=MAKERS)
def broken(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, set[int]]:
    root = tmp_path / "set"
    return root, MAKERS[request.param](root)


def global_batches(
    root: Path, world_size: int, batch_size: int, **options: Any
) -> tuple[list[list[int]], dict[int, int]]:
    """Ids of each global batch, and the id that stands in for each bad one."""
    loaders = [
        hr.Loader(root, batch_size=batch_size, rank=r, world_size=world_size, **{**OPTIONS, **options})
        for r in range(world_size)
    ]
    batches: list[list[int]] = []
    replaced: dict[int, int] = {}
    try:
        for parts in zip(*loaders, strict=True):
            batches.append([int(i) for part in parts for i in part.ids])
            for part in parts:
                replaced |= {planned: int(part.ids[row]) for row, planned in part.replaced.items()}
    finally:
        for loader in loaders:
            loader.close()
    return batches, replaced


def test_raises_by_default(broken: tuple[Path, set[int]]) -> None:
    with pytest.raises(hr.CorruptError):
        global_batches(broken[0], 1, 12)


def test_bad_samples_are_replaced_by_the_same_ones_everywhere(broken: tuple[Path, set[int]]) -> None:
    root, bad = broken
    batches, replaced = global_batches(root, 1, 12, on_bad_sample="replace")
    assert replaced.keys() == bad
    assert not bad & set(replaced.values())
    assert sorted(i for batch in batches for i in batch) == sorted(
        [*(set(range(COUNT)) - bad), *replaced.values()]
    )
    for world_size, options in ((3, {}), (2, {"memory": "2MiB"}), (1, {"lanes": 4, "workers": 1})):
        assert (
            global_batches(root, world_size, 12 // world_size, on_bad_sample="replace", **options)[1]
            == replaced
        )


def test_a_list_of_verify_replaces_what_reading_would_find(
    broken: tuple[Path, set[int]], tmp_path: Path
) -> None:
    root, bad = broken
    report = hr.verify(root, use_index=True)
    listed = tmp_path / "bad.jsonl"
    listed.write_text("".join(json.dumps(problem._asdict()) + "\n" for problem in report.problems))
    found = global_batches(root, 1, 12, on_bad_sample="replace")
    by_list = global_batches(root, 1, 12, quarantine=listed)
    assert bad == by_list[1].keys()
    assert by_list == found


def test_the_values_are_those_of_the_ids(tmp_path: Path) -> None:
    bad = make_mds(tmp_path / "set")
    with hr.Loader(tmp_path / "set", batch_size=7, on_bad_sample="replace", **OPTIONS) as loader:
        planned = list(loader.sample_ids())
        for ids, batch in zip(planned, loader, strict=True):
            assert batch["x"].tolist() == batch.ids.tolist()
            assert [batch.replaced.get(row, i) for row, i in enumerate(batch.ids.tolist())] == ids.tolist()
        stats = loader.stats()
        assert stats["loader.replaced_samples"] == stats["loader.bad_samples"] == 1
        assert [(b.position, b.samples) for b in loader.bad_samples] == [(65, 1)] == [(i, 1) for i in bad]
        assert "65" in loader.bad_samples[0].message


def test_warns_once(tmp_path: Path) -> None:
    make_tfrecord(tmp_path / "set")
    with (
        hr.Loader(tmp_path / "set", batch_size=4, on_bad_sample="replace", **OPTIONS) as loader,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        for _ in range(2):
            for _ in loader:
                pass
    assert len(caught) == 1
    assert "checksum" in str(caught[0].message)
    assert caught[0].filename == __file__


def test_what_the_store_does_is_no_bad_sample(tmp_path: Path) -> None:
    root = write_numbers(tmp_path / "set", COUNT, per_shard=60)
    with hr.Loader(root, batch_size=4, on_bad_sample="replace", **OPTIONS) as loader:
        os.truncate(root / "shard.00002.mds", 100)
        with pytest.raises(hr.HeadraceError) as caught:
            list(loader)
    assert caught.value.code in ("changed", "corrupt")
    assert caught.value.code == "changed" or "asked for" in str(caught.value)


def test_positions_may_be_listed(tmp_path: Path) -> None:
    root = write_numbers(tmp_path / "set", COUNT, per_shard=60)
    for given in ([3, 100], np.array([3, 100]), (100, 3, 3)):
        batches, replaced = global_batches(root, 1, 12, quarantine=given)
        assert replaced.keys() == {3, 100}
        assert [i for batch in batches for i in batch].count(replaced[3]) == 2


@pytest.mark.parametrize("given", [[COUNT], [-1], [1.5], [True], "no-such-file.jsonl", {"web": [1]}])
def test_lists_that_make_no_sense_are_refused(tmp_path: Path, given: Any) -> None:
    root = write_numbers(tmp_path / "set", COUNT, per_shard=60)
    with pytest.raises((hr.InvalidArgumentError, hr.NotFoundError)):
        hr.Loader(root, batch_size=4, quarantine=given, **OPTIONS)


def test_a_list_that_leaves_nothing_names_its_largest_rows(tmp_path: Path) -> None:
    root = write_numbers(tmp_path / "set", 60, per_shard=60)
    rows = [{"key": "shard.00000.mds", "position": position, "samples": 1} for position in range(4)]
    listed = tmp_path / "bad.jsonl"
    for whole, named in (
        ({"key": "shard.00000.mds", "position": -1}, "all of shard.00000.mds"),
        ({"key": "shard.00000.mds", "position": 0, "samples": 60}, r"samples 0 to 59 \(shard.00000.mds\)"),
    ):
        listed.write_text("".join(json.dumps(row) + "\n" for row in [*rows, whole]))
        said = rf"every sample of .*set is in it: {named}; sample 0 \(shard.00000.mds\); .*; and 2 more$"
        with pytest.raises(hr.InvalidArgumentError, match=said):
            hr.Loader(root, batch_size=4, quarantine=listed, **OPTIONS)
    several = {0: range(60), 1: listed}
    with pytest.raises(hr.InvalidArgumentError, match=r"every sample of .* is in it: samples 0 to 59"):
        hr.Loader([root, root], batch_size=4, quarantine=several, **OPTIONS)


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "3",
        "{}",
        '{"position": "3"}',
        '{"position": true}',
        '{"key": 1, "position": 3}',
        '{"position": 3, "code": []}',
        '{"position": 3, "samples": -1}',
        '{"position": -2}',
    ],
)
def test_lines_that_are_no_rows_are_named(line: str) -> None:
    with pytest.raises(hr.InvalidArgumentError, match="line 2 of bad"):
        quarantine.parse_quarantine('{"position": 3}\n' + line, "bad")


def problem(key: str, position: int, code: str = "corrupt") -> checks.Problem:
    return checks.Problem(key, position, code, "why", 1 if position >= 0 else 0)


def test_failures_of_the_store_are_not_listed() -> None:
    failed = [
        problem("a.tar", 1, code)
        for code in ("denied", "unavailable", "throttled", "deadline", "unsupported", "internal")
    ]
    in_data = [problem("a.tar", 2), problem("b.tar", -1, "changed"), problem("c.tar", -1, "not_found")]
    text, left_out = quarantine.format_quarantine([*failed, *in_data])
    assert left_out == len(failed)
    assert quarantine.parse_quarantine(text, "list") == [("a.tar", 2, 1), ("b.tar", -1, 0), ("c.tar", -1, 0)]
    older = "".join(json.dumps(row._asdict()) + "\n" for row in failed)
    assert quarantine.parse_quarantine(older, "list") == []


def test_a_problem_of_the_whole_dataset_is_not_listed() -> None:
    assert quarantine.format_quarantine([problem("", -1), problem("", 5)])[1] == 1


def test_any_key_can_be_listed() -> None:
    key = "a\u2028b\u0085c\x0b\nd.tar"
    text, _ = quarantine.format_quarantine([problem(key, 3)])
    assert quarantine.parse_quarantine(text, "list") == [(key, 3, 1)]
    older = json.dumps({"key": "a\u2028b\u0085c", "position": 3}, ensure_ascii=False)
    assert quarantine.parse_quarantine(older, "list") == [("a\u2028b\u0085c", 3, 1)]


def test_a_list_of_another_dataset_is_refused(tmp_path: Path) -> None:
    root = write_numbers(tmp_path / "set", COUNT, per_shard=60)
    listed = tmp_path / "bad.jsonl"
    for row in (
        {"key": "other.tar", "position": 3},
        {"key": "shard.00000.mds", "position": 70},
        {"key": "", "position": -1},
    ):
        listed.write_text(json.dumps(row))
        with pytest.raises(hr.InvalidArgumentError, match="another dataset"):
            hr.Loader(root, batch_size=4, quarantine=listed, **OPTIONS)
    listed.write_text(
        '{"key": "shard.00001.mds", "position": -1, "code": "corrupt"}\n{"key": "index.hri", "position": '
        "-1}\n"
    )
    assert global_batches(root, 1, 12, quarantine=listed)[1].keys() == set(range(60, 120))


def test_the_list_is_part_of_the_state(tmp_path: Path) -> None:
    root = write_numbers(tmp_path / "set", COUNT, per_shard=60)

    def opened(**options: Any) -> hr.Loader:
        return hr.Loader(root, batch_size=12, **OPTIONS, **options)

    with opened() as plain, opened(quarantine=[3, 100]) as listed, opened(quarantine=[4]) as other:
        next(iter(plain))
        state = plain.state_dict()
        assert "quarantine" not in state
        listed.load_state_dict(state)
        assert [b.index for b in listed] == list(range(1, 20))
        later = listed.state_dict()
        assert len(later["quarantine"]) == 16
        for loader in (plain, other):
            with pytest.raises(hr.InvalidArgumentError, match="quarantine"):
                loader.load_state_dict(later)
            loader.load_state_dict({**later, "quarantine": None})
            assert loader.epoch == 1


def test_stand_ins_of_a_mixture_come_from_their_source(tmp_path: Path) -> None:
    for name, first in (("a", 0), ("b", 1000)):
        samples = [{"x": struct.pack("<q", first + i)} for i in range(100)]
        write_mds(tmp_path / name, {"x": ("int", 8)}, samples, per_shard=20)
    mixture = hr.Mixture({"a": (tmp_path / "a", 0.5), "b": (tmp_path / "b", 0.5)}, index_cache="")
    with hr.Loader(
        mixture, batch_size=10, quarantine={"b": range(20, 60), "a": [5]}, memory="16MiB", seed=3
    ) as loader:
        replaced: dict[int, int] = {}
        for batch in loader:
            assert (batch["x"] == np.where(batch.ids < 100, batch.ids, batch.ids + 900)).all()
            replaced |= {planned: int(batch.ids[row]) for row, planned in batch.replaced.items()}
    assert replaced.keys() == {5, *range(120, 160)}
    assert all((planned < 100) == (got < 100) for planned, got in replaced.items())
    with pytest.raises(hr.InvalidArgumentError, match="no source"):
        hr.Loader(mixture, batch_size=10, quarantine={"c": [1]}, memory="16MiB")
    mixture.close()


def test_lists_of_several_datasets_go_by_index(tmp_path: Path) -> None:
    roots = [write_numbers(tmp_path / name, 60, per_shard=20) for name in "ab"]
    with hr.Loader(roots, batch_size=10, quarantine={1: [2]}, memory="16MiB", index_cache="") as loader:
        assert {planned for batch in loader for planned in batch.replaced.values()} == {62}


@pytest.mark.parametrize("order", ["mosaic:py1e", "litdata"])
def test_listed_orders_replace_too(tmp_path: Path, order: str) -> None:
    make_mds(tmp_path / "set")
    with hr.Loader(
        tmp_path / "set", batch_size=12, order=order, on_bad_sample="replace", **OPTIONS
    ) as loader:
        found = {planned for batch in loader for planned in batch.replaced.values()}
    assert found == {65}


def test_torch_batches_say_it_too(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    import headrace.torch

    make_mds(tmp_path / "set")
    with headrace.torch.Loader(tmp_path / "set", batch_size=12, on_bad_sample="replace", **OPTIONS) as loader:
        found = [
            (planned, int(batch.ids[row])) for batch in loader for row, planned in batch.replaced.items()
        ]
    assert [planned for planned, _ in found] == [65]
    assert found[0][1] != 65


def test_unknown_modes_are_refused(tmp_path: Path) -> None:
    root = write_numbers(tmp_path / "set", COUNT)
    with pytest.raises(hr.InvalidArgumentError, match="on_bad_sample"):
        hr.Loader(root, batch_size=4, on_bad_sample="skip", **OPTIONS)
