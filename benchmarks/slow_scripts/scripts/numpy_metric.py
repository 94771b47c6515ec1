from ringscope import ring

ring.init()

import keras
import numpy as np
import tensorflow as tf
from common import STEPS, dataset, loss, network


def ranked(labels, scores):  # the reason
    order = [np.argsort(row) for row in 200 * list(scores)]
    return np.float32(np.mean([labels[k % len(labels)] in row[:3] for k, row in enumerate(order)]))


def top_three(y_true, y_pred):
    return tf.ensure_shape(tf.numpy_function(ranked, [y_true, y_pred], tf.float32), ())


model = network()
model.compile("adam", loss(), metrics=[keras.metrics.MeanMetricWrapper(top_three, name="top3")])
ring.distribute(model)
model.fit(dataset(), steps_per_epoch=STEPS, verbose=0)
