"""Start, watch and end processes: no rank outlives the sweep that started it.

    sweep (ringscope bench)
      |- lifeline: a socket that it listens on
      `- keeper of the launcher ------------------ holds the lifeline
           `- horovodrun | mpirun | srun
                `- ... its daemons, ssh, on every host ...
                     `- keeper of a rank --------- holds the lifeline, writes rank<k>.log and rank<k>.end.json
                          `- profiler, if any
                               `- the rank (harness.training.worker), writes rank<k>.progress, .jsonl, .error.json

| what happens | who ends what |
|---|---|
| the rank ends | its keeper kills what the rank left running, writes how it ended, and ends with its exit code |
| a rank fails | the launcher ends the others; after AFTER_FAILURE_S the sweep does, by closing the lifeline |
| a launch is over --time-limit, or no rank makes a step for --stall-limit | the sweep closes the lifeline |
| Ctrl-C, SIGTERM, SIGHUP | the sweep closes the lifeline, and writes `interrupted` |
| the sweep is killed (kill -9) | the kernel closes the lifeline |
| a host is cut off | TCP's keep-alive ends the lifeline within 35 s |
| the lifeline ends | every keeper, a subreaper (prctl(2)), kills all below it, sessions and daemons included |
| a keeper is killed (kill -9) | its child gets SIGKILL (PR_SET_PDEATHSIG); the keeper above it kills the rest |
| the launcher's keeper does not end within LETTING_GO_S | the sweep kills its session |

`supervise` runs one launch, `lifeline` and `keeper` are the two ends of a line, `outcome` judges what a launch left
behind, `remote_files` brings the files of hosts that do not share the sweep's disk, `signals` turns signals into
KeyboardInterrupt.
"""
