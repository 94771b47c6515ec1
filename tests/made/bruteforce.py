"""The ledger again in plain Python loops, from the words of docs/reference/measures.md; shares no code with `profiles`.

Slow on purpose: every elementary stretch of time is looked at by itself, every rule is an `if`. Understands one GPU
given as places (recording, device number), with times shifted per recording.
"""

from __future__ import annotations

import bisect
import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cache

# Typed by hand, of what lies in recordings: the product's own table is wider, and looks at functions alone.
EXCHANGES = re.compile(
    r"^(void )?(_Z\w*\d)?[nr]ccl|multimem_(one_shot_)?all_reduce|(one|two)_shot_all_reduce|cross_device_reduce_"
    r"|all_reduce_kernel_oneshot"
)
CLASS_NAMES = ["compute", "collective", "h2d", "d2h", "p2p", "d2d", "memset"]
CAUSE_NAMES = ["pause", "feed", "peers", "sync", "launch", "turnaround", "wait", "unknown"]


@dataclass
class Op:
    start: int
    end: int
    owner: str
    process: tuple[int, int]  # recording, pid
    stream: tuple
    call: tuple[int, int] | None
    size: int = 0
    kernel: bool = False
    thread: int | None = None


@dataclass
class Call:
    start: int
    end: int
    name: str


def all_operations(timelines, places, shifts):
    """Every operation of the GPU, in order of start, class, and place in its table."""
    origin = shifts[places[0][0]]
    found = []
    for index, device in places:
        timeline, shift = timelines[index], shifts[index] - origin
        calls = {}
        columns = (timeline.api[name].tolist() for name in ("pid", "correlation", "start_ns", "end_ns", "tid"))
        for pid, correlation, start, end, thread in zip(*columns, strict=True):
            key = (pid, correlation)
            if correlation >= 0 and (key not in calls or start < calls[key][0]):
                calls[key] = (start, end, thread)
        for table in ("kernels", "graphs", "copies", "memsets"):
            rows = getattr(timeline, table)
            for row in rows[rows["device"] == device].to_dict("records"):
                if table == "kernels":
                    owner = "collective" if EXCHANGES.search(row["name"]) else "compute"
                elif table == "copies":
                    owner = {"other": "d2d"}.get(row["kind"], row["kind"])
                else:
                    owner = "compute" if table == "graphs" else "memset"
                if owner == "h2h":
                    continue
                call = calls.get((row["pid"], row["correlation"]))
                found.append(
                    Op(
                        start=row["start_ns"] + shift,
                        end=row["end_ns"] + shift,
                        owner=owner,
                        process=(index, row["pid"]),
                        stream=(index, row["pid"], row["context"], row["stream"]),
                        call=None if call is None else (call[0] + shift, call[1] + shift),
                        size=row.get("bytes", 0),
                        kernel=table in ("kernels", "graphs"),
                        thread=None if call is None else call[2],
                    )
                )
    return sorted(found, key=lambda op: (op.start, CLASS_NAMES.index(op.owner)))


def owners_by_class(ops, window):
    """[(start, end, class or None)]: the window, cut wherever an operation starts or ends."""
    edges = sorted({window[0], window[1]} | {t for op in ops for t in (op.start, op.end) if window[0] < t < window[1]})
    opening, closing = defaultdict(list), defaultdict(list)
    for op in ops:
        if op.end > op.start:
            opening[max(op.start, window[0])].append(op.owner)
            closing[op.end].append(op.owner)
            if op.end <= window[0]:
                opening[max(op.start, window[0])].pop()
                closing[op.end].pop()
    active = dict.fromkeys(CLASS_NAMES, 0)
    pieces = []
    for start, end in zip(edges[:-1], edges[1:], strict=True):
        for name in opening[start]:
            active[name] += 1
        for name in closing[start]:
            active[name] -= 1
        for name in CLASS_NAMES:
            if active[name]:
                pieces.append((start, end, name))
                break
        else:
            pieces.append((start, end, None))
    return pieces


def idle_spans(ops, first, last):
    """Maximal stretches of [first, last) in which nothing runs."""
    spans = []
    reach = first
    for op in ops:
        if op.end == op.start:
            continue
        if op.start > reach:
            spans.append((reach, op.start))
        reach = max(reach, op.end)
    if reach < last:
        spans.append((reach, last))
    return spans


def is_synchronising(name):
    if re.match(r"(cu|cuda|hip)(Ctx|Device|Thread|Stream|Event)Synchronize", name):
        return True
    return name.startswith(("cudaMemcpy", "cuMemcpy", "hipMemcpy")) and "Async" not in name


def is_waiting_for_input(name):
    if name in ("wait input", "IteratorGetNext", "IteratorGetNextOp::DoCompute"):
        return True
    if name.startswith(("IteratorGetNext:", "IteratorGetNextOp::DoCompute:", "enumerate(DataLoader)#")):
        return True
    if name.startswith(("[pl][profile]", "[pl][module]")):
        return name.endswith("train_dataloader_next") or "fetch_next" in name
    plain = re.sub("[ _-]", "", name.lower().strip("# "))
    loads = {batch + load for batch in ("data", "batch") for load in ("load", "loading", "loader")}
    gets = {get + batch for batch in ("data", "batch") for get in ("load", "get", "fetch", "next")}
    waits = {wait + "for" + what for wait in ("wait", "waiting") for what in ("data", "input", "batch")}
    return plain in loads | gets | waits


def batch_of(op, batches):
    """N of the `batch N` range (start, end, thread, N) that the operation was launched in, or None."""
    if op.owner != "h2d" or op.call is None:
        return None
    found = None
    for thread in sorted({one[2] for one in batches}):
        if thread != op.thread and -1 not in (thread, op.thread):
            continue
        begun = [one for one in batches if one[2] == thread and one[0] <= op.call[0]]
        if begun and op.call[0] < max(begun, key=lambda one: one[0])[1]:
            found = max(begun, key=lambda one: one[0])[3]
    return found


def is_next_or_running(op, number, names, starts, last_ends):
    """Does the step called `number` run when the copy starts, or come next with its batch gap open?"""
    running = sum(t <= op.start for t in starts) - 1
    if running >= 0 and names[running] == number:
        return True
    if (names + [names[-1] + 1])[running + 1] != number:
        return False
    return running < 0 or (len(last_ends) > 0 and op.start >= last_ends[running])


def feeding_by_batches(ops, steps, numbered):
    """The same as `feeding` where {id(op): N} is known of some."""
    starts, names = [int(t) for t in steps.all_start_ns], [int(n) for n in steps.all_number]
    numbered = dict(numbered)
    for size in {op.size for op in ops if id(op) in numbered and op.size >= 4096}:
        alike = [op for op in ops if op.owner == "h2d" and op.size == size]
        ahead = {numbered[id(op)] - place for place, op in enumerate(alike) if id(op) in numbered}
        if len(ahead) == 1:
            (first,) = ahead
            numbered |= {id(op): place + first for place, op in enumerate(alike) if place + first >= 0}
    this_step = {
        id(op)
        for op in ops
        if id(op) in numbered and is_next_or_running(op, numbered[id(op)], names, starts, steps.all_last_kernel_end_ns)
    }
    return set(numbered), this_step, True


def in_the_way(ops, copies, starts, last_ends):
    """Do these copies, but for one in ten or one, come in batch gaps, on the stream of most kernels that compute?"""
    computing = [op.stream for op in ops if op.kernel and op.owner == "compute"]
    if not len(last_ends) or not computing:
        return False
    met = list(dict.fromkeys(op.stream for op in ops))
    busiest = max(met, key=computing.count)  # of equals the one met first
    seen = []
    for op in copies:
        running = sum(t <= op.start for t in starts) - 1
        if running >= 1:
            seen.append(op.start >= last_ends[running] and op.stream == busiest)
    return len(seen) > 1 and seen.count(False) <= max(1, len(seen) // 10)


def feeding(ops, steps, iterator_ranges, batches=None):
    """(input copies, those for the step about to start or already started, certain) as sets of ids, or None."""
    numbered = {id(op): batch_of(op, batches[op.process]) for op in ops} if batches else {}
    numbered = {op: number for op, number in numbered.items() if number is not None}
    if any(number in steps.all_number.tolist() for number in numbered.values()):
        return feeding_by_batches(ops, steps, numbered)
    starts = [int(t) for t in steps.all_start_ns]
    if len(starts) < 3:
        return None
    after_first = list(zip(starts[1:-1], starts[2:], strict=True))
    lengths = sorted(b - a for a, b in after_first)
    half = len(lengths) // 2
    median = lengths[half] if len(lengths) % 2 else (lengths[half - 1] + lengths[half]) / 2
    by_size = defaultdict(list)
    for op in ops:
        if op.owner == "h2d" and op.size >= 4096:
            by_size[op.size].append(op)
    inputs, this_step, certain = set(), set(), True
    for size, copies in by_size.items():
        counts = []
        back = sum(op.owner == "d2h" and op.size == size and op.call is not None for op in ops)
        there = sum(op.call is not None for op in copies)
        if getattr(steps, "learns", False) and there and back and abs(there - back) <= 0.1 * max(there, back):
            continue
        for a, b in after_first:
            if b - a <= 3 * median:
                counts.append(sum(a <= op.start < b for op in copies))
        ordered = sorted(counts)
        half = len(ordered) // 2
        middle = ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
        some = max(1, len(counts) // 10)
        if middle not in range(1, 9):
            continue
        each = int(middle)
        if abs(sum(counts) - each * len(counts)) > each * some and sum(n != each for n in counts) > some:
            continue
        inputs |= {id(op) for op in copies}
        if iterator_ranges or in_the_way(ops, copies, starts, steps.all_last_kernel_end_ns):
            this_step |= {id(op) for op in copies}
            continue
        ahead, batches_of = set(), defaultdict(list)
        for i, op in enumerate(copies):
            running = sum(t <= op.start for t in starts) - 1
            batches_of[i // each].append(running)
            if 1 <= running < len(starts) - 1:
                ahead.add(i // each - running)
        parted = [seen[0] != seen[-1] for seen in batches_of.values() if len(seen) == each]
        too_late = any(op.end > starts[i // each + 1] for i, op in enumerate(copies) if i // each + 1 < len(starts))
        too_few = len(copies) <= each * len(starts)
        if too_few or too_late or sum(parted) > 0.1 * len(parted) or not ahead or max(ahead) - min(ahead) > 1:
            certain = False
            continue
        for i, op in enumerate(copies):
            running = sum(t <= op.start for t in starts) - 1
            if i // each == running:
                this_step.add(id(op))
            elif i // each == running + 1:
                gaps_known = len(steps.all_last_kernel_end_ns) > 0
                if running < 0 or (gaps_known and op.start >= steps.all_last_kernel_end_ns[running]):
                    this_step.add(id(op))
    return inputs, this_step if certain else set(), certain


def told_of(timeline, pid):
    """[(library, start, end, thread)] of the ranges in which a process hands over its part of an exchange."""
    found = []
    for row in timeline.exchanges.to_dict("records"):
        if row["pid"] == pid:
            stop = float("inf") if row["open"] else row["end_ns"]
            found.append((row["library"], row["start_ns"], stop, row["tid"]))
    exchange = r"Thunk:.*(all-?reduce|reduce-?scatter|all-?gather|all-?to-?all|collective|custom-call)"
    for row in timeline.marks.to_dict("records"):
        if row["pid"] == pid and re.match(exchange, row["name"]):
            found.append(("XLA", row["start_ns"], row["end_ns"], row["tid"]))
    return found


def processes_of(timelines, places):
    """The (recording, pid) whose rows name the GPU, also where these have no length, or copy within the host."""
    tables = ("kernels", "graphs", "copies", "memsets")
    rows = ((index, getattr(timelines[index], table), device) for index, device in places for table in tables)
    return {(index, pid) for index, table, device in rows for pid in table.loc[table["device"] == device, "pid"]}


def last_ends_before(ops):
    """id(op) -> latest end of the operations before it in order on its stream, None for the first."""
    reach, found = {}, {}
    for op in ops:
        found[id(op)] = reach.get(op.stream)
        reach[op.stream] = max(reach.get(op.stream, op.end), op.end)
    return found


def lacking_spans(timelines, places, shifts):
    """[(from, to)] in which an operation without a time may have run: between its neighbours by call on its stream."""
    found, lacking = [], []
    for index, device in places:
        rows = getattr(timelines[index], "untimed", None)
        lacking.append([] if rows is None else rows[rows["device"] == device].to_dict("records"))
    ops = all_operations(timelines, places, shifts) if any(lacking) else []
    end_of_all = max((op.end for op in ops), default=0)
    for (index, _), rows in zip(places, lacking, strict=True):
        shift = shifts[index] - shifts[places[0][0]]
        for row in rows:
            api = timelines[index].api
            calls = api[(api["pid"] == row["pid"]) & (api["correlation"] == row["correlation"])]
            if row["correlation"] < 0 or not len(calls):
                continue
            call = int(calls["start_ns"].min()) + shift
            theirs = [op for op in ops if op.process == (index, row["pid"]) and op.call is not None]
            stream = (index, row["pid"], row["context"], row["stream"])
            if any(op.stream == stream for op in ops):
                theirs = [op for op in theirs if op.stream == stream]
            begun = max([call, *(op.end for op in theirs if op.call[0] < call)])
            stop = min([op.start for op in theirs if op.call[0] > call], default=max(end_of_all, call))
            if begun < stop:
                found.append((begun, stop))
    return found


class BruteForce:
    """The ledger of one GPU. `pieces`: [(start, end, owner name)] that fill the window."""

    def __init__(self, timelines, places, steps, window, shifts=None, off_clock=False, others=None):
        """`others`: of each collective, in order of end, when the last other rank had handed over; None: not known."""
        shifts = shifts or [0] * len(timelines)
        origin = shifts[places[0][0]]
        self.window = window
        self.steps = steps
        self.ops = [op for op in all_operations(timelines, places, shifts) if op.end > op.start]
        for op in self.ops:
            op.call = None if off_clock else op.call
        self.syncs, self.waits, batches = defaultdict(list), defaultdict(list), defaultdict(list)
        ranges = False
        self.pauses = []
        for process in processes_of(timelines, places):
            index, pid = process
            shift = shifts[index] - origin
            api = timelines[index].api
            names = {name for name in api["name"].unique() if is_synchronising(name)}
            for row in api[(api["pid"] == pid) & api["name"].isin(names)].to_dict("records"):
                self.syncs[process].append(Call(row["start_ns"] + shift, row["end_ns"] + shift, row["name"]))
            for row in timelines[index].marks.to_dict("records"):
                if row["pid"] != pid:
                    continue
                name = row["name"]
                if row["domain"] == "ringscope" and re.fullmatch(r"batch \d+", name):
                    end = float("inf") if row["open"] else row["end_ns"] + shift
                    batches[process].append((row["start_ns"] + shift, end, row["tid"], int(name[6:])))
                if row["domain"] == "ringscope" and name.startswith("paused ") and not off_clock:
                    ended = row["start_ns"] + shift
                    self.pauses.append((ended - int(name.split()[1]), ended))
                ranges |= name.endswith("_IteratorGetNext#")
                if is_waiting_for_input(name):
                    self.waits[process].append((row["start_ns"] + shift, row["end_ns"] + shift, row["tid"]))
        self.inputs = feeding(self.ops, steps, ranges, batches)
        self.prior = last_ends_before(self.ops)
        self.fetches = [op for op in self.ops if op.owner == "d2h"]
        self.starts = [op.start for op in self.ops]
        ends = sorted((op for op in self.ops if op.owner == "collective"), key=lambda op: op.end)
        self.others = {id(op): when for op, when in zip(ends, others or [], strict=False)}
        self.collectives = ends
        processes = processes_of(timelines, places)
        self.told = cache(lambda process: told_of(timelines[process[0]], process[1]) if process in processes else [])
        self.lacking = [] if off_clock else lacking_spans(timelines, places, shifts)
        self.pieces = self._pieces()

    def _pieces(self):
        pieces = [piece for piece in owners_by_class(self.ops, self.window) if piece[2] is not None]
        first = min([self.window[0], *(op.start for op in self.ops)])
        last = max([self.window[1], *(op.end for op in self.ops)])
        for start, end in idle_spans(self.ops, first, last):
            for a, b, cause in self._split(start, end):
                a, b = max(a, self.window[0]), min(b, self.window[1])
                if a < b:
                    pieces.append((a, b, f"idle_{cause}"))
        return sorted(pieces)

    def _split(self, dry, end):
        """The idle span [dry, end) as [(start, end, cause)]."""
        if not self.pauses:
            yield from self._without_pauses(dry, end)
            return
        edges = {t for pause in self.pauses for t in pause}
        for start, stop, cause in self._without_pauses(dry, end):
            cuts = sorted({start, stop} | {t for t in edges if start < t < stop})
            for a, b in zip(cuts[:-1], cuts[1:], strict=True):
                yield a, b, "pause" if any(begun <= a < ended for begun, ended in self.pauses) else cause

    def handed_over(self, op):
        """(when the rank had handed its part of a collective over, or None; whether Horovod says so)."""
        if op.call is None:
            return None, False
        for kind in ("Horovod", "XLA", "NCCL"):
            begun = [
                (start, stop)
                for library, start, stop, thread in self.told(op.process)
                if library == kind and start <= op.call[0] and (kind != "NCCL" or thread == op.thread)
            ]
            # Of those that began before the call, the last: it must still be open.
            if begun and max(begun)[1] > op.call[0]:
                return max(begun)[0], kind == "Horovod"
        return None, False

    def _waiting_for_peers(self, dry, end, ender, began):
        """(from, to): the part of the idle span [dry, end) in which the GPU waits for other ranks."""
        exchange = ender
        if ender.owner != "collective" and ender.kernel:
            return end, end
        if ender.owner != "collective":
            later = [op for op in self.ops if op.owner == "collective" and op.stream == ender.stream]
            later = [op for op in later if self.ops.index(op) > self.ops.index(ender)]
            if not later or not self.handed_over(later[0])[1] or self.handed_over(later[0])[0] > began:
                return end, end
            exchange = later[0]
        handed, others = self.handed_over(exchange)[0], self.others.get(id(exchange))
        if began <= dry or handed is None or others is None:
            return end, end
        return max(dry, handed), min(began, others)

    def _without_pauses(self, dry, end):
        parts = self._without_peers(dry, end)
        at = bisect.bisect_left(self.starts, end)
        if not self.others or at == len(self.ops) or self.ops[at].call is None:
            return parts
        first, last = self._waiting_for_peers(dry, end, self.ops[at], min(self.ops[at].call[0], end))
        found = []
        for a, b, cause in parts:
            cuts = sorted({a, b} | {t for t in (first, last) if a < t < b})
            for c, d in zip(cuts[:-1], cuts[1:], strict=True):
                waits = cause not in ("feed", "unknown") and first <= c < last
                found.append((c, d, "peers" if waits else cause))
        return found

    def _without_peers(self, dry, end):
        parts = self._of_those_there(dry, end)
        cuts = sorted({t for span in self.lacking for t in span} | {t for part in parts for t in part[:2]})
        found = []
        for a, b, cause in parts:
            inside = [t for t in cuts if a <= t <= b]
            for c, d in zip(inside[:-1], inside[1:], strict=True):
                filled = any(start <= c < stop for start, stop in self.lacking)
                found.append((c, d, "unknown" if filled else cause))
        return found

    def _of_those_there(self, dry, end):
        at = bisect.bisect_left(self.starts, end)
        if at == len(self.ops) or self.ops[at].call is None:
            return [(dry, end, "unknown")]
        ender = self.ops[at]
        began = min(ender.call[0], end)
        cause = self._next_cause(dry, end, ender, began)
        waits = self.waits[ender.process]
        fed = bool(self.inputs and id(ender) in self.inputs[1] and began > dry)
        if fed and not waits:
            return [(dry, end, "feed")]
        cuts = {dry, end, began} | {t for wait in waits for t in wait[:2] if dry < t < end}
        parts = []
        for a, b in zip(sorted(cuts)[:-1], sorted(cuts)[1:], strict=True):
            if a < dry:
                continue
            open_waits = [thread for start, stop, thread in waits if start <= a < stop]
            waiting = began > dry and ender.thread in open_waits
            parts.append((a, b, "feed" if waiting or (fed and (a >= began or open_waits)) else cause))
        return parts

    def _next_cause(self, dry, end, ender, began):
        for call in self.syncs[ender.process]:
            if call.start <= dry < call.end <= began:
                return "sync"
        is_copy = ender.owner in ("h2d", "d2h", "p2p", "d2d")
        late = began > dry if is_copy else ender.call[1] > dry
        gap = self._batch_gap(dry, end)
        if late and gap is None and ender.owner == "d2h":
            return "sync"
        if late and gap is not None:
            fetched = [op.end for op in self.fetches if op.start < gap[1] and op.end > gap[0]]
            if fetched and end <= max(fetched):
                return "sync"
        if late:
            return "launch"
        prior = self.prior[id(ender)]
        if prior is not None and end - prior <= 20_000:
            return "turnaround"
        return "wait"

    def _batch_gap(self, dry, end):
        """The batch gap [start, end) that holds the span, or None."""
        for before, start in zip(self.steps.all_last_kernel_end_ns, self.steps.all_start_ns[1:], strict=False):
            if before <= dry and end <= start and not any(end <= s < start for s in self.steps.all_start_ns):
                return int(before), int(start)
        return None

    def ledger(self, window=None):
        """owner -> ns, in the whole window or a part of it."""
        lo, hi = window or self.window
        total = dict.fromkeys(CLASS_NAMES + [f"idle_{cause}" for cause in CAUSE_NAMES], 0)
        for start, end, owner in self.pieces:
            total[owner] += max(0, min(end, hi) - max(start, lo))
        return total

    def busy(self, window=None):
        """class -> ns of the window, or a part of it, in which it was active."""
        total = {}
        for name in CLASS_NAMES:
            mine = [op for op in self.ops if op.owner == name]
            pieces = owners_by_class(mine, window or self.window)
            total[name] = sum(end - start for start, end, owner in pieces if owner)
        return total

    def exposed_inputs(self, window=None):
        """(ns in which a copy for this step owned the GPU, ns in which only copies for later ones did)."""
        lo, hi = window or self.window
        if self.inputs is None:
            return 0, 0
        this = later = 0
        copies = [op for op in self.ops if id(op) in self.inputs[0]]
        for start, end, owner in self.pieces:
            start, end = max(start, lo), min(end, hi)
            if owner != "h2d" or end <= start:
                continue
            cuts = sorted({start, end} | {t for op in copies for t in (op.start, op.end) if start < t < end})
            for a, b in zip(cuts[:-1], cuts[1:], strict=True):
                running = [op for op in copies if op.start <= a < op.end]
                if any(id(op) in self.inputs[1] for op in running):
                    this += b - a
                elif running:
                    later += b - a
        return this, later
