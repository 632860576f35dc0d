"""decode="auto" over what others write: torchvision's trees, files of `datasets`, TensorFlow's records."""

from __future__ import annotations

import io
import subprocess
import warnings
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from other_venv import need_tensorflow
from PIL import Image

import headrace as hr

COUNT = 6


def picture(i: int) -> Image.Image:
    y, x = np.mgrid[0:24, 0:32]
    return Image.fromarray(np.stack([x * 7, y * 9, (x + y) * 3 + i], axis=-1).astype(np.uint8))


def encoded(image: Image.Image, format: str = "PNG") -> bytes:
    out = io.BytesIO()
    image.save(out, format)
    return out.getvalue()


def sound(frames: int, rate: int = 16000) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((np.arange(frames) * 30).astype("<i2").tobytes())
    return out.getvalue()


def write_folders(root: Path, endings: list[str]) -> Path:
    for i, ending in enumerate(endings):
        path = root / "ab"[i % 2] / f"{i}.{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(picture(i)))
    return root


def delivered(loader: Any) -> dict[int, dict[str, Any]]:
    """One epoch's samples by position; nothing is to be warned of."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return {
            int(batch.ids[row]): {name: batch[name][row] for name in batch}
            for batch in loader
            for row in np.flatnonzero(batch.mask)
        }


def quiet(open_loader: Any, path: Any, **options: Any) -> dict[int, dict[str, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = open_loader(path, batch_size=2, decode="auto", **options)
    return delivered(loader)


def test_a_tree_of_images_as_torchvision_reads_it(tmp_path: Path, open_loader: Any) -> None:
    folders = pytest.importorskip("torchvision.datasets").ImageFolder(
        str(write_folders(tmp_path / "d", ["png", "PNG", "jpeg", "JPG"]))
    )
    found = quiet(open_loader, tmp_path / "d", labels="folder")
    assert len(found) == len(folders) == 4
    for position, (image, label) in enumerate(folders):
        assert np.array_equal(found[position]["data"], np.asarray(image))
        assert found[position]["label"] == label


def test_files_of_other_kinds_leave_all_as_they_are(tmp_path: Path, open_loader: Any) -> None:
    write_folders(tmp_path / "d", ["png"] * 5)
    (tmp_path / "d" / "a" / "notes.TXT").write_text("x")
    (tmp_path / "d" / "a" / "none").write_text("x")
    message = r"'data' of .*/d \(endings of its files: 5 with \.png, 1 with none, 1 with \.txt\)"
    with pytest.warns(RuntimeWarning, match=message) as caught:
        loader = open_loader(tmp_path / "d", batch_size=2, decode="auto")
    assert Path(caught[0].filename).name == "conftest.py", "whose line made the loader"
    assert all(isinstance(sample["data"], bytes) for sample in delivered(loader).values())


@pytest.mark.parametrize("ending", ["wav", "flac"])
def test_a_tree_of_sounds(tmp_path: Path, open_loader: Any, ending: str) -> None:
    (tmp_path / "d").mkdir()
    for i in range(COUNT):
        (tmp_path / "d" / f"{i}.{ending}").write_bytes(sound(100 + i))
    found = quiet(open_loader, tmp_path / "d")
    assert [found[i]["data"].shape for i in range(COUNT)] == [(100 + i, 1) for i in range(COUNT)]


def features_of_datasets() -> Any:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "mask": {"grey": datasets.Image(mode="L")},
            "kept": datasets.Image(decode=False),
            "sound": datasets.Audio(sampling_rate=16000),
            "blob": datasets.Value("binary"),
            "label": datasets.ClassLabel(names=["no", "yes"]),
        }
    )
    rows = {
        "image": [{"bytes": encoded(picture(i)), "path": f"{i}.png"} for i in range(COUNT)],
        "mask": [{"grey": {"bytes": encoded(picture(i)), "path": None}} for i in range(COUNT)],
        "kept": [{"bytes": encoded(picture(i)), "path": None} for i in range(COUNT)],
        "sound": [{"bytes": sound(50 + i), "path": None} for i in range(COUNT)],
        "blob": [b"\x89PNG"] * COUNT,
        "label": [i % 2 for i in range(COUNT)],
    }
    return dataset_of(rows, features)


def dataset_of(rows: dict[str, Any], features: Any) -> Any:
    """Without encoding the values, for which sounds would need torchcodec."""
    import datasets
    import pyarrow as pa

    table = datasets.table.InMemoryTable(pa.Table.from_pydict(rows, schema=features.arrow_schema))
    return datasets.Dataset(table, info=datasets.DatasetInfo(features=features))


def write_as(made: Any, root: Path, kind: str) -> Path:
    root.mkdir()
    if kind == "parquet":
        made.to_parquet(str(root / "0.parquet"))
    elif kind == "stream":
        made.save_to_disk(str(root))
    else:
        import pyarrow.feather

        pyarrow.feather.write_feather(made.data.table, str(root / "0.feather"), compression="uncompressed")
    return root


@pytest.mark.parametrize("kind", ["parquet", "stream", "file"])
def test_columns_that_datasets_declares(tmp_path: Path, open_loader: Any, kind: str) -> None:
    made = features_of_datasets()
    found = quiet(open_loader, write_as(made, tmp_path / "d", kind))
    theirs = made.select_columns(["image", "mask"])
    assert len(found) == COUNT
    for i, sample in found.items():
        assert np.array_equal(sample["image"], np.asarray(theirs[i]["image"]))
        assert np.array_equal(sample["mask.grey"][..., 0], np.asarray(theirs[i]["mask"]["grey"]))
        assert np.allclose(sample["sound"][:, 0], np.arange(50 + i) * 30 / 32768)
        assert sample["kept"] == encoded(picture(i)), "declared as not to be decoded"
        assert sample["blob"] == b"\x89PNG"
        assert sample["label"] == i % 2


def test_a_sound_of_another_rate_than_declared_is_a_bad_sample(tmp_path: Path, open_loader: Any) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"sound": datasets.Audio(sampling_rate=16000)})
    rows = {"sound": [{"bytes": sound(50, 8000), "path": None}]}
    write_as(dataset_of(rows, features), tmp_path / "d", "parquet")
    with pytest.raises(hr.CorruptError, match="8000 Hz where 16000"):
        delivered(open_loader(tmp_path / "d", batch_size=1, decode="auto"))


def test_a_table_that_declares_nothing_stays_bytes(tmp_path: Path, open_loader: Any) -> None:
    pa = pytest.importorskip("pyarrow")

    rows = [{"bytes": encoded(picture(i)), "path": f"{i}.png"} for i in range(COUNT)]
    pa.parquet.write_table(pa.table({"image.png": [1] * COUNT, "picture": rows}), tmp_path / "0.parquet")
    with pytest.warns(RuntimeWarning, match="'picture' of .*`datasets` declares"):
        loader = open_loader(tmp_path, batch_size=2, decode="auto")
    assert delivered(loader)[3]["picture"] == rows[3]["bytes"]


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b"{}",
        b'{"info": null}',
        b'{"info": {"features": ["image"]}}',
        b"[" * 100_000,
    ],
)
def test_declarations_that_make_no_sense_are_none(tmp_path: Path, open_loader: Any, said: bytes) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"blob": [b"x"] * COUNT}).replace_schema_metadata({"huggingface": said})
    pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "0.parquet")
    with pytest.warns(RuntimeWarning, match="'blob' of "):
        assert delivered(open_loader(tmp_path, batch_size=2, decode="auto"))[0]["blob"] == b"x"


WRITE_RECORDS = """
import sys, tensorflow as tf
root, *files = sys.argv[1:]
for directory, names in (("sure", ("image/encoded", "image/format")), ("unsure", ("image/encoded",))):
    tf.io.gfile.makedirs(f"{root}/{directory}")
    with tf.io.TFRecordWriter(f"{root}/{directory}/0.tfrecord") as writer:
        for file in files:
            values = {"image/encoded": open(file, "rb").read(), "image/format": b"png"}
            of = {n: tf.train.Feature(bytes_list=tf.train.BytesList(value=[values[n]])) for n in names}
            example = tf.train.Example(features=tf.train.Features(feature=of))
            writer.write(example.SerializeToString())
"""


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    python, root = need_tensorflow(), tmp_path_factory.mktemp("records")
    files = [root / f"{i}.png" for i in range(COUNT)]
    for i, file in enumerate(files):
        file.write_bytes(encoded(picture(i)))
    subprocess.run([str(python), "-c", WRITE_RECORDS, str(root), *map(str, files)], check=True, timeout=250)
    return root


def test_images_of_tensorflows_models(records: Path, open_loader: Any) -> None:
    found = quiet(open_loader, records / "sure")
    for i in range(COUNT):
        assert np.array_equal(found[i]["image/encoded"], np.asarray(picture(i)))
        assert found[i]["image/format"] == b"png"


def test_a_record_without_the_format_beside_it_is_not_sure(records: Path, open_loader: Any) -> None:
    with pytest.warns(RuntimeWarning, match="'image/encoded' of "):
        open_loader(records / "unsure", batch_size=2, decode="auto")


def test_all_of_several_datasets_must_say_the_same(tmp_path: Path, open_loader: Any) -> None:
    both = [write_folders(tmp_path / "x", ["png"] * 4), write_folders(tmp_path / "y", ["jpg"] * 4)]
    found = quiet(open_loader, both)
    assert len(found) == 8
    assert all(sample["data"].shape == (24, 32, 3) for sample in found.values())
    (tmp_path / "y" / "a" / "0.bin").write_bytes(b"x")
    with pytest.warns(RuntimeWarning, match=r"x \(.*4 with \.png\).*y \(.*4 with \.jpg, 1 with \.bin\)"):
        open_loader(both, batch_size=2, decode="auto")


def test_numbers_alone_need_no_decoding(few_numbers: Path, open_loader: Any) -> None:
    assert quiet(open_loader, few_numbers)
    assert quiet(open_loader, few_numbers, columns=["x"])
