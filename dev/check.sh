# Sourced by scripts that are tests: a temporary folder $tmp, `check NAME COMMAND...`, `skip NAME WHY`, and `finish`, whose line dev/test.sh adds up.
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0 skipped=0
check() {
    local name=$1
    shift
    if "$@" >"$tmp/out" 2>&1; then echo "ok   $name"; passed=$((passed + 1)); else
        echo "FAIL $name"; sed 's/^/    /' "$tmp/out" | head -n 40; failed=$((failed + 1))
    fi
}
skip() { echo "skip $1: $2"; skipped=$((skipped + 1)); }
finish() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ]
}
