#!/bin/sh
# node.sh install|remove: what the DaemonSet does on a node, run in the node's own mount namespace. Beside it: packages/ (Varve's), dependencies/ (others' that a node
# may lack) and, once it has run, state/. What runs on the node are the packages' units, never a process of the pod.
# CONTAINERD: "containerd" (kubeadm and all that has /etc/containerd/config.toml), "k3s" or "rke2".
set -eu
here=$(cd "$(dirname "$0")" && pwd)
state=$here/state
CONTAINERD=${CONTAINERD:-containerd}
[ ! -e "$state/containerd" ] || CONTAINERD=$(cat "$state/containerd")
export DEBIAN_FRONTEND=noninteractive

say() { echo "varve: $*"; }
fail() { echo "varve: $*" >&2; exit 1; }
# Not in an image that is being made, and not where something else starts services.
has_systemd() { [ -d /run/systemd/system ]; }

case $CONTAINERD in
containerd) services=containerd flag= ;;
k3s) services="k3s k3s-agent" flag=--k3s PATH=$PATH:/var/lib/rancher/k3s/data/current/bin ;;
rke2) services="rke2-server rke2-agent" flag=--rke2 PATH=$PATH:/var/lib/rancher/rke2/bin ;;
*) fail "CONTAINERD=$CONTAINERD: containerd, k3s or rke2" ;;
esac

field() { dpkg-deb --field "$1" "$2"; }
version_installed() { dpkg-query --show --showformat='${db:Status-Status} ${Version}' "$1" 2>/dev/null | sed -n 's/^installed //p'; }

# Ours when they are of another version, others' only when they are not there at all: a node's own are not changed.
packages_to_install() {
	for deb in "$here"/packages/*.deb; do
		[ "$(version_installed "$(field "$deb" Package)")" = "$(field "$deb" Version)" ] || echo "$deb"
	done
	for deb in "$here"/dependencies/*.deb; do
		[ ! -e "$deb" ] || [ -n "$(version_installed "$(field "$deb" Package)")" ] || echo "$deb"
	done
}

restart_containerd() {
	has_systemd || { say "no systemd here: $CONTAINERD is restarted by whoever started it"; return 0; }
	for service in $services; do
		systemctl --quiet is-active "$service" || continue
		say "restarting $service; running containers go on"
		systemctl restart "$service"
		return 0
	done
	fail "none of these services runs: $services"
}

# containerd forgets the images of a snapshotter that does not answer when it starts.
wait_for_snapshotter() {
	has_systemd || return 0
	systemctl start varve-snapshotter.socket
	for _ in $(seq 150); do
		[ ! -S /run/varve/snapshotter.sock ] || return 0
		sleep 0.2
	done
	fail "the snapshotter does not listen: systemctl status varve-snapshotter"
}

configure_containerd() {
	# shellcheck disable=SC2086
	said=$(varve containerd configure --write --json $flag)
	file=$(printf '%s\n' "$said" | sed -n 's/^ *"file": "\(.*\)",\{0,1\}$/\1/p')
	backup=$(printf '%s\n' "$said" | sed -n 's/^ *"backup": "\(.*\)",\{0,1\}$/\1/p')
	[ -n "$file" ] || fail "varve containerd configure does not say which file it wrote: $said"
	if ! printf '%s\n' "$said" | grep -q '"changed": true'; then
		say "$file has all that Varve needs"
		return 0
	fi
	mkdir -p "$state"
	if [ ! -e "$state/file" ]; then # the first time: what was there before Varve
		[ -z "$backup" ] || cp -p "$backup" "$state/before"
		echo "$CONTAINERD" >"$state/containerd"
		echo "$file" >"$state/file"
	fi
	[ -z "$backup" ] || rm "$backup"
	sha256sum <"$file" >"$state/written"
	restart_containerd
}

install() {
	command -v dpkg >/dev/null || fail "this node has no dpkg: the packages are for Debian and what is made of it"
	# shellcheck disable=SC2046 # dpkg names no file with spaces
	set -- $(packages_to_install)
	if [ $# -gt 0 ]; then
		dpkg --install "$@"
	else
		say "$(version_installed varve) is installed"
	fi
	wait_for_snapshotter
	configure_containerd
	say "installed; images that containerd unpacked before stay as they are: drain the node and remove them, or use new nodes"
}

check_restorable() {
	[ ! -e "$state/file" ] || [ "$(sha256sum <"$(cat "$state/file")" 2>/dev/null)" = "$(cat "$state/written")" ] ||
		fail "$(cat "$state/file") was changed since: take Varve's lines out of it by hand (before: $state/before), remove $state, and run this again"
}

restore_containerd() {
	[ -e "$state/file" ] || return 0
	file=$(cat "$state/file")
	if [ -e "$state/before" ]; then
		cp -p "$state/before" "$file.varve-new"
		mv "$file.varve-new" "$file"
	else
		rm "$file"
	fi
	rm -r "$state"
	restart_containerd
}

remove() {
	[ -n "$(version_installed varve)" ] || { say "is not installed"; return 0; }
	check_restorable
	# It names the pods and sessions that would lose their files; nothing has been changed yet.
	varve --quiet daemon --stop || fail "pods or sessions use it: drain the node first (kubectl drain)"
	restore_containerd
	for deb in "$here"/packages/*.deb; do field "$deb" Package; done | xargs dpkg --purge
	say "removed"
}

case ${1:-} in
install) install ;;
remove) remove ;;
*) echo "node.sh install|remove" >&2; exit 2 ;;
esac
