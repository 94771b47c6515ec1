"""The verbs that need no training: argument parsing and nothing else."""

VERBS = {
    "timeline": ("profiles.verbs.timeline", "Measure recordings: where every nanosecond of every GPU went."),
    "check": ("profiles.verbs.check", "Can these recordings be trusted: exit 0 yes, 1 with care, 2 no."),
    "cut": ("profiles.verbs.cut", "Write a smaller recording: some steps, a span of time, nothing private."),
    "compare": ("profiles.verbs.compare", "Compare two runs or recordings: what changed, and is it more than noise."),
    "predict": ("profiles.verbs.predict", "Predict what more GPUs and hosts would do."),
    "gate": ("profiles.verbs.gate", "Check budgets and baselines in CI: exit 0 holds, 1 broken, 2 cannot be judged."),
    "report": ("profiles.verbs.report", "Show a run directory again, also as a page."),
}
