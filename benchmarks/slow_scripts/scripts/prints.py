from ringscope import ring

ring.init()

import keras
from common import SMALL, STEPS, dataset, loss, network


class Talks(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):  # the reason
        for k in range(400 if SMALL else 2500):
            print(f"batch {batch}: line {k} of the numbers of this batch, as wide as a terminal shows", flush=True)


model = network()
model.compile("adam", loss())
ring.distribute(model)
model.fit(dataset(), steps_per_epoch=STEPS, verbose=0, callbacks=[Talks()])
