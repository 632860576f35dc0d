"""Runs the commands on objects without loading the command-line library, whose import takes longer than most
copies.

Only plain, complete and correct command lines are taken; everything else (help, mistakes) goes the long way,
which answers in full. A test keeps the tables equal to the declarations in objects.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.cli import listing, packing, transfer
from headrace.cli.base import guard

FLAG, TEXT, NUMBER, MANY, RARE = "flag", "text", "number", "many", "rare"  # rare: goes the long way

STORE = {
    "--endpoint": ("endpoint", TEXT),
    "--region": ("region", TEXT),
    "--anonymous": ("anonymous", FLAG),
    "--json": ("json", FLAG),
}
LOGGED = {**STORE, "--access-log": ("access_log", TEXT)}
COPY = {
    **LOGGED,
    "--include": ("include", MANY),
    "--exclude": ("exclude", MANY),
    "--dry-run": ("dry_run", FLAG),
    "--fsync": ("fsync", FLAG),
    "--concurrency": ("concurrency", NUMBER),
    "--part-size": ("part_size", TEXT),
    "--memory": ("memory", TEXT),
    "--no-verify": ("verify", False),
    "--verbose": ("verbose", FLAG),
    "-v": ("verbose", FLAG),
    "--quiet": ("quiet", FLAG),
    "-q": ("quiet", FLAG),
}
RECURSIVE = {"--recursive": ("recursive", FLAG), "-r": ("recursive", FLAG)}
HUMAN = {"--human": ("human", FLAG), "-h": ("human", FLAG)}

# Command: (function, how many arguments at least, at most, do they come as a list, options).
COMMANDS: dict[str, tuple[Callable[..., int], int, int | None, bool, dict[str, tuple[str, Any]]]] = {
    "cp": (
        transfer.cp,
        2,
        None,
        True,
        {
            **COPY,
            **RECURSIVE,
            "--no-clobber": ("no_clobber", FLAG),
            "-n": ("no_clobber", FLAG),
            "--if-size-differ": ("if_size_differ", FLAG),
            "--keep-times": ("keep_times", FLAG),
        },
    ),
    "sync": (
        transfer.sync,
        2,
        2,
        False,
        {
            **COPY,
            "--delete": ("delete", FLAG),
            "--exact": ("exact", FLAG),
            "--size-only": ("size_only", FLAG),
        },
    ),
    "ls": (
        listing.list_objects,
        1,
        1,
        False,
        {
            **STORE,
            **RECURSIVE,
            **HUMAN,
            "--long": ("long", FLAG),
            "-l": ("long", FLAG),
            "--summary": ("total", FLAG),
            "-s": ("total", FLAG),
            "--summarize": ("summarize", FLAG),
        },
    ),
    "du": (listing.du, 1, None, True, {**STORE, **HUMAN, "--depth": ("depth", NUMBER)}),
    "stat": (listing.stat, 1, 1, False, STORE),
    "cat": (
        listing.cat,
        1,
        None,
        True,
        {
            **LOGGED,
            "--offset": ("offset", NUMBER),
            "--length": ("length", NUMBER),
            "--range": ("range", TEXT),
        },
    ),
    "pack": (
        packing.pack,
        2,
        2,
        False,
        {
            **LOGGED,
            "--format": ("format", TEXT),
            "--from": ("kind", TEXT),
            "--columns": ("columns", TEXT),
            "--map": ("map", TEXT),
            "--tokens": ("tokens", NUMBER),
            "--compression": ("compression", TEXT),
            "--hash": ("hash", TEXT),
            "--shard-bytes": ("shard_bytes", TEXT),
            "--workers": ("workers", NUMBER),
            "--ray": ("ray", FLAG),
            "--lease": ("lease", RARE),
            "--dry-run": ("dry_run", FLAG),
            "--split": ("split", TEXT),
            "--memory": ("memory", TEXT),
        },
    ),
    "rm": (
        listing.rm,
        1,
        None,
        True,
        {
            **STORE,
            **RECURSIVE,
            "--dry-run": ("dry_run", FLAG),
            "--yes": ("yes", FLAG),
            "-y": ("yes", FLAG),
            "--force": ("yes", FLAG),
            "-f": ("yes", FLAG),
        },
    ),
}


def parse(arguments: list[str]) -> tuple[Callable[..., int], list[Any], dict[str, Any]] | None:
    """(function, arguments, options) of a plain command line, else None."""
    if not arguments or arguments[0] not in COMMANDS:
        return None
    function, least, most, is_list, known = COMMANDS[arguments[0]]
    words: list[str] = []
    options: dict[str, Any] = {}
    rest = iter(arguments[1:])
    for word in rest:
        if not word.startswith("-") or word == "-":
            words.append(word)
            continue
        word, equals, value = word.partition("=")
        # "-rn" is "-r -n".
        flags = [f"-{c}" for c in word[1:]] if len(word) > 2 and word[1] != "-" and not equals else [word]
        for flag in flags:
            name, kind = known.get(flag, ("", None))
            if kind == FLAG and not equals:
                options[name] = True
            elif kind is False and not equals:
                options[name] = False
            elif kind in (TEXT, NUMBER, MANY) and len(flags) == 1:
                given = value if equals else next(rest, None)
                if given is None or (kind == NUMBER and not given.isdecimal()):
                    return None
                if kind == MANY:
                    options.setdefault(name, []).append(given)
                else:
                    options[name] = int(given) if kind == NUMBER else given
            else:
                return None
    if len(words) < least or (most is not None and len(words) > most):
        return None
    if options.get("length") == 0 or options.get("concurrency") == 0:
        return None
    return function, [words] if is_list else words, options


def run(arguments: list[str]) -> int | None:
    """The exit code; None when the command line is not plain."""
    parsed = parse(arguments)
    if parsed is None:
        return None
    function, words, options = parsed
    return guard(lambda: function(*words, **options))
