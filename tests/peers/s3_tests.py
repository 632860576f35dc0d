#!/usr/bin/env python3
"""Runs the part of ceph/s3-tests that the simulator claims against it, or against another server.

Usage: tests/peers/s3_tests.py CHECKOUT [--all] [--endpoint URL] [-k EXPRESSION]

CHECKOUT is a clone of https://github.com/ceph/s3-tests (it cannot be installed from PyPI) with what its
requirements.txt names installed for this Python, or for CHECKOUT/.venv. The names of the claim are in
s3_tests_claim.txt, one a line.

  --all             every public test that needs no account, policy, lifecycle, ... (by its marks), claimed
                    or not
  --endpoint URL    instead of a simulator; with --access-key and --secret-key
  -k EXPRESSION     only these, as in pytest

Prints the numbers of tests passed and failed and the names of those that failed; the exit status is 0 when
all passed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

CLAIM = Path(__file__).with_name("s3_tests_claim.txt")
FILES = ["s3tests/functional/test_s3.py", "s3tests/functional/test_headers.py"]
ACCOUNTS = ["s3 main", "s3 alt", "s3 tenant", "iam", "iam root", "iam alt root"]


def claimed() -> list[str]:
    return [line for line in CLAIM.read_text().split("\n") if line and not line.startswith("#")]


@contextlib.contextmanager
def simulator() -> Iterator[tuple[str, str, str]]:
    from headrace import sim

    with (
        tempfile.TemporaryDirectory(prefix="headrace-s3-tests.") as directory,
        sim.Server(directory, threads=2) as server,
    ):
        yield server.endpoint, server.access_key, server.secret_key


def write_settings(path: Path, endpoint: str, access_key: str, secret_key: str) -> None:
    url = urlsplit(endpoint)
    lines = [
        "[DEFAULT]",
        f"host = {url.hostname}",
        f"port = {url.port}",
        f"is_secure = {url.scheme == 'https'}",
        "ssl_verify = False",
    ]
    lines += ["[fixtures]", "bucket prefix = s3t-{random}-"]
    for account in ACCOUNTS:
        name = re.sub(" ", "", account)
        lines += [
            f"[{account}]",
            f"display_name = {name}",
            f"user_id = {name}",
            f"email = {name}@example.com",
        ]
        lines += [f"access_key = {access_key}", f"secret_key = {secret_key}", "tenant = testx"]
    path.write_text("\n".join(lines) + "\n")


def run(
    checkout: Path, endpoint: str, access_key: str, secret_key: str, names: list[str] | None, expression: str
) -> tuple[list[str], list[str]]:
    """(names passed, names failed); ``names`` None: all."""
    own = checkout / ".venv/bin/python"
    python = str(own) if own.exists() else sys.executable
    with tempfile.TemporaryDirectory(prefix="headrace-s3-tests.") as directory:
        settings = Path(directory, "s3tests.conf")
        write_settings(settings, endpoint, access_key, secret_key)
        variables = {
            **os.environ,
            "S3TEST_CONF": str(settings),
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        command = [
            python,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-q",
            "-rA",
            "--tb=no",
            "--no-header",
            "-W",
            "ignore",
        ]
        command += ["-k", expression] if expression else []
        command += (
            FILES
            if names is None
            else [
                f"{file}::{name}"
                for file in FILES
                for name in names
                if f"def {name}(" in (checkout / file).read_text()
            ]
        )
        output = subprocess.run(
            command, cwd=checkout, env=variables, capture_output=True, text=True, check=False
        ).stdout
    results = re.findall(r"^(PASSED|FAILED|ERROR) \S+::(\w+)", output, re.MULTILINE)
    if not results:
        raise SystemExit(f"s3_tests: nothing ran:\n{output[-2000:]}")
    failed = {name for result, name in results if result != "PASSED"}
    return [name for result, name in results if name not in failed], sorted(failed)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--endpoint")
    parser.add_argument("--access-key", default="test")
    parser.add_argument("--secret-key", default="testtest")
    parser.add_argument("-k", dest="expression", default="")
    options = parser.parse_args()
    names = None if options.all else claimed()
    other = contextlib.nullcontext((options.endpoint, options.access_key, options.secret_key))
    with other if options.endpoint else simulator() as (endpoint, access_key, secret_key):
        passed, failed = run(
            options.checkout.resolve(), endpoint, access_key, secret_key, names, options.expression
        )
    print(f"{len(passed)} passed, {len(failed)} failed")
    print("\n".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
