"""A small residual net on JPEGs that the engine's threads decode, crop and flip.

python examples/make_data.py images /tmp/images && python examples/images.py /tmp/images
"""

import argparse

import torch
from models import ResNet

import headrace as hr
import headrace.torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("data", help="a dataset with the columns image (JPEG, PNG, ...) and label")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
args = parser.parse_args()

torch.manual_seed(0)
model = ResNet()
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
        loss = model({"image": images, "label": batch["label"]})
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"epoch {epoch}: loss {sum(losses) / len(losses):.4f}", flush=True)
