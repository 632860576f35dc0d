"""headrace.torch: numbers of uint16 and uint32 arrive as torch can compute with them, on every way there."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import map_torch_functions as functions
import numpy as np
import pytest

import headrace as hr
from headrace.collate import pad
from headrace.prepare import MDSWriter

torch = pytest.importorskip("torch")

from conftest import write_mds  # noqa: E402

import headrace.torch  # noqa: E402

OPTIONS: dict[str, Any] = {"batch_size": 4, "memory": "16MiB", "block_bytes": "64KiB", "shuffle": False}
COUNT = 12


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Numbers up to the last of their dtypes, of 16, 32 and 64 bits, and bytes."""
    samples = [
        {
            "short": np.array([i, 65535 - i], np.uint16).tobytes(),
            "word": np.array([i, 2**32 - 1 - i], np.uint32).tobytes(),
            "long": np.array([2**64 - 1 - i], np.uint64).tobytes(),
            "byte": np.array([255 - i], np.uint8).tobytes(),
            "label": struct.pack("<H", 40000 + i),
        }
        for i in range(COUNT)
    ]
    columns: dict[str, tuple[str, int | None]] = {
        "short": ("ndarray:uint16:2", 4),
        "word": ("ndarray:uint32:2", 8),
        "long": ("ndarray:uint64:1", 8),
        "byte": ("ndarray:uint8:1", 1),
        "label": ("uint16", 2),
    }
    return write_mds(tmp_path_factory.mktemp("tokens") / "data", columns, samples)


def through_data_loader(workers: int, method: str) -> Callable[[Any], Any]:
    def wrap(loader: Any) -> Any:
        return torch.utils.data.DataLoader(
            loader, batch_size=None, num_workers=workers, multiprocessing_context=method
        )

    return wrap


WAYS: dict[str, Callable[[Any], Any]] = {
    "alone": lambda loader: loader,
    "mapped": lambda loader: loader.map(functions.next_tokens),
    "mapped in threads": lambda loader: loader.map(functions.next_tokens, workers=1, where="thread"),
    "mapped in processes": lambda loader: loader.map(functions.next_tokens, workers=1),
    "batches mapped": lambda loader: loader.map(functions.next_tokens, per="batch"),
    "collated": lambda loader: loader.collate(functions.stacked),
    "collated in processes": lambda loader: loader.collate(functions.stacked, workers=1),
    "DataLoader": lambda loader: torch.utils.data.DataLoader(loader, batch_size=None),
    "forked workers": through_data_loader(2, "fork"),
    "spawned workers": through_data_loader(1, "spawn"),
    "workers that map": lambda loader: through_data_loader(1, "fork")(loader.map(functions.next_tokens)),
}
WIDE = {"short": torch.int32, "word": torch.int64, "label": torch.int32}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    return WAYS[request.param]


def batches(tokens: Path, way: Callable[[Any], Any], **options: Any) -> Iterator[Any]:
    with headrace.torch.Loader(tokens, **OPTIONS, **options) as loader:
        yield from way(loader)


def test_unsigned_numbers_are_widened(tokens: Path, way: Callable[[Any], Any]) -> None:
    row = 0
    for batch in batches(tokens, way):
        assert {name: batch[name].dtype for name in WIDE} == WIDE
        assert (batch["long"].dtype, batch["byte"].dtype) == (torch.uint64, torch.uint8)
        for values in zip(
            *(batch[name].tolist() for name in ("short", "word", "long", "label")), strict=True
        ):
            assert values == (
                [row, 65535 - row],
                [row, 2**32 - 1 - row],
                [2**64 - 1 - row],
                40000 + row,
            )
            row += 1
        if "next" in batch:  # Of a function, which has computed with them.
            assert batch["next"].dtype == torch.int32
            assert batch["next"].tolist() == (batch["short"] + 1).tolist()
            assert batch["made"].dtype == torch.int32  # It returned uint16.
    assert row == COUNT


def test_they_are_kept_where_that_is_wanted(tokens: Path) -> None:
    (first, *_) = batches(tokens, WAYS["alone"], unsigned="keep")
    assert (first["short"].dtype, first["word"].dtype) == (torch.uint16, torch.uint32)
    with headrace.torch.Loader(tokens, **OPTIONS, unsigned="keep").map(functions.dtypes) as loader:
        kept = next(iter(loader))
    assert kept["dtype"] == ["torch.uint16"] * 4
    assert kept["short"].dtype == torch.uint16


def test_a_mixture_delivers_them_wide_too(tokens: Path) -> None:
    with (
        contextlib.closing(hr.Mixture({"a": (tokens, 0.5), "b": (tokens, 0.5)}, block_bytes="64KiB")) as mix,
        headrace.torch.Loader(mix, batch_size=4, memory="16MiB", seed=1) as loader,
    ):
        for batch in loader:
            assert {name: batch[name].dtype for name in WIDE} == WIDE
            assert (batch["short"][:, 1] == 65535 - batch.ids % COUNT).all()


@pytest.mark.parametrize("way", ["alone", "mapped in processes"])
def test_a_run_that_goes_on_has_them_wide(tokens: Path, way: str) -> None:
    """In the middle of an epoch, also where what was begun kept them as they are."""
    with headrace.torch.Loader(tokens, **OPTIONS, unsigned="keep") as loader:
        next(iter(loader))
        state = loader.state_dict()
    with WAYS[way](headrace.torch.Loader(tokens, **OPTIONS)) as loader:
        loader.load_state_dict(state)
        rest = list(loader)
    assert [batch.ids.tolist() for batch in rest] == [[4, 5, 6, 7], [8, 9, 10, 11]]
    for batch in rest:
        assert {name: batch[name].dtype for name in WIDE} == WIDE
        assert batch["short"][:, 0].tolist() == batch.ids.tolist()


@pytest.mark.parametrize("way", ["alone", "mapped in processes", "DataLoader", "forked workers"])
def test_numbers_in_lists_are_widened(tmp_path: Path, way: str) -> None:
    """Of columns whose values have no one size, and of those with nulls."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    items = pa.list_(pa.field("item", pa.uint16(), nullable=False))
    table = pa.table(
        {
            "short": pa.array([[1, 65535], [3], [4, 5, 6], [7]], items),
            "label": pa.array([65535, None, 3, 4], pa.uint16()),
            "word": pa.array([2**32 - 1, None, 3, 4], pa.uint32()),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    with headrace.torch.Loader(tmp_path, **OPTIONS) as loader:
        if way == "mapped in processes":
            loader = loader.map(functions.as_it_is, workers=1)
            way = "alone"
        (batch,) = WAYS[way](loader)
    assert [str(part.dtype).removeprefix("torch.") for part in batch["short"]] == ["int32"] * 4
    assert [part.tolist() for part in batch["short"]] == [[1, 65535], [3], [4, 5, 6], [7]]
    for name, dtype in (("label", "int32"), ("word", "int64")):
        values = [value for value in batch[name] if value is not None]
        assert [str(value.dtype).removeprefix("torch.") for value in values] == [dtype] * 3
        assert [None if value is None else int(value) for value in batch[name]] == table[name].to_pylist()


def test_what_collate_makes_of_columns_that_vary_is_wide(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with MDSWriter(data, {"tokens": "ndarray:uint16"}) as writer:
        for i in range(4):
            writer.write({"tokens": np.arange(65533 - i, 65536, dtype=np.uint16)})
    with headrace.torch.Loader(data, **OPTIONS).collate(pad("tokens")) as padded:
        (batch,) = padded
    assert batch["tokens"].dtype == torch.int32
    assert batch["tokens"][3].tolist() == list(range(65530, 65536))


def test_a_stateful_data_loader_goes_on_with_them_wide(tokens: Path) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    with headrace.torch.Loader(tokens, **OPTIONS) as loader:
        found = stateful(loader, batch_size=None, num_workers=1)
        next(iter(found))
        state = found.state_dict()
        del found
    with headrace.torch.Loader(tokens, **OPTIONS) as loader:
        found = stateful(loader, batch_size=None, num_workers=1)
        found.load_state_dict(state)
        rest = [(batch.ids.tolist(), batch["word"].dtype, batch["word"][:, 0].tolist()) for batch in found]
        del found
    assert rest == [(ids, torch.int64, ids) for ids in ([4, 5, 6, 7], [8, 9, 10, 11])]


def test_transform_and_the_device_get_them_wide(tokens: Path) -> None:
    def table(batch: Any) -> Any:
        return torch.arange(1 << 16)[batch["short"]]

    (first, *_) = batches(tokens, WAYS["alone"], transform=table)
    assert first[0].tolist() == [0, 65535]
    (moved, *_) = batches(tokens, WAYS["alone"], device="meta")
    assert {name: moved[name].dtype for name in WIDE} == WIDE


def test_a_numpy_loader_and_its_functions_keep_theirs(tokens: Path) -> None:
    with hr.Loader(tokens, **OPTIONS) as loader:
        assert next(iter(loader))["short"].dtype == np.uint16


def test_another_word_is_refused(tokens: Path) -> None:
    wrong: Any = "widened"
    with pytest.raises(hr.InvalidArgumentError, match="there are widen, keep"):
        headrace.torch.Loader(tokens, unsigned=wrong, **OPTIONS)
