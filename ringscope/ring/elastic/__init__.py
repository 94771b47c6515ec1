"""Training that goes on while ranks are lost and added: `horovodrun --min-np ... --host-discovery-script ...`.

The ranks' scripts begin again. When a rank is lost, or hosts have come or gone, each remaining process takes its script
from the beginning, in the same process (`lost.restart`), asks the launcher for its new rank (`lost.launcher`) and gets
the last commit back (`commits`: weights, optimizer, place in the data), kept in memory meanwhile. So no value that
was computed from the number of ranks is left over, and a process that waits in an exchange for a lost rank, where no
exception reaches it, is freed too. A rank that joins does the same as the others.

Horovod's own way, `elastic.run`, starts it anew within the script, and does not notice a lost rank in grouped
operations, nor in those with names of their own, which ring's are.
"""
