"""Does the net hold? Sixty faults, one at a time in a copy of the tree, and which tests see each of them.

    python -m tests.mutations                      # all of them; by hand, or in the night
    python -m tests.mutations --only 'gate-*'      # some
    python -m tests.mutations --tier ci            # what `make test` lets through is tried with `.ci/run`'s tests too
    python -m tests.mutations --wider              # what the nearest tests let through, with all tests of the tier

It prints a line for each and ends with 1 where fewer than `--at-least` were seen.
"""
