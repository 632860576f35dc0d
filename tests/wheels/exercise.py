"""What an installed wheel must do, asked of it by the Python that it is installed into.

Usage: exercise.py use FOLDER     reads what test_wheels.py wrote there (pictures, sounds, compressed lines),
                                  and packs and reads shards; all from S3, by TLS
       exercise.py authorities    finds the system's certificate authorities where systems keep them; writes
                                  there, so only for a bare root
Prints a line a check; an AssertionError is what is wrong. Starts no process: an emulator could not run one.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import headrace as hr
from headrace import _native, sim
from headrace.cli import main as headrace

TONE_HZ, TONE_FRAMES, TONE_RATE = 440, 9600, 48_000
# What lossy formats may differ by from the picture that was encoded: JPEG, and GIF with its 256 colours.
LOSSES = {".jpg": 24, ".gif": 60}
SYSTEM_AUTHORITIES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
PACKS = {
    "mds": ["--compression", "zstd", "--hash", "xxh64"],
    "litdata": ["--compression", "zstd"],
    "webdataset": ["--compression", "gzip"],
    "tfrecord": ["--compression", "gzip"],
}


def use(folder: Path) -> None:
    check_processor()
    with sim.Server(folder, tls=True) as server:
        os.environ.update(server.environment())
        check_pictures(folder / "pictures", np.load(folder / "expected.npy"))
        check_sounds(folder / "sounds")
        check_lines(folder / "lines")
        for format, options in PACKS.items():
            check_pack(folder / "sounds", f"s3://packed/{format}", ["--format", format, *options])
        check_command_line()


def check_processor() -> None:
    """That compilers and their runtime libraries let it be found: else all is right, and several times
    slower."""
    if platform.machine() != "x86_64":  # An emulator shows the processor that it runs on.
        return
    text = Path("/proc/cpuinfo").read_text()
    flags = next((line.split() for line in text.splitlines() if line.startswith("flags")), [])
    wanted = {"sse4_2", "pclmulqdq", "avx2"} & set(flags)
    assert wanted <= set(_native.cpu_features()), (wanted, _native.cpu_features())
    print(f"{', '.join(_native.cpu_features()) or 'no more than the least'}: fine")


def values(url: str, **options: Any) -> list[Any]:
    """One epoch in the dataset's order."""
    with hr.Loader(url, batch_size=2, shuffle=False, index_cache="", memory="64MiB", **options) as loader:
        return [
            value
            for batch in loader
            for value, is_new in zip(batch["data"], batch.mask, strict=True)
            if is_new
        ]


def check_pictures(folder: Path, expected: Any) -> None:
    got = values("s3://pictures", decode={"data": hr.decode.image()})
    for file, pixels in zip(sorted(folder.iterdir()), got, strict=True):
        furthest = int(np.abs(pixels.astype(int) - expected.astype(int)).max())
        assert furthest <= LOSSES.get(file.suffix, 0), f"{file.name}: {furthest}"
        print(f"{file.name}: fine")


def check_sounds(folder: Path) -> None:
    tone = 0.5 * np.sin(2 * np.pi * TONE_HZ * np.arange(TONE_FRAMES) / TONE_RATE)
    got = values("s3://sounds", decode={"data": hr.decode.audio()})
    for file, sound in zip(sorted(folder.iterdir()), got, strict=True):
        spectrum = np.abs(np.fft.rfft(sound[:TONE_FRAMES, 0]))
        assert spectrum.argmax() == TONE_HZ * TONE_FRAMES // TONE_RATE, file.name
        if file.suffix in (".wav", ".flac"):
            assert np.abs(sound[:, 0] - tone).max() < 2 / 2**15, file.name
        print(f"{file.name}: fine")


def check_lines(folder: Path) -> None:
    with hr.Dataset("s3://lines", index_cache="", format="text") as dataset:
        got = [sample["text"] for sample in dataset]
    files = sorted(folder.iterdir())
    assert got == [f"line {i}" for i in range(100)] * len(files), got[:3]
    print(f"{', '.join(file.name for file in files)}: fine")


def check_pack(source: Path, url: str, options: list[str]) -> None:
    run("pack", str(source), url, *options)
    files = {file.name: file.read_bytes() for file in source.iterdir()}
    with hr.Dataset(url, index_cache="") as dataset:
        samples = list(dataset)
    got = sorted(value for sample in samples for value in sample.values() if value in files.values())
    assert got == sorted(files.values()), url
    print(f"{url}: fine")


def check_command_line() -> None:
    run("--help")
    run("ls", "-r", "s3://pictures")
    print("command line: fine")


def run(*arguments: str) -> None:
    code = None
    try:
        headrace(list(arguments))
    except SystemExit as end:
        code = end.code
    assert code == 0, arguments


def authorities() -> None:
    Path("/tmp/bucket").mkdir()
    with sim.Server("/tmp", tls=True) as server:
        environment = server.environment()
        del environment["AWS_CA_BUNDLE"]
        os.environ.update(environment)
        assert "certificate" in failure_of(lambda: put_and_get(max_attempts=1))
        for path in map(Path, SYSTEM_AUTHORITIES):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(Path(server.ca_path).read_bytes())
            put_and_get()
            path.unlink()
            print(f"{path}: fine")


def failure_of(function: Callable[[], None]) -> str:
    try:
        function()
    except hr.HeadraceError as error:
        return str(error)
    raise AssertionError("an authority that the system does not have was trusted")


def put_and_get(**options: Any) -> None:
    with hr.Store("s3://bucket", **options) as store:
        store.put("key", b"value")
        assert store.get("key") == b"value"


if __name__ == "__main__":
    if sys.argv[1] == "use":
        use(Path(sys.argv[2]))
    else:
        authorities()
