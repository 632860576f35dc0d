"""A folder in which a pack was killed is no dataset: nothing but its plan says that shards are missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import prepare

FINISHED = ".hrpack.done.json"


@pytest.fixture(params=["mds", "litdata", "webdataset", "tfrecord", "parquet"])
def killed(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """What a pack leaves that was killed before its last shard; and the options of that pack."""
    if request.param == "parquet":
        pytest.importorskip("pyarrow")
    (tmp_path / "files").mkdir()
    for number in range(60):
        (tmp_path / "files" / f"{number:02}.txt").write_text(str(number) * 100)
    options = {"format": request.param, "shard_bytes": 4000, "source_format": "raw"}
    target = tmp_path / "target"
    prepare.convert(tmp_path / "files", target, **options)
    shards = sorted(path for path in target.rglob("*") if path.is_file() and not path.name.startswith("."))
    data = [path for path in shards if path.suffix != ".json"]
    assert len(data) > 2
    (target / FINISHED).unlink()
    (target / "index.json").unlink(missing_ok=True)
    data[-1].unlink()
    return target, options


def test_nobody_takes_it_for_a_dataset(cli: Any, killed: tuple[Path, dict[str, Any]]) -> None:
    target, options = killed
    for use in (
        lambda: hr.Dataset(target),
        lambda: hr.Dataset(target, format=options["format"]),
        lambda: hr.Loader(target, batch_size=4),
        lambda: prepare.convert(target, target.parent / "other"),
    ):
        with pytest.raises((hr.InvalidArgumentError, hr.NotFoundError), match=r"come to its end|no index"):
            use()
    for command in ("verify", "inspect", "index"):
        done = cli(command, str(target))
        assert (done.code, "has not come to its end" in done.err + done.out) == (1, True), done.err
    assert not (target / "index.hri").exists()


def test_the_same_pack_makes_it_one(killed: tuple[Path, dict[str, Any]]) -> None:
    target, options = killed
    prepare.convert(target.parent / "files", target, **options)
    with hr.Dataset(target) as dataset:
        assert len(dataset) == 60
