#!/usr/bin/env bash
# What the hardware counted of a program's kernels, by Nsight Compute: the ten that took most of the time, as a table in Markdown.
#     dev/cuda/counters.sh PROGRAM FLAGS...
# Each launch runs several times, with empty caches, clocks as they are: their sum is more than the program takes. memory, multiprocessors, tensor cores: percent of
# what the card can do meanwhile, the mean over a kernel's launches by their time. conflicts: shared memory's accesses that waited for a bank, of a launch.
# $NCU: the tool. Needs it, and a card that lets it read its counters; where not, it says why and ends with 3.
set -u
[ $# -ge 1 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
ncu=${NCU:-$(PATH=$PATH:/usr/local/cuda/bin command -v ncu)} || { echo "there is no ncu (Nsight Compute) on this machine"; exit 3; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# Names differ from card to card: of each quantity the first that this one knows.
"$ncu" --query-metrics >"$tmp/known" 2>&1 || { echo "ncu cannot say what this card counts: $(tail -n 1 "$tmp/known")"; exit 3; }
metrics=() titles=()
look() { # title, what is behind the name, names
    local title=$1 behind=$2 name
    shift 2
    for name in "$@"; do
        grep -qw "$name" "$tmp/known" || continue
        metrics+=("$name$behind") titles+=("$title")
        return
    done
    echo "this card does not count: $title ($*)"
}
percent=.avg.pct_of_peak_sustained_elapsed
look time .sum gpu__time_duration gpu__time_active
look memory "$percent" dram__throughput gpu__dram_throughput
look multiprocessors "$percent" sm__throughput
look "tensor cores" "$percent" sm__pipe_tensor_cycles_active sm__pipe_tensor_op_hmma_cycles_active sm__inst_executed_pipe_tensor
look "warps" .avg.pct_of_peak_sustained_active sm__warps_active
look conflicts .sum l1tex__data_bank_conflicts_pipe_lsu_mem_shared
[ "${titles[0]:-}" = time ] || exit 3

list=$(IFS=,; echo "${metrics[*]}")
"$ncu" --csv --page raw --print-units base --print-kernel-base function --clock-control none --launch-count 1000 --metrics "$list" "$@" >"$tmp/all" 2>"$tmp/errors" ||
    { cat "$tmp/errors"; grep -v '^"' "$tmp/all" | tail -n 5; echo "ncu ended with an error"; exit 3; }
# Rows of names, of units, and of each launch; every field in quotes. What the program says is between them.
grep '^"' "$tmp/all" >"$tmp/rows"
[ "$(wc -l <"$tmp/rows")" -gt 2 ] || { tail -n 5 "$tmp/all"; echo "ncu counted nothing"; exit 3; }
awk -v metrics="$list" -v titles="$(IFS=,; echo "${titles[*]}")" '
    function value(m,  text) { text = $column[metric[m]]; gsub(/,/, "", text); return text + 0 }
    BEGIN { FS = "\",\""; n = split(metrics, metric, ","); split(titles, title, ",") }
    { sub(/^"/, ""); sub(/"\r?$/, "") }
    NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i
              if (!("Kernel Name" in column)) { print "there is no column Kernel Name:", $0; exit bad = 3 }
              for (m = 1; m <= n; m++) if (!(metric[m] in column)) { print "there is no column " metric[m] ":", $0; exit bad = 3 }
              next }
    NR == 2 { unit = $column[metric[1]]
              to_us = unit == "ns" || unit == "nsecond" ? 1e-3 : unit == "us" || unit == "usecond" ? 1 : 0
              if (!to_us) { print "time is in a unit that is not known: " unit; exit bad = 3 }
              next }
    { kernel = $column["Kernel Name"]; time = value(1) * to_us; all += time; launches[kernel]++; total[kernel] += time
      for (m = 2; m <= n; m++) sum[kernel, m] += value(m) * (title[m] == "conflicts" ? 1 : time) }
    END { if (bad) exit bad
          printf "| kernel | launches | us | of all, %%"; for (m = 2; m <= n; m++) printf " | %s%s", title[m], title[m] == "conflicts" ? "" : ", %"
          printf " |\n|---|"; for (m = 2; m <= n + 3; m++) printf "---|"; printf "\n"
          for (rank = 0; rank < 10; rank++) {
              best = ""; for (k in total) if (best == "" || total[k] > total[best]) best = k
              if (best == "") break
              printf "| %s | %d | %.1f | %.1f", best, launches[best], total[best] / launches[best], 100 * total[best] / (all > 0 ? all : 1)
              for (m = 2; m <= n; m++) printf title[m] == "conflicts" ? " | %.0f" : " | %.1f", sum[best, m] / (title[m] == "conflicts" ? launches[best] : total[best] > 0 ? total[best] : 1)
              printf " |\n"; delete total[best] } }' "$tmp/rows"
