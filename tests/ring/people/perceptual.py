"""Pictures made alike by a frozen network's features and their Gram matrices, SSIM, total variation: an autoencoder's
losses by functions that hold another model.

joined: 5e-5, sums in another order
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from ringscope import ring

ring.init(seed=93)
features = keras.Sequential([keras.Input((12, 12, 3)), layers.Conv2D(4, 3, activation="relu"), layers.Conv2D(4, 3)])
features.trainable = False


def gram(f):
    return tf.einsum("bijc,bijd->bcd", f, f) / tf.cast(tf.shape(f)[1] * tf.shape(f)[2], tf.float32)


def perceptual(y, p):
    fy, fp = features(y), features(p)
    content = tf.reduce_mean(tf.square(fy - fp))
    style = tf.reduce_mean(tf.square(gram(fy) - gram(fp)))
    return content + 0.1 * style + 1e-3 * tf.reduce_mean(tf.image.total_variation(p))


def similar(y, p):
    return 1 - tf.reduce_mean(tf.image.ssim(y, p, 1.0, filter_size=5))


def charbonnier(y, p):
    return (
        tf.reduce_mean(tf.sqrt(tf.square(y - p) + 1e-6), axis=[1, 2, 3])
        + tf.reduce_mean(tf.image.psnr(y, p, 1.0)) * -1e-3
    )


pictures = np.random.rand(32, 12, 12, 3).astype("float32") * np.linspace(0.2, 1, 32)[:, None, None, None].astype(
    "float32"
)
models = []
for loss in (perceptual, similar, charbonnier):
    model = keras.Sequential(
        [
            keras.Input((12, 12, 3)),
            layers.Conv2D(4, 3, padding="same", activation="relu"),
            layers.Conv2D(3, 3, padding="same", activation="sigmoid"),
        ]
    )
    model.compile(keras.optimizers.SGD(0.1), loss)
    ring.distribute(model)
    model.fit(pictures * 0.9, pictures, batch_size=int(sys.argv[1]), epochs=2, shuffle=False, verbose=0)
    models.append(model)
