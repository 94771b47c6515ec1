"""A name and a colour for every owner of a nanosecond: the same in the terminal, the page, the charts and Perfetto.

Compute and collectives have cool colours, idle time mostly warm colours, drawn hatched if a view can. Colour-blind
readers can tell all colours apart (a test measures this), and no view conveys anything by colour alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Look:
    """The look of an owner. label: short, for legends. colour: #rrggbb. meaning: a sentence for a first-time reader."""

    label: str
    colour: str
    meaning: str


OWNERS: Final = {
    "compute": Look("compute", "#2574e1", "A kernel that is not a collective is running."),
    "collective": Look(
        "collective", "#7a3fb0", "An all-reduce or another collective is running, and no compute beside it."
    ),
    "h2d": Look("copy to GPU", "#cf7a14", "A host-to-device copy is running, and no kernel beside it."),
    "d2h": Look("copy to host", "#b2c61f", "A device-to-host copy is running, and no kernel beside it."),
    "p2p": Look("copy GPU to GPU", "#44b4e6", "A copy between GPUs is running, and no kernel beside it."),
    "d2d": Look("copy on GPU", "#2e6f59", "A copy within the GPU is running, and no kernel beside it."),
    "memset": Look("memset", "#8a8090", "Memory is being set, and no kernel is running."),
    "idle_pause": Look(
        "idle: pause", "#3c0000", "The training was stopped because a rank was lost, or hosts were added or removed."
    ),
    "idle_feed": Look("idle: feed", "#c9261a", "The GPU waits for its next batch, which the host has not sent yet."),
    "idle_peers": Look("idle: peers", "#994c92", "The GPU waits for other ranks to start their part of an exchange."),
    "idle_sync": Look("idle: sync", "#ee8f98", "The host waited for the GPU before it launched more work."),
    "idle_launch": Look("idle: launch", "#7a2420", "The host had not yet launched the next operation."),
    "idle_turnaround": Look(
        "idle: turnaround",
        "#e6d68a",
        "Idle between the end of one kernel and the start of the next kernel, which had been launched already.",
    ),
    "idle_wait": Look(
        "idle: wait",
        "#451970",
        "The next operation was launched, but waits for an event, another stream or another GPU.",
    ),
    "idle_unknown": Look("idle: unknown", "#c3ccd4", "Idle, and the recording does not show the reason."),
}

# Kinds of the host's activity, which timelines draw below the GPUs.
HOST: Final = {
    "host_range": Look("range", "#5d7183", "A range that the program or the framework names (NVTX, an annotation)."),
    "host_operator": Look("operator", "#3f8f8a", "An operator or a module of the framework."),
    "host_call": Look("CUDA call", "#a8927a", "A call of the CUDA or HIP runtime or driver."),
}
