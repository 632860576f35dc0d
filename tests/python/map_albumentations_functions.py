"""Albumentations as its users write it, for the tests of map()."""

from __future__ import annotations

from typing import Any

import albumentations as A  # noqa: N812
import numpy as np

Sample = dict[str, Any]


def pipeline() -> A.Compose:
    return A.Compose(
        [
            A.RandomResizedCrop(size=(16, 20), scale=(0.3, 1.0)),
            A.HorizontalFlip(p=0.5),
            A.RandomBrightnessContrast(p=0.8),
            A.CoarseDropout(num_holes_range=(1, 2), hole_height_range=(2, 4), hole_width_range=(2, 4), p=0.5),
        ]
    )


class Augment:
    """An object that holds its pipeline."""

    def __init__(self) -> None:
        self.transform = pipeline()

    def __call__(self, sample: Sample) -> Sample:
        return {"image": self.transform(image=sample["image"])["image"], "label": sample["label"]}


class AugmentBatch(Augment):
    """The same for the images of a batch, one after the other."""

    def __call__(self, batch: Sample) -> Sample:
        made = [self.transform(image=image)["image"] for image in batch["image"]]
        return {"image": np.stack(made), "label": batch["label"]}


TRANSFORM = pipeline()
BOXES = A.Compose(
    [A.HorizontalFlip(p=0.5), A.ShiftScaleRotate(p=0.9)],
    bbox_params=A.BboxParams(format="pascal_voc", label_fields=["classes"]),
)


def augment(sample: Sample) -> Sample:
    """A function that uses a pipeline of its module."""
    return {"image": TRANSFORM(image=sample["image"])["image"], "label": sample["label"]}


def with_boxes(sample: Sample) -> Sample:
    """Boxes and masks go along; as many boxes as remain."""
    height, width = sample["image"].shape[:2]
    made = BOXES(
        image=sample["image"],
        mask=sample["image"][:, :, 0],
        bboxes=[[0, 0, width // 2, height // 2], [width // 4, height // 4, width, height]],
        classes=[0, 1],
    )
    return {"image": made["image"], "mask": made["mask"], "boxes": np.asarray(made["bboxes"]).reshape(-1, 4)}
