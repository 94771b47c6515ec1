from ringscope import ring

ring.init()

import keras
import numpy as np
from common import STEPS, dataset, loss, network


class Norms(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):  # the reason
        self.norms = [float(np.linalg.norm(w)) for w in self.model.get_weights()]
        self.bins = [np.histogram(w, 100)[0] for w in self.model.get_weights()]


model = network()
model.compile("adam", loss())
ring.distribute(model)
model.fit(dataset(), steps_per_epoch=STEPS, verbose=0, callbacks=[Norms()])
