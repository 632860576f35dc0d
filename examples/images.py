"""A small convolutional net on JPEGs that the engine's threads decode, crop and flip.

python examples/make_data.py images /tmp/images && python examples/images.py /tmp/images
"""

import argparse

import torch
from torch import nn

import headrace as hr
import headrace.torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("data", help="a dataset with the columns image (JPEG, PNG, ...) and label")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
args = parser.parse_args()


class Block(nn.Module):
    """Half the sides, and what came in is added."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(inside, outside, 3, 2, 1), nn.BatchNorm2d(outside), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(outside, outside, 3, 1, 1), nn.BatchNorm2d(outside))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        halved = self.first(images)
        return torch.relu(halved + self.second(halved))


torch.manual_seed(0)
model = nn.Sequential(Block(3, 16), Block(16, 32), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(32, 4))
model.to(args.device, memory_format=torch.channels_last)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
loader = headrace.torch.Loader(
    args.data,
    batch_size=32,
    seed=17,
    epoch_end="drop",
    decode={"image": hr.decode.image(random_resized_crop=64, scale=(0.5, 1.0), flip=True)},
    device=args.device,
)

for epoch in range(args.epochs):
    losses = []
    for batch in loader:
        # uint8 [N, height, width, channels] is what goes to the device; numbers of 0 .. 1 are made there.
        images = batch["image"].permute(0, 3, 1, 2).float().div_(255)
        loss = nn.functional.cross_entropy(model(images), batch["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"epoch {epoch}: loss {sum(losses) / len(losses):.4f}", flush=True)
