"""Text and JSON lines against Python's own reading of them."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr


def open_dataset(path: Path, **options: Any) -> hr.Dataset:
    return hr.Dataset(path, index_cache="", format="text", **options)


@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_lines_of_text(tmp_path: Path, compress: Any) -> None:
    (tmp_path / "a.txt").write_bytes(compress("eins\nzwei ü\r\n\nletzte".encode()))
    with open_dataset(tmp_path) as dataset:
        assert [s["text"] for s in dataset] == ["eins", "zwei ü", "", "letzte"]


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(alphabet=st.characters(exclude_categories=["Cs"])),
)
nested = st.recursive(
    values,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet="abc", min_size=1), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.dictionaries(st.sampled_from(["a", "b", "c\u00e9", 'd"\\']), nested, min_size=1, max_size=4),
        min_size=1,
        max_size=8,
    ),
    ascii=st.booleans(),
)
def test_json_lines_give_pythons_values(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], ascii: bool
) -> None:
    folder = tmp_path_factory.mktemp("lines")
    (folder / "a.jsonl").write_text(
        "".join(json.dumps(row, ensure_ascii=ascii) + "\n" for row in rows), encoding="utf-8", newline=""
    )
    with open_dataset(folder) as dataset:
        for row, sample in zip(rows, dataset, strict=True):
            for name, column in dataset.schema.items():
                found, expected = sample[name], row.get(name)
                if expected is None:
                    assert found is None
                elif column.dtype:
                    assert found == pytest.approx(expected, rel=0, abs=0)
                else:
                    assert found == expected
    with open_dataset(folder, columns=["json"]) as dataset:
        assert [s["json"] for s in dataset] == rows


def test_a_loader_batches_columns(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"id": i, "text": f"line {i}\n"}) + "\n" for i in range(100))
    )
    with hr.Loader(tmp_path, batch_size=10, index_cache="", format="text") as loader:
        rows = [(int(i), t) for batch in loader for i, t in zip(batch["id"], batch["text"], strict=True)]
    assert sorted(rows) == [(i, f"line {i}\n") for i in range(100)]


cells = st.text(alphabet=st.sampled_from('ab,"\r\n\t \u00e9;'), max_size=6)


@settings(max_examples=80, deadline=None)
@given(data=st.data(), dialect=st.sampled_from(["excel", "excel-tab", "unix"]))
def test_csv_gives_what_pythons_csv_gives(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, dialect: str
) -> None:
    width = data.draw(st.integers(1, 4))
    header = data.draw(st.lists(cells.filter(bool), min_size=width, max_size=width, unique=True))
    rows = data.draw(st.lists(st.lists(cells, min_size=width, max_size=width), max_size=6))
    path = tmp_path_factory.mktemp("values") / ("a.tsv" if dialect == "excel-tab" else "a.csv")
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, dialect).writerows([header, *rows])
    with path.open(encoding="utf-8", newline="") as file:
        expected = list(csv.DictReader(file, dialect=dialect))
    with hr.Dataset(path, index_cache="") as dataset:
        assert dataset.format == "csv"
        assert list(dataset.schema) == header
        assert list(dataset) == expected


def test_csv_in_files_and_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text\n1,one\n2,two\n")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b'id,text\r\n3,"thr\r\nee"\r\n'))
    with hr.Dataset(tmp_path, index_cache="") as dataset:
        assert [s["text"] for s in dataset] == ["one", "two", "thr\r\nee"]
        assert dataset[1] == {"id": "2", "text": "two"}
    with hr.Dataset(tmp_path, index_cache="", columns="text") as dataset:
        assert list(dataset.schema) == ["text"]
    with hr.Loader(tmp_path, batch_size=3, index_cache="", shuffle=False) as loader:
        assert next(iter(loader))["id"] == ["1", "2", "3"]
    (tmp_path / "c.csv").write_text("id,words\n1,one\n")
    with pytest.raises(hr.InvalidArgumentError, match="its header is id,words"):
        hr.Dataset(tmp_path, index_cache="")


def test_csv_of_another_name_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "values").write_text("a,b\n1,2\n")
    with hr.Dataset(tmp_path, index_cache="") as dataset:
        assert dataset.format == "raw"
    with hr.Dataset(tmp_path, index_cache="", format="csv") as dataset:
        assert list(dataset) == [{"a": "1", "b": "2"}]
    (tmp_path / "values").write_text("a,b\n1,2\n3\n")
    with pytest.raises(hr.CorruptError, match="record 1: 1 fields, the header has 2"):
        hr.Dataset(tmp_path, index_cache="", format="csv")
