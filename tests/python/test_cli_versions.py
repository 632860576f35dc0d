"""--version-id of stat, cat, presign and rm: boto3 says which versions there are, versitygw and MinIO keep
them. (cp: see test_object_settings.py.)"""

from __future__ import annotations

import base64
import urllib.request
import uuid
from pathlib import Path
from typing import Any

import pytest
from real_servers import server

from headrace import sim as simulator


class Versioned:
    """A bucket that keeps versions, on a real server."""

    def __init__(self, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
        boto3 = pytest.importorskip("boto3")
        for name, value in {
            "AWS_ENDPOINT_URL_S3": server(variable),
            "AWS_ACCESS_KEY_ID": server("S3_ACCESS_KEY"),
            "AWS_SECRET_ACCESS_KEY": server("S3_SECRET_KEY"),
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(name, value)
        self.client = boto3.client("s3")
        self.bucket = f"versions-{uuid.uuid4().hex[:8]}"
        self.url = f"s3://{self.bucket}/a"
        self.client.create_bucket(Bucket=self.bucket)
        self.client.put_bucket_versioning(Bucket=self.bucket, VersioningConfiguration={"Status": "Enabled"})

    def put(self, data: bytes) -> str:
        made: str = self.client.put_object(Bucket=self.bucket, Key="a", Body=data)["VersionId"]
        return made

    def listed(self) -> tuple[set[str], set[str]]:
        """Ids of the versions, and of the marks that deletions left."""
        page = self.client.list_object_versions(Bucket=self.bucket)
        versions, marks = page.get("Versions", []), page.get("DeleteMarkers", [])
        return {each["VersionId"] for each in versions}, {each["VersionId"] for each in marks}


@pytest.fixture(params=["S3_ENDPOINT", "MINIO_ENDPOINT"], ids=["versitygw", "minio"])
def versioned(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Versioned:
    return Versioned(request.param, monkeypatch)


def test_versions_are_looked_at_and_read(cli: Any, versioned: Versioned) -> None:
    first, second = versioned.put(b"first"), versioned.put(b"the second")
    assert cli("stat", versioned.url, "--json").json()["version_id"] == second
    looked = cli("stat", versioned.url, "--version-id", first, "--json").json()
    assert (looked["version_id"], looked["size"]) == (first, 5)
    assert f"id        {first}\n" in cli("stat", versioned.url, "--version-id", first).out
    assert cli("cat", versioned.url, "--version-id", first).out == "first"
    assert cli("cat", versioned.url, "--version-id", first, "--range", "1-2").out == "ir"
    part = cli("cat", versioned.url, "--version-id", first, "--json").json()
    assert (part["length"], base64.b64decode(part["data"])) == (5, b"first")
    url = cli("presign", versioned.url, "--version-id", first).out.strip()
    with urllib.request.urlopen(url, timeout=20) as answer:
        assert answer.read() == b"first"
    assert cli("cat", versioned.url).out == "the second"


def test_a_version_is_removed_and_the_others_stay(cli: Any, versioned: Versioned) -> None:
    first, second = versioned.put(b"first"), versioned.put(b"the second")
    tried = cli("rm", versioned.url, "--version-id", first, "--dry-run")
    assert (tried.code, versioned.listed()) == (0, ({first, second}, set()))
    assert f"delete version {first} of {versioned.url}" in tried.out
    removed = cli("rm", versioned.url, "--version-id", first, "--json")
    assert (removed.code, removed.json()) == (0, {"deleted": 1})
    assert versioned.listed() == ({second}, set())
    gone = cli("rm", versioned.url, "--version-id", first)
    assert (gone.code, versioned.listed()) == (1, ({second}, set())), gone.out


def test_an_object_comes_back_with_the_mark_of_its_deletion_gone(cli: Any, versioned: Versioned) -> None:
    only = versioned.put(b"only")
    assert cli("rm", versioned.url).code == 0
    assert cli("cat", versioned.url).code == 1
    versions, marks = versioned.listed()
    assert (versions, len(marks)) == ({only}, 1)
    assert cli("rm", versioned.url, "--version-id", *marks).code == 0
    assert cli("cat", versioned.url).out == "only"


def test_without_versions_there_is_one_called_null(cli: Any, s3: simulator.Server, buckets: Path) -> None:
    (buckets / "b" / "a").write_text("text")
    assert cli("stat", "s3://b/a", "--json").json()["version_id"] is None
    assert cli("cat", "s3://b/a", "--version-id", "null").out == "text"
    assert cli("stat", "s3://b/a", "--version-id", "null").code == 0
    for command in ("cat", "stat", "rm"):
        assert cli(command, "s3://b/a", "--version-id", "17").code == 1, command
    assert (buckets / "b" / "a").exists()
    assert cli("rm", "s3://b/a", "--version-id", "null").code == 0
    assert not (buckets / "b" / "a").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("cat", "{0}/a", "{0}/b"),
        ("cat", "{0}/*"),
        ("presign", "{0}/a", "{0}/b"),
        ("rm", "{0}/a", "{0}/b"),
        ("rm", "--yes", "{0}/*"),
        ("rm", "-r", "--yes", "{0}"),
    ],
)
def test_a_version_is_that_of_one_object(cli: Any, tmp_path: Path, words: tuple[str, ...]) -> None:
    for name in "ab":
        (tmp_path / name).write_text(name)
    done = cli(*(word.format(tmp_path) for word in words), "--version-id", "1")
    assert (done.code, done.out) == (1, "")
    assert "--version-id is that of one object" in done.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.parametrize("command", ["stat", "cat", "rm"])
def test_files_have_no_versions(cli: Any, tmp_path: Path, command: str) -> None:
    (tmp_path / "a").write_text("a")
    done = cli(command, str(tmp_path / "a"), "--version-id", "1")
    assert (done.code, done.out) == (1, "0 deleted\n" if command == "rm" else "")
    assert "no versions" in done.err
    assert (tmp_path / "a").exists()
