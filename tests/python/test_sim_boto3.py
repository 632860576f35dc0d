"""The AWS client against the simulator: what boto3 sends by itself (checksums, aws-chunked bodies, multipart)
must be understood."""

from __future__ import annotations

import io
import json
import os
import ssl
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import sim

boto3 = pytest.importorskip("boto3")
botocore_config = pytest.importorskip("botocore.config")
botocore_exceptions = pytest.importorskip("botocore.exceptions")
transfer = pytest.importorskip("boto3.s3.transfer")

ODD_KEYS = [
    "a",
    "a/b",
    "a/b/c",
    "x//y",
    "t/",
    "..",
    "../e",
    "s p a c e",
    "p%20q",
    "+=?&#",
    "ünïcode/ключ",
    "k" * 300,
    ".hidden/x",
    "new\nline",
    "q'\"<>&",
]
PARTS = transfer.TransferConfig(multipart_threshold=8 << 20, multipart_chunksize=8 << 20)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[sim.Server]:
    (tmp_path / "served" / "bkt").mkdir(parents=True)
    with sim.Server(tmp_path / "served", threads=2) as started:
        yield started


def make_client(server: sim.Server, **overrides: str) -> Any:
    settings = {
        "aws_access_key_id": server.access_key,
        "aws_secret_access_key": server.secret_key,
        "region_name": server.region,
    } | overrides
    config = botocore_config.Config(
        signature_version="s3v4", retries={"max_attempts": 1}, s3={"addressing_style": "path"}
    )
    return boto3.client("s3", endpoint_url=server.endpoint, config=config, **settings)


@pytest.fixture
def client(server: sim.Server) -> Any:
    return make_client(server)


def error_code(call: Callable[[], Any]) -> str:
    with pytest.raises(botocore_exceptions.ClientError) as caught:
        call()
    return str(caught.value.response["Error"]["Code"])


def test_odd_keys_round_trip_and_list_in_order(client: Any) -> None:
    for key in ODD_KEYS:
        put = client.put_object(Bucket="bkt", Key=key, Body=key.encode())
        assert client.head_object(Bucket="bkt", Key=key)["ETag"] == put["ETag"]
    for key in ODD_KEYS:
        assert client.get_object(Bucket="bkt", Key=key)["Body"].read() == key.encode()
    in_order = sorted(ODD_KEYS, key=str.encode)
    for operation in ("list_objects", "list_objects_v2"):
        for size in (1, 3, 1000):
            pages = client.get_paginator(operation).paginate(
                Bucket="bkt", PaginationConfig={"PageSize": size}
            )
            assert [item["Key"] for page in pages for item in page.get("Contents", [])] == in_order
            pages = list(
                client.get_paginator(operation).paginate(
                    Bucket="bkt", Delimiter="/", PaginationConfig={"PageSize": size}
                )
            )
            prefixes = [item["Prefix"] for page in pages for item in page.get("CommonPrefixes", [])]
            assert prefixes == sorted(
                {key[: key.index("/") + 1] for key in ODD_KEYS if "/" in key}, key=str.encode
            )
    deleted = client.delete_objects(Bucket="bkt", Delete={"Objects": [{"Key": key} for key in ODD_KEYS]})[
        "Deleted"
    ]
    assert len(deleted) == len(ODD_KEYS)
    assert client.list_objects_v2(Bucket="bkt")["KeyCount"] == 0


def test_transfers_by_parts(client: Any, tmp_path: Path) -> None:
    data = os.urandom(20_000_001)
    (tmp_path / "up").write_bytes(data)
    client.upload_file(str(tmp_path / "up"), "bkt", "big", Config=PARTS)
    assert client.head_object(Bucket="bkt", Key="big")["ETag"].endswith('-3"')
    client.download_file("bkt", "big", str(tmp_path / "down"))
    assert (tmp_path / "down").read_bytes() == data
    client.copy_object(Bucket="bkt", Key="cöpy", CopySource={"Bucket": "bkt", "Key": "big"})
    client.copy({"Bucket": "bkt", "Key": "big"}, "bkt", "copy by parts", Config=PARTS)
    for key in ("cöpy", "copy by parts"):
        assert client.get_object(Bucket="bkt", Key=key)["Body"].read() == data
    client.upload_fileobj(io.BytesIO(b"small"), "bkt", "small")
    assert client.get_object(Bucket="bkt", Key="small", Range="bytes=1-3")["Body"].read() == b"mal"


@pytest.mark.parametrize("algorithm", ["CRC32", "SHA1", "SHA256"])
def test_checksums(client: Any, algorithm: str) -> None:
    client.put_object(Bucket="bkt", Key="k", Body=b"hello" * 1000, ChecksumAlgorithm=algorithm)
    wrong = {"CRC32": "AAAAAA==", "SHA1": "A" * 27 + "=", "SHA256": "A" * 43 + "="}[algorithm]
    assert (
        error_code(
            lambda: client.put_object(Bucket="bkt", Key="k", Body=b"x", **{f"Checksum{algorithm}": wrong})
        )
        == "BadDigest"
    )


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME", "SHA256"])
def test_checksums_are_stored(client: Any, algorithm: str) -> None:
    if algorithm in ("CRC32C", "CRC64NVME"):
        pytest.importorskip("awscrt")
    put = client.put_object(Bucket="bkt", Key="k", Body=b"hello" * 1000, ChecksumAlgorithm=algorithm)
    got = client.get_object(Bucket="bkt", Key="k", ChecksumMode="ENABLED")
    assert got[f"Checksum{algorithm}"] == put[f"Checksum{algorithm}"]
    assert got["Body"].read() == b"hello" * 1000  # botocore compares


def test_uploads_by_parts_are_listed(client: Any) -> None:
    part = b"p" * (5 << 20)
    upload = client.create_multipart_upload(Bucket="bkt", Key="k", ChecksumAlgorithm="CRC32")["UploadId"]
    other = client.create_multipart_upload(Bucket="bkt", Key="ü")["UploadId"]
    listed = client.list_multipart_uploads(Bucket="bkt")["Uploads"]
    assert [(item["Key"], item["UploadId"]) for item in listed] == [("k", upload), ("ü", other)]
    client.abort_multipart_upload(Bucket="bkt", Key="ü", UploadId=other)
    for number in (1, 2, 3):
        client.upload_part(
            Bucket="bkt", Key="k", UploadId=upload, PartNumber=number, Body=part, ChecksumAlgorithm="CRC32"
        )
    pages = client.get_paginator("list_parts").paginate(
        Bucket="bkt", Key="k", UploadId=upload, PaginationConfig={"PageSize": 2}
    )
    parts = [item for page in pages for item in page["Parts"]]
    assert [item["PartNumber"] for item in parts] == [1, 2, 3]
    keep = [{name: item[name] for name in ("PartNumber", "ETag", "ChecksumCRC32")} for item in parts]
    done = client.complete_multipart_upload(
        Bucket="bkt", Key="k", UploadId=upload, MultipartUpload={"Parts": keep}
    )
    assert done["ChecksumCRC32"].endswith("-3")
    second = client.get_object(Bucket="bkt", Key="k", PartNumber=2)
    assert second["PartsCount"] == 3
    assert second["Body"].read() == part
    assert "Uploads" not in client.list_multipart_uploads(Bucket="bkt")


def test_many_objects_are_deleted_at_once(client: Any) -> None:
    for key in ODD_KEYS:
        client.put_object(Bucket="bkt", Key=key, Body=b"")
    answer = client.delete_objects(
        Bucket="bkt",
        Delete={"Objects": [{"Key": key} for key in [*ODD_KEYS, "not there"] if key != "new\nline"]},
    )
    assert "Errors" not in answer
    assert len(answer["Deleted"]) == len(ODD_KEYS)
    assert [item["Key"] for item in client.list_objects_v2(Bucket="bkt")["Contents"]] == ["new\nline"]


def test_a_changed_object_fails_if_match(server: sim.Server, client: Any) -> None:
    etag = client.put_object(Bucket="bkt", Key="k", Body=b"1")["ETag"]
    server.touch("bkt", "k")
    assert error_code(lambda: client.get_object(Bucket="bkt", Key="k", IfMatch=etag)) == "PreconditionFailed"


def test_faults_are_set_while_it_runs(server: sim.Server, client: Any) -> None:
    client.put_object(Bucket="bkt", Key="k", Body=b"1")
    server.set_behaviour(throttle_rate=1)
    assert error_code(lambda: client.get_object(Bucket="bkt", Key="k")) == "SlowDown"
    server.set_behaviour(throttle_rate=0)
    assert client.get_object(Bucket="bkt", Key="k")["Body"].read() == b"1"


def test_https(tmp_path: Path) -> None:
    (tmp_path / "bkt").mkdir()
    with sim.Server(tmp_path, tls=True, addresses=2) as server:
        config = botocore_config.Config(
            signature_version="s3v4", retries={"max_attempts": 1}, s3={"addressing_style": "path"}
        )
        keys = {
            "aws_access_key_id": server.access_key,
            "aws_secret_access_key": server.secret_key,
            "region_name": server.region,
        }
        for address in server.addresses:
            client = boto3.client(
                "s3", endpoint_url=f"https://{address}", config=config, verify=server.ca_path, **keys
            )
            client.put_object(Bucket="bkt", Key="k", Body=b"secret" * 100_000)
            assert client.get_object(Bucket="bkt", Key="k")["Body"].read() == b"secret" * 100_000


def test_certificates_of_killed_servers_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (temporary := tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    (served := tmp_path / "served").mkdir()
    killed = subprocess.Popen(
        [sys.executable, "-m", "headrace.cli", "sim", str(served), "--tls", "--json"],
        stdout=subprocess.PIPE,
    )
    assert killed.stdout is not None
    of_killed = Path(json.loads(killed.stdout.readline())["environment"]["AWS_CA_BUNDLE"])
    with sim.Server(served, tls=True) as server:
        assert of_killed.exists()  # its server lives
        killed.kill()
        killed.communicate()
        with sim.Server(served, tls=True):
            assert not of_killed.exists()
            assert Path(server.ca_path).exists()


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_of_behaviours_are_finite(server: sim.Server, tmp_path: Path, number: float) -> None:
    for call in (
        lambda: sim.Server(tmp_path, behaviour={"throttle_rate": number}),
        lambda: server.set_behaviour(throttle_rate=number),
    ):
        with pytest.raises(hr.InvalidArgumentError, match=f"throttle_rate must be a finite .* {number}"):
            call()


def test_pages_go_on_behind_a_folders_placeholder(client: Any) -> None:
    keys = ["dir/", "dir/a", "dir/b"]
    for key in keys:
        client.put_object(Bucket="bkt", Key=key)
    for name, items in (("list_objects", "Contents"), ("list_object_versions", "Versions")):
        pages = client.get_paginator(name).paginate(
            Bucket="bkt", Prefix="dir/", Delimiter="/", PaginationConfig={"PageSize": 1}
        )
        assert [item["Key"] for page in pages for item in page.get(items, [])] == keys


def test_conditions(client: Any) -> None:
    client.put_object(Bucket="bkt", Key="k", Body=b"1", IfNoneMatch="*")
    assert (
        error_code(lambda: client.put_object(Bucket="bkt", Key="k", Body=b"2", IfNoneMatch="*"))
        == "PreconditionFailed"
    )
    etag = client.head_object(Bucket="bkt", Key="k")["ETag"]
    client.put_object(Bucket="bkt", Key="k", Body=b"3", IfMatch=etag)
    assert error_code(lambda: client.get_object(Bucket="bkt", Key="k", IfMatch=etag)) == "PreconditionFailed"
    assert error_code(lambda: client.get_object(Bucket="bkt", Key="k", Range="bytes=1-")) == "InvalidRange"


def test_presigned_urls(client: Any) -> None:
    put = client.generate_presigned_url("put_object", Params={"Bucket": "bkt", "Key": "k"}, ExpiresIn=60)
    urllib.request.urlopen(urllib.request.Request(put, data=b"presigned", method="PUT")).close()
    get = client.generate_presigned_url("get_object", Params={"Bucket": "bkt", "Key": "k"}, ExpiresIn=60)
    with urllib.request.urlopen(get) as response:
        assert response.read() == b"presigned"
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(get.replace("/k?", "/other?"))


def test_wrong_credentials(server: sim.Server) -> None:
    assert error_code(make_client(server, aws_secret_access_key="x").list_buckets) == "SignatureDoesNotMatch"
    assert error_code(make_client(server, aws_access_key_id="x").list_buckets) == "InvalidAccessKeyId"


def test_buckets(client: Any) -> None:
    client.create_bucket(Bucket="new")
    assert [bucket["Name"] for bucket in client.list_buckets()["Buckets"]] == ["bkt", "new"]
    assert client.get_bucket_location(Bucket="new")["LocationConstraint"] is None
    client.put_object(Bucket="new", Key="k", Body=b"")
    assert error_code(lambda: client.delete_bucket(Bucket="new")) == "BucketNotEmpty"
    client.delete_object(Bucket="new", Key="k")
    client.delete_bucket(Bucket="new")
    assert error_code(lambda: client.list_objects_v2(Bucket="new")) == "NoSuchBucket"
    assert (
        error_code(lambda: client.put_object_tagging(Bucket="bkt", Key="k", Tagging={"TagSet": []}))
        == "NotImplemented"
    )


@pytest.mark.parametrize("tls", [True, False])  # a certificate says it, too
def test_an_own_certificate_is_shown(tmp_path: Path, tls: bool) -> None:
    certificate, key = tmp_path / "own.pem", tmp_path / "own.key"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=own", "-days", "2"),
            *("-out", certificate, "-keyout", key),
        ],
        check=True,
        capture_output=True,
    )
    (tmp_path / "served" / "bkt").mkdir(parents=True)
    with sim.Server(tmp_path / "served", tls=tls, certificate=certificate, private_key=key) as server:
        url = urllib.parse.urlsplit(server.endpoint)
        shown = ssl.get_server_certificate((str(url.hostname), int(url.port or 0)))
    assert ssl.PEM_cert_to_DER_cert(shown) == ssl.PEM_cert_to_DER_cert(certificate.read_text())


@pytest.mark.parametrize("kind", ["crc32c", "crc64nvme", "none"])
def test_uploads_of_headrace_have_the_checksum_that_is_asked_for(
    kind: str, server: sim.Server, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    with hr.Store("s3://bkt", upload_checksum=kind) as store:
        store.put("k", b"hello")
    head = client.head_object(Bucket="bkt", Key="k", ChecksumMode="ENABLED")
    assert ("ChecksumCRC32C" in head) == (kind == "crc32c")
    assert ("ChecksumCRC64NVME" in head) == (kind == "crc64nvme")
    with pytest.raises(hr.InvalidArgumentError, match=r"upload_checksum=.md5"):
        hr.Store("s3://bkt", upload_checksum="md5")
