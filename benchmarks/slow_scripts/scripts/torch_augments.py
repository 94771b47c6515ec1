import numpy as np
import torch
from torch_common import BATCH, DEVICE, PIXELS, steps, train

data = np.random.rand(BATCH, 3, PIXELS, PIXELS).astype("float32")


def augmented(batch):
    out = []
    for k in range(5000):  # the reason
        one = batch[k % len(batch)]  # the reason
        out.append(np.roll(one[:, ::-1], k % 5, axis=2))  # the reason
    return np.stack(out[: len(batch)])


for _ in steps():
    train(torch.from_numpy(augmented(data)).to(DEVICE))
