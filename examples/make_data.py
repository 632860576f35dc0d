"""Makes small data for these examples: coloured shapes as JPEGs with labels 0 .. 3, or tokens of text.

python examples/make_data.py images /tmp/images [--count 512]
python examples/make_data.py tokens /tmp/tokens

Images need Pillow (pip install pillow); tokens need the docs/ of a checkout.
"""

import argparse
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from headrace import prepare

COLUMNS = {
    "images": {"image": "jpeg", "label": "int"},
    "tokens": {"tokens": "ndarray:uint8:65"},  # All of one shape: a batch of them is one array.
}


def images(count: int) -> Iterator[dict[str, Any]]:
    """The label is the shape, a square or a disc, and its colour, warm or cold."""
    from PIL import Image, ImageDraw

    random = np.random.default_rng(0)
    for i in range(count):
        label = i % 4
        tile = Image.fromarray(random.integers(0, 80, (375, 500, 3), dtype=np.uint8))
        x, y, side = (int(value) for value in random.integers((40, 40, 140), (200, 110, 220)))
        draw = ImageDraw.Draw(tile)
        shape = draw.rectangle if label % 2 else draw.ellipse
        shape((x, y, x + side, y + side), fill=(230, 120, 40) if label // 2 else (40, 120, 230))
        out = io.BytesIO()
        tile.save(out, "JPEG")
        yield {"image": out.getvalue(), "label": label}


def tokens(count: int, length: int = 65) -> Iterator[dict[str, Any]]:
    """Bytes of the documentation of this repository, one longer than what a model is given."""
    files = sorted((Path(__file__).parents[1] / "docs").glob("*.md"))
    if not files:
        raise SystemExit("there are no docs/*.md beside the examples: run this in a checkout")
    text = np.frombuffer(b"\n".join(file.read_bytes() for file in files), np.uint8)
    for i in range(min(count, len(text) // length)):
        yield {"tokens": text[i * length : (i + 1) * length]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["images", "tokens"])
    parser.add_argument("target", help="a directory or a URL")
    parser.add_argument("--count", type=int, default=512)
    given = parser.parse_args()
    samples = {"images": images, "tokens": tokens}[given.kind](given.count)
    prepare.write(samples, given.target, format="mds", columns=COLUMNS[given.kind])
