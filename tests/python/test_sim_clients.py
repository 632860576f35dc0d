"""Other people's S3 clients against the simulator, as their users call them: upload, list, read back,
compare, delete."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import sim

CACHE = Path(os.environ.get("HEADRACE_CACHE", Path.home() / ".cache" / "headrace"))
CLIENTS = CACHE / "clients" / "bin"  # a venv of their own: tools/setup
RCLONE = CACHE / "bin" / "rclone"
NAMES = ["a.txt", "dir/b.bin", "dir/empty", "dir/deep/er/c", "names/ö ü+&.txt", "names/100%.txt", "big.bin"]

needs_clients = pytest.mark.skipif(
    not CLIENTS.exists(), reason="tools/setup test makes the venv of these clients"
)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[sim.Server]:
    (tmp_path / "served" / "bkt").mkdir(parents=True)
    with sim.Server(tmp_path / "served", threads=2) as started:
        for name, value in started.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", started.endpoint)
        monkeypatch.setenv("S3_ENDPOINT_URL", started.endpoint)
        monkeypatch.setenv("HOME", str(tmp_path))
        yield started


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Files of all sorts, one of them large enough to be sent in parts. Old: S3 tells whole seconds, so that
    clients take a file of the same second for newer than its copy."""
    random_bytes = random.Random(7)
    for name in NAMES:
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        size = {"big.bin": 11_000_001, "dir/empty": 0}.get(name, 1000 + len(name))
        path.write_bytes(random_bytes.randbytes(size))
        os.utime(path, (1_700_000_000, 1_700_000_000))
    return tmp_path / "tree"


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def run(*command: str | Path, directory: Path | None = None) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-1000:]}{done.stderr[-3000:]}"
    return done.stdout + done.stderr


def writes(server: sim.Server) -> int:
    """Objects written so far."""
    requests: dict[str, dict[str, int]] = server.stats()["requests"]
    return sum(
        sum(requests.get(kind, {}).values()) for kind in ("put_object", "complete_upload", "copy_object")
    )


def served(server: sim.Server, tmp_path: Path) -> list[str]:
    """What lies in the bucket's folder: the client deleted it, or not."""
    return [name for name in contents(tmp_path / "served" / "bkt") if not name.startswith(".")]


@needs_clients
def test_aws_cli(server: sim.Server, tree: Path, tmp_path: Path) -> None:
    aws = CLIENTS / "aws"
    run(aws, "s3", "sync", tree, "s3://bkt/p")
    assert sorted(served(server, tmp_path)) == sorted(f"p/{name}" for name in NAMES)
    before = writes(server)
    assert run(aws, "s3", "sync", tree, "s3://bkt/p") == ""
    assert writes(server) == before
    listed = json.loads(run(aws, "s3api", "list-objects-v2", "--bucket", "bkt", "--prefix", "p/"))
    assert sorted(item["Key"] for item in listed["Contents"]) == sorted(f"p/{name}" for name in NAMES)
    run(aws, "s3", "sync", "s3://bkt/p", tmp_path / "down")
    assert contents(tmp_path / "down") == contents(tree)
    run(aws, "s3", "rm", "--recursive", "s3://bkt/p")
    assert served(server, tmp_path) == []


@needs_clients
def test_s5cmd(server: sim.Server, tree: Path, tmp_path: Path) -> None:
    s5cmd = [CLIENTS / "s5cmd", "--endpoint-url", server.endpoint]
    run(*s5cmd, "cp", "--part-size", "5", f"{tree}/", "s3://bkt/p/")
    listed = run(*s5cmd, "ls", "--show-fullpath", "s3://bkt/p/*")
    assert sorted(listed.splitlines()) == sorted(f"s3://bkt/p/{name}" for name in NAMES)
    before = writes(server)
    assert run(*s5cmd, "sync", "--size-only", f"{tree}/", "s3://bkt/p/") == ""
    assert writes(server) == before
    run(*s5cmd, "cp", "s3://bkt/p/*", f"{tmp_path}/down/")
    assert contents(tmp_path / "down") == contents(tree)
    run(*s5cmd, "rm", "s3://bkt/p/*")
    assert served(server, tmp_path) == []


@pytest.mark.skipif(not RCLONE.exists(), reason="tools/setup slow builds rclone")
def test_rclone(server: sim.Server, tree: Path, tmp_path: Path) -> None:
    remote = f":s3,provider=Other,env_auth=true,endpoint='{server.endpoint}',region=us-east-1,force_path_style=true,upload_cutoff=6M:bkt/p"  # noqa: E501
    rclone = [RCLONE, "--config", tmp_path / "none", "--stats-one-line", "-v"]
    shutil.copytree(
        tree, tmp_path / "served" / "bkt" / "laid"
    )  # files that no client put: their ETags are no MD5s
    run(*rclone, "sync", tree, remote)
    assert sorted(served(server, tmp_path)) == sorted(
        [f"p/{name}" for name in NAMES] + [f"laid/{name}" for name in NAMES]
    )
    before = writes(server)
    assert "There was nothing to transfer" in run(*rclone, "sync", tree, remote)
    assert "There was nothing to transfer" in run(*rclone, "sync", "--checksum", tree, remote)
    assert writes(server) == before
    run(*rclone, "check", "--download", tree, remote)
    for source in ("p", "laid"):
        run(*rclone, "copy", remote.removesuffix("p") + source, tmp_path / source)
        assert contents(tmp_path / source) == contents(tree)
    run(*rclone, "delete", remote)
    assert sorted(served(server, tmp_path)) == sorted(f"laid/{name}" for name in NAMES)


S3FS = """
import os, sys
import s3fs
tree, down, names = sys.argv[1], sys.argv[2], sys.argv[3:]
fs = s3fs.S3FileSystem(endpoint_url=os.environ["AWS_ENDPOINT_URL"])
for name in names:
    fs.put(os.path.join(tree, name), f"bkt/p/{name}", chunksize=5 << 20)
assert sorted(fs.find("bkt/p")) == sorted(f"bkt/p/{name}" for name in names), fs.find("bkt/p")
assert fs.info("bkt/p/big.bin")["size"] == 11_000_001
with fs.open("bkt/p/streamed", "wb", block_size=5 << 20, Metadata={"who": "me"}) as out:
    for _ in range(12):
        out.write(bytes(1 << 20))
assert fs.info("bkt/p/streamed", refresh=True)["size"] == 12 << 20
assert fs.metadata("bkt/p/streamed") == {"who": "me"}
assert fs.cat_file("bkt/p/big.bin", start=10, end=20) == open(os.path.join(tree, "big.bin"), "rb").read()[10:20]
fs.copy("bkt/p/a.txt", "bkt/p/copied")
fs.rm(["bkt/p/streamed", "bkt/p/copied"])
for name in names:
    os.makedirs(os.path.dirname(os.path.join(down, name)), exist_ok=True)
    fs.get_file(f"bkt/p/{name}", os.path.join(down, name))
fs.rm("bkt/p", recursive=True)
assert fs.find("bkt") == []
"""  # noqa: E501


@needs_clients
def test_s3fs(server: sim.Server, tree: Path, tmp_path: Path) -> None:
    run(CLIENTS / "python", "-c", S3FS, tree, tmp_path / "down", *NAMES)
    assert contents(tmp_path / "down") == contents(tree)
    assert served(server, tmp_path) == []


def test_boto3(server: sim.Server, tree: Path, tmp_path: Path) -> None:
    boto3 = pytest.importorskip("boto3")
    bucket = boto3.resource("s3").Bucket("bkt")
    for name in NAMES:
        bucket.upload_file(
            str(tree / name),
            f"p/{name}",
            ExtraArgs={"Metadata": {"length": str(len(name))}, "ContentType": "text/x"},
        )
        head = bucket.Object(f"p/{name}")
        assert (head.metadata, head.content_type) == ({"length": str(len(name))}, "text/x")
        if name != "big.bin":
            assert head.e_tag == f'"{hashlib.md5((tree / name).read_bytes()).hexdigest()}"'
    assert sorted(item.key for item in bucket.objects.filter(Prefix="p/")) == sorted(
        f"p/{name}" for name in NAMES
    )
    for name in NAMES:
        (tmp_path / "down" / name).parent.mkdir(parents=True, exist_ok=True)
        bucket.download_file(f"p/{name}", str(tmp_path / "down" / name))
    assert contents(tmp_path / "down") == contents(tree)
    assert [item.id for item in bucket.object_versions.filter(Prefix="p/a")] == ["null"]
    bucket.object_versions.delete()
    assert served(server, tmp_path) == []


def test_obstore(server: sim.Server, tree: Path, tmp_path: Path) -> None:
    obstore = pytest.importorskip("obstore")
    store = obstore.store.S3Store("bkt", endpoint=server.endpoint, client_options={"allow_http": True})
    for name in NAMES:
        obstore.put(
            store,
            f"p/{name}",
            tree / name,
            chunk_size=5 << 20,
            attributes={"Content-Type": "text/x", "who": "me"},
        )
    assert sorted(item["path"] for page in obstore.list(store, "p") for item in page) == sorted(
        f"p/{name}" for name in NAMES
    )
    for name in NAMES:
        answer = obstore.get(store, f"p/{name}")
        assert answer.attributes == {"Content-Type": "text/x", "who": "me"}
        assert bytes(answer.bytes()) == (tree / name).read_bytes()
    assert (
        bytes(obstore.get_range(store, "p/big.bin", start=5, end=25)) == (tree / "big.bin").read_bytes()[5:25]
    )
    with pytest.raises(obstore.exceptions.AlreadyExistsError):
        obstore.put(store, "p/a.txt", b"x", mode="create")
    e_tag = obstore.head(store, "p/a.txt")["e_tag"]
    obstore.put(store, "p/a.txt", b"y", mode={"e_tag": e_tag})
    obstore.copy(store, "p/a.txt", "p/copy")
    obstore.delete(store, ["p/copy", *(f"p/{name}" for name in NAMES)])
    assert served(server, tmp_path) == []


def test_pyarrow(server: sim.Server, tree: Path, tmp_path: Path) -> None:
    fs = pytest.importorskip("pyarrow.fs")
    s3 = fs.S3FileSystem(
        endpoint_override=server.endpoint.removeprefix("http://"),
        scheme="http",
        region="us-east-1",
        background_writes=False,
    )
    for name in NAMES:
        with s3.open_output_stream(f"bkt/p/{name}", metadata={"Content-Type": "text/x", "who": "me"}) as out:
            out.write((tree / name).read_bytes())
    found = s3.get_file_info(fs.FileSelector("bkt/p", recursive=True))
    assert sorted(item.path for item in found if item.is_file) == sorted(f"bkt/p/{name}" for name in NAMES)
    for name in NAMES:
        with s3.open_input_file(f"bkt/p/{name}") as file:
            assert file.metadata()["Content-Type"] == b"text/x"
            assert file.read() == (tree / name).read_bytes()
    s3.copy_file("bkt/p/a.txt", "bkt/p/copy")
    s3.delete_dir("bkt/p")
    assert served(server, tmp_path) == []


def test_litdata(server: sim.Server, tmp_path: Path) -> None:
    litdata = pytest.importorskip("litdata")
    boto3 = pytest.importorskip("boto3")
    from litdata.streaming.writer import BinaryWriter

    writer = BinaryWriter(cache_dir=str(tmp_path / "written"), chunk_bytes=20_000)
    for i in range(50):
        writer.add_item(i, {"index": i, "array": np.full(300, i, np.int64)})
    writer.done()
    writer.merge()
    bucket = boto3.resource("s3").Bucket("bkt")
    for path in (tmp_path / "written").iterdir():
        bucket.upload_file(str(path), f"ds/{path.name}")
    options = {
        "endpoint_url": server.endpoint,
        "aws_access_key_id": server.access_key,
        "aws_secret_access_key": server.secret_key,
    }
    dataset = litdata.StreamingDataset(
        "s3://bkt/ds", cache_dir=str(tmp_path / "cache"), storage_options=options
    )
    samples = [dataset[i] for i in range(len(dataset))]
    assert [sample["index"] for sample in samples] == list(range(50))
    assert all((np.asarray(sample["array"]) == sample["index"]).all() for sample in samples)
    assert served(server, tmp_path)


def test_mosaicml_streaming(server: sim.Server, tmp_path: Path) -> None:
    streaming = pytest.importorskip("streaming")
    columns = {"i": "int", "x": "ndarray:int64:300"}
    with streaming.MDSWriter(
        out="s3://bkt/mds", columns=columns, hashes=["sha1"], compression="zstd", size_limit=20_000
    ) as out:
        for i in range(50):
            out.write({"i": i, "x": np.full(300, i)})
    assert "mds/index.json" in served(server, tmp_path)
    dataset = streaming.StreamingDataset(
        remote="s3://bkt/mds", local=str(tmp_path / "local"), validate_hash="sha1", batch_size=1
    )
    assert [dataset[i]["i"] for i in range(len(dataset))] == list(range(50))
    assert all((dataset[i]["x"] == i).all() for i in range(50))


def test_presigned_forms(server: sim.Server, tmp_path: Path) -> None:
    boto3 = pytest.importorskip("boto3")
    requests = pytest.importorskip("requests")
    config = pytest.importorskip("botocore.config").Config
    for version in ("s3", "s3v4"):
        client: Any = boto3.client("s3", config=config(signature_version=version))
        fields = {"Content-Type": "text/plain", "x-amz-meta-who": "me"}
        conditions = [
            {"Content-Type": "text/plain"},
            {"x-amz-meta-who": "me"},
            ["content-length-range", 1, 10],
        ]
        post = client.generate_presigned_post("bkt", "form/${filename}", Fields=fields, Conditions=conditions)
        sent = requests.post(
            post["url"], data=post["fields"], files={"file": ("n.txt", b"hello")}, timeout=60
        )
        assert sent.status_code == 204, sent.text
        head = boto3.client("s3").head_object(Bucket="bkt", Key="form/n.txt")
        assert (head["ContentType"], head["Metadata"]) == ("text/plain", {"who": "me"})
        for change, body, status in [
            ({"x-amz-meta-who": "you"}, b"hello", 403),
            ({"x-amz-meta-more": "1"}, b"hello", 403),
            ({"key": "other"}, b"hello", 403),
            ({"policy": post["fields"]["policy"][:-4] + "AAAA"}, b"hello", 403),
            ({}, b"", 400),
            ({}, b"x" * 11, 400),
        ]:
            sent = requests.post(
                post["url"], data=post["fields"] | change, files={"file": ("m.txt", body)}, timeout=60
            )
            assert sent.status_code == status, (change, sent.text)
    assert served(server, tmp_path) == ["form/n.txt"]
