from ringscope import ring

ring.init()

import numpy as np
import tensorflow as tf
from common import BATCH, PIXELS, STEPS, dataset, loss, network


def augment(pictures):  # the reason
    turned = [np.rot90(one, k % 4) for k, one in enumerate(pictures.numpy())]
    return np.stack([np.roll(one, k % 7, axis=1) for k, one in enumerate(40 * turned)][: len(turned)])


def prepared(pictures, labels):
    pictures = tf.py_function(augment, [pictures], tf.uint8)
    return tf.ensure_shape(pictures, (BATCH, PIXELS, PIXELS, 3)), labels


model = network()
model.compile("adam", loss())
ring.distribute(model)
model.fit(dataset().map(prepared).prefetch(2), steps_per_epoch=STEPS, verbose=0)
