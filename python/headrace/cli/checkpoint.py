"""``headrace ckpt``: what checkpoints there are, whether they are whole, how they differ; copies, pins,
leftovers."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Annotated, Any

import numpy as np
import typer

from headrace.base.new_file import new_file
from headrace.base.units import format_bytes
from headrace.checkpoint.archived import explaining_archives, storage_classes_of
from headrace.checkpoint.copying import Copying
from headrace.checkpoint.differences import ArrayDifference, compare
from headrace.checkpoint.leftovers import delete_leftover, find_leftovers
from headrace.checkpoint.listing import Listed, list_checkpoints
from headrace.checkpoint.manifest import DataFile, EarlierFile, Manifest
from headrace.checkpoint.place import Place
from headrace.checkpoint.proving import Damage, find_damage
from headrace.checkpoint.widened import read_array
from headrace.cli.base import confirm, fail, refuse_pattern, shown
from headrace.cli.checkpoint_common import (
    CheckpointWhere,
    many,
    need_directory,
    opened,
    progress_bar,
    step_of,
)
from headrace.cli.checkpoint_moving import convert, resume_upload
from headrace.cli.checkpoint_text import array_row, tree_json, tree_lines
from headrace.cli.common import print_json
from headrace.cli.declare import DryRun, Json
from headrace.cli.library import add
from headrace.errors import CorruptError, InvalidArgumentError, NotFoundError

app = typer.Typer(
    no_args_is_help=True,
    help=(
        "Checkpoints that headrace.checkpoint.Checkpointer saved: look into them, prove them, copy and keep "
        "them. Runs may go on meanwhile."
    ),
)

Url = Annotated[str, typer.Argument(metavar="URL", help="As given to Checkpointer().")]
Step = Annotated[str, typer.Argument(metavar="STEP", help="A number, or latest.")]
LatestStep = Annotated[
    str, typer.Argument(metavar="[STEP]", help="A number; default: the one committed last.")
]


_STANDARD = ("STANDARD", "Hot")
"""What S3 and GCS, and Azure, write where nobody has asked for another class."""

# --- Looking ---


def ls(url: Url, *, where: CheckpointWhere, json: Json = False) -> int:
    """List the checkpoints of a run: step, time, ranks, arrays, bytes, storage classes other than the
    standard one, and what was given as metadata.

    Only the manifests are read. Exit code 1 when one of them is broken: `verify` then says more.

    Examples:

    * `headrace ckpt ls s3://bucket/run-17`

    * `headrace ckpt ls /ckpt/run-17 --json | jq '.checkpoints[-1].metadata'`
    """
    with opened(url, where) as place:
        shown_url, rows, latest = place.url, list_checkpoints(place), place.latest()
    if not rows:
        raise NotFoundError(f"{url}: has no checkpoint")
    if json:
        print_json({"url": shown_url, "latest": latest, "checkpoints": [row._asdict() for row in rows]})
    else:
        sys.stdout.write(f"{'step':>10}  {'saved (UTC)':19}  {'ranks':>5}  {'arrays':>7}  {'bytes':>10}\n")
        for row in rows:
            sys.stdout.write(shown(_line(row, latest)) + "\n")
    return 1 if any(row.problem for row in rows) else 0


def _line(row: Listed, latest: int | None) -> str:
    if row.problem:
        return f"{row.step:>10}  broken: {row.problem}"
    marks = [word for word, is_so in (("latest", row.step == latest), ("pinned", row.is_pinned)) if is_so]
    marks += [name for name in row.storage_classes if name not in _STANDARD]
    marks += [f"{key}={value}" for key, value in row.metadata.items()]
    return (
        f"{row.step:>10}  {row.created[:19].replace('T', ' '):19}  {row.ranks:>5}  {row.arrays:>7,}  "
        f"{format_bytes(row.bytes):>10}  " + " ".join(marks)
    ).rstrip()


def info(
    url: Url,
    step: LatestStep = "latest",
    *,
    arrays: Annotated[bool, typer.Option("--arrays", help="A line an array instead of the tree.")] = False,
    depth: Annotated[
        int, typer.Option("--depth", min=0, help="Levels of the tree; what is deeper is summed up. 0: all.")
    ] = 0,
    where: CheckpointWhere,
    json: Json = False,
) -> None:
    """Show what a checkpoint consists of: its tree with dtypes, shapes, bytes and shards of each array.

    Examples:

    * `headrace ckpt info s3://bucket/run-17`

    * `headrace ckpt info s3://bucket/run-17 1200 --depth 1`

    * `headrace ckpt info s3://bucket/run-17 --arrays | sort -k3 -n` — the largest last
    """
    with opened(url, where) as place:
        manifest = place.manifest(step_of(place, step))
        is_pinned, shown_url = manifest.step in place.pins(), place.url
        classes = storage_classes_of(place, manifest)
    if json:
        print_json(_info_json(shown_url, manifest, is_pinned, classes))
        return
    if arrays:
        for array in manifest.arrays:
            row = array_row(array)
            line = (
                f"{row['dtype']:<8}  {row['shards']:>6}  {row['bytes']:>14}  {row['shape']!s:<20}  "
                f"{row['name']}"
            )
            sys.stdout.write(shown(line) + "\n")
        return
    lines = [
        f"step      {manifest.step}{', pinned' if is_pinned else ''}",
        f"saved     {manifest.created}, save {manifest.save}",
        f"files     {len(manifest.files)} of {manifest.world_size} ranks, {format_bytes(manifest.size)}",
        *_earlier_lines(manifest),
        *_class_lines(classes),
        *_compression_lines(manifest),
        f"arrays    {len(manifest.arrays):,}",
        *([f"metadata  {dict(manifest.metadata)}"] if manifest.metadata else []),
        "",
        *tree_lines(manifest, depth),
    ]
    sys.stdout.writelines(shown(line) + "\n" for line in lines)


def _earlier_lines(manifest: Manifest) -> list[str]:
    """What it has in files of earlier saves."""
    if not manifest.earlier:
        return []
    needed = sum(each.needed for each in manifest.earlier)
    saves = ", ".join(sorted(manifest.saves - {manifest.save}))
    return [
        f"written   {format_bytes(manifest.written)}; {format_bytes(needed)} lie in files of earlier saves: "
        f"{saves}"
    ]


def _class_lines(classes: Mapping[str, str]) -> list[str]:
    """In which storage classes its data files are, where a store has any."""
    counts = Counter(classes.values())
    texts = [f"{name} ({many(count, 'file')})" for name, count in sorted(counts.items())]
    return [f"class     {', '.join(texts)}"] if texts else []


def _compression_lines(manifest: Manifest) -> list[str]:
    if manifest.compression is None:
        return []
    share = f", {manifest.size / manifest.plain_size:.1%}" if manifest.plain_size else ""
    return [
        f"stored    by {manifest.compression}, {format_bytes(manifest.size)} for "
        f"{format_bytes(manifest.plain_size)} of arrays{share}"
    ]


def _info_json(url: str, manifest: Manifest, is_pinned: bool, classes: Mapping[str, str]) -> dict[str, Any]:
    by_name = {array.name: array for array in manifest.arrays}

    def row(file: DataFile | EarlierFile) -> dict[str, Any]:
        return file._asdict() | {"storage_class": classes.get(file.key, "")}

    return {
        "url": url,
        "step": manifest.step,
        "save": manifest.save,
        "created": manifest.created,
        "ranks": manifest.world_size,
        "bytes": manifest.size,
        "written_bytes": manifest.written,
        "array_bytes": manifest.plain_size,
        "compression": manifest.compression,
        "is_pinned": is_pinned,
        "metadata": dict(manifest.metadata),
        "files": [row(file) | {"earlier": [row(each) for each in file.earlier]} for file in manifest.files],
        "arrays": [array_row(array) for array in manifest.arrays],
        "tree": tree_json(manifest.tree, by_name),
    }


def cat(
    url: Url,
    step: Step,
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="Of an array, as info shows it; default: the tree.")
    ] = "",
    *,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Write the array there, as .npy.")
    ] = "",
    summary: Annotated[
        bool, typer.Option("--summary", help="Smallest, largest, mean, zeros, NaNs instead of the values.")
    ] = False,
    where: CheckpointWhere,
    json: Json = False,
) -> None:
    """Give one array as .npy, every byte proved; or without NAME the tree and all other values as JSON.

    On a terminal and with `--json` an array is summed up. What numpy has not (bfloat16, 8-bit floats) becomes
    float32, which has the same values.

    Examples:

    * `headrace ckpt cat s3://bucket/run-17 latest` — step numbers, hyperparameters, the loader's state

    * `headrace ckpt cat s3://bucket/run-17 1200 model.head.weight --summary`

    * `headrace ckpt cat s3://bucket/run-17 1200 model.head.weight -o head.npy`
    """
    with opened(url, where) as place:
        manifest = place.manifest(step_of(place, step))
        if not name:
            if output or summary:
                raise InvalidArgumentError("--output and --summary are for an array: name it")
            print_json(tree_json(manifest.tree, {array.name: array for array in manifest.arrays}))
            return
        with explaining_archives(place, manifest):
            array = read_array(place, manifest, name)
    if output:
        _write_npy(output, array)
    elif summary or json or sys.stdout.isatty():
        saved = next(row for row in manifest.arrays if row.name == name)
        numbers = {**array_row(saved), **_summary(array)}
        if json:
            print_json(numbers)
        else:
            sys.stdout.writelines(f"{key:<8} {shown(str(value))}\n" for key, value in numbers.items())
    else:
        sys.stdout.flush()
        # Not the file itself: NumPy would ask a pipe for its position.
        np.save(SimpleNamespace(write=sys.stdout.buffer.write), array, allow_pickle=False)


def _write_npy(path: str, array: Any) -> None:
    with new_file(path) as file:
        np.save(file, array, allow_pickle=False)


def _summary(array: Any) -> dict[str, Any]:
    if array.dtype.kind == "c":
        array = np.abs(array)
    values = array.astype(np.float64) if array.dtype.kind in "fb" else array
    good = values[np.isfinite(values)] if array.dtype.kind == "f" else values
    return {
        "elements": int(values.size),
        "min": good.min().item() if good.size else None,
        "max": good.max().item() if good.size else None,
        "mean": float(good.mean()) if good.size else None,
        "std": float(good.std()) if good.size else None,
        "zeros": int(values.size - np.count_nonzero(values)),
        "nan": int(np.isnan(values).sum()) if array.dtype.kind == "f" else 0,
        "inf": int(np.isinf(values).sum()) if array.dtype.kind == "f" else 0,
    }


# --- Proving ---


def verify(
    url: Url,
    step: LatestStep = "latest",
    *,
    every: Annotated[bool, typer.Option("--all", help="All checkpoints.")] = False,
    where: CheckpointWhere,
    json: Json = False,
) -> int:
    """Read all bytes of a checkpoint and compare them with the sums made when it was saved. Exit code 1 when
    any differ: each is named by file, array and byte range.

    Loading does the same for what it reads; this is for stores in doubt, and before the only other copy goes.

    Examples:

    * `headrace ckpt verify s3://bucket/run-17`

    * `headrace ckpt verify --all s3://bucket/run-17 --json`
    """
    rows = []
    with opened(url, where) as place:
        if every and step != "latest":
            raise InvalidArgumentError("name a step, or give --all")
        steps = place.steps() if every else [step_of(place, step)]
        if not steps:
            raise NotFoundError(f"{url}: has no checkpoint")
        for each in steps:
            rows.append(_verified(place, each))
            if not json:
                _print_verified(rows[-1])
        if json:
            print_json({"url": place.url, "checkpoints": rows})
    return 0 if all(row["ok"] for row in rows) else 1


def _verified(place: Place, step: int) -> dict[str, Any]:
    try:
        manifest = place.manifest(step)
    except CorruptError as error:
        return {"step": step, "ok": False, "bytes": 0, "problem": str(error), "damage": []}
    before = place.store.stats()["store.received_bytes"]
    with (
        progress_bar(
            f"step {step}", manifest.size, lambda: int(place.store.stats()["store.received_bytes"] - before)
        ),
        explaining_archives(place, manifest),
    ):
        damage = find_damage(place, manifest)
    return {
        "step": step,
        "ok": not damage,
        "bytes": manifest.size,
        "arrays": len(manifest.arrays),
        "damage": [each._asdict() for each in damage],
    }


def _print_verified(row: dict[str, Any]) -> None:
    if row["ok"]:
        sys.stdout.write(
            f"step {row['step']}: whole, {many(row['arrays'], 'array')}, {format_bytes(row['bytes'])}\n"
        )
        return
    sys.stdout.write(f"step {row['step']}: broken\n")
    if "problem" in row:
        sys.stdout.write(shown(f"  {row['problem']}") + "\n")
    for each in row["damage"]:
        sys.stdout.write(shown(f"  {_damage_text(Damage(**each))}") + "\n")


def _damage_text(damage: Damage) -> str:
    where = f"{damage.key}: " + (f"bytes {damage.begin} to {damage.end}: " if damage.end else "")
    offsets = f" from {list(damage.offsets)}" if any(damage.offsets) else ""
    return where + (f"{damage.array}{offsets}: " if damage.array else "") + damage.why


def diff(
    url: Url,
    before: Annotated[str, typer.Argument(metavar="A", help="A step, or latest.")],
    after: Annotated[str, typer.Argument(metavar="B", help="Another step, or latest.")],
    *,
    other: Annotated[
        str, typer.Option("--other", metavar="URL", help="B is a checkpoint of this run instead.")
    ] = "",
    read: Annotated[
        bool,
        typer.Option("--read", help="Read arrays that were cut otherwise, whose sums cannot be compared."),
    ] = False,
    where: CheckpointWhere,
    json: Json = False,
) -> int:
    """Compare two checkpoints: which arrays, values and metadata differ, and which of list, tuple and dict
    holds them. Exit code 1 when any do.

    Values of arrays are compared by their sums of 16 KiB each, without reading them. Keys are shown in quotes
    where others would look the same.

    Examples:

    * `headrace ckpt diff s3://bucket/run-17 1000 1200`

    * `headrace ckpt diff s3://bucket/run-17 1200 1200 --other /backup/run-17`
    """
    with opened(url, where) as place, opened(other or url, where) as second:
        one, two = place.manifest(step_of(place, before)), second.manifest(step_of(second, after))
        found = compare(place, one, second, two, read=read)
    if json:
        print_json(
            {
                "differ": not found.is_none,
                "equal_arrays": found.equal,
                "arrays": [row._asdict() for row in found.arrays],
                **{
                    name: [{"path": path, "before": a, "after": b} for path, a, b in rows]
                    for name, rows in (("values", found.values), ("metadata", found.metadata))
                },
            }
        )
        return 0 if found.is_none else 1
    for row in found.arrays:
        sys.stdout.write(shown(_difference_text(row)) + "\n")
    for what, rows in (("", found.values), ("metadata ", found.metadata)):
        for path, a, b in rows:
            sys.stdout.write(shown(f"{what}{path}: {_shortened(a)} -> {_shortened(b)}") + "\n")
    unknown = sum(row.what == "unknown" for row in found.arrays)
    sys.stdout.write(
        f"{many(len(found.arrays) - unknown, 'array')} of {len(found.arrays) + found.equal:,} differ"
        + (f", {unknown:,} were cut otherwise (--read compares them)" if unknown else "")
        + (f"; {many(len(found.values), 'other value')}" if found.values else "")
        + "\n"
    )
    return 0 if found.is_none else 1


def _difference_text(row: ArrayDifference) -> str:
    if row.what in ("added", "removed"):
        return f"{'+' if row.what == 'added' else '-'} {row.name}  {row.before or row.after}  {format_bytes(row.changed_bytes)}"  # noqa: E501
    if row.what in ("type", "ties"):
        return f"~ {row.name}  {row.before} -> {row.after}"
    if row.what == "unknown":
        return f"? {row.name}  {row.after}  cut otherwise"
    return f"~ {row.name}  {row.after}  {format_bytes(row.changed_bytes)} differ"


def _shortened(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."


# --- Changing ---


def cp(
    source: Annotated[str, typer.Argument(metavar="SRC", help="Checkpoints of a run.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="Where to; may have other steps already.")],
    *,
    step: Annotated[
        str, typer.Option("--step", metavar="STEP", help="A number; default: latest.")
    ] = "latest",
    every: Annotated[bool, typer.Option("--all", help="All checkpoints.")] = False,
    where: CheckpointWhere,
    json: Json = False,
) -> None:
    """Copy a checkpoint to another store. It is there when all of it was read back and is what was saved.

    One that is there already is proved. Stopped, the same command goes on.

    Examples:

    * `headrace ckpt cp /nvme/run-17 s3://bucket/run-17`

    * `headrace ckpt cp s3://bucket/run-17 gs://backup/run-17 --step 1200`

    * `headrace ckpt cp --all s3://bucket/run-17 /archive/run-17`
    """
    if every and step != "latest":
        raise InvalidArgumentError("name a step, or give --all")
    refuse_pattern(target)
    rows = []
    with opened(source, where) as place, opened(target, where) as second:
        steps = place.steps() if every else [step_of(place, step)]
        if not steps:
            raise NotFoundError(f"{source}: has no checkpoint")
        for each in steps:
            copying = Copying(place, place.manifest(each), second)
            try:
                with progress_bar(f"step {each}", copying.total, lambda job=copying: job.done):  # type: ignore[misc]
                    copying.run()
            except KeyboardInterrupt:
                fail(f"stopped; step {each} is not there yet. The same command goes on")
                raise
            rows.append({"step": each, "bytes": copying.manifest.size, "was_there": copying.was_there})
            if not json:
                what = "was there, proved" if copying.was_there else "copied and proved"
                sys.stdout.write(f"step {each}: {what}, {format_bytes(copying.manifest.size)}\n")
        if json:
            print_json({"from": place.url, "to": second.url, "checkpoints": rows})


def gc(
    url: Url,
    *,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than",
            metavar="TIME",
            help=(
                "Also of the job that saves here now, or did last: what nothing was written to for so long, "
                "such as 12h or 3d."
            ),
        ),
    ] = "",
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    where: CheckpointWhere,
    json: Json = False,
) -> None:
    """Delete what saves have left that never became a checkpoint: of jobs that another one has followed.

    Says what there is and asks; without a terminal nothing is deleted but with `--yes`. Checkpoints are never
    deleted. Jobs that save do the same 15 minutes after they have begun.

    Examples:

    * `headrace ckpt gc s3://bucket/run-17 --dry-run`

    * `headrace ckpt gc s3://bucket/run-17 --older-than 2d --yes` — of a run that has ended
    """
    age = _age(older_than) if older_than else None
    need_directory(url)
    with opened(url, where) as place:
        rows = find_leftovers(place, age)
        going = [row for row in rows if row.goes]
        if not json:
            for row in rows:
                word = "goes" if row.goes else "stays"
                text = (
                    f"{word:5}  {format_bytes(row.bytes):>10}  {row.objects:>6} files  saves/{row.save}  "
                    f"{row.why}"
                )
                sys.stdout.write(shown(text) + "\n")
            sys.stdout.flush()
        may = bool(going) and not dry_run and (yes or (not json and sys.stdin.isatty()))
        total = format_bytes(sum(row.bytes for row in going))
        if may and not yes:
            confirm(f"Delete {many(len(going), 'unfinished save')}, {total}?")
        deleted = sum(delete_leftover(place, row) for row in going) if may else 0
        if json:
            report = {"url": place.url, "leftovers": [row._asdict() for row in rows]}
            print_json({**report, "deleted_bytes": deleted, "dry_run": not may})
    if json:
        return
    if may:
        sys.stdout.write(f"{format_bytes(deleted)} deleted\n")
    elif going:
        sys.stdout.write(f"would delete {total}{'' if dry_run else ': add --yes'}\n")
    else:
        sys.stdout.write("nothing to delete\n")


def _age(text: str) -> float:
    """Seconds of "90s", "15min", "12h" or "3d"."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(s|min|h|d)", text)
    if match is None:
        raise InvalidArgumentError(f"--older-than {text}: expected a time such as 15min, 12h or 3d")
    return float(match[1]) * {"s": 1, "min": 60, "h": 3600, "d": 86400}[match[2]]


def pin(
    url: Url,
    step: Step,
    *,
    remove: Annotated[bool, typer.Option("--remove", help="Take the pin away.")] = False,
    where: CheckpointWhere,
    json: Json = False,
) -> None:
    """Keep a checkpoint for ever: no rule of `keep=`, no `delete()` and no save of the same step takes it.

    Examples:

    * `headrace ckpt pin s3://bucket/run-17 1200`

    * `headrace ckpt pin s3://bucket/run-17 1200 --remove`
    """
    with opened(url, where) as place:
        number = step_of(place, step)
        place.unpin(number) if remove else place.pin(number)
        if json:
            print_json({"url": place.url, "pinned": sorted(place.pins())})
    if not json:
        sys.stdout.write(f"step {number} is {'not pinned any more' if remove else 'pinned'}\n")


def register(parent: typer.Typer) -> None:
    for function in (ls, info, verify, diff, cat, cp, convert, resume_upload, gc, pin):
        add(app, function)
    parent.add_typer(app, name="ckpt")
