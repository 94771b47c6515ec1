"""Images from TFRecord files, each rank its own files, decoded in parallel and copied ahead of the steps.

horovodrun -np 2 python examples/tfrecords.py [FOLDER]

FOLDER: where eight small files are written first; default: a temporary one for each process. The number of files is a
multiple of the number of ranks.
"""

import sys
import tempfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from ringscope import ring

SIDE, CLASSES, FILES, IMAGES_PER_FILE, BATCH = 16, 4, 8, 64, 32


def write(folder: Path) -> None:
    """Squares in one of four corners, as PNG: the corner is the label. Every rank writes the same bytes."""
    random = np.random.default_rng(0)
    for number in range(FILES):
        with tf.io.TFRecordWriter(str(folder / f"images-{number}-of-{FILES}.tfrecord")) as writer:
            for _image in range(IMAGES_PER_FILE):
                label = int(random.integers(CLASSES))
                image = random.integers(0, 100, size=(SIDE, SIDE, 1), dtype=np.uint8)
                top, left = SIDE // 2 * (label // 2), SIDE // 2 * (label % 2)
                image[top : top + SIDE // 2, left : left + SIDE // 2] += 100
                features = {
                    "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[tf.io.encode_png(image).numpy()])),
                    "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
                }
                writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def parse(record):
    """The image stays uint8 until it is on the GPU: a quarter of the bytes to copy. The label stays int64."""
    shapes = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    example = tf.io.parse_single_example(record, shapes)
    return tf.ensure_shape(tf.io.decode_png(example["image"], channels=1), (SIDE, SIDE, 1)), example["label"]


def batches(folder: Path) -> tf.data.Dataset:
    """This rank's files only: as many on every rank, so that all take the same number of steps."""
    files = tf.data.Dataset.list_files(str(folder / "*.tfrecord"), shuffle=False).shard(ring.size(), ring.rank())
    records = files.interleave(tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=tf.data.AUTOTUNE)
    images = records.shuffle(FILES * IMAGES_PER_FILE, seed=1).map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    ready = images.batch(BATCH, drop_remainder=True).prefetch(tf.data.AUTOTUNE)
    ready = ready.apply(tf.data.experimental.assert_cardinality(FILES // ring.size() * IMAGES_PER_FILE // BATCH))
    if tf.config.get_visible_devices("GPU"):
        ready = ready.apply(tf.data.experimental.prefetch_to_device("/GPU:0", 2))  # the last transformation
    return ready


ring.init()  # <- first: one GPU for each process

model = keras.Sequential(
    [
        keras.layers.Rescaling(1 / 255),
        keras.layers.Conv2D(8, 3, strides=2, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(CLASSES),
    ]
)
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
ring.distribute(model)

with tempfile.TemporaryDirectory() as temporary:
    folder = Path(sys.argv[1] if sys.argv[1:] else temporary)
    write(folder)
    # The files are shared out already, so `fit` must not do it again.
    history = model.fit(batches(folder), epochs=5, verbose=2, shard=False)

if ring.rank() == 0:
    print(f"loss {history.history['loss'][0]:.3f} -> {history.history['loss'][-1]:.3f} on {ring.size()} ranks")
