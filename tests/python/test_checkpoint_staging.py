"""What lies in no one piece, or not in this machine's memory, is saved without a copy of all of it."""

from __future__ import annotations

import math
import random
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import _native
from headrace.checkpoint import Checkpointer, comparing, staging
from headrace.checkpoint.arrays import describe
from headrace.checkpoint.comparing import find_unchanged
from headrace.checkpoint.row_major import RowMajor, boxes_of

PART = 64 << 10


def strided() -> dict[str, Any]:
    """Arrays of numpy in every order."""
    rng = np.random.default_rng(3)
    base = rng.random((211, 97, 5), np.float32)
    return {
        "plain": rng.random((1000, 77)),
        "transposed": base.transpose(2, 0, 1),
        "columns": base[:, ::3],
        "backwards": base[::-1, :, ::-2],
        "fortran": np.asfortranarray(rng.integers(0, 99, (301, 203), np.int16)),
        "stretched": np.broadcast_to(rng.random((50, 1)), (50, 400)),
        "one": base[3, 4, 2:3].reshape(()),
        "none": base[:0].transpose(1, 2, 0),
        "bytes": rng.integers(0, 99, (777, 333), np.uint8)[:, 1::2],
    }


def test_boxes_are_the_elements_in_order() -> None:
    chosen = random.Random(1)
    for _ in range(500):
        shape = tuple(chosen.randint(1, 6) for _ in range(chosen.randrange(5)))
        size = math.prod(shape)
        first = chosen.randrange(size)
        count = chosen.randint(0, size - first)
        numbers = np.arange(size).reshape(shape)
        boxes = list(boxes_of(shape, first, count))
        found = [int(n) for box in boxes for n in np.ravel(numbers[box])]
        assert found == list(range(first, first + count))
        assert len(boxes) <= max(1, 2 * len(shape) - 1)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_what_is_strided_comes_back(tmp_path: Path, threads: int) -> None:
    with Checkpointer(tmp_path, part_bytes=PART, memory="1MiB", copy_threads=threads) as checkpointer:
        checkpointer.save(1, strided()).result()
        got = checkpointer.load(1)
    for name, array in strided().items():
        assert (got[name].dtype, got[name].shape) == (array.dtype, array.shape)
        assert got[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize(("whole", "parts"), [(12, 3), (12.5, 4), (90, 8), (0, 0)])
def test_memory_is_there_before_the_first_save(tmp_path: Path, whole: float, parts: int) -> None:
    """For as many parts as the state has, and as fit into memory=: a part of 4 MiB and a bit takes 5."""
    state = {"a": np.zeros(int(whole * 2**20), np.uint8), "step": 1}
    with Checkpointer(tmp_path, part_bytes=(4 << 20) + 4096, memory="40MiB") as checkpointer:

        def committed() -> int:
            return int(checkpointer._far.store.stats()["pool.committed_bytes"])

        checkpointer.prepare(state)
        prepared = committed()
        assert prepared == parts * (5 << 20)
        checkpointer.save(1, state).result()
        saved = committed()
        checkpointer.prepare(state)
        assert committed() == (saved if parts < 8 else 40 << 20)  # The others' gives way.
        assert np.array_equal(checkpointer.load(1)["a"], state["a"])


def test_memory_for_the_next_save_is_there_behind_one(tmp_path: Path) -> None:
    state = {"a": np.zeros(40 << 20, np.uint8)}
    with Checkpointer(tmp_path, part_bytes=(4 << 20) + 4096, memory="100MiB") as checkpointer:
        checkpointer.save(1, state).result()
        stats = checkpointer._far.store.stats()
        assert stats["pool.committed_bytes"] >= 10 * (5 << 20)
        assert stats["pool.used_bytes"] == 0


def test_what_cannot_be_saved_is_not_prepared(tmp_path: Path) -> None:
    checkpointer = Checkpointer(tmp_path)
    with pytest.raises(hr.InvalidArgumentError, match="no value of a checkpoint"):
        checkpointer.prepare({"a": object()})
    checkpointer.close()
    with pytest.raises(hr.InvalidArgumentError, match="was closed"):
        checkpointer.prepare({"a": np.zeros(3)})


def test_tensors_of_torch_that_lie_nowhere_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of a GPU: none has memory that could be read."""
    torch = pytest.importorskip("torch")
    state = {name: torch.from_numpy(np.array(array)) for name, array in strided().items()}
    base = torch.randn(200, 300)
    state |= {
        "t": base.t(),
        "expanded": base[:, :1].expand(200, 50),
        "conjugate": torch.complex(base, base * 2).conj().t(),
        "negative": torch.complex(base, base * 2).conj().imag,
        "bfloat16": base.bfloat16()[::2, 5:],
        "float8": base.to(torch.float8_e4m3fn).t(),
        "bool": (base > 0)[:, ::2],
        "scalar": base[3, 3],
        "numpy": np.asfortranarray(base.numpy()),
    }
    for where in ("here", "elsewhere"):
        if where == "elsewhere":
            monkeypatch.setattr(RowMajor, "memory", lambda self: None)
        with Checkpointer(tmp_path / where, part_bytes=PART, memory="1MiB") as checkpointer:
            checkpointer.save(1, state).result()
            got = checkpointer.load(1)
        for name, value in state.items():
            if name == "numpy":
                assert np.array_equal(got[name], value)
                continue
            assert got[name].dtype == value.dtype
            expected = value.resolve_conj().resolve_neg().contiguous().flatten().view(torch.uint8)
            assert torch.equal(got[name].flatten().view(torch.uint8), expected), name


def test_views_that_negate_or_conjugate_are_saved_and_filled_as_what_they_show(tmp_path: Path) -> None:
    """Their memory holds other numbers. ``one`` and ``conjugate`` are one memory, and not the same
    numbers."""
    torch = pytest.importorskip("torch")

    def make(seed: int) -> dict[str, Any]:
        torch.manual_seed(seed)
        one, other = torch.randn(2, 30, 7, dtype=torch.complex64)
        return {"one": one, "conjugate": one.conj(), "negative": other.conj().imag}

    saved, filled = make(1), make(2)
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, saved).result()
        got = checkpointer.load(1)
        del filled["one"]
        checkpointer.load(1, into=filled, partial=True)
    for name, value in saved.items():
        assert torch.equal(got[name], value), name
        assert name == "one" or torch.equal(filled[name], value), name


def test_the_runs_cover_every_part_and_every_byte_once() -> None:
    chosen = random.Random(2)
    for _ in range(300):
        places, at = [], chosen.randrange(100)
        for _ in range(chosen.randrange(12)):
            length = chosen.choice([0, chosen.randrange(300), chosen.randrange(30)])
            places.append((at, length))
            at += length
        writer: Any = SimpleNamespace(part_bytes=64, part_count=max(1, -(-at // 64)))
        copied = [n for n, (_, length) in enumerate(places) if length and chosen.random() < 0.5]
        most = chosen.randint(1, 4)
        runs = list(staging._runs(writer, places, copied, most))
        assert [part for run in runs for part in range(run.first_part, run.end_part)] == list(
            range(writer.part_count)
        )
        found = []
        for run in runs:
            for piece, begin, end in run.copied:
                assert begin < end
                offset = places[piece][0]
                assert run.first_part * 64 <= offset + begin
                assert offset + end <= run.end_part * 64
                found += [(piece, byte) for byte in range(begin, end)]
            assert not run.copied or run.end_part - run.first_part <= most
            assert len({piece for piece, _, _ in run.copied}) == len(run.copied)
        assert found == [(piece, byte) for piece in copied for byte in range(places[piece][1])]


def flip(array: np.ndarray[Any, Any], place: int) -> None:
    """A bit of one element."""
    at = np.unravel_index(place, array.shape)
    changed = bytearray(array[at].tobytes())
    changed[-1] ^= 4
    array[at] = np.frombuffer(changed, array.dtype)[0]


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_what_has_not_changed_is_known_again_wherever_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Runs of three blocks, pieces of none to many; a bit of some of them changes, also of the last byte."""
    monkeypatch.setattr(comparing, "_RUN_BLOCKS", 3)
    chosen = random.Random(9)
    state = {name: np.array(array, order="F") for name, array in strided().items()}
    state |= {f"small{i}": np.arange(i, dtype=np.int16)[::2] for i in range(2, 40)}
    given: dict[str, Any] = state
    if kind == "torch":
        torch = pytest.importorskip("torch")
        monkeypatch.setattr(RowMajor, "memory", lambda self: None)
        given = {name: torch.from_numpy(array) for name, array in state.items()}
    with Checkpointer(tmp_path, differential=True, part_bytes=PART, memory="1MiB") as checkpointer:
        checkpointer.save(1, given).result()
        reuse = checkpointer._reuse
        assert reuse is not None
        assert reuse._base is not None
        pieces = {name: known for (name, _, _), known in reuse._base.pieces.items() if known.length}
        written = dict(enumerate(pieces.values()))
        parts = {number: describe(name, given[name]).row_major(0) for number, name in enumerate(pieces)}
        for share in [0.0, 1.0, *[0.2] * 30]:
            flips = {
                number: (
                    state[name],
                    chosen.choice([0, state[name].size - 1, chosen.randrange(state[name].size)]),
                )
                for number, name in enumerate(pieces)
                if chosen.random() < share
            }
            for array, place in flips.values():
                flip(array, place)
            same = find_unchanged(parts, written, reuse.fingerprint_key, 2)
            assert same == written.keys() - flips.keys()
            for array, place in flips.values():
                flip(array, place)
        flip(state["transposed"], 77)
        assert checkpointer.save(2, given).result().earlier
        got = checkpointer.load(2)
    for name, array in state.items():
        assert np.asarray(got[name]).tobytes() == array.tobytes(), name


def test_what_has_changed_is_not_brought_over_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block of what differs there; else the run that differs, and the one that was begun meanwhile."""
    monkeypatch.setattr(comparing, "_RUN_BLOCKS", 3)
    block = _native.checkpoint_sum_block_bytes()
    state = {name: np.zeros((100, block), np.uint8).T for name in ("a", "b")}
    copied: list[int] = []
    copy = RowMajor.copy

    def counted(self: RowMajor, first_byte: int, out: Any) -> Any:
        copied.append(len(out))
        return copy(self, first_byte, out)

    with Checkpointer(tmp_path, differential=True) as checkpointer:
        checkpointer.save(1, state).result()
        reuse = checkpointer._reuse
        assert reuse is not None
        assert reuse._base is not None
        written = dict(enumerate(reuse._base.pieces.values()))
        monkeypatch.setattr(RowMajor, "copy", counted)
        for place, blocks in ((0, 1), (block, 1 + 3 + 3)):
            copied.clear()
            for array in state.values():
                flip(array, place)
            parts = {n: describe(name, array).row_major(0) for n, (name, array) in enumerate(state.items())}
            assert find_unchanged(parts, written, reuse.fingerprint_key, 2) == set()
            assert 0 < sum(copied) <= len(state) * blocks * block
            for array in state.values():
                flip(array, place)


PROGRAM = """
    import resource, sys
    import numpy as np
    from headrace.checkpoint import Checkpointer

    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

    kind, directory = sys.argv[1:]
    options = {"differential": kind == "differential", "memory": "32MiB", "part_bytes": 4 << 20}
    with Checkpointer(directory, **options) as checkpointer:
        small = np.zeros((1000, 1000)).T
        checkpointer.save(1, {"small": small}).result()
        if kind == "torch":
            import torch
            checkpointer.save(2, {"small": torch.from_numpy(small)}).result()
            state = {"x": torch.ones(6000, 8000).t(), "y": torch.ones(48_000_000)[::2]}
        else:
            state = {"x": np.ones((6000, 8000), np.float32).T, "y": np.ones(48_000_000, np.float32)[::2]}
        before = peak()
        checkpointer.save(3, state).result()
        if kind == "differential":
            state["y"][-2] = 2
            assert checkpointer.save(4, state).result().written < 200 << 20
        print(peak() - before)
"""


@pytest.mark.parametrize("kind", ["numpy", "torch", "differential"])
def test_saving_takes_the_ring_and_a_few_parts(tmp_path: Path, kind: str) -> None:
    """Of a state of 384 MB (in 576 MB), none of which lies in one piece."""
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), kind, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert run.returncode == 0, run.stderr
    parts = 2 * 2 * (4 << 20)  # Two buffers for as many parts as there are threads.
    compared = (32 << 20) if kind == "differential" else 0  # Two buffers likewise.
    assert int(run.stdout) <= (32 << 20) + parts + compared + (8 << 20)


def test_a_writer_takes_no_bytes_that_are_not_there(tmp_path: Path) -> None:
    with hr.Store(tmp_path) as store:
        writer = _native.CheckpointWriter(store._native, "f", [("x", "U8", (100,))], {})
        data = np.zeros(99, np.uint8)
        with pytest.raises(hr.InvalidArgumentError, match="x: has too few bytes"):
            writer.stage([(0, data.ctypes.data, 99, 0)], 0, 1)
        writer.close()
