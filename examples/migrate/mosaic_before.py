"""mosaicml-streaming: MDS with columns image (jpeg) and label (int)."""

from common import BATCH, EPOCHS, PATH, SIZE, Training
from streaming import StreamingDataset
from torch.utils.data import DataLoader
from torchvision.transforms import Compose, RandomHorizontalFlip, RandomResizedCrop, Resize, ToTensor


class Images(StreamingDataset):
    def __init__(self, local, train):
        super().__init__(local=local, shuffle=train, batch_size=BATCH)
        crop = [RandomResizedCrop(SIZE), RandomHorizontalFlip()] if train else [Resize((SIZE, SIZE))]
        self.transform = Compose([*crop, ToTensor()])

    def __getitem__(self, index):
        sample = super().__getitem__(index)
        return self.transform(sample["image"].convert("RGB")), sample["label"]


def batches(train):
    return DataLoader(Images(PATH, train), batch_size=BATCH, num_workers=1)


if __name__ == "__main__":
    training = Training()
    loader = batches(train=True)
    for _ in range(EPOCHS):
        for images, labels in loader:
            training.step(images, labels)
    for images, labels in batches(train=False):
        training.evaluate(images, labels)
    training.report()
