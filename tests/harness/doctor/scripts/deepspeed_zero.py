"""DeepSpeed's ZeRO 2 with two groups of weights: the engine calls its optimizer once for each."""

import deepspeed
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(20, 32), torch.nn.ReLU(), torch.nn.Linear(32, 5))
data = torch.utils.data.TensorDataset(torch.rand(640, 20), torch.randint(0, 5, (640,)))
weights = [each for each in model.parameters() if each.ndim > 1]
biases = [each for each in model.parameters() if each.ndim == 1]
groups = [{"params": weights, "weight_decay": 0.01}, {"params": biases, "weight_decay": 0.0}]
engine, _, loader, _ = deepspeed.initialize(
    model=model,
    optimizer=torch.optim.Adam(groups, lr=0.01),
    training_data=data,
    config={"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "zero_optimization": {"stage": 2}},
)
for x, y in loader:
    engine.backward(torch.nn.functional.cross_entropy(engine(x), y))
    engine.step()
