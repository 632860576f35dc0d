"""One process of a run that torchrun or `accelerate launch` started, which alone say its rank; run by
test_launchers.py.

It trains two epochs: up to a step, and on from what was saved there with a new loader. Arguments: way, data,
directory, step.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from framework_ranks import LOADER

import headrace.torch

EPOCHS = 2
Epochs = Iterator[Iterator[Any]]


def new_loader(data: str) -> headrace.torch.Loader:
    return headrace.torch.Loader(data, **LOADER)


def loops(batches: Any, loader: headrace.torch.Loader) -> Epochs:
    while loader.epoch < EPOCHS:
        yield iter(batches)


def alone(data: str, directory: Path, stop: int) -> Epochs:
    """No framework, and no process group."""
    first = new_loader(data)
    yield itertools.islice(itertools.chain.from_iterable(loops(first, first)), stop)
    second = new_loader(data)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    yield from loops(second, second)


def fabric(data: str, directory: Path, stop: int, *, wraps: bool = False) -> Epochs:
    """Fabric's setup_dataloaders(), save() and load()."""
    import lightning

    runner = lightning.Fabric(accelerator="cpu", devices=2, strategy="ddp")
    runner.launch()
    first, second = new_loader(data), new_loader(data)

    def setup(loader: Any) -> Any:
        given = torch.utils.data.DataLoader(loader, batch_size=None) if wraps else loader
        return runner.setup_dataloaders(given)

    batches, saved = setup(first), str(directory / "run.ckpt")
    yield itertools.islice(itertools.chain.from_iterable(loops(batches, first)), stop)
    runner.save(saved, {"loader": first if wraps else batches})
    batches = setup(second)
    runner.load(saved, {"loader": second if wraps else batches})
    yield from loops(batches, second)


def fabric_wrapped(data: str, directory: Path, stop: int) -> Epochs:
    """torch's DataLoader around the loader, whose state is the user's to save."""
    return fabric(data, directory, stop, wraps=True)


def accelerate(data: str, directory: Path, stop: int) -> Epochs:
    """Accelerate's prepare(), save_state() and load_state()."""
    from accelerate import Accelerator

    for part in range(2):
        runner = Accelerator(cpu=True)
        loader = runner.prepare(new_loader(data))
        if part:
            runner.load_state(str(directory / "state"))
            yield from loops(loader, loader)
        else:
            yield itertools.islice(itertools.chain.from_iterable(loops(loader, loader)), stop)
            runner.save_state(str(directory / "state"))


def main() -> None:
    way, data, directory, stop = sys.argv[1:]
    seen = []
    for batches in globals()[way](data, Path(directory), int(stop)):
        seen += [[batch.epoch, batch.ids[batch.mask].tolist()] for batch in batches]
    with headrace.torch.Loader(data, **LOADER) as loader:
        rank, world_size = loader.rank, loader.world_size
    Path(directory, f"rank{rank}.json").write_text(json.dumps({"world_size": world_size, "seen": seen}))


if __name__ == "__main__":
    main()
