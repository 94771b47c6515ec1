"""Measures each recording by itself, anywhere (a process, a host), and puts all together into one analysis.

one_recording  measures one recording, or several that share a GPU: a `Unit`
together       units, of whatever process or host, become the Analysis that their recordings would give together
processes      units from processes on all cores
mpi            units from the processes of an MPI job, each with what lies on its host
partial_file   units as a small file, and back; partial_units: each of them
"""
