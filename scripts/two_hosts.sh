#!/usr/bin/env bash
# Two hosts, `a` and `b`, on one machine, to try several hosts: network, process and UTS namespaces of their own, joined
# by a veth pair that is called eth0 on both ends, with an sshd in each. Each has a /tmp and a /dev/shm of its own (Open
# MPI's files there are named by process id, and those are alike on both). All else is shared, as on a cluster.
#
# usage, as root: scripts/two_hosts.sh COMMAND...     runs COMMAND on host a, here, with this environment
#   scripts/two_hosts.sh ssh b hostname
#   scripts/two_hosts.sh ringscope bench --hosts a:1,b:1 --ranks 1,2
# TWO_HOSTS_SHARE=DIR: a directory below /tmp that is shared all the same. The working directory always is.
#
# Exit code: the command's; 77, with the reason, if the machine does not allow it. Both hosts and all that runs there end
# with the script, however it ends. It leaves no file: what it writes lies in a tmpfs of its own.
set -euo pipefail

refuse() { echo "two_hosts: $1" >&2; exit 77; }

if [ -z "${TWO_HOSTS_INSIDE:-}" ]; then
    [ $# -gt 0 ] || { sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 2; }
    [ "$(id -u)" = 0 ] || refuse "needs root, for namespaces"
    for tool in unshare nsenter ip ssh-keygen; do
        command -v $tool >/dev/null || refuse "needs $tool (apt install util-linux iproute2 openssh-client)"
    done
    PATH=$PATH:/usr/sbin command -v sshd >/dev/null || refuse "needs sshd (apt install openssh-server)"
    reason=$(unshare --mount --net --uts --pid --fork --mount-proc ip link add x0 type veth peer name x1 2>&1) ||
        refuse "namespaces or veth pairs are not allowed here: $reason"
    TWO_HOSTS_INSIDE=1 exec unshare --mount --net --pid --fork --kill-child --mount-proc "$0" "$@"
fi
unset TWO_HOSTS_INSIDE
trap 'exit 143' TERM
trap 'exit 130' INT

# Keys, configuration and names, seen from in here alone.
mount -t tmpfs tmpfs /run
mkdir -m 755 /run/sshd /run/two-hosts
cd /run/two-hosts
ssh-keygen -q -t ed25519 -N '' -f host_key
ssh-keygen -q -t ed25519 -N '' -f user_key
cp user_key.pub authorized_keys
cat >sshd_config <<END
HostKey $PWD/host_key
AuthorizedKeysFile $PWD/authorized_keys
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
PidFile none
MaxStartups 100
END
cat >ssh_config <<END
Host a b
    IdentityFile $PWD/user_key
    UserKnownHostsFile $PWD/known_hosts
    StrictHostKeyChecking accept-new
    LogLevel ERROR
END
printf '%s\n' '127.0.0.1 localhost' '10.77.0.1 a' '10.77.0.2 b' >hosts
mount --bind hosts /etc/hosts
mount --bind ssh_config /etc/ssh/ssh_config
# What a person's shell does at login (locks, prompts) is not tried here, nor left half done when a host is ended.
touch bashrc
[ ! -f ~/.bashrc ] || mount --bind bashrc ~/.bashrc
cd - >/dev/null
sshd=$(PATH=$PATH:/usr/sbin command -v sshd)
shared=()
for directory in "$PWD" "${TWO_HOSTS_SHARE:-}"; do
    case $directory in /tmp/?*) shared+=("$directory") ;; esac
done

# What a host does first, with its name, its sshd and the shared directories as arguments.
cat >/run/two-hosts/start <<'END'
set -e
hostname "$1"
sshd=$2
shift 2
mkdir -p /run/two-hosts/tmp
mount --rbind /tmp /run/two-hosts/tmp
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
for directory; do
    mkdir -p "$directory"
    mount --bind "/run/two-hosts${directory}" "$directory"
done
exec "$sshd" -D -e -f /run/two-hosts/sshd_config
END

# A host is an sshd, the first process of its namespaces: end it and the host is gone.
declare -A pid
for host in a b; do
    unshare --mount --net --uts --pid --fork --kill-child --mount-proc \
        sh /run/two-hosts/start $host "$sshd" "${shared[@]}" </dev/null 2>/run/two-hosts/sshd_$host.log &
    parent=$!
    for _ in $(seq 500); do
        pid[$host]=$(tr -d ' ' <"/proc/$parent/task/$parent/children")
        [ -n "${pid[$host]}" ] && break
        sleep 0.01
    done
    [ -n "${pid[$host]}" ] || refuse "host $host did not start: $(cat /run/two-hosts/sshd_$host.log)"
done
ip link add eth0 netns "${pid[a]}" type veth peer name eth0 netns "${pid[b]}"
for address in a:10.77.0.1 b:10.77.0.2; do
    on=(nsenter -t "${pid[${address%%:*}]}" --net)
    "${on[@]}" ip address add "${address#*:}/24" dev eth0
    "${on[@]}" ip link set eth0 up
    "${on[@]}" ip link set lo up
done

on_a=(nsenter -t "${pid[a]}" --mount --net --uts --pid --wd="$PWD")
for host in a b; do
    for attempt in $(seq 50); do
        "${on_a[@]}" ssh -o BatchMode=yes -o ConnectTimeout=2 $host true 2>/run/two-hosts/ssh.log && continue 2
        sleep 0.1
    done
    refuse "host $host does not answer to ssh after $attempt tries: $(tail -n 1 /run/two-hosts/ssh.log)"
done
"${on_a[@]}" "$@"
