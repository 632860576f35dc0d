"""headrace.transforms: MixUp and CutMix against torchvision's, and where they are drawn from."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import write_mds

import headrace as hr
from headrace import transforms

CLASSES = 5


def a_batch(count: int = 6, dtype: Any = np.uint8, shape: tuple[int, ...] = (8, 10, 3)) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    pixels = rng.integers(0, 256, (count, *shape)).astype(dtype)
    return {"image": pixels, "label": np.arange(count) % CLASSES, "other": ["x"] * count}


def copied(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "image": batch["image"].copy()}


def mixer(**arguments: Any) -> Any:
    return transforms.mixup("image", "label", classes=CLASSES, **{"alpha": 1.0, **arguments})


def cutter(**arguments: Any) -> Any:
    return transforms.cutmix("image", "label", classes=CLASSES, **arguments)


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(8, 10, 3), (3, 200, 190)])
def test_mixup_is_torchvisions(dtype: str, shape: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    v2 = pytest.importorskip("torchvision.transforms.v2")
    batch = a_batch(dtype=dtype, shape=shape)
    made = mixer()(copied(batch), rng=np.random.default_rng(1))
    share = float(made["label"][1, 1])
    assert 0.02 < share < 0.98, "drawn"
    theirs = v2.MixUp(num_classes=CLASSES)
    params = {"lam": share, "labels": torch.from_numpy(batch["label"]), "batch_size": 6}
    pixels = theirs.transform(torch.from_numpy(batch["image"].astype(np.float64)), params)
    tolerance = {"uint8": 0.5, "float16": 0.1, "float32": 1e-4, "float64": 1e-5}[dtype]
    assert made["image"].dtype == batch["image"].dtype
    assert np.abs(made["image"].astype(np.float64) - pixels.numpy()).max() <= tolerance
    assert np.allclose(made["label"], theirs.transform(params["labels"], params).numpy(), atol=1e-6)
    assert made["label"].dtype == np.float32
    assert made["other"] == batch["other"]


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_cutmix_is_torchvisions(layout: str) -> None:
    torch = pytest.importorskip("torch")
    v2 = pytest.importorskip("torchvision.transforms.v2")
    batch = a_batch(shape=(40, 60, 3) if layout == "HWC" else (3, 40, 60))
    for seed in range(20):
        made = cutter(layout=layout)(copied(batch), rng=np.random.default_rng(seed))
        before, after = batch["image"], made["image"]
        if layout == "HWC":
            before, after = before.transpose(0, 3, 1, 2), after.transpose(0, 3, 1, 2)
        rows, columns = np.nonzero((before != after).any(axis=(0, 1)))
        share = float(made["label"][1, 1])
        if not len(rows):
            assert share == 1
            continue
        box = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
        area = (box[2] - box[0]) * (box[3] - box[1])
        assert share == pytest.approx(1 - area / (40 * 60), abs=1e-6)
        theirs = v2.CutMix(num_classes=CLASSES)
        labels = torch.from_numpy(batch["label"])
        params = {"box": tuple(map(int, box)), "lam_adjusted": share, "labels": labels, "batch_size": 6}
        assert np.array_equal(after, theirs.transform(torch.from_numpy(before.copy()), params).numpy())
        assert np.allclose(made["label"], theirs.transform(labels, params).numpy(), atol=1e-6)


def test_shares_follow_the_distribution() -> None:
    """Of Beta(0.2, 0.2) half lies beyond 0.05 and 0.95; of Beta(1, 1) a tenth. The mean is a half."""
    rng = np.random.default_rng(0)
    batch = a_batch(2, shape=(4, 4, 1))
    for alpha, beyond in ((0.2, 0.58), (1.0, 0.1)):
        mix = mixer(alpha=alpha)
        shares = np.array([mix(copied(batch), rng=rng)["label"][0, 0] for _ in range(2000)])
        assert abs(shares.mean() - 0.5) < 0.04
        assert abs(np.mean((shares < 0.05) | (shares > 0.95)) - beyond) < 0.05


def test_a_batch_that_is_not_mixed_has_labels_of_the_same_form() -> None:
    batch = a_batch()
    made = mixer(probability=0)(copied(batch), rng=np.random.default_rng(1))
    assert np.array_equal(made["image"], batch["image"])
    assert np.array_equal(made["label"], np.eye(CLASSES, dtype=np.float32)[batch["label"]])
    again = mixer()(made, rng=np.random.default_rng(2))
    assert again["label"].sum(axis=1) == pytest.approx(np.ones(6))


def test_one_of_draws_by_weight() -> None:
    rng = np.random.default_rng(0)
    never = transforms.one_of(mixer(), cutter(), weights=[0, 1])
    assert {type(never(a_batch(), rng=rng)).__name__ for _ in range(3)} == {"dict"}
    seen: list[str] = []
    both = transforms.one_of(
        lambda batch, rng: seen.append("a") or batch,
        lambda batch, rng: seen.append("b") or batch,
        weights=[3, 1],
    )
    for _ in range(1000):
        both({}, rng=rng)
    assert 690 < seen.count("a") < 810


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    samples = [
        {
            "image": rng.integers(0, 256, (6, 7, 3), dtype=np.uint8).tobytes(),
            "label": np.int64(i % CLASSES).tobytes(),
        }
        for i in range(40)
    ]
    write_mds(tmp_path / "mds", {"image": ("ndarray:uint8:6,7,3", 126), "label": ("int", 8)}, samples)
    return tmp_path / "mds"


MIX = transforms.one_of(mixer(), cutter())


def epoch(loader: Any) -> list[tuple[bytes, bytes, list[int]]]:
    return [
        (np.asarray(b["image"]).tobytes(), np.asarray(b["label"]).tobytes(), b.ids.tolist()) for b in loader
    ]


def test_what_is_drawn_depends_on_seed_epoch_and_batch_alone(dataset: Path, open_loader: Any) -> None:
    def run(workers: int = 0, seed: int = 4, where: str = "process") -> Any:
        return open_loader(dataset, batch_size=8, seed=seed).map(
            MIX, per="batch", workers=workers, where=where
        )

    plain = run()
    first, second = epoch(plain), epoch(plain)
    assert first != epoch(run(seed=5))
    assert [each[0] for each in first] != [each[0] for each in second]
    workers = run(2)
    assert [epoch(workers), epoch(workers)] == [first, second]
    assert epoch(run(2, where="thread")) == first
    stopped = run()
    taken = [next(iter(stopped)) for _ in range(2)]
    assert np.asarray(taken[1]["image"]).tobytes() == first[1][0]
    resumed = run()
    resumed.load_state_dict(stopped.state_dict())
    assert epoch(resumed) == first[2:]


def test_tensors_stay_tensors(dataset: Path) -> None:
    torch = pytest.importorskip("torch")
    import headrace.torch

    with headrace.torch.Loader(dataset, batch_size=8, seed=4, memory="64MiB", pin_memory=False) as loader:
        mapped = loader.map(MIX, per="batch")
        batch = next(iter(mapped))
        assert isinstance(batch["image"], torch.Tensor)
        assert batch["label"].shape == (8, CLASSES)
        tensors = epoch([batch])
    with hr.Loader(dataset, batch_size=8, seed=4, memory="64MiB") as loader:
        assert epoch([next(iter(loader.map(MIX, per="batch")))]) == tensors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image": np.zeros((6, 4), np.uint16)}, "bfloat16"),
        ({"image": [np.zeros(3)] * 6}, "expected one array"),
        ({"label": np.array([0, 1, 2, 3, 4, 5])}, "class 5 in row 5, and classes=5"),
        ({"label": np.array([0, 1, 2, 3, 4, -1])}, "class -1 in row 5"),
        ({"label": np.zeros(6)}, "expected class numbers"),
        ({"label": np.zeros((6, 4))}, "expected class numbers"),
        ({"label": None}, "is a NoneType"),
    ],
)
def test_columns_that_do_not_fit(change: dict[str, Any], message: str) -> None:
    with pytest.raises(hr.InvalidArgumentError, match=message):
        mixer()({**a_batch(), **change}, rng=np.random.default_rng(0))


def test_arguments_that_make_no_sense() -> None:
    for wrong in ({"alpha": 0}, {"alpha": float("inf")}, {"probability": 1.5}, {"classes": 0}):
        with pytest.raises(hr.InvalidArgumentError, match=next(iter(wrong))):
            transforms.mixup("image", "label", **{"classes": 3, **wrong})
    with pytest.raises(hr.InvalidArgumentError, match="layout"):
        cutter(layout="NCHW")
    for weights in ([1], [0, 0], [1, -1], [1, float("nan")]):
        with pytest.raises(hr.InvalidArgumentError, match="weights"):
            transforms.one_of(mixer(), cutter(), weights=weights)
    with pytest.raises(hr.InvalidArgumentError, match="no column 'pixels'"):
        transforms.mixup("pixels", "label", classes=3)(a_batch(), rng=np.random.default_rng(0))


def test_they_can_be_sent_to_workers() -> None:
    assert pickle.loads(pickle.dumps(MIX)) == MIX


def test_one_sample_given_to_a_mix_is_told(tmp_path: Path) -> None:
    image = np.zeros((8, 8, 3), np.uint8)
    hr.prepare.write(({"image": image, "label": i} for i in range(4)), tmp_path / "x")
    mix = transforms.one_of(mixer(), cutter())
    with (
        hr.Loader(tmp_path / "x", batch_size=2) as loader,
        pytest.raises(hr.HeadraceError, match=r'label.*per="batch"'),
    ):
        list(loader.map(mix))
