"""What the scripts here train: a small residual net on images, a byte-level transformer on tokens.

Of both, forward(batch) is the loss, and `options` is what their loader is told beside its data.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

import headrace as hr

Batch = Mapping[str, torch.Tensor]


class Block(nn.Module):
    """Half the sides, and what came in is added. No BatchNorm: its means are of each rank's own batches."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(inside, outside, 3, 2, 1), nn.GroupNorm(4, outside), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(outside, outside, 3, 1, 1), nn.GroupNorm(4, outside))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        halved = self.first(images)
        return torch.relu(halved + self.second(halved))


class ResNet(nn.Module):
    """Images of any size to four classes. Batches have the columns image, numbers of 0 .. 1, and label."""

    options: Mapping[str, Any] = {
        "decode": {"image": hr.decode.image(resize=(64, 64), dtype="float32", layout="CHW")}
    }

    def __init__(self) -> None:
        super().__init__()
        pool = nn.AdaptiveMaxPool2d(1)
        self.net = nn.Sequential(Block(3, 16), Block(16, 32), pool, nn.Flatten(), nn.Linear(32, 4))

    def forward(self, batch: Batch) -> torch.Tensor:
        return nn.functional.cross_entropy(self.net(batch["image"]), batch["label"])


class Bytes(nn.Module):
    """The next byte of a text. Batches have the column tokens, one longer than what the net is given."""

    options: Mapping[str, Any] = {}

    def __init__(self, width: int = 64, length: int = 64) -> None:
        super().__init__()
        self.embedding, self.places = nn.Embedding(256, width), nn.Embedding(length, width)
        self.layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout=0, batch_first=True, norm_first=True
        )
        self.head = nn.Linear(width, 256)

    def forward(self, batch: Batch) -> torch.Tensor:
        tokens = batch["tokens"].long()
        length = tokens.shape[1] - 1
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=tokens.device)
        embedded = self.embedding(tokens[:, :-1]) + self.places.weight[:length]
        logits = self.head(self.layer(embedded, src_mask=mask, is_causal=True))
        return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


MODELS = {"resnet": ResNet, "bytes": Bytes}
