"""Functions over tensors for the tests of map()."""

from __future__ import annotations

from typing import Any

import torch

Sample = dict[str, Any]


def inspect(sample: Sample) -> Sample:
    assert torch.is_tensor(sample["image"])
    label = int(sample["label"])
    return {
        "image": sample["image"],
        "mean": sample["image"].float().mean(),
        "half": torch.tensor([label, label / 2], dtype=torch.bfloat16),
        "ragged": torch.arange(label),
        "text": sample["text"],
        "threads": torch.get_num_threads(),
    }


def make_tensors(sample: Sample) -> Sample:
    return {"image": torch.from_numpy(sample["image"]), "half": torch.ones(2, dtype=torch.bfloat16)}


def add_one(sample: Sample) -> Sample:
    return {**sample, "label": sample["label"] + 1}


def to_pair(samples: list[Sample]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.stack([s["image"] for s in samples]), torch.stack([s["label"] for s in samples])


class Augment:
    """torchvision's own classes, with its own random numbers."""

    def __init__(self) -> None:
        from torchvision.transforms import v2

        self.transform = v2.Compose([v2.RandomResizedCrop(16, antialias=True), v2.RandomHorizontalFlip()])

    def __call__(self, sample: Sample) -> Sample:
        return {"image": self.transform(sample["image"]), "label": sample["label"]}


def make_tokenizer() -> Any:
    """A fast tokenizer of a few words, made here: nothing is downloaded."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {word: number for number, word in enumerate(["[UNK]", "a", "picture", "of", "things"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")


class Tokenize:
    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def __call__(self, sample: Sample) -> Any:
        return self.tokenizer(sample["text"], return_token_type_ids=False)


def next_tokens(sample: dict[str, Any]) -> dict[str, Any]:
    """Computes with unsigned numbers, and makes some."""
    made = sample["short"].to(torch.uint16)
    return {**sample, "next": sample["short"] + 1, "made": made}


def dtypes(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "dtype": str(sample["short"].dtype)}


def stacked(samples: list[Sample]) -> Sample:
    """A batch of a collate function's own, of numbers that it computed with."""
    columns = {name: torch.stack([torch.as_tensor(s[name]) for s in samples]) for name in samples[0]}
    return {**columns, "next": columns["short"] + 1, "made": columns["short"].to(torch.uint16)}


def as_it_is(sample: Sample) -> Sample:
    return sample
