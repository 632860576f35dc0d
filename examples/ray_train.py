"""Ray Train: every worker makes the loader; Ray's checkpoints hold its state beside the model.

python examples/ray_train.py /tmp/images --storage /tmp/runs --stop 3
python examples/ray_train.py /tmp/images --storage /tmp/runs   # the same name: goes on
"""

import argparse
import json
import tempfile
from pathlib import Path

import torch
from models import MODELS
from ray import train
from ray.train.torch import TorchTrainer, prepare_model

import headrace.torch


def work(config):
    kind = MODELS[config["model"]]
    torch.manual_seed(0)
    model = prepare_model(kind())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    # Ray has made the process group: the loader asks torch.distributed which part is its own.
    loader = headrace.torch.Loader(config["data"], batch_size=16, seed=17, epoch_end="drop", **kind.options)
    parts = {"model": model, "optimizer": optimizer, "loader": loader}
    if checkpoint := train.get_checkpoint():
        with checkpoint.as_directory() as directory:
            saved = torch.load(Path(directory, "run.pt"))
        for name, part in parts.items():
            part.load_state_dict(saved[name])

    def save():
        with tempfile.TemporaryDirectory() as directory:
            made = None
            if train.get_context().get_world_rank() == 0:  # The loader's state is the same on all ranks.
                torch.save(
                    {name: part.state_dict() for name, part in parts.items()}, Path(directory, "run.pt")
                )
                made = train.Checkpoint.from_directory(directory)
            train.report({"loss": loss.item(), "epoch": loader.epoch}, checkpoint=made)

    step = 0
    while loader.epoch < config["epochs"] and step != config["stop"]:
        for batch in loader:
            loss = model(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            print(json.dumps({"loss": loss.item(), "ids": batch.ids.tolist()}), flush=True)
            if step == config["stop"]:
                break
        save()  # At the end of an epoch here; within one would do as well.


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="a dataset with the columns image and label, or tokens")
    parser.add_argument("--model", choices=MODELS, default="resnet", help="bytes: for tokens")
    parser.add_argument("--storage", required=True, help="an absolute path or URL")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--stop", type=int, help="end after so many steps, with a checkpoint")
    args = parser.parse_args()
    trainer = TorchTrainer(
        work,
        train_loop_config=vars(args),
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(name="images", storage_path=args.storage),
    )
    print(trainer.fit().metrics)
