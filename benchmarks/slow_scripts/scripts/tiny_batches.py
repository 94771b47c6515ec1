from ringscope import ring

ring.init()

from common import STEPS, dataset, loss, network

model = network(width=16)
model.compile("adam", loss())
ring.distribute(model)
model.fit(dataset(batch=1), steps_per_epoch=4 * STEPS, verbose=0)
