#!/usr/bin/env bash
# Makes data/bert, texts to train BERT on, from two packages of Debian and without a download: WordNet (wordnet-base; WORDNET=FOLDER: another
# folder with data.noun, data.verb, data.adj, data.adv) and, where it is there, the King James Bible (bible-kjv, bible-kjv-text). The same packages
# give the same bytes.
#
#   pretrain.txt                              one sentence per line, an empty line between documents. A chapter of the Bible is a document; so are the
#                                             synsets of WordNet with the same hypernym: "words: definition", then examples.
#   pos/{train,validation,test}.tsv           text, label: a definition and its part of speech (noun, verb, adj, adv). Definitions that two parts of
#                                             speech share are left out, of equal ones one stays. Four in five are nouns: look at macro F1, too.
#   pairs/{train,validation}.tsv              anchor, positive: the words of a synset and its definition, where no other synset has these words or this
#                                             definition. (Of a word with several meanings each definition would be as right as the others.)
#   rerank/{train,validation}.tsv             group, text, text2, label: of a sixth of these pairs, the words beside five definitions of the same part of
#                                             speech; label 1: its own. Two of the others have the same hypernym where there are such.
#
# The hash of a definition decides where it goes: a tenth to test, a tenth to validation, alike in all of these, and those are not in pretrain.txt
# either. Definitions are what stands before the first example in quotes; those of one or two words, and those that need the quote, are left out.
# WordNet is a dictionary, of vulgar words and slurs, too. Synsets that it marks as such are left out, and elsewhere words that mostly mean such
# (wordnet.c); what it does not mark stays: compounds of these words, and coarse definitions. Of many definitions the wording tells the part of speech
# ("the act of", "in a ... manner", "of or relating to"), and some repeat a word that they define: neither task needs more than words to be well above
# chance.
set -eu
cd "$(dirname "$0")/../.."
wordnet=${WORDNET:-/usr/share/wordnet}
bible=$(command -v bible || echo /usr/games/bible)
[ -f "$wordnet/data.noun" ] || { echo "prepare_bert: there is no $wordnet/data.noun; install wordnet-base, or say WORDNET=FOLDER" >&2; exit 1; }
new=data/bert.new
rm -rf "$new"
mkdir -p "$new" build
trap 'rm -rf "$new"' EXIT

# "Ge1:1 In the beginning ...": a sentence ends behind . ? or ! before a capital letter, also in the middle of a verse or behind its end
bible() { if [ -x "$bible" ]; then "$bible" -f gen1:1-rev22:21; fi; }
bible | LC_ALL=C awk '
    function flush() {
        while (match(text, /[.?!]\)? +[A-Z(]/)) {
            print substr(text, 1, RSTART + RLENGTH - 2)
            text = substr(text, RSTART + RLENGTH - 1)
        }
        if (text != "") print text "\n"
        text = ""
    }
    { split($1, at, ":") }
    at[1] != chapter { flush(); chapter = at[1] }
    { sub(/^[^ ]+ +/, ""); gsub(/ +/, " "); text = text (text == "" ? "" : " ") $0 }
    END { flush() }' | sed 's/ *$//' >"$new/pretrain.txt"
of="the King James Bible and WordNet"
if [ "$(grep -c . "$new/pretrain.txt")" -lt 20000 ]; then
    of="WordNet alone (bible-kjv and bible-kjv-text give more sentences)"
    : >"$new/pretrain.txt"
fi
echo "data/bert, from $of:"
${CC:-cc} -std=gnu11 -O2 -I. dev/data/wordnet.c -o build/wordnet -lm
build/wordnet "$wordnet" "$new"
cat "$new/wordnet.txt" >>"$new/pretrain.txt"
rm "$new/wordnet.txt"
echo "  pretrain.txt: $(grep -c . "$new/pretrain.txt") sentences, $(wc -c <"$new/pretrain.txt" | tr -d ' ') bytes"
rm -rf data/bert
mv "$new" data/bert
trap - EXIT
