#!/usr/bin/env bash
# The library as two files that stand alone, to be copied into another project: dev/dist.sh FOLDER writes FOLDER/galaxy.h and FOLDER/galaxy_cuda.cuh, from
# galaxy.h, galaxy_cuda.cuh and what they include. The same sources give the same bytes; nothing is written where something is wrong.
#
# A header is its declarations, always, and behind them its implementation, under GALAXY_IMPLEMENTATION or GALAXY_CUDA_IMPLEMENTATION. An implementation may
# include headers whose declarations everybody needs; so a file has the declarations of all headers, in the order in which a compiler meets them where nothing is
# implemented, then the implementations, in the order in which it meets those. Each stands once, with its guards, where it is met first. A header that only
# implementations include stands whole inside the first of them. galaxy_cuda.cuh includes galaxy.h for what is there already.
set -euo pipefail
[ $# = 1 ] || { echo "usage: dev/dist.sh FOLDER" >&2; exit 2; }
folder=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "$0")/.."
tmp=$(mktemp -d "$folder/dist.XXXXXX")
trap 'rm -rf "$tmp"' EXIT

banner() { # file
    echo "// Galaxy $(sed -n 's/^#define GX_VERSION  *"\(.*\)"/\1/p' galaxy/base/common.h): $1, $2"
    echo "// Made from the library's headers by \`make dist\`. A line \"// ---- galaxy/...\" before each part names the file that it is in the sources; files that the"
    echo "// text names are such parts, and cannot be included by themselves here."
    echo "//"
    sed 's|^|// |; s| *$||' LICENSE
    echo
}

one_file() { # front door [, the front door beside it, which is included]
    awk -v door="$1" -v beside="${2:-}" '
    function fail(message) { print "dist: " message >"/dev/stderr"; failed = 1; exit 1 }
    function say(line) { if (!silent) print line }
    function title(file, part) { say("\n// ---- " file part) }

    # Of each line of a file: the text, how many conditions it is under, which file it includes; and where the implementation begins.
    function load(file,   n, line, depth, got) {
        if (file in lines) return
        while ((got = (getline line <file)) > 0) {
            text[file, ++n] = line
            if (line ~ /^[ \t]*#[ \t]*endif/) depth--
            under[file, n] = depth
            if (line ~ /^[ \t]*#[ \t]*if/) depth++
            if (line ~ /^[ \t]*#[ \t]*include[ \t]*"/) target[file, n] = path(file, n, line)
            if (line !~ /^#if defined\(GALAXY(_CUDA)?_IMPLEMENTATION\) && !defined\(GX_[A-Z0-9_]+_IMPLEMENTED\)$/) continue
            if (file in begins) fail(file ":" n ": a second implementation; a header has one, at its end")
            begins[file] = n
        }
        if (got < 0) fail(file ": cannot be read")
        close(file)
        if (depth) fail(file ": its #if and #endif do not match")
        lines[file] = n
        if (!(file in begins)) begins[file] = n + 1
    }
    # "galaxy/io/json.h" of an #include "../io/json.h" in galaxy/task/embedding.h
    function path(file, n, line,   folder, name, part, parts, i, kept, n_kept, ignored) {
        folder = name = file
        sub(/[^\/]*$/, "", folder)
        sub(/^[^"]*"/, "", line)
        sub(/".*/, "", line)
        parts = split(folder line, part, "/")
        for (i = 1; i <= parts; i++) {
            if (part[i] != "..") kept[++n_kept] = part[i]
            else if (--n_kept < 0) fail(file ":" n ": \"" line "\" lies outside of the project")
        }
        name = kept[1]
        for (i = 2; i <= n_kept; i++) name = name "/" kept[i]
        if ((getline ignored <name) < 0) fail(file ":" n ": \"" line "\" was not found")
        close(name)
        return name
    }
    function is_part(file, n) { return ((file, n) in target) && target[file, n] ~ /^galaxy\// } # not of the other front door

    # Each of these writes what was not written yet, and returns whether that was anything.
    function declare(file,   n, is_torn) {
        load(file)
        if (file in declared) return 0
        declared[file] = implementing
        title(file, "")
        for (n = 1; n < begins[file]; n++) is_torn = write_line(file, n, is_torn, "")
        return 1
    }
    function implement(file,   n, is_torn) {
        load(file)
        if (file in implemented) return 0
        implemented[file] = 1
        for (n = 1; n < begins[file]; n++)
            if (is_part(file, n)) implement(target[file, n])
        if (begins[file] > lines[file]) return 0
        title(file, ", implementation")
        for (n = begins[file]; n <= lines[file]; n++) is_torn = write_line(file, n, is_torn, ", implementation")
        return 1
    }
    # A line, or the parts that it includes; returns whether the file is torn: other parts stand before its next line.
    function write_line(file, n, is_torn, what,   part) {
        if (!is_part(file, n)) {
            if ((file, n) in target) fail(file ":" n ": a part of the library includes " target[file, n])
            if (is_torn) title(file, what ", continued")
            say(text[file, n])
            return 0
        }
        part = target[file, n]
        if (part in declared && (part in where && where[part] != file || !silent && declared[part] == door_before))
            fail(file ":" n ": " part " stands inside an implementation that is not always there; list it in galaxy.h")
        if (!(part in declared) && under[file, n] > 1) where[part] = file
        if (declare(part)) is_torn = 1
        if (what != "" && implement(part)) is_torn = 1
        return is_torn
    }
    function front_door(file,   n, last) {
        load(file)
        for (n = 1; n <= lines[file]; n++)
            if (is_part(file, n)) last = n
        for (n = 1; n <= lines[file]; n++) {
            if (!is_part(file, n)) { say(text[file, n]); continue }
            if (beside != "" && file == door && !includes_beside++) say("#include \"" beside "\"")
            declare(target[file, n])
            if (n == last) implement_all(file, last)
        }
    }
    function implement_all(file, last,   n) {
        implementing = file
        for (n = 1; n <= last; n++)
            if (is_part(file, n)) implement(target[file, n])
        implementing = ""
        title(file, ", continued")
    }
    BEGIN {
        if (beside != "") { silent = 1; front_door(beside); silent = 0; door_before = beside }
        else door_before = "none"
        front_door(door)
        exit failed
    }'
}

{ banner galaxy.h "the host side of the library in one file" && one_file galaxy.h; } >"$tmp/galaxy.h"
{ banner galaxy_cuda.cuh "the device \`cuda\` in one file, for which galaxy.h lies beside it" && one_file galaxy_cuda.cuh galaxy.h; } >"$tmp/galaxy_cuda.cuh"
mv "$tmp/galaxy.h" "$tmp/galaxy_cuda.cuh" "$folder"
