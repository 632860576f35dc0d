"""A byte-level transformer that learns the next byte.

python examples/make_data.py tokens /tmp/tokens && python examples/tokens.py /tmp/tokens
"""

import argparse

import torch
from models import Bytes

import headrace.torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument(
    "data", help="a dataset with the column tokens, each one longer than what the model is given"
)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
args = parser.parse_args()

torch.manual_seed(0)
model = Bytes().to(args.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
loader = headrace.torch.Loader(
    args.data,
    batch_size=16,
    seed=17,
    epoch_end="drop",
    device=args.device,
)

for epoch in range(args.epochs):
    losses = []
    for batch in loader:
        loss = model(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"epoch {epoch}: loss {sum(losses) / len(losses):.4f}", flush=True)
