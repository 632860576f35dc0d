"""URLs that name many objects, against webdataset's own expansion and the reference cases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.errors import InvalidArgumentError, NotFoundError, UnsupportedError
from headrace.store.urls import expand_urls, local_path, named_objects, parse_wids_index, split_root

REFERENCE = Path(__file__).parents[2].parent / "shared/reference/wds"


def no_read(root: str, key: str) -> bytes:
    raise NotFoundError(f"{root}/{key}")


def no_keys(root: str, prefix: str, is_deep: bool) -> list[str]:
    raise NotFoundError(root)


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
            named_objects(url, no_read, no_keys)


def test_refuses_a_pattern_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.store.urls.MOST_URLS", 1000)
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
    assert named_objects(odd, no_read, no_keys) is None
    assert named_objects("s3://b/p", no_read, no_keys) is None
    assert named_objects("s3://b/index.json", no_read, no_keys) is None
    assert named_objects("s3://b/index.json", lambda root, key: b'{"version": 2}', no_keys) is None
    assert named_objects("s3://b/index.json", lambda root, key: b"\xff", no_keys) is None


def test_reads_a_wids_index() -> None:
    index = {
        "__kind__": "wids-shard-index-v1",
        "wids_version": 1,
        "shardlist": [{"url": "x/0.tar", "nsamples": 7}, {"url": "1.tar", "nsamples": 2}],
    }

    def read(root: str, key: str) -> bytes:
        assert (root, key) == ("s3://b/p", "wids.json")
        return json.dumps(index).encode()

    assert named_objects("s3://b/p/wids.json", read, no_keys) == ("s3://b/p", ["x/0.tar", "1.tar"])
    index["base"] = "s3://b/q"
    assert named_objects("s3://b/p/wids.json", read, no_keys) == ("s3://b/q", ["x/0.tar", "1.tar"])


def test_refuses_a_broken_wids_index() -> None:
    for shards in (
        [],
        [{"url": "a"}],
        [{"nsamples": 1}],
        [{"url": "a", "nsamples": -1}],
        [{"url": "a", "nsamples": True}],
        ["a"],
    ):
        with pytest.raises(InvalidArgumentError):
            parse_wids_index({"shardlist": shards}, "w.json")
    with pytest.raises(UnsupportedError):
        parse_wids_index({"datasets": [{"source_url": "b.json"}]}, "w.json")
    with pytest.raises(UnsupportedError):
        parse_wids_index({"shardlist": [{"url": "pipe:x", "nsamples": 1}]}, "w.json")


def test_an_index_names_nothing_outside_its_folder_or_bucket() -> None:
    def open_index(where: str, url: str, base: str | None = None) -> tuple[str, list[str]] | None:
        index = {"__kind__": "wids-shard-index-v1", "base": base, "shardlist": [{"url": url, "nsamples": 1}]}
        return named_objects(where, lambda root, key: json.dumps(index).encode(), no_keys)

    remote = "s3://b/p/i.json"
    for url in (
        "file:///etc/passwd",
        "/etc/passwd",
        "../q/x.tar",
        "x/../../y.tar",
        "s3://other/x.tar",
        "s3://b2/x.tar",
        "http://127.0.0.1/x.tar",
    ):
        with pytest.raises(InvalidArgumentError, match="outside"):
            open_index(remote, url)
    for base in ("file:///etc", "/etc", "../q", "s3://other/p"):
        with pytest.raises(InvalidArgumentError, match="outside"):
            open_index(remote, "x.tar", base)
    assert open_index(remote, "s3://b/q/x.tar") == ("s3://b/q", ["x.tar"])
    assert open_index(remote, "x.tar", "s3://b/r") == ("s3://b/r", ["x.tar"])
    assert open_index("https://h/p/i.json", "https://h/q/x.tar") == ("https://h/q", ["x.tar"])
    with pytest.raises(InvalidArgumentError, match="outside"):
        open_index("https://h/p/i.json", "file:///etc/passwd")


def test_a_local_index_names_nothing_outside_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "private.txt").write_text("PRIVATE")
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "0.tar").write_bytes(b"x")
    path = tmp_path / "p" / "i.json"
    monkeypatch.chdir(tmp_path / "p")

    def open_index(url: str, where: str) -> tuple[str, list[str]] | None:
        path.write_text(
            json.dumps({"__kind__": "wids-shard-index-v1", "shardlist": [{"url": url, "nsamples": 1}]})
        )
        return named_objects(where, lambda root, key: path.read_bytes(), no_keys)

    for where in (str(path), "i.json", f"file://{path}"):
        for url in (
            str(tmp_path / "private.txt"),
            f"file://{tmp_path}/private.txt",
            "../private.txt",
            f"file://{tmp_path}/p/%2e%2e/private.txt",
            "s3://b/x.tar",
        ):
            with pytest.raises(InvalidArgumentError, match="outside"):
                open_index(url, where)
    assert open_index(f"{tmp_path}/p/0.tar", str(path)) == (f"{tmp_path}/p", ["0.tar"])
    assert open_index("0.tar", "i.json") == (".", ["0.tar"])


def test_a_local_url_is_the_path_that_it_shows(tmp_path: Path) -> None:
    for path in ("/data/a b", "/a%20b", "/a#b", "/a?b"):
        assert (
            local_path(path) == local_path(f"file://{path}") == local_path(f"file://localhost{path}") == path
        )
    assert local_path("data/x") == "data/x"
    assert local_path("s3://b/x") is None
    for url in ("file://data/x", "file://data", "file://"):
        with pytest.raises(InvalidArgumentError, match="three slashes"):
            local_path(url)

    def open_index(url: str) -> tuple[str, list[str]] | None:
        index = {"__kind__": "wids-shard-index-v1", "shardlist": [{"url": url, "nsamples": 1}]}
        where = "file:///data/a%20b/i.json"
        return named_objects(where, lambda root, key: json.dumps(index).encode(), no_keys)

    assert open_index("file:///data/a%20b/0.tar") == ("file:///data/a%20b", ["0.tar"])
    for url in ("file:///data/a b/0.tar", "/data/a b/0.tar"):
        with pytest.raises(InvalidArgumentError, match="outside"):
            open_index(url)
