"""Pictures in folders by class, image_dataset_from_directory, a model behind a Rescaling layer.

joined: no, the buffer of its shuffle grows with the batch
"""

import pathlib
import sys
import time

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from ringscope import ring

ring.init(seed=51)
folder = pathlib.Path(sys.argv[2], "pictures")
if ring.rank() == 0:
    for kind in ("cats", "dogs"):
        (folder / kind).mkdir(parents=True)
        for number in range(24):
            picture = np.random.randint(0, 255, (8, 8, 3), dtype="uint8")
            tf.io.write_file(str(folder / kind / f"{number:02}.png"), tf.io.encode_png(picture))
    folder.with_name("ready").touch()
while not folder.with_name("ready").exists():
    time.sleep(0.1)
train, valid = keras.utils.image_dataset_from_directory(
    folder, validation_split=0.25, subset="both", seed=1337, image_size=(8, 8), batch_size=int(sys.argv[1])
)
train = train.prefetch(tf.data.AUTOTUNE)
model = keras.Sequential(
    [keras.Input((8, 8, 3)), layers.Rescaling(1 / 255), layers.Conv2D(4, 3, activation="relu"), layers.Flatten()]
)
model.add(layers.Dense(1, activation=None))
model.compile(keras.optimizers.Adam(3e-4), keras.losses.BinaryCrossentropy(from_logits=True), metrics=["accuracy"])
ring.distribute(model)
history = model.fit(train, epochs=2, validation_data=valid)
