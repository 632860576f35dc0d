"""What the documentation says is so: metrics are listed, README commands run as written."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from doc_pages import code_blocks
from PIL import Image
from tool_module import ROOT, load_tool

import headrace as hr
from headrace import sim


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
    with sim.Server(tmp_path) as server:
        where = {
            "endpoint": server.endpoint,
            "access_key": server.access_key,
            "secret_key": server.secret_key,
        }
        hot = {"url": "s3://hot", "endpoint": "http://127.0.0.1:9", "access_key": "a", "secret_key": "b"}
        tiers = [tmp_path / "cache", "memcached://127.0.0.1:9?timeout=0.1", hot]
        with (
            hr.Store("s3://bucket", **where) as remote,
            hr.Loader(str(tmp_path / "bucket"), format="raw", batch_size=1, memory="16MiB") as loader,
            hr.Store("s3://bucket", cache=tiers, **where) as store,
        ):
            remote.get("a.txt")
            mapped = loader.map(lambda sample: sample)
            list(mapped)
            bytes(store.get("a.txt"))
            seen = [*remote.metrics(), *mapped.metrics(), *store.metrics()]
            assert {m.name for m in loader.metrics()} | {"stall_seconds"} == set(loader.stats())
            assert {m.name for m in mapped.metrics()} | {"stall_seconds"} == set(mapped.stats())
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
        timeout=280,  # a guard against hangs: `bench fetch` measures for a minute on a busy machine
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


def test_pictures_show_what_the_documents_say() -> None:
    for name, _, numbers, _ in load_tool("pictures").pictures():
        tree = ElementTree.parse(ROOT / "docs" / "pictures" / name)
        text = tree.findtext(".//{http://purl.org/dc/elements/1.1/}description")
        assert text
        assert json.loads(text) == numbers, f"{name}: run tools/pictures.py"


def jpeg(i: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (100 + i, 80), (20 * i, 50, 100)).save(out, "JPEG")
    return out.getvalue()


def write_tar(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


def write_imagenet(directory: Path, classes: list[str]) -> None:
    """Tars and the CSV as they are given out, of four images a class."""
    for name in classes:
        write_tar(directory / f"{name}.tar", {f"{name}_{i}.JPEG": jpeg(i) for i in range(4)})
    write_tar(
        directory / "ILSVRC2012_img_train.tar",
        {f"{name}.tar": (directory / f"{name}.tar").read_bytes() for name in classes},
    )
    rows = [(f"ILSVRC2012_val_{i:08}", name) for i, name in enumerate(classes[::-1])]
    write_tar(directory / "ILSVRC2012_img_val.tar", {f"{name}.JPEG": jpeg(9) for name, _ in rows})
    lines = ["ImageId,PredictionString", *(f"{image},{name} 1 2 3 4 " for image, name in rows)]
    (directory / "LOC_val_solution.csv").write_text("\n".join(lines) + "\n")


def test_imagenet_runs_as_written(tmp_path: Path) -> None:
    classes = ["n01440764", "n01443537", "n01484850"]
    write_imagenet(tmp_path, classes)
    page = ROOT / "docs" / "imagenet.md"
    script = "".join(code.text for code in code_blocks(page, "sh"))
    script = script.replace("/data", str(tmp_path / "data")).replace("s3://bucket", str(tmp_path / "bucket"))
    script = script.replace("examples/", f"{ROOT / 'examples'}/").replace(
        "--batch-size 256", "--batch-size 4"
    )
    run = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    bucket = tmp_path / "bucket" / "imagenet"
    decode = {"image": hr.decode.image(resize=64, crop=32)}
    with hr.Loader(bucket / "train", batch_size=4, epoch_end="drop", decode=decode) as train:
        labels = [label for batch in train for label in batch["label"].tolist()]
    assert sorted(labels) == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    with hr.Dataset(bucket / "val") as val:
        assert {(len(sample["image"]), sample["label"]) for sample in val} == {
            (len(jpeg(9)), label) for label in range(3)
        }
    said = page.read_text().split("`--format webdataset`")[1].split("\n\n")[0].replace("\n", " ")
    [names] = re.findall(r"`(--columns [^`]*)`", said)
    for format, words in (("webdataset", names), ("parquet", "--columns image=data:jpeg,label")):
        target = tmp_path / format
        pack = ["pack", str(tmp_path / "data/imagenet/val"), str(target), "--manifest", "metadata.jsonl"]
        command = [sys.executable, "-m", "headrace.cli", *pack, "--format", format, *words.split()]
        subprocess.run(command, check=True, timeout=60)
    with tarfile.open(next((tmp_path / "webdataset").glob("*.tar"))) as tar:
        assert {name.partition(".")[2] for name in tar.getnames()} == {"jpg", "cls"}


def test_flat_images_need_their_classes(tmp_path: Path) -> None:
    (tmp_path / "val").mkdir()
    (tmp_path / "val" / "ILSVRC2012_val_00000001.JPEG").write_bytes(jpeg(1))
    (tmp_path / "train" / "n01440764").mkdir(parents=True)
    command = [sys.executable, str(ROOT / "examples" / "imagenet_manifest.py"), str(tmp_path / "val")]
    for words in ([], ["--classes", str(tmp_path / "train")]):
        run = subprocess.run([*command, *words], capture_output=True, text=True, timeout=60)
        assert (run.returncode, "--solution" in run.stderr.splitlines()[-1]) == (2, True), run.stderr
        assert not (tmp_path / "val" / "metadata.jsonl").exists()


def test_a_part_of_a_dataset_has_its_columns(tmp_path: Path) -> None:
    columns = {"image": "jpeg", "tokens": "ndarray:uint16:257", "label": "int", "text": "str"}
    whole = [
        {
            "image": jpeg(i % 8),
            "tokens": np.full(257, i, np.uint16),
            "label": i,
            "text": str(i),
        }
        for i in range(1010)
    ]
    hr.prepare.write(whole, tmp_path / "all", columns=columns)
    [code] = [c.text for c in code_blocks(ROOT / "docs" / "migrating.md", "python") if "bucket/all" in c.text]
    exec(code.replace("s3://bucket", str(tmp_path)), {"hr": hr})
    found: list[int] = []
    for name, count in (("train", 10), ("val", 1000)):
        with hr.Dataset(tmp_path / name) as part, hr.Dataset(tmp_path / "all") as data:
            assert (len(part), part.schema) == (count, data.schema)
            samples = part[:]
        for sample in samples:
            assert sample["image"] == whole[sample["label"]]["image"]
            assert (sample["tokens"] == sample["label"]).all()
        found += [sample["label"] for sample in samples]
    assert sorted(found) == list(range(1010))
    assert found != sorted(found)


def test_the_example_of_sizes_is_what_the_order_says(tmp_path: Path) -> None:
    """98 GiB that take no room: nothing of them is read."""
    shape = (200_000, 512, 1024)
    np.lib.format.open_memmap(tmp_path / "a.npy", mode="w+", dtype=np.uint8, shape=shape)
    rows = re.findall(
        r"^\| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) MiB \|",
        (ROOT / "docs" / "sizing.md").read_text(),
        re.M,
    )
    assert len(rows) == 4
    for row in rows:
        batch, ranks, lanes, blocks, mebibytes = map(int, row)
        command = [sys.executable, "-m", "headrace.cli", "order", str(tmp_path), "--json"]
        done = subprocess.run(
            [*command, "--batch-size", str(batch), "--world-size", str(ranks)],
            capture_output=True,
            check=True,
        )
        said = json.loads(done.stdout)
        found = (
            said["order"]["lane_count"],
            round(said["quality"]["blocks_per_batch"]),
            said["rank_bytes"] >> 20,
        )
        assert found == (lanes, blocks, mebibytes)


def test_the_first_section_of_changes_is_of_this_version() -> None:
    found = re.search(
        r"^## (\d+\.\d+\.\d+)(, not released yet| \(\d{4}-\d\d-\d\d\))$",
        (ROOT / "CHANGELOG.md").read_text(),
        re.M,
    )
    assert found
    assert found[1] == hr.__version__
