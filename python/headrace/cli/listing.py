"""ls, du, stat: what they do. Imports nothing that is slow to import."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

from headrace import _native
from headrace.base.units import format_bytes
from headrace.cli.base import (
    Stores,
    fail,
    is_local,
    print_json,
    refuse_folder,
    shown,
    split_url,
    stop_if_asked,
)
from headrace.cli.declare import Json, Names, VersionId, Where, argument, option
from headrace.cli.find import find, find_below, has_pattern, need_key
from headrace.errors import NotFoundError
from headrace.store.store import profile_environment
from headrace.store.urls import without_secrets

if TYPE_CHECKING:
    from headrace._native import ObjectInfo

Recursive = Annotated[bool, option("--recursive", "-r", help="Everything below, not one level.")]
Human = Annotated[bool, option("--human", "-H", "--human-readable", help="Sizes as 1.5 GiB.")]


def _when(seconds: int | None) -> str:
    if seconds is None:
        return "-"
    import time

    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))


def _as_json(info: ObjectInfo) -> dict[str, Any]:
    return {"key": info.key, "size": info.size, "etag": info.etag, "modified": info.modified}


def list_objects(
    url: Annotated[
        str,
        argument(
            metavar="URL",
            help="Bucket, prefix, directory or pattern; s3://, gs:// or az://ACCOUNT for the buckets.",
        ),
    ],
    *,
    recursive: Recursive = False,
    long: Annotated[bool, option("--long", "-l", help="Versions (ETags) too.")] = False,
    human: Human = False,
    total: Annotated[bool, option("--summary", "-s", help="Only the number of objects and bytes.")] = False,
    summarize: Annotated[
        bool, option("--summarize", help="The number of objects and bytes at the end.")
    ] = False,
    full_url: Annotated[
        bool, option("--full-url", help="URLs, as other commands take them, instead of keys.")
    ] = False,
    names: Names,
    where: Where,
    json: Json = False,
) -> int:
    """List objects: time, size, key. A prefix that ends in / lists what is in it. Quote patterns, or the
    shell takes them.

    Examples:

    * `headrace ls s3://` — buckets of the account; `gs://` those of the project, `az://ACCOUNT` containers

    * `headrace ls s3://bucket/` — one level

    * `headrace ls -r s3://bucket/train` — every key that starts with train

    * `headrace ls 's3://bucket/train/shard-{0,1}*.tar'` — by pattern: `*` and `?` stay in one directory, `**`
      does not

    * `headrace ls -r --full-url --exclude '*.tmp' s3://bucket/train` — a URL a line

    * `headrace ls -rs /data/shards` — count and bytes of a local tree
    """
    if url.endswith("://") or _native.is_bucket_owner(url):
        return _list_buckets(url, where, json)
    with Stores(where) as stores:
        store, prefix, objects = find(stores, url, names, recursive or total)
        root = f"{without_secrets(store.url).rstrip('/')}/" if full_url else ""
        is_empty, count, size = True, 0, 0
        for info in objects:
            stop_if_asked()
            is_empty = False
            if not _is_rolled_up(info):
                count, size = count + 1, size + info.size
            if total:
                continue
            if json:
                print_json({**_as_json(info), **({"url": root + info.key} if full_url else {})})
            else:
                sys.stdout.write(_line(info, root, long, human))
        if (total or summarize) and json:
            print_json({"objects": count, "bytes": size})
        elif total or summarize:
            sys.stdout.write(f"{count:,} objects, {size:,} bytes ({format_bytes(size)})\n")
        if is_empty and (prefix or _chooses(url, names)):
            return fail(_nothing(url, names))
    return 0


def _is_rolled_up(info: ObjectInfo) -> bool:
    """Whether it stands for all that is below a directory, and is no object itself, as marks are."""
    return info.key.endswith("/") and not info.etag


def _list_buckets(url: str, where: Where, json: bool) -> int:
    options = {name: value for name, value in where.as_dict().items() if value is not None}
    environment = profile_environment(options.pop("profile", None))
    for bucket, created in _native.list_buckets(url, options, environment):
        if json:
            print_json({"bucket": bucket.rpartition("/")[2], "url": bucket, "created": created})
        else:
            sys.stdout.write(f"{_when(created):19} {shown(bucket)}\n")
    return 0


def _line(info: ObjectInfo, root: str, long: bool, human: bool) -> str:
    is_directory = info.key.endswith("/") and not info.size
    size = "-" if is_directory else format_bytes(info.size) if human else f"{info.size:,}"
    tail = f" {info.etag}" if long and not is_directory else ""
    return f"{'' if is_directory else _when(info.modified):19} {size:>14} {shown(root + info.key + tail)}\n"


def _chooses(url: str, names: Names) -> bool:
    """Whether only some names of what the URL begins with are asked for: then none of them is an error, and
    an empty bucket is not."""
    return bool(names.include or names.exclude) or has_pattern(url, names)


def _nothing(url: str, names: Names) -> str:
    if names.include or names.exclude:
        return f"{url}: nothing that --include and --exclude leave"
    if has_pattern(url, names):
        return f"{url}: nothing matches"
    if is_local(url):
        return f"{url}: no such file or directory"
    return f"{url}: no object starts with this; list the bucket with: headrace ls {split_url(url)[0].rstrip('/')}/"  # noqa: E501


def du(
    urls: Annotated[list[str], argument(metavar="URL...", help="Prefixes, directories or patterns.")],
    *,
    depth: Annotated[
        int, option("--depth", least=0, metavar="N", help="Sums of directories down to this level, too.")
    ] = 0,
    human: Human = False,
    names: Names,
    where: Where,
    json: Json = False,
) -> int:
    """Add up sizes: bytes, objects, URL. A URL is an object, or a directory with all that is below it.

    Examples:

    * `headrace du -H s3://bucket/train/`

    * `headrace du --depth 1 s3://bucket/` — every first-level prefix
    """
    with Stores(where) as stores:
        for url in urls:
            store, prefix, objects = find_below(stores, url, names)
            root = store.url.rstrip("/")
            base = prefix[: prefix.rfind("/") + 1]
            sums: dict[str, list[int]] = {"": [0, 0]}
            for info in objects:
                stop_if_asked()
                components = info.key[len(base) :].split("/")[:-1][:depth]
                for level in range(len(components) + 1):
                    entry = sums.setdefault("/".join(components[:level]), [0, 0])
                    entry[0] += info.size
                    entry[1] += 1
            chooses = _chooses(url, names)
            if not sums[""][1] and (prefix or chooses):
                raise NotFoundError(_nothing(url, names) if chooses else f"{url}: nothing below it")
            for name in sorted(sums, key=lambda n: (n == "", n)):
                size, count = sums[name]
                below = without_secrets(f"{root}/{base}{name}/" if name else url)
                if json:
                    print_json({"url": below, "bytes": size, "objects": count})
                else:
                    sys.stdout.write(
                        f"{format_bytes(size) if human else f'{size:,}':>16} {count:>10,} {shown(below)}\n"
                    )
    return 0


def stat(
    url: Annotated[str, argument(metavar="URL", help="One object or file.")],
    *,
    version_id: VersionId = None,
    where: Where,
    json: Json = False,
) -> int:
    """Show size, version (ETag) and time of one object; where the bucket keeps versions, also the id of this
    one.

    Examples:

    * `headrace stat s3://bucket/train/index.json --json`

    * `headrace stat s3://bucket/model.bin --version-id 3sL4kqtJlcpXroDTDmJ.rmSpXd3dIbrHY`
    """
    with Stores(where) as stores:
        store, key = stores.split(url)
        try:
            info = store.head(need_key(url, key, takes_marks=True), version_id=version_id)
        except NotFoundError as error:
            refuse_folder(store, key, error, f"`headrace ls {url.rstrip('/')}/` lists it")
            raise
    if json:
        print_json({**_as_json(info), "version_id": info.version_id})
    else:
        name = shown(without_secrets(url))
        identity = f"id        {shown(info.version_id)}\n" if info.version_id else ""
        sys.stdout.write(
            f"url       {name}\nsize      {info.size:,} bytes ({format_bytes(info.size)})\nversion   "
            f"{shown(info.etag)}\n{identity}modified  {_when(info.modified)} UTC\n"
        )
    return 0
