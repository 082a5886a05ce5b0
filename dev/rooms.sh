#!/usr/bin/env bash
# The sources of the library's objects: dev/rooms.sh FOLDER writes FOLDER/ROOM.c for every line of dev/rooms.txt. Such a file has the implementation of its
# room's headers and the declarations of those that they include. A file that would stay as it is is not written.
set -euo pipefail
[ $# = 1 ] || { echo "usage: dev/rooms.sh FOLDER" >&2; exit 2; }
cd "$(dirname "$0")/.."
mkdir -p "$1"
declare -A room_of
rooms=()
while read -r room patterns; do
    [[ $room == "#"* || -z $room ]] && continue
    rooms+=("$room")
    for header in $(cd galaxy && ls $patterns); do : "${room_of[$header]:=$room}"; done
done <dev/rooms.txt
guards=$(cd galaxy && grep -oE '^#define GX_[A-Z0-9_]+_IMPLEMENTED$' */*.h)
for room in "${rooms[@]}"; do
    {
        echo "// The room \`$room\` of dev/rooms.txt, written by dev/rooms.sh: what is implemented in other objects comes first."
        while IFS=: read -r header define; do
            [ -n "${room_of[$header]:-}" ] || { echo "galaxy/$header is in no room of dev/rooms.txt" >&2; exit 1; }
            [ "${room_of[$header]}" = "$room" ] || echo "$define"
        done <<<"$guards"
        echo "#define GALAXY_IMPLEMENTATION"
        # galaxy.h has the order in which the headers are read
        while read -r header; do
            [ "${room_of[$header]}" != "$room" ] || echo "#include \"galaxy/$header\""
        done < <(sed -n 's|^#include "galaxy/\(.*\.h\)"$|\1|p' galaxy.h)
    } >"$1/$room.new"
    if cmp -s "$1/$room.new" "$1/$room.c"; then rm "$1/$room.new"; else mv "$1/$room.new" "$1/$room.c"; fi
done
