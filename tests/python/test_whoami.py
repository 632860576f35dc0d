"""``headrace store whoami``: what it says, what it hides, and that it picks the credentials that botocore
picks."""

from __future__ import annotations

import json
import os
import random
import threading
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import _native
from headrace.cli import main
from headrace.store.tiers import parse_tiers, profile_environment

SECRET = "verysecret0123456789"


def identity(
    url: str, environment: dict[str, str], *, fetch: bool = True, check: bool = False, **options: Any
) -> dict[str, Any]:
    return _native.describe_identity(url, options, environment, fetch, check)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home; nothing of the machine's own settings."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    (tmp_path / ".aws").mkdir()
    return tmp_path


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exit_:
        main(["store", "whoami", *arguments])
    return int(exit_.value.code or 0)


def test_says_what_was_found_where(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / ".aws/credentials").write_text(
        f"[default]\naws_access_key_id=AKIAIOSFODNN7EXAMPLE\naws_secret_access_key={SECRET}\n"
    )
    (home / ".aws/config").write_text("[default]\nregion=eu-west-1\n")
    assert run("s3://bucket/train") == 0
    text = capsys.readouterr().out
    assert 'keys AKIA...MPLE  (profile "default" in ' in text
    assert "eu-west-1  (profile" in text
    assert "https://bucket.s3.eu-west-1.amazonaws.com  (default)" in text
    assert "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: not set" in text
    assert SECRET not in text


def test_json_without_credentials(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("s3://bucket", "--json") == 1
    report = json.loads(capsys.readouterr().out)
    assert report["credential"] == "none"
    assert "Looked at" in report["problem"]
    assert any("disabled by AWS_EC2_METADATA_DISABLED" in place for place in report["searched"])


def test_anonymous_and_local(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("s3://bucket", "--anonymous") == 0
    assert "anonymous" in capsys.readouterr().out
    assert run(str(home), "--check") == 0
    assert "listed the root" in capsys.readouterr().out


def test_credential_process(home: Path) -> None:
    tool = home / "tool"
    answer = {
        "Version": 1,
        "AccessKeyId": "ASIAPROCESSEXAMPLE",
        "SecretAccessKey": SECRET,
        "SessionToken": SECRET,
        "Expiration": "2099-01-01T00:00:00Z",
    }
    tool.write_text(f"#!/bin/sh\necho '{json.dumps(answer)}'\n")
    tool.chmod(0o755)
    (home / ".aws/config").write_text(f"[default]\ncredential_process={tool} --x\n")
    report = identity("s3://bucket", {})
    assert (report["credential"], report["id"], report["expires"]) == ("process", "ASIA...MPLE", 4070908800)
    assert SECRET not in json.dumps(report)
    assert identity("s3://bucket", {}, fetch=False)["id"] == ""


def test_broken_profile_is_a_problem_not_an_exception(home: Path) -> None:
    (home / ".aws/config").write_text("[default]\nrole_arn=arn:x\n")
    assert "source_profile or credential_source" in identity("s3://bucket", {})["problem"]
    assert identity("s3://bucket", {}, anonymous=True)["problem"] == ""


def test_check_tells_the_stores_answer(home: Path) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE", "AWS_SECRET_ACCESS_KEY": SECRET}
    report = identity("s3://bucket", keys, check=True, endpoint="http://127.0.0.1:9", max_attempts=1)
    assert report["can_list"] is False
    assert "127.0.0.1" in report["check"]
    assert SECRET not in json.dumps(report)


# --- real exchanges with a service of this machine ---


@contextmanager
def service(answers: dict[str, str]) -> Iterator[tuple[str, list[str]]]:
    """Serves "METHOD path" -> body, else 404; yields its URL and the requests it has had."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            what = f"{self.command} {self.path}"
            seen.append(what)
            body = answers.get(what, "").encode()
            self.send_response(200 if what in answers else 404)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _service_keys(access_key: str, secret_key: str, token: str = "") -> str:
    return json.dumps(
        {
            "Code": "Success",
            "AccessKeyId": access_key,
            "SecretAccessKey": secret_key,
            "Token": token,
            "Expiration": "2099-01-01T00:00:00Z",
        }
    )


def test_instance_metadata(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    base = "/latest/meta-data/iam/security-credentials/"
    answers = {
        "PUT /latest/api/token": "token",
        f"GET {base}": "web",
        f"GET {base}web": _service_keys("ASIAINSTANCEEXAMPLE", SECRET),
    }
    with service(answers) as (url, seen):
        report = identity("s3://bucket", {"AWS_EC2_METADATA_SERVICE_ENDPOINT": url})
    assert (report["credential"], report["id"], report["problem"]) == ("instance", "ASIA...MPLE", "")
    assert len(seen) == 3


def test_a_store_works_with_fetched_credentials(
    home: Path, sim: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with service({"GET /creds": _service_keys(sim.access_key, sim.secret_key)}) as (url, seen):
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{url}/creds")
        with hr.Store("s3://b", endpoint=sim.endpoint) as store:
            assert seen == []  # opening contacts nobody
            store.put("k", b"bytes")
            assert store.get("k") == b"bytes"
    assert seen == ["GET /creds"]


def test_a_url_is_signed_with_fetched_credentials(
    home: Path, sim: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with service({"GET /creds": _service_keys(sim.access_key, sim.secret_key)}) as (url, seen):
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{url}/creds")
        with hr.Store("s3://b", endpoint=sim.endpoint) as store:
            store.put("k", b"bytes")
        with pytest.raises(SystemExit) as ended:
            main(["presign", "--endpoint", sim.endpoint, "s3://b/k"])
        assert ended.value.code == 0
        with urllib.request.urlopen(capsys.readouterr().out.strip()) as answer:
            assert answer.read() == b"bytes"
    assert len(seen) == 2


@pytest.mark.parametrize("call", ["get", "presign"])
def test_a_store_without_a_role_says_so(
    home: Path, sim: Any, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    with service({}) as (url, _):
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{url}/creds")
        with (
            hr.Store("s3://b", endpoint=sim.endpoint) as store,
            pytest.raises(hr.DeniedError, match="check the role of the task"),
        ):
            getattr(store, call)("k")


# --- what is named comes before what is found ---


def test_a_named_profile_is_used_in_a_pod_that_has_a_role(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / ".aws/config").write_text("[profile research]\nregion=eu-west-1\n" + _keys("RESEARCH"))
    (home / "token").write_text("jwt")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(home / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/pod")
    monkeypatch.setenv("AWS_ROLE_SESSION_NAME", "pod")
    monkeypatch.setenv("AWS_SECURITY_TOKEN", "of-the-pod")
    assert identity("s3://bucket", {}, fetch=False)["credential"] == "web identity"
    with hr.Store("s3://bucket", profile="research") as store:
        url = store.presign("k")
    assert _id("RESEARCH") in url
    assert "of-the-pod" not in url
    assert run("s3://bucket", "--profile", "research", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["credential"], report["id"][-4:]) == ("keys", _id("RESEARCH")[-4:])
    [(_, hot)] = parse_tiers({"url": "s3://hot", "profile": "research"}).cluster
    assert hot["environment"] == profile_environment("research")


def test_given_keys_go_without_the_token_of_others(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "foreign-session")
    monkeypatch.setenv("AWS_SECURITY_TOKEN", "foreign-security")
    keys = {"access_key": _id("GIVEN"), "secret_key": SECRET}
    for token in (None, "mine"):
        with hr.Store("s3://bucket", region="us-east-1", session_token=token, **keys) as store:
            url = store.presign("k")
        assert "foreign" not in url
        assert ("X-Amz-Security-Token=mine" in url) == (token is not None)
    [(_, hot)] = parse_tiers({"url": "s3://hot", **keys}).cluster
    assert hot["environment"]["AWS_SECURITY_TOKEN"] == hot["environment"]["AWS_SESSION_TOKEN"] == ""


# --- the same as botocore ---


def _id(name: str) -> str:
    """An access key id whose last four characters, which are shown, depend on the name."""
    return f"AKIA{zlib.crc32(name.encode()):016X}"


def _keys(name: str) -> str:
    return f"aws_access_key_id={_id(name)}\naws_secret_access_key={SECRET}\n"


def _random_case(rng: random.Random, home: Path) -> dict[str, str]:
    """Files below `home`, and variables: each piece is there or not."""
    names = ["default", "dev", "prod"]
    config, shared = "", ""
    for name in names:
        header = "[default]\n" if name == "default" else f"[profile {name}]\n"
        body = f"region=us-{name}-1\n" if rng.random() < 0.7 else ""
        if rng.random() < 0.4:
            body += _keys(f"CONFIG_{name}")
        if rng.random() < 0.3:
            tool = home / f"tool_{name}"
            tool.write_text(
                f'#!/bin/sh\necho \'{{"Version":1,"AccessKeyId":"{_id("PROCESS_" + name)}","SecretAccessKey":"{SECRET}"}}\'\n'  # noqa: E501
            )
            tool.chmod(0o755)
            body += f"credential_process = {tool}\n"
        if body:
            config += header + body
        if rng.random() < 0.4:
            shared += f"[{name}]\n" + _keys(f"SHARED_{name}")
    (home / ".aws/config").write_text(config)
    (home / ".aws/credentials").write_text(shared)
    variables: dict[str, str] = {}
    defined = [
        name
        for name in names
        if f"[{name}]" in shared or f"[{name}]" in config or f"[profile {name}]" in config
    ]
    if defined and rng.random() < 0.6:
        variables[rng.choice(["AWS_PROFILE", "AWS_DEFAULT_PROFILE"])] = rng.choice(defined)
    if rng.random() < 0.2:
        variables.update(AWS_ACCESS_KEY_ID=_id("ENV"), AWS_SECRET_ACCESS_KEY=SECRET)
    if rng.random() < 0.2:
        (home / "elsewhere").write_text(
            "[default]\n" + _keys("ELSEWHERE") + "[dev]\n" + _keys("ELSEWHERE_dev")
        )
        variables["AWS_SHARED_CREDENTIALS_FILE"] = rng.choice([str(home / "elsewhere"), "~/elsewhere"])
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        if rng.random() < 0.3:
            variables[name] = f"eu-{name.count('_')}-1"
    return variables


@pytest.mark.parametrize("seed", range(80))
def test_picks_what_botocore_picks(seed: int, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import botocore.exceptions
    import botocore.session

    for name, value in _random_case(random.Random(seed), home).items():
        monkeypatch.setenv(name, value)
    ours = identity("s3://bucket", {})
    try:
        theirs = botocore.session.Session().get_credentials()
    except botocore.exceptions.ProfileNotFound:
        assert "names the profile" in ours["problem"]
        return
    key = theirs.access_key if theirs else None
    assert ours["id"] == (f"{key[:4]}...{key[-4:]}" if key else ""), ours
    if theirs:
        kind = {
            "env": "keys",
            "shared-credentials-file": "keys",
            "config-file": "keys",
            "custom-process": "process",
        }[theirs.method]
        assert ours["credential"] == kind
        place = {
            "env": "environment variables",
            "shared-credentials-file": "in ",
            "config-file": ".aws/config",
            "custom-process": "profile ",
        }[theirs.method]
        assert place in ours["credential_source"]


def test_settings_say_where_they_come_from(home: Path) -> None:
    (home / ".aws/config").write_text("[default]\nregion=eu-west-1\n")
    environment = {"HOME": str(home), "AWS_EC2_METADATA_DISABLED": "true"}
    settings = {entry["name"]: entry for entry in identity("s3://bucket", environment)["settings"]}
    assert settings["region"]["value"] == "eu-west-1"
    assert str(home / ".aws/config") in settings["region"]["source"]
