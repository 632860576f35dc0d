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
from headrace.cli.common import CANCELLED, console, print_json
from headrace.cli.declare import Json
from headrace.cli.library import add
from headrace.errors import InvalidArgumentError


def numbers_of(settings: list[str]) -> dict[str, float]:
    """{"throttle_rate": 0.02} of ["throttle_rate=0.02"]."""
    numbers: dict[str, float] = {}
    for setting in settings:
        name, _, value = setting.partition("=")
        try:
            numbers[name] = float(value)
        except ValueError:
            raise InvalidArgumentError(f"--set {setting}: must be FIELD=NUMBER") from None
    return numbers


def simulate(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Directory to serve; its first-level folders are buckets.")
    ],
    profile: Annotated[
        str,
        typer.Option(
            "--profile",
            help="none, s3-standard, s3-express, gcs, azure, collapse-8, collapse-32 or collapse-96.",
        ),
    ] = "none",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any free one.")] = 0,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the misbehaviour.")] = 0,
    threads: Annotated[int, typer.Option("--threads", min=1, help="Threads that serve.")] = 1,
    unsigned: Annotated[
        bool, typer.Option("--unsigned", help="Accept requests without a signature.")
    ] = False,
    behaviour: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=NUMBER",
            help="Change the profile, e.g. throttle_rate=0.02. May be repeated.",
        ),
    ] = None,
    addresses: Annotated[
        int, typer.Option("--addresses", min=1, max=64, help="Listen on that many loopback addresses.")
    ] = 1,
    tls: Annotated[
        bool,
        typer.Option(
            "--tls", help="Serve https, with a certificate made for it unless --certificate is given."
        ),
    ] = False,
    certificate: Annotated[
        str, typer.Option("--certificate", metavar="PEM", help="Serve https with it.")
    ] = "",
    private_key: Annotated[
        str, typer.Option("--private-key", metavar="PEM", help="Of the certificate.")
    ] = "",
    redirect_reads: Annotated[
        bool, typer.Option("--redirect-reads", help="Answer reads at the first address with 307.")
    ] = False,
    count_repeats: Annotated[
        bool, typer.Option("--count-repeats", help="Count ranges asked for again, also without faults.")
    ] = False,
    json: Json = False,
) -> int:
    """Serve a directory as S3, well or ill behaved, until Ctrl-C or SIGTERM. Statistics: GET
    /_headrace/stats.

    Examples:

    * `headrace sim ./buckets --port 9000` — a perfect server; prints the variables to export

    * `headrace sim ./buckets --set throttle_rate=0.02 --set reset_rate=0.01` — two kinds of faults

    * `headrace sim ./buckets --profile s3-standard --seed 1` — with the latencies of S3 Standard, the same
      every time
    """
    stopped = threading.Event()
    codes: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        codes.append(CANCELLED if number == signal.SIGINT else 0)
        stopped.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    server = sim.Server(
        directory,
        host=host,
        port=port,
        profile=profile,
        behaviour=numbers_of(behaviour or []),
        seed=seed,
        threads=threads,
        require_signature=not unsigned,
        addresses=addresses,
        tls=tls,
        certificate=certificate,
        private_key=private_key,
        redirect_reads=redirect_reads,
        count_repeats=count_repeats,
    )
    with server:
        if json:
            print_json(
                {
                    "endpoint": server.endpoint,
                    "port": server.port,
                    "addresses": server.addresses,
                    "profile": profile,
                    "environment": server.environment(),
                }
            )
        else:
            sys.stdout.write(
                f"# S3 simulator on {server.endpoint}, profile {profile}; Ctrl-C ends it. In another shell:\n"
            )
            sys.stdout.write(
                "".join(f"export {name}={value}\n" for name, value in server.environment().items())
            )
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
    add(app, simulate, "sim")
    add(app, version)
