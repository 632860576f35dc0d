"""Columns of batches in other libraries, without a copy, and for how long their memory stays."""

from __future__ import annotations

import gc
import subprocess
from pathlib import Path
from typing import Any

import map_functions as functions
import numpy as np
import pytest
from conftest import write_mds
from other_venv import need_tensorflow, package_alone

import headrace as hr

torch = pytest.importorskip("torch")

import headrace.torch  # noqa: E402

OPTIONS: dict[str, Any] = {"batch_size": 8, "memory": "16MiB", "index_cache": "", "shuffle": False}
DTYPES = (
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "bool",
)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A column of 4 numbers for each dtype, and one of different lengths; 400 samples."""
    columns: dict[str, tuple[str, int | None]] = {
        name: (f"ndarray:{name}:4", 4 * np.dtype(name).itemsize) for name in DTYPES if name != "bool"
    }
    columns |= {"x": ("ndarray:float32:64,64", 1 << 14)}
    samples = [
        {
            **{n: values(n, i).tobytes() for n in columns if n != "x"},
            "x": np.full((64, 64), i, np.float32).tobytes(),
        }
        for i in range(400)
    ]
    return write_mds(tmp_path_factory.mktemp("data") / "arrays", columns, samples)


def values(dtype: str, sample: int) -> Any:
    return (np.arange(4) + sample % 100).astype(dtype)


def address(array: Any) -> int:
    return int(array.data_ptr() if hasattr(array, "data_ptr") else array.ctypes.data)


@pytest.mark.parametrize("dtype", [name for name in DTYPES if name != "bool"])
def test_every_dtype_is_taken_as_it_lies(dataset: Path, dtype: str) -> None:
    with hr.Loader(dataset, **OPTIONS) as loader:
        array = next(iter(loader))[dtype]
    for take in (torch.from_dlpack, np.from_dlpack, torch.from_numpy):
        taken = take(array)
        assert address(taken) == address(array)
        assert str(taken.dtype).removeprefix("torch.") == dtype
        assert np.array_equal(np.asarray(taken), np.stack([values(dtype, i) for i in range(8)]))


def test_ids_and_masks_are_taken_too(dataset: Path) -> None:
    with hr.Loader(dataset, **OPTIONS) as loader:
        batch = next(iter(loader))
    for array in (batch.ids, batch.mask):
        assert address(torch.from_dlpack(array)) == address(array)
    assert torch.from_dlpack(batch.mask).dtype == torch.bool


def test_tensors_are_taken_by_numpy(dataset: Path) -> None:
    with headrace.torch.Loader(dataset, **OPTIONS) as loader:
        tensor = next(iter(loader))["x"]
    taken = np.from_dlpack(tensor)
    assert address(taken) == address(tensor)
    assert np.array_equal(taken[:, 0, 0], np.arange(8))


@pytest.mark.parametrize("place", [{}, {"workers": 1}, {"workers": 1, "where": "thread"}], ids=str)
def test_batches_of_functions_are_taken_too(dataset: Path, place: dict[str, Any]) -> None:
    with hr.Loader(dataset, columns=["x"], **OPTIONS).map(functions.as_is, per="batch", **place) as loader:
        stream = iter(loader)
        tensors = []
        for _, batch in zip(range(20), stream, strict=False):
            tensors.append(torch.from_dlpack(batch["x"]))
            assert address(tensors[-1]) == address(batch["x"])
    del batch, stream, loader
    gc.collect()
    assert [tensor[:, 5, 5].tolist() for tensor in tensors] == [[*range(8 * i, 8 * i + 8)] for i in range(20)]


@pytest.mark.parametrize(
    "take", [torch.from_dlpack, np.from_dlpack, torch.from_numpy, lambda array: array[2:, 1]]
)
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_what_is_held_stays_while_the_loader_goes_on_and_after_it_is_gone(
    dataset: Path, take: Any, kind: str
) -> None:
    """Memory for two dozen batches, of which one is held: its memory is never given to another."""
    if kind == "torch" and take is torch.from_numpy:
        pytest.skip("takes arrays only")
    make = hr.Loader if kind == "numpy" else headrace.torch.Loader
    loader = make(dataset, columns=["x"], **OPTIONS)
    stream = iter(loader)
    next(stream)
    held = take(next(stream)["x"])
    wanted = np.array(held)
    assert wanted.flat[-1] == 15
    for _ in range(2):
        for _batch in loader:
            gc.collect()
    loader.close()
    del stream, loader, _batch
    gc.collect()
    assert np.array_equal(np.asarray(held), wanted)
    with make(dataset, columns=["x"], **OPTIONS) as another:
        for _batch in another:
            pass
    assert np.array_equal(np.asarray(held), wanted)


def test_a_whole_batch_outlives_its_loader(dataset: Path) -> None:
    with hr.Loader(dataset, **OPTIONS) as loader:
        batches = [batch for _, batch in zip(range(3), loader, strict=False)]
    gc.collect()
    for i, batch in enumerate(batches):
        ids = list(range(8 * i, 8 * i + 8))
        assert batch.ids.tolist() == ids
        assert batch["x"][:, 3, 3].tolist() == ids
        assert np.array_equal(batch["int16"], np.stack([values("int16", j) for j in ids]))


def test_memory_comes_back_when_the_last_holder_is_gone(dataset: Path) -> None:
    """A loader whose memory is held waits for it, and goes on: a tensor is a holder like any other."""
    with hr.Loader(dataset, columns=["x"], **{**OPTIONS, "memory": "4MiB"}) as loader:
        for _ in range(2):
            held: list[Any] = []
            for batch in loader:
                held = [*held[-2:], torch.from_dlpack(batch["x"])]
            assert held[-1][:, 0, 0].tolist() == list(range(392, 400))


JAX = """
import gc, sys
import jax, numpy as np
import headrace as hr
with hr.Loader(sys.argv[1], batch_size=8, memory="16MiB", index_cache="", shuffle=False, columns=["x"]) as loader:
    batches = []
    for batch in loader:
        array = batch["x"]
        taken = jax.dlpack.from_dlpack(array)
        assert taken.unsafe_buffer_pointer() == array.ctypes.data, "a copy"
        batches.append(taken)
        del batch, array
        gc.collect()
del loader
gc.collect()
assert [np.asarray(each)[:, 9, 9].tolist() for each in batches] == [list(range(i, i + 8)) for i in range(0, 400, 8)]
print("good")
"""  # noqa: E501


def test_jax_takes_columns_as_they_lie(dataset: Path, tmp_path: Path) -> None:
    import os

    done = subprocess.run(
        [need_tensorflow(), "-c", JAX, str(dataset)],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | package_alone(tmp_path),
    )
    assert done.stdout == "good\n", done.stderr
