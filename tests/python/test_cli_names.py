"""Names from stores on the command line: bytes that are not UTF-8, characters that terminals obey, secrets in
URLs."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import headrace as hr
from headrace import sim as simulator
from headrace.cli import main
from headrace.verification.checks import MANIFEST_KEY

ENV = {**os.environ, "PYTHONUTF8": "1", "AWS_EC2_METADATA_DISABLED": "true"}
RED = "\x1b[31mred"
TURNED = "a\u202egnp.exe"
C1 = "\x9b31m"


def run(*arguments: str | bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "headrace.cli", *arguments],
        capture_output=True,
        timeout=120,
        check=False,
        env=ENV,
    )


def on_terminal(*arguments: str | bytes) -> bytes:
    """What both streams of a command show on a terminal."""
    terminal, other = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "headrace.cli", *arguments], stdin=other, stdout=other, stderr=other, env=ENV
    ) as process:
        os.close(other)
        shown = b""
        while True:
            try:
                part = os.read(terminal, 65536)
            except OSError:  # EIO: the last writer left
                break
            if not part:
                break
            shown += part
        process.wait()
    os.close(terminal)
    return shown


@pytest.fixture
def odd(tmp_path: Path) -> bytes:
    """A tree with a name that is not UTF-8, also of a directory."""
    root = os.fsencode(tmp_path / "odd")
    os.makedirs(os.path.join(root, b"d\xe4r"))
    for name in (b"bad\xff.bin", b"d\xe4r/plain.txt", b"good.txt"):
        Path(os.fsdecode(os.path.join(root, name))).write_bytes(name)
    return root


def test_names_that_are_not_utf8_are_listed_as_the_bytes_they_are(odd: bytes) -> None:
    done = run("ls", "-r", odd)
    assert done.returncode == 0, done.stderr
    assert [line.split(maxsplit=3)[3] for line in done.stdout.splitlines()] == [
        b"bad\xff.bin",
        b"d\xe4r/plain.txt",
        b"good.txt",
    ]
    assert b"d\xe4r/" in run("ls", odd).stdout
    done = run("du", "--depth", "1", odd)
    assert done.returncode == 0, done.stderr
    assert os.path.join(odd, b"d\xe4r/") in done.stdout
    assert run("cat", os.path.join(odd, b"bad\xff.bin")).stdout == b"bad\xff.bin"
    assert b"bad\\xff.bin" in on_terminal("ls", odd)


def test_manifests_and_copies_hold_names_that_are_not_utf8(odd: bytes, tmp_path: Path) -> None:
    text = run("manifest", "create", odd, "--output", "-")
    assert text.returncode == 0, text.stderr
    # The very lines of coreutils.
    theirs = subprocess.run(
        ["sha256sum", b"bad\xff.bin", b"d\xe4r/plain.txt", b"good.txt"],
        cwd=odd,
        capture_output=True,
        check=True,
    )
    assert text.stdout == theirs.stdout
    copy = os.fsencode(tmp_path / "copy")
    assert run("cp", "-r", odd, copy).returncode == 0
    assert run("manifest", "create", odd).returncode == 0
    os.rename(os.path.join(odd, os.fsencode(MANIFEST_KEY)), os.fsencode(tmp_path / "m"))
    assert run("manifest", "check", copy, os.fsencode(tmp_path / "m")).returncode == 0
    done = run("rm", "-r", "--yes", copy)
    assert (done.returncode, os.path.exists(copy)) == (0, False), done.stderr


def test_a_store_takes_and_gives_names_that_are_not_utf8(odd: bytes) -> None:
    with hr.Store(os.fsdecode(odd)) as store:
        keys = [info.key for info in store.list()]
        assert [os.fsencode(key) for key in keys] == [b"bad\xff.bin", b"d\xe4r/plain.txt", b"good.txt"]
        assert store.get(keys[0]) == b"bad\xff.bin"
        with pytest.raises(hr.NotFoundError, match=r"none\\xff") as missing:
            store.get("none\udcff")
        assert missing.value.key == "none\udcff"


def test_a_terminal_gets_no_characters_that_it_would_obey(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in (RED, TURNED, C1):
        (tree / name).write_bytes(b"x")
    for shown in (
        on_terminal("ls", str(tree)),
        on_terminal("cp", "-r", "-v", str(tree), str(tmp_path / "to")),
        on_terminal("rm", "-r", "--dry-run", str(tree)),
        on_terminal("cat", str(tree / (RED + "none"))),
    ):
        assert b"\\x1b[31mred" in shown, shown
        for unsafe in (RED, "\u202e", "\x9b"):
            assert unsafe.encode() not in shown, shown
    # A program gets the names.
    assert RED.encode() in run("ls", str(tree)).stdout
    verified = on_terminal("inspect", str(tree), "--format", "raw", "--shards")
    assert RED.encode() not in verified


SECRET = "HUNTER2"


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """All that a command says, on both streams."""

    def run(*arguments: str) -> str:
        with pytest.raises(SystemExit):
            main(list(arguments))
        return "".join(capfd.readouterr())

    return run


@pytest.mark.parametrize("url", ["http://bob:HUNTER2@HOST/b/x?sig=HUNTER2", "http://bob:HUNTER2%zz@HOST/b/x"])
def test_user_and_query_of_urls_are_never_shown(
    url: str, said: Callable[..., str], s3: simulator.Server
) -> None:
    host = s3.endpoint.removeprefix("http://")
    url = url.replace("HOST", host)
    for command in (
        ["stat"],
        ["ls"],
        ["cat"],
        ["store", "whoami"],
        ["store", "whoami", "--json"],
        ["inspect"],
        ["verify"],
        ["du"],
    ):
        text = said(*command, url)
        assert SECRET not in text, (command, text)
        assert host in text, (command, text)


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL_S3", "HTTP_PROXY", "http_proxy"])
@pytest.mark.parametrize(
    "value", ["http://bob:HUNTER2@HOST", "http://bob:HUNTER2%zz@HOST", "http://bob:HUNTER2@127.0.0.1:x"]
)
def test_passwords_of_endpoints_and_proxies_are_never_shown(
    variable: str, value: str, said: Callable[..., str], monkeypatch: pytest.MonkeyPatch, s3: simulator.Server
) -> None:
    settings = {
        variable: value.replace("HOST", s3.endpoint.removeprefix("http://")),
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    for name, setting in settings.items():
        monkeypatch.setenv(name, setting)
    for command in (["store", "whoami"], ["store", "whoami", "--check"], ["ls"]):
        text = said(*command, "s3://b/x")
        assert text
        assert SECRET not in text, (command, text)
