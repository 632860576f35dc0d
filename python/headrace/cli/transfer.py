"""cp, mv and sync. Imports nothing that is slow to import."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from headrace import _native
from headrace.base.units import parse_bytes
from headrace.cli.base import (
    Stores,
    data_on_stdout,
    is_local,
    local_path,
    note,
    print_json,
    shown,
    stop_if_asked,
    together,
    wildcard,
)
from headrace.cli.declare import Concurrency, DataWhere, DryRun, Json, Names, VersionId, argument, option
from headrace.cli.plan import Shape, open_target, plan, target_is_directory
from headrace.cli.running import Settings, run
from headrace.cli.settings import ObjectOptions
from headrace.errors import InvalidArgumentError
from headrace.store.urls import without_secrets

STREAM_MEMORY_SHARE = 2
LEAST_MEMORY = 16 << 20
"""Of a copy that shares its memory with others."""


class Transfer(Names):
    """What cp, mv and sync have in common."""

    dry_run: DryRun = False
    fsync: Annotated[
        bool, option("--fsync", help="Local files survive a power failure once they have their name.")
    ] = False
    concurrency: Concurrency = 512
    part_size: Annotated[
        str | None,
        option(
            "--part-size",
            metavar="SIZE",
            help="Parts of large objects, such as 16MiB; default 8MiB, down 4MiB.",
        ),
    ] = None
    memory: Annotated[str, option("--memory", metavar="SIZE", help="Limit of the data under way.")] = "256MiB"
    verify: Annotated[bool, option("--no-verify", help="Without checksums, sent or checked.")] = True
    verbose: Annotated[bool, option("--verbose", "-v", help="A line for each object.")] = False
    quiet: Annotated[bool, option("--quiet", "-q", help="Nothing but errors.")] = False


def _memory(text: str) -> int:
    """Bytes of one command."""
    memory = parse_bytes(text)
    return memory if together.stores is None else max(memory // together.stores.count, LEAST_MEMORY)


def _settings(transfer: Transfer, json: bool, **job: Any) -> Settings:
    job |= {
        "include": transfer.include or [],
        "exclude": transfer.exclude or [],
        "part_bytes": parse_bytes(transfer.part_size, "--part-size") if transfer.part_size else 0,
        "memory_bytes": _memory(transfer.memory),
        "max_in_flight": transfer.concurrency,
        "dry_run": transfer.dry_run,
        "fsync": transfer.fsync,
    }
    return Settings(job, dry_run=transfer.dry_run, verbose=transfer.verbose, json=json, quiet=transfer.quiet)


class _CopyStores(Stores):
    def options_of(self, root: str) -> dict[str, Any]:
        """Local files are copied in place: there are no requests for an access log, and no way around the
        files themselves."""
        return {**self.options, "access_log": ""} if is_local(root) else self.options


def _stores(where: DataWhere, transfer: Transfer) -> Stores:
    options: dict[str, Any] = {"max_in_flight": transfer.concurrency}
    if not transfer.verify:
        options |= {"verify_checksums": False, "upload_checksum": "none"}
    return _CopyStores(where, memory="64MiB", **options)


Sources = Annotated[
    list[str],
    argument(
        metavar="SRC... DST",
        help="Objects, files or patterns, - is stdin; then where to, - is stdout.",
        least=2,
    ),
]
Recursive = Annotated[bool, option("--recursive", "-r", help="Everything below SRC.")]
NoClobber = Annotated[bool, option("--no-clobber", "-n", help="Skip what exists at DST.")]
Flatten = Annotated[
    bool,
    option(
        "--flatten", help="All in DST itself, by the last part of their names; two of one name are an error."
    ),
]


def cp(
    urls: Sources,
    *,
    recursive: Recursive = False,
    no_clobber: NoClobber = False,
    flatten: Flatten = False,
    if_size_differ: Annotated[
        bool,
        option(
            "--if-size-differ",
            help="Skip what exists at DST with the same size: goes on with a copy that was stopped.",
        ),
    ] = False,
    keep_times: Annotated[
        bool, option("--keep-times", help="Local files get the time of their source.")
    ] = False,
    version_id: VersionId = None,
    transfer: Transfer,
    written: ObjectOptions,
    where: DataWhere,
    json: Json = False,
) -> int:
    """Copy between stores and the local disk, in parallel. What exists at DST is replaced unless -n or
    --if-size-differ.

    With -r, what is in SRC comes to lie in DST; with several SRC, in DST/name. Large objects that were
    stopped in the middle go on where they stood. Objects that fail do not stop the others; they are listed at
    the end. Between stores, type, encoding and user metadata are kept; files have none.

    Examples:

    * `headrace cp s3://bucket/model.bin .`

    * `headrace cp report.csv s3://bucket/ --storage-class STANDARD_IA --metadata run=17`

    * `headrace cp -r ./shards s3://bucket/train` — ./shards/a becomes s3://bucket/train/a

    * `headrace cp 's3://bucket/train/*.tar' /data/` — quoted, so that the pattern reaches us

    * `headrace cp -r --exclude '*.tmp' s3://bucket/train gs://other/train`

    * `tar c ./src | headrace cp - s3://bucket/src.tar`
    """
    *sources, target = urls
    shape = Shape(recursive, transfer.raw, len(sources) > 1, flatten)
    if version_id and (recursive or shape.many or shape.pattern(sources[0]) is not None):
        raise InvalidArgumentError("--version-id is that of one object: give one SRC, without -r or pattern")
    rule = "absent" if no_clobber else "size" if if_size_differ else "always"
    settings = _settings(
        transfer, json, rule=rule, keep_times=keep_times, flatten=flatten, version_id=version_id
    )
    with _stores(where, transfer) as stores:
        if target == "-" or (len(sources) == 1 and sources != ["-"] and _is_device(target)):
            return _to_stream(stores, sources, target, shape, settings, written)
        if "-" in sources:
            return _from_stdin(stores, sources, target, shape, settings, written)
        return run(plan(stores, sources, target, shape, written), settings)


def mv(
    urls: Annotated[
        list[str],
        argument(metavar="SRC... DST", help="Objects, files or patterns; then where to.", least=2),
    ],
    *,
    recursive: Recursive = False,
    no_clobber: NoClobber = False,
    flatten: Flatten = False,
    transfer: Transfer,
    written: ObjectOptions,
    where: DataWhere,
    json: Json = False,
) -> int:
    """Move: copies, and removes from SRC what has arrived, object by object. What is skipped or fails stays.

    Takes what cp takes. Local files that arrive are on the disk (`--fsync`) before their source goes. A local
    file that is written to meanwhile stays.

    Examples:

    * `headrace mv s3://bucket/run-1/last.pt s3://bucket/keep/`

    * `headrace mv -r ./finished s3://bucket/finished`

    * `headrace mv 's3://bucket/logs/2024-*.txt' /archive/`
    """
    *sources, target = urls
    if "-" in urls:
        raise InvalidArgumentError("- cannot be moved; to copy a stream: headrace cp")
    transfer.fsync = True
    rule = "absent" if no_clobber else "always"
    settings = _settings(transfer, json, rule=rule, keep_times=False, flatten=flatten)
    with _stores(where, transfer) as stores:
        shape = Shape(recursive, transfer.raw, len(sources) > 1, flatten)
        return run(plan(stores, sources, target, shape, written), settings._replace(moves=True))


def _is_device(target: str) -> bool:
    """A terminal, /dev/null: written to as stdout is, not replaced."""
    try:
        return is_local(target) and stat.S_ISCHR(os.stat(local_path(target)).st_mode)
    except OSError:
        return False


@contextmanager
def _output(target: str) -> Iterator[int]:
    """The descriptor of stdout or of a device."""
    if target == "-":
        with data_on_stdout():
            yield 1
        return
    with open(local_path(target), "wb", buffering=0) as device:
        yield device.fileno()


def _to_stream(
    stores: Stores, sources: list[str], target: str, shape: Shape, settings: Settings, written: ObjectOptions
) -> int:
    name = "stdout" if target == "-" else target
    if written.settings():
        raise InvalidArgumentError(f"{name} keeps no settings: leave out {written.flags()}")
    if shape.recursive or any(shape.pattern(url) is not None for url in sources):
        raise InvalidArgumentError(f"{name} takes one plain object; all that a pattern names: headrace cat")
    memory = settings.job["memory_bytes"] // STREAM_MEMORY_SHARE
    for url in sources:
        store, key = stores.split(url)
        if settings.dry_run:
            store.head(key)
            _would_copy(settings, url, target)
            continue
        with _output(target) as descriptor:
            _native.read_stream(
                store._native,
                key,
                descriptor,
                memory_bytes=memory,
                version_id=settings.job["version_id"] or "",
                tick=stop_if_asked,
            )
    return 0


def _would_copy(settings: Settings, source: str, target: str) -> None:
    if settings.json:
        print_json({"action": "copy", "from": source, "to": target, "dry_run": True})
    elif not settings.quiet:
        sys.stdout.write(shown(f"would copy {without_secrets(source)} -> {without_secrets(target)}") + "\n")


def _from_stdin(
    stores: Stores, sources: list[str], target: str, shape: Shape, settings: Settings, written: ObjectOptions
) -> int:
    started = time.monotonic()
    rule = settings.job["rule"]
    if sources != ["-"] or target_is_directory(target):
        raise InvalidArgumentError("stdin becomes one object: headrace cp - s3://bucket/key")
    if together.stores is not None:
        raise InvalidArgumentError("stdin cannot be copied by one of many commands")
    if settings.job["version_id"]:
        raise InvalidArgumentError("stdin has no versions: leave out --version-id")
    if rule == "size":
        raise InvalidArgumentError("the size of stdin is not known: leave out --if-size-differ")
    store, key = open_target(stores, target, False, shape.raw, written)
    is_skipped = rule == "absent" and store.exists(key)
    size = 0
    if settings.dry_run and not is_skipped:
        _would_copy(settings, "-", target)
        return 0
    if not is_skipped:
        size = _native.write_stream(
            store._native,
            key,
            0,
            part_bytes=settings.job["part_bytes"] or 8 << 20,
            memory_bytes=settings.job["memory_bytes"] // STREAM_MEMORY_SHARE,
            if_absent=rule == "absent",
        ).size
    elif not (settings.json or settings.quiet):
        note(f"{target} exists: skipped")
    if settings.json:
        counts = {"objects": int(not is_skipped), "bytes": size, "skipped": int(is_skipped)}
        print_json({**counts, "seconds": time.monotonic() - started})
    return 0


def sync(
    source: Annotated[str, argument(metavar="SRC", help="Prefix or directory.")],
    target: Annotated[str, argument(metavar="DST", help="What becomes equal to it.")],
    *,
    delete: Annotated[
        bool,
        option(
            "--delete",
            help="Delete what SRC does not have, once all is copied; not what --exclude keeps out.",
        ),
    ] = False,
    exact: Annotated[
        bool,
        option(
            "--exact",
            help=(
                "Also copy what has another time (local DST; copies get SRC's time) or another ETag (between "
                "stores)."
            ),
        ),
    ] = False,
    size_only: Annotated[bool, option("--size-only", help="Compare sizes only.")] = False,
    transfer: Transfer,
    written: ObjectOptions,
    where: DataWhere,
    json: Json = False,
) -> int:
    """Make DST equal to SRC: copies what is missing, has another size, or is newer in SRC.

    Examples:

    * `headrace sync ./runs s3://bucket/runs`

    * `headrace sync --delete --dry-run s3://bucket/train /data/train` — first see what would happen
    """
    if exact and size_only:
        raise InvalidArgumentError("--exact and --size-only exclude each other")
    is_pattern = not transfer.raw and source and wildcard(source) is not None
    if source and is_local(source) and not is_pattern and not os.path.isdir(local_path(source)):
        raise InvalidArgumentError(f"{source} is no directory; to copy one file: headrace cp")
    rule = "different" if exact else "size" if size_only else "newer"
    settings = _settings(transfer, json, rule=rule, delete=delete)
    with _stores(where, transfer) as stores:
        return run(plan(stores, [source], target, Shape(True, transfer.raw, False), written), settings)
