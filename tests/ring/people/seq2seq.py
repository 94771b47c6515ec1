"""Translation letter by letter: an LSTM reads, another writes, taught by the answer shifted by one.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np
from keras import layers

from ringscope import ring

ring.init(seed=17)
source = np.eye(7, dtype="float32")[np.random.randint(0, 7, (64, 6))]
answer = np.eye(8, dtype="float32")[np.random.randint(0, 8, (64, 5))]
shifted = np.roll(answer, 1, axis=1)
encoder_inputs = keras.Input((None, 7))
_, h, c = layers.LSTM(10, return_state=True)(encoder_inputs)
decoder_inputs = keras.Input((None, 8))
decoded, _, _ = layers.LSTM(10, return_sequences=True, return_state=True)(decoder_inputs, initial_state=[h, c])
model = keras.Model([encoder_inputs, decoder_inputs], layers.Dense(8, activation="softmax")(decoded))
model.compile(optimizer="rmsprop", loss="categorical_crossentropy", metrics=["accuracy"])
ring.distribute(model)
history = model.fit([source, shifted], answer, batch_size=int(sys.argv[1]), epochs=2, shuffle=False)
