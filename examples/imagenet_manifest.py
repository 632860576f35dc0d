"""Lists the images of ImageNet with their labels, in an order that mixes the classes: metadata.jsonl beside
them.

python examples/imagenet_manifest.py /data/imagenet/train      # class folders: n01440764/n01440764_18.JPEG
python examples/imagenet_manifest.py /data/imagenet/val --classes /data/imagenet/train --solution
LOC_val_solution.csv
"""

import argparse
import csv
import json
import random
from collections.abc import Iterator
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("images", type=Path, help="a directory; metadata.jsonl is written there")
parser.add_argument(
    "--classes", type=Path, help="class folders that give the labels; default: those of images"
)
parser.add_argument("--solution", type=Path, help="of a flat directory: a CSV with ImageId, PredictionString")
parser.add_argument("--seed", type=int, default=17)
args = parser.parse_args()


def classified() -> Iterator[tuple[str, str]]:
    """(file, class), each relative to the directory."""
    if args.solution is None:
        for path in sorted(args.images.glob("*/*.JPEG")):
            yield f"{path.parent.name}/{path.name}", path.parent.name
        return
    with open(args.solution, newline="") as file:
        for row in csv.DictReader(file):
            yield f"{row['ImageId']}.JPEG", row["PredictionString"].split()[0]


# Labels count the class folders in the order of their names, as torchvision's ImageFolder does.
folders = sorted(path.name for path in (args.classes or args.images).iterdir() if path.is_dir())
labels = {name: label for label, name in enumerate(folders)}
images = list(classified())
if not images:
    parser.error(
        f"{args.images}: no class folders with images; where they lie flat, --solution says their classes"
    )
random.Random(args.seed).shuffle(images)
with open(args.images / "metadata.jsonl", "w") as file:
    for name, class_name in images:
        file.write(json.dumps({"file_name": name, "label": labels[class_name]}) + "\n")
print(f"{len(images)} images of {len(labels)} classes")
