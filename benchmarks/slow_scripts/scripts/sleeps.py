from ringscope import ring

ring.init()

import time

import keras
from common import SLOW_S, STEPS, dataset, loss, network


class Patient(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):  # the reason
        time.sleep(SLOW_S)


model = network()
model.compile("adam", loss())
ring.distribute(model)
model.fit(dataset(), steps_per_epoch=STEPS, verbose=0, callbacks=[Patient()])
