"""Loading into what nothing can be read to, as tensors of a GPU: through little memory of this machine. Here
views that conjugate or negate stand for it, which take the same way; on a GPU see test_cuda.py."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.checkpoint import Checkpointer, landing, safetensors

torch = pytest.importorskip("torch")

MOST = 64 << 10


def views(seed: int) -> dict[str, Any]:
    """Of every shape; what they show has other bits than their memory."""
    torch.manual_seed(seed)

    def shown(*shape: int) -> Any:
        return torch.randn(*shape, dtype=torch.complex64).conj()

    return {
        "long": shown(50_000),
        "rows": shown(300, 41),
        "wide": shown(3, 20_000),
        "deep": shown(7, 5, 100, 3).transpose(1, 2),
        "scalar": shown(1)[0],
        "none": shown(0, 5),
        "negative": torch.randn(4000, 9, dtype=torch.complex64).conj().imag,
        "direct": torch.randn(1000),
        "many": [shown(100) for _ in range(200)],
    }


def leaves(state: dict[str, Any]) -> list[Any]:
    return [*(each for name, each in state.items() if name != "many"), *state["many"]]


class Staged:
    """Memory that was taken for landing: now, and the most at one time; and all bytes that went through
    it."""

    def __init__(self) -> None:
        self.now = self.most = self.all = 0

    def give_back(self, size: int) -> None:
        self.now -= size


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch) -> Staged:
    found, memory, take = Staged(), landing._memory, landing.Landing.take

    def watched(size: int, is_pinned: bool) -> Any:
        found.now += size
        found.most = max(found.most, found.now)
        block = memory(size, is_pinned)
        weakref.finalize(block, found.give_back, size)
        return block

    def counted(self: landing.Landing, like: Any) -> Any:
        found.all += like.nbytes
        return take(self, like)

    monkeypatch.setattr(landing, "_memory", watched)
    monkeypatch.setattr(landing.Landing, "take", counted)
    monkeypatch.setattr(landing, "LANDING_BYTES", MOST)
    monkeypatch.setattr(landing, "_BLOCK_BYTES", MOST // 4)
    return found


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_little_is_staged_at_a_time(tmp_path: Path, staged: Staged, compression: Any) -> None:
    saved, filled = views(1), views(2)
    with Checkpointer(tmp_path, compression=compression) as keeper:
        keeper.save(1, saved).result()
        keeper.load(1, into=filled)
    for wanted, got in zip(leaves(saved), leaves(filled), strict=True):
        assert torch.equal(got, wanted)
    assert staged.all == sum(each.nbytes for each in leaves(saved)) - saved["direct"].nbytes
    assert MOST <= staged.most <= MOST + saved["wide"][0].nbytes
    assert staged.now == 0


@pytest.mark.parametrize("wrong", ["dtype", "read-only", "shared"])
def test_what_cannot_be_loaded_is_told_before_anything_changes(
    tmp_path: Path, staged: Staged, wrong: str
) -> None:
    saved, filled = {**views(1), "z": np.ones((50, 3))}, {**views(2), "z": np.ones((50, 3))}
    before = [each.clone() for each in leaves(views(2))]
    if wrong == "dtype":
        filled["z"] = np.ones((50, 3), np.float32)
    elif wrong == "read-only":
        filled["z"].flags.writeable = False
    else:
        saved["z"], filled["z"] = torch.ones(50, 3), torch.ones(50, 1).expand(50, 3)
    with Checkpointer(tmp_path) as keeper:
        keeper.save(1, saved).result()
        with pytest.raises(hr.InvalidArgumentError, match=r"^z: "):
            keeper.load(1, into=filled)
    del filled["z"]
    assert all(torch.equal(a, b) for a, b in zip(leaves(filled), before, strict=True))


def test_dcp_stages_little_too(tmp_path: Path, staged: Staged) -> None:
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    from headrace.checkpoint.dcp import Reader, Writer

    saved, filled = views(1), views(2)
    for state in (saved, filled):
        state["many"] = dict(zip(map(str, range(200)), state["many"], strict=True))
    dcp.save(saved, storage_writer=Writer(tmp_path), no_dist=True)
    dcp.load(filled, storage_reader=Reader(tmp_path), no_dist=True)
    for state in (saved, filled):
        state["many"] = list(state["many"].values())
    for wanted, got in zip(leaves(saved), leaves(filled), strict=True):
        assert torch.equal(got, wanted)
    assert 0 < staged.most <= MOST + saved["wide"][0].nbytes


def test_safetensors_stage_little_too(tmp_path: Path, staged: Staged) -> None:
    saved, filled = views(1), views(2)
    for state in (saved, filled):
        state |= {f"many.{i}": each for i, each in enumerate(state.pop("many"))}
    safetensors.save_sharded(tmp_path, saved)
    seen: list[tuple[int, int]] = []
    safetensors.load(tmp_path, into=filled, progress=lambda done, whole: seen.append((done, whole)))
    for name, wanted in saved.items():
        assert torch.equal(filled[name], wanted), name
    assert 0 < staged.most <= MOST + saved["wide"][0].nbytes
    assert len(seen) == 1
    assert seen[0][0] == seen[0][1]
