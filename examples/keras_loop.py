"""Keras on any backend: batches are numpy arrays, and train_on_batch() takes them.

model.fit() would read ahead of what it has trained on, and the loader's state would count that, too.

python examples/keras_loop.py /tmp/images --checkpoint run
python examples/keras_loop.py /tmp/images --checkpoint run --resume
"""

import argparse
import json
from pathlib import Path

import keras
from keras import layers

import headrace as hr

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("data", help="a dataset with the columns image and label, or tokens")
parser.add_argument("--model", choices=["resnet", "bytes"], default="resnet", help="bytes: for tokens")
parser.add_argument("--checkpoint", default="run")
parser.add_argument("--resume", action="store_true")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--stop", type=int, help="end after so many steps, with a checkpoint")
args = parser.parse_args()
model_file, loader_file = Path(args.checkpoint + ".keras"), Path(args.checkpoint + ".json")


def halved(images, channels: int):
    """Half the sides, and what came in is added."""
    first = layers.Conv2D(channels, 3, 2, padding="same")(images)
    first = layers.ReLU()(layers.BatchNormalization()(first))
    second = layers.Conv2D(channels, 3, padding="same")(first)
    return layers.ReLU()(layers.Add()([first, layers.BatchNormalization()(second)]))


def resnet() -> keras.Model:
    """A small residual net."""
    images = keras.Input((64, 64, 3))
    pooled = layers.GlobalMaxPooling2D()(halved(halved(images, 16), 32))
    return keras.Model(images, layers.Dense(4)(pooled))


def transformer() -> keras.Model:
    """A byte-level transformer, which sees places by a convolution over what came before."""
    tokens = keras.Input((64,), dtype="uint8")
    embedded = layers.Conv1D(64, 4, padding="causal")(layers.Embedding(256, 64)(tokens))
    normal = layers.LayerNormalization()(embedded)
    attended = layers.MultiHeadAttention(4, 16)(normal, normal, use_causal_mask=True)
    summed = layers.Add()([embedded, attended])
    wide = layers.Dense(128, activation="relu")(layers.LayerNormalization()(summed))
    return keras.Model(tokens, layers.Dense(256)(layers.Add()([summed, layers.Dense(64)(wide)])))


image = hr.decode.image(resize=(64, 64), dtype="float32")
loader = hr.Loader(
    args.data,
    batch_size=32,
    seed=17,
    epoch_end="drop",
    decode={"image": image} if args.model == "resnet" else None,
)
if args.resume:
    model = keras.models.load_model(model_file)  # With its optimizer.
    loader.load_state_dict(json.loads(loader_file.read_text()))
else:
    keras.utils.set_random_seed(0)
    model = resnet() if args.model == "resnet" else transformer()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(3e-3), loss=loss)


def inputs_and_targets(batch: hr.Batch):
    if args.model == "resnet":
        return batch["image"], batch["label"]
    return batch["tokens"][:, :-1], batch["tokens"][:, 1:]


step = 0
while loader.epoch < args.epochs and step != args.stop:
    for batch in loader:
        model.reset_metrics()  # The loss is of this batch alone.
        loss = model.train_on_batch(*inputs_and_targets(batch))
        step += 1
        print(json.dumps({"loss": float(loss), "ids": batch.ids.tolist()}), flush=True)
        if step == args.stop:
            break
model.save(model_file)
loader_file.write_text(json.dumps(loader.state_dict()))
