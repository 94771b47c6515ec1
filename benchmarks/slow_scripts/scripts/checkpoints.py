from ringscope import ring

ring.init()

import tempfile

import keras
from common import STEPS, dataset, loss, network

model = network()
model.compile("adam", loss())
ring.distribute(model)
path = tempfile.mkdtemp() + "/model.keras"
saves = keras.callbacks.ModelCheckpoint(path, save_freq=10)  # the reason
model.fit(dataset(), steps_per_epoch=STEPS, verbose=0, callbacks=[saves])
