#!/usr/bin/env bash
# Every header alone and included twice, as C11 and as C++17, declarations only and with its implementation, without a warning; two files that both
# include everything link; a system header before the implementation is fine or one error; the examples build with a bare `cc`; no room includes one above it.
# dev/test_headers.sh --quick: each header alone, with its implementation, as C11, two files that link without any package, the files of `make dist`, and the
# rooms (half a minute instead of three).
set -u
cd "$(dirname "$0")/.."
CC=${CC:-cc} CXX=${CXX:-g++}
. dev/check.sh
twice() { # header
    printf '#include "%s"\n#include "%s"\n' "$1" "$1" >"$tmp/twice.c"
    cp "$tmp/twice.c" "$tmp/twice.cc"
    local flags ways=("" "-DGALAXY_IMPLEMENTATION")
    # in a header that has no line for OpenMP the flag changes nothing
    if [ "$1" = galaxy.h ] || grep -qE "GX_OMP|_OPENMP" "$1"; then ways+=("-DGALAXY_IMPLEMENTATION -fopenmp"); fi
    for flags in "${ways[@]}"; do
        "$CC" -std=c11 -pedantic -Wall -Wextra -Werror $flags -I. -fsyntax-only "$tmp/twice.c" || return 1
        "$CXX" -std=c++17 -pedantic -Wall -Wextra -Werror $flags -I. -fsyntax-only "$tmp/twice.cc" || return 1
    done
}
two_files() { # compiler flags
    printf '#include "galaxy.h"\nint other(void) { return gx_min(2, 1) == 1; }\n' >"$tmp/one.c"
    printf '#define GALAXY_IMPLEMENTATION\n#include "galaxy.h"\nint other(void);\nint main(void) { return other() ? 0 : 1; }\n' >"$tmp/two.c"
    "$@" -Wall -Wextra -Werror -I. "$tmp/one.c" "$tmp/two.c" -lm -lpthread -o "$tmp/two" && "$tmp/two"
}
after_system_header() { # compiler's words...: the implementation behind <stdio.h>
    printf '#include <stdio.h>\n#define GALAXY_IMPLEMENTATION\n#include "galaxy.h"\nint main(void) { puts(GX_VERSION); return gx_cores() < 1; }\n' >"$tmp/after.c"
    "$@" -Wall -Wextra -Werror -I. "$tmp/after.c" -lm -lpthread -o "$tmp/after"
}
too_late() { # compiler's words...: one error says what to do, and nothing else is said
    if after_system_header "$@" >"$tmp/late" 2>&1; then echo "it compiled"; return 1; fi
    if [ "$(grep -c 'error:' "$tmp/late")" = 1 ] && grep -q 'error:.*compile this file with -std=gnu11 or -D_GNU_SOURCE' "$tmp/late" &&
        ! grep -q 'warning:' "$tmp/late"; then return 0; fi
    cat "$tmp/late"
    return 1
}
c_and_cxx() { # declarations compiled as C++ call an implementation compiled as C
    printf '#include "galaxy.h"\nint main() { GxError e = GX_ZERO; GX_FAIL(&e, GX_ERR_IO, "x"); return gx_error_code(&e) == GX_ERR_IO ? 0 : 1; }\n' >"$tmp/main.cc"
    printf '#define GALAXY_IMPLEMENTATION\n#include "galaxy.h"\n' >"$tmp/library.c"
    "$CC" -I. -c "$tmp/library.c" -o "$tmp/library.o" && "$CXX" -std=c++17 -I. "$tmp/main.cc" "$tmp/library.o" -lm -lpthread -o "$tmp/mixed" && "$tmp/mixed"
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
task base ops comm parallel model io
END
}
alone() { # header
    printf '#include "%s"\n' "$1" >"$tmp/alone.c"
    "$CC" -std=c11 -pedantic -Wall -Wextra -Werror -DGALAXY_IMPLEMENTATION -I. -fsyntax-only "$tmp/alone.c"
}
quick() { # every header is one check, since there are many of them
    local header ok=0
    for header in galaxy.h galaxy/*/*.h; do alone "$header" || { echo "$header"; ok=1; }; done
    return "$ok"
}
example() { "$CC" "$1" -I. -o "$tmp/example" -lm -lpthread; }

if [ "${1:-}" = --quick ]; then
    check "every header has what it uses" quick
    check "two files that include galaxy.h link (C11)" two_files "$CC" -std=c11 -pedantic
    check "the library can be put into the two files of make dist" dev/dist.sh "$tmp/dist" # dev/test_dist.sh builds with them
    check "every room includes only those below it" rooms
    finish
    exit
fi
for header in galaxy.h galaxy/*/*.h; do check "$header alone and twice" twice "$header"; done
check "two files that include galaxy.h link (C11)" two_files "$CC" -std=c11 -pedantic
check "two files that include galaxy.h link (C++17)" two_files "$CXX" -x c++ -std=c++17 -pedantic
for cc in "$CC" $(command -v clang); do
    check "a system header before the implementation: $(basename "$cc") -std=gnu11" after_system_header "$cc" -std=gnu11
    check "a system header before the implementation: $(basename "$cc") -std=c11 -D_GNU_SOURCE" after_system_header "$cc" -std=c11 -D_GNU_SOURCE
    check "a system header before the implementation: $(basename "$cc") -std=c11: one error says what to do" too_late "$cc" -std=c11
    check "a system header before the implementation: $(basename "$cc") -std=c11, POSIX asked for" too_late "$cc" -std=c11 -D_POSIX_C_SOURCE=200809L
done
check "C++ calls an implementation compiled as C" c_and_cxx
for source in examples/*.c; do check "$source builds with a bare cc" example "$source"; done # dev/test_dist.sh runs them
check "every room includes only those below it" rooms
finish
