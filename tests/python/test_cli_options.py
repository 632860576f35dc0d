"""What commands have in common with those of other clients: which names, how stores are reached, what is
shown."""

from __future__ import annotations

import base64
import json
import os
import pty
import subprocess
import sys
import time
import urllib.request
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from conftest import contents, write_mds
from rich.table import Table

import headrace as hr
from headrace import sim as simulator
from headrace.cli import app, common


@pytest.fixture
def logs(buckets: Path) -> Path:
    """A prefix with two kinds of names, one of them a pattern."""
    root = buckets / "b" / "logs"
    for name in ("1.txt", "2.txt", "[12].txt", "3.tmp", "deep/4.txt", "deep/5.tmp"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name + "\n")
    return root


def test_help_and_version_everywhere(cli: Any) -> None:
    for arguments in (["--version"], ["-V"]):
        assert cli(*arguments).out == f"headrace {hr.__version__}\n"
    for command in ([], ["ls"], ["bench"], ["bench", "load"], ["ckpt", "ls"]):
        done = cli(*command, "-h")
        assert (done.code, done.out == cli(*command, "--help").out, "Usage" in done.out) == (0, True, True)


def _options(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, each in getattr(command, "commands", {}).items():
        yield from _options(each, (*path, name))
    yield from ((path, row) for row in command.params if row.param_type_name == "option")


def test_no_default_reads_as_its_opposite_and_all_options_have_help(cli: Any) -> None:
    assert "default: True" not in cli("cp", "--help").out
    seen = 0
    for path, row in _options(typer.main.get_command(app)):
        seen += 1
        assert row.help, (path, row.opts)
        assert not (row.default is True and row.show_default), (path, row.opts)
    assert seen > 100


def test_help_cuts_nothing_off_and_shows_no_value_of_flags(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    commands = {path for path, _ in _options(typer.main.get_command(app))}
    assert len(commands) > 40
    for path in commands:
        lines = cli(*path, "--help").out.splitlines()
        assert not [line for line in lines if "\u2026" in line], path
        assert not [line for line in lines if "<bool>" in line], path
        assert not [line for line in lines if "--verbose" in line and "<int>" in line], path


def test_options_of_other_clients_are_understood(cli: Any, s3: simulator.Server, logs: Path) -> None:
    for words in (
        ("presign", "--expires-in", "60s", "--endpoint-url", s3.endpoint, "s3://b/logs/1.txt"),
        ("cp", "--dryrun", "-r", "s3://b/logs", "/tmp/nowhere"),
        ("stat", f"--endpoint-url={s3.endpoint}", "--no-verify-ssl", "s3://b/logs/1.txt"),
        ("cache", "warm", "--endpoint-url", s3.endpoint, "--help"),
    ):
        assert cli(*words).code == 0, words


def test_too_few_words_are_wrong_usage(cli: Any) -> None:
    for words in (("mv", "x"), ("cp", "x"), ("mv",), ("cp",)):
        done = cli(*words)
        assert (done.code, "internal" in done.err) == (2, False), (words, done.err)


def test_a_folder_is_told_from_what_is_missing(
    cli: Any, s3: simulator.Server, logs: Path, tmp_path: Path
) -> None:
    for words, answer in (
        (("cp", "s3://b/logs", str(tmp_path)), "add -r"),
        (("mv", "s3://b/logs/deep", str(tmp_path)), "add -r"),
        (("stat", "s3://b/logs"), "headrace ls s3://b/logs/"),
        (("cp", "s3://b/log", str(tmp_path)), "no such object"),
    ):
        done = cli(*words)
        assert (done.code, answer in done.err, "folder" in done.err) == (1, True, "such" not in answer), done


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_output_in_any_encoding(encoding: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "shard-→é.bin").write_bytes(bytes(1 << 16))
    env = {**os.environ, "PYTHONIOENCODING": encoding}

    def run(*arguments: str) -> bytes:
        command = [sys.executable, "-m", "headrace.cli", *arguments]
        done = subprocess.run(command, capture_output=True, timeout=120, check=False, env=env)
        assert (done.returncode, done.stderr) == (0, b""), (arguments, done)
        return done.stdout

    assert b"knee" in run("bench", "fetch", str(data), "--seconds", "0.1", "--in-flight", "1")
    assert b"Example" in run("cp", "--help")
    name = {"ascii": rb"shard-\u2192\xe9.bin", "latin-1": b"shard-\\u2192\xe9.bin"}
    assert name.get(encoding, "shard-→é.bin".encode()) in run("ls", str(data))


def test_an_answer_of_no_fails_and_says_so(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a").write_bytes(b"x")
    terminal, other = pty.openpty()
    command = [sys.executable, "-m", "headrace.cli", "rm", "-r", str(tree)]
    with subprocess.Popen(command, stdin=other, stderr=subprocess.PIPE, text=True) as process:
        os.write(terminal, b"n\n")
        assert process.stderr is not None
        said = process.stderr.read()
    os.close(other)
    os.close(terminal)
    assert (process.returncode, "not confirmed" in said) == (1, True), said
    assert contents(tree) == {"a": b"x"}


def test_names_are_left_out_everywhere(cli: Any, s3: simulator.Server, logs: Path) -> None:
    url = "s3://b/logs/"
    assert cli("ls", "-rs", "--exclude", "*.tmp", url, "--json").json()["objects"] == 4
    assert cli("ls", "-rs", "--include", "deep/*", url, "--json").json()["objects"] == 2
    assert cli("du", "--include", "*.tmp", url, "--json").json()["objects"] == 2
    nothing = cli("ls", "-r", "--include", "*.none", url)
    assert (nothing.code, "--include" in nothing.err) == (1, True)
    assert cli("cat", "--exclude", "2*", "s3://b/logs/?.txt").out == "1.txt\n"
    assert cli("rm", "-r", "--yes", "--include", "*.tmp", url, "--json").json() == {"deleted": 2}
    assert set(contents(logs)) == {"1.txt", "2.txt", "[12].txt", "deep/4.txt"}
    assert cli("rm", "--yes", "--exclude", "1*", "s3://b/logs/?.txt", "--json").json() == {"deleted": 1}
    assert set(contents(logs)) == {"1.txt", "[12].txt", "deep/4.txt"}


def test_patterns_of_cat(cli: Any, s3: simulator.Server, logs: Path) -> None:
    assert cli("cat", "s3://b/logs/*.txt").out == "1.txt\n2.txt\n[12].txt\n"
    assert cli("cat", "--range", "0-0", "s3://b/logs/**.tmp").out == "3d"
    for wrong in (
        "\N{SUPERSCRIPT TWO}-3",
        "0-\N{SUPERSCRIPT TWO}",
        "\N{ARABIC-INDIC DIGIT ONE}-3",
        "1",
        "-3",
    ):
        refused = cli("cat", f"--range={wrong}", "s3://b/logs/1.txt")
        assert (refused.code, "expected FIRST-LAST" in refused.err) == (1, True), refused.err
    missing = cli("cat", "s3://b/logs/9*")
    assert (missing.code, "s3://b/logs/9*" in missing.err) == (1, True)


def test_what_matches_nothing_is_told(cli: Any, s3: simulator.Server, logs: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for words in (
        ("s3://b/*.nope",),
        ("s3://b/n*.nope",),
        (f"{tmp_path}/empty/*",),
        ("-r", "s3://b/", "--include", "*.nope"),
        ("-r", "s3://b/", "--exclude", "*"),
    ):
        done = cli("ls", *words)
        assert (done.code, "nothing" in done.err) == (1, True), words
        done = cli("du", *(word for word in words if word != "-r"))
        assert (done.code, "nothing" in done.err) == (1, True), words
    assert cli("ls", f"{tmp_path}/empty").code == cli("du", f"{tmp_path}/empty").code == 0


def test_a_missing_one_stops_no_other(cli: Any, s3: simulator.Server, logs: Path) -> None:
    names = ["s3://b/logs/1.txt", "s3://b/logs/2.txt"]
    done = cli("rm", names[0], "s3://b/missing", names[1])
    assert (done.code, done.out, "s3://b/missing" in done.err) == (1, "2 deleted\n", True), done
    done = cli("rm", "s3://b/missing", "--json")
    assert (done.code, json.loads(done.out)) == (1, {"deleted": 0, "failed": 1})


def test_wrong_words_are_answered_with_the_right_ones(
    cli: Any, s3: simulator.Server, logs: Path, tmp_path: Path
) -> None:
    (tmp_path / "x").write_text("123456")
    for words, answer in (
        (("cp", "s3://b/*", "-"), "headrace cat"),
        (("cp", "-r", "s3://b/logs", "-"), "headrace cat"),
        (("sync", f"{tmp_path}/x", "s3://b/x"), "headrace cp"),
        (("cat", "--range", "100-200", f"{tmp_path}/x"), "has 6 bytes"),
        (("cat", "--json", "--range", "100-200", f"{tmp_path}/x"), "has 6 bytes"),
    ):
        done = cli(*words)
        assert (done.code, done.out, answer in done.err) == (1, "", True), (words, done)


def test_raw_takes_the_name_as_it_is(cli: Any, s3: simulator.Server, logs: Path, tmp_path: Path) -> None:
    url = "s3://b/logs/[12].txt"
    assert cli("cat", url).out == "1.txt\n2.txt\n"
    assert cli("cat", "--raw", url).out == "[12].txt\n"
    assert cli("ls", "--raw", "-s", url, "--json").json()["objects"] == 1
    assert cli("cp", "--raw", url, str(tmp_path / "one")).code == 0
    assert (tmp_path / "one").read_text() == "[12].txt\n"
    assert cli("rm", "--raw", url, "--json").json() == {"deleted": 1}
    assert (logs / "1.txt").exists()


def test_marks_of_directories_are_objects_too(
    cli: Any, s3: simulator.Server, logs: Path, tmp_path: Path
) -> None:
    with hr.Store("s3://b") as store:
        store.put("marks/", b"")
        refused = cli("rm", "s3://b/marks/")
        assert (refused.code, "add -r" in refused.err) == (1, True)
        assert cli("stat", "s3://b/marks/", "--json").json()["key"] == "marks/"
        assert cli("cat", "--raw", "s3://b/marks/").code == 0
        assert cli("cp", "--raw", "s3://b/marks/", "s3://b/copies/").code == 0
        assert store.exists("copies/marks/")
        assert cli("rm", "--raw", "s3://b/marks/").out == "1 deleted\n"
        assert not store.exists("marks/")


def test_what_cannot_be_meant_is_refused(cli: Any, s3: simulator.Server, logs: Path, tmp_path: Path) -> None:
    one, huge = "s3://b/logs/1.txt", "9" * 25
    for words, answer in (
        (("cp", "--version-id", "", one, f"{tmp_path}/x"), "--version-id is empty"),
        (("cp", "--storage-class", "", one, "s3://b/x"), "--storage-class is empty"),
        (("cp", "--content-type=", one, "s3://b/x"), "--content-type is empty"),
        (("ls", "--endpoint", "", "s3://b"), "--endpoint is empty"),
        (("rm", "-r", "--exclude", "", "s3://b"), "--exclude is empty"),
        (("cat", "--offset", "5", "--range", "0-4", one), "leave out --offset"),
        (("cat", "--length", "5", "--range", "0-4", one), "leave out --offset"),
        (("cat", "--range", f"{huge}-", one), "no object has so many bytes"),
        (("cat", "--offset", huge, one), "at most"),
        (("cat", "--length", huge, one), "at most"),
        (("cp", "--concurrency", "99999999999", one, f"{tmp_path}/x"), "--concurrency 99999999999: at most"),
        (("presign", "--expires", f"{huge}d", one), "longer than 100 years"),
        (("rm", "-r", "-y", "--exclude", "deep/", "s3://b/logs"), "write deep/**"),
        (("sync", "--exclude", "./deep/*", "s3://b/logs", f"{tmp_path}/x"), "without ./"),
        (("rm", "s3://b/logs"), "add -r"),
        (("rm", "s3://b/logs/"), "add -r"),
        (("cat", "s3://b/logs"), "/logs/**"),
        (("ls", f"{tmp_path}/nope"), "no such file"),
        (("du", f"{tmp_path}/nope"), "nothing below it"),
        (("du", "file://host/tmp"), "three slashes"),
        (("du", "file://"), "three slashes"),
        (("ls", "s3:/b"), 'did you mean "s3://'),
        (("cp", f"{logs}/1.txt", "s3:/b"), 'did you mean "s3://'),
        (("cp", f"{logs}/1.txt", "s3//b/x"), 'did you mean "s3://b/x"?'),
    ):
        done = cli(*words)
        assert (done.code, answer in done.err) == (1, True), (words, done)
    assert len(contents(logs)) == 6
    for last in ((1 << 63) - 1, (1 << 64) - 1, huge):
        assert cli("cat", "--range", f"0-{last}", one).out == "1.txt\n"
    # What only names marks, by a wildcard, may be meant.
    assert cli("ls", "-r", "--exclude", "*/", "s3://b").code == 0


def test_wrong_places_and_names_of_options(cli: Any, s3: simulator.Server, logs: Path) -> None:
    done = cli("--endpoint-url", "http://127.0.0.1:9", "ls")
    assert (done.code, "No such option: --endpoint" in done.err, "behind the command" in done.err) == (
        2,
        True,
        True,
    )
    done = cli("ls", "s3://b", "--dryrun")
    assert (done.code, "No such option: --dryrun" in done.err) == (2, True), done.err
    assert cli("ls", "-lh", "s3://b/logs/").out == cli("ls", "-l", "-H", "s3://b/logs/").out
    assert "Usage" in cli("ls", "-h").out


def test_du_is_of_one_directory(cli: Any, s3: simulator.Server, buckets: Path, tmp_path: Path) -> None:
    for root in (buckets / "b", tmp_path / "local"):
        for name, text in (("sd/x", "1"), ("sd/e/y", "22"), ("sd2/z", "333"), ("sdx", "4444")):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
    for url in ("s3://b/sd", "s3://b/sd/", f"{tmp_path}/local/sd", f"file://localhost{tmp_path}/local/sd"):
        found = cli("du", url, "--json").json()
        assert (found["bytes"], found["objects"]) == (3, 2), url
    rows = cli("du", "--depth", "1", "s3://b/sd").out.splitlines()
    assert [row.split() for row in rows] == [["2", "1", "s3://b/sd/e/"], ["3", "2", "s3://b/sd"]]
    assert cli("du", "s3://b/sd", "--include", "*y", "--json").json()["bytes"] == 2
    # An object of that name, too.
    with hr.Store("s3://b") as store:
        store.put("both", b"12345")
        assert cli("du", "s3://b/both", "--json").json()["bytes"] == 5
    missing = cli("du", "s3://b/s")
    assert (missing.code, "nothing below it" in missing.err) == (1, True)
    assert cli("du", f"{tmp_path}/local/sdx", "--json").json()["objects"] == 1


def test_files_are_local(cli: Any, s3: simulator.Server, logs: Path, tmp_path: Path) -> None:
    """A URL where a local file is meant makes no directory ``s3:``."""
    write_mds(tmp_path / "mds", {"x": ("int", 8)}, [{"x": bytes(8)}])
    data = str(tmp_path / "mds")
    before = set(contents(tmp_path))
    for words in (
        ("manifest", "create", data, "--output", "s3://b/M"),
        ("index", data, "--output", "s3://b/index.hri"),
        ("verify", data, "--quarantine", "s3://b/bad.jsonl"),
        ("cat", "--access-log", "s3://b/log", "s3://b/logs/1.txt"),
    ):
        done = cli(*words)
        assert (done.code, "a local file is meant" in done.err) == (1, True), (words, done)
    assert set(contents(tmp_path)) == before
    assert cli("manifest", "create", data, "--output", f"file://localhost{tmp_path}/M").code == 0
    assert cli("cp", f"{tmp_path}/M", "s3://b/sums/MANIFEST.sha256").code == 0
    assert cli("manifest", "check", data, "s3://b/sums/MANIFEST.sha256").code == 0


def test_ctrl_c_while_commands_are_loaded(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(arguments: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("headrace.cli.quick.run", stop)
    done = cli("verify", ".")
    assert (done.code, done.err) == (130, "")


def test_warnings_are_messages(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def warn(arguments: list[str]) -> int:
        warnings.warn("too few lanes", RuntimeWarning, stacklevel=1)
        return 0

    monkeypatch.setattr("headrace.cli.quick.run", warn)
    assert cli("order", ".").err == "headrace: too few lanes\n"


def test_what_failed_before_a_missing_source_is_told(
    cli: Any, s3: simulator.Server, logs: Path, tmp_path: Path
) -> None:
    with hr.Store("s3://b") as store:
        store.put("x", b"object")
        store.put("x/y", b"and folder")
    done = cli("cp", "s3://b/x", "s3://b/missing", f"{tmp_path}/out/")
    assert (done.code, "s3://b/missing" in done.err, "s3://b/x " in done.err) == (1, True, False), done.err
    (tmp_path / "out" / "1.txt" / "in the way").mkdir(parents=True)
    done = cli("cp", "s3://b/logs/1.txt", "s3://b/missing", f"{tmp_path}/out/")
    assert (done.code, "s3://b/missing" in done.err, "1.txt" in done.err) == (1, True, True), done.err


def test_what_would_be_done_is_said_so(cli: Any, s3: simulator.Server, buckets: Path, tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "x").write_text("1")
    (buckets / "b" / "extra").write_text("2")
    done = cli("sync", "--delete", "--dry-run", str(tmp_path / "from"), "s3://b")
    assert ("1 to delete" in done.out, "deleted" in done.out) == (True, False), done.out
    done = cli("cp", "-r", "--exclude", "*", "--include", "x", str(tmp_path / "from"), "s3://b/none")
    assert (done.code, "nothing that --include and --exclude leave" in done.err) == (0, True), done.err
    # Keys that no file can have.
    with hr.Store("s3://b/odd") as store:
        store.put("a", b"1")
        store.put("up/../a", b"2")
        done = cli("cp", "-r", "--dry-run", "s3://b/odd", str(tmp_path / "to"))
        assert (done.code, "would copy 1 objects" in done.out, "1 failed" in done.out) == (1, True, True), (
            done
        )


def test_full_urls_are_what_other_commands_take(cli: Any, s3: simulator.Server, logs: Path) -> None:
    shown = cli("ls", "-r", "--full-url", "--exclude", "[[]*", "s3://b/logs/").out.splitlines()
    urls = [line.split()[-1] for line in shown]
    assert urls[0] == "s3://b/logs/1.txt"
    assert cli("cat", "--raw", *urls).code == 0
    assert cli("ls", "--full-url", "--json", "s3://b/logs/1.txt").json()["url"] == "s3://b/logs/1.txt"


def test_presigned_urls_read_and_write(cli: Any, s3: simulator.Server, logs: Path) -> None:
    url = cli("presign", "s3://b/logs/1.txt", "--expires", "15m").out.strip()
    assert "X-Amz-Expires=900" in url
    assert urllib.request.urlopen(url).read() == b"1.txt\n"
    assert len(cli("presign", "s3://b/logs/*.tmp", "s3://b/none").out.splitlines()) == 2
    write = cli("presign", "--method", "put", "s3://b/logs/new", "--json").json()
    request = urllib.request.Request(write["url"], data=b"written", method="PUT")
    assert urllib.request.urlopen(request).status == 200
    assert (logs / "new").read_bytes() == b"written"
    for wrong in (["--expires", "1y"], ["--expires", "0"], ["--method", "POST"]):
        assert cli("presign", "s3://b/logs/1.txt", *wrong).code == 1


def test_a_profile_wins_over_keys_in_variables(
    cli: Any, s3: simulator.Server, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "credentials"
    config.write_text(
        f"[wrong]\naws_access_key_id = {s3.access_key}\naws_secret_access_key = no\n"
        f"[right]\naws_access_key_id = {s3.access_key}\naws_secret_access_key = {s3.secret_key}\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(config))
    assert cli("cat", "s3://b/logs/1.txt").code == 0
    assert cli("cat", "--profile", "wrong", "s3://b/logs/1.txt").code == 1
    assert cli("inspect", "--profile", "wrong", "s3://b/logs").code == 1
    assert "right" in cli("store", "whoami", "--profile", "right", "s3://b").out
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "no")
    assert cli("cat", "s3://b/logs/1.txt").code == 1
    assert cli("cat", "--profile", "right", "s3://b/logs/1.txt").out == "1.txt\n"


def test_certificates_and_timeouts(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x").write_bytes(b"over tls")
    with simulator.Server(tmp_path, tls=True) as server:
        reach = ["--endpoint", server.endpoint, "s3://b/x"]
        with pytest.MonkeyPatch.context() as patch:
            for name, value in server.environment().items():
                if name != "AWS_CA_BUNDLE":
                    patch.setenv(name, value)
            refused = cli("cat", "--timeout", "5", *reach)
            assert (refused.code, "certificate" in refused.err) == (1, True), refused.err
            assert cli("cat", "--no-verify-tls", *reach).out == "over tls"
            bundle = server.environment().get("AWS_CA_BUNDLE")
            assert bundle, server.environment()
            assert cli("cat", "--ca-bundle", bundle, *reach).out == "over tls"
    late = cli("cat", "--timeout", "0.2", "--endpoint", "http://127.0.0.1:9", "--anonymous", "s3://b/x")
    assert (late.code, "127.0.0.1" in late.err or "s3://b/x" in late.err) == (1, True), late.err


def test_parts_of_cat_are_still_json(cli: Any, s3: simulator.Server, logs: Path) -> None:
    row = cli("cat", "--json", "s3://b/logs/3*").json()
    assert (row["key"], base64.b64decode(row["data"])) == ("logs/3.tmp", b"3.tmp\n")


def test_the_requester_pays(cli: Any, s3: simulator.Server, logs: Path) -> None:
    for arguments in (["cat"], ["ls"], ["cp", "--dry-run"]):
        target = ["-"] if arguments[0] == "cp" else []
        before = s3.stats()["requester_pays"]
        assert cli(*arguments, "s3://b/logs/1.txt", *target).code == 0
        assert s3.stats()["requester_pays"] == before
        assert cli(*arguments, "--requester-pays", "s3://b/logs/1.txt", *target).code == 0
        while s3.stats()["requester_pays"] == before:  # Counted when the answer was sent, or a little later.
            time.sleep(0.01)


def test_buckets(cli: Any, s3: simulator.Server, buckets: Path) -> None:
    for number in range(1100):
        (buckets / f"bucket-{number:04}").mkdir()
    lines = cli("ls", "s3://").out.splitlines()
    assert [line.split()[-1] for line in lines] == [
        "s3://b",
        *(f"s3://bucket-{number:04}" for number in range(1100)),
    ]
    row = cli("ls", "s3://", "--json").json()
    assert (row["bucket"], row["url"]) == ("bucket-1099", "s3://bucket-1099")
    denied = cli("ls", "s3://", "--anonymous")
    assert (denied.code, "buckets" in denied.err) == (1, True), denied.err


@pytest.mark.parametrize("width", ["80", "200"])
def test_tables_are_never_cut(width: str, tmp_path: Path) -> None:
    program = (
        "from headrace.cli.bench import _print_rows\n"
        "row = dict.fromkeys(('gb_per_s', 'cpu_seconds_per_gb', 'seconds'), 1.0)\n"
        "row |= {f'first_byte_{p}_us': 123_456_789 for p in ('p50', 'p90', 'p99', 'p999')}\n"
        "_print_rows([row | {'part_bytes': 8 << 20, 'in_flight': 7, 'requests': 10**9, 'extra_attempts': "
        "12345}])"
    )
    terminal, other = pty.openpty()
    env = {**os.environ, "COLUMNS": width, "TERM": "dumb"}
    command = [sys.executable, "-c", program]
    piped = subprocess.run(command, capture_output=True, text=True, env=env, check=True).stdout
    subprocess.run(command, stdout=other, env=env, check=True)
    shown = os.read(terminal, 1 << 16).decode()
    for text in (piped, shown):
        assert text.count("123,457") == 4, text
        assert "1,000,000,000" in text
        assert "12345" in text
    assert len(piped.splitlines()) == 2
    os.close(other)
    os.close(terminal)


def test_a_table_that_goes_row_by_row_keeps_its_title() -> None:
    table = Table("reads", "stall seconds by cause", title="Where time went")
    table.add_row("1,404", "transfer 1.7, other 1.5, first_byte 0.25")
    narrow = common.console()
    narrow.width = 40
    with narrow.capture() as shown:
        narrow.print(table)
    text = " ".join(shown.get().split())
    assert text.startswith("Where time went")
    assert "first_byte 0.25" in text
