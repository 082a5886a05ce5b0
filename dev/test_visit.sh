#!/usr/bin/env bash
# A visit to a machine with a GPU (dev/cuda/visit.sh), with stand-ins for the programs of `make gpu`, the card and its tools. No GPU and no compiler is needed.
set -u
cd "$(dirname "$0")/.."
. dev/check.sh
unset LD_LIBRARY_PATH MASTER_PORT TWO_RANKS_SECONDS
checkout=$tmp/checkout calls=$tmp/calls
mkdir -p "$checkout/built" "$tmp/bin"
cp --parents dev/cuda/*.sh dev/data/prepare_text.sh test_devices.cu "$checkout"

# Each program notes its name and arguments.
cat >"$checkout/built/program" <<'X'
#!/usr/bin/env bash
name=${0##*/}
echo "$name $*" >>"$CALLS"
[[ $name != test_* ]] || echo "1 passed, 0 failed, 0 skipped"
X
for name in test_{devices,memory,llama,generate,bert,precision,train_devices,bert_modes,modes,graphs} workshop_{memory_bound,rms_norm,layer_norm,attention,quantize} \
    llama_step train_llama{,_tp,_galaxy,_galaxy2,_sp}; do
    ln -s program "$checkout/built/$name"
done
for name in compute-sanitizer ncu nvidia-smi; do ln -s "$checkout/built/program" "$tmp/bin/$name"; done
chmod +x "$checkout/built/program"

visit() { # OUT, options of visit.sh...: what ran is in $calls
    : >"$calls"
    CALLS=$calls PATH=$tmp/bin:$PATH PYTHON=/bin/false "$checkout/dev/cuda/visit.sh" "$tmp/$1" --built built "${@:2}" >"$tmp/said"
}

# test_devices runs a test whose name contains one of its arguments.
is_sanitized() {
    local tool name names words missing=0
    visit sanitizer --part sanitizer || { cat "$tmp/said"; return 1; }
    names=$(sed -n 's/^TEST(\([a-z0-9_]*\)).*/\1/p' test_devices.cu)
    [ "$(wc -w <<<"$names")" -gt 50 ] || { echo "the tests of test_devices are not known: $names"; return 1; }
    for tool in memcheck racecheck; do
        words=$(sed -n "s|^compute-sanitizer --tool $tool .* built/test_devices ||p" "$calls")
        for name in $(grep -vE "$(xargs <<<"$words" | tr ' ' '|')" <<<"$names"); do echo "$name is in no group of $tool"; missing=1; done
    done
    return $missing
}
check "every test of test_devices runs under both of compute-sanitizer's tools" is_sanitized
finish
