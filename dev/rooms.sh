#!/usr/bin/env bash
# The sources of the library's objects: dev/rooms.sh FOLDER writes FOLDER/ROOM.c for every line of dev/rooms.txt, and FOLDER/cuda_ROOM.cu of the kernels. Such
# a file has the implementation of its room's headers and the declarations of those that they include. A file that would stay as it is is not written.
set -euo pipefail
[ $# = 1 ] || { echo "usage: dev/rooms.sh FOLDER" >&2; exit 2; }
cd "$(dirname "$0")/.."
mkdir -p "$1"
declare -A room_of
rooms=()
while read -r room patterns; do
    [[ $room == "#"* || -z $room ]] && continue
    [ "$room" = cuda_words ] || rooms+=("$room")
    for header in $(cd galaxy && ls $patterns); do : "${room_of[$header]:=$room}"; done
done <dev/rooms.txt
for header in $(cd galaxy && ls */*.h */*.cuh); do
    [ -n "${room_of[$header]:-}" ] || { echo "galaxy/$header is in no room of dev/rooms.txt" >&2; exit 1; }
done
guards=$(cd galaxy && grep -oE '^#define GX_[A-Z0-9_]+_IMPLEMENTED$' */*.h */*.cuh)
write() { # room, the ending of its headers: its file
    local header define
    echo "// The room \`$1\` of dev/rooms.txt, written by dev/rooms.sh: what is implemented in other objects comes first."
    while IFS=: read -r header define; do
        case ${room_of[$header]} in "$1" | cuda_words) ;; *) [ "${header##*.}" != "$2" ] || echo "$define" ;; esac
    done <<<"$guards"
    if [ "$2" = cuh ]; then
        printf '#define GALAXY_CUDA_IMPLEMENTATION\n#include "galaxy_cuda.cuh"\n'
    else
        echo "#define GALAXY_IMPLEMENTATION"
        # galaxy.h has the order in which the headers are read
        while read -r header; do
            [ "${room_of[$header]}" != "$1" ] || echo "#include \"galaxy/$header\""
        done < <(sed -n 's|^#include "galaxy/\(.*\.h\)"$|\1|p' galaxy.h)
    fi
}
for room in "${rooms[@]}"; do
    case $room in cuda_*) file=$1/$room.cu ending=cuh ;; *) file=$1/$room.c ending=h ;; esac
    write "$room" "$ending" >"$file.new"
    if cmp -s "$file.new" "$file"; then rm "$file.new"; else mv "$file.new" "$file"; fi
done
