"""The same with Headrace: the same directory, which may as well be in an object store."""

from common import BATCH, EPOCHS, PATH, SIZE, Training

import headrace as hr
from headrace.torch import Loader


def batches(train):
    crop = {"random_resized_crop": SIZE, "flip": True} if train else {"resize": (SIZE, SIZE)}
    decode = {"data": hr.decode.image(**crop, dtype="float32", layout="CHW")}
    return Loader(PATH, labels="folder", batch_size=BATCH, shuffle=train, epoch_end="uneven", decode=decode)


training = Training()
loader = batches(train=True)
for _ in range(EPOCHS):
    for batch in loader:
        training.step(batch["data"], batch["label"])
for batch in batches(train=False):
    training.evaluate(batch["data"], batch["label"])
training.report()
