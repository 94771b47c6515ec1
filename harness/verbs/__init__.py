"""The verbs that make training runs happen: argument parsing and nothing else."""

VERBS = {
    "doctor": (
        "harness.verbs.doctor",
        "What is here and does it work; do the ranks really train together.",
    ),
    "bench": (
        "harness.verbs.bench",
        "Train a grid of cells under Horovod and report how it scales.",
    ),
    "train": ("harness.verbs.train", "Train one cell."),
    "fits": ("harness.verbs.fits", "The largest batch that fits into memory, and what would make more fit."),
    "rules": ("harness.verbs.rules", "Rules of thumb, each measured on this machine."),
    "infer": ("harness.verbs.infer", "What answers cost: CPU or GPU, replicas, requests in batches."),
    "record": ("harness.verbs.record", "The same, or any command of yours, under a profiler."),
}
