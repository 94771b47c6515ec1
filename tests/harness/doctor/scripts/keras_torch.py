"""A Keras model on PyTorch under torchrun; its train_step calls the wrapper, or with `inside` itself."""

import os
import sys

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
keras.utils.set_random_seed(3)


class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden, self.last = keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)
        self.drop = keras.layers.Dropout(0.1)

    def call(self, x, training=False):
        return self.last(self.drop(self.hidden(x), training=training))

    def train_step(self, data):
        x, y = data
        self.zero_grad()
        y_pred = self(x, training=True) if sys.argv[1] == "inside" else wrapper[0](x, training=True)
        loss = self.compute_loss(y=y, y_pred=y_pred)
        loss.backward()
        weights = self.trainable_weights
        with torch.no_grad():
            self.optimizer.apply([v.value.grad for v in weights], weights)
        self._loss_tracker.update_state(loss, sample_weight=x.shape[0])
        return self.compute_metrics(x, y, y_pred)


model = Model()
model.compile(keras.optimizers.SGD(0.05), "mse")
x = np.random.RandomState(1).normal(size=(256, 8)).astype("float32")[rank::size]
model(x[:1])
wrapper = [torch.nn.parallel.DistributedDataParallel(model)]
model.fit(x, x[:, :1], batch_size=16, verbose=0)
dist.destroy_process_group()
