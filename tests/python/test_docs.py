"""What the documentation says is so: metrics are listed, README commands run as written."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import headrace as hr
from headrace import sim

ROOT = Path(__file__).resolve().parents[2]


def documented_metrics() -> dict[str, tuple[str, str]]:
    """Kind and unit by name, from the tables of docs/metrics.md."""
    text = (ROOT / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| ([a-z_]+\.[a-z_0-9]+) \| ([^|]+) \| ([^|]+) \|", text, re.M)
    kinds = {"Gauge": "gauge", "Quantile": "quantile"}
    return {
        name: (kinds.get(meaning.split(":")[0].strip(), "counter"), unit.replace("µ", "u").strip())
        for name, unit, meaning in rows
    }


def test_every_metric_is_in_the_documentation(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket" / "a.txt").write_bytes(b"x" * 100)
    with (
        sim.Server(tmp_path) as server,
        hr.Store(
            "s3://bucket",
            endpoint=server.endpoint,
            access_key=server.access_key,
            secret_key=server.secret_key,
        ) as remote,
    ):
        remote.get("a.txt")
        seen = remote.metrics()
    with (
        hr.Loader(str(tmp_path / "bucket"), format="raw", batch_size=1, memory="16MiB") as loader,
        hr.Store(
            str(tmp_path / "bucket"),
            cache=[
                tmp_path / "cache",
                "memcached://127.0.0.1:9?timeout=0.1",
                {"url": "s3://hot", "endpoint": "http://127.0.0.1:9", "access_key": "a", "secret_key": "b"},
            ],
        ) as store,
    ):
        list(loader)
        bytes(store.get("a.txt"))
        seen = [*seen, *loader.metrics(), *store.metrics()]
        assert {m.name for m in loader.metrics()} | {"stall_seconds"} == set(loader.stats())
    said = documented_metrics()
    assert {m.name: (m.kind, m.unit) for m in seen} == {m.name: said.get(m.name) for m in seen}
    assert not set(said) - {m.name for m in seen}, "documented, and not there"


def readme_block(heading: str) -> str:
    section = (ROOT / "README.md").read_text().split(f"## {heading}\n", 1)[1]
    block = re.search(r"```sh\n(.*?)```", section, re.S)
    assert block
    return block.group(1)


def test_readme_five_minutes_runs_as_written(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # The only changes: a free port, a private directory, a small source tree.
    source = tmp_path / "source"
    shutil.copytree(ROOT / "docs", source)
    script = (
        readme_block("Five minutes")
        .replace("9000", str(port))
        .replace("/tmp/buckets", str(tmp_path / "buckets"))
        .replace("/usr/share/doc", str(source))
    )
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    run = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "Traceback" not in run.stderr


def test_prose_is_wrapped_and_stays_what_it_is() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "wrap_docs.py")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_the_example_of_a_wrapper_is_the_one_that_is_tested() -> None:
    def code(text: str) -> str:
        return re.sub(r"\s+", " ", re.sub(r"//[^\n]*", "", text)).strip()

    example = re.search(r"```cpp\n(.*?)```", (ROOT / "docs" / "extending.md").read_text(), re.S)
    assert example
    assert code(example[1]) in code((ROOT / "src" / "store" / "forwarding_store_test.cc").read_text())


def test_readme_lines_are_short() -> None:
    assert not [line for line in (ROOT / "README.md").read_text().splitlines() if len(line) >= 100]


def load_tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"tools_{name}", ROOT / "tools" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pictures_show_what_the_documents_say() -> None:
    for name, _, numbers, _ in load_tool("pictures").pictures():
        tree = ElementTree.parse(ROOT / "docs" / "pictures" / name)
        text = tree.findtext(".//{http://purl.org/dc/elements/1.1/}description")
        assert text
        assert json.loads(text) == numbers, f"{name}: run tools/pictures.py"
