import os

import numpy as np
import torch

torch.cuda.set_device(int(os.environ.get("RINGSCOPE_RANK", "0")) % torch.cuda.device_count())
layers = [torch.nn.Conv2d(3 if k == 0 else 256, 256, 3, padding=1) for k in range(6)]
model = torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(256, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
data, labels = np.random.rand(256, 3, 32, 32).astype("float32"), torch.randint(10, (256,)).cuda()


def augmented(batch):
    out = []
    for k in range(20 * len(batch)):  # the reason
        one = batch[k % len(batch)]  # the reason
        out.append(np.roll(one[:, ::-1], k % 5, axis=2))  # the reason
    return np.stack(out[: len(batch)])


for step in range(100_000):
    torch.cuda.nvtx.range_push(f"step {step}")
    pictures = torch.from_numpy(augmented(data)).cuda()
    loss = torch.nn.functional.cross_entropy(model(pictures), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.cuda.nvtx.range_pop()
    if os.path.exists(os.environ.get("RINGSCOPE_END", "/nowhere")):
        break
