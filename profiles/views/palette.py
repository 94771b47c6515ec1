"""A name and a colour for every owner of a nanosecond: the same in the terminal, the page, the charts and Perfetto.

Compute and collectives have cool colours, idle time mostly warm colours, drawn hatched if a view can. All colours
differ under colour blindness (a test measures it), and no view conveys anything by colour alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Look:
    """label: short, for legends. colour: #rrggbb. meaning: one sentence for a first-time reader."""

    label: str
    colour: str
    meaning: str


OWNERS: Final = {
    "compute": Look("compute", "#2574e1", "A kernel that is not a collective is running."),
    "collective": Look("collective", "#7a3fb0", "An all-reduce or another collective runs and no compute hides it."),
    "h2d": Look("copy to GPU", "#cf7a14", "A host-to-device copy runs and nothing hides it."),
    "d2h": Look("copy to host", "#b2c61f", "A device-to-host copy runs and nothing hides it."),
    "p2p": Look("copy GPU to GPU", "#44b4e6", "A copy between GPUs runs and nothing hides it."),
    "d2d": Look("copy on GPU", "#2e6f59", "A copy within the GPU runs and nothing hides it."),
    "memset": Look("memset", "#8a8090", "Memory is being set and nothing hides it."),
    "idle_pause": Look("idle: pause", "#3c0000", "The training had stopped: a rank was lost, or hosts came or went."),
    "idle_feed": Look("idle: feed", "#c9261a", "The GPU waits for its next batch, which has not been sent."),
    "idle_peers": Look("idle: peers", "#994c92", "The GPU waits for other ranks to start their part of an exchange."),
    "idle_sync": Look("idle: sync", "#ee8f98", "The host waited for the GPU before it launched more work."),
    "idle_launch": Look("idle: launch", "#7a2420", "The host had not yet launched the next operation."),
    "idle_turnaround": Look(
        "idle: turnaround", "#e6d68a", "Idle between the end of a kernel and the start of the next one that is ready."
    ),
    "idle_wait": Look("idle: wait", "#451970", "Launched, but waiting for an event, a stream or a peer."),
    "idle_unknown": Look("idle: unknown", "#c3ccd4", "Idle, and the recording does not show the reason."),
}

# Kinds of host activity in timelines, which are drawn beside the GPUs.
HOST: Final = {
    "host_range": Look("range", "#5d7183", "A range that the program or the framework names (NVTX, an annotation)."),
    "host_operator": Look("operator", "#3f8f8a", "An operator or a module of the framework."),
    "host_call": Look("CUDA call", "#a8927a", "A call of the CUDA or HIP runtime or driver."),
}
