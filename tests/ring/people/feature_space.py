"""Patients in a table: FeatureSpace learns the columns, tf.data maps them, a small network predicts.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras.utils import FeatureSpace

from ringscope import ring

ring.init(seed=19)
table = {
    "age": np.random.randint(20, 80, 96).astype("float32"),
    "kind": np.random.choice(["a", "b", "c"], 96),
    "smokes": np.random.randint(0, 2, 96),
    "pressure": np.random.normal(120, 10, 96).astype("float32"),
}
target = (table["age"] + table["pressure"] > 170).astype("float32")
data = tf.data.Dataset.from_tensor_slices((table, target)).batch(int(sys.argv[1]))
space = FeatureSpace(
    features={
        "age": FeatureSpace.float_discretized(num_bins=5),
        "kind": FeatureSpace.string_categorical(num_oov_indices=0),
        "smokes": FeatureSpace.integer_categorical(num_oov_indices=0),
        "pressure": FeatureSpace.float_normalized(),
    },
    crosses=[FeatureSpace.cross(feature_names=("kind", "smokes"), crossing_dim=8)],
    output_mode="concat",
)
space.adapt(data.map(lambda x, y: x))
train = data.map(lambda x, y: (space(x), y)).prefetch(1)
encoded = space.get_encoded_features()
outputs = keras.layers.Dense(1, activation="sigmoid")(keras.layers.Dense(8, activation="relu")(encoded))
model = keras.Model(encoded, outputs)
model.compile("adam", "binary_crossentropy", metrics=["accuracy", keras.metrics.Precision()])
ring.distribute(model)
history = model.fit(train, epochs=2)
