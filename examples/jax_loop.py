"""JAX: batches are arrays over all devices (and all processes, where there are several), each with its part.

python examples/jax_loop.py /tmp/images --checkpoint run
python examples/jax_loop.py /tmp/images --checkpoint run --resume
"""

import argparse
import json
from pathlib import Path

import jax
import numpy as np
from jax import numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import headrace as hr
import headrace.jax

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("data", help="a dataset with the columns image and label")
parser.add_argument("--checkpoint", default="run")
parser.add_argument("--resume", action="store_true")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--stop", type=int, help="end after so many steps, with a checkpoint")
args = parser.parse_args()
model_file, loader_file = Path(args.checkpoint + ".npz"), Path(args.checkpoint + ".json")


def loss_of(model, images, labels):
    pixels = images.astype(jnp.float32) / 255  # uint8 went to the device.
    strided = jax.lax.conv(pixels.transpose(0, 3, 1, 2), model["filters"], (4, 4), "VALID")
    logits = jax.nn.relu(strided).max((2, 3)) @ model["head"] + model["bias"]
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()


@jax.jit
def train(model, images, labels):
    loss, gradients = jax.value_and_grad(loss_of)(model, images, labels)
    return jax.tree.map(lambda value, gradient: value - 0.05 * gradient, model, gradients), loss


samples_over_devices = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec("data"))
loader = headrace.jax.Loader(
    args.data,
    batch_size=32,
    seed=17,
    epoch_end="drop",
    decode={"image": hr.decode.image(resize=(64, 64))},
    sharding=samples_over_devices,
)
if args.resume:
    model = dict(np.load(model_file))
    loader.load_state_dict(json.loads(loader_file.read_text()))
else:
    filters, head = jax.random.split(jax.random.key(0))
    model = {
        "filters": jax.random.normal(filters, (16, 3, 5, 5)) / 9,
        "head": jax.random.normal(head, (16, 4)) / 4,
        "bias": jnp.zeros(4),
    }

step = 0
while loader.epoch < args.epochs and step != args.stop:
    for batch in loader:
        model, loss = train(model, batch["image"], batch["label"])
        step += 1
        print(json.dumps({"loss": float(loss), "ids": batch.ids.tolist()}), flush=True)
        if step == args.stop:
            break
np.savez(model_file, **model)
loader_file.write_text(json.dumps(loader.state_dict()))
