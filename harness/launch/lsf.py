"""A batch script for LSF. Inside the job mpirun starts the ranks on the hosts of LSB_DJOB_HOSTFILE."""

from __future__ import annotations

import shlex
from dataclasses import replace

from . import batch


def script(request: batch.Request) -> str:
    """The batch script for LSF. The shell redirects its output to the log, so that no directive contains a path."""
    per_node = max(request.nodes())
    hours, minutes = divmod(request.minutes, 60)
    directives = [
        "-J ringscope",
        f"-n {request.ranks}",
        f'-R "span[ptile={per_node}]"',
        *([f'-R "affinity[core({request.cpus_per_rank})]"'] if request.cpus_per_rank else []),
        *([f'-gpu "num={per_node}"'] if request.gpus else []),
        f"-W {hours:02}:{minutes:02}",
        "-o /dev/null",
        *([shlex.join(request.args)] if request.args else []),
    ]
    inside = replace(request, argv=(*request.argv, "--launcher", "mpirun", "--hostfile", "$LSB_DJOB_HOSTFILE"))
    return batch.script("#BSUB", directives, inside, without=("LSB_", "LS_"), before=[batch.to_log(request)])
