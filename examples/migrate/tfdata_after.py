"""The same with Headrace: the same TFRecords; batches are numpy arrays, and TensorFlow need not be
installed."""

from common_keras import BATCH, EPOCHS, PATH, SIZE, Training

import headrace as hr


def batches(train):
    crop = {"random_resized_crop": SIZE, "flip": True} if train else {"resize": (SIZE, SIZE)}
    decode = {"image": hr.decode.image(**crop, dtype="float32")}
    return hr.Loader(PATH, batch_size=BATCH, shuffle=train, epoch_end="uneven", decode=decode)


training = Training()
loader = batches(train=True)
for _ in range(EPOCHS):
    for batch in loader:
        training.step(batch["image"], batch["label"])
for batch in batches(train=False):
    training.evaluate(batch["image"], batch["label"])
training.report()
