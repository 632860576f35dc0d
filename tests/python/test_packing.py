"""Packed tokens of datasets that mosaicml-streaming wrote."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import headrace as hr
from headrace.data.packed import PackedTokens

streaming = pytest.importorskip("streaming")
LENGTH = 128


@pytest.fixture(scope="module")
def documents() -> list[npt.NDArray[np.uint16]]:
    """Documents whose every token is its own: the first is the document's number times 1024."""
    rng = np.random.default_rng(5)
    lengths = rng.integers(1, 500, 60)
    return [(np.arange(n) + 1024 * i).astype(np.uint32) for i, n in enumerate(lengths)]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, documents: list[npt.NDArray[Any]]) -> Path:
    root = tmp_path_factory.mktemp("documents")
    with streaming.MDSWriter(
        out=str(root), columns={"tokens": "ndarray:uint32", "id": "int"}, size_limit=1 << 14
    ) as out:
        for i, tokens in enumerate(documents):
            out.write({"tokens": tokens, "id": i})
    return root


def check_sequence(
    tokens: npt.NDArray[Any], segments: npt.NDArray[Any], positions: npt.NDArray[Any]
) -> list[int]:
    """Tokens of documents in a sequence; checks that each segment is one piece of a document."""
    got: list[int] = []
    for segment in range(1, int(segments.max()) + 1):
        piece = tokens[segments == segment]
        assert (positions[segments == segment] == np.arange(len(piece))).all()
        assert (piece == piece[0] + np.arange(len(piece))).all()
        got += piece.tolist()
    assert (tokens[segments == 0] == 7).all()
    assert (positions[segments == 0] == 0).all()
    return got


def check_tokens_of(packed: PackedTokens, documents: list[npt.NDArray[Any]], dtype: str) -> None:
    """Each token once, in pieces of documents, by position and by a loader."""
    everything = Counter(int(t) for tokens in documents for t in tokens)
    assert packed.report["documents"] == len(documents)
    assert packed.schema["tokens"].dtype == dtype
    read: Counter[int] = Counter()
    for sample in packed[:]:
        read.update(check_sequence(sample["tokens"], sample["segment_ids"], sample["positions"]))
    assert read == everything
    loaded: Counter[int] = Counter()
    with hr.Loader(packed, batch_size=4, memory="64MiB", epoch_end="uneven") as loader:
        for batch in loader:
            for i in range(len(batch.ids)):
                loaded.update(
                    check_sequence(batch["tokens"][i], batch["segment_ids"][i], batch["positions"][i])
                )
    assert loaded == everything


@pytest.mark.parametrize("method", ["best_fit", "concatenate"])
def test_every_token_is_there_once(written: Path, documents: list[npt.NDArray[Any]], method: str) -> None:
    packed = hr.pack_tokens(written, length=LENGTH, method=method, pad_token=7)
    assert packed.schema["tokens"].shape == (LENGTH,)
    assert packed.schema["segment_ids"].dtype == "int32"
    assert packed.report["document_tokens"] == sum(map(len, documents))
    check_tokens_of(packed, documents, "uint32")
    packed.close()


@pytest.mark.parametrize("kind", ["numpy", "tensor"])
def test_litdata_documents(tmp_path: Path, documents: list[npt.NDArray[Any]], kind: str) -> None:
    """Chunks by litdata's own writer, of its arrays and of torch's tensors."""
    torch = pytest.importorskip("torch")
    cache_module = pytest.importorskip("litdata.streaming.cache")
    root = tmp_path / "litdata"
    root.mkdir()
    cache = cache_module.Cache(str(root), chunk_size=16)
    for i, tokens in enumerate(documents):
        signed = tokens.astype(np.int32)
        cache[i] = {"tokens": torch.from_numpy(signed) if kind == "tensor" else signed, "id": i}
    cache.done()
    cache.merge()
    for method in ("best_fit", "concatenate"):
        packed = hr.pack_tokens(root, length=LENGTH, method=method, pad_token=7, index_cache="")
        assert packed.report["document_tokens"] == sum(map(len, documents))
        check_tokens_of(packed, documents, "int32")
        packed.close()


@pytest.mark.parametrize("dtype", ["uint16", "int32"])
def test_megatron_documents(tmp_path: Path, documents: list[npt.NDArray[Any]], dtype: str) -> None:
    """A .bin and its .idx as Megatron-LM's IndexedDatasetBuilder lays them out, one document of two
    sequences."""
    root = tmp_path / "megatron"
    root.mkdir()
    tokens = np.concatenate(documents).astype(dtype)
    (root / "text_document.bin").write_bytes(tokens.tobytes())
    cut = len(documents[0]) // 2
    lengths = np.array([cut, len(documents[0]) - cut, *map(len, documents[1:])], dtype=np.int32)
    begins = (np.cumsum(lengths, dtype=np.int64) - lengths) * tokens.itemsize
    firsts = np.array([0, *range(2, len(lengths) + 1)], dtype=np.int64)
    head = b"MMIDIDX\0\0" + struct.pack(
        "<QBQQ", 1, {"int32": 4, "uint16": 8}[dtype], len(lengths), len(firsts)
    )
    (root / "text_document.idx").write_bytes(head + lengths.tobytes() + begins.tobytes() + firsts.tobytes())
    for method in ("best_fit", "concatenate"):
        packed = hr.pack_tokens(root, length=LENGTH, method=method, pad_token=7, index_cache="")
        check_tokens_of(packed, documents, dtype)
        packed.close()


def test_best_fit_cuts_fewer_documents(written: Path) -> None:
    fit = hr.pack_tokens(written, length=512)
    cut = hr.pack_tokens(written, length=512, method="concatenate")
    assert fit.report["cut_documents"] == 0 < cut.report["cut_documents"]
    assert fit.report["waste"] < 0.2
    assert fit.report["dropped_tokens"] == cut.report["dropped_tokens"] == 0
    short = hr.pack_tokens(written, length=512, method="concatenate", drop_partial=True)
    assert short.report["padding_tokens"] == 0 < short.report["dropped_tokens"]


def test_a_run_goes_on_exactly(written: Path) -> None:
    packed = hr.pack_tokens(written, length=LENGTH)

    def make(rank: int = 0, world: int = 1) -> hr.Loader:
        return hr.Loader(packed, batch_size=8 // world, rank=rank, world_size=world, memory="64MiB", seed=2)

    with make() as loader:
        stream = iter(loader)
        for _ in range(3):
            next(stream)
        state = loader.state_dict()
        rest = [batch["tokens"].tolist() for batch in stream]
    got: list[list[Any]] = [[] for _ in rest]
    for rank in range(2):
        with make(rank, 2) as loader:
            loader.load_state_dict(state)
            for k, batch in enumerate(loader):
                got[k] += batch["tokens"].tolist()
    assert got == rest
    other = hr.pack_tokens(written, length=LENGTH, method="concatenate")
    with (
        hr.Loader(other, batch_size=8, memory="64MiB", seed=2) as loader,
        pytest.raises(hr.InvalidArgumentError, match="fingerprint"),
    ):
        loader.load_state_dict(state)


def test_packed_datasets_mix(written: Path) -> None:
    packed = hr.pack_tokens(written, length=LENGTH)
    mixture = hr.Mixture(
        {"a": (packed, 3), "b": (hr.pack_tokens(written, length=LENGTH, method="concatenate"), 1)}
    )
    with hr.Loader(mixture, batch_size=8, memory="64MiB") as loader:
        batch = next(iter(loader))
        assert batch["tokens"].shape == (8, LENGTH)
        assert Counter(mixture.sources_of(batch.ids).tolist()) == {0: 6, 1: 2}


def test_what_cannot_be_packed_says_why(written: Path, tmp_path: Path) -> None:
    for arguments, message in [
        ({"column": "text"}, "no column"),
        ({"column": "id"}, "one-dimensional"),
        ({"length": 1}, "2 to"),
        ({"method": "worst_fit"}, "best_fit"),
        ({"pad_token": -1}, "pad_token"),
        ({"drop_partial": True}, "concatenate"),
    ]:
        with pytest.raises(hr.InvalidArgumentError, match=message):
            hr.pack_tokens(written, **arguments)
    zipped = tmp_path / "zipped"
    with streaming.MDSWriter(
        out=str(zipped), columns={"tokens": "ndarray:uint32"}, compression="zstd"
    ) as out:
        out.write({"tokens": np.arange(10, dtype=np.uint32)})
    with pytest.raises(hr.UnsupportedError, match="compressed"):
        hr.pack_tokens(zipped)
