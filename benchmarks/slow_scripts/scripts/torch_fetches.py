import torch
from torch_common import BATCH, DEVICE, PIXELS, model, steps, train

pictures = torch.rand(BATCH, 3, PIXELS, PIXELS).to(DEVICE)


def norms():
    return [float(p.detach().cpu().double().norm()) for p in model.parameters()]  # the reason


for _ in steps():
    train(pictures)
    for _ in range(8):
        norms()
