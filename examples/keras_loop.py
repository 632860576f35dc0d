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
parser.add_argument("data", help="a dataset with the columns image and label")
parser.add_argument("--checkpoint", default="run")
parser.add_argument("--resume", action="store_true")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--stop", type=int, help="end after so many steps, with a checkpoint")
args = parser.parse_args()
model_file, loader_file = Path(args.checkpoint + ".keras"), Path(args.checkpoint + ".json")

loader = hr.Loader(
    args.data,
    batch_size=32,
    seed=17,
    epoch_end="drop",
    decode={"image": hr.decode.image(resize=(64, 64), dtype="float32")},
)
if args.resume:
    model = keras.models.load_model(model_file)  # With its optimizer.
    loader.load_state_dict(json.loads(loader_file.read_text()))
else:
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [layers.Conv2D(16, 5, 4, activation="relu"), layers.GlobalMaxPooling2D(), layers.Dense(4)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(3e-3), loss=loss)

step = 0
while loader.epoch < args.epochs and step != args.stop:
    for batch in loader:
        model.reset_metrics()  # The loss is of this batch alone.
        loss = model.train_on_batch(batch["image"], batch["label"])
        step += 1
        print(json.dumps({"loss": float(loss), "ids": batch.ids.tolist()}), flush=True)
        if step == args.stop:
            break
model.save(model_file)
loader_file.write_text(json.dumps(loader.state_dict()))
