#!/usr/bin/env bash
# A visit to a machine with a GPU (dev/cuda/visit.sh and gpu.sh), with stand-ins for the programs of `make gpu`, the card and its tools: what runs, what runs again, and what the
# report says of programs that fail or hang. No GPU and no compiler is needed.
set -u
cd "$(dirname "$0")/.."
. dev/check.sh
unset LD_LIBRARY_PATH MASTER_PORT TWO_RANKS_SECONDS
checkout=$tmp/checkout out=$tmp/visit all_parts="tests ranks steps training kernels counters sanitizer"
mkdir -p "$checkout/built" "$tmp/bin" "$tmp/does" "$tmp/tmp"
cp --parents dev/cuda/*.sh dev/data/prepare_text.sh test_devices.cu "$checkout"

# ---- stand-ins --------------------------------------------------------------------------------------------------------------------------------
# Each program notes its name and arguments, and does what the file of its name says, if there is one.
export STAND_INS=$tmp
cat >"$checkout/built/program" <<'X'
#!/usr/bin/env bash
name=${0##*/}
[[ $name == @(ldd|python) ]] || echo "$name $*" >>"$STAND_INS/calls"
[ ! -e "$STAND_INS/does/$name" ] || . "$STAND_INS/does/$name"
[[ $name != test_* ]] || echo "1 passed, 0 failed, 0 skipped"
X
for name in test_{devices,memory,llama,generate,bert,precision,train_devices,bert_modes,modes,graphs} workshop_{memory_bound,rms_norm,layer_norm,attention,quantize,nccl_calls} \
    llama_step train_llama{,_tp,_galaxy,_galaxy2,_sp}; do
    ln -s program "$checkout/built/$name"
done
for name in compute-sanitizer ncu nvidia-smi ldd python; do ln -s "$checkout/built/program" "$tmp/bin/$name"; done
# Limits are shorter: four seconds, and one where a program is asked to end.
cat >"$tmp/bin/timeout" <<X
#!/usr/bin/env bash
words=() seconds=4
while [[ ! \$1 =~ ^[0-9]+\$ ]]; do
    [ "\$1" != TERM ] || seconds=1
    words+=("\$1")
    shift
done
exec $(command -v timeout) "\${words[@]}" \$seconds "\${@:2}"
X
chmod +x "$checkout/built/program" "$tmp/bin/timeout"

does() { cat >"$tmp/does/$1"; }
does nvidia-smi <<<'echo "NVIDIA Stand-in 1"'
does python <<<'[[ $* != *torch* ]] || { echo "no torch"; exit 1; }; echo "$STAND_INS/packages"'
command=(env PATH="$tmp/bin:$PATH" TMPDIR="$tmp/tmp" PYTHON=python "$checkout/dev/cuda/visit.sh" "$out" --built built)
visit() { # options of visit.sh...: what ran is in $tmp/calls
    : >"$tmp/calls"
    "${command[@]}" "$@" >"$tmp/said" 2>&1
}
has() { grep -qF -- "$2" "$tmp/$1" || { echo "$1 does not have: $2"; cat "$tmp/$1"; return 1; }; } # file, words
has_not() { ! grep -F -- "$2" "$tmp/$1"; }
reports() { has visit/report.md "$1"; }
ran() { has calls "$1"; }
echo first >"$checkout/built/commit"

# ---- one visit, on which things go wrong ------------------------------------------------------------------------------------------------------
does test_llama <<<'echo "FAIL a_name"; echo "0 passed, 1 failed, 0 skipped"; exit 1'
does workshop_rms_norm <<<'[ "$1" != --time ] || sleep 60'
does train_llama <<'X'
if [[ $* != *--device_comm* ]]; then
    words=$* folder=${words##*--output_dir } && mkdir -p "$folder" && echo curve >"$folder/loss.svg"
    trap 'echo "warning: stopped"; exit 143' TERM
    while :; do sleep 0.1; done
fi
X
all_parts_run() {
    local part
    if visit; then echo "it ended with 0, although a program failed"; return 1; fi
    for part in $all_parts; do
        reports "# $part: commit first" && grep -q "NVIDIA Stand-in 1" "$out/$part/report.md" || { echo "$part does not name the card"; return 1; }
    done
    reports "| two ranks by NCCL: sp | ok |" && reports "| what a call of NCCL costs the host | ok |" && reports "| Galaxy, bf16 | ok |" && reports "| PyTorch | skipped: python cannot import torch and transformers: no torch"
}
failure_is_reported() {
    local name
    for name in "$checkout"/built/{test,workshop,train,llama}_*; do ran "${name##*/}" || return 1; done
    reports "| test_llama | exit status 1: 0 passed, 1 failed, 0 skipped; first: FAIL a_name |" && reports "## test_llama failed" &&
        reports "| test_generate | ok: 1 passed, 0 failed, 0 skipped |"
}
hang_is_reported() { reports "| workshop_rms_norm --time | not done in 100 s |" && reports "| workshop_layer_norm --check | ok |"; }
training_ends() { reports "have | ok |" && reports "    warning: stopped" && [ "$(cat "$out/training/loss.svg")" = curve ]; }
text_was_made() { reports "| data/text.txt | was not brought along, so it was made here: $(cat "$checkout/data/text.txt.source")"; }
# test_devices runs a test whose name contains one of its arguments.
all_is_sanitized() {
    local tool name names words missing=0
    names=$(sed -n 's/^TEST(\([a-z0-9_]*\)).*/\1/p' test_devices.cu)
    [ "$(wc -w <<<"$names")" -gt 50 ] || { echo "the tests of test_devices are not known: $names"; return 1; }
    for tool in memcheck racecheck; do
        words=$(sed -n "s|^compute-sanitizer --tool $tool .* built/test_devices ||p" "$tmp/calls" | xargs)
        [ -n "$words" ] || { echo "$tool did not run"; return 1; }
        for name in $(grep -vE "${words// /|}" <<<"$names"); do echo "$name is in no group of $tool"; missing=1; done
    done
    return $missing
}
check "all parts run, and their reports name commit and card" all_parts_run
check "a program that fails is reported, and costs no other one" failure_is_reported
check "a program that hangs is reported, and costs no other one" hang_is_reported
check "a training that takes too long ends with its curve" training_ends
check "a text that was not brought along is made, and the report says so" text_was_made
check "every test of test_devices runs under both of compute-sanitizer's tools" all_is_sanitized

# ---- further visits, on which all is well -----------------------------------------------------------------------------------------------------
rm "$tmp/does"/{test_llama,workshop_rms_norm,train_llama}
not_again() {
    ! visit && [ ! -s "$tmp/calls" ] && has said "==== tests ran before, of commit first" && visit --part ranks && [ ! -s "$tmp/calls" ] || { cat "$tmp/said" "$tmp/calls"; return 1; }
}
failed_training() { # before and after it has a curve
    does train_llama <<<'exit 1'
    ! visit --part training --again true && reports "have | exit status 1 |" || return 1
    does train_llama <<<'exit 143'
    ! visit --part training --again true && reports "have | exit status 143 |" || return 1
    rm "$tmp/does/train_llama"
}
again() { visit --part tests --again true && ran test_llama && has_not calls workshop && reports "| test_llama | ok: 1 passed, 0 failed, 0 skipped |" && reports "# kernels: commit first"; }
of_another_commit() { echo second >"$checkout/built/commit" && visit --part tests && ran test_llama && reports "# tests: commit second"; }
text_was_brought() {
    printf 'a text' >"$checkout/data/text.txt" && echo "a story" >"$checkout/data/text.txt.source" && visit --part training --again true && reports "| data/text.txt | a story (6 bytes) |"
}
cut_off() { # one that had run to its end before
    local i pid
    visit --part kernels || return 1
    does workshop_rms_norm <<<'[ "$1" != --time ] || sleep 60'
    : >"$tmp/calls"
    setsid "${command[@]}" --part kernels --again true >"$tmp/said" 2>&1 &
    pid=$!
    for ((i = 0; i < 100; i++)); do ! grep -q "rms_norm --time" "$tmp/calls" || break; sleep 0.1; done
    kill -KILL -- "-$pid" && ran "rms_norm --time" || return 1
    rm "$tmp/does/workshop_rms_norm"
    visit --part kernels && ran "workshop_memory_bound --check" && ran "workshop_quantize --time" && reports "| workshop_rms_norm --time | ok |"
}
libraries() { # what a library's package has is found, what nobody has is named
    mkdir -p "$tmp/packages/nvidia/a_package/lib" && touch "$tmp/packages/nvidia/a_package/lib/libof_a_package.so.1"
    does ldd <<<'echo "libgomp.so.1 => not found"; [[ ${LD_LIBRARY_PATH:-} == */nvidia/a_package/lib* ]] || echo "libof_a_package.so.1 => not found"'
    visit --part counters --again true
    has visit/counters/report.md "| libof_a_package.so.1 | the loader has none; taken from $tmp/packages/nvidia/a_package/lib |" &&
        has visit/counters/report.md "| libgomp.so.1 | not found: no program of built can start |"
}
check "a part that ran to its end is not run again, and keeps its result" not_again
check "--again true runs it again, and keeps the others' reports" again
check "programs of another commit run" of_another_commit
check "a training that fails, or has no curve when it is ended, is reported" failed_training
check "the report names the text that was brought along" text_was_brought
check "a part that was cut off begins anew" cut_off
check "libraries are looked for in packages, and one that is nowhere is named" libraries
finish
