#!/usr/bin/env bash
# Makes data/text.txt, the text that programs train on when they are not told another one:
#   dev/data/prepare_text.sh FILE     a file of yours
#   dev/data/prepare_text.sh          the King James Bible (Debian's bible-kjv), else WordNet's glosses (wordnet-base), else this repository
# Says which, and writes it to data/text.txt.source.
set -eu
cd "$(dirname "$0")/../.."
mkdir -p data
new=data/text.txt.new
bible=$(command -v bible || echo /usr/games/bible)
if [ $# -ge 1 ]; then
    [ -f "$1" ] || { echo "prepare_text: there is no file $1" >&2; exit 1; }
    cp "$1" "$new"
    source="$1"
elif [ -x "$bible" ] && "$bible" -f gen1:1-rev22:21 >"$new" 2>/dev/null && [ "$(wc -c <"$new")" -gt 4000000 ]; then
    source="the King James Bible, from the package bible-kjv"
elif [ -f /usr/share/wordnet/data.noun ]; then
    sed -n 's/^[0-9].* | //p' /usr/share/wordnet/data.noun /usr/share/wordnet/data.verb /usr/share/wordnet/data.adj >"$new"
    source="WordNet's glosses, from the package wordnet-base"
else
    find . -path ./build -prune -o \( -name '*.h' -o -name '*.cu' -o -name '*.md' -o -name '*.py' \) -print | LC_ALL=C sort | xargs cat >"$new"
    source="this repository's own sources (packages bible-kjv or wordnet-base give a larger text)"
fi
mv "$new" data/text.txt
printf '%s\n' "$source" >data/text.txt.source
echo "data/text.txt: $source ($(wc -c <data/text.txt | tr -d ' ') bytes)"
