from ringscope import ring

ring.init()

from common import STEPS, dataset, loss, network

# `other_program.py` computes on the last rank's GPU meanwhile.
model = network()
model.compile("adam", loss())
ring.distribute(model)
model.fit(dataset(), steps_per_epoch=STEPS, verbose=0)
