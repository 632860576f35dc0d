"""webdataset: tars of jpg and cls, a brace pattern of them as the argument."""

import webdataset as wds
from common import BATCH, EPOCHS, PATH, SIZE, Training
from torch.utils.data import default_collate
from torchvision.transforms import Compose, RandomHorizontalFlip, RandomResizedCrop, Resize, ToTensor


def batches(train):
    crop = [RandomResizedCrop(SIZE), RandomHorizontalFlip()] if train else [Resize((SIZE, SIZE))]
    transform = Compose([*crop, ToTensor()])
    dataset = wds.WebDataset(PATH, shardshuffle=100 if train else False)
    if train:
        dataset = dataset.shuffle(1000)
    return (
        dataset.decode("pil")
        .to_tuple("jpg", "cls")
        .map(lambda sample: (transform(sample[0]), sample[1]))
        .batched(BATCH, collation_fn=default_collate)
    )


training = Training()
loader = wds.WebLoader(batches(train=True), batch_size=None, num_workers=1)
for _ in range(EPOCHS):
    for images, labels in loader:
        training.step(images, labels)
for images, labels in batches(train=False):
    training.evaluate(images, labels)
training.report()
