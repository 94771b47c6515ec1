"""A script that trains nothing. usage: odd.py ends|fails|hangs|one_hangs"""

import os
import sys
import time

rank = int(os.environ["RINGSCOPE_RANK"])
if sys.argv[1] == "fails" and rank == 1:
    raise FileNotFoundError("no-such-file.npy")
if sys.argv[1] == "hangs" or (sys.argv[1] == "one_hangs" and rank == 1):
    time.sleep(600)
