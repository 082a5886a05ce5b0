#!/usr/bin/env bash
# dev/data/wordnet.c leaves out what WordNet marks as vulgar or as a slur, and nothing else, in all that it writes. WordNet's files are made up here.
set -u
cd "$(dirname "$0")/.."
. dev/check.sh
# A synset: offset, type, words, pointers (";u 00000001 n 0000" is the first one's usage), gloss
synset() {
    local words=($3) pointers=($4) line word
    line="$1 00 $2 $(printf %02x ${#words[@]})"
    for word in "${words[@]}"; do line+=" $word 0"; done
    printf '%s %03d%s | %s\n' "$line" $((${#pointers[@]} / 4)) "${4:+ $4}" "$5"
}
u() { echo ";u $1 n $2"; }
write() ( # in a folder of its own
    mkdir -p "$tmp/in" "$tmp/made" && cd "$tmp/in" || return 1
    {
        echo "  1 This line is of the license"
        synset 00000001 n "obscenity vulgarism" "" "an offensive or indecent word or phrase"
        synset 00000002 n "slur_on_people ethnic_slur" "" "a slur on where someone is from"
        synset 00000003 n "disparagement" "" "a communication that belittles somebody"
        synset 00000004 n "slang" "" "a characteristic language of a group"
        synset 00000011 n "wabe wabing" "$(u 00000001 0000)" "one that is marked as a whole"
        synset 00000012 n "tove" "$(u 00000002 0000)" "one that is a slur by its pointer"
        synset 00000013 n "gyre good_word ax" "$(u 00000003 0101) $(u 00000003 0303)" "of three words two are marked; \"a good word is kept\"; \"a gyre is left out\""
        synset 00000014 n "gimble" "" "(ethnic slur) offensive name for one who gimbles"
        synset 00000015 n "mome" "" "vulgar slang for the rath of borogoves"
        synset 00000016 n "rath" "" "a Snark (disparaging) term for neighbours of borogoves"
        synset 00000017 n "outgrabe" "$(u 00000004 0000)" "slang for a noise that is made"
        synset 00000018 n "dysphemism" "" "an offensive expression that is put in place of another"
        synset 00000019 n "vulgarian" "" "a vulgar person who likes to show his wealth"
        synset 00000020 n "wabe" "" "the grass plot around a certain sundial; \"the wabe is green\""
        synset 00000021 n "tool gimble" "" "what one works with in a garden; \"a wabe is no tool\"; \"wabeless and swabe\""
        synset 00000023 n "ax axe" "" "what a tree is felled with"
        synset 00000024 n "ax" "" "what a stone is hewn with"
    } >data.noun
    {
        synset 00000031 v "wabe swing" "" "to move to and fro in the wind"
        synset 00000004 v "disparagement" "" "to be a verb where the noun is slang" # their places are in different files
    } >data.verb
    synset 00000032 a "uffish(a) vorpal(ip)" "$(u 00000001 0000)" "of a kind that has a pointer" >data.adj
    synset 00000033 r "well" "" "in a manner that one likes; \"he is a mome, well\"" >data.adv
    "$tmp/wordnet" . "$tmp/made" >"$tmp/said" && cat "$tmp/made/wordnet.txt" "$tmp"/made/*/*.tsv >"$tmp/all"
)
builds() { ${CC:-cc} -std=gnu11 -O1 -I. dev/data/wordnet.c -o "$tmp/wordnet" -lm; }
has() { local text; for text in "$@"; do grep -qF -- "$text" "$tmp/all" || { echo "not there: $text"; return 1; }; done; }
lacks() { local text; for text in "$@"; do ! grep -F -- "$text" "$tmp/all" || return 1; done; }
check "wordnet.c is built" builds
check "texts are made of a WordNet of 21 synsets" write
check "synsets that a pointer marks are left out" lacks "marked as a whole" "slur by its pointer" "has a pointer"
check "synsets that their definition marks are left out" lacks "one who gimbles" "rath of borogoves" "neighbours of"
check "what is only about such words stays" has "indecent word" "noise that is made" "put in place" "show his wealth"
check "of a synset with a marked word the others stay" has "good word: of three words two are marked"
check "a word that mostly means such is left out elsewhere, too" lacks wabe: wabing ", gimble" gyre "sundial" "swing, wabe"
check "and its synset has its other words" has "to move to and fro" "what one works with"
check "an example with such a word is left out, another not" lacks "is no tool" "is a mome" "a gyre"
check "longer words that have a vulgar one in them are others" has "wabeless and swabe"
check "a word of which one meaning in three is marked stays" has "what a tree is felled with" "what a stone is hewn with"
check "it says how many" grep -qx "  left out as vulgar or disparaging: 7 of 21 synsets, words of 3 others, 3 examples" "$tmp/said"
finish
