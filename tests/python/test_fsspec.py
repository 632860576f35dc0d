"""fsspec's own tests of a file system, over the simulator, real servers and local files."""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fsspec")
from fsspec.tests import abstract
from real_servers import make_container, server

import headrace as hr
from headrace import sim as simulator


class FsspecSuite(
    abstract.AbstractCopyTests,
    abstract.AbstractGetTests,
    abstract.AbstractPutTests,
    abstract.AbstractOpenTests,
    abstract.AbstractPipeTests,
    abstract.AbstractFixtures,
):
    @pytest.fixture
    def fs_join(self) -> Any:
        return posixpath.join

    @pytest.fixture
    def fs_path(self) -> str:
        return "b/inside"

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return False


class SmallerSuite(FsspecSuite):
    """Without the hundred tests of glob, which are about names and not about the server, and slow there."""

    test_copy_glob_edge_cases = None
    test_get_glob_edge_cases = None
    test_put_glob_edge_cases = None


class TestSimulator(FsspecSuite):
    @pytest.fixture
    def fs(self, s3: simulator.Server) -> Iterator[Any]:
        opened = hr.fs("s3://b", memory="32MiB", endpoint=s3.endpoint)
        yield opened
        opened.close()


class TestCached(SmallerSuite):
    @pytest.fixture
    def fs(self, s3: simulator.Server, tmp_path: Path) -> Iterator[Any]:
        opened = hr.fs("s3://b", memory="32MiB", endpoint=s3.endpoint, cache=tmp_path / "cache")
        yield opened
        opened.close()


class ServerSuite(SmallerSuite):
    bucket: tuple[str, ...]
    """Variables with the parts of its path."""

    @pytest.fixture
    def fs_path(self) -> str:
        return "/".join([*map(server, self.bucket), uuid.uuid4().hex])


class TestVersitygw(ServerSuite):
    bucket = ("S3_BUCKET",)

    @pytest.fixture
    def fs(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
        endpoint = server("S3_ENDPOINT")
        keys = {"key": server("S3_ACCESS_KEY"), "secret": server("S3_SECRET_KEY")}
        opened = hr.fs("s3://", memory="32MiB", endpoint_url=endpoint, **keys)
        yield opened
        opened.close()


class TestFakeGcsServer(ServerSuite):
    bucket = ("GCS_BUCKET",)

    @pytest.fixture
    def fs(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server("GCS_ENDPOINT"))
        opened = hr.fs("gs://", memory="32MiB", skip_instance_cache=True)
        yield opened
        opened.close()


class TestAzurite(ServerSuite):
    bucket = ("AZURE_ACCOUNT", "AZURE_CONTAINER")

    @pytest.fixture
    def fs(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
        make_container()
        monkeypatch.setenv("AZURE_STORAGE_KEY", server("AZURE_KEY"))
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", server("AZURE_ACCOUNT"))
        # The endpoint has the account in its path.
        endpoint = server("AZURE_ENDPOINT").rpartition("/")[0]
        opened = hr.fs("az://", memory="32MiB", endpoint=endpoint, skip_instance_cache=True)
        yield opened
        opened.close()


class TestLocal(FsspecSuite):
    @pytest.fixture
    def fs(self) -> Any:
        return hr.fs("/", memory="32MiB")

    @pytest.fixture
    def fs_path(self, tmp_path: Path) -> str:
        return str(tmp_path / "inside")

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return True
