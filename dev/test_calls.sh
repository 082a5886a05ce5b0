#!/usr/bin/env bash
# That calls go one way: a header of these rooms declares only functions that it defines, and its includes lead to no circle, so that whoever calls a function
# includes the file that defines it, and lies above that.
# dev/test_calls.sh [ROOM ...]: rooms of galaxy/; all of them but cpu and cuda, unless they are named.
set -u
cd "$(dirname "$0")/.."
. dev/check.sh
rooms=("$@")
[ $# != 0 ] || rooms=(base ops comm parallel model io text data plan task run)
functions() { # p (declared) or f (defined), header: the names of its functions, the static ones among them
    ctags -x --language-force=C --c-kinds="$1" -I GX_BEGIN,GX_END,GX_PRINTF+,GX_RESTRICT "$2" | awk '$1 ~ /^gx_/ {print $1}' | sort -u
}
declares_what_it_defines() { # room: each header, with what it declares and does not define
    local header twin bad ok=0
    for header in galaxy/"$1"/*.h; do
        twin=${header%.h}.cuh # what is in CUDA of it
        bad=$(comm -23 <(functions p "$header") <({ functions f "$header"; [ ! -e "$twin" ] || functions f "$twin"; } | sort -u))
        [ -z "$bad" ] || { echo "$header declares, and does not define: ${bad//$'\n'/, }"; ok=1; }
    done
    return "$ok"
}
has_no_circle() { # room: its headers in an order in which each comes behind those that it includes; tsort tells of circles
    local header name circle
    circle=$(for header in galaxy/"$1"/*.h; do
        echo "$(basename "$header") $(basename "$header")"
        for name in $(sed -n 's|^ *#include "\([a-z0-9_]*\.h\)".*|\1|p' "$header"); do echo "$name $(basename "$header")"; done
    done | tsort 2>&1 >/dev/null)
    [ -z "$circle" ] || { echo "galaxy/$1: headers include each other in a circle: $circle"; return 1; }
}
for room in "${rooms[@]}"; do
    if command -v ctags >/dev/null; then check "headers of galaxy/$room declare only what they define" declares_what_it_defines "$room"
    else skip "headers of galaxy/$room declare only what they define" "ctags was not found (universal-ctags)"; fi
    check "headers of galaxy/$room include each other in no circle" has_no_circle "$room"
done
finish
