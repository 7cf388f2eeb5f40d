#!/usr/bin/env bash
# The bytes that cross the link between nodes are those of the closed forms, by the program's counters
# and by the network interfaces.
# shellcheck source=tests/slurm/support.sh
source "$(dirname "$0")/support.sh"

"$here/link_benchmark" --short
