"""datasets, streaming: a Parquet file or a directory of them with the columns image (Image) and label."""

from common import BATCH, EPOCHS, PATH, SIZE, Training
from datasets import load_dataset
from torch.utils.data import DataLoader
from torchvision.transforms import Compose, RandomHorizontalFlip, RandomResizedCrop, Resize, ToTensor


def batches(train):
    crop = [RandomResizedCrop(SIZE), RandomHorizontalFlip()] if train else [Resize((SIZE, SIZE))]
    transform = Compose([*crop, ToTensor()])
    dataset = load_dataset("parquet", data_files=f"{PATH}/*.parquet", split="train", streaming=True)
    if train:
        dataset = dataset.shuffle(seed=17, buffer_size=1000)
    dataset = dataset.map(lambda sample: {**sample, "image": transform(sample["image"].convert("RGB"))})
    return DataLoader(dataset.with_format("torch"), batch_size=BATCH, num_workers=1)


if __name__ == "__main__":
    training = Training()
    loader = batches(train=True)
    for epoch in range(EPOCHS):
        loader.dataset.set_epoch(epoch)
        for batch in loader:
            training.step(batch["image"], batch["label"])
    for batch in batches(train=False):
        training.evaluate(batch["image"], batch["label"])
    training.report()
