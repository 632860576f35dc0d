"""Runs in a Python of its own, which has petastorm: that wants a pyarrow older than ours. Used by
test_petastorm.py.

petastorm_peer.py write DIR SEED  a dataset encoded by petastorm's codecs; what went in: DIR/../expected.npz
petastorm_peer.py read DIR        the columns that make_batch_reader delivers, as JSON
petastorm_peer.py rows DIR        the rows that make_reader decodes by the dataset's own Unischema, as JSON
"""

from __future__ import annotations

import json
import pickle
import sys
import warnings
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from petastorm import make_batch_reader, make_reader  # noqa: E402
from petastorm.codecs import CompressedNdarrayCodec, NdarrayCodec  # noqa: E402
from petastorm.unischema import Unischema, UnischemaField  # noqa: E402

KEYS = (b"dataset-toolkit.unischema.v1", b"dataset-toolkit.num_row_groups_per_file.v1")
DTYPES = (np.uint8, np.int16, np.int64, np.float32, np.float64)


def write(root: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    fields = [UnischemaField("id", np.int64, (), None, False)]
    for i in range(int(rng.integers(1, 5))):
        shape = tuple(int(n) for n in rng.integers(1, 5, int(rng.integers(1, 4))))
        codec = (NdarrayCodec, CompressedNdarrayCodec)[int(rng.integers(2))]()
        fields.append(UnischemaField(f"m{i}", DTYPES[int(rng.integers(len(DTYPES)))], shape, codec, False))
    schema = Unischema("Random", fields)
    count, arrays = int(rng.integers(5, 60)), fields[1:]
    values = {f.name: (rng.random((count, *f.shape)) * 100).astype(f.numpy_dtype) for f in arrays}
    columns: dict[str, Any] = {"id": pa.array(range(count), pa.int64())}
    for field in arrays:
        columns[field.name] = pa.array(
            [bytes(field.codec.encode(field, value)) for value in values[field.name]], pa.binary()
        )
    table = pa.table(columns)
    root.mkdir(parents=True)
    pq.write_table(table, root / "part-00000.parquet", row_group_size=7)
    metadata = dict(
        zip(
            KEYS,
            (pickle.dumps(schema), json.dumps({"part-00000.parquet": -(-count // 7)}).encode()),
            strict=True,
        )
    )
    pq.write_metadata(table.schema.with_metadata(metadata), root / "_common_metadata")
    np.savez(root.parent / "expected.npz", **values)


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def read(root: Path) -> dict[str, list[Any]]:
    out: dict[str, list[Any]] = {}
    with make_batch_reader(
        root.as_uri(), shuffle_row_groups=False, reader_pool_type="dummy", num_epochs=1
    ) as reader:
        for batch in reader:
            for name, values in batch._asdict().items():
                out.setdefault(name, []).extend(plain(value) for value in values)
    return out


def rows(root: Path) -> list[dict[str, Any]]:
    with make_reader(
        root.as_uri(), shuffle_row_groups=False, reader_pool_type="dummy", num_epochs=1
    ) as reader:
        return [{name: plain(value) for name, value in row._asdict().items()} for row in reader]


def main() -> None:
    command, root = sys.argv[1], Path(sys.argv[2])
    if command == "write":
        write(root, int(sys.argv[3]))
    else:
        print(json.dumps(read(root) if command == "read" else rows(root)))


if __name__ == "__main__":
    main()
