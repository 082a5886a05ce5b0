#!/usr/bin/env bash
# Every header alone and included twice, without a warning: its declarations as C11 and as C++17, its implementation as C11, and all of them in one file as C++17;
# files in both languages link with one implementation; a system header before the implementation is fine or one error; no room includes one above it.
# dev/test_headers.sh --quick: each header alone, with its implementation, as C11, two files that link without any package, the files of `make dist`, and the
# rooms (half as long).
set -u
cd "$(dirname "$0")/.."
CC=${CC:-cc} CXX=${CXX:-g++}
. dev/check.sh
compiles() { # the words of a compiler and its file
    "$@" -pedantic -Wall -Wextra -Werror -I. -fsyntax-only
}
twice() { # header: both ways in C; in C++, which takes three times as long, the declarations. That its implementation is C++ all_in_cxx sees.
    local flags ways=("" "-DGALAXY_IMPLEMENTATION")
    # in a header that has no line for OpenMP the flag changes nothing
    if [ "$1" = galaxy.h ] || grep -qE "GX_OMP|_OPENMP" "$1"; then ways+=("-DGALAXY_IMPLEMENTATION -fopenmp"); fi
    printf '#include "%s"\n#include "%s"\n' "$1" "$1" >"$tmp/twice.c"
    cp "$tmp/twice.c" "$tmp/twice.cc"
    for flags in "${ways[@]}"; do compiles "$CC" -std=c11 $flags "$tmp/twice.c" || return 1; done
    compiles "$CXX" -std=c++17 "$tmp/twice.cc"
}
all_in_cxx() { # flags...: each header as the library lists them, then each once more
    printf '#include "%s"\n' galaxy.h galaxy/*/*.h galaxy/*/*.h >"$tmp/all.cc"
    compiles "$CXX" -std=c++17 -DGALAXY_IMPLEMENTATION "$@" "$tmp/all.cc"
}
library() { # compiler's words...: the implementation, in a file that has nothing else
    printf '#define GALAXY_IMPLEMENTATION\n#include "galaxy.h"\n' >"$tmp/library.c"
    "$@" -Wall -Wextra -Werror -I. -c "$tmp/library.c" -o "$tmp/library.o"
}
links() { # compiler's words...: a file in that language, with what it declares and calls, and the library
    printf '#include "galaxy.h"\nint main(void) { GxError e = GX_ZERO; GX_FAIL(&e, GX_ERR_IO, "x"); return gx_error_code(&e) == GX_ERR_IO ? 0 : 1; }\n' >"$tmp/main.c"
    "$@" -Wall -Wextra -Werror -I. "$tmp/main.c" -x none "$tmp/library.o" -lm -lpthread -o "$tmp/main" && "$tmp/main"
}
library_links() { library "$@" && links "$@"; }
after_system_header() { # compiler's words...: the implementation behind <stdio.h>
    printf '#include <stdio.h>\n#define GALAXY_IMPLEMENTATION\n#include "galaxy.h"\nint main(void) { puts(GX_VERSION); return gx_cores() < 1; }\n' >"$tmp/after.c"
    "$@" -Wall -Wextra -Werror -I. -fsyntax-only "$tmp/after.c"
}
too_late() { # compiler's words...: one error says what to do, and nothing else is said
    if after_system_header "$@" >"$tmp/late" 2>&1; then echo "it compiled"; return 1; fi
    if [ "$(grep -c 'error:' "$tmp/late")" = 1 ] && grep -q 'error:.*compile this file with -std=gnu11 or -D_GNU_SOURCE' "$tmp/late" &&
        ! grep -q 'warning:' "$tmp/late"; then return 0; fi
    cat "$tmp/late"
    return 1
}
rooms() { # that an include goes down only: docs/architecture.md's table; comm/nccl.cuh is where comm and cuda meet
    local room below bad
    while read -r room below; do
        bad=$(grep -nE '^ *#include "\.\./' galaxy/"$room"/* | grep -v '^galaxy/comm/nccl\.cuh' | grep -vE "\"\.\./(${below// /|})/")
        [ -z "$bad" ] || { echo "galaxy/$room may include ${below:-no other room}: $bad"; return 1; }
    done <<'END'
base -
ops base
cpu base ops
cuda base ops
comm base ops
parallel base ops comm
model base ops comm parallel
io base
text base io
data base io text
plan base ops comm parallel model io
task base ops comm parallel model io text data
END
}
alone() { # header
    printf '#include "%s"\n' "$1" >"$tmp/alone.c"
    compiles "$CC" -std=c11 -DGALAXY_IMPLEMENTATION "$tmp/alone.c"
}
quick() { # every header is one check, since there are many of them
    local header ok=0
    for header in galaxy.h galaxy/*/*.h; do alone "$header" || { echo "$header"; ok=1; }; done
    return "$ok"
}

if [ "${1:-}" = --quick ]; then
    check "every header has what it uses" quick
    check "two files that include galaxy.h link (C11)" library_links "$CC" -std=c11 -pedantic
    check "the library can be put into the two files of make dist" dev/dist.sh "$tmp/dist" # dev/test_dist.sh builds with them
    check "every room includes only those below it" rooms
    finish
    exit
fi
for header in galaxy.h galaxy/*/*.h; do check "$header alone and twice" twice "$header"; done
check "all headers in one file, with their implementation, as C++17" all_in_cxx
check "all headers in one file, with their implementation, as C++17 with OpenMP" all_in_cxx -fopenmp
check "two files that include galaxy.h link (C++17)" library_links "$CXX" -x c++ -std=c++17 -pedantic
check "two files that include galaxy.h link (C11)" library_links "$CC" -std=c11 -pedantic
check "C++ calls an implementation compiled as C" links "$CXX" -x c++ -std=c++17
for cc in "$CC" $(command -v clang); do
    check "a system header before the implementation: $(basename "$cc") -std=gnu11" after_system_header "$cc" -std=gnu11
    check "a system header before the implementation: $(basename "$cc") -std=c11 -D_GNU_SOURCE" after_system_header "$cc" -std=c11 -D_GNU_SOURCE
    check "a system header before the implementation: $(basename "$cc") -std=c11: one error says what to do" too_late "$cc" -std=c11
    check "a system header before the implementation: $(basename "$cc") -std=c11, POSIX asked for" too_late "$cc" -std=c11 -D_POSIX_C_SOURCE=200809L
done
check "every room includes only those below it" rooms
finish
