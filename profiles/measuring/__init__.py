"""Measure units (recordings that share a GPU) in any process or host, and join them into one analysis.

`one_recording` measures a unit. `together` joins the units of all processes and hosts into one Analysis, as if one
process had measured them. `processes` measures units in a pool of processes, one per core, and `mpi` in the processes
of an MPI job, each process the files on its host. `partial_file` writes units to a small file and reads them;
`partial_units` converts a unit to JSON values and back.
"""
