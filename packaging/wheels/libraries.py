"""The libraries inside a wheel: how each is built as a static archive, and in which order."""

from __future__ import annotations

import hashlib
import inspect
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from apt import Apt, run
from toolchain import Toolchain


@dataclass(frozen=True)
class Job:
    """One library's source tree and where it is built for whom."""

    source: Path
    build: Path
    chain: Toolchain
    jobs: int

    def make(self, *arguments: str, variables: dict[str, str] | None = None) -> None:
        run(
            ["make", f"-j{self.jobs}", *arguments],
            self.source,
            {**self.chain.environment, **(variables or {})},
        )

    def install(self, archive: str, headers: list[str]) -> None:
        """For libraries whose own install rule wants more than the archive."""
        for name, folder in [(archive, "lib"), *((header, "include") for header in headers)]:
            target = self.chain.prefix / folder
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy2(self.source / name, target)


Recipe = Callable[[Job], None]


@dataclass(frozen=True)
class CMake:
    """A library that CMake builds: ``on`` and ``off`` are its options."""

    folder: str = "."
    on: str = ""
    off: str = ""

    def __call__(self, job: Job) -> None:
        options = dict.fromkeys(self.on.split(), "ON") | dict.fromkeys(self.off.split(), "OFF")
        options |= {
            "BUILD_SHARED_LIBS": "OFF",
            "BUILD_TESTING": "OFF",
            "CMAKE_BUILD_TYPE": "Release",
            "CMAKE_CXX_FLAGS_RELEASE": "-DNDEBUG",
            "CMAKE_C_FLAGS_RELEASE": "-DNDEBUG",
            "CMAKE_INSTALL_LIBDIR": "lib",
            "CMAKE_INSTALL_PREFIX": str(job.chain.prefix),
            "CMAKE_POLICY_VERSION_MINIMUM": "3.5",
            "CMAKE_POSITION_INDEPENDENT_CODE": "ON",
            "CMAKE_TOOLCHAIN_FILE": str(job.chain.file),
        }
        # With a type: CMake makes a relative path of a value without one absolute, by the folder it runs in.
        defines = [f"-D{name}:STRING={value}" for name, value in options.items()]
        run(["cmake", "-G", "Ninja", "-S", str(job.source / self.folder), "-B", str(job.build), *defines])
        run(["ninja", "-C", str(job.build), f"-j{job.jobs}", "install"], env=job.chain.environment)


def build_zlib(job: Job) -> None:
    variables = {"CHOST": f"{job.chain.arch}-linux-gnu"}
    run(
        ["./configure", "--static", f"--prefix={job.chain.prefix}"],
        job.source,
        {**job.chain.environment, **variables},
    )
    job.make("libz.a")
    job.install("libz.a", ["zlib.h", "zconf.h"])


def build_bzip2(job: Job) -> None:
    environment = job.chain.environment
    job.make("libbz2.a", *(f"{name}={environment[name]}" for name in ("CC", "AR", "RANLIB")),
             f"CFLAGS={environment['CFLAGS']} -D_FILE_OFFSET_BITS=64")  # fmt: skip
    job.install("libbz2.a", ["bzlib.h"])


def build_libdeflate(job: Job) -> None:
    job.make("install", "DISABLE_SHARED=1", f"PREFIX={job.chain.prefix}")


def build_brotli(job: Job) -> None:
    CMake(on="BROTLI_DISABLE_TESTS")(job)
    folder = job.chain.prefix / "lib"
    for archive in folder.glob(
        "libbrotli*-static.a"
    ):  # 1.0 builds shared libraries too, under the plain names
        archive.rename(folder / archive.name.replace("-static", ""))
    for shared in folder.glob("libbrotli*.so*"):
        shared.unlink()


def build_snappy(job: Job) -> None:
    lists = job.source / "CMakeLists.txt"
    name = "PROPERTIES OUTPUT_NAME snappy)"  # Debian's static twin of a shared library: two libsnappy.a here
    if name in (text := lists.read_text()):
        lists.write_text(text.replace(name, "PROPERTIES OUTPUT_NAME snappy-twin)"))
    CMake(off="SNAPPY_BUILD_TESTS SNAPPY_BUILD_BENCHMARKS")(job)


def build_giflib(job: Job) -> None:
    environment = job.chain.environment
    job.make("libgif.a", *(f"{name}={environment[name]}" for name in ("CC", "AR")),
             f"CFLAGS={environment['CFLAGS']} -std=gnu99")  # fmt: skip
    job.install("libgif.a", ["gif_lib.h"])


def build_liburing(job: Job) -> None:
    environment = job.chain.environment
    compilers = [f"--cc={environment['CC']}", f"--cxx={environment['CXX']}"]
    # Without a C library, as it would like, zig finds no headers either.
    run(["./configure", "--use-libc", f"--prefix={job.chain.prefix}", *compilers], job.source, environment)
    job.make("-C", "src", "install", "ENABLE_SHARED=0", variables={"CFLAGS": environment["CFLAGS"]})
    run(["make", "liburing.pc"], job.source, environment)
    target = job.chain.prefix / "lib/pkgconfig"
    target.mkdir(parents=True, exist_ok=True)
    shutil.copy2(job.source / "liburing.pc", target)


def build_lame(job: Job) -> None:
    how = [
        "--disable-shared",
        "--disable-frontend",
        "--disable-decoder",
        f"--host={job.chain.arch}-linux-gnu",
    ]
    run(["./configure", *how, f"--prefix={job.chain.prefix}"], job.source, job.chain.environment)
    job.make()
    run(["make", "install"], job.source, job.chain.environment)


# What no part of Headrace asks of OpenSSL stays out. The configuration file of another OpenSSL, the system's,
# is not read: it may name modules and options that this one lacks.
OPENSSL = """
no-shared no-tests no-docs no-apps no-module no-legacy no-engine no-autoload-config no-quic no-dtls no-cmp no-ts no-srp
no-comp no-ssl3
"""  # noqa: E501


def build_openssl(job: Job) -> None:
    where = [f"--prefix={job.chain.prefix}", "--openssldir=/etc/ssl", "--libdir=lib"]
    environment = job.chain.environment
    run(["perl", "Configure", f"linux-{job.chain.arch}", *OPENSSL.split(), *where], job.source, environment)
    job.make("build_libs")
    run(["make", "install_dev"], job.source, environment)


@dataclass(frozen=True)
class Library:
    """A source package of Debian and the recipe that makes an archive of it."""

    package: str
    recipe: Recipe
    needs: list[str] = field(default_factory=list)


# In the order in which they are built.
LIBRARIES = [
    Library("zlib", build_zlib),
    Library("bzip2", build_bzip2),
    Library("xz-utils", CMake(off="XZ_NLS XZ_DOC XZ_TOOL_XZ XZ_TOOL_XZDEC XZ_TOOL_LZMADEC XZ_TOOL_LZMAINFO XZ_TOOL_SCRIPTS")),  # noqa: E501
    Library("libzstd", CMake("build/cmake", on="ZSTD_BUILD_STATIC", off="ZSTD_BUILD_SHARED ZSTD_BUILD_PROGRAMS ZSTD_BUILD_TESTS")),  # noqa: E501
    Library("libdeflate", build_libdeflate),
    Library("brotli", build_brotli),
    Library("snappy", build_snappy),
    Library("xxhash", CMake("cmake_unofficial", off="XXHASH_BUILD_XXHSUM")),
    Library("simdjson", CMake(off="SIMDJSON_DEVELOPER_MODE")),
    Library("nlohmann-json3", CMake(off="JSON_BuildTests")),
    Library("pugixml", CMake()),
    Library("fmtlib", CMake(off="FMT_TEST FMT_DOC")),
    Library("liburing", build_liburing),
    Library("openssl", build_openssl),
    Library("libjpeg-turbo", CMake(on="REQUIRE_SIMD", off="ENABLE_SHARED WITH_TURBOJPEG")),
    Library("libpng1.6", CMake(off="PNG_SHARED PNG_TESTS PNG_TOOLS PNG_FRAMEWORK"), ["zlib"]),
    Library("giflib", build_giflib),
    Library(
        "libwebp",
        CMake(
            off="WEBP_BUILD_ANIM_UTILS WEBP_BUILD_CWEBP WEBP_BUILD_DWEBP WEBP_BUILD_GIF2WEBP WEBP_BUILD_IMG2WEBP "  # noqa: E501
            "WEBP_BUILD_VWEBP WEBP_BUILD_WEBPINFO WEBP_BUILD_WEBPMUX WEBP_BUILD_EXTRAS"
        ),
    ),
    Library(
        "tiff",
        CMake(on="jpeg zlib libdeflate lzma zstd webp", off="tiff-tools tiff-tests tiff-contrib tiff-docs tiff-opengl cxx jbig lerc"),  # noqa: E501
        ["zlib", "libdeflate", "xz-utils", "libzstd", "libjpeg-turbo", "libwebp"],
    ),
    Library("libogg", CMake(off="INSTALL_DOCS")),
    Library("libvorbis", CMake(), ["libogg"]),
    Library("opus", CMake(off="OPUS_BUILD_PROGRAMS OPUS_BUILD_TESTING")),
    Library(
        "flac",
        CMake(off="BUILD_CXXLIBS BUILD_PROGRAMS BUILD_EXAMPLES BUILD_DOCS INSTALL_MANPAGES WITH_STACK_PROTECTOR"),  # noqa: E501
        ["libogg"],
    ),
    Library("mpg123", CMake("ports/cmake", on="NO_MESSAGES", off="BUILD_PROGRAMS BUILD_LIBOUT123 NETWORK")),
    Library("lame", build_lame),  # only writes MP3, which nobody asks for; libsndfile reads none without it
    Library(
        "libsndfile",
        CMake(on="ENABLE_EXTERNAL_LIBS ENABLE_MPEG", off="BUILD_PROGRAMS BUILD_EXAMPLES ENABLE_CPACK"),
        ["libogg", "libvorbis", "opus", "flac", "mpg123", "lame"],
    ),
]  # fmt: skip


def recipe_text(recipe: Recipe) -> str:
    return repr(recipe) if isinstance(recipe, CMake) else inspect.getsource(recipe) + OPENSSL


def build_all(apt: Apt, chain: Toolchain, jobs: int) -> None:
    """Builds what is missing or was built of something else; a second call does nothing."""
    digests: dict[str, str] = {}
    stamps = chain.root / "stamps"
    stamps.mkdir(exist_ok=True)
    for library in LIBRARIES:
        name = library.package
        files = apt.files(name)
        parts = [recipe_text(library.recipe), chain.digest, *map(str, sorted(apt.lock.files[name].items()))]
        parts += [digests[needed] for needed in library.needs]
        digests[name] = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        stamp = stamps / name
        if files and stamp.exists() and stamp.read_text() == digests[name]:
            continue
        print(f"{chain.arch}: {name} {apt.lock.versions[name]}", flush=True)
        _build(apt, chain, library, jobs)
        stamp.write_text(digests[name])


def _build(apt: Apt, chain: Toolchain, library: Library, jobs: int) -> None:
    job = Job(chain.root / "source" / library.package, chain.root / "build" / library.package, chain, jobs)
    apt.unpack_source(library.package, job.source)
    shutil.rmtree(job.build, ignore_errors=True)
    library.recipe(job)
    licence = chain.root / "licences" / f"{library.package}.txt"
    licence.parent.mkdir(exist_ok=True)
    shutil.copy2(job.source / "debian/copyright", licence)
    shutil.rmtree(job.source)
    shutil.rmtree(job.build, ignore_errors=True)
