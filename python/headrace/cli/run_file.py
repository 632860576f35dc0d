"""run: many commands in one process. Imports nothing that is slow to import."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from headrace.cli.base import CANCELLED, Shared, SharedOutput, fail, guard, print_json, together
from headrace.cli.declare import DataWhere, Json, Where, argument, call, option, parameters
from headrace.errors import InvalidArgumentError

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = ["run_file"]

Command = Callable[..., int]
Parse = Callable[[list[str]], tuple[Command, list[Any], dict[str, Any]] | None]
AHEAD = 4
"""Commands that are read while others run, by worker."""
POLL_SECONDS = 0.2
"""Python takes Ctrl-C between two waits."""


_PIECE = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*"|.""", re.DOTALL)
"""A character of a line, or all that one quote or backslash covers."""


class _Line(NamedTuple):
    label: str
    words: list[str]
    problem: str = ""
    """Why there are no words."""


def _without_comment(text: str) -> str:
    """As a shell: # begins a comment at the start of a word only. shlex would end `data#old` after `data`,
    and delete something else."""
    is_start = True
    for piece in _PIECE.finditer(text) if "#" in text else ():
        if is_start and piece[0] == "#":
            return text[: piece.start()]
        is_start = piece[0] in " \t\r\n"
    return text


def _lines(file: str) -> Iterator[_Line]:
    """Commands of a file, without comments and empty lines."""
    name = "stdin" if file == "-" else file
    with sys.stdin if file == "-" else open(file, encoding="utf-8", errors="surrogateescape") as source:
        for number, text in enumerate(source, 1):
            label = f"{name}:{number}: "
            try:
                words = shlex.split(_without_comment(text))
            except ValueError as error:
                yield _Line(label, [], str(error))
                continue
            if words[:1] == ["headrace"]:
                words = words[1:]
            if words:
                yield _Line(label, words)


class _Runner:
    """Runs lines beside each other."""

    def __init__(
        self, commands: Mapping[str, Command], parse: Parse, given: dict[str, Any], workers: int
    ) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._commands, self._parse = commands, parse
        self._given = given
        self._stores = Shared(workers)
        self._pool = ThreadPoolExecutor(workers)
        self._most = workers * AHEAD
        self._waiting: set[Future[int]] = set()
        self.output: Any = SharedOutput(sys.stdout, self._stores.output)
        self.count = 0
        self.failed = 0

    def add(self, line: _Line) -> None:
        while len(self._waiting) >= self._most:
            self._take()
        self.count += 1
        self._waiting.add(self._pool.submit(self._run, line))

    def _take(self) -> None:
        from concurrent.futures import FIRST_COMPLETED, wait

        done, self._waiting = wait(self._waiting, POLL_SECONDS, FIRST_COMPLETED)
        self.failed += sum(future.result() != 0 for future in done)

    def finish(self) -> None:
        while self._waiting:
            self._take()

    def close(self) -> None:
        """Ends what still runs."""
        self._stores.is_stopped.set()
        self._pool.shutdown(cancel_futures=True)
        self._stores.close()

    def _run(self, line: _Line) -> int:
        together.stores, together.label = self._stores, line.label
        return guard(lambda: self._call(line))

    def _call(self, line: _Line) -> int:
        words = line.words
        if line.problem:
            raise InvalidArgumentError(line.problem)
        parsed = self._parse(words) if words[0] in self._commands else None
        if parsed is None:
            known = f"there are {', '.join(self._commands)}"
            why = f"see headrace {words[0]} --help" if words[0] in self._commands else known
            raise InvalidArgumentError(f"{shlex.join(words)}: not understood ({why})")
        function, arguments, options = parsed
        taken = {row.name for row in parameters(function)}
        options = {**{name: value for name, value in self._given.items() if name in taken}, **options}
        return call(function, arguments, options) or 0


def run_file(commands: Mapping[str, Command], parse: Parse) -> Command:
    """The command, which runs these others as ``parse`` understands their lines."""

    def run(
        file: Annotated[str, argument(metavar="FILE", help="A command a line; - is stdin.")],
        *,
        workers: Annotated[
            int,
            option("--workers", "-w", least=1, metavar="N", help="Commands at a time; 1: in their order."),
        ] = 16,
        where: DataWhere,
        json: Json = False,
    ) -> int:
        """Run many commands in one process, beside each other, with the same connections.

        Lines are commands without `headrace`, quoted as for a shell; patterns are never expanded by one.
        A # at the start of a word begins a comment. Commands start in their order and end in any
        (`--workers 1`: one after the other). One that fails, or is not quoted well, does not stop the
        others; then the exit code is 1. Options here hold for all commands that do not say otherwise.
        Nobody is asked: `rm -r` needs `--yes`.

        Examples:

        * `headrace run commands.txt`

        * `headrace ls -r --json s3://b/in | jq -r '@sh "cp --raw s3://b/\\(.key) /data/"' | headrace run -`
        """
        given = {
            name: value for name, value in where.as_dict().items() if value != getattr(Where, name, None)
        }
        runner = _Runner(commands, parse, given, workers)
        with redirect_stdout(runner.output):
            try:
                for line in _lines(file):
                    runner.add(line)
                runner.finish()
            except KeyboardInterrupt:
                fail(f"stopped; {runner.count:,} commands were begun")
                return CANCELLED
            finally:
                runner.close()
        if json:
            print_json({"commands": runner.count, "failed": runner.failed})
        if runner.failed:
            fail(f"{runner.failed:,} of {runner.count:,} commands failed")
        return 1 if runner.failed else 0

    return run
