"""ls, du, stat, cat, cp, sync, rm: their arguments and help. What they do is in listing.py and transfer.py."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli import listing, transfer
from headrace.cli.common import AccessLog, Anonymous, Endpoint, Json, Region

Recursive = Annotated[bool, typer.Option("--recursive", "-r", help="Everything below, not one level.")]
Human = Annotated[bool, typer.Option("--human", "-h", help="Sizes as 1.5 GiB.")]
Include = Annotated[
    list[str] | None,
    typer.Option(
        "--include",
        metavar="PATTERN",
        help="Only names that match; may be repeated. With a / all of the name below SRC is compared, else its last part.",
    ),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude", metavar="PATTERN", help="Not the names that match; may be repeated; wins over --include."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done; change nothing.")]
Fsync = Annotated[
    bool, typer.Option("--fsync", help="Local files survive a power failure once they have their name.")
]
Concurrency = Annotated[
    int, typer.Option("--concurrency", min=1, metavar="N", help="Most requests in flight.")
]
PartSize = Annotated[
    str | None,
    typer.Option("--part-size", metavar="SIZE", help="Parts of large objects, such as 16MiB; default 8MiB."),
]
CopyMemory = Annotated[str, typer.Option("--memory", metavar="SIZE", help="Limit of the data under way.")]
Verify = Annotated[bool, typer.Option(" /--no-verify", help="Without checksums, sent or checked.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="A line for each object.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Nothing but errors.")]


def list_objects(
    url: Annotated[str, typer.Argument(metavar="URL", help="Bucket, prefix, directory or pattern.")],
    recursive: Recursive = False,
    long: Annotated[bool, typer.Option("--long", "-l", help="Versions (ETags) too.")] = False,
    human: Human = False,
    total: Annotated[
        bool, typer.Option("--summary", "-s", help="Only the number of objects and bytes.")
    ] = False,
    summarize: Annotated[
        bool, typer.Option("--summarize", help="The number of objects and bytes at the end.")
    ] = False,
    endpoint: Endpoint = None,
    region: Region = None,
    anonymous: Anonymous = False,
    json: Json = False,
) -> int:
    """List objects: time, size, key. A prefix that ends in / lists what is in it. Quote patterns, or the
    shell takes them.

    Examples:

    * `headrace ls s3://bucket/` — one level

    * `headrace ls -r s3://bucket/train` — every key that starts with train

    * `headrace ls 's3://bucket/train/shard-{0,1}*.tar'` — by pattern: `*` and `?` stay in one directory, `**`
      does not

    * `headrace ls -rs /data/shards` — count and bytes of a local tree
    """
    return listing.list_objects(
        url, recursive, long, human, total, summarize, endpoint, region, anonymous, json
    )


def du(
    urls: Annotated[list[str], typer.Argument(metavar="URL...", help="Prefixes, directories or patterns.")],
    depth: Annotated[
        int, typer.Option("--depth", min=0, metavar="N", help="Sums of directories down to this level, too.")
    ] = 0,
    human: Human = False,
    endpoint: Endpoint = None,
    region: Region = None,
    anonymous: Anonymous = False,
    json: Json = False,
) -> int:
    """Add up sizes: bytes, objects, URL.

    Examples:

    * `headrace du -h s3://bucket/train/`

    * `headrace du --depth 1 s3://bucket/` — every first-level prefix
    """
    return listing.du(urls, depth, human, endpoint, region, anonymous, json)


def stat(
    url: Annotated[str, typer.Argument(metavar="URL", help="One object or file.")],
    endpoint: Endpoint = None,
    region: Region = None,
    anonymous: Anonymous = False,
    json: Json = False,
) -> int:
    """Show size, version and time of one object.

    Example: `headrace stat s3://bucket/train/index.json --json`
    """
    return listing.stat(url, endpoint, region, anonymous, json)


def cat(
    urls: Annotated[list[str], typer.Argument(metavar="URL...", help="Objects or files.")],
    offset: Annotated[int, typer.Option(min=0, help="First byte.")] = 0,
    length: Annotated[int | None, typer.Option(min=1, help="Number of bytes; default: to the end.")] = None,
    range: Annotated[
        str | None,
        typer.Option("--range", metavar="FIRST-LAST", help="Bytes as HTTP counts them: 0-511 are 512."),
    ] = None,
    endpoint: Endpoint = None,
    region: Region = None,
    anonymous: Anonymous = False,
    access_log: AccessLog = None,
    json: Json = False,
) -> int:
    """Write objects to stdout, one after another, read ahead in parallel parts.

    Examples:

    * `headrace cat s3://bucket/train/index.json | jq .version`

    * `headrace cat --range 0-511 s3://bucket/a.tar | xxd`

    With `--json` each part is one line with its key, offset, length and base64 data.
    """
    return listing.cat(**locals())


def cp(
    urls: Annotated[
        list[str],
        typer.Argument(
            metavar="SRC... DST", help="Objects, files or patterns, - is stdin; then where to, - is stdout."
        ),
    ],
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Everything below SRC.")] = False,
    no_clobber: Annotated[bool, typer.Option("--no-clobber", "-n", help="Skip what exists at DST.")] = False,
    if_size_differ: Annotated[
        bool,
        typer.Option(
            "--if-size-differ",
            help="Skip what exists at DST with the same size: goes on with a copy that was stopped.",
        ),
    ] = False,
    include: Include = None,
    exclude: Exclude = None,
    dry_run: DryRun = False,
    keep_times: Annotated[
        bool, typer.Option("--keep-times", help="Local files get the time of their source.")
    ] = False,
    fsync: Fsync = False,
    concurrency: Concurrency = 64,
    part_size: PartSize = None,
    memory: CopyMemory = "256MiB",
    verify: Verify = True,
    verbose: Verbose = False,
    quiet: Quiet = False,
    endpoint: Endpoint = None,
    region: Region = None,
    anonymous: Anonymous = False,
    access_log: AccessLog = None,
    json: Json = False,
) -> int:
    """Copy between stores and the local disk, in parallel. What exists at DST is replaced unless -n or
    --if-size-differ.

    With -r, what is in SRC comes to lie in DST; with several SRC, in DST/name. Large objects that were
    stopped in the middle go on where they stood. Objects that fail do not stop the others; they are listed at
    the end.

    Examples:

    * `headrace cp s3://bucket/model.bin .`

    * `headrace cp -r ./shards s3://bucket/train` — ./shards/a becomes s3://bucket/train/a

    * `headrace cp 's3://bucket/train/*.tar' /data/` — quoted, so that the pattern reaches us

    * `headrace cp -r --exclude '*.tmp' s3://bucket/train gs://other/train`

    * `tar c ./src | headrace cp - s3://bucket/src.tar`
    """
    return transfer.cp(**locals())


def sync(
    source: Annotated[str, typer.Argument(metavar="SRC", help="Prefix or directory.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="What becomes equal to it.")],
    delete: Annotated[
        bool,
        typer.Option(
            "--delete",
            help="Delete what SRC does not have, once all is copied; not what --exclude keeps out.",
        ),
    ] = False,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact",
            help="Also copy what has another time (local DST; copies get SRC's time) or another ETag (between stores).",
        ),
    ] = False,
    size_only: Annotated[bool, typer.Option("--size-only", help="Compare sizes only.")] = False,
    include: Include = None,
    exclude: Exclude = None,
    dry_run: DryRun = False,
    fsync: Fsync = False,
    concurrency: Concurrency = 64,
    part_size: PartSize = None,
    memory: CopyMemory = "256MiB",
    verify: Verify = True,
    verbose: Verbose = False,
    quiet: Quiet = False,
    endpoint: Endpoint = None,
    region: Region = None,
    anonymous: Anonymous = False,
    access_log: AccessLog = None,
    json: Json = False,
) -> int:
    """Make DST equal to SRC: copies what is missing, has another size, or is newer in SRC.

    Examples:

    * `headrace sync ./runs s3://bucket/runs`

    * `headrace sync --delete --dry-run s3://bucket/train /data/train` — first see what would happen
    """
    return transfer.sync(**locals())


def rm(
    urls: Annotated[
        list[str], typer.Argument(metavar="URL...", help="Objects, files or patterns, or with -r prefixes.")
    ],
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Everything below each URL.")] = False,
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", "--force", "-f", help="Do not ask.")] = False,
    endpoint: Endpoint = None,
    region: Region = None,
    anonymous: Anonymous = False,
    json: Json = False,
) -> int:
    """Delete objects. With -r or a pattern it says how many it will delete and asks first.

    Examples:

    * `headrace rm s3://bucket/old.tar`

    * `headrace rm -r s3://bucket/tmp/ --yes`

    * `headrace rm --dry-run 's3://bucket/logs/2024-*.txt'`
    """
    return listing.rm(urls, recursive, dry_run, yes, endpoint, region, anonymous, json)


def register(app: typer.Typer) -> None:
    app.command("ls")(list_objects)
    app.command("du")(du)
    app.command("stat")(stat)
    app.command("cat")(cat)
    app.command("cp")(cp)
    app.command("sync")(sync)
    app.command("rm")(rm)
