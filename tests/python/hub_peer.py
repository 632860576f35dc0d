"""What the hub's own Python packages find at HF_ENDPOINT: a program of its own, as they read the environment
when they are imported. Prints JSON."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import datasets
from huggingface_hub import HfApi, HfFileSystem, hf_hub_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoFile


def listed(repository: str, revision: str) -> dict[str, Any]:
    tree = HfApi().list_repo_tree(repository, repo_type="dataset", revision=revision, recursive=True)
    files = [entry for entry in tree if isinstance(entry, RepoFile)]
    return {entry.path: [entry.size, entry.lfs.sha256 if entry.lfs else entry.blob_id] for entry in files}


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def contents(repository: str, revision: str) -> dict[str, Any]:
    """By the hub's file system, whole and in part."""
    fs, root = HfFileSystem(), f"datasets/{repository}@{revision}"
    found = {}
    for path in fs.find(root):
        with fs.open(path, block_size=1 << 16) as file:
            whole = file.read()
            file.seek(len(whole) // 2)
            assert file.read(100) == whole[len(whole) // 2 :][:100]
        found[path.removeprefix(root + "/")] = digest(whole)
    return found


def downloaded(repository: str, revision: str, names: list[str]) -> dict[str, Any]:
    paths = {n: hf_hub_download(repository, n, repo_type="dataset", revision=revision) for n in names}
    assert all(revision in path for path in paths.values())
    return {name: digest(Path(path).read_bytes()) for name, path in paths.items()}


def refusals() -> dict[str, str]:
    """What the package makes of each refusal."""
    asked = {
        "revision": ("org/name", "README.md", "v9"),
        "file": ("org/name", "none", None),
        "repository": ("org/none", "README.md", None),
        "private": ("org/secret", "README.md", None),
        "gated": ("org/gated", "README.md", None),
    }
    kinds = (
        RevisionNotFoundError,
        GatedRepoError,
        EntryNotFoundError,
        RepositoryNotFoundError,
        HfHubHTTPError,
    )
    found = {}
    for what, (repository, name, revision) in asked.items():
        try:
            hf_hub_download(repository, name, repo_type="dataset", revision=revision)
        except kinds as error:
            found[what] = type(error).__name__
    return found


def streamed(url: str, kind: str) -> list[int]:
    rows = datasets.load_dataset(kind, data_files=url, split="train", streaming=True)
    return [row["n"] if "n" in row else row["json"]["n"] for row in rows]


def main() -> None:
    asked = json.loads(sys.argv[1])
    repository, revision = asked["repository"], asked["revision"]
    found = {
        "listed": listed(repository, revision),
        "contents": contents(repository, revision),
        "downloaded": downloaded(repository, revision, asked["download"]),
        "refusals": refusals(),
        "streamed": {url: streamed(url, kind) for url, kind in asked["stream"].items()},
        "split": [r["n"] for r in datasets.load_dataset(asked["dataset"], split="train", streaming=True)],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
