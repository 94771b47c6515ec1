"""A forecast from windows over a series, by keras.utils.timeseries_dataset_from_array and an LSTM.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np

from ringscope import ring

ring.init(seed=50)
series = np.sin(np.arange(140) / 5)[:, None] + np.random.normal(0, 0.1, (140, 2))
series = (series - series[:100].mean(axis=0)) / series[:100].std(axis=0)
options = {"sequence_length": 10, "sampling_rate": 1, "batch_size": int(sys.argv[1])}
train = keras.utils.timeseries_dataset_from_array(series[:100], series[10:110, :1], **options)
valid = keras.utils.timeseries_dataset_from_array(series[100:130], series[110:, :1], **options)
for batch in train.take(1):
    inputs, targets = batch
model = keras.Sequential([keras.layers.Input((10, 2)), keras.layers.LSTM(8), keras.layers.Dense(1)])
model.compile(optimizer=keras.optimizers.Adam(learning_rate=0.001), loss="mse")
ring.distribute(model)
history = model.fit(train, epochs=2, validation_data=valid)
