"""cat, presign. Imports nothing that is slow to import."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from headrace import _native
from headrace.cli.base import Stores, data_on_stdout, note, print_json, refuse_folder, stop_if_asked
from headrace.cli.declare import DataWhere, Json, Names, VersionId, Where, argument, option
from headrace.cli.find import named, need_one_for_version
from headrace.errors import InvalidArgumentError, NotFoundError
from headrace.store.urls import is_azure

if TYPE_CHECKING:
    from headrace.store.store import Store

READ_BYTES = 8 << 20
NO_END = (1 << 64) - 1
MOST_OFFSET = (1 << 63) - 1
MOST_DIGITS = 19
"""Of a place in an object: as many fit its 64 bits."""


def _parse_range(text: str) -> tuple[int, int]:
    """[begin, end) of "0-511", "512-"."""
    first, dash, last = text.partition("-")
    if not (dash and text.isascii() and first.isdecimal() and (last or "0").isdecimal()):
        raise InvalidArgumentError(f"--range {text}: expected FIRST-LAST or FIRST-, such as 0-511")
    if len(first) > MOST_DIGITS:
        raise InvalidArgumentError(f"--range {text:.60}: no object has so many bytes")
    end = int(last) + 1 if last and len(last) <= MOST_DIGITS else NO_END
    if end <= int(first):
        raise InvalidArgumentError(f"--range {text}: the last byte comes before the first")
    return int(first), end


def cat(
    urls: Annotated[list[str], argument(metavar="URL...", help="Objects, files or patterns.")],
    *,
    offset: Annotated[int, option("--offset", least=0, most=MOST_OFFSET, help="First byte.")] = 0,
    length: Annotated[
        int | None,
        option("--length", least=1, most=MOST_OFFSET, help="Number of bytes; default: to the end."),
    ] = None,
    range: Annotated[
        str | None,
        option("--range", metavar="FIRST-LAST", help="Bytes as HTTP counts them: 0-511 are 512."),
    ] = None,
    version_id: VersionId = None,
    names: Names,
    where: DataWhere,
    json: Json = False,
) -> int:
    """Write objects to stdout, one after another, read ahead in parallel parts.

    Examples:

    * `headrace cat s3://bucket/train/index.json | jq .version`

    * `headrace cat 's3://bucket/logs/2024-*.txt' | sort` — in the order of their names

    * `headrace cat --range 0-511 s3://bucket/a.tar | xxd`

    With `--json` each part is one line with its key, offset, length and base64 data.
    """
    if range is not None and (offset or length is not None):
        raise InvalidArgumentError("--range says which bytes: leave out --offset and --length")
    need_one_for_version(urls, names, version_id)
    begin, end = (
        (offset, NO_END if length is None else offset + length) if range is None else _parse_range(range)
    )
    with Stores(where) as stores:
        for store, key in named(stores, urls, names):
            try:
                if json:
                    _print_parts(store, key, begin, end, version_id)
                    continue
                with data_on_stdout():
                    _native.read_stream(
                        store._native,
                        key,
                        1,
                        begin=begin,
                        end=end,
                        version_id=version_id or "",
                        tick=stop_if_asked,
                    )
            except NotFoundError as error:
                refuse_folder(store, key, error, f"all below it: headrace cat '{store.url}/{key}/**'")
                raise
    return 0


def _print_parts(store: Store, key: str, begin: int, end: int, version_id: str | None) -> None:
    import base64

    info = store.head(key, version_id=version_id)
    if begin > info.size:
        raise InvalidArgumentError(f"{store.url}/{key} has {info.size} bytes: [{begin}, ...) is not in it")
    end = min(end, info.size)
    for start in range(begin, end, READ_BYTES):
        stop_if_asked()
        length = min(READ_BYTES, end - start)
        part = store.get_range(key, start, length, etag=info.etag, version_id=version_id)
        print_json(
            {"key": key, "offset": start, "length": len(part), "data": base64.b64encode(part).decode()}
        )


MOST_SECONDS = 100 * 366 * 86400
_AZURE_PUT = {"x-ms-blob-type": "BlockBlob"}
"""What Azure wants with the bytes, and no signature covers."""


def presign(
    urls: Annotated[list[str], argument(metavar="URL...", help="Objects or patterns.")],
    *,
    expires: Annotated[
        str,
        option(
            "--expires",
            metavar="TIME",
            help="For how long, such as 90s, 15m, 12h, 7d.",
            aliases=("--expires-in", "--expire"),
        ),
    ] = "1h",
    method: Annotated[str, option("--method", metavar="GET|PUT", help="What its bearer may do.")] = "GET",
    version_id: VersionId = None,
    names: Names,
    where: Where,
    json: Json = False,
) -> int:
    """Print a URL that lets whoever has it read (or with --method PUT write) the object. Asks no store unless
    a pattern has to be listed; the object need not exist.

    Examples:

    * `headrace presign s3://bucket/model.bin --expires 24h`

    * `curl -T local.bin "$(headrace presign --method PUT s3://bucket/local.bin)"`

    * `curl -T local.bin -H 'x-ms-blob-type: BlockBlob' "$(headrace presign --method PUT az://account/c/key)"`
    """
    seconds = parse_lifetime(expires, "--expires")
    need_one_for_version(urls, names, version_id)
    with Stores(where) as stores:
        for store, key in named(stores, urls, names):
            url = store.presign(key, method=method.upper(), lifetime=seconds, version_id=version_id)
            headers = _AZURE_PUT if method.upper() == "PUT" and is_azure(store.url) else {}
            if json:
                print_json({"key": key, "url": url, "seconds": seconds, "headers": headers})
                continue
            sys.stdout.write(url + "\n")
            for name, value in headers.items():
                note(f"send it with the header {name}: {value}")
    return 0


def parse_lifetime(text: str, name: str) -> int:
    """Seconds of "90", "90s", "15m", "12h", "7d"."""
    units = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
    number = text.rstrip("smhd")
    if not number.isdecimal() or text[len(number) :] not in units or int(number) == 0:
        raise InvalidArgumentError(f"{name} {text}: expected a time such as 90s, 15m, 12h or 7d")
    seconds = int(number) * units[text[len(number) :]] if len(number) < MOST_DIGITS else MOST_SECONDS + 1
    if seconds > MOST_SECONDS:
        raise InvalidArgumentError(f"{name} {text:.60}: longer than 100 years")
    return seconds
