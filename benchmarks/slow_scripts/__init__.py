"""Scripts that are slow for one reason each, recorded and judged: does the first finding name the reason and its line?

    python -m benchmarks.slow_scripts --out DIR                  # all that this machine can run
    python -m benchmarks.slow_scripts --out DIR --only sleeps lock --np 2

On GPUs `ringscope record` takes Nsight Systems; without one TensorFlow's profiler, and what is told is the place in
which the host was longest. A line `# the reason` in a script is what a finding should name. DIR gets `table.md`,
`results.json` and per script its measures without steps (a few KB each); recordings are dropped.
"""
