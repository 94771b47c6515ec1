"""A training that goes on while ranks are lost and added.

`horovodrun -np 2 python examples/elastic.py` runs it as any other. So that it goes on, on one machine with two names:

printf '#!/bin/sh\nprintf "localhost:1\\n127.0.0.1:1\\n"\n' > discover.sh; chmod +x discover.sh
horovodrun -np 2 --min-np 1 --host-discovery-script ./discover.sh --network-interfaces lo python examples/elastic.py

Then end one of the processes by kill -9, or have discover.sh print one host only: the other goes on from the last
commit.
"""

import keras
import numpy as np

from ringscope import ring

ring.init()  # <- first: this process's rank, as it is now

random = np.random.default_rng(0)
x = random.normal(size=(4096, 20)).astype("float32")
y = x[:, :5].sum(axis=1, keepdims=True)

model = keras.Sequential([keras.Input((20,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.001 * ring.size()), "mse")  # <- for as many ranks as there are
ring.distribute(model, commit_steps=20)  # <- what a lost rank undoes is at most 20 steps

history = model.fit(x, y, batch_size=16, epochs=5, verbose=0)
if ring.rank() == 0:
    print(f"loss {history.history['loss'][0]:.3f} -> {history.history['loss'][-1]:.3f} on {ring.size()} ranks")
