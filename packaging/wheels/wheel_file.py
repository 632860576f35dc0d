"""Compiles the extension for one Python and one machine, and puts the wheel together."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from apt import Apt, BuildError, run
from headers import Target, folders_of
from toolchain import Toolchain, libcxx_licence

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "python/headrace"
# Everything of the package but what was built or left there.
NOT_PACKAGED = shutil.ignore_patterns("__pycache__", "_native*.so")


@dataclass(frozen=True)
class Wheel:
    """What is built and where."""

    target: Target
    chain: Toolchain
    jobs: int

    @property
    def build(self) -> Path:
        # One for all Pythons: the engine does not know of them, so only the bindings are compiled for each.
        return REPOSITORY / "build/wheels" / self.chain.arch

    @property
    def stage(self) -> Path:
        return self.build / "stage" / self.target.name

    @property
    def tag(self) -> str:
        return f"{self.target.python_tag}-{self.target.abi_tag}-{self.chain.platform}"


def build(wheel: Wheel, apt: Apt, out: Path) -> Path:
    """The wheel in ``out``; replaces an older one."""
    headers = folders_of(wheel.target, wheel.chain, apt)
    shutil.rmtree(wheel.stage, ignore_errors=True)
    shutil.copytree(PACKAGE, wheel.stage / "headrace", ignore=NOT_PACKAGED)
    extension = _compile(wheel, headers)
    shutil.copy2(extension, wheel.stage / "headrace")
    _write_metadata(wheel)
    return _pack(wheel, out)


def _compile(wheel: Wheel, headers: list[Path]) -> Path:
    into = wheel.build / "native" / wheel.target.name
    shutil.rmtree(into, ignore_errors=True)
    archives = sorted((wheel.chain.prefix / "lib").glob("*.a"))
    defines = {
        "CMAKE_BUILD_TYPE": "Release",
        # Libraries name the libraries they need in many ways, or not at all. The linker takes what is needed,
        # in any order.
        "CMAKE_CXX_STANDARD_LIBRARIES": " ".join(map(str, archives)),
        "CMAKE_TOOLCHAIN_FILE": wheel.chain.file,
        "CMAKE_MODULE_LINKER_FLAGS": "-Wl,--gc-sections -s",
        "HEADRACE_LIBRARY": "OFF",
        "HEADRACE_NATIVE_DIRECTORY": into,
        "HEADRACE_PYTHON": "ON",
        "HEADRACE_PYTHON_HEADERS": ";".join(map(str, headers)),
        "HEADRACE_PYTHON_STABLE_ABI": "ON" if wheel.target.is_stable else "OFF",
        "HEADRACE_PYTHON_VERSION": wheel.target.headers_version,
        "HEADRACE_UNITY": "ON",
        # TLS descriptors: glibc before 2.40 may clobber vector registers when it resolves one (glibc bug
        # 31372).
        "NB_HAS_MTLS_GNU2": "OFF",
        "OPENSSL_USE_STATIC_LIBS": "ON",
        "Python_EXECUTABLE": sys.executable,
        "Python3_EXECUTABLE": sys.executable,
    }
    arguments = [f"-D{name}={value}" for name, value in defines.items()]
    environment = wheel.chain.environment
    run(["cmake", "-G", "Ninja", "-S", str(REPOSITORY), "-B", str(wheel.build), *arguments], env=environment)
    command = ["ninja", "-C", str(wheel.build), f"-j{wheel.jobs}", "--quiet", "headrace_native"]
    if subprocess.run(command, env=environment, check=False).returncode != 0:
        raise BuildError(f"{wheel.tag}: the extension does not build")
    (extension,) = into.glob("_native*.so")
    return extension


def _nanobind_licence() -> Path:
    files = importlib.metadata.files("nanobind") or []
    (licence,) = [file for file in files if file.name == "LICENSE" and "dist-info" in str(file)]
    return Path(licence.locate())


def _write_metadata(wheel: Wheel) -> None:
    """As scikit-build-core writes it for `pip install .`, with our tags and the licences of what is
    inside."""
    code = (
        "import sys; from scikit_build_core.build import prepare_metadata_for_build_wheel as w; "
        "print(w(sys.argv[1]))"
    )
    name = run([sys.executable, "-c", code, str(wheel.stage)], REPOSITORY).splitlines()[-1]
    folder = wheel.stage / name
    (folder / "RECORD").unlink(missing_ok=True)
    lines = [
        "Wheel-Version: 1.0",
        "Generator: headrace packaging/wheels",
        "Root-Is-Purelib: false",
        f"Tag: {wheel.tag}",
    ]
    (folder / "WHEEL").write_text("\n".join(lines) + "\n")
    licences = folder / "licenses/libraries"
    shutil.copytree(wheel.chain.root / "licences", licences, dirs_exist_ok=True)
    for name, licence in {"nanobind": _nanobind_licence(), "libcxx": libcxx_licence()}.items():
        shutil.copy2(licence, licences / f"{name}.txt")


def _pack(wheel: Wheel, out: Path) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    for older in out.glob(f"headrace-*-{wheel.tag}.whl"):
        older.unlink()
    environment = {
        **os.environ,
        "SOURCE_DATE_EPOCH": "315532800",
    }  # 1980: the same bytes from the same sources
    run([sys.executable, "-m", "wheel", "pack", str(wheel.stage), "--dest-dir", str(out)], env=environment)
    (packed,) = out.glob(f"headrace-*-{wheel.tag}.whl")
    return packed
