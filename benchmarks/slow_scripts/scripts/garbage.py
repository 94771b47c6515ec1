from ringscope import ring

ring.init()

import gc

import keras
from common import SMALL, STEPS, dataset, loss, network

index = [{"file": [str(k)], "label": [k]} for k in range(20_000 if SMALL else 200_000)]


class Tidies(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):  # the reason
        gc.collect()


model = network()
model.compile("adam", loss())
ring.distribute(model)
model.fit(dataset(), steps_per_epoch=STEPS, verbose=0, callbacks=[Tidies()])
