#!/usr/bin/env bash
# Hosts `a` and `b`, or those of HOSTS="a b c d", on one machine, to try several hosts: network, process and UTS
# namespaces of their own with an sshd in each, two of them joined by a veth pair, more by a bridge; each link is called
# eth0 on its host. Each has a /tmp and a /dev/shm of its own (Open MPI's files there are named by process id, and those
# are alike on all). All else is shared, as on a cluster.
#
# usage, as root: scripts/hosts.sh COMMAND...     runs COMMAND on the first host, here, with this environment
#   scripts/hosts.sh ssh b hostname
#   scripts/hosts.sh ringscope bench --hosts a:1,b:1 --ranks 1,2
#   HOSTS="a b c d" scripts/hosts.sh ringscope bench --hosts a:4,b:4,c:4,d:4 --ranks 16
# HOSTS_SHARE=DIR: a directory below /tmp that is shared all the same. The working directory always is.
#
# Exit code: the command's; 77, with the reason, if the machine does not allow it. The hosts and all that runs there end
# with the script, however it ends. It leaves no file: what it writes lies in a tmpfs of its own.
set -euo pipefail

refuse() { echo "hosts: $1" >&2; exit 77; }

if [ -z "${HOSTS_INSIDE:-}" ]; then
    [ $# -gt 0 ] || { sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 2; }
    [ "$(id -u)" = 0 ] || refuse "needs root, for namespaces"
    for tool in unshare nsenter ip ssh-keygen; do
        command -v $tool >/dev/null || refuse "needs $tool (apt install util-linux iproute2 openssh-client)"
    done
    PATH=$PATH:/usr/sbin command -v sshd >/dev/null || refuse "needs sshd (apt install openssh-server)"
    reason=$(unshare --mount --net --uts --pid --fork --mount-proc ip link add x0 type veth peer name x1 2>&1) ||
        refuse "namespaces or veth pairs are not allowed here: $reason"
    HOSTS_INSIDE=1 exec unshare --mount --net --pid --fork --kill-child --mount-proc "$0" "$@"
fi
unset HOSTS_INSIDE
read -ra hosts <<<"${HOSTS:-a b}"
[ ${#hosts[@]} -ge 2 ] || refuse "HOSTS names ${#hosts[@]}; give two or more, such as \"a b c d\""
trap 'exit 143' TERM
trap 'exit 130' INT

# Keys, configuration and names, seen from in here alone.
mount -t tmpfs tmpfs /run
mkdir -m 755 /run/sshd /run/hosts
cd /run/hosts
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
Host ${hosts[*]}
    IdentityFile $PWD/user_key
    UserKnownHostsFile $PWD/known_hosts
    StrictHostKeyChecking accept-new
    LogLevel ERROR
END
echo '127.0.0.1 localhost' >hosts
for number in "${!hosts[@]}"; do echo "10.77.0.$((number + 1)) ${hosts[number]}" >>hosts; done
mount --bind hosts /etc/hosts
mount --bind ssh_config /etc/ssh/ssh_config
# What a person's shell does at login (locks, prompts) is not tried here, nor left half done when a host is ended.
touch bashrc
[ ! -f ~/.bashrc ] || mount --bind bashrc ~/.bashrc
cd - >/dev/null
sshd=$(PATH=$PATH:/usr/sbin command -v sshd)
shared=()
for directory in "$PWD" "${HOSTS_SHARE:-}"; do
    case $directory in /tmp/?*) shared+=("$directory") ;; esac
done

# What a host does first, with its name, its sshd and the shared directories as arguments.
cat >/run/hosts/start <<'END'
set -e
hostname "$1"
sshd=$2
shift 2
mkdir -p /run/hosts/tmp
mount --rbind /tmp /run/hosts/tmp
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
for directory; do
    mkdir -p "$directory"
    mount --bind "/run/hosts${directory}" "$directory"
done
exec "$sshd" -D -e -f /run/hosts/sshd_config
END

# A host is an sshd, the first process of its namespaces: end it and the host is gone.
declare -A pid
for host in "${hosts[@]}"; do
    unshare --mount --net --uts --pid --fork --kill-child --mount-proc \
        sh /run/hosts/start $host "$sshd" "${shared[@]}" </dev/null 2>/run/hosts/sshd_$host.log &
    parent=$!
    for _ in $(seq 6000); do
        pid[$host]=$(tr -d ' ' <"/proc/$parent/task/$parent/children")
        [ -n "${pid[$host]}" ] && break
        sleep 0.01
    done
    [ -n "${pid[$host]}" ] || refuse "host $host did not start: $(cat /run/hosts/sshd_$host.log)"
done
first=${hosts[0]}
if [ ${#hosts[@]} = 2 ]; then
    ip link add eth0 netns "${pid[$first]}" type veth peer name eth0 netns "${pid[${hosts[1]}]}"
else
    reason=$(ip link add switch type bridge 2>&1) || refuse "bridges are not allowed here: $reason"
    ip link set switch up
    for host in "${hosts[@]}"; do
        ip link add "to-$host" type veth peer name eth0 netns "${pid[$host]}"
        ip link set "to-$host" master switch up
    done
fi
for number in "${!hosts[@]}"; do
    on=(nsenter -t "${pid[${hosts[number]}]}" --net)
    "${on[@]}" ip address add "10.77.0.$((number + 1))/24" dev eth0
    "${on[@]}" ip link set eth0 up
    "${on[@]}" ip link set lo up
done

on_first=(nsenter -t "${pid[$first]}" --mount --net --uts --pid --wd="$PWD")
for host in "${hosts[@]}"; do
    for attempt in $(seq 600); do
        "${on_first[@]}" ssh -o BatchMode=yes -o ConnectTimeout=2 $host true 2>/run/hosts/ssh.log && continue 2
        sleep 0.1
    done
    refuse "host $host does not answer to ssh after $attempt tries: $(tail -n 1 /run/hosts/ssh.log)"
done
"${on_first[@]}" "$@"
