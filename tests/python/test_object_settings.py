"""Type, metadata, storage class, encryption and versions of objects: written by us and read by the vendors'
own clients, and the other way round."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from real_servers import make_container, server

import headrace as hr
from headrace import _native

COMMON = {
    "content_type": "text/x-headrace",
    "content_encoding": "zstd",
    "content_language": "de",
    "content_disposition": 'attachment; filename="a b"',
    "cache_control": "max-age=60",
    "metadata": {"run": "17", "owner_name": "somebody else"},
}
SMALL, LARGE = b"small", os.urandom(1 << 20) * 17
"""LARGE goes in parts, of 8 MiB."""


def written(info: hr.ObjectInfo) -> dict[str, Any]:
    """Its settings as far as they are the content's."""
    assert info.settings is not None
    return {name: value for name, value in dict(info.settings).items() if name in COMMON}


def copy(source: hr.Store, target: hr.Store, *, version_id: str | None = None) -> None:
    """Everything; or with a version only "small"."""
    task = ("small", "small", False, 0, "") if version_id else ("", "", True, 0, "")
    job = _native.CopyJob(source._native, target._native, [task], {"version_id": version_id})
    job.run()
    assert job.failures() == []


def fill(store: hr.Store, **settings: Any) -> None:
    store.put("small", SMALL, **settings)
    store.put("large", LARGE, **settings)
    store.put("empty", b"", **settings)


def cli(*words: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headrace.cli", *words],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
    )


# --- without servers ---


def test_what_put_is_told_head_tells() -> None:
    with hr.Store("memory://settings") as store:
        fill(store, **COMMON, storage_class="COLD")
        for key in ("small", "large", "empty"):
            assert store.head(key).settings == {**COMMON, "storage_class": "COLD"}
        assert next(store.list()).settings is None  # not asked for
        copied = store.copy("small", "copy", content_type="text/plain", metadata={"Other": "1"})
        assert copied.settings == {**COMMON, "content_type": "text/plain", "metadata": {"other": "1"}}
        settings = copied.settings
        store.put("again", b"", **settings)
        assert store.head("again").settings == settings
        store.put("none", b"", content_type=None, metadata=None)
        assert store.head("none").settings == {}


def test_settings_of_a_store_stand_below_those_of_a_call() -> None:
    with hr.Store("memory://own", settings={"content_type": "a/b", "cache_control": "no-store"}) as store:
        store.put("a", b"")
        store.put("b", b"", content_type="c/d")
        assert store.head("a").settings == {"content_type": "a/b", "cache_control": "no-store"}
        assert store.head("b").settings == {"content_type": "c/d", "cache_control": "no-store"}


def test_mistakes_are_told(tmp_path: Path) -> None:
    with hr.Store("memory://mistakes") as store:
        with pytest.raises(hr.InvalidArgumentError, match=r"'content_typ': did you mean content_type\?"):
            store.put("x", b"", content_typ="a/b")  # type: ignore[call-arg]
        with pytest.raises(hr.InvalidArgumentError, match="'ContentType': use content_type="):
            store.copy("x", "y", ContentType="a/b")  # type: ignore[call-arg]
        with pytest.raises(hr.InvalidArgumentError, match="'ACL': use acl="):
            hr.Store("memory://mistakes", settings={"ACL": "private"})  # type: ignore[typeddict-unknown-key]
        with pytest.raises(hr.InvalidArgumentError, match="metadata='run=17': a value of the wrong kind"):
            store.put("x", b"", metadata="run=17")  # type: ignore[arg-type]
        with pytest.raises(hr.InvalidArgumentError, match=r'"A" is there twice|"a" is there twice'):
            store.put("x", b"", metadata={"a": "1", "A": "2"})
        with pytest.raises(hr.InvalidArgumentError, match=r"metadata name: .* printable ASCII"):
            store.put("x", b"", metadata={"name": "größe"})
        with pytest.raises(hr.UnsupportedError, match="no versions"):
            store.get("x", version_id="1")
        assert not store.exists("x")
    with hr.Store(tmp_path) as files:
        for call in (
            lambda: files.put("x", b"1", storage_class="COLD"),
            lambda: files.put("x", LARGE, metadata={"a": "1"}),
        ):
            with pytest.raises(hr.UnsupportedError, match="keeps no such setting"):
                call()
        assert not files.exists("x")
        files.put("x", b"1")
        assert files.head("x").settings is None
    with pytest.raises(hr.UnsupportedError, match="storage_class"):
        hr.Store(tmp_path, settings={"storage_class": "COLD"})


def test_the_command_line_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1")
    for words, message in (
        (("cp", f"{tmp_path}/a.csv", f"{tmp_path}/b", "--storage-class", "X"), "storage_class"),
        (("cp", f"{tmp_path}/a.csv", f"{tmp_path}/b", "--metadata", "run"), "expected NAME=VALUE"),
        (("cp", f"{tmp_path}/a.csv", f"{tmp_path}/b", "--version-id", "1"), "no versions"),
        (("cp", "-r", f"{tmp_path}", f"{tmp_path}/b", "--version-id", "1"), "that of one object"),
        (("cp", f"{tmp_path}/a.csv", "-", "--acl", "private"), "leave out --acl"),
    ):
        done = cli(*words)
        assert done.returncode != 0, words
        assert message in done.stderr, done.stderr
        assert not (tmp_path / "b").exists()


# --- S3 ---


class S3:
    """A real server, and boto3's client for it."""

    def __init__(self, variable: str) -> None:
        boto3 = pytest.importorskip("boto3")
        self.endpoint = server(variable)
        self.bucket = server("S3_BUCKET")
        keys = {"access_key": server("S3_ACCESS_KEY"), "secret_key": server("S3_SECRET_KEY")}
        self.options: dict[str, Any] = {"endpoint": self.endpoint, "region": "us-east-1", **keys}
        self.environment = {
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_ACCESS_KEY_ID": keys["access_key"],
            "AWS_SECRET_ACCESS_KEY": keys["secret_key"],
            "AWS_REGION": "us-east-1",
        }
        self.client = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=keys["access_key"],
            aws_secret_access_key=keys["secret_key"],
        )
        self.root = f"settings-{uuid.uuid4().hex[:8]}"

    @contextlib.contextmanager
    def store(self, name: str, **options: Any) -> Iterator[hr.Store]:
        with hr.Store(f"s3://{self.bucket}/{self.root}/{name}", **self.options, **options) as store:
            yield store

    def head(self, key: str, **more: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.client.head_object(Bucket=self.bucket, Key=f"{self.root}/{key}", **more)
        return found

    def told(self, key: str) -> dict[str, Any]:
        """What boto3 says, under our names."""
        head = self.head(key)
        names = {
            "content_type": "ContentType",
            "content_encoding": "ContentEncoding",
            "content_language": "ContentLanguage",
            "content_disposition": "ContentDisposition",
            "cache_control": "CacheControl",
            "metadata": "Metadata",
        }
        return {ours: head[theirs] for ours, theirs in names.items() if head.get(theirs)}


@pytest.fixture(params=["S3_ENDPOINT", "MINIO_ENDPOINT"], ids=["versitygw", "minio"])
def s3(request: pytest.FixtureRequest) -> S3:
    return S3(request.param)


@pytest.fixture
def minio() -> S3:
    return S3("MINIO_ENDPOINT")


def test_boto3_reads_what_we_wrote(s3: S3) -> None:
    with s3.store("a") as store:
        fill(store, **COMMON)
        for key in ("small", "large", "empty"):
            assert s3.told(f"a/{key}") == COMMON, key
            assert written(store.head(key)) == COMMON
            assert store.get(key) == {"small": SMALL, "large": LARGE, "empty": b""}[key]


def test_we_read_what_boto3_wrote(s3: S3) -> None:
    s3.client.put_object(
        Bucket=s3.bucket,
        Key=f"{s3.root}/b/x",
        Body=SMALL,
        ContentType="text/csv",
        CacheControl="no-cache",
        Metadata={"Run-Id": "17"},
    )
    with s3.store("b") as store:
        assert written(store.head("x")) == {
            "content_type": "text/csv",
            "cache_control": "no-cache",
            "metadata": {"run-id": "17"},
        }


def test_copies_through_this_machine_keep_them(s3: S3) -> None:
    with s3.store("from") as source, s3.store("to") as target:
        fill(source, **COMMON)
        copy(source, target)
        for key in ("small", "large", "empty"):
            assert s3.told(f"to/{key}") == COMMON, key
    with s3.store("from") as source, s3.store("own", settings={"content_type": "own/type"}) as target:
        copy(source, target)
        for key in ("small", "large", "empty"):
            assert s3.told(f"own/{key}") == {**COMMON, "content_type": "own/type"}, key


def test_copies_by_the_server_keep_and_replace_them(s3: S3) -> None:
    with s3.store("same") as store:
        fill(store, **COMMON)
        for key in ("small", "large"):
            store.copy(key, f"{key}-copy")
            assert s3.told(f"same/{key}-copy") == COMMON
            store.copy(key, f"{key}-own", content_type="own/type")
            assert s3.told(f"same/{key}-own") == {**COMMON, "content_type": "own/type"}
            store.copy(key, f"{key}-meta", metadata={"a": "1"})
            assert s3.told(f"same/{key}-meta") == {**COMMON, "metadata": {"a": "1"}}


def test_the_command_line_writes_and_copies_them(s3: S3, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(SMALL)
    (tmp_path / "large.json").write_bytes(LARGE)
    url = f"s3://{s3.bucket}/{s3.root}"
    options = ("--metadata", "run=17", "--metadata", "note=a=b c", "--cache-control", "no-store")
    done = cli("cp", "-r", str(tmp_path), f"{url}/cli", *options, environment=s3.environment)
    assert done.returncode == 0, done.stderr
    expected = {"cache_control": "no-store", "metadata": {"run": "17", "note": "a=b c"}}
    assert s3.told("cli/a.csv") == {**expected, "content_type": "text/csv"}
    assert s3.told("cli/large.json") == {**expected, "content_type": "application/json"}
    options = ("--content-type", "own/type", "--content-encoding", "gzip", "--content-disposition", "inline")
    for source in (f"{url}/cli/large.json", f"{url}/cli/a.csv"):
        done = cli("cp", source, f"{url}/copy", *options, environment=s3.environment)
        assert done.returncode == 0, done.stderr
        own = {"content_type": "own/type", "content_encoding": "gzip", "content_disposition": "inline"}
        assert s3.told("copy") == {**expected, **own}
    done = subprocess.run(
        [sys.executable, "-m", "headrace.cli", "cp", "-", f"{url}/stdin", "--content-type", "a/b"],
        env={**os.environ, **s3.environment},
        input=LARGE,
    )
    assert done.returncode == 0
    assert s3.told("stdin") == {"content_type": "a/b"}


def test_an_upload_that_was_stopped_goes_on_with_the_right_settings(s3: S3, tmp_path: Path) -> None:
    """Its parts are taken over; what it was begun with is looked at in the end."""
    (tmp_path / "x.txt").write_bytes(LARGE)
    url = f"s3://{s3.bucket}/{s3.root}/resumed"
    begun = s3.client.create_multipart_upload(
        Bucket=s3.bucket,
        Key=f"{s3.root}/resumed/x.txt",
        ContentType="text/html",
        ChecksumAlgorithm="CRC32C",
        ChecksumType="FULL_OBJECT",
    )
    s3.client.upload_part(
        Bucket=s3.bucket,
        Key=f"{s3.root}/resumed/x.txt",
        UploadId=begun["UploadId"],
        PartNumber=1,
        Body=LARGE[: 8 << 20],
        ChecksumAlgorithm="CRC32C",
    )
    done = cli("cp", f"{tmp_path}/x.txt", f"{url}/x.txt", environment=s3.environment)
    assert done.returncode == 0, done.stderr
    assert s3.told("resumed/x.txt") == {"content_type": "text/plain"}
    with s3.store("resumed") as store:
        assert store.get("x.txt") == LARGE


def test_encryption_is_asked_for(minio: S3) -> None:
    with minio.store("sse") as store:
        fill(store, sse="AES256", content_type="a/b")
        for key in ("small", "large", "empty"):
            assert minio.head(f"sse/{key}")["ServerSideEncryption"] == "AES256"
        assert dict(store.head("small").settings or {})["sse"] == "AES256"
        fill(store, sse="aws:kms", sse_kms_key_id="headrace-key")
        for key in ("small", "large"):
            head = minio.head(f"sse/{key}")
            assert head["ServerSideEncryption"] == "aws:kms"
            assert head["SSEKMSKeyId"].endswith("headrace-key")
        with pytest.raises(hr.HeadraceError):  # a key that is not there
            store.put("none", SMALL, sse="aws:kms", sse_kms_key_id="no-such-key")
        assert not store.exists("none")
        copied = store.copy("small", "plain")
        assert "sse" not in dict(copied.settings or {}), "encryption is the target's"
    with pytest.raises(hr.InvalidArgumentError, match="sse_kms_key_id needs sse"):
        minio.store("sse", settings={"sse_kms_key_id": "headrace-key"}).__enter__()


def test_storage_classes_are_asked_for(minio: S3) -> None:
    with minio.store("class") as store:
        fill(store, storage_class="REDUCED_REDUNDANCY", metadata={"a": "1"})
        for key in ("small", "large"):
            assert minio.head(f"class/{key}")["StorageClass"] == "REDUCED_REDUNDANCY"
        with pytest.raises(hr.HeadraceError, match="class"):
            store.put("x", SMALL, storage_class="NO_SUCH_CLASS")
        copied = store.copy("small", "copy", storage_class="REDUCED_REDUNDANCY")
        assert copied.settings == {
            "storage_class": "REDUCED_REDUNDANCY",
            "content_type": "binary/octet-stream",
            "metadata": {"a": "1"},
        }


def test_a_version_can_be_read_copied_and_deleted(s3: S3, tmp_path: Path) -> None:
    bucket = f"versions-{uuid.uuid4().hex[:8]}"
    s3.client.create_bucket(Bucket=bucket)
    s3.client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    with (
        hr.Store(f"s3://{bucket}", **s3.options) as store,
        hr.Store("memory://versions") as memory,
    ):
        store.put("small", b"first", content_type="a/first")
        first = store.head("small").version_id
        store.put("small", b"second version", content_type="a/second")
        second = store.head("small").version_id
        assert first != second
        assert store.head("small", version_id=first).size == 5
        assert store.get("small", version_id=first) == b"first"
        assert store.get("small") == b"second version"
        assert store.get_range("small", 1, 3, version_id=first) == b"irs"
        assert written(store.copy("small", "old", version_id=first)) == {"content_type": "a/first"}
        assert store.get("old") == b"first"
        assert written(store.copy("small", "older", version_id=first, cache_control="no-store")) == {
            "content_type": "a/first",
            "cache_control": "no-store",
        }
        copy(store, memory, version_id=first)
        assert memory.get("small") == b"first"
        assert written(memory.head("small")) == {"content_type": "a/first"}
        environment = s3.environment
        done = cli(
            "cp", f"s3://{bucket}/small", f"{tmp_path}/x", "--version-id", first, environment=environment
        )
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "x").read_bytes() == b"first"
        done = cli("cp", f"s3://{bucket}/small", "-", "--version-id", first, environment=environment)
        assert done.stdout == "first", done.stderr
        done = cli(
            "cp", f"s3://{bucket}/small", f"{tmp_path}/y", "--version-id", "x", environment=environment
        )
        assert done.returncode != 0
        store.delete("small")
        assert not store.exists("small")
        assert store.get("small", version_id=first) == b"first", "deleting keeps versions"
        store.delete("small", version_id=first)
        with pytest.raises(hr.HeadraceError):
            store.get("small", version_id=first)
        # Large: parts of one version.
        store.put("large", LARGE)
        large = store.head("large").version_id
        store.put("large", b"short")
        assert store.get("large", version_id=large) == LARGE


# --- Azure ---


@pytest.fixture
def azure(monkeypatch: pytest.MonkeyPatch) -> Any:
    """(URL, options, container client of azure-storage-blob)"""
    blob = pytest.importorskip("azure.storage.blob")
    make_container()
    account, container = server("AZURE_ACCOUNT"), server("AZURE_CONTAINER")
    monkeypatch.setenv("AZURE_STORAGE_KEY", server("AZURE_KEY"))
    client = blob.ContainerClient(server("AZURE_ENDPOINT"), container, credential=server("AZURE_KEY"))
    root = f"settings-{uuid.uuid4().hex[:8]}"
    options = {"endpoint": server("AZURE_ENDPOINT")}
    return f"az://{account}/{container}/{root}", options, lambda key: client.get_blob_client(f"{root}/{key}")


def told_by_azure(properties: Any) -> dict[str, Any]:
    names = ("content_type", "content_encoding", "content_language", "content_disposition", "cache_control")
    told = {name: getattr(properties.content_settings, name) for name in names}
    return {name: value for name, value in {**told, "metadata": properties.metadata}.items() if value}


def test_azures_client_reads_what_we_wrote(azure: Any) -> None:
    url, options, client = azure
    with hr.Store(url, **options) as store:
        fill(store, **COMMON, storage_class="Cool")
        for key in ("small", "large", "empty"):
            properties = client(key).get_blob_properties()
            assert told_by_azure(properties) == COMMON, key
            assert properties.blob_tier == "Cool"
            assert written(store.head(key)) == COMMON
        metadata = {"a1": "x", "a_b": "y", "ab": "z", "_c": "w"}  # an order of Azure's own is signed
        store.put("order", b"", metadata=metadata)
        assert client("order").get_blob_properties().metadata == metadata
        with pytest.raises(hr.InvalidArgumentError, match="letters, digits and underscores"):
            store.put("x", b"", metadata={"a-b": "1"})
        with pytest.raises(hr.UnsupportedError, match="sse"):
            store.put("x", b"", sse="AES256")


def test_azure_copies_keep_and_replace_them(azure: Any) -> None:
    url, options, client = azure
    with hr.Store(url + "/from", **options) as store, hr.Store(url + "/to", **options) as target:
        fill(store, **COMMON)
        store.copy("small", "copy")
        assert told_by_azure(client("from/copy").get_blob_properties()) == COMMON
        store.copy("small", "own", content_type="own/type", metadata={"a": "1"})
        expected = {**COMMON, "content_type": "own/type", "metadata": {"a": "1"}}
        assert told_by_azure(client("from/own").get_blob_properties()) == expected
        copy(store, target)
        for key in ("small", "large", "empty"):
            assert told_by_azure(client(f"to/{key}").get_blob_properties()) == COMMON, key


def test_copies_between_vendors_keep_what_both_have(azure: Any, caplog: pytest.LogCaptureFixture) -> None:
    url, options, client = azure
    s3 = S3("S3_ENDPOINT")
    with s3.store("vendors") as source, hr.Store(url, **options) as target, s3.store("back") as back:
        fill(source, **COMMON)
        copy(source, target)
        copy(target, back)
        for key in ("small", "large", "empty"):
            assert told_by_azure(client(key).get_blob_properties()) == COMMON, key
            assert s3.told(f"back/{key}") == COMMON, key
    with s3.store("hyphen") as source, hr.Store(url + "/hyphen", **options) as target:
        source.put("x", b"1", metadata={"a-b": "1", "c": "2"})
        copy(source, target)
        assert target.head("x").settings is not None
        assert dict(target.head("x").settings or {})["metadata"] == {"c": "2"}


# --- Google ---


def test_googles_client_reads_what_we_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    """By an emulator, which is spoken to in another language than Google: type and encoding only."""
    storage = pytest.importorskip("google.cloud.storage")
    from google.auth.credentials import AnonymousCredentials

    endpoint, bucket = server("GCS_ENDPOINT"), server("GCS_BUCKET")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", endpoint)
    root = f"settings-{uuid.uuid4().hex[:8]}"
    client = storage.Client(project="p", credentials=AnonymousCredentials()).bucket(bucket)
    own = {"content_type": "text/x-headrace", "content_encoding": "zstd"}
    with (
        hr.Store(f"gs://{bucket}/{root}") as store,
        hr.Store("memory://gcs") as memory,
        hr.Store(f"gs://{bucket}/{root}-to") as target,
    ):
        fill(store, **own)
        for key in ("small", "large", "empty"):
            blob = client.get_blob(f"{root}/{key}")
            assert (blob.content_type, blob.content_encoding) == tuple(own.values()), key
        with pytest.raises(hr.UnsupportedError, match="metadata"):
            store.put("x", b"", metadata={"a": "1"})
        blob = client.blob(f"{root}/small")
        blob.metadata = {"run": "17"}
        blob.upload_from_string(SMALL, content_type="text/csv")
        assert written(store.head("small")) == {"content_type": "text/csv", "metadata": {"run": "17"}}
        copy(store, memory)
        assert written(memory.head("small")) == {"content_type": "text/csv", "metadata": {"run": "17"}}
        copy(store, target)
        assert written(target.head("small")) == {"content_type": "text/csv"}
