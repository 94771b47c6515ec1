"""The verbs that make training runs happen: argument parsing and nothing else."""

VERBS = {
    "doctor": ("harness.verbs.doctor", "Check what is here, whether it works, and whether the ranks train together."),
    "bench": ("harness.verbs.bench", "Train a grid of cells under Horovod and report how it scales."),
    "train": ("harness.verbs.train", "Train one cell."),
    "fits": ("harness.verbs.fits", "Find the largest batch that fits into memory, and what would make more fit."),
    "rules": ("harness.verbs.rules", "Measure rules of thumb on this machine."),
    "infer": ("harness.verbs.infer", "Measure what inference costs: CPU or GPU, replicas, requests in batches."),
    "record": ("harness.verbs.record", "Record a cell, or any command of yours, under a profiler."),
}
