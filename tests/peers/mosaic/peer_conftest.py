"""Fixtures of mosaicml-streaming's tests. Copied beside them, as conftest.py."""

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item):
    if getattr(item.cls, "is_dist_test", False):
        item.cls().run_in_processes(item._request)
        item.runtest = lambda: True


@pytest.fixture
def local_remote_dir(tmp_path):
    return str(tmp_path / "local"), str(tmp_path / "remote")


@pytest.fixture
def compressed_local_remote_dir(tmp_path):
    return str(tmp_path / "compressed"), str(tmp_path / "local"), str(tmp_path / "remote")
