#!/usr/bin/env python3
"""The simulator against nginx: the same files, the same client (bench/fetch_floor), interleaved. Server CPU
and throughput.

    bench/sim_vs_nginx.py --floor build/release/bench/fetch_floor [--rounds 5] [--directory
    /dev/shm/sim_vs_nginx] [--json]

Needs nginx and an importable `headrace`. Both servers: one worker, sendfile, open-file cache, no access log,
no signatures.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PART_BYTES = {8 << 20: 4096, 1 << 20: 4096, 64 << 10: 2048}  # -> MiB per measurement
OBJECT_COUNT, OBJECT_MIB = 4, 256

NGINX = """daemon off; master_process off; worker_processes 1; pid {temp}/nginx.pid; error_log {temp}/error.log;
events {{ worker_connections 256; }}
http {{ access_log off; sendfile on; tcp_nopush on; tcp_nodelay on; keepalive_requests 100000000; open_file_cache max=100;
client_body_temp_path {temp}/1; proxy_temp_path {temp}/2; fastcgi_temp_path {temp}/3; uwsgi_temp_path {temp}/4; scgi_temp_path {temp}/5;
server {{ listen 127.0.0.1:{port}; root {root}; }} }}
"""  # noqa: E501
SIMULATOR = """import sys
from headrace import sim
with sim.Server(sys.argv[1], port=int(sys.argv[2]), require_signature=False):
    sys.stdin.read()
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int) -> None:
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.05)
    sys.exit(f"nothing listens on port {port}")


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(
    floor: str, server: subprocess.Popen[bytes], port: int, part_bytes: int, total_mib: int
) -> tuple[float, float]:
    """GB/s, and CPU seconds of the server per GB."""
    before = cpu_s(server.pid)
    command = [
        floor,
        "--poller",
        "uring",
        "--port",
        str(port),
        "--part",
        str(part_bytes),
        "--in-flight",
        "16",
        "--total-mib",
        str(total_mib),
    ]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return report["GB_per_s"], (cpu_s(server.pid) - before) / (total_mib * 1.048576e-3)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--floor", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", type=Path, default=Path("/dev/shm/sim_vs_nginx"))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()

    bucket = arguments.directory / "bkt"
    bucket.mkdir(parents=True, exist_ok=True)
    for number in range(OBJECT_COUNT):
        (bucket / f"obj{number}.bin").write_bytes(bytes(OBJECT_MIB << 20))
    temp = tempfile.mkdtemp(prefix="sim-vs-nginx-")
    ports = {"nginx": free_port(), "sim": free_port()}
    config = Path(temp) / "nginx.conf"
    config.write_text(NGINX.format(temp=temp, port=ports["nginx"], root=arguments.directory))
    servers = {
        "nginx": subprocess.Popen(["nginx", "-c", str(config)], stderr=subprocess.DEVNULL),
        "sim": subprocess.Popen(
            [sys.executable, "-c", SIMULATOR, str(arguments.directory), str(ports["sim"])],
            stdin=subprocess.PIPE,
        ),
    }
    rows = []
    try:
        for port in ports.values():
            wait_for(port)
        for part_bytes, total_mib in PART_BYTES.items():
            runs = [
                {
                    name: measure(arguments.floor, server, ports[name], part_bytes, total_mib)
                    for name, server in servers.items()
                }
                for _ in range(arguments.rounds)
            ]
            row: dict[str, float] = {"part_bytes": part_bytes}
            for name in servers:
                row[f"{name}_GB_per_s"], row[f"{name}_cpu_s_per_GB"] = (
                    statistics.median(run[name][i] for run in runs) for i in (0, 1)
                )
            for label, i in (("throughput", 0), ("cpu", 1)):
                ratios = sorted(run["sim"][i] / run["nginx"][i] for run in runs)
                row |= {
                    f"{label}_ratio": statistics.median(ratios),
                    f"{label}_ratio_min": ratios[0],
                    f"{label}_ratio_max": ratios[-1],
                }
            rows.append(row)
            print(
                json.dumps(row) if arguments.json else "  ".join(f"{k} {v:.3g}" for k, v in row.items()),
                flush=True,
            )
    finally:
        for server in servers.values():
            server.terminate()
            server.wait()
        shutil.rmtree(arguments.directory)
        shutil.rmtree(temp)


if __name__ == "__main__":
    main()
