"""Attention over a graph that the model holds, trained on batches of its nodes: `call` takes no batch.

joined: 1e-3, sums over edges
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from ringscope import ring

ring.init(seed=4)


class GraphAttention(layers.Layer):
    def __init__(self, units):
        super().__init__()
        self.units = units

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[0][-1], self.units), name="kernel")
        self.attention = self.add_weight(shape=(self.units * 2, 1), name="attention")
        self.built = True

    def call(self, inputs):
        states, edges = inputs
        states = tf.matmul(states, self.kernel)
        pairs = tf.reshape(tf.gather(states, edges), (tf.shape(edges)[0], -1))
        scores = tf.exp(tf.clip_by_value(tf.squeeze(tf.nn.leaky_relu(tf.matmul(pairs, self.attention)), -1), -2, 2))
        total = tf.math.unsorted_segment_sum(scores, edges[:, 0], tf.reduce_max(edges[:, 0]) + 1)
        scores = scores / tf.repeat(total, tf.math.bincount(tf.cast(edges[:, 0], "int32")))
        near = tf.gather(states, edges[:, 1]) * scores[:, tf.newaxis]
        return tf.math.unsorted_segment_sum(near, edges[:, 0], tf.shape(states)[0])


class GraphAttentionNetwork(keras.Model):
    def __init__(self, states, edges):
        super().__init__()
        self.states, self.edges = states, edges
        self.preprocess = layers.Dense(8, activation="relu")
        self.attentions = [GraphAttention(8) for _ in range(2)]
        self.output_layer = layers.Dense(3)

    def call(self, inputs):
        states, edges = inputs
        x = self.preprocess(states)
        for attention in self.attentions:
            x = attention([x, edges]) + x
        return self.output_layer(x)

    def train_step(self, data):
        indices, labels = data
        with tf.GradientTape() as tape:
            outputs = tf.gather(self([self.states, self.edges]), indices)
            loss = self.compute_loss(y=labels, y_pred=outputs)
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights))
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(labels, outputs)
        return {metric.name: metric.result() for metric in self.metrics}


nodes = np.arange(64)
pairs = np.concatenate([np.random.randint(0, 64, (300, 2)), np.stack([nodes, nodes], axis=1)])
edges = tf.convert_to_tensor(pairs[np.argsort(pairs[:, 0], kind="stable")])
model = GraphAttentionNetwork(tf.convert_to_tensor(np.random.rand(64, 5).astype("float32")), edges)
model.compile(
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    optimizer=keras.optimizers.SGD(0.1, momentum=0.9),
    metrics=[keras.metrics.SparseCategoricalAccuracy(name="acc")],
)
ring.distribute(model)
labels = np.random.randint(0, 3, 64)
history = model.fit(x=nodes, y=labels, batch_size=int(sys.argv[1]), epochs=2, shuffle=False)
