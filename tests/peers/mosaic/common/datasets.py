"""Small data sets that mosaicml-streaming's tests write."""

import random

from streaming.base import MDSWriter


class SequenceDataset:
    """Sample i: its number as text, and 3 * i + offset."""

    def __init__(self, size=100, column_names=("id", "sample"), offset=0):
        self.size, self.offset = size, offset
        self.column_names = list(column_names)
        self.column_encodings, self.column_sizes = ["str", "int"], [None, 8]
        self._next = 0

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        if index >= self.size:
            raise IndexError(index)
        return dict(zip(self.column_names, (f"{index:06}", 3 * index + self.offset), strict=True))

    def __iter__(self):
        return self

    def __next__(self):
        if self._next >= self.size:
            raise StopIteration
        self._next += 1
        return self[self._next - 1]

    def get_sample_in_bytes(self, index):
        text, number = self[index].values()
        return dict(
            zip(self.column_names, (text.encode(), number.to_bytes(8, "little", signed=True)), strict=True)
        )


class NumberAndSayDataset:
    """Random numbers, and a text of varying length about each."""

    def __init__(self, size=100, column_names=("number", "words"), seed=987):
        self.size = size
        self.column_names = list(column_names)
        self.column_encodings, self.column_sizes = ["int", "str"], [8, None]
        self.seed = seed
        self._random, self._left = random.Random(seed), size

    def __len__(self):
        return self.size

    def __iter__(self):
        return self

    def __next__(self):
        if not self._left:
            raise StopIteration
        self._left -= 1
        number = int(self._random.choice((-1, 1, 1, 1)) * 10 ** self._random.uniform(0, 8))
        return dict(
            zip(
                self.column_names,
                (number, " ".join(f"digit {digit}" for digit in str(abs(number)))),
                strict=True,
            )
        )


def write_mds_dataset(out_root, columns, samples, size_limit, compression=None, hashes=None):
    with MDSWriter(
        out=out_root, columns=columns, compression=compression, hashes=hashes, size_limit=size_limit
    ) as out:
        for sample in samples:
            out.write(sample)
