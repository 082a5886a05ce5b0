#!/usr/bin/env bash
# The files of `make dist` are the library: outside of this tree, alone in a folder, they build the examples as C11, as
# C++17, by clang and by nvcc, and the tree does so by the commands that the examples and galaxy.h tell; one of several
# files that include them has the implementation; a loss falls, and a BERT's vectors are those of transformers. What
# cannot be put into one file is refused, and nothing is written then.
set -u
cd "$(dirname "$0")/.."
unset MAKEFLAGS MAKEOVERRIDES
CC=${CC:-cc} CXX=${CXX:-g++}
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
. dev/check.sh
has_header() { printf '#include <%s>\n' "$1" | "$CC" -E -x c - >/dev/null 2>&1; }
json=$(has_header jansson.h && echo "-DGX_WITH_JANSSON")
has_pcre2() { printf '#define PCRE2_CODE_UNIT_WIDTH 8\n#include <pcre2.h>\n' | "$CC" -E -x c - >/dev/null 2>&1; }
all=$([ -n "$json" ] && has_header utf8proc.h && has_pcre2 && echo yes)
dist=$tmp/dist
# for each `if` gcc's C reads the file again from its first line to look at the indentation: 4 s in a file of 60,000. The headers are asked for it in their folders.
warnings="-Wall -Wextra -Werror -Wno-misleading-indentation"
look() { if [ -n "$nvcc" ]; then check "$@"; else skip "$1" "nvcc was not found"; fi; }
with_json() { if [ -n "$json" ]; then check "$@"; else skip "$1" "jansson was not found"; fi; }
with_all() { if [ -n "$all" ]; then check "$@"; else skip "$1" "jansson, utf8proc and PCRE2 were not found"; fi; }
with_clang() { if command -v clang >/dev/null; then check "$@"; else skip "$1" "clang was not found"; fi; }
outside() { (cd "$tmp" && "$@"); } # of the tree: what is not in the folder is not found

# ---- the files -------------------------------------------------------------------------------------------------------------------------------------
is_made() { # twice the same, by make too; nothing else in the folder
    dev/dist.sh "$dist" && make -s dist && cmp "$dist/galaxy.h" build/dist/galaxy.h && cmp "$dist/galaxy_cuda.cuh" build/dist/galaxy_cuda.cuh &&
        [ "$(ls -A "$dist" | xargs)" = "galaxy.h galaxy_cuda.cuh" ]
}
has_all() { # that the library includes: each part once, with version and license
    local file wrong=0
    for file in galaxy/*/*.h galaxy/*/*.cuh; do
        [ "$(grep -cxF "// ---- $file" <(cat "$dist"/*))" = 1 ] || { echo "$file is not there once"; wrong=1; }
    done
    for file in "$dist"/*; do
        head -n 1 "$file" | grep -q "^// Galaxy [0-9.]*: $(basename "$file")," || { echo "$file does not say its version"; wrong=1; }
        grep -qxF "// $(sed -n 3p LICENSE)" "$file" || { echo "$file has no license"; wrong=1; }
    done
    return $wrong
}
includes_the_other() { # file, what it includes of the project
    [ "$(sed -n 's/^ *# *include *"\(.*\)".*/\1/p' "$dist/$1" | xargs)" = "$2" ]
}
refused() { # words of the message, a folder with the sources
    local said
    mkdir -p "$2/dev" && cp dev/dist.sh "$2/dev"
    if said=$("$2/dev/dist.sh" "$2/dist" 2>&1); then echo "it was taken"; return 1; fi
    echo "$said"
    [[ $said == *"$1"* ]] && [ -z "$(ls -A "$2/dist")" ]
}
copy() { rm -rf "$tmp/copy" && mkdir -p "$tmp/copy" && cp -r galaxy galaxy.h galaxy_cuda.cuh LICENSE "$tmp/copy"; }
lacks_a_file() {
    copy && sed -i 's|#include "../base/dtype.h"|&\n#include "../base/nowhere.h"|' "$tmp/copy/galaxy/io/safetensors.h" &&
        refused "galaxy/io/safetensors.h:$(grep -n nowhere "$tmp/copy/galaxy/io/safetensors.h" | cut -d: -f1): \"../base/nowhere.h\" was not found" "$tmp/copy"
}
has_a_part_by_chance() { # a header that only one library's half of an implementation includes, and then an implementation that always needs it
    copy && printf '#ifndef GX_CHANCE_H\n#define GX_CHANCE_H\n#endif\n' >"$tmp/copy/galaxy/io/chance.h" &&
        sed -i 's|#include <jansson.h>|&\n#include "chance.h"|' "$tmp/copy/galaxy/io/json.h" &&
        sed -i 's|#define GX_NPY_IMPLEMENTED|&\n#include "chance.h"|' "$tmp/copy/galaxy/io/npy.h" &&
        refused "galaxy/io/chance.h stands inside an implementation that is not always there; list it in galaxy.h" "$tmp/copy"
}
check "make dist writes two files, and the same again" is_made
check "every header is a part of them, once" has_all
check "galaxy.h includes galaxy_cuda.cuh alone" includes_the_other galaxy.h galaxy_cuda.cuh
check "galaxy_cuda.cuh includes galaxy.h alone" includes_the_other galaxy_cuda.cuh galaxy.h
check "an include that is not found is named, and nothing is written" lacks_a_file
check "a part that would be there by chance is refused" has_a_part_by_chance

# ---- compilers -------------------------------------------------------------------------------------------------------------------------------------
# What a compiler gets to see is what it sees of the headers in their folders, line by line, in whichever order. Headers of other libraries are empty here.
seen() { # folder, flags...
    local folder=$1
    shift
    "$CXX" -x c++ -std=c++17 -E -P -Wno-builtin-macro-redefined -D__FILE__= -D__LINE__= -I"$folder" -I"$tmp/empty" "$@" "$tmp/both.cc" | sort
}
same_text() { # flags...
    mkdir -p "$tmp/empty/oneapi/dnnl" && touch "$tmp/empty/"{cublasLt,cuda_bf16,cuda_runtime,nccl,jansson,utf8proc,pcre2,mpi,oneapi/dnnl/dnnl}.h &&
        printf '#include "galaxy.h"\n#include "galaxy_cuda.cuh"\n' >"$tmp/both.cc"
    seen . "$@" >"$tmp/tree" && seen "$dist" "$@" >"$tmp/one" && grep -q "gx_device_cuda" "$tmp/one" && diff "$tmp/tree" "$tmp/one"
}
twice() { # compiler's words...: declarations, then with the implementation
    printf '#include "galaxy.h"\n#include "galaxy.h"\n' >"$tmp/twice.c"
    outside "$@" -pedantic $warnings -Idist -fsyntax-only twice.c && outside "$@" -pedantic $warnings -DGALAXY_IMPLEMENTATION -Idist -fsyntax-only twice.c
}
# The command that a file tells, but for -O2, which takes half a minute: words in it, the file, a folder where it runs
told() {
    local command
    command=$(sed -n "s|^// *\(.*\)|\1|p" "$2" | grep -m 1 -e "$1" | sed 's/-O2 //; s/ && .*//')
    [ -n "$command" ] && echo "$command" && (cd "$3" && eval "${command/#cc /$CC }")
}
from_tree() { # name of an example, which is built as it says: into $tmp/name_from_tree
    mkdir -p "$tmp/told" && ln -sfn "$PWD/galaxy" "$PWD/galaxy.h" "$PWD/examples" "$tmp/told" &&
        told "^cc .*$1.c" "examples/$1.c" "$tmp/told" && mv "$tmp/told/a.out" "$tmp/$1_from_tree"
}
example() { # name, compiler's words...: into $tmp/name
    local name=$1
    shift
    cp "examples/$name.c" "$tmp" && outside "$@" $warnings -Idist "$name.c" -o "$name" ${json:+-ljansson} -lm -lpthread
}
library() { # as galaxy.h tells, where all libraries are there; else with fewer
    mkdir -p "$tmp/project" && cp "$dist/galaxy.h" "$tmp/project" && told "^printf" galaxy.h "$tmp/project" || return 1
    if [ -n "$all" ]; then told "^cc .* -c galaxy.c" galaxy.h "$tmp/project"; else
        outside "$CC" -fopenmp $json -c project/galaxy.c -o project/galaxy.o
    fi
}
program() { # name of an example, which is then a program beside the library, without the implementation: into $tmp/name
    grep -v "^#define GALAXY_IMPLEMENTATION$" "examples/$1.c" >"$tmp/project/program.c" &&
        told "^cc .*program.c galaxy.o" galaxy.h "$tmp/project" && mv "$tmp/project/a.out" "$tmp/$1"
}
strict_library() { # in C11, with all warnings
    printf '#define GALAXY_IMPLEMENTATION\n#include "galaxy.h"\n' >"$tmp/library.c"
    outside "$@" $warnings $json ${all:+-DGX_WITH_UTF8PROC -DGX_WITH_PCRE2} -Idist -c library.c
}
beside_library() { # name, compiler's words...: an example that has no implementation
    local name=$1
    shift
    grep -v "^#define GALAXY_IMPLEMENTATION$" "examples/$name.c" >"$tmp/$name.c"
    outside "$@" $warnings $json -Idist "$name.c" -x none project/galaxy.o -o "$name" -fopenmp \
        ${json:+-ljansson} ${all:+-lutf8proc -lpcre2-8} -lm -lpthread
}
attention() { # how it is built, compiler's words...: prints what it prints where the headers lie in their folders
    "$1" attention "${@:2}" && "$tmp/attention" >"$tmp/said" && "$tmp/attention_from_tree" >"$tmp/expected" && cmp "$tmp/said" "$tmp/expected" &&
        [ "$(wc -l <"$tmp/said")" = 5 ]
}
check "the declarations are those of the headers" same_text
check "the implementation is that of the headers" same_text -DGALAXY_IMPLEMENTATION
check "the implementation with other libraries is that of the headers" same_text -DGALAXY_IMPLEMENTATION \
    -DGX_WITH_JANSSON -DGX_WITH_UTF8PROC -DGX_WITH_PCRE2 -DGX_WITH_MPI -DGX_WITH_ONEDNN -DGX_WITH_CUDA
check "the kernels are those of the headers" same_text -DGALAXY_CUDA_IMPLEMENTATION
check "galaxy.h twice, C11" twice "$CC" -std=c11
check "galaxy.h twice, C++17" twice "$CXX" -x c++ -std=c++17
learns() { # how it is built, compiler's words...: the loss falls from ln 10 to nearly 0, and the sequence is right
    "$1" train "${@:2}" && "$tmp/train${built:-}" >"$tmp/said" || return 1
    cat "$tmp/said"
    awk '$1 == "step" { if ($2 == 1) first = $4; last = $4; n = $2 }
         END { exit !(first > 2.2 && first < 2.5 && last < 0.01 && n == 100) }' "$tmp/said" &&
        [ "$(tail -n 1 "$tmp/said")" = "1 1 2 3 5 8 3 1 4 5 9 4 3 7 0 7 7 4 1 5" ]
}
check "the implementation is compiled once, as galaxy.h says" library
check "the implementation is C11, with all libraries, without a warning" strict_library "$CC" -std=c11
with_clang "and clang's" strict_library clang -std=c11
with_clang "and clang's C++17" strict_library clang -x c++ -std=c++17
check "attention.c is built from the tree as it says" from_tree attention
check "attention.c, C11" attention example "$CC" -std=c11
check "attention.c, C++17, beside the implementation in C" attention beside_library "$CXX" -x c++ -std=c++17
built=_from_tree check "train.c is built from the tree as it says, and learns" learns from_tree
check "train.c, C11, beside the implementation, learns" learns beside_library "$CC" -std=c11
with_clang "train.c, C++17, by clang, learns" learns example clang++ -x c++ -std=c++17
# Kernels that nobody runs are compiled as far as something can be wrong with their order, where this nvcc (13.0) can end there; else they are not optimised.
ends=$([ -z "$nvcc" ] || "$nvcc" --help | grep -qe --fdevice-syntax-only && echo -fdevice-syntax-only)
by_nvcc() { # file of the object, words of nvcc...
    outside "$nvcc" -std=c++17 -arch=sm_80 -Xcicc -O0 -Xptxas -O0 $ends -x cu -Idist -c "${@:2}" -o "$1" && nm "$tmp/$1" >"$tmp/names" &&
        grep -q " T gx_device_cuda$" "$tmp/names" && grep -q gx__mma_attention_forward "$tmp/names"
}
look "attention.c with all kernels, by nvcc" by_nvcc attention.o -DGX_WITH_CUDA -DGALAXY_IMPLEMENTATION attention.c
look "the kernels apart from galaxy.h's implementation, by nvcc" by_nvcc kernels.o -DGALAXY_CUDA_IMPLEMENTATION dist/galaxy_cuda.cuh

# ---- vectors ---------------------------------------------------------------------------------------------------------------------------------------
# The numbers of a tensor of the reference: name, od's format of them
reference() {
    local file=data/ref/bert_embed/ref.safetensors size range
    size=$(od -An -t u8 -N 8 "$file" | tr -d ' ')
    range=$(head -c $((8 + size)) "$file" | tail -c "$size" | sed "s/.*\"$1\":{[^}]*\"data_offsets\":\[\([0-9]*,[0-9]*\)\].*/\1/")
    od -An -v -w4 -t "$2" -j $((8 + size + ${range%,*})) -N $((${range#*,} - ${range%,*})) "$file"
}
# Its tokens 0, 1, 2 are [PAD], [CLS], [SEP], the others here "t3", "t4" and so on; 6 and 9 are in no text of the reference.
model_folder() {
    mkdir -p "$tmp/bert" && cp data/ref/bert_embed/{config.json,model.safetensors} "$tmp/bert" || return 1
    { printf '%s\n' '[PAD]' '[CLS]' '[SEP]' && printf 't%d\n' {3..60} | sed 's/^t6$/[UNK]/; s/^t9$/[MASK]/'; } >"$tmp/bert/vocab.txt"
    echo '{"do_lower_case": false}' >"$tmp/bert/tokenizer_config.json" # accents stay: utf8proc is not needed
    reference tokens d4 | awk 'NR % 8 == 1 { if (NR > 1) print line; line = "" } $1 > 2 { line = line (line == "" ? "" : " ") "t" $1 } END { print line }' >"$tmp/texts"
    reference mean_negatives.embeddings f4 >"$tmp/vectors"
    [ "$(wc -l <"$tmp/texts")" = 9 ] && [ "$(wc -l <"$tmp/vectors")" = $((9 * 12)) ]
}
embed() { "$tmp/embed_text" --model "$@"; }
# The bound of test_bert.cu: 8 u sqrt(depth), u = 2^-24, and 383 roundings one behind the other: of each of 2 layers 4*12 + (12 + 8 + 21) + 4*12, and 4*12 + 61.
vectors() { # how it is built, compiler's words...
    local text
    "$1" embed_text "${@:2}" $json || return 1
    while IFS= read -r text; do embed "$tmp/bert" "$text" || return 1; done <"$tmp/texts" >"$tmp/said"
    [ "$(wc -l <"$tmp/said")" = $((9 * 12)) ] || { echo "$(wc -l <"$tmp/said") numbers"; return 1; }
    paste "$tmp/said" "$tmp/vectors" | awk '
        { error += ($1 - $2) ^ 2; size += $2 ^ 2 }
        NR % 12 == 0 {
            if (!(sqrt(error / size) <= 8 * 2 ^ -24 * sqrt(383))) { print "text " NR / 12 ": " sqrt(error / size); wrong = 1 }
            error = size = 0
        }
        END { exit wrong }'
}
says() { # exit status, words on stderr, arguments of embed_text
    local status=$1 words=$2 got
    shift 2
    "$tmp/embed_text" "$@" >"$tmp/said" 2>"$tmp/message"
    got=$?
    cat "$tmp/message"
    [ "$got" = "$status" ] && grep -qF -- "$words" "$tmp/message"
}
with_another_head() { # a BertForMaskedLM gives the vectors of the BertModel in it
    rm -rf "$tmp/head" && cp -r "$tmp/bert" "$tmp/head" && cp data/ref/bert_mlm/{config.json,model.safetensors} "$tmp/head" && embed "$tmp/head" "t3 t4" >"$tmp/said" &&
        [ "$(wc -l <"$tmp/said")" = "$(sed -n 's/.*"hidden_size": \([0-9]*\).*/\1/p' "$tmp/head/config.json")" ]
}
more_tokens() { echo more >>"$tmp/head/vocab.txt" && says 1 "the tokenizer has 62 tokens, the model has rows for 61" --model "$tmp/head" t3; }
with_json "the model of the reference has a tokenizer" model_folder
with_json "embed_text.c as C++17 gives the vectors of transformers" vectors example "$CXX" -x c++ -std=c++17
with_all "embed_text.c beside the implementation, as galaxy.h says, gives the vectors of transformers" vectors program
with_json "a head that is not asked for is left out" with_another_head
with_json "a text that is too long is cut, and that is said" says 0 "17 tokens and is cut: the model has positions for 13" --model "$tmp/bert" "$(printf 't%d ' {10..24})"
with_json "a folder that is not there is named" says 1 "there is no folder $tmp/nowhere" --model "$tmp/nowhere" t3
with_json "a tokenizer that is larger than the model is refused" more_tokens
with_json "without arguments it says how it is called" says 2 "usage: embed_text --model FOLDER TEXT"
accents() { # the tokenizer that takes accents off: of "t4" with an acute, too
    from_tree embed_text && cp "$tmp/embed_text_from_tree" "$tmp/embed_text" && cp -r "$tmp/bert" "$tmp/lower" &&
        echo '{"do_lower_case": true}' >"$tmp/lower/tokenizer_config.json" &&
        embed "$tmp/lower" "t3 T$(printf '\xcc\x81')4" >"$tmp/said" && embed "$tmp/bert" "t3 t4" | cmp - "$tmp/said"
}
without_json() { "$CC" -I. examples/embed_text.c -o "$tmp/embed_text" -lm -lpthread && says 1 jansson --model "$tmp/bert" t3; }
with_all "embed_text.c is built from the tree as it says, with utf8proc" accents
check "embed_text.c is built from the tree by a bare cc, and says that it lacks jansson" without_json
finish
