"""headrace.torch.Loader: tensors without a copy, and life inside DataLoader."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tfrecord.writer import TFRecordWriter

import headrace as hr

torch = pytest.importorskip("torch")

import headrace.torch  # noqa: E402

OPTIONS: dict[str, Any] = {"batch_size": 32, "memory": "64MiB", "block_bytes": "64KiB", "seed": 1}


@pytest.fixture
def loader(numbers: Path) -> Any:
    with headrace.torch.Loader(numbers, **OPTIONS) as opened:
        yield opened


def test_columns_ids_and_mask_are_tensors_over_the_same_memory(numbers: Path, loader: Any) -> None:
    with hr.Loader(numbers, **OPTIONS) as plain:
        for ours, theirs in zip(loader, plain, strict=True):
            assert isinstance(ours["x"], torch.Tensor)
            assert ours["x"].dtype == torch.int64
            assert ours["x"].tolist() == theirs["x"].tolist()
            assert ours["t"] == theirs["t"]
            assert ours.ids.tolist() == theirs.ids.tolist()
            assert ours.mask.dtype == torch.bool
        assert loader._conversion()(theirs)["x"].data_ptr() == theirs["x"].ctypes.data


def test_it_is_an_iterable_dataset_inside_a_data_loader(loader: Any) -> None:
    inside = torch.utils.data.DataLoader(loader, batch_size=None, num_workers=0)
    assert isinstance(loader, torch.utils.data.IterableDataset)
    assert len(inside) == len(loader) == 32
    seen = [int(i) for batch in inside for i, real in zip(batch.ids, batch.mask, strict=True) if real]
    assert sorted(seen) == list(range(1000))


def test_state_inside_a_data_loader_counts_what_the_loop_received(numbers: Path, loader: Any) -> None:
    inside = iter(torch.utils.data.DataLoader(loader, batch_size=None, num_workers=0))
    first = [next(inside).ids.tolist() for _ in range(5)]
    state = loader.state_dict()
    with headrace.torch.Loader(numbers, **OPTIONS) as other:
        other.load_state_dict(state)
        rest = [batch.ids.tolist() for batch in other]
    assert first + rest == [ids.tolist() for ids in loader.sample_ids(0)]


@pytest.mark.parametrize("batch_size", [1, 4])
def test_a_data_loader_that_would_stack_batches_is_refused(loader: Any, batch_size: int) -> None:
    with pytest.raises(
        hr.InvalidArgumentError, match=r"DataLoader\(loader, batch_size=None\).*own batch_size="
    ):
        next(iter(torch.utils.data.DataLoader(loader, batch_size=batch_size)))


@pytest.mark.parametrize("batch_size", [None, 8])
def test_a_data_loader_over_a_numpy_loader_is_told_which_takes_it(
    numbers: Path, batch_size: int | None
) -> None:
    with hr.Loader(numbers, **OPTIONS) as loader:
        for given in (loader, loader.map(dict)):
            with pytest.raises(
                hr.InvalidArgumentError, match=r"takes a headrace.torch.Loader, by DataLoader\("
            ):
                next(iter(torch.utils.data.DataLoader(given, batch_size=batch_size)))


def test_a_stateful_data_loader_resumes_at_the_next_batch(numbers: Path) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    with headrace.torch.Loader(numbers, **OPTIONS) as loader:
        planned = [ids.tolist() for epoch in range(3) for ids in loader.sample_ids(epoch)]
    for stop in (0, 1, 31, 32, 40, 64, 70):
        with headrace.torch.Loader(numbers, **OPTIONS) as loader:
            first = stateful.StatefulDataLoader(loader, batch_size=None)
            batches = itertools.chain.from_iterable(iter(first) for _ in range(3))
            received = [batch.ids.tolist() for batch in itertools.islice(batches, stop)]
            state = first.state_dict()
        with headrace.torch.Loader(numbers, **OPTIONS) as loader:
            second = stateful.StatefulDataLoader(loader, batch_size=None)
            second.load_state_dict(state)
            while len(received) < len(planned):
                received += [batch.ids.tolist() for batch in second]
        assert received == planned, stop


def test_skipping_what_another_global_batch_has_had_is_an_error(numbers: Path) -> None:
    """What was skipped by count would leave an epoch that ends early."""
    with headrace.torch.Loader(numbers, **OPTIONS) as loader:
        list(zip(range(4), loader, strict=False))
        state = loader.state_dict()
    with headrace.torch.Loader(numbers, **OPTIONS, rank=1, world_size=2) as loader:
        loader.load_state_dict(state)
        iter(loader.batch_sampler)
        with pytest.raises(hr.InvalidArgumentError, match="before batch 4, with 14 of 16 to go"):
            loader.dataset[4]
    half = {**OPTIONS, "batch_size": OPTIONS["batch_size"] // 2}
    with headrace.torch.Loader(numbers, **half, rank=1, world_size=2) as loader:
        loader.load_state_dict(state)
        iter(loader.batch_sampler)
        assert loader.dataset[4].index == 4


def test_the_batches_of_an_epoch_have_numbers(loader: Any) -> None:
    """What skip_first_batches() of Accelerate uses, in the loops of Trainer too."""
    planned = [ids.tolist() for ids in loader.sample_ids(1)]
    assert [list(loader.batch_sampler), len(loader.batch_sampler), len(loader.dataset)] == [
        [[k] for k in range(32)],
        32,
        1000,
    ]
    loader.batch_sampler.set_epoch(1)
    indexes = iter(loader.batch_sampler)
    assert loader.dataset[30].ids.tolist() == planned[30]
    with pytest.raises(hr.InvalidArgumentError, match="batch 30 was asked for where batch 31 comes next"):
        loader.dataset[30]
    assert loader.dataset[31].ids.tolist() == planned[31]
    assert next(indexes) == [0]
    assert loader.epoch == 2


def test_skipping_other_batches_than_the_state_has_is_refused(loader: Any) -> None:
    list(zip(range(5), loader, strict=False))
    state = loader.state_dict()
    planned = [ids.tolist() for ids in loader.sample_ids(0)]
    for skipped in (0, 4, 6):
        loader.load_state_dict(state)
        loader.begin_indexed()
        with pytest.raises(hr.InvalidArgumentError, match=f"the first {skipped} batches .* before batch 5"):
            loader.dataset[skipped]
    assert loader.dataset[5].ids.tolist() == planned[5]


def test_a_state_that_the_user_loads_ends_what_composers_checkpoint_said(
    loader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headrace.torch, "is_composer_training", lambda: True)
    state = loader.state_dict()
    loader.go_on_from(state, is_epoch_over=True)
    assert not list(loader), "Composer wants a loop without batches"
    loader.go_on_from(state, is_epoch_over=True)
    loader.load_state_dict(state)
    assert len(list(loader)) == len(loader)


def test_a_batch_moves_as_a_whole(loader: Any) -> None:
    batch = next(iter(loader))
    moved = batch.to("meta")
    assert (moved["x"].device.type, moved.ids.device.type, moved.mask.device.type) == ("meta",) * 3
    assert (moved["t"], moved.epoch, moved.index, moved.replaced) == (batch["t"], 0, 0, {})
    assert batch["x"].device.type == "cpu"


def test_lightning_may_convert_the_columns_of_a_batch(loader: Any) -> None:
    """It makes a batch of the columns alone, and moves that."""
    precision = pytest.importorskip("lightning.pytorch.plugins.precision").DoublePrecision()
    batch = next(iter(loader.map(lambda sample: {"y": sample["x"] / 2})))
    assert batch["y"].dtype == torch.float32
    moved = precision.convert_input(batch).to("cpu")
    assert moved["y"].dtype == torch.float64
    assert moved["y"].tolist() == batch["y"].tolist()
    assert repr(moved) == "Batch({y: torch.float64[32]})"


def test_transform_makes_what_the_loop_receives(numbers: Path) -> None:
    with headrace.torch.Loader(
        numbers, transform=lambda batch: (batch["x"] * 2, batch.ids), **OPTIONS
    ) as loader:
        doubled, ids = next(iter(loader))
        assert doubled.tolist() == [2 * (7 * i + 1) for i in ids.tolist()]


def test_other_methods_are_the_loaders(loader: Any) -> None:
    next(iter(loader))
    assert loader.epoch == 0
    assert loader.batches_left == 31
    assert "stall_seconds" in loader.stats()
    with pytest.raises(AttributeError):
        _ = loader.no_such_thing


def test_it_has_all_public_names_of_the_loader(numbers: Path, loader: Any) -> None:
    """And says what it is: a notebook completes and shows it."""
    with hr.Loader(numbers, **OPTIONS) as plain:
        missing = {name for name in dir(plain) if not name.startswith("_")} - set(dir(loader))
    assert missing == set()
    assert (
        repr(loader)
        == f"headrace.torch.Loader(Loader({str(numbers)!r}, batch_size=32, rank=0, world_size=1))"
    )
    assert repr(loader.map(means)).endswith("world_size=1), map(means)))")
    with headrace.torch.Loader(numbers, device="meta", **OPTIONS) as placed:
        assert repr(placed).endswith(", device='meta')")


def test_an_unknown_option_is_its_own(numbers: Path) -> None:
    with pytest.raises(
        hr.InvalidArgumentError, match=r"headrace\.torch\.Loader has no option 'devcie'.*device"
    ):
        headrace.torch.Loader(numbers, devcie="cpu", **OPTIONS)
    with pytest.raises(
        hr.InvalidArgumentError, match=r"torch\.Loader has no option 'num_workers': decode runs"
    ):
        headrace.torch.Loader(numbers, num_workers=4, **OPTIONS)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_pinning_without_cuda_is_refused(numbers: Path) -> None:
    with pytest.raises(hr.InvalidArgumentError, match="pin_memory"):
        headrace.torch.Loader(numbers, pin_memory=True, **OPTIONS)


def test_batches_move_to_a_device(numbers: Path) -> None:
    with headrace.torch.Loader(numbers, device="cpu", **OPTIONS) as loader:
        assert next(iter(loader))["x"].device == torch.device("cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_a_cuda_device_that_is_not_there_is_refused(numbers: Path) -> None:
    with pytest.raises(hr.InvalidArgumentError, match=r"device='cuda': torch .* sees no CUDA device"):
        headrace.torch.Loader(numbers, device="cuda", **OPTIONS)


def test_everything_of_a_batch_goes_to_its_device(numbers: Path) -> None:
    with headrace.torch.Loader(numbers, device="meta", **OPTIONS) as loader:
        batch = next(iter(loader))
        assert {batch["x"].device.type, batch.ids.device.type, batch.mask.device.type} == {"meta"}
        assert isinstance(batch["t"], list)


def write_grey(root: Path) -> None:
    root.mkdir()
    for number in range(8):
        pixels = bytes((number * 31 + 3 * i) % 256 for i in range(64))
        Image.frombytes("L", (8, 8), pixels).save(root / f"{number}.png")


def means(sample: dict[str, Any]) -> dict[str, Any]:
    assert sample["data"].dtype == torch.bfloat16
    return {"mean": sample["data"].mean(), "data": sample["data"]}


def test_bfloat16_is_its_own_dtype(tmp_path: Path) -> None:
    write_grey(tmp_path / "images")
    options: dict[str, Any] = {"format": "raw", "batch_size": 4, "memory": "16MiB", "shuffle": False}

    def open_as(dtype: str) -> Any:
        decode = {"data": hr.decode.image(resize=(8, 8), dtype=dtype)}
        return headrace.torch.Loader(tmp_path / "images", decode=decode, **options)

    with open_as("bfloat16") as ours, open_as("float32") as wide, open_as("bfloat16").map(means) as mapped:
        for batch, other, made in zip(ours, wide, mapped, strict=True):
            assert batch["data"].dtype == torch.bfloat16
            assert torch.equal(batch["data"], other["data"].to(torch.bfloat16))
            assert torch.equal(made["data"], batch["data"])
            assert made["mean"].dtype == torch.bfloat16


@pytest.mark.parametrize("workers", [None, 0, 2])
def test_bfloat16_of_differing_sizes_is_its_own_dtype(tmp_path: Path, workers: int | None) -> None:
    (tmp_path / "images").mkdir()
    for number in range(6):
        Image.new("L", (4 + number, 4), 51).save(tmp_path / "images" / f"{number}.png")
    decode = {"data": hr.decode.image(dtype="bfloat16")}
    options: dict[str, Any] = {"format": "raw", "batch_size": 3, "memory": "16MiB", "shuffle": False}
    with headrace.torch.Loader(tmp_path / "images", decode=decode, **options) as loader:
        batches = (
            loader
            if workers is None
            else torch.utils.data.DataLoader(loader, batch_size=None, num_workers=workers)
        )
        images = [image for batch in batches for image in batch["data"]]
        assert [image.shape[1] for image in images] == list(range(4, 10))
        for image in images:
            assert image.dtype == torch.bfloat16
            assert torch.allclose(image.float(), torch.tensor(0.2), rtol=2**-8)


def test_bfloat16_of_examples_is_its_own_dtype(tmp_path: Path) -> None:
    write_grey(tmp_path / "images")
    (tmp_path / "examples").mkdir()
    for file in (tmp_path / "images").iterdir():
        example = bytes(TFRecordWriter.serialize_tf_example({"image": (file.read_bytes(), "byte")}))
        (tmp_path / "examples" / file.stem).write_bytes(example)
    decode = {"data": hr.decode.tf_example({"image": hr.decode.image(dtype="bfloat16")})}
    with headrace.torch.Loader(tmp_path / "examples", format="raw", batch_size=4, decode=decode) as loader:
        assert {image.dtype for batch in loader for image in batch["image"]} == {torch.bfloat16}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_batches_are_pinned_and_moved_to_the_gpu(numbers: Path) -> None:
    with headrace.torch.Loader(numbers, pin_memory=True, **OPTIONS) as loader:
        assert next(iter(loader))["x"].is_pinned()
    with headrace.torch.Loader(numbers, pin_memory=True, device="cuda", **OPTIONS) as loader:
        batch = next(iter(loader))
        assert batch["x"].is_cuda
        assert batch["x"].tolist() == [7 * i + 1 for i in batch.ids.tolist()]


def test_rank_comes_from_an_initialised_process_group(numbers: Path, tmp_path: Path) -> None:
    dist = torch.distributed
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        with hr.Loader(numbers, **OPTIONS) as loader:
            assert (loader.rank, loader.world_size) == (0, 1)
    finally:
        dist.destroy_process_group()


class FailsAt:
    """A transform that fails at one batch, so many times; each time with an error of its own, which else
    would keep the loader by its traceback."""

    def __init__(self, index: int, times: int, error: Callable[[], BaseException]) -> None:
        self.index, self.times, self.error = index, times, error

    def __call__(self, batch: Any) -> Any:
        if batch.index == self.index and self.times:
            self.times -= 1
            raise self.error()
        return batch


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("workers", [None, 0, 2])
def test_a_batch_whose_transform_fails_comes_again(
    numbers: Path, workers: int | None, error: type[BaseException]
) -> None:
    loader = headrace.torch.Loader(numbers, transform=FailsAt(2, 2, error), **OPTIONS)
    with loader if workers is None else loader.map(double, workers=workers) as loader:
        planned = [ids.tolist() for ids in loader.sample_ids(0)]
        received: list[list[int]] = []

        def loop(batches: Any) -> None:
            for batch in batches:
                received.append(batch.ids.tolist())

        for batches in (iter(loader), iter(loader)):
            with pytest.raises(error):
                loop(batches)
            assert loader.state_dict()["batches"] == len(received) == 2
            assert loader.batches_left == len(planned) - 2
        loop(batches)
        assert received == planned


def test_a_transform_that_returns_nothing_is_an_error(numbers: Path) -> None:
    with (
        headrace.torch.Loader(numbers, transform=lambda batch: None, **OPTIONS) as loader,
        pytest.raises(hr.InvalidArgumentError, match="transform= returned None"),
    ):
        next(iter(loader))


def double(sample: dict[str, Any]) -> dict[str, Any]:
    return {"x": sample["x"] * 2}


def test_a_batch_that_cannot_be_placed_comes_again(numbers: Path) -> None:
    with headrace.torch.Loader(numbers, device="meta", **OPTIONS) as loader:
        state = loader.state_dict()
        loader.load_state_dict(state)
        place, loader._placing = loader._placing, FailsAt(0, 1, lambda: RuntimeError("out of memory"))
        with pytest.raises(RuntimeError, match="out of memory"):
            next(iter(loader))
        assert loader.state_dict() == state
        loader.set_epoch(0)
        with pytest.raises(hr.InvalidArgumentError, match="no batch was taken since"):
            loader.set_epoch(1)  # As before that batch.
        loader._placing = place
        assert [b.index for b in loader] == list(range(32))


def test_a_batch_by_number_that_fails_comes_again(numbers: Path) -> None:
    fails = FailsAt(3, 1, lambda: ValueError("fourth"))
    with headrace.torch.Loader(numbers, transform=fails, **OPTIONS) as loader:
        loader.begin_indexed()
        assert loader.batch_at(2).index == 2
        with pytest.raises(ValueError, match="fourth"):
            loader.batch_at(3)
        assert loader.state_dict()["batches"] == 3
        assert [loader.batch_at(index).index for index in (3, 4)] == [3, 4]
        loader.begin_indexed()
        fails.index, fails.times = 0, 1
        with pytest.raises(ValueError, match="fourth"):
            loader.batch_at(0)
        assert loader.batch_at(0).index == 0
