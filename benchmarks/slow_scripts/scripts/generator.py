from ringscope import ring

ring.init()

import time

from common import SLOW_S, STEPS, images, loss, network


def batches():  # the reason
    while True:
        time.sleep(SLOW_S)  # the reason
        yield images()


model = network()
model.compile("adam", loss())
ring.distribute(model)
model.fit(batches(), steps_per_epoch=STEPS // 2, verbose=0, shard=False)
