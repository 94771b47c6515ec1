"""A loop that sends the first weights by Horovod, as its example for TensorFlow 2 has it.

refused: remove hvd.broadcast_variables from the script
"""

import horovod.tensorflow as hvd
import keras
import tensorflow as tf

from ringscope import ring

ring.init(seed=69)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd")
ring.distribute(model)
with tf.GradientTape() as tape:
    loss = tf.reduce_mean(model(tf.ones((8, 4))) ** 2)
model.optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
hvd.broadcast_variables(model.variables, root_rank=0)
