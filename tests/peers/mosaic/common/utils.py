"""What mosaicml-streaming's tests take from their tests/common, which its source distribution leaves out."""

import json
import shutil
import socket
from pathlib import Path

from tests.common.datasets import NumberAndSayDataset, SequenceDataset, write_mds_dataset

_DATASETS = {"sequencedataset": SequenceDataset, "numberandsaydataset": NumberAndSayDataset}


def convert_to_mds(
    *,
    out_root,
    dataset_name,
    num_samples=117,
    offset=0,
    keep_local=False,
    compression=None,
    hashes=None,
    size_limit=1 << 8,
):
    kind = _DATASETS[dataset_name.lower()]
    dataset = kind(num_samples, offset=offset) if offset else kind(num_samples)
    columns = dict(zip(dataset.column_names, dataset.column_encodings, strict=True))
    write_mds_dataset(out_root, columns, dataset, size_limit, compression, hashes)


def get_config_in_bytes(
    format, size_limit, column_names, column_encodings, column_sizes, compression=None, hashes=None
):
    config = {
        "format": format,
        "size_limit": size_limit,
        "compression": compression,
        "hashes": hashes or [],
        "version": 2,
    }
    config |= {
        "column_names": column_names,
        "column_encodings": column_encodings,
        "column_sizes": column_sizes,
    }
    return json.dumps(config, sort_keys=True).encode()


def get_free_tcp_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def copy_all_files(source, destination):
    Path(destination).mkdir(exist_ok=True)
    for path in Path(source).iterdir():
        if path.is_file():
            shutil.copy2(path, destination)
