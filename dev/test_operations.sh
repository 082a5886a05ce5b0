#!/usr/bin/env bash
# docs/operations.md lists every operation that a header of galaxy/ops declares, under that header, and no other; the files in which it says that devices
# compute them do that; what it says calls them calls them.
#   dev/test_operations.sh [--write [PAGE]]      --write: writes anew what calls them; PAGE: another page than docs/operations.md, as it would lie there
set -u
cd "$(dirname "$0")/.."
page=${2:-docs/operations.md}
other="attention_rotate_back" # a part of two devices' attention, not of what is computed
in_page() { awk '/^## / { header = $2 } /^\| `/ { split($0, part, "`"); print header, part[2] }' "$page"; }
# A header's functions "void gx_NAME(GxContext *g, ..."; those of memory.h move bytes between host and device, and compute nothing.
in_headers() {
    local header
    for header in galaxy/ops/*.h; do
        [ "$header" = galaxy/ops/memory.h ] && continue
        sed '/defined(GALAXY_IMPLEMENTATION)/,$d' "$header" | sed -n "s|^void gx_\([a-z_]*\)(GxContext .*|$header \1|p"
    done | grep -vxE ".* ($other)"
}
rows() { in_page | awk -v header="$1" '$1 == header { print $2 }'; }
headers() { in_page | awk '!seen[$1]++ { print $1 }'; }
about() { # what stands between a header's name and its table, as a line
    awk -v header="$1" '/^## / { here = $2 == header; next } /^\|/ { here = 0 } here' "$page" | paste -sd' ' | sed 's/^ *//; s/ *$//'
}

# model/mlp.h, ...: files in other rooms than ops, cpu and cuda that call one of a header's operations
callers() {
    local names
    names=$(rows "$1" | paste -sd'|')
    grep -lE "\bgx_($names)\(" galaxy/*/*.h | grep -vE '^galaxy/(ops|cpu|cuda)/' | sed 's|^galaxy/||' | paste -sd, | sed 's/,/, /g; s/$/./; s/^\.$/nothing./'
}
if [ "${1:-}" = --write ]; then
    for header in $(headers); do
        callers "$header" | sed 's/^/Called by: /' | fold -s -w 120 | sed 's/ *$//' >"$page.callers"
        awk -v header="$header" -v callers="$page.callers" '
            /^## / { here = $2 == header }
            here && /^Called by: / { skip = 1; while ((getline line <callers) > 0) print line }
            /^$/ { skip = 0 }
            !skip { print }' "$page" >"$page.new" && mv "$page.new" "$page" && rm "$page.callers" || exit 1
    done
    exit
fi
. dev/check.sh
lists_all() { diff <(in_headers | sort) <(in_page | sort); }
of_a_device() { # the function behind an operation
    case $1 in rope_*) echo rope ;; sum_squares) echo "square_blocks add_blocks" ;; *) echo "$1" ;; esac
}
devices_have_them() {
    local header operation device files function wrong=0
    for header in $(headers); do
        if [ "$header" = galaxy/ops/quantized_linear.h ]; then # made of others
            ! grep -q "g->device->" "$header" || { echo "$header calls a device"; wrong=1; }
            continue
        fi
        for device in cpu cuda; do
            files=$(about "$header" | grep -oE "\(\.\./galaxy/$device/[a-z_.]+\)" | tr -d '()' | sed 's|^\.\./||')
            [ -n "$files" ] && cat $files >"$tmp/sources" || { echo "$header: files of $device: '$files'"; wrong=1; continue; }
            for operation in $(rows "$header"); do
                for function in $(of_a_device "$operation"); do
                    grep -qE "\bgx_${device}_$function\(GxContext" "$tmp/sources" || { echo "no gx_${device}_$function in" $files; wrong=1; }
                done
            done
        done
    done
    return $wrong
}
# Every function of a device's table that computes is one of these.
table_is_listed() {
    local function
    for function in $(sed -n '/^    \/\/ elementwise/,/^};/s/^    void (\*\([a-z_]*\))(GxContext.*/\1/p' galaxy/ops/device.h); do
        in_page | cut -d' ' -f2 | while read -r operation; do of_a_device "$operation"; done | tr ' ' '\n' | grep -qx "$function" || { echo "not listed: $function"; return 1; }
    done
}
callers_are_right() {
    local header said wrong=0
    for header in $(headers); do
        said=$(about "$header" | sed 's/.*Called by: //; s/  .*//') # up to the next paragraph
        [ "$said" = "$(callers "$header")" ] || { echo "$header is called by: $(callers "$header")"; echo "but the page says: $said"; wrong=1; }
    done
    [ $wrong = 0 ] || echo "dev/test_operations.sh --write puts it right"
    return $wrong
}
check "the page lists every operation of the headers, and no other" lists_all
check "the files that it names compute them, on the CPU and on cards" devices_have_them
check "the device's table has nothing that is not listed" table_is_listed
check "what it says calls them does, and nothing else" callers_are_right
finish
