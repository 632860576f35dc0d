"""Ray Train: every worker makes the loader; Ray's checkpoints hold its state beside the model.

python examples/ray_train.py /tmp/images --storage /tmp/runs --epochs 1
python examples/ray_train.py /tmp/images --storage /tmp/runs --epochs 2   # the same name: goes on
"""

import argparse
import json
import tempfile
from pathlib import Path

import torch
from ray import train
from ray.train.torch import TorchTrainer, prepare_model
from torch import nn

import headrace as hr
import headrace.torch


def work(config):
    torch.manual_seed(0)
    model = prepare_model(
        nn.Sequential(
            nn.Conv2d(3, 16, 5, 4), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(16, 4)
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    image = hr.decode.image(resize=(64, 64), dtype="float32", layout="CHW")
    # Ray has made the process group: the loader asks torch.distributed which part is its own.
    loader = headrace.torch.Loader(
        config["data"], batch_size=16, seed=17, epoch_end="drop", decode={"image": image}
    )
    parts = {"model": model, "optimizer": optimizer, "loader": loader}
    if checkpoint := train.get_checkpoint():
        with checkpoint.as_directory() as directory:
            saved = torch.load(Path(directory, "run.pt"))
        for name, part in parts.items():
            part.load_state_dict(saved[name])

    while loader.epoch < config["epochs"]:
        for batch in loader:
            loss = nn.functional.cross_entropy(model(batch["image"]), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(json.dumps({"loss": loss.item(), "ids": batch.ids.tolist()}), flush=True)
        with tempfile.TemporaryDirectory() as directory:
            made = None
            if train.get_context().get_world_rank() == 0:  # The loader's state is the same on all ranks.
                torch.save(
                    {name: part.state_dict() for name, part in parts.items()}, Path(directory, "run.pt")
                )
                made = train.Checkpoint.from_directory(directory)
            train.report({"loss": loss.item(), "epoch": loader.epoch}, checkpoint=made)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="a dataset with the columns image and label")
    parser.add_argument("--storage", required=True, help="an absolute path or URL")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    trainer = TorchTrainer(
        work,
        train_loop_config=vars(args),
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(name="images", storage_path=args.storage),
    )
    print(trainer.fit().metrics)
