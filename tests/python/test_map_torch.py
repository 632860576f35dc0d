"""headrace.torch.Loader.map(): tensors in workers, torchvision's transforms, tokenizers, loops of others."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import map_torch_functions as functions
import numpy as np
import pytest
import torch
from conftest import write_mds
from map_loaders import OPTIONS

import headrace as hr
import headrace.torch


def open_torch(path: Path, **options: Any) -> headrace.torch.Loader:
    return headrace.torch.Loader(path, **{**OPTIONS, **options})


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 images as arrays of 3 x 20 x 30, with labels and captions."""
    rng = np.random.default_rng(1)
    samples = [
        {
            "image": rng.integers(0, 256, (3, 20, 30), np.uint8).tobytes(),
            "label": struct.pack("<q", i),
            "text": f"a picture of {i} things".encode(),
        }
        for i in range(24)
    ]
    columns = {"image": ("ndarray:uint8:3,20,30", 1800), "label": ("int", 8), "text": ("str", None)}
    return write_mds(tmp_path_factory.mktemp("data") / "images", columns, samples, per_shard=6)


@pytest.mark.parametrize("workers", [0, 1])
def test_functions_see_tensors_and_tensors_are_delivered(images: Path, workers: int) -> None:
    with open_torch(images, batch_size=6, shuffle=False).map(functions.inspect, workers=workers) as loader:
        batch = next(iter(loader))
    assert type(batch) is headrace.torch.Batch
    kinds = {
        name: (value.dtype, tuple(value.shape)) for name, value in batch.items() if torch.is_tensor(value)
    }
    assert kinds == {
        "image": (torch.uint8, (6, 3, 20, 30)),
        "mean": (torch.float32, (6,)),
        "half": (torch.bfloat16, (6, 2)),
        "threads": (torch.int64, (6,)),
    }
    assert batch["half"].tolist() == [[i, i / 2] for i in range(6)]
    assert [value.tolist() for value in batch["ragged"]] == [list(range(i)) for i in range(6)]
    assert batch.ids.tolist() == list(range(6))
    if workers:
        assert batch["threads"].tolist() == [1] * 6


def test_tensors_of_a_numpy_loader_become_arrays(images: Path) -> None:
    for workers in (0, 1):
        options = {**OPTIONS, "batch_size": 6, "shuffle": False}
        with hr.Loader(images, **options).map(functions.make_tensors, workers=workers) as loader:
            batch = next(iter(loader))
        assert isinstance(batch["image"], np.ndarray)
        assert (batch["half"].dtype, batch["half"].shape) == (np.uint16, (6, 2))


def test_torchvisions_transforms_give_the_same_on_any_number_of_workers(images: Path) -> None:
    pytest.importorskip("torchvision")
    found = []
    for workers in (0, 2):
        with open_torch(images, batch_size=6).map(functions.Augment(), workers=workers) as loader:
            batches = list(loader)
            assert batches[0]["image"].shape == (6, 3, 16, 16)
            found.append(torch.cat([batch["image"] for batch in batches]))
    assert torch.equal(found[0], found[1])


def test_tokenizers_run_unchanged(images: Path) -> None:
    tokenize = functions.Tokenize(functions.make_tokenizer())
    for per, workers in (("sample", 1), ("batch", 1), ("batch", 0)):
        with open_torch(images, batch_size=6, shuffle=False).map(
            tokenize, per=per, workers=workers
        ) as loader:
            batch = next(iter(loader))
        assert torch.equal(batch["input_ids"][:, 0], torch.full((6,), batch["input_ids"][0, 0]))
        assert batch["input_ids"].shape == batch["attention_mask"].shape == (6, 5)


def test_collate_gives_anything(images: Path) -> None:
    for workers in (0, 1):
        with open_torch(images, batch_size=6, shuffle=False).collate(
            functions.to_pair, workers=workers
        ) as loader:
            pictures, labels = next(iter(loader))
        assert (pictures.shape, labels.tolist()) == ((6, 3, 20, 30), list(range(6)))


def test_loops_of_others_take_it_as_a_loader(images: Path) -> None:
    with open_torch(images, batch_size=6).map(functions.add_one, workers=1) as loader:
        wrapped = torch.utils.data.DataLoader(loader, batch_size=None, num_workers=0)
        ids = [batch.ids.tolist() for batch in wrapped]
        assert len(ids) == len(loader) == 4
        assert loader.epoch == 1
        loader.set_epoch(0)
        assert loader.batch_at(0).ids.tolist() == ids[0]
        assert loader.batch_at(1).ids.tolist() == ids[1]
        assert loader.state_dict()["batches"] == 2
