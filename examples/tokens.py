"""A byte-level transformer that learns the next byte.

python examples/make_data.py tokens /tmp/tokens && python examples/tokens.py /tmp/tokens
"""

import argparse

import torch
from torch import nn

import headrace.torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument(
    "data", help="a dataset with the column tokens, each one longer than what the model is given"
)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
args = parser.parse_args()


class Bytes(nn.Module):
    def __init__(self, width: int = 64, length: int = 64) -> None:
        super().__init__()
        self.embedding, self.places = nn.Embedding(256, width), nn.Embedding(length, width)
        self.layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout=0, batch_first=True, norm_first=True
        )
        self.head = nn.Linear(width, 256)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        length = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=tokens.device)
        embedded = self.embedding(tokens) + self.places.weight[:length]
        return self.head(self.layer(embedded, src_mask=mask, is_causal=True))


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
        tokens = batch["tokens"].long()
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"epoch {epoch}: loss {sum(losses) / len(losses):.4f}", flush=True)
