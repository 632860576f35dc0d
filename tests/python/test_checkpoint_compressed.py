"""Compressed checkpoints: they give what was saved, of which only what is needed is read, and any damage is
found."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_checkpoint_sharing_differential as differential
from conftest import where
from test_checkpoint_differential import Training
from test_checkpoint_sharing import SHAPES, Counting, Job, check, part, slices, whole
from test_sealed import write_key

import headrace as hr
from headrace import _native, sim
from headrace.checkpoint import Checkpointer, safetensors, sharing
from headrace.checkpoint.arrays import Chunk
from headrace.checkpoint.keys import step_key
from headrace.checkpoint.loading import Boxes
from headrace.checkpoint.manifest import Manifest, decode_index, encode_index, index_sum
from headrace.checkpoint.place import Place
from headrace.checkpoint.proving import find_damage
from headrace.checkpoint.row_major import Memory

BLOCK = _native.checkpoint_sum_block_bytes()
DTYPES = ["?", "i1", "u1", "i2", "u2", "f2", "i4", "u4", "f4", "c8", "i8", "u8", "f8"]
SIZES = [0, 1, 3, BLOCK // 8 - 1, BLOCK // 8, BLOCK // 2 + 5, 3 * BLOCK]
PAGE_BYTES = 40  # Of an encrypted file, once for each call.


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture(params=["plain", "encrypted"])
def options(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Of a Checkpointer that compresses."""
    options: dict[str, Any] = {"compression": "zstd", "memory": "64MiB"}
    if request.param == "encrypted":
        options["encryption_key"] = write_key(tmp_path / "one.key")
    return options


def weights(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(0, 0.02, shape).astype(np.float32)


def data_file(run: Path, step: int = 1) -> Path:
    (found,) = run.glob(f"saves/*-{step:012}-*/00000.safetensors")
    return found


def is_same(one: Any, two: Any) -> bool:
    return one.dtype == two.dtype and one.shape == two.shape and one.tobytes() == two.tobytes()


# --- What comes back ---


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_all_dtypes_and_sizes_come_back(run: Path, options: dict[str, Any], seed: int) -> None:
    rng = np.random.default_rng(seed)
    state = {}
    for dtype in DTYPES:
        for size in SIZES:
            kept = rng.choice([0, 1, 3, 255])  # Zeros, little, noise.
            raw = (rng.integers(0, 256, size * np.dtype(dtype).itemsize) & kept).astype(np.uint8)
            value = raw.view(dtype) if dtype != "?" else raw.astype(bool)
            state[f"{dtype} {size}"] = value if size % 3 else value.reshape(-1, 3)
    state["strided"] = np.arange(60_000.0).reshape(300, 200).T[::2]
    with Checkpointer(run, **options) as checkpointer:
        checkpointer.save(1, state).result()
    with Checkpointer(run, **options | {"compression": None}) as another:
        another.verify(1)
        assert find_damage(another._far, another.info(1)) == []
        found = another.load(1)
        into = {name: np.zeros_like(value) for name, value in state.items()}
        another.load(1, into=into)
    for name, value in state.items():
        assert is_same(found[name], value), name
        assert is_same(into[name], value), name


def test_torch_has_its_types_back(run: Path, options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    state = {
        "bf": torch.randn(70, 333).to(torch.bfloat16),
        "f8": torch.randn(9000).to(torch.float8_e4m3fn),
        "turned": torch.randn(333, 70).t(),
        "step": torch.tensor(7.0),
    }
    with Checkpointer(run, **options) as checkpointer:
        checkpointer.save(1, state).result()
        found = checkpointer.load(1)
    for name, value in state.items():
        assert found[name].dtype == value.dtype
        assert torch.equal(found[name].float(), value.float())


def test_it_is_smaller_and_says_how_much(run: Path, options: dict[str, Any], cli: Any) -> None:
    state = {"w": weights(1, 1000, 1000), "zeros": np.zeros(1_000_000, np.float32)}
    with Checkpointer(run, **options) as checkpointer:
        manifest = checkpointer.save(1, state).result()
    assert manifest.plain_size == 8_000_000
    assert manifest.size == data_file(run).stat().st_size
    assert 0.80 * 4e6 < manifest.size < 0.88 * 4e6
    if "encryption_key" in options:
        return
    said = cli("ckpt", "info", str(run), "--json").json()
    assert (said["compression"], said["array_bytes"], said["bytes"]) == ("zstd", 8_000_000, manifest.size)
    assert "stored    by zstd, 3." in cli("ckpt", "info", str(run)).out


def test_noise_is_as_large_as_it_was(run: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 2**63, 100_000)
    with Checkpointer(run, compression="zstd") as checkpointer:
        saved = checkpointer.save(1, {"noise": noise}).result()
        assert saved.size <= noise.nbytes + 4096
        assert np.array_equal(checkpointer.load()["noise"], noise)


def test_many_small_arrays_take_little_room(run: Path) -> None:
    state = {f"step {i}": np.float32(i) + np.zeros(1, np.float32) for i in range(5000)}
    with Checkpointer(run, compression="zstd", memory="48MiB") as checkpointer:
        saved = checkpointer.save(1, state).result()
        assert saved.size < 5000 * 4 + 4097
        assert checkpointer.load()["step 4999"][0] == 4999


def test_a_state_goes_through_a_ring_that_is_smaller(run: Path, options: dict[str, Any]) -> None:
    """Several parts of the file, and many more of the state."""
    state = {f"w{i}": weights(i, 4_000_000) for i in range(4)}
    small = options | {"memory": "16MiB", "part_bytes": 5 << 20, "copy_threads": 3}
    with Checkpointer(run, **small) as checkpointer:
        checkpointer.save(1, state).result()
        found = checkpointer.load(1)
    assert all(is_same(found[name], value) for name, value in state.items())


# --- With all else ---


def test_every_step_that_stays_is_whole(run: Path, options: dict[str, Any]) -> None:
    training = Training(5)
    with Checkpointer(run, differential=True, keep=3, **options) as checkpointer:
        for step in range(1, 9):
            checkpointer.save(step, training.step(step)).result()
        checkpointer._worker.submit(int).result()  # Until what need not stay is gone.
        assert checkpointer.steps() == [6, 7, 8]
        assert any(checkpointer.info(step).earlier for step in (6, 7, 8))
        told: list[tuple[int, int]] = []
        checkpointer.verify(8, lambda done, total: told.append((done, total)))
        assert told[-1][0] == told[-1][1]
    with Checkpointer(run, **options) as another_process:
        for step in another_process.steps():
            training.check(another_process, step)
            assert find_damage(another_process._far, another_process.info(step)) == []


def test_from_the_local_disk_it_is_brought_over(tmp_path: Path, options: dict[str, Any]) -> None:
    (tmp_path / "bucket").mkdir()
    training = Training(3)
    with sim.Server(str(tmp_path)) as server:
        near = {"local": tmp_path / "near", "differential": True}
        with Checkpointer("s3://bucket/run", **near, **options, **where(server)) as checkpointer:
            for step in (1, 2, 3):
                checkpointer.save(step, training.step(step)).result()
        with Checkpointer("s3://bucket/run", **options, **where(server)) as there:
            assert there.info(3).earlier
            for step in (1, 2, 3):
                training.check(there, step)


def test_uploads_have_parts_of_one_size(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    state = {"w": weights(1, 7_000_000), "zeros": np.zeros(4_000_000)}
    with sim.Server(str(tmp_path)) as server:
        small: dict[str, Any] = {"memory": "48MiB", "part_bytes": 5 << 20, **where(server)}
        with Checkpointer("s3://bucket/run", compression="zstd", **small) as checkpointer:
            saved = checkpointer.save(1, state).result()
            assert 4 * (5 << 20) < saved.size < 5 * (5 << 20)
            found = checkpointer.load()
    assert all(is_same(found[name], value) for name, value in state.items())


def test_it_may_begin_and_end_in_a_run(run: Path) -> None:
    training = Training(7)
    for step, compression in enumerate((None, "zstd", None), 1):
        with Checkpointer(run, compression=compression, differential=True) as checkpointer:  # type: ignore[arg-type]
            checkpointer.save(step, training.step(step)).result()
    with Checkpointer(run) as checkpointer:
        for step in (1, 2, 3):
            training.check(checkpointer, step)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_through_dcp(run: Path) -> None:
    torch = pytest.importorskip("torch")
    import torch.distributed.checkpoint as dcp

    from headrace.checkpoint.dcp import Reader, Writer

    state = {"w": torch.from_numpy(weights(1, 300, 700)), "n": 5}
    dcp.save(state, storage_writer=Writer(run, step=1, compression="zstd"), no_dist=True)
    assert data_file(run).stat().st_size < 0.9 * 4 * 210_000
    into = {"w": torch.zeros(300, 700), "n": 0}
    dcp.load(into, storage_reader=Reader(run), no_dist=True)
    assert torch.equal(into["w"], state["w"])
    with Checkpointer(run) as checkpointer:
        assert checkpointer.info(1).compression == "zstd"


def test_the_command_line_reads_copies_and_converts_it(run: Path, tmp_path: Path, cli: Any) -> None:
    state = {"model": {"w": weights(1, 300, 700)}, "step": 1}
    with Checkpointer(run, compression="zstd") as checkpointer:
        checkpointer.save(1, state).result()
        state["model"]["w"][5, 5] += 1  # type: ignore[index]
        checkpointer.save(2, state).result()
    cli("ckpt", "cat", str(run), "2", "model.w", "-o", str(tmp_path / "w.npy"))
    assert is_same(np.load(tmp_path / "w.npy"), state["model"]["w"])  # type: ignore[index]
    (row,) = json.loads(cli("ckpt", "diff", str(run), "1", "2", "--json").out)["arrays"]
    assert row["changed_bytes"] == BLOCK
    cli("ckpt", "cp", "--all", str(run), str(tmp_path / "copy"))
    assert cli("ckpt", "verify", "--all", str(tmp_path / "copy"), "--json").json()["checkpoints"][1]["ok"]
    with Checkpointer(tmp_path / "copy") as copy:
        assert copy.info(2).compression == "zstd"
        assert is_same(copy.load()["model"]["w"], state["model"]["w"])  # type: ignore[index]
    cli("ckpt", "convert", str(run), str(tmp_path / "st"), "--to", "safetensors", "--only", "model")
    assert is_same(safetensors.load(str(tmp_path / "st"))["w"].numpy(), state["model"]["w"])  # type: ignore[index]


# --- Who reads what ---


def read(place: Place, manifest: Manifest, boxes: list[Chunk]) -> list[np.ndarray[Any, Any]]:
    """Boxes of the first array, together."""
    wanted, out = Boxes(place, manifest), []
    for box in boxes:
        got = np.zeros(box.sizes, np.float32)
        wanted.add(0, box, Memory(got.ctypes.data, got.strides, got))
        out.append(got)
    wanted.read()
    return out


def test_parts_read_only_their_blocks(run: Path) -> None:
    saved = weights(1, 1000, 1024)  # Four rows a block.
    with Checkpointer(run, compression="zstd") as checkpointer:
        manifest = checkpointer.save(1, {"w": saved}).result()
    place = Counting(hr.Store(str(run)))
    piece = place.index(manifest, 0).piece(0, 0)
    lengths = np.frombuffer(piece.stored, "<u2")
    assert piece.stored_length == lengths.sum() < 0.88 * saved.nbytes
    rng = np.random.default_rng(2)
    for _ in range(20):
        first = int(rng.integers(0, 999))
        box = Chunk((first, 0), (int(rng.integers(1, 1001 - first)), 1024))
        before = place.read_bytes.total()
        (got,) = read(place, manifest, [box])
        assert np.array_equal(got, saved[slices(box)])
        needed = lengths[first // 4 : (first + box.sizes[0] - 1) // 4 + 1].sum()
        assert place.read_bytes.total() - before == needed
    columns = [part(saved.shape, 1, rank, 3) for rank in range(3)]
    for got, box in zip(read(place, manifest, columns), columns, strict=True):
        assert np.array_equal(got, saved[slices(box)])
    place.close()


@pytest.fixture
def ranks(
    tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Job, list[np.ndarray[Any, Any]]]]:
    monkeypatch.setattr(sharing, "_STRIPE_BLOCKS", 4)
    monkeypatch.setattr(sharing, "_WINDOW_STRIPES", 3)
    arrays = differential.saved_by(tmp_path / "run", **options)
    key = _native.SealKey(options["encryption_key"]) if "encryption_key" in options else None
    job = Job(tmp_path / "run", 3, differential.LAST, key)
    assert len(job.manifest.saves) == differential.LAST
    yield job, arrays
    job.close()


@pytest.mark.parametrize("dim", [None, 0, 1])
def test_ranks_read_each_stored_byte_once(ranks: Any, dim: int | None) -> None:
    """Of files of several saves, whatever part each wants."""
    job, arrays = ranks
    wanted = [
        [
            (n, whole(shape) if dim is None else part(shape, min(dim, len(shape) - 1), rank, 3))
            for n, shape in enumerate(SHAPES)
        ]
        for rank in range(3)
    ]
    check(job.load(wanted), wanted, arrays)
    stored = sum(
        piece.stored_length
        for rank in range(len(job.manifest.files))
        for piece in job.places[0].index(job.manifest, rank).pieces()
    )
    assert stored < 0.95 * sum(array.nbytes for array in arrays)
    pages = PAGE_BYTES * sum(place.calls for place in job.places) if job.places[0].key else 0
    assert sum(job.bytes_read) == stored + pages


# --- Damage ---


def test_any_byte_of_a_file_that_is_wrong_is_found_and_named(run: Path, options: dict[str, Any]) -> None:
    state, harmless = {"a": weights(1, 9000), "b": np.arange(9000)}, 0
    with Checkpointer(run, **options) as checkpointer:
        saved = checkpointer.save(1, state).result()
        file, path = saved.files[0], data_file(run)
        good = path.read_bytes()
        pieces = list(checkpointer._far.index(saved, 0).pieces())
        rng = np.random.default_rng(0)
        for piece, name in zip(pieces, "ab", strict=True):
            for at in rng.integers(piece.offset, piece.offset + piece.stored_length, 20).tolist():
                data = bytearray(good)
                data[at] ^= 1 << int(rng.integers(8))
                path.write_bytes(data)
                said = ""
                try:
                    assert all(map(is_same, checkpointer.load(1).values(), state.values()))
                except hr.CorruptError as error:
                    said = str(error)
                # Some bits of a frame mean nothing; a tag proves these, too.
                assert re.match(rf"{name}, of rank 0: .*{file.key}: bytes |$", said)
                harmless += not said
                with pytest.raises(hr.CorruptError):
                    checkpointer.verify(1)
                (found,) = find_damage(checkpointer._far, saved)
                assert (found.key, found.array) == (file.key, name)
                assert found.begin <= at < found.end
        path.write_bytes(good)
        checkpointer.verify(1)
    assert harmless < (1 if "encryption_key" in options else 10)


def test_a_file_that_is_cut_or_of_another_is_found(run: Path, options: dict[str, Any]) -> None:
    with Checkpointer(run, **options) as checkpointer:
        first = checkpointer.save(1, {"a": weights(1, 9000)}).result()
        checkpointer.save(2, {"a": weights(2, 9000)}).result()
        good = data_file(run).read_bytes()
        for size in (0, 39, 4096, 5000, len(good) - 1):
            data_file(run).write_bytes(good[:size])
            with pytest.raises(hr.HeadraceError):
                checkpointer.load(1)
            assert find_damage(checkpointer._far, first) != []
        shutil.copyfile(data_file(run, 2), data_file(run))
        with pytest.raises(hr.CorruptError):
            checkpointer.load(1)
        assert find_damage(checkpointer._far, first)[0].array in ("", "a")


def test_loading_falls_back(run: Path) -> None:
    with Checkpointer(run, compression="zstd") as checkpointer:
        for step in (1, 2):
            checkpointer.save(step, {"a": weights(step, 9000)}).result()
        data = bytearray(data_file(run, 2).read_bytes())
        data[-1] ^= 1
        data_file(run, 2).write_bytes(data)
        with pytest.warns(RuntimeWarning, match="a, of rank 0"):
            assert is_same(checkpointer.load()["a"], weights(1, 9000))


def rewritten(run: Path, manifest: Manifest, change: Callable[[bytearray], None]) -> None:
    """Its index with other lengths of stored blocks, and sums that fit: only what they say is wrong."""
    path = run / manifest.files[0].index_key
    index = decode_index(path.read_bytes(), "")
    numbers = [(row["array"], row["chunk"]) for row in index.rows]
    pieces = []
    for piece in index.pieces():
        stored = bytearray(piece.stored)
        change(stored)
        pieces.append(piece._replace(stored=bytes(stored)))
    data = encode_index(numbers, pieces)
    path.write_bytes(data)
    file = manifest.files[0]._replace(index_crc32c=index_sum(data))
    (run / step_key(manifest.step)).write_bytes(manifest._replace(files=[file]).encode())


def _longest(stored: bytearray) -> None:
    stored[0:2] = (65535).to_bytes(2, "little")


def _empty(stored: bytearray) -> None:
    stored[0:2] = bytes(2)


def _turned(stored: bytearray) -> None:
    stored[0:2], stored[2:4] = stored[2:4], stored[0:2]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_longest, "a length that none can have"),
        (_empty, "a length that none can have"),
        (_turned, "no compressed block|CRC32C"),
    ],
)
def test_lengths_that_cannot_be_are_refused(run: Path, change: Callable[[bytearray], None], why: str) -> None:
    blocks = weights(1, 9000)
    blocks[: BLOCK // 4] = 0  # The first is much shorter than the second.
    with Checkpointer(run, compression="zstd") as checkpointer:
        manifest = checkpointer.save(1, {"a": blocks}).result()
        rewritten(run, manifest, lambda stored: None)
        checkpointer.load(1)
        rewritten(run, manifest, change)
        with pytest.raises(hr.HeadraceError, match=why):
            checkpointer.load(1)


def test_an_index_that_is_cut_is_refused(run: Path) -> None:
    with Checkpointer(run, compression="zstd") as checkpointer:
        manifest = checkpointer.save(1, {"a": weights(1, 9000)}).result()
    data = (run / manifest.files[0].index_key).read_bytes()
    assert data[:8] == b"HRCKPIX3"
    for size in range(len(data)):
        with pytest.raises(hr.CorruptError):
            decode_index(data[:size], "index")
    for at in range(len(data)):
        other = bytearray(data)
        other[at] ^= 1
        with pytest.raises(hr.CorruptError):
            decode_index(bytes(other), "index")


# --- Who does not know it ---


def body_of(manifest: Manifest) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(manifest.encode().split(b"\n")[0])
    return body


def encoded(body: dict[str, Any]) -> bytes:
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
    return text + b"\ncrc32c:%08x\n" % _native.crc32c(text)


def test_who_knows_version_1_alone_refuses_it_and_what_is_not_compressed_is_as_before(run: Path) -> None:
    with Checkpointer(run, compression="zstd") as checkpointer:
        compressed = checkpointer.save(1, {"a": weights(1, 10)}).result()
    with Checkpointer(run) as checkpointer:
        plain = checkpointer.save(2, {"a": weights(1, 10)}).result()
    assert (body_of(compressed)["version"], body_of(compressed)["compression"]) == (2, "zstd")
    assert body_of(plain)["version"] == 1
    assert "compression" not in body_of(plain)
    assert Manifest.decode(compressed.encode(), "") == compressed
    for other in ({"version": 3}, {"compression": "lz4"}):
        with pytest.raises(hr.UnsupportedError, match=r"^steps/1: is "):
            Manifest.decode(encoded(body_of(compressed) | other), "steps/1")


def test_readers_of_safetensors_are_told_what_it_is(run: Path, options: dict[str, Any]) -> None:
    with Checkpointer(run, **options) as checkpointer:
        checkpointer.save(1, {"a": weights(1, 9000)}).result()
    option = "encryption_key=" if "encryption_key" in options else "compression='zstd'"
    with pytest.raises(
        hr.UnsupportedError, match=f"is no safetensors file, but one of a checkpoint .* {option}"
    ):
        safetensors.load(str(data_file(run)))
    package = pytest.importorskip("safetensors")
    with pytest.raises(package.SafetensorError), package.safe_open(data_file(run), "np"):
        pass


def test_other_compressions_are_refused(run: Path) -> None:
    with pytest.raises(hr.InvalidArgumentError, match="compression='lz4': expected 'zstd' or None"):
        Checkpointer(run, compression="lz4")  # type: ignore[arg-type]
