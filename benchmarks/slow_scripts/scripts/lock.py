from ringscope import ring

ring.init()

import threading
import time

import keras
from common import SLOW_S, STEPS, dataset, loss, network

shared = threading.Lock()


def writes():
    while True:
        with shared:
            time.sleep(SLOW_S)
        time.sleep(0.001)


class Counts(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):  # the reason
        with shared:
            self.batches = batch


threading.Thread(target=writes, daemon=True).start()
model = network()
model.compile("adam", loss())
ring.distribute(model)
model.fit(dataset(), steps_per_epoch=STEPS, verbose=0, callbacks=[Counts()])
