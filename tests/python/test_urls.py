"""URLs that name many objects, against webdataset's own expansion and the reference cases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace._urls import expand_urls, named_objects, parse_wids_index, split_root
from headrace.errors import InvalidArgumentError, NotFoundError, UnsupportedError

REFERENCE = Path(__file__).parents[2].parent / "shared/reference/wds"


def no_read(root: str, key: str) -> bytes:
    raise NotFoundError(f"{root}/{key}")


def test_expands_as_the_reference_cases() -> None:
    if not REFERENCE.exists():
        pytest.skip("no reference cases here")
    cases = json.loads((REFERENCE / "urls.json").read_text())["expand_urls"]
    for pattern, urls in cases.items():
        assert expand_urls(pattern) == urls, pattern


def test_expands_as_webdataset() -> None:
    shardlists = pytest.importorskip("webdataset.shardlists")
    for pattern in (
        "s3://b/p/a-{000..012}.tar",
        "{9..0..3}",
        "{-2..2}",
        "{-01..2}",
        "{a..e..2}-{Z..b}",
        "{e..a}",
        "x{a,b,}y",
        "x{a{1..2},b{c,d}}y",
        "x{}y{a}",
        "x{a{1,2}}y",
        r"x\{a,b\}{1,2}",
        r"x{a\,b,c}",
        "a::b{1,2}::c",
        "plain",
        "{1..3..0}",
        "{1..1}",
        "é{1..2}",
    ):
        assert expand_urls(pattern) == list(shardlists.expand_urls(pattern)), pattern


def test_takes_variables_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WDS_ROOT", "s3://b/${SUB}")
    monkeypatch.setenv("WDS_SUB", "x{1,2}")
    assert expand_urls("${ROOT}/a.tar") == ["s3://b/x1/a.tar", "s3://b/x2/a.tar"]
    with pytest.raises(InvalidArgumentError, match="WDS_NOWHERE"):
        expand_urls("${NOWHERE}/a.tar")


@pytest.mark.parametrize("pattern", ["a{1..3", "a}b", "a{b{1,2}"])
def test_refuses_unbalanced_braces(pattern: str) -> None:
    with pytest.raises(InvalidArgumentError, match="unbalanced"):
        expand_urls(pattern)


def test_refuses_shell_commands() -> None:
    for url in ("pipe:cat a.tar", "a.tar::pipe:cat b.tar", "{pipe:a,pipe:b}"):
        with pytest.raises(UnsupportedError, match="shell"):
            named_objects(url, no_read)


def test_refuses_a_pattern_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace._urls.MOST_URLS", 1000)
    with pytest.raises(InvalidArgumentError, match="more than"):
        expand_urls("{0..9999}{0..9999}{0..9999}")


def test_splits_the_common_folder() -> None:
    assert split_root(["s3://b/p/a-0.tar", "s3://b/p/a-1.tar"]) == ("s3://b/p", ["a-0.tar", "a-1.tar"])
    assert split_root(["s3://b/p/x/0.tar", "s3://b/p/y/1.tar"]) == ("s3://b/p", ["x/0.tar", "y/1.tar"])
    assert split_root(["s3://b/pa/0.tar", "s3://b/pb/1.tar"]) == ("s3://b/", ["pa/0.tar", "pb/1.tar"])
    assert split_root(["/d/0.tar", "/e/0.tar"]) == ("/", ["d/0.tar", "e/0.tar"])
    assert split_root(["0.tar"]) == (".", ["0.tar"])
    assert split_root(["d/0.tar", "d/1.tar"]) == ("d", ["0.tar", "1.tar"])
    with pytest.raises(InvalidArgumentError, match="different stores"):
        split_root(["s3://b/0.tar", "s3://c/1.tar"])
    with pytest.raises(InvalidArgumentError, match="folder"):
        split_root(["s3://b/p/", "s3://b/p/1.tar"])
    with pytest.raises(InvalidArgumentError):
        split_root([])


def test_leaves_ordinary_urls_alone(tmp_path: Path) -> None:
    odd = tmp_path / "a{1,2}"
    odd.mkdir()
    assert named_objects(odd, no_read) is None
    assert named_objects("s3://b/p", no_read) is None
    assert named_objects("s3://b/index.json", no_read) is None
    assert named_objects("s3://b/index.json", lambda root, key: b'{"version": 2}') is None
    assert named_objects("s3://b/index.json", lambda root, key: b"\xff") is None


def test_reads_a_wids_index() -> None:
    index = {"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": [{"url": "x/0.tar", "nsamples": 7}, {"url": "1.tar", "nsamples": 2}]}

    def read(root: str, key: str) -> bytes:
        assert (root, key) == ("s3://b/p", "wids.json")
        return json.dumps(index).encode()

    assert named_objects("s3://b/p/wids.json", read) == ("s3://b/p", ["x/0.tar", "1.tar"])
    index["base"] = "s3://c/q"
    assert named_objects("s3://b/p/wids.json", read) == ("s3://c/q", ["x/0.tar", "1.tar"])


def test_refuses_a_broken_wids_index() -> None:
    for shards in ([], [{"url": "a"}], [{"nsamples": 1}], [{"url": "a", "nsamples": -1}], [{"url": "a", "nsamples": True}], ["a"]):
        with pytest.raises(InvalidArgumentError):
            parse_wids_index({"shardlist": shards}, "w.json")
    with pytest.raises(UnsupportedError):
        parse_wids_index({"datasets": [{"source_url": "b.json"}]}, "w.json")
    with pytest.raises(UnsupportedError):
        parse_wids_index({"shardlist": [{"url": "pipe:x", "nsamples": 1}]}, "w.json")
