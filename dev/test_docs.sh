#!/usr/bin/env bash
# What README.md, docs/*.md and `make help` name in code exists: files, programs and their options, make's targets and variables, and the headings behind
# links. The scripts of dev parse, and no Python script has the name of a module of Python's library: beside it, Python would import it instead.
#   dev/test_docs.sh [FILE...]      these documents (Markdown) in place of README.md and docs/*.md
set -uo pipefail
cd "$(dirname "$0")/.."
unset MAKEFLAGS MAKEOVERRIDES
. dev/check.sh
built=$(dirname "${GX_TRAIN_LLAMA:-$(make -s print-folder)/train_llama}") # the folder of the programs
documents=("$@")
[ $# -gt 0 ] || documents=(README.md docs/*.md)
brought="program.c program.cu galaxy.c OUT/report.md"       # what a reader brings, or what a command writes
foreign="--no-python --nproc_per_node --local-dir --model_args" # options of torchrun, of hf and of lm_eval
silent() { "$@" >"$tmp/said" && [ ! -s "$tmp/said" ] || { cat "$tmp/said"; return 1; }; } # each line that is said is something that is wrong

# A line "PLACE<tab>CODE" for each code quote, for each line of a block of code, and for each line of `make help`.
code() {
    awk 'FNR == 1 { fenced = quoted = 0 }
        /^```/ { fenced = !fenced; next }
        fenced || /^    / { print FILENAME ":" FNR "\t" $0; next }
        /^$/ { quoted = 0 }
        { n = split($0, part, "`"); for (i = 1; i <= n; i++) { if (quoted) print FILENAME ":" FNR "\t" part[i]; if (i < n) quoted = !quoted } }' "${documents[@]}" &&
        make -s help | sed 's/^/make help\t/'
}
# Files: what ends like a source, or begins with a folder of sources, is a path, or the end of one; <NAME> and * stand for any.
files() {
    find * -path build -prune -o -path out -prune -o -type f -print >"$tmp/files"
    awk -F'\t' -v brought="$brought" '
        function exists(w,    pattern, path) {
            if (w !~ /\*/) return w in known
            pattern = "^" w "$"; gsub(/\./, "[.]", pattern); gsub(/\*/, "[^/]*", pattern)
            for (path in known) if (path ~ pattern) return 1
            return 0
        }
        BEGIN { n = split(brought, part, " "); for (i = 1; i <= n; i++) known[part[i]] }
        NR == FNR { n = split($0, part, "/"); end = folder = ""
            for (i = n; i > 0; i--) { end = part[i] (i < n ? "/" end : ""); known[end] }
            for (i = 1; i < n; i++) { folder = folder part[i]; known[folder]; folder = folder "/"; known[folder] }
            next }
        { n = split($2, part, /[^A-Za-z0-9_.\/<>*-]+/)
          for (i = 1; i <= n; i++) { w = part[i]; sub(/^\.\//, "", w); sub(/\.+$/, "", w)
              source = w ~ /\.(h|cuh|cu|c|sh|py|awk|md)$/ || w ~ /^(dev|docs|galaxy|examples|test|train_config|data\/ref)\//
              if (source && w !~ /^(build|out)\// && w !~ /</ && !exists(w)) print $1 ": there is no file " w } }' "$tmp/files" "$tmp/code"
}
# Programs: make has a target of that name.
programs() {
    awk -F'\t' '
        NR == FNR { target[$0]; next }
        { n = split($2, part, /[^A-Za-z0-9_.\/-]+/)
          for (i = 1; i <= n; i++) { w = part[i]
              if (sub(/^\.\//, "", w) && w ~ /^[a-z_0-9]+$/ && !(w in target)) print $1 ": make builds no program " w } }' "$tmp/targets" "$tmp/code"
}
# Options: behind ./NAME those that NAME --help all lists, of every task; elsewhere those of any program, or of a script or program of dev.
listed() { # a line "NAME OPTION" for each; "any" is anybody's
    local name tasks
    for name in $(grep -xE 'train_.*|tokenize|convert_gguf|merge_adapter|generate_.*' "$tmp/targets"); do
        "$built/$name" --help all >"$tmp/help" || return 1
        tasks=$(tr -s ' \n' '  ' <"$tmp/help" | sed -n 's/| /|/g; s/.*--task NAME --help all (one of \([a-z0-9_|]*\).*/\1/p' | tr '|' ' ')
        for task in $tasks; do "$built/$name" --task "$task" --help all || return 1; done >>"$tmp/help"
        grep -oE -- '--[A-Za-z][A-Za-z0-9_-]*' "$tmp/help" | sort -u | sed "s/^/$name /"
    done
    find dev -type f \( -name '*.sh' -o -name '*.py' -o -name '*.cu' \) ! -name test_docs.sh -exec grep -ohE -- '--[A-Za-z][A-Za-z0-9_-]*' {} + | sed 's/^/any /'
    printf 'any %s\n' $foreign
}
options() {
    listed >"$tmp/options" && awk -F'\t' '
        NR == FNR { split($0, part, " "); takes[part[1], part[2]]; takes["any", part[2]]; named[part[1]]; next }
        !goes_on { program = "any" }
        { goes_on = $2 ~ /\\$/
          n = split($2, part, /[^A-Za-z0-9_.\/-]+/)
          for (i = 1; i <= n; i++) { w = part[i]
              if (sub(/^\.\//, "", w)) program = w in named ? w : "any"
              else if (w ~ /^--[A-Za-z]/ && !((program, w) in takes)) print $1 ": " (program == "any" ? "no program has the option " : program " has no option ") w } }' "$tmp/options" "$tmp/code"
}
# make: targets that it has, and variables that the Makefile sets or reads; of `make help` what stands before the explanation.
targets() {
    sed -n 's/^\([A-Z0-9_]*\) *[?:]*=.*/\1/p; s/.*\$(\([A-Z0-9_]*\)).*/\1/p' Makefile >"$tmp/variables"
    sed '/^make help/s/   *.*//; s/ # .*//; s/"[^"]*"//g' "$tmp/code" | awk -F'\t' '
        FILENAME != "-" { known[$0]; next }
        { n = split($2, command, /(^|[^A-Za-z0-9_.\/-])make /)
          for (c = 2; c <= n; c++) { m = split(command[c], part, " ")
              for (i = 1; i <= m && part[i] ~ /^(-[a-zA-Z]+[0-9]*|[A-Z0-9_]+=.*|[a-z][a-z0-9_-]*)$/; i++) { w = part[i]; sub(/=.*/, "", w)
                  if (w !~ /^-/ && !(w in known)) print $1 ": make has no " (w ~ /^[a-z]/ ? "target " : "variable ") w } } }' "$tmp/targets" "$tmp/variables" -
}
# Links: the file exists, and has a heading with that anchor, as GitHub makes it of the heading's text.
links() {
    local document link file
    awk 'FNR == 1 { fenced = 0 } /^```/ { fenced = !fenced }
        /^#+ / && !fenced { sub(/^#+ /, ""); s = tolower($0); gsub(/[^a-z0-9 _-]/, "", s); gsub(/ /, "-", s); print FILENAME "#" s }' README.md docs/*.md >"$tmp/anchors"
    for document in "${documents[@]}"; do
        grep -oE '\]\([^) ]+\)' "$document" | sed 's/^](//; s/)$//; /^[a-z]*:\/\//d' | while IFS= read -r link; do
            file=${link%%#*}
            if [ -n "$file" ]; then file=$(realpath -m --relative-to=. "$(dirname "$document")/$file"); else file=$document; fi
            [ -e "$file" ] || echo "$document: the link $link leads to no file"
            [[ $link != *#* ]] || grep -qxF "$file#${link#*#}" "$tmp/anchors" || echo "$document: the link $link leads to no heading"
        done
    done
    return 0
}
# README is a page: at most 120 lines.
page() { [ "$(wc -l <README.md)" -le 120 ] || echo "README.md has $(wc -l <README.md) lines, more than 120"; }
# At most 120 columns, where a line can be broken: not in tables, code, and what has no blank (LC_ALL=C: bytes that go on
# with a letter are no column).
narrow() {
    LC_ALL=C awk 'FNR == 1 { fenced = 0 } /^ *```/ { fenced = !fenced } fenced || /^ *\|/ || /^    / || !/[^ ] [^ ]/ { next }
        { line = $0; gsub(/[\200-\277]/, "", line)
          if (length(line) > 120) print FILENAME ":" FNR ": " length(line) " columns, more than 120" }' "${documents[@]}"
}
# What git leaves of a merge that is not finished, also where a formatter has joined it with other lines.
merged() { grep -nE '(<{7}|>{7})( |$)' "${documents[@]}"; return 0; }
shell_scripts() { find dev -name '*.sh' -print0 | xargs -0 -n 1 bash -n 2>&1; }
python_scripts() { find dev -name '*.py' -print0 | PYTHONPYCACHEPREFIX="$tmp/pycache" xargs -0 "$python" -m py_compile 2>&1; }
python_modules() {
    find dev -name '*.py' | "$python" -c 'import pathlib, sys
for p in map(pathlib.Path, sys.stdin.read().splitlines()):
    if p.stem in sys.stdlib_module_names: print(f"{p}: Python would import it in place of its own module {p.stem}; give it another name")'
}

code >"$tmp/code"
make -qp print-folder 2>"$tmp/errors" | sed -n 's/^\([a-z_0-9-]*\):.*/\1/p' | sort -u >"$tmp/targets"
check "there is code in the documents" test -s "$tmp/code"
check "the files that documents name exist" silent files
check "the programs that documents name are built" silent programs
check "the options that documents name exist, of the program that they stand behind" silent options
check "the targets and variables of make that documents name exist" silent targets
check "links lead to files and headings" silent links
[ $# -gt 0 ] || check "README is a page" silent page
check "documents have at most 120 columns" silent narrow
check "documents have no marks of an unfinished merge" silent merged
check "the shell scripts parse" silent shell_scripts
python=$(command -v python3)
if [ -n "$python" ] && "$python" -c 'import sys; sys.stdlib_module_names' 2>"$tmp/errors"; then
    check "the Python scripts parse" silent python_scripts
    check "no Python script has the name of a module of Python's library" silent python_modules
else
    skip "the Python scripts parse" "there is no Python 3.10 or newer"
    skip "no Python script has the name of a module of Python's library" "there is no Python 3.10 or newer"
fi
finish
