"""What both sides of each pair share: a model, and what it was given. Nothing here is about loading."""

from __future__ import annotations

import json
import sys

import torch
from torch import nn
from torch.nn import functional

PATH = sys.argv[1]
BATCH = 8
EPOCHS = 2
SIZE = 64


class Training:
    """A tiny network of images (float 0 .. 1, NCHW) and labels 0 .. 9."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.trained: list[int] = []
        self.evaluated: list[list[float]] = []

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        loss = functional.cross_entropy(self.model(images), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.trained += labels.tolist()

    @torch.no_grad()
    def evaluate(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        self.model(images)
        corners = 255 * functional.adaptive_avg_pool2d(images, 2).flatten(1)
        for label, means in zip(labels.tolist(), corners.tolist(), strict=True):
            self.evaluated.append([label, *(round(mean, 2) for mean in means)])

    def report(self) -> None:
        """What was trained on, and of each image that was evaluated its label and the means of its four
        quarters by channel."""
        print(json.dumps({"trained": sorted(self.trained), "evaluated": sorted(self.evaluated)}))
