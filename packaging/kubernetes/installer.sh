#!/bin/sh
# In the pod: puts what the image brings on the node, and runs node.sh there, outside of the pod.
set -eu
node=/node/varve-installer
mkdir -p "$node"
# Whole folders by rename: a node that loses power meanwhile has the old or the new.
rm -rf "$node.new" "$node.old"
mkdir "$node.new"
cp -r /varve/. "$node.new/"
[ ! -e "$node/state" ] || cp -a "$node/state" "$node.new/"
mv "$node" "$node.old"
mv "$node.new" "$node"
rm -rf "$node.old"
exec nsenter --target 1 --mount --uts --ipc --net -- /usr/bin/env CONTAINERD="$CONTAINERD" /bin/sh /var/lib/varve-installer/node.sh "$ACTION"
