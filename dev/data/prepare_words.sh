#!/usr/bin/env bash
# Makes data/words, or another FOLDER: spellings and their American pronunciations, from CMUdict as Debian's package
# festlex-cmu has it (CMUDICT=FILE: another file in Festival's format), without a download. The same package gives the
# same bytes.
#   dev/data/prepare_words.sh [FOLDER]
#
#   {train,validation,test}.tsv    source, target: "abacus", "AE B AX K AX S"
#   vocab.txt                      a WordPiece vocabulary: each lower-case letter, at the beginning of a word and inside
#                                  of it (##a), is a token, and so is each phoneme, in upper case; beside it
#                                  tokenizer_config.json, which says that upper case stays
#
# An entry ("abacus" nil (((ae) 1) ((b ax) 0) ((k ax s) 0))) is a word, its part of speech, and syllables with their
# stress. Stress and the boundaries of syllables are left out, and so are words with other characters than letters.
# Words that have several entries with different phonemes, such as "live", are left out as well, since no spelling says
# which of them is meant; upper case does not count. The hash of a word decides where it goes: a hundredth to test, two
# hundredths to validation. Relatives of a word ("abandon", "abandons") may be in different files, which also helps a
# search for the nearest word. Many of the words are names. It is a dictionary, of vulgar words and slurs, too.
set -eu
cd "$(dirname "$0")/../.."
cmudict=${CMUDICT:-/usr/share/festival/dicts/cmu/cmudict-0.4.out}
if [ ! -f "$cmudict" ]; then
    echo "prepare_words: there is no $cmudict; install festlex-cmu, or say CMUDICT=FILE" >&2
    exit 1
fi
folder=${1:-data/words}
new=$folder.new
rm -rf "$new"
mkdir -p "$new"
trap 'rm -rf "$new"' EXIT

# "word<tab>PHONEMES", each once; then without words that have several
entry='^("\([A-Za-z]*\)" [^ ]* (((\(.*\))))$'
sed -n "s/$entry/\1 \2/p" "$cmudict" | tr '()0-9' ' ' | awk '{
        line = tolower($1) "\t" toupper($2)
        for (i = 3; i <= NF; i++) line = line " " toupper($i)
        print line
    }' | LC_ALL=C sort -u >"$new/all"
awk -F '\t' -v out="$new/" '
    BEGIN { for (c = 97; c < 123; c++) code[sprintf("%c", c)] = c }
    function hash(word, i, h) { # modulo a prime; products are exact in doubles
        for (i = 1; i <= length(word); i++) h = (h * 8191 + code[substr(word, i, 1)]) % 16777213
        return h
    }
    function put(file, line) {
        if (!n[file]++) print "source\ttarget" >(out file)
        print line >(out file)
    }
    function decide(part) { # where the word before goes
        if (pronunciations > 1) several++
        if (pronunciations != 1) return
        part = hash(word) % 100
        put(part == 0 ? "test.tsv" : part <= 2 ? "validation.tsv" : "train.tsv", line)
    }
    { if ($1 != word) { decide(); pronunciations = 0 } word = $1; line = $0; pronunciations++ }
    END {
        decide()
        printf "  %d words to train on, %d for validation, %d to test; left out: %d with several pronunciations\n", \
            n["train.tsv"], n["validation.tsv"], n["test.tsv"], several
        exit !(n["train.tsv"] && n["validation.tsv"] && n["test.tsv"])
    }' "$new/all" >"$new/said" || { echo "prepare_words: $cmudict has too few words:$(cat "$new/said")" >&2; exit 1; }

# ids 0 to 3 are what a BART puts around texts, what pads, and an unknown character
{
    printf '%s\n' '[CLS]' '[PAD]' '[SEP]' '[UNK]' {a..z} '##'{a..z}
    cut -f 2 "$new/all" | tr ' ' '\n' | LC_ALL=C sort -u
} >"$new/vocab.txt"
printf '{"tokenizer_class": "BertTokenizer", "do_lower_case": false}\n' >"$new/tokenizer_config.json"
echo "$folder, from CMUdict ($cmudict):"
cat "$new/said"
rm "$new/said" "$new/all"
rm -rf "$folder"
mv "$new" "$folder"
trap - EXIT
