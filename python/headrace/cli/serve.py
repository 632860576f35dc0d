"""sim, version."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from headrace import __version__, sim
from headrace.cli.common import CANCELLED, Json, console, print_json


def simulate(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory to serve; its first-level folders are buckets.")],
    profile: Annotated[str, typer.Option("--profile", help="none, s3-standard or s3-express.")] = "none",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any free one.")] = 0,
    host: Annotated[str, typer.Option("--host")] = "127.0.0.1",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the misbehaviour.")] = 0,
    threads: Annotated[int, typer.Option("--threads", min=1)] = 1,
    unsigned: Annotated[bool, typer.Option("--unsigned", help="Accept requests without a signature.")] = False,
    json: Json = False,
) -> int:
    """Serve a directory as S3, well or ill behaved, until Ctrl-C or SIGTERM. Statistics: GET /_headrace/stats.

    Examples:

    * `headrace sim ./buckets --port 9000` — a perfect server; prints the variables to export

    * `headrace sim ./buckets --profile s3-standard --seed 1` — with the latencies of S3 Standard, the same every time
    """
    stopped = threading.Event()
    codes: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        codes.append(CANCELLED if number == signal.SIGINT else 0)
        stopped.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    with sim.Server(directory, host=host, port=port, profile=profile, seed=seed, threads=threads, require_signature=not unsigned) as server:
        if json:
            print_json({"endpoint": server.endpoint, "port": server.port, "profile": profile, "environment": server.environment()})
        else:
            sys.stdout.write(f"# S3 simulator on {server.endpoint}, profile {profile}; Ctrl-C ends it. In another shell:\n")
            sys.stdout.write("".join(f"export {name}={value}\n" for name, value in server.environment().items()))
            sys.stdout.flush()
        stopped.wait()
    return codes[0]


def version(json: Json = False) -> None:
    """Print the version."""
    if json:
        print_json({"version": __version__})
    else:
        console().print(f"headrace {__version__}")


def register(app: typer.Typer) -> None:
    app.command("sim")(simulate)
    app.command()(version)
