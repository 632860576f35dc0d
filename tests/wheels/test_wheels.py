"""The wheels in dist/wheels, as `make wheels` left them: what each is, and that it works where nothing but a
Python is.

Every wheel that a Python of this machine takes is installed into a new venv; those of Debian's Pythons go
into bare Debian roots, of this machine's kind and of others by qemu. Needs .venv (numpy, Pillow, zstandard),
pip, and apt for the roots.
"""

from __future__ import annotations

import _ssl
import bz2
import functools
import gzip
import lzma
import math
import os
import platform
import shutil
import subprocess
import sys
import wave
import zipfile
from pathlib import Path

import numpy as np
import pytest
import zstandard
from PIL import Image

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / "packaging/wheels"), str(Path(__file__).parent)]

from apt import Apt, BuildError, run  # noqa: E402
from bare_root import BareRoot, bare_root  # noqa: E402
from build import CACHE  # noqa: E402
from check import BadWheelError, check  # noqa: E402
from toolchain import ARCHITECTURES  # noqa: E402

WHEELS = sorted((REPOSITORY / "dist/wheels").glob("headrace-*.whl"))
EXERCISE = Path(__file__).with_name("exercise.py")
PYTHONS = ["3.10", "3.11", "3.12", "3.13", "3.14"]
SUITES = {"bookworm": "3.11", "trixie": "3.13"}
LINES = "".join(f"line {i}\n" for i in range(100)).encode()


def wheel_for(python: str, arch: str) -> Path:
    """The wheel that pip takes there: what is for all from 3.12 on, or for that one."""
    tag = "cp312-abi3" if int(python.split(".")[1]) >= 12 else "cp{0}-cp{0}".format(python.replace(".", ""))
    fitting = [wheel for wheel in WHEELS if f"-{tag}-" in wheel.name and wheel.stem.endswith(arch)]
    if not fitting:
        pytest.skip(f"no wheel of {tag} for {arch}: make wheels")
    return fitting[0]


@functools.cache
def interpreter(python: str) -> str | None:
    program = shutil.which(f"python{python}")
    # pyenv's shims are there for versions that are not chosen, too.
    pyenv = sorted(
        Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob(f"versions/{python}.*/bin/python")
    )
    for candidate in [*([program] if program else []), *map(str, pyenv)]:
        done = subprocess.run([candidate, "-c", ""], check=False, capture_output=True)
        if done.returncode == 0:
            return candidate
    return None


def write_data(folder: Path) -> None:
    y, x = np.mgrid[0:60, 0:80]
    planes = [128 + 100 * np.sin((x + y * c) / (19.0 + c)) for c in range(3)]
    pixels = np.stack(planes, axis=-1).astype(np.uint8)
    np.save(folder / "expected.npy", pixels)
    for name in ("pictures", "lines", "packed"):
        (folder / name).mkdir()
    for suffix, options in {
        "jpg": {"quality": 95},
        "png": {},
        "gif": {},
        "tiff": {},
        "webp": {"lossless": True},
    }.items():
        Image.fromarray(pixels).save(folder / f"pictures/a.{suffix}", **options)
    shutil.copytree(Path(__file__).with_name("sounds"), folder / "sounds")
    write_tone(folder / "sounds/tone.wav")
    packers = {
        "": bytes,
        ".gz": gzip.compress,
        ".bz2": bz2.compress,
        ".xz": lzma.compress,
        ".zst": zstandard.compress,
    }
    for suffix, compress in packers.items():
        (folder / f"lines/a.txt{suffix}").write_bytes(compress(LINES))


def write_tone(path: Path) -> None:
    frames = [0.5 * math.sin(2 * math.pi * 440 * i / 48_000) for i in range(9600)]
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(48_000)
        file.writeframes((np.array(frames) * 32767).round().astype("<i2").tobytes())


def install(root: BareRoot, wheel: Path) -> None:
    """By this machine's pip, which judges the tags as the other machine's would."""
    tags = ["--only-binary=:all:", f"--python-version={root.python}", "--implementation=cp"]
    tags += [f"--abi=cp{root.python.replace('.', '')}", "--abi=abi3", "--abi=none"]
    platforms = [
        f"--platform={kind}_{root.arch}" for kind in ("manylinux_2_28", "manylinux_2_27", "manylinux2014")
    ]
    target = root.folder / "wheel/site"
    shutil.rmtree(target.parent, ignore_errors=True)
    run([sys.executable, "-m", "pip", "install", "-q", f"--target={target}", *tags, *platforms, str(wheel)])
    shutil.copy2(EXERCISE, target.parent)


@pytest.mark.skipif(not WHEELS, reason="no wheels: make wheels")
@pytest.mark.parametrize("wheel", WHEELS, ids=lambda wheel: wheel.name)
def test_a_wheel_needs_nothing_and_shows_nothing(wheel: Path) -> None:
    check(wheel)


def test_a_wheel_that_needs_more_is_refused(tmp_path: Path) -> None:
    """An extension that the system's OpenSSL was linked to, under a wheel's name."""
    wheel = tmp_path / "headrace-0-cp311-cp311-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(_ssl.__file__, "headrace/_native.so")
    with pytest.raises(BadWheelError, match=r"needs libcrypto\.so.* of the system"):
        check(wheel)


@pytest.mark.skipif(not WHEELS, reason="no wheels: make wheels")
def test_a_wheel_that_promises_an_older_glibc_is_refused(tmp_path: Path) -> None:
    promising = tmp_path / WHEELS[0].name.replace("_2_28_", "_2_17_")
    promising.symlink_to(WHEELS[0])
    with pytest.raises(BadWheelError, match=r"needs glibc 2\.2\d"):
        check(promising)


@pytest.mark.parametrize("python", PYTHONS)
def test_in_a_new_venv(tmp_path: Path, python: str) -> None:
    program = interpreter(python)
    if program is None:
        pytest.skip(f"this machine has no Python {python}")
    wheel = wheel_for(python, platform.machine())
    run([program, "-m", "venv", str(tmp_path / "venv")])
    run([str(tmp_path / "venv/bin/pip"), "install", "-q", "--disable-pip-version-check", str(wheel)])
    (tmp_path / "data").mkdir()
    write_data(tmp_path / "data")
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PYTHON"))
    }
    said = run(
        [str(tmp_path / "venv/bin/python"), str(EXERCISE), "use", str(tmp_path / "data")],
        tmp_path,
        environment,
    )
    assert "command line: fine" in said
    assert "Training data" in run([str(tmp_path / "venv/bin/headrace"), "--help"])


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("suite", SUITES)
def test_in_a_bare_root(tmp_path: Path, suite: str, arch: str) -> None:
    wheel = wheel_for(SUITES[suite], arch)
    try:
        root = bare_root(Apt(CACHE), CACHE / "roots", suite, arch)
    except BuildError as why:
        pytest.skip(f"no bare root of {suite}: {why}")
    install(root, wheel)
    write_data(root.folder / "wheel")
    environment = "import sys; sys.path.insert(0, '/wheel/site'); sys.argv = sys.argv[1:]; "
    code = environment + "import runpy; runpy.run_path(sys.argv[0], run_name='__main__')"
    assert "command line: fine" in root.run("-c", code, "/wheel/exercise.py", "use", "/wheel")
    assert root.run("-c", code, "/wheel/exercise.py", "authorities").count("fine") == 2
