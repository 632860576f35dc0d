"""litdata: what optimize() made of JPEGs, with the fields image and label."""

from common import BATCH, EPOCHS, PATH, SIZE, Training
from litdata import StreamingDataLoader, StreamingDataset
from torchvision.transforms import (
    Compose,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    ToPILImage,
    ToTensor,
)


def batches(train):
    crop = [RandomResizedCrop(SIZE), RandomHorizontalFlip()] if train else [Resize((SIZE, SIZE))]
    pixels = Compose([ToPILImage(), *crop, ToTensor()])

    def transform(sample):
        return pixels(sample["image"]), sample["label"]

    dataset = StreamingDataset(PATH, shuffle=train, transform=transform)
    return StreamingDataLoader(dataset, batch_size=BATCH, num_workers=1)


if __name__ == "__main__":
    training = Training()
    loader = batches(train=True)
    for _ in range(EPOCHS):
        for images, labels in loader:
            training.step(images, labels)
    for images, labels in batches(train=False):
        training.evaluate(images, labels)
    training.report()
