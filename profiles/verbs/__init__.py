"""The verbs that need no training: argument parsing and nothing else."""

VERBS = {
    "timeline": (
        "profiles.verbs.timeline",
        "Measure recordings: where every nanosecond of every GPU went.",
    ),
    "compare": (
        "profiles.verbs.compare",
        "What changed between two runs or recordings, and is it more than noise.",
    ),
    "gate": (
        "profiles.verbs.gate",
        "Budgets and baselines for CI: exit 0 holds, 1 broken, 2 cannot be judged.",
    ),
    "report": ("profiles.verbs.report", "A run directory again, as a page."),
}
