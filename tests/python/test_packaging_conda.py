"""packaging/conda says what the build says: the version, and every library that CMake looks for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parents[2]
# What CMake calls a library, and conda-forge's package of it. None: it is no package there, or a tool.
PACKAGES = {
    "BZip2": "bzip2",
    "GIF": "giflib",
    "JPEG": "libjpeg-turbo",
    "LibLZMA": "liblzma-devel",
    "OpenSSL": "openssl",
    "PNG": "libpng",
    "PkgConfig": None,
    "Python": None,
    "Python3": None,
    "Snappy": "snappy",
    "TIFF": "libtiff",
    "Threads": None,
    "ZLIB": "zlib",
    "brotli": "brotli",
    "fmt": "fmt",
    "libdeflate": "libdeflate",
    "liburing": "liburing",
    "nlohmann_json": "nlohmann_json",
    "pugixml": "pugixml",
    "simdjson": "simdjson",
    "sndfile": "libsndfile",
    "webp": "libwebp-base",
    "xxhash": "xxhash",
    "zstd": "zstd",
}


@pytest.fixture(scope="module")
def recipe() -> Any:
    return yaml.safe_load((ROOT / "packaging" / "conda" / "recipe.yaml").read_text())


def output(recipe: Any, name: str) -> Any:
    return next(each for each in recipe["outputs"] if each["package"]["name"] == name)


def wanted_libraries() -> set[str]:
    """Of a build without tests."""
    files = [*(ROOT / "cmake").glob("*.cmake"), *(ROOT / "src").glob("*/CMakeLists.txt")]
    text = "\n".join(path.read_text() for path in files if path.parent.name != "bindings")
    found = set(re.findall(r"(?:find_package|pkg_check_modules)\((\w+)", text))
    return found - {"GTest", "benchmark"}


def test_version(recipe: Any) -> None:
    said = re.search(r"project\(headrace VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
    assert said is not None
    assert recipe["context"]["version"] == said[1]


@pytest.mark.parametrize("name", ["libheadrace", "headrace"])
def test_every_library_is_named(recipe: Any, name: str) -> None:
    wanted = wanted_libraries()
    assert wanted <= set(PACKAGES), "name conda-forge's package of what is new here"
    host = {word.split()[0] for word in output(recipe, name)["requirements"]["host"]}
    tools = {"python", "pip", "scikit-build-core", "nanobind"}
    assert host - tools == {PACKAGES[library] for library in wanted} - {None}


def test_what_python_needs_is_what_the_package_says(recipe: Any) -> None:
    said = re.search(r"^dependencies = \[(.*)\]", (ROOT / "pyproject.toml").read_text(), re.M)
    assert said is not None
    wanted = {word.replace(" ", "") for word in re.findall(r'"([^"]+)"', said[1])}
    run = {word.replace(" ", "") for word in output(recipe, "headrace")["requirements"]["run"]}
    assert run - {"python"} == wanted


def test_its_scripts_are_there(recipe: Any) -> None:
    for each in recipe["outputs"]:
        script = ROOT / "packaging" / "conda" / each["build"]["script"]
        assert script.stat().st_mode & 0o111, f"{script.name} is not executable"
