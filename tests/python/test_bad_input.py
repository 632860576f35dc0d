"""Bad input: in Python and on the command line each is one clear error that names the object and says what to
do."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import write_mds

import headrace as hr
from headrace import sim as simulator
from headrace.cli import main


class Case(NamedTuple):
    """A world in which `python` and the command line fail in the same way."""

    python: Callable[[], object]
    command: list[str]
    error: type[hr.HeadraceError]
    names: str


def dataset_case(url: str, error: type[hr.HeadraceError], names: str) -> Case:
    return Case(lambda: hr.Dataset(url), ["inspect", url], error, names)


def missing_bucket(s3: simulator.Server, **_: Any) -> Case:
    return dataset_case("s3://nowhere/ds", hr.NotFoundError, "nowhere")


def missing_key(s3: simulator.Server, **_: Any) -> Case:
    return Case(
        lambda: hr.Store("s3://b").get("no/such"), ["cat", "s3://b/no/such"], hr.NotFoundError, "no/such"
    )


def empty_prefix(s3: simulator.Server, **_: Any) -> Case:
    return dataset_case("s3://b/empty", hr.NotFoundError, "s3://b/empty")


def wrong_credentials(s3: simulator.Server, monkeypatch: pytest.MonkeyPatch, **_: Any) -> Case:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    return dataset_case("s3://b/numbers", hr.DeniedError, "s3://b/numbers")


def no_credentials(s3: simulator.Server, monkeypatch: pytest.MonkeyPatch, **_: Any) -> Case:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    return dataset_case("s3://b/numbers", hr.DeniedError, "AWS_ACCESS_KEY_ID")


def expired_token(
    buckets: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, **_: Any
) -> Case:
    server = simulator.Server(buckets, session_token="for-a-while")
    request.addfinalizer(server.close)
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    urllib.request.urlopen(f"{server.endpoint}/_headrace/expire-token", data=b"").close()
    return dataset_case("s3://b/numbers", hr.DeniedError, "[Ee]xpired")


class SkewedServer(BaseHTTPRequestHandler):
    """Answers everything as S3 does when the client's clock is wrong."""

    def do_GET(self) -> None:
        body = b"<Error><Code>RequestTimeTooSkewed</Code><Message>The difference between the request time and the current time is too large.</Message></Error>"  # noqa: E501
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


def clock_skew(
    s3: simulator.Server, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, **_: Any
) -> Case:
    server = HTTPServer(("127.0.0.1", 0), SkewedServer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    request.addfinalizer(lambda: (server.shutdown(), thread.join(), server.server_close()))
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{server.server_port}")
    return Case(
        lambda: hr.Store("s3://b").get("x"),
        ["cat", "s3://b/x"],
        hr.DeniedError,
        "[Cc]lock|RequestTimeTooSkewed|403",
    )


def no_endpoint(monkeypatch: pytest.MonkeyPatch, **_: Any) -> Case:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    # Port 9 (discard) refuses connections on a machine without inetd.
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    return Case(
        lambda: hr.Store("s3://b", timeout=2, max_attempts=2).get("x"),
        ["cat", "s3://b/x", "--endpoint", "http://127.0.0.1:9"],
        hr.HeadraceError,
        "127.0.0.1:9|s3://b/x",
    )


def not_a_dataset(buckets: Path, s3: simulator.Server, **_: Any) -> Case:
    (buckets / "b" / "junk").mkdir()
    (buckets / "b" / "junk" / "photo.jpg").write_bytes(b"x")
    (buckets / "b" / "junk" / "notes.txt").write_bytes(b"x")
    # Without format= a folder of files is a dataset of raw files.
    return Case(
        lambda: hr.Dataset("s3://b/junk", format="mds"),
        ["inspect", "s3://b/junk", "--format", "mds"],
        hr.NotFoundError,
        "s3://b/junk.*MDS",
    )


def mixed_formats(numbers: Path, s3: simulator.Server, **_: Any) -> Case:
    (numbers.parent / "mixed").mkdir()
    (numbers.parent / "mixed" / "a.tar").write_bytes(bytes(1024))
    (numbers.parent / "mixed" / "shard.00000.mds").write_bytes((numbers / "shard.00000.mds").read_bytes())
    return dataset_case("s3://b/mixed", hr.InvalidArgumentError, "s3://b/mixed")


def truncated_shard(numbers: Path, s3: simulator.Server, **_: Any) -> Case:
    shard = numbers / "shard.00003.mds"
    shard.write_bytes(shard.read_bytes()[:-10])
    case = dataset_case("s3://b/numbers", hr.CorruptError, "shard.00003.mds")
    return case._replace(command=["order", "s3://b/numbers"])  # `inspect` shows what is broken.


def stale_index(numbers: Path, s3: simulator.Server, **_: Any) -> Case:
    with hr.Dataset("s3://b/numbers") as dataset:
        dataset.write_index()
    shard = numbers / "shard.00004.mds"
    shard.write_bytes(shard.read_bytes()[:-1] + b"!")
    return Case(
        lambda: hr.Dataset("s3://b/numbers")[450],
        ["bench", "load", "s3://b/numbers"],
        hr.ChangedError,
        "shard.00004.mds",
    )


def small_memory(buckets: Path, s3: simulator.Server, **_: Any) -> Case:
    write_mds(buckets / "b" / "large", {"v": ("bytes", None)}, [{"v": bytes(2 << 20)} for _ in range(4)])
    return Case(
        lambda: hr.Loader("s3://b/large", batch_size=1, memory="1MiB"),
        ["bench", "load", "s3://b/large", "--batch-size", "1", "--memory", "1MiB"],
        hr.ExhaustedError,
        "memory",
    )


CASES = [
    missing_bucket,
    missing_key,
    empty_prefix,
    wrong_credentials,
    no_credentials,
    expired_token,
    clock_skew,
    no_endpoint,
    not_a_dataset,
    mixed_formats,
    truncated_shard,
    stale_index,
    small_memory,
]


@pytest.fixture(params=CASES, ids=lambda case: case.__name__)
def case(
    request: pytest.FixtureRequest, buckets: Path, numbers: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Case]:
    world: dict[str, Any] = {
        "buckets": buckets,
        "numbers": numbers,
        "monkeypatch": monkeypatch,
        "request": request,
    }
    if request.param not in (expired_token, no_endpoint):
        world["s3"] = request.getfixturevalue("s3")
    return request.param(**world)  # type: ignore[no-any-return]


def test_python_raises_the_named_error(case: Case) -> None:
    with pytest.raises(case.error, match=case.names) as caught:
        case.python()
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, hr.HeadraceError)


def test_the_command_line_prints_one_line_and_fails(case: Case, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(case.command)
    out, err = capfd.readouterr()
    assert ended.value.code == 1
    assert err.startswith("headrace: ")
    assert err.count("\n") == 1
    assert "Traceback" not in out + err
    import re

    assert re.search(case.names, err), err


@pytest.mark.parametrize(
    "words",
    [
        ("ls", ""),
        ("du", ""),
        ("cat", ""),
        ("rm", "-r", "--yes", ""),
        ("cp", "-r", "", "elsewhere"),
        ("cp", "-r", "data", ""),
        ("cp", "data/x", ""),
        ("mv", "-r", "", "elsewhere"),
        ("sync", "--delete", "data", ""),
        ("sync", "--delete", "", "elsewhere"),
        ("bench", "fetch", ""),
        ("inspect", ""),
    ],
)
def test_an_empty_url_is_not_the_working_directory(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """What `"$UNSET"` makes."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("kept")
    monkeypatch.chdir(tmp_path)
    if words[0] in ("cp", "mv", "sync"):
        words = (*words, "--dry-run")  # should it not be refused
    done = cli(*words)
    assert (done.code, done.out, "empty" in done.err) == (1, "", True), done.err
    assert [str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*")] == ["data", "data/x"]
