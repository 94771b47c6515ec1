import os
import queue
import threading
import time

import torch

torch.cuda.set_device(int(os.environ.get("RINGSCOPE_RANK", "0")) % torch.cuda.device_count())
layers = [torch.nn.Conv2d(3 if k == 0 else 256, 256, 3, padding=1) for k in range(6)]
model = torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(256, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
pictures, labels = torch.rand(256, 3, 32, 32).cuda(), torch.randint(10, (256,)).cuda()
replies = queue.Queue(1)


def replies_slowly():
    while True:
        time.sleep(0.08)
        replies.put(1)


threading.Thread(target=replies_slowly, daemon=True).start()
for step in range(100_000):
    torch.cuda.nvtx.range_push(f"step {step}")
    replies.get()  # the reason
    loss = torch.nn.functional.cross_entropy(model(pictures), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.cuda.nvtx.range_pop()
    if os.path.exists(os.environ.get("RINGSCOPE_END", "/nowhere")):
        break
