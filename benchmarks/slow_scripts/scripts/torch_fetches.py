import os

import torch

torch.cuda.set_device(int(os.environ.get("RINGSCOPE_RANK", "0")) % torch.cuda.device_count())
layers = [torch.nn.Conv2d(3 if k == 0 else 256, 256, 3, padding=1) for k in range(6)]
model = torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(256, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
pictures, labels = torch.rand(256, 3, 32, 32).cuda(), torch.randint(10, (256,)).cuda()


def norms():
    return [float(p.detach().cpu().double().norm()) for p in model.parameters()]  # the reason


for step in range(100_000):
    torch.cuda.nvtx.range_push(f"step {step}")
    loss = torch.nn.functional.cross_entropy(model(pictures), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for _ in range(8):
        norms()
    torch.cuda.nvtx.range_pop()
    if os.path.exists(os.environ.get("RINGSCOPE_END", "/nowhere")):
        break
