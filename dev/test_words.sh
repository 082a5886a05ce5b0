#!/usr/bin/env bash
# The data and the scores of dev/demo_seq2seq.sh: what dev/data/prepare_words.sh makes of a dictionary, and what
# dev/score_words.c counts. The dictionary is made up here.
set -u
cd "$(dirname "$0")/.."
. dev/check.sh
export CMUDICT="$tmp/dictionary"
{
    echo MNCL
    for a in b c d f g h j k l m; do # words enough for each file
        for b in n p q r s t v w x z; do
            for c in a e o; do echo "(\"$a$c$b\" nil ((($a aa $b) 1)))"; done
        done
    done
    cat <<'END'
("snark" nil (((s n aa r k) 1)))
("Boojum" n (((b uw) 1) ((jh ax m) 0)))
("bandersnatch" nil (((b ae n) 1) ((d er) 0) ((s n ae ch) 0)))
("tove" n (((t ow v) 1)))
("tove" v (((t ow v) 0)))
("live" j (((l ay v) 1)))
("live" v (((l ih v) 1)))
("gyre" n (((g ay r) 1)))
("Gyre" n (((jh ay r) 1)))
("o'clock" nil (((ax) 0) ((k l aa k) 1)))
("rath-1" nil (((r ae th) 1)))
END
} >"$CMUDICT"
write() {
    dev/data/prepare_words.sh "$tmp/words" >"$tmp/said" && cat "$tmp"/words/{train,validation,test}.tsv >"$tmp/all"
}
has() { # WORD:PHONEMES ...
    local line
    for line in "$@"; do grep -qx -- "${line/:/$'\t'}" "$tmp/all" || { echo "not there: $line"; return 1; }; done
}
lacks() { local word; for word in "$@"; do ! grep -- "^$word" "$tmp/all" || return 1; done; }
apart() { # each file has its columns' names and a word, and no word is in two files
    local part
    for part in train validation test; do
        [ "$(head -n 1 "$tmp/words/$part.tsv")" = "source"$'\t'"target" ] || return 1
        [ "$(wc -l <"$tmp/words/$part.tsv")" -gt 1 ] || return 1
    done
    [ -z "$(grep -v ^source "$tmp/all" | cut -f 1 | sort | uniq -d)" ]
}
again() { cp -r "$tmp/words" "$tmp/before" && write && diff -r "$tmp/before" "$tmp/words"; }
are_tokens() {
    local piece
    for piece in "$@"; do grep -qxF -- "$piece" "$tmp/words/vocab.txt" || { echo "no token: $piece"; return 1; }; done
}
phonemes() { grep -v ^source "$tmp/all" | cut -f 2 | tr ' ' '\n' | sort -u; }
refused() { # DICTIONARY, WORDS OF THE MESSAGE
    local said
    if said=$(CMUDICT=$1 dev/data/prepare_words.sh "$tmp/other" 2>&1); then echo "it was taken"; return 1; fi
    echo "$said"
    [[ $said == *"$2"* ]] && [ ! -e "$tmp/other" ]
}
check "words are made of a dictionary" write
check "a word has its phonemes, without stress and syllables" \
    has "snark:S N AA R K" "bandersnatch:B AE N D ER S N AE CH"
check "upper case does not count" has "boojum:B UW JH AX M"
check "a word with two equal pronunciations is there once" has "tove:T OW V"
check "a word with several pronunciations is left out" lacks live gyre
check "so is a word with other characters than letters" lacks o rath clock
check "it says how many" grep -q "left out: 2 with several pronunciations" "$tmp/said"
check "three files have words, and none is in two" apart
check "the same dictionary gives the same bytes" again
check "letters are tokens, and what a BART needs" are_tokens a '##a' z '##z' '[CLS]' '[PAD]' '[SEP]' '[UNK]'
check "so are all phonemes" are_tokens $(phonemes)
check "a dictionary that is not there is named with its package" refused "$tmp/nothing" "install festlex-cmu"
echo MNCL >"$tmp/empty"
check "an empty one is refused" refused "$tmp/empty" "too few words"

builds() { ${CC:-cc} -std=gnu11 -O1 dev/score_words.c -o "$tmp/score_words"; }
table() { printf 'source\ttarget\n' && tr ',:' '\n\t' <<<"$1"; }
scores() { # WORDS OF THE TEST (WORD:PHONEMES,...), WHAT IS WRITTEN, WORDS THAT IT SAYS
    local said
    table "loupe:L UW P,house:HH AW S,mouse:M AW S,hound:HH AW N D,tongue:T AH NG" >"$tmp/train.tsv"
    table "$1" >"$tmp/test.tsv"
    table "$2" >"$tmp/written.tsv"
    said=$("$tmp/score_words" "$tmp/train.tsv" "$tmp/test.tsv" "$tmp/written.tsv" 2>&1)
    echo "$said"
    [[ $(echo $said) == *"$3"* ]]
}
check "score_words.c is built" builds
# "loupe", "house" and "mouse" are one letter away from "louse", the latter two with a longer end; "hound" from "bound"
check "without an error the rate is 0; of the nearest words that with the longest common end counts" \
    scores "louse:L AW S" "louse:L AW S" "words 1 model 0.0000 1.0000 nearest 0.3333 0.0000"
check "a phoneme more, one less and another are an error each" \
    scores "louse:L AW S,bound:B AW N D" "louse:L AW S S,bound:P AW N" "model 0.4286 0.0000 nearest 0.2857 0.0000"
# "house" is one letter away from "hose"; "tongue" from "hongue", which begins like "hound"
check "the nearest word has the fewest other letters" \
    scores "hose:HH OW Z,hongue:T AH NG" "hose:HH OW Z,hongue:HH" "nearest 0.3333 0.5000"
check "no phoneme at all is as many errors as there are" scores "louse:L AW S" "louse:" "model 1.0000"
check "other words than those of the test are refused" scores "louse:L AW S" "mouse:M AW S" "has other words"
check "and so are too few" scores "louse:L AW S,bound:B AW N D" "louse:L AW S" "has not as many words"
finish
