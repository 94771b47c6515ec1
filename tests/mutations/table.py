"""The sixty mutations. One whose text has gone is changed, to break a fact that people rely on as well."""

from __future__ import annotations

from dataclasses import dataclass

FIND = "profiles/steps/find.py"
CAUSES = "profiles/ledger/causes.py"
ACCOUNT = "profiles/ledger/account.py"
DOUBTS = "profiles/metrics/doubts.py"
GATE = "profiles/gate/baseline.py"
JUDGEMENT = "profiles/gate/judgement.py"
JOIN = "profiles/measuring/together.py"
FILE = "profiles/measuring/partial_file.py"
GRADIENTS = "ringscope/ring/gradients/average.py"
SHARING = "ringscope/ring/data/sharing.py"
SAMPLES = "ringscope/ring/data/samples.py"

OF_LEDGER = ("tests/profiles/ledger/test_ownership.py", "tests/profiles/measuring/test_analysis.py")
OF_STEPS = ("tests/profiles/steps/test_find.py", "tests/profiles/steps/test_cycles.py")
OF_CAUSES = ("tests/profiles/ledger/test_causes.py", "tests/profiles/ledger/test_ownership.py")
OF_DOUBTS = ("tests/profiles/measuring/test_analysis.py",)
OF_RANKS_DOUBTS = ("tests/profiles/metrics/test_collectives.py",)
OF_GATE = ("tests/profiles/gate/test_gate.py",)
OF_PARTIALS = ("tests/profiles/measuring/test_partials.py",)
OF_RANKS = ("tests/ring/test_ring.py",)
OF_ALIKE = ("tests/ring/alike/test_alike.py",)
OF_SHARES = ("tests/ring/data/test_samples.py", "tests/ring/data/test_sharing.py")


@dataclass(frozen=True, slots=True)
class Mutation:
    """`old` stands once in `file`. tests: the nearest ones, which are tried first."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def _before(order: tuple[int, ...]) -> str:
    """The classes that come before `owner`, were their order this one."""
    return f"for above in [one for kind, one in enumerate(busy_by_class) if {order}[kind] < {order}[owner]]:"


ALL = (
    # Who owns each nanosecond.
    Mutation(
        "ledger-h2d-before-collective",
        "profiles/ledger/ownership.py",
        "for above in busy_by_class[:owner]:",
        _before((0, 2, 1, 3, 4, 5, 6)),
        OF_LEDGER,
    ),
    Mutation(
        "ledger-d2d-before-p2p",
        "profiles/ledger/ownership.py",
        "for above in busy_by_class[:owner]:",
        _before((0, 1, 2, 3, 5, 4, 6)),
        OF_LEDGER,
    ),
    Mutation(
        "ledger-busy-time-outside-the-window",
        ACCOUNT,
        "window.part(busy[kind]).total",
        "busy[kind].total",
        OF_LEDGER,
    ),
    Mutation("ledger-clocks-of-hosts-as-they-are", ACCOUNT, "shift_ns[index] - origin)", "0)", OF_CAUSES),
    Mutation(
        "ledger-later-batches-count-as-this-steps",
        ACCOUNT,
        "intervals.union(books.operations.start_ns[which], books.operations.end_ns[which])\n"
        "        for which in (books.inputs.this_step, books.inputs.is_input)",
        "intervals.union(books.operations.start_ns[which], books.operations.end_ns[which])\n"
        "        for which in (books.inputs.is_input, books.inputs.is_input)",
        OF_LEDGER,
    ),
    Mutation(
        "ledger-memsets-known-though-not-recorded",
        ACCOUNT,
        '"memsets": (MEMSET,)}',
        '"memsets": ()}',
        OF_LEDGER,
    ),
    Mutation("ledger-other-copies-go-to-peers", "profiles/gpus/tables.py", '"other": D2D', '"other": P2P', OF_LEDGER),
    # Where the steps lie.
    Mutation(
        "steps-last-whole-by-more", FIND, "last_mark_end >= last_end[-1]", "last_mark_end > last_end[-1]", OF_STEPS
    ),
    Mutation("steps-a-break-from-four-medians", FIND, "BREAK_MEDIANS = 3", "BREAK_MEDIANS = 4", OF_STEPS),
    Mutation("steps-warm-up-above-a-fifth", FIND, "_WARM_UP_SHARE = 0.10", "_WARM_UP_SHARE = 0.20", OF_STEPS),
    Mutation(
        "steps-cut-by-a-pause-are-measured",
        "profiles/steps/pauses.py",
        "chosen(found, ~meets)",
        "found",
        ("tests/profiles/ledger/test_pauses.py",),
    ),
    Mutation(
        "steps-first-of-all-is-left-out",
        "profiles/steps/found.py",
        "found.step_number < number",
        "found.step_number <= number",
        OF_STEPS,
    ),
    Mutation(
        "steps-a-call-at-the-marks-start-is-its",
        "profiles/steps/marks.py",
        'sequence.call_start_ns[block], side="left") - 1',
        'sequence.call_start_ns[block], side="right") - 1',
        OF_STEPS,
    ),
    Mutation(
        "steps-four-cycles-are-a-period", "profiles/steps/period.py", "LEAST_CYCLES = 5", "LEAST_CYCLES = 4", OF_STEPS
    ),
    # Why a GPU was idle.
    Mutation(
        "causes-hand-over-shorter",
        CAUSES,
        "enders.prior_ns <= HAND_OVER_NS",
        "enders.prior_ns < HAND_OVER_NS",
        OF_CAUSES,
    ),
    Mutation(
        "causes-copies-late-by-their-calls-end",
        CAUSES,
        "np.where(is_copy, call_start, enders.call_end_ns)",
        "np.where(is_copy, enders.call_end_ns, enders.call_end_ns)",
        OF_CAUSES,
    ),
    Mutation(
        "causes-a-synchronisation-that-begins-as-it-runs-dry",
        CAUSES,
        "host.sync_start_ns[calls] <= dry_ns[spans]",
        "host.sync_start_ns[calls] < dry_ns[spans]",
        OF_CAUSES,
    ),
    Mutation(
        "causes-a-late-fetch-within-a-step-is-a-launch",
        CAUSES,
        "before_copy, enders.kind == D2H)",
        "before_copy, False)",
        OF_CAUSES,
    ),
    Mutation(
        "causes-any-threads-wait-for-input",
        CAUSES,
        "spans = mine[rows]",
        "spans = mine",
        OF_CAUSES,
    ),
    Mutation(
        "causes-early-copies-are-feed",
        CAUSES,
        "inputs.this_step[ender] & (call_start > dry.start)",
        "inputs.this_step[ender]",
        OF_CAUSES,
    ),
    # What is less than certain.
    Mutation(
        "doubts-sync-upper-bound-dropped",
        DOUBTS,
        'if (measured.batch_gap_ledger_ns or {}).get("idle_sync"):',
        "if False:",
        OF_DOUBTS,
    ),
    Mutation("doubts-two-processes-are-one", DOUBTS, "len(gpu.processes) > 1", "len(gpu.processes) > 2", OF_DOUBTS),
    Mutation(
        "doubts-warm-up-inside-dropped",
        DOUBTS,
        'measured.window == "capture" and steps.warm_up + steps.partial',
        "False",
        OF_DOUBTS,
    ),
    Mutation(
        "doubts-breaks-inside-dropped",
        DOUBTS,
        "if not measured.holds_steps_alone and steps.breaks:",
        "if False:",
        OF_DOUBTS,
    ),
    Mutation("doubts-missing-calls-dropped", DOUBTS, "elif 0 < launched <", "elif 0 > launched <", OF_DOUBTS),
    Mutation("doubts-missing-ranks-dropped", DOUBTS, "if seen < size and shared:", "if False:", OF_RANKS_DOUBTS),
    Mutation(
        "doubts-a-copy-too-fast-by-twice",
        "profiles/metrics/copies.py",
        "(moved > most * lasted)",
        "(moved > 2 * most * lasted)",
        OF_DOUBTS,
    ),
    # Budgets and baselines.
    Mutation(
        "gate-slack-doubled-for-shares",
        GATE,
        "* value + baseline.absolute_share",
        "* value + 2 * baseline.absolute_share",
        OF_GATE,
    ),
    Mutation("gate-slack-upwards-of-what-should-be-more", GATE, "value - slack", "value + slack", OF_GATE),
    Mutation("gate-best-gpu-for-the-worst", "profiles/gate/metrics.py", "pick(((v, g) for", "min(((v, g) for", OF_GATE),
    Mutation(
        "gate-at-its-limit-is-broken",
        "profiles/gate/checks.py",
        "metric.value <= limit if",
        "metric.value < limit if",
        OF_GATE,
    ),
    Mutation("gate-unjudged-before-broken", JUDGEMENT, "in (BROKEN, UNJUDGED)", "in (UNJUDGED, BROKEN)", OF_GATE),
    Mutation("gate-any-machine", GATE, "if list(baseline.gpus) != mine:", "if False:", OF_GATE),
    Mutation("gate-any-batch", GATE, 'cell.split("-")[:3]', 'cell.split("-")[:2]', OF_GATE),
    # What recordings say each by itself.
    Mutation(
        "partials-held-though-steps-move-on",
        JOIN,
        "            return False\n    return True",
        "            return True\n    return True",
        OF_PARTIALS,
    ),
    Mutation(
        "partials-held-though-steps-move-back",
        JOIN,
        "max(was, now) > gpu.first_step",
        "now > gpu.first_step",
        OF_PARTIALS,
    ),
    Mutation(
        "partials-a-ranks-file-forgotten",
        JOIN,
        "(_Gpu(unit, number) for unit in units ",
        "(_Gpu(unit, number) for unit in units[:-1] ",
        OF_PARTIALS,
    ),
    Mutation("partials-of-another-window", FILE, "if head.window != asked.window:", "if False:", OF_PARTIALS),
    Mutation("partials-of-another-version", FILE, " or head.version != VERSION:", ":", OF_PARTIALS),
    Mutation(
        "partials-doubts-of-files-lost",
        JOIN,
        "raised = [*unread, *(doubt for one in recorded for doubt in one.doubts)]",
        "raised = [*unread]",
        OF_PARTIALS,
    ),
    Mutation(
        "partials-given-twice-counted-twice",
        "profiles/measuring/analysis.py",
        "        _refuse_twice(units, sources)\n",
        "",
        OF_PARTIALS,
    ),
    # Means over ranks.
    Mutation(
        "averaging-logs-summed",
        "ringscope/ring/exchange.py",
        "zip(names, total / hvd.size(), strict=True)",
        "zip(names, total, strict=True)",
        OF_RANKS,
    ),
    Mutation(
        "averaging-weights-of-rank-1",
        "ringscope/ring/alike/begin.py",
        "hvd.broadcast(own, root_rank=0, name=",
        "hvd.broadcast(own, root_rank=1, name=",
        OF_RANKS,
    ),
    Mutation(
        "averaging-gradients-summed",
        GRADIENTS,
        '{"average": hvd.Average, "sum"',
        '{"average": hvd.Sum, "sum"',
        OF_RANKS,
    ),
    Mutation("averaging-bfloat16-summed", GRADIENTS, "mean = tf.reduce_mean(", "mean = tf.reduce_sum(", OF_RANKS),
    Mutation(
        "averaging-statistics-of-one-rank",
        "ringscope/ring/global_batch/moving_statistics.py",
        "tf.where(differs, _over_ranks(",
        "tf.where(~differs, _over_ranks(",
        OF_RANKS,
    ),
    Mutation(
        "averaging-steps-summed",
        "ringscope/ring/gradients/aggregate.py",
        "else t / every for",
        "else t for",
        ("tests/ring/gradients/test_aggregate.py",),
    ),
    Mutation(
        "averaging-rows-numbers-divided",
        "ringscope/ring/gradients/embedding_rows.py",
        "(hvd.size() if self._averages else 1)",
        "1",
        ("tests/ring/gradients/test_embedding_rows.py::test_all_ranks_rows_make_the_tables_gradient",),
    ),
    # Which data is a rank's.
    Mutation(
        "shares-unlike-counts-of-samples", SAMPLES, "range(rank, usable, size)", "range(rank, samples, size)", OF_SHARES
    ),
    Mutation(
        "shares-the-same-batch-twice",
        "ringscope/ring/data/py_datasets.py",
        "self._start + index * self._step",
        "index * self._step",
        OF_SHARES,
    ),
    Mutation(
        "shares-rank-0s-for-all", SHARING, "own = dataset.shard(size, rank)", "own = dataset.shard(size, 0)", OF_SHARES
    ),
    Mutation(
        "shares-groups-of-rank-0",
        "ringscope/ring/data/upstream.py",
        "samples * size, samples * rank, samples",
        "samples * size, 0, samples",
        OF_SHARES,
    ),
    Mutation(
        "shares-a-group-that-is-not-whole",
        "ringscope/ring/data/upstream.py",
        "drop_remainder=whole).flat_map(own)",
        "drop_remainder=False).flat_map(own)",
        OF_SHARES,
    ),
    Mutation(
        "shares-steps-not-divided",
        SHARING,
        'options["steps_per_epoch"] // size)',
        'options["steps_per_epoch"])',
        OF_SHARES,
    ),
    # What would be wrong in silence.
    Mutation(
        "refusals-an-id-one-too-large",
        "ringscope/ring/data/ids.py",
        "highest >= self.rows",
        "highest > self.rows",
        ("tests/ring/data/test_ids.py",),
    ),
    Mutation(
        "refusals-unlike-steps",
        "ringscope/ring/fit/step_counts.py",
        "len({count for _, count in known}) > 1",
        "len({count for _, count in known}) > 2",
        OF_ALIKE,
    ),
    Mutation("refusals-fewer-samples-than-ranks", SAMPLES, "if not usable:", "if False:", OF_SHARES),
    Mutation(
        "refusals-weights-that-differ-in-the-last",
        "ringscope/ring/alike/weights.py",
        "    if odd:\n        narrow",
        "    if False:\n        narrow",
        OF_ALIKE,
    ),
    Mutation(
        "refusals-two-percent-written-as-2",
        JUDGEMENT,
        "if name in (*RECORDED, of_logs.WAITING) and not 0 <= limit <= 1:",
        "if False:",
        OF_GATE,
    ),
    Mutation(
        "refusals-data-of-another-order",
        "ringscope/ring/alike/data.py",
        "        if not differing:\n            continue",
        "        if True:\n            continue",
        OF_ALIKE,
    ),
)
