"""``headrace ckpt convert`` and ``resume-upload``."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from headrace.base.units import format_bytes
from headrace.checkpoint.converting import Conversion
from headrace.checkpoint.copying import Broken, Copying, Left, left_behind
from headrace.checkpoint.place import Place
from headrace.cli.base import fail, refuse_pattern, shown
from headrace.cli.checkpoint_common import CheckpointWhere, many, need_directory, opened, progress_bar
from headrace.cli.common import print_json
from headrace.cli.declare import DryRun, Json, Where
from headrace.errors import InvalidArgumentError
from headrace.store.urls import local_path

__all__ = ["convert", "resume_upload"]


def convert(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SRC",
            help=(
                "Checkpoints of a run, a model in safetensors, a checkpoint of DCP, or a file of torch.save."
            ),
        ),
    ],
    target: Annotated[str, typer.Argument(metavar="DST", help="A directory of its own.")],
    *,
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help="headrace, safetensors or dcp.")],
    step: Annotated[
        str, typer.Option("--step", metavar="STEP", help="Of headrace's: a number; default: latest.")
    ] = "latest",
    only: Annotated[
        str, typer.Option("--only", metavar="NAME", help="A part of the state, such as model.")
    ] = "",
    to_step: Annotated[
        int | None,
        typer.Option(
            "--to-step",
            metavar="STEP",
            min=0,
            help="Under which step headrace saves it; default: that of SRC, or 0.",
        ),
    ] = None,
    leave_out: Annotated[
        bool, typer.Option("--leave-out", help="Values that the target cannot hold; else they are an error.")
    ] = False,
    max_shard_size: Annotated[
        str, typer.Option("--max-shard-size", metavar="SIZE", help="Of the tensors of a safetensors file.")
    ] = "5GB",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    where: Where,
    json: Json = False,
) -> None:
    """Make a checkpoint of one format from one of another. Which format SRC has is found out by what is
    there.

    `safetensors` is what `from_pretrained` and every inference server read: `model.safetensors`, or numbered
    files with an index. It holds tensors and nothing else: `--only model` takes the weights out of a training
    state. DCP is the format of torch.distributed.checkpoint. No pickle of SRC is run. The state is in memory
    once.

    Examples:

    * `headrace ckpt convert s3://bucket/run-17 ./model --to safetensors --only model`

    * `headrace ckpt convert ./dcp/step-1000 s3://bucket/run-17 --to headrace --to-step 1000`

    * `headrace ckpt convert pytorch_model.bin ./model --to safetensors`
    """
    refuse_pattern(target)
    if step != "latest" and not step.isdecimal():
        raise InvalidArgumentError(f"--step {step}: expected a number, or latest")
    job = Conversion(
        source,
        target,
        to,
        step=None if step == "latest" else int(step),
        only=only,
        to_step=to_step,
        leave_out=leave_out,
        overwrite=overwrite,
        max_shard_bytes=max_shard_size,
        **where.as_dict(),
    )
    with progress_bar(f"{job.source_format} to {to}", lambda: job.total, lambda: job.done):
        job.run()
    if json:
        row = {"from": source, "format": job.source_format, "to": target, "to_format": to}
        print_json(
            {
                **row,
                "from_step": job.read_step,
                "step": job.saved_step,
                "arrays": job.arrays,
                "bytes": job.bytes,
                "left_out": job.left_out,
            }
        )
        return
    taken = "" if job.read_step is None else f", step {job.read_step}"
    saved = "" if job.saved_step is None else f", step {job.saved_step}"
    if job.saved_step is not None and job.read_step is None and to_step is None:
        saved += " (--to-step names another)"
    text = f"{target}: {many(job.arrays, 'array')}, {format_bytes(job.bytes)}{saved}"
    sys.stdout.write(shown(f"{text}, of {source} ({job.source_format}{taken})") + "\n")
    if job.left_out:
        sys.stdout.write(shown(f"left out: {', '.join(job.left_out)}") + "\n")


def resume_upload(
    source: Annotated[
        str, typer.Argument(metavar="DIR", help="As given to Checkpointer(local=), on this machine.")
    ],
    url: Annotated[str, typer.Argument(metavar="URL", help="As given to Checkpointer().")],
    *,
    dry_run: DryRun = False,
    where: CheckpointWhere,
    json: Json = False,
) -> int:
    """Bring checkpoints to their URL that a job has left on the local disk: what its next run would do first.

    For jobs that do not run again, before their disk goes; not while one runs, which does it itself. Each is
    there when all of it was read back and is what was saved. Stopped, the same command goes on; nothing is
    deleted from the disk. One that was saved with overwrite=True replaces the one of its step that is there.
    Exit code 1 when one cannot be brought over: files that lie on other nodes only, or one of its step at the
    URL that is damaged, or that it was not to replace.

    Examples:

    * `headrace ckpt resume-upload /nvme/run-17 s3://bucket/run-17 --dry-run`

    * `headrace ckpt resume-upload /nvme/run-17 s3://bucket/run-17`
    """
    if local_path(source) is None:
        raise InvalidArgumentError(f"{source}: expected a directory of this machine")
    need_directory(source)
    rows = []
    with opened(source, where) as near, opened(url, where) as far:
        for each in left_behind(near, far):
            row, text = _broken(each) if isinstance(each, Broken) else _bring(near, far, each, dry_run)
            rows.append(row)
            if not json:
                sys.stdout.write(shown(text) + "\n")
        if json:
            print_json({"from": near.url, "to": far.url, "checkpoints": rows})
        elif not rows:
            sys.stdout.write("nothing is on the disk alone\n")
    return 1 if any(row["missing"] or row["problem"] for row in rows) else 0


def _broken(left: Broken) -> tuple[dict[str, Any], str]:
    row = {
        "step": left.step,
        "bytes": 0,
        "missing": [],
        "problem": left.why,
        "replaces": False,
        "done": False,
    }
    return row, f"step {left.step}: stays on the disk: {left.why}"


def _bring(near: Place, far: Place, left: Left, dry_run: bool) -> tuple[dict[str, Any], str]:
    """Brings a checkpoint over, unless files of it are elsewhere, or ``dry_run``. Returns what to say."""
    manifest, missing = left.manifest, left.missing
    row = {
        "step": manifest.step,
        "bytes": manifest.size,
        "missing": missing,
        "problem": "",
        "replaces": left.replaces,
        "done": not missing and not dry_run,
    }
    place = ", in the place of one that was saved before" if left.replaces else ""
    if missing:
        return (
            row,
            f"step {manifest.step}: {many(len(missing), 'file')} not on this machine ({missing[0]}): start "
            "the job again, which brings them over",
        )
    if dry_run:
        return row, f"step {manifest.step}: {format_bytes(manifest.size)} to bring over{place}"
    copying = Copying(near, manifest, far, replaces=left.replaces, keeps_order=left.keeps_order)
    try:
        with progress_bar(f"step {manifest.step}", copying.total, lambda: copying.done):
            copying.run()
    except KeyboardInterrupt:
        fail(f"stopped; step {manifest.step} is not there yet. The same command goes on")
        raise
    return row, f"step {manifest.step}: brought over and proved, {format_bytes(manifest.size)}{place}"
