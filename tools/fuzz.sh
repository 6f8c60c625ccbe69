#!/bin/sh
# Runs the fuzz targets of a build of ./dev fuzz, in parallel on all cores.
#
# Usage: DANLING_BUILD_DIR=<directory> fuzz.sh [--seconds N] [--merge] [TARGET...]
#   --seconds N  total time (default 600)
#   --merge      instead of fuzzing, rewrite tests/fuzz/corpus with the smallest set of inputs (found ones and seeds)
#                that reaches the same code
# Found inputs are kept in <directory>/corpus for the next run. A failing input is stored in <directory>/artifacts; the
# output has the command that repeats it.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
build=$DANLING_BUILD_DIR
seconds=600
merge=''
targets=''
while [ $# -gt 0 ]; do
  case $1 in
    --seconds)
      [ $# -gt 1 ] || { echo 'fuzz: expected a number of seconds after --seconds' >&2 && exit 2; }
      seconds=$2
      shift
      ;;
    --merge) merge=1 ;;
    -*) echo "fuzz: expected --seconds, --merge or targets, got $1" >&2 && exit 2 ;;
    *) targets="$targets $1" ;;
  esac
  shift
done
case $seconds in
  '' | *[!0-9]*) echo "fuzz: expected a number of seconds, got '$seconds'" >&2 && exit 2 ;;
esac
all=$(cd "$root/tests/fuzz/corpus" && echo *)
for target in $targets; do
  case " $all " in
    *" $target "*) ;;
    *) echo "fuzz: expected one of: $all; got $target" >&2 && exit 2 ;;
  esac
done
targets=${targets:-$all}
mkdir -p "$build/artifacts"

# Options of the sanitizers: leaks are errors, and so is memory beyond the limit for any input.
common='-timeout=10 -rss_limit_mb=2048'

# fuzz_one TARGET SECONDS
fuzz_one() {
  program=$build/tests/fuzz/fuzz_$1
  committed=$root/tests/fuzz/corpus/$1
  mkdir -p "$build/corpus/$1"
  case $1 in
    pth) dictionary=$root/tests/fuzz/pickle.dict ;; # its mutations change the pickle inside the archive
    *) dictionary=$root/tests/fuzz/$1.dict ;;
  esac
  [ ! -e "$dictionary" ] || set -- "$@" "-dict=$dictionary"
  name=$1 limit=$2
  shift 2
  log=$build/artifacts/$name.log
  # shellcheck disable=SC2086
  if "$program" $common -max_total_time="$limit" -print_final_stats=1 -artifact_prefix="$build/artifacts/$name-" "$@" \
    "$build/corpus/$name" "$committed" >"$log" 2>&1; then
    runs=$(sed -n 's/^stat::number_of_executed_units: //p' "$log")
    covered=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
    echo "fuzz: $name: ok, $runs inputs in $limit s, $covered edges reached"
    return 0
  fi
  grep -a -E '^(expected|==[0-9]+==ERROR|.*runtime error|[0-9]+ bytes of memory|ALARM|terminate|  what)' "$log" | head -n 5
  found=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
  echo "fuzz: $name: FAILED; the whole report: $log; repeat it with: $program ${found:-$log}"
  return 1
}

# merge_one TARGET
merge_one() {
  fresh=$build/merged/$1
  rm -rf "$fresh"
  mkdir -p "$fresh" "$build/corpus/$1" "$build/seeds/$1"
  # Compares only edges, not their counts, which leaves a few hundred inputs that run in a second.
  "$build/tests/fuzz/fuzz_$1" -set_cover_merge=1 -use_counters=0 -max_len=32768 "$fresh" "$root/tests/fuzz/corpus/$1" "$build/seeds/$1" \
    "$build/corpus/$1" >"$build/artifacts/$1.log" 2>&1
  rm -rf "$root/tests/fuzz/corpus/$1"
  cp -R "$fresh" "$root/tests/fuzz/corpus/$1"
  echo "fuzz: $1: $(find "$fresh" -type f | wc -l) inputs, $(cat "$fresh"/* | wc -c) bytes"
}

if [ -n "$merge" ]; then
  python3 "$root/tests/fuzz/seeds.py" "$build/seeds"
  for target in $targets; do merge_one "$target"; done
  exit
fi

# Runs in rounds with one target per core; each round gets an equal share of the time.
cores=$(nproc 2>/dev/null || echo 1)
count=$(echo "$targets" | wc -w)
rounds=$(((count + cores - 1) / cores))
each=$((seconds / rounds > 0 ? seconds / rounds : 1))
failed=''
pids=''
wait_all() {
  for pid in $pids; do wait "$pid" || failed=1; done
  pids=''
}
running=0
for target in $targets; do
  fuzz_one "$target" "$each" &
  pids="$pids $!"
  running=$((running + 1))
  [ $((running % cores)) -ne 0 ] || wait_all
done
wait_all
[ -z "$failed" ]
