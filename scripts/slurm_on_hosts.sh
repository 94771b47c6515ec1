#!/usr/bin/env bash
# A Slurm whose nodes are the hosts of scripts/hosts.sh: one munged, slurmctld on the first host, a slurmd on each.
# Its state, configuration and key lie in the tmpfs of these hosts.
#
# usage, as root: HOSTS="a b" scripts/hosts.sh scripts/slurm_on_hosts.sh COMMAND...
#   HOSTS="a b" scripts/hosts.sh scripts/slurm_on_hosts.sh srun -N 2 hostname
# CPUS_A_NODE=8: what each node says it has.
#
# Exit code: the command's; 77, with the reason, if the machine does not allow it.
set -euo pipefail

refuse() { echo "slurm_on_hosts: $1" >&2; exit 77; }
export PATH=$PATH:/usr/sbin

[ $# -gt 0 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2; }
[ -f /run/hosts/hosts ] || refuse "runs on hosts of scripts/hosts.sh"
for tool in munged slurmctld slurmd sbatch; do
    command -v $tool >/dev/null || refuse "needs $tool (apt install slurm-wlm munge)"
done
mapfile -t hosts < <(awk '$2 != "localhost" {print $2}' /run/hosts/hosts)
home=/run/slurm
mkdir -m 755 $home $home/state /run/munge
dd if=/dev/urandom of=$home/munge.key bs=1024 count=1 status=none
chmod 400 $home/munge.key
cat >$home/slurm.conf <<END
ClusterName=hosts
SlurmctldHost=${hosts[0]}
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket=/run/munge/socket
SlurmUser=root
StateSaveLocation=$home/state
SlurmdSpoolDir=$home/spool-%n
SlurmctldPidFile=$home/slurmctld.pid
SlurmdPidFile=$home/slurmd-%n.pid
SlurmctldLogFile=$home/slurmctld.log
SlurmdLogFile=$home/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
NodeName=$(IFS=,; echo "${hosts[*]}") CPUs=${CPUS_A_NODE:-8} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
export SLURM_CONF=$home/slurm.conf
munged --force --key-file=$home/munge.key --socket=/run/munge/socket --pid-file=$home/munged.pid \
    --log-file=$home/munged.log --seed-file=$home/munged.seed 2>$home/munged.err ||
    refuse "munged does not start: $(cat $home/munged.err)"
slurmctld 2>$home/slurmctld.err || refuse "slurmctld does not start: $(tail -n 1 $home/slurmctld.err)"
for host in "${hosts[@]}"; do
    ssh "$host" "mkdir -p $home/spool-$host; SLURM_CONF=$SLURM_CONF PATH=$PATH slurmd -N $host" 2>$home/slurmd.err ||
        refuse "slurmd does not start on $host: $(tail -n 1 $home/slurmd.err)"
done
for _ in $(seq 150); do
    [ "$(sinfo -h -N -o %t 2>/dev/null | grep -c idle)" = ${#hosts[@]} ] && ready=1 && break
    sleep 0.2
done
[ -n "${ready:-}" ] || refuse "the nodes do not come up: $(tail -qn 1 $home/slurmd-*.log $home/slurmctld.log | tr '\n' ' ')"
"$@"
