"""hf:// as a store, against a small fake hub."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_hub import TOKEN, FakeHub, oid, running

import headrace as hr
from headrace.base import log
from headrace.cli.base import split_url
from headrace.errors import (
    ChangedError,
    CorruptError,
    DeniedError,
    InvalidArgumentError,
    NotFoundError,
    UnsupportedError,
)

URL = "hf://datasets/org/name"
LARGE = os.urandom(300_000)
FILES = {
    "README.md": b"# hello",
    ".gitattributes": b"*.bin filter=lfs",
    "data/part-0.bin": LARGE,
    "data/part-1.bin": LARGE[::-1],
    "data/deep/er/x y%20z.txt": b"deep",
    "data-more/a.txt": b"a",
    "cached.txt": b"by another path of the hub",
}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    with running() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH"):
            monkeypatch.delenv(name, raising=False)
        hub.add("datasets/org/name").commit(FILES)
        yield hub


def keys(store: hr.Store, prefix: str = "") -> list[str]:
    return [info.key for info in store.list(prefix)]


def test_lists_in_byte_order_whatever_the_pages(hub: FakeHub) -> None:
    with hr.Store(URL) as store:
        assert keys(store) == sorted(FILES)
        assert keys(store, "data/") == sorted(key for key in FILES if key.startswith("data/"))
        assert keys(store, "data") == sorted(key for key in FILES if key.startswith("data"))
        assert keys(store, "data/part-1") == ["data/part-1.bin"]
        assert keys(store, "nothing/here") == []
        sizes = {info.key: (info.size, info.etag) for info in store.list()}
    assert sizes == {key: (len(content), f'"{oid(content)}"') for key, content in FILES.items()}
    with hr.Store(f"{URL}/data") as store:
        assert keys(store) == ["deep/er/x y%20z.txt", "part-0.bin", "part-1.bin"]
        assert bytes(store.get("deep/er/x y%20z.txt")) == b"deep"
        assert store.head("part-0.bin").size == len(LARGE)
    with hr.Store(f"{URL}/none") as store:
        assert keys(store) == []


def test_reads_small_and_large_files(hub: FakeHub) -> None:
    with hr.Store(URL) as store:
        for key, content in FILES.items():
            assert bytes(store.get(key)) == content
            head = store.head(key)
            assert (head.size, head.etag) == (len(content), f'"{oid(content)}"')
        assert bytes(store.get_range("data/part-0.bin", 299_990, 10)) == LARGE[299_990:]
        with pytest.raises(CorruptError, match="ends at"):
            store.get_range("data/part-0.bin", 299_990, 11)
        with pytest.raises(NotFoundError, match="no such file in this revision"):
            store.get("data/none")
        with pytest.raises(NotFoundError, match="no such file in this revision"):
            store.head("data/none")
        with pytest.raises(InvalidArgumentError, match="no file of a repository can have this path"):
            store.get("data/../README.md")


def test_the_hub_is_asked_once_for_the_link_of_a_file(hub: FakeHub) -> None:
    with hr.Store(URL) as store:
        for offset in range(0, 100_000, 10_000):
            assert bytes(store.get_range("data/part-0.bin", offset, 100)) == LARGE[offset : offset + 100]
        assert len(hub.paths("hub", "/resolve/")) == 1
        assert len(hub.paths("storage")) == 10
        hub.expire_links()
        assert bytes(store.get_range("data/part-0.bin", 7, 100)) == LARGE[7:107]
        assert len(hub.paths("hub", "/resolve/")) == 2
        assert bytes(store.get_range("data/part-0.bin", 8, 100)) == LARGE[8:108]
        assert len(hub.paths("hub", "/resolve/")) == 2


def test_a_link_that_is_always_refused_is_an_error(hub: FakeHub) -> None:
    hub.refuses_links = True
    with (
        hr.Store(URL, max_attempts=2) as store,
        pytest.raises(hr.HeadraceError, match=r"localhost:\d+ refuses the hub's link"),
    ):
        store.get("data/part-0.bin")


def test_the_token_goes_to_the_hub_alone(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN + "\n")
    with hr.Store(URL) as store:
        keys(store)
        assert bytes(store.get("data/part-0.bin")) == LARGE
        assert bytes(store.get("cached.txt")) == FILES["cached.txt"]
    assert {seen.authorization for seen in hub.seen if seen.server == "hub"} == {f"Bearer {TOKEN}"}
    assert {seen.authorization for seen in hub.seen if seen.server == "storage"} == {None}


def test_one_commit_whatever_is_pushed(hub: FakeHub) -> None:
    repository = hub.repositories["datasets/org/name"]
    with hr.Store(URL) as before:
        assert bytes(before.get("README.md")) == b"# hello"
        repository.commit({**FILES, "README.md": b"pushed", "data/part-0.bin": LARGE[:5000]})
        assert bytes(before.get("data/part-0.bin")) == LARGE
        assert before.head("README.md").size == 7
        with hr.Store(URL) as after:
            assert bytes(after.get("README.md")) == b"pushed"
            for key in ("data/part-0.bin", "README.md"):
                with pytest.raises(ChangedError, match="is now version"):
                    after.get_range(key, 0, 5, etag=before.head(key).etag)
                # Also when the link to it is known.
                after.get(key)
                with pytest.raises(ChangedError, match="is now version"):
                    after.get_range(key, 0, 5, etag=before.head(key).etag)


def test_revisions(hub: FakeHub) -> None:
    repository = hub.repositories["datasets/org/name"]
    first = repository.branches["main"]
    repository.commit({"new.txt": b"2"})
    repository.commit({"converted.txt": b"3"}, "refs/convert/parquet")
    repository.commit({"request.txt": b"4"}, "refs/pr/12")
    repository.commit({"branch.txt": b"5"}, "feature/x")
    found = {
        revision: keys(hr.Store(URL + revision))
        for revision in ("", "@main", f"@{first}", "@refs/convert/parquet", "@refs%2Fpr%2F12", "@feature%2Fx")
    }
    assert found == {
        "": ["new.txt"],
        "@main": ["new.txt"],
        f"@{first}": sorted(FILES),
        "@refs/convert/parquet": ["converted.txt"],
        "@refs%2Fpr%2F12": ["request.txt"],
        "@feature%2Fx": ["branch.txt"],
    }
    assert keys(hr.Store(f"{URL}@{first}/data/deep")) == ["er/x y%20z.txt"]
    for call in (keys, lambda store: store.get("new.txt"), lambda store: store.head("new.txt")):
        with (
            hr.Store(f"{URL}@v9") as store,
            pytest.raises(NotFoundError, match="no such branch, tag or commit"),
        ):
            call(store)


def test_private_repositories(hub: FakeHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hub.add("datasets/org/secret", private=True).commit(FILES)
    url = "hf://datasets/org/secret"
    with hr.Store(url) as store, pytest.raises(DeniedError, match="no token is used: set HF_TOKEN"):
        store.get("README.md")
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "token").write_text(f"{TOKEN}\n")  # as a login leaves it
    with hr.Store(url) as store:
        assert bytes(store.get("data/part-1.bin")) == LARGE[::-1]
    with hr.Store(url, anonymous=True) as store, pytest.raises(DeniedError):
        keys(store)
    monkeypatch.setenv("HF_TOKEN", "hf_expired")
    with (
        hr.Store(url) as store,
        pytest.raises(DeniedError, match=r"the token is from HF_TOKEN.*has it expired"),
    ):
        keys(store)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with (
        hr.Store("hf://datasets/org/none") as store,
        pytest.raises(NotFoundError, match="no such repository"),
    ):
        keys(store)


def test_gated_repositories(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add("datasets/org/gated", gated=True).commit(FILES)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with hr.Store("hf://datasets/org/gated") as store:
        assert "README.md" in keys(store)
        with pytest.raises(
            DeniedError, match=r"gated: accept its conditions on its page; http.*/datasets/org/gated"
        ):
            store.get("README.md")


def test_throttling_and_errors_of_the_hub_pass(hub: FakeHub) -> None:
    hub.throttled = 3
    with hr.Store(URL) as store:
        assert len(keys(store)) == len(FILES)
        hub.throttled = 2
        assert bytes(store.get("data/part-0.bin")) == LARGE
        hub.expire_links()
        hub.failing = 2
        assert bytes(store.get("data/part-1.bin")) == LARGE[::-1]
        assert {m.name: m.value for m in store.metrics()}["store.throttles"] >= 2


def test_renamed_repositories(hub: FakeHub) -> None:
    hub.moved["datasets/old/name"] = "datasets/org/name"
    with hr.Store("hf://datasets/old/name") as store:
        assert keys(store) == sorted(FILES)
        assert bytes(store.get("data/part-0.bin")) == LARGE
        assert bytes(store.get("README.md")) == b"# hello"


@pytest.mark.parametrize(
    ("repository", "url"),
    [
        ("models/org/model", "hf://org/model@main"),
        ("spaces/org/app", "hf://spaces/org/app"),
        ("datasets/squad", "hf://datasets/squad"),
        ("models/gpt2", "hf://gpt2@main"),
    ],
)
def test_other_repositories(hub: FakeHub, repository: str, url: str) -> None:
    hub.add(repository).commit({"cached.json": b"{}", "model.safetensors": LARGE})
    with hr.Store(url) as store:
        assert keys(store) == ["cached.json", "model.safetensors"]
        assert bytes(store.get("cached.json")) == b"{}"
        assert bytes(store.get("model.safetensors")) == LARGE


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("hf://datasets", "no organisation and name"),
        ("hf://datasets/a/b@", "the revision behind @ is none"),
        ("hf://datasets/a/b@x%2", "the revision behind @ is none"),
        ("hf://datasets/a/b c", "no organisation and name"),
        ("hf://datasets/a/b/../c", "can have this path"),
    ],
)
def test_urls_that_name_nothing(url: str, said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        hr.Store(url)


def test_what_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnsupportedError, match="buckets of the hub are not read"):
        hr.Store("hf://buckets/a/b")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UnsupportedError, match="HF_HUB_OFFLINE is set, so the hub is not asked"):
        hr.Store("hf://datasets/a/b")


def test_a_token_is_not_sent_in_the_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with pytest.raises(DeniedError, match=r"not sent over plain HTTP to hub\.internal") as caught:
        hr.Store(URL, endpoint="http://hub.internal")
    assert TOKEN not in str(caught.value)


def test_read_only(hub: FakeHub) -> None:
    with hr.Store(URL) as store:
        for call in (store.get, store.head):
            with pytest.raises(UnsupportedError, match="name the revision in the URL"):
                call("README.md", version_id="v1")
        with pytest.raises(UnsupportedError, match="can only be read"):
            store.put("x", b"1")
        with pytest.raises(UnsupportedError, match="can only be read; push with the hub's own tools"):
            store.delete("README.md")


def rows(begin: int, end: int) -> bytes:
    return b"".join(b'{"n": %d, "text": "%d"}\n' % (n, n * n) for n in range(begin, end))


def test_a_loader_over_a_split(hub: FakeHub) -> None:
    files = {"README.md": b"# data", "train/a.jsonl": rows(0, 100), "train/b.jsonl": rows(100, 200)}
    hub.add("datasets/org/rows").commit(files | {"test/a.jsonl": rows(200, 210)})
    url = "hf://datasets/org/rows"
    assert len(hr.Dataset(f"{url}/test")) == 10
    with hr.Loader(f"{url}/train", batch_size=16, epoch_end="uneven") as loader:
        state: dict[str, Any] | None = None
        ids: list[int] = []
        for batch in loader:
            ids += batch.ids.tolist()
            if len(ids) == 64:
                state = loader.state_dict()
                break
    with hr.Loader(f"{url}@main/train", batch_size=16, epoch_end="uneven") as loader:
        assert state is not None
        loader.load_state_dict(state)
        for batch in loader:
            ids += batch.ids.tolist()
    assert sorted(ids) == list(range(200))
    with hr.Loader(f"{url}/train/{{a,b}}.jsonl", batch_size=100) as loader:
        assert sum(len(batch.ids) for batch in loader) == 200


@pytest.mark.parametrize(
    ("url", "root", "key"),
    [
        ("hf://datasets/o/n/a/b.txt", "hf://datasets/o/n", "a/b.txt"),
        ("hf://datasets/o/n@refs/pr/3/a@b", "hf://datasets/o/n@refs/pr/3", "a@b"),
        ("hf://datasets/o/n@v1.0/a/", "hf://datasets/o/n@v1.0", "a/"),
        ("hf://spaces/o/n/", "hf://spaces/o/n", ""),
        ("hf://o/n", "hf://o/n", ""),
        ("hf://gpt2@main/a", "hf://gpt2@main", "a"),
        ("hf://datasets/squad", "hf://datasets/squad", ""),
    ],
)
def test_roots_of_urls(url: str, root: str, key: str) -> None:
    assert split_url(url) == (root, key)


@pytest.mark.parametrize("url", ["hf://datasets", "hf://datasets/", "hf://@main/a"])
def test_urls_without_repository(url: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"no repository; expected hf://.*ORG/NAME"):
        split_url(url)


def test_a_second_sync_copies_nothing(hub: FakeHub, cli: Any, tmp_path: Path) -> None:
    first = cli("sync", f"{URL}/data", str(tmp_path / "copy"), "--json")
    assert first.code == 0, first.err
    hub.seen.clear()
    again = cli("sync", f"{URL}/data", str(tmp_path / "copy"), "--json")
    assert again.code == 0, again.err
    assert not hub.paths("hub", "/resolve/"), again.out


def test_the_log_names_the_commit(hub: FakeHub, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headrace")
    log.pass_on()  # the level
    with hr.Store(URL) as store:
        assert keys(store)
    log.pass_on(all_counts=True)
    commit = hub.repositories["datasets/org/name"].branches["main"]
    said = [record.getMessage() for record in caplog.records if record.name == "headrace.store"]
    assert f"{URL}: revision main is commit {commit}" in said


def test_the_command_line(hub: FakeHub, cli: Any, tmp_path: Path) -> None:
    revision = hub.repositories["datasets/org/name"].branches["main"]
    listed = cli("ls", "-r", URL + "/", "--json")
    assert listed.code == 0, listed.err
    assert "data/part-0.bin" in listed.out
    assert cli("ls", f"{URL}/data/").code == 0
    assert cli("cat", f"{URL}@{revision}/README.md").out == "# hello"
    assert cli("cat", f"{URL}@refs%2Fnone/README.md").code != 0
    copied = cli("cp", "-r", f"{URL}/data", str(tmp_path / "copy"))
    assert copied.code == 0, copied.err
    assert {path.name for path in (tmp_path / "copy").rglob("*") if path.is_file()} >= {
        "part-0.bin",
        "part-1.bin",
    }
    assert next((tmp_path / "copy").rglob("part-0.bin")).read_bytes() == LARGE
    who = cli("store", "whoami", "--check", URL, "--json")
    assert json.loads(who.out)["credential"] == "anonymous"
    assert "listed the root" in who.out
