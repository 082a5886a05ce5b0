# Tables in Markdown from the lines that dev/bench/modes.sh collected: words name=value, one line per rank of a run.

function median(list, n,    i, j, x) { # sorts its first n
    for (i = 2; i <= n; i++) {
        x = list[i]
        for (j = i - 1; j >= 1 && list[j] > x; j--) list[j + 1] = list[j]
        list[j + 1] = x
    }
    return n ? (list[int((n + 1) / 2)] + list[int(n / 2) + 1]) / 2 : 0
}
function of(key, name,    i, list) { # the median over the rounds
    for (i = 1; i <= rounds; i++) list[i] = value[key, i, name]
    return median(list, rounds)
}
function ratio(base, key,    i, list, m) { # how many times as many tokens/s: median (quartiles)
    for (i = 1; i <= rounds; i++) list[i] = value[base, i, "ms"] / value[key, i, "ms"]
    m = median(list, rounds)
    return sprintf("%.2f (%.2f-%.2f)", m, list[int((rounds + 3) / 4)], list[rounds + 1 - int((rounds + 3) / 4)])
}
function compute(key,    i, list) {
    for (i = 1; i <= rounds; i++) list[i] = value[key, i, "ms"] - value[key, i, "comm_ms"]
    return median(list, rounds)
}
function mb(bytes) { return sprintf("%.1f", bytes / 1e6) }
function number(x,    s, n) { # with commas
    s = sprintf("%.0f", x)
    while ((n = match(s, /[0-9][0-9][0-9][0-9]($|,)/))) s = substr(s, 1, n) "," substr(s, n + 1)
    return s
}

{
    delete word
    for (i = 1; i <= NF; i++) {
        at = index($i, "=")
        word[substr($i, 1, at - 1)] = substr($i, at + 1)
    }
    run = word["shape"] " " word["case"] " " word["mode"] " " word["engine"]
    key = run " " word["rank"]
    for (name in word) value[key, word["round"], name] = word[name]
    if (word["round"] > rounds) rounds = word["round"]
    if (!seen[run]++) order[++runs] = run
    device = word["device"]
    disturbed += word["quiet"] == 0 && word["rank"] == 0
    loss = word["shape"] " " word["round"]
    if (!(loss in first_loss)) first_loss[loss] = word["loss"]
    if ((word["loss"] - first_loss[loss]) ^ 2 > 1e-6) wrong = wrong run " has loss " word["loss"] ", not " first_loss[loss] "\n"
}

END {
    gsub("_", " ", device)
    gsub("avx512 ", "avx512_", device); gsub("amx ", "amx_", device)
    print device "; medians of " rounds " rounds" (disturbed ? "; " disturbed " runs were disturbed by other programs" : "")
    if (wrong) print "NOT THE SAME LOSS:\n" wrong
    for (r = 1; r <= runs; r++) {
        split(order[r], p, " ")
        if (p[2] == p[1] || p[2] == p[3]) plain[++plains] = order[r]
    }
    print "\n| shape | mode | ranks are | ms per step | tokens/s, times serial's (quartiles) | computing, ms, rank 0, rank 1 | inside collectives, ms, rank 0, rank 1 |"
    print "|---|---|---|---|---|---|---|"
    for (r = 1; r <= plains; r++) {
        run = plain[r]; split(run, p, " ")
        serial = p[1] " serial serial none 0"
        if (p[4] == "none") printf "| %s | serial | one, of two threads | %.1f | | | |\n", p[1], of(serial, "ms")
        else
            printf "| %s | %s | %s | %.1f | %s | %.1f, %.1f | %.1f, %.1f |\n", p[1], p[3], p[4] == "mpi" ? "processes" : "threads", of(run " 0", "ms"),
                   ratio(serial, run " 0"), compute(run " 0"), compute(run " 1"), of(run " 0", "comm_ms"), of(run " 1", "comm_ms")
    }
    print "\n| shape | mode | a rank's arena, MB | of it communication | plan with program and libraries, MB | the process's peak, MB, rank 0, rank 1 |"
    print "|---|---|---|---|---|---|"
    for (r = 1; r <= plains; r++) {
        run = plain[r]; split(run, p, " ")
        if (p[4] == "threads") continue
        peaks = mb(of(run " 0", "peak"))
        if (p[4] == "mpi") peaks = peaks ", " mb(of(run " 1", "peak"))
        printf "| %s | %s | %s | %s | %s | %s |\n", p[1], p[3], mb(of(run " 0", "arena")), mb(of(run " 0", "comm_memory")), mb(of(run " 0", "planned")), peaks
    }
    print "\n| shape | mode | stream, computed | recorded | K, V, computed | recorded | head's loss, computed | recorded | gradients, computed | recorded | counts, norm, loss |"
    print "|---|---|---|---|---|---|---|---|---|---|---|"
    for (r = 1; r <= plains; r++) {
        run = plain[r] " 0"; split(run, p, " ")
        if (p[4] != "threads") continue
        printf "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", p[1], p[3], number(of(run, "computed_stream")), number(of(run, "stream")),
               number(of(run, "computed_kv")), number(of(run, "kv")), number(of(run, "computed_head_loss")), number(of(run, "head_loss")), number(of(run, "computed_grads")), number(of(run, "grads")),
               number(of(run, "rest"))
    }
    print "\n| mode | ranks | parts | ms per step | tokens/s, times that of equal ranks (quartiles) | computing, ms, rank 0, rank 1 | inside collectives, ms, rank 0, rank 1 |"
    print "|---|---|---|---|---|---|---|"
    for (r = 1; r <= runs; r++) {
        run = order[r]; split(run, p, " ")
        if (p[2] !~ /^(equal|slow_even|slow_uneven)$/) continue
        printf "| %s | %s | %s | %.1f | %s | %.1f, %.1f | %.1f, %.1f |\n", p[3], p[2] == "equal" ? "equal" : "rank 1 half as fast",
               p[2] == "slow_uneven" ? "2 : 1" : "even", of(run " 0", "ms"), ratio(p[1] " equal " p[3] " " p[4] " 0", run " 0"), compute(run " 0"),
               compute(run " 1"), of(run " 0", "comm_ms"), of(run " 1", "comm_ms")
    }
}
