"""The scripts of examples/: they run as their first lines say, their loss falls, and a run that was stopped
goes on with exactly the samples that were left."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from framework_ranks import LONG
from other_venv import CACHE, need_tensorflow, package_alone

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
COUNT = 128
QUIET = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "RAY_DEDUP_LOGS": "0", "RAY_USAGE_STATS_ENABLED": "0"}


def run(script: str | Path, *arguments: str | Path, ranks: int = 0, home: Path | None = None) -> str:
    """What it prints; with ``home``, on TensorFlow's venv."""
    start = [str(need_tensorflow() if home else sys.executable)]
    if ranks:
        start += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    done = subprocess.run(
        [*start, str(EXAMPLES / script), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=250,
        env=os.environ | QUIET | (package_alone(home) if home else {}),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("examples") / "images"
    run("make_data.py", "images", root, "--count", str(COUNT))
    return root


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ids(output: str) -> list[int]:
    """Of all batches; ranks may print into each other's lines."""
    return [i for found in re.findall(r'"ids": (\[[^\]]*\])', output) for i in json.loads(found)]


def losses(output: str) -> list[float]:
    return [float(found) for found in re.findall(r"""(?<!_)loss["']?:? ([0-9.]+)""", output)]


def test_images(images: Path) -> None:
    found = losses(run("images.py", images, "--epochs", "4"))
    assert len(found) == 4
    assert found[-1] < 0.8 * found[0]


def test_tokens(tmp_path: Path) -> None:
    run("make_data.py", "tokens", tmp_path / "tokens", "--count", "1024")
    found = losses(run("tokens.py", tmp_path / "tokens", "--epochs", "2"))
    assert found[1] < 0.95 * found[0]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, images: Path) -> dict[str, Path]:
    """By the model that is trained on it."""
    tokens = tmp_path_factory.mktemp("examples") / "tokens"
    run("make_data.py", "tokens", tokens, "--count", str(COUNT))
    return {"resnet": images, "bytes": tokens}


@pytest.mark.parametrize("model", ["resnet", "bytes"])
@pytest.mark.parametrize(
    ("script", "ranks", "resumed"),
    [
        ("pytorch_loop.py", 0, 0),
        ("pytorch_ddp.py", 2, 1),
        ("fsdp2.py", 2, 2),
        ("lightning_fit.py", 0, 0),
        ("hf_trainer.py", 0, 0),
        ("accelerate_loop.py", 0, 0),
    ],
)
def test_a_run_that_was_stopped_goes_on(
    data: dict[str, Path], tmp_path: Path, model: str, script: str, ranks: int, resumed: int
) -> None:
    arguments = [script, data[model], "--model", model, "--checkpoint"]
    first = run(*arguments, tmp_path / "run", "--stop", "3", ranks=ranks)
    rest = run(*arguments, tmp_path / "run", "--resume", ranks=resumed)
    check_resumed(first, rest)
    if LONG and not ranks and script != "hf_trainer.py":  # That one tells means of several losses.
        check_exact(first, rest, run(*arguments, tmp_path / "whole", ranks=ranks))


@pytest.mark.parametrize("model", ["resnet", "bytes"])
def test_a_run_that_was_stopped_learns_what_it_would_have(
    data: dict[str, Path], tmp_path: Path, model: str
) -> None:
    """The losses are those of a run that never stopped: model, optimizer and position all came back."""
    arguments = ["pytorch_loop.py", data[model], "--model", model, "--checkpoint"]
    check_exact(
        run(*arguments, tmp_path / "run", "--stop", "3"),
        run(*arguments, tmp_path / "run", "--resume"),
        run(*arguments, tmp_path / "whole"),
    )


@pytest.mark.parametrize("model", ["resnet", "bytes"])
def test_composer_goes_on(
    data: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    if not (CACHE / "composer").exists():
        pytest.skip("tools/setup test installs Composer in the cache")
    monkeypatch.setenv("PYTHONPATH", f"{CACHE / 'composer'}:{os.environ.get('PYTHONPATH', '')}")
    arguments = ["composer_fit.py", data[model], "--model", model, "--checkpoint", tmp_path / "run"]
    check_resumed(run(*arguments, "--stop", "3"), run(*arguments, "--resume"))


@pytest.mark.parametrize("model", ["resnet", "bytes"])
@pytest.mark.parametrize("script", ["keras_loop.py", "jax_loop.py"])
def test_a_run_without_torch_goes_on(data: dict[str, Path], tmp_path: Path, script: str, model: str) -> None:
    arguments = [script, data[model], "--model", model, "--checkpoint", tmp_path / "run"]
    check_resumed(run(*arguments, "--stop", "3", home=tmp_path), run(*arguments, "--resume", home=tmp_path))


def check_resumed(first: str, rest: str) -> None:
    assert 0 < len(ids(first)) <= COUNT
    assert sorted(ids(first) + ids(rest)) == sorted(2 * list(range(COUNT))), (
        "two epochs, each sample once in each"
    )
    found = losses(first) + losses(rest)
    assert found[-1] < found[0]


def check_exact(first: str, rest: str, whole: str) -> None:
    assert ids(first) + ids(rest) == ids(whole)
    assert losses(first) + losses(rest) == pytest.approx(losses(whole), rel=1e-4)


@pytest.mark.skipif(not LONG, reason="two starts of Ray cost as much as all others together")
@pytest.mark.parametrize("model", ["resnet", "bytes"])
def test_ray(data: dict[str, Path], tmp_path: Path, model: str) -> None:
    pytest.importorskip("ray")
    arguments = ("ray_train.py", data[model], "--model", model, "--storage", tmp_path / "runs")
    check_resumed(run(*arguments, "--stop", "3"), run(*arguments))


def test_mixtures(tmp_path: Path) -> None:
    for name, count in (("web", "2000"), ("code", "500")):
        run("make_data.py", "tokens", tmp_path / name, "--count", count)
    counts = json.loads(run("mixtures.py", tmp_path / "web", tmp_path / "code"))
    assert counts == {"before": {"web": 896, "code": 384}, "after": {"web": 640, "code": 640}}


def test_verify(images: Path, tmp_path: Path) -> None:
    """Of a dataset in which a bit has flipped at rest, in TFRecords, which have a sum for each record."""
    from headrace import Dataset, prepare

    prepare.convert(images, tmp_path / "data", format="tfrecord")
    with Dataset(tmp_path / "data") as dataset:
        dataset.write_index()
    (shard,) = (tmp_path / "data").glob("*.tfrecord")
    before = shard.stat()
    with open(shard, "r+b") as file:
        file.seek(before.st_size // 2)
        file.write(b"xxxx")
    os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))
    found, used = map(json.loads, run("verify.py", tmp_path / "data").splitlines())
    assert found == {"samples": COUNT, "good": COUNT - 1, "problems": 1}
    (bad,) = used.pop("bad")
    assert abs(bad - COUNT // 2) <= 2
    assert used == {"delivered": COUNT, "replaced": 1}


@pytest.mark.parametrize("how", ["turned", "cut"])
def test_verify_of_a_damaged_shard(images: Path, tmp_path: Path, how: str) -> None:
    """One whose digest says that something in it is wrong, but not what; and one that no reader takes."""
    from headrace import Dataset, prepare

    prepare.convert(images, tmp_path / "data", format="mds", hash="xxh3_64", shard_bytes="1MiB")
    with Dataset(tmp_path / "data") as dataset:
        shard = dataset.shards[1]
    assert 0 < shard.sample_count < COUNT
    path = tmp_path / "data" / shard.key
    if how == "cut":
        os.truncate(path, shard.size // 2)
    else:
        with open(path, "r+b") as file:
            file.seek(shard.size // 2)
            file.write(b"xxxx")
    found, used = map(json.loads, run("verify.py", tmp_path / "data").splitlines())
    assert found == {"samples": COUNT, "good": COUNT - shard.sample_count, "problems": 1}
    bad = list(range(shard.first_sample, shard.first_sample + shard.sample_count))
    assert used == {"bad": bad, "delivered": COUNT, "replaced": shard.sample_count}


def programs(directory: Path, **scripts: str) -> dict[str, str]:
    """Variables for a process that finds these programs first, and ours and torchrun's."""
    directory.mkdir()
    for name, text in scripts.items():
        (directory / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (directory / name).chmod(0o755)
    path = f"{directory}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return os.environ | QUIET | {"PATH": path, "PORT": str(free_port())}


def shell(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, cwd=EXAMPLES.parent, env=environment, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_store_with_a_certificate_of_its_own(tmp_path: Path) -> None:
    environment = programs(tmp_path / "bin")
    said = shell(["bash", str(EXAMPLES / "minio_tls.sh"), str(tmp_path / "store")], environment)
    assert "ok: listed the root" in said
    assert "name the authority with ca_bundle" in said


SRUN = """
if [[ $1 == bash ]]; then
  for rank in 0 1; do SLURM_PROCID=$rank SLURM_LOCALID=$rank SLURM_NTASKS=2 "$@" & done
  wait -n && wait -n
else
  exec "$@"
fi
"""


@pytest.mark.parametrize("script", ["train.sbatch", "ranks.sbatch"])
def test_slurm(images: Path, tmp_path: Path, script: str) -> None:
    """The files as Slurm runs them, with one node that is this machine, requeued after the first epoch."""
    environment = programs(tmp_path / "bin", scontrol="echo 127.0.0.1", srun=SRUN)
    environment |= {
        "RANKS_PER_NODE": "2",
        "SLURM_NNODES": "1",
        "SLURM_JOB_ID": "17",
        "SLURM_JOB_NODELIST": "node[1]",
    }
    text = (EXAMPLES / "slurm" / script).read_text()
    (tmp_path / "first.sbatch").write_text(text.replace("--resume", "--resume --stop 3"))
    arguments = [str(images), str(tmp_path / "run")]
    check_resumed(
        shell(["bash", str(tmp_path / "first.sbatch"), *arguments], environment),
        shell(
            ["bash", str(EXAMPLES / "slurm" / script), *arguments], environment | {"PORT": str(free_port())}
        ),
    )


def containers(name: str) -> list[dict[str, Any]]:
    yaml = pytest.importorskip("yaml")
    documents = list(yaml.safe_load_all((EXAMPLES / "kubernetes" / name).read_text()))
    (job,) = (document for document in documents if document["kind"] == "Job")
    services = [document for document in documents if document["kind"] == "Service"]
    pod = job["spec"]["template"]["spec"]
    for service in services:
        assert pod["subdomain"] == service["metadata"]["name"]
        assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    mounted = {
        mount["name"] for container in pod["containers"] for mount in container.get("volumeMounts", [])
    }
    assert mounted == {volume["name"] for volume in pod.get("volumes", [])}
    return list(pod["containers"])


def test_kubernetes_trains_on_two_pods(images: Path, tmp_path: Path) -> None:
    """What the pods run, as two processes of this machine."""
    environment = programs(tmp_path / "bin")
    (container,) = containers("train.yaml")
    here = {
        "headrace-train-0.headrace-train:29500": f"127.0.0.1:{environment['PORT']}",
        "nproc-per-node=8": "nproc-per-node=1",
        "s3://bucket/train": str(images),
        "s3://bucket/run-17": str(tmp_path / "run"),
        "=/cache": f"={tmp_path / 'cache'}",
    }
    command = list(container["command"])
    for before, after in here.items():
        assert any(before in word for word in command), before
        command = [word.replace(before, after) for word in command]
    with ThreadPoolExecutor() as pool:
        pods = list(pool.map(lambda _: shell(command, environment), range(2)))
    assert sorted(ids("".join(pods))) == sorted(2 * list(range(COUNT)))
    assert all(ids(pod) for pod in pods)
    assert any((tmp_path / "cache").rglob("*"))


def test_kubernetes_prepares(images: Path, tmp_path: Path) -> None:
    (container,) = containers("prepare.yaml")
    (script,) = container["args"]
    shutil.copytree(images, tmp_path / "train")
    script = script.replace("s3://bucket", str(tmp_path))
    shell([*container["command"], script], programs(tmp_path / "bin"))
    assert (tmp_path / "train" / "index.hri").exists()


@pytest.mark.parametrize("name", ["minio_tls.sh", "slurm/train.sbatch", "slurm/ranks.sbatch"])
def test_shell_scripts_are_sound(name: str) -> None:
    assert subprocess.run(["bash", "-n", str(EXAMPLES / name)]).returncode == 0
    assert os.access(EXAMPLES / name, os.X_OK)


def test_every_script_is_listed() -> None:
    said = (EXAMPLES / "README.md").read_text()
    files = [
        *EXAMPLES.glob("*.py"),
        *EXAMPLES.glob("*.sh"),
        *EXAMPLES.glob("slurm/*"),
        *EXAMPLES.glob("kubernetes/*"),
    ]
    assert not [path.name for path in files if path.name not in said]
