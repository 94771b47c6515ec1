"""Trains with what makes places, and prints the ranges that were written: run by test_of_keras.py."""

import functools
import gc
import json
import tempfile

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.eager.polymorphic_function import eager_function_run  # tf.config's, if that is loaded later

from ringscope.places import garbage, of_keras, of_tensorflow, ranges

told = []


class Kept:
    def begin(self, name):
        told.append(name)

    def end(self, begun):
        pass


ranges.writer = lambda: Kept()
for _ in range(2):  # a second time does nothing
    of_keras.lay(keras)
    of_tensorflow.lay()
    garbage.watch()


class Norms(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):  # norms
        self.norm = batch


class More(Norms):
    def on_train_batch_end(self, batch, logs=None):  # more
        super().on_train_batch_end(batch, logs)
        gc.collect()


def nameless(function):
    def called(*arguments, **options):
        return function(*arguments, **options)

    return called


class Decorated(keras.callbacks.Callback):
    @nameless  # decorated
    def on_train_batch_end(self, batch, logs=None):
        pass


class Data(keras.utils.PyDataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):  # data
        return np.zeros((2, 3), "float32"), np.zeros((2, 1), "float32")


class Tracker:
    def log(self, batch, logs=None):  # method
        pass

    def __call__(self, epoch, logs=None):  # object
        pass


def logged(name, batch, logs=None):  # partial
    pass


def rows():  # rows
    yield np.zeros((2, 3), "float32"), np.zeros((2, 1), "float32")
    yield np.zeros((2, 3), "float32"), np.zeros((2, 1), "float32")


def batches():  # batches
    while True:
        yield np.zeros((2, 3), "float32"), np.zeros((2, 1), "float32")


def doubled(x):  # doubled
    return 2 * x


def tripled(x):  # tripled
    return np.float32(3) * x


def prepared(x, y):
    x = tf.numpy_function(tripled, [tf.py_function(doubled, [x], tf.float32)], tf.float32)
    return tf.ensure_shape(x, (2, 3)), y


def model(**options):
    made = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse", **options)  # compiled
    return made


first = model()
folder = tempfile.mkdtemp()


class OfRing(keras.callbacks.Callback):
    __module__ = "ringscope.ring.fit.joint_callbacks"

    def on_epoch_end(self, epoch, logs=None):
        pass


saves = keras.callbacks.ModelCheckpoint(folder + "/a.keras", save_freq=2)  # saves
lambdas = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: None)  # lambda
others = keras.callbacks.LambdaCallback(
    on_train_batch_end=Tracker().log, on_train_batch_begin=functools.partial(logged, "x"), on_epoch_end=Tracker()
)
callbacks = [Norms(), More(), saves, lambdas, others, Decorated(), OfRing()]
first.fit(Data(), validation_data=Data(), verbose=0, callbacks=callbacks)  # fit
first.fit(Data(workers=2), verbose=0)
first.fit(batches(), steps_per_epoch=2, verbose=0)
data = tf.data.Dataset.from_tensors((np.zeros((2, 3), "float32"), np.zeros((2, 1), "float32"))).map(prepared)
first.fit(data, verbose=0)
model(run_eagerly=True).fit(data, verbose=0)
later = model()
later.run_eagerly = True  # set later
later.fit(data, verbose=0)
eager_function_run.run_functions_eagerly(True)  # all eager
model().train_on_batch(*next(rows()))
tf.config.run_functions_eagerly(False)
spec = tf.TensorSpec((2, 3)), tf.TensorSpec((2, 1))
made = tf.data.Dataset.from_generator(rows, output_signature=spec)
first.fit(made, verbose=0)
for stages in (
    lambda: made.map(prepared, num_parallel_calls=2),  # parallel
    lambda: made.map(prepared).map(lambda x, y: (x, y), num_parallel_calls=2).batch(2),  # serial
    lambda: made.map(prepared).cache().map(lambda x, y: (x, y), 2),  # cached
):
    iterator = iter(stages())
    with of_tensorflow.pipeline():
        pass
assert More.on_train_batch_end.__name__ == "on_train_batch_end"
print(json.dumps(told))
