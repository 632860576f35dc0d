"""decode=: images, arrays, sounds and text as batches have them, against Pillow and numpy."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

import headrace as hr

Pixels = npt.NDArray[np.uint8]


def photograph(seed: int, height: int = 60, width: int = 80) -> Image.Image:
    """Something smooth with edges, as photographs are."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [128 + 100 * np.sin((x * (1 + seed % 3) + y * c) / (9.0 + c + seed % 7)) for c in range(3)]
    pixels = np.stack(planes, axis=-1).clip(0, 255).astype(np.uint8)
    pixels[height // 3 : height // 2, width // 4 : width // 2] = (seed * 37 % 256, 200, 30)
    return Image.fromarray(pixels)


def encoded(image: Image.Image, format: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


def write_files(root: Path, count: int, format: str = "JPEG", **options: Any) -> list[bytes]:
    root.mkdir(parents=True, exist_ok=True)
    files = [encoded(photograph(i), format, **options) for i in range(count)]
    for i, data in enumerate(files):
        (root / f"{i:04}.{format.lower()}").write_bytes(data)
    return files


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "files"
    path.mkdir()
    return path


def opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data)).convert("RGB")


def difference(ours: npt.NDArray[Any], theirs: npt.NDArray[Any]) -> int:
    return int(np.abs(ours.astype(np.int64) - theirs.astype(np.int64)).max())


def by_id(loader: hr.Loader, column: str) -> dict[int, Any]:
    """One epoch's values by dataset position, repeats left out."""
    found: dict[int, Any] = {}
    for batch in loader:
        for row in np.flatnonzero(batch.mask):
            found[int(batch.ids[row])] = np.array(batch[column][row])
    return found


# How far our pixels may be from Pillow's, whose wheels bring another libjpeg-turbo: of chroma that it
# upsamples in another order, 1; resizing adds 1.
@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "GIF", "TIFF"])
def test_a_fixed_size_is_one_array(root: Path, open_loader: Any, format: str) -> None:
    options = {"lossless": True} if format == "WEBP" else {}
    files = write_files(root, 10, format, **options)
    decode = {"data": hr.decode.image(resize=(32, 48), exact=True)}
    loader = open_loader(root, batch_size=4, decode=decode)
    found = by_id(loader, "data")
    assert sorted(found) == list(range(10))
    for i, data in enumerate(files):
        expected = np.asarray(opened(data).resize((48, 32), Image.Resampling.BILINEAR))
        assert found[i].shape == (32, 48, 3)
        assert difference(found[i], expected) <= 2
    assert next(iter(loader))["data"].flags.owndata is False, "it views the engine's memory"


def test_of_an_animated_webp_the_first_frame(root: Path, open_loader: Any) -> None:
    frames = [photograph(seed) for seed in range(3)]
    for name, options in (("a", {"lossless": True}), ("b", {"quality": 90})):
        data = encoded(frames[0], "WEBP", save_all=True, append_images=frames[1:], duration=40, **options)
        (root / f"{name}.webp").write_bytes(data)
    for value, path in zip(
        next(iter(open_loader(root, batch_size=2, shuffle=False, decode={"data": hr.decode.image()})))[
            "data"
        ],
        sorted(root.iterdir()),
        strict=True,
    ):
        assert np.array_equal(value, np.asarray(Image.open(path).convert("RGB")))


@pytest.mark.parametrize("flip", ["flip", "vertical_flip"])
def test_a_bool_of_numpy_flips_like_pythons(root: Path, open_loader: Any, flip: str) -> None:
    write_files(root, 10)
    for value in (True, False):
        ours, numpys = (
            by_id(
                open_loader(root, decode={"data": hr.decode.image(resize=8, crop=8, **{flip: given})}), "data"
            )
            for given in (value, np.bool_(value))
        )
        assert all(np.array_equal(ours[i], numpys[i]) for i in range(10))


def test_without_a_size_images_keep_theirs(root: Path, open_loader: Any) -> None:
    for i in range(6):
        image = photograph(i, height=40 + i, width=30 + 2 * i)
        (root / f"{i}.png").write_bytes(encoded(image, "PNG"))
    for batch in open_loader(root, batch_size=3, decode={"data": hr.decode.image()}):
        for i, value in zip(batch.ids, batch["data"], strict=True):
            assert np.array_equal(value, np.asarray(photograph(i, 40 + i, 30 + 2 * i)))


@pytest.mark.parametrize(
    ("arguments", "dtype", "shape"),
    [
        ({"resize": 40, "crop": 32}, "uint8", (32, 32, 3)),
        ({"resize": (32, 32), "layout": "CHW"}, "uint8", (3, 32, 32)),
        ({"resize": (32, 32), "mode": "L"}, "uint8", (32, 32, 1)),
        ({"resize": (32, 32), "mode": "RGBA"}, "uint8", (32, 32, 4)),
        ({"resize": (32, 32), "dtype": "float32"}, "float32", (32, 32, 3)),
        (
            {"resize": (32, 32), "dtype": "float16", "mean": 0.5, "std": (0.2, 0.2, 0.2)},
            "float16",
            (32, 32, 3),
        ),
        ({"random_resized_crop": 24, "flip": True}, "uint8", (24, 24, 3)),
        ({"resize": (40, 40), "random_crop": (20, 30), "pad": 2}, "uint8", (20, 30, 3)),
        ({"resize": (32, 32), "augment": "randaugment", "jitter": 0.4}, "uint8", (32, 32, 3)),
    ],
)
def test_arguments_say_what_comes(
    root: Path, open_loader: Any, arguments: dict[str, Any], dtype: str, shape: tuple[int, ...]
) -> None:
    write_files(root, 5)
    loader = open_loader(root, batch_size=5, decode={"data": hr.decode.image(**arguments)})
    value = next(iter(loader))["data"]
    assert (value.dtype, value.shape) == (np.dtype(dtype), (5, *shape))
    if dtype != "uint8":
        assert abs(float(value.astype(np.float32).mean())) < 3


def test_normalising_is_what_it_says(root: Path, open_loader: Any) -> None:
    write_files(root, 4)
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    plain = by_id(open_loader(root, batch_size=4, decode={"data": hr.decode.image(resize=(20, 20))}), "data")
    decode = hr.decode.image(resize=(20, 20), dtype="float32", mean=mean, std=std)
    for i, value in by_id(open_loader(root, batch_size=4, decode={"data": decode}), "data").items():
        expected = (plain[i] / 255 - np.array(mean)) / np.array(std)
        assert np.allclose(value, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("numpys", "ours"),
    [
        (
            {"mean": np.array([0.5, 0.25, 0.5]), "std": np.float32(0.5)},
            {"mean": (0.5, 0.25, 0.5), "std": 0.5},
        ),
        ({"mode": "L", "mean": np.array([0.5]), "std": [0.25]}, {"mode": "L", "mean": 0.5, "std": 0.25}),
        ({"resize": np.array([12, 14]), "jitter": np.float32(0.5)}, {"resize": (12, 14), "jitter": 0.5}),
        ({"pad": np.array([1, 2, 3, 4]), "crop": np.int64(20)}, {"pad": (1, 2, 3, 4), "crop": 20}),
    ],
)
def test_arrays_and_numbers_of_numpy_are_arguments_like_others(
    root: Path, open_loader: Any, numpys: dict[str, Any], ours: dict[str, Any]
) -> None:
    write_files(root, 4)
    by_numpy, by_python = (
        by_id(
            open_loader(
                root, decode={"data": hr.decode.image(**{"resize": 20, "dtype": "float32", **given})}
            ),
            "data",
        )
        for given in (numpys, ours)
    )
    assert all(np.array_equal(by_numpy[i], by_python[i]) for i in range(4))


RANDOM = {"random_resized_crop": 16, "flip": True, "jitter": (0.4, 0.4, 0.4, 0.1), "augment": "randaugment"}


def test_what_is_random_depends_on_the_sample_alone(root: Path, open_loader: Any) -> None:
    write_files(root, 37)
    decode = {"data": hr.decode.image(**RANDOM)}

    def run(world: int, seed: int = 5, epochs: int = 1, **options: Any) -> dict[int, Pixels]:
        found: dict[int, Pixels] = {}
        for rank in range(world):
            loader = open_loader(
                root, batch_size=12 // world, rank=rank, world_size=world, seed=seed, decode=decode, **options
            )
            for _ in range(epochs - 1):
                for _batch in loader:
                    pass
            found |= by_id(loader, "data")
        return found

    one = run(1)
    assert len(one) == 37
    for other in (run(2), run(4, workers=3), run(1, workers=1, memory="64MiB"), run(1, order="sequential")):
        assert all(np.array_equal(one[i], other[i]) for i in one)
    for differs in (run(1, seed=6), run(1, epochs=2)):
        assert sum(np.array_equal(one[i], differs[i]) for i in one) < 5


def test_a_run_goes_on_with_the_same_pixels(root: Path, open_loader: Any) -> None:
    write_files(root, 40)
    options = {"batch_size": 4, "seed": 3, "decode": {"data": hr.decode.image(**RANDOM)}}
    whole = [(b.ids.copy(), b["data"].copy()) for b in open_loader(root, **options)]
    first = open_loader(root, **options)
    batches = iter(first)
    for _ in range(3):
        next(batches)
    second = open_loader(root, **options)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    rest = [(b.ids.copy(), b["data"].copy()) for b in second]
    assert len(rest) == len(whole) - 3
    for (ids, pixels), (other_ids, other_pixels) in zip(whole[3:], rest, strict=True):
        assert np.array_equal(ids, other_ids)
        assert np.array_equal(pixels, other_pixels)


def break_one(root: Path, position: int) -> None:
    path = sorted(root.iterdir())[position]
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def test_a_broken_image_is_named(root: Path, open_loader: Any) -> None:
    write_files(root, 12)
    break_one(root, 7)
    loader = open_loader(root, batch_size=4, shuffle=False, decode={"data": hr.decode.image(resize=(8, 8))})
    batches = iter(loader)
    assert next(batches).ids.tolist() == [0, 1, 2, 3]
    with pytest.raises(hr.CorruptError, match=r"sample 7 of .*\(0007\.jpeg\), column 'data'"):
        next(batches)
    grey = open_loader(root, batch_size=4, decode={"data": hr.decode.image(resize=(8, 8), truncated="grey")})
    assert len(by_id(grey, "data")) == 12


def test_a_broken_image_is_replaced(root: Path, open_loader: Any) -> None:
    write_files(root, 30)
    for position in (7, 8, 20):
        break_one(root, position)
    (root / "0011.jpeg").write_bytes(b"no image at all")
    bad = {7, 8, 11, 20}
    decode = {"data": hr.decode.image(resize=(8, 8))}
    loader = open_loader(root, batch_size=4, decode=decode, on_bad_sample="replace")
    planned = list(loader.sample_ids())
    with pytest.warns(RuntimeWarning, match="Bad samples are replaced"):
        batches = [(b.ids.copy(), b.replaced, b["data"].copy()) for b in loader]
    assert {b.position for b in loader.bad_samples} == bad
    assert {p for _, replaced, _ in batches for p in replaced.values()} == bad
    good = by_id(open_loader(root, batch_size=4, decode=decode, quarantine=sorted(bad)), "data")
    for ids, (delivered, replaced, pixels) in zip(planned, batches, strict=True):
        for row, (plan, sample) in enumerate(zip(ids, delivered, strict=True)):
            assert plan == replaced.get(row, sample)
            assert sample not in bad
            assert np.array_equal(pixels[row], good[sample])


def write_tar(path: Path, samples: list[dict[str, bytes]]) -> None:
    with tarfile.open(path, "w") as tar:
        for i, sample in enumerate(samples):
            for member, data in sample.items():
                info = tarfile.TarInfo(f"{i:05}.{member}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))


def npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def npz(**arrays: Any) -> bytes:
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)
    return out.getvalue()


def sound(frames: int, channels: int, rate: int = 16000) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((np.arange(frames * channels) % 1000 * 30).astype("<i2").tobytes())
    return out.getvalue()


@pytest.fixture
def members(root: Path) -> Path:
    samples = [
        {
            "jpg": encoded(photograph(i), "JPEG"),
            "json": json.dumps({"id": i}).encode(),
            "txt": f"text {i}".encode(),
            "npy": npy(np.full((2, 3), i, np.float32)),
            "raw": np.arange(4, dtype="<i2").tobytes(),
            "npz": npz(x=np.full(3, i), y=np.eye(2, dtype=np.float32)),
            "wav": sound(100 + i, 2),
            "bin": bytes([i] * (i + 1)),
        }
        for i in range(9)
    ]
    write_tar(root / "0.tar", samples)
    return root


def test_auto_does_the_obvious(members: Path, open_loader: Any) -> None:
    for batch in open_loader(members, batch_size=3, decode="auto"):
        for row, i in enumerate(batch.ids):
            assert np.array_equal(np.array(batch["jpg"][row]).shape, (60, 80, 3))
            assert batch["json"][row] == {"id": i}
            assert batch["txt"][row] == f"text {i}"
            assert np.array_equal(batch["npy"][row], np.full((2, 3), i, np.float32))
            assert batch["npz"][row]["x"].tolist() == [i] * 3
            assert np.array_equal(batch["npz"][row]["y"], np.eye(2))
            assert batch["wav"][row].shape == (100 + i, 2)
            assert batch["bin"][row] == bytes([i] * (i + 1)), "nothing is guessed from values"


def test_arrays_of_one_type_are_one_array(members: Path, open_loader: Any) -> None:
    decode = {"npy": hr.decode.npy("float32", (2, 3)), "raw": hr.decode.ndarray("int16", 4)}
    for batch in open_loader(members, batch_size=3, decode=decode, columns=["npy", "raw"]):
        assert batch["npy"].shape == (3, 2, 3)
        assert np.array_equal(batch["npy"][:, 0, 0], batch.ids)
        assert np.array_equal(batch["raw"], [[0, 1, 2, 3]] * 3)


@pytest.mark.parametrize(
    ("make", "column", "message"),
    [
        (lambda: hr.decode.npy("float32", (3, 2)), "npy", r"another shape than float32\(3, 2\)"),
        (lambda: hr.decode.npy("float64", (2, 3)), "npy", "another dtype"),
        (lambda: hr.decode.ndarray("int16", 5), "raw", "8 bytes where every value has 10"),
        (lambda: hr.decode.image(resize=(8, 8)), "txt", "no JPEG"),
        (lambda: hr.decode.audio(frames=10), "wav", "2 channels where 1 are expected"),
        (lambda: hr.decode.audio(sample_rate=8000), "wav", "16000"),
        (lambda: hr.decode.audio(), "txt", "no sound"),
    ],
)
def test_values_of_another_kind_are_bad_samples(
    members: Path, open_loader: Any, make: Any, column: str, message: str
) -> None:
    loader = open_loader(members, batch_size=3, decode={column: make()})
    with pytest.raises(hr.CorruptError, match=message):
        next(iter(loader))


@pytest.mark.parametrize("make", [hr.decode.text, hr.decode.json])
def test_text_that_is_no_utf8_is_a_bad_sample(root: Path, open_loader: Any, make: Any) -> None:
    for i in range(12):
        (root / f"{i:02}.json").write_bytes(b'"\xff\xfe"' if i == 7 else b'"text %d"' % i)
    loader = open_loader(root, batch_size=4, shuffle=False, decode={"data": make()})
    with pytest.raises(hr.CorruptError, match=r"sample 7 of .*, column 'data': text that is not UTF-8"):
        list(loader)
    loader = open_loader(root, batch_size=4, decode={"data": make()}, on_bad_sample="replace")
    with pytest.warns(RuntimeWarning, match="Bad samples are replaced"):
        found = [(b.ids.tolist(), b.replaced, list(b["data"])) for b in loader]
    assert [p for _, replaced, _ in found for p in replaced.values()] == [7]
    quote = '"' if make is hr.decode.text else ""
    assert all(
        t == f"{quote}text {i}{quote}" for ids, _, texts in found for i, t in zip(ids, texts, strict=True)
    )


@pytest.mark.parametrize(
    ("make", "member"), [(hr.decode.json, "txt"), (hr.decode.npz, "bin"), (hr.decode.npy, "bin")]
)
def test_what_python_alone_decodes_is_never_replaced(
    members: Path, open_loader: Any, make: Any, member: str
) -> None:
    loader = open_loader(members, batch_size=3, decode={member: make()}, on_bad_sample="replace")
    with pytest.raises(hr.CorruptError, match=member):
        list(loader)


def test_kinds_that_are_not_decoded_are_bad_samples(root: Path, open_loader: Any) -> None:
    files = write_files(root, 12)
    lossless = bytearray(files[7])
    lossless[lossless.index(b"\xff\xc0") + 1] = 0xC3
    (root / "0007.jpeg").write_bytes(lossless)
    decode = {"data": hr.decode.image(resize=8)}
    with pytest.raises(hr.UnsupportedError, match=r"sample 7 of .*0007.jpeg"):
        list(open_loader(root, batch_size=4, decode=decode))
    loader = open_loader(root, batch_size=4, decode=decode, on_bad_sample="replace")
    with pytest.warns(RuntimeWarning, match="Bad samples are replaced"):
        assert sorted(by_id(loader, "data")) == [i for i in range(12) if i != 7]
    assert [bad.position for bad in loader.bad_samples] == [7]


def test_a_raw_array_of_another_length_is_named(root: Path, open_loader: Any) -> None:
    for i in range(12):
        (root / f"{i:02}.bin").write_bytes(bytes(2 if i == 5 else 12))
    decode = {"data": hr.decode.ndarray("float32", 3)}
    with pytest.raises(hr.CorruptError, match=r"sample 5 of .*\(05.bin\): column 'data': a value of 2 bytes"):
        list(open_loader(root, batch_size=4, decode=decode))
    loader = open_loader(root, batch_size=4, decode=decode, on_bad_sample="replace")
    with pytest.warns(RuntimeWarning, match=r"05.bin"):
        list(loader)
    assert "05.bin" in loader.bad_samples[0].message


def test_npy_files_of_other_writers(root: Path, open_loader: Any) -> None:
    """cnpy gives a byte an order; blanks are the writer's choice; numpy writes version 3 for some names."""
    pixels = np.arange(6, dtype=np.uint8).reshape(2, 3)
    data = io.BytesIO()
    np.save(data, pixels)
    for i, (old, new) in enumerate([(b"|u1", b"<u1"), (b"(2, 3)", b"(2,3) "), (b"'|u1'", b'"|u1"')]):
        assert old in data.getvalue()
        (root / f"{i}.bin").write_bytes(data.getvalue().replace(old, new))
    for decode in (hr.decode.npy("uint8", (2, 3)), hr.decode.npy()):
        batch = next(iter(open_loader(root, batch_size=3, format="raw", decode={"data": decode})))
        assert all(np.array_equal(value, pixels) for value in batch["data"])
    named = np.array([(1,), (2,)], [("\u540d", "<i4")])
    for i in range(3):
        with open(root / f"{i}.bin", "wb") as file:
            np.lib.format.write_array(file, named, version=(3, 0))
    batch = next(iter(open_loader(root, batch_size=3, format="raw", decode={"data": hr.decode.npy()})))
    assert all(np.array_equal(value, named) and value.dtype == named.dtype for value in batch["data"])


def test_json_that_is_nested_too_deep_is_named(root: Path, open_loader: Any) -> None:
    for i in range(3):
        (root / f"{i}.json").write_bytes(b"[" * (100_000 if i == 1 else 0) + b"1")
    with pytest.raises(hr.CorruptError, match=r"sample 1, column data: not a valid json: .*recursion"):
        list(open_loader(root, batch_size=3, shuffle=False, decode={"data": hr.decode.json()}))


def test_sounds(members: Path, open_loader: Any) -> None:
    for batch in open_loader(members, batch_size=3, decode={"wav": hr.decode.audio()}):
        for i, value in zip(batch.ids, batch["wav"], strict=True):
            expected = np.arange((100 + i) * 2) % 1000 * 30 / 32768
            assert value.dtype == np.float32
            assert np.array_equal(value, expected.astype(np.float32).reshape(-1, 2))
    fixed = hr.decode.audio(frames=104, mono=True)
    for batch in open_loader(members, batch_size=3, decode={"wav": fixed}):
        assert batch["wav"].shape == (3, 104, 1)
        for i, value in zip(batch.ids, batch["wav"], strict=True):
            pairs = (np.arange((100 + i) * 2) % 1000 * 30 / 32768).reshape(-1, 2)
            assert np.allclose(value[: 100 + i, 0], pairs.mean(axis=1)[:104], atol=1e-6)
            assert not value[100 + i :].any()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: hr.decode.image(resize=0), "sides|resize"),
        (lambda: hr.decode.image(resize=(8, 8), random_resized_crop=8), "excludes"),
        (lambda: hr.decode.image(crop=8, random_crop=8), "exclude each other"),
        (lambda: hr.decode.image(flip=2.0), "probabilities"),
        (lambda: hr.decode.image(mean=0.5), "floating point"),
        (lambda: hr.decode.image(layout="CWH"), "there are HWC, CHW"),
        (lambda: hr.decode.image(dtype="int8"), "there are uint8, float16, bfloat16, float32"),
        (lambda: hr.decode.image(augment="autoaugment"), "randaugment"),
        (lambda: hr.decode.image(truncated="skip"), "there are error, grey"),
        (lambda: hr.decode.image(resize=224.0), "resize=224.0: expected a whole number"),
        (lambda: hr.decode.image(resize=(224.7, 224.2)), "expected a whole number"),
        (lambda: hr.decode.image(pad=(1, 2.5, 3, 4)), "pad=.*expected a whole number"),
        (lambda: hr.decode.image(dtype="float32", mean=(0.1, 0.2)), "3 channels"),
        (lambda: hr.decode.image(dtype="float32", mean=(0.1, 0.2, 0.3), mode="L"), "one channel"),
        (lambda: hr.decode.image(dtype="float32", mean=[0.1] * 4, mode="RGBA"), "3 channels"),
        (lambda: hr.decode.ndarray("object", 3), "not one of numbers"),
        (lambda: hr.decode.ndarray(">f4", 3), "'?>f4'? is big-endian"),
        (lambda: hr.decode.npy(">i2", 3), "is big-endian"),
        (lambda: hr.decode.npy("float32"), "both, or neither"),
        (lambda: hr.decode.ndarray("f4", (2.7, 3)), r"shape=\(2.7, 3\): expected a whole number"),
        (lambda: hr.decode.ndarray("f4", "23"), "shape='23': expected a whole number"),
        (lambda: hr.decode.npy("f4", (3, -1)), "a side below 1"),
        (lambda: hr.decode.feature("int64", -1), "a side below 1"),
        (lambda: hr.decode.feature("int64", "12"), "shape='12': expected a whole number"),
        (lambda: hr.decode.image(augment=(2, 9, 1)), r"expected \(operations, magnitude\)"),
        (lambda: hr.decode.audio(frames=0), "frames=0: expected a whole number from 1"),
        (lambda: hr.decode.audio(frames=2.5), "frames=2.5: expected a whole number"),
        (lambda: hr.decode.audio(channels=0), "channels=0: expected a whole number from 1"),
        (lambda: hr.decode.audio(sample_rate=-1), "sample_rate=-1: expected a whole number"),
    ],
)
def test_mistakes_show_where_they_are_written(make: Any, message: str) -> None:
    with pytest.raises(hr.InvalidArgumentError, match=message):
        make()


def test_columns_that_cannot_be_decoded_are_refused(numbers: Path) -> None:
    with pytest.raises(hr.InvalidArgumentError, match="there are"):
        hr.Loader(numbers, batch_size=1, decode={"nothing": hr.decode.image()})
    with hr.Dataset(numbers) as dataset:
        column = next(iter(dataset.schema))
    with pytest.raises(hr.InvalidArgumentError, match=column):
        hr.Loader(numbers, batch_size=1, decode={column: hr.decode.image()})
    for wrong in ("everything", hr.decode.image(), {column: "jpeg"}):
        with pytest.raises(hr.InvalidArgumentError, match=r"(hr|headrace)\.decode"):
            hr.Loader(numbers, batch_size=1, decode=wrong)


def test_a_decoding_says_its_call_and_travels() -> None:
    decoding = hr.decode.image(resize=(224, 224), flip=True)
    assert repr(decoding) == "headrace.decode.image(resize=(224, 224), flip=True)"
    assert pickle.loads(pickle.dumps(decoding)) == decoding
    assert repr(hr.decode.npy("float32", (2, 3))) == "headrace.decode.npy(dtype='float32', shape=(2, 3))"


def test_batches_stay_within_the_memory_limit(root: Path, open_loader: Any) -> None:
    write_files(root, 64)
    loader = open_loader(
        root, batch_size=16, memory="24MiB", prefetch=64, decode={"data": hr.decode.image(resize=(256, 256))}
    )
    held: Iterator[Any] = iter(loader)
    first = next(held)
    for _ in held:
        assert loader.stats()["pool.peak_bytes"] <= 24 << 20
    assert first["data"].shape == (16, 256, 256, 3)


def test_sizes_may_be_numbers_of_numpy() -> None:
    ours = hr.decode.image(resize=np.int64(5), crop=np.uint8(4), pad=np.int32(1))  # type: ignore[arg-type]
    assert ours == hr.decode.image(resize=5, crop=4, pad=1)
    assert pickle.loads(pickle.dumps(ours)) == ours
    assert hr.decode.image(random_resized_crop=np.int64(5)) == hr.decode.image(random_resized_crop=5)  # type: ignore[arg-type]
