"""A URL with a slip of the pen is no directory: nothing is made of it, wherever it is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

import headrace as hr
from headrace import sim as simulator
from headrace.checkpoint import Checkpointer

WRITTEN: dict[str, Callable[[str], Any]] = {
    "Store": hr.Store,
    "Checkpointer": Checkpointer,
    "Checkpointer, a Path": lambda url: Checkpointer(Path(url)),
    "local=": lambda url: Checkpointer("memory://far", local=url),
    "Cache": lambda url: hr.Cache(url, create=True),
    "Cache that is there": hr.Cache,
    "cache=": lambda url: hr.Store("memory://far", cache=url),
    "cache=, a dictionary": lambda url: hr.Store("memory://far", cache={"directory": url}),
    "cache=, a Path": lambda url: hr.Store("memory://far", cache=Path(url)),
    "fs": hr.fs,
    "a path of fs": lambda url: hr.fs(".").pipe(url, b"1"),
    "a path of fsspec": lambda url: fsspec.filesystem("hr+file").pipe(url, b"1"),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("url", ["s3:/b/run", "S3:/b/run", "s3//b/run", " s3://b/run", "s3:/b/run "])
def test_nothing_is_made_of_one(name: str, url: str, here: Path) -> None:
    if url.startswith("s3//") and "Path" in name:
        pytest.skip("a Path has one slash only: s3/b/run")
    with pytest.raises(hr.InvalidArgumentError, match=r'did you mean "s3://b/run ?"\?'):
        WRITTEN[name](url)
    assert not list(here.iterdir())


@pytest.mark.parametrize("name", WRITTEN)
def test_a_folder_that_one_has_left_is_no_reason(name: str, here: Path) -> None:
    (here / "s3:" / "b" / "run").mkdir(parents=True)
    with pytest.raises(hr.InvalidArgumentError, match='did you mean "s3://b/run"'):
        WRITTEN[name]("s3:/b/run")
    assert not list((here / "s3:" / "b" / "run").iterdir())


@pytest.mark.parametrize("url", ["s3:/b/run", "s3//b/run", " s3://b/run"])
def test_dcp(url: str, here: Path) -> None:
    pytest.importorskip("torch")
    from headrace.checkpoint.dcp import Reader, Writer

    for make in (lambda: Writer(url, step=1), lambda: Reader(url)):
        with pytest.raises(hr.InvalidArgumentError, match='did you mean "s3://b/run"'):
            make()
    assert not list(here.iterdir())


def test_who_means_the_directory_says_so(here: Path) -> None:
    with Checkpointer("./s3:/b/run") as checkpointer:
        checkpointer.save(1, {"a": 1}).result()
        assert (here / "s3:" / "b" / "run" / "LATEST").is_file()
        assert Checkpointer("./s3:/b/run").load() == {"a": 1}
    hr.Cache("./s3:/b/c", create=True)
    assert hr.Cache(here / "s3:" / "b" / "c").pins() == []
    hr.fs(".").pipe("./s3:/b/x", b"1")
    assert (here / "s3:" / "b" / "x").read_bytes() == b"1"


def test_a_directory_that_has_the_name_of_a_scheme(here: Path) -> None:
    """Programs join "hf/" and "/x"."""
    (here / "hf").mkdir()
    with Checkpointer("hf//run") as checkpointer:
        checkpointer.save(1, {"a": 1}).result()
    assert (here / "hf" / "run" / "LATEST").is_file()


@pytest.mark.parametrize("url", ["s3://b/run ", "run ", "run\t"])
def test_a_blank_at_the_end(url: str, here: Path) -> None:
    for make in (Checkpointer, lambda url: hr.Cache(url, create=True)):
        with pytest.raises(hr.InvalidArgumentError, match="ends in a blank"):
            make(url)
    assert not list(here.iterdir())
    with Checkpointer("run /") as checkpointer:
        checkpointer.save(1, {"a": 1}).result()
    assert (here / "run " / "LATEST").is_file()


def test_a_directory_is_no_url(here: Path) -> None:
    for make in (
        lambda: hr.Cache("s3://b/c", create=True),
        lambda: hr.Store("memory://far", cache={"directory": "s3://b/c"}),
        lambda: hr.fs(".").pipe("s3://b/c", b"1"),
    ):
        with pytest.raises(hr.InvalidArgumentError, match="of this machine is meant"):
            make()
    assert not list(here.iterdir())
    hr.Cache(f"file://{here}/c", create=True)
    assert hr.Store("memory://far", cache=f"file://{here}/d:1GiB").url
    assert sorted(path.name for path in here.iterdir()) == ["c", "d"]


def test_a_command_says_the_whole_url(cli: Any, s3: simulator.Server, here: Path) -> None:
    (here / "x").write_text("x")
    for words in (
        ("ls", "s3:/b/x"),
        ("ls", "s3//b/x"),
        ("ls", " s3://b/x"),
        ("ls", "-r", "s3:/b/x"),
        ("du", "s3//b/x"),
        ("cat", "s3:/b/x"),
        ("rm", "s3:/b/x"),
        ("cp", "x", "s3:/b/x"),
        ("cp", "x", "s3//b/x"),
        ("cp", "s3:/b/x", "y"),
        ("sync", ".", "s3:/b/x"),
        ("cache", "warm", "s3://b", "--cache", "s3:/b/x"),
        ("cache", "pin", "s3:/b/x"),
        ("ckpt", "ls", "s3:/b/x"),
    ):
        done = cli(*words)
        assert (done.code, 'did you mean "s3://b/x"?' in done.err) == (1, True), (words, done)
    for words in (("ls", "s3:/b/*.txt"), ("cp", "s3:/b/*.txt", "y"), ("rm", "s3//b/*.txt")):
        done = cli(*words)
        assert (done.code, 'did you mean "s3://b/*.txt"?' in done.err) == (1, True), (words, done)
    assert sorted(path.name for path in here.iterdir()) == ["x"]


@pytest.mark.parametrize(
    "url", ["s3:/b/x", "s3//b/x", " s3://b/x", "b/x", "b", "", "s4://b/x", "s3a://b", "s3://", "://x"]
)
def test_a_pin_is_the_beginning_of_a_url(url: str, here: Path) -> None:
    cache = hr.Cache("c", create=True)
    with pytest.raises(hr.InvalidArgumentError):
        cache.pin(url)
    assert cache.pins() == []
    cache.pin("/data/train/")
    cache.pin("c/")
    assert cache.pins() == ["/data/train/", "c/"]
