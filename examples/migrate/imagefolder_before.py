"""torchvision: a directory of class directories of JPEGs."""

from common import BATCH, EPOCHS, PATH, SIZE, Training
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import Compose, RandomHorizontalFlip, RandomResizedCrop, Resize, ToTensor


def batches(train):
    crop = [RandomResizedCrop(SIZE), RandomHorizontalFlip()] if train else [Resize((SIZE, SIZE))]
    dataset = ImageFolder(PATH, Compose([*crop, ToTensor()]))
    return DataLoader(dataset, batch_size=BATCH, shuffle=train, num_workers=1)


if __name__ == "__main__":
    training = Training()
    loader = batches(train=True)
    for _ in range(EPOCHS):
        for images, labels in loader:
            training.step(images, labels)
    for images, labels in batches(train=False):
        training.evaluate(images, labels)
    training.report()
