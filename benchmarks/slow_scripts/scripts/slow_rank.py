from ringscope import ring

ring.init()

import time

import keras
from common import SLOW_S, STEPS, dataset, loss, network


class Uploads(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):  # the reason
        if ring.rank() == ring.size() - 1:
            time.sleep(SLOW_S)


model = network()
model.compile("adam", loss())
ring.distribute(model)
model.fit(dataset(), steps_per_epoch=STEPS, verbose=0, callbacks=[Uploads()])
