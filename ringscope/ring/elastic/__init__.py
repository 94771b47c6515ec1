"""Training that continues while ranks are lost and added: `horovodrun --min-np ... --host-discovery-script ...`.

The ranks restart their scripts. When a rank is lost, or hosts were added or removed, each remaining process runs its
script from the beginning, in the same process (`lost.restart`), asks the launcher for its new rank (`lost.launcher`)
and restores the last commit (`commits`: weights, optimizer, place in the data), which is kept in memory. So no value
that was computed from the old number of ranks remains. A process that waits in an exchange for a lost rank, where no
exception reaches it, is freed, too. A rank that joins also restores the last commit, which the others send.

Horovod's own way, `elastic.run`, restarts a function inside the script. It does not notice a lost rank in grouped
operations, nor in named operations, and ring's operations have names.
"""
