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
parser.add_argument("data", help="a dataset with the columns image and label, or tokens")
parser.add_argument("--model", choices=["resnet", "bytes"], default="resnet", help="bytes: for tokens")
parser.add_argument("--checkpoint", default="run")
parser.add_argument("--resume", action="store_true")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--stop", type=int, help="end after so many steps, with a checkpoint")
args = parser.parse_args()
model_file, loader_file = Path(args.checkpoint + ".npz"), Path(args.checkpoint + ".json")


def start(shapes: dict[str, tuple[int, ...]]) -> dict[str, jax.Array]:
    """Random weights, so that sums of what comes in keep about its size."""
    keys = jax.random.split(jax.random.key(0), len(shapes))
    return {
        name: jax.random.normal(key, shape) * (2 / np.prod(shape[:-1])) ** 0.5
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }


def cross_entropy(logits, labels):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1).mean()


def conv(images, filters, stride: int):
    places = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(images, filters, (stride, stride), "SAME", dimension_numbers=places)


RESNET = {
    "a": (3, 3, 3, 16),
    "a2": (3, 3, 16, 16),
    "b": (3, 3, 16, 32),
    "b2": (3, 3, 32, 32),
    "head": (32, 4),
}


def resnet_loss(model, columns):
    """A small residual net: each block halves the sides, and adds what came in."""
    images = columns["image"].astype(jnp.float32) / 255  # uint8 went to the device.
    for name in "ab":
        halved = jax.nn.relu(conv(images, model[name], 2))
        images = jax.nn.relu(halved + 0.2 * conv(halved, model[name + "2"], 1))
    return cross_entropy(images.max((1, 2)) @ model["head"], columns["label"])


BYTES = {
    "embedding": (256, 64),
    "places": (64, 64),
    "attention": (64, 3 * 64),
    "joined": (64, 64),
    "wide": (64, 128),
    "narrow": (128, 64),
    "head": (64, 256),
}


def bytes_loss(model, columns):
    """A byte-level transformer that learns the next byte."""
    tokens = columns["tokens"].astype(jnp.int32)
    values = 10 * (model["embedding"][tokens[:, :-1]] + model["places"])
    parts = jax.nn.standardize(values) @ model["attention"]
    heads = parts.reshape(*parts.shape[:2], 3, 4, 16)
    attended = jax.nn.dot_product_attention(heads[:, :, 0], heads[:, :, 1], heads[:, :, 2], is_causal=True)
    values = values + attended.reshape(values.shape) @ model["joined"]
    values = values + jax.nn.relu(jax.nn.standardize(values) @ model["wide"]) @ model["narrow"]
    return cross_entropy(jax.nn.standardize(values) @ model["head"], tokens[:, 1:])


shapes, loss_of = (RESNET, resnet_loss) if args.model == "resnet" else (BYTES, bytes_loss)


@jax.jit
def train(model, columns):
    loss, gradients = jax.value_and_grad(loss_of)(model, columns)
    return jax.tree.map(lambda value, gradient: value - 0.05 * gradient, model, gradients), loss


samples_over_devices = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec("data"))
loader = headrace.jax.Loader(
    args.data,
    batch_size=32,
    seed=17,
    epoch_end="drop",
    decode={"image": hr.decode.image(resize=(64, 64))} if args.model == "resnet" else None,
    sharding=samples_over_devices,
)
if args.resume:
    model = dict(np.load(model_file))
    loader.load_state_dict(json.loads(loader_file.read_text()))
else:
    model = start(shapes)

step = 0
while loader.epoch < args.epochs and step != args.stop:
    for batch in loader:
        model, loss = train(model, dict(batch))
        step += 1
        print(json.dumps({"loss": float(loss), "ids": batch.ids.tolist()}), flush=True)
        if step == args.stop:
            break
np.savez(model_file, **model)
loader_file.write_text(json.dumps(loader.state_dict()))
