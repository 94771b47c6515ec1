"""What this machine is: GPUs, CPUs, and what the installed libraries say of themselves."""
