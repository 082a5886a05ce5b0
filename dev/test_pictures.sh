#!/usr/bin/env bash
# The pictures of docs/ are those that the programs draw: docs/modes/*.svg (dev/draw_modes.cu), docs/tiles/*.svg (dev/draw_tiles.cu),
# docs/schedules/*.svg (dev/draw_schedules.cu), and the table of matrices in docs/modes.md (dev/draw_matrices.cu). `make pictures` draws them again.
set -uo pipefail
cd "$(dirname "$0")/.."
unset MAKEFLAGS MAKEOVERRIDES
. dev/check.sh
built=$(dirname "${GX_TRAIN_LLAMA:-$(make -s print-folder)/train_llama}") # the folder of the programs
are_drawn() { # program, folder of docs: neither has a picture more, and all are alike
    "$built/$1" "$tmp/$2" && diff -rq "$tmp/$2" "docs/$2"
}
check "docs/modes has the pictures that are drawn" are_drawn draw_modes modes
has_table() { "$built/draw_matrices" >"$tmp/table" && awk 'NR == FNR { row[$0]; next } { delete row[$0] } END { for (r in row) { print r; bad = 1 } exit bad }' "$tmp/table" docs/modes.md; }
check "docs/modes.md has the table of matrices that the models have" has_table
check "docs/tiles has the picture that is drawn" are_drawn draw_tiles tiles
check "docs/schedules has the pictures that are drawn" are_drawn draw_schedules schedules
finish
