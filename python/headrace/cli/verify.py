"""verify, manifest, diff."""

from __future__ import annotations

import os
import re
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from headrace.base.units import format_bytes
from headrace.cli.base import is_local, local_file, local_path, split_url, told_when_stopped
from headrace.cli.common import Format, console, fail, print_json
from headrace.cli.dead_links import name_dead_links
from headrace.cli.declare import Chosen, DataWhere, Json, Memory
from headrace.cli.find import filter_of, need_key
from headrace.cli.index import Shape
from headrace.cli.library import add
from headrace.data.dataset import Dataset
from headrace.errors import NotFoundError
from headrace.loader.quarantine import format_quarantine
from headrace.store.store import Store
from headrace.store.urls import without_secrets
from headrace.verification import checks

NOTHING_LEFT = "nothing that --include and --exclude leave"

Workers = Annotated[
    int, typer.Option("--workers", min=0, help="Threads; 0: one a core, 64 for a remote store.")
]

manifest_app = typer.Typer(
    help="SHA-256 of every object below a URL: create a manifest, check one.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


def verify(
    url: Annotated[str, typer.Argument(metavar="URL", help="A dataset.")],
    *,
    use_index: Annotated[
        bool, typer.Option("--use-index", help="Trust the stored index instead of scanning the shards anew.")
    ] = False,
    quarantine: Annotated[
        str | None,
        typer.Option(
            "--quarantine",
            help="Write the samples and shards that are bad to this file, one JSON object a line.",
        ),
    ] = None,
    require_digests: Annotated[
        bool,
        typer.Option(
            "--require-digests",
            help=(
                "Also fail when some shard has neither a digest nor checksums, so that only lengths and "
                "structure could be compared."
            ),
        ),
    ] = False,
    workers: Workers = 0,
    format: Format = "auto",
    shape: Shape,
    memory: Memory = "512MiB",
    where: DataWhere,
    json: Json = False,
) -> int:
    """Read a dataset from end to end and check everything: lengths, versions, stored hashes, record
    checksums, offsets, every sample.

    Says what could not be checked, because the format stores nothing to compare with. Ends with exit code 1
    when something is wrong.

    Examples:

    * `headrace verify s3://bucket/imagenet-mds`

    * `headrace verify ./tars --quarantine bad.jsonl --json`
    """
    started = time.monotonic()
    bad = None if quarantine is None else Path(local_file(quarantine, "--quarantine"))
    most = 1000 if quarantine is None else (1 << 32) - 1  # A list that is to be used must be whole.
    with told_when_stopped("nothing is kept of it: the same command begins anew"):
        report = checks.verify(
            url,
            format=format,
            use_index=use_index,
            workers=workers,
            memory=memory,
            most_problems=most,
            dataset_options=dict(shape.given()),
            **where.as_dict(),
        )
    seconds = time.monotonic() - started
    if bad is not None:
        _write_quarantine(bad, report)
    if json:
        print_json(
            {
                **asdict(report),
                "problems": [p._asdict() for p in report.problems],
                "cut_ends": [end._asdict() for end in report.cut_ends],
                "shards_unchecked": report.shards_unchecked,
                "ok": report.ok,
                "seconds": seconds,
            }
        )
    else:
        for end in report.cut_ends:
            console().print(
                f"{end.key}: its last {end.bytes:,} bytes were passed over (--lenient)", markup=False
            )
        _print_problems(report)
        again = f", {report.second_reads:,} reads made again" if report.second_reads else ""
        console().print(
            f"{without_secrets(url)}: {report.format}, {report.samples_ok:,} of {report.samples:,} samples "
            f"good; {_checked(report)}{again}; {format_bytes(report.bytes_read)} read in {seconds:.1f} s",
            markup=False,
        )
    if report.problem_count:
        return fail(f"{url}: {report.problem_count:,} problem{'' if report.problem_count == 1 else 's'}")
    if not report.ok:
        return fail(f"{url}: {report.samples - report.samples_ok:,} samples were not checked")
    if require_digests and report.shards_unchecked:
        return fail(
            f"{url}: {report.shards_unchecked:,} of {report.shards:,} {_shards(report)} have neither digests "
            "nor checksums (--require-digests)"
        )
    return 0


def _shards(report: checks.VerifyReport) -> str:
    return "files" if report.format == "raw" else "shards"


def _checked(report: checks.VerifyReport) -> str:
    """What was compared, and of how many shards nothing could be."""
    count = f"{report.shards_with_digests:,} of {report.shards:,} {_shards(report)} have digests"
    parts = [
        count
        if not report.digests_compared
        else f"{count} ({report.digests_compared:,} stored digests compared)"
    ]
    if report.shards_with_checksums:
        parts.append(f"{report.shards_with_checksums:,} have checksums, which were compared")
    if report.shards_unchecked:
        some = report.shards_unchecked < report.shards
        of = f" of {report.shards_unchecked:,}" if some else ""
        return f"{', '.join(parts)}: only lengths and structure{of} were compared"
    return ", ".join(parts)


def _write_quarantine(path: Path, report: checks.VerifyReport) -> None:
    text, left_out = format_quarantine(report.problems, report.fingerprint)
    path.write_text(text, encoding="utf-8")
    if left_out:
        sys.stderr.write(
            f"headrace: {left_out:,} of {len(report.problems):,} problems are not in {path}: they name no "
            "sample, or speak of the store\n"
        )


def _print_problems(report: checks.VerifyReport) -> None:
    out = console()
    for problem in report.problems[:20]:
        what = _without_place(problem, report.url)
        out.print(f"{problem.key or report.url}: {_range(problem)}{what}", markup=False)
    if report.problem_count > 20:
        out.print(f"... and {report.problem_count - 20:,} more (--json or --quarantine lists them)")


def _without_place(problem: checks.Problem, url: str) -> str:
    """The message, which may begin with what the row has said by then."""
    message = problem.message.removeprefix(f"{url}/{problem.key}: ")
    place = re.match(r"sample \d+ \(dataset position (\d+)\): ", message)
    if place is None or int(place[1]) != problem.position:
        return problem.message
    return message[place.end() :]


def _range(problem: checks.Problem) -> str:
    if problem.position < 0:
        return ""
    if problem.samples > 1:
        return f"samples {problem.position:,} to {problem.position + problem.samples - 1:,}: "
    return f"sample {problem.position}: "


def manifest_create(
    url: Annotated[str, typer.Argument(metavar="URL", help="A directory or prefix.")],
    *,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            help=f"Local file, or - for stdout; default: {checks.MANIFEST_KEY} beside the objects.",
        ),
    ] = None,
    workers: Workers = 0,
    memory: Memory = "256MiB",
    chosen: Chosen,
    where: DataWhere,
    json: Json = False,
) -> int:
    """Write the SHA-256 of every object below URL, in the form that `sha256sum --check` reads.

    Examples:

    * `headrace manifest create s3://bucket/data`

    * `headrace manifest create ./data --output - | sort`

    * `headrace manifest create s3://bucket/run-17 --exclude 'tmp/**'`
    """
    started = time.monotonic()
    options = where.as_dict()
    path = None if output in (None, "-") else Path(local_file(output or "", "--output"))
    include, exclude = chosen.include or [], chosen.exclude or []
    digests, count = checks.create_manifest(
        url, include=include, exclude=exclude, workers=workers, memory=memory, **options
    )
    if not digests:
        raise NotFoundError(f"{url}: {NOTHING_LEFT if include or exclude else 'nothing there'}")
    text = checks.format_manifest(digests)
    if output == "-":
        sys.stdout.write(text)
        return name_dead_links(url, filter_of(chosen).accepts)
    if path is None:
        with Store(url, **options) as store:
            store.put(checks.MANIFEST_KEY, os.fsencode(text))
    else:
        path.write_bytes(os.fsencode(text))
    made = output or f"{without_secrets(url).rstrip('/')}/{checks.MANIFEST_KEY}"
    seconds = time.monotonic() - started
    if json:
        print_json({"manifest": made, "objects": len(digests), "bytes": count, "seconds": seconds})
    else:
        console().print(
            f"{made}: {len(digests):,} objects, {format_bytes(count)} hashed in {seconds:.1f} s",
            markup=False,
        )
    return name_dead_links(url, filter_of(chosen).accepts)


def manifest_check(
    url: Annotated[str, typer.Argument(metavar="URL", help="A directory or prefix.")],
    *,
    manifest: Annotated[
        str | None,
        typer.Argument(
            metavar="[MANIFEST]",
            help=f"A file or object; default: {checks.MANIFEST_KEY} beside the objects.",
        ),
    ] = None,
    workers: Workers = 0,
    memory: Memory = "256MiB",
    chosen: Chosen,
    where: DataWhere,
    json: Json = False,
) -> int:
    """Compare every object below URL with a manifest: missing, different, extra. What --include and --exclude
    leave out is none of them.

    Examples:

    * `headrace manifest check s3://bucket/data`

    * `headrace manifest check ./copy ./original.sha256`
    """
    started = time.monotonic()
    options = where.as_dict()
    root, key = (url, checks.MANIFEST_KEY) if manifest is None else split_url(manifest)
    if manifest is not None and is_local(manifest):
        text = os.fsdecode(Path(local_path(manifest)).read_bytes())
    else:
        with Store(root, **options) as store:
            text = os.fsdecode(store.get(need_key(manifest or url, key)))
    include, exclude = chosen.include or [], chosen.exclude or []
    report = checks.check_manifest(
        url,
        checks.parse_manifest(text),
        include=include,
        exclude=exclude,
        workers=workers,
        memory=memory,
        **options,
    )
    if (include or exclude) and report == checks.ManifestReport():
        raise NotFoundError(f"{url}: {NOTHING_LEFT}")
    seconds = time.monotonic() - started
    if json:
        print_json({**asdict(report), "ok": report.ok, "seconds": seconds})
    else:
        out = console()
        for what in ("missing", "different", "extra", "unreadable"):
            for key in getattr(report, what)[:20]:
                reason = f" ({report.reasons[key]})" if what == "unreadable" else ""
                out.print(f"{what}: {key}{reason}", markup=False)
        out.print(
            f"{without_secrets(url)}: {report.matching:,} objects match, {format_bytes(report.bytes_read)} "
            f"hashed in {seconds:.1f} s",
            markup=False,
        )
    counts = ", ".join(
        f"{len(getattr(report, what)):,} {what}"
        for what in ("missing", "different", "extra", "unreadable")
        if getattr(report, what)
    )
    return 0 if report.ok else fail(f"{url}: {counts}")


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="A dataset.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another, of any format.")],
    *,
    key: Annotated[
        str | None, typer.Option("--key", help="Column that pairs the samples; default: by position.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", help="Columns to compare, by commas; default: those of both.")
    ] = None,
    most: Annotated[int, typer.Option("--most", min=1, help="Differences to list.")] = 20,
    format_a: Annotated[str, typer.Option("--format-a", help="Format of A.")] = "auto",
    format_b: Annotated[str, typer.Option("--format-b", help="Format of B.")] = "auto",
    where: DataWhere,
    json: Json = False,
) -> int:
    """Compare two datasets sample by sample. Exit code 1 when they differ.

    Examples:

    * `headrace diff s3://bucket/mds ./mds-copy`

    * `headrace diff ./tars ./parquet --key __key__ --columns jpg,cls`
    """
    options = where.as_dict()
    with Dataset(a, format=format_a, **options) as left, Dataset(b, format=format_b, **options) as right:
        names = columns.split(",") if columns else None
        report = checks.diff(left, right, key=key, columns=names, most=most)
    if json:
        print_json(
            {**asdict(report), "differences": [d._asdict() for d in report.differences], "ok": report.ok}
        )
    else:
        out = console()
        for d in report.differences:
            out.print(f"A[{d.position_a}] and B[{d.position_b}] differ in {d.column}: {d.what}", markup=False)
        for name, side in [(n, "A") for n in report.columns_only_a] + [
            (n, "B") for n in report.columns_only_b
        ]:
            out.print(f"column {name}: only in {side}", markup=False)
        out.print(
            f"{report.compared:,} samples compared: {report.equal:,} equal, {report.different:,} different; "
            f"{report.only_a:,} only in A, {report.only_b:,} only in B"
        )
    return 0 if report.ok else fail(f"{a} and {b} differ")


def register(app: typer.Typer) -> None:
    add(app, verify)
    add(manifest_app, manifest_create, "create")
    add(manifest_app, manifest_check, "check")
    app.add_typer(manifest_app, name="manifest")
    add(app, diff)
