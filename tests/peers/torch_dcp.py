"""PyTorch's own tests of its distributed checkpoint (DCP), over its file storage or over Headrace's.

    python tests/peers/torch_dcp.py original|headrace|s3 DIRECTORY [FILE ...] [arguments of pytest]

``headrace``: checkpoints in directories; ``s3``: in a bucket of the simulator. DIRECTORY is
test/distributed/checkpoint of a checkout of https://github.com/pytorch/pytorch at the version of the torch
that is installed (no wheel has these tests; Debian's source package has those of its version). They run in a
temporary directory, on CPUs with gloo: what asks for GPUs is rewritten there. They need expecttest, from
PyPI. Default: all of FILES that are in DIRECTORY.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

SHIM = Path(__file__).resolve().parent / "torch_dcp"
PACKAGES = ("original", "headrace", "s3")

# Those that save and load with DCP's file storage, or with what is found by a checkpoint_id.
STORAGE = (
    "test_compatibility.py",
    "test_dtensor_checkpoint.py",
    "test_dtensor_resharding.py",
    "test_file_system_checkpoint.py",
    "test_file_system_checkpoint_cpu.py",
    "test_format_utils.py",
    "test_fsdp_model_state.py",
    "test_fsdp_optim_state.py",
    "test_fsdp_tp_checkpoint_conversion.py",
    "test_hsdp_checkpoint.py",
    "test_save_load_api.py",
    "test_tp_checkpoint.py",
    "e2e/test_e2e_save_and_load.py",
    "e2e/test_fine_tuning.py",
    "e2e/test_pipeline.py",
    "fsdp/test_fsdp_dsd.py",
)
# Those of its storage for fsspec.
FSSPEC = ("test_fsspec.py",)
FILES = (*STORAGE, *FSSPEC)

# (pattern, what takes its place)
ON_CPUS = [
    (r"\.to\(self\.rank\)", ""),
    (r"\.cuda\((?:[^()]|\(\))*\)", ""),
    (r"\bcuda:(?:\d+|\{[^{}]*\})", "cpu"),
    (r'"cpu:gloo,[^"]*"', '"gloo"'),
    (r'device="cuda"', 'device="cpu"'),
    (r"device=(?:dist\.get_rank\(\)|self\.rank)(?!\w)", 'device="cpu"'),
    (r', device="meta"', ""),  # FSDP fills what has no memory on accelerators only.
    (r'acc\.type if \(acc := torch\.accelerator\.current_accelerator\(\)\) else "cpu"', '"cpu"'),
    (r'except_for=(\["cpu"\]|"cpu")', 'only_for="cpu"'),
    (r"torch\.testing\.assert_close\(state, state2\)", "torch_dcp_shim.assert_same_shards(state, state2)"),
    (
        r"self\.assertTrue\(torch\.allclose\(state, state2\)\)",
        "torch_dcp_shim.assert_same_shards(state, state2)",
    ),
]
# What the same error is called here.
MESSAGES = [(r"Checkpoint already exists", "was saved before")]

_ASYNC = "test_e2e_async_cached_cache_staged_state_dict"
# Not run, by words of their names, and why.
LEFT_OUT = {
    f"{_ASYNC}_False_async_checkpointer_type4": "copies beside an accelerator's work",
    f"{_ASYNC}_False_async_checkpointer_type5": "copies beside an accelerator's work",
    f"{_ASYNC}_True_async_checkpointer_type3": "saves in another process without a stager: refused",
    "test_no_cpu": "is about GPUs",
}
LEFT_OUT_OF_ORIGINAL = {f"{_ASYNC}_True_async_checkpointer_type1": "wants pinned memory"}
LEFT_OUT_OF_S3 = {"test_storage_meta": "compares the directory's name"}


def left_out(package: str) -> dict[str, str]:
    more = {"original": LEFT_OUT_OF_ORIGINAL, "s3": LEFT_OUT_OF_S3}
    return LEFT_OUT | more.get(package, {})


def way_of(package: str, name: str) -> str:
    """What the shim is to begin with."""
    return "original" if package == "original" else "fsspec" if name in FSSPEC else "headrace"


def rewritten(text: str, way: str) -> str:
    for pattern, instead in ON_CPUS + (MESSAGES if way == "headrace" else []):
        text = re.sub(pattern, instead, text)
    return f"import torch_dcp_shim\ntorch_dcp_shim.begin({way!r})\n{text}"


def stage(tests: Path, directory: Path, package: str) -> list[str]:
    """Puts the tests into a directory; returns their names."""
    found = [name for name in FILES if (tests / name).is_file()]
    for name in found:
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(rewritten((tests / name).read_text(), way_of(package, name)))
    shutil.copy(SHIM / "torch_dcp_shim.py", directory)
    (directory / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider --tb=short\n")
    return found


@contextlib.contextmanager
def bucket(package: str) -> Iterator[dict[str, str]]:
    """Variables that name one of the simulator; none without ``s3``."""
    if package != "s3":
        yield {}
        return
    from headrace import sim

    with (
        tempfile.TemporaryDirectory(prefix="headrace-torch-dcp.") as directory,
        sim.Server(directory, threads=2) as server,
    ):
        Path(directory, "torch").mkdir()
        yield {
            "HEADRACE_TORCH_DCP_BUCKET": "s3://torch",
            "AWS_ENDPOINT_URL_S3": server.endpoint,
            "AWS_ACCESS_KEY_ID": server.access_key,
            "AWS_SECRET_ACCESS_KEY": server.secret_key,
        }


def run(package: str, tests: Path, arguments: list[str]) -> tuple[int, str]:
    """Runs pytest over the staged tests: exit status and output."""
    with tempfile.TemporaryDirectory(prefix="headrace-torch-dcp.") as name, bucket(package) as variables:
        directory = Path(name)
        found = stage(tests, directory, package)
        wanted = [each for each in arguments if each.partition("::")[0] in found] or found
        if not found:
            raise SystemExit(f"{tests}: has none of PyTorch's tests of its distributed checkpoint")
        (directory / "tmp").mkdir()
        environment = os.environ | variables
        environment |= {"TMPDIR": f"{name}/tmp", "OMP_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = os.pathsep.join([name, *filter(None, [os.environ.get("PYTHONPATH")])])
        skipped = " and ".join(f"not {each}" for each in left_out(package))
        command = [sys.executable, "-m", "pytest", "-q", "-rfEs", "-W", "ignore", "-k", skipped]
        command += [each for each in arguments if each not in wanted]
        status, output = 0, ""
        # One process holds one kind of storage.
        for part in (
            [each for each in wanted if each.partition("::")[0] in group] for group in (STORAGE, FSSPEC)
        ):
            if part:
                done = subprocess.run(
                    [*command, *part], cwd=directory, env=environment, text=True, capture_output=True
                )
                status, output = status or done.returncode, output + done.stdout + done.stderr
        return status, output


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in PACKAGES:
        sys.exit(__doc__)
    exit_status, text = run(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
    sys.stdout.write(text)
    sys.exit(exit_status)
