"""The same with Headrace: the same tars; members are columns, and a class is JSON."""

import torch
from common import BATCH, EPOCHS, PATH, SIZE, Training

import headrace as hr
from headrace.torch import Loader


def batches(train):
    crop = {"random_resized_crop": SIZE, "flip": True} if train else {"resize": (SIZE, SIZE)}
    image = hr.decode.image(**crop, dtype="float32", layout="CHW")
    decode = {"jpg": image, "cls": hr.decode.json()}
    return Loader(PATH, batch_size=BATCH, shuffle=train, epoch_end="uneven", decode=decode)


training = Training()
loader = batches(train=True)
for _ in range(EPOCHS):
    for batch in loader:
        training.step(batch["jpg"], torch.tensor(batch["cls"]))
for batch in batches(train=False):
    training.evaluate(batch["jpg"], torch.tensor(batch["cls"]))
training.report()
