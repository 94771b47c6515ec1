#!/usr/bin/env bash
# A Slurm of one node, this machine, to try `--launcher slurm`: munged, slurmctld and slurmd in namespaces of their own.
# Its state, configuration and key lie in a tmpfs that disappears with it.
#
# usage, as root: scripts/one_node_slurm.sh COMMAND...
#   scripts/one_node_slurm.sh srun hostname
#   scripts/one_node_slurm.sh ringscope bench --launcher slurm --ranks 1,2
#
# Exit code: the command's; 77, with the reason, if the machine does not allow it.
set -euo pipefail

refuse() { echo "one_node_slurm: $1" >&2; exit 77; }
export PATH=$PATH:/usr/sbin

if [ -z "${SLURM_INSIDE:-}" ]; then
    [ $# -gt 0 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2; }
    [ "$(id -u)" = 0 ] || refuse "needs root, for namespaces"
    for tool in munged slurmctld slurmd sbatch unshare ip; do
        command -v $tool >/dev/null || refuse "needs $tool (apt install slurm-wlm munge util-linux iproute2)"
    done
    reason=$(unshare --mount --net --uts --pid --fork --mount-proc ip link add x0 type veth peer name x1 2>&1) ||
        refuse "namespaces or veth pairs are not allowed here: $reason"
    SLURM_INSIDE=1 exec unshare --mount --net --uts --pid --fork --kill-child --mount-proc "$0" "$@"
fi
unset SLURM_INSIDE
trap 'exit 143' TERM
trap 'exit 130' INT

hostname node
ip link set lo up
# An address that is not loopback: without one Slurm cannot look up its own name (AI_ADDRCONFIG).
ip link add eth0 type veth peer name eth1
ip address add 10.78.0.1/24 dev eth0
ip link set eth0 up
ip link set eth1 up
mount -t tmpfs tmpfs /run
home=/run/slurm
mkdir -m 755 $home $home/state $home/spool /run/munge
dd if=/dev/urandom of=$home/munge.key bs=1024 count=1 status=none
chmod 400 $home/munge.key
printf '%s\n' '127.0.0.1 localhost' '10.78.0.1 node' >$home/hosts
mount --bind $home/hosts /etc/hosts
cat >$home/slurm.conf <<END
ClusterName=one
SlurmctldHost=node
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket=/run/munge/socket
SlurmUser=root
StateSaveLocation=$home/state
SlurmdSpoolDir=$home/spool
SlurmctldPidFile=$home/slurmctld.pid
SlurmdPidFile=$home/slurmd.pid
SlurmctldLogFile=$home/slurmctld.log
SlurmdLogFile=$home/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
NodeName=node CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
END
export SLURM_CONF=$home/slurm.conf
munged --force --key-file=$home/munge.key --socket=/run/munge/socket --pid-file=$home/munged.pid \
    --log-file=$home/munged.log --seed-file=$home/munged.seed 2>$home/munged.err ||
    refuse "munged does not start: $(cat $home/munged.err)"
slurmctld 2>$home/slurmctld.err || refuse "slurmctld does not start: $(tail -n 1 $home/slurmctld.err)"
slurmd 2>$home/slurmd.err || refuse "slurmd does not start: $(tail -n 1 $home/slurmd.err)"
for _ in $(seq 600); do
    case $(sinfo -h -o %t 2>/dev/null) in idle | mix*) ready=1 && break ;; esac
    sleep 0.2
done
[ -n "${ready:-}" ] || refuse "the node does not come up: $(tail -n 1 $home/slurmd.log) $(tail -n 1 $home/slurmctld.log)"
"$@"
