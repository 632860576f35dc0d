"""tf.data: TFRecord files with the features image (JPEG) and label (int64)."""

import tensorflow as tf
from common_keras import BATCH, EPOCHS, PATH, SIZE, Training

FEATURES = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}


def parse(record, train):
    sample = tf.io.parse_single_example(record, FEATURES)
    image = tf.io.decode_jpeg(sample["image"], channels=3, dct_method="INTEGER_ACCURATE")
    if train:
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.shape(image), tf.zeros([1, 0, 4]), area_range=(0.08, 1), use_image_if_no_bounding_boxes=True
        )
        image = tf.image.random_flip_left_right(tf.slice(image, begin, size))
    image = tf.image.resize(image, (SIZE, SIZE), antialias=True)
    return image / 255, sample["label"]


def batches(train):
    files = tf.data.Dataset.list_files(f"{PATH}/*.tfrecord", shuffle=train)
    records = files.interleave(tf.data.TFRecordDataset)
    if train:
        records = records.shuffle(1000)
    return records.map(lambda record: parse(record, train), tf.data.AUTOTUNE).batch(BATCH).prefetch(2)


training = Training()
dataset = batches(train=True)
for _ in range(EPOCHS):
    for images, labels in dataset:
        training.step(images, labels)
for images, labels in batches(train=False):
    training.evaluate(images, labels)
training.report()
