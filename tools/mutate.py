#!/usr/bin/env python3
"""Breaks random lines of the engine, one at a time, and says which of them no test notices.

Usage: tools/mutate.py [--seed N] [--count N] [--folders NAME,...] [--jobs N] [--only ID,...] [--work DIR]

All mutants are in one build: each reads `if (mutant(17) ? a <= b : a < b)`, and HEADRACE_MUTANT=17 turns the
17th on. So one build and one clean run of the tests serve all of them:

1. The tree is copied to DIR and the mutants are written there, never in the tree itself. Places are drawn by
   seed, by folder in proportion to its lines, at least LEAST a folder (tools/mutants.py says what a place
   is). What the compiler refuses is drawn again, in the same file.
2. All tests run without a mutant. Which test reaches which mutant is written down (HEADRACE_REACHED, a file
   that all processes of the test map); tests that fail here are not asked later.
3. Each mutant meets the tests that reach it: those of its own module, then of the others, then Python's, the
   quick ones first, until one fails. A test that fails, crashes or takes several times as long kills the
   mutant; a failure counts when the test fails twice. What no test reaches, or all let pass, survives: look
   whether it changes anything that is promised, and if so, write the test.

With --work the build and the clean run are kept: `--only 17,23 --work DIR` asks some again after new tests
were written. Tests that need servers run when tests/with_servers is put before the command.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import hashlib
import json
import os
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mutants import Place, Source, flat

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ["feed", "order", "shard", "store", "copy", "pack", "bindings"]
LEAST = 20
NOT_PRODUCT = re.compile(
    r"_test\.cc$|/testing/|fake|fixture|test_util|test_peer|reference_cases|loopback|odd_store"
)
FILE_SECONDS = 400  # for a file of tests without a mutant; what comes later is not asked
MOST_BYTES = 8 << 30  # of memory: a mutant that allocates for ever ends here
SWITCH = """\
#pragma once
// Written by tools/mutate.py: which mutant is on, and which were reached.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
// What mutants may do and people should not.
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wparentheses"
#pragma GCC diagnostic ignored "-Wsign-compare"
#pragma GCC diagnostic ignored "-Wimplicit-fallthrough"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
inline bool headrace_mutant(int number) noexcept {
  static const int chosen = [] {
    const char* text = std::getenv("HEADRACE_MUTANT");
    return text == nullptr ? -1 : std::atoi(text);
  }();
  static char* const reached = []() -> char* {
    const char* path = std::getenv("HEADRACE_REACHED");
    const int fd = path == nullptr ? -1 : ::open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return nullptr;
    void* at = ::mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    return at == MAP_FAILED ? nullptr : static_cast<char*>(at);
  }();
  if (reached != nullptr) __atomic_store_n(reached + number, 1, __ATOMIC_RELAXED);
  return number == chosen;
}
"""
# Notes for each test of Python what it reached and how long it took.
PLUGIN = """\
import json, os, time
import pytest

failed = set()

def pytest_runtest_logreport(report):
    if report.failed:
        failed.add(report.nodeid)

@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    path, start = os.environ["HEADRACE_REACHED"], time.monotonic()
    with open(path, "r+b") as file:
        file.write(bytes(65536))
    try:
        return (yield)
    finally:
        with open(path, "rb") as file:
            reached = [i for i, byte in enumerate(file.read()) if byte]
        note = {"program": "", "name": item.nodeid, "seconds": time.monotonic() - start}
        with open(os.environ["HEADRACE_REACHED_BY"], "a") as file:
            print(json.dumps(note | {"reached": reached, "fails": item.nodeid in failed}), file=file)
"""


@dataclass
class Mutant:
    number: int
    folder: str
    file: str
    line: int
    kind: str
    before: str
    place: Place
    killer: str = ""
    seconds: float = 0
    is_reached: bool = False


@dataclass
class Suite:
    """Tests that run together: a suite of a test program, or a test of Python (program "")."""

    program: str
    name: str
    seconds: float = 0
    reached: list[int] = field(default_factory=list)
    fails: bool = False  # without a mutant


class Tree:
    """The copy of the project in which the mutants live."""

    def __init__(self, root: Path, jobs: int) -> None:
        self.root = root
        self.build = root / "build" / "test"
        self.jobs = jobs

    def fill(self, mutants: list[Mutant]) -> None:
        """Copies the project, with the mutants; files that are as they were keep their times."""
        by_file: dict[str, list[Mutant]] = defaultdict(list)
        for mutant in mutants:
            by_file[mutant.file].append(mutant)
        listed = run(["git", "ls-files", "-co", "--exclude-standard"], ROOT).stdout.split("\n")
        for name in filter(None, listed):
            if not (ROOT / name).is_file():
                continue
            data = (ROOT / name).read_bytes()
            if some := by_file.get(name):
                text = data.decode()
                for m in sorted(some, key=lambda m: -m.place.begin):
                    text = text[: m.place.begin] + m.place.text(m.number) + text[m.place.end :]
                data = f'#include "base/mutant.h"\n#line 1 "{self.root / name}"\n{text}'.encode()
            self.write(name, data)
            shutil.copymode(ROOT / name, self.root / name)
        self.write("src/base/mutant.h", SWITCH.encode())
        self.write("tests/python/mutant_reach.py", PLUGIN.encode())

    def write(self, name: str, data: bytes) -> None:
        path = self.root / name
        if path.is_file() and path.read_bytes() == data:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def compile(self) -> str:
        """The compiler's complaints, empty when all is built."""
        if not (self.build / "build.ninja").is_file():
            options = ["-DHEADRACE_PYTHON=ON", f"-DPython_EXECUTABLE={sys.executable}"]
            run(["cmake", "--preset", "test", *options], self.root)
        done = run(["ninja", "-C", str(self.build), "-j", str(self.jobs), "-k", "0"], self.root, check=False)
        return done.stdout if done.returncode else ""


def run(command: list[str], where: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=where, check=check, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


# --- drawing ---


class Draw:
    """Draws places, and others for those that the compiler refuses."""

    def __init__(self, seed: int, folders: list[str]) -> None:
        self.seed = seed
        self.refused: set[tuple[str, int, int, str]] = set()
        self.sources: dict[str, Source] = {}
        self.places: dict[str, list[Place]] = {}
        self.files: dict[str, list[str]] = {folder: [] for folder in folders}
        for folder in folders:
            names = run(["git", "ls-files", f"src/{folder}/*.cc", f"src/{folder}/*.h"], ROOT).stdout.split()
            for name in names:
                if not NOT_PRODUCT.search(name):
                    self.sources[name] = Source((ROOT / name).read_text())
                    self.places[name] = self.sources[name].places()
                    self.files[folder].append(name)

    def all(self, count: int) -> list[Mutant]:
        mutants: list[Mutant] = []
        for folder, share in self._shares(count).items():
            lines = [
                (name, line)
                for name in self.files[folder]
                for line in sorted({p.line for p in self.places[name]})
            ]
            some = random.Random(f"{self.seed} {folder}")
            some.shuffle(lines)
            for name, line in lines:
                if share == 0:
                    break
                taken = [m for m in mutants if m.file == name]
                if place := self._choose([p for p in self.places[name] if p.line == line], taken, name, some):
                    mutants.append(self._mutant(len(mutants), folder, name, place))
                    share -= 1
        return mutants

    def again(self, mutants: list[Mutant], number: int) -> None:
        """Another place of the same file, or of its folder when the file has no more."""
        old = mutants[number]
        self.refused.add((old.file, old.place.begin, old.place.end, old.kind))
        some = random.Random(f"{self.seed} {number} {len(self.refused)}")
        rest = [name for name in self.files[old.folder] if name != old.file]
        for name in [old.file, *some.sample(rest, len(rest))]:
            taken = [m for m in mutants if m.file == name and m is not old]
            if place := self._choose(self.places[name], taken, name, some):
                mutants[number] = self._mutant(number, old.folder, name, place)
                return

    def _shares(self, count: int) -> dict[str, int]:
        size = {
            f: sum(len({p.line for p in self.places[n]}) for n in names) for f, names in self.files.items()
        }
        least = min(LEAST, count // len(size))
        rest = sum(s for s in size.values())
        share = {f: max(least, round(count * s / rest)) for f, s in size.items()}
        while (over := sum(share.values()) - count) != 0:  # the largest give, or take, what is left
            folder = max(share, key=lambda f: share[f])
            share[folder] -= 1 if over > 0 else -1
        return share

    def _choose(
        self, places: list[Place], taken: list[Mutant], name: str, some: random.Random
    ) -> Place | None:
        free = [
            p
            for p in places
            if (name, p.begin, p.end, p.kind) not in self.refused
            and all(p.line != m.line and (p.end <= m.place.begin or m.place.end <= p.begin) for m in taken)
        ]
        return some.choice(free) if free else None

    def _mutant(self, number: int, folder: str, name: str, place: Place) -> Mutant:
        before = re.sub(r"\s+", " ", self.sources[name].text[place.begin : place.end])
        return Mutant(number, folder, name, place.line, place.kind, before, place)


def build(tree: Tree, draw: Draw, mutants: list[Mutant]) -> None:
    """Builds the copy, with other mutants for those that do not compile."""
    # A build before this one may have found out what compiles.
    texts = "".join(draw.sources[name].text for name in sorted(draw.sources))
    first = hashlib.sha256((repr(mutants) + texts).encode()).hexdigest()
    kept = tree.build.parent / "mutants.json"
    if kept.is_file() and (plan := json.loads(kept.read_text()))["first"] == first:
        mutants[:] = [Mutant(**{**m, "place": Place(**m["place"])}) for m in plan["mutants"]]
    while True:
        tree.fill(mutants)
        output = tree.compile()
        if not output:
            kept.write_text(json.dumps({"first": first, "mutants": [asdict(m) for m in mutants]}))
            return
        blamed = {(m[1], int(m[2])) for m in re.finditer(r"(src/[\w/.]+):(\d+)", output)}
        bad = [m.number for m in mutants if (m.file, m.line) in blamed]
        if not bad:
            sys.exit(f"mutate: the copy does not build\n{output[-4000:]}")
        say(f"{len(bad)} mutants do not compile and are drawn again")
        for number in bad:
            draw.again(mutants, number)


# --- running ---


class Tests:
    """The tests of the copy, and what each of them reaches."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.suites: list[Suite] = []
        self.kept = tree.root / "build" / "clean-run.json"
        kept = json.loads(self.kept.read_text()) if self.kept.is_file() else {}
        self.known = {key: [Suite(**s) for s in suites] for key, suites in kept.items()}

    def measure(self, files: list[Path]) -> None:
        """Runs the tests of these files without a mutant, unless a kept run knows them."""
        with concurrent.futures.ThreadPoolExecutor(self.tree.jobs) as pool:
            list(pool.map(self._measure, files))
        known = {key: [asdict(s) for s in suites] for key, suites in self.known.items()}
        self.kept.write_text(json.dumps(known))

    def _measure(self, path: Path) -> None:
        key = f"{path} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        if key not in self.known:
            say(f"{path.name} without a mutant")
            self.known[key] = list(self._python(path) if path.suffix == ".py" else self._program(path))
        self.suites += self.known[key]

    def _program(self, program: Path) -> Iterator[Suite]:
        listed = run([str(program), "--gtest_list_tests"], self.tree.root).stdout
        for name in re.findall(r"^(\S+)\.(?=\s|$)", listed, re.M):
            with tempfile.TemporaryDirectory() as directory:
                reached = Path(directory, "reached")
                reached.write_bytes(bytes(65536))
                suite = Suite(str(program), name)
                start = time.monotonic()
                suite.fails = self._run([suite], {"HEADRACE_REACHED": str(reached)}, FILE_SECONDS) != ""
                suite.seconds = time.monotonic() - start
                suite.reached = [i for i, byte in enumerate(reached.read_bytes()) if byte]
                yield suite

    def _python(self, path: Path) -> Iterator[Suite]:
        with tempfile.TemporaryDirectory() as directory:
            reached, notes = Path(directory, "reached"), Path(directory, "notes")
            reached.write_bytes(bytes(65536))
            notes.touch()
            environment = {
                "HEADRACE_REACHED": str(reached),
                "HEADRACE_REACHED_BY": str(notes),
                "TMPDIR": directory,
            }
            command = [*self._pytest(), "-p", "mutant_reach", str(path)]
            self._execute(command, environment, FILE_SECONDS, subprocess.DEVNULL)
            for line in notes.read_text().splitlines():
                yield Suite(**json.loads(line))

    def ask(self, mutant: Mutant, is_python: bool, budget: float) -> None:
        """Sets who kills the mutant, if anybody does."""
        start = time.monotonic()
        groups: dict[str, list[Suite]] = defaultdict(list)
        for suite in sorted(self.suites, key=lambda s: s.seconds):
            if (suite.program == "") == is_python and mutant.number in suite.reached and not suite.fails:
                groups[suite.program].append(suite)
        own = f"headrace_{mutant.folder}_test"
        for program in sorted(groups, key=lambda p: (not p.endswith(own), sum(s.seconds for s in groups[p]))):
            mutant.is_reached = True
            some: list[Suite] = []
            seconds = 0.0
            for suite in groups[program]:
                if not some or seconds + suite.seconds <= budget:
                    some.append(suite)
                    seconds += suite.seconds
            mutant.killer = self._run(some, {"HEADRACE_MUTANT": str(mutant.number)}, 20 + 5 * seconds)
            if mutant.killer:
                break
        mutant.seconds += time.monotonic() - start
        fate = mutant.killer or ("SURVIVES" if is_python else "not noticed by the engine's tests")
        say(f"{mutant.number} {mutant.file}:{mutant.line} {mutant.kind}: {fate}")

    def _run(self, suites: list[Suite], environment: dict[str, str], limit: float) -> str:
        """What fails, twice, or "" when all pass."""
        program, names = suites[0].program, [s.name for s in suites]
        with tempfile.TemporaryDirectory() as directory:
            report = Path(directory, "report")
            chosen = [f"{name}.*" for name in names] if program else names
            for seconds in (limit, 2 * limit):
                if program:
                    command = [program, "--gtest_fail_fast", f"--gtest_filter={':'.join(chosen)}"]
                else:
                    command = [*self._pytest(), "-x", *chosen]
                with report.open("w") as file:
                    code = self._execute(command, {**environment, "TMPDIR": directory}, seconds, file)
                if code == 0:
                    return ""
                if code is None and seconds == limit:
                    continue  # perhaps the machine was busy
                text = report.read_text(errors="replace")
                failed = re.findall(r"^\[  FAILED  \] ([^\s,]+)|^(?:FAILED|ERROR) (\S+)", text, re.M)
                if code is None or not failed:  # too slow, or crashed
                    running = re.findall(r"^\[ RUN      \] (\S+)", text, re.M) or chosen
                    return f"{running[-1]} ({'time' if code is None else 'crash'})"
                chosen = [failed[0][0] or failed[0][1]]
        return chosen[0]

    def _pytest(self) -> list[str]:
        return [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            str(self.tree.root),
        ]

    def _execute(self, command: list[str], environment: dict[str, str], limit: float, out: Any) -> int | None:
        """The exit status; None when it ran past the limit."""
        python_path = os.pathsep.join(str(self.tree.root / p) for p in ("python", "tests/python"))
        process = subprocess.Popen(
            command,
            cwd=self.tree.root,
            env={**os.environ, "PYTHONPATH": python_path, **environment},
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=prepare,
        )
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def prepare() -> None:
    """In the child: a limit of memory, and Ctrl-C as tests know it (shells turn it off in the background)."""
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_DFL)


# --- reporting ---


def markdown(mutants: list[Mutant], command: str, failed: list[str]) -> str:
    lines = [f"`{command}`, {time.strftime('%Y-%m-%d')}", ""]
    lines += ["| folder | mutants | killed | share |", "|---|---|---|---|"]
    folders = sorted({m.folder for m in mutants}, key=FOLDERS.index)
    for name, some in [(f, [m for m in mutants if m.folder == f]) for f in folders] + [("all", mutants)]:
        killed = sum(bool(m.killer) for m in some)
        lines.append(f"| {name} | {len(some)} | {killed} | {killed / len(some):.0%} |")
    lines += ["", "Survivors:", ""]
    for m in mutants:
        if not m.killer:
            before = m.before if len(m.before) <= 80 else f"{m.before[:77]}..."
            reached = "" if m.is_reached else ", reached by no test"
            lines.append(f"* {m.number} {m.file}:{m.line}: {m.kind} `{before}`{reached}")
    lines += (
        ["", "Not asked, since they fail without a mutant:", "", *[f"* {name}" for name in failed]]
        if failed
        else []
    )
    return "\n".join(lines) + "\n"


def say(text: str) -> None:
    print(f"mutate: {text}", file=sys.stderr, flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1, help="which places are drawn (default: %(default)s)")
    parser.add_argument("--count", type=int, default=200, help="how many mutants (default: %(default)s)")
    parser.add_argument("--folders", default=",".join(FOLDERS), help="of src/ (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compilers and tests at once")
    parser.add_argument(
        "--only", default="", metavar="ID,...", help="ask these alone; their numbers are in the report"
    )
    parser.add_argument("--no-python", action="store_true", help="tests of the engine only")
    parser.add_argument(
        "--budget", type=float, default=60, help="seconds of tests a program and mutant (default: 60)"
    )
    parser.add_argument("--list", action="store_true", help="show what would be broken, and stop")
    parser.add_argument(
        "--work", type=Path, metavar="DIR", help="keep the copy, its build and the clean run there"
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="the report (default: standard output)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the report with all mutants")
    return parser.parse_args()


def main() -> int:
    options = parse()
    draw = Draw(options.seed, options.folders.split(","))
    mutants = draw.all(options.count)
    if options.list:
        for m in mutants:
            print(f"{m.number:4} {m.file}:{m.line} {m.kind:8} {flat(m.place.text(m.number))}")
        return 0
    with tempfile.TemporaryDirectory(prefix="headrace-mutate-") as directory:
        work = options.work.resolve() if options.work else Path(directory)
        tree = Tree(work, options.jobs)
        say(f"building {len(mutants)} mutants in {work}")
        build(tree, draw, mutants)
        tests = Tests(tree)
        only = {int(n) for n in options.only.split(",") if n}
        mutants = [m for m in mutants if not only or m.number in only]
        programs = [p for p in tree.build.glob("**/headrace_*_test") if "soak" not in p.name]
        python = [] if options.no_python else list(tree.root.glob("tests/python/test_*.py"))
        for is_python, files in ((False, programs), (True, python)):
            left = [m for m in mutants if not m.killer]
            if left:
                tests.measure(sorted(files))
            with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
                for asked in [pool.submit(tests.ask, m, is_python, options.budget) for m in left]:
                    asked.result()
    failed = [f"{Path(s.program).name} {s.name}" for s in tests.suites if s.fails]
    report = markdown(mutants, shlex.join(["tools/mutate.py", *sys.argv[1:]]), failed)
    if options.markdown:
        options.markdown.write_text(report)
    else:
        print(report)
    if options.json:
        options.json.write_text(json.dumps([asdict(m) for m in mutants], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
