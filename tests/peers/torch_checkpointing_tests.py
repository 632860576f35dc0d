"""torch_checkpointing's own tests, over its storage for files or over Headrace's.

    python tests/peers/torch_checkpointing_tests.py original|headrace CHECKOUT [arguments of pytest]

CHECKOUT is one of https://github.com/meta-pytorch/torch_checkpointing (its packages on PyPI have no tests),
whose torch_checkpointing is what is tested. Default: those of FILES that are in CHECKOUT/tests, run in a
temporary directory. They need expecttest, from PyPI.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SHIM = Path(__file__).resolve().parent / "torch_checkpointing"

# Those that read or write files.
FILES = (
    "test_builder.py",
    "test_checkpoint_loader.py",
    "test_checkpoint_manager.py",
    "test_checkpoint_process.py",
    "test_checkpoint_reader.py",
    "test_checkpoint_reader_mmap.py",
    "test_checkpoint_writer.py",
    "test_checkpointer.py",
    "test_consolidation.py",
    "test_default_resharder.py",
    "test_local_filesystem.py",
    "test_safetensors_serialization.py",
    "test_torch_serialization.py",
)


def run(package: str, checkout: Path, arguments: list[str]) -> tuple[int, str]:
    """Runs pytest: exit status and output."""
    with tempfile.TemporaryDirectory(prefix="headrace-torch-checkpointing.") as name:
        shutil.copytree(checkout / "tests", Path(name, "tests"))
        paths = [str(SHIM), name, str(checkout.resolve()), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(paths),
            "HEADRACE_TORCH_CHECKPOINTING_STORAGE": package,
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=short", "-p", "no:cacheprovider"]
        if not any(each.startswith("tests/") for each in arguments):
            command += [f"tests/{each}" for each in FILES if Path(name, "tests", each).is_file()]
        done = subprocess.run(
            [*command, *arguments], cwd=name, env=environment, text=True, capture_output=True
        )
        return done.returncode, done.stdout + done.stderr


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("original", "headrace"):
        sys.exit(__doc__)
    exit_status, text = run(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
    sys.stdout.write(text)
    sys.exit(exit_status)
